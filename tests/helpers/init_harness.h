/* init_harness: ntr-init at the other end of a socketpair, as ntrd has it. The lower is an ordinary
 * directory.
 *
 * Every test runs for two kinds of users: as root, and as uid 65534 in a user namespace (a test that is run
 * by an ordinary user itself has the second kind only). */
#ifndef NTR_TEST_INIT_HARNESS_H
#define NTR_TEST_INIT_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those first */
#include <cmocka.h>

#include "base/json.h"
#include "base/util.h"
#include "base/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { TH_NOBODY = 65534, TH_WAIT_MS = 20000 };

struct th {
	bool user;
	int sock;
	pid_t pid;
	char dir[64], wsroot[128];
	int n;           /* of the newest layers */
	json_t *backlog; /* answers not asked for yet */
	uint64_t req;
	json_t *started; /* the answer to start */
	int fds[NTR_WIRE_FDS];
	size_t nfds; /* of the last answer; closed before the next */
};

static inline int th_init_fd(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
	int fd;

	assert_true(n > 0);
	path[n] = '\0';
	strcpy(strrchr(path, '/'), "/../exec/ntr-init");
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s is not built: build the target ntr-init too", path);
	return fd;
}

static inline void th_become(const struct th *t)
{
	if (!t->user || geteuid())
		return;
	if (setgroups(0, NULL) || setresgid(TH_NOBODY, TH_NOBODY, TH_NOBODY) ||
	        setresuid(TH_NOBODY, TH_NOBODY, TH_NOBODY))
		_exit(99);
}

static inline void th_path(const struct th *t, char *buf, size_t size, const char *layer, const char *rel)
{
	if (!strcmp(layer, "lower"))
		snprintf(buf, size, "%s/lower/%s", t->dir, rel);
	else
		snprintf(buf, size, "%s/%s.%d/%s", t->dir, layer, t->n, rel);
}

static inline void th_mkdir(const struct th *t, const char *layer)
{
	char p[256];

	th_path(t, p, sizeof p, layer, "");
	assert_int_equal(mkdir(p, 0755), 0);
	if (t->user && !geteuid())
		assert_int_equal(chown(p, TH_NOBODY, TH_NOBODY), 0);
}

