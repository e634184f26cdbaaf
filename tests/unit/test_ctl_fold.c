/* Folds that do not wait for rest: calls that follow one another without a pause do not walk a large upper
 * each. No test ticks unless it says so, so what folds here is what the calls themselves owe. */
#include "ctl_fixture.h"
#include "exec/controller_impl.h"

static struct cfx fx;

CFX_SETUP(setup, .fold_entries = 0)

/* A fold costs next to nothing: few files do what many would. */
CFX_SETUP(setup_cheap, .fold_entries = 5, .fold_price = 10)

CFX_TEARDOWN(teardown)

static uint64_t ops(const char *name)
{
	ntr_autojson json_t *st = ntr_ctl_status(fx.c);

	assert_non_null(st);
	return (uint64_t)ntr_json_int(json_object_get(json_object_get(st, "ops"), name), "count", 0);
}

static uint64_t info(const char *name)
{
	ntr_autojson json_t *o = cfx_info(&fx, "s");

	return (uint64_t)ntr_json_int(o, name, 0);
}

static void many(unsigned n)
{
	char script[128];

	snprintf(script, sizeof script, "mkdir -p d; cd d; for i in {1..%u}; do echo $i >$i; done; cd ..", n);
	cfx_run(&fx, "s", script);
	assert_true(info("upper_entries") > n);
}

static void one(unsigned i)
{
	char script[64];

	snprintf(script, sizeof script, "echo %u >f; echo %u >>log", i, i);
	assert_string_not_equal(cfx_run(&fx, "s", script), "");
}

static void ones(unsigned from, unsigned n)
{
	for (unsigned i = from; i < from + n; i++)
		one(i);
}

/* Every call left its line, once and in order; and the last one's file. */
static void check_log(unsigned n)
{
	static char want[65536];
	size_t k = 0;

	for (unsigned i = 0; i < n; i++)
		k += (size_t)snprintf(want + k, sizeof want - k, "%u\n", i);
	cfx_has(&fx, "s", "log", want);
	snprintf(want, sizeof want, "%u\n", n - 1);
	cfx_has(&fx, "s", "f", want);
}

enum { MANY = 5000, CALLS = 30 };

static void test_stream(void **state)
{
	uint64_t walked;

	(void)state;
	many(MANY);
	walked = info("upper_walked");
	ones(0, CALLS);
	assert_int_equal(ops("fold.owed"), 1);
	assert_int_equal(ops("fold.refused"), 0);
	assert_true(info("upper_entries") < 10);
	/* Without: 30 walks of all of it at least. */
	assert_true(info("upper_walked") - walked < 6 * MANY);
	check_log(CALLS);
	cfx_has(&fx, "s", "d/4711", "4711\n");
	cfx_run(&fx, "s", "[ $(ls d | wc -l) = 5000 ]");
}

/* What changes nothing walks, too. */
static void test_unchanged(void **state)
{
	uint64_t walked;

	(void)state;
	many(MANY);
	walked = info("upper_walked");
	for (int i = 0; i < CALLS; i++)
		assert_string_equal(cfx_run(&fx, "s", "true"), "");
	assert_int_equal(ops("fold.owed"), 1);
	assert_int_equal(info("upper_entries"), 0);
	assert_true(info("upper_walked") - walked < 6 * MANY);
	cfx_has(&fx, "s", "d/4711", "4711\n");
}

/* A small upper is walked faster than it is folded. */
static void test_small(void **state)
{
	(void)state;
	many(100);
	for (int i = 0; i < 90; i++) /* 9,000 entries walked */
		cfx_run(&fx, "s", "true");
	ones(0, 5);
	assert_int_equal(ops("fold"), 0);
	assert_int_equal(ops("fold.refused"), 0);
}

/* Forks, commits and writes of files are uses like calls. */
static void test_others(void **state)
{
	struct ntr_file_result res;
	struct ntr_commit done;
	struct ntr_head h;
	struct ntr_err e = {0};
	char name[16], text[16];

	(void)state;
	for (int what = 0; what < 3; what++) {
		uint64_t owed = ops("fold.owed");

		cfx_run(&fx, "s", "for i in {1..20}; do echo x >>f$i; done");
		for (int i = 0; i < 12; i++) {
			snprintf(name, sizeof name, "n%d.%d", what, i);
			snprintf(text, sizeof text, "%d", i);
			if (what == 0) {
				assert_int_equal(ntr_ctl_fork(fx.c, "s", name, &h, &e), 0);
			} else if (what == 1) {
				assert_int_equal(ntr_ctl_commit(fx.c, "s", "commit", "m", &done, &e), 0);
				ntr_commit_done(&done);
			} else {
				assert_int_equal(ntr_ctl_file_write(fx.c, "s", name, text, strlen(text),
				                         false, &res, &e),
				        0);
				ntr_file_result_done(&res);
				cfx_has(&fx, "s", name, text);
			}
		}
		assert_true(ops("fold.owed") > owed);
	}
	cfx_run(&fx, "n0.11", "[ $(cat f20) = x ]");
	cfx_run(&fx, "s", "[ $(wc -l <f20) = 3 ]");
}

