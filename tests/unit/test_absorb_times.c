/* Access times: absorb's own looking moves none, one that was set is a change, and one that a read moved is
 * none. */
#include "absorb_fixture.h"

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

enum { AT_2030 = 1893456000, AT_2032 = 1956528000, AT_2001 = 978307200 };

static void set(struct afixture *f, const char *name, time_t a, time_t m)
{
	const struct timespec t[2] = {{.tv_sec = a}, {.tv_sec = m, .tv_nsec = m ? 0 : UTIME_OMIT}};
	char path[400];

	snprintf(path, sizeof path, "%s/%s", f->view, name);
	assert_int_equal(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW), 0);
}

static void last(struct afixture *f)
{
	struct ntr_txn *t = fx_begin(&f->fx);

	assert_int_equal(ntr_absorb_last(f->memo, t, f->base, false, &f->last, NULL), 0);
	fx_commit(&f->fx, t);
	ntr_absorb_accept(f->memo);
}

/* A listing of a directory whose access time is before its others moves that on ext4, so absorb's must not.
 */
static void test_listing(void **state)
{
	static const char *const names[] = {"d", "d/e", "locked", ""};
	struct afixture *f = *state;

	afx_do(f, "mkdir -p d/e locked; echo x >d/f; echo x >d/e/f; echo x >locked/f; chmod 0 locked");
	assert_true(afx_absorb(f));
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < NTR_COUNT(names); i++)
			set(f, names[i], AT_2030 + round, AT_2032 + round);
		ntr_absorb_check(f->memo);
		assert_int_equal(ntr_absorb_times_wait(f->memo), 1);
		assert_false(afx_absorb(f));
		last(f);
		for (size_t i = 0; i < NTR_COUNT(names); i++) {
			assert_int_equal(afx_inode(f, names[i]).atime.tv_sec, AT_2030 + round);
			assert_int_equal(afx_inode(f, names[i]).mtime.tv_sec, AT_2032 + round);
		}
		afx_do(f, "chmod 755 locked");
		afx_fold(f);
	}
}

/* An access time that was set by itself, of a file that is new, of one that is committed, of a symlink. */
static void test_set(void **state)
{
	static const char *const names[] = {"f", "l", "p"};
	static const time_t times[] = {AT_2001, AT_2030, AT_2001 + 1, 1};
	struct afixture *f = *state;

	afx_do(f, "echo x >f; ln -s f l; mkfifo p");
	assert_true(afx_absorb(f));
	for (size_t t = 0; t < NTR_COUNT(times); t++) {
		for (size_t i = 0; i < NTR_COUNT(names); i++) {
			struct ntr_inode was = afx_inode(f, names[i]), now;

			set(f, names[i], times[t], 0);
			assert_int_equal(ntr_absorb_check(f->memo), 1);
			assert_true(afx_absorb(f));
			now = afx_inode(f, names[i]);
			assert_int_equal(now.atime.tv_sec, times[t]);
			assert_int_equal(now.mtime.tv_sec, was.mtime.tv_sec);
			assert_int_equal(now.mtime.tv_nsec, was.mtime.tv_nsec);
			assert_true(now.ino == was.ino);
			assert_false(afx_absorb(f));
		}
		if (t % 2)
			afx_fold(f);
	}
}

static void test_read(void **state)
{
	struct afixture *f = *state;

	afx_do(f, "echo x >f; echo x >g; touch -a -d 2001-01-01 f");
	assert_true(afx_absorb(f));
	afx_do(f, "sleep 0.02; cat f g >/dev/null");
	assert_false(afx_absorb(f));
	afx_fold(f);
	/* Opened for writing, which copies up, and read. */
	afx_do(f, "exec 3<>f; sleep 0.02; cat <&3 >/dev/null; exec 4<>g; cat <&4 >/dev/null");
	assert_false(afx_absorb(f));
	afx_do(f, "sleep 0.02; exec 3<>f; cat <&3 >/dev/null");
	assert_false(afx_absorb(f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(n) cmocka_unit_test_setup_teardown(test_##n, setup, teardown)
	        T(listing),
	        T(set),
	        T(read),
	};

	if (geteuid()) {
		print_message("SKIPPED: the merged view of root needs root\n");
		return 77;
	}
	return cmocka_run_group_tests_name("absorb_times", tests, NULL, NULL);
}
