/* init_call: spawning a call and reporting its end.
 *
 * vfork: the parent sleeps until the child has executed its program, so the child may use the parent's memory
 * (it reports through it what became of the cwd), and no page table is copied. All signals stay blocked
 * meanwhile; dispositions are the defaults already (init.c). */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <paths.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { SCRIPT_SHOWN = 4096 };

/* What a child needs, ready before vfork: it must not allocate. */
struct spawn {
	char *const *argv;
	const char *file; /* looked up in PATH unless it has a slash */
	char **env;
	const char *cwd, *wsroot;
	mode_t umask;
	int fds[3];
	int state_fd, state_to; /* -1: argv */
	volatile bool cwd_gone; /* written by the child */
};

void ntr_initcall_free(struct ntr_initcall *c)
{
	if (!c)
		return;
	ntr_closep(&c->state_fd);
	ntr_strv_free(c->env);
	free(c->script);
	ntr_initpy_call_free(c->py);
	free(c);
}

static void strv_freep(char ***v)
{
	ntr_strv_free(*v);
}

/* ---- in the child ---- */

/* A file of that name, whatever its rights, in one of PATH's folders: then a shell says 126, else 127. */
static bool in_path(const char *name)
{
	const char *path = getenv("PATH");
	char buf[PATH_MAX];
	struct stat st;

	for (const char *s = path ? path : _PATH_DEFPATH; *s;) {
		size_t n = strcspn(s, ":");
		int k = snprintf(buf, sizeof buf, "%.*s%s%s", (int)n, s, n ? "/" : "", name);

		if (k < (int)sizeof buf && !stat(buf, &st) && S_ISREG(st.st_mode))
			return true;
		s += n + (s[n] == ':');
	}
	return false;
}

static void __attribute__((noreturn)) exec_failed(const char *file, int err)
{
	bool slash = strchr(file, '/');
	int code = err == ENOENT || err == ENOTDIR ? 127 : 126;
	const char *why = strerror(err);
	struct stat st;
	sigset_t all;

	if (!slash && (code == 127 || !in_path(file))) {
		code = 127;
		why = "command not found";
	} else if (code == 127 && !stat(file, &st)) {
		why = "cannot execute: its interpreter or loader does not exist";
	} else if (err == EACCES && !stat(file, &st) && S_ISDIR(st.st_mode)) {
		why = "Is a directory";
	}
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL); /* no death by SIGPIPE instead of the code */
	dprintf(2, "ntr: %s: %s\n", file, why);
	_exit(code);
}

static void __attribute__((noreturn)) child(struct spawn *s)
{
	sigset_t none;

	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < 3; i++)
		if (dup2(s->fds[i], i) < 0)
			_exit(126);
	if (s->state_fd >= 0 && dup2(s->state_fd, s->state_to) < 0)
		_exit(126);
	umask(s->umask);
	if (chdir(s->cwd)) {
		s->cwd_gone = true;
		if (chdir(s->wsroot) && chdir("/"))
			_exit(126);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(s->file, s->argv);
	exec_failed(s->file, errno);
}

/* ---- in the parent ---- */

static pid_t spawn(struct spawn *s)
{
	char **saved = environ;
	sigset_t all, old;
	pid_t pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	environ = s->env; /* execvp looks PATH up here */
	pid = vfork();
	if (!pid)
		child(s);
	environ = saved;
	sigprocmask(SIG_SETMASK, &old, NULL);
	return pid < 0 ? -errno : pid;
}

/* Sets NAME=… in a vector that is one allocation per string; takes entry. */
static int env_set(char ***env, char *entry)
{
	size_t len, n = 0;
	char **bigger;

	if (!entry)
		return -ENOMEM;
	len = strcspn(entry, "=") + 1;
	for (; (*env)[n]; n++) {
		if (strncmp((*env)[n], entry, len))
			continue;
		free((*env)[n]);
		(*env)[n] = entry;
		return 0;
	}
	bigger = realloc(*env, (n + 2) * sizeof *bigger);
	if (!bigger) {
		free(entry);
		return -ENOMEM;
	}
	bigger[n] = entry;
	bigger[n + 1] = NULL;
	*env = bigger;
	return 0;
}

/* High, where scripts seldom have descriptors, but below the limit that the call inherits, and below 64: a
 * script may lower its limit so far, and bash could not put the descriptor back. From 63 down bash itself
 * takes numbers, for <(…). */
static int state_number(void)
{
	enum { NUMBER = 57 };
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur > NUMBER)
		return NUMBER;
	return rl.rlim_cur > 16 ? (int)rl.rlim_cur - 1 : 15;
}

static int refuse(struct ntr_err *e, int code, const char *why)
{
	ntr_err_set(e, code, "start a call");
	if (why)
		ntr_err_why(e, "%s", why);
	return code;
}

static int prepare_script(
        struct ntr_initcall *c, const json_t *script, struct spawn *s, char **ret_text, struct ntr_err *e)
{
	ntr_autofree char *text = NULL;
	int r = ntr_json_get_bytes(script, &text, &c->script_len);

	if (r)
		return refuse(e, r, "the script is no byte string");
	if (strlen(text) != c->script_len)
		return refuse(e, -EINVAL, "the script holds a NUL byte");
	s->state_to = state_number();
	r = ntr_wrap_open(text, c->script_len, &c->state_fd);
	if (r)
		return refuse(e, r, NULL);
	*ret_text = ntr_wrap_text(text, s->state_to);
	c->script = strndup(text, SCRIPT_SHOWN);
	s->state_fd = c->state_fd;
	s->file = "/bin/bash";
	return *ret_text ? 0 : refuse(e, -ENOMEM, NULL);
}

