/* cat, put, and where a path of theirs leads: inside the view of a live session (so that they see and make
 * what its processes see), else in the tree. */
#include "controller_impl.h"
#include "controller_tree.h"

#include "../fs/file.h"
#include "../fs/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

int ntr_ctl_inner_path(const char *wsroot, const char *path, const char **ret, struct ntr_err *e)
{
	size_t n = strlen(wsroot);

	if (path[0] == '/') {
		if (strncmp(path, wsroot, n) || (path[n] && path[n] != '/')) {
			ntr_err_set(e, -EINVAL, "find %s", path);
			ntr_err_why(e, "not inside the workspace");
			ntr_err_todo(e, "give a path relative to the workspace, or one that begins with %s",
			        wsroot);
			return -EINVAL;
		}
		path += n;
	}
	while (*path == '/')
		path++;
	*ret = path;
	return 0;
}

int ntr_ctl_path_fail(struct ntr_err *e, int code, const char *verb, const char *path)
{
	bool told = e && e->code;

	ntr_err_default(e, code, "%s %s", verb, *path ? path : "/");
	if (!told && code == -EXDEV)
		ntr_err_why(e, "it leads out of the workspace");
	if (!told && code == -EOPNOTSUPP)
		ntr_err_why(e, "it is no regular file");
	return code;
}

/* What a killed supervisor's session had written becomes a commit before the head is read in its place. */
static int recover_dead(struct ntr_sess *s, struct ntr_head *h, struct ntr_err *e)
{
	int r;

	if (!ntr_sess_hold_unless_call(s))
		return 0;
	r = ntr_session_by_id(s->ctl->store, s->sid, h, e);
	if (!r && (s->live ? ntr_initlink_dead(s->live->link, true) : h->upper != 0))
		r = ntr_sess_recover(s, h, e);
	ntr_sess_release(s);
	return r;
}

/* Takes a live session for a file operation. *ret NULL: it is not live, use the tree. */
static int hold_if_live(struct ntr_ctl *c, const char *session, struct ntr_sess **ret, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_session_get(c->store, session, &h, e);

	*ret = NULL;
	if (!r)
		r = ntr_ctl_sess(c, h.sid, &s);
	if (r)
		return ntr_err_default(e, r, "use session %s", session);
	if (!ntr_sess_is_live(s))
		return h.upper ? recover_dead(s, &h, e) : 0;
	pthread_mutex_lock(&s->call_m); /* not the session itself: reads never wait for a running call */
	if (s->live && !ntr_initlink_dead(s->live->link, true)) {
		*ret = s;
		return 0;
	}
	pthread_mutex_unlock(&s->call_m);
	return recover_dead(s, &h, e);
}

typedef int look_fn(struct ntr_live *l, const char *inner, int *ret_fd, struct ntr_err *e);

static int look_read(struct ntr_live *l, const char *inner, int *ret_fd, struct ntr_err *e)
{
	return ntr_live_open(l, inner, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, ret_fd, e);
}

/* Looks at path in the view of a live session: *ret -1 when it is not. */
static int look_in_view(
        struct ntr_ctl *c, const char *session, const char *path, look_fn *look, int *ret, struct ntr_err *e)
{
	struct ntr_sess *s;
	const char *inner;
	struct ntr_head h;
	int r = hold_if_live(c, session, &s, e);

	*ret = -1;
	if (r || !s)
		return r;
	r = ntr_session_by_id(c->store, s->sid, &h, e);
	if (!r)
		r = ntr_ctl_inner_path(h.wsroot, path, &inner, e);
	if (!r)
		r = look(s->live, *inner ? inner : ".", ret, e);
	pthread_mutex_unlock(&s->call_m);
	return r;
}

static int snap_of(struct ntr_ctl *c, const char *session, const char *rev, struct ntr_snap *ret,
        struct ntr_head *h, struct ntr_err *e)
{
	struct ntr_commit at = {0};
	int r;

	if (!rev) {
		r = ntr_session_get(c->store, session, h, e);
		*ret = ntr_snap_root(c->store, h->root);
		return r;
	}
	r = ntr_ctl_resolve(c, session, rev, &at, h, e);
	*ret = ntr_snap_root(c->store, at.root);
	ntr_commit_done(&at);
	return r;
}

