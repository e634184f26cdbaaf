/* ntr-init: the supervisor of one live session. It is the parent of everything that runs in it.
 *
 * A loop over the socket to ntrd and SIGCHLD; see initproto.h for what it is asked. It stays small because
 * calls are spawned from it: fork and exec out of a small process is what keeps a call at a millisecond. Its
 * cwd is "/" and it holds no descriptor in the view between requests, or the view could never be folded. */
#include "init.h"
#include "initproto.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

void ntr_init_send(struct ntr_init *in, uint64_t req, json_t *msg, const int *fds, size_t nfds)
{
	if (msg && req)
		json_object_set_new(msg, "req", json_integer((json_int_t)req));
	if (ntr_wire_send_new(in->sock, msg, fds, nfds))
		in->over = true;
}

void ntr_init_ok(struct ntr_init *in, uint64_t req)
{
	ntr_init_send(in, req, json_pack("{s:b}", "ok", 1), NULL, 0);
}

void ntr_init_errno(struct ntr_init *in, uint64_t req, int code)
{
	ntr_init_send(in, req, json_pack("{s:i}", "errno", -code), NULL, 0);
}

static const char *error_kind(int code)
{
	switch (-code) {
	case EINVAL:
		return "usage";
	case EBUSY:
		return "busy";
	case ENOSPC:
	case EDQUOT:
		return "full";
	case EPERM:
	case EACCES:
	case ENODEV:
	case ENOSYS:
		return "isolation";
	default:
		return "failed";
	}
}

void ntr_init_error(struct ntr_init *in, uint64_t req, const struct ntr_err *e)
{
	json_t *err = json_pack("{s:o,s:o,s:o,s:i,s:s}", "what", ntr_json_text(e->what, strlen(e->what)),
	        "why", ntr_json_text(ntr_err_reason(e), strlen(ntr_err_reason(e))), "todo",
	        ntr_json_text(e->todo, strlen(e->todo)), "errno", -e->code, "kind", error_kind(e->code));

	ntr_init_send(in, req, json_pack("{s:o}", "error", err), NULL, 0);
}

/* ---- requests ---- */

static const struct {
	const char *op;
	void (*run)(struct ntr_init *in, struct ntr_initreq *rq);
	size_t nfds;
	bool before_start;
} ops[] = {
        {"start", ntr_init_start, 3, true},
        {"call", ntr_init_call, 3, false},
        {"py", ntr_init_py, 4, false},
        {"signal", ntr_init_signal, 0, false},
        {"kill", ntr_init_kill, 0, false},
        {"ps", ntr_init_ps, 0, false},
        {"background", ntr_init_background_op, 0, false},
        {"freeze", ntr_init_freeze_op, 0, false},
        {"thaw", ntr_init_thaw_op, 0, false},
        {"mapped", ntr_init_mapped, 0, false},
        {"fold", ntr_init_fold, 3, false},
        {"swap", ntr_init_swap, 3, false},
        {"open", ntr_init_open, 0, false},
        {"list", ntr_init_list, 1, false},
        {"pathop", ntr_init_pathop, 0, false},
        {"clone", ntr_init_clone, 0, false},
        {"tree", ntr_init_tree, 2, true},
        {"serve", ntr_init_serve, 1, false},
        {"passes", ntr_init_passes, 0, false},
        {"there", ntr_init_there, 0, false},
        {"stop", ntr_init_stop, 0, true},
};

static void refuse(struct ntr_init *in, const struct ntr_initreq *rq, const char *why)
{
	struct ntr_err e = {0};

	ntr_err_set(
	        &e, -EINVAL, "request '%.64s' to the session's supervisor", ntr_json_str(rq->msg, "op", ""));
	ntr_err_why(&e, "%s", why);
	ntr_init_error(in, rq->req, &e);
}

void ntr_init_dispatch(struct ntr_init *in, struct ntr_initreq *rq)
{
	const char *op = ntr_json_str(rq->msg, "op", "");

	for (size_t i = 0; i < NTR_COUNT(ops); i++) {
		if (strcmp(op, ops[i].op))
			continue;
		if (rq->nfds != ops[i].nfds)
			refuse(in, rq, "wrong number of descriptors");
		else if (!in->started && !ops[i].before_start)
			refuse(in, rq, "the session has not been started");
		else
			ops[i].run(in, rq);
		return;
	}
	refuse(in, rq, "no such operation");
}

static void serve_request(struct ntr_init *in)
{
	struct ntr_initreq rq = {0};
	int r = ntr_wire_recv(in->sock, &rq.msg, rq.fds, &rq.nfds);

	if (r) {
		in->over = true;
		return;
	}
	rq.req = (uint64_t)ntr_json_int(rq.msg, "req", 0);
	if (!ntr_rename_park(in, &rq))
		ntr_init_dispatch(in, &rq);
	ntr_wire_close_fds(rq.fds, rq.nfds);
	json_decref(rq.msg);
}

