/* An upper that went through a power failure: head is synced, and upper holds an older state, or has lost
 * data of files. What was committed stays; what is newer comes. */
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

/* All work is below one directory: to put another upper in place changes the times of its root. */
#define work(f, ...) afx_do(f, "mkdir -p top; cd top; " __VA_ARGS__)

/* As the recovery does it. true: there is something to commit. */
static bool recover(struct afixture *f)
{
	struct ntr_txn *t = fx_begin(&f->fx);
	struct ntr_head h = f->fx.head;
	struct ntr_err e = {0};

	afx_memo(f);
	h.base_root = f->base;
	h.upper_ns = 1;
	if (ntr_absorb_newer(f->memo, t, &h, &f->last, &e))
		fx_fail("absorb", &e);
	if (f->last.changed)
		fx_commit(&f->fx, t);
	else
		ntr_txn_abort(t);
	ntr_absorb_accept(f->memo);
	return f->last.changed;
}

/* Another state of upper in its place, made while it was older than head. */
static void save(struct afixture *f)
{
	afx_sh("rm -rf '%s.old'; cp -a '%s' '%s.old'", f->upper, f->upper, f->upper);
	usleep(20000);
}

static void swap(struct afixture *f)
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

static void fill(struct afixture *f)
{
	work(f, "mkdir -p d/sub e/x/y; echo hi>d/f; echo g>d/sub/g; echo a>a; ln a b; echo z>z; ln -s z sl; "
	        "mkfifo p; "
	        "echo k>e/x/y/k; head -c 200000 /dev/urandom >big; chmod 750 e");
	assert_true(afx_absorb(f));
	afx_fold(f);
}

static void text_is(struct afixture *f, const char *path, const char *want)
{
	struct ntr_snap s = afx_head(f);
	struct ntr_inode in = afx_inode(f, path);
	char buf[100] = "";
	ssize_t k = ntr_file_read(&s, &in, 0, (uint8_t *)buf, sizeof buf - 1);

	assert_true(k >= 0);
	assert_string_equal(buf, want);
}

/* Everything that a commit can hold is lost from upper: head stays what it is. */
static void test_nothing_undone(void **state)
{
	struct afixture *f = *state;
	uint64_t root;

	fill(f);
	work(f, "echo first >n; echo q >d/n");
	assert_true(afx_absorb(f));
	save(f);
	work(f, "rm -r e; rm a sl p; echo x >>big; chmod 700 d; echo q2 >d/f; echo n >d/m; mkdir -p new/dir; "
	        "echo o "
	        ">new/dir/o; mv z Z; rm n; echo other >>d/n; chmod 711 .");
	f->broken = true;
	assert_true(afx_absorb(f));
	root = f->fx.head.root;
	swap(f);
	assert_false(recover(f));
	assert_true(f->fx.head.root == root);
}

/* … and what is written and synced after that commit comes on top. Directories that lost something to the
 * power failure stay as they were: a directory that changes later has everything that came before. */
static void test_newer_comes(void **state)
{
	struct afixture *f = *state;

	fill(f);
	work(f, "touch e/x/y/new d/sub/new"); /* all directories are in upper from here on */
	assert_true(afx_absorb(f));
	save(f);
	work(f, "echo c1 >n; rm z; mkdir nd; echo in >nd/f; echo two >>d/f");
	assert_true(afx_absorb(f));
	usleep(20000);
	swap(f);
	work(f, "echo changed >>e/x/y/k; echo late >e/x/late; mkdir e/x/late.d; echo deep >e/x/late.d/deep; "
	        "mv d/sub/g e/x/g2; "
	        "echo kept >>e/x/y/k");
	assert_true(recover(f));
	text_is(f, "top/n", "c1\n");
	text_is(f, "top/nd/f", "in\n");
	text_is(f, "top/d/f", "hi\ntwo\n");
	text_is(f, "top/e/x/late", "late\n");
	text_is(f, "top/e/x/late.d/deep", "deep\n");
	text_is(f, "top/e/x/y/k", "k\nchanged\nkept\n");
	text_is(f, "top/e/x/g2", "g\n");
	assert_true(!afx_ino(f, "top/d/sub/g"));
	assert_true(!afx_ino(f, "top/z"));
	assert_false(recover(f));
}

/* The committed state is in upper, and work went on: what is there now is what the view shows. */
static void test_work_went_on(void **state)
{
	struct afixture *f = *state;

	fill(f);
	work(f, "mkdir t t/u; echo 1 >t/1; echo 2 >t/2; echo 3 >t/u/3; echo d2 >>d/f; mkdir w; echo w >w/w");
	assert_true(afx_absorb(f));
	usleep(20000);
	work(f, "rm t/1; mv t/2 t/u/two; echo x >>t/u/3; mv t/u v; rm -r e w; echo e >e; chmod 700 d; rm sl; "
	        "ln -s a sl; "
	        "echo new >new; mkdir w; echo again >w/again; ln new new2; echo y >>z");
	f->broken = true;
	recover(f);
	afx_same(f);
	assert_false(recover(f));
}

static void lose(struct afixture *f, const char *how)
{
	work(f, "%s", how);
	usleep(20000);
}

static void same_content(struct afixture *f, uint64_t root, const char *path)
{
	struct ntr_snap now = afx_head(f), then = ntr_snap_root(f->fx.st, root);
	struct ntr_inode a = afx_inode(f, path), b = a;

	assert_int_equal(ntr_inode_get(&then, a.ino, &b), 0);
	assert_int_equal(ntr_content_equal(&now, &a, &then, &b), 1);
}

/* Data that did not reach the disk, of files whose times did: shorter, empty, zeros, what was there before.
 */
