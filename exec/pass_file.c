/* pass_file: open files. Data is cached by the kernel only as far as it checks it: with attributes never
 * cached, each read asks for size and mtime first and drops pages that are older. Locks stay with the kernel.
 */
#include "pass_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

struct pfile {
	struct pfile *next, **at;
	int fd;               /* -1: dropped */
	DIR *dir;             /* a directory's stream, else NULL; owns fd */
	struct dirent *entry; /* read from dir, not yet sent */
	off_t pos;
};

static struct pfile *files;
static unsigned nfiles;

static struct pfile *of_fh(uint64_t fh)
{
	return (struct pfile *)(uintptr_t)fh;
}

/* fd becomes the file's; closed on failure. */
static struct pfile *add(int fd)
{
	struct pfile *f = calloc(1, sizeof *f);

	if (!f) {
		close(fd);
		return NULL;
	}
	f->fd = fd;
	f->next = files;
	f->at = &files;
	if (files)
		files->at = &f->next;
	files = f;
	nfiles++;
	return f;
}

static void drop(struct pfile *f)
{
	if (f->dir)
		closedir(f->dir);
	else
		ntr_closep(&f->fd);
	f->dir = NULL;
	f->entry = NULL;
	f->fd = -1;
}

static void end(struct pfile *f)
{
	drop(f);
	*f->at = f->next;
	if (f->next)
		f->next->at = f->at;
	free(f);
	nfiles--;
}

unsigned ntr_pfile_open_count(void)
{
	unsigned n = 0;

	for (const struct pfile *f = files; f; f = f->next)
		n += f->fd >= 0;
	return n;
}

void ntr_pfile_drop(void)
{
	for (struct pfile *f = files; f; f = f->next)
		drop(f);
}

int ntr_pfile_fd(const struct fuse_file_info *fi)
{
	int fd = of_fh(fi->fh)->fd;

	return fd < 0 ? -ESTALE : fd;
}

/* ---- open ---- */

/* O_APPEND is done write by write (a page written back through such a descriptor would go to the end of the
 * file), and O_DIRECT would ask for aligned buffers. */
static int lower_flags(const struct fuse_file_info *fi)
{
	return (fi->flags & ~(O_APPEND | O_DIRECT | O_NOFOLLOW | O_CREAT | O_EXCL)) | O_CLOEXEC;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int fd = ntr_pinode_fd(ino);
	struct pfile *f;
	char link[40];

	if (fd >= 0 && (fd = open(ntr_pinode_link(fd, link), lower_flags(fi))) < 0)
		fd = -errno;
	if (fd < 0) {
		fuse_reply_err(req, -fd);
		return;
	}
	f = add(fd);
	if (!f) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)f;
	fi->direct_io = !!(fi->flags & O_DIRECT);
	if (fuse_reply_open(req, fi))
		end(f);
}

static void op_create(
        fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	int dir = ntr_pinode_fd(parent), fd, r = dir < 0 ? dir : 0;
	struct fuse_entry_param e;
	struct pfile *f = NULL;

	if (!r && (fd = openat(dir, name, lower_flags(fi) | O_CREAT | (fi->flags & O_EXCL) | O_NOFOLLOW,
	                   mode)) < 0)
		r = -errno;
	if (!r && !(f = add(fd)))
		r = -ENOMEM;
	if (!r)
		r = ntr_pinode_lookup(parent, name, &e);
	if (r) {
		if (f)
			end(f);
		fuse_reply_err(req, -r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)f;
	fi->direct_io = !!(fi->flags & O_DIRECT);
	if (fuse_reply_create(req, &e, fi)) {
		ntr_pinode_forget(e.ino, 1);
		end(f);
	}
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	end(of_fh(fi->fh));
	fuse_reply_err(req, 0);
}

/* ---- data ---- */

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct fuse_bufvec buf = FUSE_BUFVEC_INIT(size);
	int fd = ntr_pfile_fd(fi);

	(void)ino;
	if (fd < 0) {
		fuse_reply_err(req, -fd);
		return;
	}
	buf.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	buf.buf[0].fd = fd;
	buf.buf[0].pos = off;
	fuse_reply_data(req, &buf, FUSE_BUF_SPLICE_MOVE);
}

static void op_write(
        fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
	int fd = ntr_pfile_fd(fi);
	/* The kernel's offset is where it thinks the end is; somebody inside may have written since. */
	bool append = fi->flags & O_APPEND && !fi->writepage;
	ssize_t n = fd < 0 ? -1 : append ? pwritev2(fd, &iov, 1, 0, RWF_APPEND) : pwrite(fd, data, size, off);

	(void)ino;
	if (fd < 0)
		fuse_reply_err(req, -fd);
	else if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_write(req, (size_t)n);
}

