/* init_py: see init_py.h. Starting the zygote is in init_py_start.c. */
#include "init_py.h"
#include "init_py_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* How long the zygote may take to tell of the end of a process that it forked. */
#define OWED_NS 1000000000u
enum { TRIES = 3, END_MS = 200 };

void ntr_initpy_call_free(struct ntr_initpycall *p)
{
	if (!p)
		return;
	ntr_wire_close_fds(p->fds, NTR_PY_FDS);
	ntr_closep(&p->pidfd);
	free(p->python);
	json_decref(p->preload);
	free(p);
}

static struct ntr_initcall *find(struct ntr_init *in, uint64_t req)
{
	for (struct ntr_initcall *c = in->calls; c; c = c->next)
		if (c->py && c->req == req)
			return c;
	return NULL;
}

static void drop(struct ntr_init *in, struct ntr_initcall *c)
{
	for (struct ntr_initcall **p = &in->calls; *p; p = &(*p)->next) {
		if (*p != c)
			continue;
		*p = c->next;
		ntr_initcall_free(c);
		return;
	}
}

static void fail(struct ntr_init *in, struct ntr_initcall *c, const struct ntr_err *e)
{
	uint64_t req = c->req;

	drop(in, c);
	ntr_init_error(in, req, e);
}

/* ---- a call */

/* 0, or negative errno: -EPIPE when the zygote is gone. */
static int send_fork(const struct ntr_initpy *z, const struct ntr_initcall *c)
{
	struct ntr_pymsg m = {.req = c->req, .kind = NTR_PY_FORK};
	union {
		char buf[CMSG_SPACE(sizeof(int) * NTR_PY_FDS)];
		struct cmsghdr align;
	} ctl = {.buf = {0}};
	struct iovec iov = {.iov_base = &m, .iov_len = sizeof m};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int) * NTR_PY_FDS);
	memcpy(CMSG_DATA(cm), c->py->fds, sizeof(int) * NTR_PY_FDS);
	while (sendmsg(z->sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		if (errno == EINTR)
			continue;
		return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
	}
	return 0;
}

/* The other end is closed already: it is ending. Why? */
static void await_end(struct ntr_init *in, struct ntr_initpy *z, struct ntr_err *e)
{
	int status = 0;
	pid_t pid = 0;

	for (int i = 0; i < END_MS && !pid; i++) {
		pid = waitpid(z->pid, &status, WNOHANG);
		if (!pid)
			usleep(1000);
	}
	ntr_initpy_reason(z, status, e);
	if (pid)
		ntr_initpy_lost(in, z);
	else
		ntr_initpy_kill(in, z);
}

/* Asks the right zygote, starting it where needed. A second try is made with a fresh one only where the first
 * surely never forked. */
static void ask(struct ntr_init *in, struct ntr_initcall *c)
{
	struct ntr_err e = {0};
	int r = 0;

	while (c->py->tries++ < TRIES) {
		struct ntr_initpy *z = &in->py[c->py->mode];

		r = ntr_initpy_ready(in, z, c->py->python, c->py->preload, &e);
		if (r)
			break;
		r = send_fork(z, c);
		if (!r)
			return;
		if (!z->ready) {
			await_end(in, z, &e);
			if (!ntr_initpy_fall_back(c->py))
				break;
			e = (struct ntr_err){0};
		}
		ntr_initpy_kill(in, z);
	}
	ntr_err_default(&e, r ? r : -ECHILD, "start a Python call");
	fail(in, c, &e);
}

static struct ntr_initcall *make_call(struct ntr_init *in, struct ntr_initreq *rq, struct ntr_err *e)
{
	struct ntr_initcall *c = calloc(1, sizeof *c);
	struct ntr_initpycall *p = calloc(1, sizeof *p);

	if (!c || !p) {
		free(c);
		free(p);
		ntr_err_set(e, -ENOMEM, "start a Python call");
		return NULL;
	}
	*c = (struct ntr_initcall){.req = rq->req, .state_fd = -1, .py = p};
	p->pidfd = -1;
	for (int i = 0; i < NTR_PY_FDS; i++)
		p->fds[i] = ntr_steal_fd(&rq->fds[i]);
	p->preload = json_incref(json_object_get(rq->msg, "preload"));
	p->mode = ntr_json_bool(rq->msg, "readonly", false) ? NTR_PY_READONLY : NTR_PY_PLAIN;
	if (!ntr_initpy_choose(in, rq->msg, p, e))
		return c;
	ntr_initcall_free(c);
	return NULL;
}

