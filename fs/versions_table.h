/* versions_table: the FUSE inodes that the kernel holds, with exact lookup counts.
 *
 * A file is the pair (inode, version), whatever root it was found through; a directory is the pair (root,
 * inode). The address of an entry is its FUSE node id, so everything but lookup and forget finds it without a
 * search. The kernel holds a reference (a lookup count above zero) for as long as it names a node id, so an
 * entry that a request names cannot go away while the request is served; a forget that is sent while others
 * look the same pair up is settled by the shard's lock. Sharded by key, so that lookups of different inodes
 * do not meet. */
#ifndef NTR_FS_VERSIONS_TABLE_H
#define NTR_FS_VERSIONS_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ntr_vnode {
	uint64_t ino;
	uint64_t key;          /* a file's version; a directory's root */
	_Atomic uint64_t root; /* a root that holds it: the one it was looked up through last */
	uint64_t lookups;      /* under the shard's lock */
	_Atomic uint32_t
	        plus; /* directory: READDIRPLUS entries of the present stream that carried a node id */
	bool dir;
	bool pinned; /* the mount's own root: never forgotten, in no shard */
};

struct ntr_vtable;

int ntr_vtable_new(struct ntr_vtable **ret);
/* Frees the table and every entry, whatever their counts. NULL is allowed. */
void ntr_vtable_free(struct ntr_vtable *t);
/* The entry of the pair, made when missing, with its lookup count raised by one. NULL when out of memory. */
struct ntr_vnode *ntr_vtable_get(struct ntr_vtable *t, uint64_t ino, uint64_t key, bool dir, uint64_t root);
/* Lowers the count by n; the entry goes at zero. More than were given out is the kernel's bug: taken as all.
 */
void ntr_vtable_forget(struct ntr_vtable *t, struct ntr_vnode *n, uint64_t count);
void ntr_vtable_stats(struct ntr_vtable *t, uint64_t *ret_inodes, uint64_t *ret_bytes);

#endif
