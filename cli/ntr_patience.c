/* Waiting for a daemon that does not answer because it is stopped (SIGSTOP, a debugger): after some seconds
 * the person is told, with what helps; and a signal to the client then ends the client. */
#include "ntr.h"

#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

enum { LOOK_MS = 3000 };

static pid_t daemon_of(int sock)
{
	uid_t uid;
	pid_t pid;

	return ntr_wire_peer(sock, &pid, &uid) ? 0 : pid;
}

bool ntr_daemon_stopped(int sock, pid_t *ret_pid)
{
	ntr_autofree char *path = NULL, *text = NULL;
	const char *name_end;

	*ret_pid = daemon_of(sock);
	path = *ret_pid > 0 ? ntr_sprintf("/proc/%d/stat", (int)*ret_pid) : NULL;
	if (!path || ntr_read_file(AT_FDCWD, path, 4096, &text, NULL))
		return false;
	name_end = strrchr(text, ')');
	return name_end && (name_end[2] == 'T' || name_end[2] == 't');
}

void ntr_daemon_notice(int sock, const char *what, bool *said)
{
	pid_t pid;

	if (*said || !ntr_daemon_stopped(sock, &pid))
		return;
	*said = true;
	fprintf(stderr,
	        "ntr: %s: waiting: the daemon (pid %d) is stopped; `kill -CONT %d` lets it go on, "
	        "`kill -KILL %d` ends it (nothing that was written is lost)\n",
	        what, (int)pid, (int)pid, (int)pid);
}

int ntr_daemon_wait(int sock, const char *what, unsigned limit_s, bool *said)
{
	uint64_t until = ntr_mono_ns() + limit_s * 1000000000ull;
	struct pollfd p = {.fd = sock, .events = POLLIN};

	for (;;) {
		int n = poll(&p, 1, LOOK_MS);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			ntr_daemon_notice(sock, what, said);
		if (limit_s && ntr_mono_ns() > until)
			return -ETIMEDOUT;
	}
}
