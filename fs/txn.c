/* txn: a transaction's changes. See snap.h.
 *
 * Items live in an arena that only grows (a rewritten value that fits is overwritten in place), sorted in one
 * tree. Above `limit` bytes everything is applied to an intermediate root: its nodes go to the database
 * through the log, in a batch that nothing refers to, and the arena starts again. Should the transaction
 * never be committed, those nodes are garbage like any other. */
#include "inode.h"
#include "snap.h"
#include "txn_impl.h"

#include <errno.h>

enum { BLOCK_FIRST = 4096, BLOCK_MAX = 1 << 20, SPILL_BYTES = 64 << 20, RANGE_STEP = 256 };

struct ntr_txn_block {
	struct ntr_txn_block *next;
	size_t len, cap;
	max_align_t data[];
};

int ntr_key_cmp(const uint8_t *a, size_t an, const uint8_t *b, size_t bn)
{
	int r = memcmp(a, b, NTR_MIN(an, bn));

	return r ? r : (an > bn) - (an < bn);
}

static int ntr_item_cmp(const struct ntr_item *a, const struct ntr_item *b)
{
	return ntr_key_cmp(a->key, a->klen, b->key, b->klen);
}
RB_GENERATE(ntr_items, ntr_item, link, ntr_item_cmp)

int ntr_txn_begin(struct ntr_store *s, uint64_t root, struct ntr_txn **ret)
{
	struct ntr_txn *t = calloc(1, sizeof *t);
	int r;

	if (!t)
		return -ENOMEM;
	r = ntr_chunk_writer_new(ntr_store_chunks(s), &t->chunks);
	if (r) {
		free(t);
		return r;
	}
	t->snap = (struct ntr_snap){.store = s, .root = root, .txn = t};
	t->base = root;
	t->fresh = ntr_ids_peek(ntr_store_ids(s), NTR_ID_INODE);
	t->limit = SPILL_BYTES;
	RB_INIT(&t->items);
	*ret = t;
	return 0;
}

static void items_free(struct ntr_txn *t)
{
	struct ntr_txn_block *b;

	while ((b = t->blocks)) {
		t->blocks = b->next;
		free(b);
	}
	RB_INIT(&t->items);
	t->last = NULL;
	t->n = t->used = 0;
}

void ntr_txn_abort(struct ntr_txn *t)
{
	if (!t)
		return;
	items_free(t);
	ntr_chunk_writer_free(t->chunks);
	free(t);
}

const struct ntr_snap *ntr_txn_snap(struct ntr_txn *t)
{
	return &t->snap;
}

int ntr_txn_version(struct ntr_txn *t, uint64_t *ret)
{
	int r = t->version ? 0 : ntr_ids_take(ntr_store_ids(t->snap.store), NTR_ID_VERSION, 1, &t->version);

	if (!r)
		*ret = t->version;
	return r;
}

bool ntr_txn_empty(struct ntr_txn *t)
{
	return !t->changed;
}

struct ntr_chunk_writer *ntr_txn_chunks(struct ntr_txn *t)
{
	return t->chunks;
}

void ntr_txn_set_limit(struct ntr_txn *t, size_t bytes)
{
	t->limit = bytes;
}

uint64_t ntr_txn_base(const struct ntr_txn *t)
{
	return t->base;
}

struct ntr_counts ntr_txn_counts(const struct ntr_txn *t)
{
	return t->counts;
}

struct ntr_item *ntr_txn_find(struct ntr_txn *t, const void *key, size_t klen)
{
	struct ntr_item k = {.key = key, .klen = (uint16_t)klen};
	struct ntr_item *it;

	if (t->last && t->last->klen == klen && !memcmp(t->last->key, key, klen))
		return t->last;
	it = RB_FIND(ntr_items, &t->items, &k);
	if (it)
		t->last = it;
	return it;
}

struct ntr_item *ntr_txn_find_from(struct ntr_txn *t, const void *key, size_t klen)
{
	struct ntr_item k = {.key = key, .klen = (uint16_t)klen};

