/* snap: reading one root, or a transaction's changes laid over its root. See snap.h. */
#include "snap.h"
#include "txn_impl.h"

#include <errno.h>

/* A transaction's root moves when it spills, so a copied snap must ask the transaction. */
static uint64_t root_of(const struct ntr_snap *s)
{
	return s->txn ? s->txn->snap.root : s->root;
}

int ntr_snap_get(const struct ntr_snap *s, const void *key, size_t klen, uint8_t *val, size_t *ret_len)
{
	const struct ntr_item *it = s->txn ? ntr_txn_find(s->txn, key, klen) : NULL;

	if (!it)
		return ntr_tree_get(ntr_store_tree(s->store), root_of(s), key, klen, val, ret_len);
	if (!it->val)
		return -ENOENT;
	memcpy(val, it->val, it->vlen);
	*ret_len = it->vlen;
	return 0;
}

void ntr_snap_cursor_init(struct ntr_snap_cursor *c, const struct ntr_snap *s)
{
	*c = (struct ntr_snap_cursor){.snap = s};
	ntr_tree_cursor_init(&c->base, ntr_store_tree(s->store), root_of(s));
}

void ntr_snap_cursor_done(struct ntr_snap_cursor *c)
{
	ntr_tree_cursor_done(&c->base);
	c->mem = NULL;
	c->base_state = 0;
}

static int base_next(struct ntr_snap_cursor *c)
{
	c->base_state = ntr_tree_cursor_next(&c->base);
	return c->base_state;
}

static int show(struct ntr_snap_cursor *c, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen)
{
	c->key = key;
	c->klen = klen;
	c->val = val;
	c->vlen = vlen;
	return 1;
}

/* Presents the smaller of both positions. A changed item hides the base's of the same key: the base steps
 * over it here, so that whichever side the current item is from is the only side that `next` has to move. */
static int settle(struct ntr_snap_cursor *c)
{
	for (;;) {
		struct ntr_item *m = c->mem;
		int order = -1;

		if (c->base_state < 0)
			return c->base_state;
		if (!m && !c->base_state)
			return show(c, NULL, 0, NULL, 0), 0;
		if (!m)
			order = 1;
		else if (c->base_state)
			order = ntr_key_cmp(m->key, m->klen, c->base.key, c->base.klen);
		if (order > 0)
			return show(c, c->base.key, c->base.klen, c->base.val, c->base.vlen);
		if (!order && base_next(c) < 0)
			return c->base_state;
		if (m->val)
			return show(c, m->key, m->klen, m->val, m->vlen);
		if (c->end && ntr_key_cmp(m->key, m->klen, c->end, c->elen) >= 0)
			return show(c, NULL, 0, NULL, 0), 0;
		c->mem = RB_NEXT(ntr_items, &c->snap->txn->items, m);
	}
}

int ntr_snap_cursor_seek(struct ntr_snap_cursor *c, const void *key, size_t klen)
{
	c->base_state = ntr_tree_cursor_seek(&c->base, key, klen);
	c->mem = c->snap->txn ? ntr_txn_find_from(c->snap->txn, key, klen) : NULL;
	return settle(c);
}

int ntr_snap_cursor_next(struct ntr_snap_cursor *c)
{
	struct ntr_item *m = c->mem;

	if (!c->key)
		return 0;
	if (m && c->key == m->key)
		c->mem = RB_NEXT(ntr_items, &c->snap->txn->items, m);
	else if (base_next(c) < 0)
		return c->base_state;
	return settle(c);
}
