/* init_file: single operations on files of the view, for put, cat, ls and the like. Nothing stays open here.
 */
#include "init.h"
#include "init_rename.h"
#include "entries.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* root: the view's directory. path: free of symlinks. */
static int open_plain(int root, const char *path, uint64_t flags, uint64_t mode)
{
	struct open_how how = {.flags = flags | O_CLOEXEC,
	        .mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? mode & 07777 : 0,
	        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	long fd;

	do
		fd = syscall(SYS_openat2, root, path, &how, sizeof how);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : (int)fd;
}

static int open_root(const struct ntr_init *in)
{
	int fd = open(in->wsroot, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* A FIFO without a peer would stop the supervisor, hence O_NONBLOCK, which is taken off again. */
static int open_in_view(const struct ntr_init *in, const char *path, uint64_t flags, uint64_t mode)
{
	ntr_autoclose int root = open_root(in);
	ntr_autofree char *plain = NULL;
	bool follow = !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
	bool path_only = flags & O_PATH;
	int fd, r;

	if (root < 0)
		return root;
	r = ntr_init_resolve(root, in->wsroot, path, follow, &plain);
	if (r)
		return r;
	if (path_only)
		flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW;
	fd = open_plain(root, plain, path_only ? flags : flags | O_NONBLOCK | O_NOCTTY, mode);
	if (fd >= 0 && !path_only && !(flags & O_NONBLOCK))
		fcntl(fd, F_SETFL, (int)(flags & (O_APPEND | O_DIRECT | O_NOATIME)));
	return fd;
}

static int get_path(const struct ntr_initreq *rq, const char *key, char **ret)
{
	size_t len = 0;
	int r = ntr_json_get_bytes(json_object_get(rq->msg, key), ret, &len);

	return r || strlen(*ret) == len ? r : -EINVAL;
}

void ntr_init_open(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autofree char *path = NULL;
	ntr_autoclose int fd = -1;
	uint64_t flags = (uint32_t)ntr_json_int(rq->msg, "flags", 0);
	uint64_t mode = (uint64_t)ntr_json_int(rq->msg, "mode", 0);
	bool make = ntr_json_bool(rq->msg, "make", false);
	int r = get_path(rq, "path", &path);

	if (!r)
		r = fd = open_in_view(in, path, flags, mode);
	if (r != -ENOENT)
		make = false;
	else if (make)
		r = fd = open_in_view(in, path, flags | O_CREAT | O_EXCL, mode);
	if (r < 0) {
		ntr_init_errno(in, rq->req, r);
		return;
	}
	/* The first close of a file on a versions mount asks it whether closes are to be told. Not the
	 * daemon's: it would ask itself. */
	close(fcntl(fd, F_DUPFD_CLOEXEC, 3));
	ntr_init_send(in, rq->req, json_pack("{s:b,s:b}", "ok", 1, "made", make), &fd, 1);
}

/* ---- listing ---- */

/* In a child: a large directory takes its time, and calls go on meanwhile. */
static void __attribute__((noreturn)) list(int fd, int out, const char *path)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "ntr-ls");
	if (dup2(fd, 0) < 0 || dup2(out, 1) < 0)
		_exit(1);
	closefrom(2); /* ntrd must see its socket close when ntr-init dies */
	signal(SIGPIPE, SIG_DFL);
	ntr_entries_write(0, path, 1);
	_exit(0);
}

void ntr_init_list(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autofree char *path = NULL;
	ntr_autoclose int fd = -1;
	int r = get_path(rq, "path", &path);
	pid_t pid;

	if (!r)
		r = fd = open_in_view(in, path, O_PATH, 0);
	if (r == -ENOENT) /* a symlink to what is not there is listed itself */
		r = fd = open_in_view(in, path, O_PATH | O_NOFOLLOW, 0);
	if (r < 0) {
		ntr_init_errno(in, rq->req, r);
		return;
	}
	pid = fork();
	if (!pid)
		list(fd, rq->fds[0], path);
	if (pid < 0) {
		ntr_init_errno(in, rq->req, -errno);
		return;
	}
	ntr_inithelper_adopt(in, pid);
	ntr_init_ok(in, rq->req);
}

/* ---- operations on names: the last component is not followed ---- */

struct place { /* a name in an opened folder */
	int dir;
	char *path; /* owned */
	const char *name;
};

static void place_done(struct place *p)
{
	ntr_closep(&p->dir);
	free(p->path);
}

static int find_place(const struct ntr_init *in, int root, const char *path, struct place *ret)
{
	char *slash;
	int r = ntr_init_resolve(root, in->wsroot, path, false, &ret->path);

	if (r)
		return r;
	if (!strcmp(ret->path, "."))
		return -EBUSY; /* the root itself */
	slash = strrchr(ret->path, '/');
	ret->name = slash ? slash + 1 : ret->path;
	if (slash)
		*slash = '\0';
	ret->dir = open_plain(root, slash ? ret->path : ".", O_PATH | O_DIRECTORY, 0);
	return ret->dir < 0 ? ret->dir : 0;
}

static int change_mode(const struct ntr_init *in, const char *path, mode_t mode)
{
	ntr_autoclose int fd = open_in_view(in, path, O_PATH, 0);
	char link[64];

	if (fd < 0)
		return fd;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return chmod(link, mode) ? -errno : 0;
}

static int move(const struct ntr_init *in, int root, const struct place *from, const char *to)
{
	ntr_auto(place_done) struct place dest = {.dir = -1};
	int r = find_place(in, root, to, &dest);

	if (r)
		return r;
	return ntr_rename_plain(from->dir, from->name, dest.dir, dest.name, 0);
}

static int do_pathop(
        const struct ntr_init *in, const char *kind, const char *path, const char *to, mode_t mode)
{
	ntr_autoclose int root = open_root(in);
	ntr_auto(place_done) struct place p = {.dir = -1};
	int r;

	if (root < 0)
		return root;
	if (!strcmp(kind, "chmod"))
		return change_mode(in, path, mode);
	r = find_place(in, root, path, &p);
	if (r)
		return r;
	if (!strcmp(kind, "mkdir"))
		r = mkdirat(p.dir, p.name, mode);
	else if (!strcmp(kind, "unlink"))
		r = unlinkat(p.dir, p.name, 0);
	else if (!strcmp(kind, "rmdir"))
		r = unlinkat(p.dir, p.name, AT_REMOVEDIR);
	else if (!strcmp(kind, "symlink") && to)
		r = symlinkat(to, p.dir, p.name);
	else if (!strcmp(kind, "rename") && to)
		return move(in, root, &p, to);
	else
		return -EINVAL;
	return r ? -errno : 0;
}

void ntr_init_pathop(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autofree char *path = NULL, *to = NULL;
	mode_t mode = (mode_t)ntr_json_int(rq->msg, "mode", 0777) & 07777;
	int r = get_path(rq, "path", &path);

	if (!r && json_object_get(rq->msg, "to"))
		r = get_path(rq, "to", &to);
	if (!r)
		r = do_pathop(in, ntr_json_str(rq->msg, "kind", ""), path, to, mode);
	if (r)
		ntr_init_errno(in, rq->req, r);
	else
		ntr_init_ok(in, rq->req);
}

void ntr_init_there(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autofree char *path = NULL;
	ntr_autoclose int fd = -1;
	int r = get_path(rq, "path", &path);

	if (!r)
		fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!r && (fd < 0 || faccessat(fd, ".", X_OK, AT_EACCESS)))
		r = -errno;
	if (r)
		ntr_init_errno(in, rq->req, r);
	else
		ntr_init_ok(in, rq->req);
}
