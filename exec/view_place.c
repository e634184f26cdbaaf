/* view_place: a place for the view where the host has none.
 *
 * Nothing may be created on the host, so where wsroot does not exist a tmpfs takes the place of its deepest
 * existing parent: every entry of that parent is bound in (symlinks are copied), the missing directories are
 * made in the tmpfs. It is read-only afterwards: a file written next to the bound entries would silently
 * vanish with the session, and an error is better than that. (Where the parent is closed to whoever started
 * the session it is closed here as well, by its mode: programs expect EACCES.) For "/" the tmpfs becomes the
 * namespace's root.
 */
#include "view.h"
#include "../base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int bind_entry(int parent, int tmp, const char *name, bool dir)
{
	ntr_autoclose int tree = -1;

	if (dir ? mkdirat(tmp, name, 0755) : mknodat(tmp, name, S_IFREG | 0644, 0))
		return -errno;
	tree = open_tree(
	        parent, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW);
	if (tree < 0 && errno == ENOENT) /* gone since it was listed */
		return unlinkat(tmp, name, dir ? AT_REMOVEDIR : 0) ? -errno : 0;
	if (tree < 0 || move_mount(tree, "", tmp, name, MOVE_MOUNT_F_EMPTY_PATH))
		return -errno;
	return 0;
}

static int copy_symlink(int parent, int tmp, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(parent, name, target, sizeof target - 1);

	if (n < 0)
		return errno == ENOENT ? 0 : -errno;
	target[n] = '\0';
	return symlinkat(target, tmp, name) ? -errno : 0;
}

static int take_entry(int parent, int tmp, const struct dirent *d)
{
	unsigned char type = d->d_type;
	struct stat st;

	if (type == DT_UNKNOWN) {
		if (fstatat(parent, d->d_name, &st, AT_SYMLINK_NOFOLLOW))
			return errno == ENOENT ? 0 : -errno;
		type = (unsigned char)IFTODT(st.st_mode);
	}
	if (type == DT_LNK)
		return copy_symlink(parent, tmp, d->d_name);
	return bind_entry(parent, tmp, d->d_name, type == DT_DIR);
}

/* parent is open from before the tmpfs covered it. */
static int fill(int parent, int tmp, char ret_name[NAME_MAX + 1])
{
	int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	struct dirent *d;
	DIR *dir;

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while (!r && (d = readdir(dir))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		r = take_entry(parent, tmp, d);
		if (r)
			snprintf(ret_name, NAME_MAX + 1, "%s", d->d_name);
	}
	closedir(dir);
	return r;
}

static int new_tmpfs(int *ret)
{
	ntr_autoclose int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", "ntr", 0) ||
	        fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) ||
	        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -errno;
	fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	*ret = fd;
	return 0;
}

static int make_below(int tmp, const char *rest, mode_t mode)
{
	ntr_autofree char *path = strdup(rest);

	if (!path)
		return -ENOMEM;
	for (char *s = path; *s; s++) {
		if (*s != '/')
			continue;
		*s = '\0';
		if (mkdirat(tmp, path, mode) && errno != EEXIST)
			return -errno;
		*s = '/';
	}
	return mkdirat(tmp, path, mode) ? -errno : 0;
}

/* Looks like the directory it stands for; an owner outside the id map cannot be copied and does not matter.
 */
static int look_like(int parent, int tmp, bool closed)
{
	struct stat st;

	if (fstat(parent, &st) || fchmodat(tmp, ".", st.st_mode & (closed ? 07555 : 07777), 0))
		return -errno;
	return fchownat(tmp, "", st.st_uid, st.st_gid, AT_EMPTY_PATH) && errno != EINVAL && errno != EPERM
	               ? -errno
	               : 0;
}

static int become_root(int tmp)
{
	if (fchdir(tmp))
		return -errno;
	if (!syscall(SYS_pivot_root, ".", "."))
		return umount2(".", MNT_DETACH) || chdir("/") ? -errno : 0;
	/* In a chroot, or where the root is the initial ramfs, the root cannot be pivoted: it is covered
	 * instead. */
	return chroot(".") || chdir("/") ? -errno : 0;
}

static int stand_in(const char *parent_path, const char *rest, char ret_name[NAME_MAX + 1])
{
	ntr_autoclose int parent = open(parent_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ntr_autoclose int tmp = -1;
	bool closed;
	int r;

	if (parent < 0)
		return -errno;
	closed = faccessat(parent, ".", W_OK, AT_EACCESS) && errno == EACCES;
	r = new_tmpfs(&tmp);
	if (!r && move_mount(tmp, "", AT_FDCWD, parent_path, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS))
		r = -errno;
	if (!r)
		r = fill(parent, tmp, ret_name);
	if (!r)
		r = make_below(tmp, rest, closed ? 0555 : 0755);
	if (!r)
		r = look_like(parent, tmp, closed);
	if (!r && !strcmp(parent_path, "/"))
		r = become_root(tmp);
	if (!r && !closed && mount(NULL, parent_path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
		r = -errno;
	return r;
}

static bool is_plain(const char *path)
{
	if (path[0] != '/' || !path[1])
		return false;
	for (const char *s = path; *s;) {
		size_t n = strcspn(++s, "/");

		if (!n || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.'))
			return false;
		s += n;
	}
	return true;
}

static int make_place(const char *wsroot, struct ntr_err *e)
{
	ntr_autofree char *parent = strdup(wsroot);
	char name[NAME_MAX + 1] = "";
	struct stat st;
	size_t cut;
	int r;

	if (!parent)
		return ntr_err_set(e, -ENOMEM, "make %s", wsroot);
	do {
		cut = (size_t)(strrchr(parent, '/') - parent);
		parent[cut] = '\0';
	} while (cut && stat(parent, &st) && errno == ENOENT);
	r = stand_in(cut ? parent : "/", wsroot + cut + 1, name);
	if (!r)
		return 0;
	ntr_err_set(e, r, "make a place for the workspace at %s", wsroot);
	ntr_err_why(e, "%s (%s/%s)", strerror(-r), parent, name);
	return ntr_err_todo(e, "make the directory %s, or choose another root (ntr new --root DIR)", wsroot);
}

int ntr_view_place(const char *wsroot, struct ntr_err *e)
{
	struct stat st;

	if (!is_plain(wsroot))
		return ntr_err_full(e, -EINVAL, "place the workspace",
		        "its root has to be an absolute path without '.', '..' or '//', and not /", NULL);
	if (!stat(wsroot, &st)) {
		if (S_ISDIR(st.st_mode))
			return 0;
		ntr_err_set(e, -ENOTDIR, "place the workspace at %s", wsroot);
		return ntr_err_todo(
		        e, "choose a root that is a directory or does not exist (ntr new --root DIR)");
	}
	if (errno != ENOENT)
		return ntr_err_set(e, -errno, "place the workspace at %s", wsroot);
	return make_place(wsroot, e);
}
