/* tree: a persistent (path-copying) B+tree over node ids. A root names one immutable map; apply makes a new
 * one that shares every node it did not change. Root 0 is the empty map.
 *
 * Nodes are split above NTR_NODE_TARGET bytes, merged below a third of it, filled to 90 % when appending at
 * the right edge. Children get their ids before parents. Decoded nodes are kept in one shared LRU; they are
 * immutable, so any number of threads read without a lock on the node. Keys sort by memcmp, shorter first. */
#ifndef NTR_FS_TREE_H
#define NTR_FS_TREE_H

#include "ids.h"
#include "kv.h"
#include "node.h"

struct ntr_tree;
struct ntr_tree_node; /* a cached node, reference counted */

/* cache_bytes 0: 64 MiB. The tree borrows kv and ids. */
int ntr_tree_new(struct ntr_kv *kv, struct ntr_ids *ids, size_t cache_bytes, struct ntr_tree **ret);
void ntr_tree_free(struct ntr_tree *t);

/* Looks key up and copies its value into val[NTR_VALUE_MAX]; *ret_len its length. 0, -ENOENT, -EUCLEAN, -EIO.
 */
int ntr_tree_get(
        struct ntr_tree *t, uint64_t root, const void *key, size_t klen, uint8_t *val, size_t *ret_len);

/* A cursor over one root. Zero it with ntr_tree_cursor_init, finish with ntr_tree_cursor_done. */
enum { NTR_TREE_DEPTH_MAX = 24 };
struct ntr_tree_cursor {
	struct ntr_tree *tree;
	uint64_t root;
	struct ntr_tree_node *node[NTR_TREE_DEPTH_MAX];
	uint16_t pos[NTR_TREE_DEPTH_MAX];
	int depth;                /* 0: not positioned */
	uint8_t key[NTR_KEY_MAX]; /* the whole current key, valid while positioned */
	size_t klen;
	const uint8_t *val; /* valid until the cursor moves */
	size_t vlen;
};
void ntr_tree_cursor_init(struct ntr_tree_cursor *c, struct ntr_tree *t, uint64_t root);
void ntr_tree_cursor_done(struct ntr_tree_cursor *c);
/* To the first key >= key (seek) or to the next one. 1: positioned; 0: past the end; negative errno. */
int ntr_tree_cursor_seek(struct ntr_tree_cursor *c, const void *key, size_t klen);
int ntr_tree_cursor_next(struct ntr_tree_cursor *c);

/* One change: put (val != NULL) or delete (val == NULL; deleting what is absent is nothing). */
struct ntr_change {
	const uint8_t *key;
	size_t klen;
	const uint8_t *val;
	size_t vlen;
};

/* Applies n changes, strictly ascending by key, to root. New nodes go into batch b (and the cache); *ret_root
 * is the new root (== root when nothing really changed; 0 when the map became empty). A put of an equal value
 * changes nothing. The new root may be read only once b has been written. 0 or negative errno; on failure b
 * is garbage. */
int ntr_tree_apply(struct ntr_tree *t, uint64_t root, const struct ntr_change *v, size_t n,
        struct ntr_kv_batch *b, uint64_t *ret_root);

/* Calls fn for every key whose value differs between roots a and b, ascending; old or new is NULL where the
 * key is missing. Equal child ids are skipped: cost O(differences * depth). A nonzero return of fn stops and
 * is returned. */
typedef int (*ntr_tree_diff_fn)(void *user, const uint8_t *key, size_t klen, const uint8_t *old,
        size_t old_len, const uint8_t *new, size_t new_len);
int ntr_tree_diff(struct ntr_tree *t, uint64_t a, uint64_t b, ntr_tree_diff_fn fn, void *user);

/* Walks every node reachable from root once (seen, when not NULL, is asked first and says true to skip a node
 * and all below it), checking structure: order of keys across nodes, levels, sizes. For fsck and tests. visit
 * sees each node's id and view; leaf items are read from the view. A broken node: report, then go on with its
 * siblings. */
struct ntr_tree_walk {
	bool (*seen)(void *user, uint64_t id);
	int (*visit)(void *user, uint64_t id, const struct ntr_node_view *n);
	void (*broken)(void *user, uint64_t id, int err, const char *what);
	void *user;
};
int ntr_tree_walk(struct ntr_tree *t, uint64_t root, const struct ntr_tree_walk *w);

/* Counters for status: cache bytes, hits, misses. */
void ntr_tree_stats(struct ntr_tree *t, uint64_t *ret_bytes, uint64_t *ret_hits, uint64_t *ret_misses);

#endif
