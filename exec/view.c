/* view: namespaces and the overlay.
 *
 * Two mount namespaces are kept. The inner one is where the session's processes live, with the view at
 * wsroot. The outer one is a private copy of what the supervisor was started in and never changes: overlays
 * are built there. Two reasons: overlayfs takes its layers only from the builder's own mount namespace (so
 * descriptors that the daemon opened have to be opened again, by the path they have), and in the inner one
 * the view may cover the very folders that hold the store (wsroot above the store). A mount that was built in
 * one namespace and is not attached yet can be attached in the other. */
#include "view.h"
#include "initproto.h"
#include "../base/upperfs.h"
#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200
#endif

enum { MAGIC_OVERLAY = 0x794c7630, MAGIC_FUSE = 0x65735546, MAGIC_NFS = 0x6969 };

static int outer_ns = -1;

/* ---- entering ---- */

static int sysctl_is(const char *path, char value)
{
	ntr_autofree char *text = NULL;

	return !ntr_read_file(AT_FDCWD, path, 64, &text, NULL) && text[0] == value;
}

/* Where root lacks the right to mount. */
static int no_mounting(struct ntr_err *e, int code)
{
	ntr_err_why(e, "mounting is not permitted here (CAP_SYS_ADMIN is missing)");
	ntr_err_todo(e, "give the container CAP_SYS_ADMIN (docker: --privileged or --cap-add SYS_ADMIN), or "
	                "run ntr as an "
	                "ordinary user");
	return code;
}

static int plain_error(struct ntr_err *e, int code, const char *what)
{
	ntr_err_set(e, code, "%s", what);
	return code == -EPERM ? no_mounting(e, code) : code;
}

static int userns_error(struct ntr_err *e, int code, const char *step)
{
	ntr_err_set(e, code, "enter a user namespace (%s)", step);
	if (code == -ENOSPC || code == -EUSERS || sysctl_is("/proc/sys/user/max_user_namespaces", '0')) {
		ntr_err_why(e,
		        "this host's limit on user namespaces is reached or 0 (user.max_user_namespaces, "
		        "user.max_mnt_namespaces)");
		return ntr_err_todo(e, "raise it: sudo sysctl -w user.max_user_namespaces=15000 "
		                       "user.max_mnt_namespaces=15000");
	}
	if (code == -EINVAL || code == -ENOSYS) {
		ntr_err_why(e, "this kernel has no user namespaces (CONFIG_USER_NS)");
		return ntr_err_todo(e, "run ntr as root, or on a kernel that has them");
	}
	if (code != -EPERM && code != -EACCES)
		return code;
	if (sysctl_is("/proc/sys/kernel/unprivileged_userns_clone", '0')) {
		ntr_err_why(e, "this host forbids user namespaces to ordinary users "
		               "(kernel.unprivileged_userns_clone=0)");
		return ntr_err_todo(e, "allow them: sudo sysctl -w kernel.unprivileged_userns_clone=1");
	}
	if (sysctl_is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", '1')) {
		ntr_err_why(e, "AppArmor forbids user namespaces to ordinary users on this host "
		               "(kernel.apparmor_restrict_unprivileged_userns=1)");
		return ntr_err_todo(e, "allow them: sudo sysctl -w "
		                       "kernel.apparmor_restrict_unprivileged_userns=0, or install "
		                       "an AppArmor profile with `userns,` for ntr-init");
	}
	ntr_err_why(e, "%s; a container's seccomp filter or a chroot forbids it", strerror(-code));
	return ntr_err_todo(e,
	        "run the container with user namespaces allowed (docker: --security-opt seccomp=unconfined), "
	        "or run ntr as root");
}

static int write_proc(const char *path, const char *text)
{
	ntr_autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return ntr_write_all(fd, text, strlen(text));
}

/* setgroups stays denied: the kernel demands it of a gid map written without privilege. */
static int map_ids(uid_t uid, gid_t gid, struct ntr_err *e)
{
	char line[64];
	int r = write_proc("/proc/self/setgroups", "deny");

	if (r && r != -ENOENT)
		return userns_error(e, r, "setgroups");
	snprintf(line, sizeof line, "%u %u 1\n", uid, uid);
	r = write_proc("/proc/self/uid_map", line);
	if (r)
		return userns_error(e, r, "uid_map");
	snprintf(line, sizeof line, "%u %u 1\n", gid, gid);
	r = write_proc("/proc/self/gid_map", line);
	return r ? userns_error(e, r, "gid_map") : 0;
}

