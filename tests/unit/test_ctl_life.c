/* The life of sessions: calls, commits, work that no commit has, rollback, forks beside a running call,
 * supervisors that are killed. */
#include "ctl_fixture.h"
#include "exec/controller_impl.h"
#include "exec/live_upper.h"

#include <pthread.h>

static struct cfx fx;

CFX_SETUP(setup, .fold_entries = 0)

CFX_TEARDOWN(teardown)

/* ---- calls ---- */

static void test_call(void **state)
{
	struct ntr_call_result res;
	struct ntr_err e;

	(void)state;
	assert_int_equal(cfx_try(&fx, "s", "echo out; echo err >&2; echo 1 >f; mkdir d; exit 3",
	                         (struct ntr_call_spec){.capture = true, .tool = "terminal"}, &res, &e),
	        0);
	assert_int_equal(res.exit_code, 3);
	assert_string_equal(ntr_buf_cstr(&res.out), "out\n");
	assert_string_equal(ntr_buf_cstr(&res.err), "err\n");
	assert_true(res.started && !res.timed_out && !res.truncated && !res.signal);
	assert_int_equal(strlen(res.commit), NTR_COMMIT_HEX);
	assert_int_equal(res.changes.created, 2);
	ntr_call_result_done(&res);
	assert_string_equal(cfx_tool(&fx, "s"), "terminal");
	cfx_has(&fx, "s", "f", "1\n");
	cfx_has(&fx, "s", "/workspace/f", "1\n");
	assert_string_equal(cfx_run(&fx, "s", "cat f; ls >/dev/null"), ""); /* nothing changed: no commit */
}

static void test_state(void **state)
{
	char out[4096];

	(void)state;
	assert_string_not_equal(cfx_run(&fx, "s", "mkdir d; cd d; export A='x y'; umask 077"), "");
	cfx_run_code(&fx, "s", "pwd; echo $A; umask", 0, out, sizeof out);
	assert_string_equal(out, "/workspace/d\nx y\n0077\n");
	cfx_reopen(&fx);
	cfx_run_code(&fx, "s", "pwd; echo $A; umask", 0, out, sizeof out);
	assert_string_equal(out, "/workspace/d\nx y\n0077\n");
	assert_string_not_equal(cfx_run(&fx, "s", "unset A; exit 0"), "");
	cfx_run_code(&fx, "s", "echo ${A-none}", 0, out, sizeof out);
	assert_string_equal(out, "none\n");
}

static void test_limits(void **state)
{
	struct ntr_call_result res;
	struct ntr_err e;

	(void)state;
	assert_int_equal(cfx_try(&fx, "s", "echo begun; echo 1 >f; sleep 60 & sleep 60",
	                         (struct ntr_call_spec){.capture = true, .timeout_s = 0.4}, &res, &e),
	        0);
	assert_true(res.timed_out && res.duration_s < 30);
	assert_string_equal(ntr_buf_cstr(&res.out), "begun\n");
	assert_string_not_equal(res.commit, ""); /* a call that ran out of time keeps what it did */
	ntr_call_result_done(&res);
	cfx_has(&fx, "s", "f", "1\n");
	assert_int_equal(cfx_try(&fx, "s", "for i in {1..50000}; do echo $i; done",
	                         (struct ntr_call_spec){.capture = true, .budget = 1000}, &res, &e),
	        0);
	assert_int_equal(res.out.len, 1000);
	assert_true(res.truncated);
	assert_int_equal(res.exit_code, 0);
	ntr_call_result_done(&res);
}

static void test_signal_code(void **state)
{
	(void)state;
	cfx_run_code(&fx, "s", "kill -9 $$", 137, NULL, 0);
	cfx_run_code(&fx, "s", "no-such-command", 127, NULL, 0);
}

/* ---- work that no commit has ---- */

static size_t work_count(const char *session)
{
	uint64_t head, work;
	struct ntr_diff d;
	struct ntr_err e = {0};
	size_t n;

	if (ntr_ctl_work(fx.c, session, &d, &head, &work, &e))
		cfx_fail("work", &e);
	n = d.n;
	assert_true((n != 0) == (head != work));
	ntr_diff_done(&d);
	return n;
}

