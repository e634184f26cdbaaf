/* store_impl: what the files of the store share among themselves: the session table, record encodings, test
 * hooks.
 *
 * Locking. `lock` guards the session table and the counters of the sync; it is never held over a write to the
 * database (but over taking ids). Whoever changes a session's row marks it busy first (ntr_row_take), so that
 * rows of different sessions are written at the same time, and their syncs grouped, while one row has one
 * writer. The new row is allocated before the write, so publishing it afterwards cannot fail. */
#ifndef NTR_FS_STORE_IMPL_H
#define NTR_FS_STORE_IMPL_H

#include "../base/buf.h"
#include "../base/util.h"
#include "snap.h"
#include "store.h"

#include <bsd/sys/tree.h>
#include <pthread.h>

/* libbsd's own RB_GENERATE_STATIC needs a macro that libbsd does not define. */
#define NTR_RB_STATIC(name, type, field, cmp)                                         \
	RB_PROTOTYPE_INTERNAL(name, type, field, cmp, static __attribute__((unused))) \
	RB_GENERATE_INTERNAL(name, type, field, cmp, static __attribute__((unused)))

enum { NTR_STORE_SECRET = 192, NTR_STORE_UUID = 16 };

struct ntr_row { /* one session in memory */
	RB_ENTRY(ntr_row) by_name, by_id;
	struct ntr_head *head; /* cut behind wsroot's NUL: copy it with ntr_head_copy only */
	bool busy;             /* somebody is writing it */
	bool hidden;           /* a name that is taken but not on record (yet) */
};
RB_HEAD(ntr_rows_by_name, ntr_row);
RB_HEAD(ntr_rows_by_id, ntr_row);

struct ntr_store {
	char *path;
	int dirfd, lockfd, syncedfd;
	unsigned levels; /* folders that the opening made: the store's own and those above it */
	uint64_t serial;
	bool read_only;
	uid_t uid, euid;
	gid_t gid;
	uint8_t uuid[NTR_STORE_UUID], secret[NTR_STORE_SECRET];
	struct ntr_kv *kv;
	struct ntr_ids *ids;
	struct ntr_tree *tree;
	struct ntr_chunks *chunks;

	pthread_mutex_t lock, sync_lock; /* sync_lock: one background sync at a time */
	pthread_cond_t idle;             /* some row is not busy any more */
	struct ntr_rows_by_name by_name;
	struct ntr_rows_by_id by_id;
	uint64_t newest;     /* highest commit written since the open */
	uint64_t synced;     /* what STORE/synced says */
	bool unsynced;       /* relaxed writes since the last sync */
	struct ntr_err lost; /* what the opening found missing; without a text: nothing */
	bool lost_told;
};

/* store_dir.c: the directory, the lock file, the side file. */
int ntr_store_dir_open(
        struct ntr_store *s, const char *path, const struct ntr_store_options *o, struct ntr_err *e);
/* Makes the entries of the store's folder, and its own in the folder above, outlive a power failure. */
int ntr_store_dir_sync(struct ntr_store *s);
/* The number of the newest commit that was safely on disk, before it is loaded; 0: none. */
int ntr_store_synced_peek(struct ntr_store *s, uint64_t *ret);
int ntr_store_synced_load(struct ntr_store *s, struct ntr_err *e);
int ntr_store_synced_save(struct ntr_store *s, uint64_t commit);

/* store_rec.c: records of meta. Keys fit in NTR_META_KEY bytes. Decoders say -EUCLEAN. */
enum { NTR_META_KEY = 1 + NTR_NAME_MAX };
size_t ntr_key_u64(uint8_t *key, char type, uint64_t a);
size_t ntr_key_list(uint8_t *key, uint64_t sid, uint64_t seq);
size_t ntr_key_text(uint8_t *key, char type, const char *text);
size_t ntr_key_public(uint8_t *key, const uint8_t name[NTR_COMMIT_BYTES]);
int ntr_rec_head(struct ntr_buf *b, const struct ntr_head *h);
int ntr_rec_head_parse(const uint8_t *p, size_t n, uint64_t sid, struct ntr_head *ret);
int ntr_rec_commit(struct ntr_buf *b, const struct ntr_commit *c);
int ntr_rec_commit_parse(const uint8_t *p, size_t n, uint64_t id, struct ntr_commit *ret);
int ntr_rec_list(struct ntr_buf *b, const struct ntr_list_entry *en);
int ntr_rec_list_parse(const uint8_t *p, size_t n, uint64_t seq, struct ntr_list_entry *ret);
int ntr_rec_super(struct ntr_buf *b, const struct ntr_store *s);
/* -ENOTSUP with text for a format that this program does not know. */
int ntr_rec_super_parse(const uint8_t *p, size_t n, struct ntr_store *s, struct ntr_err *e);

