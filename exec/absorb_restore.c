/* What upper no longer covers: objects of base that head has lost, or has changed, come back.
 *
 * overlayfs itself never takes a mark away so that the lower tree shows again. But an upper that went through
 * a power failure may be older than head: it then lacks whiteouts and copies that head was made from. What
 * the view shows is what counts, so names come back from base; the number of an object that no longer is in
 * the tree comes back with it, otherwise it gets a new one. */
#include "absorb_impl.h"

#include <dirent.h>
#include <errno.h>

struct ntr_restore { /* base object to be entered as name in dir */
	struct ntr_restore *next;
	uint64_t dir, base;
	size_t n;
	char name[256];
};

struct copied { /* base objects of several names that a restore has entered */
	uint64_t base, tree;
	UT_hash_handle hh;
};

static int wish(struct ntr_arun *w, uint64_t dir, const char *name, size_t n, uint64_t base_ino)
{
	struct ntr_restore *x = calloc(1, sizeof *x);

	if (!x)
		return -ENOMEM;
	x->dir = dir;
	x->base = base_ino;
	x->n = n;
	memcpy(x->name, name, n);
	if (w->restores_tail)
		w->restores_tail->next = x;
	else
		w->restores = x;
	w->restores_tail = x;
	return 0;
}

int ntr_arun_want_base(struct ntr_arun *w, struct ntr_mdir *d, const char *name, size_t n, uint64_t base_ino)
{
	w->changed = true;
	d->flags |= NTR_MD_LISTED;
	return wish(w, d->tree, name, n, base_ino);
}

/* A number for the copy: its own unless an object with it is still there. */
static int number(struct ntr_arun *w, struct ntr_inode *in)
{
	struct ntr_inode other;
	int r = ntr_inode_get(ntr_txn_snap(w->txn), in->ino, &other);

	if (r == -ENOENT)
		return 0;
	if (!r)
		r = ntr_inode_new(w->txn, in->mode, &other);
	if (r)
		return r;
	in->ino = other.ino;
	in->tag = other.tag;
	return 0;
}

static int enter(struct ntr_arun *w, const struct ntr_restore *x, struct ntr_inode *in)
{
	const struct ntr_inode from = *in;
	int r = number(w, in);

	if (r)
		return r;
	in->flags &= ~(uint32_t)NTR_INODE_HAS_LINKS;
	in->data_kind = NTR_DATA_NONE;
	in->size = in->chunk = in->payload_len = 0;
	r = ntr_content_copy(w->txn, &w->base, &from, in);
	if (!r)
		r = ntr_items_copy(w->txn, &w->base, from.ino, in->ino, NTR_ITEM_XATTR);
	return r ? r : ntr_name_create(w->txn, x->dir, x->name, in, NULL);
}

/* One more name of an object that was restored before, or that is in the tree as base has it. 1: done. */
static int link_up(
        struct ntr_arun *w, const struct ntr_restore *x, const struct ntr_inode *in, struct copied *table)
{
	struct ntr_inode now;
	struct copied *c;
	int r = 0;

	if (S_ISDIR(in->mode) || in->nlink < 2)
		return 0;
	HASH_FIND(hh, table, &in->ino, sizeof in->ino, c);
	if (!c) {
		r = ntr_inode_get(ntr_txn_snap(w->txn), in->ino, &now);
		if (!r)
			r = ntr_arun_in_use(w, in->ino) ? -ENOENT : 0;
		if (r)
			return r == -ENOENT ? 0 : r;
	}
	r = ntr_name_link(w->txn, c ? c->tree : in->ino, x->dir, x->name, NULL);
	return r ? r : 1;
}

static int remember(struct copied **table, uint64_t base, const struct ntr_inode *in)
{
	struct copied *c;

	if (S_ISDIR(in->mode))
		return 0;
	c = malloc(sizeof *c);
	if (!c)
		return -ENOMEM;
	c->base = base;
	c->tree = in->ino;
	HASH_ADD(hh, *table, base, sizeof c->base, c);
	if (ntr_hashed(hh, c))
		return 0;
	free(c);
	return -ENOMEM;
}

/* Everything in a directory of base is wished for in its copy. */
static int wish_children(struct ntr_arun *w, uint64_t base, uint64_t tree)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, &w->base, base, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) > 0) {
		r = wish(w, tree, en.name, en.name_len, en.ino);
		if (r)
			break;
	}
	ntr_dir_iter_done(&it);
	return r;
}

static int restore(struct ntr_arun *w, const struct ntr_restore *x, struct copied **table)
{
	struct ntr_inode in;
	uint32_t nlink;
	int r = ntr_inode_get(&w->base, x->base, &in);

	if (!r)
		r = link_up(w, x, &in, *table);
	if (r)
		return NTR_MIN(r, 0);
	nlink = in.nlink;
	r = enter(w, x, &in);
	if (!r && S_ISDIR(in.mode))
		r = wish_children(w, x->base, in.ino);
	else if (!r && nlink > 1)
		r = remember(table, x->base, &in);
	return r;
}

int ntr_arun_restore(struct ntr_arun *w)
{
	struct copied *table = NULL, *c, *tmp;
	int r = 0;

	for (const struct ntr_restore *x = w->restores; x && !r; x = x->next)
		r = restore(w, x, &table);
	HASH_ITER (hh, table, c, tmp) {
		HASH_DEL(table, c);
		free(c);
	}
	return r;
}

void ntr_arun_restore_done(struct ntr_arun *w)
{
	struct ntr_restore *x;

	while ((x = w->restores)) {
		w->restores = x->next;
		free(x);
	}
	w->restores_tail = NULL;
}
