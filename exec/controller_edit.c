/* Files for an agent's tools: file_write, file_edit, and reading one whole.
 *
 * A change holds the session from the first look at the file to the commit, so that what was read is what is
 * replaced. A session that is not live is not made so: the change is made in the tree, unless a symlink or
 * ".." is on the way, which only the view can follow. */
#include "controller_edit.h"
#include "controller_tree.h"
#include "tools.h"

#include "../fs/file.h"
#include "../fs/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { NEEDS_VIEW = 1 }; /* a result of what was tried in the tree */

struct change {
	const char *tool, *path; /* path as it was given */
	const void *data;        /* file_write */
	size_t n;
	const struct ntr_edit *ed; /* file_edit */
	bool no_commit;            /* the change is made in the view, and stays uncommitted work */
};

struct file { /* the one that is to change */
	struct ntr_sess *s;
	struct ntr_head h;
	char *abs;
	const char *inner;
	bool there;
	uint64_t size;           /* of the old content, */
	struct ntr_buf old, new; /* which may not have been read */
};

static void file_done(struct file *f)
{
	free(f->abs);
	ntr_buf_done(&f->old);
	ntr_buf_done(&f->new);
}

/* ---- what the file becomes */

static bool is_utf8(const void *p, size_t n)
{
	ntr_autojson json_t *s = json_stringn(p, n);

	return s != NULL;
}

static int edited(const struct change *ch, struct file *f, struct ntr_file_result *ret)
{
	ntr_auto(ntr_buf_done) struct ntr_buf why = {0};
	const char *text = f->old.len ? (const char *)f->old.data : "";
	struct ntr_edit ed = *ch->ed;
	enum ntr_edit_mode mode = NTR_EDIT_EXACT;
	int r;

	if (!is_utf8(text, f->old.len))
		return ntr_file_tell(
		        ret, ntr_sprintf("%s is no UTF-8 text: change it with a program", ch->path));
	ed.path = ch->path;
	r = ntr_edit_apply(text, f->old.len, &ed, &f->new, &ret->count, &mode, &why);
	if (r == -EINVAL)
		return ntr_file_tell(ret, ntr_buf_cstr(&why) ? (char *)ntr_steal_ptr(why.data) : NULL);
	ret->mode = ntr_edit_mode_word(mode);
	if (!r && mode == NTR_EDIT_ALREADY)
		r = ntr_buf_add(&f->new, text, f->old.len);
	return r;
}

/* f->new from f->old. Afterwards ret->why may say that it cannot be done. */
static int make_new(const struct change *ch, struct file *f, struct ntr_file_result *ret)
{
	if (!ch->ed)
		return ntr_buf_add(&f->new, ch->data, ch->n);
	return f->there ? edited(ch, f, ret) : -ENOENT;
}

static bool unchanged(const struct file *f)
{
	return f->there && f->size == f->new.len && f->old.len == f->new.len &&
	       (!f->new.len || !memcmp(f->old.data, f->new.data, f->new.len));
}

static json_t *describe(const struct change *ch, const struct file *f, const struct ntr_file_result *ret)
{
	json_t *d =
	        json_pack("{s:s,s:o}", "tool", ch->tool, "path", ntr_json_bytes(f->inner, strlen(f->inner)));

	if (d && ch->ed)
		json_object_set_new(d, "replaced", json_integer(ret->count));
	else if (d)
		json_object_set_new(d, "bytes", json_integer((json_int_t)ch->n));
	return d;
}

/* Of a file that is only written its content is read to see whether it changes at all. */
static size_t read_limit(const struct change *ch)
{
	return ch->ed ? NTR_FILE_EDIT_MAX : ch->n;
}

/* ---- in the tree */

static int read_tree(const struct change *ch, struct file *f, struct ntr_inode *in)
{
	struct ntr_snap snap = ntr_snap_root(f->s->ctl->store, f->h.root);
	uint64_t ino;
	ssize_t n;
	int r = ntr_path_lookup(&snap, f->inner, &ino);

	f->there = !r;
	if (r)
		return r == -ENOENT ? 0 : r;
	r = ntr_inode_get(&snap, ino, in);
	if (r)
		return r;
	if (S_ISLNK(in->mode))
		return NEEDS_VIEW;
	if (!S_ISREG(in->mode))
		return S_ISDIR(in->mode) ? -EISDIR : -EOPNOTSUPP;
	if (geteuid() && !(in->mode & S_IWUSR))
		return -EACCES;
	f->size = in->size;
	if (f->size > read_limit(ch))
		return ch->ed ? -EFBIG : 0;
	if (ntr_buf_reserve(&f->old, in->size))
		return -ENOMEM;
	n = ntr_file_read(&snap, in, 0, f->old.data, in->size);
	if (n < 0)
		return (int)n;
	f->old.len = (size_t)n;
	return 0;
}

