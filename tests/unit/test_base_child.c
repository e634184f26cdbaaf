/* Programs run to their end, and the two that mount for an ordinary user: what they get, and what is made of
 * what they say. Programs of the same names, first in PATH, say it here. */
#include "../../base/child.h"
#include "../../base/fusermount.h"
#include "../../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char top[] = "/tmp/ntr-child.XXXXXX";

static int run(const char *script, int fd, const char *env, char *text, size_t size)
{
	char sh[] = "sh", c[] = "-c", *line = strdup(script), *argv[] = {sh, c, line, NULL};
	int status = -1;

	assert_int_equal(ntr_child_run(argv, fd, env, text, size, &status), 0);
	free(line);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_run(void **state)
{
	char none[] = "ntr-no-such-program", *argv[] = {none, NULL}, text[64] = "old";
	int status;

	(void)state;
	assert_int_equal(
	        run("echo a warning >&2; echo the reason >&2; echo out; exit 3", -1, NULL, text, sizeof text),
	        3);
	assert_string_equal(text, "the reason");
	assert_int_equal(run("cat; exec kill -9 $$", -1, NULL, text, sizeof text), -SIGKILL);
	assert_string_equal(text, "");
	assert_int_equal(ntr_child_run(argv, -1, NULL, text, sizeof text, &status), -ENOENT);
}

/* Nothing of the caller's but what it was given (ls itself has one descriptor more: what it lists). */
static void test_clean(void **state)
{
	int fd = open("/dev/zero", O_RDONLY), other = dup(fd);
	sigset_t all, old;
	char text[200];

	(void)state;
	assert_true(other > NTR_CHILD_FD);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	signal(SIGTERM, SIG_IGN);
	assert_int_equal(run("ls -l /proc/self/fd/3 | grep -q zero && [ $(ls /proc/self/fd | wc -l) = 5 ]",
	                         fd, NULL, text, sizeof text),
	        0);
	assert_int_equal(run("[ $(ls /proc/self/fd | wc -l) = 4 ]", -1, NULL, text, sizeof text), 0);
	assert_int_equal(run("kill -TERM $$", -1, NULL, text, sizeof text), -SIGTERM);
	signal(SIGTERM, SIG_DFL);
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(fd);
	close(other);
}

static void test_env(void **state)
{
	char text[64];

	(void)state;
	setenv("NTR_A", "caller's", 1);
	setenv("NTR_AB", "kept", 1);
	assert_int_equal(run("echo $NTR_A,$NTR_AB >&2", -1, NULL, text, sizeof text), 0);
	assert_string_equal(text, "caller's,kept");
	assert_int_equal(
	        run("echo $NTR_A,$NTR_AB,$(env | grep -c NTR_A=) >&2", -1, "NTR_A=given", text, sizeof text),
	        0);
	assert_string_equal(text, "given,kept,1");
}

/* A program of that name in PATH: it notes its arguments, and does the rest. */
static void be(const char *name, const char *rest)
{
	ntr_autofree char *path = ntr_sprintf("%s/%s", top, name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f, "#!/bin/sh\necho \"${0##*/} $*\" >>%s/calls\n%s\n", top, rest);
	fclose(f);
	assert_int_equal(chmod(path, 0755), 0);
}

/* The calls since the last time, a line each. */
static void calls_are(const char *want)
{
	ntr_autofree char *path = ntr_sprintf("%s/calls", top), *text = NULL;

	assert_int_equal(ntr_read_file(AT_FDCWD, path, 4096, &text, NULL), 0);
	assert_string_equal(text, want);
	assert_int_equal(unlink(path), 0);
}

static void test_mount(void **state)
{
	char text[64] = "";
	int fd = -1;

	(void)state;
	be("fusermount3", "echo 'user has no write access' >&2; exit 1");
	assert_int_equal(ntr_fusermount("/m", "ro", &fd, text, sizeof text), -EPERM);
	assert_string_equal(text, "user has no write access");
	calls_are("fusermount3 -o ro -- /m\n");
	be("fusermount3", "exit 0"); /* sends nothing */
	assert_int_equal(ntr_fusermount("/m", "ro", &fd, text, sizeof text), -EPERM);
	assert_string_equal(text, "");
	be("fusermount3", "exec python3 -c 'import os, socket as s; x = "
	                  "s.socket(fileno=int(os.environ[\"_FUSE_COMMFD\"])); "
	                  "s.send_fds(x, [b\"1\"], [os.open(\"/dev/zero\", 0)])'");
	assert_int_equal(ntr_fusermount("/m", "ro", &fd, text, sizeof text), 0);
	assert_int_equal(read(fd, text, 1), 1);
	assert_int_equal(text[0], 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	calls_are("fusermount3 -o ro -- /m\nfusermount3 -o ro -- /m\n");
}

static void test_unmount(void **state)
{
	char text[64] = "";

	(void)state;
	be("fusermount3", "exit 0");
	be("umount", "exit 0");
	assert_int_equal(ntr_fusermount_end("/m", false, text, sizeof text), 0);
	calls_are("fusermount3 -u -- /m\n");
	be("fusermount3", "echo 'entry for /m not found in /etc/mtab' >&2; exit 1");
	assert_int_equal(ntr_fusermount_end("/m", false, text, sizeof text), 0);
	calls_are("fusermount3 -u -- /m\numount -- /m\n");
	assert_int_equal(ntr_fusermount_end("/m", true, text, sizeof text), 0);
	calls_are("fusermount3 -uz -- /m\numount -l -- /m\n");
	be("umount", "echo 'umount: only root can do that' >&2; exit 1");
	assert_int_equal(ntr_fusermount_end("/m", false, text, sizeof text), -EPERM);
	assert_string_equal(text, "entry for /m not found in /etc/mtab"); /* the first one's reason */
	be("umount", "echo 'umount: /m: target is busy.' >&2; exit 32");
	assert_int_equal(ntr_fusermount_end("/m", false, text, sizeof text), -EBUSY);
	calls_are("fusermount3 -u -- /m\numount -- /m\nfusermount3 -u -- /m\numount -- /m\n");
}

static void test_busy(void **state)
{
	char text[64] = "";

	(void)state;
	be("fusermount3", "echo 'failed to unmount /m: Device or resource busy' >&2; exit 1");
	assert_int_equal(ntr_fusermount_end("/m", false, text, sizeof text), -EBUSY);
	calls_are("fusermount3 -u -- /m\n"); /* umount(8) is not asked what cannot be */
	be("fusermount3", "echo 'entry for /busybox not found in /etc/mtab' >&2; exit 1");
	be("umount", "[ \"$LC_ALL\" = C ]");
	assert_int_equal(ntr_fusermount_end("/busybox", false, text, sizeof text), 0);
	calls_are("fusermount3 -u -- /busybox\numount -- /busybox\n");
}

static void test_missing(void **state)
{
	ntr_autofree char *gone = ntr_sprintf("%s/fusermount3", top);
	char text[64] = "";
	int fd = -1;

	(void)state;
	assert_int_equal(unlink(gone), 0);
	be("umount", "exit 0");
	setenv("PATH", top, 1);
	assert_int_equal(ntr_fusermount_end("/m", true, text, sizeof text), 0); /* umount(8) alone will do */
	setenv("PATH", "/nonexistent", 1);
	assert_int_equal(ntr_fusermount("/m", "ro", &fd, text, sizeof text), -ENOENT);
	assert_int_equal(ntr_fusermount_end("/m", false, text, sizeof text), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_run),
	        cmocka_unit_test(test_clean),
	        cmocka_unit_test(test_env),
	        cmocka_unit_test(test_mount),
	        cmocka_unit_test(test_unmount),
	        cmocka_unit_test(test_busy),
	        cmocka_unit_test(test_missing),
	};
	ntr_autofree char *path = NULL, *rm = NULL;
	int r;

	if (!mkdtemp(top))
		return 1;
	path = ntr_sprintf(
	        "%s:/usr/bin:/bin", top); /* a directory that is not ours to read would be EACCES */
	setenv("PATH", path, 1);
	r = cmocka_run_group_tests_name("base_child", tests, NULL, NULL);
	rm = ntr_sprintf("/bin/rm -rf %s", top);
	return system(rm) ? 1 : r; // NOLINT: the name is ours
}
