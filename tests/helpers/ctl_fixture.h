/* ctl_fixture: a controller on a store of the test's own, with short ways to run commands, to look at files,
 * to kill a session's supervisor, and to make writes to the database fail. */
#ifndef NTR_TEST_CTL_FIXTURE_H
#define NTR_TEST_CTL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those first */
#include <cmocka.h>

#include "base/json.h"
#include "base/util.h"
#include "exec/controller.h"
#include "fs/fsck.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct cfx {
	char dir[128], store[160], init[4200];
	struct ntr_ctl *c;
	unsigned fold_entries, fold_price;
	int null;
	const char *doing; /* for messages */
};

static inline void cfx_fail(const char *what, const struct ntr_err *e)
{
	char text[2048];

	ntr_err_format(e, text, sizeof text);
	fail_msg("%s: %s", what, text);
}

/* Every failure says what failed. */
static inline void cfx_said(const char *what, int r, const struct ntr_err *e)
{
	if (r >= 0 || e->code >= 0 || !e->what[0])
		fail_msg("%s: %d without a text (code %d, '%s')", what, r, e->code, e->what);
}

/* Why sessions cannot run here; NULL: they can. */
static inline const char *cfx_cannot(void)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), status = 0;
	pid_t pid;

	if (fd < 0)
		return "/dev/fuse cannot be opened";
	close(fd);
	pid = fork();
	if (!pid)
		_exit(unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) ? 1 : 0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return "this user gets no namespaces here";
	return NULL;
}

/* The end of main: runs them, or says why not; NTR_TEST_ONLY names one. */
static inline bool cfx_begin(void)
{
	const char *why = cfx_cannot();

	if (why)
		print_message("skipped: %s\n", why);
	cmocka_set_test_filter(getenv("NTR_TEST_ONLY"));
	return !why;
}
#define cfx_run_tests(tests) (cfx_begin() ? cmocka_run_group_tests(tests, NULL, NULL) : 77)

static inline void cfx_find_init(struct cfx *f)
{
	const char *dir = getenv("NTR_LIBEXEC");
	ssize_t n;

	if (dir && *dir) {
		snprintf(f->init, sizeof f->init, "%.4000s/ntr-init", dir);
	} else {
		n = readlink("/proc/self/exe", f->init, 4096);
		assert_true(n > 0);
		f->init[n] = '\0';
		strcpy(strrchr(f->init, '/'), "/../exec/ntr-init");
	}
	if (access(f->init, X_OK))
		fail_msg("%s is not built: build the target ntr-init too, or set NTR_LIBEXEC", f->init);
}

static inline void cfx_open(struct cfx *f)
{
	struct ntr_ctl_options o = {.uring = 0,
	        .init_path = f->init,
	        .fold_entries = f->fold_entries,
	        .fold_price = f->fold_price};
	struct ntr_err e = {0};

	if (ntr_ctl_open(f->store, &o, &f->c, &e))
		cfx_fail("open", &e);
}

static inline void cfx_close(struct cfx *f)
{
	ntr_ctl_close(f->c);
	f->c = NULL;
}

static inline void cfx_reopen(struct cfx *f)
{
	cfx_close(f);
	cfx_open(f);
}

static inline void cfx_setup(struct cfx *f)
{
	const char *tmp = getenv("TMPDIR");

	cfx_find_init(f);
	snprintf(f->dir, sizeof f->dir, "%.100s/ntr-ctl.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->store, sizeof f->store, "%s/store", f->dir);
	f->null = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_true(f->null >= 0);
	cfx_open(f);
}

static inline void cfx_problem(void *user, const char *text)
{
	(void)user;
	print_message("fsck: %s\n", text);
}

/* Whatever a test did, the store is whole. */
static inline void cfx_fsck(struct cfx *f)
{
	struct ntr_fsck k = {.problem = cfx_problem};
	struct ntr_err e = {0};

	if (ntr_fsck_run(ntr_ctl_store(f->c), &k, &e))
		cfx_fail("fsck", &e);
	assert_int_equal(k.problems, 0);
}

static inline void cfx_teardown(struct cfx *f)
{
	if (f->c)
		cfx_fsck(f);
	cfx_close(f);
	close(f->null);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, f->dir), 0);
}

