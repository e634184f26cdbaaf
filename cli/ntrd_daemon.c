/* The process: detached from whoever started it, its log, its signals. */
#include "ntrd.h"

#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOG_MAX = 1 << 20 };

static char *log_path; /* NULL: stderr is what it was at the start */
static int signal_fd = -1;

/* ---- detaching */

/* Descriptors that came along by accident could keep a client's pipe or terminal open for as long as the
 * daemon lives. */
static void close_inherited(int keep)
{
	if (keep < 3) {
		closefrom(3);
		return;
	}
	if (keep > 3 && close_range(3, (unsigned)keep - 1, 0))
		for (int fd = 3; fd < keep; fd++)
			close(fd);
	closefrom(keep + 1);
	fcntl(keep, F_SETFD, FD_CLOEXEC);
}

/* 0, 1 and 2 are open, so that nothing else lands there. */
static int fill_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int null_stdio(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int r = fd < 0 || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 ? -errno : 0;

	ntr_closep(&fd);
	return r;
}

/* What the shell of whoever came first allows himself says nothing about the store. */
static void raise_limit(__rlimit_resource_t what)
{
	struct rlimit rl;

	if (getrlimit(what, &rl) || rl.rlim_cur == rl.rlim_max)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(what, &rl);
}

/* The parent of the fork leaves at once: the daemon is nobody's child and no session's leader can hang it up.
 */
static int leave_parent(void)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid > 0)
		_exit(0);
	setsid();
	return null_stdio();
}

int ntrd_detach(bool foreground, int ready_fd, struct ntr_err *e)
{
	sigset_t none;
	int r = fill_stdio();

	close_inherited(ready_fd);
	if (!r && !foreground)
		r = leave_parent();
	if (!r && chdir("/"))
		r = -errno;
	umask(022);
	raise_limit(RLIMIT_NOFILE);
	raise_limit(RLIMIT_FSIZE);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	return r ? ntr_err_set(e, r, "detach the daemon") : 0;
}

/* ---- signals */

static void on_end(int sig)
{
	int saved = errno;

	(void)sig;
	eventfd_write(signal_fd, 1);
	errno = saved;
}

static void on_pipe(int sig)
{
	(void)sig;
}

/* Handlers, not SIG_IGN or a mask: those would be inherited by every process that the daemon starts. */
int ntrd_signals(int fd)
{
	static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
	struct sigaction sa = {.sa_handler = on_end, .sa_flags = SA_RESTART};

	signal_fd = fd;
	for (size_t i = 0; i < NTR_COUNT(ends); i++)
		if (sigaction(ends[i], &sa, NULL))
			return -errno;
	sa.sa_handler = on_pipe; /* a file that grew to the limit (ulimit -f) is an error like others, too */
	return sigaction(SIGPIPE, &sa, NULL) || sigaction(SIGXFSZ, &sa, NULL) ? -errno : 0;
}

/* ---- log */

static int log_begin(void)
{
	int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
	int r = fd < 0 || dup2(fd, STDERR_FILENO) < 0 ? -errno : 0;

	ntr_closep(&fd);
	return r;
}

int ntrd_log_open(const char *path)
{
	free(log_path);
	log_path = strdup(path);
	return log_path ? log_begin() : -ENOMEM;
}

void ntrd_log_rotate(void)
{
	ntr_autofree char *old = NULL;
	struct stat st;

	if (!log_path || fstat(STDERR_FILENO, &st) || !S_ISREG(st.st_mode) || st.st_size <= LOG_MAX)
		return;
	old = ntr_sprintf("%s.1", log_path);
	if (old && !rename(log_path, old))
		log_begin();
}

void ntrd_log(const char *fmt, ...)
{
	char when[32], text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	ntr_time_format(ntr_wall_ns(), when);
	fprintf(stderr, "%.19sZ ntrd[%d]: %s\n", when, (int)getpid(), text);
}
