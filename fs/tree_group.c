/* Groups: the entries of changed nodes on their way into new ones. */
#include "tree_impl.h"

#include "../base/util.h"

#include <errno.h>

enum { ARENA_BLOCK = 16 << 10, FILL = NTR_NODE_TARGET * 9 / 10 };

struct ntr_arena_block {
	struct ntr_arena_block *next;
	size_t used, size;
	uint8_t data[];
};

static uint8_t *arena_alloc(struct ntr_group *g, size_t n)
{
	struct ntr_arena_block *b = g->arena;

	if (!b || b->size - b->used < n) {
		size_t size = NTR_MAX(n, (size_t)ARENA_BLOCK);

		b = malloc(sizeof(*b) + size);
		if (!b)
			return NULL;
		b->next = g->arena;
		b->used = 0;
		b->size = size;
		g->arena = b;
	}
	b->used += n;
	return b->data + b->used - n;
}

void ntr_group_done(struct ntr_group *g)
{
	struct ntr_arena_block *b;

	while ((b = g->arena)) {
		g->arena = b->next;
		free(b);
	}
	for (size_t i = 0; i < g->nheld; i++)
		ntr_node_unref(g->held[i]);
	free(g->held);
	free(g->v);
	*g = (struct ntr_group){.level = g->level};
}

/* Makes room for more elements in a growing array. */
static int grow(void **p, size_t *cap, size_t need, size_t size)
{
	size_t n = *cap ? *cap : 64;
	void *q;

	if (need <= *cap)
		return 0;
	while (n < need)
		n *= 2;
	q = reallocarray(*p, n, size);
	if (!q)
		return -ENOMEM;
	*p = q;
	*cap = n;
	return 0;
}

int ntr_group_hold(struct ntr_group *g, struct ntr_tree_node *n)
{
	if (grow((void **)&g->held, &g->held_cap, g->nheld + 1, sizeof(*g->held)))
		return -ENOMEM;
	ntr_node_ref(n);
	g->held[g->nheld++] = n;
	return 0;
}

static size_t weight(const struct ntr_group *g, const struct ntr_node_entry *e)
{
	return g->level ? 12 + e->klen : 6 + e->klen + e->vlen;
}

int ntr_group_add(struct ntr_group *g, const struct ntr_node_entry *e)
{
	if (grow((void **)&g->v, &g->cap, g->n + 1, sizeof(*g->v)))
		return -ENOMEM;
	g->v[g->n++] = *e;
	g->weight += weight(g, e);
	return 0;
}

int ntr_group_add_from(struct ntr_group *g, const struct ntr_node_view *n, size_t i)
{
	struct ntr_node_entry e;
	uint8_t *key;

	ntr_node_entry(n, i, &e);
	key = arena_alloc(g, n->prefix_len + e.klen);
	if (!key)
		return -ENOMEM;
	e.klen = ntr_node_key(n, i, key);
	e.key = key;
	return ntr_group_add(g, &e);
}

int ntr_group_add_copy(struct ntr_group *g, const uint8_t *key, size_t klen, uint64_t child)
{
	uint8_t *copy = arena_alloc(g, klen);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, key, klen);
	return ntr_group_add(g, &(struct ntr_node_entry){.key = copy, .klen = klen, .child = child});
}

int ntr_group_add_node(struct ntr_group *g, struct ntr_tree_node *n)
{
	int r = ntr_group_hold(g, n);

	for (size_t i = 0; !r && i < n->view.count; i++)
		r = ntr_group_add_from(g, &n->view, i);
	return r;
}

int ntr_group_join(struct ntr_group *a, struct ntr_group *b)
{
	struct ntr_arena_block **end = &b->arena;

	if (grow((void **)&a->v, &a->cap, a->n + b->n, sizeof(*a->v)) ||
	        grow((void **)&a->held, &a->held_cap, a->nheld + b->nheld, sizeof(*a->held)))
		return -ENOMEM;
	if (b->n)
		memcpy(a->v + a->n, b->v, b->n * sizeof(*b->v));
	if (b->nheld)
		memcpy(a->held + a->nheld, b->held, b->nheld * sizeof(struct ntr_tree_node *));
	a->n += b->n;
	a->nheld += b->nheld;
	a->weight += b->weight;
	while (*end)
		end = &(*end)->next;
	*end = a->arena;
	a->arena = b->arena;
	b->arena = NULL;
	b->nheld = 0;
	ntr_group_done(b);
	return 0;
}

static size_t group_prefix(const struct ntr_group *g)
{
	const struct ntr_node_entry *a = &g->v[0], *b = &g->v[g->n - 1];
	size_t n = NTR_MIN(a->klen, b->klen), i = 0;

	while (i < n && a->key[i] == b->key[i])
		i++;
	return i;
}

size_t ntr_group_size(const struct ntr_group *g)
{
	size_t prefix = g->n ? group_prefix(g) : 0;

	return 16 + prefix + g->weight - g->n * prefix;
}

static int emit(const struct ntr_group *g, size_t from, size_t to, struct ntr_tree *t, struct ntr_kv_batch *b,
        struct ntr_group *up)
{
	uint64_t id;
	int r = ntr_ids_take(t->ids, NTR_ID_NODE, 1, &id);

	if (!r)
		r = ntr_node_make(t, id, g->level, g->v + from, to - from, b);
	if (!r)
		r = ntr_group_add_copy(up, g->v[from].key, g->v[from].klen, id);
	return r;
}

/* Where the pieces of a group end. A group that fits is one piece. One that grew at the right edge is cut at
 * 90 %, because more of the kind follows; any other into even pieces, which leaves room for what comes
 * between. A piece ends behind the entry that fills its share, and before one that would make it too large:
 * so none is empty, and only a single entry makes a node above the target. */
int ntr_group_pack(struct ntr_group *g, struct ntr_tree *t, struct ntr_kv_batch *b, struct ntr_group *up)
{
	size_t prefix = g->n ? group_prefix(g) : 0, total = g->weight - g->n * prefix;
	size_t share = FILL, piece = 0, from = 0;
	int r = 0;

	if (ntr_group_size(g) <= NTR_NODE_TARGET)
		return g->n ? emit(g, 0, g->n, t, b, up) : 0;
	if (!g->appended)
		share = total / ((total + FILL - 1) / FILL) + 1;
	for (size_t i = 0; !r && i < g->n; i++) {
		size_t w = weight(g, &g->v[i]) - prefix;

		if (piece && 16 + prefix + piece + w > NTR_NODE_TARGET) {
			r = emit(g, from, i, t, b, up);
			from = i;
			piece = 0;
		}
		piece += w;
		if (!r && (piece >= share || i + 1 == g->n)) {
			r = emit(g, from, i + 1, t, b, up);
			from = i + 1;
			piece = 0;
		}
	}
	return r;
}
