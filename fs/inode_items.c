/* Extended attributes, hard-link names and key-value items.
 *
 * An XATTR or KV value is in place (u8 0 | bytes) up to NTR_ITEM_INPLACE bytes; larger, it is
 * u8 NTR_ITEM_CHUNKS | LE64 length | LE64 chunk ids. */
#include "inode_impl.h"

#include <errno.h>

static int value_chunks_put(struct ntr_txn *t, const uint8_t *data, size_t n, uint8_t *out, size_t *ret_len)
{
	size_t count = (n + NTR_CHUNK_SIZE - 1) / NTR_CHUNK_SIZE;

	if (count > NTR_ITEM_CHUNKS_MAX)
		return -E2BIG;
	out[0] = NTR_ITEM_CHUNKS;
	ntr_put_le64(out + 1, n);
	for (size_t i = 0; i < count; i++) {
		size_t off = i * NTR_CHUNK_SIZE, len = NTR_MIN(n - off, (size_t)NTR_CHUNK_SIZE);
		uint64_t id;
		int r = ntr_chunk_put(ntr_txn_chunks(t), data + off, len, 0, &id);

		if (r)
			return r;
		ntr_put_le64(out + 9 + 8 * i, id);
	}
	*ret_len = 9 + 8 * count;
	return 0;
}

int ntr_item_value_put(struct ntr_txn *t, const uint8_t *key, size_t klen, const void *data, size_t n)
{
	uint8_t val[NTR_VALUE_MAX];
	size_t len = n + 1;
	int r = 0;

	if (n <= NTR_ITEM_INPLACE) {
		val[0] = 0;
		if (n)
			memcpy(val + 1, data, n);
	} else {
		r = value_chunks_put(t, data, n, val, &len);
	}
	return r ? r : ntr_txn_put(t, key, klen, val, len);
}

static int value_chunks_load(const struct ntr_snap *s, const uint8_t *ids, uint8_t *out, size_t n)
{
	for (size_t off = 0; off < n; off += NTR_CHUNK_SIZE) {
		size_t want = NTR_MIN(n - off, (size_t)NTR_CHUNK_SIZE);
		struct ntr_content c;
		int r = ntr_content_get(s, ntr_get_le64(ids + off / NTR_CHUNK_SIZE * 8), want, &c);

		if (r)
			return r;
		memcpy(out + off, c.data, want);
		ntr_content_done(&c);
	}
	return 0;
}

int ntr_item_value_load(
        const struct ntr_snap *s, const uint8_t *val, size_t len, uint8_t **ret, size_t *ret_len)
{
	bool chunks = len && val[0] == NTR_ITEM_CHUNKS;
	ntr_autofree uint8_t *out = NULL;
	uint64_t n;
	int r = 0;

	if (!len || val[0] & ~NTR_ITEM_CHUNKS || (chunks && len < 9))
		return -EUCLEAN;
	n = chunks ? ntr_get_le64(val + 1) : len - 1;
	if (chunks && (n > (uint64_t)NTR_ITEM_CHUNKS_MAX * NTR_CHUNK_SIZE ||
	                      len != 9 + 8 * ((n + NTR_CHUNK_SIZE - 1) / NTR_CHUNK_SIZE)))
		return -EUCLEAN;
	out = malloc(n + 1);
	if (!out)
		return -ENOMEM;
	if (chunks)
		r = value_chunks_load(s, val + 9, out, n);
	else
		memcpy(out, val + 1, n);
	if (r)
		return r;
	out[n] = '\0';
	*ret = ntr_steal_ptr(out);
	*ret_len = n;
	return 0;
}

static int value_get(
        const struct ntr_snap *s, const uint8_t *key, size_t klen, uint8_t **ret, size_t *ret_len)
{
	uint8_t val[NTR_VALUE_MAX];
	size_t len;
	int r = ntr_snap_get(s, key, klen, val, &len);

	return r ? r : ntr_item_value_load(s, val, len, ret, ret_len);
}

