/* Identity: which inode of the tree every object of upper is.
 *
 * What the memo has seen keeps its inode wherever it went. Of the rest, an object is what head has in its
 * place when overlayfs says that it was copied up from there (`origin`; a merged directory; `metacopy`), or
 * when it was born at the moment that head's record tells; a redirect names the place it came from, and our
 * own mark the inode that was copied (init_rename_move.c); symlinks and special files have no redirect
 * (absorb_moved.c). All else is new. A file with several names in the
 * commit loses the one that is written to: overlayfs then gives no `origin`, and neither do we take one. No
 * two objects of upper are ever one inode. */
#include "absorb_impl.h"

#include <dirent.h>
#include <errno.h>

static int use_build(struct ntr_arun *w)
{
	size_t n = 0, i = 0;

	for (const struct ntr_mdir *d = w->tree->root; d; d = d->next)
		n += d->n;
	w->used_mem = malloc((n + 1) * sizeof *w->used_mem);
	if (!w->used_mem)
		return -ENOMEM;
	for (const struct ntr_mdir *d = w->tree->root; d; d = d->next)
		for (uint32_t k = 0; k < d->n; k++) {
			struct ntr_tree_use *u = &w->used_mem[i], *other;

			if (!(d->v[k].flags & NTR_ME_SAME) || !d->v[k].tree)
				continue;
			u->tree = d->v[k].tree;
			HASH_FIND(hh, w->used, &u->tree, sizeof u->tree, other);
			if (!other) {
				HASH_ADD(hh, w->used, tree, sizeof u->tree, u);
				if (!ntr_hashed(hh, u))
					return -ENOMEM;
				i++;
			}
		}
	return 0;
}

int ntr_arun_in_use(struct ntr_arun *w, uint64_t tree)
{
	struct ntr_tree_use *u;
	struct ntr_aobj *o;
	int r = w->used_mem ? 0 : use_build(w);

	if (r)
		return r;
	HASH_FIND(by_tree, w->by_tree, &tree, sizeof tree, o);
	HASH_FIND(hh, w->used, &tree, sizeof tree, u);
	return o || u || tree == NTR_INO_ROOT;
}

int ntr_aobj_take(struct ntr_arun *w, struct ntr_aobj *o, uint64_t tree)
{
	o->tree = tree;
	HASH_ADD(by_tree, w->by_tree, tree, sizeof o->tree, o);
	return ntr_hashed(by_tree, o) ? 0 : -ENOMEM;
}

/* 1: taken. 0: it is somebody else, or not in head. */
static int try_take(struct ntr_arun *w, struct ntr_aobj *o, uint64_t tree)
{
	struct ntr_inode in;
	int r = ntr_arun_in_use(w, tree);

	if (r)
		return r < 0 ? r : 0;
	r = ntr_inode_get(&w->head, tree, &in);
	if (r || (in.mode ^ o->mode) & S_IFMT)
		return r == -ENOENT ? 0 : r;
	r = ntr_aobj_take(w, o, tree);
	return r ? r : 1;
}

/* The inode that base has under name in dir: 0 or -ENOENT. */
static int base_name(struct ntr_arun *w, uint64_t dir, const char *name, size_t n, uint64_t *ret)
{
	uint8_t dtype;

	return dir ? ntr_dirent_get(&w->base, dir, name, n, ret, &dtype) : -ENOENT;
}

/* What of the lower tree lies beneath an object: by its redirect ("/from/the/root" or a name in the same
 * parent), else by its name. *ret 0: nothing of the same type does. */