	return RB_NFIND(ntr_items, &t->items, &k);
}

static void *arena(struct ntr_txn *t, size_t n)
{
	struct ntr_txn_block *b = t->blocks;
	size_t need = (n + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	uint8_t *p;

	if (!b || b->cap - b->len < need) {
		size_t cap = b ? NTR_MIN(b->cap * 2, (size_t)BLOCK_MAX) : BLOCK_FIRST;

		cap = NTR_MAX(cap, need);
		b = malloc(sizeof *b + cap);
		if (!b)
			return NULL;
		b->next = t->blocks;
		b->len = 0;
		b->cap = cap;
		t->blocks = b;
		t->used += cap;
	}
	p = (uint8_t *)b->data + b->len;
	b->len += need;
	return p;
}

/* A record that does not decode (fsck's matter) counts as empty. */
void ntr_inode_count(
        struct ntr_counts *c, int sign, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen)
{
	struct ntr_inode in;

	if (klen != 9 || key[8] != NTR_ITEM_INODE)
		return;
	c->inodes += sign;
	if (ntr_inode_decode(ntr_get_be64(key), val, vlen, &in))
		return;
	if (S_ISREG(in.mode))
		c->bytes += sign * (int64_t)in.size;
	if (in.flags & NTR_INODE_HAS_XATTR)
		c->xattrs += sign;
}

/* Adds the difference between an item and what stands in the root below it to the counters. */
static int count_item(struct ntr_txn *t, const struct ntr_item *it)
{
	uint8_t old[NTR_VALUE_MAX];
	size_t n;
	int r;

	if (it->klen != 9 || it->key[8] != NTR_ITEM_INODE)
		return 0;
	if (it->val)
		ntr_inode_count(&t->counts, 1, it->key, it->klen, it->val, it->vlen);
	if (!t->snap.root || ntr_get_be64(it->key) >= t->fresh)
		return 0;
	r = ntr_tree_get(ntr_store_tree(t->snap.store), t->snap.root, it->key, it->klen, old, &n);
	if (r)
		return r == -ENOENT ? 0 : r;
	ntr_inode_count(&t->counts, -1, it->key, it->klen, old, n);
	return 0;
}

/* Applies all items to the root: new nodes go into b. */
static int apply(struct ntr_txn *t, struct ntr_kv_batch *b, uint64_t *ret_root)
{
	ntr_autofree struct ntr_change *v = calloc(t->n ? t->n : 1, sizeof *v);
	struct ntr_item *it;
	size_t n = 0;

	if (!v)
		return -ENOMEM;
	RB_FOREACH (it, ntr_items, &t->items) {
		int r = count_item(t, it);

		if (r)
			return r;
		v[n++] = (struct ntr_change){it->key, it->klen, it->val, it->vlen};
	}
	return ntr_tree_apply(ntr_store_tree(t->snap.store), t->snap.root, v, n, b, ret_root);
}

static int spill(struct ntr_txn *t)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	uint64_t root;
	int r;

	if (!b)
		return -ENOMEM;
	r = apply(t, b, &root);
	if (!r)
		r = ntr_kv_write(ntr_store_kv(t->snap.store), b, NTR_KV_RELAXED, NULL);
	if (r)
		return t->err = r;
	t->snap.root = root;
	t->fresh = ntr_ids_peek(ntr_store_ids(t->snap.store), NTR_ID_INODE);
	items_free(t);
	return 0;
}

static struct ntr_item *item_make(struct ntr_txn *t, const void *key, size_t klen, size_t room)
{
	struct ntr_item *it = arena(t, sizeof *it + klen + room);
	uint8_t *bytes;

	if (!it)
		return NULL;
	bytes = (uint8_t *)(it + 1);
	memcpy(bytes, key, klen);
	*it = (struct ntr_item){
	        .key = bytes, .klen = (uint16_t)klen, .room = bytes + klen, .cap = (uint16_t)room};
	RB_INSERT(ntr_items, &t->items, it);
	t->n++;
	t->last = it;
	return it;
}

