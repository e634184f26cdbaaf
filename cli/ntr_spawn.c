#include "ntr_spawn.h"

#include "../base/buf.h"
#include "../base/child.h"
#include "../base/json.h"
#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { READY_MAX = 1 << 16 };

/* Directories that may hold the helper programs, best first: the user's word, the build tree or a moved
 * installation (found from this program's own place), the installation. */
int ntr_spawn_find(const char *program, char **ret)
{
	static const char *const beside[] = {"", "../cli/", "../exec/", "../libexec/ntr/"};
	const char *own = getenv("NTR_LIBEXEC");
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *path;

	if (own && *own) {
		*ret = ntr_sprintf("%s/%s", own, program);
		return *ret ? 0 : -ENOMEM;
	}
	while (n > 0 && self[n - 1] != '/')
		n--;
	for (size_t i = 0; n > 0 && i < NTR_COUNT(beside); i++) {
		path = ntr_sprintf("%.*s%s%s", (int)n, self, beside[i], program);
		if (!path)
			return -ENOMEM;
		if (!access(path, X_OK)) {
			*ret = path;
			return 0;
		}
		free(path);
	}
	path = ntr_sprintf("%s/%s", NTR_LIBEXECDIR, program);
	if (!path)
		return -ENOMEM;
	*ret = path;
	if (!access(path, X_OK))
		return 0;
	free(path);
	*ret = NULL;
	return -ENOENT;
}

static int start(const char *path, const char *store, int ready, int err, pid_t *ret)
{
	char arg0[] = "ntrd", opt_store[] = "--store", opt_ready[] = "--ready-fd", num[16];
	ntr_autofree char *st = strdup(store);
	char *argv[] = {arg0, opt_store, st, opt_ready, num, NULL};

	snprintf(num, sizeof num, "%d", NTR_CHILD_FD);
	return st ? ntr_child_start(path, argv, environ, err, ready, true, ret) : -ENOMEM;
}

/* What ntrd says on its ready descriptor: one JSON object, {"ok":true} or {"error":{…}}. */
static int read_ready(int fd, struct ntr_buf *b)
{
	for (;;) {
		ssize_t n;

		if (b->len > READY_MAX || ntr_buf_reserve(b, 4096))
			return -ENOMEM;
		n = read(fd, b->data + b->len, 4096);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		b->len += (size_t)n;
		if (!n || memchr(b->data, '\n', b->len))
			return 0;
	}
}

static int relay(const json_t *err, const char *what, bool *ret_busy, struct ntr_err *e)
{
	int64_t code = ntr_json_int(err, "errno", EIO);

	code = code < 0 ? -code : code;
	if (!code || code > 4095)
		code = EIO;
	*ret_busy = !strcmp(ntr_json_str(err, "kind", ""), "busy") || code == EBUSY;
	ntr_err_set(e, (int)-code, "%s", ntr_json_str(err, "what", what));
	ntr_err_why(e, "%s", ntr_json_str(err, "why", ""));
	ntr_err_todo(e, "%s", ntr_json_str(err, "todo", ""));
	return (int)-code;
}

static int died(pid_t pid, int memfd, const char *store, const char *what, struct ntr_err *e)
{
	char text[512];
	int status = 0;

	ntr_last_line(memfd, text, sizeof text);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	ntr_err_set(e, -EIO, "%s", what);
	if (text[0])
		ntr_err_why(e, "the daemon did not start: %s", text);
	else if (WIFSIGNALED(status))
		ntr_err_why(e, "the daemon did not start: killed by signal %d", WTERMSIG(status));
	else
		ntr_err_why(e, "the daemon did not start: exit status %d", WEXITSTATUS(status));
	ntr_err_todo(e, "see %s/ntrd.log; 'ntr doctor' checks this machine", store);
	return -EIO;
}

static int judge(pid_t pid, int ready, int memfd, const char *store, const char *what, bool *ret_busy,
        struct ntr_err *e)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	ntr_autojson json_t *msg = NULL;
	json_error_t je;
	int r = read_ready(ready, &b);

	if (r)
		return ntr_err_set(e, r, "%s", what);
	msg = json_loadb((const char *)b.data, b.len, JSON_DISABLE_EOF_CHECK, &je);
	if (ntr_json_bool(msg, "ok", false)) {
		waitpid(pid, NULL, WNOHANG); /* the daemon has detached itself: this is what it left behind */
		return 0;
	}
	if (!json_object_get(msg, "error"))
		return died(pid, memfd, store, what, e);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return relay(json_object_get(msg, "error"), what, ret_busy, e);
}

int ntr_spawn_daemon(const char *store, const char *what, bool *ret_busy, struct ntr_err *e)
{
	ntr_autoclose int memfd = memfd_create("ntrd-stderr", MFD_CLOEXEC);
	ntr_autoclose int ready = -1;
	ntr_autofree char *path = NULL;
	int p[2], r;
	pid_t pid;

	*ret_busy = false;
	r = ntr_spawn_find("ntrd", &path);
	if (r) {
		ntr_err_set(e, r, "%s", what);
		ntr_err_why(e, "the daemon's program ntrd is not in %s", NTR_LIBEXECDIR);
		ntr_err_todo(e, "install ntr whole, or set NTR_LIBEXEC to the directory that holds ntrd");
		return r;
	}
	if (memfd < 0 || pipe2(p, O_CLOEXEC))
		return ntr_err_set(e, -errno, "%s", what);
	ready = p[0];
	r = start(path, store, p[1], memfd, &pid);
	close(p[1]);
	if (r) {
		ntr_err_set(e, r, "%s", what);
		ntr_err_why(e, "cannot start the daemon %s: %s", path, strerror(-r));
		return r;
	}
	return judge(pid, ready, memfd, store, what, ret_busy, e);
}
