/* cache: the named values of a session's cache, as items of its tree (inode NTR_INO_META, type CACHE).
 *
 * A value is one item under its key. What is larger than one item's list of chunks goes on in further items,
 * key | NUL | BE16 part, from part 1 on; every item but the last is full. So one changed key costs one item,
 * and fork, rollback and diff need to know nothing of it. */
#ifndef NTR_FS_CACHE_H
#define NTR_FS_CACHE_H

#include "snap.h"

enum {
	NTR_CACHE_KEY_MAX = 200,         /* bytes of UTF-8 */
	NTR_CACHE_VALUE_MAX = 256 << 20, /* bytes */
};

/* A key is 1 to NTR_CACHE_KEY_MAX bytes of UTF-8 without "/" and NUL, and does not begin with "__": else
 * -EINVAL, and *ret_why (may be NULL) says which. */
int ntr_cacheitem_key_check(const char *key, size_t len, const char **ret_why);
/* The value in fresh memory, a NUL behind it. 0, -ENOENT, -EUCLEAN, … */
int ntr_cacheitem_get(const struct ntr_snap *s, const char *key, uint8_t **ret, size_t *ret_len);
/* val NULL deletes (what is not there, too). -E2BIG above NTR_CACHE_VALUE_MAX. */
int ntr_cacheitem_set(struct ntr_txn *t, const char *key, const void *val, size_t len);
/* Every key in byte order; fn's nonzero return stops and is returned. The transaction must not change
 * meanwhile. */
int ntr_cacheitem_each(const struct ntr_snap *s, int (*fn)(void *user, const char *key), void *user);

/* For fsck: whether a CACHE item's suffix is one (part: *ret_part > 0). */
bool ntr_cacheitem_suffix_ok(const uint8_t *suffix, size_t len, unsigned *ret_part, size_t *ret_key_len);

#endif