/* What lies in a host directory is nowhere but in the view. */
static int show_mounts(struct ntr_ctl *c, const char *session, const char *path, struct ntr_err *e)
{
	struct ntr_head h;
	const char *inner;

	if (ntr_session_get(c->store, session, &h, NULL) || ntr_ctl_inner_path(h.wsroot, path, &inner, NULL))
		return 0;
	return ntr_mounts_hold(c, &h, inner) ? ntr_ctl_make_live(c, session, e) : 0;
}

static int look_now(struct ntr_ctl *c, const char *session, const char *rev, const char *path, look_fn *look,
        int *ret_fd, struct ntr_snap *ret, const char **ret_inner, struct ntr_err *e)
{
	struct ntr_head h = {0};
	int r = rev ? 0 : show_mounts(c, session, path, e);

	if (!r && !rev)
		r = look_in_view(c, session, path, look, ret_fd, e);

	/* The supervisor died just now: what it leaves becomes the head. Or the mount below the view ended:
	 * the session goes live anew. */
	if (r == -EPIPE || r == -ENOTCONN || r == -ECONNABORTED) {
		if (e)
			*e = (struct ntr_err){0};
		r = r == -EPIPE ? 0 : ntr_ctl_make_live(c, session, e);
		if (!r)
			r = look_in_view(c, session, path, look, ret_fd, e);
	}
	if (!r)
		r = snap_of(c, session, rev, ret, &h, e);
	return r ? r : ntr_ctl_inner_path(*h.wsroot ? h.wsroot : "/workspace", path, ret_inner, e);
}

int ntr_ctl_open_now(struct ntr_ctl *c, const char *session, const char *rev, const char *path, int *ret_fd,
        struct ntr_snap *ret, const char **ret_inner, struct ntr_err *e)
{
	return look_now(c, session, rev, path, look_read, ret_fd, ret, ret_inner, e);
}

int ntr_ctl_list_now(struct ntr_ctl *c, const char *session, const char *rev, const char *path, int *ret_fd,
        struct ntr_snap *ret, const char **ret_inner, struct ntr_err *e)
{
	return look_now(c, session, rev, path, ntr_live_list, ret_fd, ret, ret_inner, e);
}

static int copy_fd(int in, int out)
{
	ntr_autofree char *buf = malloc(1 << 18);

	if (!buf)
		return -ENOMEM;
	for (;;) {
		ssize_t k = read(in, buf, 1 << 18);
		int r;

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k ? -errno : 0;
		r = ntr_write_all(out, buf, (size_t)k);
		if (r)
			return r;
	}
}

static int cat_fd(int in, int out, uint32_t *ret_mode)
{
	struct stat st;

	if (fstat(in, &st))
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -EOPNOTSUPP;
	*ret_mode = st.st_mode;
	return copy_fd(in, out);
}

static int cat_tree(const struct ntr_snap *snap, const char *path, int out, uint32_t *ret_mode)
{
	ntr_autofree struct ntr_inode *in = malloc(sizeof *in);
	int r = ntr_path_inode(snap, path, in);

	if (r)
		return r;
	if (S_ISDIR(in->mode))
		return -EISDIR;
	if (!S_ISREG(in->mode))
		return S_ISLNK(in->mode) ? -ELOOP : -EOPNOTSUPP;
	*ret_mode = in->mode;
	return ntr_file_to_stream(snap, in, out);
}

/* *ret_again: the mount below the view ended before anything was written; or the view has to be asked. */
static int cat_once(struct ntr_ctl *c, const char *session, const char *rev, const char *path, int fd,
        uint32_t *ret_mode, bool *ret_again, struct ntr_err *e)
{
	ntr_autoclose int in = -1;
	struct ntr_snap snap;
	const char *inner;
	int r = ntr_ctl_open_now(c, session, rev, path, &in, &snap, &inner, e);

	*ret_again = false;
	if (r)
		return r;
	r = in >= 0 ? cat_fd(in, fd, ret_mode) : cat_tree(&snap, inner, fd, ret_mode);
	if (in >= 0)
		*ret_again = (r == -ENOTCONN || r == -ECONNABORTED) && !lseek(in, 0, SEEK_CUR);
	else
		*ret_again = !rev && ntr_ctl_asks_view(r);
	return r;
}

