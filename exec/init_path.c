/* init_path: a path inside the view, made free of symlinks without ever leaving the view.
 *
 * The kernel's RESOLVE_BENEATH refuses absolute symlinks also where they lead back inside, which is common (a
 * link to /workspace/x). So symlinks are followed here, by text, over the components that are known to be
 * none; the caller opens the result with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, which turns any race into an
 * error. */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>

enum { LINKS_MAX = 40 };

struct walk {
	char done[PATH_MAX]; /* resolved so far; "" is root */
	char *rest;          /* still to do; owned */
	int links;
};

/* What of an absolute path is below wsroot, or NULL. */
static const char *below(const char *wsroot, const char *path)
{
	size_t n = strlen(wsroot);

	if (strncmp(path, wsroot, n) || (path[n] && path[n] != '/'))
		return NULL;
	return path + n;
}

static int push(struct walk *w, const char *name, size_t n)
{
	size_t len = strlen(w->done);

	if (len + n + 2 > sizeof w->done)
		return -ENAMETOOLONG;
	if (len)
		w->done[len++] = '/';
	memcpy(w->done + len, name, n);
	w->done[len + n] = '\0';
	return 0;
}

static int pop(struct walk *w)
{
	char *slash = strrchr(w->done, '/');

	if (!w->done[0])
		return -EXDEV;
	*(slash ? slash : w->done) = '\0';
	return 0;
}

/* The last component of done is a symlink to target: go on from there. */
static int follow_link(struct walk *w, const char *wsroot, const char *target)
{
	const char *to = target;
	char *rest;
	int r = 0;

	if (++w->links > LINKS_MAX)
		return -ELOOP;
	if (target[0] == '/') {
		to = below(wsroot, target);
		w->done[0] = '\0';
	} else {
		r = pop(w);
	}
	if (!to || r)
		return to ? r : -EXDEV;
	rest = ntr_sprintf("%s/%s", to, w->rest);
	if (!rest)
		return -ENOMEM;
	free(w->rest);
	w->rest = rest;
	return 0;
}

static int step(struct walk *w, int root, const char *wsroot, const char *name, size_t n, bool follow)
{
	char target[PATH_MAX];
	ssize_t k;
	int r;

	if (!n || (n == 1 && name[0] == '.'))
		return 0;
	if (n == 2 && name[0] == '.' && name[1] == '.')
		return pop(w);
	r = push(w, name, n);
	if (r || (!follow && !w->rest[strspn(w->rest, "/")]))
		return r;
	k = readlinkat(root, w->done, target, sizeof target - 1);
	if (k < 0) /* no symlink, or nothing there: whoever opens it finds out */
		return errno == EINVAL || errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	target[k] = '\0';
	return follow_link(w, wsroot, target);
}

int ntr_init_resolve(int root, const char *wsroot, const char *path, bool follow, char **ret)
{
	struct walk w = {.rest = NULL};
	const char *rel = path[0] == '/' ? below(wsroot, path) : path;
	int r = 0;

	if (!rel)
		return -EXDEV;
	w.rest = strdup(rel);
	if (!w.rest)
		return -ENOMEM;
	while (!r && w.rest[0]) {
		char name[NAME_MAX + 1];
		size_t skip = strspn(w.rest, "/"), n = strcspn(w.rest + skip, "/");

		if (n > NAME_MAX) {
			r = -ENAMETOOLONG;
			break;
		}
		memcpy(name, w.rest + skip, n);
		memmove(w.rest, w.rest + skip + n, strlen(w.rest + skip + n) + 1);
		r = step(&w, root, wsroot, name, n, follow);
	}
	free(w.rest);
	if (r)
		return r;
	*ret = strdup(w.done[0] ? w.done : ".");
	return *ret ? 0 : -ENOMEM;
}
