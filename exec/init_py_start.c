/* init_py_start: which interpreter, and starting a zygote of it. */
#include "init_py_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <paths.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MACHINE_PYTHON "/usr/bin/python3"
#define RUN            "exec(open(9).read()) # ntr: the session's Python"

/* Where the zygote has what. */
enum { CTL_TO = 7, TEXT_TO = 8, BOOT_TO = 9, HIGH = 20, WHY_MAX = 600 };

/* ---- which */

static char *default_python(const struct ntr_init *in, const char *path)
{
	ntr_autofree char *venv = ntr_initpy_venv(in);
	char *found;

	if (venv)
		return ntr_sprintf("%s/python", venv);
	found = ntr_initpy_find("python3", path);
	return found || access(MACHINE_PYTHON, X_OK) ? found : strdup(MACHINE_PYTHON);
}

int ntr_initpy_choose(struct ntr_init *in, const json_t *msg, struct ntr_initpycall *p, struct ntr_err *e)
{
	const char *asked = ntr_json_str(msg, "python", NULL),
	           *path = ntr_json_str(msg, "path", _PATH_DEFPATH);

	p->asked = asked != NULL;
	if (asked && asked[0] == '/')
		p->python = strdup(asked);
	else if (asked && strchr(asked, '/'))
		p->python = ntr_sprintf("%s/%s", in->wsroot, asked);
	else
		p->python = asked ? ntr_initpy_find(asked, path) : default_python(in, path);
	if (p->python)
		return 0;
	ntr_err_set(e, -ENOENT, "start Python");
	ntr_err_why(e, "there is no %s in the PATH%s", asked ? asked : "python3",
	        asked ? "" : ", nor " MACHINE_PYTHON);
	return ntr_err_todo(e, "install Python 3.9 or newer, or name one: --python PATH");
}

bool ntr_initpy_fall_back(struct ntr_initpycall *p)
{
	char *machine = p->asked || !strcmp(p->python, MACHINE_PYTHON) ? NULL : strdup(MACHINE_PYTHON);

	if (!machine)
		return false;
	free(p->python);
	p->python = machine;
	return true;
}

/* ---- starting it */

static int memfd_of(const char *name, const void *p, size_t n, int *ret)
{
	ntr_autoclose int fd = memfd_create(name, MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = ntr_write_all(fd, p, n);
	if (!r && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (!r)
		*ret = ntr_steal_fd(&fd);
	return r;
}

struct start {
	char **argv;
	const char *readonly; /* NULL, or the directory that it sees read-only */
	int ctl, text, boot, log, null;
	volatile int err; /* written by the child */
};

/* A mount namespace of its own, in which everything below the directory is read-only. */
static int make_readonly(const char *dir)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -errno;
	return syscall(SYS_mount_setattr, AT_FDCWD, dir, AT_RECURSIVE, &attr, sizeof attr) ? -errno : 0;
}

/* On the parent's memory (vfork). */
static void __attribute__((noreturn)) become(struct start *s)
{
	const int from[] = {s->null, s->log, s->log, s->ctl, s->text, s->boot};
	const int to[] = {0, 1, 2, CTL_TO, TEXT_TO, BOOT_TO};
	int high[NTR_COUNT(from)];
	sigset_t none;

	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (s->readonly && make_readonly(s->readonly))
		goto failed;
	for (size_t i = 0; i < NTR_COUNT(from); i++)
		high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, HIGH);
	for (size_t i = 0; i < NTR_COUNT(from); i++)
		if (dup2(high[i], to[i]) < 0)
			goto failed;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(s->argv[0], s->argv);
failed:
	s->err = errno ? errno : EBADF;
	_exit(127);
}

static int run(struct start *s, pid_t *ret)
{
	sigset_t all, old;
	int status;
	pid_t pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid = vfork();
	if (!pid)
		become(s);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return -errno;
	if (s->err) {
		waitpid(pid, &status, 0);
		return -s->err;
	}
	*ret = pid;
	return 0;
}

/* PYTHON -I -X utf8 -c RUN 7 8 MODULE… */
static char **make_argv(const char *python, const json_t *preload)
{
	const char *head[] = {python, "-I", "-X", "utf8", "-c", RUN, "7", "8"};
	size_t n = NTR_COUNT(head), i;
	char **v = calloc(n + json_array_size(preload) + 1, sizeof *v);
	const json_t *m;
	bool ok = v != NULL;

	for (i = 0; ok && i < n; i++)
		ok = (v[i] = strdup(head[i])) != NULL;
	if (ok)
		json_array_foreach (preload, i, m)
			ok = ok && (v[n + i] = strdup(json_is_string(m) ? json_string_value(m) : "")) != NULL;
	if (ok)
		return v;
	ntr_strv_free(v);
	return NULL;
}