int ntr_ctl_cat(struct ntr_ctl *c, const char *session, const char *rev, const char *path, int fd,
        uint32_t *ret_mode, struct ntr_err *e)
{
	bool again;
	int r = cat_once(c, session, rev, path, fd, ret_mode, &again, e);

	if (again) {
		r = ntr_ctl_make_live(c, session, e);
		if (!r)
			r = cat_once(c, session, rev, path, fd, ret_mode, &again, e);
	}
	if (r == -ELOOP && rev)
		r = -EOPNOTSUPP;
	return r ? ntr_ctl_path_fail(e, r, "read", path) : 0;
}

/* ---- put ---- */

/* The input is taken to an ordinary file first where it is no file: its size must be known to store it. */
static int spool(const char *dir, int in, int *ret)
{
	ntr_autoclose int tmp = -1;
	struct stat st;
	int r;

	if (!fstat(in, &st) && S_ISREG(st.st_mode)) {
		*ret = fcntl(in, F_DUPFD_CLOEXEC, 3);
		return *ret < 0 ? -errno : 0;
	}
	tmp = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (tmp < 0)
		return -errno;
	r = copy_fd(in, tmp);
	if (!r && lseek(tmp, 0, SEEK_SET) < 0)
		r = -errno;
	if (!r)
		*ret = ntr_steal_fd(&tmp);
	return r;
}

static int put_content(
        struct ntr_txn *t, uint64_t dir, const char *name, int fd, uint32_t mode, struct ntr_inode *in)
{
	struct timespec now;
	struct stat st;
	uint64_t ino;
	uint8_t dt;
	bool is_new, cut;
	int r = ntr_dirent_get(ntr_txn_snap(t), dir, name, strlen(name), &ino, &dt);

	clock_gettime(CLOCK_REALTIME, &now);
	if (fstat(fd, &st))
		return -errno;
	is_new = r == -ENOENT;
	if (is_new)
		r = ntr_inode_new(t, S_IFREG | (mode & 07777), in);
	else if (!r)
		r = ntr_inode_get(ntr_txn_snap(t), ino, in);
	if (!r && !S_ISREG(in->mode))
		r = S_ISDIR(in->mode) ? -EISDIR : -ELOOP;
	if (!r)
		r = ntr_file_take_fd(t, in, fd, (uint64_t)st.st_size, &cut);
	if (r)
		return r;
	return is_new ? ntr_tree_create(t, dir, name, in, &now) : ntr_tree_written(t, in, &now);
}

static int put_in_tree(struct ntr_ctl *c, struct ntr_head *h, const char *path, int fd, uint32_t mode,
        struct ntr_commit *ret, struct ntr_err *e)
{
	ntr_autofree char *parent = strdup(path), *desc = NULL;
	ntr_autofree struct ntr_inode *in = malloc(sizeof *in);
	ntr_autojson json_t *d =
	        json_pack("{s:s,s:o}", "tool", "put", "path", ntr_json_bytes(path, strlen(path)));
	struct ntr_stats st = {.modified = 1};
	struct ntr_snap snap = ntr_snap_root(c->store, h->root);
	struct ntr_txn *txn;
	uint64_t dir, old;
	char *slash;
	int r;

	if (!parent || !in || !d || !(desc = json_dumps(d, JSON_COMPACT)))
		return -ENOMEM;
	slash = strrchr(parent, '/');
	if (slash)
		*slash = '\0';
	if (ntr_path_lookup(&snap, path, &old) == -ENOENT)
		st = (struct ntr_stats){.created = 1};
	r = ntr_path_lookup(&snap, slash ? parent : "", &dir);
	if (!r)
		r = ntr_txn_begin(c->store, h->root, &txn);
	if (r)
		return r;
	r = put_content(txn, dir, slash ? slash + 1 : path, fd, mode, in);
	if (r) {
		ntr_txn_abort(txn);
		return r;
	}
	return ntr_store_commit(c->store, h, txn, desc, &st, ret, e);
}

