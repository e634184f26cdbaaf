#include "cache.h"
#include "inode_impl.h"
#include "../base/json.h"

#include <errno.h>

enum {
	PART_TAIL = 3, /* NUL | BE16 part */
	PARTS_MAX = UINT16_MAX,
};
#define PART_BYTES ((size_t)NTR_ITEM_CHUNKS_MAX * NTR_CHUNK_SIZE)

static bool is_utf8(const char *p, size_t n)
{
	json_t *s = json_stringn(p, n);

	json_decref(s);
	return s != NULL;
}

int ntr_cacheitem_key_check(const char *key, size_t len, const char **ret_why)
{
	const char *why = NULL;

	if (!len)
		why = "it is empty";
	else if (len > NTR_CACHE_KEY_MAX)
		why = "it has more than 200 bytes";
	else if (memchr(key, '\0', len))
		why = "it holds a NUL";
	else if (memchr(key, '/', len))
		why = "it holds a '/'";
	else if (len >= 2 && key[0] == '_' && key[1] == '_')
		why = "it begins with '__'";
	else if (!is_utf8(key, len))
		why = "it is no UTF-8";
	if (ret_why)
		*ret_why = why;
	return why ? -EINVAL : 0;
}

bool ntr_cacheitem_suffix_ok(const uint8_t *suffix, size_t len, unsigned *ret_part, size_t *ret_key_len)
{
	const uint8_t *nul = memchr(suffix, '\0', len);
	size_t n = nul ? (size_t)(nul - suffix) : len;

	*ret_part = 0;
	*ret_key_len = n;
	if (ntr_cacheitem_key_check((const char *)suffix, n, NULL) || (nul && len != n + PART_TAIL))
		return false;
	if (nul)
		*ret_part = (unsigned)suffix[n + 1] << 8 | suffix[n + 2];
	return !nul || *ret_part;
}

/* The item of a part of key; part 0 is the value's first. */
static size_t part_key(uint8_t *k, const char *key, unsigned part)
{
	size_t n = ntr_item_key(k, NTR_INO_META, NTR_ITEM_CACHE, key, strlen(key));

	if (!part)
		return n;
	k[n] = '\0';
	k[n + 1] = (uint8_t)(part >> 8);
	k[n + 2] = (uint8_t)part;
	return n + PART_TAIL;
}

/* One item's piece of the value. */
static int part_get(const struct ntr_snap *s, const char *key, unsigned part, uint8_t **ret, size_t *ret_len)
{
	uint8_t k[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t len;
	int r = ntr_snap_get(s, k, part_key(k, key, part), val, &len);

	return r ? r : ntr_item_value_load(s, val, len, ret, ret_len);
}

static int append(uint8_t **buf, size_t *len, const uint8_t *more, size_t n)
{
	uint8_t *p = realloc(*buf, *len + n + 1);

	if (!p)
		return -ENOMEM;
	memcpy(p + *len, more, n);
	*buf = p;
	*len += n;
	p[*len] = '\0';
	return 0;
}

int ntr_cacheitem_get(const struct ntr_snap *s, const char *key, uint8_t **ret, size_t *ret_len)
{
	ntr_autofree uint8_t *buf = NULL;
	size_t len = 0, last;
	int r = ntr_cacheitem_key_check(key, strlen(key), NULL);

	if (!r)
		r = part_get(s, key, 0, &buf, &len);
	last = len;
	for (unsigned part = 1; !r && last == PART_BYTES; part++) {
		ntr_autofree uint8_t *piece = NULL;

		r = part_get(s, key, part, &piece, &last);
		if (r == -ENOENT) {
			r = 0;
			break;
		}
		if (!r)
			r = len + last > NTR_CACHE_VALUE_MAX ? -EUCLEAN : append(&buf, &len, piece, last);
	}
	if (r)
		return r;
	*ret = ntr_steal_ptr(buf);
	*ret_len = len;
	return 0;
}

static int drop_parts(struct ntr_txn *t, const char *key, unsigned from)
{
	uint8_t a[NTR_KEY_MAX], b[NTR_KEY_MAX];
	size_t alen = part_key(a, key, from), blen = part_key(b, key, PARTS_MAX);
	struct ntr_snap_cursor c;
	int r;

	ntr_snap_cursor_init(&c, ntr_txn_snap(t));
	r = ntr_snap_cursor_seek(&c, a, alen);
	if (r > 0) /* nearly always there is none, and nothing has to be noted in the transaction */
		r = c.klen == blen && !memcmp(c.key, b, blen - 2);
	ntr_snap_cursor_done(&c);
	return r > 0 ? ntr_txn_del_range(t, a, alen, b, blen) : r;
}

int ntr_cacheitem_set(struct ntr_txn *t, const char *key, const void *val, size_t len)
{
	uint8_t k[NTR_KEY_MAX];
	unsigned part = 0;
	size_t off = 0;
	int r = ntr_cacheitem_key_check(key, strlen(key), NULL);

	if (!r && val && len > NTR_CACHE_VALUE_MAX)
		r = -E2BIG;
	if (!r && !val)
		r = ntr_txn_del(t, k, part_key(k, key, 0));
	if (!r && !val)
		return drop_parts(t, key, 1);
	while (!r && (!part || off < len)) {
		size_t n = NTR_MIN(len - off, PART_BYTES);

		r = ntr_item_value_put(t, k, part_key(k, key, part++), (const uint8_t *)val + off, n);
		off += n;
	}
	return r ? r : drop_parts(t, key, part);
}

int ntr_cacheitem_each(const struct ntr_snap *s, int (*fn)(void *user, const char *key), void *user)
{
	uint8_t k[NTR_KEY_MAX];
	size_t klen = ntr_item_key(k, NTR_INO_META, NTR_ITEM_CACHE, NULL, 0), n;
	struct ntr_snap_cursor c;
	unsigned part;
	int r;

	ntr_snap_cursor_init(&c, s);
	for (r = ntr_snap_cursor_seek(&c, k, klen); r > 0; r = ntr_snap_cursor_next(&c)) {
		char key[NTR_CACHE_KEY_MAX + 1];

		if (!ntr_item_is(c.key, c.klen, NTR_INO_META, NTR_ITEM_CACHE)) {
			r = 0;
			break;
		}
		if (!ntr_cacheitem_suffix_ok(
		            c.key + NTR_ITEM_KEY_HEAD, c.klen - NTR_ITEM_KEY_HEAD, &part, &n)) {
			r = -EUCLEAN;
			break;
		}
		if (part)
			continue;
		memcpy(key, c.key + NTR_ITEM_KEY_HEAD, n);
		key[n] = '\0';
		r = fn(user, key);
		if (r)
			break;
	}
	ntr_snap_cursor_done(&c);
	return r;
}
