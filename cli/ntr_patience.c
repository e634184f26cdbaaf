/* Waiting for a daemon that does not answer. It is stopped (SIGSTOP, a debugger): after some seconds the
 * person is told, with what helps; and a signal to the client then ends the client. Or it was killed while a
 * thread of it was asking the daemon's own mount: the kernel lets that thread wait for an answer that nobody
 * can give, and holds the daemon's sockets and locks until then. The mount's end sets it free. */
#include "ntr.h"

#include "../base/fusemount.h"
#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

/* KERNEL_S: within it kernels that limit FUSE requests (Linux 6.15) let a killed daemon go, asked or not. */
enum { SOON_MS = 300, LOOK_MS = 3000, KERNEL_S = 60 };

static pid_t daemon_of(int sock)
{
	uid_t uid;
	pid_t pid;

	return ntr_wire_peer(sock, &pid, &uid) ? 0 : pid;
}

char ntr_daemon_state(int sock, pid_t *ret_pid)
{
	ntr_autofree char *path = NULL, *text = NULL;
	const char *name_end;

	*ret_pid = daemon_of(sock);
	path = *ret_pid > 0 ? ntr_sprintf("/proc/%d/stat", (int)*ret_pid) : NULL;
	if (!path || ntr_read_file(AT_FDCWD, path, 4096, &text, NULL))
		return '?';
	name_end = strrchr(text, ')');
	return !name_end || !name_end[1] ? '?' : name_end[2] == 't' ? 'T' : name_end[2];
}

/* True: all of the store's mounts that are there were ended, and one was. */
static bool end_mounts(const char *store)
{
	static const char *const names[] = {"versions", "plain"};
	ntr_autofree char *real = realpath(store, NULL);
	bool found = false, done = true;

	for (size_t i = 0; real && i < NTR_COUNT(names); i++) {
		ntr_autofree char *path = ntr_sprintf("%s/%s", real, names[i]);
		dev_t dev;

		if (!path || ntr_fuse_dev(path, &dev))
			continue;
		found = true;
		done &= !ntr_fuse_abort(dev);
	}
	return found && done;
}

static void tell(char state, pid_t pid, const char *what)
{
	static const char kept[] = "(nothing that was written is lost)";

	fprintf(stderr, "ntr: %s: waiting: the daemon (pid %d) ", what, (int)pid);
	if (state == 'T')
		fprintf(stderr, "is stopped; `kill -CONT %d` lets it go on, `kill -KILL %d` ends it %s\n",
		        (int)pid, (int)pid, kept);
	else
		fprintf(stderr,
		        "was killed, but waits in the kernel for a mount of its own; `umount -f` as root of "
		        "what `findmnt -t fuse.ntr` lists ends that %s\n",
		        kept);
}

void ntr_daemon_notice(int sock, const char *store, const char *what, bool *said)
{
	pid_t pid;
	char state = ntr_daemon_state(sock, &pid);

	if (state == 'Z' && (ntr_fuse_abort_of(pid) || end_mounts(store)))
		return;
	if ((state != 'Z' && state != 'T') || !said || *said)
		return;
	*said = true;
	tell(state, pid, what);
}

int ntr_daemon_wait(int sock, const char *store, const char *what, unsigned limit_s, bool *said)
{
	uint64_t began = ntr_mono_ns();
	struct pollfd p = {.fd = sock, .events = POLLIN};
	pid_t pid;

	for (bool soon = true;; soon = false) {
		int n = poll(&p, 1, soon ? SOON_MS : LOOK_MS);
		uint64_t waited_s = (ntr_mono_ns() - began) / 1000000000u;

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			ntr_daemon_notice(sock, store, what, soon ? NULL : said);
		if (limit_s && waited_s >= limit_s &&
		        (waited_s >= limit_s + KERNEL_S || ntr_daemon_state(sock, &pid) != 'Z'))
			return -ETIMEDOUT;
	}
}
