/* Unmounting: who passes by is waited for, who stays is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fusemount.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>

static void *close_soon(void *fd)
{
	usleep(80000);
	close(*(int *)fd);
	return NULL;
}

/* In a child with mounts of its own. Its exit status: 77 it may not mount, else which check failed. */
static int check(const char *dir)
{
	pthread_t t;
	int fd;

	if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) ||
	        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", dir, "tmpfs", 0, NULL))
		return 77;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || ntr_umount(dir, 0) != -EBUSY)
		return 1;
	if (pthread_create(&t, NULL, close_soon, &fd) || ntr_umount(dir, 0))
		return 2;
	pthread_join(t, NULL);
	return ntr_umount(dir, 0) == -EINVAL ? 0 : 3; /* nothing is mounted there any more */
}

static void test_umount(void **state)
{
	char dir[] = "/tmp/ntr-umount.XXXXXX";
	int status;
	pid_t pid;

	(void)state;
	assert_non_null(mkdtemp(dir));
	pid = fork();
	if (!pid)
		_exit(check(dir));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(rmdir(dir), 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("skipped: this user may not mount\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_umount)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
