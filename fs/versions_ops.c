/* What answers each request type but reads, listings and attributes; and what is asked of the kernel at INIT.
 */
#include "versions_impl.h"

#include <sys/statvfs.h>

/* ---- INIT ---- */

#if NTR_FUSE_URING
static void want(struct fuse_conn_info *c, uint64_t cap)
{
	(void)fuse_set_feature_flag(c, cap);
}

static void refuse(struct fuse_conn_info *c, uint64_t cap)
{
	fuse_unset_feature_flag(c, cap);
}
#else
static void want(struct fuse_conn_info *c, unsigned cap)
{
	c->want |= cap & c->capable;
}

static void refuse(struct fuse_conn_info *c, unsigned cap)
{
	c->want &= ~cap;
}
#endif

static void op_init(void *user, struct fuse_conn_info *c)
{
	struct ntr_versions *v = user;

	want(c, FUSE_CAP_ASYNC_READ);
	want(c, FUSE_CAP_PARALLEL_DIROPS);
	want(c, FUSE_CAP_READDIRPLUS);
	want(c, FUSE_CAP_POSIX_ACL);
	want(c, FUSE_CAP_CACHE_SYMLINKS);
	refuse(c, FUSE_CAP_READDIRPLUS_AUTO);
	refuse(c, FUSE_CAP_AUTO_INVAL_DATA);
	refuse(c, FUSE_CAP_ATOMIC_O_TRUNC);
	refuse(c, FUSE_CAP_EXPORT_SUPPORT);
	refuse(c, FUSE_CAP_SPLICE_READ);
#if NTR_FUSE_URING
	want(c, FUSE_CAP_NO_EXPORT_SUPPORT);
	if (!v->want_uring)
		refuse(c, FUSE_CAP_OVER_IO_URING);
	c->request_timeout = ntr_vkernel_timeout(v);
	c->no_interrupt = 1;
#endif
	c->max_write = NTR_VREAD_MAX; /* also what limits a READ */
	c->max_background = 64;
	c->congestion_threshold = 48;
	pthread_mutex_lock(&v->lock);
	v->inited = true;
	pthread_cond_broadcast(&v->cond);
	pthread_mutex_unlock(&v->lock);
}

/* ---- attributes and names ---- */

void ntr_vstat(struct ntr_versions *v, const struct ntr_inode *in, struct stat *ret)
{
	ntr_inode_stat(v->store, in, ret);
	ret->st_ino = ntr_shown_of(in->ino, in->tag);
	ret->st_blksize = 4096;
}

static void stat_top(struct ntr_versions *v, struct stat *ret)
{
	*ret = (struct stat){
	        .st_ino = 1,
	        .st_mode = S_IFDIR | 0755,
	        .st_nlink = 2,
	        .st_uid = v->uid,
	        .st_gid = v->gid,
	        .st_size = 4096,
	        .st_blksize = 4096,
	        .st_atim = v->born,
	        .st_mtim = v->born,
	        .st_ctim = v->born,
	};
}

int ntr_ventry(struct ntr_versions *v, uint64_t root, uint64_t ino, struct fuse_entry_param *e)
{
	struct ntr_snap snap = ntr_snap_root(v->store, root);
	struct ntr_inode in;
	int r = ntr_inode_get(&snap, ino, &in);

	if (r)
		return r;
	bool dir = S_ISDIR(in.mode);
	struct ntr_vnode *n = ntr_vtable_get(v->table, ino, dir ? root : in.version, dir, root);

	if (!n)
		return -ENOMEM;
	*e = (struct fuse_entry_param){.ino = ntr_vnode_id(v, n),
	        .generation = 1,
	        .attr_timeout = NTR_VFOREVER,
	        .entry_timeout = NTR_VFOREVER};
	ntr_vstat(v, &in, &e->attr);
	return 0;
}

void ntr_ventry_undo(struct ntr_versions *v, const struct fuse_entry_param *e)
{
	if (e->ino)
		ntr_vtable_forget(v->table, ntr_vnode_of(v, e->ino), 1);
}

static void reply_entry(struct ntr_vslot *s, fuse_req_t req, const struct fuse_entry_param *e)
{
	if (!ntr_vreq_claim(s) || fuse_reply_entry(req, e) < 0)
		ntr_ventry_undo(s->v, e);
}

/* 16 lower-case hex digits, not 0. */
static bool parse_root(const char *name, uint64_t *ret)
{
	uint64_t root = 0;
	size_t i;

	for (i = 0; i < 16 && name[i]; i++) {
		char c = name[i];

		if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
			return false;
		root = root << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	*ret = root;
	return i == 16 && !name[i] && root;
}

/* A root may come to be at any time: that there is none is never cached. */
static void lookup_root(struct ntr_vslot *s, fuse_req_t req, const char *name)
{
	struct fuse_entry_param e;
	uint64_t root;
	int r = parse_root(name, &root) ? ntr_ventry(s->v, root, NTR_INO_ROOT, &e) : -ENOENT;

	if (r == 0 && !S_ISDIR(e.attr.st_mode)) {
		ntr_ventry_undo(s->v, &e);
		r = -ENOENT;
	}
	if (r)
		ntr_vreq_err(
		        s, req, r == -EUCLEAN ? ENOENT : -r); /* a root that is not there is a missing node */
	else
		reply_entry(s, req, &e);
}

static void op_lookup(fuse_req_t req, fuse_ino_t id, const char *name)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vnode *dir = ntr_vnode_of(v, id);
	struct ntr_vslot *s = ntr_vreq_begin(req, NTR_VOP_LOOKUP);
	struct ntr_snap snap = ntr_vnode_snap(v, dir);
	struct fuse_entry_param e = {.entry_timeout = NTR_VFOREVER};
	size_t n = strlen(name);
	uint64_t ino;
	uint8_t dtype;

	if (!s)
		return;
	if (ntr_vnode_is_top(dir)) {
		lookup_root(s, req, name);
		return;
	}
	int r = !dir->dir ? -ENOTDIR
	        : n > 255 ? -ENAMETOOLONG
	                  : ntr_dirent_get(&snap, dir->ino, name, n, &ino, &dtype);

	if (r == -ENOENT) {
		/* node id 0 and a timeout: the kernel remembers that there is no such name */
		reply_entry(s, req, &e);
		return;
	}
	if (r == 0)
		r = ntr_ventry(v, snap.root, ino, &e);
	if (r)
		ntr_vreq_err(s, req, ntr_verrno(r));
	else
		reply_entry(s, req, &e);
}

