#include "fusermount.h"

#include "child.h"
#include "util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

static bool failed(int status)
{
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

/* One byte with one descriptor, which lies ready. -1: none came. */
static int receive_fd(int sock)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl;
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl};
	struct cmsghdr *c;
	int fd = -1;

	if (recvmsg(sock, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) <= 0)
		return -1;
	c = CMSG_FIRSTHDR(&mh);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	        c->cmsg_len == CMSG_LEN(sizeof fd))
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

int ntr_fusermount(const char *dir, const char *opts, int *ret_fd, char *text, size_t size)
{
	char name[] = "fusermount3", o[] = "-o", dashes[] = "--", env[32];
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
	if (!r) {
		*ret_fd = failed(status) ? -1 : receive_fd(pair[1]);
		r = *ret_fd < 0 ? -EPERM : 0;
	}
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
	int status,
	        r = ntr_child_run(lazy ? lazily : plainly, -1, "LC_ALL=C", second, sizeof second, &status);

	if (!r && !failed(status))
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
	if (!r && !failed(status))
		return 0;
	if (!r && !lazy && says_busy(text))
		return -EBUSY;
	second = by_umount(where, lazy, text, size);
	return second == -EPERM && r ? r : second;
}