static int new_namespaces(bool user, struct ntr_err *e)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r;

	if (!unshare(CLONE_NEWNS | (user ? CLONE_NEWUSER : 0)))
		return user ? map_ids(uid, gid, e) : 0;
	if (user)
		return userns_error(e, -errno, "unshare");
	r = plain_error(e, -errno, "enter a mount namespace");
	if (r == -ENOSPC) {
		ntr_err_why(e, "this host's limit on mount namespaces is reached (user.max_mnt_namespaces)");
		ntr_err_todo(e, "raise it: sudo sysctl -w user.max_mnt_namespaces=15000");
	}
	return r;
}

/* The path of root_fd as seen from the namespace's own root: "/" unless the supervisor was started in a
 * chroot. */
static int root_path(int root_fd, char *buf, size_t size)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", root_fd);
	n = readlink(link, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

static int to_root(const char *path)
{
	if (strcmp(path, "/") && chroot(path))
		return -errno;
	return chdir("/") ? -errno : 0;
}

static int split_namespaces(bool user, int root_fd, struct ntr_err *e)
{
	ntr_autoclose int ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	char path[PATH_MAX];
	int r;

	if (ns < 0)
		return ntr_err_full(
		        e, -errno, "enter a mount namespace", NULL, "mount /proc (mount -t proc proc /proc)");
	/* setns leaves a chroot, whose root need not be a mount and could not be made private. */
	if (setns(ns, CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return user ? userns_error(e, -errno, "private mounts")
		            : plain_error(e, -errno, "make mounts private");
	r = root_path(root_fd, path, sizeof path);
	if (!r && unshare(CLONE_NEWNS))
		r = -errno;
	if (!r)
		r = to_root(path);
	if (r)
		return user ? userns_error(e, r, "inner mounts")
		            : ntr_err_set(e, r, "enter a mount namespace");
	outer_ns = ntr_steal_fd(&ns);
	return 0;
}

int ntr_view_enter(bool user, struct ntr_err *e)
{
	ntr_autoclose int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (root_fd < 0)
		return ntr_err_set(e, -errno, "open /");
	r = new_namespaces(user, e);
	return r ? r : split_namespaces(user, root_fd, e);
}

/* ---- the outer namespace ---- */

struct inner { /* the way back */
	int ns, root;
};

static void inner_done(struct inner *in)
{
	ntr_closep(&in->ns);
	ntr_closep(&in->root);
}

static int outer_enter(struct inner *ret)
{
	ret->ns = ret->root = -1;
	if (outer_ns < 0)
		return 0;
	ret->ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	ret->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (ret->ns < 0 || ret->root < 0 || setns(outer_ns, CLONE_NEWNS)) {
		int r = -errno;

		inner_done(ret);
		return r;
	}
	return 0;
}

/* Whatever ran in the wrong namespace would write past the session, so there is no going on when the way back
 * fails. */
static void outer_leave(struct inner *in)
{
	if (in->ns < 0)
		return;
	if (setns(in->ns, CLONE_NEWNS) || fchdir(in->root) || chroot(".") || chdir("/"))
		abort();
	inner_done(in);
}

static bool same_file(int a, int b)
{
	struct stat sa, sb;

	return !fstat(a, &sa) && !fstat(b, &sb) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* The same directory as a mount of this namespace; the descriptor itself where its path does not lead to it
 * here. */
static int reopen_here(int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t n;
	int here;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	if (n > 0) {
		path[n] = '\0';
		here = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (here >= 0 && same_file(here, fd))
			return here;
		ntr_closep(&here);
	}
	here = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return here < 0 ? -errno : here;
}

/* ---- the overlay ---- */

static int set_dir(int fs, const char *key, int fd)
{
	char path[64];

	/* A path through /proc: the kernel splits layer lists at colons, and a store's own path may hold any
	 * byte. */
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return fsconfig(fs, FSCONFIG_SET_STRING, key, path, 0) ? -errno : 0;
}

/* A rename or link of what lies deeper than this in the tree is EXDEV, for overlayfs notes where a committed
 * object came from, and by default no path of more than 256 bytes. A host's setting: only ever raised. */
static void allow_long_redirects(void)
{
	static const char path[] = "/sys/module/overlay/parameters/redirect_max";
	ntr_autofree char *text = NULL;
	ntr_autoclose int fd = -1;

	if (ntr_read_file(AT_FDCWD, path, 64, &text, NULL) || atoi(text) >= NTR_REDIRECT_MAX)
		return;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) /* refused in a container: `ntr doctor` says so */
		(void)dprintf(fd, "%d\n", NTR_REDIRECT_MAX);
}

static int set_options(int fs, bool userxattr)
{
	static const char *const root[][2] = {{"redirect_dir", "on"}, {"metacopy", "on"}};
	int r = fsconfig(fs, FSCONFIG_SET_STRING, "source", "ntr", 0);

	if (userxattr)
		r |= fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0);
	else
		allow_long_redirects();
	for (size_t i = 0; !userxattr && i < NTR_COUNT(root); i++)
		r |= fsconfig(fs, FSCONFIG_SET_STRING, root[i][0], root[i][1], 0);
	r |= fsconfig(fs, FSCONFIG_SET_STRING, "index", "off", 0);
	r |= fsconfig(fs, FSCONFIG_SET_STRING, "xino", "on", 0);
	return r ? -errno : 0;
}

static int configure(int fs, const struct ntr_overlay *o)
{
	const struct {
		const char *key;
		int fd;
	} dirs[] = {{"lowerdir", o->lower_fd}, {"upperdir", o->upper_fd}, {"workdir", o->work_fd}};
	int here[NTR_COUNT(dirs)], r = set_options(fs, o->userxattr);

	for (size_t i = 0; i < NTR_COUNT(dirs); i++)
		here[i] = -1;
	for (size_t i = 0; !r && i < NTR_COUNT(dirs); i++) {
		here[i] = reopen_here(dirs[i].fd);
		r = here[i] < 0 ? here[i] : set_dir(fs, dirs[i].key, here[i]);
	}
	/* Kernels that only note the strings look the paths up here, so the descriptors have to be open until
	 * now. */
	if (!r && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		r = -errno;
	for (size_t i = 0; i < NTR_COUNT(dirs); i++)
		ntr_closep(&here[i]);
	return r;
}

/* Mount API calls leave what went wrong in the context's log, "e overlay: …" a line. */
static void read_log(int fs, char *buf, size_t size)
{
	ssize_t n = read(fs, buf, size - 1);

	buf[n > 0 ? n : 0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	if (n > 2 && buf[1] == ' ')
		memmove(buf, buf + 2, strlen(buf + 2) + 1);
}

static const char *upper_kind(int fd)
{
	struct statfs sf;

	if (fstatfs(fd, &sf))
		return "an unknown filesystem";
	switch ((unsigned long)sf.f_type) {
	case MAGIC_OVERLAY:
		return "overlayfs (a container's root or another session)";
	case MAGIC_FUSE:
		return "FUSE";
	case MAGIC_NFS:
		return "NFS";
	default:
		return "a filesystem without what overlayfs needs (xattrs, RENAME_WHITEOUT, d_type)";
	}
}

static int overlay_error(struct ntr_err *e, int code, int fs, const struct ntr_overlay *o)
{
	char log[256] = "";

	ntr_err_set(e, code, NTR_OVERLAY_WHAT);
	if (fs >= 0)
		read_log(fs, log, sizeof log);
	if (code == -EINVAL && !strstr(log, "stacking")) {
		ntr_err_why(e, "the store is on %s%s%s", upper_kind(o->upper_fd), log[0] ? ": " : "", log);
		return ntr_err_todo(e, "put the store on ext4, xfs, btrfs or tmpfs (NTR_STORE=DIR)");
	}
	if (strstr(log, "stacking") || code == -ELOOP) {
		ntr_err_why(e, "an overlay on an overlay is the kernel's limit: %s", log);
		return ntr_err_todo(e,
		        "put the store on an ordinary filesystem, such as a tmpfs (NTR_STORE=/dev/shm/DIR)");
	}
	if (code == -EPERM && o->userxattr) {
		ntr_err_why(e, "this kernel gives no overlay to ordinary users (it takes 5.11 or newer)%s%s",
		        log[0] ? ": " : "", log);
		return ntr_err_todo(e, "run ntr as root, or use a newer kernel");
	}
	if (code == -EPERM)
		return no_mounting(e, code);
	if (log[0])
		ntr_err_why(e, "%s: %s", strerror(-code), log);
	return code;
}

static int fsopen_error(struct ntr_err *e, int code)
{
	ntr_err_set(e, code, NTR_OVERLAY_WHAT);
	if (code == -ENODEV) {
		ntr_err_why(e, "this kernel has no overlayfs");
		return ntr_err_todo(e, "load it: sudo modprobe overlay (and list it in /etc/modules-load.d)");
	}
	if (code == -ENOSYS) {
		ntr_err_why(e, "this kernel, or a container's seccomp filter, has no fsopen(2)");
		return ntr_err_todo(
		        e, "use kernel 5.2 or newer, or a container with a newer seccomp profile");
	}
	return code == -EPERM ? no_mounting(e, code) : code;
}

static int build(const struct ntr_overlay *o, int *ret_fd, struct ntr_err *e)
{
	ntr_autoclose int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	int fd, r;

	if (fs < 0)
		return fsopen_error(e, -errno);
	r = configure(fs, o);
	if (r)
		return overlay_error(e, r, fs, o);
	fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (fd < 0)
		return overlay_error(e, -errno, fs, o);
	*ret_fd = fd;
	return 0;
}

int ntr_view_overlay(const struct ntr_overlay *o, int *ret_fd, struct ntr_err *e)
{
	struct inner in;
	int r = outer_enter(&in);

	if (r)
		return ntr_err_set(e, r, NTR_OVERLAY_WHAT);
	r = build(o, ret_fd, e);
	outer_leave(&in);
	return r;
}

/* ---- memory for uppers ---- */

static int new_tmpfs(uint64_t size, int *ret)
{
	ntr_autoclose int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	char text[24];
	int fd;

	snprintf(text, sizeof text, "%llu", (unsigned long long)size);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", "ntr", 0) ||
	        fsconfig(fs, FSCONFIG_SET_STRING, "size", text, 0) ||
	        fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) ||
	        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -errno;
	fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	*ret = fd;
	return 0;
}

static int put_over(int mount, int over_fd)
{
	ntr_autoclose int here = reopen_here(over_fd);

	if (here < 0)
		return here;
	return move_mount(mount, "", here, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) ? -errno
	                                                                                          : 0;
}

int ntr_view_memory(int over_fd, uint64_t size, int *ret_fd, struct ntr_err *e)
{
	ntr_autoclose int mount = -1;
	struct inner in;
	int r = outer_enter(&in);

	if (!r) {
		r = new_tmpfs(size, &mount);
		if (!r)
			r = put_over(mount, over_fd);
		outer_leave(&in);
	}
	if (r) {
		ntr_err_set(e, r, "mount a tmpfs for the session's changes");
		return ntr_err_todo(
		        e, "put the store on ext4, xfs or btrfs (NTR_STORE=DIR): there it needs none");
	}
	*ret_fd = ntr_steal_fd(&mount);
	return 0;
}

/* ---- host directories ---- */

/* All mounts below come along: in a user namespace the kernel gives no part of them, for what one of them
 * hides would show. */
static int borrow(int dir_fd, bool rw, int *ret)
{
	ntr_autoclose int here = reopen_here(dir_fd), tree = -1;
	struct mount_attr attr = {
	        .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (rw ? 0 : MOUNT_ATTR_RDONLY),
	        .propagation = MS_PRIVATE};

	if (here < 0)
		return here;
	tree = open_tree(here, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
	if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr))
		return -errno;
	*ret = ntr_steal_fd(&tree);
	return 0;
}

int ntr_view_borrow(int dir_fd, bool rw, int *ret_fd)
{
	struct inner in;
	int r = outer_enter(&in);

	if (r)
		return r;
	r = borrow(dir_fd, rw, ret_fd);
	outer_leave(&in);
	return r;
}

/* ---- at its place ---- */

int ntr_view_attach(int mount_fd, const char *wsroot, bool beneath, struct ntr_err *e)
{
	unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS | (beneath ? MOVE_MOUNT_BENEATH : 0);

	int r;

	if (!move_mount(mount_fd, "", AT_FDCWD, wsroot, flags))
		return 0;
	r = ntr_err_set(e, -errno, "show the session at %s", wsroot);
	return r == -EPERM ? no_mounting(e, r) : r;
}

int ntr_view_detach(const char *wsroot, bool lazy)
{
	return umount2(wsroot, lazy ? MNT_DETACH : 0) ? -errno : 0;
}

/* MNT_EXPIRE only marks an unused mount the first time (EAGAIN) and any use takes the mark off again; asking
 * twice would unmount it, so the mark is taken off by looking the path up. */
int ntr_view_busy(const char *wsroot)
{
	struct stat st;
	int r;

	if (stat(wsroot, &st))
		return -errno;
	r = umount2(wsroot, MNT_EXPIRE) ? -errno : -EIO;
	if (r != -EAGAIN)
		return r == -EBUSY ? 1 : r;
	return stat(wsroot, &st) ? -errno : 0;
}

int ntr_view_tree(int tree_fd, int empty_fd, int *ret_fd)
{
	static const char *const options[][2] = {{"source", "ntr"}, {"index", "off"}, {"xino", "on"}};
	ntr_autoclose int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	char layers[96];
	int r = 0;

	if (fs < 0)
		return -errno;
	snprintf(layers, sizeof layers, "/proc/self/fd/%d:/proc/self/fd/%d", tree_fd, empty_fd);
	for (size_t i = 0; i < NTR_COUNT(options); i++)
		r |= fsconfig(fs, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0);
	if (r || fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", layers, 0) ||
	        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -errno;
	*ret_fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return *ret_fd < 0 ? -errno : 0;
}

int ntr_view_copy(int dir_fd, const char *path, int *ret_fd)
{
	*ret_fd = open_tree(dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	return *ret_fd < 0 ? -errno : 0;
}
