/* Writes to the database that fail, at every write of every operation on a session: each time the operation
 * says so or succeeds, what a call has written is not lost, and opening the store again shows the same. */
#include "ctl_fixture.h"

static struct cfx fx;

CFX_SETUP(setup, .fold_entries = 5)

CFX_TEARDOWN(teardown)

/* ---- the operations, on session "s": its commit has f = 1, its uncommitted work is w = work ---- */

static char first[NTR_COMMIT_HEX + 1], now[64];

static int op_run(struct ntr_err *e)
{
	struct ntr_call_result res;
	int r = cfx_try(&fx, "s", "echo more >m", (struct ntr_call_spec){.capture = true}, &res, e);

	if (!r)
		assert_true(res.started && !res.exit_code && res.commit[0]);
	ntr_call_result_done(&res);
	return r;
}

static int op_commit(struct ntr_err *e)
{
	struct ntr_commit done;
	int r = ntr_ctl_commit(fx.c, "s", "commit", NULL, &done, e);

	if (!r)
		assert_true(done.id);
	ntr_commit_done(&done);
	return r;
}

static int rollback(bool discard, struct ntr_err *e)
{
	struct ntr_rollback_result res;
	int r = ntr_ctl_rollback(fx.c, "s", first, 0, discard, false, &res, e);

	if (!r) {
		assert_int_equal(!res.staged[0], discard);
		ntr_commit_done(&res.to);
	}
	return r;
}

static int op_rollback(struct ntr_err *e)
{
	return rollback(false, e);
}

static int op_rollback_discard(struct ntr_err *e)
{
	return rollback(true, e);
}

static int op_discard(struct ntr_err *e)
{
	return ntr_ctl_discard(fx.c, "s", NULL, e);
}

static int op_fork(struct ntr_err *e)
{
	struct ntr_head h;
	int r = ntr_ctl_fork(fx.c, "s", "forked", &h, e);

	if (!r)
		cfx_has(&fx, "forked", "w", "work\n");
	return r;
}

static int op_stop(struct ntr_err *e)
{
	return ntr_ctl_stop(fx.c, "s", NULL, e);
}

static int op_rename(struct ntr_err *e)
{
	int r = ntr_ctl_rename(fx.c, "s", "renamed", e);

	if (!r) { /* back, for whoever looks afterwards */
		cfx_fault_off(&fx);
		cfx_has(&fx, "renamed", "w", "work\n");
		assert_int_equal(ntr_ctl_rename(fx.c, "renamed", "s", e), 0);
	}
	return r;
}

static int op_remove(struct ntr_err *e)
{
	return ntr_ctl_remove(fx.c, "s", false, NULL, e);
}

static int op_put(struct ntr_err *e)
{
	ntr_autoclose int fd = memfd_create("in", MFD_CLOEXEC);
	char commit[NTR_COMMIT_HEX + 1];

	assert_int_equal(ntr_write_all(fd, "put", 3), 0);
	lseek(fd, 0, SEEK_SET);
	return ntr_ctl_put(fx.c, "s", "p", fd, 0644, commit, e);
}

static int op_recover(struct ntr_err *e)
{
	cfx_kill_init(&fx, "s");
	return ntr_ctl_stage(fx.c, "s", e);
}

static int op_work(struct ntr_err *e)
{
	uint64_t head, work;
	struct ntr_diff d;
	int r = ntr_ctl_work(fx.c, "s", &d, &head, &work, e);

	if (!r)
		assert_int_equal(d.n, 1);
	ntr_diff_done(&d);
	return r;
}

/* A session that is made, and made live. */
static int op_first_run(struct ntr_err *e)
{
	struct ntr_call_result res;
	int r = cfx_try(&fx, "new", "echo 1 >f", (struct ntr_call_spec){.capture = true}, &res, e);

	ntr_call_result_done(&res);
	if (!r)
		cfx_has(&fx, "new", "f", "1\n");
	return r;
}

static const struct op {
	const char *name;
	int (*fn)(struct ntr_err *e);
	unsigned writes;     /* at least so many */
	bool drops, removes; /* its success takes the work away; the session */
} ops[] = {
        {"run", op_run, 1, false, false},
        {"commit", op_commit, 1, false, false},
        {"rollback", op_rollback, 2, true, false},
        {"rollback --discard", op_rollback_discard, 1, true, false},
        {"discard", op_discard, 1, true, false},
        {"fork", op_fork, 2, false, false},
        {"stop", op_stop, 2, false, false},
        {"rename", op_rename, 1, false, false},
        {"remove", op_remove, 3, false, true},
        {"put", op_put, 1, false, false},
        {"recover", op_recover, 1, false, false},
        {"work", op_work, 1, false, false},
        {"first run", op_first_run, 2, false, false},
};

static void drop_session(const char *name)
{
	struct ntr_err e = {0};
	int r = ntr_ctl_remove(fx.c, name, true, NULL, &e);

	if (r && r != -ENOENT)
		cfx_fail("remove", &e);
}

static void prepare(void)
{
	drop_session("s");
	drop_session("forked");
	drop_session("new");
	strcpy(first, cfx_run(&fx, "s", "echo 1 >f; export V=1"));
	cfx_run(&fx, "s", "echo 2 >f; mkdir d");
	cfx_run_no_commit(&fx, "s", "echo work >w");
}

