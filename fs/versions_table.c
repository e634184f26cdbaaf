/* Open addressing with linear probing and backward shift, a power of two of slots per shard, between an
 * eighth and three quarters full: 8 bytes of slot per 1.3 to 8 entries beside the 48 bytes of an entry, so
 * that a million inodes take about 80 MB. uthash would add 56 bytes to each. */
#include "versions_table.h"
#include "../base/util.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { SHARDS = 64, SLOTS_MIN = 64 };

struct shard {
	pthread_mutex_t lock;
	struct ntr_vnode **slot;
	size_t mask, count;
} __attribute__((aligned(64)));

struct ntr_vtable {
	struct shard shard[SHARDS];
};

static uint64_t hash_of(uint64_t ino, uint64_t key, bool dir)
{
	uint64_t h = ino * 0x9E3779B97F4A7C15u ^ (key + dir) * 0xC2B2AE3D27D4EB4Fu;

	h ^= h >> 32;
	h *= 0xD6E8FEB86659FD93u;
	return h ^ h >> 32;
}

static uint64_t hash_node(const struct ntr_vnode *n)
{
	return hash_of(n->ino, n->key, n->dir);
}

/* The shard takes the hash's top bits, the slot its low ones. */
static struct shard *shard_of(struct ntr_vtable *t, uint64_t h)
{
	return &t->shard[h >> 58];
}

int ntr_vtable_new(struct ntr_vtable **ret)
{
	struct ntr_vtable *t = aligned_alloc(64, sizeof(*t));

	if (!t)
		return -ENOMEM;
	memset(t, 0, sizeof(*t));
	for (size_t i = 0; i < SHARDS; i++)
		pthread_mutex_init(&t->shard[i].lock, NULL);
	*ret = t;
	return 0;
}

void ntr_vtable_free(struct ntr_vtable *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < SHARDS; i++) {
		struct shard *s = &t->shard[i];

		for (size_t k = 0; s->slot && k <= s->mask; k++)
			free(s->slot[k]);
		free(s->slot);
		pthread_mutex_destroy(&s->lock);
	}
	free(t);
}

static int resize(struct shard *s, size_t slots)
{
	struct ntr_vnode **old = s->slot, **new = calloc(slots, sizeof(*new));
	size_t n = old ? s->mask + 1 : 0;

	if (!new)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++) {
		if (!old[k])
			continue;
		size_t at = hash_node(old[k]) & (slots - 1);

		while (new[at])
			at = (at + 1) & (slots - 1);
		new[at] = old[k];
	}
	free(old);
	s->slot = new;
	s->mask = slots - 1;
	return 0;
}

static bool is(const struct ntr_vnode *n, uint64_t ino, uint64_t key, bool dir)
{
	return n->ino == ino && n->key == key && n->dir == dir;
}

/* The slot that holds the pair, or the empty one where it belongs. Needs at least one empty slot. */
static size_t find(const struct shard *s, uint64_t h, uint64_t ino, uint64_t key, bool dir)
{
	size_t at = h & s->mask;

	while (s->slot[at] && !is(s->slot[at], ino, key, dir))
		at = (at + 1) & s->mask;
	return at;
}

static struct ntr_vnode *get_locked(
        struct shard *s, uint64_t h, uint64_t ino, uint64_t key, bool dir, uint64_t root)
{
	/* A table that cannot grow goes on filling up to its last but one slot. */
	if (!s->slot || (s->count + 1) * 4 > (s->mask + 1) * 3)
		if (resize(s, s->slot ? (s->mask + 1) * 2 : SLOTS_MIN) < 0 &&
		        (!s->slot || s->count >= s->mask))
			return NULL;
	size_t at = find(s, h, ino, key, dir);
	struct ntr_vnode *n = s->slot[at];

	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n)
			return NULL;
		n->ino = ino;
		n->key = key;
		n->dir = dir;
		s->slot[at] = n;
		s->count++;
	}
	atomic_store_explicit(&n->root, root, memory_order_relaxed);
	n->lookups++;
	return n;
}

struct ntr_vnode *ntr_vtable_get(struct ntr_vtable *t, uint64_t ino, uint64_t key, bool dir, uint64_t root)
{
	uint64_t h = hash_of(ino, key, dir);
	struct shard *s = shard_of(t, h);

	pthread_mutex_lock(&s->lock);
	struct ntr_vnode *n = get_locked(s, h, ino, key, dir, root);

	pthread_mutex_unlock(&s->lock);
	return n;
}

/* Moves every entry behind the hole, up to the next empty slot, that would no longer be found. */
static void close_gap(struct shard *s, size_t hole)
{
	for (size_t at = (hole + 1) & s->mask; s->slot[at]; at = (at + 1) & s->mask) {
		size_t home = hash_node(s->slot[at]) & s->mask;

		if (((at - home) & s->mask) < ((at - hole) & s->mask))
			continue;
		s->slot[hole] = s->slot[at];
		hole = at;
	}
	s->slot[hole] = NULL;
}

static void drop_locked(struct shard *s, struct ntr_vnode *n, uint64_t h)
{
	close_gap(s, find(s, h, n->ino, n->key, n->dir));
	s->count--;
	/* Staying large is harmless, so a failure to shrink is none. */
	if (s->mask + 1 > SLOTS_MIN && s->count * 8 < s->mask + 1)
		(void)resize(s, (s->mask + 1) / 2);
}

void ntr_vtable_forget(struct ntr_vtable *t, struct ntr_vnode *n, uint64_t count)
{
	if (n->pinned)
		return;
	uint64_t h = hash_node(n);
	struct shard *s = shard_of(t, h);

	pthread_mutex_lock(&s->lock);
	n->lookups -= NTR_MIN(n->lookups, count);
	bool gone = n->lookups == 0;

	if (gone)
		drop_locked(s, n, h);
	pthread_mutex_unlock(&s->lock);
	if (gone)
		free(n);
}

void ntr_vtable_stats(struct ntr_vtable *t, uint64_t *ret_inodes, uint64_t *ret_bytes)
{
	uint64_t inodes = 0, bytes = sizeof(*t);

	for (size_t i = 0; i < SHARDS; i++) {
		struct shard *s = &t->shard[i];

		pthread_mutex_lock(&s->lock);
		inodes += s->count;
		bytes += s->slot ? (s->mask + 1) * sizeof(*s->slot) : 0;
		/* 8 bytes before each block are malloc's */
		bytes += s->count * (sizeof(struct ntr_vnode) + 8);
		pthread_mutex_unlock(&s->lock);
	}
	*ret_inodes = inodes;
	*ret_bytes = bytes;
}
