/* hist: counts of durations in buckets of a quarter of a power of two: percentiles to within a ninth, in a
 * fixed 640 bytes, added to without a lock. */
#ifndef NTR_BASE_HIST_H
#define NTR_BASE_HIST_H

#include <stdatomic.h>
#include <stdint.h>

enum { NTR_HIST_BUCKETS = 4 * 40 };

/* The bucket of a duration in nanoseconds, in [0, NTR_HIST_BUCKETS). */
unsigned ntr_hist_bucket(uint64_t ns);
/* The q-th quantile (0..1) of plain counts, in microseconds; 0 when there are none. */
double ntr_hist_quantile(const uint64_t counts[NTR_HIST_BUCKETS], double q);

/* One histogram with any number of writers. Zero-initialise. */
struct ntr_hist {
	_Atomic uint64_t count;
	_Atomic uint32_t bucket[NTR_HIST_BUCKETS];
};
void ntr_hist_add(struct ntr_hist *h, uint64_t ns);
/* Count, and 50th and 99th percentile in microseconds. */
void ntr_hist_read(struct ntr_hist *h, uint64_t *ret_count, double *ret_p50_us, double *ret_p99_us);

#endif