/* Calls fn for every item of one type of ino whose suffix begins with prefix. */
static int value_each(const struct ntr_snap *s, uint64_t ino, uint8_t type, const char *prefix,
        int (*fn)(void *user, const char *name, const uint8_t *val, size_t len), void *user)
{
	uint8_t key[NTR_KEY_MAX];
	size_t klen = ntr_item_key(key, ino, type, prefix, strlen(prefix));
	struct ntr_snap_cursor c;
	int r;

	ntr_snap_cursor_init(&c, s);
	for (r = ntr_snap_cursor_seek(&c, key, klen); r > 0; r = ntr_snap_cursor_next(&c)) {
		char name[NTR_KEY_MAX];
		ntr_autofree uint8_t *val = NULL;
		size_t len, n = c.klen - NTR_ITEM_KEY_HEAD;

		if (c.klen < klen || memcmp(c.key, key, klen)) {
			r = 0;
			break;
		}
		memcpy(name, c.key + NTR_ITEM_KEY_HEAD, n);
		name[n] = '\0';
		r = ntr_item_value_load(s, c.val, c.vlen, &val, &len);
		if (!r)
			r = fn(user, name, val, len);
		if (r)
			break;
	}
	ntr_snap_cursor_done(&c);
	return r;
}

/* Key of an XATTR or KV item, or the error of a name that cannot be one. */
static int named_key(uint64_t ino, uint8_t type, const char *name, size_t max, uint8_t *key, size_t *ret_klen)
{
	size_t n = strlen(name);

	if (!n || n > max)
		return n ? -ENAMETOOLONG : -EINVAL;
	*ret_klen = ntr_item_key(key, ino, type, name, n);
	return 0;
}

static int xattr_key(uint64_t ino, const char *name, uint8_t *key, size_t *ret_klen)
{
	int r = named_key(ino, NTR_ITEM_XATTR, name, NTR_NAME_BYTES, key, ret_klen);

	return r == -ENAMETOOLONG ? -ERANGE : r; /* as setxattr(2) and getxattr(2) */
}

int ntr_xattr_get(const struct ntr_snap *s, uint64_t ino, const char *name, uint8_t **ret, size_t *ret_len)
{
	uint8_t key[NTR_KEY_MAX];
	size_t klen;
	int r = xattr_key(ino, name, key, &klen);

	if (!r)
		r = value_get(s, key, klen, ret, ret_len);
	return r == -ENOENT ? -ENODATA : r;
}

int ntr_xattr_each(const struct ntr_snap *s, uint64_t ino,
        int (*fn)(void *user, const char *name, const uint8_t *val, size_t len), void *user)
{
	return value_each(s, ino, NTR_ITEM_XATTR, "", fn, user);
}

int ntr_xattr_set(struct ntr_txn *t, struct ntr_inode *in, const char *name, const void *val, size_t len)
{
	uint8_t key[NTR_KEY_MAX];
	size_t klen;
	int r = xattr_key(in->ino, name, key, &klen);

	if (!r && len > NTR_XATTR_VALUE_MAX)
		r = -E2BIG;
	if (!r)
		r = ntr_item_value_put(t, key, klen, val, len);
	if (r)
		return r;
	in->flags |= NTR_INODE_HAS_XATTR;
	return ntr_inode_put(t, in);
}

/* 1 when ino has an item of this type, 0, or negative errno. */
static int has_item(const struct ntr_snap *s, uint64_t ino, uint8_t type)
{
	uint8_t key[NTR_KEY_MAX];
	struct ntr_snap_cursor c;
	int r;

	ntr_snap_cursor_init(&c, s);
	r = ntr_snap_cursor_seek(&c, key, ntr_item_key(key, ino, type, NULL, 0));
	if (r > 0)
		r = ntr_item_is(c.key, c.klen, ino, type);
	ntr_snap_cursor_done(&c);
	return r;
}

