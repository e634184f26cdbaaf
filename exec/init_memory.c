/* init_memory: uppers in memory.
 *
 * Where the store's file system cannot hold an upper (overlayfs, FUSE, NFS …), ntrd asks for a tmpfs with
 * each view. There is one per session, mounted over STORE/upper in the namespace where overlays are built
 * (view.c), with a directory N/{u,w} for every view in turn. ntrd gets a descriptor of u with its answer: it
 * has no other way to it. What was not committed when ntrd dies is kept for its successor, which takes the
 * descriptor out of /proc/PID/fd and then ends us. */
#include "init.h"
#include "initproto.h"
#include "view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

enum { LINGER_S = 600, NAMES_MAX = 65536 };

static bool is_carried(const char *name)
{
	return !strncmp(name, "system.posix_acl_", 17) ||
	       (!strncmp(name, "user.", 5) && strncmp(name, "user.overlay.", 13)) ||
	       (!strncmp(name, "trusted.", 8) && strncmp(name, "trusted.overlay.", 16));
}

static int copy_xattr(int from, int to, const char *name)
{
	ntr_autofree char *val = NULL;
	ssize_t n = fgetxattr(from, name, NULL, 0);

	if (n < 0 || !(val = malloc((size_t)n + 1)))
		return -errno;
	n = fgetxattr(from, name, val, (size_t)n);
	return n < 0 || fsetxattr(to, name, val, (size_t)n, 0) ? -errno : 0;
}

static int copy_xattrs(int from, int to)
{
	ntr_autofree char *names = malloc(NAMES_MAX);
	ssize_t n = names ? flistxattr(from, names, NAMES_MAX) : -1;
	int r = 0;

	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (char *p = names; !r && p < names + n; p += strlen(p) + 1)
		if (is_carried(p))
			r = copy_xattr(from, to, p);
	return r;
}

/* ntrd has given the directory in the store the look of the tree's root; the view shows upper's. */
static int look_like(int from, int to)
{
	struct stat st;
	int r;

	if (fstat(from, &st) || fchown(to, st.st_uid, st.st_gid))
		return -errno;
	r = copy_xattrs(from, to);
	if (!r &&
	        (fchmod(to, st.st_mode & 07777) || futimens(to, (struct timespec[]){st.st_atim, st.st_mtim})))
		r = -errno;
	return r;
}

static int open_dir(int at, const char *name, int flags)
{
	int fd =
	        mkdirat(at, name, 0700) ? -1 : openat(at, name, flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int make_layers(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autoclose int dir = -1, upper = -1, work = -1;
	char name[16];
	int r;

	snprintf(name, sizeof name, "%u", ++in->mem_last);
	if ((dir = open_dir(in->mem_fd, name, O_PATH)) < 0)
		return dir;
	if ((upper = open_dir(dir, "u", O_RDONLY)) < 0)
		return upper;
	if ((work = open_dir(dir, "w", O_RDONLY)) < 0)
		return work;
	r = look_like(rq->fds[1], upper);
	if (r)
		return r;
	close(rq->fds[1]);
	rq->fds[1] = ntr_steal_fd(&upper);
	close(rq->fds[2]);
	rq->fds[2] = ntr_steal_fd(&work);
	return 0;
}

static int make_memory(struct ntr_init *in, const struct ntr_initreq *rq, uint64_t size, struct ntr_err *e)
{
	ntr_autoclose int over = openat(rq->fds[1], "../..", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (over < 0)
		return ntr_err_set(e, -errno, "open the store's folder 'upper'");
	return ntr_view_memory(over, size, &in->mem_fd, e);
}

int ntr_init_memory(struct ntr_init *in, struct ntr_initreq *rq, struct ntr_err *e)
{
	int64_t size = ntr_json_int(rq->msg, "tmpfs", 0);
	int r = 0;

	if (size <= 0)
		return 0;
	if (in->mem_fd < 0)
		r = make_memory(in, rq, (uint64_t)size, e);
	if (r)
		return r;
	r = make_layers(in, rq);
	return r ? ntr_err_set(e, r, "make an upper in memory") : 0;
}

/* Of the directories up to last. A newer one may be there by now: it is made while this runs. */
static void __attribute__((noreturn)) sweep(int root, unsigned keep, unsigned last)
{
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *en;

	while (d && (en = readdir(d))) {
		unsigned long n = strtoul(en->d_name, NULL, 10);

		if (en->d_name[0] != '.' && n != keep && n <= last)
			ntr_rm_rf(root, en->d_name);
	}
	_exit(0);
}

void ntr_init_memory_keep(struct ntr_init *in, bool newest)
{
	pid_t pid;

	if (in->mem_fd < 0)
		return;
	if (newest)
		in->mem_now = in->mem_last;
	pid = in->mem_last > 1 ? fork() : -1;
	if (!pid)
		sweep(in->mem_fd, in->mem_now, in->mem_last);
	if (pid > 0)
		ntr_inithelper_adopt(in, pid);
}

void ntr_init_view_ok(struct ntr_init *in, uint64_t req, json_t *msg)
{
	if (in->mem_fd < 0) {
		ntr_init_send(in, req, msg, NULL, 0);
		return;
	}
	if (msg)
		json_object_set_new(msg, "upper_fd", json_integer(in->upper_fd));
	ntr_init_send(in, req, msg, &in->upper_fd, 1);
}

/* true: told to end. */
static bool told(int sig_fd)
{
	struct signalfd_siginfo si;
	bool end = false;

	while (read(sig_fd, &si, sizeof si) == sizeof si)
		end |= si.ssi_signo != SIGCHLD;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return end;
}

/* Nobody is to wait for the end of a pipe that came along. */
static void quiet(void)
{
	ntr_autoclose int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
}

void ntr_init_linger(struct ntr_init *in)
{
	uint64_t until = ntr_mono_ns() + LINGER_S * 1000000000ull, now;
	struct pollfd p = {.fd = in->sig_fd, .events = POLLIN};

	if (in->mem_fd < 0 || !in->started || in->stopped)
		return;
	ntr_closep(&in->sock);
	quiet();
	prctl(PR_SET_NAME, NTR_INIT_HELD); /* says: all processes are gone, take it */
	while (!told(in->sig_fd) && (now = ntr_mono_ns()) < until)
		poll(&p, 1, (int)((until - now) / 1000000) + 1);
}
