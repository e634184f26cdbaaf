#include "fusermount.h"

#include "child.h"
#include "util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int ntr_fusermount(const char *dir, const char *opts, int *ret_fd, char *text, size_t size)
{
	char name[] = "fusermount3", o[] = "-o", dashes[] = "--", env[32], byte;
	ntr_autofree char *where = strdup(dir), *with = strdup(opts);
	char *argv[] = {name, o, with, dashes, where, NULL};
	int pair[2], status, r;

	if (!where || !with)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	snprintf(env, sizeof env, "_FUSE_COMMFD=%d", NTR_CHILD_FD);
	r = ntr_child_run(argv, pair[0], env, text, size, &status);
	close(pair[0]);
	if (!r && (ntr_child_failed(status) || ntr_recv_fd(pair[1], MSG_DONTWAIT, &byte, ret_fd) <= 0 ||
	                  *ret_fd < 0))
		r = -EPERM;
	close(pair[1]);
	return r;
}

/* Is that the reason? It stands at the end; the path before it may have any word in it. */
static bool says_busy(const char *text)
{
	size_t n = strlen(text);

	n -= n && text[n - 1] == '.';
	return n >= 4 && !strncmp(text + n - 4, "busy", 4);
}

/* fusermount3 looks the mount up in /etc/mtab, which a bare root file system lacks; umount(8) asks the
 * kernel. Why that fails, too, is told only if it knows more. */
static int by_umount(char *where, bool lazy, char *text, size_t size)
{
	char umount[] = "umount", l[] = "-l", dashes[] = "--", second[512];
	char *lazily[] = {umount, l, dashes, where, NULL}, *plainly[] = {umount, dashes, where, NULL};
	char *const *argv = lazy ? lazily : plainly;
	int status, r = ntr_child_run(argv, -1, "LC_ALL=C", second, sizeof second, &status);

	if (!r && !ntr_child_failed(status))
		return 0;
	if (r || !says_busy(second))
		return -EPERM;
	snprintf(text, size, "%s", second);
	return -EBUSY;
}

int ntr_fusermount_end(const char *dir, bool lazy, char *text, size_t size)
{
	char fusermount[] = "fusermount3", u[] = "-u", uz[] = "-uz", dashes[] = "--";
	ntr_autofree char *where = strdup(dir);
	char *argv[] = {fusermount, lazy ? uz : u, dashes, where, NULL};
	int status, second, r;

	text[0] = '\0';
	if (!where)
		return -ENOMEM;
	r = ntr_child_run(argv, -1, "LC_ALL=C", text, size, &status);
	if (!r && !ntr_child_failed(status))
		return 0;
	if (!r && !lazy && says_busy(text))
		return -EBUSY;
	second = by_umount(where, lazy, text, size);
	return second == -EPERM && r ? r : second;
}