static void test_lost_data(void **state)
{
	struct afixture *f = *state;
	uint64_t root;

	fill(f);
	work(f, "echo committed >e1; echo committed >e2; cp big big2; cp big big3; echo x | dd of=big bs=1 "
	        "seek=70000 "
	        "conv=notrunc status=none; cp big was");
	assert_true(afx_absorb(f));
	root = f->fx.head.root;
	usleep(20000);
	lose(f, "truncate -s 0 e1");
	lose(f, "truncate -s 3 e2");
	lose(f, "truncate -s 100000 big2");
	lose(f, "dd if=/dev/zero bs=4096 count=3 seek=2 conv=notrunc status=none of=big3");
	recover(f);
	text_is(f, "top/e1", "committed\n");
	text_is(f, "top/e2", "committed\n");
	assert_int_equal(afx_inode(f, "top/big2").size, 200000);
	same_content(f, root, "top/big3");
	assert_false(recover(f));
}

/* ext4 journals a larger size before the data are written: zeros in place of all, or of the end of, what was
 * committed, and more of them behind. */
static void test_lost_longer(void **state)
{
	static const char *const lost[] = {"small", "one", "half", "first", "copied", "older", "huge"};
	struct afixture *f = *state;
	uint64_t root;
	char path[20];

	fill(f);
	work(f, "head -c 512 /dev/urandom >older; cp older was"); /* in the base */
	assert_true(afx_absorb(f));
	work(f, "printf small >small; for n in one half first copied; do head -c 8192 /dev/urandom >$n; "
	        "done; "
	        "head -c 4096 /dev/urandom >>half; echo huge >huge; cat one >older");
	assert_true(afx_absorb(f));
	root = f->fx.head.root;
	usleep(20000);
	lose(f, "for n in small one huge; do : >$n; done; truncate -s 5000 small; truncate -s 20000 one; "
	        "truncate -s 7T huge");
	lose(f, "truncate -s 4096 half; truncate -s 20000 half; fallocate -p -l 4096 first; truncate -s "
	        "16384 first");
	lose(f, "cat was >older; truncate -s 9000 older");
	lose(f, "head -c 20000 /dev/zero >copied");
	recover(f);
	for (size_t i = 0; i < NTR_COUNT(lost); i++) {
		snprintf(path, sizeof path, "top/%s", lost[i]);
		same_content(f, root, path);
	}
	assert_false(recover(f));
}

/* An append that was acknowledged is lost, and a later one, or no more than a new time, is there: what an
 * older version had, and zeros behind it. */
static void test_lost_append(void **state)
{
	struct afixture *f = *state;
	uint64_t root;

	fill(f);
	work(f, "for n in t u v w; do echo one >$n; done; head -c 5000 /dev/urandom >long; cp long was");
	assert_true(afx_absorb(f));
	work(f, "for n in t u v w; do echo two >>$n; done; head -c 3000 /dev/urandom >>long");
	assert_true(afx_absorb(f));
	root = f->fx.head.root;
	usleep(20000);
	lose(f, "for n in t u v; do echo one >$n; done; truncate -s 8 t; truncate -s 14 u; truncate -s 9000 "
	        "v; "
	        "cat was >long; truncate -s 12000 long; touch w");
	recover(f);
	text_is(f, "top/t", "one\ntwo\n");
	text_is(f, "top/u", "one\ntwo\n");
	text_is(f, "top/v", "one\ntwo\n");
	text_is(f, "top/w", "one\ntwo\n");
	same_content(f, root, "top/long");
	assert_false(recover(f));
}

/* Longer by zeros behind all of what was committed: a process made it so, or lost what it appended and no
 * more. */
static void test_grown(void **state)
{
	struct afixture *f = *state;

	fill(f);
	work(f, "printf small >small; head -c 8192 /dev/urandom >whole; head -c 200000 /dev/urandom >long; "
	        "truncate -s 3000 zeros; : >empty; head -c 512 /dev/urandom >sector");
	assert_true(afx_absorb(f));
	usleep(20000);
	work(f, "truncate -s 5000 small; truncate -s 20000 whole; truncate -s 2G long; truncate -s 9000 "
	        "zeros; "
	        "truncate -s 600 empty; truncate -s 1024 sector");
	assert_true(recover(f));
	afx_same(f);
}

/* One sector that no version knows, and the file counts as it is. */
static void test_new_data(void **state)
{
	struct afixture *f = *state;

	fill(f);
	work(f, "echo committed, and longer than what comes >e1; cp big big2; echo old >ren");
	assert_true(afx_absorb(f));
	usleep(20000);
	work(f, "echo later >e1; truncate -s 100000 big2; echo y | dd of=big2 bs=1 seek=50000 conv=notrunc "
	        "status=none; echo "
	        "new >ren.tmp; mv ren.tmp ren; echo k2 >>e/x/y/k");
	assert_true(recover(f));
	afx_same(f);
}

/* A rename replaced the file by one whose data are not there: the classic. */
static void test_replaced_by_nothing(void **state)
{
	struct afixture *f = *state;

	fill(f);
	work(f, "echo committed >r");
	assert_true(afx_absorb(f));
	usleep(20000);
	work(f, "touch r.tmp; mv r.tmp r");
	recover(f);
	text_is(f, "top/r", "committed\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(n) cmocka_unit_test_setup_teardown(test_##n, setup, teardown)
	        T(nothing_undone),
	        T(newer_comes),
	        T(work_went_on),
	        T(lost_data),
	        T(lost_longer),
	        T(lost_append),
	        T(grown),
	        T(new_data),
	        T(replaced_by_nothing),
	};

	if (geteuid()) {
		print_message("SKIPPED: the merged view of root needs root\n");
		return 77;
	}
	return cmocka_run_group_tests_name("absorb_newer", tests, NULL, NULL);
}
