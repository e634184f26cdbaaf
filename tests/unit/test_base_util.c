/* util: picking, numbers, exact transfers, whole files, making and removing trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char dir[128];

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(dir, sizeof dir, "%s/ntr-util.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(ntr_rm_rf(AT_FDCWD, dir), 0);
	assert_int_equal(access(dir, F_OK), -1);
	return 0;
}

static const char *at(const char *rel)
{
	static char path[4][1024];
	static unsigned n;
	char *p = path[n++ % NTR_COUNT(path)];

	snprintf(p, sizeof path[0], "%s/%s", dir, rel);
	return p;
}

static void put(const char *rel, const void *data, size_t n)
{
	ntr_autoclose int fd = open(at(rel), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(ntr_write_all(fd, data, n), 0);
}

static void test_pick(void **state)
{
	int evaluated = 0;

	(void)state;
	assert_int_equal(NTR_MIN(3, NTR_MAX(1, 2)), 2);
	assert_int_equal(NTR_MAX(NTR_MIN(9, 4), NTR_MIN(7, 3)), 4);
	assert_int_equal(NTR_MAX(evaluated++, -5), 0);
	assert_int_equal(evaluated, 1);
}

static void test_steal(void **state)
{
	ntr_autofree char *p = strdup("x");
	ntr_autoclose int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char *q = ntr_steal_ptr(p);
	int f = ntr_steal_fd(&fd);

	(void)state;
	assert_null(p);
	assert_int_equal(fd, -1);
	assert_string_equal(q, "x");
	assert_int_equal(close(f), 0);
	free(q);
}

static void test_numbers(void **state)
{
	uint8_t p[9] = {0};

	(void)state;
	ntr_put_be64(p + 1, 0x0102030405060708);
	assert_memory_equal(p, "\0\1\2\3\4\5\6\7\10", 9);
	assert_true(ntr_get_be64(p + 1) == 0x0102030405060708);
	assert_true(ntr_get_le64(p + 1) == 0x0807060504030201);
	ntr_put_le64(p + 1, UINT64_MAX - 1);
	assert_true(ntr_get_le64(p + 1) == UINT64_MAX - 1);
	ntr_put_le32(p + 3, 0xA1B2C3D4);
	assert_memory_equal(p + 3, "\xD4\xC3\xB2\xA1", 4);
	assert_int_equal(ntr_get_le32(p + 3), 0xA1B2C3D4);
	ntr_put_le16(p + 5, 0xBEEF);
	assert_int_equal(ntr_get_le16(p + 5), 0xBEEF);
}

static void test_clocks(void **state)
{
	uint64_t a = ntr_mono_ns(), b = ntr_mono_ns();

	(void)state;
	assert_true(b >= a);
	assert_true(ntr_wall_ns() > UINT64_C(1600000000) * 1000000000);
}

/* ---- exact transfers ---- */

static void *slow_writer(void *arg)
{
	int fd = *(int *)arg;

	for (int i = 0; i < 100; i++) {
		char c = (char)i;

		assert_int_equal(write(fd, &c, 1), 1);
		if (i % 20 == 0)
			usleep(1000);
	}
	close(fd);
	return NULL;
}

static void test_read_exact(void **state)
{
	char buf[100];
	pthread_t t;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	assert_int_equal(pthread_create(&t, NULL, slow_writer, &p[1]), 0);
	assert_int_equal(ntr_read_exact(p[0], buf, 60), 0);
	for (int i = 0; i < 60; i++)
		assert_int_equal(buf[i], i);
	assert_int_equal(ntr_read_exact(p[0], buf, 0), 0);
	assert_int_equal(ntr_read_exact(p[0], buf, 41), -ENODATA);
	assert_int_equal(ntr_read_exact(p[0], buf, 1), -ENODATA);
	pthread_join(t, NULL);
	close(p[0]);
	assert_int_equal(ntr_read_exact(-1, buf, 1), -EBADF);
	assert_int_equal(ntr_write_all(-1, buf, 1), -EBADF);
	assert_int_equal(ntr_write_all(-1, buf, 0), 0);
}

