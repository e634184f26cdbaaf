/* diff: two positions move over two trees in key order. A position is an entry of some level; whichever has
 * the smaller first key is opened (a subtree) or reported (an item), and where both stand at one child id
 * both step over it. An inner entry's key is exactly its subtree's first key, so equal subtrees always meet,
 * also in trees of different height. */
#include "tree_impl.h"

#include "../base/util.h"

#include <errno.h>

static const struct ntr_node_view *top(const struct ntr_tree_cursor *c)
{
	return &c->node[c->depth - 1]->view;
}

static void entry_load(struct ntr_tree_cursor *c, struct ntr_node_entry *e)
{
	ntr_node_entry(top(c), c->pos[c->depth - 1], e);
	c->klen = ntr_node_key(top(c), c->pos[c->depth - 1], c->key);
}

static int open_node(struct ntr_tree_cursor *c, uint64_t id, int level)
{
	int r = c->depth < NTR_TREE_DEPTH_MAX ? ntr_node_get(c->tree, id, level, &c->node[c->depth])
	                                      : -EUCLEAN;

	if (!r)
		c->pos[c->depth++] = 0;
	return r;
}

static void step(struct ntr_tree_cursor *c)
{
	c->pos[c->depth - 1]++;
	while (c->depth && c->pos[c->depth - 1] >= top(c)->count) {
		ntr_node_unref(c->node[--c->depth]);
		if (c->depth)
			c->pos[c->depth - 1]++;
	}
}

struct diff {
	struct ntr_tree_cursor a, b;
	ntr_tree_diff_fn fn;
	void *user;
};

/* One side stands before the other: what it stands at is missing there. */
static int one_side(struct diff *d, struct ntr_tree_cursor *c, const struct ntr_node_entry *e)
{
	bool is_a = c == &d->a;
	int r;

	if (top(c)->level)
		return open_node(c, e->child, top(c)->level - 1);
	r = d->fn(d->user, c->key, c->klen, is_a ? e->val : NULL, is_a ? e->vlen : 0, is_a ? NULL : e->val,
	        is_a ? 0 : e->vlen);
	step(c);
	return r;
}

static int both_sides(struct diff *d, const struct ntr_node_entry *ea, const struct ntr_node_entry *eb)
{
	unsigned la = top(&d->a)->level, lb = top(&d->b)->level;
	int r = 0;

	if (la == lb && la && ea->child == eb->child) {
		step(&d->a);
		step(&d->b);
		return 0;
	}
	if (!la && !lb) {
		if (ea->vlen != eb->vlen || memcmp(ea->val, eb->val, ea->vlen))
			r = d->fn(d->user, d->a.key, d->a.klen, ea->val, ea->vlen, eb->val, eb->vlen);
		step(&d->a);
		step(&d->b);
		return r;
	}
	if (la >= lb)
		r = open_node(&d->a, ea->child, (int)la - 1);
	if (!r && lb >= la)
		r = open_node(&d->b, eb->child, (int)lb - 1);
	return r;
}

static int diff_run(struct diff *d)
{
	int r = 0;

	while (!r && (d->a.depth || d->b.depth)) {
		struct ntr_node_entry ea, eb;
		int c;

		if (d->a.depth)
			entry_load(&d->a, &ea);
		if (d->b.depth)
			entry_load(&d->b, &eb);
		if (!d->a.depth || !d->b.depth)
			c = d->a.depth ? -1 : 1;
		else
			c = ntr_key_compare(d->a.key, d->a.klen, d->b.key, d->b.klen);
		if (c < 0)
			r = one_side(d, &d->a, &ea);
		else if (c > 0)
			r = one_side(d, &d->b, &eb);
		else
			r = both_sides(d, &ea, &eb);
	}
	return r;
}

int ntr_tree_diff(struct ntr_tree *t, uint64_t a, uint64_t b, ntr_tree_diff_fn fn, void *user)
{
	struct diff d = {.fn = fn, .user = user};
	int r = 0;

	if (a == b)
		return 0;
	ntr_tree_cursor_init(&d.a, t, a);
	ntr_tree_cursor_init(&d.b, t, b);
	if (a)
		r = open_node(&d.a, a, -1);
	if (!r && b)
		r = open_node(&d.b, b, -1);
	if (!r)
		r = diff_run(&d);
	ntr_tree_cursor_done(&d.a);
	ntr_tree_cursor_done(&d.b);
	return r;
}
