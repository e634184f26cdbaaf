/* Nodes: every one that any commit, head or upper's base reaches, once, with the chunks that its items name.
 */
#include "fsck_impl.h"
#include "inode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct nodes {
	struct ntr_fsck_run *k;
	struct ntr_fsck_bits seen;
	char where[NTR_NAME_MAX + 32]; /* the root that is being walked */
	uint64_t limit;
	int err;
};

static bool node_seen(void *user, uint64_t id)
{
	struct nodes *n = user;
	int r;

	if (n->err || ntr_fsck_bits_test(&n->seen, id))
		return true;
	if (id >= n->limit)
		return false;
	r = ntr_fsck_bits_add(&n->seen, id);
	if (r == -ENOMEM)
		n->err = r;
	return r == -ENOMEM;
}

static void node_broken(void *user, uint64_t id, int err, const char *what)
{
	struct nodes *n = user;

	(void)err;
	ntr_fsck_problem(n->k, "tree node %" PRIu64 ": %s; %s and what shares it with it have lost items", id,
	        what, n->where);
}

static void chunks_check(struct nodes *n, const uint8_t *key, const uint8_t *ids, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t id = ntr_get_le64(ids + 8 * i);

		if (!id && key[8] == NTR_ITEM_EXTENT) /* a hole between chunks */
			continue;
		if (!ntr_fsck_lens_get(&n->k->lens, id))
			ntr_fsck_problem(n->k,
			        "chunk %" PRIu64 " is missing or damaged; inode %" PRIu64 " of %s uses it",
			        id, ntr_get_be64(key), n->where);
	}
}

static void item_check(struct nodes *n, const struct ntr_node_view *v, size_t i)
{
	uint8_t key[NTR_KEY_MAX];
	struct ntr_node_entry e;
	const uint8_t *ids;
	size_t klen, count;

	ntr_node_entry(v, i, &e);
	memcpy(key, v->prefix, v->prefix_len);
	memcpy(key + v->prefix_len, e.key, e.klen);
	klen = v->prefix_len + e.klen;
	n->k->f->items++;
	if (klen == 9 && key[8] == NTR_ITEM_INODE)
		n->k->f->inodes++;
	if (!ntr_item_chunks(key, klen, e.val, e.vlen, &ids, &count))
		chunks_check(n, key, ids, count); /* what is no item at all, the trees' check reports */
}

static int node_visit(void *user, uint64_t id, const struct ntr_node_view *v)
{
	struct nodes *n = user;

	if (++n->k->f->nodes % 4096 == 0)
		ntr_fsck_progress(n->k, "nodes", n->k->f->nodes, 0);
	if (id >= n->limit)
		ntr_fsck_problem(n->k, "tree node %" PRIu64 ": its number was never given out", id);
	for (size_t i = 0; !v->level && i < v->count; i++)
		item_check(n, v, i);
	return n->err;
}

static int root_walk(struct nodes *n, uint64_t root)
{
	const struct ntr_tree_walk w = {
	        .seen = node_seen, .visit = node_visit, .broken = node_broken, .user = n};
	int r = ntr_tree_walk(n->k->s->tree, root, &w);

	return r ? r : n->err;
}

static int roots_walk(struct nodes *n)
{
	char hex[NTR_COMMIT_PREFIX + 1];
	int r = 0;

	for (size_t i = 0; !r && i < n->k->nc; i++) {
		snprintf(n->where, sizeof(n->where), "commit %s", ntr_fsck_hex(&n->k->c[i], hex));
		r = root_walk(n, n->k->c[i].root);
	}
	for (size_t i = 0; !r && i < n->k->nh; i++) {
		snprintf(n->where, sizeof(n->where), "session '%s'", n->k->h[i].name);
		r = root_walk(n, n->k->h[i].root);
		if (!r)
			r = root_walk(n, n->k->h[i].base_root);
	}
	return r;
}

int ntr_fsck_nodes(struct ntr_fsck_run *k)
{
	struct nodes n = {.k = k, .limit = ntr_ids_peek(k->s->ids, NTR_ID_NODE)};
	int r = roots_walk(&n);

	ntr_fsck_bits_done(&n.seen);
	ntr_fsck_progress(k, "nodes", k->f->nodes, k->f->nodes);
	return r;
}
