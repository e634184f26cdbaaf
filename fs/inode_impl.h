/* inode_impl: keys of tree items, and what inode*.c share with names.c, file*.c and the tests. Private to
 * fs/. */
#ifndef NTR_FS_INODE_IMPL_H
#define NTR_FS_INODE_IMPL_H

#include "../base/util.h"
#include "inode.h"

enum {
	NTR_ITEM_KEY_HEAD = 9,   /* BE64 inode | type */
	NTR_ITEM_INPLACE = 1024, /* larger XATTR and KV values are chunks */
	NTR_XATTR_VALUE_MAX = 65536,
	NTR_ITEM_CHUNKS_MAX = (NTR_VALUE_MAX - 9) / 8, /* chunk ids of one XATTR or KV value */
	NTR_NAME_BYTES = 255,
};

/* Builds a key in k[NTR_KEY_MAX]; the suffix must fit. Returns its length. */
static inline size_t ntr_item_key(uint8_t *k, uint64_t ino, uint8_t type, const void *suffix, size_t n)
{
	ntr_put_be64(k, ino);
	k[8] = type;
	if (n)
		memcpy(k + NTR_ITEM_KEY_HEAD, suffix, n);
	return NTR_ITEM_KEY_HEAD + n;
}

/* The same for DIRENT, LINK and EXTENT, whose suffix begins with a number. */
static inline size_t ntr_item_key64(
        uint8_t *k, uint64_t ino, uint8_t type, uint64_t num, const char *name, size_t n)
{
	ntr_put_be64(k, ino);
	k[8] = type;
	ntr_put_be64(k + NTR_ITEM_KEY_HEAD, num);
	if (n)
		memcpy(k + NTR_ITEM_KEY_HEAD + 8, name, n);
	return NTR_ITEM_KEY_HEAD + 8 + n;
}

/* Could this name an entry? (Its length is known to be in range.) */
static inline bool ntr_name_ok(const char *name, size_t n)
{
	return !memchr(name, '/', n) && !memchr(name, '\0', n) &&
	       !(name[0] == '.' && (n == 1 || (n == 2 && name[1] == '.')));
}

/* Does key belong to items of this type of this inode? */
static inline bool ntr_item_is(const uint8_t *key, size_t klen, uint64_t ino, uint8_t type)
{
	return klen >= NTR_ITEM_KEY_HEAD && key[8] == type && ntr_get_be64(key) == ino;
}

/* LEB128. put returns the bytes written (at most 10); get returns the byte behind, or NULL when it is cut or
 * too long. */
size_t ntr_varint_put(uint8_t *p, uint64_t v);
static inline const uint8_t *ntr_varint_get(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; p < end && shift < 64; shift += 7) {
		uint8_t b = *p++;

		if (shift == 63 && b > 1)
			return NULL;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = v;
			return p;
		}
	}
	return NULL;
}

/* A value of XATTR, KV or CACHE: in place, or above NTR_ITEM_INPLACE bytes in chunks (at most
 * NTR_ITEM_CHUNKS_MAX: -E2BIG). load gives it in fresh memory, a NUL behind it. */
int ntr_item_value_put(struct ntr_txn *t, const uint8_t *key, size_t klen, const void *data, size_t n);
int ntr_item_value_load(
        const struct ntr_snap *s, const uint8_t *val, size_t len, uint8_t **ret, size_t *ret_len);

/* The value of a DIRENT item: 0 or -EUCLEAN. */
int ntr_dirent_decode(const uint8_t *val, size_t len, uint64_t *ret_ino, uint8_t *ret_dtype);

/* The bytes of a chunk, pinned in the database, or copied out of the transaction that has just made them. */
struct ntr_content {
	const uint8_t *data;
	struct ntr_kv_pin pin;
	uint8_t *copy;
};
/* The chunk must be `want` long: 0, -EUCLEAN, -EIO. */
int ntr_content_get(const struct ntr_snap *s, uint64_t id, size_t want, struct ntr_content *ret);
void ntr_content_done(struct ntr_content *c);

/* For tests: replaces the name hash when set (equal hashes cannot be had otherwise). */
extern uint64_t (*ntr_dirent_hash_hook)(const char *name, size_t n);

#endif