/* A process that lives on in the view rules folds out: nothing is tried, and the first call after its end
 * that knows of it is followed by one. */
static void test_background(void **state)
{
	uint64_t upper;

	(void)state;
	many(200);
	upper = cfx_head(&fx, "s").upper;
	cfx_run(&fx, "s", "(while [ ! -e stop ]; do sleep 0.01; done) </dev/null >/dev/null 2>&1 &");
	ones(0, CALLS);
	assert_int_equal(ops("fold"), 0);
	assert_int_equal(ops("fold.refused"), 0);
	assert_true(cfx_head(&fx, "s").upper == upper);
	cfx_run(&fx, "s", "touch stop");
	for (int i = 0; i < 500 && info("background"); i++) {
		cfx_run(&fx, "s", "true");
		usleep(10000);
	}
	assert_int_equal(info("background"), 0);
	ones(CALLS, 2);
	assert_int_equal(ops("fold.owed"), 1);
	assert_true(cfx_head(&fx, "s").upper != upper);
	check_log(CALLS + 2);
	cfx_has(&fx, "s", "d/200", "200\n");
}

/* A view that somebody has a descriptor in: tries become rarer, and it is folded some time after he let go.
 */
static void test_in_use(void **state)
{
	uint64_t upper, refused;
	struct ntr_snap snap;
	const char *inner;
	struct ntr_err e = {0};
	unsigned n = CALLS;
	int fd = -1;

	(void)state;
	many(200);
	assert_int_equal(ntr_ctl_open_now(fx.c, "s", NULL, "d/1", &fd, &snap, &inner, &e), 0);
	assert_true(fd >= 0);
	upper = cfx_head(&fx, "s").upper;
	ones(0, CALLS);
	refused = ops("fold.refused");
	assert_in_range(refused, 1, 5); /* 30 calls, 1 + 2 + 4 + 8 + 16 = 31 */
	assert_int_equal(ops("fold"), 0);
	assert_true(cfx_head(&fx, "s").upper == upper);
	close(fd);
	for (; !ops("fold.owed") && n < 150; n++)
		one(n);
	assert_int_equal(ops("fold.owed"), 1);
	assert_true(cfx_head(&fx, "s").upper != upper);
	ones(n, 2);
	check_log(n + 2);
}

/* Work that is to stay uncommitted stays in its upper. */
static void test_uncommitted(void **state)
{
	uint64_t upper;

	(void)state;
	many(200);
	ones(0, 1);
	cfx_run_no_commit(&fx, "s", "echo late >>late");
	upper = cfx_head(&fx, "s").upper;
	for (int i = 0; i < 9; i++)
		cfx_run_no_commit(&fx, "s", "echo late >>late");
	ntr_ctl_tick(fx.c);
	assert_int_equal(ops("fold.refused"), 0);
	assert_true(cfx_head(&fx, "s").upper == upper);
	cfx_run(&fx, "s", "[ $(wc -l <late) = 10 ]");
}

/* A commit that found nothing to write has not written the session's record either: it is owed on. */
static void test_record_owed(void **state)
{
	struct ntr_commit done = {0};
	struct ntr_err e = {0};
	struct ntr_sess *s;
	struct ntr_head h;

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	assert_int_equal(ntr_ctl_hold(fx.c, "s", NULL, &s, &h, &e), 0);
	s->live->unrecorded = s->live->written = true;
	assert_int_equal(ntr_sess_commit(s, &h, json_pack("{s:s}", "tool", "x"), &done, NULL, &e), 0);
	assert_true(done.id == 0);
	assert_true(s->live->unrecorded);
	ntr_sess_release(s);
	cfx_run(&fx, "s", "echo 2 >f");
	assert_false(s->live->unrecorded);
}

/* ---- crashes ---- */

static uint64_t dies_at;
static _Atomic uint64_t writes;

static int die(void *user, uint64_t number, const char *op)
{
	(void)user;
	(void)number;
	(void)op;
	if (++writes == dies_at)
		kill(getpid(), SIGKILL);
	return 0;
}

struct told { /* by the child that will die, in shared memory */
	_Atomic unsigned done;
	_Atomic uint64_t owed;
};

/* The child's: a daemon that is killed at a write of the database, one of which records a fold's upper. */
static void work_and_die(struct told *t)
{
	cfx_open(&fx);
	many(20);
	ntr_kv_set_fault(ntr_store_kv(ntr_ctl_store(fx.c)), die, NULL);
	for (unsigned i = 0; i < 12; i++) {
		one(i);
		t->done = i + 1;
		t->owed = ops("fold.owed");
	}
	kill(getpid(), SIGKILL);
}

