/* snap and txn: what a reader reads and what a writer changes.
 *
 * A snap is one root, read-only (txn == NULL), or a transaction's base root with the transaction's own
 * changes laid over it: code that reads inodes, entries and content takes a snap and works on both. A
 * transaction collects item changes in memory, sorted, and turns them into tree nodes at its end; beyond a
 * limit it applies what it has to an intermediate root in the store that nothing names yet (a big import does
 * not live in memory).
 *
 * A snap of a plain root may be used from any thread; a transaction belongs to one thread at a time.
 *
 * The counters of inodes and bytes in heads and commits need no call: a transaction sees every INODE record
 * that is put or deleted and counts by itself (inodes: INODE records, the root's too; bytes: sizes of regular
 * files). */
#ifndef NTR_FS_SNAP_H
#define NTR_FS_SNAP_H

#include "store.h"
#include "tree.h"

struct ntr_txn;

struct ntr_snap {
	struct ntr_store *store;
	uint64_t root;
	struct ntr_txn *txn; /* NULL: just the root */
};

static inline struct ntr_snap ntr_snap_root(struct ntr_store *s, uint64_t root)
{
	return (struct ntr_snap){.store = s, .root = root};
}

/* Copies the value of key into val[NTR_VALUE_MAX]. 0, -ENOENT, -EUCLEAN, -EIO. */
int ntr_snap_get(const struct ntr_snap *s, const void *key, size_t klen, uint8_t *val, size_t *ret_len);

/* Iteration in key order over root and changes merged. The transaction must not change while a cursor is
 * open. */
struct ntr_snap_cursor {
	const struct ntr_snap *snap;
	struct ntr_tree_cursor base;
	void *mem;      /* position among the transaction's changes */
	int base_state; /* 1 positioned, 0 end */
	const uint8_t *key, *val;
	size_t klen, vlen;
	const uint8_t *end; /* set before a seek: it may stop there, not pass what was deleted behind it */
	size_t elen;
};
void ntr_snap_cursor_init(struct ntr_snap_cursor *c, const struct ntr_snap *s);
void ntr_snap_cursor_done(struct ntr_snap_cursor *c);
int ntr_snap_cursor_seek(struct ntr_snap_cursor *c, const void *key, size_t klen); /* 1, 0, negative errno */
int ntr_snap_cursor_next(struct ntr_snap_cursor *c);

/* Begins a transaction on root. It takes one store-wide version number (txn->version) lazily, for every inode
 * that it changes (store-format.md, "Version"). */
int ntr_txn_begin(struct ntr_store *s, uint64_t root, struct ntr_txn **ret);
/* Drops it and everything it held. NULL is allowed. */
void ntr_txn_abort(struct ntr_txn *t);
static inline void ntr_txn_abortp(struct ntr_txn **t)
{
	ntr_txn_abort(*t);
}

/* The snap to read through while writing. */
const struct ntr_snap *ntr_txn_snap(struct ntr_txn *t);
/* The version of every inode that this transaction changes. 0 or negative errno. */
int ntr_txn_version(struct ntr_txn *t, uint64_t *ret);
/* Item changes: key and value are copied. May spill (see above). 0 or negative errno. */
int ntr_txn_put(struct ntr_txn *t, const void *key, size_t klen, const void *val, size_t vlen);
int ntr_txn_del(struct ntr_txn *t, const void *key, size_t klen);
/* Deletes every item from key `from` up to but not including `to`. */
int ntr_txn_del_range(struct ntr_txn *t, const void *from, size_t flen, const void *to, size_t tlen);
/* True when nothing was put or deleted. */
bool ntr_txn_empty(struct ntr_txn *t);

/* The transaction's chunk writer (chunk.h). */
struct ntr_chunk_writer *ntr_txn_chunks(struct ntr_txn *t);

/* Applies everything: makes chunks durable that need it before the batch, adds nodes, small chunks and index
 * entries to the batch b, gives the new root. The caller (store.c's commit) adds its records to b and writes
 * it. */
int ntr_txn_finish(struct ntr_txn *t, struct ntr_kv_batch *b, uint64_t *ret_root, struct ntr_err *e);

#endif