int ntr_xattr_del(struct ntr_txn *t, struct ntr_inode *in, const char *name)
{
	uint8_t key[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t klen, len;
	int r = xattr_key(in->ino, name, key, &klen);

	if (!r)
		r = ntr_snap_get(ntr_txn_snap(t), key, klen, val, &len);
	if (r)
		return r == -ENOENT ? -ENODATA : r;
	r = ntr_txn_del(t, key, klen);
	if (!r)
		r = has_item(ntr_txn_snap(t), in->ino, NTR_ITEM_XATTR);
	if (r < 0)
		return r;
	if (!r)
		in->flags &= ~(uint32_t)NTR_INODE_HAS_XATTR;
	return ntr_inode_put(t, in);
}

int ntr_link_put(struct ntr_txn *t, uint64_t ino, uint64_t parent, const char *name, size_t n)
{
	uint8_t key[NTR_KEY_MAX], none = 0;

	if (!n || n > NTR_NAME_BYTES)
		return n ? -ENAMETOOLONG : -EINVAL;
	return ntr_txn_put(t, key, ntr_item_key64(key, ino, NTR_ITEM_LINK, parent, name, n), &none, 1);
}

int ntr_link_del(struct ntr_txn *t, uint64_t ino, uint64_t parent, const char *name, size_t n)
{
	uint8_t key[NTR_KEY_MAX];

	if (!n || n > NTR_NAME_BYTES)
		return n ? -ENAMETOOLONG : -EINVAL;
	return ntr_txn_del(t, key, ntr_item_key64(key, ino, NTR_ITEM_LINK, parent, name, n));
}

int ntr_link_first(
        const struct ntr_snap *s, uint64_t ino, uint64_t *ret_parent, char name[256], size_t *ret_len)
{
	const size_t head = NTR_ITEM_KEY_HEAD + 8;
	uint8_t key[NTR_KEY_MAX];
	struct ntr_snap_cursor c;
	int r;

	ntr_snap_cursor_init(&c, s);
	r = ntr_snap_cursor_seek(&c, key, ntr_item_key(key, ino, NTR_ITEM_LINK, NULL, 0));
	if (r > 0 && !ntr_item_is(c.key, c.klen, ino, NTR_ITEM_LINK))
		r = 0;
	if (r > 0 && (c.klen <= head || c.klen > head + NTR_NAME_BYTES))
		r = -EUCLEAN;
	if (r > 0) {
		*ret_parent = ntr_get_be64(c.key + NTR_ITEM_KEY_HEAD);
		*ret_len = c.klen - head;
		memcpy(name, c.key + head, *ret_len);
		name[*ret_len] = '\0';
	}
	ntr_snap_cursor_done(&c);
	return r > 0 ? 0 : r ? r : -ENOENT;
}

static int kv_key(const char *name, uint8_t *key, size_t *ret_klen)
{
	return named_key(NTR_INO_META, NTR_ITEM_KV, name, NTR_KEY_MAX - NTR_ITEM_KEY_HEAD, key, ret_klen);
}

int ntr_kvitem_get(const struct ntr_snap *s, const char *name, uint8_t **ret, size_t *ret_len)
{
	uint8_t key[NTR_KEY_MAX];
	size_t klen;
	int r = kv_key(name, key, &klen);

	return r ? r : value_get(s, key, klen, ret, ret_len);
}

/* Entries stand under hashes made with the seed, and seeds are cached per root: over a root it stays what it
 * is. */
static int seed_change_ok(const struct ntr_snap *s, const void *val, size_t len)
{
	ntr_autofree uint8_t *old = NULL;
	size_t old_len;
	int r;

	if (val && len < 8)
		return -EINVAL;
	if (!s->root)
		return 0;
	r = ntr_kvitem_get(s, "s:seed", &old, &old_len);
	if (r)
		return r == -ENOENT ? -EPERM : r;
	return val && len == old_len && !memcmp(old, val, len) ? 0 : -EPERM;
}

int ntr_kvitem_set(struct ntr_txn *t, const char *name, const void *val, size_t len)
{
	uint8_t key[NTR_KEY_MAX];
	size_t klen;
	int r = kv_key(name, key, &klen);

	if (!r && !strcmp(name, "s:seed"))
		r = seed_change_ok(ntr_txn_snap(t), val, len);
	if (r)
		return r;
	return val ? ntr_item_value_put(t, key, klen, val, len) : ntr_txn_del(t, key, klen);
}

int ntr_kvitem_each(const struct ntr_snap *s, const char *prefix,
        int (*fn)(void *user, const char *key, const uint8_t *val, size_t len), void *user)
{
	if (strlen(prefix) > NTR_KEY_MAX - NTR_ITEM_KEY_HEAD)
		return 0;
	return value_each(s, NTR_INO_META, NTR_ITEM_KV, prefix, fn, user);
}

int ntr_item_chunks(const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen, const uint8_t **ret_ids,
        size_t *ret_n)
{
	size_t head = 1;

	if (klen < NTR_ITEM_KEY_HEAD || !vlen || val[0] & ~NTR_ITEM_CHUNKS)
		return -EUCLEAN;
	*ret_n = 0;
	*ret_ids = val + 1;
	if (!val[0])
		return 0;
	if (key[8] == NTR_ITEM_XATTR || key[8] == NTR_ITEM_KV || key[8] == NTR_ITEM_CACHE)
		head = 9;
	*ret_ids = val + head;
	if (key[8] == NTR_ITEM_INODE) {
		*ret_n = 1;
		return vlen > 9 ? 0 : -EUCLEAN;
	}
	if (vlen <= head || (vlen - head) % 8 || key[8] == NTR_ITEM_DIRENT || key[8] == NTR_ITEM_LINK)
		return -EUCLEAN;
	*ret_n = (vlen - head) / 8;
	return 0;
}
