/* treetwin: the simplest thing that behaves as a tree does: a sorted array of items, copied for every
 * version. Items' bytes are shared between the copies and freed with the pool. */
#ifndef NTR_TESTS_TREETWIN_H
#define NTR_TESTS_TREETWIN_H

#include "treefix.h"

struct twin_item {
	const uint8_t *key, *val;
	size_t klen, vlen;
};

struct twin {
	struct twin_item *v;
	size_t n;
	uint64_t root; /* the tree's root with this content */
};

struct twin_pool {
	void **v;
	size_t n, cap;
};

static inline const uint8_t *twin_bytes(struct twin_pool *p, const void *bytes, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	assert_non_null(copy);
	if (n)
		memcpy(copy, bytes, n);
	if (p->n == p->cap) {
		p->cap = p->cap ? p->cap * 2 : 1024;
		p->v = reallocarray(p->v, p->cap, sizeof(*p->v));
		assert_non_null(p->v);
	}
	p->v[p->n++] = copy;
	return copy;
}

static inline void twin_pool_done(struct twin_pool *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i]);
	free(p->v);
	*p = (struct twin_pool){0};
}

static inline int twin_compare(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	int c = memcmp(a, b, NTR_MIN(alen, blen));

	return c ? c : (alen > blen) - (alen < blen);
}

/* First item whose key is >= key. */
static inline size_t twin_find(const struct twin *t, const uint8_t *key, size_t klen)
{
	size_t lo = 0, hi = t->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (twin_compare(t->v[mid].key, t->v[mid].klen, key, klen) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static inline bool twin_is(const struct twin *t, size_t i, const uint8_t *key, size_t klen)
{
	return i < t->n && !twin_compare(t->v[i].key, t->v[i].klen, key, klen);
}

/* A new version with the (ascending) changes; their bytes must live in the pool. */
static inline struct twin twin_apply(const struct twin *t, const struct ntr_change *c, size_t n)
{
	struct twin r = {.v = calloc(t->n + n + 1, sizeof(*r.v))};
	size_t i = 0;

	assert_non_null(r.v);
	for (size_t k = 0; k < n; k++) {
		while (i < t->n && twin_compare(t->v[i].key, t->v[i].klen, c[k].key, c[k].klen) < 0)
			r.v[r.n++] = t->v[i++];
		if (twin_is(t, i, c[k].key, c[k].klen))
			i++;
		if (c[k].val)
			r.v[r.n++] = (struct twin_item){
			        .key = c[k].key, .klen = c[k].klen, .val = c[k].val, .vlen = c[k].vlen};
	}
	while (i < t->n)
		r.v[r.n++] = t->v[i++];
	return r;
}

static inline bool twin_same_value(const struct twin_item *a, const struct twin_item *b)
{
	return a->vlen == b->vlen && !memcmp(a->val, b->val, a->vlen);
}

#endif