void ntr_init_py(struct ntr_init *in, struct ntr_initreq *rq)
{
	struct ntr_err e = {0};
	struct ntr_initcall *c = make_call(in, rq, &e);

	if (!c) {
		ntr_init_error(in, rq->req, &e);
		return;
	}
	c->next = in->calls;
	in->calls = c;
	ask(in, c);
}

/* ---- what the zygote says */

static void started(struct ntr_init *in, struct ntr_initcall *c, pid_t pid)
{
	if (c->pid)
		return;
	c->pid = pid;
	c->py->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	ntr_wire_close_fds(c->py->fds, NTR_PY_FDS);
	ntr_init_send(in, c->req, json_pack("{s:i}", "started", (int)pid), NULL, 0);
}

static void fork_failed(struct ntr_init *in, struct ntr_initcall *c, int code)
{
	struct ntr_err e = {0};

	ntr_err_set(&e, -code, "start a Python call");
	ntr_err_todo(&e, "end some processes of this user, or raise their limit (ulimit -u)");
	fail(in, c, &e);
}

static void message(struct ntr_init *in, struct ntr_initpy *z, const struct ntr_pymsg *m)
{
	struct ntr_initcall *c = find(in, m->req);

	if (m->kind == NTR_PY_READY)
		z->ready = true;
	if (m->kind == NTR_PY_STARTED && (!c || c->ended))
		kill((pid_t)m->value, SIGKILL); /* given up meanwhile */
	if (!c || c->ended)
		return;
	switch (m->kind) {
	case NTR_PY_STARTED:
		started(in, c, (pid_t)m->value);
		break;
	case NTR_PY_ENDED:
		ntr_initcall_ended(in, c, (int)m->value);
		break;
	case NTR_PY_FAILED:
		fork_failed(in, c, (int)m->value);
		break;
	case NTR_PY_RESTART:
		ntr_initpy_kill(in, z); /* a new one is asked at the next turn of the loop */
		break;
	default:
		break;
	}
}

static void serve(struct ntr_init *in, struct ntr_initpy *z)
{
	pid_t pid = z->pid;
	struct ntr_pymsg m;
	ssize_t n;

	while (z->pid == pid && (n = recv(z->sock, &m, sizeof m, MSG_DONTWAIT)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return;
		if (n == sizeof m)
			message(in, z, &m);
	}
	if (pid && z->pid == pid)
		z->eof = true; /* what is left of it will be reaped */
}

/* ---- its end */

/* A process whose parent was the zygote is ours now, unless the zygote had collected it and not said so. */
static void adopt(struct ntr_init *in)
{
	struct ntr_initcall *next;
	siginfo_t si;

	for (struct ntr_initcall *c = in->calls; c; c = next) {
		next = c->next;
		if (!c->py || c->ended || !c->pid)
			continue;
		if (waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT) && errno == ECHILD)
			ntr_initcall_ended(in, c, SIGKILL);
	}
}

static bool pending(const struct ntr_initcall *c)
{
	return c->py && !c->ended && !c->pid;
}

/* z NULL: of any. */
static struct ntr_initcall *first_pending(struct ntr_init *in, const struct ntr_initpy *z)
{
	struct ntr_initcall *c = in->calls;

	while (c && !(pending(c) && (!z || z == &in->py[c->py->mode])))
		c = c->next;
	return c;
}

/* An interpreter that cannot start. Where nobody asked for that one, the machine's own is tried. */
static void not_started(struct ntr_init *in, struct ntr_initpy *z, const struct ntr_err *e)
{
	struct ntr_initcall *c;

	ntr_initpy_lost(in, z);
	while (!z->pid && (c = first_pending(in, z))) {
		if (ntr_initpy_fall_back(c->py))
			ask(in, c);
		else
			fail(in, c, e);
	}
}

bool ntr_initpy_reaped(struct ntr_init *in, pid_t pid, int status)
{
	struct ntr_err e = {0};

	for (int i = 0; i < NTR_PY_MODES; i++) {
		struct ntr_initpy *z = &in->py[i];

		if (!z->pid || z->pid != pid)
			continue;
		serve(in, z);
		if (z->pid != pid)
			return true;
		ntr_initpy_reason(z, status, &e);
		if (z->ready)
			ntr_initpy_lost(in, z); /* those that had not begun are asked again of a new one */
		else
			not_started(in, z, &e);
		return true;
	}
	return false;
}

