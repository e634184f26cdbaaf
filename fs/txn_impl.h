/* txn_impl: a transaction's changes in memory, for txn.c (which makes them) and snap.c (which reads through
 * them). */
#ifndef NTR_FS_TXN_IMPL_H
#define NTR_FS_TXN_IMPL_H

#include "store_impl.h"

struct ntr_item { /* one changed item; key and value lie in the transaction's arena */
	RB_ENTRY(ntr_item) link;
	const uint8_t *key;
	uint8_t *room;      /* cap bytes for values; first those behind the key */
	const uint8_t *val; /* room, or NULL: deleted */
	uint16_t klen, vlen, cap;
};
RB_HEAD(ntr_items, ntr_item);
RB_PROTOTYPE(ntr_items, ntr_item, link, ntr_item_cmp)

int ntr_key_cmp(const uint8_t *a, size_t an, const uint8_t *b, size_t bn);

struct ntr_txn_block;
struct ntr_txn {
	struct ntr_snap snap; /* root: the base, or the last intermediate root */
	uint64_t base, version;
	uint64_t fresh; /* inodes from this number on cannot be in snap.root: their records need no look there
	                 */
	struct ntr_items items;
	struct ntr_item *last; /* found or made last: the next call often means it again */
	size_t n, used, limit;
	struct ntr_txn_block *blocks;
	struct ntr_chunk_writer *chunks;
	struct ntr_counts counts;
	bool changed;
	int err; /* an item was lost: the transaction must not be committed */
};

/* The item of key, deleted or not; NULL: the transaction does not know it. */
struct ntr_item *ntr_txn_find(struct ntr_txn *t, const void *key, size_t klen);
/* The first item with a key >= key. */
struct ntr_item *ntr_txn_find_from(struct ntr_txn *t, const void *key, size_t klen);

#endif