static void test_work(void **state)
{
	struct ntr_commit done;
	struct ntr_err e = {0};

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	assert_int_equal(work_count("s"), 0);
	cfx_run_no_commit(&fx, "s", "echo 2 >f; echo 3 >g");
	assert_int_equal(work_count("s"), 2);
	assert_int_equal(work_count("s"), 2); /* looking changes nothing */
	assert_int_equal(ntr_ctl_commit(fx.c, "s", "commit", "a message", &done, &e), 0);
	assert_true(done.id);
	assert_non_null(strstr(done.desc, "a message"));
	assert_int_equal(done.stats.created, 1);
	assert_int_equal(done.stats.modified, 1);
	ntr_commit_done(&done);
	assert_int_equal(work_count("s"), 0);
	assert_int_equal(ntr_ctl_commit(fx.c, "s", "commit", NULL, &done, &e), 0);
	assert_int_equal(done.id, 0);
	cfx_run_no_commit(&fx, "s", "rm f");
	assert_int_equal(work_count("s"), 1);
	assert_int_equal(ntr_ctl_discard(fx.c, "s", NULL, &e), 0);
	assert_int_equal(work_count("s"), 0);
	cfx_has(&fx, "s", "f", "2\n");
	assert_string_equal(cfx_run(&fx, "s", "cat f g"), "");
}

/* What ls, cat and put do is the same whether the session is live or not. */
static void test_files(void **state)
{
	ntr_autoclose int fd = memfd_create("in", MFD_CLOEXEC);
	char commit[NTR_COMMIT_HEX + 1];
	struct ntr_err e = {0};
	uint32_t mode;

	(void)state;
	assert_int_equal(ntr_write_all(fd, "hello", 5), 0);
	cfx_run(&fx, "s", "mkdir d; ln -s d l; echo x >d/f");
	for (int live = 1; live >= 0; live--) {
		ntr_autojson json_t *list = NULL;

		assert_int_equal(cfx_is_live(&fx, "s"), live);
		assert_int_equal(ntr_ctl_ls(fx.c, "s", NULL, "", &list, &e), 0);
		assert_int_equal(json_array_size(list), 2 + (live ? 0 : 1));
		assert_string_equal(ntr_json_str(json_array_get(list, 0), "type", ""), "dir");
		assert_int_equal(ntr_ctl_cat(fx.c, "s", NULL, "d", fd, &mode, &e), -EISDIR);
		cfx_said("cat of a directory", -EISDIR, &e);
		e = (struct ntr_err){0};
		assert_int_equal(ntr_ctl_cat(fx.c, "s", NULL, "/etc/passwd", fd, &mode, &e), -EINVAL);
		cfx_said("cat outside", -EINVAL, &e);
		e = (struct ntr_err){0};
		lseek(fd, 0, SEEK_SET);
		assert_int_equal(ntr_ctl_put(fx.c, "s", live ? "p1" : "d/p2", fd, 0640, commit, &e), 0);
		assert_int_equal(strlen(commit), NTR_COMMIT_HEX);
		assert_string_equal(cfx_tool(&fx, "s"), "put");
		cfx_has(&fx, "s", live ? "p1" : "d/p2", "hello");
		lseek(fd, 0, SEEK_SET);
		assert_int_equal(ntr_ctl_put(fx.c, "s", "none/x", fd, 0640, commit, &e), -ENOENT);
		cfx_said("put into nothing", -ENOENT, &e);
		e = (struct ntr_err){0};
		assert_int_equal(ntr_ctl_stop(fx.c, "s", NULL, &e), 0);
	}
}

/* ---- moving the head ---- */

