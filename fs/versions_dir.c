/* READDIR and READDIRPLUS.
 *
 * There is no OPENDIR, so a stream has nothing but its cookie: the name hash of the last entry it was given.
 * It goes on with the first hash above. Entries of one hash must therefore stay together: never split over
 * two replies, and all but the last carry the cookie "just below this hash", so that a reader whose own
 * buffer ends among them meets the whole group again rather than lose the rest. */
#include "versions_impl.h"

#include <dirent.h>
#include <linux/fuse.h>

struct fill {
	struct ntr_versions *v;
	fuse_req_t req;
	struct ntr_vnode *dir;
	struct ntr_snap snap;
	char *buf;
	size_t size, used;
	size_t group; /* where the entries of the present hash begin */
	bool plus;
};

/* Gives back the references of plus entries from `from` on. "." and ".." and bare entries carry none. */
static void undo(struct fill *f, size_t from)
{
	for (size_t at = from; f->plus && at < f->used;) {
		const struct fuse_direntplus *d = (const void *)(f->buf + at);
		struct fuse_entry_param e = {.ino = d->entry_out.nodeid};

		ntr_ventry_undo(f->v, &e);
		at += FUSE_DIRENTPLUS_SIZE(d);
	}
	f->used = from;
}

/* false: no room. */
static bool add(struct fill *f, const char *name, const struct fuse_entry_param *e, uint64_t cookie)
{
	char *to = f->buf + f->used;
	size_t room = f->size - f->used;
	size_t n = f->plus ? fuse_add_direntry_plus(f->req, to, room, name, e, (off_t)cookie)
	                   : fuse_add_direntry(f->req, to, room, name, &e->attr, (off_t)cookie);

	if (n > room)
		return false;
	f->used += n;
	return true;
}

/* What stat(2) says, too; of a record that cannot be read nobody learns more. 0: the mount's top. */
static uint64_t number(const struct fill *f, uint64_t ino)
{
	struct ntr_inode in;

	if (!ino)
		return 1;
	return ntr_shown_of(ino, ntr_inode_get(&f->snap, ino, &in) ? 0 : in.tag);
}

static bool add_bare(struct fill *f, const char *name, uint64_t ino, uint8_t dtype, uint64_t cookie)
{
	struct fuse_entry_param e = {.ino = 0};

	e.attr.st_ino = number(f, ino);
	e.attr.st_mode = (mode_t)dtype << 12;
	return add(f, name, &e, cookie);
}

/* Whether this entry is to carry a node id: see NTR_VPLUS_MAX. The count is of the directory, not of the
 * stream: two streams at a time only make it run out sooner. */
static bool wants_node(struct fill *f)
{
	if (!f->plus || atomic_load_explicit(&f->dir->plus, memory_order_relaxed) >= NTR_VPLUS_MAX)
		return false;
	atomic_fetch_add_explicit(&f->dir->plus, 1, memory_order_relaxed);
	return true;
}

static bool add_entry(struct fill *f, const struct ntr_dirent *d, uint64_t cookie)
{
	struct fuse_entry_param e;

	/* An entry whose record cannot be read is still listed; looking it up says what is wrong. */
	if (!wants_node(f) || ntr_ventry(f->v, f->snap.root, d->ino, &e) < 0)
		return add_bare(f, d->name, d->ino, d->dtype, cookie);
	if (add(f, d->name, &e, cookie))
		return true;
	ntr_ventry_undo(f->v, &e);
	return false;
}

/* 0: all were added; 1: the reply is full; negative errno. */
static int add_entries(struct fill *f, struct ntr_dir_iter *it)
{
	struct ntr_dirent two[2];
	int i = 0, r = ntr_dir_iter_next(it, &two[0]);
	uint64_t hash = 0;

	while (r > 0) {
		struct ntr_dirent *d = &two[i], *next = &two[!i];

		r = ntr_dir_iter_next(it, next);
		if (r < 0)
			return r;
		if (d->hash != hash)
			f->group = f->used;
		hash = d->hash;
		if (!add_entry(f, d, r > 0 && next->hash == hash ? hash - 1 : hash)) {
			undo(f, f->group);
			return 1;
		}
		i = !i;
	}
	return r;
}

static int fill(struct fill *f, uint64_t off, uint64_t parent)
{
	struct ntr_dir_iter it;
	bool full = false;

	if (off < NTR_VCOOKIE_DOT)
		full = !add_bare(f, ".", f->dir->ino, DT_DIR, NTR_VCOOKIE_DOT);
	if (off < NTR_VCOOKIE_DOTDOT && !full)
		full = !add_bare(f, "..", parent, DT_DIR, NTR_VCOOKIE_DOTDOT);
	if (full || ntr_vnode_is_top(f->dir))
		return full && !f->used ? -EINVAL : 0;
	if (off <= NTR_VCOOKIE_DOTDOT)
		atomic_store_explicit(&f->dir->plus, 0, memory_order_relaxed);
	ntr_dir_iter_init(&it, &f->snap, f->dir->ino, off <= NTR_VCOOKIE_DOTDOT ? 0 : off + 1);
	int r = add_entries(f, &it);

	ntr_dir_iter_done(&it);
	if (r < 0)
		undo(f, 0);
	/* not even one group fits: an empty reply would mean the end */
	return r == 1 ? (f->used ? 0 : -EINVAL) : r;
}

/* Number of the directory above; 0: the mount's top. */
static int parent_of(struct fill *f, uint64_t *ret)
{
	struct ntr_inode in;
	int r;

	*ret = 0;
	if (f->dir->ino == NTR_INO_ROOT && f->v->o.root == 0)
		return 0;
	r = ntr_inode_get(&f->snap, f->dir->ino, &in);
	if (r == 0)
		*ret = in.parent;
	return r;
}

static void serve(fuse_req_t req, fuse_ino_t id, size_t size, off_t off, bool plus)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vnode *dir = ntr_vnode_of(v, id);
	struct ntr_vslot *s = ntr_vreq_begin(req, plus ? NTR_VOP_READDIRPLUS : NTR_VOP_READDIR);
	struct fill f = {.v = v, .req = req, .dir = dir, .snap = ntr_vnode_snap(v, dir), .plus = plus};
	uint64_t parent = 0;
	int r = 0;

	if (!s)
		return;
	f.size = NTR_MIN(size, (size_t)NTR_VREAD_MAX);
	f.buf = (char *)ntr_vreq_buffer(s, req, f.size);
	if (!dir->dir)
		r = -ENOTDIR;
	else if (!f.buf)
		r = -ENOMEM;
	if (r == 0 && off < NTR_VCOOKIE_DOTDOT && !ntr_vnode_is_top(dir))
		r = parent_of(&f, &parent);
	if (r == 0)
		r = fill(&f, (uint64_t)off, parent);
	if (r)
		ntr_vreq_err(s, req, ntr_verrno(r));
	else if (!ntr_vreq_claim(s) || fuse_reply_buf(req, f.buf, f.used) < 0)
		undo(&f, 0);
}

void ntr_vop_readdir(fuse_req_t req, fuse_ino_t id, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	serve(req, id, size, off, false);
}

void ntr_vop_readdirplus(fuse_req_t req, fuse_ino_t id, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	serve(req, id, size, off, true);
}
