/* Items of one inode compared with, or copied from, those of another tree: chunk ids stand for bytes. */
#include "absorb_impl.h"

#include <errno.h>

enum { KEY_HEAD = 9 };

static void item_head(uint8_t key[KEY_HEAD], uint64_t ino, uint8_t type)
{
	ntr_put_be64(key, ino);
	key[8] = type;
}

/* To the next item of the inode and type that head names. 1, 0, negative errno. */
static int step(struct ntr_snap_cursor *c, const uint8_t head[KEY_HEAD], bool first)
{
	int r = first ? ntr_snap_cursor_seek(c, head, KEY_HEAD) : ntr_snap_cursor_next(c);

	return r > 0 ? c->klen >= KEY_HEAD && !memcmp(c->key, head, KEY_HEAD) : r;
}

static bool same_item(const struct ntr_snap_cursor *a, const struct ntr_snap_cursor *b)
{
	return a->klen == b->klen && !memcmp(a->key + 8, b->key + 8, a->klen - 8) && a->vlen == b->vlen &&
	       !memcmp(a->val, b->val, a->vlen);
}

/* Do inode x of a and y of b have equal items of the type? 1, 0, negative errno. */
static int items_equal(
        const struct ntr_snap *a, uint64_t x, const struct ntr_snap *b, uint64_t y, uint8_t type)
{
	uint8_t kx[KEY_HEAD], ky[KEY_HEAD];
	struct ntr_snap_cursor cx, cy;
	int rx, ry, equal = 1;

	item_head(kx, x, type);
	item_head(ky, y, type);
	ntr_snap_cursor_init(&cx, a);
	ntr_snap_cursor_init(&cy, b);
	for (bool first = true; equal; first = false) {
		rx = step(&cx, kx, first);
		ry = step(&cy, ky, first);
		if (rx < 0 || ry < 0)
			equal = NTR_MIN(rx, ry);
		else if (rx != ry)
			equal = 0;
		if (equal < 0 || !rx)
			break;
		equal = equal && same_item(&cx, &cy);
	}
	ntr_snap_cursor_done(&cx);
	ntr_snap_cursor_done(&cy);
	return equal;
}

int ntr_content_equal(const struct ntr_snap *a, const struct ntr_inode *x, const struct ntr_snap *b,
        const struct ntr_inode *y)
{
	if (x->data_kind != y->data_kind || x->size != y->size || x->chunk != y->chunk ||
	        x->payload_len != y->payload_len || memcmp(x->payload, y->payload, x->payload_len))
		return 0;
	return x->data_kind == NTR_DATA_EXTENTS ? items_equal(a, x->ino, b, y->ino, NTR_ITEM_EXTENT) : 1;
}

int ntr_xattrs_equal(const struct ntr_snap *a, uint64_t x, const struct ntr_snap *b, uint64_t y)
{
	return items_equal(a, x, b, y, NTR_ITEM_XATTR);
}

int ntr_items_copy(struct ntr_txn *t, const struct ntr_snap *from, uint64_t x, uint64_t y, uint8_t type)
{
	uint8_t head[KEY_HEAD], key[NTR_KEY_MAX];
	struct ntr_snap_cursor c;
	int r;

	item_head(head, x, type);
	ntr_snap_cursor_init(&c, from); /* a plain root: the transaction may change under it */
	for (r = step(&c, head, true); r > 0; r = step(&c, head, false)) {
		memcpy(key, c.key, c.klen);
		ntr_put_be64(key, y);
		r = ntr_txn_put(t, key, c.klen, c.val, c.vlen);
		if (r)
			break;
	}
	ntr_snap_cursor_done(&c);
	return r;
}

int ntr_items_drop(struct ntr_txn *t, uint64_t ino, uint8_t type)
{
	uint8_t from[KEY_HEAD], to[KEY_HEAD];

	item_head(from, ino, type);
	item_head(to, ino, (uint8_t)(type + 1));
	return ntr_txn_del_range(t, from, sizeof from, to, sizeof to);
}

/* LINK := BE64 inode | type | BE64 parent, name */
int ntr_links_each(const struct ntr_snap *s, uint64_t ino,
        int (*fn)(void *user, uint64_t dir, const char *name), void *user)
{
	uint8_t head[KEY_HEAD];
	struct ntr_snap_cursor c;
	char name[256];
	int r;

	item_head(head, ino, NTR_ITEM_LINK);
	ntr_snap_cursor_init(&c, s);
	for (r = step(&c, head, true); r > 0; r = step(&c, head, false)) {
		size_t n = c.klen - KEY_HEAD - 8;

		if (c.klen <= KEY_HEAD + 8 || n > 255) {
			r = -EUCLEAN;
			break;
		}
		memcpy(name, c.key + KEY_HEAD + 8, n);
		name[n] = '\0';
		r = fn(user, ntr_get_be64(c.key + KEY_HEAD), name);
		if (r)
			break;
	}
	ntr_snap_cursor_done(&c);
	return r;
}

int ntr_content_copy(
        struct ntr_txn *t, const struct ntr_snap *snap, const struct ntr_inode *from, struct ntr_inode *in)
{
	int r = in->data_kind == NTR_DATA_EXTENTS ? ntr_items_drop(t, in->ino, NTR_ITEM_EXTENT) : 0;

	if (!r && from->data_kind == NTR_DATA_EXTENTS)
		r = ntr_items_copy(t, snap, from->ino, in->ino, NTR_ITEM_EXTENT);
	if (r)
		return r;
	in->size = from->size;
	in->blocks = from->blocks;
	in->data_kind = from->data_kind;
	in->chunk = from->chunk;
	in->payload_len = from->payload_len;
	memcpy(in->payload, from->payload, from->payload_len);
	return 0;
}
