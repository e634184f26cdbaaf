/* Allocations that fail during a call, one after the other: no crash, and a call that has written something
 * finds it in the session afterwards. NTR_LONG: each of them, else every seventh. */
#include "ctl_fixture.h"
#include "failing_malloc.h"

/* ---- failing allocations: those that this program's own code makes while `armed` ---- */

#ifndef NTR_SANITIZED /* the sanitizers' allocators cannot be replaced */

static struct cfx fx;
static char journal[1 << 16]; /* what the session's file must hold */

static int setup(void **state)
{
	(void)state;
	fx = (struct cfx){.fold_entries = 20};
	cfx_setup(&fx);
	journal[0] = '\0';
	cfx_run(&fx, "s", "touch journal");
	return 0;
}

CFX_TEARDOWN(teardown)

/* One call with the n-th allocation failing. The command says on a descriptor of ours when it has written. */
static int call_failing_at(long n, long *ret_left, bool *ret_wrote)
{
	ntr_autoclose int said = memfd_create("said", MFD_CLOEXEC);
	struct ntr_call_result res = {0};
	struct ntr_err e = {0};
	struct ntr_call *call = ntr_call_new();
	struct ntr_call_spec spec = {.fds = {fx.null, said, fx.null}};
	char script[128];
	struct stat st;
	int r;

	snprintf(script, sizeof script, "echo %ld >>journal; echo x; export N=%ld", n, n);
	spec.script = script;
	spec.script_len = strlen(script);
	armed = n;
	r = ntr_ctl_run(fx.c, "s", &spec, call, &res, &e);
	*ret_left = armed;
	armed = 0;
	assert_int_equal(fstat(said, &st), 0);
	*ret_wrote = st.st_size > 0;
	if (r)
		cfx_said("run", r, &e);
	if (!r)
		assert_true(*ret_wrote && res.exit_code == 0);
	ntr_call_result_done(&res);
	ntr_call_free(call);
	return r;
}

static void test_run(void **state)
{
	long step = getenv("NTR_LONG") ? 1 : 7, n, left = 0, failed = 0;
	bool wrote;

	(void)state;
	for (n = 1; left <= 0; n += step) {
		char add[32];
		int r = call_failing_at(n, &left, &wrote);

		snprintf(add, sizeof add, "%ld\n", n);
		if (wrote)
			strcat(journal, add);
		failed += r != 0;
		cfx_run(&fx, "s", "true"); /* commits what is left of it */
		cfx_has(&fx, "s", "journal", journal);
		if (left > 0)
			assert_int_equal(r, 0); /* nothing failed */
		if (n % 50 == 0 || failed % 20 == 19) {
			cfx_reopen(&fx);
			cfx_has(&fx, "s", "journal", journal);
		}
	}
	print_message(
	        "%ld allocations in a call; %ld of those that failed made the call fail\n", n - left, failed);
	assert_true(failed > 3);
	cfx_reopen(&fx);
	cfx_has(&fx, "s", "journal", journal);
}

/* The same for what moves and drops work. */
static int op_rollback(struct ntr_err *e)
{
	struct ntr_rollback_result res;
	int r = ntr_ctl_rollback(fx.c, "s", NULL, 1, false, false, &res, e);

	if (!r)
		ntr_commit_done(&res.to);
	return r;
}

static int op_discard(struct ntr_err *e)
{
	return ntr_ctl_discard(fx.c, "s", NULL, e);
}

static int op_fork(struct ntr_err *e)
{
	struct ntr_head h;

	return ntr_ctl_fork(fx.c, "s", "t", &h, e);
}

static int op_stop(struct ntr_err *e)
{
	return ntr_ctl_stop(fx.c, "s", NULL, e);
}

static int op_stage(struct ntr_err *e)
{
	return ntr_ctl_stage(fx.c, "s", e);
}

static int op_tick(struct ntr_err *e)
{
	(void)e;
	ntr_ctl_tick(fx.c); /* folds; says nothing */
	return armed == 0 ? -ENOMEM : 0;
}

static const struct op {
	const char *name;
	int (*fn)(struct ntr_err *e);
	bool drops, silent;
} ops[] = {{"rollback", op_rollback, true, false}, {"discard", op_discard, true, false},
        {"fork", op_fork, false, false}, {"stop", op_stop, false, false}, {"stage", op_stage, false, false},
        {"tick", op_tick, false, true}};

static void op_at(const struct op *op, long n, long *ret_left)
{
	struct ntr_err e = {0};
	int r;

	if (op->silent)
		cfx_run(&fx, "s", "for i in {1..30}; do echo $RANDOM >x$i; done; echo w >w");
	else
		cfx_run_no_commit(&fx, "s", "echo w >w");
	armed = n;
	r = op->fn(&e);
	*ret_left = armed;
	armed = 0;
	if (r && !op->silent)
		cfx_said(op->name, r, &e);
	if (*ret_left > 0)
		assert_int_equal(r, 0);
	fx.doing = op->name;
	if (!r && op->drops)
		cfx_has_not(&fx, "s", "w");
	else
		cfx_has(&fx, "s", "w", "w\n");
	cfx_run(&fx, "s", "cat kept"); /* whatever happened, it works */
	if (op->fn == op_fork && !r)
		assert_int_equal(ntr_ctl_remove(fx.c, "t", true, NULL, &e), 0);
	cfx_run(&fx, "s", "rm -f w x*");
}

static void test_ops(void **state)
{
	(void)state;
	cfx_run(&fx, "s", "echo kept >kept");
	for (size_t i = 0; i < NTR_COUNT(ops); i++) {
		long step = getenv("NTR_LONG") ? 1 : 5, n, left = 0;

		for (n = 1; left <= 0; n += step) {
			cfx_run(&fx, "s", "echo again >>kept");
			cfx_run(&fx, "s", "echo again >>kept");
			op_at(&ops[i], n, &left);
		}
		print_message("%s: %ld allocations\n", ops[i].name, n - left);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_run, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_ops, setup, teardown),
	};
	return cfx_run_tests(tests);
}
#else
int main(void)
{
	print_message("skipped: the sanitizers' allocators cannot be replaced\n");
	return 77;
}
#endif