static void strv_freep(char ***v)
{
	ntr_strv_free(*v);
}

static int start(struct ntr_init *in, struct ntr_initpy *z, const char *python, const json_t *preload)
{
	ntr_auto(strv_freep) char **argv = make_argv(python, preload);
	ntr_autoclose int text = -1, boot = -1, log = -1, null = -1, mine = -1, its = -1;
	struct start s = {.argv = argv, .readonly = z == &in->py[NTR_PY_READONLY] ? in->wsroot : NULL};
	int sv[2], r;

	if (!argv)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	mine = sv[0];
	its = sv[1];
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	log = memfd_create("ntr-py-log", MFD_CLOEXEC);
	if (null < 0 || log < 0)
		return -errno;
	r = memfd_of("ntr-py", ntr_runner_text, ntr_runner_text_len, &text);
	if (!r)
		r = memfd_of("ntr-py-boot", ntr_runner_boot, strlen((const char *)ntr_runner_boot), &boot);
	if (r)
		return r;
	s.ctl = its;
	s.text = text;
	s.boot = boot;
	s.log = log;
	s.null = null;
	r = run(&s, &z->pid);
	if (!r) {
		z->sock = ntr_steal_fd(&mine);
		z->log_fd = ntr_steal_fd(&log);
	}
	return r;
}

static char *make_key(const char *python, const json_t *preload)
{
	ntr_autofree char *mods = preload ? json_dumps(preload, JSON_COMPACT) : NULL;

	return ntr_sprintf("%s %s", python, mods ? mods : "");
}

int ntr_initpy_ready(struct ntr_init *in, struct ntr_initpy *z, const char *python, const json_t *preload,
        struct ntr_err *e)
{
	ntr_autofree char *key = make_key(python, preload);
	int r;

	if (!key)
		return ntr_err_set(e, -ENOMEM, "start %s", python);
	if (z->pid && !strcmp(key, z->key))
		return 0;
	ntr_initpy_kill(in, z);
	r = start(in, z, python, preload);
	if (r) {
		z->pid = 0;
		ntr_err_set(e, r, "start %s", python);
		return ntr_err_todo(e, "name an interpreter that works here: --python PATH");
	}
	z->key = ntr_steal_ptr(key);
	return 0;
}

void ntr_initpy_forget(struct ntr_initpy *z)
{
	ntr_closep(&z->log_fd);
	free(z->key);
	*z = (struct ntr_initpy){.sock = -1, .log_fd = -1};
}

/* Of the view there is nothing open in an interpreter, unless it lies in there; and one that sees it
 * read-only has a mount of its own. */
void ntr_initpy_release(struct ntr_init *in)
{
	struct ntr_initpy *z = &in->py[NTR_PY_PLAIN];
	size_t n = strlen(in->wsroot);

	if (z->pid && !strncmp(z->key, in->wsroot, n) && z->key[n] == '/')
		ntr_initpy_kill(in, z);
	ntr_initpy_kill(in, &in->py[NTR_PY_READONLY]);
}

/* ---- why it ended */

/* The last line of what it printed. */
static void last_words(int fd, char why[WHY_MAX])
{
	off_t size = lseek(fd, 0, SEEK_END);
	off_t from = size > WHY_MAX - 1 ? size - (WHY_MAX - 1) : 0;
	ssize_t n = pread(fd, why, WHY_MAX - 1, from);
	char *line;

	why[n > 0 ? n : 0] = '\0';
	for (n = (ssize_t)strlen(why); n > 0 && (why[n - 1] == '\n' || why[n - 1] == ' '); n--)
		why[n - 1] = '\0';
	line = strrchr(why, '\n');
	if (line)
		memmove(why, line + 1, strlen(line + 1) + 1);
}

void ntr_initpy_reason(const struct ntr_initpy *z, int status, struct ntr_err *e)
{
	char why[WHY_MAX] = "";

	ntr_err_set(e, -ECHILD, "start Python (%.*s)", (int)strcspn(z->key, " "), z->key);
	last_words(z->log_fd, why);
	if (why[0])
		ntr_err_why(e, "%s", why);
	else if (WIFSIGNALED(status))
		ntr_err_why(e, "it was ended by signal %d", WTERMSIG(status));
	else
		ntr_err_why(e, "it exited with status %d", WEXITSTATUS(status));
	ntr_err_todo(e, "name an interpreter that works here, of version 3.9 or newer: --python PATH");
}
