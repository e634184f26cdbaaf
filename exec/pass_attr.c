/* pass_attr: attributes and extended attributes. */
#include "pass_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	/* An open file answers for itself: it may have no name any more. */
	int fd = fi ? ntr_pfile_fd(fi) : ntr_pinode_fd(ino);
	struct stat st;

	if (fd < 0)
		fuse_reply_err(req, -fd);
	else if (fstat(fd, &st))
		fuse_reply_err(req, errno);
	else
		fuse_reply_attr(req, &st, 0);
}

static void wanted_times(const struct stat *st, int valid, struct timespec ret[2])
{
	ret[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
	ret[1] = (struct timespec){.tv_nsec = UTIME_OMIT};
	if (valid & FUSE_SET_ATTR_ATIME_NOW)
		ret[0].tv_nsec = UTIME_NOW;
	else if (valid & FUSE_SET_ATTR_ATIME)
		ret[0] = st->st_atim;
	if (valid & FUSE_SET_ATTR_MTIME_NOW)
		ret[1].tv_nsec = UTIME_NOW;
	else if (valid & FUSE_SET_ATTR_MTIME)
		ret[1] = st->st_mtim;
}

/* file: an open file, or -1; then link names the inode. */
static int apply(int file, const char *link, const struct stat *st, int valid)
{
	struct timespec ts[2];

	if (valid & FUSE_SET_ATTR_MODE && (file >= 0 ? fchmod(file, st->st_mode) : chmod(link, st->st_mode)))
		return -errno;
	if (valid & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
		uid_t uid = valid & FUSE_SET_ATTR_UID ? st->st_uid : (uid_t)-1;
		gid_t gid = valid & FUSE_SET_ATTR_GID ? st->st_gid : (gid_t)-1;

		if (file >= 0 ? fchown(file, uid, gid) : chown(link, uid, gid))
			return -errno;
	}
	if (valid & FUSE_SET_ATTR_SIZE &&
	        (file >= 0 ? ftruncate(file, st->st_size) : truncate(link, st->st_size)))
		return -errno;
	if (valid & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
	                    FUSE_SET_ATTR_MTIME_NOW)) {
		wanted_times(st, valid, ts);
		if (file >= 0 ? futimens(file, ts) : utimensat(AT_FDCWD, link, ts, 0))
			return -errno;
	}
	return 0;
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int valid, struct fuse_file_info *fi)
{
	int file = fi ? ntr_pfile_fd(fi) : -1;
	int fd = fi ? file : ntr_pinode_fd(ino), r;
	struct stat now;
	char link[40];

	if (fd < 0) {
		fuse_reply_err(req, -fd);
		return;
	}
	r = apply(file, ntr_pinode_link(fd, link), st, valid);
	if (!r && fstat(fd, &now))
		r = -errno;
	if (r)
		fuse_reply_err(req, -r);
	else
		fuse_reply_attr(req, &now, 0);
}

static void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	int fd = ntr_pinode_fd(ino);
	char link[40];

	if (fd < 0)
		fuse_reply_err(req, -fd);
	else
		fuse_reply_err(req, access(ntr_pinode_link(fd, link), mask) ? errno : 0);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	int fd = ntr_pinode_fd(ino);
	struct statvfs sv;

	if (fd < 0)
		fuse_reply_err(req, -fd);
	else if (fstatvfs(fd, &sv))
		fuse_reply_err(req, errno);
	else
		fuse_reply_statfs(req, &sv);
}

/* ---- extended attributes: size 0 asks for the size ---- */

static void reply_xattr(fuse_req_t req, ssize_t n, const char *buf, size_t size)
{
	if (n < 0)
		fuse_reply_err(req, errno);
	else if (!size)
		fuse_reply_xattr(req, (size_t)n);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

/* name NULL: the list. */
static void read_xattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	ntr_autofree char *buf = size ? malloc(size) : NULL;
	int fd = ntr_pinode_fd(ino);
	char link[40];

	if (fd < 0)
		fuse_reply_err(req, -fd);
	else if (size && !buf)
		fuse_reply_err(req, ENOMEM);
	else if (name)
		reply_xattr(req, getxattr(ntr_pinode_link(fd, link), name, buf, size), buf, size);
	else
		reply_xattr(req, listxattr(ntr_pinode_link(fd, link), buf, size), buf, size);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	read_xattr(req, ino, name, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	read_xattr(req, ino, NULL, size);
}

static void op_setxattr(
        fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	int fd = ntr_pinode_fd(ino);
	char link[40];

	if (fd < 0)
		fuse_reply_err(req, -fd);
	else
		fuse_reply_err(
		        req, setxattr(ntr_pinode_link(fd, link), name, value, size, flags) ? errno : 0);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	int fd = ntr_pinode_fd(ino);
	char link[40];

	if (fd < 0)
		fuse_reply_err(req, -fd);
	else
		fuse_reply_err(req, removexattr(ntr_pinode_link(fd, link), name) ? errno : 0);
}

void ntr_pattr_ops(struct fuse_lowlevel_ops *ops)
{
	ops->getattr = op_getattr;
	ops->setattr = op_setattr;
	ops->access = op_access;
	ops->statfs = op_statfs;
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
	ops->setxattr = op_setxattr;
	ops->removexattr = op_removexattr;
}
