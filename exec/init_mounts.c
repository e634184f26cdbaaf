/* init_mounts: host directories that the session shows.
 *
 * Each is opened before the namespaces are entered, copied out of the outer one (view.h) and attached at its
 * point. A point inside the workspace is a directory of the view: it is made where it is missing, looked up
 * without following a symlink (the session's processes may have put one there), and never made in another
 * host directory.
 *
 * When the view is exchanged, those in it are moved to a tmpfs that covers the namespace's root, where nobody
 * sees it, and from there into the new view: moved and not made anew, so that who works in them, or has files
 * open, stays there; and the view without mounts in it can be asked whether somebody uses it. */
#include "init.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct hostdir {
	char *point, *dir;
	const char *inner; /* of point: the path below wsroot; NULL: it is outside */
	bool rw;
	bool nested; /* the point lies in another one's directory */
	int fd;      /* the host's directory; once it is shown, its mount here, wherever that was moved to */
};

struct ntr_hostdirs {
	size_t n;
	int park; /* where those of the view are at the moment; -1 */
	struct hostdir v[];
};

void ntr_init_mounts_done(struct ntr_init *in)
{
	struct ntr_hostdirs *d = in->dirs;

	for (size_t i = 0; d && i < d->n; i++) {
		ntr_closep(&d->v[i].fd);
		free(d->v[i].point);
		free(d->v[i].dir);
	}
	if (d)
		ntr_closep(&d->park);
	free(d);
	in->dirs = NULL;
}

static int fail(struct ntr_err *e, int code, const struct hostdir *d, const char *why)
{
	ntr_err_set(e, code, "show the host directory %s at %s", d->dir, d->point);
	ntr_err_why(e, "%s", why ? why : strerror(-code));
	return ntr_err_todo(e, "put that right, or take the mount off the session: --mount %s=", d->point),
	       code;
}

static int open_at(int at, const char *path, uint64_t resolve)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
	        .resolve = resolve | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	long fd = syscall(SYS_openat2, at, path, &how, sizeof how);

	return fd < 0 ? -errno : (int)fd;
}

/* ---- start ---- */

static const char *below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && path[n] == '/' ? path + n + 1 : NULL;
}

static int read_one(struct ntr_init *in, const json_t *m, struct ntr_err *e)
{
	struct ntr_hostdirs *all = in->dirs;
	struct hostdir *d = &all->v[all->n];
	int r;

	d->fd = -1;
	if (ntr_json_get_bytes(json_object_get(m, "point"), &d->point, NULL) ||
	        ntr_json_get_bytes(json_object_get(m, "dir"), &d->dir, NULL)) {
		free(d->point);
		return ntr_err_set(e, -EINVAL, "read the session's host directories");
	}
	d->inner = below(d->point, in->wsroot);
	d->rw = ntr_json_bool(m, "rw", false);
	for (size_t i = 0; i < all->n; i++)
		d->nested |= below(d->point, all->v[i].point) != NULL;
	all->n++;
	r = open_at(AT_FDCWD, d->dir, 0);
	if (r >= 0)
		d->fd = r;
	return r < 0 ? fail(e, r, d,
	                       r == -ENOENT  ? "it is gone"
	                       : r == -ELOOP ? "a symlink took its place"
	                                     : NULL)
	             : 0;
}

int ntr_init_mounts_read(struct ntr_init *in, const struct ntr_initreq *rq, struct ntr_err *e)
{
	const json_t *list = json_object_get(rq->msg, "mounts"), *m;
	size_t n = json_array_size(list), i;
	int r = 0;

	if (!n)
		return 0;
	in->dirs = calloc(1, sizeof *in->dirs + n * sizeof in->dirs->v[0]);
	if (!in->dirs)
		return ntr_err_set(e, -ENOMEM, "read the session's host directories");
	in->dirs->park = -1;
	json_array_foreach (list, i, m)
		if (!r)
			r = read_one(in, m, e);
	return r;
}

int ntr_init_mounts_place(struct ntr_init *in, struct ntr_err *e)
{
	struct ntr_err inner = {0};

	for (size_t i = 0; in->dirs && i < in->dirs->n; i++) {
		const struct hostdir *d = &in->dirs->v[i];
		struct stat st;

		if (d->inner || d->nested || !lstat(d->point, &st))
			continue;
		if (ntr_view_place(d->point, &inner))
			return fail(e, inner.code, d, ntr_err_reason(&inner));
	}
	return 0;
}

/* ---- attaching ---- */

static uint64_t mount_of(int fd)
{
	struct statx sx;

	return statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx) ? 0 : sx.stx_mnt_id;
}

