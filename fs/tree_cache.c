/* The cache of decoded nodes: shards by id, each a hash table and a clock. A look-up holds one shard's lock
 * for a few instructions; the node itself is immutable and read without any lock. */
#include "tree_impl.h"

#include "../base/util.h"

#include <errno.h>

static uint64_t mix(uint64_t id)
{
	id *= 0x9E3779B97F4A7C15u;
	return id ^ id >> 29;
}

static struct ntr_cache_shard *shard_of(struct ntr_tree *t, uint64_t id)
{
	return &t->shard[mix(id) % NTR_CACHE_SHARDS];
}

static struct ntr_cache_bucket *bucket_of(struct ntr_tree *t, struct ntr_cache_shard *s, uint64_t id)
{
	return &s->buckets[mix(id) >> 32 & (t->nbuckets - 1)];
}

int ntr_cache_init(struct ntr_tree *t, size_t bytes)
{
	t->shard_limit = bytes / NTR_CACHE_SHARDS;
	t->nbuckets = 64;
	while (t->nbuckets * 1024 < t->shard_limit)
		t->nbuckets *= 2;
	for (int i = 0; i < NTR_CACHE_SHARDS; i++) {
		struct ntr_cache_shard *s = &t->shard[i];

		pthread_mutex_init(&s->lock, NULL);
		TAILQ_INIT(&s->clock);
	}
	for (int i = 0; i < NTR_CACHE_SHARDS; i++) {
		t->shard[i].buckets = calloc(t->nbuckets, sizeof(*t->shard[i].buckets));
		if (!t->shard[i].buckets)
			return -ENOMEM;
	}
	return 0;
}

void ntr_cache_done(struct ntr_tree *t)
{
	for (int i = 0; i < NTR_CACHE_SHARDS; i++) {
		struct ntr_cache_shard *s = &t->shard[i];
		struct ntr_tree_node *n;

		while ((n = TAILQ_FIRST(&s->clock))) {
			TAILQ_REMOVE(&s->clock, n, clock);
			ntr_node_unref(n);
		}
		free(s->buckets);
		pthread_mutex_destroy(&s->lock);
	}
}

void ntr_node_ref(struct ntr_tree_node *n)
{
	atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
}

void ntr_node_unref(struct ntr_tree_node *n)
{
	if (atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) == 1)
		free(n);
}

static size_t cost(const struct ntr_tree_node *n)
{
	return sizeof(*n) + n->view.len;
}

/* With the shard's lock. Referenced; NULL when absent. */
static struct ntr_tree_node *find(struct ntr_tree *t, struct ntr_cache_shard *s, uint64_t id)
{
	struct ntr_tree_node *n;

	LIST_FOREACH (n, bucket_of(t, s, id), hash) {
		if (n->id != id)
			continue;
		n->used = true;
		ntr_node_ref(n);
		return n;
	}
	return NULL;
}

static void evict(struct ntr_tree *t, struct ntr_cache_shard *s)
{
	struct ntr_tree_node *n;

	while (s->bytes > t->shard_limit && (n = TAILQ_LAST(&s->clock, ntr_cache_clock))) {
		TAILQ_REMOVE(&s->clock, n, clock);
		if (n->used) {
			n->used = false;
			TAILQ_INSERT_HEAD(&s->clock, n, clock);
			continue;
		}
		LIST_REMOVE(n, hash);
		s->bytes -= cost(n);
		ntr_node_unref(n);
	}
}

/* Takes over the caller's reference; returns one to the node that is in the cache now, which another thread
 * may have brought in meanwhile. */
static struct ntr_tree_node *insert(struct ntr_tree *t, struct ntr_tree_node *n)
{
	struct ntr_cache_shard *s = shard_of(t, n->id);
	struct ntr_tree_node *other;

	pthread_mutex_lock(&s->lock);
	other = find(t, s, n->id);
	if (!other) {
		ntr_node_ref(n);
		LIST_INSERT_HEAD(bucket_of(t, s, n->id), n, hash);
		TAILQ_INSERT_HEAD(&s->clock, n, clock);
		s->bytes += cost(n);
		evict(t, s);
	}
	pthread_mutex_unlock(&s->lock);
	if (!other)
		return n;
	ntr_node_unref(n);
	return other;
}

static struct ntr_tree_node *node_alloc(uint64_t id, size_t len)
{
	struct ntr_tree_node *n = malloc(sizeof(*n) + len);

	if (!n)
		return NULL;
	n->id = id;
	n->used = false;
	atomic_init(&n->refs, 1);
	return n;
}

int ntr_node_load(struct ntr_tree *t, uint64_t id, struct ntr_tree_node **ret)
{
	struct ntr_tree_node *n = NULL;
	struct ntr_kv_pin pin;
	uint8_t key[8];
	int r;

	ntr_put_be64(key, ~id);
	r = ntr_kv_get(t->kv, NTR_CF_NODE, key, sizeof(key), &pin);
	if (r)
		return r;
	n = node_alloc(id, pin.len);
	if (n)
		memcpy(n->data, pin.data, pin.len);
	r = n ? ntr_node_decode(n->data, pin.len, &n->view) : -ENOMEM;
	ntr_kv_unpin(&pin);
	if (r)
		free(n);
	else
		*ret = n;
	return r;
}

static struct ntr_tree_node *lookup(struct ntr_tree *t, uint64_t id)
{
	struct ntr_cache_shard *s = shard_of(t, id);
	struct ntr_tree_node *n;

	pthread_mutex_lock(&s->lock);
	n = find(t, s, id);
	if (n)
		s->hits++;
	else
		s->misses++;
	pthread_mutex_unlock(&s->lock);
	return n;
}

int ntr_node_get(struct ntr_tree *t, uint64_t id, int level, struct ntr_tree_node **ret)
{
	struct ntr_tree_node *n = lookup(t, id);
	int r;

	if (!n) {
		r = ntr_node_load(t, id, &n);
		if (r)
			return r == -ENOENT ? -EUCLEAN : r;
		n = insert(t, n);
	}
	if (level >= 0 && n->view.level != level) {
		ntr_node_unref(n);
		return -EUCLEAN;
	}
	*ret = n;
	return 0;
}

int ntr_node_make(struct ntr_tree *t, uint64_t id, unsigned level, const struct ntr_node_entry *v, size_t n,
        struct ntr_kv_batch *b)
{
	size_t size = ntr_node_size(level, v, n);
	struct ntr_tree_node *node;
	uint8_t key[8];
	int r;

	if (size > NTR_NODE_MAX || n > UINT16_MAX)
		return -EOVERFLOW;
	node = node_alloc(id, size);
	if (!node)
		return -ENOMEM;
	ntr_node_encode(level, v, n, node->data, size);
	r = ntr_node_decode(node->data, size, &node->view);
	if (r) {
		free(node);
		return r;
	}
	ntr_put_be64(key, ~id);
	ntr_kv_batch_put(b, t->kv, NTR_CF_NODE, key, sizeof(key), node->data, size);
	ntr_node_unref(insert(t, node));
	return 0;
}

void ntr_tree_stats(struct ntr_tree *t, uint64_t *ret_bytes, uint64_t *ret_hits, uint64_t *ret_misses)
{
	*ret_bytes = *ret_hits = *ret_misses = 0;
	for (int i = 0; i < NTR_CACHE_SHARDS; i++) {
		struct ntr_cache_shard *s = &t->shard[i];

		pthread_mutex_lock(&s->lock);
		*ret_bytes += s->bytes;
		*ret_hits += s->hits;
		*ret_misses += s->misses;
		pthread_mutex_unlock(&s->lock);
	}
}
