/* chunk: file content as chunks of at most 64 KiB, each stored once.
 *
 * An index from XXH3-128 (keyed with the store's secret) to chunk id finds equal content; a hit counts only
 * after the bytes were compared, for the hash is not cryptographic and agents choose the content. Rule of
 * durability: no batch names a chunk unless that chunk is in an SST, earlier in the log, or in the same batch
 * (store-format.md). A writer keeps up to NTR_CHUNK_INLINE_BYTES of new chunks for the commit's own batch;
 * more than that it writes without log as it goes and flushes the family before the commit. */
#ifndef NTR_FS_CHUNK_H
#define NTR_FS_CHUNK_H

#include "ids.h"
#include "kv.h"

enum { NTR_CHUNK_LOG2 = 16, NTR_CHUNK_SIZE = 1 << NTR_CHUNK_LOG2, NTR_CHUNK_INLINE_BYTES = 1 << 20 };

struct ntr_chunks; /* the store's chunk layer, shared, thread safe */
struct ntr_chunk_writer;

int ntr_chunks_new(
        struct ntr_kv *kv, struct ntr_ids *ids, const uint8_t secret[192], struct ntr_chunks **ret);
void ntr_chunks_free(struct ntr_chunks *c);

/* Pins the bytes of a chunk (ntr_kv_unpin). 0, -EUCLEAN (missing or damaged), -EIO. The stored form carries
 * an XXH3 of the content, checked here. */
int ntr_chunk_get(struct ntr_chunks *c, uint64_t id, struct ntr_kv_pin *ret);

/* The index key of content: XXH3-128 with the store's secret, big-endian. For fsck. */
void ntr_chunk_hash(const struct ntr_chunks *c, const void *data, size_t n, uint8_t ret[16]);

int ntr_chunk_writer_new(struct ntr_chunks *c, struct ntr_chunk_writer **ret);
void ntr_chunk_writer_free(struct ntr_chunk_writer *w);
/* Stores n (1..NTR_CHUNK_SIZE) bytes, or finds them stored: *ret_id. hint != 0 is the chunk at the same place
 * in the version below: compared first. May be called from several threads. 0 or negative errno. */
int ntr_chunk_put(struct ntr_chunk_writer *w, const void *data, size_t n, uint64_t hint, uint64_t *ret_id);
/* Content that so far is only in the writer's memory, where ntr_chunk_get does not find it: copied into
 * buf[NTR_CHUNK_SIZE]. 0 or -ENOENT. For readers of the writer's own transaction. */
int ntr_chunk_writer_read(struct ntr_chunk_writer *w, uint64_t id, void *buf, size_t *ret_len);
/* Bytes newly stored so far. */
uint64_t ntr_chunk_writer_bytes(const struct ntr_chunk_writer *w);
/* Before the commit: makes logless chunks durable, then adds the pending chunks and all index entries to b.
 */
int ntr_chunk_writer_finish(struct ntr_chunk_writer *w, struct ntr_kv_batch *b, struct ntr_err *e);

#endif
