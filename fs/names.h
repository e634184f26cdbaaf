/* names: the namespace operations of a tree: what links, renames and removals mean for records, entries and
 * counts.
 *
 * They change a transaction. Times: each function takes the wall clock `now` that it stamps on the
 * directories it changes, or NULL to leave their times as they are (absorb and import set exact times
 * themselves afterwards). No permission is checked here; the kernel does that above. Names: 1..255 bytes, no
 * '/', no NUL, not "." or "..". */
#ifndef NTR_FS_NAMES_H
#define NTR_FS_NAMES_H

#include "inode.h"

/* Follows path ("" or "/" is the root; no symlink is followed, ".." is refused with -EINVAL) to an inode.
 * *ret_ino. -ENOENT, -ENOTDIR, -ENAMETOOLONG. */
int ntr_path_lookup(const struct ntr_snap *s, const char *path, uint64_t *ret_ino);
/* The same to its record. -ENOMEM when ret is NULL. */
int ntr_path_inode(const struct ntr_snap *s, const char *path, struct ntr_inode *ret);
/* The path of an inode by its record's own name, "" for the root, no leading '/'; buf of at least 4096 bytes,
 * -ENAMETOOLONG when longer. Only the first name of a hard-linked file. */
int ntr_path_of(const struct ntr_snap *s, uint64_t ino, char *buf, size_t size);

/* Enters new object `in` (from ntr_inode_new, ino set) as name in dir: sets its parent and name, nlink (1; 2
 * for a directory), puts the record and entry, counts dir's directories. -EEXIST. */
int ntr_name_create(
        struct ntr_txn *t, uint64_t dir, const char *name, struct ntr_inode *in, const struct timespec *now);
/* One more name for a file (nlink + 1, a LINK item). -EEXIST, -EPERM for a directory. */
int ntr_name_link(
        struct ntr_txn *t, uint64_t ino, uint64_t dir, const char *name, const struct timespec *now);
/* Takes one name away; the last one erases the object. Directories: with everything below them. -ENOENT. */
int ntr_name_remove(struct ntr_txn *t, uint64_t dir, const char *name, const struct timespec *now);
/* As ntr_name_remove without `now`, for one who sets directories' times himself: `lost` becomes the ctime of
 * what keeps other names. */
int ntr_name_lose(struct ntr_txn *t, uint64_t dir, const char *name, const struct timespec *lost);
/* Takes the entry away but keeps the object, for a move whose other half follows (its record still says the
 * old name). */
int ntr_name_detach(struct ntr_txn *t, uint64_t dir, const char *name, uint64_t *ret_ino);
/* The other half: enters an existing, detached object; nlink stays. The name becomes the record's own when
 * that has no entry any more, else a LINK item. A directory may be attached while its old entry still stands
 * in a directory that ntr_name_erase_tree with `keep` will take away. */
int ntr_name_attach(
        struct ntr_txn *t, uint64_t dir, const char *name, uint64_t ino, const struct timespec *now);
/* rename(2): detach + attach; an existing target is removed first. A directory into its own subtree is
 * -EINVAL; a directory over a file -ENOTDIR, a file over a directory -EISDIR, over a directory that holds
 * something -ENOTEMPTY; two names of one file: nothing happens. */
int ntr_name_rename(struct ntr_txn *t, uint64_t dir, const char *name, uint64_t ndir, const char *nname,
        const struct timespec *now);
/* Erases an object without names and all below it (a detached directory; of a detached file with other names
 * only the lost name is counted off). keep, when not NULL, is asked for every inode below: true leaves that
 * object alone (it has been attached elsewhere). Files that keep names elsewhere keep their ctime. */
int ntr_name_erase_tree(struct ntr_txn *t, uint64_t ino, bool (*keep)(void *user, uint64_t ino), void *user);

#endif