static void rollback(const char *rev, uint64_t steps, bool discard, bool expect_staged)
{
	struct ntr_rollback_result res;
	struct ntr_err e = {0};

	if (ntr_ctl_rollback(fx.c, "s", rev, steps, discard, false, &res, &e))
		cfx_fail("rollback", &e);
	assert_int_equal(res.staged[0] != '\0', expect_staged);
	assert_true(cfx_head(&fx, "s").commit == res.to.id);
	ntr_commit_done(&res.to);
}

static void rollback_all(void)
{
	char first[NTR_COMMIT_HEX + 1], before[NTR_COMMIT_HEX + 1];
	struct ntr_rollback_result res;
	struct ntr_err e = {0};

	strcpy(first, cfx_run(&fx, "s", "mkdir -p a/b; echo 1 >f; echo keep >a/b/k; export V=1"));
	strcpy(before, cfx_run(&fx, "s", "echo 2 >f; rm -r a; export V=2"));
	rollback(NULL, 1, false, false);
	cfx_has(&fx, "s", "f", "1\n");
	cfx_has(&fx, "s", "a/b/k", "keep\n");
	cfx_run(&fx, "s", "[ $V = 1 ] && [ $(cat f) = 1 ]");
	rollback(before, 0, false, false);
	cfx_has(&fx, "s", "f", "2\n");
	cfx_has_not(&fx, "s", "a/b/k");
	cfx_run_no_commit(&fx, "s", "echo 3 >f");
	rollback(first, 0, false, true); /* kept as a commit */
	cfx_has(&fx, "s", "f", "1\n");
	cfx_run_no_commit(&fx, "s", "echo 4 >f; echo 4 >g");
	rollback(first, 0, true, false); /* dropped */
	cfx_has(&fx, "s", "f", "1\n");
	cfx_has_not(&fx, "s", "g");
	assert_int_equal(ntr_ctl_rollback(fx.c, "s", "ffffffff", 0, false, false, &res, &e), -ENOENT);
	cfx_said("rollback to nothing", -ENOENT, &e);
	e = (struct ntr_err){0};
	assert_int_equal(ntr_ctl_rollback(fx.c, "s", NULL, 99, false, false, &res, &e), -ERANGE);
	cfx_said("rollback too far", -ERANGE, &e);
	cfx_has(&fx, "s", "f", "1\n");
}

static void test_rollback(void **state)
{
	(void)state;
	rollback_all();
}

/* A background process is ended by it, and nothing that it writes shows afterwards. */
static void test_rollback_background(void **state)
{
	struct ntr_rollback_result res;
	ntr_autojson json_t *procs = NULL;
	struct ntr_err e = {0};

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	cfx_run(&fx, "s", "(while :; do echo x >>g; sleep 0.01; done) >/dev/null 2>&1 & echo 2 >f");
	assert_int_equal(ntr_ctl_rollback(fx.c, "s", NULL, 1, false, false, &res, &e), 0);
	assert_true(res.killed >= 1);
	ntr_commit_done(&res.to);
	cfx_has(&fx, "s", "f", "1\n");
	usleep(50000);
	cfx_has_not(&fx, "s", "g");
	assert_int_equal(ntr_ctl_ps(fx.c, "s", &procs, &e), 0);
	assert_int_equal(json_array_size(procs), 0);
}

static void test_sessions(void **state)
{
	struct ntr_head h;
	struct ntr_err e = {0};

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	cfx_run_no_commit(&fx, "s", "echo 2 >f");
	assert_int_equal(ntr_ctl_fork(fx.c, "s", "t", &h, &e), 0); /* takes the work along */
	assert_string_equal(cfx_tool(&fx, "s"), "staged");
	cfx_run(&fx, "t", "[ $(cat f) = 2 ]; echo 3 >f");
	cfx_has(&fx, "s", "f", "2\n");
	assert_int_equal(ntr_ctl_fork(fx.c, "s", "t", &h, &e), -EEXIST);
	cfx_said("fork to a name that is taken", -EEXIST, &e);
	e = (struct ntr_err){0};
	assert_int_equal(ntr_ctl_fork(fx.c, "s~1", "old", &h, &e), 0);
	cfx_has(&fx, "old", "f", "1\n");
	assert_int_equal(ntr_ctl_rename(fx.c, "t", "u", &e), 0); /* while it is live */
	cfx_run(&fx, "u", "[ $(cat f) = 3 ]; echo 4 >f");
	assert_int_equal(ntr_ctl_rename(fx.c, "u", "s", &e), -EEXIST);
	cfx_said("rename to a name that is taken", -EEXIST, &e);
	e = (struct ntr_err){0};
	assert_int_equal(ntr_ctl_remove(fx.c, "u", false, NULL, &e), 0);
	assert_int_equal(ntr_session_get(ntr_ctl_store(fx.c), "u", &h, NULL), -ENOENT);
	assert_int_equal(ntr_ctl_stop(fx.c, NULL, NULL, &e), 0);
	assert_int_equal(ntr_ctl_busy(fx.c), 0);
	cfx_has(&fx, "s", "f", "2\n");
}

