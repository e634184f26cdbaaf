/* What file_write, file_edit and view_image share: where a path of the agent's leads, what it is told when it
 * leads nowhere, and reading a file as it is now. */
#include "controller_edit.h"

#include "../fs/file.h"
#include "../fs/names.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

void ntr_file_result_done(struct ntr_file_result *r)
{
	free(r->why);
	free(r->path);
}

int ntr_file_tell(struct ntr_file_result *ret, char *why)
{
	if (!why)
		return -ENOMEM;
	free(ret->why);
	ret->why = why;
	return 0;
}

int ntr_file_explain(struct ntr_file_result *ret, int r, const char *path, const char *wsroot)
{
	switch (-r) {
	case ENOENT:
		return ntr_file_tell(ret, ntr_sprintf("there is no file %s", path));
	case EISDIR:
		return ntr_file_tell(ret, ntr_sprintf("%s is a directory", path));
	case ENOTDIR:
		return ntr_file_tell(ret, ntr_sprintf("a part of %s is a file, no directory", path));
	case EXDEV:
		return ntr_file_tell(ret, ntr_sprintf("%s is not inside the workspace %s", path, wsroot));
	case EOPNOTSUPP:
		return ntr_file_tell(ret, ntr_sprintf("%s is no regular file", path));
	case EACCES:
	case EPERM:
		return ntr_file_tell(ret, ntr_sprintf("%s: permission denied (see `ls -l`)", path));
	case ELOOP:
	case ENAMETOOLONG:
	case ENOSPC:
	case EDQUOT:
	case ETXTBSY:
	case EINVAL:
	case EROFS:
		return ntr_file_tell(ret, ntr_sprintf("%s: %s", path, strerror(-r)));
	case EFBIG:
		return ntr_file_tell(ret,
		        ntr_sprintf("%s is too large to edit (more than %d MiB): change it with a program",
		                path, NTR_FILE_EDIT_MAX >> 20));
	default:
		return r;
	}
}

/* Without empty and "." components. *ret_up: has "..". */
static char *plain(const char *path, bool *ret_up)
{
	char *out = malloc(strlen(path) + 2), *p = out;

	*ret_up = false;
	if (!out)
		return NULL;
	while (*path) {
		size_t skip = strspn(path, "/"), n = strcspn(path + skip, "/");

		path += skip;
		if (n == 2 && !memcmp(path, "..", 2))
			*ret_up = true;
		if (n && !(n == 1 && *path == '.')) {
			*p++ = '/';
			memcpy(p, path, n);
			p += n;
		}
		path += n;
	}
	*p = '\0';
	return out;
}

int ntr_file_locate(const char *path, const char *cwd, const char *wsroot, char **ret_abs,
        const char **ret_inner, bool *ret_up)
{
	ntr_autofree char *joined = *path == '/' ? strdup(path) : ntr_sprintf("%s/%s", cwd, path);
	size_t n = strlen(path);

	if (!n)
		return -ENOENT;
	*ret_abs = joined ? plain(joined, ret_up) : NULL;
	if (!*ret_abs)
		return -ENOMEM;
	if (ntr_ctl_inner_path(wsroot, *ret_abs, ret_inner, NULL))
		return -EXDEV;
	return **ret_inner && path[n - 1] != '/' ? 0 : -EISDIR;
}

/* ---- reading, without holding the session */

static int read_fd(int fd, size_t max, struct ntr_buf *b, uint64_t *ret_size)
{
	struct stat st;
	int r;

	if (fstat(fd, &st))
		return -errno;
	*ret_size = (uint64_t)st.st_size;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EOPNOTSUPP;
	if (*ret_size > max)
		return 0;
	r = ntr_buf_read(b, fd, max);
	*ret_size = NTR_MAX(*ret_size, (uint64_t)b->len);
	return r == -EFBIG ? 0 : r; /* the size tells */
}

static int read_tree(
        const struct ntr_snap *snap, const char *inner, size_t max, struct ntr_buf *b, uint64_t *ret_size)
{
	ntr_autofree struct ntr_inode *in = malloc(sizeof *in);
	ssize_t n;
	int r = ntr_path_inode(snap, inner, in);

	if (r)
		return r;
	if (!S_ISREG(in->mode))
		return S_ISDIR(in->mode) ? -EISDIR : S_ISLNK(in->mode) ? -ELOOP : -EOPNOTSUPP;
	*ret_size = in->size;
	if (in->size > max)
		return 0;
	if (ntr_buf_reserve(b, in->size))
		return -ENOMEM;
	n = ntr_file_read(snap, in, 0, b->data, in->size);
	if (n < 0)
		return (int)n;
	b->len = (size_t)n;
	return 0;
}

/* The session's directory, as the head knows it. */
static int cwd_of(struct ntr_ctl *c, const struct ntr_head *h, char **ret)
{
	struct ntr_snap snap = ntr_snap_root(c->store, h->root);
	uint8_t *cwd = NULL;
	size_t n;
	int r = ntr_kvitem_get(&snap, "s:cwd", &cwd, &n);

	if (r == -ENOENT)
		cwd = (uint8_t *)strdup(h->wsroot);
	*ret = (char *)cwd;
	return r && r != -ENOENT ? r : cwd ? 0 : -ENOMEM;
}

int ntr_ctl_make_live(struct ntr_ctl *c, const char *session, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_session_get(c->store, session, &h, e);

	if (!r)
		r = ntr_ctl_sess(c, h.sid, &s);
	if (r || !ntr_sess_hold_unless_call(s))
		return r; /* a call runs: it is live */
	r = ntr_session_by_id(c->store, s->sid, &h, e);
	if (!r)
		r = ntr_sess_live(s, &h, e);
	ntr_sess_release(s);
	return r;
}

static int read_once(struct ntr_ctl *c, const char *session, const char *abs, size_t max, struct ntr_buf *b,
        uint64_t *ret_size, struct ntr_err *e)
{
	ntr_autoclose int fd = -1;
	struct ntr_snap snap;
	const char *inner;
	int r = ntr_ctl_open_now(c, session, NULL, abs, &fd, &snap, &inner, e);

	if (r)
		return r;
	return fd >= 0 ? read_fd(fd, max, b, ret_size) : read_tree(&snap, inner, max, b, ret_size);
}

int ntr_ctl_file_read(struct ntr_ctl *c, const char *session, const char *path, size_t max,
        struct ntr_buf *ret_data, uint64_t *ret_size, struct ntr_file_result *ret, struct ntr_err *e)
{
	ntr_autofree char *cwd = NULL;
	struct ntr_err own = {0};
	const char *inner;
	struct ntr_head h;
	bool up;
	int r = ntr_ctl_find_or_make(c, session, e);

	*ret = (struct ntr_file_result){0};
	if (!r)
		r = ntr_session_get(c->store, session, &h, e);
	if (!r)
		r = cwd_of(c, &h, &cwd);
	if (r)
		return ntr_err_default(e, r, "read %s", path);
	r = ntr_file_locate(path, cwd, h.wsroot, &ret->path, &inner, &up);
	if (!r && up)
		r = ntr_ctl_make_live(c, session, e);
	if (!r)
		r = read_once(c, session, ret->path, max, ret_data, ret_size, &own);
	if (ntr_ctl_asks_view(r) && !ntr_ctl_make_live(c, session, NULL))
		r = read_once(c, session, ret->path, max, ret_data, ret_size, &own);
	return r && !(e && e->code) ? ntr_file_explain(ret, r, path, h.wsroot) : r;
}