static void test_pread_exact(void **state)
{
	ntr_autoclose int fd = -1;
	char buf[8];

	(void)state;
	put("f", "0123456789", 10);
	fd = open(at("f"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(ntr_pread_exact(fd, buf, 8, 2), 0);
	assert_memory_equal(buf, "23456789", 8);
	assert_int_equal(ntr_pread_exact(fd, buf, 8, 3), -ENODATA);
	assert_int_equal(ntr_pread_exact(fd, buf, 1, 10), -ENODATA);
	assert_int_equal(ntr_pread_exact(-1, buf, 1, 0), -EBADF);
}

/* Around the limit and around the sizes at which the buffer grows. */
static void test_read_file(void **state)
{
	static const size_t sizes[] = {0, 1, 4094, 4095, 4096, 4097, 8191, 8192, 100000};
	static char data[100000];

	(void)state;
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (char)(i % 251);
	for (size_t i = 0; i < NTR_COUNT(sizes); i++) {
		ntr_autofree char *got = NULL;
		char *none = NULL;
		size_t len = 1;

		put("f", data, sizes[i]);
		assert_int_equal(ntr_read_file(AT_FDCWD, at("f"), sizes[i], &got, &len), 0);
		assert_int_equal(len, sizes[i]);
		assert_memory_equal(got, data, len);
		assert_int_equal(got[len], '\0');
		if (sizes[i])
			assert_int_equal(ntr_read_file(AT_FDCWD, at("f"), sizes[i] - 1, &none, NULL), -EFBIG);
		assert_null(none);
	}
}

static void test_last_line(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {{"", ""}, {"\n", ""}, {"a", "a"}, {"a\n", "a"}, {"a\nb", "b"},
	        {"warning\nreason\n", "reason"}, {"a\nb\n\n", "b"}, {"a\n1234567\n", "1234567"},
	        {"a\n123456789\n", "3456789"}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		ntr_autoclose int fd = open(at("said"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		char text[9];

		assert_true(fd >= 0);
		assert_int_equal(ntr_write_all(fd, rows[i].in, strlen(rows[i].in)), 0);
		ntr_last_line(fd, text, sizeof text);
		assert_string_equal(text, rows[i].out);
	}
	char text[9] = "x";

	ntr_last_line(-1, text, sizeof text);
	assert_string_equal(text, "");
}

static void test_read_file_errors(void **state)
{
	char *none = NULL;

	(void)state;
	assert_int_equal(ntr_read_file(AT_FDCWD, at("missing"), 10, &none, NULL), -ENOENT);
	assert_int_equal(ntr_read_file(AT_FDCWD, dir, 10, &none, NULL), -EISDIR);
	assert_null(none);
}

/* ---- trees ---- */

static void test_mkdir_p(void **state)
{
	struct stat st;

	(void)state;
	umask(022);
	assert_int_equal(ntr_mkdir_p(at("a/b/c"), 0750), 0);
	assert_int_equal(ntr_mkdir_p(at("a/b/c"), 0700), 0);
	assert_int_equal(ntr_mkdir_p(at("a//d/"), 0700), 0);
	assert_int_equal(stat(at("a/b"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	assert_int_equal(stat(at("a/d"), &st), 0);
	put("file", "x", 1);
	assert_int_equal(ntr_mkdir_p(at("file/below"), 0700), -ENOTDIR);
}

/* A file where the folder should be is an error, not a success. */
static void test_mkdir_p_file(void **state)
{
	(void)state;
	put("file", "x", 1);
	assert_int_equal(ntr_mkdir_p(at("file"), 0700), -ENOTDIR);
	assert_int_equal(ntr_mkdir_p("", 0700), -ENOENT);
}

static void make_nasty(const char *top)
{
	char p[600];

	assert_int_equal(mkdir(at(top), 0755), 0);
	snprintf(p, sizeof p, "%s/d1", top);
	assert_int_equal(mkdir(at(p), 0755), 0);
	for (int i = 0; i < 40; i++) {
		snprintf(p, sizeof p, "%s/d1/f%d", top, i);
		put(p, "x", 1);
	}
	snprintf(p, sizeof p, "%s/d1/up", top);
	assert_int_equal(symlink("../..", at(p)), 0);
	snprintf(p, sizeof p, "%s/d1/dangling", top);
	assert_int_equal(symlink("nowhere", at(p)), 0);
	snprintf(p, sizeof p, "%s/fifo", top);
	assert_int_equal(mkfifo(at(p), 0600), 0);
	snprintf(p, sizeof p, "%s/d1/deep", top);
	assert_int_equal(mkdir(at(p), 0755), 0);
	snprintf(p, sizeof p, "%s/d1/deep/f", top);
	put(p, "x", 1);
	assert_int_equal(chmod(at(p), 0), 0);
	snprintf(p, sizeof p, "%s/d1/deep", top);
	assert_int_equal(chmod(at(p), 0), 0);
	snprintf(p, sizeof p, "%s/d1", top);
	assert_int_equal(chmod(at(p), 0500), 0);
	assert_int_equal(chmod(at(top), 0), 0);
}

static void rm_check(void)
{
	if (ntr_rm_rf(AT_FDCWD, at("nasty")) || !access(at("nasty"), F_OK))
		_exit(1);
	_exit(0);
}

/* Folders without rights, symlinks that lead out; as the user who runs the test, and as one whom rights bind.
 */
static void test_rm_rf(void **state)
{
	static const uid_t users[] = {0, 65534};

	(void)state;
	put("kept", "x", 1);
	assert_int_equal(chmod(dir, 0777), 0);
	for (size_t i = 0; i < (geteuid() ? 1 : NTR_COUNT(users)); i++) {
		pid_t pid = fork();
		int status;

		if (!pid) {
			if (!geteuid() && users[i] &&
			        (setgroups(0, NULL) || setresgid(users[i], users[i], users[i]) ||
			                setresuid(users[i], users[i], users[i])))
				_exit(2);
			make_nasty("nasty");
			rm_check();
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	assert_int_equal(access(at("kept"), F_OK), 0);
}

static void test_rm_rf_single(void **state)
{
	(void)state;
	put("f", "x", 1);
	put("target", "x", 1);
	assert_int_equal(symlink("target", at("link")), 0);
	assert_int_equal(mkdir(at("dir"), 0755), 0);
	assert_int_equal(symlink("dir", at("dirlink")), 0);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, at("f")), 0);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, at("f")), 0); /* missing is success */
	assert_int_equal(ntr_rm_rf(AT_FDCWD, at("link")), 0);
	assert_int_equal(access(at("target"), F_OK), 0);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, at("dirlink")), 0);
	assert_int_equal(access(at("dir"), F_OK), 0);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, at("target/below")), -ENOTDIR);
}

static bool stop_at(void *user)
{
	int *left = user;

	return !(*left)--;
}

static void test_rm_rf_until(void **state)
{
	int left = 0;

	(void)state;
	assert_int_equal(ntr_mkdir_p(at("u/v"), 0755), 0);
	put("u/v/f", "x", 1);
	assert_int_equal(ntr_rm_rf_until(AT_FDCWD, at("u"), stop_at, &left), -ECANCELED);
	assert_int_equal(access(at("u/v/f"), F_OK), 0);
	left = 1; /* in the directory below */
	assert_int_equal(ntr_rm_rf_until(AT_FDCWD, at("u"), stop_at, &left), -ECANCELED);
	assert_int_equal(access(at("u/v/f"), F_OK), 0);
	left = 9;
	assert_int_equal(ntr_rm_rf_until(AT_FDCWD, at("u"), stop_at, &left), 0);
	assert_int_equal(access(at("u"), F_OK), -1);
}

static void test_rm_rf_relative(void **state)
{
	ntr_autoclose int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	assert_int_equal(ntr_mkdir_p(at("x/y/z"), 0755), 0);
	assert_int_equal(ntr_rm_rf(fd, "x"), 0);
	assert_int_equal(access(at("x"), F_OK), -1);
}

/* Hundreds of levels: one descriptor each, and paths longer than PATH_MAX. */
static void test_rm_rf_deep(void **state)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	for (int i = 0; i < 400; i++) {
		static const char name[] = "a-folder-with-a-long-name";
		int next;

		assert_int_equal(mkdirat(fd, name, 0755), 0);
		next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	close(fd);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, at("a-folder-with-a-long-name")), 0);
}