static void check_after(const struct told *t, uint64_t at)
{
	const char *log;
	char want[32];
	unsigned n = 0;

	cfx_open(&fx);
	log = cfx_cat(&fx, "s", NULL, "log");
	for (const char *p = log; p && *p; p = strchr(p, '\n') + 1, n++) {
		snprintf(want, sizeof want, "%u\n", n);
		if (strncmp(p, want, strlen(want)) != 0)
			fail_msg("killed at write %llu: line %u of the log is wrong: %s",
			        (unsigned long long)at, n, p);
	}
	if (n < t->done || n > t->done + 1)
		fail_msg(
		        "killed at write %llu: %u lines, %u calls ended", (unsigned long long)at, n, t->done);
	cfx_has(&fx, "s", "d/20", "20\n");
	cfx_run(&fx, "s", "[ $(ls d | wc -l) = 20 ]; echo 1 >again");
}

static void test_killed(void **state)
{
	struct told *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t last = 0;

	(void)state;
	assert_true(t != MAP_FAILED);
#ifdef __SANITIZE_THREAD__
	skip(); /* the sanitizer allows a forked process no threads */
#endif
	cfx_close(&fx);
	for (dies_at = 1; dies_at < 100 && (!last || dies_at <= last + 1); dies_at++) {
		struct ntr_err e = {0};
		int status;
		pid_t pid;

		*t = (struct told){0};
		fflush(NULL);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			work_and_die(t);
		assert_true(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		if (t->owed && !last) /* so the fold's own writes lie before this one */
			last = dies_at;
		check_after(t, dies_at);
		if (ntr_ctl_remove(fx.c, "s", true, NULL, &e))
			cfx_fail("remove", &e);
		cfx_fsck(&fx);
		cfx_close(&fx);
	}
	assert_true(last > 0);
	munmap(t, sizeof *t);
	cfx_open(&fx);
}

/* The same with writes that fail: the call goes on in the upper that it has, or says so. */
static void test_failing(void **state)
{
	uint64_t k;

	(void)state;
	for (k = 1; k < 100; k++) {
		struct cfx_fault fault = {.from = k};
		struct ntr_call_result res;
		struct ntr_err e;
		unsigned i = 0;
		int r = 0;

		many(20);
		cfx_run(&fx, "s", "rm -f log");
		cfx_fault_on(&fx, &fault);
		for (; i < 8 && !r; i++) {
			r = cfx_try(
			        &fx, "s", "echo x >>log", (struct ntr_call_spec){.capture = true}, &res, &e);
			ntr_call_result_done(&res);
		}
		cfx_fault_off(&fx);
		if (r)
			cfx_said("a call whose store fails once", -EIO, &e);
		cfx_kill_init(&fx, "s");
		cfx_run(&fx, "s", "[ $(ls d | wc -l) = 20 ]; echo x >>log");
		if (fault.n < k)
			break;
	}
	assert_true(ops("fold.owed") > 0);
	assert_true(k > 8 && k < 100);
}

static pid_t victim;

static int kill_victim(void *user, uint64_t number, const char *op)
{
	(void)user;
	(void)number;
	(void)op;
	if (++writes == dies_at)
		kill(victim, SIGKILL);
	return 0;
}

/* The supervisor dies at each write in turn, the fold's among them: its session's work is recovered, and the
 * call that met it runs. */
static void test_supervisor_killed(void **state)
{
	unsigned n = 0;

	(void)state;
	for (dies_at = 1; dies_at < 100; dies_at++) {
		uint64_t owed;

		many(20);
		owed = ops("fold.owed");
		victim = cfx_init_pid(&fx, "s");
		assert_true(victim > 1);
		writes = 0;
		ntr_kv_set_fault(ntr_store_kv(ntr_ctl_store(fx.c)), kill_victim, NULL);
		for (int i = 0; i < 6; i++)
			one(n++);
		ntr_kv_set_fault(ntr_store_kv(ntr_ctl_store(fx.c)), NULL, NULL);
		check_log(n);
		cfx_run(&fx, "s", "[ $(ls d | wc -l) = 20 ]");
		if (ops("fold.owed") > owed && writes < dies_at)
			break;
	}
	assert_in_range(dies_at, 7, 99); /* six commits and a fold at least */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_stream, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_unchanged, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_small, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_others, setup_cheap, teardown),
	        cmocka_unit_test_setup_teardown(test_background, setup_cheap, teardown),
	        cmocka_unit_test_setup_teardown(test_in_use, setup_cheap, teardown),
	        cmocka_unit_test_setup_teardown(test_uncommitted, setup_cheap, teardown),
	        cmocka_unit_test_setup_teardown(test_record_owed, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_killed, setup_cheap, teardown),
	        cmocka_unit_test_setup_teardown(test_failing, setup_cheap, teardown),
	        cmocka_unit_test_setup_teardown(test_supervisor_killed, setup_cheap, teardown),
	};
	return cfx_run_tests(tests);
}
