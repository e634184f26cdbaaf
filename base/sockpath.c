#include "sockpath.h"
#include "util.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define SOCK_LINK "socket"

/* A socket as folder and name: sockaddr_un has room for 107 bytes, /proc/self/fd/N/name always fits. */
struct place {
	int dirfd; /* O_PATH; -1: not open */
	char *dir;
	char name[64];
};

static void place_done(struct place *p)
{
	ntr_closep(&p->dirfd);
	free(p->dir);
}

static char *absolute(const char *path)
{
	ntr_autofree char *cwd = NULL;

	if (path[0] == '/')
		return strdup(path);
	cwd = getcwd(NULL, 0);
	return cwd ? ntr_sprintf("%s/%s", cwd, path) : NULL;
}

static const char *home_dir(void)
{
	const char *h = getenv("HOME");
	const struct passwd *pw;

	if (h && h[0] == '/')
		return h;
	pw = getpwuid(geteuid());
	return pw ? pw->pw_dir : NULL;
}

int ntr_store_default_path(const char *opt, char **ret, struct ntr_err *e)
{
	const char *env = getenv("NTR_STORE"), *data = getenv("XDG_DATA_HOME"), *home;

	if (opt && !opt[0])
		return ntr_err_full(e, -EINVAL, "--store", "the path is empty", NULL);
	errno = ENOMEM;
	if (opt)
		*ret = absolute(opt);
	else if (env && env[0])
		*ret = absolute(env);
	else if (data && data[0] == '/')
		*ret = ntr_sprintf("%s/ntr", data);
	else if ((home = home_dir()))
		*ret = ntr_sprintf("%s/.local/share/ntr", home);
	else
		return ntr_err_full(e, -ENOENT, "find the store", "neither HOME nor XDG_DATA_HOME is set",
		        "name it with --store or NTR_STORE");
	return *ret ? 0 : ntr_err_set(e, -errno, "find the store");
}