/* What is mounted below stays whole; the rest goes, and the answer says so. */
static void mount_check(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		_exit(77);
	if (ntr_mkdir_p(at("t/m"), 0755))
		_exit(1);
	put("t/f", "x", 1);
	if (mount("none", at("t/m"), "tmpfs", 0, NULL))
		_exit(77);
	put("t/m/kept", "x", 1);
	if (ntr_rm_rf(AT_FDCWD, at("t")) != -EBUSY)
		_exit(2);
	_exit(access(at("t/m/kept"), F_OK) ? 3 : !access(at("t/f"), F_OK) ? 4 : 0);
}

static void test_rm_rf_mount(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid)
		mount_check();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("skipped: this user may not mount\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_random(void **state)
{
	uint8_t a[64] = {0}, b[64] = {0};

	(void)state;
	assert_int_equal(ntr_random(a, sizeof a), 0);
	assert_int_equal(ntr_random(b, sizeof b), 0);
	assert_memory_not_equal(a, b, sizeof a);
	assert_int_equal(ntr_random(NULL, 0), 0);
}

static void test_sprintf(void **state)
{
	ntr_autofree char *s = ntr_sprintf("%s-%0*d", "x", 500, 7);

	(void)state;
	assert_int_equal(strlen(s), 502);
	assert_memory_equal(s, "x-000", 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_pick),
	        cmocka_unit_test(test_steal),
	        cmocka_unit_test(test_numbers),
	        cmocka_unit_test(test_clocks),
	        cmocka_unit_test(test_read_exact),
	        cmocka_unit_test_setup_teardown(test_pread_exact, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_read_file, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_read_file_errors, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_last_line, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_mkdir_p, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_mkdir_p_file, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rm_rf, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rm_rf_single, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rm_rf_until, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rm_rf_relative, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rm_rf_deep, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rm_rf_mount, setup, teardown),
	        cmocka_unit_test(test_random),
	        cmocka_unit_test(test_sprintf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