/* ---- beside a running call ---- */

struct call_thread {
	pthread_t t;
	const char *script;
	int stdin_fd[2], out[2];
	struct ntr_call_result res;
	struct ntr_err e;
	int ret;
};

static void *call_main(void *arg)
{
	struct call_thread *k = arg;

	k->ret = cfx_try(&fx, "s", k->script, (struct ntr_call_spec){.fds = {k->stdin_fd[0], k->out[1], 0}},
	        &k->res, &k->e);
	return NULL;
}

/* Starts a call and returns when it has printed its first byte. It goes on when call_go is called. */
static void call_begin(struct call_thread *k, const char *script)
{
	char c;

	*k = (struct call_thread){.script = script};
	assert_int_equal(pipe2(k->stdin_fd, O_CLOEXEC) | pipe2(k->out, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&k->t, NULL, call_main, k), 0);
	assert_int_equal(read(k->out[0], &c, 1), 1);
}

static int call_end(struct call_thread *k)
{
	close(k->stdin_fd[1]);
	pthread_join(k->t, NULL);
	close(k->stdin_fd[0]);
	close(k->out[0]);
	close(k->out[1]);
	ntr_call_result_done(&k->res);
	return k->ret;
}

static void test_beside_call(void **state)
{
	struct call_thread k;
	ntr_autojson json_t *procs = NULL, *info = NULL;
	struct ntr_head h;
	struct ntr_err e = {0};
	uint64_t head, work;
	struct ntr_diff d;

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	call_begin(&k, "echo 2 >f; echo b; read x; echo 3 >f");
	assert_int_equal(ntr_ctl_fork(fx.c, "s", "t", &h, &e), 0); /* the head at once */
	cfx_has(&fx, "t", "f", "1\n");
	cfx_has(&fx, "s", "f", "2\n"); /* the view as it is */
	assert_int_equal(ntr_ctl_ps(fx.c, "s", &procs, &e), 0);
	assert_true(json_array_size(procs) >= 1);
	info = cfx_info(&fx, "s");
	assert_true(ntr_json_bool(info, "running", false));
	assert_int_equal(ntr_ctl_work(fx.c, "s", &d, &head, &work, &e), 0);
	assert_int_equal(d.n, 0);
	ntr_diff_done(&d);
	assert_int_equal(ntr_ctl_stage(fx.c, "s", &e), 0);
	assert_int_equal(call_end(&k), 0);
	cfx_has(&fx, "s", "f", "3\n");
	assert_string_not_equal(k.res.commit, "");
}

static void *signal_later(void *arg)
{
	usleep(100000);
	ntr_call_signal(arg, SIGINT);
	return NULL;
}

