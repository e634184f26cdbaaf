/* The parts of a large cache value: every one but the last is full, and none stands alone. */
#include "cache.h"
#include "fsck_impl.h"
#include "inode_impl.h"

#include <errno.h>

enum { TAIL = 3 }; /* NUL | BE16 part */

static bool is_full(const uint8_t *val, size_t vlen)
{
	return vlen > 9 && val[0] == NTR_ITEM_CHUNKS &&
	       ntr_get_le64(val + 1) == (uint64_t)NTR_ITEM_CHUNKS_MAX * NTR_CHUNK_SIZE;
}

/* The item of that part of the key. *ret_full false where it is not there. */
static int look(const struct ntr_fsck_tree *t, const uint8_t *key, size_t head, unsigned part,
        bool *ret_there, bool *ret_full)
{
	uint8_t k[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t len;
	int r;

	memcpy(k, key, head);
	k[head] = '\0';
	k[head + 1] = (uint8_t)(part >> 8);
	k[head + 2] = (uint8_t)part;
	r = ntr_snap_get(&t->now, k, part ? head + TAIL : head, val, &len);
	*ret_there = !r;
	*ret_full = !r && is_full(val, len);
	return r == -ENOENT ? 0 : r;
}

int ntr_fsck_cache(struct ntr_fsck_tree *t, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen)
{
	bool there = false, before = true, full;
	unsigned part;
	size_t n;
	int r = 0;

	if (!ntr_cacheitem_suffix_ok(key + NTR_ITEM_KEY_HEAD, klen - NTR_ITEM_KEY_HEAD, &part, &n))
		return 0; /* reported as an item of unknown form */
	if (val && part)
		r = look(t, key, NTR_ITEM_KEY_HEAD + n, part - 1, &there, &before);
	if (!r && !before)
		ntr_fsck_problem(t->k, "%s: cache value '%.*s': part %u follows none that is full", t->name,
		        (int)n, (const char *)key + NTR_ITEM_KEY_HEAD, part);
	if (r || (val && is_full(val, vlen)) || part == UINT16_MAX)
		return r;
	r = look(t, key, NTR_ITEM_KEY_HEAD + n, part + 1, &there, &full);
	if (!r && there)
		ntr_fsck_problem(t->k, "%s: cache value '%.*s': it goes on behind its end", t->name, (int)n,
		        (const char *)key + NTR_ITEM_KEY_HEAD);
	return r;
}
