/* Trees: commit by commit, each as what differs from its parent, which was checked before it; the first of a
 * line as what differs from nothing. Every rule ties items of one inode together, or an entry with the object
 * that it names; so it can only be broken by a change to one of them, and looking at the changed inodes, at
 * the entries that came and at the objects that lost one is as good as looking at all. */
#include "fsck_impl.h"
#include "inode_impl.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* The diff has left the items of an inode. */
static int group_end(struct ntr_fsck_tree *t)
{
	int r = t->ino ? ntr_fsck_inode(t, t->ino) : 0;

	t->ino = 0;
	t->subdirs = 0;
	t->stray = false;
	return r;
}

/* An entry that is not any more, or leads elsewhere. */
static int entry_lost(struct ntr_fsck_tree *t, const uint8_t *val, size_t vlen)
{
	uint64_t ino;
	uint8_t dtype;

	if (ntr_fsck_entry_parse(val, vlen, &ino, &dtype))
		return 0; /* reported when it came */
	t->subdirs -= dtype == DT_DIR;
	return ino == t->ino ? 0 : ntr_fsck_inode_left(t, ino);
}

static int entry_came(
        struct ntr_fsck_tree *t, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen)
{
	const size_t head = NTR_ITEM_KEY_HEAD + 8;
	uint64_t ino;
	uint8_t dtype;

	if (!ntr_fsck_entry_parse(val, vlen, &ino, &dtype))
		t->subdirs += dtype == DT_DIR;
	return ntr_fsck_entry(t, t->ino, ntr_get_be64(key + NTR_ITEM_KEY_HEAD), (const char *)key + head,
	        klen - head, val, vlen);
}

/* A link item that is gone, or its inode's number with it. */
static int link_lost(struct ntr_fsck_tree *t, const uint8_t *key, size_t klen)
{
	const size_t head = NTR_ITEM_KEY_HEAD + 8;

	return ntr_fsck_name_left(
	        t, ntr_get_be64(key + NTR_ITEM_KEY_HEAD), (const char *)key + head, klen - head);
}

/* Under another seed every entry stands somewhere else: what did not change needs a look too. */
static bool is_seed(const uint8_t *key, size_t klen)
{
	return klen == NTR_ITEM_KEY_HEAD + 6 && ntr_get_be64(key) == NTR_INO_META && key[8] == NTR_ITEM_KV &&
	       !memcmp(key + NTR_ITEM_KEY_HEAD, "s:seed", 6);
}

static int item_lost(struct ntr_fsck_tree *t, const uint8_t *key, size_t klen, const uint8_t *old,
        size_t old_len, bool for_good)
{
	if (is_seed(key, klen))
		return -EUCLEAN;
	if (klen <= NTR_ITEM_KEY_HEAD + 8)
		return 0;
	if (key[8] == NTR_ITEM_DIRENT)
		return entry_lost(t, old, old_len);
	return key[8] == NTR_ITEM_LINK && for_good ? link_lost(t, key, klen) : 0;
}

static int item_differs(void *user, const uint8_t *key, size_t klen, const uint8_t *old, size_t old_len,
        const uint8_t *new, size_t new_len)
{
	struct ntr_fsck_tree *t = user;
	uint64_t ino = klen >= 8 ? ntr_get_be64(key) : 0;
	int r = 0;

	if (ino != t->ino)
		r = group_end(t);
	t->ino = ino;
	if (old)
		ntr_inode_count(&t->counts, -1, key, klen, old, old_len);
	if (new)
		ntr_inode_count(&t->counts, 1, key, klen, new, new_len);
	if (!r && old)
		r = item_lost(t, key, klen, old, old_len, !new);
	if (!r && new)
		r = ntr_fsck_item(t, key, klen, new, new_len);
	if (!r && !t->stray && klen > NTR_ITEM_KEY_HEAD && key[8] == NTR_ITEM_CACHE)
		return ntr_fsck_cache(t, key, klen, new, new_len);
	if (r || !new)
		return r;
	if (t->stray || key[8] != NTR_ITEM_DIRENT)
		return 0;
	return entry_came(t, key, klen, new, new_len);
}