/* The directory `rest` of the view, made where it is missing. */
static int open_inner(const struct ntr_init *in, const char *rest)
{
	int at = open(in->wsroot, O_PATH | O_DIRECTORY | O_CLOEXEC), next;
	uint64_t view = at < 0 ? 0 : mount_of(at);
	char name[NAME_MAX + 1];

	if (at < 0)
		return -errno;
	for (; *rest; rest += *rest == '/') {
		size_t n = strcspn(rest, "/");

		if (!n || n > NAME_MAX)
			next = -ENAMETOOLONG;
		else {
			memcpy(name, rest, n);
			name[n] = '\0';
			next = open_at(at, name, RESOLVE_BENEATH);
			if (next == -ENOENT && mount_of(at) == view && !mkdirat(at, name, 0755))
				next = open_at(at, name, RESOLVE_BENEATH);
		}
		close(at);
		if (next < 0)
			return next;
		at = next;
		rest += n;
	}
	return at;
}

static int open_point(const struct ntr_init *in, const struct hostdir *d)
{
	return d->inner ? open_inner(in, d->inner) : open_at(AT_FDCWD, d->point, 0);
}

static const char *why_no_point(const struct hostdir *d, int code)
{
	if (code == -ENOENT && d->nested)
		return "the host directory that this point lies in has none of that name";
	if (code == -ENOTDIR || code == -ELOOP)
		return d->inner ? "there is a file or symlink in the workspace, not a directory"
		                : "there is no directory";
	return NULL;
}

/* From anywhere, or nowhere. */
static int put(const struct ntr_init *in, const struct hostdir *d, struct ntr_err *e)
{
	unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
	ntr_autoclose int to = open_point(in, d);

	if (to < 0)
		return fail(e, to, d, why_no_point(d, to));
	return move_mount(d->fd, "", to, "", flags) ? fail(e, -errno, d, NULL) : 0;
}

static int attach(struct ntr_init *in, struct hostdir *d, struct ntr_err *e)
{
	int tree = -1, r = ntr_view_borrow(d->fd, d->rw, &tree);

	ntr_closep(&d->fd);
	d->fd = tree;
	return r ? fail(e, r, d, r == -EINVAL ? "it cannot be seen from where the daemon was started" : NULL)
	         : put(in, d, e);
}

int ntr_init_mounts_attach(struct ntr_init *in, struct ntr_err *e)
{
	int r = 0;

	for (size_t i = 0; !r && in->dirs && i < in->dirs->n; i++)
		r = attach(in, &in->dirs->v[i], e);
	return r;
}

/* ---- exchanging the view ---- */

/* Mounted over "/", it is seen by nobody: a path begins at the root that its process has. */
static int park_open(void)
{
	ntr_autoclose int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), fd = -1;

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", "ntr", 0) ||
	        fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) ||
	        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -errno;
	fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (fd < 0 || move_mount(fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH))
		return -errno;
	return ntr_steal_fd(&fd);
}

static bool moves(const struct hostdir *d)
{
	return d->inner && !d->nested; /* what is nested goes along */
}

static int park_one(const struct ntr_hostdirs *d, size_t i)
{
	char name[24];
	int r;

	snprintf(name, sizeof name, "%zu", i);
	if (mkdirat(d->park, name, 0700))
		return -errno;
	if (!move_mount(d->v[i].fd, "", d->park, name, MOVE_MOUNT_F_EMPTY_PATH))
		return 0;
	r = -errno;
	unlinkat(d->park, name, AT_REMOVEDIR);
	return r;
}

int ntr_init_mounts_park(struct ntr_init *in, struct ntr_err *e)
{
	struct ntr_hostdirs *d = in->dirs;
	int r = 0;

	for (size_t i = 0; !r && d && i < d->n; i++) {
		if (!moves(&d->v[i]))
			continue;
		if (d->park < 0)
			d->park = r = park_open();
		if (r >= 0)
			r = park_one(d, i);
		if (r)
			fail(e, r, &d->v[i], NULL);
	}
	if (d && d->park < 0)
		d->park = -1;
	return r;
}

int ntr_init_mounts_unpark(struct ntr_init *in, struct ntr_err *e)
{
	struct ntr_hostdirs *d = in->dirs;
	char name[24], path[64];
	struct stat st;
	int r = 0;

	if (!d || d->park < 0)
		return 0;
	for (size_t i = 0; !r && i < d->n; i++) {
		snprintf(name, sizeof name, "%zu", i);
		if (moves(&d->v[i]) && !fstatat(d->park, name, &st, 0))
			r = put(in, &d->v[i], e);
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", d->park);
	umount2(path, MNT_DETACH);
	ntr_closep(&d->park);
	d->park = -1;
	return r;
}
