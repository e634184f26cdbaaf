/* Objects: writes records, extended attributes and symlink targets of what upper holds, where they differ
 * from head's. */
#include "absorb_impl.h"

#include <errno.h>
#include <unistd.h>

/* Access times are of the coarse clock, others not. */
enum { CLOCK_STEP_NS = 20000000 };

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Those that no file system has are cut off. */
static int64_t nanoseconds(const struct timespec *t)
{
	const int64_t most = INT64_MAX / 1000000000 - 1;

	return NTR_MIN(NTR_MAX((int64_t)t->tv_sec, -most), most) * 1000000000 + t->tv_nsec;
}

/* Did a call set the access time? A read moves no ctime; and where something else moved that (a copy-up, a
 * fold), a read since the commit, or since the copy, has an access time between then and now. */
static bool atime_was_set(const struct ntr_arun *w, const struct ntr_aobj *o, const struct ntr_inode *in)
{
	int64_t at = nanoseconds(&o->atime), since = NTR_MAX(nanoseconds(&in->ctime), (int64_t)o->st.btime);

	if (same_time(&in->atime, &o->atime) || same_time(&in->ctime, &o->ctime))
		return false;
	return at < since - CLOCK_STEP_NS || at > (int64_t)w->now;
}

static void set_times(const struct ntr_aobj *o, struct ntr_inode *in)
{
	in->atime = o->atime;
	in->mtime = o->mtime;
	in->ctime = o->ctime;
}

/* Owners: the stored id stays as long as what it shows as is what upper has. */
static bool set_attrs(struct ntr_arun *w, const struct ntr_aobj *o, struct ntr_inode *in)
{
	struct ntr_inode was = {.mode = in->mode, .uid = in->uid, .gid = in->gid, .rdev = in->rdev};

	in->mode = o->mode;
	in->rdev = S_ISCHR(o->mode) || S_ISBLK(o->mode) ? o->rdev : 0;
	if (ntr_store_uid_out(w->store, in->uid) != o->uid)
		in->uid = ntr_store_uid_in(w->store, o->uid);
	if (ntr_store_gid_out(w->store, in->gid) != o->gid)
		in->gid = ntr_store_gid_in(w->store, o->gid);
	return in->mode != was.mode || in->uid != was.uid || in->gid != was.gid || in->rdev != was.rdev;
}

static int read_target(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in)
{
	ssize_t k;
	int fd, r = ntr_dirs_get(&w->dirs, o->ref.dir, &fd);

	if (r)
		return r;
	k = readlinkat(fd, ntr_aobj_name(o), (char *)in->payload, sizeof in->payload);
	if (k < 0)
		return -errno;
	if ((size_t)k >= sizeof in->payload)
		return -ENAMETOOLONG;
	in->payload_len = (uint16_t)k;
	in->size = (uint64_t)k;
	in->data_kind = NTR_DATA_SYMLINK;
	return 0;
}

static int copy_data_of_base(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in)
{
	struct ntr_inode from;
	int r;

	if (!o->data_of) /* a metacopy of nothing: reads as an error in the merged view */
		return -ESTALE;
	r = ntr_inode_get(&w->base, o->data_of, &from);
	if (r)
		return r;
	if (!(o->flags & NTR_AO_FRESH)) {
		r = ntr_content_equal(&w->base, &from, ntr_txn_snap(w->txn), in);
		if (r)
			return NTR_MIN(r, 0);
	}
	return ntr_content_copy(w->txn, &w->base, &from, in);
}

static int read_data(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in)
{
	if (S_ISLNK(o->mode))
		return read_target(w, o, in);
	if (o->flags & NTR_AO_CONTENT)
		return ntr_aobj_content(w, o, in);
	return S_ISREG(o->mode) ? copy_data_of_base(w, o, in) : 0;
}

int ntr_aobj_create(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_inode in;
	int r;

	memset(&in, 0, offsetof(struct ntr_inode, payload));
	in.ino = o->tree;
	in.tag = (uint32_t)o->st.ino; /* the file is shown with it until it is folded */
	in.mode = o->mode;
	in.uid = ntr_store_uid_in(w->store, o->uid);
	in.gid = ntr_store_gid_in(w->store, o->gid);
	r = read_data(w, o, &in);
	if (r)
		return r;
	set_attrs(w, o, &in);
	set_times(o, &in);
	in.btime = o->btime;
	r = ntr_name_create(w->txn, o->ref.dir->tree, ntr_aobj_name(o), &in, NULL);
	for (size_t i = 0; i < o->marks.n && !r; i++)
		r = ntr_xattr_set(w->txn, &in, o->marks.v[i].name, o->marks.v[i].val, o->marks.v[i].len);
	return r;
}

/* The record's xattrs against upper's. */
struct xattr_diff {
	const struct ntr_marks *want;
	size_t same;
	struct ntr_marks gone; /* only names */
};

static const struct ntr_xattr *find_xattr(const struct ntr_marks *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++)
		if (!strcmp(m->v[i].name, name))
			return &m->v[i];
	return NULL;
}

