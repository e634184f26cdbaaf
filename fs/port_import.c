/* Import of a directory. One thread lists directories and builds the tree; readers (port_read.h) open,
 * examine and load the files meanwhile. Directories wait on a stack, each with its parent open, so that a
 * chain of directories, however deep, holds two descriptors. */
#include "port_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include "port_hash.h"

struct waiting_dir {
	struct waiting_dir *next;
	struct ntr_source_dir *parent; /* counted */
	char name[];
};

struct waiting_name { /* a name of a file whose content another thread's job brings */
	struct waiting_name *next;
	uint64_t dir;
	char name[];
};

struct linked { /* a source file with several names */
	struct {
		uint64_t dev, ino;
	} id;
	uint64_t ino; /* in the tree; 0: not there yet */
	struct waiting_name *waiting;
	UT_hash_handle hh;
};

struct importer {
	struct ntr_txn *t;
	struct ntr_store *st;
	const char *label;
	struct ntr_err *e;
	struct ntr_readers *readers;
	struct ntr_meter meter;
	struct waiting_dir *stack;
	struct linked *links;
	struct ntr_read_job *job; /* being filled */
};

static const char *slash(const struct ntr_source_dir *d)
{
	return d && d->path[0] ? "/" : "";
}

/* Names the path that stopped the import. why NULL: the errno says it. */
static int fail(
        struct importer *m, int code, const struct ntr_source_dir *d, const char *name, const char *why)
{
	ntr_err_set(m->e, code, "import '%s/%s%s%s'", m->label, d ? d->path : "", slash(d), name);
	if (why)
		ntr_err_why(m->e, "it %s", why);
	if (code == -EACCES || code == -EPERM)
		ntr_err_todo(m->e, "run as a user who may read it, or move it away");
	else if (why)
		ntr_err_todo(m->e, "remove or unmount it, or import another directory");
	return code;
}

static struct timespec time_of(const struct statx_timestamp *t)
{
	return (struct timespec){t->tv_sec, t->tv_nsec};
}

/* What the source's metadata says of an inode. */
static void set_meta(const struct importer *m, const struct statx *st, struct ntr_inode *in)
{
	in->mode = st->stx_mode;
	in->uid = ntr_store_uid_in(m->st, st->stx_uid);
	in->gid = ntr_store_gid_in(m->st, st->stx_gid);
	in->atime = time_of(&st->stx_atime);
	in->mtime = time_of(&st->stx_mtime);
	if (S_ISCHR(st->stx_mode) || S_ISBLK(st->stx_mode))
		in->rdev = makedev(st->stx_rdev_major, st->stx_rdev_minor);
}

static struct linked *linked_get(struct importer *m, const struct statx *st)
{
	struct linked *l, key;

	memset(&key, 0, sizeof key);
	key.id.dev = makedev(st->stx_dev_major, st->stx_dev_minor);
	key.id.ino = st->stx_ino;
	HASH_FIND(hh, m->links, &key.id, sizeof key.id, l);
	if (!l && (l = malloc(sizeof *l))) {
		*l = key;
		HASH_ADD(hh, m->links, id, sizeof l->id, l);
		if (!ntr_hashed(hh, l)) {
			free(l);
			l = NULL;
		}
	}
	return l;
}

static int wait_for(struct linked *l, uint64_t dir, const char *name)
{
	size_t n = strlen(name) + 1;
	struct waiting_name *w = malloc(sizeof *w + n);

	if (!w)
		return -ENOMEM;
	w->dir = dir;
	memcpy(w->name, name, n);
	w->next = l->waiting;
	l->waiting = w;
	return 0;
}

/* The object of a file with several names exists now: the names that waited for it are entered. */
static int link_waiting(struct importer *m, struct linked *l, uint64_t ino)
{
	struct waiting_name *w;
	int r = 0;

	l->ino = ino;
	while (!r && (w = l->waiting)) {
		r = ntr_name_link(m->t, ino, w->dir, w->name, NULL);
		l->waiting = w->next;
		free(w);
	}
	return r;
}

/* A new object with all that was found of it; *ret its inode. */
static int create(struct importer *m, uint64_t dir, const char *name, const struct statx *st,
        const struct ntr_xattrs *x, const struct ntr_file_loaded *content, const char *target, uint64_t *ret)
{
	struct ntr_inode in;
	bool is_short = false;
	int r = ntr_inode_new(m->t, st->stx_mode, &in);

	if (r)
		return r;
	set_meta(m, st, &in);
	if (content)
		r = ntr_file_attach(m->t, &in, content, &is_short);
	if (is_short)
		in.flags |= NTR_INODE_RACY;
	if (target) {
		in.data_kind = NTR_DATA_SYMLINK;
		in.size = in.payload_len = (uint16_t)strlen(target);
		memcpy(in.payload, target, in.payload_len);
	}
	if (!r)
		r = ntr_xattrs_store(m->t, &in, x);
	if (!r)
		r = ntr_name_create(m->t, dir, name, &in, NULL);
	*ret = in.ino;
	return r;
}

/* Enters one name of what is no directory. content NULL for a regular file: another name of it brings the
 * content. */
