/* kv: the only module that knows RocksDB. Four column families, pinned reads, one atomic batch, ordered
 * iteration.
 *
 * Everything above speaks of keys and values; options, write-ahead log modes, flush and fault injection live
 * here (docs/store-format.md, "RocksDB options that matter"). All calls are safe from any thread; a batch and
 * an iterator belong to one thread at a time. */
#ifndef NTR_FS_KV_H
#define NTR_FS_KV_H

#include "../base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ntr_cf { NTR_CF_META, NTR_CF_NODE, NTR_CF_CHUNK, NTR_CF_CIDX, NTR_CF_COUNT };

struct ntr_kv;
struct ntr_kv_batch;
struct ntr_kv_iter;

struct ntr_kv_options {
	bool create;        /* make the database when there is none (else -ENOENT) */
	bool read_only;     /* open beside a running owner, for fsck of a copy; no write is possible */
	size_t cache_bytes; /* shared block cache; 0: 64 MiB */
};

/* Opens the database folder dir. A second opener gets -EBUSY. A damaged one gets -EUCLEAN with RocksDB's own
 * text. */
int ntr_kv_open(const char *dir, const struct ntr_kv_options *o, struct ntr_kv **ret, struct ntr_err *e);
/* Closes; NULL is allowed. All batches, pins and iterators must be gone. */
void ntr_kv_close(struct ntr_kv *kv);

/* A value held in RocksDB's memory: data stays valid until ntr_kv_unpin. */
struct ntr_kv_pin {
	const uint8_t *data;
	size_t len;
	void *handle;
};

/* 0, -ENOENT, -EUCLEAN (checksum mismatch or corruption), -EIO. */
int ntr_kv_get(struct ntr_kv *kv, enum ntr_cf cf, const void *key, size_t klen, struct ntr_kv_pin *ret);
void ntr_kv_unpin(struct ntr_kv_pin *p);
/* Begins to read a family's files ahead, bytes at most, and does not wait; once in the life of kv. It only
 * makes first reads faster: 0, or -ENOMEM or -EAGAIN. */
int ntr_kv_warm(struct ntr_kv *kv, enum ntr_cf cf, size_t bytes);

/* Batches. Put and delete copy their arguments; they cannot fail short of memory, where the batch turns bad
 * and ntr_kv_write says -ENOMEM. */
struct ntr_kv_batch *ntr_kv_batch_new(void);
void ntr_kv_batch_free(struct ntr_kv_batch *b);
static inline void ntr_kv_batch_freep(struct ntr_kv_batch **b)
{
	ntr_kv_batch_free(*b);
}
void ntr_kv_batch_put(struct ntr_kv_batch *b, struct ntr_kv *kv, enum ntr_cf cf, const void *key, size_t klen,
        const void *val, size_t vlen);
void ntr_kv_batch_del(
        struct ntr_kv_batch *b, struct ntr_kv *kv, enum ntr_cf cf, const void *key, size_t klen);
size_t ntr_kv_batch_bytes(const struct ntr_kv_batch *b);
void ntr_kv_batch_clear(struct ntr_kv_batch *b);

enum ntr_kv_mode {
	NTR_KV_SYNC,    /* write-ahead log, synced before the call returns */
	NTR_KV_RELAXED, /* write-ahead log, synced by the next sync (ntr_kv_sync_wal or any NTR_KV_SYNC write)
	                 */
	NTR_KV_NO_WAL,  /* no log: durable only after ntr_kv_flush of that family */
};

/* Writes the whole batch or nothing. 0, -ENOSPC, -EDQUOT, -EFBIG, -EROFS, -ENOMEM, -EIO (or what the fault
 * hook says). After -ENOSPC every write fails so until the filesystem has room again (32 MiB and more:
 * RocksDB looks every five seconds); then writing goes on, and nothing written before is lost. After any
 * other failure the database is resumed in place and the write tried once more (kv_resume.c): an error that
 * passes is a line on stderr only, one that stays is told by every write until one succeeds. */
int ntr_kv_write(struct ntr_kv *kv, struct ntr_kv_batch *b, enum ntr_kv_mode mode, struct ntr_err *e);
/* Makes every NTR_KV_RELAXED write so far durable. */
int ntr_kv_sync_wal(struct ntr_kv *kv, struct ntr_err *e);
/* Writes a family's memory tables to SST files and waits: afterwards its NTR_KV_NO_WAL writes are durable. */
int ntr_kv_flush(struct ntr_kv *kv, enum ntr_cf cf, struct ntr_err *e);

/* Forward iteration over [from, …) in key order on a consistent snapshot. fill_cache false for long scans. */
struct ntr_kv_iter *ntr_kv_iter_new(struct ntr_kv *kv, enum ntr_cf cf, bool fill_cache);
void ntr_kv_iter_free(struct ntr_kv_iter *it);
static inline void ntr_kv_iter_freep(struct ntr_kv_iter **it)
{
	ntr_kv_iter_free(*it);
}
/* Position at the first key >= from, or (seek_last) at the last key of all. */
void ntr_kv_iter_seek(struct ntr_kv_iter *it, const void *from, size_t n);
void ntr_kv_iter_seek_last(struct ntr_kv_iter *it);
void ntr_kv_iter_next(struct ntr_kv_iter *it);
/* true: key/value are valid until the next move. false: the end, or an error that ntr_kv_iter_error tells. */
bool ntr_kv_iter_valid(
        const struct ntr_kv_iter *it, const uint8_t **key, size_t *klen, const uint8_t **val, size_t *vlen);
int ntr_kv_iter_error(const struct ntr_kv_iter *it);

/* Checks every checksum of every file of the database, the log included. Text of the first problem in e. */
int ntr_kv_verify(struct ntr_kv *kv, struct ntr_err *e);

/* Rough bytes on disk of one family; memory in use of tables and caches. For status and benchmarks. */
uint64_t ntr_kv_disk_bytes(struct ntr_kv *kv, enum ntr_cf cf);
uint64_t ntr_kv_memory_bytes(struct ntr_kv *kv);

/* Fault injection for tests: called before every write, sync and flush with its running number (from 1); a
 * negative errno from it is what the call returns, without touching the database. NULL removes it. */
typedef int (*ntr_kv_fault_fn)(void *user, uint64_t number, const char *op);
void ntr_kv_set_fault(struct ntr_kv *kv, ntr_kv_fault_fn fn, void *user);

#endif
