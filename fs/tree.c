#include "tree_impl.h"

#include "../base/util.h"

#include <errno.h>

int ntr_tree_new(struct ntr_kv *kv, struct ntr_ids *ids, size_t cache_bytes, struct ntr_tree **ret)
{
	struct ntr_tree *t = aligned_alloc(_Alignof(struct ntr_tree), sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	memset(t, 0, sizeof(*t));
	t->kv = kv;
	t->ids = ids;
	r = ntr_cache_init(t, cache_bytes ? cache_bytes : (size_t)64 << 20);
	if (r) {
		ntr_tree_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

void ntr_tree_free(struct ntr_tree *t)
{
	if (!t)
		return;
	ntr_cache_done(t);
	free(t);
}

int ntr_key_compare(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	int c = memcmp(a, b, NTR_MIN(alen, blen));

	return c ? c : (alen > blen) - (alen < blen);
}

size_t ntr_node_key(const struct ntr_node_view *n, size_t i, uint8_t *key)
{
	struct ntr_node_entry e;

	ntr_node_entry(n, i, &e);
	memcpy(key, n->prefix, n->prefix_len);
	memcpy(key + n->prefix_len, e.key, e.klen);
	return n->prefix_len + e.klen;
}

size_t ntr_node_child(const struct ntr_node_view *n, const uint8_t *key, size_t klen)
{
	int equal;
	size_t i = ntr_node_search(n, key, klen, &equal);

	return equal || !i ? i : i - 1;
}

/* The leaf in which key would lie. */
static int find_leaf(
        struct ntr_tree *t, uint64_t root, const uint8_t *key, size_t klen, struct ntr_tree_node **ret)
{
	struct ntr_tree_node *n, *child;
	int r = ntr_node_get(t, root, -1, &n);

	while (!r && n->view.level) {
		struct ntr_node_entry e;

		ntr_node_entry(&n->view, ntr_node_child(&n->view, key, klen), &e);
		r = ntr_node_get(t, e.child, n->view.level - 1, &child);
		ntr_node_unref(n);
		n = r ? NULL : child;
	}
	if (!r)
		*ret = n;
	return r;
}

int ntr_tree_get(
        struct ntr_tree *t, uint64_t root, const void *key, size_t klen, uint8_t *val, size_t *ret_len)
{
	ntr_auto(ntr_node_unrefp) struct ntr_tree_node *n = NULL;
	struct ntr_node_entry e;
	int r, equal;
	size_t i;

	if (!root)
		return -ENOENT;
	r = find_leaf(t, root, key, klen, &n);
	if (r)
		return r;
	i = ntr_node_search(&n->view, key, klen, &equal);
	if (!equal)
		return -ENOENT;
	ntr_node_entry(&n->view, i, &e);
	memcpy(val, e.val, e.vlen);
	*ret_len = e.vlen;
	return 0;
}

void ntr_tree_cursor_init(struct ntr_tree_cursor *c, struct ntr_tree *t, uint64_t root)
{
	c->tree = t;
	c->root = root;
	c->depth = 0;
	c->klen = c->vlen = 0;
	c->val = NULL;
}

void ntr_tree_cursor_done(struct ntr_tree_cursor *c)
{
	while (c->depth)
		ntr_node_unref(c->node[--c->depth]);
	c->klen = c->vlen = 0;
	c->val = NULL;
}

static int cursor_push(struct ntr_tree_cursor *c, uint64_t id, int level)
{
	int r;

	if (c->depth == NTR_TREE_DEPTH_MAX)
		return -EUCLEAN;
	r = ntr_node_get(c->tree, id, level, &c->node[c->depth]);
	if (r)
		return r;
	c->pos[c->depth++] = 0;
	return 0;
}

static const struct ntr_node_view *cursor_top(const struct ntr_tree_cursor *c)
{
	return &c->node[c->depth - 1]->view;
}

/* From the top's current child down to a leaf: along key, or along the first keys when key is NULL. */
static int cursor_descend(struct ntr_tree_cursor *c, const uint8_t *key, size_t klen)
{
	int r = 0;

	while (!r && cursor_top(c)->level) {
		const struct ntr_node_view *n = cursor_top(c);
		struct ntr_node_entry e;

		if (key)
			c->pos[c->depth - 1] = (uint16_t)ntr_node_child(n, key, klen);
		ntr_node_entry(n, c->pos[c->depth - 1], &e);
		r = cursor_push(c, e.child, n->level - 1);
	}
	return r;
}

static int cursor_load(struct ntr_tree_cursor *c)
{
	const struct ntr_node_view *n = cursor_top(c);
	struct ntr_node_entry e;

	ntr_node_entry(n, c->pos[c->depth - 1], &e);
	c->klen = ntr_node_key(n, c->pos[c->depth - 1], c->key);
	c->val = e.val;
	c->vlen = e.vlen;
	return 1;
}

/* The leaf's position may be one behind its end: goes to the next leaf then. */
static int cursor_settle(struct ntr_tree_cursor *c)
{
	int r;

	while (c->depth && c->pos[c->depth - 1] >= cursor_top(c)->count) {
		ntr_node_unref(c->node[--c->depth]);
		if (c->depth)
			c->pos[c->depth - 1]++;
	}
	if (!c->depth) {
		ntr_tree_cursor_done(c);
		return 0;
	}
	r = cursor_descend(c, NULL, 0);
	if (!r)
		return cursor_load(c);
	ntr_tree_cursor_done(c);
	return r;
}

int ntr_tree_cursor_seek(struct ntr_tree_cursor *c, const void *key, size_t klen)
{
	int r, equal;

	ntr_tree_cursor_done(c);
	if (!c->root)
		return 0;
	r = cursor_push(c, c->root, -1);
	if (!r)
		r = cursor_descend(c, key, klen);
	if (r) {
		ntr_tree_cursor_done(c);
		return r;
	}
	c->pos[c->depth - 1] = (uint16_t)ntr_node_search(cursor_top(c), key, klen, &equal);
	return cursor_settle(c);
}

int ntr_tree_cursor_next(struct ntr_tree_cursor *c)
{
	if (!c->depth)
		return 0;
	c->pos[c->depth - 1]++;
	return cursor_settle(c);
}
