/* names_impl: shared by names.c and names_erase.c. */
#ifndef NTR_FS_NAMES_IMPL_H
#define NTR_FS_NAMES_IMPL_H

#include "inode_impl.h"
#include "names.h"

/* Is (dir, name) the record's own name? */
static inline bool ntr_name_is_own(const struct ntr_inode *in, uint64_t dir, const char *name, size_t n)
{
	return in->parent == dir && in->name_len == n && !memcmp(in->name, name, n);
}

/* Does the record's own name have its entry? (Between detach and attach it may not.) 1, 0, negative errno. */
int ntr_name_own_is_live(const struct ntr_snap *s, const struct ntr_inode *in);

/* Makes a file forget the name (dir, name), whose entry the caller takes away: its LINK item goes, or, when
 * it was the record's own, another is promoted. nlink is the caller's. *in is changed, not put. */
int ntr_name_forget(struct ntr_txn *t, struct ntr_inode *in, uint64_t dir, const char *name, size_t n);

/* A name of a file that is no directory is gone: counts it, and erases the object with its last one. */
int ntr_name_drop(struct ntr_txn *t, uint64_t ino, uint64_t dir, const char *name, size_t n,
        const struct timespec *now);

/* ntr_name_erase_tree of a directory; lost: ctime of files that keep names elsewhere, or NULL. */
int ntr_name_erase_dirs(struct ntr_txn *t, uint64_t ino, bool (*keep)(void *user, uint64_t ino), void *user,
        const struct timespec *lost);

#endif
