/* ntr-pass: shows a session's live view on a fuse descriptor that an ordinary user has mounted outside.
 *
 * It runs in the session's namespaces as the user and does every request on the view itself, so what it shows
 * is what the session sees: nothing is cached by time. One thread: the view is as fast as its slowest
 * request, and order is simple. It is started by ntr-init with three descriptors (pass.h) and obeys its
 * control socket (init_helper.c), which has precedence over requests, because the view can only be replaced
 * while nobody holds it. */
#include "pass.h"
#include "pass_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { FDS_SPARE = 256, FDS_MAX = 1 << 20 };

static int ctl_fd = -1;

static void op_init(void *data, struct fuse_conn_info *conn)
{
	(void)data;
	conn->max_readahead = 1 << 20;
	conn->time_gran = 1;
}

/* ---- the control socket ---- */

/* One datagram: its byte, 0 at the end of the socket; *ret_fd: a descriptor that came with it, or -1. */
static char receive(int *ret_fd)
{
	char say;

	return ntr_recv_fd(ctl_fd, 0, &say, ret_fd) > 0 ? say : 0;
}

static void answer(char c)
{
	send(ctl_fd, &c, 1, MSG_NOSIGNAL);
}

/* Without the view there is nothing to serve, so nothing else is done until it comes back. false: the end. */
static bool obey(void)
{
	bool away = false;

	do {
		int fd;
		char say = receive(&fd);

		if (say == 'R' && ntr_pfile_open_count()) {
			answer('b');
		} else if (say == 'R' || say == 'F') {
			ntr_pfile_drop();
			ntr_pinode_release();
			away = true;
			answer('r');
		} else if (say == 'U' && fd >= 0) {
			/* After a refusal the old view comes again; it is the same one then. */
			if (away)
				ntr_pinode_resume(fd);
			else
				close(fd);
			away = false;
		} else if (!say) {
			return false;
		}
	} while (away);
	return true;
}

/* ---- requests ---- */

static void loop(struct fuse_session *se)
{
	struct pollfd p[2] = {
	        {.fd = fuse_session_fd(se), .events = POLLIN}, {.fd = ctl_fd, .events = POLLIN}};
	struct fuse_buf buf = {.mem = NULL};

	while (!fuse_session_exited(se)) {
		int n;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents) {
			if (!obey())
				break;
			continue;
		}
		if (!p[0].revents)
			continue;
		n = fuse_session_receive_buf(se, &buf);
		if (n == -EINTR || n == -EAGAIN)
			continue;
		if (n <= 0)
			break;
		fuse_session_process_buf(se, &buf);
	}
	free(buf.mem);
}

/* Every inode that the kernel knows costs a descriptor. */
static size_t raise_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return 64;
	rl.rlim_cur = NTR_MIN(rl.rlim_max, (rlim_t)FDS_MAX);
	setrlimit(RLIMIT_NOFILE, &rl);
	return rl.rlim_cur > 2 * FDS_SPARE ? rl.rlim_cur - FDS_SPARE : rl.rlim_cur / 2;
}

/* The cwd is moved out of the view, or it would hold it. */
static int prepare(void)
{
	struct stat st;

	if (fstat(NTR_PASS_CTL, &st) == 0 && S_ISSOCK(st.st_mode))
		ctl_fd = NTR_PASS_CTL;
	for (int fd = NTR_PASS_FUSE; fd <= NTR_PASS_CTL; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	umask(0);
	if (chdir("/"))
		return -errno;
	return ntr_pinode_setup(NTR_PASS_VIEW, raise_limit());
}

int main(void)
{
	struct fuse_lowlevel_ops ops = {.init = op_init};
	char name[] = "ntr-pass", *argv[] = {name, NULL}, where[16];
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_session *se;
	int r = prepare();

	if (r) {
		fprintf(stderr,
		        "ntr-pass: descriptor %d has to be an open fuse device and %d a directory (%s); "
		        "ntr-init starts it\n",
		        NTR_PASS_FUSE, NTR_PASS_VIEW, strerror(-r));
		return 2;
	}
	ntr_pname_ops(&ops);
	ntr_pattr_ops(&ops);
	ntr_pfile_ops(&ops);
	ntr_pdir_ops(&ops);
	snprintf(where, sizeof where, "/dev/fd/%d", NTR_PASS_FUSE);
	se = fuse_session_new(&args, &ops, sizeof ops, NULL);
	if (!se || fuse_session_mount(se, where))
		return 1;
	loop(se);
	fuse_session_destroy(se);
	fuse_opt_free_args(&args);
	return 0;
}
