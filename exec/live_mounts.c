#include "live_mounts.h"
#include "../base/json.h"
#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- the record ---- */

int ntr_mounts_load(struct ntr_store *s, uint64_t sid, json_t **ret, struct ntr_err *e)
{
	ntr_autofree char *text = NULL;
	int r = ntr_session_mounts(s, sid, &text);

	*ret = NULL;
	if (!r)
		*ret = text ? json_loads(text, 0, NULL) : json_array();
	if (!r && !json_is_array(*ret)) {
		json_decref(*ret);
		*ret = NULL;
		r = text ? -EUCLEAN : -ENOMEM;
	}
	return r ? ntr_err_set(e, r, "read the session's host directories") : 0;
}

int ntr_mounts_save(struct ntr_store *s, uint64_t sid, const json_t *mounts, struct ntr_err *e)
{
	ntr_autofree char *text = json_array_size(mounts) ? json_dumps(mounts, JSON_COMPACT) : NULL;

	if (json_array_size(mounts) && !text)
		return ntr_err_set(e, -ENOMEM, "record the session's host directories");
	return ntr_session_set_mounts(s, sid, text, e);
}

/* ---- paths ---- */

/* "/a//b/" becomes "/a/b" in place. False: not absolute, or with "." or "..". */
static bool make_plain(char *path)
{
	const char *p = path;
	char *to = path;

	if (*p != '/')
		return false;
	while (*(p += strspn(p, "/"))) {
		size_t n = strcspn(p, "/");

		if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.') || n > NAME_MAX)
			return false;
		*to++ = '/';
		memmove(to, p, n);
		to += n;
		p += n;
	}
	*to = '\0';
	return true;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && path[n] == '/';
}

const char *ntr_mounts_inner(const char *point, const char *wsroot)
{
	return is_below(point, wsroot) ? point + strlen(wsroot) + 1 : NULL;
}

static int refuse(struct ntr_err *e, const char *point, int code, const char *why, const char *todo)
{
	ntr_err_set(e, code, "mount a host directory at '%.200s'", point);
	ntr_err_why(e, "%s", why);
	return ntr_err_todo(e, "%s", todo);
}

/* Outside the workspace the path is the host's: no symlink there may lead the mount elsewhere, and a file can
 * bear none. What does not exist gets a place in the session's own view. */
static int check_outside(const char *point, struct ntr_err *e)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
	        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	ntr_autoclose int fd = (int)syscall(SYS_openat2, AT_FDCWD, point, &how, sizeof how);

	if (fd >= 0 || errno == ENOENT)
		return 0;
	if (errno == ELOOP)
		return refuse(e, point, -ELOOP, "a symlink is on the way there", "give the path it leads to");
	return refuse(
	        e, point, -errno, strerror(errno), "choose a point that is a directory, or does not exist");
}

static int check_point(char *point, const char *wsroot, struct ntr_err *e)
{
	static const char plain[] = "give an absolute path without '.' and '..'";

	if (strlen(point) >= PATH_MAX || !make_plain(point))
		return refuse(
		        e, point, -EINVAL, "the point is no absolute path, or has '.' or '..' in it", plain);
	if (!*point)
		return refuse(e, "/", -EINVAL, "it would cover everything", "choose a directory below it");
	if (!strcmp(point, wsroot) || is_below(wsroot, point))
		return refuse(e, point, -EINVAL, "it would cover the workspace",
		        "choose a point inside the workspace, or outside of what leads to it");
	if (!strcmp(point, "/proc") || is_below(point, "/proc"))
		return refuse(e, point, -EINVAL, "/proc belongs to the kernel", "choose another point");
	return ntr_mounts_inner(point, wsroot) ? 0 : check_outside(point, e);
}

/* The directory as this process sees it: its path without symlinks. */
static int check_dir(const char *dir, const json_t *asked, char ret[PATH_MAX], struct ntr_err *e)
{
	ntr_autoclose int fd = dir[0] == '/' ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	char link[64];
	struct stat st;
	ssize_t n;

	ntr_err_set(e, -EINVAL, "mount the host directory '%.200s'", dir);
	if (dir[0] != '/') {
		ntr_err_why(e, "its path is not absolute");
		return -EINVAL;
	}
	if (fd < 0 || fstat(fd, &st)) {
		int code = errno;

		ntr_err_why(e, "%s", code == ENOTDIR ? "it is no directory" : strerror(code));
		ntr_err_todo(e, "%s",
		        code == ENOENT ? "make it first, or correct the path"
		                       : "name a directory that you may enter");
		if (e)
			e->code = -code;
		return -code;
	}
	if ((json_object_get(asked, "ino") && (uint64_t)ntr_json_int(asked, "ino", 0) != st.st_ino) ||
	        (json_object_get(asked, "dev") && (uint64_t)ntr_json_int(asked, "dev", 0) != st.st_dev)) {
		ntr_err_why(e,
		        "the daemon sees another directory there than you do: you are in another mount "
		        "namespace (a container, a session)");
		ntr_err_todo(
		        e, "start the daemon where that directory is to be seen (`ntr daemon stop` first)");
		return -EINVAL;
	}
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, ret, PATH_MAX - 1);
	if (n <= 0) {
		ntr_err_why(e, "%s", strerror(errno));
		return -EINVAL;
	}
	ret[n] = '\0';
	if (e)
		*e = (struct ntr_err){0};
	return 0;
}