/* The session is as its last success says, by looking and by running something in it. */
static void check(const struct op *op, bool did)
{
	struct ntr_head h;

	fx.doing = now;
	if (did && op->removes) {
		assert_int_equal(ntr_session_get(ntr_ctl_store(fx.c), "s", &h, NULL), -ENOENT);
		return;
	}
	if (did && op->drops)
		cfx_has_not(&fx, "s", "w");
	else
		cfx_has(&fx, "s", "w", "work\n");
	if (op->fn == op_run && !did) /* the command has run: what it wrote is there as well */
		cfx_has(&fx, "s", "m", "more\n");
	if (did && (op->fn == op_rollback || op->fn == op_rollback_discard))
		cfx_has(&fx, "s", "f", "1\n");
	else
		cfx_has(&fx, "s", "f", "2\n");
}

/* The daemon's log would only hide what matters here. */
static void close_quietly(void)
{
	int saved = dup(2);

	dup2(fx.null, 2);
	cfx_close(&fx);
	dup2(saved, 2);
	close(saved);
}

/* Fails write number k (and, with stays, all after it); true when the operation met it. */
static bool fail_at(const struct op *op, uint64_t k, bool stays, bool close_broken)
{
	static unsigned round;
	struct cfx_fault fault = {.from = k, .stays = stays};
	struct ntr_err e = {0};
	bool met;
	int r;

	prepare();
	cfx_fault_on(&fx, &fault);
	snprintf(
	        now, sizeof now, "%s, write %llu%s", op->name, (unsigned long long)k, stays ? " and on" : "");
	r = op->fn(&e);
	met = fault.n >= k;
	if (r)
		cfx_said(op->name, r, &e);
	if (!met && r)
		cfx_fail(op->name, &e);
	if (close_broken) { /* nothing could be written until the end */
		close_quietly();
		cfx_open(&fx);
		check(op, !r);
		return met;
	}
	cfx_fault_off(&fx);
	check(op, !r);
	if (!op->removes || r)
		cfx_run(&fx, "s", "[ $V = 1 ] && touch after");
	check(op, !r);
	if (getenv("NTR_LONG") || ++round % 4 == 0) {
		cfx_reopen(&fx);
		check(op, !r);
	}
	return met;
}

static void each_write(bool stays, bool close_broken)
{
	for (size_t i = 0; i < NTR_COUNT(ops); i++) {
		uint64_t k = 1;

		while (fail_at(&ops[i], k, stays, close_broken))
			k++;
		if (k <= ops[i].writes)
			fail_msg("%s: %llu writes only", ops[i].name, (unsigned long long)k - 1);
	}
}

static void test_once(void **state)
{
	(void)state;
	each_write(false, false);
}

static void test_from_then_on(void **state)
{
	(void)state;
	each_write(true, false);
}

static void test_until_closed(void **state)
{
	(void)state;
	each_write(true, true);
}

/* ---- folds ---- */

static uint64_t upper_of(void)
{
	return cfx_head(&fx, "s").upper;
}

/* What the supervisor shows is what the record names: a supervisor that dies now loses nothing. */
static void survives_kill(const char *want)
{
	cfx_run_no_commit(&fx, "s", "echo late >late");
	cfx_kill_init(&fx, "s");
	cfx_run(&fx, "s", "true");
	cfx_has(&fx, "s", "late", "late\n");
	cfx_has(&fx, "s", "f9", want);
	cfx_run(&fx, "s", "rm late");
}

static void fold_until(uint64_t from)
{
	for (int i = 0; i < 100 && upper_of() == from; i++) {
		ntr_ctl_tick(fx.c);
		usleep(30000);
	}
	assert_true(upper_of() != from);
}

static bool fold_fails_at(uint64_t k, bool stays)
{
	struct cfx_fault fault = {.from = k, .stays = stays};
	char script[64], want[16];
	uint64_t before;

	snprintf(want, sizeof want, "%llu\n", (unsigned long long)k);
	snprintf(script, sizeof script, "for i in {1..9}; do echo %llu >f$i; done", (unsigned long long)k);
	cfx_run(&fx, "s", script);
	before = upper_of();
	cfx_fault_on(&fx, &fault);
	ntr_ctl_tick(fx.c);
	cfx_fault_off(&fx);
	cfx_has(&fx, "s", "f9", want);
	survives_kill(want);
	if (fault.n >= k)
		return true;
	assert_true(upper_of() != before);
	return false;
}

static void test_fold(void **state)
{
	uint64_t k, from;

	(void)state;
	for (int stays = 0; stays < 2; stays++) {
		for (k = 1; fold_fails_at(k, stays); k++)
			;
		assert_true(k > 1);
	}
	cfx_run(&fx, "s", "for i in {1..9}; do echo x >f$i; done");
	from = upper_of();
	fold_until(from);
	survives_kill("x\n");
}

/* A process that uses the view keeps a fold from happening; and when the record cannot be put back then,
 * nothing is written in the view before it is. */
static void test_fold_busy(void **state)
{
	struct cfx_fault fault = {.from = 1, .stays = true};
	struct ntr_call_result res;
	struct ntr_err e;
	struct ntr_head h;

	(void)state;
	cfx_run(&fx, "s", "for i in {1..9}; do echo x >f$i; done");
	h = cfx_head(&fx, "s");
	cfx_fault_on(&fx, &fault);
	ntr_ctl_tick(fx.c);
	assert_true(fault.n >= 1);
	assert_true(
	        cfx_try(&fx, "s", "echo late >late", (struct ntr_call_spec){.capture = true}, &res, &e) < 0);
	cfx_said("a call on a store that takes no writes", -EIO, &e);
	ntr_call_result_done(&res);
	cfx_fault_off(&fx);
	assert_true(upper_of() == h.upper);
	cfx_run(&fx, "s", "[ $(cat f9) = x ]; echo 1 >late");
	cfx_has(&fx, "s", "late", "1\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_once, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_from_then_on, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_until_closed, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_fold, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_fold_busy, setup, teardown),
	};
	return cfx_run_tests(tests);
}