static int item_fill(struct ntr_txn *t, struct ntr_item *it, const void *val, size_t vlen)
{
	if (it->cap < vlen) {
		uint8_t *room = arena(t, vlen);

		if (!room)
			return -ENOMEM;
		it->room = room;
		it->cap = (uint16_t)vlen;
	}
	if (vlen)
		memmove(it->room, val, vlen);
	it->val = it->room;
	it->vlen = (uint16_t)vlen;
	return 0;
}

/* Sets an item (val NULL: deletes it). */
static int set(struct ntr_txn *t, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct ntr_item *it;

	if (!klen || klen > NTR_KEY_MAX || vlen > NTR_VALUE_MAX)
		return -EINVAL;
	if (t->err)
		return t->err;
	it = ntr_txn_find(t, key, klen);
	if (!it && !(it = item_make(t, key, klen, vlen)))
		return t->err = -ENOMEM;
	t->changed = true;
	if (!val)
		it->val = NULL;
	else if (item_fill(t, it, val, vlen))
		return t->err = -ENOMEM;
	return t->used > t->limit ? spill(t) : 0;
}

int ntr_txn_put(struct ntr_txn *t, const void *key, size_t klen, const void *val, size_t vlen)
{
	return set(t, key, klen, val ? val : "", vlen);
}

int ntr_txn_del(struct ntr_txn *t, const void *key, size_t klen)
{
	return set(t, key, klen, NULL, 0);
}

/* Copies up to RANGE_STEP keys of the range into keys, each behind its length. */
static int range_keys(
        struct ntr_txn *t, const void *from, size_t flen, const void *to, size_t tlen, struct ntr_buf *keys)
{
	struct ntr_snap_cursor c;
	int n = 0, r;

	keys->len = 0;
	ntr_snap_cursor_init(&c, &t->snap);
	c.end = to;
	c.elen = tlen;
	r = ntr_snap_cursor_seek(&c, from, flen);
	while (r > 0 && n < RANGE_STEP && ntr_key_cmp(c.key, c.klen, to, tlen) < 0) {
		ntr_buf_le16(keys, (uint16_t)c.klen);
		if (ntr_buf_add(keys, c.key, c.klen)) {
			r = -ENOMEM;
			break;
		}
		n++;
		r = ntr_snap_cursor_next(&c);
	}
	ntr_snap_cursor_done(&c);
	return r < 0 ? r : n;
}

/* Deletes the keys in the list; the last one of them becomes the range's new beginning. */
static int range_del(struct ntr_txn *t, const struct ntr_buf *keys, uint8_t *from, size_t *flen)
{
	for (size_t off = 0; off < keys->len;) {
		size_t klen = ntr_get_le16(keys->data + off);
		int r = ntr_txn_del(t, keys->data + off + 2, klen);

		if (r)
			return r;
		memcpy(from, keys->data + off + 2, klen);
		*flen = klen;
		off += 2 + klen;
	}
	return 0;
}

int ntr_txn_del_range(struct ntr_txn *t, const void *from, size_t flen, const void *to, size_t tlen)
{
	ntr_auto(ntr_buf_done) struct ntr_buf keys = {0};
	uint8_t at[NTR_KEY_MAX];
	int n, r;

	if (flen > sizeof at)
		return -EINVAL;
	memcpy(at, from, flen);
	do {
		n = range_keys(t, at, flen, to, tlen, &keys);
		r = n > 0 ? range_del(t, &keys, at, &flen) : n;
	} while (!r && n == RANGE_STEP);
	return r;
}

int ntr_txn_finish(struct ntr_txn *t, struct ntr_kv_batch *b, uint64_t *ret_root, struct ntr_err *e)
{
	uint64_t root = t->snap.root;
	int r = t->err;

	if (!r && t->n)
		r = apply(t, b, &root);
	if (r)
		return ntr_err_default(e, r, "apply the changes");
	if (root != t->base)
		r = ntr_chunk_writer_finish(t->chunks, b, e);
	if (!r)
		*ret_root = root;
	return r;
}
