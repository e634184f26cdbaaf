/* store_kill: what a crash loses. A child process works on a store and dies by SIGKILL; what it had
 * acknowledged comes back through shared memory. The child is this program, executed again (RocksDB's threads
 * do not survive a fork), with the function to run in its arguments: main begins with kill_main. */
#ifndef NTR_TEST_STORE_KILL_H
#define NTR_TEST_STORE_KILL_H

#include "store_fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { KILL_SHARED = 1 << 16 };

static int kill_fd = -1;

/* For use in the child, where cmocka's assertions would end in the wrong process. */
#define KILL_MUST(cond)                                                            \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			_exit(1);                                                  \
		}                                                                  \
	} while (0)

static inline void *kill_shared(void)
{
	void *p;

	if (kill_fd < 0) {
		kill_fd = memfd_create("shared", 0);
		KILL_MUST(kill_fd >= 0 && !ftruncate(kill_fd, KILL_SHARED));
	}
	p = mmap(NULL, KILL_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, kill_fd, 0);
	KILL_MUST(p != MAP_FAILED);
	return p;
}

/* The child says that it has begun: from then on the time counts after which it is killed. */
static inline volatile uint64_t *kill_begun(void *shared)
{
	return (volatile uint64_t *)(void *)((char *)shared + KILL_SHARED - 8);
}

/* Runs fns[which] in a child on the store at path. The child ends by SIGKILL: by itself when the function
 * returns, or from outside us microseconds after kill_begun (0: never). One that ends in another way fails
 * the test. */
static inline void kill_child(unsigned which, const char *path, unsigned us)
{
	char fd[16], fn[16];
	char *argv[] = {(char[]){"child"}, fn, fd, strdup(path), NULL};
	int status;
	pid_t pid;

	snprintf(fd, sizeof fd, "%d", kill_fd);
	snprintf(fn, sizeof fn, "%u", which);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		execv("/proc/self/exe", argv);
		_exit(1);
	}
	if (us) {
		volatile uint64_t *begun = kill_begun(kill_shared());

		for (int i = 0; i < 20000 && !*begun; i++)
			usleep(1000);
		*begun = 0;
		usleep(us);
		kill(pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	free(argv[3]);
}

static inline void kill_main(int argc, char **argv, void (*const *fns)(const char *path))
{
	if (argc != 4 || strcmp(argv[0], "child") != 0)
		return;
	kill_fd = atoi(argv[2]);
	fns[atoi(argv[1])](argv[3]);
	kill(getpid(), SIGKILL);
}

#endif