/* A call that queues behind another is taken out by a signal; one that runs gets it. */
static void test_signals(void **state)
{
	struct call_thread k;
	struct ntr_call *call = ntr_call_new();
	char *const argv[] = {(char[]){"true"}, NULL};
	struct ntr_call_spec spec = {.argv = argv, .fds = {fx.null, fx.null, fx.null}};
	struct ntr_call_result res;
	struct ntr_err e = {0};
	pthread_t t;

	(void)state;
	call_begin(&k, "echo b; read x; echo 1 >f");
	assert_int_equal(pthread_create(&t, NULL, signal_later, call), 0);
	assert_int_equal(ntr_ctl_run(fx.c, "s", &spec, call, &res, &e), -EINTR);
	pthread_join(t, NULL);
	cfx_said("interrupted", -EINTR, &e);
	ntr_call_free(call);
	assert_int_equal(call_end(&k), 0);
	cfx_has(&fx, "s", "f", "1\n");
	call = ntr_call_new();
	spec.argv = (char *const[]){(char[]){"sleep"}, (char[]){"30"}, NULL};
	assert_int_equal(pthread_create(&t, NULL, signal_later, call), 0);
	assert_int_equal(ntr_ctl_run(fx.c, "s", &spec, call, &res, &e), 0);
	pthread_join(t, NULL);
	assert_int_equal(res.exit_code, 130);
	ntr_call_result_done(&res);
	ntr_call_free(call);
}

static void test_rollback_force(void **state)
{
	struct call_thread k;
	struct ntr_rollback_result res;
	struct ntr_err e = {0};

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	call_begin(&k, "trap '' TERM INT HUP; echo 2 >f; echo b; while :; do sleep 1; done");
	assert_int_equal(ntr_ctl_rollback(fx.c, "s", NULL, 1, false, true, &res, &e), 0);
	ntr_commit_done(&res.to);
	assert_int_equal(call_end(&k), 0);
	assert_int_equal(k.res.signal, SIGKILL);
	assert_string_not_equal(k.res.commit, ""); /* what it had done is a commit of its own */
	cfx_has(&fx, "s", "f", "1\n");
}

/* ---- supervisors that are killed ---- */

static void kill_then_run(void)
{
	cfx_run(&fx, "s", "[ $(cat w) = work ]; echo 2 >f");
}

static void kill_then_commit(void)
{
	struct ntr_commit done;
	struct ntr_err e = {0};

	assert_int_equal(ntr_ctl_commit(fx.c, "s", "commit", NULL, &done, &e), 0);
	ntr_commit_done(&done);
}

static void kill_then_fork(void)
{
	struct ntr_head h;
	struct ntr_err e = {0};

	if (ntr_ctl_fork(fx.c, "s", "t", &h, &e))
		cfx_fail("fork", &e);
	cfx_has(&fx, "t", "w", "work\n");
	assert_int_equal(ntr_ctl_remove(fx.c, "t", false, NULL, &e), 0);
}

static void kill_then_stop(void)
{
	struct ntr_err e = {0};

	if (ntr_ctl_stop(fx.c, "s", NULL, &e))
		cfx_fail("stop", &e);
}

static void kill_then_tick(void)
{
	ntr_ctl_tick(fx.c);
}

static void kill_then_put(void)
{
	ntr_autoclose int fd = memfd_create("in", MFD_CLOEXEC);
	char commit[NTR_COMMIT_HEX + 1];
	struct ntr_err e = {0};

	if (ntr_ctl_put(fx.c, "s", "p", fd, 0644, commit, &e))
		cfx_fail("put", &e);
}

static void kill_then_rollback(void)
{
	struct ntr_rollback_result res;
	struct ntr_err e = {0};

	if (ntr_ctl_rollback(fx.c, "s", "HEAD", 0, false, false, &res, &e))
		cfx_fail("rollback", &e);
	ntr_commit_done(&res.to);
	cfx_has(&fx, "s", "f", "1\n");
	cfx_has_not(&fx, "s", "w");
}

static void kill_then_work(void)
{
	uint64_t head, work;
	struct ntr_diff d;
	struct ntr_err e = {0};

	if (ntr_ctl_work(fx.c, "s", &d, &head, &work, &e))
		cfx_fail("work", &e);
	/* Either it is work, or it has become a commit by being looked at; it is not nothing. */
	assert_true(d.n || !strcmp(cfx_tool(&fx, "s"), "recovered"));
	ntr_diff_done(&d);
}

static void kill_then_reopen(void)
{
	cfx_reopen(&fx);
}