static int enter(struct importer *m, uint64_t dir, const char *name, const struct statx *st,
        const struct ntr_xattrs *x, const struct ntr_file_loaded *content, const char *target)
{
	bool brings = content || !S_ISREG(st->stx_mode);
	struct linked *l = NULL;
	uint64_t ino;
	int r;

	ntr_meter_tick(&m->meter);
	if (st->stx_nlink > 1 || !brings) {
		l = linked_get(m, st);
		if (!l)
			return -ENOMEM;
		if (l->ino)
			return ntr_name_link(m->t, l->ino, dir, name, NULL);
		if (!brings)
			return wait_for(l, dir, name);
	}
	r = create(m, dir, name, st, x, content, target, &ino);
	return r || !l ? r : link_waiting(m, l, ino);
}

static void xattrs_done(struct ntr_xattrs *x)
{
	ntr_buf_done(&x->b);
}

/* A symlink, fifo, socket or device, by its name. */
static int import_other(struct importer *m, const struct ntr_source_dir *d, const char *name)
{
	ntr_auto(xattrs_done) struct ntr_xattrs x = {0};
	char proc[NTR_PROC_PATH], target[4096];
	const char *why = NULL;
	struct statx st;
	ssize_t n = 0;
	int r = ntr_read_meta(-1, ntr_port_proc_path(d->fd, name, proc), &st, &x, &why);

	if (r == -ENOENT)
		return 0;
	if (!r && (S_ISREG(st.stx_mode) || S_ISDIR(st.stx_mode)))
		return fail(m, -EAGAIN, d, name, "became something else while it was read");
	if (!r && S_ISLNK(st.stx_mode) && (n = readlinkat(d->fd, name, target, sizeof target - 1)) < 0)
		r = -errno;
	if (r)
		return fail(m, r, d, name, why);
	target[n] = '\0';
	r = enter(m, d->ino, name, &st, &x, NULL, S_ISLNK(st.stx_mode) ? target : NULL);
	return r ? fail(m, r, d, name, NULL) : 0;
}

static int finish_file(
        struct importer *m, const struct ntr_source_dir *d, const char *name, const struct ntr_read_file *f)
{
	int r = f->err;

	if (r == -ENOENT) /* removed since its directory was listed */
		return 0;
	if (r == -EAGAIN)
		return import_other(m, d, name);
	if (!r)
		r = enter(m, d->ino, name, &f->st, &f->x, f->content, NULL);
	return r ? fail(m, r, d, name, f->refused) : 0;
}

/* Takes one finished job back and enters its files. 1, 0 when none is under way, negative errno. */
static int finish_job(struct importer *m)
{
	struct ntr_read_job *j = ntr_readers_take(m->readers);
	int r = 0;

	if (!j)
		return 0;
	for (unsigned i = 0; !r && i < j->n; i++)
		r = finish_file(m, j->dir, (const char *)j->names.data + j->file[i].name, &j->file[i]);
	ntr_read_job_free(j);
	return r ? r : 1;
}

static int send_job(struct importer *m)
{
	if (m->job)
		ntr_readers_push(m->readers, m->job);
	m->job = NULL;
	while (ntr_readers_full(m->readers)) {
		int r = finish_job(m);

		if (r < 0)
			return r;
	}
	return 0;
}

static int import_file(struct importer *m, struct ntr_source_dir *d, const char *name)
{
	struct ntr_read_job *j = m->job;

	if (!j) {
		j = m->job = calloc(1, sizeof *j);
		if (!j)
			return -ENOMEM;
		j->dir = d;
		__atomic_add_fetch(&d->refs, 1, __ATOMIC_RELAXED);
	}
	j->file[j->n].name = j->names.len;
	if (ntr_buf_add(&j->names, name, strlen(name) + 1))
		return -ENOMEM;
	return ++j->n == NTR_READ_BATCH ? send_job(m) : 0;
}

static int push_dir(struct importer *m, struct ntr_source_dir *parent, const char *name)
{
	size_t n = strlen(name) + 1;
	struct waiting_dir *w = malloc(sizeof *w + n);

	if (!w)
		return -ENOMEM;
	memcpy(w->name, name, n);
	w->parent = parent;
	__atomic_add_fetch(&parent->refs, 1, __ATOMIC_RELAXED);
	w->next = m->stack;
	m->stack = w;
	return 0;
}

static int import_entry(struct importer *m, struct ntr_source_dir *d, const struct dirent *en)
{
	unsigned char type = en->d_type;
	struct stat st;

	if (!strcmp(en->d_name, ".") || !strcmp(en->d_name, ".."))
		return 0;
	if (type == DT_UNKNOWN) {
		if (fstatat(d->fd, en->d_name, &st, AT_SYMLINK_NOFOLLOW))
			return errno == ENOENT ? 0 : fail(m, -errno, d, en->d_name, NULL);
		type = (unsigned char)IFTODT(st.st_mode);
	}
	if (type == DT_REG)
		return import_file(m, d, en->d_name);
	return type == DT_DIR ? push_dir(m, d, en->d_name) : import_other(m, d, en->d_name);
}

