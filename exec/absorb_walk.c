/* The walk: reads all of upper into a new tree, and notes every entry that the memo does not know to be
 * unchanged as an object. Directories wait on a list, depth first: upper may be deeper than any stack. */
#include "absorb_impl.h"

#include <errno.h>
#include <sys/sysmacros.h>

/* A clock tick, at most (HZ=100): what kernels without fine timestamps may fail to tell apart. */
#define TICK_NS UINT64_C(10000000)

struct walker {
	struct ntr_arun *w;
	struct ntr_mdir *d;
	struct ntr_mdir **stack;
	size_t n, cap;
	uint32_t expect; /* entry of the old directory that should come next */
};

static struct timespec timespec_of(const struct statx_timestamp *t)
{
	return (struct timespec){.tv_sec = t->tv_sec, .tv_nsec = t->tv_nsec};
}

static void give_lent_mode(struct ntr_aobj *o)
{
	if (o->marks.lent)
		o->mode = (o->mode & S_IFMT) | o->marks.mode;
}

void ntr_aobj_stat(struct ntr_aobj *o, const struct statx *sx)
{
	o->st = ntr_mstat_of(sx);
	o->mode = sx->stx_mode;
	o->uid = sx->stx_uid;
	o->gid = sx->stx_gid;
	o->nlink = sx->stx_nlink;
	o->rdev = makedev(sx->stx_rdev_major, sx->stx_rdev_minor);
	o->blocks = sx->stx_blocks;
	o->atime = timespec_of(&sx->stx_atime);
	o->mtime = timespec_of(&sx->stx_mtime);
	o->ctime = timespec_of(&sx->stx_ctime);
	o->btime = sx->stx_mask & STATX_BTIME ? timespec_of(&sx->stx_btime) : o->mtime;
	give_lent_mode(o);
}

int ntr_arun_fail(struct ntr_arun *w, const struct ntr_mdir *d, const char *name, int r)
{
	char path[512];

	ntr_err_default(w->e, r, "absorb '%s'", ntr_mdir_path(d, name, path, sizeof path));
	return r;
}

int ntr_aobj_fail(struct ntr_arun *w, const struct ntr_aobj *o, int r)
{
	return ntr_arun_fail(
	        w, o->ref.dir ? o->ref.dir : w->tree->root, o->ref.dir ? ntr_aobj_name(o) : NULL, r);
}

void ntr_aobj_set_entries(struct ntr_arun *w, struct ntr_aobj *o)
{
	bool doubt = (o->flags & NTR_AO_RACY) || (w->memo->coarse && o->st.ctime + TICK_NS >= w->now);

	if (o->dir) {
		o->dir->st = o->st;
		return;
	}
	for (struct ntr_aref *f = &o->ref; f; f = f->next) {
		struct ntr_mentry *e = &f->dir->v[f->at];

		e->st = o->st;
		e->flags &= (uint8_t)~NTR_ME_UNTRUSTED;
		if (doubt)
			e->flags |= NTR_ME_UNTRUSTED;
	}
}

int ntr_aobj_restat(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct statx sx;
	int fd, r = ntr_dirs_get(&w->dirs, o->ref.dir, &fd);

	if (!r)
		r = ntr_statx_at(fd, ntr_aobj_name(o), &sx);
	if (!r && sx.stx_ino != o->st.ino)
		r = -ESTALE;
	if (r)
		return r;
	ntr_aobj_stat(o, &sx);
	ntr_aobj_set_entries(w, o);
	return 0;
}

int ntr_aobj_marks(struct ntr_arun *w, struct ntr_aobj *o)
{
	const char *name = o->ref.dir ? ntr_aobj_name(o) : "";
	bool touched = false;
	int fd = w->memo->fd, r = 0;

	if (o->flags & NTR_AO_MARKS)
		return 0;
	if (o->ref.dir)
		r = ntr_dirs_get(&w->dirs, o->ref.dir, &fd);
	if (!r)
		r = ntr_dirs_marks(&w->dirs, fd, name, w->memo->userxattr, &o->marks, &touched);
	if (!r && touched)
		r = ntr_aobj_restat(w, o);
	if (r)
		return ntr_aobj_fail(w, o, r);
	o->marks.lent = w->lent && ntr_lent_find(w->memo->beside, o->st.ino, o->mode, &o->marks.mode);
	give_lent_mode(o);
	ntr_marks_unlent(&o->marks, o->mode);
	o->flags |= NTR_AO_MARKS;
	if (o->dir)
		o->dir->xhash = ntr_marks_hash(&o->marks);
	return 0;
}