static void kill_then_cat(void)
{
	cfx_has(&fx, "s", "w", "work\n");
}

static void test_killed_between(void **state)
{
	static void (*const then[])(void) = {kill_then_run, kill_then_commit, kill_then_fork, kill_then_stop,
	        kill_then_tick, kill_then_put, kill_then_work, kill_then_reopen, kill_then_cat};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(then); i++) {
		struct ntr_err e = {0};

		cfx_run(&fx, "s", "echo 1 >f; export V=1");
		cfx_run_no_commit(&fx, "s", "echo work >w; (sleep 100 >/dev/null 2>&1) &");
		cfx_kill_init(&fx, "s");
		then[i]();
		cfx_run(&fx, "s", "[ $(cat w) = work ] && [ $V = 1 ]");
		cfx_has(&fx, "s", "w", "work\n");
		assert_int_equal(ntr_ctl_remove(fx.c, "s", true, NULL, &e), 0);
	}
}

static void test_killed_then_dropped(void **state)
{
	struct ntr_err e = {0};
	struct ntr_head h;

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	cfx_run_no_commit(&fx, "s", "echo work >w");
	cfx_kill_init(&fx, "s");
	assert_int_equal(ntr_ctl_discard(fx.c, "s", NULL, &e), 0);
	cfx_has_not(&fx, "s", "w");
	cfx_run(&fx, "s", "[ ! -e w ] && [ $(cat f) = 1 ]");
	cfx_run_no_commit(&fx, "s", "echo work >w");
	cfx_kill_init(&fx, "s");
	kill_then_rollback();
	cfx_run(&fx, "s", "[ ! -e w ]");
	cfx_run_no_commit(&fx, "s", "echo work >w");
	cfx_kill_init(&fx, "s");
	assert_int_equal(ntr_ctl_rename(fx.c, "s", "t", &e), 0);
	cfx_run(&fx, "t", "[ $(cat w) = work ]");
	cfx_kill_init(&fx, "t");
	assert_int_equal(ntr_ctl_remove(fx.c, "t", false, NULL, &e), 0);
	assert_int_equal(ntr_session_get(ntr_ctl_store(fx.c), "t", &h, NULL), -ENOENT);
}

static void test_killed_during(void **state)
{
	struct call_thread k;

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	call_begin(&k, "echo 2 >f; echo b; read x; echo 3 >f");
	cfx_kill_init(&fx, "s");
	assert_int_equal(call_end(&k), -EPIPE);
	cfx_said("a call whose supervisor died", k.ret, &k.e);
	cfx_has(&fx, "s", "f", "2\n"); /* what it had written is kept */
	assert_string_equal(cfx_tool(&fx, "s"), "recovered");
	cfx_run(&fx, "s", "[ $(cat f) = 2 ]; echo 4 >f");
	cfx_has(&fx, "s", "f", "4\n");
}

