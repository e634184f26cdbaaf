/* Where a store and its socket are; connecting and listening. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sockpath.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static char dir[64], run[80], store[80];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof dir, "/tmp/ntr-sockpath-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(run, sizeof run, "%s/run", dir);
	snprintf(store, sizeof store, "%s/store", dir);
	assert_int_equal(mkdir(run, 0700), 0);
	assert_int_equal(mkdir(store, 0700), 0);
	setenv("XDG_RUNTIME_DIR", run, 1);
	unsetenv("NTR_STORE");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return ntr_rm_rf(AT_FDCWD, dir);
}

static void expect_store(const char *opt, const char *want)
{
	char *got = NULL;

	assert_int_equal(ntr_store_default_path(opt, &got, NULL), 0);
	assert_string_equal(got, want);
	free(got);
}

static void test_store_path(void **state)
{
	ntr_autofree char *cwd = getcwd(NULL, 0), *rel = NULL, *old_home = NULL;
	struct ntr_err e = {0};
	char *got;

	(void)state;
	rel = ntr_sprintf("%s/x/y", cwd);
	old_home = strdup(getenv("HOME") ? getenv("HOME") : "/");
	setenv("HOME", "/home/someone", 1);
	unsetenv("XDG_DATA_HOME");
	expect_store(NULL, "/home/someone/.local/share/ntr");
	setenv("XDG_DATA_HOME", "not/absolute", 1); /* the standard says: ignore it */
	expect_store(NULL, "/home/someone/.local/share/ntr");
	setenv("XDG_DATA_HOME", "/data", 1);
	expect_store(NULL, "/data/ntr");
	setenv("NTR_STORE", "x/y", 1);
	expect_store(NULL, rel);
	setenv("NTR_STORE", "/elsewhere", 1);
	expect_store(NULL, "/elsewhere");
	expect_store("/given", "/given");
	expect_store("x/y", rel);
	assert_int_equal(ntr_store_default_path("", &got, &e), -EINVAL);
	assert_true(e.what[0] != '\0');
	unsetenv("NTR_STORE");
	unsetenv("XDG_DATA_HOME");
	setenv("HOME", old_home, 1);
}

static char *path_of(const char *st)
{
	char *p = NULL;

	assert_int_equal(ntr_sock_path(st, &p, NULL), 0);
	return p;
}