static int list_dir(struct importer *m, struct ntr_source_dir *d)
{
	int fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 0), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *en;

	if (!dir) {
		r = -errno;
		ntr_closep(&fd);
		return fail(m, r, d, "", NULL);
	}
	for (errno = 0; !r && (en = readdir(dir)); errno = 0)
		r = import_entry(m, d, en);
	if (!r && errno)
		r = fail(m, -errno, d, "", NULL);
	closedir(dir);
	if (!r)
		r = send_job(m);
	return r;
}

static struct ntr_source_dir *dir_new(
        int fd, uint64_t ino, const struct ntr_source_dir *parent, const char *name)
{
	struct ntr_source_dir *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->path = parent ? ntr_sprintf("%s%s%s", parent->path, slash(parent), name) : strdup("");
	d->fd = fd;
	d->refs = 1;
	d->ino = ino;
	if (d->path)
		return d;
	free(d);
	return NULL;
}

static int open_dir(int at, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(at, name, flags | O_NOATIME);

	if (fd < 0 && errno == EPERM)
		fd = openat(at, name, flags);
	return fd < 0 ? -errno : fd;
}

/* Makes the directory in the tree and lists it. */
static int import_dir(struct importer *m, struct ntr_source_dir *parent, const char *name)
{
	ntr_auto(xattrs_done) struct ntr_xattrs x = {0};
	ntr_autoclose int fd = open_dir(parent->fd, name);
	const char *why = NULL;
	struct ntr_source_dir *d;
	struct statx st;
	uint64_t ino;
	int r = fd < 0 ? fd : ntr_read_meta(fd, NULL, &st, &x, &why);

	if (r == -ENOENT)
		return 0;
	if (!r)
		r = create(m, parent->ino, name, &st, &x, NULL, NULL, &ino);
	if (r)
		return fail(m, r, parent, name, why);
	ntr_meter_tick(&m->meter);
	d = dir_new(fd, ino, parent, name);
	if (!d)
		return -ENOMEM;
	ntr_steal_fd(&fd);
	r = list_dir(m, d);
	ntr_source_dir_put(d);
	return r;
}

/* The tree's root becomes what the top directory is. A mount point may be imported, only not met below. */
static int import_top(struct importer *m, int dirfd)
{
	ntr_auto(xattrs_done) struct ntr_xattrs x = {0};
	const char *why = NULL;
	struct ntr_inode in;
	struct statx st;
	int r = ntr_read_meta(dirfd, NULL, &st, &x, &why);

	if (r == -EXDEV) {
		why = NULL;
		r = ntr_xattrs_read(dirfd, NULL, &x);
	}
	if (!r && !S_ISDIR(st.stx_mode))
		r = -ENOTDIR;
	if (!r)
		r = ntr_inode_get(ntr_txn_snap(m->t), NTR_INO_ROOT, &in);
	if (r)
		return fail(m, r, NULL, "", why);
	set_meta(m, &st, &in);
	r = ntr_inode_put(m->t, &in);
	if (!r)
		r = ntr_xattrs_store(m->t, &in, &x);
	return r;
}

static int walk(struct importer *m, int dirfd)
{
	struct ntr_source_dir *top;
	struct waiting_dir *w;
	int fd, r = import_top(m, dirfd);

	if (r)
		return r;
	fd = open_dir(dirfd, ".");
	if (fd < 0)
		return fail(m, fd, NULL, "", NULL);
	top = dir_new(fd, NTR_INO_ROOT, NULL, NULL);
	if (!top) {
		close(fd);
		return -ENOMEM;
	}
	r = list_dir(m, top);
	ntr_source_dir_put(top);
	while (!r && (w = m->stack)) {
		m->stack = w->next;
		r = import_dir(m, w->parent, w->name);
		ntr_source_dir_put(w->parent);
		free(w);
	}
	while (!r && (r = finish_job(m)) > 0)
		r = 0;
	return r;
}

static void importer_done(struct importer *m)
{
	struct linked *l, *next;
	struct waiting_dir *w;
	struct waiting_name *n;

	ntr_readers_free(m->readers);
	if (m->job)
		ntr_read_job_free(m->job);
	while ((w = m->stack)) {
		m->stack = w->next;
		ntr_source_dir_put(w->parent);
		free(w);
	}
	HASH_ITER (hh, m->links, l, next) {
		HASH_DEL(m->links, l);
		while ((n = l->waiting)) {
			l->waiting = n->next;
			free(n);
		}
		free(l);
	}
}

int ntr_import_dir(
        struct ntr_txn *t, int dirfd, const char *label, const struct ntr_progress *p, struct ntr_err *e)
{
	ntr_auto(importer_done) struct importer m = {.t = t, .label = label, .e = e, .meter.p = p};
	struct ntr_err own = {0};
	int r;

	if (!e)
		m.e = &own;
	m.st = ntr_txn_snap(t)->store;
	r = ntr_readers_new(ntr_txn_chunks(t), &m.meter.bytes, &m.readers);
	if (!r)
		r = walk(&m, dirfd);
	if (r)
		return ntr_err_default(e, r, "import '%s'", label);
	ntr_meter_end(&m.meter);
	return 0;
}
