/* pass_name: requests that name things. Permissions are the kernel's business: this process is the user. */
#include "pass_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static void reply_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int r = ntr_pinode_lookup(parent, name, &e);

	if (r)
		fuse_reply_err(req, -r);
	else if (fuse_reply_entry(req, &e))
		ntr_pinode_forget(e.ino, 1); /* the kernel did not get it */
}

/* What every maker of a name does: the call's result, then the new entry. */
static void reply_made(fuse_req_t req, fuse_ino_t parent, const char *name, int result)
{
	if (result)
		fuse_reply_err(req, errno);
	else
		reply_lookup(req, parent, name);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	reply_lookup(req, parent, name);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	ntr_pinode_forget(ino, n);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *f)
{
	for (size_t i = 0; i < count; i++)
		ntr_pinode_forget(f[i].ino, f[i].nlookup);
	fuse_reply_none(req);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	int dir = ntr_pinode_fd(parent);

	if (dir < 0)
		fuse_reply_err(req, -dir);
	else
		reply_made(req, parent, name, mknodat(dir, name, mode, rdev));
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	int dir = ntr_pinode_fd(parent);

	if (dir < 0)
		fuse_reply_err(req, -dir);
	else
		reply_made(req, parent, name, mkdirat(dir, name, mode));
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	int dir = ntr_pinode_fd(parent);

	if (dir < 0)
		fuse_reply_err(req, -dir);
	else
		reply_made(req, parent, name, symlinkat(target, dir, name));
}

/* Two descriptors of the table at once: the second look-up might close the first one, so that one is copied.
 */
static int two_fds(fuse_ino_t a, fuse_ino_t b, int *ret_a, int *ret_b)
{
	int fd = ntr_pinode_fd(a);

	if (fd < 0)
		return fd;
	*ret_a = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (*ret_a < 0)
		return -errno;
	*ret_b = ntr_pinode_fd(b);
	return *ret_b < 0 ? *ret_b : 0;
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	ntr_autoclose int file = -1;
	char link[40];
	int dir = -1, r = two_fds(ino, parent, &file, &dir);

	if (r)
		fuse_reply_err(req, -r);
	else
		reply_made(req, parent, name,
		        linkat(AT_FDCWD, ntr_pinode_link(file, link), dir, name, AT_SYMLINK_FOLLOW));
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, int flags)
{
	int dir = ntr_pinode_fd(parent);

	if (dir < 0)
		fuse_reply_err(req, -dir);
	else
		fuse_reply_err(req, unlinkat(dir, name, flags) ? errno : 0);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, 0);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, AT_REMOVEDIR);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to, const char *to_name,
        unsigned flags)
{
	ntr_autoclose int from_dir = -1;
	int to_dir = -1, r = two_fds(parent, to, &from_dir, &to_dir);

	if (!r && renameat2(from_dir, name, to_dir, to_name, flags))
		r = -errno;
	if (!r) {
		ntr_pinode_moved(to, to_name);
		if (flags & RENAME_EXCHANGE)
			ntr_pinode_moved(parent, name);
	}
	fuse_reply_err(req, -r);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char buf[PATH_MAX + 1];
	int fd = ntr_pinode_fd(ino);
	ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", buf, sizeof buf);

	if (fd < 0)
		fuse_reply_err(req, -fd);
	else if (n < 0)
		fuse_reply_err(req, errno);
	else if (n == sizeof buf)
		fuse_reply_err(req, ENAMETOOLONG);
	else {
		buf[n] = '\0';
		fuse_reply_readlink(req, buf);
	}
}

void ntr_pname_ops(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = op_lookup;
	ops->forget = op_forget;
	ops->forget_multi = op_forget_multi;
	ops->mknod = op_mknod;
	ops->mkdir = op_mkdir;
	ops->symlink = op_symlink;
	ops->link = op_link;
	ops->unlink = op_unlink;
	ops->rmdir = op_rmdir;
	ops->rename = op_rename;
	ops->readlink = op_readlink;
}
