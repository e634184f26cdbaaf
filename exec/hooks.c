#include "hooks.h"
#include "../base/buf.h"
#include "../base/json.h"
#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { LIMIT_S = 30, LIMIT_MAX_S = 86400, TEXT_MAX = 600 };

const char *ntr_hook_word(enum ntr_hook event)
{
	static const char *const words[NTR_HOOK_EVENTS] = {
	        [NTR_HOOK_PRE_RUN] = "pre-run",
	        [NTR_HOOK_POST_RUN] = "post-run",
	        [NTR_HOOK_PRE_COMMIT] = "pre-commit",
	        [NTR_HOOK_POST_COMMIT] = "post-commit",
	        [NTR_HOOK_POST_FORK] = "post-fork",
	        [NTR_HOOK_POST_ROLLBACK] = "post-rollback",
	};

	return words[event];
}

/* ---- finding ---- */

/* i 0: the store's, 1: the session's; the path below the store. */
static void hook_path(char path[PATH_MAX], const char *session, enum ntr_hook event, int i)
{
	snprintf(path, PATH_MAX, i ? "hooks/%s.d/%s" : "hooks/%.0s%s", session, ntr_hook_word(event));
}

static bool is_there(struct ntr_store *s, const char *session, enum ntr_hook event, int i)
{
	char path[PATH_MAX];
	struct stat st;

	hook_path(path, session, event, i);
	/* What cannot be looked at is found to be broken when it is run. */
	return !fstatat(ntr_store_dirfd(s), path, &st, AT_SYMLINK_NOFOLLOW) ||
	       (errno != ENOENT && errno != ENOTDIR);
}

bool ntr_hook_there(struct ntr_store *s, const char *session, enum ntr_hook event)
{
	if (faccessat(ntr_store_dirfd(s), "hooks", F_OK, AT_EACCESS) && errno == ENOENT)
		return false;
	return is_there(s, session, event, 0) || is_there(s, session, event, 1);
}

/* STORE/hooks/timeout: seconds. */
static double limit_of(struct ntr_store *s)
{
	ntr_autofree char *text = NULL;
	double limit;
	char *end;

	if (ntr_read_file(ntr_store_dirfd(s), "hooks/timeout", 64, &text, NULL))
		return LIMIT_S;
	limit = strtod(text, &end);
	return end != text && limit > 0 && limit <= LIMIT_MAX_S ? limit : LIMIT_S;
}

/* ---- running ---- */

struct run {
	const char *path;
	pid_t pid;
	int pidfd, err; /* err: what it writes to stderr */
	struct ntr_buf text;
	bool late;
};

static void run_done(struct run *r)
{
	ntr_closep(&r->pidfd);
	ntr_closep(&r->err);
	ntr_buf_done(&r->text);
}

static int input_of(const json_t *msg, int *ret)
{
	ntr_autofree char *text = json_dumps(msg, JSON_COMPACT);
	ntr_autoclose int fd = memfd_create("ntr-hook", MFD_CLOEXEC);
	int r = !text ? -ENOMEM : fd < 0 ? -errno : ntr_write_all(fd, text, strlen(text));

	if (!r && (write(fd, "\n", 1) != 1 || lseek(fd, 0, SEEK_SET)))
		r = -errno;
	if (!r)
		*ret = ntr_steal_fd(&fd);
	return r;
}

/* The daemon's environment, without what it says about the session that the daemon itself may have been
 * started from. */
static char **environment(struct ntr_store *s, const char *session, enum ntr_hook event, bool inside)
{
	ntr_autojson json_t *a = json_array();
	const char *add[][2] = {{"NTR_STORE", ntr_store_path(s)}, {"NTR_SESSION", session},
	        {"NTR_HOOK", ntr_hook_word(event)}, {"NTR_CALL", inside ? "hook" : NULL}};
	char **v = NULL;

	for (char **p = environ; a && p && *p; p++)
		if (strncmp(*p, "NTR_", 4))
			json_array_append_new(a, ntr_json_bytes(*p, strlen(*p)));
	for (size_t i = 0; a && i < NTR_COUNT(add); i++) {
		ntr_autofree char *x = add[i][1] ? ntr_sprintf("%s=%s", add[i][0], add[i][1]) : NULL;

		if (x)
			json_array_append_new(a, ntr_json_bytes(x, strlen(x)));
	}
	return a && !ntr_json_get_strv(a, &v) ? v : NULL;
}

/* A session and process group of its own, default signals, no descriptor but 0, 1 (the daemon's log) and 2.
 */
static int spawn(struct run *h, int dir, int in, int err, char **env)
{
	char *argv[] = {(char *)(uintptr_t)h->path, NULL};
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&at);
	r = posix_spawn_file_actions_addfchdir_np(&fa, dir);
	r = r ? r : posix_spawn_file_actions_adddup2(&fa, in, STDIN_FILENO);
	r = r ? r : posix_spawn_file_actions_adddup2(&fa, STDERR_FILENO, STDOUT_FILENO);
	r = r ? r : posix_spawn_file_actions_adddup2(&fa, err, STDERR_FILENO);
	r = r ? r : posix_spawn_file_actions_addclosefrom_np(&fa, 3);
	posix_spawnattr_setsigmask(&at, &none);
	posix_spawnattr_setsigdefault(&at, &all);
	posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	r = r ? r : posix_spawn(&h->pid, h->path, &fa, &at, argv, env);
	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&at);
	return -r;
}

