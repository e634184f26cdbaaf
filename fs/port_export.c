/* Export of a tree into a directory. Directories are walked with a stack of their own (a tree may be deeper
 * than any recursion); only the deepest few are kept open, the others are found again through "..". A
 * directory gets its owner, mode and times when everything in it has been written. */
#include "port_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

enum { OPEN_MAX_DIRS = 64 };

struct frame {
	int fd; /* -1: closed for now */
	dev_t dev;
	ino_t dev_ino;
	uint64_t ino;
	size_t path_len; /* of the directory's path in exporter.path */
	struct ntr_listing list;
	size_t at;
};

struct exporter {
	const struct ntr_snap *s;
	int top;
	bool root; /* run by root: owners are set */
	struct ntr_buf path, frames;
	struct ntr_linkmap links;
	struct ntr_meter meter;
};

static struct frame *frame_at(struct exporter *x, size_t i)
{
	return (struct frame *)(void *)x->frames.data + i;
}

static size_t depth(const struct exporter *x)
{
	return x->frames.len / sizeof(struct frame);
}

static struct frame *top_frame(struct exporter *x)
{
	return frame_at(x, depth(x) - 1);
}

/* ---- metadata of what has been written ---- */

/* An object that can be opened only as a path is reached through /proc. */
struct object {
	int fd;
	bool is_path;
	char proc[NTR_PROC_PATH];
};

static struct object object_of(int fd, bool is_path)
{
	struct object o = {.fd = fd, .is_path = is_path};

	snprintf(o.proc, sizeof o.proc, "/proc/self/fd/%d", fd);
	return o;
}

struct xattr_target {
	const struct exporter *x;
	const struct object *o;
};

/* What only root may set is left out by others, as owners are. */
static bool may_skip(const struct exporter *x, const char *name)
{
	return !x->root && strncmp(name, "user.", 5) && !ntr_acl_is_xattr(name);
}

static int set_xattr(void *user, const char *name, const uint8_t *val, size_t len)
{
	const struct xattr_target *t = user;
	int r = t->o->is_path ? setxattr(t->o->proc, name, val, len, 0)
	                      : fsetxattr(t->o->fd, name, val, len, 0);

	return r && !may_skip(t->x, name) ? -errno : 0;
}

/* Set-id bits go only to a file that has the owner they were meant for. */
static mode_t mode_of(const struct exporter *x, const struct ntr_inode *in)
{
	mode_t mode = in->mode & 07777;

	if (x->root || S_ISDIR(in->mode))
		return mode;
	if (in->uid != NTR_OWNER_ID)
		mode &= ~(mode_t)S_ISUID;
	if (in->gid != NTR_OWNER_ID)
		mode &= ~(mode_t)S_ISGID;
	return mode;
}

/* Attributes come before the mode, which may forbid setting them. */
static int set_meta(const struct exporter *x, const struct object *o, const struct ntr_inode *in)
{
	const struct timespec times[2] = {in->atime, in->mtime};
	struct xattr_target t = {x, o};
	int r = 0;

	if (x->root && fchownat(o->fd, "", ntr_store_uid_out(x->s->store, in->uid),
	                       ntr_store_gid_out(x->s->store, in->gid), AT_EMPTY_PATH))
		return -errno;
	if (in->flags & NTR_INODE_HAS_XATTR)
		r = ntr_xattr_each(x->s, in->ino, set_xattr, &t);
	if (r)
		return r;
	if (!S_ISLNK(in->mode) &&
	        (o->is_path ? chmod(o->proc, mode_of(x, in)) : fchmod(o->fd, mode_of(x, in))))
		return -errno;
	return (o->is_path ? utimensat(AT_FDCWD, o->proc, times, 0) : futimens(o->fd, times)) ? -errno : 0;
}

/* ---- writing one object ---- */

static int write_file(struct exporter *x, int dirfd, const char *name, const struct ntr_inode *in)
{
	ntr_autoclose int fd =
	        openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct object o;
	int r;

	if (fd < 0)
		return -errno;
	r = ntr_file_to_fd(x->s, in, fd);
	x->meter.bytes += in->size;
	o = object_of(fd, false);
	return r ? r : set_meta(x, &o, in);
}

static int make_node(int dirfd, const char *name, const struct ntr_inode *in)
{
	char target[4096];

	if (!S_ISLNK(in->mode))
		return mknodat(dirfd, name, (in->mode & S_IFMT) | 0600, (dev_t)in->rdev) ? -errno : 0;
	if (in->payload_len >= sizeof target)
		return -EUCLEAN;
	memcpy(target, in->payload, in->payload_len);
	target[in->payload_len] = '\0';
	return symlinkat(target, dirfd, name) ? -errno : 0;
}

static int write_other(struct exporter *x, int dirfd, const char *name, const struct ntr_inode *in)
{
	ntr_autoclose int fd = -1;
	struct object o;
	int r = make_node(dirfd, name, in);

	if (r)
		return r;
	fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	o = object_of(fd, true);
	return set_meta(x, &o, in);
}

/* ---- the walk ---- */

