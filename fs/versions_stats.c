#include "versions_stats.h"

#include "../base/hist.h"

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

void ntr_vstats_add(struct ntr_vstats *s, enum ntr_vop op, uint64_t n, uint64_t ns)
{
	/* One writer: a plain load and store spare the locked instruction. */
	_Atomic uint64_t *c = &s->count[op];
	_Atomic uint32_t *h = &s->hist[op][ntr_hist_bucket(ns)];

	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
	atomic_store_explicit(h, atomic_load_explicit(h, memory_order_relaxed) + 1, memory_order_relaxed);
}

void ntr_vstats_sum(struct ntr_vstats *s, enum ntr_vop op, uint64_t *count, uint64_t hist[NTR_VSTATS_BUCKETS])
{
	*count += atomic_load_explicit(&s->count[op], memory_order_relaxed);
	for (unsigned b = 0; b < NTR_VSTATS_BUCKETS; b++)
		hist[b] += atomic_load_explicit(&s->hist[op][b], memory_order_relaxed);
}