static int start(struct run *h, struct ntr_store *s, const char *session, enum ntr_hook event,
        const json_t *msg, bool inside)
{
	ntr_autoclose int in = -1, err = -1;
	char **env = environment(s, session, event, inside);
	int p[2], r = env ? input_of(msg, &in) : -ENOMEM;

	if (!r && pipe2(p, O_CLOEXEC | O_NONBLOCK))
		r = -errno;
	if (!r) {
		h->err = p[0];
		err = p[1];
		fcntl(err, F_SETFL, 0);
		r = spawn(h, ntr_store_dirfd(s), in, err, env);
	}
	if (!r)
		h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
	ntr_strv_free(env);
	return r;
}

/* All is read, so that it never waits for us; the beginning is kept. */
static bool take_text(struct run *h)
{
	char tmp[4096];
	ssize_t n = read(h->err, tmp, sizeof tmp);

	if (n > 0 && h->text.len < TEXT_MAX)
		ntr_buf_add(&h->text, tmp, NTR_MIN((size_t)n, TEXT_MAX - h->text.len));
	return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Until its process has ended (children that it leaves are its own business), or the limit has passed. */
static int await(struct run *h, double limit_s)
{
	uint64_t deadline = ntr_mono_ns() + (uint64_t)(limit_s * 1e9), now;
	struct pollfd p[2] = {{.fd = h->pidfd, .events = POLLIN}, {.fd = h->err, .events = POLLIN}};
	int status = 0;

	while (!(p[0].revents & POLLIN) && (now = ntr_mono_ns()) < deadline) {
		int wait = h->pidfd < 0 ? 5 : (int)NTR_MIN((deadline - now) / 1000000 + 1, (uint64_t)60000);

		if (poll(p, 2, wait) > 0 && p[1].revents && !take_text(h))
			p[1].fd = -1;
		if (h->pidfd < 0 && waitpid(h->pid, &status, WNOHANG) == h->pid)
			return status;
	}
	h->late = !(p[0].revents & POLLIN);
	if (h->late)
		kill(-h->pid, SIGKILL);
	while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
		;
	for (int i = 0; i < 64 && p[1].fd >= 0 && poll(&p[1], 1, 0) > 0; i++)
		if (!take_text(h))
			break;
	return status;
}

/* ---- what to tell ---- */

static int not_started(const struct run *h, int r, struct ntr_err *e)
{
	if (r == -EACCES) {
		ntr_err_why(e, "the hook %s is not executable", h->path);
		ntr_err_todo(e, "chmod +x %s, or remove it", h->path);
	} else if (r == -ENOENT || r == -ENOEXEC) {
		ntr_err_why(e, "the hook %s cannot be run: %s", h->path,
		        r == -ENOENT ? "the interpreter that its first line names is not there"
		                     : "it is neither a program nor a script that begins with #!");
		ntr_err_todo(e, "correct its first line, or remove it");
	} else {
		ntr_err_why(e, "the hook %s cannot be run: %s", h->path, strerror(-r));
	}
	return -NTR_HOOK_REFUSED;
}

static const char *one_line(struct ntr_buf *b)
{
	while (b->len && strchr(" \t\r\n", b->data[b->len - 1]))
		b->len--;
	for (size_t i = 0; i < b->len; i++)
		if (strchr("\t\r\n", b->data[i]))
			b->data[i] = b->data[i] ? ' ' : '?';
	return b->len ? ntr_buf_cstr(b) : NULL;
}

static int judge(struct run *h, int status, double limit_s, struct ntr_err *e)
{
	const char *said = one_line(&h->text);

	if (h->late) {
		ntr_err_why(
		        e, "the hook %s ran longer than its limit of %g s and was killed", h->path, limit_s);
		ntr_err_todo(e, "make it quicker, or write a larger number of seconds into hooks/timeout");
	} else if (WIFSIGNALED(status)) {
		ntr_err_why(e, "the hook %s was ended by signal %d%s%s", h->path, WTERMSIG(status),
		        said ? ": " : "", said ? said : "");
	} else if (WEXITSTATUS(status)) {
		ntr_err_why(e, "the hook %s said no (exit status %d)%s%s", h->path, WEXITSTATUS(status),
		        said ? ": " : "", said ? said : "");
	} else {
		return 0;
	}
	return -NTR_HOOK_REFUSED;
}

static int run_one(struct ntr_store *s, const char *session, enum ntr_hook event, int i, const json_t *msg,
        bool inside, struct ntr_err *e)
{
	ntr_auto(run_done) struct run h = {.pidfd = -1, .err = -1};
	double limit = limit_of(s);
	char rel[PATH_MAX];
	ntr_autofree char *path = NULL;
	int r;

	hook_path(rel, session, event, i);
	h.path = path = ntr_sprintf("%s/%s", ntr_store_path(s), rel);
	r = path ? start(&h, s, session, event, msg, inside) : -ENOMEM;
	return r ? not_started(&h, r, e) : judge(&h, await(&h, limit), limit, e);
}

int ntr_hook_run(struct ntr_store *s, const char *session, enum ntr_hook event, const json_t *msg,
        bool inside, struct ntr_err *e)
{
	int r = 0;

	for (int i = 0; i < 2 && !r; i++)
		if (is_there(s, session, event, i))
			r = run_one(s, session, event, i, msg, inside, e);
	return r;
}