static int compare_xattr(void *user, const char *name, const uint8_t *val, size_t len)
{
	struct xattr_diff *d = user;
	const struct ntr_xattr *x = find_xattr(d->want, name);
	void *v;

	if (x && x->len == len && !memcmp(x->val, val, len)) {
		d->same++;
		return 0;
	}
	if (x)
		return 0;
	v = realloc(d->gone.v, (d->gone.n + 1) * sizeof *d->gone.v);
	if (!v)
		return -ENOMEM;
	d->gone.v = v;
	d->gone.v[d->gone.n] = (struct ntr_xattr){.name = strdup(name)};
	return d->gone.v[d->gone.n++].name ? 0 : -ENOMEM;
}

/* Brings the tree's xattrs to upper's. 1: some differed; 0; negative errno. */
static int update_xattrs(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in)
{
	struct xattr_diff d = {.want = &o->marks};
	int r = 0;

	if (in->flags & NTR_INODE_HAS_XATTR)
		r = ntr_xattr_each(ntr_txn_snap(w->txn), in->ino, compare_xattr, &d);
	if (!r && (d.gone.n || d.same != o->marks.n)) {
		for (size_t i = 0; i < d.gone.n && !r; i++)
			r = ntr_xattr_del(w->txn, in, d.gone.v[i].name);
		for (size_t i = 0; i < o->marks.n && !r; i++)
			r = ntr_xattr_set(
			        w->txn, in, o->marks.v[i].name, o->marks.v[i].val, o->marks.v[i].len);
		r = r ? r : 1;
	}
	ntr_marks_done(&d.gone);
	return r;
}

static bool same_content_fields(const struct ntr_inode *a, const struct ntr_inode *b)
{
	return a->data_kind == b->data_kind && a->size == b->size && a->chunk == b->chunk &&
	       a->blocks == b->blocks && a->payload_len == b->payload_len &&
	       !memcmp(a->payload, b->payload, a->payload_len);
}

/* 1: content differs from what head had. */
static int update_data(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in)
{
	struct ntr_inode was;
	int r;

	if (o->dir)
		return 0;
	memcpy(&was, in, offsetof(struct ntr_inode, payload) + in->payload_len);
	r = read_data(w, o, in);
	if (r)
		return r;
	if (!same_content_fields(&was, in))
		return 1;
	if (in->data_kind != NTR_DATA_EXTENTS)
		return 0;
	r = ntr_content_equal(&w->head, &was, ntr_txn_snap(w->txn), in);
	return r < 0 ? r : !r;
}

static int update(struct ntr_arun *w, struct ntr_aobj *o)
{
	struct ntr_inode in;
	bool differs;
	int r = ntr_inode_get(ntr_txn_snap(w->txn), o->tree, &in), r2;

	if (r)
		return r;
	r = o->flags & NTR_AO_KEEP ? 0 : update_data(w, o, &in);
	if (r < 0)
		return r;
	if (o->flags & NTR_AO_KEEP)
		o->mtime = in.mtime;
	r2 = update_xattrs(w, o, &in);
	if (r2 < 0)
		return r2;
	differs = set_attrs(w, o, &in) || r || r2 || (o->flags & NTR_AO_NAMED);
	if (o->dir) {
		o->dir->flags &= (uint8_t)~NTR_MD_PENDING;
		if (!differs && !(o->dir->flags & NTR_MD_LISTED)) {
			if (!same_time(&in.mtime, &o->mtime))
				o->dir->flags |= NTR_MD_PENDING;
			return 0;
		}
	} else if (!differs && same_time(&in.mtime, &o->mtime) && !atime_was_set(w, o, &in)) {
		return 0;
	}
	w->changed = true;
	set_times(o, &in);
	return ntr_inode_put(w->txn, &in);
}

/* What was given a name or lost one has the time of that as its ctime. */
int ntr_arun_update(struct ntr_arun *w)
{
	struct ntr_aobj *o;
	int r;

	TAILQ_FOREACH (o, &w->objs, link) {
		if (!o->tree || o->flags & (NTR_AO_FRESH | NTR_AO_SAME))
			continue;
		r = update(w, o);
		if (r)
			return ntr_aobj_fail(w, o, r);
	}
	return 0;
}

/* A directory made by this run got its times at its creation. */
static int ride(struct ntr_arun *w, struct ntr_mdir *d)
{
	struct ntr_aobj o = {.flags = 0};
	struct ntr_inode in;
	struct statx sx;
	int fd, r = ntr_dirs_get(&w->dirs, d, &fd);

	if (!r)
		r = ntr_statx_at(fd, "", &sx);
	if (!r)
		r = ntr_inode_get(ntr_txn_snap(w->txn), d->tree, &in);
	if (r)
		return r;
	w->changed = true;
	d->flags &= (uint8_t)~NTR_MD_PENDING;
	ntr_aobj_stat(&o, &sx);
	set_times(&o, &in);
	return ntr_inode_put(w->txn, &in);
}

int ntr_arun_ride(struct ntr_arun *w)
{
	for (struct ntr_mdir *d = w->tree->root; d; d = d->next) {
		int r = d->flags & NTR_MD_PENDING ? ride(w, d) : 0;

		if (r)
			return ntr_arun_fail(w, d, NULL, r);
	}
	return 0;
}
