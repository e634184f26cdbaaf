/* versions_stats: how many requests of each type, and how long they took. One writer per set, any reader. */
#ifndef NTR_FS_VERSIONS_STATS_H
#define NTR_FS_VERSIONS_STATS_H

#include "../base/hist.h"

#include <stdatomic.h>
#include <stdint.h>

enum ntr_vop {
	NTR_VOP_LOOKUP,
	NTR_VOP_GETATTR,
	NTR_VOP_READLINK,
	NTR_VOP_READ,
	NTR_VOP_READDIR,
	NTR_VOP_READDIRPLUS,
	NTR_VOP_GETXATTR,
	NTR_VOP_LISTXATTR,
	NTR_VOP_LSEEK,
	NTR_VOP_STATFS,
	NTR_VOP_OPEN,
	NTR_VOP_OPENDIR,
	NTR_VOP_FLUSH,
	NTR_VOP_ACCESS,
	NTR_VOP_FORGET,
	NTR_VOP_COUNT
};

enum { NTR_VSTATS_BUCKETS = NTR_HIST_BUCKETS };

struct ntr_vstats {
	_Atomic uint64_t count[NTR_VOP_COUNT];
	_Atomic uint32_t hist[NTR_VOP_COUNT][NTR_VSTATS_BUCKETS];
};

const char *ntr_vop_name(enum ntr_vop op);
void ntr_vstats_add(struct ntr_vstats *s, enum ntr_vop op, uint64_t n, uint64_t ns);
/* Adds s to the plain sums of one type. */
void ntr_vstats_sum(
        struct ntr_vstats *s, enum ntr_vop op, uint64_t *count, uint64_t hist[NTR_VSTATS_BUCKETS]);
#endif