/* close(2) is where some filesystems report what went wrong. */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int fd = ntr_pfile_fd(fi), copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);

	(void)ino;
	if (fd < 0)
		fuse_reply_err(req, -fd);
	else
		fuse_reply_err(req, copy < 0 || close(copy) ? errno : 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int data, struct fuse_file_info *fi)
{
	int fd = ntr_pfile_fd(fi);

	(void)ino;
	if (fd < 0)
		fuse_reply_err(req, -fd);
	else
		fuse_reply_err(req, (data ? fdatasync(fd) : fsync(fd)) ? errno : 0);
}

static void op_fallocate(
        fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	int fd = ntr_pfile_fd(fi);

	(void)ino;
	if (fd < 0)
		fuse_reply_err(req, -fd);
	else
		fuse_reply_err(req, fallocate(fd, mode, off, len) ? errno : 0);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	int fd = ntr_pfile_fd(fi);
	off_t at = fd < 0 ? -1 : lseek(fd, off, whence);

	(void)ino;
	if (fd < 0)
		fuse_reply_err(req, -fd);
	else if (at < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_lseek(req, at);
}

static void op_copy(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *in,
        fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *out, size_t len, int flags)
{
	int from = ntr_pfile_fd(in), to = ntr_pfile_fd(out);
	ssize_t n;

	(void)ino_in;
	(void)ino_out;
	if (from < 0 || to < 0) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	n = copy_file_range(from, &off_in, to, &off_out, len, (unsigned)flags);
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_write(req, (size_t)n);
}

void ntr_pfile_ops(struct fuse_lowlevel_ops *ops)
{
	ops->open = op_open;
	ops->create = op_create;
	ops->release = op_release;
	ops->read = op_read;
	ops->write = op_write;
	ops->flush = op_flush;
	ops->fsync = op_fsync;
	ops->fallocate = op_fallocate;
	ops->lseek = op_lseek;
	ops->copy_file_range = op_copy;
}

/* ---- directories ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int fd = ntr_pinode_fd(ino);
	struct pfile *f;

	if (fd >= 0 && (fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		fd = -errno;
	if (fd < 0) {
		fuse_reply_err(req, -fd);
		return;
	}
	f = add(fd);
	if (f && !(f->dir = fdopendir(fd))) {
		end(f);
		f = NULL;
	}
	if (!f) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)f;
	if (fuse_reply_open(req, fi))
		end(f);
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Adds one entry; returns its size, larger than room if it did not fit, or negative errno. plus: with its
 * attributes, which the kernel then holds a reference for (not for "." and ".."). */
static ssize_t add_entry(
        fuse_req_t req, fuse_ino_t ino, const struct dirent *d, char *buf, size_t room, bool plus)
{
	struct fuse_entry_param e = {.attr = {.st_ino = d->d_ino, .st_mode = (mode_t)d->d_type << 12}};
	size_t n;
	int r;

	if (!plus)
		return (ssize_t)fuse_add_direntry(req, buf, room, d->d_name, &e.attr, d->d_off);
	if (!is_dots(d->d_name)) {
		r = ntr_pinode_lookup(ino, d->d_name, &e);
		if (r == -ENOENT)
			return 0; /* gone since it was listed */
		if (r)
			return r;
	}
	n = fuse_add_direntry_plus(req, buf, room, d->d_name, &e, d->d_off);
	if (n > room && e.ino)
		ntr_pinode_forget(e.ino, 1);
	return (ssize_t)n;
}

/* The next entry, which stays pending until it was sent. 1, 0 at the end, or negative errno. */
static int next_entry(struct pfile *f)
{
	if (f->entry)
		return 1;
	errno = 0;
	f->entry = readdir(f->dir);
	return f->entry ? 1 : -errno;
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
	ntr_autofree char *buf = malloc(size);
	struct pfile *f = of_fh(fi->fh);
	size_t used = 0;
	int r = f->fd < 0 ? -ESTALE : buf ? 1 : -ENOMEM;

	if (r > 0 && off != f->pos) {
		seekdir(f->dir, off);
		f->entry = NULL;
		f->pos = off;
	}
	while (r > 0 && (r = next_entry(f)) > 0) {
		ssize_t n = add_entry(req, ino, f->entry, buf + used, size - used, plus);

		if (n < 0 || (size_t)n > size - used) {
			r = n < 0 ? (int)n : r;
			break;
		}
		used += (size_t)n;
		f->pos = f->entry->d_off;
		f->entry = NULL;
	}
	/* What has been collected goes out first: the kernel holds references for it. */
	if (r < 0 && !used)
		fuse_reply_err(req, -r);
	else
		fuse_reply_buf(req, buf, used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, true);
}

void ntr_pdir_ops(struct fuse_lowlevel_ops *ops)
{
	ops->opendir = op_opendir;
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
	ops->releasedir = op_release;
	ops->fsyncdir = op_fsync;
}
