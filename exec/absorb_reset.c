/* Without a memo: what head has of the part of base that upper does not cover must be as in base. It nearly
 * always is: only inodes that differ between the two are looked at, and those that are upper's are not meant.
 * See absorb_restore.c for how head and upper can come to disagree. */
#include "absorb_impl.h"

#include <errno.h>

struct ntr_base_dir { /* directories of upper by what lies beneath them */
	uint64_t base;
	struct ntr_mdir *dir;
	UT_hash_handle hh;
};

struct reset {
	struct ntr_arun *w;
	bool dirs; /* first pass */
};

int ntr_arun_bases(struct ntr_arun *w)
{
	size_t n = 0, i = 0;

	for (const struct ntr_mdir *d = w->tree->root; d; d = d->next)
		n++;
	w->bases_mem = malloc(n * sizeof *w->bases_mem);
	if (!w->bases_mem)
		return -ENOMEM;
	for (struct ntr_mdir *d = w->tree->root; d; d = d->next) {
		struct ntr_base_dir *b = &w->bases_mem[i++];

		*b = (struct ntr_base_dir){.base = d->base, .dir = d};
		if (!d->base)
			continue;
		HASH_ADD(hh, w->bases, base, sizeof b->base, b);
		if (!ntr_hashed(hh, b))
			return -ENOMEM;
	}
	return 0;
}

void ntr_arun_bases_done(struct ntr_arun *w)
{
	HASH_CLEAR(hh, w->bases);
	free(w->bases_mem);
}

/* Does base's entry `name` of directory `dir` show in the view? *ret_dir: the tree's directory that it shows
 * in. 1, 0. */
int ntr_arun_shows(struct ntr_arun *w, uint64_t dir, const char *name, uint64_t *ret_dir)
{
	struct ntr_inode in;
	struct ntr_base_dir *b;
	bool first = true;

	in.name_len = (uint8_t)strlen(name);
	memcpy(in.name, name, in.name_len + 1u);
	for (;; first = false) {
		int64_t k;
		int r;

		HASH_FIND(hh, w->bases, &dir, sizeof dir, b);
		if (first)
			*ret_dir = b ? b->dir->tree : dir;
		if (b) {
			k = ntr_mdir_find(b->dir, in.name, in.name_len, UINT32_MAX);
			return k < -1 ? (int)k : k < 0;
		}
		if (dir == NTR_INO_ROOT)
			return 0;
		r = ntr_inode_get(&w->base, dir, &in);
		if (r)
			return r;
		dir = in.parent;
	}
}

static bool same_attrs(const struct ntr_inode *a, const struct ntr_inode *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->rdev == b->rdev;
}

/* Attributes of a directory, then its listing. */
static int reset_dir(struct ntr_arun *w, const struct ntr_inode *was, struct ntr_inode *now)
{
	struct ntr_mdir d = {.tree = now->ino, .base = now->ino};
	int r = ntr_xattrs_equal(&w->base, was->ino, ntr_txn_snap(w->txn), now->ino);

	if (r < 0)
		return r;
	if (!r || !same_attrs(was, now)) {
		w->changed = true;
		now->mode = was->mode;
		now->uid = was->uid;
		now->gid = was->gid;
		now->mtime = was->mtime;
		now->flags &= ~(uint32_t)NTR_INODE_HAS_XATTR;
		now->flags |= was->flags & NTR_INODE_HAS_XATTR;
		r = ntr_items_drop(w->txn, now->ino, NTR_ITEM_XATTR);
		if (!r)
			r = ntr_items_copy(w->txn, &w->base, was->ino, now->ino, NTR_ITEM_XATTR);
		if (!r)
			r = ntr_inode_put(w->txn, now);
		if (r)
			return r;
	}
	return ntr_arun_compare(w, &d);
}

static int file_is_same(struct ntr_arun *w, const struct ntr_inode *was, const struct ntr_inode *now)
{
	int r;

	if (!same_attrs(was, now) || was->mtime.tv_sec != now->mtime.tv_sec ||
	        was->mtime.tv_nsec != now->mtime.tv_nsec)
		return 0;
	r = ntr_content_equal(&w->base, was, ntr_txn_snap(w->txn), now);
	return r > 0 ? ntr_xattrs_equal(&w->base, was->ino, ntr_txn_snap(w->txn), now->ino) : r;
}

/* One name under which base has the object. */
static int reset_name(struct reset *x, const struct ntr_inode *was, uint64_t base_dir, const char *name)
{
	struct ntr_mdir d = {.base = base_dir};
	struct ntr_inode now;
	uint64_t ino;
	uint8_t dtype;
	int r = ntr_arun_shows(x->w, base_dir, name, &d.tree);

	if (r <= 0)
		return r;
	r = ntr_dirent_get(ntr_txn_snap(x->w->txn), d.tree, name, strlen(name), &ino, &dtype);
	if (r || ino != was->ino) /* the listing's matter */
		return r == -ENOENT ? 0 : r;
	r = ntr_inode_get(ntr_txn_snap(x->w->txn), ino, &now);
	if (r)
		return r;
	if (S_ISDIR(was->mode))
		return reset_dir(x->w, was, &now);
	r = file_is_same(x->w, was, &now);
	if (r)
		return NTR_MIN(r, 0);
	r = ntr_name_remove(x->w->txn, d.tree, name, NULL);
	return r ? r : ntr_arun_want_base(x->w, &d, name, strlen(name), was->ino);
}

struct other { /* what reset_object's callback needs */
	struct reset *x;
	const struct ntr_inode *was;
};

static int other_name(void *user, uint64_t dir, const char *name)
{
	struct other *o = user;

	return reset_name(o->x, o->was, dir, name);
}

static int reset_object(struct reset *x, uint64_t ino)
{
	struct ntr_inode was;
	struct other o = {x, &was};
	int r = ntr_arun_in_use(x->w, ino);

	if (r)
		return NTR_MIN(r, 0);
	r = ntr_inode_get(&x->w->base, ino, &was);
	if (r || !S_ISDIR(was.mode) == x->dirs)
		return r == -ENOENT ? 0 : r;
	r = reset_name(x, &was, was.parent, was.name);
	return r || !(was.flags & NTR_INODE_HAS_LINKS) ? r : ntr_links_each(&x->w->base, ino, other_name, &o);
}

int ntr_arun_reset(struct ntr_arun *w)
{
	struct reset x = {.w = w, .dirs = true};
	int r = 0;

	/* Directories first: what their listings lack is restored whole, and then needs no look of its own.
	 */
	for (size_t i = 0; i < w->ndiffer && !r; i++)
		r = reset_object(&x, w->differ[i]);
	x.dirs = false;
	for (size_t i = 0; i < w->ndiffer && !r; i++)
		r = reset_object(&x, w->differ[i]);
	return r;
}
