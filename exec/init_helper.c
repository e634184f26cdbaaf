/* init_helper: children of ntr-init's own.
 *
 * A pass-through (ntr-pass) serves the view on an open fuse descriptor. It has to hold descriptors in the
 * view, so it is told to let go of them around every change of the view, one datagram each way on its control
 * socket:
 *
 *     'R' let go, unless files are open there  -> 'r' done, 'b' files are open
 *     'F' let go whatever is open              -> 'r'
 *     'U' + a descriptor: the view's directory, go on (no answer)
 *
 * Its requests wait in between. When the socket closes it ends. */
#include "init.h"
#include "pass.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { RELEASE_MS = 1000 };

static bool add(struct ntr_init *in, pid_t pid, int ctl)
{
	struct ntr_inithelper *h = calloc(1, sizeof *h);

	if (!h)
		return false;
	*h = (struct ntr_inithelper){.next = in->helpers, .pid = pid, .ctl = ctl};
	in->helpers = h;
	return true;
}

void ntr_inithelper_adopt(struct ntr_init *in, pid_t pid)
{
	add(in, pid, -1);
}

bool ntr_inithelper_is(const struct ntr_init *in, pid_t pid)
{
	for (const struct ntr_inithelper *h = in->helpers; h; h = h->next)
		if (h->pid == pid)
			return true;
	return false;
}

bool ntr_inithelper_reaped(struct ntr_init *in, pid_t pid)
{
	for (struct ntr_inithelper **p = &in->helpers, *h; (h = *p); p = &h->next) {
		if (h->pid != pid)
			continue;
		*p = h->next;
		ntr_closep(&h->ctl);
		free(h);
		return true;
	}
	return false;
}

void ntr_inithelper_end(struct ntr_init *in)
{
	for (struct ntr_inithelper *h; (h = in->helpers);) {
		in->helpers = h->next;
		if (h->ctl >= 0)
			kill(h->pid, SIGKILL);
		ntr_closep(&h->ctl);
		free(h);
	}
}

/* ---- the pass-through ---- */

/* fds become NTR_PASS_FUSE, NTR_PASS_VIEW, NTR_PASS_CTL there. Runs on the parent's memory (vfork). */
static void __attribute__((noreturn)) become_pass(int exe, const int fds[3], volatile int *ret_err)
{
	char name[] = "ntr-pass", *argv[] = {name, NULL};
	sigset_t none;
	int high[3];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	exe = fcntl(exe, F_DUPFD_CLOEXEC, 20);
	for (int i = 0; i < 3; i++)
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 20);
	for (int i = 0; i < 3; i++)
		if (dup2(high[i], NTR_PASS_FUSE + i) < 0)
			goto failed;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	fexecve(exe, argv, environ);
failed:
	*ret_err = errno;
	_exit(127);
}

static int spawn_pass(struct ntr_init *in, int fuse_fd, int view_fd, int ctl_fd, pid_t *ret)
{
	const int fds[3] = {fuse_fd, view_fd, ctl_fd};
	volatile int err = 0;
	sigset_t all, old;
	pid_t pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid = vfork();
	if (!pid)
		become_pass(in->pass_fd, fds, &err);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return -errno;
	*ret = pid;
	return -err;
}

static int serve(struct ntr_init *in, int fuse_fd)
{
	ntr_autoclose int view = open(in->wsroot, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ntr_autoclose int mine = -1, its = -1;
	int sv[2], r;
	pid_t pid = -1;

	if (view < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	mine = sv[0];
	its = sv[1];
	r = spawn_pass(in, fuse_fd, view, its, &pid);
	if (!r && !add(in, pid, mine)) {
		kill(pid, SIGKILL);
		r = -ENOMEM;
	}
	if (!r)
		ntr_steal_fd(&mine);
	return r;
}

void ntr_init_serve(struct ntr_init *in, struct ntr_initreq *rq)
{
	struct ntr_err e = {0};
	int r = in->pass_fd < 0 ? -ENOENT : serve(in, rq->fds[0]);

	if (!r) {
		ntr_init_ok(in, rq->req);
		return;
	}
	ntr_err_set(&e, r, "start ntr-pass");
	if (r == -ENOENT) {
		ntr_err_why(&e, "it is not installed beside ntr-init");
		ntr_err_todo(&e, "install ntr completely (cmake --install)");
	}
	ntr_init_error(in, rq->req, &e);
}

static bool release_one(struct ntr_inithelper *h, bool force)
{
	struct pollfd p = {.fd = h->ctl, .events = POLLIN};
	char say = force ? 'F' : 'R', answer = 0;

	if (send(h->ctl, &say, 1, MSG_NOSIGNAL) != 1)
		return true; /* it is ending: it will be reaped */
	if (poll(&p, 1, RELEASE_MS) == 1 && recv(h->ctl, &answer, 1, 0) >= 0)
		return answer != 'b';
	return false;
}

bool ntr_inithelper_release(struct ntr_init *in, bool force)
{
	bool ok = true;

	for (struct ntr_inithelper *h = in->helpers; h; h = h->next) {
		if (h->ctl < 0)
			continue;
		if (release_one(h, force))
			continue;
		ok = false;
		if (force)
			kill(h->pid, SIGKILL); /* it would go on showing what was rolled back */
	}
	return ok || force;
}

void ntr_inithelper_resume(struct ntr_init *in)
{
	ntr_autoclose int view = open(in->wsroot, O_PATH | O_DIRECTORY | O_CLOEXEC);
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl = {.buf = {0}};
	char say = 'U';
	struct iovec iov = {.iov_base = &say, .iov_len = 1};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf};
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &view, sizeof view);
	for (struct ntr_inithelper *h = in->helpers; h && view >= 0; h = h->next)
		if (h->ctl >= 0)
			sendmsg(h->ctl, &mh, MSG_NOSIGNAL);
}

static unsigned count_passes(const struct ntr_init *in)
{
	unsigned n = 0;

	for (const struct ntr_inithelper *h = in->helpers; h; h = h->next)
		n += h->ctl >= 0;
	return n;
}

void ntr_init_passes(struct ntr_init *in, struct ntr_initreq *rq)
{
	const char *what = ntr_json_str(rq->msg, "what", "");
	bool ok = true;

	if (!strcmp(what, "release"))
		ok = ntr_inithelper_release(in, ntr_json_bool(rq->msg, "force", false));
	if (!strcmp(what, "resume") || !ok)
		ntr_inithelper_resume(in);
	ntr_init_send(in, rq->req, json_pack("{s:b,s:I}", "ok", ok, "passes", (json_int_t)count_passes(in)),
	        NULL, 0);
}

/* ---- slow closes ---- */

void ntr_inithelper_close(struct ntr_init *in, int fd)
{
	int p[2];
	pid_t pid;
	char c;

	if (pipe2(p, O_CLOEXEC)) {
		close(fd);
		return;
	}
	pid = fork();
	if (!pid) {
		/* The parent closes first: only then is the child's the last use. */
		dup2(p[0], 0);
		dup2(fd, 1);
		closefrom(2);
		while (read(0, &c, 1) < 0 && errno == EINTR)
			;
		_exit(0);
	}
	if (pid > 0)
		add(in, pid, -1);
	close(fd);
	close(p[0]);
	close(p[1]);
}