static void op_forget(fuse_req_t req, fuse_ino_t id, uint64_t count)
{
	struct ntr_versions *v = fuse_req_userdata(req);

	ntr_vkernel_acquire(v);
	ntr_vtable_forget(v->table, ntr_vnode_of(v, id), count);
	ntr_vreq_count(req, NTR_VOP_FORGET, 1);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *f)
{
	struct ntr_versions *v = fuse_req_userdata(req);

	ntr_vkernel_acquire(v);
	for (size_t i = 0; i < n; i++)
		ntr_vtable_forget(v->table, ntr_vnode_of(v, f[i].ino), f[i].nlookup);
	ntr_vreq_count(req, NTR_VOP_FORGET, n);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vnode *n = ntr_vnode_of(v, id);
	struct ntr_vslot *s = ntr_vreq_begin(req, NTR_VOP_GETATTR);
	struct ntr_snap snap = ntr_vnode_snap(v, n);
	struct ntr_inode in;
	struct stat st;
	int r = 0;

	(void)fi;
	if (!s)
		return;
	if (ntr_vnode_is_top(n))
		stat_top(v, &st);
	else if ((r = ntr_inode_get(&snap, n->ino, &in)) == 0)
		ntr_vstat(v, &in, &st);
	if (r)
		ntr_vreq_err(s, req, ntr_verrno(r));
	else if (ntr_vreq_claim(s))
		fuse_reply_attr(req, &st, NTR_VFOREVER);
}

static void op_readlink(fuse_req_t req, fuse_ino_t id)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vnode *n = ntr_vnode_of(v, id);
	struct ntr_vslot *s = ntr_vreq_begin(req, NTR_VOP_READLINK);
	struct ntr_snap snap = ntr_vnode_snap(v, n);
	struct ntr_inode in;

	if (!s)
		return;
	int r = n->dir ? -EINVAL : ntr_inode_get(&snap, n->ino, &in);

	if (r == 0 && (in.data_kind != NTR_DATA_SYMLINK || in.size >= sizeof(in.payload)))
		r = -EINVAL;
	if (r) {
		ntr_vreq_err(s, req, ntr_verrno(r));
	} else if (ntr_vreq_claim(s)) {
		in.payload[in.size] = '\0';
		fuse_reply_readlink(req, (const char *)in.payload);
	}
}

static void op_statfs(fuse_req_t req, fuse_ino_t id)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vslot *s = ntr_vreq_begin(req, NTR_VOP_STATFS);
	struct statvfs st;

	(void)id;
	if (!s)
		return;
	if (fstatvfs(ntr_store_dirfd(v->store), &st) < 0) {
		ntr_vreq_err(s, req, errno);
	} else if (ntr_vreq_claim(s)) {
		st.f_namemax = 255;
		fuse_reply_statfs(req, &st);
	}
}

/* Answered once; the kernel then never sends that type again. Leaving the function out would not do: libfuse
 * then answers success. */
static void never(fuse_req_t req, enum ntr_vop op)
{
	struct ntr_vslot *s = ntr_vreq_begin(req, op);

	if (s)
		ntr_vreq_err(s, req, ENOSYS);
}

static void op_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	(void)id;
	(void)fi;
	never(req, NTR_VOP_OPEN);
}

static void op_opendir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	(void)id;
	(void)fi;
	never(req, NTR_VOP_OPENDIR);
}

static void op_flush(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	(void)id;
	(void)fi;
	never(req, NTR_VOP_FLUSH);
}

static void op_access(fuse_req_t req, fuse_ino_t id, int mask)
{
	(void)id;
	(void)mask;
	never(req, NTR_VOP_ACCESS);
}

const struct fuse_lowlevel_ops ntr_vops = {
        .init = op_init,
        .lookup = op_lookup,
        .forget = op_forget,
        .forget_multi = op_forget_multi,
        .getattr = op_getattr,
        .readlink = op_readlink,
        .open = op_open,
        .read = ntr_vop_read,
        .flush = op_flush,
        .opendir = op_opendir,
        .readdir = ntr_vop_readdir,
        .readdirplus = ntr_vop_readdirplus,
        .statfs = op_statfs,
        .getxattr = ntr_vop_getxattr,
        .listxattr = ntr_vop_listxattr,
        .access = op_access,
        .lseek = ntr_vop_lseek,
};
