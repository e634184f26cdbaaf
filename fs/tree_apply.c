/* apply: one descent with all changes. Every changed node comes back to its parent as a group of entries that
 * is not yet a node; the parent joins what is too small with a neighbour, cuts what is too large, and so
 * becomes a group itself. Ids are given when a group is packed: children before parents. */
#include "tree_impl.h"

#include "../base/util.h"

#include <errno.h>

struct apply {
	struct ntr_tree *tree;
	struct ntr_kv_batch *batch;
	const struct ntr_change *v;
	const struct ntr_group *top; /* the root's */
};

/* A child on the way: as it was (entry `index` of its parent), or a group. */
struct item {
	size_t index;
	uint64_t child;
	bool changed;
	struct ntr_group group;
};

struct item_list {
	struct item *v;
	size_t n;
};

static void items_done(struct item_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].changed)
			ntr_group_done(&l->v[i].group);
	free(l->v);
}

static int add_change(struct ntr_group *out, const struct ntr_change *c)
{
	return ntr_group_add(out,
	        &(struct ntr_node_entry){.key = c->key, .klen = c->klen, .val = c->val, .vlen = c->vlen});
}

static bool same_value(const struct ntr_node_entry *e, const struct ntr_change *c)
{
	return c->val && c->vlen == e->vlen && !memcmp(c->val, e->val, e->vlen);
}

/* Merges changes [lo, hi) into a leaf. *ret_changed false: they change nothing, out is not to be used. */
static int leaf_apply(struct apply *a, struct ntr_tree_node *n, size_t lo, size_t hi, bool edge,
        struct ntr_group *out, bool *ret_changed)
{
	const struct ntr_node_view *v = &n->view;
	size_t i = 0;
	int r = ntr_group_hold(out, n), equal;

	*ret_changed = false;
	out->appended = edge && ntr_node_search(v, a->v[lo].key, a->v[lo].klen, &equal) == v->count;
	for (; !r && lo < hi; lo++) {
		const struct ntr_change *c = &a->v[lo];
		size_t at = ntr_node_search(v, c->key, c->klen, &equal);
		struct ntr_node_entry e;

		while (!r && i < at)
			r = ntr_group_add_from(out, v, i++);
		if (r || (!equal && !c->val))
			continue;
		if (equal) {
			ntr_node_entry(v, at, &e);
			if (same_value(&e, c))
				continue;
			i++;
		}
		*ret_changed = true;
		if (c->val)
			r = add_change(out, c);
	}
	while (!r && i < v->count)
		r = ntr_group_add_from(out, v, i++);
	return r;
}

static int node_apply(struct apply *a, struct ntr_tree_node *n, size_t lo, size_t hi, bool edge,
        struct ntr_group *out, bool *ret_changed);

static int child_apply(struct apply *a, unsigned level, size_t lo, size_t hi, bool edge, struct item *it)
{
	ntr_auto(ntr_node_unrefp) struct ntr_tree_node *child = NULL;
	int r = ntr_node_get(a->tree, it->child, (int)level, &child);

	if (r)
		return r;
	it->group.level = level;
	r = node_apply(a, child, lo, hi, edge, &it->group, &it->changed);
	if (r || !it->changed)
		ntr_group_done(&it->group);
	if (r)
		it->changed = false;
	return r;
}