void ntr_initpy_kill(struct ntr_init *in, struct ntr_initpy *z)
{
	int status;

	if (!z->pid)
		return;
	kill(z->pid, SIGKILL);
	while (waitpid(z->pid, &status, 0) < 0 && errno == EINTR)
		;
	ntr_initpy_lost(in, z);
}

void ntr_initpy_end(struct ntr_init *in)
{
	for (int i = 0; i < NTR_PY_MODES; i++)
		ntr_initpy_kill(in, &in->py[i]);
}

/* Takes what it has said last, then lets go of it. */
void ntr_initpy_lost(struct ntr_init *in, struct ntr_initpy *z)
{
	ntr_autoclose int sock = z->sock;
	struct ntr_pymsg m;

	ntr_initpy_forget(z);
	while (recv(sock, &m, sizeof m, MSG_DONTWAIT) == sizeof m)
		if (m.kind == NTR_PY_STARTED || m.kind == NTR_PY_ENDED)
			message(in, z, &m);
	adopt(in);
}

bool ntr_initpy_is(const struct ntr_init *in, pid_t pid)
{
	for (int i = 0; i < NTR_PY_MODES; i++)
		if (in->py[i].pid && in->py[i].pid == pid)
			return true;
	return false;
}

void ntr_initpy_cancel(struct ntr_init *in, uint64_t call)
{
	for (struct ntr_initcall *c = in->calls; c; c = c->next) {
		struct ntr_initpy *z;

		if (!pending(c) || (call && c->req != call))
			continue;
		z = &in->py[c->py->mode];
		ntr_wire_close_fds(c->py->fds, NTR_PY_FDS);
		ntr_initcall_ended(in, c, SIGKILL);
		if (!z->ready)
			ntr_initpy_kill(in, z); /* it may hang in what it preloads */
	}
}

/* ---- a zygote that does not answer */

size_t ntr_initpy_poll(struct ntr_init *in, struct pollfd *p, size_t max)
{
	size_t n = 0;

	for (; n < NTR_PY_MODES; n++) {
		struct ntr_initpy *z = &in->py[n];

		p[n] = (struct pollfd){.fd = z->pid && !z->eof ? z->sock : -1, .events = POLLIN};
	}
	for (struct ntr_initcall *c = in->calls; c && n < max; c = c->next)
		if (c->py && !c->ended && c->py->pidfd >= 0)
			p[n++] = (struct pollfd){.fd = c->py->pidfd, .events = POLLIN};
	return n;
}

void ntr_initpy_polled(struct ntr_init *in, const struct pollfd *p, size_t n)
{
	for (size_t i = NTR_PY_MODES; i < n; i++) {
		if (!p[i].revents)
			continue;
		for (struct ntr_initcall *c = in->calls; c; c = c->next) {
			if (!c->py || c->py->pidfd != p[i].fd)
				continue;
			ntr_closep(&c->py->pidfd);
			c->py->pidfd = -1;
			c->py->owed_ns = ntr_mono_ns() + OWED_NS;
		}
	}
	for (int i = 0; i < NTR_PY_MODES; i++)
		if (p[i].revents)
			serve(in, &in->py[i]);
}

int ntr_initpy_wait(struct ntr_init *in, int wait)
{
	uint64_t now = ntr_mono_ns();

	for (int i = 0; i < NTR_PY_MODES; i++)
		for (struct ntr_initcall *c; !in->py[i].pid && (c = first_pending(in, &in->py[i]));)
			ask(in, c);
	for (struct ntr_initcall *c = in->calls; c; c = c->next) {
		int ms;

		if (!c->py || c->ended || !c->py->owed_ns)
			continue;
		if (c->py->owed_ns <= now) {
			c->py->owed_ns = 0;
			ntr_initpy_kill(
			        in, &in->py[c->py->mode]); /* the process becomes ours, and is collected */
			continue;
		}
		ms = (int)((c->py->owed_ns - now) / 1000000u) + 1;
		wait = wait < 0 ? ms : NTR_MIN(wait, ms);
	}
	return wait;
}
