#include "hist.h"

/* Bucket = four times the highest bit, plus the two bits below it. */
unsigned ntr_hist_bucket(uint64_t ns)
{
	unsigned bit, b;

	if (ns < 4)
		return (unsigned)ns;
	bit = 63 - (unsigned)__builtin_clzll(ns);
	b = bit * 4 + ((unsigned)(ns >> (bit - 2)) & 3);
	return b < NTR_HIST_BUCKETS ? b : NTR_HIST_BUCKETS - 1;
}

static double middle_us(unsigned b)
{
	double low = b < 8 ? b : (double)((4 + b % 4) * (1ull << (b / 4 - 2)));
	double width = b < 8 ? 1 : (double)(1ull << (b / 4 - 2));

	return (low + width / 2) / 1000;
}

double ntr_hist_quantile(const uint64_t counts[NTR_HIST_BUCKETS], double q)
{
	uint64_t total = 0, seen = 0;

	for (unsigned b = 0; b < NTR_HIST_BUCKETS; b++)
		total += counts[b];
	for (unsigned b = 0; b < NTR_HIST_BUCKETS; b++) {
		seen += counts[b];
		if (total && (double)seen >= q * (double)total)
			return middle_us(b);
	}
	return 0;
}

void ntr_hist_add(struct ntr_hist *h, uint64_t ns)
{
	atomic_fetch_add_explicit(&h->count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->bucket[ntr_hist_bucket(ns)], 1, memory_order_relaxed);
}

void ntr_hist_read(struct ntr_hist *h, uint64_t *ret_count, double *ret_p50_us, double *ret_p99_us)
{
	uint64_t counts[NTR_HIST_BUCKETS];

	for (unsigned b = 0; b < NTR_HIST_BUCKETS; b++)
		counts[b] = atomic_load_explicit(&h->bucket[b], memory_order_relaxed);
	*ret_count = atomic_load_explicit(&h->count, memory_order_relaxed);
	*ret_p50_us = ntr_hist_quantile(counts, 0.5);
	*ret_p99_us = ntr_hist_quantile(counts, 0.99);
}
