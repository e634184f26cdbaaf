/* An upper that went through a power failure. Data and names that were not synced may be missing from it: it
 * can be older than head, which was made from it and was synced. What it then holds is taken for newer only
 * where the times say so that only the kernel sets:
 *
 *   - head's records keep every object's ctime as it was when it was absorbed. A file of upper with a later
 * one was changed after the commit.
 *   - A directory's ctime and its listing change together, in one transaction of the filesystem's journal.
 * One with a later ctime than head's therefore has everything that head has, and what is missing there was
 * removed later; one without may lack what head has.
 *   - A name that head has not: it was made later if the object's ctime is later than that of head's
 * directory; else head's commit had removed it.
 *
 * Names are matched by path; what was moved after the commit is found by its birth. */
#include "absorb_impl.h"

#include <errno.h>

static uint64_t nanoseconds(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* What head has under a name of the directory. *ret 0: nothing. */
static int in_head(
        struct ntr_arun *w, const struct ntr_mdir *d, const char *name, size_t n, struct ntr_inode *ret)
{
	uint64_t ino;
	uint8_t dtype;
	int r;

	ret->ino = 0;
	if (!d->tree || d->flags & NTR_MD_FRESH)
		return 0;
	r = ntr_dirent_get(&w->head, d->tree, name, n, &ino, &dtype);
	if (!r)
		r = ntr_inode_get(&w->head, ino, ret);
	if (r)
		ret->ino = 0;
	return r == -ENOENT ? 0 : r;
}

static int in_head_at(struct ntr_arun *w, const struct ntr_aref *f, struct ntr_inode *ret)
{
	return in_head(w, f->dir, ntr_me_name(f->dir, f->at), ntr_aref_entry(f)->name_len, ret);
}

/* A name that head has not, or has for something else. At the same moment as the directory's last change
 * (within a clock tick) it may be either: the directory tells, unless the clock is too coarse even for that.
 */
static bool is_new_name(
        const struct ntr_arun *w, const struct ntr_mdir *d, uint64_t ctime, const struct ntr_inode *had)
{
	uint64_t since = d->since;

	if (had->ino)
		since = NTR_MAX(since, nanoseconds(&had->ctime));
	return ctime > since || (ctime == since && (d->flags & NTR_MD_NEWER || w->memo->coarse));
}

/* Head's state of the entry stands; tree: what that is (0: nothing). */
static void settle(struct ntr_mentry *e, uint64_t tree)
{
	e->flags |= NTR_ME_SAME;
	e->tree = tree;
}

int ntr_arun_gone(struct ntr_arun *w, uint64_t dir, const char *name)
{
	struct ntr_aobj *o;
	int64_t k;

	HASH_FIND(by_tree, w->by_tree, &dir, sizeof dir, o);
	if (!o || !o->dir || !(o->dir->flags & NTR_MD_NEWER))
		return 0;
	k = ntr_mdir_find(o->dir, name, strlen(name), UINT32_MAX);
	if (k < -1)
		return (int)k;
	return k < 0 || o->dir->v[k].flags & NTR_ME_WHITEOUT;
}

static int is_free(struct ntr_arun *w, const struct ntr_aobj *o, const struct ntr_inode *in)
{
	int r;

	if (!in->ino || (in->mode ^ o->mode) & S_IFMT)
		return 0;
	r = ntr_arun_in_use(w, in->ino);
	return r < 0 ? r : !r;
}

/* What head has elsewhere and upper has moved since: the name is gone from where head has it. */
static int find_moved(struct ntr_arun *w, const struct ntr_aobj *o, struct ntr_inode *ret)
{
	uint64_t ino = ntr_arun_born(w, o);
	int r;

	ret->ino = 0;
	if (!ino)
		return 0;
	r = ntr_inode_get(&w->head, ino, ret);
	if (!r)
		r = is_free(w, o, ret);
	if (r > 0)
		r = ntr_arun_gone(w, ret->parent, ret->name);
	if (r <= 0)
		ret->ino = 0;
	return r == -ENOENT ? 0 : NTR_MIN(r, 0);
}

/* ---- directories ---- */

static int read_layers(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_inode under = {.ino = 0};
	struct ntr_mdir *d = o->dir;
	int r = ntr_aobj_marks(w, o);

	if (r)
		return r;
	d->flags &= (uint8_t) ~(NTR_MD_OPAQUE | NTR_MD_XWHITEOUT);
	if (o->marks.flags & NTR_MARK_XWHITEOUT)
		d->flags |= NTR_MD_XWHITEOUT;
	if (o->marks.flags & NTR_MARK_OPAQUE)
		d->flags |= NTR_MD_OPAQUE;
	else if (o->ref.dir)
		r = ntr_aobj_beneath(w, o, &under);
	d->base = o->ref.dir ? under.ino : d->base;
	return r;
}

/* The directory is what head has as `in`. */
static int be_dir(struct ntr_arun *w, struct ntr_aobj *o, const struct ntr_inode *in)
{
	int r = o->tree == in->ino ? 0 : ntr_aobj_take(w, o, in->ino);

	o->flags &= ~(unsigned)NTR_AO_UNDECIDED;
	o->dir->tree = in->ino;
	o->dir->since = nanoseconds(&in->ctime);
	if (o->st.ctime > o->dir->since)
		o->dir->flags |= NTR_MD_NEWER | NTR_MD_COMPARE;
	else
		o->flags |= NTR_AO_SAME;
	return r;
}

static int be_new_dir(struct ntr_arun *w, struct ntr_aobj *o)
{
	int r = ntr_aobj_fresh(w, o);

	o->flags &= ~(unsigned)NTR_AO_UNDECIDED;
	o->dir->tree = o->tree;
	return r;
}

static int decide_root(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_inode in;
	int r = ntr_inode_get(&w->head, NTR_INO_ROOT, &in);

	if (!r)
		r = ntr_aobj_take(w, o, NTR_INO_ROOT);
	if (!r)
		r = be_dir(w, o, &in);
	/* It was given its attributes before the record named it: they are nobody's change. */
	if (!r && o->st.ctime <= w->newer->upper_ns)
		o->flags |= NTR_AO_SAME;
	return r;
}

static int decide_in_place(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_mdir *parent = o->ref.dir;
	struct ntr_inode in;
	int r = in_head_at(w, &o->ref, &in);

	if (!r)
		r = is_free(w, o, &in);
	if (r < 0)
		return r;
	if (!r) {
		o->flags |= NTR_AO_UNDECIDED;
		o->dir->since = parent->since;
		return 0;
	}
	r = be_dir(w, o, &in);
	settle(&parent->v[o->ref.at], in.ino);
	return r;
}

/* What is not where head has it: moved here, or made, after the commit; or head's commit had removed it. */
static int decide_elsewhere(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_mdir *parent = o->ref.dir;
	struct ntr_inode had, in = {.ino = 0};
	int r = decide_in_place(w, o); /* the parent may be known now */

	if (r || !(o->flags & NTR_AO_UNDECIDED))
		return r;
	r = in_head_at(w, &o->ref, &had);
	if (r)
		return r;
	o->dir->since = parent->since;
	if (!is_new_name(w, parent, o->st.ctime, &had))
		return 0; /* only made if something in it is newer */
	r = find_moved(w, o, &in);
	if (!r && in.ino)
		r = be_dir(w, o, &in);
	else if (!r)
		r = be_new_dir(w, o);
	if (r)
		return r;
	if (o->flags & NTR_AO_FRESH) {
		o->dir->since = 0;
		o->dir->flags |= NTR_MD_NEWER;
		if (o->dir->base)
			o->dir->flags |= NTR_MD_COMPARE;
	}
	o->flags &= ~(unsigned)NTR_AO_SAME; /* its name is to be entered, whatever its state */
	o->dir->flags |= NTR_MD_NEEDED;
	parent->v[o->ref.at].tree = o->tree;
	return 0;
}

static int decide_dirs(struct ntr_arun *w)
{
	struct ntr_aobj *o;
	int r = 0;

	TAILQ_FOREACH (o, &w->objs, link) {
		if (!o->dir)
			continue;
		r = read_layers(w, o);
		if (!r)
			r = o->ref.dir ? decide_in_place(w, o) : decide_root(w, o);
		if (r)
			return ntr_aobj_fail(w, o, r);
	}
	TAILQ_FOREACH (o, &w->objs, link)
		if (o->flags & NTR_AO_UNDECIDED && (r = decide_elsewhere(w, o)))
			return ntr_aobj_fail(w, o, r);
	return 0;
}

/* Directories that head has not, for what is newer in them; the others are left out. */
static int make_needed(struct ntr_arun *w)
{
	struct ntr_aobj *o;

	for (struct ntr_mdir *d = w->tree->root; d; d = d->next)
		if (d->flags & NTR_MD_NEEDED)
			for (struct ntr_mdir *p = d->parent; p && !(p->flags & NTR_MD_NEEDED); p = p->parent)
				p->flags |= NTR_MD_NEEDED;
	TAILQ_FOREACH (o, &w->objs, link) {
		int r = 0;

		if (!(o->flags & NTR_AO_UNDECIDED))
			continue;
		if (o->dir->flags & NTR_MD_NEEDED)
			r = be_new_dir(w, o);
		if (r)
			return ntr_aobj_fail(w, o, r);
		if (o->tree)
			o->ref.dir->v[o->ref.at].tree = o->tree;
		else
			settle(&o->ref.dir->v[o->ref.at], 0);
	}
	return 0;
}

/* ---- everything else ---- */

/* A file that a mark makes a whiteout (in directories with opaque=x only). */
static int note_whiteout(struct ntr_arun *w, struct ntr_aobj *o)
{
	int r;

	if (!S_ISREG(o->mode) || !(o->ref.dir->flags & NTR_MD_XWHITEOUT))
		return 0;
	r = ntr_aobj_marks(w, o);
	if (r || !(o->marks.flags & NTR_MARK_WHITEOUT))
		return r;
	for (struct ntr_aref *f = &o->ref; f; f = f->next)
		f->dir->v[f->at].flags |= NTR_ME_WHITEOUT;
	o->ref.place = NTR_PLACE_NONE;
	return 1;
}

static void decide_whiteouts(struct ntr_mdir *d)
{
	for (uint32_t i = 0; i < d->n; i++) {
		struct ntr_mentry *e = &d->v[i];

		if (!(e->flags & NTR_ME_WHITEOUT))
			continue;
		e->tree = 0;
		if (!(d->flags & NTR_MD_NEWER))
			e->flags |= NTR_ME_SAME;
	}
}

/* Which of head's inodes the object is: the one under one of its names, best one born at the same moment. */
static int find_self(struct ntr_arun *w, const struct ntr_aobj *o, struct ntr_inode *ret)
{
	struct ntr_inode in;

	ret->ino = 0;
	for (const struct ntr_aref *f = &o->ref; f; f = f->next) {
		int r = in_head_at(w, f, &in);
		bool born;

		if (!r)
			r = is_free(w, o, &in);
		if (r < 0)
			return r;
		born = r && o->st.btime == nanoseconds(&in.btime);
		if (r && (!ret->ino || born))
			*ret = in;
		if (born)
			return 0;
	}
	return ret->ino ? 0 : find_moved(w, o, ret);
}

/* Takes the references off that head knows better; the number of those that are left. */
static int prune(struct ntr_arun *w, struct ntr_aobj *o, const struct ntr_inode *self, bool newer)
{
	struct ntr_aref *list = NULL, **tail = &list, *next;
	int n = 0, r = 0;

	for (struct ntr_aref *f = &o->ref; f; f = next) {
		struct ntr_inode had;
		bool take;
		int r2 = in_head_at(w, f, &had);

		next = f->next;
		r = r ? r : r2;
		if (self->ino && had.ino == self->ino)
			take = newer;
		else
			take = is_new_name(w, f->dir, o->st.ctime, &had);
		if (r || !take) {
			settle(&f->dir->v[f->at], had.ino);
			if (f != &o->ref)
				free(f);
			continue;
		}
		n++;
		for (struct ntr_mdir *d = f->dir; d && !(d->flags & NTR_MD_NEEDED); d = d->parent)
			d->flags |= NTR_MD_NEEDED;
		if (f == &o->ref) {
			f = malloc(sizeof *f);
			if (!f)
				return -ENOMEM;
			*f = o->ref;
		}
		f->next = NULL;
		*tail = f;
		tail = &f->next;
	}
	if (list) {
		o->ref = *list;
		free(list);
	} else {
		o->ref.next = NULL;
	}
	return r ? r : n;
}

/* Content, of an object that is taken. */
static int decide_content(struct ntr_arun *w, struct ntr_aobj *o, const struct ntr_inode *self)
{
	struct ntr_inode under;
	int r = ntr_aobj_marks(w, o);

	if (r || !S_ISREG(o->mode))
		return r;
	if (o->marks.flags & NTR_MARK_METACOPY) {
		/* Its content was never changed. */
		if (self->ino) {
			o->flags |= NTR_AO_KEEP;
			return 0;
		}
		r = ntr_aobj_beneath(w, o, &under);
		o->data_of = under.ino;
		return r;
	}
	r = self->ino ? ntr_arun_lost(w, o, self) : 0;
	if (r < 0)
		return r;
	o->flags |= r ? NTR_AO_KEEP : NTR_AO_CONTENT;
	w->files += !r;
	return 0;
}

static int decide_object(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_inode self;
	bool newer = true;
	int r = note_whiteout(w, o);

	if (r)
		return NTR_MIN(r, 0);
	r = find_self(w, o, &self);
	if (r)
		return r;
	if (self.ino) {
		uint64_t was = nanoseconds(&self.ctime);

		newer = o->st.ctime > was || (o->st.ctime == was && w->memo->coarse);
	}
	r = prune(w, o, &self, newer);
	if (r <= 0)
		return r;
	r = self.ino ? ntr_aobj_take(w, o, self.ino) : ntr_aobj_fresh(w, o);
	for (struct ntr_aref *f = &o->ref; f && !r; f = f->next)
		f->dir->v[f->at].tree = o->tree;
	if (r || newer)
		return r ? r : decide_content(w, o, &self);
	o->flags |= NTR_AO_SAME; /* another name of what stays as head has it */
	return 0;
}

int ntr_arun_identify_newer(struct ntr_arun *w)
{
	struct ntr_aobj *o;
	int r = decide_dirs(w);

	if (r)
		return r;
	TAILQ_FOREACH (o, &w->objs, link)
		if (!o->dir && (r = decide_object(w, o)))
			return ntr_aobj_fail(w, o, r);
	for (struct ntr_mdir *d = w->tree->root; d; d = d->next)
		decide_whiteouts(d);
	return make_needed(w);
}

/* A directory of head's that changed later: what upper has not, and no lower directory shows, was removed. */
int ntr_arun_compare_newer(struct ntr_arun *w, struct ntr_mdir *d)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, &w->head, d->tree, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) > 0) {
		int64_t k = ntr_mdir_find(d, en.name, en.name_len, UINT32_MAX);
		uint64_t ino;
		uint8_t dtype;

		r = k < -1 ? (int)k : 0;
		if (k >= 0 || r)
			goto next;
		r = d->base ? ntr_dirent_get(&w->base, d->base, en.name, en.name_len, &ino, &dtype) : -ENOENT;
		if (r != -ENOENT)
			goto next;
		r = ntr_dirent_get(ntr_txn_snap(w->txn), d->tree, en.name, en.name_len, &ino, &dtype);
		if (!r) {
			w->changed = true;
			d->flags |= NTR_MD_LISTED;
			r = ntr_name_remove(w->txn, d->tree, en.name, NULL);
		} else if (r == -ENOENT) { /* moved off already */
			r = 0;
		}
	next:
		if (r < 0)
			break;
	}
	ntr_dir_iter_done(&it);
	return NTR_MIN(r, 0);
}