/* session_table.c. All but ntr_rows_load and ntr_rows_free want `lock` held. */
int ntr_rows_load(struct ntr_store *s, struct ntr_err *e);
void ntr_rows_free(struct ntr_store *s);
void ntr_head_copy(struct ntr_head *to, const struct ntr_head *from);
/* A copy that takes no more memory than it needs, for a row; NULL: out of memory. */
struct ntr_head *ntr_head_dup(const struct ntr_head *h);
/* Rows, hidden ones too; after: the first visible one with a name above `name`. */
struct ntr_row *ntr_row_by_name(struct ntr_store *s, const char *name);
struct ntr_row *ntr_row_by_id(struct ntr_store *s, uint64_t sid);
struct ntr_row *ntr_row_after(struct ntr_store *s, const char *name);
/* Waits until the session's row is not busy and marks it so. NULL: there is no such session (any more). */
struct ntr_row *ntr_row_take(struct ntr_store *s, uint64_t sid);
/* Gives it back with its new content (head, taken over) or, where that is NULL, unchanged. */
void ntr_row_give(struct ntr_store *s, struct ntr_row *x, struct ntr_head *head);
/* Enters a hidden, busy row for h; on success the name is reserved. -EEXIST with text. */
int ntr_row_reserve(struct ntr_store *s, const struct ntr_head *h, struct ntr_row **ret, struct ntr_err *e);
void ntr_row_drop(struct ntr_store *s, struct ntr_row *x);
/* Sets upper, base_root and what goes with them in a record that is going to be written. */
void ntr_head_name_upper(struct ntr_head *h, uint64_t upper, uint64_t base_root);
/* Adds H (and, with name, N) of h to a batch. */
int ntr_row_record(struct ntr_store *s, struct ntr_kv_batch *b, const struct ntr_head *h, bool name);
int ntr_list_record(
        struct ntr_store *s, struct ntr_kv_batch *b, uint64_t sid, const struct ntr_list_entry *en);
/* Writes a batch and notes what a later sync has to do. commit: the commit in it, or 0. `lock` not held. */
int ntr_store_write(
        struct ntr_store *s, struct ntr_kv_batch *b, uint32_t durability, uint64_t commit, struct ntr_err *e);

/* session_mounts.c: adds record M (text NULL: its removal), or a copy of another session's, if it has one. */
int ntr_mounts_record(struct ntr_store *s, struct ntr_kv_batch *b, uint64_t sid, const char *text);
int ntr_mounts_copy(struct ntr_store *s, struct ntr_kv_batch *b, uint64_t from, uint64_t to);

/* commit.c: finishes txn into b, fills *c (id, root, name, counters, time, desc borrowed) for a commit on top
 * of *h, adds its records and updates *h. *ret_same: nothing changed, b is to be dropped. */
int ntr_commit_build(struct ntr_store *s, struct ntr_kv_batch *b, struct ntr_txn *txn, struct ntr_head *h,
        enum ntr_step kind, struct ntr_commit *c, bool *ret_same, struct ntr_err *e);

/* txn.c: what the transaction's changes do to the counters, and the root it began on. After ntr_txn_finish.
 */
struct ntr_counts {
	int64_t inodes, bytes, xattrs; /* xattrs: inodes that carry any */
};
struct ntr_counts ntr_txn_counts(const struct ntr_txn *t);
uint64_t ntr_txn_base(const struct ntr_txn *t);
/* Adds what an INODE record counts, times sign (1, -1). Other keys add nothing. */
void ntr_inode_count(
        struct ntr_counts *c, int sign, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen);

/* For tests: another memory limit of transactions; another hash of content, to make hashes collide. */
void ntr_txn_set_limit(struct ntr_txn *t, size_t bytes);
typedef void (*ntr_chunk_hash_fn)(const void *data, size_t n, uint8_t ret[16]);
void ntr_chunks_set_hash(struct ntr_chunks *c, ntr_chunk_hash_fn fn);
/* … and how many pending index entries a writer keeps before it writes them ahead of its commit. */
void ntr_chunks_set_pending(struct ntr_chunks *c, size_t n);

#endif