int ntr_aobj_beneath(struct ntr_arun *w, const struct ntr_aobj *o, struct ntr_inode *ret)
{
	const char *to = o->marks.redirect;
	uint64_t ino;
	int r;

	if (to && to[0] != '/' && !o->dir && !(o->marks.flags & NTR_MARK_METACOPY))
		to = NULL; /* see redirect_holds */
	ret->ino = 0;
	if (to && to[0] == '/')
		r = ntr_path_lookup(&w->base, to, &ino);
	else if (to)
		r = base_name(w, o->ref.dir->base, to, strlen(to), &ino);
	else
		r = base_name(w, o->ref.dir->base, ntr_aobj_name(o), strlen(ntr_aobj_name(o)), &ino);
	if (!r)
		r = ntr_inode_get(&w->base, ino, ret);
	if (!r && (ret->mode ^ o->mode) & S_IFMT)
		ret->ino = 0;
	if (r == -ENOENT || r == -ENOTDIR || r == -ENAMETOOLONG || r == -EINVAL) {
		ret->ino = 0;
		r = 0;
	}
	return r;
}

/* Does what lies beneath a file by its redirect tell who it is? Metacopy files have theirs kept up to date;
 * of others only a path still holds: a name means the parent that the file had when it got it. */
static bool redirect_holds(const struct ntr_aobj *o)
{
	if (o->marks.flags & NTR_MARK_METACOPY)
		return true;
	return o->marks.flags & NTR_MARK_ORIGIN && o->marks.redirect && o->marks.redirect[0] == '/';
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Has head the object under all its names, and no other? */
static int has_same_names(struct ntr_arun *w, const struct ntr_aobj *o, const struct ntr_inode *in)
{
	uint32_t n = 0;

	for (const struct ntr_aref *f = &o->ref; f; f = f->next, n++) {
		const struct ntr_mentry *e = ntr_aref_entry(f);
		uint64_t ino = 0;
		uint8_t dtype;
		int r = ntr_dirent_get(
		        &w->head, f->dir->tree, ntr_me_name(f->dir, f->at), e->name_len, &ino, &dtype);

		if (r || ino != in->ino)
			return r == -ENOENT ? 0 : r;
	}
	return n == in->nlink;
}

/* Without a memo, an object that equals head's in every attribute is head's. */
static int looks_like(struct ntr_arun *w, const struct ntr_aobj *o, const struct ntr_inode *in)
{
	if (!w->full || o->dir || o->mode != in->mode || o->rdev != in->rdev || o->st.size != in->size ||
	        !same_time(&o->mtime, &in->mtime))
		return 0;
	return has_same_names(w, o, in);
}

/* Marks that cannot be put on symlinks and special files in a user's mount: there, one that is what the
 * commit has in its place counts as copied up. */
static bool markless_copy(const struct ntr_arun *w, const struct ntr_aobj *o, const struct ntr_inode *in)
{
	return w->memo->userxattr && !S_ISREG(o->mode) && !S_ISDIR(o->mode) && o->rdev == in->rdev &&
	       o->st.size == in->size;
}

/* An object of base that still shows where base has it cannot be one of upper as well. */
static int is_covered(struct ntr_arun *w, const struct ntr_inode *was)
{
	uint64_t dir;
	int r = ntr_arun_shows(w, was->parent, was->name, &dir);

	return r < 0 ? r : !r;
}

/* Is the object what head has in its place? `under`: what base has beneath it. */
static int is_in_place(struct ntr_arun *w, struct ntr_aobj *o, const struct ntr_inode *in, uint64_t under)
{
	struct ntr_inode was;
	int r;

	if (o->st.btime && same_time(&o->btime, &in->btime))
		return 1;
	r = ntr_inode_get(&w->base, in->ino, &was);
	if (r)
		return r == -ENOENT ? looks_like(w, o, in) : r;
	if (w->full && under != in->ino && (r = is_covered(w, &was)) <= 0)
		return r;
	if (was.nlink == 1 && (w->full || under == in->ino)) {
		if (o->marks.flags & NTR_MARK_ORIGIN || (under == in->ino && markless_copy(w, o, &was)))
			return 1;
	}
	return looks_like(w, o, in);
}

/* Head's object under one of the object's names. */
static int try_place(struct ntr_arun *w, struct ntr_aobj *o, const struct ntr_aref *f, uint64_t under)
{
	const struct ntr_mentry *e = ntr_aref_entry(f);
	struct ntr_inode in;
	uint8_t dtype;
	uint64_t ino;
	int64_t i;
	int r;

	if (f->dir->flags & NTR_MD_FRESH)
		return 0;
	/* Where upper had another object, head's was that one's: this one came in its place. */
	i = f->dir->old ? ntr_mdir_find(f->dir->old, ntr_me_name(f->dir, f->at), e->name_len, UINT32_MAX)
	                : -1;
	if (i < -1 || i >= 0)
		return i < -1 ? (int)i : 0;
	r = ntr_dirent_get(&w->head, f->dir->tree, ntr_me_name(f->dir, f->at), e->name_len, &ino, &dtype);
	if (!r)
		r = ntr_inode_get(&w->head, ino, &in);
	if (r || (in.mode ^ o->mode) & S_IFMT)
		return r == -ENOENT ? 0 : r;
	r = is_in_place(w, o, &in, under);
	return r > 0 ? try_take(w, o, ino) : r;
}

static int try_places(struct ntr_arun *w, struct ntr_aobj *o, uint64_t under)
{
	int r = 0;

	for (const struct ntr_aref *f = &o->ref; f && !r; f = f->next)
		r = try_place(w, o, f, under);
	return r;
}

int ntr_aobj_fresh(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_inode in;
	int r = ntr_inode_new(w->txn, o->mode, &in);

	if (r)
		return r;
	o->flags |= NTR_AO_FRESH;
	if (o->dir)
		o->dir->flags |= NTR_MD_FRESH;
	return ntr_aobj_take(w, o, in.ino);
}

/* By birth, anywhere in head (only without a memo). */
static int try_born(struct ntr_arun *w, struct ntr_aobj *o)
{
	uint64_t ino = ntr_arun_born(w, o);

	return ino ? try_take(w, o, ino) : 0;
}

/* What overlayfs tells without a doubt. */
static int identify_sure(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_inode under;
	int r;

	if (o->flags & NTR_AO_KNOWN && !(o->marks.flags & NTR_MARK_METACOPY))
		return 0;
	if (o->marks.was && !o->tree && (r = try_take(w, o, o->marks.was)))
		return NTR_MIN(r, 0);
	r = ntr_aobj_beneath(w, o, &under);
	o->under = under.ino;
	if (r || !redirect_holds(o))
		return r;
	if (o->marks.flags & NTR_MARK_METACOPY)
		o->data_of = under.ino;
	if (under.ino && under.nlink == 1 && !o->tree)
		r = try_take(w, o, under.ino);
	return NTR_MIN(r, 0);
}

/* What is likely, or new. */
static int identify_rest(struct ntr_arun *w, struct ntr_aobj *o)
{
	int r = try_places(w, o, o->under);

	if (!r)
		r = try_born(w, o);
	return r ? NTR_MIN(r, 0) : ntr_aobj_fresh(w, o);
}

/* How a directory lies over the lower tree. */
static int identify_dir(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_mdir *d = o->dir;
	struct ntr_inode under = {.ino = 0};
	int r = 0;

	d->flags &= (uint8_t) ~(NTR_MD_OPAQUE | NTR_MD_XWHITEOUT);
	if (o->marks.flags & NTR_MARK_OPAQUE)
		d->flags |= NTR_MD_OPAQUE;
	else
		r = ntr_aobj_beneath(w, o, &under);
	if (o->marks.flags & NTR_MARK_XWHITEOUT)
		d->flags |= NTR_MD_XWHITEOUT;
	d->base = under.ino;
	if (r || o->flags & NTR_AO_KNOWN)
		return r;
	if (o->marks.was)
		r = try_take(w, o, o->marks.was);
	if (!r && d->base)
		r = try_take(w, o, d->base);
	if (!r)
		r = try_places(w, o, d->base);
	if (!r)
		r = try_born(w, o);
	if (!r)
		r = ntr_aobj_fresh(w, o);
	return NTR_MIN(r, 0);
}

/* Whose listing has to be compared whole: what the memo cannot tell. A directory copied up for the first time
 * is, but for the names upper has, as base and head have it both. */
static void decide_compare(const struct ntr_arun *w, const struct ntr_aobj *o, uint64_t old_base)
{
	struct ntr_mdir *d = o->dir;
	bool whole = w->full;

	if (o->flags & NTR_AO_KNOWN)
		whole = whole || d->base != old_base;
	else if (!(o->flags & NTR_AO_FRESH))
		whole = whole || o->tree != d->base;
	else
		whole = whole || d->base;
	if (whole)
		d->flags |= NTR_MD_COMPARE;
}

/* A file that a mark makes a whiteout (in directories with opaque=x only). */
static bool becomes_whiteout(const struct ntr_aobj *o)
{
	return S_ISREG(o->mode) && o->marks.flags & NTR_MARK_WHITEOUT && o->ref.dir->flags & NTR_MD_XWHITEOUT;
}

static void whiteout(struct ntr_aobj *o)
{
	for (struct ntr_aref *f = &o->ref; f; f = f->next) {
		struct ntr_mentry *e = &f->dir->v[f->at];

		e->flags |= NTR_ME_WHITEOUT;
		e->tree = 0;
	}
	o->tree = 0;
	o->ref.place = NTR_PLACE_NONE;
}

static void publish(struct ntr_aobj *o)
{
	if (o->dir)
		o->dir->tree = o->tree;
	for (struct ntr_aref *f = &o->ref; f && f->dir; f = f->next)
		f->dir->v[f->at].tree = o->tree;
}

static int identify_one_dir(struct ntr_arun *w, struct ntr_aobj *o)
{
	uint64_t old_base = o->dir->base;
	int r = 0;

	if (o->flags & NTR_AO_SAME)
		return 0;
	r = ntr_aobj_marks(w, o);
	if (r)
		return r;
	if (!o->ref.dir) { /* upper itself */
		if (w->full)
			o->dir->flags |= NTR_MD_COMPARE;
		return 0;
	}
	r = identify_dir(w, o);
	if (r)
		return ntr_aobj_fail(w, o, r);
	decide_compare(w, o, old_base);
	return 0;
}

static int identify_surely(struct ntr_arun *w, struct ntr_aobj *o)
{
	int r;

	if (o->flags & NTR_AO_SAME)
		return 0;
	r = ntr_aobj_marks(w, o);
	if (r)
		return r;
	if (becomes_whiteout(o)) {
		whiteout(o);
		return 0;
	}
	r = identify_sure(w, o);
	if (r)
		return ntr_aobj_fail(w, o, r);
	if (S_ISREG(o->mode) && !(o->marks.flags & NTR_MARK_METACOPY)) {
		o->flags |= NTR_AO_CONTENT;
		if (ntr_early_of(w->memo, o))
			o->flags |= NTR_AO_EARLY;
		else
			w->files++;
	}
	return 0;
}

int ntr_arun_identify(struct ntr_arun *w)
{
	struct ntr_aobj *o;
	int r;

	/* What the memo knows first, so that nothing else takes its inode. */
	TAILQ_FOREACH (o, &w->objs, link)
		if (o->flags & NTR_AO_KNOWN) {
			r = ntr_aobj_take(w, o, o->tree);
			if (r)
				return r;
		}
	/* Directories, parents first; then what is in them, which may have names in several: the sure before
	 * the likely. */
	TAILQ_FOREACH (o, &w->objs, link)
		if (o->dir) {
			r = identify_one_dir(w, o);
			if (r)
				return r;
			publish(o);
		}
	r = w->full ? ntr_arun_bases(w) : 0;
	if (r)
		return r;
	TAILQ_FOREACH (o, &w->objs, link)
		if (!o->dir && (r = identify_surely(w, o)))
			return r;
	r = ntr_arun_moved(w);
	if (r)
		return r;
	TAILQ_FOREACH (o, &w->objs, link) {
		if (o->dir || o->ref.place == NTR_PLACE_NONE)
			continue;
		r = o->tree ? 0 : identify_rest(w, o);
		if (r)
			return ntr_aobj_fail(w, o, r);
		publish(o);
	}
	return 0;
}