/* ---- what a client asked for ---- */

static int compare(const void *a, const void *b)
{
	ntr_autofree char *x = NULL, *y = NULL;

	ntr_json_get_bytes(json_object_get(*(json_t *const *)a, "point"), &x, NULL);
	ntr_json_get_bytes(json_object_get(*(json_t *const *)b, "point"), &y, NULL);
	return strcmp(x ? x : "", y ? y : "");
}

/* By point, so that what holds another point comes before it. */
static json_t *sorted(const json_t *mounts)
{
	size_t n = json_array_size(mounts);
	json_t *v[2 * NTR_MOUNTS_MAX], *a = json_array();

	for (size_t i = 0; i < n; i++)
		v[i] = json_array_get(mounts, i);
	qsort(v, n, sizeof *v, compare);
	for (size_t i = 0; a && i < n; i++)
		json_array_append(a, v[i]);
	return a;
}

static int bad_shape(struct ntr_err *e)
{
	return ntr_err_full(e, -EINVAL, "mount host directories",
	        "each takes a point and a directory, as text without NUL", "--mount POINT=DIR[:rw]");
}

static int check_one(const json_t *asked, const char *wsroot, json_t *all, struct ntr_err *e)
{
	ntr_autofree char *point = NULL, *dir = NULL;
	char path[PATH_MAX] = "";
	size_t np = 0, nd = 0;
	int r;

	if (ntr_json_get_bytes(json_object_get(asked, "point"), &point, &np) ||
	        ntr_json_get_bytes(json_object_get(asked, "dir"), &dir, &nd) || strlen(point) != np ||
	        strlen(dir) != nd)
		return bad_shape(e);
	r = check_point(point, wsroot, e);
	if (!r && *dir)
		r = check_dir(dir, asked, path, e);
	if (r)
		return r;
	return json_array_append_new(all,
	               json_pack("{s:o,s:o,s:b}", "point", ntr_json_bytes(point, strlen(point)), "dir",
	                       ntr_json_bytes(path, strlen(path)), "rw", ntr_json_bool(asked, "rw", false)))
	               ? -ENOMEM
	               : 0;
}

int ntr_mounts_check(const json_t *asked, const char *wsroot, json_t **ret, struct ntr_err *e)
{
	ntr_autojson json_t *all = json_array();
	const json_t *x;
	size_t i;
	int r = all ? 0 : -ENOMEM;

	if (!json_is_array(asked))
		return bad_shape(e);
	if (json_array_size(asked) > NTR_MOUNTS_MAX)
		return ntr_err_full(e, -E2BIG, "mount host directories", "more than 64", NULL);
	json_array_foreach (asked, i, x)
		if (!r)
			r = check_one(x, wsroot, all, e);
	if (!r)
		*ret = ntr_steal_ptr(all);
	return r;
}

static size_t find(const json_t *mounts, const json_t *point)
{
	size_t n = json_array_size(mounts), i = 0;

	while (i < n && !json_equal(json_object_get(json_array_get(mounts, i), "point"), point))
		i++;
	return i;
}

int ntr_mounts_merge(const json_t *present, const json_t *changes, json_t **ret, bool *ret_changed)
{
	ntr_autojson json_t *all = json_copy((json_t *)(uintptr_t)present);
	json_t *x;
	size_t i;

	if (!all)
		return -ENOMEM;
	json_array_foreach (changes, i, x) {
		size_t at = find(all, json_object_get(x, "point"));
		bool gone = !json_string_length(json_object_get(x, "dir")) &&
		            json_is_string(json_object_get(x, "dir"));

		if (at < json_array_size(all))
			json_array_remove(all, at);
		if (!gone && json_array_append(all, x))
			return -ENOMEM;
	}
	if (json_array_size(all) > NTR_MOUNTS_MAX)
		return -E2BIG;
	*ret = sorted(all);
	*ret_changed = !*ret || !json_equal(*ret, present);
	return *ret ? 0 : -ENOMEM;
}
