#include "node.h"

#include "../base/util.h"

#include <errno.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VERSION = 1, HEADER = 16, SUM_AT = 8, LEAF_FIXED = 4, INNER_FIXED = 10, LEVEL_MAX = 23 };

static size_t entry_fixed(unsigned level)
{
	return level ? INNER_FIXED : LEAF_FIXED;
}

static size_t common_prefix(const struct ntr_node_entry *a, const struct ntr_node_entry *b)
{
	size_t n = NTR_MIN(a->klen, b->klen), i = 0;

	while (i < n && a->key[i] == b->key[i])
		i++;
	return i;
}

static uint64_t checksum(const uint8_t *data, size_t len)
{
	static const uint8_t zero[8];
	XXH3_state_t s;

	XXH3_64bits_reset(&s);
	XXH3_64bits_update(&s, data, SUM_AT);
	XXH3_64bits_update(&s, zero, sizeof(zero));
	XXH3_64bits_update(&s, data + HEADER, len - HEADER);
	return XXH3_64bits_digest(&s);
}

size_t ntr_node_size(unsigned level, const struct ntr_node_entry *v, size_t n)
{
	size_t prefix = common_prefix(&v[0], &v[n - 1]);
	size_t size = HEADER + prefix + n * (2 + entry_fixed(level));

	for (size_t i = 0; i < n; i++)
		size += v[i].klen - prefix + (level ? 0 : v[i].vlen);
	return size;
}

static uint8_t *encode_entry(uint8_t *p, unsigned level, const struct ntr_node_entry *e, size_t prefix)
{
	size_t rest = e->klen - prefix;

	ntr_put_le16(p, (uint16_t)rest);
	if (level)
		ntr_put_le64(p + 2, e->child);
	else
		ntr_put_le16(p + 2, (uint16_t)e->vlen);
	p += entry_fixed(level);
	memcpy(p, e->key + prefix, rest);
	p += rest;
	if (!level && e->vlen) {
		memcpy(p, e->val, e->vlen);
		p += e->vlen;
	}
	return p;
}

void ntr_node_encode(unsigned level, const struct ntr_node_entry *v, size_t n, uint8_t *out, size_t size)
{
	size_t prefix = common_prefix(&v[0], &v[n - 1]);
	uint8_t *offsets = out + HEADER + prefix, *p = offsets + 2 * n;

	out[0] = VERSION;
	out[1] = (uint8_t)level;
	ntr_put_le16(out + 2, (uint16_t)n);
	ntr_put_le16(out + 4, (uint16_t)prefix);
	ntr_put_le16(out + 6, 0);
	memcpy(out + HEADER, v[0].key, prefix);
	for (size_t i = 0; i < n; i++) {
		ntr_put_le16(offsets + 2 * i, (uint16_t)(p - out));
		p = encode_entry(p, level, &v[i], prefix);
	}
	ntr_put_le64(out + SUM_AT, checksum(out, size));
}

static int header_decode(const uint8_t *data, size_t len, struct ntr_node_view *n)
{
	if (len < HEADER || len > NTR_NODE_MAX || data[0] != VERSION || data[1] > LEVEL_MAX)
		return -EUCLEAN;
	*n = (struct ntr_node_view){
	        .data = data,
	        .len = len,
	        .level = data[1],
	        .count = ntr_get_le16(data + 2),
	        .prefix_len = ntr_get_le16(data + 4),
	};
	if (!n->count || n->prefix_len > NTR_KEY_MAX || ntr_get_le16(data + 6) ||
	        HEADER + (size_t)n->prefix_len + 2u * n->count > len)
		return -EUCLEAN;
	n->prefix = data + HEADER;
	n->offsets = n->prefix + n->prefix_len;
	return 0;
}

/* Entry i must begin at *at, where the one before ended; moves *at behind it. */
static int entry_check(const struct ntr_node_view *n, size_t i, size_t *at)
{
	size_t fixed = entry_fixed(n->level), pos = *at, klen, vlen = 0;

	if (ntr_get_le16(n->offsets + 2 * i) != pos || n->len - pos < fixed)
		return -EUCLEAN;
	klen = ntr_get_le16(n->data + pos);
	if (!n->level)
		vlen = ntr_get_le16(n->data + pos + 2);
	else if (!ntr_get_le64(n->data + pos + 2))
		return -EUCLEAN;
	if (n->prefix_len + klen > NTR_KEY_MAX || vlen > NTR_VALUE_MAX || n->len - pos - fixed < klen + vlen)
		return -EUCLEAN;
	*at = pos + fixed + klen + vlen;
	return 0;
}

static int key_compare(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	int c = memcmp(a, b, NTR_MIN(alen, blen));

	return c ? c : (alen > blen) - (alen < blen);
}

static int entries_check(const struct ntr_node_view *n)
{
	size_t at = HEADER + (size_t)n->prefix_len + 2u * n->count;
	struct ntr_node_entry e, before = {0};

	for (size_t i = 0; i < n->count; i++) {
		if (entry_check(n, i, &at))
			return -EUCLEAN;
		ntr_node_entry(n, i, &e);
		if (i && key_compare(before.key, before.klen, e.key, e.klen) >= 0)
			return -EUCLEAN;
		before = e;
	}
	return at == n->len ? 0 : -EUCLEAN;
}

int ntr_node_decode(const uint8_t *data, size_t len, struct ntr_node_view *ret)
{
	struct ntr_node_view n;

	if (header_decode(data, len, &n) || ntr_get_le64(data + SUM_AT) != checksum(data, len) ||
	        entries_check(&n))
		return -EUCLEAN;
	*ret = n;
	return 0;
}

void ntr_node_entry(const struct ntr_node_view *n, size_t i, struct ntr_node_entry *ret)
{
	const uint8_t *p = n->data + ntr_get_le16(n->offsets + 2 * i);

	ret->klen = ntr_get_le16(p);
	if (n->level) {
		ret->child = ntr_get_le64(p + 2);
		ret->key = p + INNER_FIXED;
		ret->val = NULL;
		ret->vlen = 0;
	} else {
		ret->child = 0;
		ret->vlen = ntr_get_le16(p + 2);
		ret->key = p + LEAF_FIXED;
		ret->val = ret->key + ret->klen;
	}
}

/* Whether key lies before (-1), behind (1) or within (0) the keys that begin with the node's prefix. */
static int prefix_compare(const struct ntr_node_view *n, const uint8_t *key, size_t klen)
{
	int c = memcmp(key, n->prefix, NTR_MIN(klen, (size_t)n->prefix_len));

	return c ? c : (klen < n->prefix_len ? -1 : 0);
}

size_t ntr_node_search(const struct ntr_node_view *n, const uint8_t *key, size_t klen, int *ret_equal)
{
	int c = prefix_compare(n, key, klen);
	size_t lo = 0, hi = n->count;

	*ret_equal = 0;
	if (c)
		return c < 0 ? 0 : hi;
	key += n->prefix_len;
	klen -= n->prefix_len;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		struct ntr_node_entry e;

		ntr_node_entry(n, mid, &e);
		c = key_compare(e.key, e.klen, key, klen);
		if (!c) {
			*ret_equal = 1;
			return mid;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}
