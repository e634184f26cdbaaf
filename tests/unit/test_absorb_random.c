/* Long random sequences of operations in a merged view and, the same, on a plain directory: after every
 * absorb the tree must be what the plain directory is, whether it was made with the memo, without one, or
 * after a fold. */
#include "absorb_fixture.h"
#include "absorb_twin.h"

struct random {
	struct afixture f;
	struct twin t;
	char plain[300];
};

static void view_open(struct random *x)
{
	if (x->t.view >= 0)
		close(x->t.view);
	x->t.view = open(x->f.view, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(x->t.view >= 0);
}

static void view_close(struct random *x)
{
	close(x->t.view);
	x->t.view = -1;
}

static void compare(struct random *x, const char *when, unsigned step)
{
	struct ntr_snap s = afx_head(&x->f);
	struct manifest a = mf_of_dir(x->plain), b = mf_of_tree(&s);
	size_t n = mf_compare(&a, &b, MF_NO_DIR_MTIME | MF_NO_ROOT);

	mf_done(&a);
	mf_done(&b);
	if (n)
		fail_msg("%zu paths differ %s, step %u", n, when, step);
}

static void fold(struct random *x)
{
	view_close(x);
	afx_fold(&x->f);
	view_open(x);
	tw_folded(&x->t);
}

static void round_of(struct random *x, unsigned step)
{
	unsigned how = (unsigned)tw_rand(&x->t, 12);

	if (how == 0) { /* the daemon died: no memo */
		afx_memo(&x->f);
		afx_absorb_as(&x->f, true);
		compare(x, "without a memo", step);
	} else if (how == 1) { /* a commit that failed */
		struct ntr_absorb_result res;
		struct ntr_err e = {0};
		struct ntr_txn *t = fx_begin(&x->f.fx);

		if (ntr_absorb_run(x->f.memo, t, x->f.base, false, &res, &e))
			fx_fail("absorb", &e);
		ntr_txn_abort(t);
		ntr_absorb_reject(x->f.memo);
	}
	afx_absorb(&x->f);
	compare(x, "after absorb", step);
	if (how == 2)
		fold(x);
}

static void run(uint64_t seed, unsigned steps)
{
	struct random *x = calloc(1, sizeof *x);
	const char *trace = getenv("NTR_TEST_TRACE");
	unsigned next = 5;

	print_message("seed %llu\n", (unsigned long long)seed);
	afx_setup(&x->f);
	snprintf(x->plain, sizeof x->plain, "%s/plain", x->f.fx.dir);
	assert_int_equal(mkdir(x->plain, 0755), 0);
	x->t = (struct twin){.view = -1, .seed = seed, .root = geteuid() == 0, .trace = trace != NULL};
	x->t.plain = open(x->plain, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	view_open(x);
	for (unsigned i = 0; i < steps; i++) {
		const char *wrong = tw_step(&x->t);

		if (wrong)
			fail_msg("step %u: %s", i, wrong);
		if (i != next)
			continue;
		if (trace)
			fprintf(stderr, "absorb at %u\n", i);
		round_of(x, i);
		next = i + 1 + (unsigned)tw_rand(&x->t, 25);
	}
	print_message("%lu operations, %lu refused, %zu paths at the end\n", x->t.done, x->t.refused, x->t.n);
	view_close(x);
	close(x->t.plain);
	free(x->t.linked);
	free(x->t.path);
	free(x->t.mode);
	afx_teardown(&x->f);
	free(x);
}

static void test_random(void **state)
{
	const char *seed = getenv("NTR_TEST_SEED"), *steps = getenv("NTR_TEST_STEPS");
	unsigned n = steps ? (unsigned)strtoul(steps, NULL, 10) : 500;

	(void)state;
	if (seed) {
		run(strtoull(seed, NULL, 10), n);
		return;
	}
	for (uint64_t s = 1; s <= 4; s++)
		run(s * 7919, n);
}

static int group(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};

	umask(022);
	return cmocka_run_group_tests_name(
	        geteuid() ? "absorb_random as a user" : "absorb_random", tests, NULL, NULL);
}

int main(void)
{
	/* The user first: a process that has had threads of RocksDB forks badly. */
	int r = afx_as_user(group);

	return r || geteuid() ? r : group();
}
