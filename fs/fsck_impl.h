/* fsck_impl: what the files of fsck share. One run goes through stages, each with what the ones before
 * collected: the database's own files, the records of meta, chunks, their index, nodes, and the trees item by
 * item. */
#ifndef NTR_FS_FSCK_IMPL_H
#define NTR_FS_FSCK_IMPL_H

#include "fsck.h"
#include "store_impl.h"

/* fsck_set.c: sets of ids, dense in runs: pages of 65,536 on demand. */
enum { NTR_FSCK_PAGE_BITS = 16 };
struct ntr_fsck_bits {
	uint64_t **page;
	size_t npages;
};
/* Is id in the set? */
bool ntr_fsck_bits_test(const struct ntr_fsck_bits *b, uint64_t id);
/* Adds id. 0, -ENOMEM, -ERANGE (no sane id). */
int ntr_fsck_bits_add(struct ntr_fsck_bits *b, uint64_t id);
void ntr_fsck_bits_done(struct ntr_fsck_bits *b);

/* Lengths of chunks, by id; 0: there is no sound chunk of that id. */
struct ntr_fsck_lens {
	uint32_t **page;
	size_t npages;
};
uint32_t ntr_fsck_lens_get(const struct ntr_fsck_lens *l, uint64_t id);
int ntr_fsck_lens_put(struct ntr_fsck_lens *l, uint64_t id, uint32_t len);
void ntr_fsck_lens_done(struct ntr_fsck_lens *l);

struct ntr_fsck_commit { /* what later stages need of record C */
	uint64_t id, root, parent, sid, seq, inodes, bytes, xattrs;
	uint8_t name[NTR_COMMIT_BYTES];
	bool named, listed;
};

struct ntr_fsck_head { /* … of H */
	uint64_t sid, root, base_root, seq, last;
	char name[NTR_NAME_MAX + 1];
	bool named;
};

struct ntr_fsck_run {
	struct ntr_store *s;
	struct ntr_fsck *f;
	struct ntr_fsck_commit *c; /* by id */
	size_t nc, c_cap;
	struct ntr_fsck_head *h; /* by sid */
	size_t nh, h_cap;
	struct ntr_fsck_lens lens;
	uint64_t chunk_limit; /* chunks from here on are younger than this run */
};

/* fsck.c */
__attribute__((format(printf, 2, 3))) void ntr_fsck_problem(struct ntr_fsck_run *k, const char *fmt, ...);
void ntr_fsck_progress(struct ntr_fsck_run *k, const char *stage, uint64_t done, uint64_t total);
/* Twelve hex digits of a commit's name. */
const char *ntr_fsck_hex(const struct ntr_fsck_commit *c, char buf[NTR_COMMIT_PREFIX + 1]);
struct ntr_fsck_commit *ntr_fsck_commit_find(struct ntr_fsck_run *k, uint64_t id);
struct ntr_fsck_head *ntr_fsck_head_find(struct ntr_fsck_run *k, uint64_t sid);

/* Stages: 0 whatever they find, or negative errno where they cannot go on. */
int ntr_fsck_meta(struct ntr_fsck_run *k);
int ntr_fsck_chunks(struct ntr_fsck_run *k); /* chunk and cidx */
int ntr_fsck_nodes(struct ntr_fsck_run *k);  /* every node of every root, once */
int ntr_fsck_trees(struct ntr_fsck_run *k);  /* what trees say, commit by commit */

/* fsck_tree.c and fsck_inode.c: one tree, as what differs from one that was checked before (or from nothing).
 */
struct ntr_fsck_tree {
	struct ntr_fsck_run *k;
	struct ntr_snap now, base; /* base.root 0: everything is new */
	char name[64];             /* of the tree, for texts */
	uint64_t ino;              /* whose items the diff is at; 0: none yet */
	int64_t subdirs;           /* by how many its directories changed */
	bool stray;                /* an item of it is no item at all */
	struct ntr_counts counts;  /* by how many the counters changed */
	struct ntr_fsck_bits rooted, path;
};
/* All that ino's items say, after the diff has passed them. */
int ntr_fsck_inode(struct ntr_fsck_tree *t, uint64_t ino);
/* An object that lost a name: what is left of it must be consistent. */
int ntr_fsck_inode_left(struct ntr_fsck_tree *t, uint64_t ino);
/* A name that an object does not say any more that it has: there must be no entry that still leads to it. */
int ntr_fsck_name_left(struct ntr_fsck_tree *t, uint64_t dir, const char *name, size_t n);
/* The entry (dir, name), present in the tree. */
int ntr_fsck_entry(struct ntr_fsck_tree *t, uint64_t dir, uint64_t hash, const char *name, size_t n,
        const uint8_t *val, size_t vlen);
/* An item's own form and the chunks it names. */
int ntr_fsck_item(struct ntr_fsck_tree *t, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen);
/* fsck_cache.c: a CACHE item that came (val) or went (NULL) fits the other parts of its value. */
int ntr_fsck_cache(struct ntr_fsck_tree *t, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen);
/* Reads an entry's value. 0 or -EUCLEAN. */
int ntr_fsck_entry_parse(const uint8_t *val, size_t vlen, uint64_t *ret_ino, uint8_t *ret_dtype);

#endif