static int tree_diff(struct ntr_fsck_tree *t, uint64_t base)
{
	int r;

	t->base.root = base;
	t->counts = (struct ntr_counts){0};
	r = ntr_tree_diff(t->k->s->tree, base, t->now.root, item_differs, t);
	if (!r)
		r = group_end(t);
	t->ino = 0;
	ntr_fsck_bits_done(&t->rooted);
	ntr_fsck_bits_done(&t->path);
	return r;
}

static bool unreadable(int r)
{
	return r == -EUCLEAN || r == -EIO;
}

/* Damage in the parent's tree alone must not hide this one: then it is looked at as a whole. */
static int tree_check(struct ntr_fsck_tree *t, uint64_t base)
{
	int r;

	if (t->now.root == base)
		return 0;
	r = tree_diff(t, base);
	if (unreadable(r) && base)
		r = tree_diff(t, 0);
	if (unreadable(r))
		ntr_fsck_problem(t->k,
		        "%s: its tree cannot be read as a whole; what lies behind the damage is unchecked",
		        t->name);
	return unreadable(r) ? 1 : r;
}

/* The counters that go on from the parent's, or begin at nothing where the tree was looked at as a whole. */
static void counters_check(
        struct ntr_fsck_tree *t, const struct ntr_fsck_commit *c, const struct ntr_fsck_commit *p)
{
	static const struct ntr_fsck_commit none;
	const struct ntr_fsck_commit *from = p && (t->base.root || !p->root) ? p : &none;
	uint64_t inodes = from->inodes + (uint64_t)t->counts.inodes,
	         bytes = from->bytes + (uint64_t)t->counts.bytes;
	uint64_t xattrs = from->xattrs + (uint64_t)t->counts.xattrs;

	if (c->inodes != inodes || c->bytes != bytes || c->xattrs != xattrs)
		ntr_fsck_problem(t->k,
		        "%s: it counts %" PRIu64 " inodes, %" PRIu64
		        " of them with extended attributes, and %" PRIu64 " bytes; its tree has %" PRIu64
		        ", %" PRIu64 " and %" PRIu64,
		        t->name, c->inodes, c->xattrs, c->bytes, inodes, xattrs, bytes);
}

static int commit_check(struct ntr_fsck_run *k, const struct ntr_fsck_commit *c)
{
	const struct ntr_fsck_commit *p = c->parent ? ntr_fsck_commit_find(k, c->parent) : NULL;
	struct ntr_fsck_tree t = {
	        .k = k, .now = ntr_snap_root(k->s, c->root), .base = ntr_snap_root(k->s, p ? p->root : 0)};
	char hex[NTR_COMMIT_PREFIX + 1];
	int r;

	snprintf(t.name, sizeof(t.name), "commit %s", ntr_fsck_hex(c, hex));
	r = tree_check(&t, p ? p->root : 0);
	if (!r)
		counters_check(&t, c, p);
	return r < 0 ? r : 0;
}

/* Roots that no commit has: a lost commit's, or a mistake. */
static int head_check(struct ntr_fsck_run *k, const struct ntr_fsck_head *h, uint64_t root,
        const struct ntr_fsck_bits *known)
{
	struct ntr_fsck_tree t = {.k = k, .now = ntr_snap_root(k->s, root), .base = ntr_snap_root(k->s, 0)};
	int r;

	if (!root || ntr_fsck_bits_test(known, root))
		return 0;
	snprintf(t.name, sizeof(t.name), "session '%.40s'", h->name);
	r = tree_check(&t, 0);
	return r < 0 ? r : 0;
}

int ntr_fsck_trees(struct ntr_fsck_run *k)
{
	ntr_auto(ntr_fsck_bits_done) struct ntr_fsck_bits known = {0};
	int r = 0;

	for (size_t i = 0; !r && i < k->nc; i++) {
		ntr_fsck_progress(k, "trees", i, k->nc);
		r = commit_check(k, &k->c[i]);
		if (!r && ntr_fsck_bits_add(&known, k->c[i].root) == -ENOMEM)
			r = -ENOMEM;
	}
	for (size_t i = 0; !r && i < k->nh; i++) {
		r = head_check(k, &k->h[i], k->h[i].root, &known);
		if (!r)
			r = head_check(k, &k->h[i], k->h[i].base_root, &known);
	}
	ntr_fsck_progress(k, "trees", k->nc, k->nc);
	return r;
}