/* A test's setup and teardown for the program's `fx`; after the name what fx is to begin with. */
#define CFX_SETUP(name, ...)                    \
	static int name(void **state)           \
	{                                       \
		(void)state;                    \
		fx = (struct cfx){__VA_ARGS__}; \
		cfx_setup(&fx);                 \
		return 0;                       \
	}
#define CFX_TEARDOWN(name)            \
	static int name(void **state) \
	{                             \
		(void)state;          \
		cfx_teardown(&fx);    \
		return 0;             \
	}

/* ---- calls ---- */

static inline int cfx_try(struct cfx *f, const char *session, const char *script, struct ntr_call_spec spec,
        struct ntr_call_result *ret, struct ntr_err *e)
{
	char *const env[] = {(char[]){"LC_ALL=C"}, (char[]){"PATH=/usr/bin:/bin"}, NULL};
	struct ntr_call *call = ntr_call_new();
	int r;

	assert_non_null(call);
	spec.script = script;
	spec.script_len = strlen(script);
	spec.env = env;
	for (int i = 0; i < 3; i++)
		if (!spec.fds[i])
			spec.fds[i] = f->null;
	if (e)
		*e = (struct ntr_err){0};
	r = ntr_ctl_run(f->c, session, &spec, call, ret, e);
	ntr_call_free(call);
	return r;
}

/* Runs a script that must succeed and exit with `code`; its captured stdout into out (when not NULL); the
 * commit's name,
 * "" for none. */
static inline const char *cfx_run_code(
        struct cfx *f, const char *session, const char *script, int code, char *out, size_t size)
{
	static __thread char commit[NTR_COMMIT_HEX + 1];
	struct ntr_call_result res;
	struct ntr_err e;

	if (cfx_try(f, session, script, (struct ntr_call_spec){.capture = true}, &res, &e))
		cfx_fail(script, &e);
	if (res.exit_code != code)
		fail_msg("%s: exit %d: %s", script, res.exit_code, ntr_buf_cstr(&res.err));
	if (out)
		snprintf(out, size, "%s", ntr_buf_cstr(&res.out));
	memcpy(commit, res.commit, sizeof commit);
	ntr_call_result_done(&res);
	return commit;
}

static inline const char *cfx_run(struct cfx *f, const char *session, const char *script)
{
	return cfx_run_code(f, session, script, 0, NULL, 0);
}

/* Leaves what the script wrote uncommitted. */
static inline void cfx_run_no_commit(struct cfx *f, const char *session, const char *script)
{
	struct ntr_call_result res;
	struct ntr_err e;

	if (cfx_try(f, session, script, (struct ntr_call_spec){.no_commit = true}, &res, &e))
		cfx_fail(script, &e);
	assert_int_equal(res.exit_code, 0);
	assert_string_equal(res.commit, "");
	ntr_call_result_done(&res);
}

/* ---- looking ---- */

/* Content of a file, of a commit when rev is given; NULL when there is none. In a buffer of this thread. */
static inline const char *cfx_cat(struct cfx *f, const char *session, const char *rev, const char *path)
{
	static __thread char text[4][65536];
	static __thread unsigned which;
	char *t = text[which++ % 4];
	ntr_autoclose int fd = memfd_create("cat", MFD_CLOEXEC);
	struct ntr_err e = {0};
	uint32_t mode;
	ssize_t n;
	int r = ntr_ctl_cat(f->c, session, rev, path, fd, &mode, &e);

	if (r == -ENOENT)
		return NULL;
	if (r)
		cfx_fail(path, &e);
	n = pread(fd, t, sizeof text[0] - 1, 0);
	assert_true(n >= 0);
	t[n] = '\0';
	return t;
}