/* The directory that holds the path, with those made that are missing; *ret_name: the rest. */
static int make_parents(struct ntr_txn *t, const char *path, unsigned mask, const struct timespec *now,
        uint64_t *ret_dir, const char **ret_name, uint64_t *ret_made)
{
	ntr_autofree struct ntr_inode *in = malloc(sizeof *in);
	uint64_t dir = NTR_INO_ROOT, next;
	const char *slash;
	int r = in ? 0 : -ENOMEM;

	for (; !r && (slash = strchr(path, '/')); path = slash + 1) {
		char name[256];
		size_t n = (size_t)(slash - path);
		uint8_t dt = DT_DIR;

		if (n > 255)
			return -ENAMETOOLONG;
		memcpy(name, path, n);
		name[n] = '\0';
		r = ntr_dirent_get(ntr_txn_snap(t), dir, name, n, &next, &dt);
		if (r == -ENOENT) {
			r = ntr_inode_new(t, S_IFDIR | (0777 & ~mask), in);
			if (!r)
				r = ntr_tree_create(t, dir, name, in, now);
			next = in->ino;
			++*ret_made;
		}
		if (!r && dt != DT_DIR)
			r = dt == DT_LNK ? NEEDS_VIEW : -ENOTDIR;
		dir = next;
	}
	*ret_dir = dir;
	*ret_name = path;
	return r;
}

static int write_tree(struct file *f, struct ntr_inode *in, struct ntr_txn *t, uint64_t *ret_made)
{
	struct timespec now;
	const char *name;
	uint64_t dir;
	int r;

	clock_gettime(CLOCK_REALTIME, &now);
	if (f->there) {
		r = ntr_file_take_mem(t, in, f->new.data, f->new.len);
		return r ? r : ntr_tree_written(t, in, &now);
	}
	r = make_parents(t, f->inner, f->s->state->umask, &now, &dir, &name, ret_made);
	if (r)
		return r;
	if (strlen(name) > 255)
		return -ENAMETOOLONG;
	r = ntr_inode_new(t, S_IFREG | (0666 & ~f->s->state->umask), in);
	if (!r)
		r = ntr_file_take_mem(t, in, f->new.data, f->new.len);
	++*ret_made;
	return r ? r : ntr_tree_create(t, dir, name, in, &now);
}

static int commit_tree(const struct change *ch, struct file *f, struct ntr_inode *in,
        const struct ntr_file_result *ret, struct ntr_commit *done, struct ntr_err *e)
{
	ntr_autojson json_t *d = describe(ch, f, ret);
	ntr_autofree char *desc = d ? json_dumps(d, JSON_COMPACT) : NULL;
	struct ntr_stats st = {.modified = f->there};
	struct ntr_txn *t;
	int r = desc ? ntr_txn_begin(f->s->ctl->store, f->h.root, &t) : -ENOMEM;

	if (r)
		return r;
	r = write_tree(f, in, t, &st.created);
	if (!r)
		return ntr_store_commit(f->s->ctl->store, &f->h, t, desc, &st, done, e);
	ntr_txn_abort(t);
	return r;
}

/* 0 (see ret->why), NEEDS_VIEW, or negative errno. */
static int in_tree(const struct change *ch, struct file *f, struct ntr_file_result *ret,
        struct ntr_commit *done, struct ntr_err *e)
{
	ntr_autofree struct ntr_inode *in = malloc(sizeof *in);
	int r = in ? read_tree(ch, f, in) : -ENOMEM;

	if (r == -ENOTDIR)
		r = NEEDS_VIEW;
	if (!r)
		r = make_new(ch, f, ret);
	if (r || ret->why || unchanged(f))
		return r;
	ret->created = !f->there;
	return commit_tree(ch, f, in, ret, done, e);
}

/* ---- in the view */

