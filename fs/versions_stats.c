#include "versions_stats.h"

static const char *const names[NTR_VOP_COUNT] = {
        [NTR_VOP_LOOKUP] = "LOOKUP",
        [NTR_VOP_GETATTR] = "GETATTR",
        [NTR_VOP_READLINK] = "READLINK",
        [NTR_VOP_READ] = "READ",
        [NTR_VOP_READDIR] = "READDIR",
        [NTR_VOP_READDIRPLUS] = "READDIRPLUS",
        [NTR_VOP_GETXATTR] = "GETXATTR",
        [NTR_VOP_LISTXATTR] = "LISTXATTR",
        [NTR_VOP_LSEEK] = "LSEEK",
        [NTR_VOP_STATFS] = "STATFS",
        [NTR_VOP_OPEN] = "OPEN",
        [NTR_VOP_OPENDIR] = "OPENDIR",
        [NTR_VOP_FLUSH] = "FLUSH",
        [NTR_VOP_ACCESS] = "ACCESS",
        [NTR_VOP_FORGET] = "FORGET",
};

const char *ntr_vop_name(enum ntr_vop op)
{
	return names[op];
}

/* Bucket = four times the highest bit, plus the two bits below it. */
static unsigned bucket_of(uint64_t ns)
{
	if (ns < 4)
		return (unsigned)ns;
	unsigned bit = 63 - (unsigned)__builtin_clzll(ns);
	unsigned b = bit * 4 + ((unsigned)(ns >> (bit - 2)) & 3);

	return b < NTR_VSTATS_BUCKETS ? b : NTR_VSTATS_BUCKETS - 1;
}

static double bucket_middle_us(unsigned b)
{
	double low = b < 8 ? b : (double)((4 + b % 4) * (1ull << (b / 4 - 2)));
	double width = b < 8 ? 1 : (double)(1ull << (b / 4 - 2));

	return (low + width / 2) / 1000;
}

void ntr_vstats_add(struct ntr_vstats *s, enum ntr_vop op, uint64_t n, uint64_t ns)
{
	/* One writer: a plain load and store spare the locked instruction. */
	_Atomic uint64_t *c = &s->count[op];
	_Atomic uint32_t *h = &s->hist[op][bucket_of(ns)];

	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
	atomic_store_explicit(h, atomic_load_explicit(h, memory_order_relaxed) + 1, memory_order_relaxed);
}

void ntr_vstats_sum(struct ntr_vstats *s, enum ntr_vop op, uint64_t *count, uint64_t hist[NTR_VSTATS_BUCKETS])
{
	*count += atomic_load_explicit(&s->count[op], memory_order_relaxed);
	for (unsigned b = 0; b < NTR_VSTATS_BUCKETS; b++)
		hist[b] += atomic_load_explicit(&s->hist[op][b], memory_order_relaxed);
}

double ntr_vstats_quantile(const uint64_t hist[NTR_VSTATS_BUCKETS], double q)
{
	uint64_t total = 0, seen = 0;

	for (unsigned b = 0; b < NTR_VSTATS_BUCKETS; b++)
		total += hist[b];
	for (unsigned b = 0; b < NTR_VSTATS_BUCKETS; b++) {
		seen += hist[b];
		if (total && (double)seen >= q * (double)total)
			return bucket_middle_us(b);
	}
	return 0;
}
