/* diff_impl: what the diff's files share. */
#ifndef NTR_FS_DIFF_IMPL_H
#define NTR_FS_DIFF_IMPL_H

#include "../base/util.h"
#include "diff.h"
#include "file.h"
#include "names.h"

#include "../base/hash.h"

/* One inode that some changed item belongs to. */
struct ntr_diff_ino {
	uint64_t ino;
	unsigned what; /* from its items */
	bool record;   /* its record differs */
	UT_hash_handle hh;
};
/* One changed directory entry; an ino is 0 where the entry is missing. */
struct ntr_diff_name {
	uint64_t dir, old_ino, new_ino;
	char *name;
};
struct ntr_diff_set {
	struct ntr_store *store;
	struct ntr_snap a, b;
	struct ntr_diff_ino *inos;
	struct ntr_diff_name *names;
	size_t n_names, cap_names;
	bool state_changed;
};

/* The items that differ between the two roots, sorted into inodes and names. */
int ntr_diff_collect(struct ntr_diff_set *s);
void ntr_diff_set_done(struct ntr_diff_set *s);

/* What differs between two records (of one inode or of two), own times of directories and ctime left out.
 * Content of different inodes is compared by chunk. */
int ntr_diff_compare(
        struct ntr_diff_set *s, const struct ntr_inode *o, const struct ntr_inode *n, unsigned *ret);

#endif