int ntr_memo_root_marks(struct ntr_memo *m)
{
	struct ntr_marks marks;
	struct ntr_dirs dirs;
	int r;

	ntr_dirs_init(&dirs, m, m->cur->root);
	r = ntr_marks_read(m->fd, "", m->userxattr, &marks);
	ntr_dirs_done(&dirs);
	if (r)
		return r;
	if (dirs.root_restore != UINT32_MAX)
		ntr_marks_unlent(&marks, dirs.root_restore);
	m->cur->root->xhash = ntr_marks_hash(&marks);
	ntr_marks_done(&marks);
	return 0;
}

static int push(struct walker *k, struct ntr_mdir *d)
{
	if (k->n == k->cap) {
		size_t cap = k->cap ? k->cap * 2 : 64;
		void *p = realloc(k->stack, cap * sizeof *k->stack);

		if (!p) {
			free(d);
			return -ENOMEM;
		}
		k->stack = p;
		k->cap = cap;
	}
	k->stack[k->n++] = d;
	return 0;
}

static void set_dir(struct ntr_mdir *d, const struct statx *sx)
{
	d->st = ntr_mstat_of(sx);
	d->mode = sx->stx_mode;
	d->uid = sx->stx_uid;
	d->gid = sx->stx_gid;
}

/* What the memo knows of a directory; its marks are looked at again where its ctime moved. */
static void copy_dir(struct ntr_mdir *d, struct ntr_mdir *old)
{
	d->old = old;
	old->flags |= NTR_MD_VISITED;
	d->tree = old->tree;
	d->base = old->base;
	d->xhash = old->xhash;
	d->flags |= old->flags & (NTR_MD_OPAQUE | NTR_MD_XWHITEOUT | NTR_MD_PENDING);
}

static struct ntr_aobj *object_new(struct ntr_arun *w, const struct statx *sx)
{
	struct ntr_aobj *o = calloc(1, sizeof *o);

	if (!o)
		return NULL;
	ntr_aobj_stat(o, sx);
	TAILQ_INSERT_TAIL(&w->objs, o, link);
	return o;
}

/* The object of an entry: one per upper inode, however many names it has. */
static struct ntr_aobj *object_of(struct ntr_arun *w, const struct statx *sx, struct ntr_mdir *d, uint32_t at)
{
	struct ntr_aobj *o = NULL;
	struct ntr_aref *f;
	bool many = sx->stx_nlink > 1 && !S_ISDIR(sx->stx_mode);

	if (many)
		HASH_FIND(by_upper, w->by_upper, &sx->stx_ino, sizeof sx->stx_ino, o);
	if (o) {
		f = calloc(1, sizeof *f);
		if (!f)
			return NULL;
		*f = (struct ntr_aref){.dir = d, .at = at, .next = o->ref.next};
		o->ref.next = f;
		return o;
	}
	o = object_new(w, sx);
	if (!o)
		return NULL;
	o->ref = (struct ntr_aref){.dir = d, .at = at};
	if (many) {
		HASH_ADD(by_upper, w->by_upper, st.ino, sizeof o->st.ino, o);
		if (!ntr_hashed(by_upper, o))
			return NULL;
	}
	return o;
}

static bool unchanged(const struct ntr_mentry *oe, const struct ntr_mstat *st)
{
	if (oe->flags & NTR_ME_UNTRUSTED)
		return false;
	return oe->dir ? oe->dir->st.ctime == st->ctime : ntr_mstat_same(&oe->st, st);
}

static void mark_seen(struct ntr_mdir *old, struct ntr_mentry *oe)
{
	oe->flags |= NTR_ME_SEEN;
	old->seen++;
}

static int enter(struct walker *k, struct ntr_mentry *e, struct ntr_mentry *oe, const struct statx *sx)
{
	struct ntr_arun *w = k->w;
	bool known = oe && !(oe->flags & NTR_ME_WHITEOUT) && ntr_mstat_same_object(&oe->st, &e->st);
	uint32_t at = (uint32_t)(e - k->d->v);
	bool same = known && unchanged(oe, &e->st);
	struct ntr_aobj *o;

	if (S_ISDIR(sx->stx_mode)) {
		e->flags |= NTR_ME_DIR;
		e->dir = ntr_mdir_new(k->d, at);
		if (!e->dir || push(k, e->dir))
			return -ENOMEM;
		set_dir(e->dir, sx);
		if (known)
			copy_dir(e->dir, oe->dir);
	}
	if (known) {
		e->tree = oe->tree;
		mark_seen(k->d->old, oe);
		if (same)
			e->flags |= NTR_ME_SAME;
		/* A file may have another name in a directory that moved, which says nothing of itself. */
		if (same && (e->dir || sx->stx_nlink == 1))
			return 0;
	}
	o = object_of(w, sx, k->d, at);
	if (!o)
		return -ENOMEM;
	o->dir = e->dir;
	if (known) {
		o->flags |= same ? NTR_AO_KNOWN | NTR_AO_SAME : NTR_AO_KNOWN;
		o->tree = oe->tree;
	}
	return 0;
}