/* Puts a frame for the opened directory on the stack; takes the descriptor over. */
static int push(struct exporter *x, int fd, uint64_t ino)
{
	struct frame f = {.fd = fd, .ino = ino, .path_len = x->path.len};
	struct stat st;
	int r = fstat(fd, &st) ? -errno : ntr_listing_read(x->s, ino, &f.list);

	f.dev = st.st_dev;
	f.dev_ino = st.st_ino;
	if (!r)
		r = ntr_buf_add(&x->frames, &f, sizeof f);
	if (r) {
		ntr_listing_done(&f.list);
		close(fd);
		return r;
	}
	if (depth(x) > OPEN_MAX_DIRS + 1) { /* the first is the caller's own and stays */
		struct frame *far = frame_at(x, depth(x) - 1 - OPEN_MAX_DIRS);

		ntr_closep(&far->fd);
		far->fd = -1;
	}
	return 0;
}

/* Opens the directory above `child` again and makes sure that it is the same. */
static int reopen(struct frame *f, int child)
{
	struct stat st;
	int fd = openat(child, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_dev != f->dev || st.st_ino != f->dev_ino) {
		close(fd);
		return -ESTALE;
	}
	f->fd = fd;
	return 0;
}

/* All in the top frame's directory is written: its own metadata, and back to the one above. */
static int pop(struct exporter *x)
{
	struct frame f = *top_frame(x);
	struct object o = object_of(f.fd, false);
	struct ntr_inode in;
	int r = ntr_inode_get(x->s, f.ino, &in);

	x->frames.len -= sizeof f;
	if (!r)
		r = set_meta(x, &o, &in);
	if (r == -EPERM && !depth(x)) /* the caller's directory may be another's; what is in it is ours */
		r = 0;
	if (!r && depth(x) && top_frame(x)->fd < 0)
		r = reopen(top_frame(x), f.fd);
	ntr_listing_done(&f.list);
	close(f.fd);
	if (!r && depth(x))
		x->path.len = top_frame(x)->path_len;
	return r;
}

static int enter_dir(struct exporter *x, int dirfd, const char *name, uint64_t ino)
{
	int fd;

	if (mkdirat(dirfd, name, 0700))
		return -errno;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : push(x, fd, ino);
}

/* Writes what is not a directory, or links it to where it was written before. */
static int write_entry(struct exporter *x, int dirfd, const char *name, const struct ntr_inode *in)
{
	const char *path = ntr_buf_cstr(&x->path), *first = NULL;
	int r = !path ? -ENOMEM : in->nlink > 1 ? ntr_linkmap_note(&x->links, in->ino, path, &first) : 0;

	if (r)
		return r;
	if (first)
		return linkat(x->top, first, dirfd, name, 0) ? -errno : 0;
	return S_ISREG(in->mode) ? write_file(x, dirfd, name, in) : write_other(x, dirfd, name, in);
}

static int step(struct exporter *x)
{
	struct frame *f = top_frame(x);
	const struct ntr_listed *en;
	struct ntr_inode in;
	int r;

	if (f->at == f->list.n)
		return pop(x);
	en = &f->list.v[f->at++];
	x->path.len = f->path_len;
	if (f->path_len)
		ntr_buf_byte(&x->path, '/');
	r = ntr_buf_str(&x->path, en->name);
	if (!r)
		r = ntr_inode_get(x->s, en->ino, &in);
	if (r)
		return r == -ENOENT ? -EUCLEAN : r;
	ntr_meter_tick(&x->meter);
	if (S_ISDIR(in.mode))
		return enter_dir(x, f->fd, en->name, en->ino);
	return write_entry(x, f->fd, en->name, &in);
}

static int check_empty(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *en;

	if (!d) {
		r = -errno;
		ntr_closep(&fd);
		return r;
	}
	for (errno = 0; !r && (en = readdir(d)); errno = 0)
		if (strcmp(en->d_name, ".") && strcmp(en->d_name, ".."))
			r = -ENOTEMPTY;
	if (!r)
		r = -errno;
	closedir(d);
	return r;
}

static void exporter_done(struct exporter *x)
{
	for (size_t i = 0; i < depth(x); i++) {
		ntr_closep(&frame_at(x, i)->fd);
		ntr_listing_done(&frame_at(x, i)->list);
	}
	ntr_buf_done(&x->frames);
	ntr_buf_done(&x->path);
	ntr_linkmap_done(&x->links);
}

static int walk(struct exporter *x, uint64_t ino)
{
	int fd = fcntl(x->top, F_DUPFD_CLOEXEC, 0);
	int r = fd < 0 ? -errno : push(x, fd, ino);

	while (!r && depth(x))
		r = step(x);
	return r;
}

static int fail(struct exporter *x, const char *label, int code, struct ntr_err *e)
{
	const char *path = ntr_buf_cstr(&x->path);

	ntr_err_set(e, code, "export '%s' to '%s'", path && *path ? path : "/", label);
	if (x->meter.entries)
		ntr_err_todo(e, "%ju entries are there and incomplete: remove them before the next try",
		        (uintmax_t)x->meter.entries);
	return code;
}

int ntr_export_dir(const struct ntr_snap *s, uint64_t ino, int dirfd, const char *label,
        const struct ntr_progress *p, struct ntr_err *e)
{
	ntr_auto(exporter_done) struct exporter x = {.s = s, .top = dirfd, .root = !geteuid(), .meter.p = p};
	int r = check_empty(dirfd);

	if (r == -ENOTEMPTY) {
		ntr_err_set(e, r, "export to '%s'", label);
		ntr_err_why(e, "the directory is not empty");
		ntr_err_todo(e, "name an empty or new directory");
		return r;
	}
	if (!r)
		r = walk(&x, ino);
	if (r)
		return fail(&x, label, r, e);
	ntr_meter_end(&x.meter);
	return 0;
}