/* End of the changes from lo on whose keys lie before entry i of n. */
static size_t changes_before(
        const struct apply *a, size_t lo, size_t hi, const struct ntr_node_view *n, size_t i)
{
	uint8_t key[NTR_KEY_MAX];
	size_t klen = ntr_node_key(n, i, key);

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (ntr_key_compare(a->v[mid].key, a->v[mid].klen, key, klen) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Gives every child its changes; l gets one item per child. */
static int children_apply(struct apply *a, struct ntr_tree_node *n, size_t lo, size_t hi, bool edge,
        struct item_list *l, bool *ret_changed)
{
	const struct ntr_node_view *v = &n->view;
	size_t next = ntr_node_child(v, a->v[lo].key, a->v[lo].klen);

	*ret_changed = false;
	for (size_t i = 0; i < v->count; i++) {
		struct item *it = &l->v[l->n++];
		bool last = i + 1u == v->count;
		struct ntr_node_entry e;
		size_t end;
		int r;

		ntr_node_entry(v, i, &e);
		*it = (struct item){.index = i, .child = e.child};
		if (i != next || lo == hi)
			continue;
		end = last ? hi : changes_before(a, lo, hi, v, i + 1);
		r = child_apply(a, n->view.level - 1u, lo, end, edge && last, it);
		if (r)
			return r;
		*ret_changed |= it->changed;
		lo = end;
		next = lo < hi ? ntr_node_child(v, a->v[lo].key, a->v[lo].klen) : 0;
	}
	return 0;
}

static int item_open(struct apply *a, struct item *it, unsigned level)
{
	ntr_auto(ntr_node_unrefp) struct ntr_tree_node *n = NULL;
	int r;

	if (it->changed)
		return 0;
	r = ntr_node_get(a->tree, it->child, (int)level, &n);
	if (r)
		return r;
	it->group.level = level;
	it->changed = true;
	return ntr_group_add_node(&it->group, n);
}

/* What grew at the right edge is left alone: more of the kind will fill it. */
static bool too_small(const struct item *it)
{
	return it->changed && !it->group.appended && ntr_group_size(&it->group) < NTR_NODE_TARGET / 3;
}

/* Joins item i with item j > i; j is dropped. */
static int items_join(struct apply *a, struct item_list *l, size_t i, size_t j, unsigned level)
{
	int r = item_open(a, &l->v[i], level);

	if (!r)
		r = item_open(a, &l->v[j], level);
	if (!r) {
		l->v[i].group.appended &= l->v[j].group.appended;
		r = ntr_group_join(&l->v[i].group, &l->v[j].group);
	}
	if (r)
		return r;
	memmove(l->v + j, l->v + j + 1, (l->n - j - 1) * sizeof(*l->v));
	l->n--;
	return 0;
}

static void drop_empty(struct item_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (l->v[i].changed && !l->v[i].group.n)
			ntr_group_done(&l->v[i].group);
		else
			l->v[n++] = l->v[i];
	}
	l->n = n;
}

/* Every group that is too small joins the neighbour before it, or (the first one) the one behind it. */
static int items_balance(struct apply *a, struct item_list *l, unsigned level)
{
	size_t i = 0;
	int r = 0;

	drop_empty(l);
	while (!r && i < l->n && l->n > 1) {
		if (!too_small(&l->v[i])) {
			i++;
		} else if (i) {
			r = items_join(a, l, i - 1, i, level);
			i--;
		} else {
			r = items_join(a, l, 0, 1, level);
		}
	}
	return r;
}

static int items_pack(
        struct apply *a, struct item_list *l, const struct ntr_node_view *v, struct ntr_group *out)
{
	int r = 0;

	for (size_t i = 0; !r && i < l->n; i++) {
		struct item *it = &l->v[i];

		if (it->changed) {
			r = ntr_group_pack(&it->group, a->tree, a->batch, out);
			ntr_group_done(&it->group);
			it->changed = false;
			continue;
		}
		r = ntr_group_add_from(out, v, it->index);
	}
	return r;
}

static int inner_apply(struct apply *a, struct ntr_tree_node *n, size_t lo, size_t hi, bool edge,
        struct ntr_group *out, bool *ret_changed)
{
	ntr_auto(items_done) struct item_list l = {.v = malloc(n->view.count * sizeof(*l.v))};
	int r;

	if (!l.v)
		return -ENOMEM;
	r = children_apply(a, n, lo, hi, edge, &l, ret_changed);
	if (r || !*ret_changed)
		return r;
	out->appended = edge && l.v[l.n - 1].changed && l.v[l.n - 1].group.appended;
	for (size_t i = 0; i + 1 < l.n; i++)
		out->appended &= !l.v[i].changed;
	r = items_balance(a, &l, n->view.level - 1u);
	if (r)
		return r;
	if (out != a->top || l.n != 1 || !l.v[0].changed)
		return items_pack(a, &l, &n->view, out);
	/* A node with one child is no use at the top: the child's group takes its place. */
	ntr_group_done(out);
	*out = l.v[0].group;
	l.n = 0;
	return 0;
}

static int node_apply(struct apply *a, struct ntr_tree_node *n, size_t lo, size_t hi, bool edge,
        struct ntr_group *out, bool *ret_changed)
{
	if (n->view.level)
		return inner_apply(a, n, lo, hi, edge, out, ret_changed);
	return leaf_apply(a, n, lo, hi, edge, out, ret_changed);
}

/* From the top group to one root: more levels while it needs several nodes. */
static int root_pack(struct apply *a, struct ntr_group *top, uint64_t *ret_root)
{
	while (top->n) {
		ntr_auto(ntr_group_done) struct ntr_group up = {
		        .level = top->level + 1, .appended = top->appended};
		int r = up.level < NTR_TREE_DEPTH_MAX ? ntr_group_pack(top, a->tree, a->batch, &up)
		                                      : -EOVERFLOW;

		if (r)
			return r;
		if (up.n == 1) {
			*ret_root = up.v[0].child;
			return 0;
		}
		ntr_group_done(top);
		*top = up;
		up = (struct ntr_group){0};
	}
	*ret_root = 0;
	return 0;
}

static int fresh_apply(struct apply *a, size_t n, uint64_t *ret_root)
{
	ntr_auto(ntr_group_done) struct ntr_group top = {.appended = true};
	int r = 0;

	for (size_t i = 0; !r && i < n; i++)
		if (a->v[i].val)
			r = add_change(&top, &a->v[i]);
	return r ? r : root_pack(a, &top, ret_root);
}

static int changes_check(const struct ntr_change *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!v[i].klen || v[i].klen > NTR_KEY_MAX || (v[i].val && v[i].vlen > NTR_VALUE_MAX))
			return -EINVAL;
		if (i && ntr_key_compare(v[i - 1].key, v[i - 1].klen, v[i].key, v[i].klen) >= 0)
			return -EINVAL;
	}
	return 0;
}

int ntr_tree_apply(struct ntr_tree *t, uint64_t root, const struct ntr_change *v, size_t n,
        struct ntr_kv_batch *b, uint64_t *ret_root)
{
	ntr_auto(ntr_node_unrefp) struct ntr_tree_node *old = NULL;
	ntr_auto(ntr_group_done) struct ntr_group top = {0};
	struct apply a = {.tree = t, .batch = b, .v = v, .top = &top};
	bool changed;
	int r = changes_check(v, n);

	*ret_root = root;
	if (r || !n)
		return r;
	if (!root)
		return fresh_apply(&a, n, ret_root);
	r = ntr_node_get(t, root, -1, &old);
	if (r)
		return r;
	top.level = old->view.level;
	r = node_apply(&a, old, 0, n, true, &top, &changed);
	if (r || !changed)
		return r;
	if (!top.level || top.n != 1)
		return root_pack(&a, &top, ret_root);
	*ret_root = top.v[0].child;
	return 0;
}
