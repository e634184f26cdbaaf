/* Mounting and detaching, as root (or in a user namespace) by mount(2), else by fusermount3, with errors that
 * say what to do. libfuse's own mounting is not used: it answers -1 for everything, and changes the process's
 * environment. */
#include "versions_impl.h"

#include "../base/fusermount.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static bool is_fuse(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(10, 229);
}

static int open_device(int *ret_fd, struct ntr_err *e)
{
	ntr_autoclose int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct stat st;
	int r = fd < 0 ? -errno : is_fuse(fd) ? 0 : -ENODEV;

	if (!r) {
		*ret_fd = ntr_steal_fd(&fd);
		return 0;
	}
	ntr_err_set(e, r, "open /dev/fuse");
	if (r == -ENOENT || r == -ENODEV || r == -ENXIO) {
		ntr_err_why(e, "%s",
		        fd >= 0 ? "that is no FUSE device"
		                : "the kernel's fuse module is not loaded, or this container was given no "
		                  "/dev/fuse");
		ntr_err_todo(e, "run 'modprobe fuse' as root; for a container pass --device /dev/fuse");
	} else if (r == -EACCES || r == -EPERM) {
		unsigned mode = stat("/dev/fuse", &st) == 0 ? st.st_mode & 07777 : 0;

		ntr_err_why(e, "permission denied (its mode is %04o)", mode);
		ntr_err_todo(e, "run 'chmod 0666 /dev/fuse' as root; udev normally does");
	}
	return r;
}

static int mount_error(struct ntr_err *e, int r, const char *path)
{
	ntr_err_set(e, r, "mount the versions at '%s'", path);
	if (r == -ENODEV) {
		ntr_err_why(e, "the kernel has no fuse file system");
		ntr_err_todo(e, "run 'modprobe fuse' as root");
	} else if (r == -ENOTDIR || r == -ENOENT) {
		ntr_err_todo(e, "make that directory first");
	} else if (r == -ENOTCONN) {
		ntr_err_why(e, "a dead FUSE mount lies there");
		ntr_err_todo(e, "run 'fusermount3 -u -z %s', or 'umount -l' as root", path);
	}
	return r;
}

static int mount_directly(const char *path, int fd)
{
	char data[160];

	snprintf(data, sizeof(data), "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions%s", fd,
	        (unsigned)getuid(), (unsigned)getgid(), geteuid() == 0 ? ",allow_other" : "");
	if (mount("ntr", path, "fuse.ntr", MS_RDONLY | MS_NOSUID | MS_NODEV, data) == 0)
		return 0;
	return -errno;
}

static int helper_error(struct ntr_err *e, int r, const char *path, const char *words)
{
	ntr_err_set(e, r, "mount the versions at '%s'", path);
	if (r == -ENOENT) {
		ntr_err_why(e, "an ordinary user mounts through fusermount3, and there is none");
		ntr_err_todo(e, "install the package fuse3");
	} else if (geteuid() == 0) {
		ntr_err_why(e, "mounting is not permitted here (CAP_SYS_ADMIN is missing)");
		ntr_err_todo(e,
		        "give the container CAP_SYS_ADMIN (docker: --cap-add SYS_ADMIN --device /dev/fuse)");
	} else {
		ntr_err_why(e, "%s", words[0] ? words : r == -EPERM ? "fusermount3 failed" : strerror(-r));
		ntr_err_todo(e, "check that the directory is yours, that fusermount3 is set-uid root, and "
		                "that this is no "
		                "container without CAP_SYS_ADMIN");
	}
	return r;
}

static int mount_by_helper(const char *path, int *ret_fd, struct ntr_err *e)
{
	char words[400] = "";
	int r = ntr_fusermount(path, "ro,nosuid,nodev,default_permissions,fsname=ntr,subtype=ntr", ret_fd,
	        words, sizeof words);

	return r ? helper_error(e, r, path, words) : 0;
}

int ntr_vmount(const char *path, int *ret_fd, struct ntr_err *e)
{
	ntr_autoclose int fd = -1;
	struct stat st;
	int r = open_device(&fd, e);

	if (r)
		return r;
	/* fusermount3 would mount over a file just as well */
	r = stat(path, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? mount_directly(path, fd) : -ENOTDIR;
	if (r == -EPERM)
		return mount_by_helper(path, ret_fd, e);
	if (r)
		return mount_error(e, r, path);
	*ret_fd = ntr_steal_fd(&fd);
	return 0;
}

int ntr_mount_detach(const char *path)
{
	char words[400];

	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return 0;
	if (geteuid() == 0 || errno != EPERM)
		return -errno;
	return ntr_fusermount_end(path, true, words, sizeof words);
}

/* ---- what is mounted ---- */

int ntr_mount_is_there(const char *path)
{
	const char *slash = strrchr(path, '/');
	ntr_autofree char *dir = slash ? strndup(path, (size_t)(slash - path)) : NULL;
	ntr_autofree char *real = dir ? realpath(dir[0] ? dir : "/", NULL) : NULL;
	ntr_autofree char *at = real ? ntr_sprintf("%s%s", strcmp(real, "/") ? real : "", slash) : NULL;
	dev_t dev;

	return at && !ntr_fuse_dev(at, &dev);
}

void ntr_vmount_readahead(dev_t dev, unsigned kib)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	ntr_autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);
	/* only root may; without it reads are merely shorter */
	if (fd >= 0)
		(void)!dprintf(fd, "%u", kib);
}

int ntr_mount_is_dead(const char *path)
{
	struct statfs st;

	/* stat(2) might be answered from the kernel's caches: nothing here ever expires */
	return statfs(path, &st) < 0 && errno == ENOTCONN;
}
