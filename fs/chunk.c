/* chunk: the stored chunks: reading, comparing, making durable. chunk_impl.h tells how new ones come about.
 */
#include "chunk_impl.h"

#include <errno.h>
#include <xxhash.h>

enum { PENDING_MAX = 65536 };

int ntr_chunks_new(struct ntr_kv *kv, struct ntr_ids *ids, const uint8_t secret[192], struct ntr_chunks **ret)
{
	struct ntr_chunks *c = calloc(1, sizeof *c);

	if (!c)
		return -ENOMEM;
	c->kv = kv;
	c->ids = ids;
	c->pending_max = PENDING_MAX;
	memcpy(c->secret, secret, sizeof c->secret);
	pthread_mutex_init(&c->lock, NULL);
	RB_INIT(&c->logless);
	*ret = c;
	return 0;
}

void ntr_chunks_free(struct ntr_chunks *c)
{
	if (!c)
		return;
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void ntr_chunks_set_hash(struct ntr_chunks *c, ntr_chunk_hash_fn fn)
{
	c->hash_fn = fn;
}

void ntr_chunks_set_pending(struct ntr_chunks *c, size_t n)
{
	c->pending_max = n;
}

void ntr_chunk_hash(const struct ntr_chunks *c, const void *data, size_t n, uint8_t ret[16])
{
	XXH128_canonical_t can;

	if (c->hash_fn) {
		c->hash_fn(data, n, ret);
		return;
	}
	XXH128_canonicalFromHash(&can, XXH3_128bits_withSecret(data, n, c->secret, sizeof c->secret));
	memcpy(ret, can.digest, sizeof can.digest);
}

int ntr_chunk_get(struct ntr_chunks *c, uint64_t id, struct ntr_kv_pin *ret)
{
	uint8_t key[8], hash[16];
	int r;

	ntr_put_be64(key, id);
	r = ntr_kv_get(c->kv, NTR_CF_CHUNK, key, sizeof key, ret);
	if (r)
		return r == -ENOENT ? -EUCLEAN : r;
	if (ret->len <= NTR_CHUNK_HEAD || ret->len > NTR_CHUNK_HEAD + NTR_CHUNK_SIZE ||
	        ret->data[0] != NTR_CHUNK_FORMAT)
		goto damaged;
	ntr_chunk_hash(c, ret->data + NTR_CHUNK_HEAD, ret->len - NTR_CHUNK_HEAD, hash);
	if (ntr_get_le64(ret->data + 1) != ntr_chunk_check(hash, id))
		goto damaged;
	ret->data += NTR_CHUNK_HEAD;
	ret->len -= NTR_CHUNK_HEAD;
	return 0;
damaged:
	ntr_kv_unpin(ret);
	return -EUCLEAN;
}

int ntr_chunk_holds(struct ntr_chunks *c, uint64_t id, const void *data, size_t n)
{
	struct ntr_kv_pin pin;
	uint8_t key[8];
	int r;

	ntr_put_be64(key, id);
	r = ntr_kv_get(c->kv, NTR_CF_CHUNK, key, sizeof key, &pin);
	if (r)
		return r == -ENOENT || r == -EUCLEAN ? 0 : r;
	r = pin.len == n + NTR_CHUNK_HEAD && pin.data[0] == NTR_CHUNK_FORMAT &&
	    !memcmp(pin.data + NTR_CHUNK_HEAD, data, n);
	ntr_kv_unpin(&pin);
	return r;
}

int ntr_chunk_flush(struct ntr_chunks *c, uint64_t seq, struct ntr_err *e)
{
	uint64_t goal;
	int r;

	pthread_mutex_lock(&c->lock);
	goal = c->flushed >= seq ? 0 : c->written;
	pthread_mutex_unlock(&c->lock);
	if (!goal)
		return 0;
	r = ntr_kv_flush(c->kv, NTR_CF_CHUNK, e);
	if (r)
		return r;
	pthread_mutex_lock(&c->lock);
	c->flushed = NTR_MAX(c->flushed, goal);
	pthread_mutex_unlock(&c->lock);
	return 0;
}
