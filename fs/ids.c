#include "ids.h"

#include "../base/util.h"

#include <errno.h>
#include <pthread.h>

struct ntr_ids {
	struct ntr_kv *kv;
	pthread_mutex_t lock;
	uint64_t next[NTR_ID_KINDS]; /* the next number to give out; <= mark */
	uint64_t mark[NTR_ID_KINDS]; /* durable: every number below it may have been used */
};

enum { RECORD = 8 * NTR_ID_KINDS };
static const uint8_t mark_key = 'A';

static int marks_read(struct ntr_ids *ids)
{
	struct ntr_kv_pin p;
	int r = ntr_kv_get(ids->kv, NTR_CF_META, &mark_key, 1, &p);

	for (int k = 0; k < NTR_ID_KINDS; k++)
		ids->mark[k] = k == NTR_ID_INODE ? NTR_INO_FIRST : 1;
	if (r)
		return r == -ENOENT ? 0 : r;
	if (p.len != RECORD)
		r = -EUCLEAN;
	for (int k = 0; !r && k < NTR_ID_KINDS; k++)
		ids->mark[k] = NTR_MAX(ids->mark[k], ntr_get_le64(p.data + 8 * k));
	ntr_kv_unpin(&p);
	return r;
}

static void mark_raise(struct ntr_ids *ids, enum ntr_id_kind kind, uint64_t id)
{
	if (id >= ids->mark[kind])
		ids->mark[kind] = id + 1;
}

/* Nodes are keyed by ~id, so the first key is the highest id; of chunks it is the last. */
static int raise_above_family(struct ntr_ids *ids, enum ntr_cf cf, enum ntr_id_kind kind)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(ids->kv, cf, true);
	const uint8_t *key;
	size_t klen;

	if (!it)
		return -ENOMEM;
	if (cf == NTR_CF_NODE)
		ntr_kv_iter_seek(it, "", 0);
	else
		ntr_kv_iter_seek_last(it);
	if (ntr_kv_iter_valid(it, &key, &klen, NULL, NULL) && klen == 8)
		mark_raise(ids, kind, cf == NTR_CF_NODE ? ~ntr_get_be64(key) : ntr_get_be64(key));
	return ntr_kv_iter_error(it);
}

/* Records "<letter> BE64 id" at or above the mark: none, unless the mark was lost. */
static int raise_above_records(struct ntr_ids *ids, uint8_t letter, enum ntr_id_kind kind)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(ids->kv, NTR_CF_META, true);
	uint8_t from[9] = {letter};
	const uint8_t *key;
	size_t klen;

	if (!it)
		return -ENOMEM;
	ntr_put_be64(from + 1, ids->mark[kind]);
	for (ntr_kv_iter_seek(it, from, sizeof(from));
	        ntr_kv_iter_valid(it, &key, &klen, NULL, NULL) && key[0] == letter; ntr_kv_iter_next(it))
		if (klen == sizeof(from))
			mark_raise(ids, kind, ntr_get_be64(key + 1));
	return ntr_kv_iter_error(it);
}

static int marks_load(struct ntr_ids *ids)
{
	int r = marks_read(ids);

	if (!r)
		r = raise_above_family(ids, NTR_CF_NODE, NTR_ID_NODE);
	if (!r)
		r = raise_above_family(ids, NTR_CF_CHUNK, NTR_ID_CHUNK);
	if (!r)
		r = raise_above_records(ids, 'C', NTR_ID_COMMIT);
	if (!r)
		r = raise_above_records(ids, 'H', NTR_ID_SESSION);
	memcpy(ids->next, ids->mark, sizeof(ids->next));
	return r;
}

int ntr_ids_open(struct ntr_kv *kv, struct ntr_ids **ret, struct ntr_err *e)
{
	struct ntr_ids *ids = calloc(1, sizeof(*ids));
	int r;

	if (!ids)
		return ntr_err_set(e, -ENOMEM, "read the store's id marks");
	ids->kv = kv;
	pthread_mutex_init(&ids->lock, NULL);
	r = marks_load(ids);
	if (r) {
		ntr_ids_close(ids);
		return ntr_err_set(e, r, "read the store's id marks");
	}
	*ret = ids;
	return 0;
}

void ntr_ids_close(struct ntr_ids *ids)
{
	if (!ids)
		return;
	pthread_mutex_destroy(&ids->lock);
	free(ids);
}

/* Makes room for n numbers of kind, and in the same write for every other kind that is running low: after an
 * open all of them are, and one sync is enough. */
static int marks_advance(struct ntr_ids *ids, enum ntr_id_kind kind, uint64_t n)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	uint64_t mark[NTR_ID_KINDS];
	uint8_t val[RECORD];
	int r;

	if (!b)
		return -ENOMEM;
	for (int k = 0; k < NTR_ID_KINDS; k++) {
		uint64_t want = k == (int)kind ? n : 0;

		mark[k] = ids->mark[k];
		if (mark[k] - ids->next[k] < NTR_MAX(want, (uint64_t)NTR_IDS_STEP / 4))
			mark[k] = NTR_MAX(mark[k], ids->next[k] + want) + NTR_IDS_STEP;
		ntr_put_le64(val + 8 * k, mark[k]);
	}
	ntr_kv_batch_put(b, ids->kv, NTR_CF_META, &mark_key, 1, val, sizeof(val));
	r = ntr_kv_write(ids->kv, b, NTR_KV_SYNC, NULL);
	if (!r)
		memcpy(ids->mark, mark, sizeof(mark));
	return r;
}

int ntr_ids_take(struct ntr_ids *ids, enum ntr_id_kind kind, uint64_t n, uint64_t *ret_first)
{
	int r = 0;

	if (n > UINT64_MAX / 4)
		return -ERANGE;
	pthread_mutex_lock(&ids->lock);
	if (ids->mark[kind] - ids->next[kind] < n)
		r = marks_advance(ids, kind, n);
	if (!r) {
		*ret_first = ids->next[kind];
		ids->next[kind] += n;
	}
	pthread_mutex_unlock(&ids->lock);
	return r;
}

uint64_t ntr_ids_peek(struct ntr_ids *ids, enum ntr_id_kind kind)
{
	uint64_t id;

	pthread_mutex_lock(&ids->lock);
	id = ids->next[kind];
	pthread_mutex_unlock(&ids->lock);
	return id;
}
