/* walk: every node below a root, read from the store and not from the cache, checked against what its parent
 * says. */
#include "tree_impl.h"

#include "../base/util.h"

#include <errno.h>

struct bounds {
	const uint8_t *first; /* the node's first key must be exactly this; NULL: any */
	size_t first_len;
	const uint8_t *end; /* all keys lie before this; NULL: no limit */
	size_t end_len;
};

static int walk_node(
        struct ntr_tree *t, const struct ntr_tree_walk *w, uint64_t id, int level, const struct bounds *b);

static int broken(const struct ntr_tree_walk *w, uint64_t id, int err, const char *what)
{
	if (!w->broken)
		return err;
	w->broken(w->user, id, err, what);
	return 0;
}

static const char *bounds_check(const struct ntr_node_view *n, const struct bounds *b)
{
	uint8_t key[NTR_KEY_MAX];
	size_t klen = ntr_node_key(n, 0, key);

	if (b->first && ntr_key_compare(key, klen, b->first, b->first_len))
		return "first key differs from the parent's";
	klen = ntr_node_key(n, n->count - 1u, key);
	if (b->end && ntr_key_compare(key, klen, b->end, b->end_len) >= 0)
		return "keys reach into the next node";
	return NULL;
}

static int walk_children(struct ntr_tree *t, const struct ntr_tree_walk *w, const struct ntr_node_view *n,
        const struct bounds *b)
{
	uint8_t first[NTR_KEY_MAX], end[NTR_KEY_MAX];
	int r = 0;

	for (size_t i = 0; !r && i < n->count; i++) {
		struct bounds child = {.first = first, .end = b->end, .end_len = b->end_len};
		struct ntr_node_entry e;

		ntr_node_entry(n, i, &e);
		child.first_len = ntr_node_key(n, i, first);
		if (i + 1 < n->count) {
			child.end = end;
			child.end_len = ntr_node_key(n, i + 1, end);
		}
		r = walk_node(t, w, e.child, n->level - 1, &child);
	}
	return r;
}

static int walk_node(
        struct ntr_tree *t, const struct ntr_tree_walk *w, uint64_t id, int level, const struct bounds *b)
{
	ntr_auto(ntr_node_unrefp) struct ntr_tree_node *n = NULL;
	const char *what;
	int r;

	if (w->seen && w->seen(w->user, id))
		return 0;
	r = ntr_node_load(t, id, &n);
	if (r == -ENOMEM)
		return r;
	if (r)
		return broken(w, id, r == -ENOENT ? -EUCLEAN : r,
		        r == -ENOENT    ? "missing"
		        : r == -EUCLEAN ? "damaged"
		                        : "unreadable");
	if (level >= 0 && n->view.level != level)
		return broken(w, id, -EUCLEAN, "level differs from what the parent says");
	what = bounds_check(&n->view, b);
	if (what)
		return broken(w, id, -EUCLEAN, what);
	if (w->visit)
		r = w->visit(w->user, id, &n->view);
	if (!r && n->view.level)
		r = walk_children(t, w, &n->view, b);
	return r;
}

int ntr_tree_walk(struct ntr_tree *t, uint64_t root, const struct ntr_tree_walk *w)
{
	return root ? walk_node(t, w, root, -1, &(struct bounds){0}) : 0;
}
