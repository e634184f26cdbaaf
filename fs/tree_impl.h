/* tree_impl: what the files of the tree module share: the node cache, and the groups of entries that apply
 * builds. */
#ifndef NTR_FS_TREE_IMPL_H
#define NTR_FS_TREE_IMPL_H

#include "tree.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

enum { NTR_CACHE_SHARDS = 32 };

struct ntr_tree_node {
	uint64_t id;
	struct ntr_node_view view; /* into data */
	_Atomic unsigned refs;     /* the cache's own is one of them */
	bool used;                 /* looked up since the clock's hand passed; under the shard's lock */
	LIST_ENTRY(ntr_tree_node) hash;
	TAILQ_ENTRY(ntr_tree_node) clock;
	uint8_t data[];
};

LIST_HEAD(ntr_cache_bucket, ntr_tree_node);

struct ntr_cache_shard {
	pthread_mutex_t lock;
	TAILQ_HEAD(ntr_cache_clock, ntr_tree_node) clock; /* newest first; the hand is at the tail */
	struct ntr_cache_bucket *buckets;
	size_t bytes;
	uint64_t hits, misses;
} __attribute__((aligned(64)));

struct ntr_tree {
	struct ntr_kv *kv;
	struct ntr_ids *ids;
	size_t shard_limit, nbuckets; /* per shard; nbuckets is a power of two */
	struct ntr_cache_shard shard[NTR_CACHE_SHARDS];
};

/* tree_cache.c */
int ntr_cache_init(struct ntr_tree *t, size_t bytes);
void ntr_cache_done(struct ntr_tree *t);
/* A node by id, from the cache or the store, checked; level: what the parent says it must have (-1: any). 0,
 * -EUCLEAN (damaged, missing, or of another level), -EIO, -ENOMEM. The caller unrefs. */
int ntr_node_get(struct ntr_tree *t, uint64_t id, int level, struct ntr_tree_node **ret);
void ntr_node_ref(struct ntr_tree_node *n);
void ntr_node_unref(struct ntr_tree_node *n);
static inline void ntr_node_unrefp(struct ntr_tree_node **n)
{
	if (*n)
		ntr_node_unref(*n);
}
/* Encodes entries as node id, adds it to the batch and the cache. */
int ntr_node_make(struct ntr_tree *t, uint64_t id, unsigned level, const struct ntr_node_entry *v, size_t n,
        struct ntr_kv_batch *b);
/* The stored bytes of a node, past the cache. 0 or negative errno (-ENOENT: no such node). */
int ntr_node_load(struct ntr_tree *t, uint64_t id, struct ntr_tree_node **ret);

/* tree_group.c: a growing run of entries of one level, with whole keys, that will become one or several
 * nodes. Keys and values point into what the group holds (its arena, its nodes) or into the caller's changes.
 */
struct ntr_arena_block;
struct ntr_group {
	unsigned level;
	bool appended; /* every new entry lies behind all old ones, at the right edge of the tree */
	struct ntr_node_entry *v;
	size_t n, cap;
	size_t weight; /* of all entries, with whole keys */
	struct ntr_arena_block *arena;
	struct ntr_tree_node **held;
	size_t nheld, held_cap;
};

void ntr_group_done(struct ntr_group *g);
/* Keeps n (a new reference) alive as long as the group. */
int ntr_group_hold(struct ntr_group *g, struct ntr_tree_node *n);
/* Appends an entry whose bytes outlive the group / entry i of a held node / an entry whose key is copied. */
int ntr_group_add(struct ntr_group *g, const struct ntr_node_entry *e);
int ntr_group_add_from(struct ntr_group *g, const struct ntr_node_view *n, size_t i);
int ntr_group_add_copy(struct ntr_group *g, const uint8_t *key, size_t klen, uint64_t child);
/* Appends all of a node. */
int ntr_group_add_node(struct ntr_group *g, struct ntr_tree_node *n);
/* Moves all of b behind a; b is empty afterwards. */
int ntr_group_join(struct ntr_group *a, struct ntr_group *b);
/* Bytes as one node. */
size_t ntr_group_size(const struct ntr_group *g);
/* Writes the group as nodes of its level and appends their (key, id) to up. */
int ntr_group_pack(struct ntr_group *g, struct ntr_tree *t, struct ntr_kv_batch *b, struct ntr_group *up);

/* memcmp order, shorter first, of a key against prefix + rest. */
int ntr_key_compare(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen);
/* Writes the whole key of entry i into key[NTR_KEY_MAX]; returns its length. */
size_t ntr_node_key(const struct ntr_node_view *n, size_t i, uint8_t *key);
/* The child to follow for key: the last whose first key is <= key, else the first. */
size_t ntr_node_child(const struct ntr_node_view *n, const uint8_t *key, size_t klen);

#endif