static int read_fd(int fd, size_t size, struct ntr_buf *b)
{
	if (ntr_buf_reserve(b, size + 1))
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, b->data + b->len, size + 1 - b->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		b->len += (size_t)n;
		if (!n || b->len > size)
			return b->len > size ? -EAGAIN : 0; /* a background process appends to it just now */
	}
}

static int read_old(const struct change *ch, struct file *f, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EOPNOTSUPP;
	if (geteuid() &&
	        !(st.st_mode & S_IWUSR)) /* the supervisor may do more than the session's processes */
		return -EACCES;
	f->size = (uint64_t)st.st_size;
	if (f->size > read_limit(ch))
		return ch->ed ? -EFBIG : 0;
	return read_fd(fd, (size_t)st.st_size, &f->old);
}

static int read_view(const struct change *ch, struct file *f)
{
	ntr_autoclose int fd = -1;
	int r = ntr_live_open(f->s->live, f->inner, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &fd, NULL);

	f->there = r != -ENOENT;
	return !f->there ? 0 : r ? r : read_old(ch, f, fd);
}

static int path_op(struct ntr_live *l, const char *kind, const char *path, size_t n, unsigned mode)
{
	return ntr_initlink_do(l->link,
	        json_pack("{s:s,s:s,s:o,s:i}", "op", "pathop", "kind", kind, "path", ntr_json_bytes(path, n),
	                "mode", (int)mode),
	        NULL, 0, NULL, NULL, NULL);
}

/* mkdir -p for what leads to the path. */
static int make_parents_view(struct file *f)
{
	int r = 0;

	for (const char *p = strchr(f->inner, '/'); p && !r; p = strchr(p + 1, '/')) {
		r = path_op(
		        f->s->live, "mkdir", f->inner, (size_t)(p - f->inner), 0777 & ~f->s->state->umask);
		if (r == -EEXIST || r == -EBUSY)
			r = 0;
	}
	return r;
}

static int open_new(struct file *f, int *ret)
{
	unsigned mode = 0666 & ~f->s->state->umask;
	int flags = O_WRONLY | O_CREAT | O_NOCTTY;
	int r = ntr_live_open(f->s->live, f->inner, flags | O_EXCL, mode, ret, NULL);

	if (r == -ENOENT) {
		r = make_parents_view(f);
		if (!r)
			r = ntr_live_open(f->s->live, f->inner, flags | O_EXCL, mode, ret, NULL);
	}
	if (r == -EEXIST) /* a symlink to what is not there */
		r = ntr_live_open(f->s->live, f->inner, flags, mode, ret, NULL);
	return r;
}

/* Room is taken before the first byte changes, so that a full disk does not cost the old content. */
static int overwrite(int fd, const struct ntr_buf *b)
{
	struct stat st;
	int r = 0;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EOPNOTSUPP;
	if (b->len && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)b->len) &&
	        (errno == ENOSPC || errno == EDQUOT)) {
		r = -errno;
		return ftruncate(fd, st.st_size) ? -errno : r;
	}
	if (b->len)
		r = ntr_write_all(fd, b->data, b->len);
	return r || !ftruncate(fd, (off_t)b->len) ? r : -errno;
}

/* What was begun is undone as far as it can be, and the rest is work that no commit has. */
static int written(struct file *f, bool open, int r)
{
	if (!r) {
		f->s->live->written = true;
		return 0;
	}
	f->s->live->dirty = true;
	if (!f->there && open)
		path_op(f->s->live, "unlink", f->inner, strlen(f->inner), 0);
	return r;
}

static int write_view(struct file *f)
{
	ntr_autoclose int fd = -1;
	int r = f->there ? ntr_live_open(f->s->live, f->inner, O_WRONLY | O_NOCTTY, 0, &fd, NULL)
	                 : open_new(f, &fd);

	if (!r)
		r = overwrite(fd, &f->new);
	return written(f, fd >= 0, r);
}

/* With one request to the supervisor, where the file can be opened or made just so: *ret_done. */
static int write_at_once(const struct change *ch, struct file *f, bool *ret_done)
{
	ntr_autoclose int fd = -1;
	bool made;
	int r = ntr_live_ensure(f->s->live, f->inner, 0666 & ~f->s->state->umask, &fd, &made);

	*ret_done = !r;
	if (r)
		return 0;
	f->there = !made;
	if (f->there && (r = read_old(ch, f, fd)))
		return r;
	r = ntr_buf_add(&f->new, ch->data, ch->n);
	if (!r && unchanged(f))
		return 0;
	if (!r)
		r = lseek(fd, 0, SEEK_SET) ? -errno : overwrite(fd, &f->new);
	return written(f, true, r);
}

