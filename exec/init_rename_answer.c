/* The helper: gets every rename of the session and lets it go on, but those of directories of the view.
 *
 * What it looks at it must find in the kernel's caches: a look-up could wait for a FUSE server of the
 * session's own, which may itself wait in a rename for the helper. Where that is not enough a mover looks.
 * The kernel does a rename that goes on with what is then in the caller's memory; nothing here decides
 * whether it may be done, only who does it. */
#include "init_rename.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif

enum {
	SLICE_NS = 100000,
	XINO_SHIFT = 62 /* two layers: one bit, and one that overlayfs keeps for itself */
};

static int base_of(pid_t pid, int dir, const char *path)
{
	char link[64];

	if (path[0] == '/')
		snprintf(link, sizeof link, "/proc/%d/root", pid);
	else if (dir == AT_FDCWD)
		snprintf(link, sizeof link, "/proc/%d/cwd", pid);
	else
		snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, dir);
	return open(link, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* A descriptor (O_PATH) of what a caller's path names, or negative errno. */
static int open_named(pid_t pid, int dir, const char *path, int flags, bool cached)
{
	struct open_how how = {.flags = (unsigned)flags | O_PATH | O_NOFOLLOW | O_CLOEXEC,
	        .resolve = (cached ? RESOLVE_CACHED : 0) | (path[0] == '/' ? RESOLVE_IN_ROOT : 0)};
	ntr_autoclose int base = base_of(pid, dir, path);
	long fd;

	if (base < 0)
		return -errno;
	fd = syscall(SYS_openat2, base, path, &how, sizeof how);
	if (fd < 0 && errno == EINVAL && cached) /* before 5.12 */
		return -EAGAIN;
	return fd < 0 ? -errno : (int)fd;
}

/* Of the view, and not all upper's: what is bears upper's own inode number, which has
 * none of the bits that xino sets for the layer below, and the kernel renames them. */
static int is_ours(const struct ntr_rename_helper *h, int fd)
{
	struct statx sx, root;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &sx) ||
	        statx(AT_FDCWD, h->wsroot, AT_STATX_DONT_SYNC, STATX_INO, &root))
		return 0;
	if (atomic_load(&h->shared->xino) && !(sx.stx_ino >> XINO_SHIFT))
		return 0;
	return sx.stx_dev_major == root.stx_dev_major && sx.stx_dev_minor == root.stx_dev_minor;
}

int ntr_rename_concerns(const struct ntr_rename_helper *h, const struct ntr_rename_call *c, bool cached)
{
	ntr_autoclose int from = open_named(c->pid, c->from_dir, c->from, O_DIRECTORY, cached);
	ntr_autoclose int to = -1;

	if (from >= 0 && is_ours(h, from))
		return 1;
	if (from == -EAGAIN)
		return -EAGAIN;
	if (!(c->flags & 2 /* RENAME_EXCHANGE */))
		return 0;
	to = open_named(c->pid, c->to_dir, c->to, O_DIRECTORY, cached);
	return to == -EAGAIN ? -EAGAIN : to >= 0 && is_ours(h, to);
}

/* ---- links ---- */

static bool is_git(pid_t pid)
{
	char path[64], name[8] = "";
	ntr_autoclose int fd = -1;

	snprintf(path, sizeof path, "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, name, sizeof name - 1) == 4 && !strcmp(name, "git\n");
}

/* A new name of a committed file shows upper's inode number, for overlayfs can find the lower one only by a
 * file handle, which the driver does not give (docs/design.md). A local `git clone` compares the two, and
 * dies; of a link that is refused it makes a copy. Nobody else is known to compare. */
static bool better_copied(const struct ntr_rename_helper *h, const struct ntr_rename_call *c)
{
	ntr_autoclose int fd = -1;

	if (!atomic_load(&h->shared->xino) || !is_git(c->pid))
		return false;
	fd = open_named(c->pid, c->from_dir, c->from, 0, true);
	return fd >= 0 && is_ours(h, fd);
}

/* ---- a mover ---- */

static void __attribute__((noreturn))
be_mover(const struct ntr_rename_helper *h, const struct ntr_rename_call *c, bool sure, pid_t parent)
{
	struct rlimit rl;
	bool go_on = false;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	prctl(PR_SET_NAME, "ntr-rename");
	if (!getrlimit(RLIMIT_NOFILE, &rl)) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_NOFILE, &rl);
	}
	r = ntr_rename_serve_call(h, c, sure, &go_on);
	ntr_rename_reply(h->notify, c->id, r, go_on);
	_exit(0);
}

static void start_mover(const struct ntr_rename_helper *h, const struct ntr_rename_call *c, bool sure)
{
	pid_t self = getpid(), pid = fork();

	if (!pid)
		be_mover(h, c, sure, self);
	if (pid < 0) /* then as without us */
		ntr_rename_reply(h->notify, c->id, 0, true);
}

/* ---- the loop ---- */

static void handle(const struct ntr_rename_helper *h, const struct seccomp_notif *n)
{
	static struct ntr_rename_call c;
	int r = ntr_rename_decode(n, &c);

	if (!r && c.link) {
		bool copy = better_copied(h, &c);

		ntr_rename_reply(h->notify, n->id, -EXDEV, !copy);
		return;
	}
	if (!r)
		r = ntr_rename_concerns(h, &c, true);
	if (r == 1 || r == -EAGAIN)
		start_mover(h, &c, r == 1);
	else
		ntr_rename_reply(h->notify, n->id, 0, true);
}

/* While the session is stopped nothing goes on: a caller that waits here would otherwise run past it. */
static void wait_while_paused(struct ntr_rename_shared *s)
{
	atomic_store(&s->state, NTR_ANSWER_BUSY);
	while (atomic_load(&s->pause)) {
		atomic_store(&s->state, NTR_ANSWER_PAUSED);
		syscall(SYS_futex, &s->pause, FUTEX_WAIT, 1, NULL, NULL, 0);
		atomic_store(&s->state, NTR_ANSWER_BUSY);
	}
}

/* Asks for short slices (6.12), so that a busy machine lets the helper run soon. Anybody may. */
static void be_prompt(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof attr, .nice = getpriority(PRIO_PROCESS, 0), .runtime = SLICE_NS};

	syscall(SYS_sched_setattr, 0, &attr, 0);
}

void ntr_rename_answer(const struct ntr_rename_helper *h)
{
	struct seccomp_notif n;

	be_prompt();
	signal(SIGCHLD, SIG_IGN); /* movers need no collecting */
	for (;;) {
		memset(&n, 0, sizeof n);
		if (ioctl(h->notify, SECCOMP_IOCTL_NOTIF_RECV, &n)) {
			if (errno == EINTR || errno == ENOENT) /* ENOENT: the caller is gone */
				continue;
			_exit(1);
		}
		atomic_store(&h->shared->id, n.id);
		wait_while_paused(h->shared);
		handle(h, &n);
		atomic_store(&h->shared->state, NTR_ANSWER_IDLE);
		atomic_store(&h->shared->id, 0);
	}
}