/* A whiteout, or a file that the memo knows to be one by its mark. */
static bool is_whiteout(const struct statx *sx, const struct ntr_mentry *oe, const struct ntr_mstat *st)
{
	return ntr_is_whiteout(sx) || (oe && oe->flags & NTR_ME_WHITEOUT && ntr_mstat_same(&oe->st, st));
}

static int find_old(struct walker *k, const char *name, size_t n, struct ntr_mentry **ret)
{
	int64_t i = k->d->old ? ntr_mdir_find(k->d->old, name, n, k->expect) : -1;

	*ret = NULL;
	if (i < -1)
		return (int)i;
	if (i >= 0) {
		*ret = &k->d->old->v[i];
		k->expect = (uint32_t)i + 1;
	}
	return 0;
}

static int walk_entry(void *user, int fd, const char *name, size_t n)
{
	struct walker *k = user;
	struct ntr_arun *w = k->w;
	struct ntr_mentry *e, *oe;
	struct statx sx;
	int r = ntr_statx_at(fd, name, &sx);

	if (r == -ENOENT) /* gone since it was listed */
		return 0;
	if (!r && (sx.stx_dev_major != w->memo->dev_major || sx.stx_dev_minor != w->memo->dev_minor))
		r = -EXDEV;
	if (!r)
		r = find_old(k, name, n, &oe);
	if (!r)
		r = ntr_mdir_add(k->d, name, n, &e);
	if (r)
		return ntr_arun_fail(w, k->d, name, r);
	w->tree->entries++;
	e->st = ntr_mstat_of(&sx);
	if (!is_whiteout(&sx, oe, &e->st)) {
		if (S_ISREG(sx.stx_mode))
			w->tree->bytes += NTR_MIN((uint64_t)sx.stx_size, sx.stx_blocks * UINT64_C(512));
		return enter(k, e, oe, &sx);
	}
	e->flags |= NTR_ME_WHITEOUT;
	if (oe && oe->flags & NTR_ME_WHITEOUT) {
		e->flags |= NTR_ME_SAME;
		mark_seen(k->d->old, oe);
	}
	return 0;
}

static int walk_dir(struct walker *k, struct ntr_mdir *d)
{
	int fd, r = ntr_dirs_get(&k->w->dirs, d, &fd);

	if (r == -ENOENT)
		return 0;
	if (r)
		return ntr_arun_fail(k->w, d, NULL, r);
	k->d = d;
	k->expect = 0;
	r = ntr_dents_each(fd, walk_entry, k);
	ntr_mdir_trim(d);
	return r ? ntr_arun_fail(k->w, d, NULL, r) : 0;
}

/* upper itself: its attributes are the root directory's. */
static int walk_root(struct ntr_arun *w)
{
	struct ntr_mdir *root = w->tree->root, *old = w->memo->cur->root;
	struct ntr_aobj *o;
	struct statx sx;
	int r = ntr_statx_at(w->memo->fd, "", &sx);

	if (r)
		return ntr_arun_fail(w, root, NULL, r);
	set_dir(root, &sx);
	copy_dir(root, old);
	if (!w->old)
		root->old = NULL;
	else if (root->st.ctime == old->st.ctime)
		return 0;
	o = object_new(w, &sx);
	if (!o)
		return -ENOMEM;
	o->dir = root;
	o->tree = NTR_INO_ROOT;
	o->flags |= NTR_AO_KNOWN;
	return 0;
}

int ntr_arun_walk(struct ntr_arun *w)
{
	struct walker k = {.w = w};
	int r = walk_root(w);

	w->lent = w->full && ntr_lent_any(w->memo->beside); /* before this run lends anything */
	ntr_dirs_init(&w->dirs, w->memo, w->tree->root);
	if (!r)
		r = walk_dir(&k, w->tree->root);
	while (!r && k.n) {
		struct ntr_mdir *d = k.stack[--k.n];

		ntr_mtree_link(w->tree, d);
		r = walk_dir(&k, d);
	}
	while (k.n)
		free(k.stack[--k.n]);
	free(k.stack);
	return r;
}