/* The numbers that a call has printed, each after it had written it to the journal. */
static size_t printed(int fd, unsigned round)
{
	char text[8192], want[32];
	size_t n = 0, k = 0;
	ssize_t got;

	while (n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	for (;; k++) {
		snprintf(want, sizeof want, "%u.%zu\n", round, k);
		if (!strstr(text, want))
			return k;
	}
}

/* Killed at moments that nobody chose: what the call said to have written is there, in order, once. */
static void test_killed_anytime(void **state)
{
	static char want[65536];

	(void)state;
	cfx_run(&fx, "s", "touch j");
	for (unsigned i = 0; i < 12; i++) {
		char script[160];
		struct call_thread k;
		const char *have;
		size_t n, least;

		snprintf(script, sizeof script,
		        "echo b; for n in {0..300}; do echo %u.$n >>j || exit; echo %u.$n; done; sleep 9", i,
		        i);
		call_begin(&k, script);
		usleep(i * 1500);
		cfx_kill_init(&fx, "s");
		fcntl(k.out[0], F_SETFL, O_NONBLOCK);
		pthread_join(k.t, NULL);
		least = printed(k.out[0], i);
		have = cfx_cat(&fx, "s", NULL, "j");
		assert_memory_equal(have, want, strlen(want));
		for (n = 0; n <= 301 && strlen(want) < strlen(have); n++)
			snprintf(want + strlen(want), sizeof want - strlen(want), "%u.%zu\n", i, n);
		assert_string_equal(have, want);
		assert_true(n >= least);
		close(k.stdin_fd[0]);
		close(k.stdin_fd[1]);
		close(k.out[0]);
		close(k.out[1]);
		ntr_call_result_done(&k.res);
	}
}

/* ---- folders that are history ---- */

static const char *in_store(const char *name)
{
	static char path[4][600];
	static unsigned turn;

	snprintf(path[++turn % 4], sizeof path[0], "%s/%s", fx.store, name);
	return path[turn % 4];
}

static void make_trash(void)
{
	assert_int_equal(ntr_mkdir_p(in_store("upper/trash.1.1.0/u/a/b"), 0755), 0);
	assert_int_equal(chmod(in_store("upper/trash.1.1.0/u/a/b"), 0), 0);
}

static bool at_once(void *user)
{
	(void)user;
	return true;
}

/* A daemon that has to end leaves them to the next one. */
static void test_trash(void **state)
{
	const struct ntr_store_options o = {.create = false};
	struct ntr_err e = {0};
	struct ntr_store *s;

	(void)state;
	cfx_close(&fx);
	assert_int_equal(ntr_store_open(fx.store, &o, &s, &e), 0);
	make_trash();
	assert_false(ntr_upper_sweep(s, at_once, NULL));
	ntr_store_close(s);
	assert_int_equal(access(in_store("upper/trash.1.1.0/u/a"), F_OK), 0);
	cfx_open(&fx);
	cfx_close(&fx);
	assert_int_equal(access(in_store("upper/trash.1.1.0"), F_OK), -1);
	cfx_open(&fx);
}

static bool is_trash(void)
{
	return !access(in_store("upper/trash.1.1.0"), F_OK);
}

/* While requests come nothing is deleted; when they rest it is, and at the latest when patience ends. */
static void test_trash_waits(void **state)
{
	(void)state;
	for (int rest = 0; rest < 2; rest++) {
		fx.c->used_ns = UINT64_MAX; /* just now, however long that takes */
		make_trash();
		ntr_ctl_sweep(fx.c);
		usleep(500000);
		assert_true(is_trash());
		if (rest)
			fx.c->used_ns = 0;
		else
			fx.c->sweep_patience = 0;
		for (int i = 0; i < 3000 && is_trash(); i++)
			usleep(10000);
		assert_false(is_trash());
	}
}

static void take_spare(int i)
{
	char spare[32], part[40];

	snprintf(spare, sizeof spare, "upper/spare.%d", i);
	for (const char *c = "uw"; *c; c++) {
		snprintf(part, sizeof part, "%s/%c", spare, *c);
		rmdir(in_store(part));
	}
	rmdir(in_store(spare));
}

static bool both_spares(void)
{
	return !access(in_store("upper/spare.0"), F_OK) && !access(in_store("upper/spare.1"), F_OK);
}

/* Ready-made uppers are for the rollbacks of a burst: they do not wait for rest. */
static void test_spares_in_a_burst(void **state)
{
	(void)state;
	fx.c->used_ns = UINT64_MAX;
	make_trash();
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 2; i++)
			take_spare(i);
		assert_false(both_spares());
		ntr_ctl_sweep(fx.c);
		for (int i = 0; i < 300 && !both_spares(); i++)
			usleep(10000);
		assert_true(both_spares());
		assert_true(is_trash());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_call, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_state, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_signal_code, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_work, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rollback, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rollback_background, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_sessions, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_beside_call, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_signals, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rollback_force, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_killed_between, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_killed_then_dropped, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_killed_during, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_killed_anytime, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_trash, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_trash_waits, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_spares_in_a_burst, setup, teardown),
	};
	return cfx_run_tests(tests);
}