static bool own_dir(const char *path)
{
	struct stat st;

	return path && path[0] == '/' && !stat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

static char *runtime_dir(void)
{
	const char *run = getenv("XDG_RUNTIME_DIR");

	return own_dir(run) ? ntr_sprintf("%s/ntr", run) : ntr_sprintf("/tmp/ntr-%u", (unsigned)geteuid());
}

/* Opens p->dir as a folder that only this user can enter: /tmp is everybody's, and whoever made the folder
 * there first would own the socket. */
static int open_dir(struct place *p, bool make)
{
	struct stat st;

	if (make && mkdir(p->dir, 0700) && errno != EEXIST)
		return -errno;
	p->dirfd = open(p->dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (p->dirfd < 0)
		return errno == ENOTDIR || errno == ELOOP ? -EPERM : -errno;
	if (fstat(p->dirfd, &st))
		return -errno;
	return st.st_uid != geteuid() || (st.st_mode & 022) ? -EPERM : 0;
}

static int place_of(const char *store, bool make, struct place *p)
{
	struct stat st;

	if (stat(store, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	p->dir = runtime_dir();
	if (!p->dir)
		return -ENOMEM;
	snprintf(p->name, sizeof p->name, "%jx-%jx.sock", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return open_dir(p, make);
}

static int place_err(const char *store, const struct place *p, int r, struct ntr_err *e)
{
	ntr_err_set(e, r, "socket of store %s", store);
	if (r == -EPERM)
		ntr_err_why(e, "%s is not a folder of this user alone", p->dir);
	else if (p->dir)
		ntr_err_why(e, "%s: %s", p->dir, strerror(-r));
	if (p->dir)
		ntr_err_todo(e, "%sset XDG_RUNTIME_DIR to a folder of your own",
		        r == -EPERM ? "remove it, or " : "");
	return r;
}

int ntr_sock_path(const char *store_path, char **ret, struct ntr_err *e)
{
	ntr_auto(place_done) struct place p = {.dirfd = -1};
	int r = place_of(store_path, true, &p);

	if (r)
		return place_err(store_path, &p, r, e);
	*ret = ntr_sprintf("%s/%s", p.dir, p.name);
	return *ret ? 0 : ntr_err_set(e, -ENOMEM, "socket of store %s", store_path);
}

static void address(const struct place *p, const char *suffix, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s%s", p->dirfd, p->name, suffix);
}

static int connect_place(const struct place *p, int *ret_fd)
{
	ntr_autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa;
	uid_t uid;
	pid_t pid;
	int r;

	if (fd < 0)
		return -errno;
	address(p, "", &sa);
	do
		r = connect(fd, (const struct sockaddr *)&sa, sizeof sa) ? -errno : 0;
	while (r == -EINTR);
	if (!r)
		r = ntr_wire_peer(fd, &pid, &uid);
	if (!r && uid != geteuid())
		r = -EPERM;
	if (!r)
		*ret_fd = ntr_steal_fd(&fd);
	return r;
}

/* Where STORE/socket leads. */
static int place_linked(const char *store, struct place *p)
{
	ntr_autofree char *link = ntr_sprintf("%s/" SOCK_LINK, store);
	char to[PATH_MAX], *slash;
	ssize_t n;

	if (!link)
		return -ENOMEM;
	n = readlink(link, to, sizeof to - 1);
	if (n < 0)
		return errno == EINVAL ? -ENOENT : -errno;
	to[n] = '\0';
	slash = strrchr(to, '/');
	if (to[0] != '/' || slash == to || strlen(slash + 1) >= sizeof p->name)
		return -ENOENT;
	*slash = '\0';
	snprintf(p->name, sizeof p->name, "%s", slash + 1);
	p->dir = strdup(to);
	return p->dir ? open_dir(p, false) : -ENOMEM;
}

static bool no_daemon(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED;
}

int ntr_sock_connect(const char *store_path, int *ret_fd)
{
	ntr_auto(place_done) struct place own = {.dirfd = -1}, linked = {.dirfd = -1};
	int r = place_of(store_path, false, &own), q;

	if (!r)
		r = connect_place(&own, ret_fd);
	if (!no_daemon(r) || access(store_path, F_OK))
		return r;
	q = place_linked(store_path, &linked);
	if (!q)
		q = connect_place(&linked, ret_fd);
	return no_daemon(q) ? r : q;
}

int ntr_sock_explain(const char *store_path, int r, struct ntr_err *e)
{
	ntr_auto(place_done) struct place own = {.dirfd = -1};
	int q = place_of(store_path, false, &own);

	if (!own.dir && q == -ENOTDIR) {
		ntr_err_why(e, "the store %s is no directory", store_path);
		ntr_err_todo(e, "name another one (--store DIR or NTR_STORE)");
	} else if (!own.dir && q) {
		ntr_err_why(e, "the store %s cannot be reached: %s", store_path, strerror(-q));
		ntr_err_todo(e, "use a store of your own (--store DIR or NTR_STORE)");
	} else if (q == -EPERM || q == -EACCES) {
		ntr_err_why(e, "%s, the folder for sockets, is not a folder of this user alone", own.dir);
		ntr_err_todo(e, "remove it, or set XDG_RUNTIME_DIR to a folder of your own");
	} else if (r == -EPERM || r == -EACCES) {
		ntr_err_why(e, "the store %s or its daemon belongs to another user", store_path);
		ntr_err_todo(e, "use a store of your own (--store DIR or NTR_STORE)");
	} else {
		ntr_err_why(e, "cannot connect to the daemon of %s: %s", store_path, strerror(-r));
	}
	return r;
}

static int link_socket(const char *store, const struct place *p)
{
	ntr_autofree char *link = ntr_sprintf("%s/" SOCK_LINK, store),
	                  *tmp = ntr_sprintf("%s/" SOCK_LINK ".new", store);
	ntr_autofree char *to = ntr_sprintf("%s/%s", p->dir, p->name);

	if (!link || !tmp || !to)
		return -ENOMEM;
	if ((unlink(tmp) && errno != ENOENT) || symlink(to, tmp) || rename(tmp, link))
		return -errno;
	return 0;
}

/* Binds beside the final name and renames: a client never meets a moment without a socket, or one that does
 * not listen. */
static int listen_place(const struct place *p, int fd)
{
	char tmp[sizeof p->name + 8];
	struct sockaddr_un sa;

	snprintf(tmp, sizeof tmp, "%s.new", p->name);
	if (unlinkat(p->dirfd, tmp, 0) && errno != ENOENT)
		return -errno;
	address(p, ".new", &sa);
	/* the mode of the socket's own inode is what bind gives the name */
	if (fchmod(fd, 0600) || bind(fd, (const struct sockaddr *)&sa, sizeof sa) || listen(fd, SOMAXCONN))
		return -errno;
	return renameat(p->dirfd, tmp, p->dirfd, p->name) ? -errno : 0;
}

int ntr_sock_listen(const char *store_path, int *ret_fd, struct ntr_err *e)
{
	ntr_auto(place_done) struct place p = {.dirfd = -1};
	ntr_autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r = fd < 0 ? -errno : place_of(store_path, true, &p);

	if (r)
		return place_err(store_path, &p, r, e);
	r = listen_place(&p, fd);
	if (!r)
		r = link_socket(store_path, &p);
	if (r)
		return place_err(store_path, &p, r, e);
	*ret_fd = ntr_steal_fd(&fd);
	return 0;
}

int ntr_sock_hide(const char *store_path, bool hide)
{
	ntr_auto(place_done) struct place p = {.dirfd = -1};
	char tmp[sizeof p.name + 8];
	int r = place_of(store_path, false, &p);

	if (r)
		return r;
	snprintf(tmp, sizeof tmp, "%s.new", p.name);
	r = hide ? renameat(p.dirfd, p.name, p.dirfd, tmp) : renameat(p.dirfd, tmp, p.dirfd, p.name);
	return r ? -errno : 0;
}

void ntr_sock_unlink(const char *store_path)
{
	ntr_auto(place_done) struct place p = {.dirfd = -1}, linked = {.dirfd = -1};
	ntr_autofree char *link = ntr_sprintf("%s/" SOCK_LINK, store_path);
	char tmp[sizeof p.name + 8];

	if (!place_of(store_path, false, &p)) {
		snprintf(tmp, sizeof tmp, "%s.new", p.name);
		unlinkat(p.dirfd, tmp, 0);
		unlinkat(p.dirfd, p.name, 0);
	}
	if (!place_linked(store_path, &linked))
		unlinkat(linked.dirfd, linked.name, 0);
	if (link)
		unlink(link);
}
