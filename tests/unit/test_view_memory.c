/* Uppers in memory: what init_memory.c makes of a request with "tmpfs", and what it keeps when nobody listens
 * any more. */
#include "init_harness.h"

#include "exec/initproto.h"
#include "exec/view.h"

#include <sched.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

enum { SIZE = 8 << 20, MAGIC_TMPFS = 0x01021994 };

static json_t *sized(json_t *m)
{
	json_object_set_new(m, "tmpfs", json_integer(SIZE));
	return m;
}

/* STORE/upper/1.1/{u,w} is where the daemon keeps the patterns: the tmpfs lies over the grandparent. */
static void layers(struct th *t, int fds[3])
{
	static const char *const parts[] = {"/up", "/up/1.1", "/up/1.1/u", "/up/1.1/w"};
	char p[256];

	for (size_t i = 0; i < NTR_COUNT(parts); i++) {
		snprintf(p, sizeof p, "%s%s", t->dir, parts[i]);
		if (!mkdir(p, 0700) && t->user && !geteuid())
			assert_int_equal(chown(p, TH_NOBODY, TH_NOBODY), 0);
	}
	th_path(t, p, sizeof p, "lower", "");
	fds[0] = open(p, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (int i = 1; i < 3; i++) {
		snprintf(p, sizeof p, "%s%s", t->dir, parts[i + 1]);
		fds[i] = open(p, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	assert_true(fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0);
}

static json_t *ask_once(struct th *t, json_t *m)
{
	int fds[3];

	layers(t, fds);
	m = th_do(t, m, fds, 3);
	ntr_wire_close_fds(fds, 3);
	return m;
}

/* Asks for a view; *ret_upper is the upper that came back. */
static json_t *ask(struct th *t, json_t *m, int *ret_upper)
{
	ntr_autojson json_t *msg = sized(m);
	struct statfs st;

	/* the process of a script that has ended may be there for a moment, and a fold is refused */
	for (int i = 0; i < 200; i++) {
		m = ask_once(t, json_copy(msg));
		if (!ntr_json_bool(m, "busy", false))
			break;
		json_decref(m);
		usleep(5000);
	}
	if (!ntr_json_bool(m, "ok", false)) {
		json_dumpf(m, stderr, 0);
		fail_msg("no view");
	}
	assert_int_equal(t->nfds, 1);
	*ret_upper = ntr_steal_fd(&t->fds[0]);
	assert_int_equal(fstatfs(*ret_upper, &st), 0);
	assert_int_equal(st.f_type, MAGIC_TMPFS);
	assert_int_equal(st.f_blocks * (unsigned long)st.f_bsize, SIZE);
	return m;
}

static json_t *start(struct th *t, int *ret_upper)
{
	return ask(t,
	        json_pack("{s:s,s:s,s:s,s:b}", "op", "start", "session", "t", "wsroot", t->wsroot, "user",
	                t->user),
	        ret_upper);
}

static void begin(struct th *t, bool user, int *ret_upper)
{
	char p[256];
	int fds[3];

	th_dirs(t, user);
	layers(t, fds);
	/* the root's look, which the view has to show */
	snprintf(p, sizeof p, "%s/up/1.1/u", t->dir);
	assert_int_equal(chmod(p, 0751), 0);
	assert_int_equal(setxattr(p, "user.look", "like", 4, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, p, (struct timespec[]){{1, 0}, {2, 3}}, 0), 0);
	ntr_wire_close_fds(fds, 3);
	snprintf(t->wsroot, sizeof t->wsroot, "/workspace");
	th_spawn(t);
	t->started = start(t, ret_upper);
}

static void expect_script(struct th *t, const char *script, const char *out)
{
	ntr_auto(th_result_done) struct th_result r = {0};

	th_script(t, script, &r);
	assert_string_equal(r.err, "");
	assert_string_equal(r.out, out);
}

/* Only closing the socket would make it keep the upper. */
static void end(struct th *t)
{
	if (t->sock >= 0 && t->pid)
		json_decref(th_do(t, json_pack("{s:s}", "op", "stop"), NULL, 0));
	th_close(t);
}

static bool has(int dir, const char *name)
{
	struct stat st;

	return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW);
}

static void upper_of_user(bool user)
{
	ntr_auto(end) struct th t;
	ntr_autoclose int upper = -1;
	ntr_autofree char *text = NULL;

	begin(&t, user, &upper);
	expect_script(&t, "stat -c '%a %Y' .; getfattr --only-values -n user.look .; echo; cat hello",
	        "751 2\nlike\nhello\n");
	expect_script(&t, "echo new > new; rm hello", "");
	assert_int_equal(ntr_read_file(upper, "new", 100, &text, NULL), 0);
	assert_string_equal(text, "new\n");
	assert_true(has(upper, "hello")); /* the whiteout */
	assert_false(th_exists(&t, "upper", "new"));
}

/* A fold's and a swap's upper are new, the old one is deleted. */
static void replaced(bool user)
{
	ntr_auto(end) struct th t;
	ntr_autojson json_t *m = NULL, *m2 = NULL;
	int upper = -1, second = -1, third = -1;

	begin(&t, user, &upper);
	expect_script(&t, "echo 1 > one", "");
	m = ask(&t, json_pack("{s:s}", "op", "fold"), &second);
	assert_false(has(second, "one"));
	expect_script(&t, "echo 2 > two; ls", "hello\ntwo\n");
	assert_true(has(second, "two"));
	m2 = ask(&t, json_pack("{s:s}", "op", "swap"), &third);
	expect_script(&t, "ls; echo 3 > three", "hello\n");
	assert_true(has(third, "three"));
	for (int i = 0; i < 400 && (has(upper, "one") || has(second, "two")); i++)
		usleep(5000);
	assert_false(has(upper, "one"));
	assert_false(has(second, "two"));
	assert_true(has(third, "three"));
	close(upper);
	close(second);
	close(third);
}

/* Whoever deletes the old ones comes late (all share one CPU), and meets one that is newer than what he was
 * to keep.
 */
static void in_a_row(bool user)
{
	ntr_auto(end) struct th t;
	int upper = -1;
	cpu_set_t all, one;

	assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
	CPU_ZERO(&one);
	for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
	begin(&t, user, &upper);
	for (int i = 0; i < 400; i++) {
		ntr_autojson json_t *m = NULL;
		struct stat st;

		close(upper);
		m = ask(&t, json_pack("{s:s}", "op", "swap"), &upper);
		if (i % 3 == 0)
			usleep((unsigned)(i % 7) * 100);
		assert_int_equal(fstat(upper, &st), 0);
		assert_true(st.st_nlink > 0);
		if (i % 25)
			continue;
		expect_script(&t, "echo 3 > three; ls", "hello\nthree\n");
		assert_true(has(upper, "three"));
	}
	close(upper);
	sched_setaffinity(0, sizeof all, &all);
}

static void full(bool user)
{
	ntr_auto(end) struct th t;
	ntr_autoclose int upper = -1;

	begin(&t, user, &upper);
	expect_script(&t, "head -c 20M /dev/zero 2>&1 > big | grep -o 'No space left'", "No space left\n");
	expect_script(&t, "rm big; echo 1 > f; cat f", "1\n");
}

static bool is_held(pid_t pid)
{
	ntr_autofree char *comm = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	return !ntr_read_file(AT_FDCWD, path, 64, &comm, NULL) && !strcmp(comm, NTR_INIT_HELD "\n");
}

/* When the socket closes its processes end, and it keeps the upper until it is told to end. */
static void outlives(bool user)
{
	ntr_auto(end) struct th t;
	ntr_autofree char *text = NULL;
	char path[64];
	int upper = -1, fd;

	begin(&t, user, &upper);
	expect_script(&t, "echo kept > kept; sleep 100 >/dev/null 2>&1 & echo", "\n");
	close(upper);
	ntr_closep(&t.sock);
	t.sock = -1;
	for (int i = 0; i < 2000 && !is_held(t.pid); i++)
		usleep(5000);
	assert_true(is_held(t.pid));
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)t.pid,
	        (int)ntr_json_int(t.started, "upper_fd", -1));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(kill(t.pid, SIGTERM), 0);
	assert_int_equal(th_gone(&t), 0);
	assert_int_equal(ntr_read_file(fd, "kept", 100, &text, NULL), 0);
	assert_string_equal(text, "kept\n");
	close(fd);
}

/* Told to stop, it keeps nothing. */
static void stopped(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_autojson json_t *m = NULL;
	ntr_autoclose int upper = -1;

	begin(&t, user, &upper);
	m = th_do(&t, json_pack("{s:s}", "op", "stop"), NULL, 0);
	assert_true(ntr_json_bool(m, "ok", false));
	assert_int_equal(th_gone(&t), 0);
}

#define BOTH(name)                            \
	static void test_##name(void **state) \
	{                                     \
		(void)state;                  \
		if (!geteuid())               \
			name(false);          \
		name(true);                   \
	}
BOTH(upper_of_user)
BOTH(replaced)
BOTH(in_a_row)
BOTH(full)
BOTH(outlives)
BOTH(stopped)

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_upper_of_user),
	        cmocka_unit_test(test_replaced), cmocka_unit_test(test_in_a_row), cmocka_unit_test(test_full),
	        cmocka_unit_test(test_outlives), cmocka_unit_test(test_stopped)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
