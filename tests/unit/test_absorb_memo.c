/* The memo and what surrounds a run: cost of the check, sizes, files that do not stand still, failures half
 * way. */
#include "absorb_fixture.h"

#include <pthread.h>

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

static uint64_t check_ns(struct afixture *f)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 200; i++) {
		uint64_t t = ntr_mono_ns();

		assert_int_equal(ntr_absorb_check(f->memo), 0);
		best = NTR_MIN(best, ntr_mono_ns() - t);
	}
	return best;
}

static void test_cost(void **state)
{
	struct afixture *f = *state;
	uint64_t entries, bytes, ns;

	afx_do(f, "mkdir -p a/b c d; i=0; while [ $i -lt 24 ]; do for d in a a/b c d; do echo $i "
	          ">$d/file-$i; done; i=$((i+1)); done");
	assert_true(afx_absorb(f));
	ntr_memo_size(f->memo, &entries, &bytes);
	assert_int_equal(entries, 100);
	assert_true(bytes > 0 && bytes <= 96 * 3);
	ns = check_ns(f);
	print_message(
	        "check of 100 entries: %.1f us; memo %zu bytes\n", (double)ns / 1e3, ntr_memo_bytes(f->memo));
#ifndef NTR_SANITIZED
	assert_true(ns < 1000000);
#endif
	assert_true(ntr_memo_bytes(f->memo) < 100 * 120);
	afx_do(f, "echo more >>a/b/file-7");
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	assert_true(afx_absorb(f));
	afx_do(f, "mv a/b/file-7 a/b/file-x");
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	assert_true(afx_absorb(f));
	afx_do(f, "rm d/file-3");
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	assert_true(afx_absorb(f));
	afx_same(f);
}

static void test_metacopy_size(void **state)
{
	struct afixture *f = *state;
	uint64_t entries, bytes;

	afx_do(f, "head -c 3000000 /dev/zero >big");
	assert_true(afx_absorb(f));
	afx_fold(f);
	afx_do(f, "chmod 600 big");
	assert_true(afx_absorb(f));
	ntr_memo_size(f->memo, &entries, &bytes);
	assert_int_equal(entries, 1);
	assert_int_equal(bytes, 0);
	afx_same(f);
}

/* A clock that stands still over a change: what was written a moment ago is looked at again, until it is old.
 */
static void test_coarse(void **state)
{
	struct afixture *f = *state;

	f->memo->coarse = true;
	afx_do(f, "echo x >x; mkdir d; echo y >d/y");
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	afx_do(f, "echo z >z");
	assert_true(afx_absorb_as(f, false));
	f->memo->cur->root->v[0].flags |= NTR_ME_UNTRUSTED;
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	assert_false(afx_absorb_as(f, false));
	usleep(30000);
	assert_false(afx_absorb_as(f, false));
	assert_int_equal(ntr_absorb_check(f->memo), 0);
	afx_same(f);
}

static _Atomic bool stop;

static void *scribble(void *arg)
{
	int fd = open(arg, O_WRONLY);
	uint64_t n = 0;

	while (!stop) {
		n++;
		if (pwrite(fd, &n, sizeof n, (off_t)(n * 4096 % 4000000)) < 0)
			break;
	}
	close(fd);
	return NULL;
}

static void test_restless(void **state)
{
	struct afixture *f = *state;
	pthread_t t;
	char path[400];

	snprintf(path, sizeof path, "%s/f", f->view);
	afx_do(f, "head -c 8000000 /dev/urandom >f; echo x >x");
	stop = false;
	assert_int_equal(pthread_create(&t, NULL, scribble, path), 0);
	/* On a busy machine the thread may stand still by chance. */
	for (int i = 0; i < 50 && !f->last.racy; i++) {
		usleep(20000);
		afx_absorb_as(f, false);
	}
	assert_true(f->last.racy);
	stop = true;
	pthread_join(t, NULL);
	assert_true(afx_inode(f, "f").flags & NTR_INODE_RACY);
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	afx_absorb_as(f, false);
	assert_false(f->last.racy);
	assert_int_equal(ntr_absorb_check(f->memo), 0);
	afx_same(f);
}

/* Another filesystem mounted in upper cannot be absorbed: it is named. */
static void test_foreign_mount(void **state)
{
	struct afixture *f = *state;
	struct ntr_absorb_result res;
	struct ntr_err e = {0};
	char path[400], text[2048];
	struct ntr_txn *t;

	afx_do(f, "mkdir -p d/m");
	snprintf(path, sizeof path, "%s/d/m", f->upper);
	assert_int_equal(mount("tmpfs", path, "tmpfs", 0, NULL), 0);
	t = fx_begin(&f->fx);
	assert_int_equal(ntr_absorb_run(f->memo, t, f->base, false, &res, &e), -EXDEV);
	ntr_txn_abort(t);
	ntr_err_format(&e, text, sizeof text);
	assert_non_null(strstr(text, "d/m"));
	assert_int_equal(umount2(path, 0), 0);
	assert_true(afx_absorb(f));
}

static int no_space(void *user, uint64_t number, const char *op)
{
	(void)number;
	(void)op;
	return *(int *)user;
}

/* The disk is full while threads store chunks; nothing is lost. */
static void test_full_disk(void **state)
{
	struct afixture *f = *state;
	struct ntr_absorb_result res;
	struct ntr_err e = {0};
	struct ntr_txn *t;
	int err = -ENOSPC;

	afx_do(f,
	        "mkdir d; i=0; while [ $i -lt 120 ]; do head -c 60000 /dev/urandom >d/$i; i=$((i+1)); done");
	t = fx_begin(&f->fx);
	ntr_kv_set_fault(ntr_store_kv(f->fx.st), no_space, &err);
	assert_int_equal(ntr_absorb_run(f->memo, t, f->base, false, &res, &e), -ENOSPC);
	ntr_kv_set_fault(ntr_store_kv(f->fx.st), NULL, NULL);
	ntr_txn_abort(t);
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	assert_true(afx_absorb(f));
	afx_same(f);
}

static void test_not_a_directory(void **state)
{
	ntr_autoclose int fd = open("/dev/null", O_RDONLY);
	struct ntr_memo *m = NULL;

	(void)state;
	assert_int_equal(ntr_memo_new(fd, false, &m), -ENOTDIR);
	assert_int_equal(ntr_memo_new(-1, false, &m), -EBADF);
	ntr_memo_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(n) cmocka_unit_test_setup_teardown(test_##n, setup, teardown)
	        T(cost),
	        T(metacopy_size),
	        T(coarse),
	        T(restless),
	        T(foreign_mount),
	        T(full_disk),
	        cmocka_unit_test(test_not_a_directory),
	};

	if (geteuid()) {
		print_message("SKIPPED: the merged view of root needs root\n");
		return 77;
	}
	return cmocka_run_group_tests_name("absorb_memo", tests, NULL, NULL);
}
