/* Absorbing without a memo: after a crash of the daemon; and an upper that is older than head, as a power
 * failure can leave it: what the view shows is what head becomes. */
#include "absorb_fixture.h"
#include "absorb_twin.h"

static int setup(void **state)
{
	static struct afixture f;

	afx_setup(&f);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	afx_teardown(*state);
	return 0;
}

static void fill(struct afixture *f)
{
	afx_do(f, "mkdir -p d/sub e/x/y; echo hi>d/f; echo g>d/sub/g; echo a>a; ln a b; ln a d/c; echo z>z; "
	          "ln -s z sl; "
	          "mkfifo p; echo k>e/x/y/k; head -c 200000 /dev/urandom >big; setfattr -n user.u -v v d; "
	          "chown 7:8 z");
	assert_true(afx_absorb(f));
	afx_fold(f);
}

static void full(struct afixture *f)
{
	afx_memo(f);
	afx_absorb_as(f, true);
	assert_false(afx_absorb(f));
	afx_same(f);
}

static void test_lost_memo(void **state)
{
	struct afixture *f = *state;
	uint64_t n, g, d, z;

	fill(f);
	g = afx_ino(f, "d/sub/g");
	d = afx_ino(f, "d");
	z = afx_ino(f, "z");
	afx_do(f, "echo nnn >n; mkdir nd; echo i >nd/i; mv d D; echo x >>D/sub/g; chmod 600 z; mv z e/z");
	assert_true(afx_absorb(f));
	n = afx_ino(f, "n");
	full(f);
	/* What goes on after the last commit, with names that head has from before. */
	afx_do(f, "mv n n2; mv nd ND; rm D/f; echo y >>D/sub/g; ln e/z z2; rm sl; echo new >n");
	full(f);
	assert_true(afx_ino(f, "n2") == n && afx_ino(f, "n") != n);
	assert_true(afx_ino(f, "D") == d && afx_ino(f, "D/sub/g") == g && afx_ino(f, "z2") == z &&
	            afx_ino(f, "e/z") == z);
}

/* Puts an older state of upper in the place of what it is now. */
static void save(struct afixture *f)
{
	afx_sh("cp -a '%s' '%s.old'", f->upper, f->upper);
}

static void go_back(struct afixture *f)
{
	afx_unmount(f);
	ntr_memo_free(f->memo);
	f->memo = NULL;
	close(f->upper_fd);
	afx_sh("rm -r '%s' '%s'; mv '%s.old' '%s'; mkdir '%s'", f->upper, f->work, f->upper, f->upper,
	        f->work);
	f->upper_fd = open(f->upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	afx_memo(f);
	afx_mount(f);
}

static void test_uncovered(void **state)
{
	struct afixture *f = *state;
	uint64_t big, k;

	fill(f);
	big = afx_ino(f, "big");
	k = afx_ino(f, "e/x/y/k");
	save(f);
	afx_do(f, "rm -r e; rm a sl p; echo x >>big; chmod 700 d; setfattr -x user.u d; mv d/sub sub; echo q "
	          ">d/f; echo n >d/n; chown 0 z");
	f->broken = true;
	assert_true(afx_absorb(f));
	go_back(f);
	f->broken = false;
	full(f);
	assert_true(afx_ino(f, "e/x/y/k") == k);
	assert_true(afx_ino(f, "big") == big);
	assert_true(afx_ino(f, "a") == afx_ino(f, "b"));
	assert_int_equal(afx_inode(f, "a").nlink, 3);
}

/* The same with whatever may happen. Hard links are left out: overlayfs counts them wrongly once one is
 * broken. */
static void older(struct afixture *f, uint64_t seed)
{
	struct twin t = {.seed = seed, .root = true};
	char plain[300];

	snprintf(plain, sizeof plain, "%s/plain", f->fx.dir);
	mkdir(plain, 0755);
	t.plain = open(plain, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int round = 0; round < 6; round++) {
		t.view = open(f->view, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		for (int i = 0; i < 60; i++) {
			const char *wrong = tw_step(&t);

			if (wrong)
				fail_msg("%s", wrong);
			if (round == 3 && i == 20)
				save(f);
			if (round == 3 && i == 20)
				afx_absorb(f);
		}
		afx_absorb(f);
		close(t.view);
		if (round == 2) {
			afx_fold(f);
			tw_folded(&t);
		}
		if (round == 3)
			break;
	}
	go_back(f);
	f->broken = true;
	full(f);
	close(t.plain);
	free(t.linked);
	free(t.path);
	free(t.mode);
}

static void test_older(void **state)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		print_message("seed %llu\n", (unsigned long long)seed);
		if (seed > 1) {
			teardown(state);
			setup(state);
		}
		older(*state, seed * 104729);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(n) cmocka_unit_test_setup_teardown(test_##n, setup, teardown)
	        T(lost_memo),
	        T(uncovered),
	        T(older),
	};

	if (geteuid()) {
		print_message("SKIPPED: the merged view of root needs root\n");
		return 77;
	}
	return cmocka_run_group_tests_name("absorb_recover", tests, NULL, NULL);
}
