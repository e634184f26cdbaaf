/* The daemon asks its own versions mounts nothing: one of its threads that waited there while the daemon is
 * killed would wait for ever, and hold its sockets, its locks and the mount. Reads of files are no requests
 * of the reader: the kernel's readahead sends them, and a killed reader does not wait for the answer. */
#include "ctl_fixture.h"
#include "exec/tools.h"
#include "fs/versions_stats.h"

extern void (*ntr_vreq_hook)(pid_t client, enum ntr_vop op);

static struct cfx fx;
static _Atomic unsigned all, own;
static _Atomic int own_op;

static void count(pid_t client, enum ntr_vop op)
{
	char path[64];

	all++;
	snprintf(path, sizeof path, "/proc/self/task/%d", (int)client);
	if (op == NTR_VOP_READ || access(path, F_OK))
		return;
	own++;
	own_op = (int)op;
}

static int setup(void **state)
{
	(void)state;
	all = own = 0;
	own_op = -1;
	ntr_vreq_hook = count;
	fx = (struct cfx){.fold_entries = 1, .fold_price = 10};
	cfx_setup(&fx);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	cfx_teardown(&fx);
	ntr_vreq_hook = NULL;
	return 0;
}

static void check(const char *what)
{
	if (own)
		fail_msg("%s: %u requests from the daemon itself, the last of kind %d", what, (unsigned)own,
		        own_op);
}

static void test_start_call_fold(void **state)
{
	(void)state;
	cfx_run(&fx, "s",
	        "mkdir d; for i in {1..50}; do echo $i >d/$i; done; setfattr -n user.a -v b d/1 || true");
	check("a session's start and its first call");
	for (int i = 0; i < 5; i++) {
		cfx_run(&fx, "s", "cat d/* >/dev/null; echo 1 >>d/7; mv d/8 d/80; rm d/9; ls -lR >/dev/null");
		usleep(200000);
		ntr_ctl_tick(fx.c);
	}
	check("calls and folds");
	assert_true(all > 0);
	cfx_has(&fx, "s", "d/80", "8\n");
}

static void test_rollback_fork(void **state)
{
	struct ntr_rollback_result res;
	struct ntr_head h = {0};
	struct ntr_err e = {0};

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	cfx_run(&fx, "s", "echo 2 >f");
	assert_int_equal(ntr_ctl_rollback(fx.c, "s", NULL, 1, false, false, &res, &e), 0);
	ntr_commit_done(&res.to);
	cfx_has(&fx, "s", "f", "1\n");
	assert_int_equal(ntr_ctl_fork(fx.c, "s", "t", &h, &e), 0);
	cfx_run(&fx, "t", "cat f; echo 3 >f");
	check("a rollback and a fork");
	assert_int_equal(ntr_ctl_stop(fx.c, NULL, NULL, &e), 0);
	cfx_run(&fx, "t", "cat f");
	check("a session that goes live again");
	assert_true(all > 0);
}

static void test_files(void **state)
{
	ntr_autofree char *big = calloc(1, 300000);
	struct ntr_file_result res = {0};
	struct ntr_edit ed = {.old = "one", .new = "two", .old_len = 3, .new_len = 3};
	struct ntr_err e = {0};

	(void)state;
	memset(big, 'x', 299999);
	cfx_run(&fx, "s", "mkdir -p a/b; echo one >a/b/f; echo 1 >n");
	ntr_ctl_tick(fx.c);
	usleep(200000);
	ntr_ctl_tick(fx.c);
	assert_int_equal(ntr_ctl_file_edit(fx.c, "s", "a/b/f", &ed, false, &res, &e), 0);
	assert_null(res.why);
	ntr_file_result_done(&res);
	assert_int_equal(ntr_ctl_file_write(fx.c, "s", "n", big, 299999, false, &res, &e), 0);
	assert_null(res.why);
	ntr_file_result_done(&res);
	cfx_has(&fx, "s", "a/b/f", "two\n");
	check("an agent's edit and write");
}

/* What a listing and a file ask is asked by the supervisor's child. */
static void test_listing(void **state)
{
	ntr_autojson json_t *list = NULL;
	struct ntr_err e = {0};

	(void)state;
	cfx_run(&fx, "s", "mkdir -p a/b; for i in {1..300}; do : >a/b/$i; done; ln -s b a/l");
	assert_int_equal(ntr_ctl_stop(fx.c, NULL, NULL, &e), 0);
	cfx_run(&fx, "s", "echo 1 >n");
	all = 0;
	assert_int_equal(ntr_ctl_ls(fx.c, "s", NULL, "a/l", &list, &e), 0);
	assert_int_equal(json_array_size(list), 300);
	assert_true(all > 0);
	cfx_has(&fx, "s", "a/b/7", "");
	check("ls of a live session");
}

static void test_mounted_commit(void **state)
{
	struct ntr_err e = {0};
	int fd = -1;

	(void)state;
	if (geteuid())
		skip(); /* an ordinary user's mount of a commit is a FUSE mount of its own */
	cfx_run(&fx, "s", "echo 1 >f; mkdir d");
	assert_int_equal(ntr_ctl_mount_fd(fx.c, "s", "s~0", "/nowhere", getpid(), &fd, &e), 0);
	check("the mount of a commit");
	assert_int_equal(faccessat(fd, "f", F_OK, 0), 0);
	assert_true(own > 0); /* that was this process: the hook does see it */
	close(fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_start_call_fold, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rollback_fork, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_listing, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_mounted_commit, setup, teardown),
	};
	return cfx_run_tests(tests);
}