/* A file of a layer, made from outside. */
static inline void th_put(const struct th *t, const char *layer, const char *rel, const char *text)
{
	char p[256];
	int fd;

	th_path(t, p, sizeof p, layer, rel);
	fd = open(p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(ntr_write_all(fd, text, strlen(text)), 0);
	close(fd);
	if (t->user && !geteuid())
		assert_int_equal(chown(p, TH_NOBODY, TH_NOBODY), 0);
}

static inline bool th_exists(const struct th *t, const char *layer, const char *rel)
{
	char p[256];
	struct stat st;

	th_path(t, p, sizeof p, layer, rel);
	return !lstat(p, &st);
}

/* ---- messages ---- */

static inline uint64_t th_send(struct th *t, json_t *m, const int *fds, size_t nfds)
{
	assert_non_null(m);
	json_object_set_new(m, "req", json_integer((json_int_t)++t->req));
	assert_int_equal(ntr_wire_send_new(t->sock, m, fds, nfds), 0);
	return t->req;
}

static inline json_t *th_backlog_take(struct th *t, uint64_t req)
{
	for (size_t i = 0; i < json_array_size(t->backlog); i++) {
		json_t *m = json_array_get(t->backlog, i);

		if ((uint64_t)ntr_json_int(m, "req", 0) != req)
			continue;
		json_incref(m);
		json_array_remove(t->backlog, i);
		return m;
	}
	return NULL;
}

/* The next answer with that number; NULL if none comes in time. */
static inline json_t *th_wait_for(struct th *t, uint64_t req, int ms)
{
	uint64_t until = ntr_mono_ns() + (uint64_t)ms * 1000000u;
	json_t *m = th_backlog_take(t, req);

	while (!m) {
		struct pollfd p = {.fd = t->sock, .events = POLLIN};
		int64_t left = (int64_t)(until - ntr_mono_ns()) / 1000000;

		if (left < 0 || poll(&p, 1, (int)left + 1) != 1)
			return NULL;
		ntr_wire_close_fds(t->fds, t->nfds);
		t->nfds = 0;
		if (ntr_wire_recv(t->sock, &m, t->fds, &t->nfds))
			return NULL;
		json_array_append_new(t->backlog, m);
		m = th_backlog_take(t, req);
	}
	return m;
}

static inline json_t *th_wait(struct th *t, uint64_t req)
{
	json_t *m = th_wait_for(t, req, TH_WAIT_MS);

	if (!m)
		fail_msg("no answer to request %llu", (unsigned long long)req);
	return m;
}

static inline json_t *th_do(struct th *t, json_t *m, const int *fds, size_t nfds)
{
	return th_wait(t, th_send(t, m, fds, nfds));
}

/* For requests without members whose answer is an integer member. */
static inline int th_ask(struct th *t, const char *op, const char *member)
{
	ntr_autojson json_t *m = th_do(t, json_pack("{s:s}", "op", op), NULL, 0);

	return (int)ntr_json_int(m, member, -1);
}

/* ---- life ---- */

static inline void th_layer_fds(const struct th *t, int fds[3])
{
	static const char *const names[] = {"lower", "upper", "work"};
	char p[256];

	for (int i = 0; i < 3; i++) {
		th_path(t, p, sizeof p, names[i], "");
		fds[i] = open(p, O_PATH | O_DIRECTORY | O_CLOEXEC);
		assert_true(fds[i] >= 0);
	}
}

/* A further upper and work, for fold and swap. */
static inline void th_next_layers(struct th *t, int fds[3])
{
	t->n++;
	th_mkdir(t, "upper");
	th_mkdir(t, "work");
	th_layer_fds(t, fds);
}

static inline void th_spawn(struct th *t)
{
	int exe = th_init_fd(), sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	t->pid = fork();
	assert_true(t->pid >= 0);
	if (!t->pid) {
		char name[] = "ntr-init", *argv[] = {name, NULL};

		th_become(t);
		exe = fcntl(exe, F_DUPFD_CLOEXEC, 20);
		if (dup2(sv[1], 3) == 3)
			fexecve(exe, argv, environ);
		_exit(98);
	}
	close(sv[1]);
	close(exe);
	t->sock = sv[0];
}

static inline void th_dirs(struct th *t, bool user)
{
	memset(t, 0, sizeof *t);
	t->user = user;
	t->sock = -1;
	t->backlog = json_array();
	/* A colon and a comma: what overlayfs would split its options at. */
	snprintf(t->dir, sizeof t->dir, "/tmp/ntr-init:,t.XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	if (user && !geteuid())
		assert_int_equal(chown(t->dir, TH_NOBODY, TH_NOBODY), 0);
	th_mkdir(t, "lower");
	th_mkdir(t, "upper");
	th_mkdir(t, "work");
	th_put(t, "lower", "hello", "hello\n");
}

static inline void th_start(struct th *t, const char *wsroot)
{
	int fds[3];

	snprintf(t->wsroot, sizeof t->wsroot, "%s", wsroot);
	th_spawn(t);
	th_layer_fds(t, fds);
	t->started = th_do(t,
	        json_pack("{s:s,s:s,s:s,s:b}", "op", "start", "session", "t", "wsroot", wsroot, "user",
	                t->user),
	        fds, 3);
	ntr_wire_close_fds(fds, 3);
}

static inline void th_open(struct th *t, bool user)
{
	th_dirs(t, user);
	th_start(t, "/workspace");
	if (!ntr_json_bool(t->started, "ok", false)) {
		json_dumpf(t->started, stderr, 0);
		fail_msg("the session does not start");
	}
}

/* Waits for the end of ntr-init; its exit status. */
static inline int th_gone(struct th *t)
{
	int status = -1;

	for (int i = 0; i < TH_WAIT_MS / 5; i++) {
		if (waitpid(t->pid, &status, WNOHANG) == t->pid) {
			t->pid = 0;
			return status;
		}
		usleep(5000);
	}
	fail_msg("ntr-init does not end");
	return -1;
}

static inline void th_close(struct th *t)
{
	ntr_wire_close_fds(t->fds, t->nfds);
	ntr_closep(&t->sock);
	if (t->pid)
		th_gone(t);
	json_decref(t->backlog);
	json_decref(t->started);
	ntr_rm_rf(AT_FDCWD, t->dir);
}

/* ---- calls ---- */

struct th_call {
	uint64_t req;
	int out, err; /* read ends */
};

struct th_result {
	int code, signal, background;
	bool cwd_gone;
	char out[8192], err[4096];
	json_t *reply, *state; /* state is borrowed from reply; NULL when there is none */
};

static inline void th_result_done(struct th_result *r)
{
	json_decref(r->reply);
	r->reply = r->state = NULL;
}

static inline json_t *th_call_msg(const struct th *t, const char *script, char *const *argv)
{
	static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin", home[] = "HOME=/tmp",
	            lang[] = "LC_ALL=C.UTF-8";
	static char *env[] = {path, home, lang, NULL};
	json_t *m = json_pack(
	        "{s:s,s:o,s:s,s:i}", "op", "call", "env", ntr_json_strv(env), "cwd", t->wsroot, "umask", 022);

	if (script)
		json_object_set_new(m, "script", ntr_json_bytes(script, strlen(script)));
	else
		json_object_set_new(m, "argv", ntr_json_strv(argv));
	return m;
}

/* Takes m. in: stdin, or -1 for /dev/null. */
static inline struct th_call th_begin(struct th *t, json_t *m, int in)
{
	int po[2], pe[2], fds[3];
	struct th_call c;

	assert_int_equal(pipe2(po, O_CLOEXEC), 0);
	assert_int_equal(pipe2(pe, O_CLOEXEC), 0);
	fds[0] = in >= 0 ? in : open("/dev/null", O_RDONLY | O_CLOEXEC);
	fds[1] = po[1];
	fds[2] = pe[1];
	c.req = th_send(t, m, fds, 3);
	c.out = po[0];
	c.err = pe[0];
	close(po[1]);
	close(pe[1]);
	if (in < 0)
		close(fds[0]);
	return c;
}

/* What is in the pipe by now: a background process may hold it open. */
static inline void th_drain(int fd, char *buf, size_t size)
{
	size_t len = 0;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (ssize_t n; len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0;)
		len += (size_t)n;
	buf[len] = '\0';
	close(fd);
}

/* The rest of a call whose "started" has been read. */
static inline void th_finish(struct th *t, struct th_call *c, struct th_result *ret)
{
	json_decref(ret->reply);
	ret->reply = th_wait(t, c->req);
	ret->code = (int)ntr_json_int(ret->reply, "code", -1);
	ret->signal = (int)ntr_json_int(ret->reply, "signal", -1);
	ret->background = (int)ntr_json_int(ret->reply, "background", -1);
	ret->cwd_gone = ntr_json_bool(ret->reply, "cwd_gone", false);
	ret->state = json_object_get(ret->reply, "state");
	if (!json_is_object(ret->state))
		ret->state = NULL;
	th_drain(c->out, ret->out, sizeof ret->out);
	th_drain(c->err, ret->err, sizeof ret->err);
}

static inline pid_t th_await_start(struct th *t, const struct th_call *c)
{
	ntr_autojson json_t *m = th_wait(t, c->req);
	int pid = (int)ntr_json_int(m, "started", 0);

	if (!pid) {
		json_dumpf(m, stderr, 0);
		fail_msg("the call does not start");
	}
	return pid;
}

static inline void th_run_msg(struct th *t, json_t *m, int in, struct th_result *ret)
{
	struct th_call c = th_begin(t, m, in);

	th_await_start(t, &c);
	th_finish(t, &c, ret);
}

static inline void th_script(struct th *t, const char *script, struct th_result *ret)
{
	th_run_msg(t, th_call_msg(t, script, NULL), -1, ret);
}

/* A script whose output is all that matters. */
static inline void th_expect(struct th *t, const char *script, const char *out)
{
	ntr_auto(th_result_done) struct th_result r = {0};

	th_script(t, script, &r);
	if (strcmp(r.out, out) || r.code)
		fail_msg("%s: code %d, stdout '%s', stderr '%s'; expected '%s'", script, r.code, r.out, r.err,
		        out);
}

/* Waits until cond holds. */
#define TH_EVENTUALLY(cond)                                        \
	do {                                                       \
		for (int th_i_ = 0; !(cond); th_i_++) {            \
			if (th_i_ > TH_WAIT_MS / 10)               \
				fail_msg("never true: %s", #cond); \
			usleep(10000);                             \
		}                                                  \
	} while (0)

static inline bool th_alive(pid_t pid)
{
	char path[64], text[512] = "";
	const char *p;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, text, sizeof text - 1) <= 0)
		text[0] = '\0';
	close(fd);
	p = strrchr(text, ')');
	return p && p[2] != 'Z' && p[2] != 'X';
}

/* What a process holds: descriptors, and children (zombies too). */
static inline int th_descriptors(pid_t pid)
{
	char path[64];
	struct dirent *d;
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return -1;
	while ((d = readdir(dir)))
		n += d->d_name[0] != '.';
	closedir(dir);
	return n;
}

static inline bool th_is_helper(long pid)
{
	ntr_autofree char *name = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/%ld/comm", pid);
	return !ntr_read_file(AT_FDCWD, path, 64, &name, NULL) && !strcmp(name, "ntr-rename\n");
}

/* But for the one that answers renames as long as the session lives. */
static inline int th_children(pid_t pid)
{
	ntr_autofree char *text = NULL;
	char path[64], *end;
	int n = 0;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
	if (ntr_read_file(AT_FDCWD, path, 1 << 20, &text, NULL))
		return -1;
	for (char *p = text; *p; p = end + strspn(end, " \n")) {
		long child = strtol(p, &end, 10);

		if (end == p)
			break;
		n += !th_is_helper(child);
	}
	return n;
}

/* Runs a test body for both kinds of users. */
#define TH_BOTH(body)                         \
	static void body##_root(void **state) \
	{                                     \
		(void)state;                  \
		if (geteuid())                \
			skip();               \
		body(false);                  \
	}                                     \
	static void body##_user(void **state) \
	{                                     \
		(void)state;                  \
		body(true);                   \
	}
#define TH_TESTS(body) cmocka_unit_test(body##_root), cmocka_unit_test(body##_user)

#endif
