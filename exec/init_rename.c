/* ntr-init's part in rename(2) of committed directories: the filter, the helper, and turns (init_rename.h).
 *
 * Only one mover at a time touches the view, and while it does the loop answers nothing that uses or changes
 * the view: such requests wait. So a fold never exchanges the view under a mover, and a commit never sees
 * half of its work. Killing goes on; what needs the session to be at rest waits for the mover. */
#include "init_rename.h"
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { PAUSE_LOOKS = 2000, PAUSE_US = 50, END_MS = 10000, MOUNTS_MAX = 16 << 20 };

enum mover_state { MOVER_NEW, MOVER_WANTS, MOVER_HOLDS };

struct mover {
	struct mover *next; /* the longest waiting first */
	int sock;
	uint64_t id;
	pid_t caller;
	enum mover_state state;
	bool alone; /* the session is stopped for it */
};

struct parked {
	struct parked *next;
	struct ntr_initreq rq;
};

struct ntr_renamer {
	int notify, ctl, its_ctl, epoll;
	bool killable;
	pid_t helper;
	int layers[NTR_RENAME_FDS], next[NTR_RENAME_FDS]; /* of the view, and of the one to come */
	struct ntr_rename_shared *shared;
	struct mover *movers;
	struct parked *parked;
};

static void close_all(const int fds[NTR_RENAME_FDS])
{
	for (int i = 0; i < NTR_RENAME_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* ---- the helper ---- */

static void close_others(int a, int b)
{
	unsigned lo = (unsigned)NTR_MIN(a, b), hi = (unsigned)NTR_MAX(a, b);

	if (lo > 3)
		close_range(3, lo - 1, 0);
	if (hi > lo + 1)
		close_range(lo + 1, hi - 1, 0);
	close_range(hi + 1, UINT32_MAX, 0);
}

static void __attribute__((noreturn))
be_helper(const struct ntr_init *in, const struct ntr_renamer *rn, pid_t parent)
{
	struct ntr_rename_helper h = {
	        .notify = rn->notify, .ctl = rn->its_ctl, .wsroot = in->wsroot, .shared = rn->shared};
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it was quicker */
		_exit(1);
	prctl(PR_SET_NAME, "ntr-rename");
	/* Nothing else: ntrd must see its socket close when ntr-init dies, and whatever is of the view would
	 * keep it from being folded. */
	close_others(rn->notify, rn->its_ctl);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	ntr_rename_answer(&h);
}

static int start_helper(struct ntr_init *in)
{
	struct ntr_renamer *rn = in->renamer;
	pid_t pid, self = getpid();

	atomic_store(&rn->shared->state, NTR_ANSWER_IDLE);
	atomic_store(&rn->shared->id, 0);
	pid = fork();
	if (!pid)
		be_helper(in, rn, self);
	if (pid < 0)
		return -errno;
	rn->helper = pid;
	ntr_inithelper_adopt(in, pid);
	return 0;
}

static void renamer_free(struct ntr_renamer *rn)
{
	if (!rn)
		return;
	if (rn->helper > 0)
		kill(rn->helper, SIGKILL);
	for (struct mover *m; (m = rn->movers);) {
		rn->movers = m->next;
		close(m->sock);
		free(m);
	}
	for (struct parked *p; (p = rn->parked);) {
		rn->parked = p->next;
		ntr_wire_close_fds(p->rq.fds, p->rq.nfds);
		json_decref(p->rq.msg);
		free(p);
	}
	ntr_closep(&rn->notify);
	ntr_closep(&rn->ctl);
	ntr_closep(&rn->its_ctl);
	ntr_closep(&rn->epoll);
	close_all(rn->layers);
	close_all(rn->next);
	if (rn->shared)
		munmap(rn->shared, sizeof *rn->shared);
	free(rn);
}

static int watch(const struct ntr_renamer *rn, int fd, struct mover *m)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = m};

	return epoll_ctl(rn->epoll, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static int make_channels(struct ntr_renamer *rn)
{
	int sv[2];
	void *p = mmap(NULL, sizeof *rn->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	rn->shared = p;
	rn->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (rn->epoll < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	rn->ctl = sv[0];
	rn->its_ctl = sv[1];
	return watch(rn, rn->ctl, NULL);
}

int ntr_rename_start(struct ntr_init *in)
{
	struct ntr_renamer *rn = calloc(1, sizeof *rn);
	int r = rn ? 0 : -ENOMEM;

	if (!rn)
		return r;
	rn->notify = rn->ctl = rn->its_ctl = rn->epoll = -1;
	for (int i = 0; i < NTR_RENAME_FDS; i++)
		rn->layers[i] = rn->next[i] = -1;
	in->renamer = rn;
	r = make_channels(rn);
	if (r || ntr_rename_filter(&rn->notify, &rn->killable)) {
		renamer_free(rn);
		in->renamer = NULL;
		return 0;
	}
	/* The filter stays on us for good: without somebody who answers there would be no rename at all. */
	return start_helper(in);
}

/* Did overlayfs keep to xino=on? It turns it off where inode numbers leave no room, and does without where
 * both layers are of one filesystem. */
static bool has_xino(const struct ntr_renamer *rn, const char *wsroot)
{
	ntr_autofree char *text = NULL;
	struct stat lower, upper;
	bool on = false;

	if (fstat(rn->layers[NTR_RENAME_LOWER], &lower) || fstat(rn->layers[NTR_RENAME_UPPER], &upper) ||
	        lower.st_dev == upper.st_dev ||
	        ntr_read_file(AT_FDCWD, "/proc/self/mountinfo", MOUNTS_MAX, &text, NULL))
		return false;
	/* The last of those at one place is the one on top. */
	for (char *line = text, *next; line && *line; line = next) {
		char at[PATH_MAX + 1];

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (sscanf(line, "%*s %*s %*s %*s %4096s", at) == 1 && !strcmp(at, wsroot))
			on = strstr(line, " - overlay ") && strstr(line, "xino=on");
	}
	return on;
}

void ntr_rename_layers(struct ntr_init *in, const int fds[3])
{
	struct ntr_renamer *rn = in->renamer;

	if (!rn)
		return;
	close_all(rn->next);
	for (int i = 0; i < NTR_RENAME_FDS; i++)
		rn->next[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
}

void ntr_rename_layers_use(struct ntr_init *in)
{
	struct ntr_renamer *rn = in->renamer;

	if (!rn)
		return;
	close_all(rn->layers);
	memcpy(rn->layers, rn->next, sizeof rn->layers);
	for (int i = 0; i < NTR_RENAME_FDS; i++)
		rn->next[i] = -1;
	atomic_store(&rn->shared->xino, has_xino(rn, in->wsroot));
}

/* It died: what it had in hand is answered, and another takes its place. */
void ntr_rename_reaped(struct ntr_init *in, pid_t pid)
{
	struct ntr_renamer *rn = in->renamer;
	uint64_t id;

	if (!rn || rn->helper != pid)
		return;
	rn->helper = 0;
	id = atomic_load(&rn->shared->id);
	if (id)
		ntr_rename_reply(rn->notify, id, -EIO, false);
	if (start_helper(in)) /* renames wait until there is memory again */
		in->over = true;
}

/* ---- turns ---- */

static struct mover *holder(const struct ntr_init *in)
{
	for (struct mover *m = in->renamer ? in->renamer->movers : NULL; m; m = m->next)
		if (m->state == MOVER_HOLDS)
			return m;
	return NULL;
}

bool ntr_rename_busy(const struct ntr_init *in)
{
	return holder(in);
}

static void tell(struct mover *m, char what, const int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(NTR_RENAME_FDS * sizeof(int))];
		struct cmsghdr align;
	} ctl = {.buf = {0}};
	struct iovec iov = {.iov_base = &what, .iov_len = 1};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	if (nfds) {
		mh.msg_control = ctl.buf;
		mh.msg_controllen = sizeof ctl.buf;
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	sendmsg(m->sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT); /* a dead one is found by its socket's end */
}

/* Not while the session is stopped for something else, and after what waited for the last one. */
static void give_turn(struct ntr_init *in)
{
	if (holder(in) || in->held || in->renamer->parked)
		return;
	for (struct mover *m = in->renamer->movers; m; m = m->next)
		if (m->state == MOVER_WANTS) {
			m->state = MOVER_HOLDS;
			tell(m, 't', NULL, 0);
			return;
		}
}

/* ---- stopping the session ---- */

void ntr_rename_pause(struct ntr_init *in)
{
	struct ntr_renamer *rn = in->renamer;

	if (!rn || atomic_exchange(&rn->shared->pause, 1))
		return;
	for (int i = 0; i < PAUSE_LOOKS && atomic_load(&rn->shared->state) == NTR_ANSWER_BUSY; i++)
		usleep(PAUSE_US);
}

void ntr_rename_resume(struct ntr_init *in)
{
	struct ntr_renamer *rn = in->renamer;

	if (!rn)
		return;
	atomic_store(&rn->shared->pause, 0);
	syscall(SYS_futex, &rn->shared->pause, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	give_turn(in);
}

bool ntr_rename_holds(const struct ntr_init *in, pid_t pid, bool *ret_killable)
{
	if (!in->renamer)
		return false;
	*ret_killable = in->renamer->killable;
	for (const struct mover *m = in->renamer->movers; m; m = m->next)
		if (m->caller == pid)
			return true;
	return false;
}

/* ---- movers ---- */

static void serve_parked(struct ntr_init *in)
{
	for (struct parked *p; !in->over && !holder(in) && (p = in->renamer->parked);) {
		in->renamer->parked = p->next;
		ntr_init_dispatch(in, &p->rq);
		ntr_wire_close_fds(p->rq.fds, p->rq.nfds);
		json_decref(p->rq.msg);
		free(p);
	}
}

static void end_mover(struct ntr_init *in, struct mover *m)
{
	struct mover **p = &in->renamer->movers;

	while (*p != m)
		p = &(*p)->next;
	*p = m->next;
	/* It has answered, unless it was killed: then its caller would wait for ever. */
	ntr_rename_reply(in->renamer->notify, m->id, -EIO, false);
	if (m->alone)
		ntr_init_thaw(in);
	close(m->sock);
	free(m);
	serve_parked(in);
	give_turn(in);
}

static void welcome(struct ntr_init *in)
{
	struct ntr_rename_hello hello;
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {.iov_base = &hello, .iov_len = sizeof hello};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf};
	ssize_t n = recvmsg(in->renamer->ctl, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	struct cmsghdr *c = n == sizeof hello ? CMSG_FIRSTHDR(&mh) : NULL;
	struct mover *m, **end = &in->renamer->movers;
	int sock;

	if (!c || c->cmsg_type != SCM_RIGHTS)
		return;
	memcpy(&sock, CMSG_DATA(c), sizeof sock);
	m = calloc(1, sizeof *m);
	if (!m || watch(in->renamer, sock, m)) {
		close(sock); /* the mover lets the kernel go on */
		free(m);
		return;
	}
	*m = (struct mover){.sock = sock, .id = hello.id, .caller = hello.pid};
	while (*end)
		end = &(*end)->next;
	*end = m;
}

static void serve_mover(struct ntr_init *in, struct mover *m)
{
	char what;
	ssize_t n = recv(m->sock, &what, 1, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != 1) {
		end_mover(in, m);
	} else if (what == 'T' && m->state == MOVER_NEW) {
		m->state = MOVER_WANTS;
		give_turn(in);
	} else if (what == 'F' && m->state == MOVER_HOLDS && !m->alone) {
		m->alone = true;
		ntr_init_freeze(in);
		tell(m, 'f', in->renamer->layers, NTR_RENAME_FDS);
	}
}

int ntr_rename_fd(const struct ntr_init *in)
{
	return in->renamer ? in->renamer->epoll : -1;
}

void ntr_rename_serve(struct ntr_init *in)
{
	struct epoll_event ev;

	/* One at a time: serving one may end another. */
	if (in->renamer && epoll_wait(in->renamer->epoll, &ev, 1, 0) == 1) {
		if (ev.data.ptr)
			serve_mover(in, ev.data.ptr);
		else
			welcome(in);
	}
}

/* ---- requests that wait ---- */

static bool uses_view(const char *op)
{
	static const char *const no[] = {
	        "start", "signal", "kill", "ps", "background", "thaw", "swap", "stop"};

	for (size_t i = 0; i < NTR_COUNT(no); i++)
		if (!strcmp(op, no[i]))
			return false;
	return true;
}

bool ntr_rename_park(struct ntr_init *in, struct ntr_initreq *rq)
{
	struct parked *p, **end;

	if (!holder(in) || !uses_view(ntr_json_str(rq->msg, "op", "")))
		return false;
	p = malloc(sizeof *p);
	if (!p)
		return false;
	*p = (struct parked){.rq = *rq};
	rq->msg = NULL;
	rq->nfds = 0;
	for (end = &in->renamer->parked; *end;)
		end = &(*end)->next;
	*end = p;
	return true;
}

void ntr_rename_end(struct ntr_init *in)
{
	uint64_t until = ntr_mono_ns() + END_MS * UINT64_C(1000000);

	if (!in->renamer)
		return;
	/* Without its caller it gives up, or ends with what it has begun to move. */
	for (const struct mover *m = in->renamer->movers; m; m = m->next)
		syscall(SYS_tkill, m->caller, SIGKILL);
	while (holder(in) && ntr_mono_ns() < until) {
		struct pollfd p = {.fd = in->renamer->epoll, .events = POLLIN};

		poll(&p, 1, 100);
		ntr_rename_serve(in);
	}
	renamer_free(in->renamer);
	in->renamer = NULL;
}