static int prepare_env(
        struct ntr_initcall *c, struct ntr_init *in, const json_t *msg, const char *cwd, struct ntr_err *e)
{
	int r = ntr_json_get_strv(json_object_get(msg, "env"), &c->env);

	if (r)
		return refuse(e, r, "env is no array of byte strings");
	if (access(cwd, X_OK))
		cwd = in->wsroot;
	r = env_set(&c->env, ntr_sprintf("PWD=%s", cwd));
	if (!r)
		r = ntr_initpy_path(in, msg, c->env);
	if (!r) /* how its processes are known when they have left its tree and its terminal session */
		r = env_set(&c->env, ntr_sprintf("NTR_CALL=%llu", (unsigned long long)c->req));
	return r ? refuse(e, r, NULL) : 0;
}

static int start_call(struct ntr_init *in, struct ntr_initreq *rq, struct ntr_initcall *c, struct ntr_err *e)
{
	const json_t *script = json_object_get(rq->msg, "script");
	ntr_autofree char *cwd = NULL, *text = NULL;
	ntr_auto(strv_freep) char **argv = NULL;
	char bash[] = "bash", dash_c[] = "-c";
	struct spawn s = {.wsroot = in->wsroot,
	        .umask = (mode_t)ntr_json_int(rq->msg, "umask", 022) & 0777,
	        .fds = {rq->fds[0], rq->fds[1], rq->fds[2]},
	        .state_fd = -1};
	int r = ntr_json_get_bytes(json_object_get(rq->msg, "cwd"), &cwd, NULL);

	if (r == -ENOMEM || (r && !(cwd = strdup(in->wsroot))))
		return refuse(e, -ENOMEM, NULL);
	r = prepare_env(c, in, rq->msg, cwd, e);
	if (!r && script)
		r = prepare_script(c, script, &s, &text, e);
	else if (!r && (r = ntr_json_get_strv(json_object_get(rq->msg, "argv"), &argv)))
		r = refuse(e, r, "argv is no array of byte strings");
	if (!r && !script && !argv[0])
		r = refuse(e, -EINVAL, "argv is empty");
	if (r)
		return r;
	s.argv = script ? (char *[]){bash, dash_c, text, bash, NULL} : argv;
	s.file = script ? s.file : argv[0];
	s.env = c->env;
	s.cwd = cwd;
	c->pid = spawn(&s);
	c->cwd_gone = s.cwd_gone;
	return c->pid < 0 ? refuse(e, c->pid, NULL) : 0;
}

void ntr_init_call(struct ntr_init *in, struct ntr_initreq *rq)
{
	struct ntr_initcall *c = calloc(1, sizeof *c);
	struct ntr_err e = {0};
	json_t *m;
	int r;

	if (!c) {
		refuse(&e, -ENOMEM, NULL);
		ntr_init_error(in, rq->req, &e);
		return;
	}
	c->req = rq->req;
	c->state_fd = -1;
	r = start_call(in, rq, c, &e);
	if (r) {
		ntr_initcall_free(c);
		ntr_init_error(in, rq->req, &e);
		return;
	}
	c->next = in->calls;
	in->calls = c;
	m = json_pack("{s:i}", "started", (int)c->pid);
	if (m && c->cwd_gone)
		json_object_set_new(m, "cwd_gone", json_true());
	ntr_init_send(in, rq->req, m, NULL, 0);
}

void ntr_init_signal(struct ntr_init *in, struct ntr_initreq *rq)
{
	uint64_t call = (uint64_t)ntr_json_int(rq->msg, "call", 0);
	int sig = (int)ntr_json_int(rq->msg, "sig", 0);
	bool ok = false;

	for (struct ntr_initcall *c = in->calls; c; c = c->next)
		if (c->req == call && c->pid && !c->ended)
			ok = sig > 0 && sig < NSIG && !kill(-c->pid, sig);
	ntr_init_send(in, rq->req, json_pack("{s:b}", "ok", ok), NULL, 0);
}

/* ---- the end ---- */

void ntr_initcall_ended(struct ntr_init *in, struct ntr_initcall *c, int status)
{
	int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	json_t *state = c->state_fd >= 0 ? ntr_wrap_state(c->state_fd, c->script_len, c->env) : NULL;
	json_t *m;

	ntr_closep(&c->state_fd);
	c->state_fd = -1;
	c->ended = true;
	m = json_pack("{s:i,s:i,s:o,s:I}", "code", sig ? 128 + sig : WEXITSTATUS(status), "signal", sig,
	        "state", state ? state : json_null(), "background", (json_int_t)ntr_init_background(in));
	if (m && c->cwd_gone)
		json_object_set_new(m, "cwd_gone", json_true());
	ntr_init_send(in, c->req, m, NULL, 0);
}

/* After a scan: an ended call without processes is needed no more (and its pid may be given to another
 * process). */
static void drop_ended(struct ntr_init *in)
{
	for (struct ntr_initcall **p = &in->calls, *c; (c = *p);) {
		if (c->ended && !c->alive) {
			*p = c->next;
			ntr_initcall_free(c);
			continue;
		}
		p = &c->next;
	}
}

void ntr_init_reap(struct ntr_init *in)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (ntr_inithelper_reaped(in, pid)) {
			ntr_rename_reaped(in, pid);
			continue;
		}
		if (ntr_initpy_reaped(in, pid, status))
			continue;
		for (struct ntr_initcall *c = in->calls; c; c = c->next) {
			if (c->pid != pid || c->ended)
				continue;
			ntr_initcall_ended(in, c, status);
			break;
		}
		drop_ended(in);
	}
}
