/* chunk_writer: taking content in: found again, or queued, written ahead, indexed. See chunk_impl.h. */
#include "chunk_impl.h"

#include <errno.h>

RB_HEAD(ntr_local_tree, ntr_pending);

struct ntr_chunk_writer {
	struct ntr_chunks *c;
	pthread_mutex_t lock;
	struct ntr_local_tree index;    /* pending entries by hash */
	struct ntr_pending_list queued; /* in memory, in order of their ids */
	struct ntr_pending_list rest;   /* all others */
	size_t queued_bytes, npending;
	uint64_t bytes, need_seq;
	bool logless, settling;
	int err; /* a logless write failed: ids that callers hold name nothing */
};

NTR_RB_STATIC(ntr_local_tree, ntr_pending, local, ntr_pending_cmp)

int ntr_chunk_writer_new(struct ntr_chunks *c, struct ntr_chunk_writer **ret)
{
	struct ntr_chunk_writer *w = calloc(1, sizeof *w);

	if (!w)
		return -ENOMEM;
	w->c = c;
	pthread_mutex_init(&w->lock, NULL);
	RB_INIT(&w->index);
	STAILQ_INIT(&w->queued);
	STAILQ_INIT(&w->rest);
	*ret = w;
	return 0;
}

static void list_free(struct ntr_chunk_writer *w, struct ntr_pending_list *l)
{
	struct ntr_pending *p;

	while ((p = STAILQ_FIRST(l))) {
		STAILQ_REMOVE_HEAD(l, queue);
		if (p->in_local)
			RB_REMOVE(ntr_local_tree, &w->index, p);
		if (p->in_shared)
			RB_REMOVE(ntr_shared_tree, &w->c->logless, p);
		free(p->rec);
		free(p);
	}
}

void ntr_chunk_writer_free(struct ntr_chunk_writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->c->lock);
	list_free(w, &w->queued);
	list_free(w, &w->rest);
	pthread_mutex_unlock(&w->c->lock);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

uint64_t ntr_chunk_writer_bytes(const struct ntr_chunk_writer *w)
{
	return __atomic_load_n(&w->bytes, __ATOMIC_RELAXED);
}