static void test_sock_path(void **state)
{
	ntr_autofree char *p = path_of(store), *want = NULL, *linked = NULL, *same = NULL;
	struct ntr_err e = {0};
	char *none = NULL;
	struct stat st;

	(void)state;
	assert_int_equal(stat(store, &st), 0);
	want = ntr_sprintf("%s/ntr/%jx-%jx.sock", run, (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	assert_string_equal(p, want);
	linked = ntr_sprintf("%s/link", dir);
	assert_int_equal(symlink(store, linked), 0);
	same = path_of(linked);
	assert_string_equal(same, want);
	assert_int_equal(ntr_sock_path("/nonexistent/store", &none, &e), -ENOENT);
	assert_true(e.what[0] != '\0');
}

static void test_fallback_dir(void **state)
{
	char expect[64];
	ntr_autofree char *p = NULL, *q = NULL;

	(void)state;
	snprintf(expect, sizeof expect, "/tmp/ntr-%u/", (unsigned)geteuid());
	unsetenv("XDG_RUNTIME_DIR");
	p = path_of(store);
	assert_int_equal(strncmp(p, expect, strlen(expect)), 0);
	setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
	q = path_of(store);
	assert_string_equal(p, q);
}

static void put(int fd, char c)
{
	assert_int_equal(write(fd, &c, 1), 1);
}

static char take(int fd)
{
	char c = 0;

	assert_int_equal(read(fd, &c, 1), 1);
	return c;
}

/* A byte goes from the connected end to the accepted one. */
static void expect_served(const char *st, int lfd)
{
	ntr_autoclose int c = -1, a = -1;

	assert_int_equal(ntr_sock_connect(st, &c), 0);
	assert_true(fcntl(c, F_GETFD) & FD_CLOEXEC);
	a = accept(lfd, NULL, NULL);
	assert_true(a >= 0);
	put(c, 'x');
	assert_int_equal(take(a), 'x');
}

static void test_listen(void **state)
{
	ntr_autofree char *p = path_of(store);
	ntr_autoclose int lfd = -1, again = -1;
	struct stat st;
	int c = -7;

	(void)state;
	assert_int_equal(ntr_sock_connect(store, &c), -ENOENT);
	assert_int_equal(ntr_sock_connect("/nonexistent", &c), -ENOENT);
	assert_int_equal(ntr_sock_listen(store, &lfd, NULL), 0);
	assert_true(fcntl(lfd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(stat(p, &st), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0600);
	expect_served(store, lfd);
	close(lfd); /* dies without a word */
	lfd = -1;
	assert_int_equal(ntr_sock_connect(store, &c), -ECONNREFUSED);
	assert_int_equal(ntr_sock_listen(store, &again, NULL), 0);
	expect_served(store, again);
	ntr_sock_unlink(store);
	assert_int_equal(ntr_sock_connect(store, &c), -ENOENT);
	assert_int_equal(access(p, F_OK), -1);
}

static void test_hide(void **state)
{
	ntr_autoclose int lfd = -1;
	int c = -7;

	(void)state;
	assert_int_equal(ntr_sock_hide(store, true), -ENOENT);
	assert_int_equal(ntr_sock_listen(store, &lfd, NULL), 0);
	assert_int_equal(ntr_sock_hide(store, true), 0);
	assert_int_equal(ntr_sock_connect(store, &c), -ENOENT);
	assert_int_equal(ntr_sock_hide(store, false), 0);
	expect_served(store, lfd);
	assert_int_equal(ntr_sock_hide(store, true), 0);
	ntr_sock_unlink(store);
	assert_int_equal(ntr_sock_hide(store, false), -ENOENT);
}

/* A client with another runtime folder finds the daemon by STORE/socket. */
static void test_other_runtime_dir(void **state)
{
	ntr_autofree char *other = ntr_sprintf("%s/other", dir), *link = ntr_sprintf("%s/socket", store);
	ntr_autoclose int lfd = -1;
	char to[256];
	ssize_t n;
	int c = -7;

	(void)state;
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(ntr_sock_listen(store, &lfd, NULL), 0);
	n = readlink(link, to, sizeof to);
	assert_true(n > 0 && !strncmp(to, run, strlen(run)));
	setenv("XDG_RUNTIME_DIR", other, 1);
	expect_served(store, lfd);
	close(lfd);
	lfd = -1;
	assert_int_equal(ntr_sock_connect(store, &c), -ENOENT);
	setenv("XDG_RUNTIME_DIR", run, 1);
	ntr_sock_unlink(store);
	assert_int_equal(access(link, F_OK), -1);
	/* What is no symlink of ours is no way to a daemon. */
	assert_int_equal(symlink("relative", link), 0);
	assert_int_equal(ntr_sock_connect(store, &c), -ENOENT);
	unlink(link);
	assert_int_equal(symlink("/x", link), 0);
	assert_int_equal(ntr_sock_connect(store, &c), -ENOENT);
}

static void test_long_paths(void **state)
{
	ntr_autofree char *deep = NULL, *deep_store = NULL;
	ntr_autoclose int lfd = -1;
	char part[201];

	(void)state;
	memset(part, 'd', 200);
	part[200] = '\0';
	deep = ntr_sprintf("%s/%s/%s", dir, part, part);
	deep_store = ntr_sprintf("%s/store", deep);
	assert_int_equal(ntr_mkdir_p(deep_store, 0700), 0);
	setenv("XDG_RUNTIME_DIR", deep, 1);
	assert_int_equal(ntr_sock_listen(deep_store, &lfd, NULL), 0);
	expect_served(deep_store, lfd);
	setenv("XDG_RUNTIME_DIR", run, 1);
	expect_served(deep_store, lfd); /* by the symlink */
	setenv("XDG_RUNTIME_DIR", deep, 1);
	ntr_sock_unlink(deep_store);
}

/* A folder that others can write to, or that is a symlink, is not trusted. */
static void test_foreign_folder(void **state)
{
	ntr_autofree char *folder = ntr_sprintf("%s/ntr", run);
	struct ntr_err e = {0};
	int fd = -7;

	(void)state;
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_int_equal(chmod(folder, 0777), 0);
	assert_int_equal(ntr_sock_listen(store, &fd, &e), -EPERM);
	assert_non_null(strstr(e.why, folder));
	assert_true(e.todo[0] != '\0');
	assert_int_equal(ntr_sock_connect(store, &fd), -EPERM);
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(symlink(store, folder), 0);
	assert_int_equal(ntr_sock_listen(store, &fd, NULL), -EPERM);
	assert_int_equal(unlink(folder), 0);
	if (geteuid())
		return;
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_int_equal(chown(folder, 65534, 65534), 0);
	assert_int_equal(ntr_sock_listen(store, &fd, NULL), -EPERM);
}

/* A process of another user that listens at the socket's place is not the daemon. */
static void test_foreign_listener(void **state)
{
	ntr_autofree char *p = path_of(store);
	int ready[2], fd = -7, status;
	pid_t pid;

	(void)state;
	if (geteuid())
		skip();
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct sockaddr_un sa = {.sun_family = AF_UNIX};
		int s = socket(AF_UNIX, SOCK_STREAM, 0);

		snprintf(sa.sun_path, sizeof sa.sun_path, "%s", p);
		if (bind(s, (struct sockaddr *)&sa, sizeof sa) || setuid(65534) || listen(s, 5))
			_exit(1);
		put(ready[1], '!');
		pause();
		_exit(0);
	}
	assert_int_equal(take(ready[0]), '!');
	assert_int_equal(ntr_sock_connect(store, &fd), -EPERM);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_store_path, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_sock_path, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_fallback_dir, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_listen, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_hide, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_other_runtime_dir, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_long_paths, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_foreign_folder, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_foreign_listener, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