/* ---- the loop ---- */

enum { POLLS = 16 };

static void serve_signals(struct ntr_init *in)
{
	struct signalfd_siginfo si[16];
	ssize_t n = read(in->sig_fd, si, sizeof si);

	for (ssize_t i = 0; i < n / (ssize_t)sizeof si[0]; i++)
		if (si[i].ssi_signo != SIGCHLD)
			in->over = true;
}

static void loop(struct ntr_init *in)
{
	struct pollfd p[POLLS] = {
	        {.fd = in->sock, .events = POLLIN}, {.fd = in->sig_fd, .events = POLLIN}, {.events = POLLIN}};

	while (!in->over) {
		int wait = ntr_initpy_wait(in, ntr_init_jobs(in));
		size_t npy;

		if (in->over)
			break;
		p[2].fd = ntr_rename_fd(in);
		npy = ntr_initpy_poll(in, p + 3, POLLS - 3);
		if (poll(p, 3 + npy, wait) < 0) {
			if (errno != EINTR)
				break;
			continue;
		}
		ntr_initpy_polled(in, p + 3, npy);
		if (p[1].revents) {
			serve_signals(in);
			ntr_init_reap(in);
		}
		if (p[2].revents)
			ntr_rename_serve(in);
		if (p[0].revents)
			serve_request(in);
	}
}

/* ---- begin and end ---- */

/* 0, 1 and 2 have to be something: a descriptor that got their number would be taken for a call's own. */
static int hold_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= 2);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int open_pass(void)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - sizeof "ntr-pass");
	char *slash;

	if (n <= 0)
		return -1;
	self[n] = '\0';
	slash = strrchr(self, '/');
	strcpy(slash ? slash + 1 : self, "ntr-pass");
	return open(self, O_PATH | O_CLOEXEC);
}

static int take_signals(void)
{
	const uint64_t plain[4] = {0}; /* the kernel's struct sigaction: SIG_DFL, no flags */
	sigset_t all, set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigfillset(&all);
	/* Calls inherit dispositions: whatever was ignored further up must not reach them. */
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	/* glibc keeps the two before SIGRTMIN to itself, and its posix_spawn leaves them ignored. */
	for (int sig = __SIGRTMIN; sig < SIGRTMIN; sig++)
		syscall(SYS_rt_sigaction, sig, plain, NULL, sizeof(uint64_t));
	sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP}, NULL);
	sigprocmask(SIG_SETMASK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int begin(struct ntr_init *in)
{
	struct stat st;

	if (fstat(NTR_INIT_FD, &st) || !S_ISSOCK(st.st_mode))
		return -EBADF;
	if (hold_stdio() || fcntl(NTR_INIT_FD, F_SETFD, FD_CLOEXEC))
		return -errno;
	closefrom(NTR_INIT_FD + 1);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) || chdir("/"))
		return -errno;
	setsid();
	umask(0);
	in->sock = NTR_INIT_FD;
	in->pass_fd = open_pass();
	in->sig_fd = take_signals();
	return in->sig_fd < 0 ? -errno : 0;
}

static void end(struct ntr_init *in)
{
	for (struct ntr_initcall *c; (c = in->calls);) {
		in->calls = c->next;
		ntr_initcall_free(c);
	}
	for (struct ntr_initjob *j; (j = in->jobs);) {
		in->jobs = j->next;
		ntr_initjob_free(j);
	}
	ntr_init_forget(in);
	ntr_proclist_done(&in->frozen);
	ntr_closep(&in->upper_fd);
	ntr_closep(&in->mem_fd);
	ntr_closep(&in->pass_fd);
	close(in->sig_fd);
	ntr_init_mounts_done(in);
	free(in->wsroot);
	ntr_initpy_names_done(&in->py_names);
}

int main(void)
{
	struct ntr_init in = {.sock = -1,
	        .sig_fd = -1,
	        .upper_fd = -1,
	        .pass_fd = -1,
	        .mem_fd = -1,
	        .py = {{.sock = -1, .log_fd = -1}, {.sock = -1, .log_fd = -1}}};

	if (begin(&in)) {
		fputs("ntr-init: this is ntr's supervisor of a session; ntrd starts it, with a socket as "
		      "descriptor 3\n",
		        stderr);
		return 2;
	}
	loop(&in);
	ntr_rename_end(&in);
	ntr_inithelper_end(&in);
	ntr_initpy_end(&in);
	ntr_init_kill_all(&in, 10000);
	ntr_init_linger(&in);
	end(&in);
	return 0;
}
