/* chunk_impl: what the chunk layer (chunk.c) and its writers (chunk_writer.c) share.
 *
 * Where new chunks are until their commit:
 *
 * - queued: in the writer's memory (`rec`), found by its own later puts only; at most NTR_CHUNK_INLINE_BYTES;
 * - logless: written without log, readable, lost by a crash; in the layer's table `logless` too, so that a
 * writer for another session finds them: it then has the same duty to flush before its commit (need_seq);
 * - durable: flushed; the commit writes their index entries, or the writer does when they are very many.
 *
 * seq numbers order logless writes against flushes: a flush that began after write n makes n durable. So one
 * flush serves every writer that waits for it, and a writer all of whose chunks are flushed already starts
 * none. */
#ifndef NTR_FS_CHUNK_IMPL_H
#define NTR_FS_CHUNK_IMPL_H

#include "chunk.h"
#include "store_impl.h"

#include <bsd/sys/queue.h>

/* u8 format | u64 check | content. check: low half of the content's XXH3-128 XOR the chunk's id, so that a
 * damaged chunk and a chunk in another's place are both noticed. */
enum { NTR_CHUNK_FORMAT = 1, NTR_CHUNK_HEAD = 9 };

struct ntr_pending { /* content that is not in the index yet */
	RB_ENTRY(ntr_pending) local, shared;
	STAILQ_ENTRY(ntr_pending) queue;
	uint8_t hash[16];
	uint64_t id, seq; /* seq of its logless write */
	uint8_t *rec;     /* stored form, while it is only here */
	size_t len;
	bool in_local, in_shared, settled;
};
RB_HEAD(ntr_shared_tree, ntr_pending);
STAILQ_HEAD(ntr_pending_list, ntr_pending);

struct ntr_chunks {
	struct ntr_kv *kv;
	struct ntr_ids *ids;
	uint8_t secret[NTR_STORE_SECRET];
	ntr_chunk_hash_fn hash_fn; /* tests */
	size_t pending_max;
	pthread_mutex_t lock; /* guards what follows; taken inside a writer's lock, never around it */
	struct ntr_shared_tree logless;
	uint64_t written, flushed; /* seq of the last logless write, of the last one known flushed */
};

static inline int ntr_pending_cmp(const struct ntr_pending *a, const struct ntr_pending *b)
{
	return memcmp(a->hash, b->hash, sizeof a->hash);
}
NTR_RB_STATIC(ntr_shared_tree, ntr_pending, shared, ntr_pending_cmp)

static inline uint64_t ntr_chunk_check(const uint8_t hash[16], uint64_t id)
{
	return ntr_get_be64(hash + 8) ^ id;
}

/* Does the stored chunk id hold exactly these bytes? 1, 0 (also when it is missing or damaged) or negative
 * errno. */
int ntr_chunk_holds(struct ntr_chunks *c, uint64_t id, const void *data, size_t n);
/* Makes every logless write up to seq durable. */
int ntr_chunk_flush(struct ntr_chunks *c, uint64_t seq, struct ntr_err *e);

#endif