int ntr_chunk_writer_read(struct ntr_chunk_writer *w, uint64_t id, void *buf, size_t *ret_len)
{
	struct ntr_pending *p;
	int r = -ENOENT;

	pthread_mutex_lock(&w->lock);
	STAILQ_FOREACH(p, &w->queued, queue)
	{
		if (p->id != id)
			continue;
		*ret_len = p->len - NTR_CHUNK_HEAD;
		memcpy(buf, p->rec + NTR_CHUNK_HEAD, *ret_len);
		r = 0;
		break;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

static void batch_add(struct ntr_chunks *c, struct ntr_kv_batch *b, const struct ntr_pending_list *l)
{
	const struct ntr_pending *p;
	uint8_t key[8];

	STAILQ_FOREACH(p, l, queue)
	{
		ntr_put_be64(key, p->id);
		ntr_kv_batch_put(b, c->kv, NTR_CF_CHUNK, key, sizeof key, p->rec, p->len);
	}
}

/* The chunks of l are in the database now: gives their memory back and shows them to other writers. */
static void now_logless(struct ntr_chunk_writer *w, struct ntr_pending_list *l)
{
	struct ntr_chunks *c = w->c;
	struct ntr_pending *p;

	pthread_mutex_lock(&w->lock);
	pthread_mutex_lock(&c->lock);
	w->need_seq = ++c->written;
	STAILQ_FOREACH(p, l, queue)
	{
		free(p->rec);
		p->rec = NULL;
		p->seq = c->written;
		if (p->in_local)
			p->in_shared = !RB_INSERT(ntr_shared_tree, &c->logless, p);
	}
	pthread_mutex_unlock(&c->lock);
	STAILQ_CONCAT(&w->rest, l);
	pthread_mutex_unlock(&w->lock);
}

/* Writes a detached queue without log. On failure the writer is of no more use. */
static int write_logless(struct ntr_chunk_writer *w, struct ntr_pending_list *l, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	int r = -ENOMEM;

	if (b) {
		batch_add(w->c, b, l);
		r = ntr_kv_write(w->c->kv, b, NTR_KV_NO_WAL, e);
	}
	if (!r) {
		now_logless(w, l);
		return 0;
	}
	pthread_mutex_lock(&w->lock);
	w->err = r;
	STAILQ_CONCAT(&w->rest, l);
	pthread_mutex_unlock(&w->lock);
	return r;
}

static void batch_index(struct ntr_chunks *c, struct ntr_kv_batch *b, const struct ntr_pending *p)
{
	uint8_t val[8];

	ntr_put_le64(val, p->id);
	ntr_kv_batch_put(b, c->kv, NTR_CF_CIDX, p->hash, sizeof p->hash, val, sizeof val);
}

/* Gathers the index entries of what has been written into b and marks them; the highest seq among them. */
static uint64_t settle_begin(struct ntr_chunk_writer *w, struct ntr_kv_batch *b)
{
	struct ntr_pending *p;
	uint64_t seq = 0;

	STAILQ_FOREACH(p, &w->rest, queue)
	{
		if (p->rec || p->settled)
			continue;
		p->settled = true;
		seq = NTR_MAX(seq, p->seq);
		if (p->in_local)
			batch_index(w->c, b, p);
	}
	return seq;
}

/* Forgets the entries that settle_begin marked: the index has them. */
static void settle_end(struct ntr_chunk_writer *w)
{
	struct ntr_pending_list done = STAILQ_HEAD_INITIALIZER(done), keep = STAILQ_HEAD_INITIALIZER(keep);
	struct ntr_pending *p;

	while ((p = STAILQ_FIRST(&w->rest))) {
		STAILQ_REMOVE_HEAD(&w->rest, queue);
		if (p->settled) {
			w->npending--;
			STAILQ_INSERT_TAIL(&done, p, queue);
		} else {
			STAILQ_INSERT_TAIL(&keep, p, queue);
		}
	}
	STAILQ_CONCAT(&w->rest, &keep);
	pthread_mutex_lock(&w->c->lock);
	list_free(w, &done);
	pthread_mutex_unlock(&w->c->lock);
}

/* A writer of very many chunks flushes and indexes what it has, ahead of its commit, so that its memory stays
 * bounded. Should the commit never come, these are durable chunks that nothing names. */
static int settle(struct ntr_chunk_writer *w)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = NULL;
	uint64_t seq;
	int r;

	pthread_mutex_lock(&w->lock);
	if (w->settling || w->npending <= w->c->pending_max) {
		pthread_mutex_unlock(&w->lock);
		return 0;
	}
	b = ntr_kv_batch_new();
	if (!b) {
		pthread_mutex_unlock(&w->lock);
		return -ENOMEM;
	}
	w->settling = true;
	seq = settle_begin(w, b);
	pthread_mutex_unlock(&w->lock);
	r = ntr_chunk_flush(w->c, seq, NULL);
	if (!r)
		r = ntr_kv_write(w->c->kv, b, NTR_KV_RELAXED, NULL);
	pthread_mutex_lock(&w->lock);
	if (r)
		w->err = r;
	else
		settle_end(w);
	w->settling = false;
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* Looks among this writer's own pending content. 1 found, 0 not; -EAGAIN: *ret is in the database, compare
 * there. */
static int find_own(
        struct ntr_chunk_writer *w, const uint8_t hash[16], const void *data, size_t n, uint64_t *ret)
{
	struct ntr_pending key, *p;

	memcpy(key.hash, hash, sizeof key.hash);
	p = RB_FIND(ntr_local_tree, &w->index, &key);
	if (!p)
		return 0;
	*ret = p->id;
	if (!p->rec)
		return -EAGAIN;
	return p->len == n + NTR_CHUNK_HEAD && !memcmp(p->rec + NTR_CHUNK_HEAD, data, n);
}

static struct ntr_pending *pending_new(const uint8_t hash[16], uint64_t id)
{
	struct ntr_pending *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	memcpy(p->hash, hash, sizeof p->hash);
	p->id = id;
	return p;
}

/* A chunk that another writer has written without log: this writer's commit depends on it from now on, and
 * indexes it as well, for the other may never commit. */
static int inherit(struct ntr_chunk_writer *w, const uint8_t hash[16], uint64_t id, uint64_t seq)
{
	struct ntr_pending *p = pending_new(hash, id);

	if (!p)
		return -ENOMEM;
	p->seq = seq;
	pthread_mutex_lock(&w->lock);
	w->need_seq = NTR_MAX(w->need_seq, seq);
	p->in_local = !RB_INSERT(ntr_local_tree, &w->index, p);
	if (p->in_local) {
		w->npending++;
		STAILQ_INSERT_TAIL(&w->rest, p, queue);
	} else {
		free(p);
	}
	pthread_mutex_unlock(&w->lock);
	return 0;
}

/* Looks among other writers' logless chunks. 1 found, 0 not, negative errno. */
static int find_logless(
        struct ntr_chunk_writer *w, const uint8_t hash[16], const void *data, size_t n, uint64_t *ret)
{
	struct ntr_chunks *c = w->c;
	struct ntr_pending key, *p;
	uint64_t id = 0, seq = 0;
	int r;

	memcpy(key.hash, hash, sizeof key.hash);
	pthread_mutex_lock(&c->lock);
	p = RB_FIND(ntr_shared_tree, &c->logless, &key);
	if (p) {
		id = p->id;
		seq = p->seq;
	}
	pthread_mutex_unlock(&c->lock);
	if (!p)
		return 0;
	r = ntr_chunk_holds(c, id, data, n);
	if (r > 0) {
		*ret = id;
		r = inherit(w, hash, id, seq);
		return r ? r : 1;
	}
	return r;
}

/* Looks in the index. 1 found, 0 not, negative errno. *ret_free: the entry may be set (there is none, or it
 * names a chunk that is gone); false where it names other content of the same hash. */
static int find_indexed(struct ntr_chunks *c, const uint8_t hash[16], const void *data, size_t n,
        uint64_t *ret, bool *ret_free)
{
	struct ntr_kv_pin pin;
	uint64_t id;
	int r = ntr_kv_get(c->kv, NTR_CF_CIDX, hash, 16, &pin);

	*ret_free = true;
	if (r)
		return r == -ENOENT ? 0 : r;
	id = pin.len == 8 ? ntr_get_le64(pin.data) : 0;
	ntr_kv_unpin(&pin);
	r = ntr_chunk_holds(c, id, data, n);
	if (r > 0)
		*ret = id;
	else if (!r && !(r = ntr_chunk_get(c, id, &pin))) {
		ntr_kv_unpin(&pin);
		*ret_free = false;
	}
	return r == -EUCLEAN ? 0 : r;
}

/* Content that is nowhere yet. */
static int make(
        struct ntr_chunks *c, const uint8_t hash[16], const void *data, size_t n, struct ntr_pending **ret)
{
	struct ntr_pending *p;
	uint64_t id;
	int r = ntr_ids_take(c->ids, NTR_ID_CHUNK, 1, &id);

	if (r)
		return r;
	p = pending_new(hash, id);
	if (!p)
		return -ENOMEM;
	p->len = NTR_CHUNK_HEAD + n;
	p->rec = malloc(p->len);
	if (!p->rec) {
		free(p);
		return -ENOMEM;
	}
	p->rec[0] = NTR_CHUNK_FORMAT;
	ntr_put_le64(p->rec + 1, ntr_chunk_check(hash, id));
	memcpy(p->rec + NTR_CHUNK_HEAD, data, n);
	*ret = p;
	return 0;
}

/* Queues it; writes the queue out when it has grown beyond what a commit takes along. */
static int enqueue(struct ntr_chunk_writer *w, struct ntr_pending *p, size_t n, bool index)
{
	struct ntr_pending_list out = STAILQ_HEAD_INITIALIZER(out);
	bool many;
	int r;

	pthread_mutex_lock(&w->lock);
	if (index)
		p->in_local = !RB_INSERT(ntr_local_tree, &w->index, p);
	STAILQ_INSERT_TAIL(&w->queued, p, queue);
	w->npending++;
	w->queued_bytes += n;
	__atomic_fetch_add(&w->bytes, n, __ATOMIC_RELAXED);
	if (w->queued_bytes > NTR_CHUNK_INLINE_BYTES) {
		w->logless = true;
		w->queued_bytes = 0;
		STAILQ_CONCAT(&out, &w->queued);
	}
	many = w->npending > w->c->pending_max;
	pthread_mutex_unlock(&w->lock);
	if (STAILQ_EMPTY(&out))
		return 0;
	r = write_logless(w, &out, NULL);
	return r || !many ? r : settle(w);
}

static int put_new(struct ntr_chunk_writer *w, const uint8_t hash[16], const void *data, size_t n, bool index,
        uint64_t *ret_id)
{
	struct ntr_pending *p;
	int r = make(w->c, hash, data, n, &p);

	if (r)
		return r;
	*ret_id = p->id;
	return enqueue(w, p, n, index);
}

int ntr_chunk_put(struct ntr_chunk_writer *w, const void *data, size_t n, uint64_t hint, uint64_t *ret_id)
{
	uint8_t hash[16];
	bool index;
	int r;

	if (!n || n > NTR_CHUNK_SIZE)
		return -EINVAL;
	if (hint && (r = ntr_chunk_holds(w->c, hint, data, n))) {
		*ret_id = hint;
		return r < 0 ? r : 0;
	}
	ntr_chunk_hash(w->c, data, n, hash);
	pthread_mutex_lock(&w->lock);
	r = w->err ? w->err : find_own(w, hash, data, n, ret_id);
	pthread_mutex_unlock(&w->lock);
	if (r == -EAGAIN)
		r = ntr_chunk_holds(w->c, *ret_id, data, n);
	if (!r)
		r = find_logless(w, hash, data, n, ret_id);
	if (!r)
		r = find_indexed(w->c, hash, data, n, ret_id, &index);
	if (r)
		return r < 0 ? r : 0;
	return put_new(w, hash, data, n, index, ret_id);
}

int ntr_chunk_writer_finish(struct ntr_chunk_writer *w, struct ntr_kv_batch *b, struct ntr_err *e)
{
	struct ntr_pending_list out = STAILQ_HEAD_INITIALIZER(out);
	struct ntr_pending *p;
	int r = w->err;

	if (!r && w->logless && !STAILQ_EMPTY(&w->queued)) {
		STAILQ_CONCAT(&out, &w->queued);
		r = write_logless(w, &out, e);
	}
	if (!r && w->need_seq)
		r = ntr_chunk_flush(w->c, w->need_seq, e);
	if (r)
		return ntr_err_default(e, r, "store file content");
	batch_add(w->c, b, &w->queued);
	RB_FOREACH (p, ntr_local_tree, &w->index)
		batch_index(w->c, b, p);
	return 0;
}