static inline void cfx_has(struct cfx *f, const char *session, const char *path, const char *want)
{
	const char *got = cfx_cat(f, session, NULL, path);

	if (!got || strcmp(got, want) != 0)
		fail_msg("%s: %s:%s holds '%s', wanted '%s'", f->doing ? f->doing : "", session, path,
		        got ? got : "(missing)", want);
}

static inline void cfx_has_not(struct cfx *f, const char *session, const char *path)
{
	const char *got = cfx_cat(f, session, NULL, path);

	if (got)
		fail_msg("%s: %s:%s is there: '%s'", f->doing ? f->doing : "", session, path, got);
}

static inline struct ntr_head cfx_head(struct cfx *f, const char *session)
{
	struct ntr_head h;
	struct ntr_err e = {0};

	if (ntr_session_get(ntr_ctl_store(f->c), session, &h, &e))
		cfx_fail(session, &e);
	return h;
}

static inline json_t *cfx_info(struct cfx *f, const char *session)
{
	struct ntr_head h = cfx_head(f, session);
	json_t *o = ntr_ctl_session_info(f->c, &h);

	assert_non_null(o);
	return o;
}

static inline bool cfx_is_live(struct cfx *f, const char *session)
{
	ntr_autojson json_t *o = cfx_info(f, session);

	return ntr_json_bool(o, "live", false);
}

/* The tool of the head commit. */
static inline const char *cfx_tool(struct cfx *f, const char *session)
{
	static __thread char tool[64];
	struct ntr_head h = cfx_head(f, session);
	ntr_autojson json_t *d = NULL;
	struct ntr_commit at;

	assert_int_equal(ntr_commit_get(ntr_ctl_store(f->c), h.commit, &at, NULL), 0);
	d = json_loads(at.desc, 0, NULL);
	snprintf(tool, sizeof tool, "%s", ntr_json_str(d, "tool", ""));
	ntr_commit_done(&at);
	return tool;
}

/* ---- supervisors ---- */

/* The pid in STORE/upper/SID.N/init of the session; 0: none. */
static inline pid_t cfx_init_pid(struct cfx *f, const char *session)
{
	struct ntr_head h = cfx_head(f, session);
	ntr_autofree char *text = NULL;
	char path[256];

	snprintf(path, sizeof path, "%s/upper/%llu.%llu/init", f->store, (unsigned long long)h.sid,
	        (unsigned long long)h.upper);
	if (!h.upper || ntr_read_file(AT_FDCWD, path, 200, &text, NULL))
		return 0;
	return (pid_t)strtol(text, NULL, 10);
}

/* kill -9; returns when it is dead. A call that was waiting for it may have reaped it by then. */
static inline void cfx_kill_init(struct cfx *f, const char *session)
{
	pid_t pid = cfx_init_pid(f, session);
	siginfo_t si;

	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_true(!waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) || errno == ECHILD);
}

/* ---- writes that fail ---- */

struct cfx_fault {
	uint64_t from;      /* the write that fails, counted from 1; 0: none */
	bool stays;         /* and every one after it */
	_Atomic uint64_t n; /* writes seen */
};

static inline int cfx_fault_fn(void *user, uint64_t number, const char *op)
{
	struct cfx_fault *k = user;
	uint64_t n = ++k->n;

	(void)number;
	(void)op;
	return k->from && (n == k->from || (k->stays && n > k->from)) ? -EIO : 0;
}

static inline void cfx_fault_on(struct cfx *f, struct cfx_fault *k)
{
	k->n = 0;
	ntr_kv_set_fault(ntr_store_kv(ntr_ctl_store(f->c)), cfx_fault_fn, k);
}

static inline void cfx_fault_off(struct cfx *f)
{
	ntr_kv_set_fault(ntr_store_kv(ntr_ctl_store(f->c)), NULL, NULL);
}

#endif
