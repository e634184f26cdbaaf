#include "child.h"

#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int std_actions(posix_spawn_file_actions_t *a, int err, int pass_fd)
{
	int r = posix_spawn_file_actions_addopen(a, 0, "/dev/null", O_RDWR, 0);

	if (!r)
		r = posix_spawn_file_actions_adddup2(a, 0, 1);
	if (!r)
		r = posix_spawn_file_actions_adddup2(a, err, 2);
	/* glibc clears O_CLOEXEC also where both numbers are the same. */
	if (!r && pass_fd >= 0)
		r = posix_spawn_file_actions_adddup2(a, pass_fd, NTR_CHILD_FD);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(a, pass_fd >= 0 ? NTR_CHILD_FD + 1 : 3);
	return r;
}

static int signals(posix_spawnattr_t *attr, bool detach)
{
	int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (detach ? POSIX_SPAWN_SETSID : 0);
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_setsigmask(attr, &none);
	posix_spawnattr_setsigdefault(attr, &all);
	return posix_spawnattr_setflags(attr, (short)flags);
}

int ntr_child_start(
        const char *path, char *const *argv, char *const *env, int err, int pass_fd, bool detach, pid_t *ret)
{
	posix_spawn_file_actions_t a;
	posix_spawnattr_t attr;
	int r = posix_spawn_file_actions_init(&a);

	if (r)
		return -r;
	r = posix_spawnattr_init(&attr);
	if (!r) {
		r = std_actions(&a, err, pass_fd);
		if (!r)
			r = signals(&attr, detach);
		if (!r)
			r = strchr(path, '/') ? posix_spawn(ret, path, &a, &attr, argv, env)
			                      : posix_spawnp(ret, path, &a, &attr, argv, env);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&a);
	return -r;
}

/* environ with one in it, in place of another of the same name; the strings stay where they are. */
static char **env_with(const char *env)
{
	size_t n = 0, k = 0, name = env ? strcspn(env, "=") + 1 : 0;
	char **v;

	while (environ[n])
		n++;
	v = calloc(n + 2, sizeof *v);
	if (!v)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (!env || strncmp(environ[i], env, name) != 0)
			v[k++] = environ[i];
	if (env)
		v[k] = (char *)(uintptr_t)env;
	return v;
}

int ntr_child_run(char *const *argv, int pass_fd, const char *env, char *text, size_t size, int *ret_status)
{
	ntr_autoclose int memfd = memfd_create("stderr", MFD_CLOEXEC);
	ntr_autofree char **envp = env_with(env);
	pid_t pid;
	int r;

	*ret_status = 0;
	if (memfd < 0)
		return -errno;
	if (!envp)
		return -ENOMEM;
	r = ntr_child_start(argv[0], argv, envp, memfd, pass_fd, false, &pid);
	if (r)
		return r;
	while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
		;
	ntr_last_line(memfd, text, size);
	return 0;
}

bool ntr_child_failed(int status)
{
	return !WIFEXITED(status) || WEXITSTATUS(status);
}