static int write_in_steps(const struct change *ch, struct file *f, struct ntr_file_result *ret)
{
	int r = read_view(ch, f);

	if (!r)
		r = make_new(ch, f, ret);
	return r || ret->why || unchanged(f) ? r : write_view(f);
}

static int in_view(const struct change *ch, struct file *f, struct ntr_file_result *ret,
        struct ntr_commit *done, struct ntr_err *e)
{
	bool at_once = false;
	int r = 0;

	f->old.len = f->new.len = 0;
	if (!ch->ed)
		r = write_at_once(ch, f, &at_once);
	if (!at_once)
		r = write_in_steps(ch, f, ret);
	if (r || ret->why || unchanged(f))
		return r;
	ret->created = !f->there;
	if (ch->no_commit) {
		f->s->live->dirty = true;
		return 0;
	}
	return ntr_sess_commit(f->s, &f->h, describe(ch, f, ret), done, NULL, e);
}

/* ---- the whole */

/* The session, as its files are now, and where in it the path is. *ret_up: only the view can tell. */
static int prepare(const struct change *ch, struct file *f, bool *ret_up, struct ntr_err *e)
{
	int r = 0;

	if (f->s->live)
		r = ntr_sess_live(f->s, &f->h, e);
	else if (f->h.upper)
		r = ntr_sess_recover(f->s, &f->h, e);
	if (!r)
		r = ntr_sess_state(f->s, &f->h, e);
	if (!r)
		r = ntr_file_locate(ch->path, f->s->state->cwd, f->h.wsroot, &f->abs, &f->inner, ret_up);
	if (!r && (ntr_mounts_hold(f->s->ctl, &f->h, f->inner) || ntr_hooks_of_commit(f->s->ctl, f->h.name)))
		*ret_up = true;
	return r;
}

static int change_held(const struct change *ch, struct file *f, struct ntr_file_result *ret,
        struct ntr_commit *done, struct ntr_err *e)
{
	bool up = false;
	int r = prepare(ch, f, &up, e);

	if (!r && !f->s->live)
		r = up || ch->no_commit ? NEEDS_VIEW : in_tree(ch, f, ret, done, e);
	if (r == NEEDS_VIEW || (!r && f->s->live && !done->id && !ret->why)) {
		r = f->s->live ? 0 : ntr_sess_live(f->s, &f->h, e);
		if (!r)
			r = in_view(ch, f, ret, done, e);
	}
	return r < 0 && !(e && e->code) ? ntr_file_explain(ret, r, ch->path, f->h.wsroot) : r;
}

static int change_file(struct ntr_ctl *c, const char *session, const struct change *ch,
        struct ntr_file_result *ret, struct ntr_err *e)
{
	ntr_auto(ntr_commit_done) struct ntr_commit done = {0};
	ntr_auto(file_done) struct file f = {.there = false};
	int r = ntr_ctl_find_or_make(c, session, e);

	*ret = (struct ntr_file_result){0};
	if (!r)
		r = ntr_ctl_hold(c, session, NULL, &f.s, &f.h, e);
	if (r)
		return r;
	r = change_held(ch, &f, ret, &done, e);
	ntr_sess_release(f.s);
	if (r)
		return ntr_err_default(e, r, "%s %s", ch->tool, ch->path);
	ret->size = f.new.len;
	ret->path = ntr_steal_ptr(f.abs);
	if (done.id)
		memcpy(ret->commit, done.hex, sizeof ret->commit);
	return 0;
}

int ntr_ctl_file_write(struct ntr_ctl *c, const char *session, const char *path, const void *data, size_t n,
        bool no_commit, struct ntr_file_result *ret, struct ntr_err *e)
{
	const struct change ch = {
	        .tool = "file_write", .path = path, .data = data, .n = n, .no_commit = no_commit};

	return change_file(c, session, &ch, ret, e);
}

int ntr_ctl_file_edit(struct ntr_ctl *c, const char *session, const char *path, const struct ntr_edit *ed,
        bool no_commit, struct ntr_file_result *ret, struct ntr_err *e)
{
	const struct change ch = {.tool = "file_edit", .path = path, .ed = ed, .no_commit = no_commit};

	return change_file(c, session, &ch, ret, e);
}