/* The file as it is, or a new one. */
static int open_to_put(struct ntr_live *l, const char *path, uint32_t mode, int *ret, bool *ret_new)
{
	int r = ntr_live_open(l, path, O_WRONLY | O_CREAT | O_EXCL | O_NOCTTY, mode & 07777, ret, NULL);

	*ret_new = !r;
	if (r == -EEXIST)
		r = ntr_live_open(l, path, O_WRONLY | O_NOCTTY, 0, ret, NULL);
	if (r == -ENOENT) /* a symlink to what is not there */
		r = ntr_live_open(l, path, O_WRONLY | O_CREAT | O_NOCTTY, mode & 07777, ret, NULL);
	return r;
}

/* Room is taken before the first byte changes, so that a full disk does not cost the old content; what could
 * not be taken whole is given back. */
static int take_room(int fd, off_t want, off_t have)
{
	int r;

	if (!want || !fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, want) || (errno != ENOSPC && errno != EDQUOT))
		return 0;
	r = -errno;
	return ftruncate(fd, have) ? -errno : r;
}

static int overwrite(int in, int out)
{
	struct stat from, to;
	int r;

	if (fstat(in, &from) || fstat(out, &to))
		return -errno;
	if (!S_ISREG(to.st_mode))
		return copy_fd(in, out);
	r = take_room(out, from.st_size, to.st_size);
	if (!r)
		r = copy_fd(in, out);
	if (!r && ftruncate(out, lseek(out, 0, SEEK_CUR)))
		r = -errno;
	return r;
}

static int put_in_view(struct ntr_sess *s, struct ntr_head *h, const char *path, int fd, uint32_t mode,
        struct ntr_commit *ret, struct ntr_err *e)
{
	ntr_autoclose int out = -1;
	bool is_new = false;
	int r = open_to_put(s->live, path, mode, &out, &is_new);

	if (!r)
		r = overwrite(fd, out);
	ntr_closep(&out);
	out = -1;
	if (r && is_new)
		ntr_initlink_do(s->live->link,
		        json_pack("{s:s,s:s,s:o}", "op", "pathop", "kind", "unlink", "path",
		                ntr_json_bytes(path, strlen(path))),
		        NULL, 0, NULL, NULL, NULL);
	if (r)
		s->live->dirty = true;
	return r ? r
	         : ntr_sess_commit(s, h,
	                   json_pack("{s:s,s:o}", "tool", "put", "path", ntr_json_bytes(path, strlen(path))),
	                   ret, NULL, e);
}

int ntr_ctl_put(struct ntr_ctl *c, const char *session, const char *path, int fd, uint32_t mode,
        char commit[NTR_COMMIT_HEX + 1], struct ntr_err *e)
{
	struct ntr_commit done = {0};
	ntr_autoclose int in = -1;
	struct ntr_sess *s;
	struct ntr_head h;
	const char *inner;
	int r = ntr_ctl_find_or_make(c, session, e);

	commit[0] = '\0';
	if (!r && (r = spool(ntr_store_path(c->store), fd, &in))) /* who writes slowly keeps nobody waiting */
		return ntr_ctl_path_fail(e, r, "write", path);
	if (!r)
		r = ntr_ctl_hold(c, session, NULL, &s, &h, e);
	if (r)
		return r;
	r = ntr_ctl_inner_path(h.wsroot, path, &inner, e);
	if (!r && !*inner)
		r = -EISDIR;
	if (!r && s->live)
		r = ntr_sess_live(s, &h, e);
	else if (!r && h.upper)
		r = ntr_sess_recover(s, &h, e);
	if (!r && !s->live && (ntr_mounts_hold(c, &h, inner) || ntr_hooks_of_commit(c, h.name)))
		r = ntr_sess_live(s, &h, e);
	if (!r && !s->live) {
		r = put_in_tree(c, &h, inner, in, mode, &done, e);
		if (ntr_ctl_asks_view(r))
			r = ntr_sess_live(s, &h, e);
	}
	if (!r && !done.id && s->live)
		r = put_in_view(s, &h, inner, in, mode, &done, e);
	if (!r && done.id)
		memcpy(commit, done.hex, NTR_COMMIT_HEX + 1);
	ntr_commit_done(&done);
	ntr_sess_release(s);
	return r ? ntr_ctl_path_fail(e, r, "write", path) : 0;
}
