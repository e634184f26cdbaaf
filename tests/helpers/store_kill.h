/* store_kill: what a crash loses. A child process works on a store and dies by SIGKILL; what it had acknowledged
 * comes back through a shared page. */
#ifndef NTR_TEST_STORE_KILL_H
#define NTR_TEST_STORE_KILL_H

#include "store_fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static inline void *kill_shared(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* Runs fn in a child, which ends by SIGKILL: by itself when fn returns, from outside after us microseconds (0: never).
 * A child that ends in another way fails the test. */
static inline void kill_child(void (*fn)(void *arg), void *arg, unsigned us)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		fn(arg);
		kill(getpid(), SIGKILL);
		_exit(1);
	}
	if (us) {
		usleep(us);
		kill(pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* For use in the child, where cmocka's assertions would end in the wrong process. */
#define KILL_MUST(cond)                                                                                                \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                     \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

#endif
