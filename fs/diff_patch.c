/* Patches: headers in git's extended format are written here (modes, names, ids); hunks and binary bodies are
 * libgit2's. */
#include "diff_impl.h"

#include <errno.h>
#include <git2.h>
#include <stdio.h>

enum { SIDE_MAX = 1 << 30 }; /* a larger file is shown as differing, without a body */

struct side {
	bool there;
	uint32_t git_mode;
	uint8_t *data;
	size_t len;
	char id[GIT_OID_HEXSZ + 1];
};

/* git's init is counted; done at first use and kept for the life of the process. */
static void git_ready(void)
{
	static int once;

	if (!__atomic_exchange_n(&once, 1, __ATOMIC_ACQ_REL))
		git_libgit2_init();
}

static bool git_knows(uint32_t mode)
{
	return S_ISREG(mode) || S_ISLNK(mode);
}

static uint32_t git_mode(uint32_t mode)
{
	return S_ISLNK(mode) ? 0120000 : mode & 0100 ? 0100755 : 0100644;
}

static void side_done(struct side *s)
{
	free(s->data);
	*s = (struct side){0};
}

static int side_read(const struct ntr_snap *snap, uint64_t ino, struct side *ret)
{
	ntr_autofree struct ntr_inode *in = malloc(sizeof *in);
	git_oid oid;
	ssize_t k = 0;
	int r;

	*ret = (struct side){0};
	memset(ret->id, '0', GIT_OID_HEXSZ);
	if (!ino)
		return 0;
	r = in ? ntr_inode_get(snap, ino, in) : -ENOMEM;
	if (r || !git_knows(in->mode))
		return r;
	if (in->size > SIDE_MAX)
		return -EFBIG;
	ret->data = malloc(in->size + 1);
	if (!ret->data)
		return -ENOMEM;
	ret->len = in->size;
	if (in->data_kind == NTR_DATA_SYMLINK)
		memcpy(ret->data, in->payload, in->payload_len);
	else
		k = ntr_file_read(snap, in, 0, ret->data, in->size);
	if (k < 0)
		return (int)k;
	ret->there = true;
	ret->git_mode = git_mode(in->mode);
	if (git_odb_hash(&oid, ret->data, ret->len, GIT_OBJECT_BLOB))
		return -EIO;
	git_oid_tostr(ret->id, sizeof ret->id, &oid);
	return 0;
}

/* A name as git prints it in a patch: quoted, C-like, when it holds anything special. */
static void put_name(struct ntr_buf *out, const char *prefix, const char *path)
{
	bool plain = true;

	for (const char *p = path; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7F || *p == '"' || *p == '\\')
			plain = false;
	if (plain) {
		ntr_buf_printf(out, "%s%s", prefix, path);
		return;
	}
	ntr_buf_printf(out, "\"%s", prefix);
	for (const char *p = path; *p; p++) {
		static const char esc[] = "\a\b\t\n\v\f\r\"\\", letter[] = "abtnvfr\"\\";
		const char *at = strchr(esc, *p);

		if (at)
			ntr_buf_printf(out, "\\%c", letter[at - esc]);
		else if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7F)
			ntr_buf_printf(out, "\\%03o", (unsigned char)*p);
		else
			ntr_buf_byte(out, (uint8_t)*p);
	}
	ntr_buf_byte(out, '"');
}

static void put_header(struct ntr_buf *out, const char *path, const struct side *o, const struct side *n)
{
	ntr_buf_str(out, "diff --git ");
	put_name(out, "a/", path);
	ntr_buf_byte(out, ' ');
	put_name(out, "b/", path);
	ntr_buf_byte(out, '\n');
	if (!o->there)
		ntr_buf_printf(out, "new file mode %06o\n", n->git_mode);
	else if (!n->there)
		ntr_buf_printf(out, "deleted file mode %06o\n", o->git_mode);
	else if (o->git_mode != n->git_mode)
		ntr_buf_printf(out, "old mode %06o\nnew mode %06o\n", o->git_mode, n->git_mode);
	if (strcmp(o->id, n->id)) {
		ntr_buf_printf(out, "index %s..%s", o->id, n->id);
		if (o->there && n->there && o->git_mode == n->git_mode)
			ntr_buf_printf(out, " %06o", o->git_mode);
		ntr_buf_byte(out, '\n');
	}
}

struct body {
	struct ntr_buf *out;
	const char *path;
	const struct side *o, *n;
	bool named; /* the --- and +++ lines are out */
};

static void put_names(struct body *b)
{
	ntr_buf_str(b->out, "--- ");
	if (b->o->there)
		put_name(b->out, "a/", b->path);
	else
		ntr_buf_str(b->out, "/dev/null");
	ntr_buf_str(b->out, "\n+++ ");
	if (b->n->there)
		put_name(b->out, "b/", b->path);
	else
		ntr_buf_str(b->out, "/dev/null");
	ntr_buf_byte(b->out, '\n');
	b->named = true;
}

static int on_line(
        const git_diff_delta *delta, const git_diff_hunk *hunk, const git_diff_line *line, void *user)
{
	struct body *b = user;

	(void)delta;
	(void)hunk;
	if (line->origin == GIT_DIFF_LINE_FILE_HDR)
		return 0;
	if (line->origin != GIT_DIFF_LINE_BINARY && !b->named)
		put_names(b);
	if (line->origin == GIT_DIFF_LINE_CONTEXT || line->origin == GIT_DIFF_LINE_ADDITION ||
	        line->origin == GIT_DIFF_LINE_DELETION)
		ntr_buf_byte(b->out, (uint8_t)line->origin);
	ntr_buf_add(b->out, line->content, line->content_len);
	return b->out->err ? GIT_EUSER : 0;
}

static int make_patch(const struct side *o, const struct side *n, git_patch **ret)
{
	git_diff_options opt = GIT_DIFF_OPTIONS_INIT;

	git_ready();
	opt.flags = GIT_DIFF_SHOW_BINARY | GIT_DIFF_INCLUDE_UNTRACKED;
	opt.id_abbrev = GIT_OID_HEXSZ;
	return git_patch_from_buffers(ret, o->there ? (const char *)o->data : NULL, o->len, "f",
	               n->there ? (const char *)n->data : NULL, n->len, "f", &opt)
	               ? -EIO
	               : 0;
}

static int put_patch(struct ntr_buf *out, const char *path, const struct side *o, const struct side *n)
{
	struct body b = {.out = out, .path = path, .o = o, .n = n};
	git_patch *patch = NULL;
	int r;

	put_header(out, path, o, n);
	if (!strcmp(o->id, n->id) || (!o->len && !n->len))
		return out->err;
	r = make_patch(o, n, &patch);
	if (!r && git_patch_print(patch, on_line, &b))
		r = -EIO;
	git_patch_free(patch);
	return r ? r : out->err;
}

static int put_entry(
        struct ntr_store *s, uint64_t a, uint64_t b, const struct ntr_diff_entry *en, struct ntr_buf *out)
{
	struct ntr_snap sa = ntr_snap_root(s, a), sb = ntr_snap_root(s, b);
	ntr_auto(side_done) struct side o = {0};
	ntr_auto(side_done) struct side n = {0};
	struct side none = {0};
	int r = side_read(&sa, en->old_ino, &o);

	if (!r)
		r = side_read(&sb, en->new_ino, &n);
	if (r == -EFBIG) {
		ntr_buf_str(out, "# too large for a patch: ");
		put_name(out, "", en->path);
		return ntr_buf_byte(out, '\n');
	}
	if (r || (!o.there && !n.there))
		return r;
	memset(none.id, '0', GIT_OID_HEXSZ);
	if (o.there && n.there &&
	        (o.git_mode ^ n.git_mode) & 0170000) { /* file <-> symlink: git's way is two patches */
		r = put_patch(out, en->path, &o, &none);
		return r ? r : put_patch(out, en->path, &none, &n);
	}
	if (o.there && n.there && o.git_mode == n.git_mode && !strcmp(o.id, n.id))
		return 0; /* only what git cannot carry differs */
	return put_patch(out, en->path, &o, &n);
}

int ntr_diff_patch(
        struct ntr_store *s, uint64_t a, uint64_t b, const struct ntr_diff *d, int fd, struct ntr_err *e)
{
	git_ready();
	for (size_t i = 0; i < d->n; i++) {
		ntr_auto(ntr_buf_done) struct ntr_buf out = {0};
		int r;

		if (!git_knows(d->v[i].old_mode) && !git_knows(d->v[i].new_mode))
			continue;
		r = put_entry(s, a, b, &d->v[i], &out);
		if (!r)
			r = ntr_write_all(fd, out.data, out.len);
		if (r)
			return ntr_err_set(e, r, "write the patch of %s", d->v[i].path);
	}
	return 0;
}

static int stat_entry(struct ntr_store *s, uint64_t a, uint64_t b, const struct ntr_diff_entry *en,
        int64_t *ret_added, int64_t *ret_removed)
{
	struct ntr_snap sa = ntr_snap_root(s, a), sb = ntr_snap_root(s, b);
	ntr_auto(side_done) struct side o = {0};
	ntr_auto(side_done) struct side n = {0};
	git_patch *patch = NULL;
	size_t add = 0, del = 0;
	int r = side_read(&sa, en->old_ino, &o);

	*ret_added = *ret_removed = 0;
	if (!r)
		r = side_read(&sb, en->new_ino, &n);
	if (r == -EFBIG) {
		*ret_added = *ret_removed = -1;
		return 0;
	}
	if (r || (!o.there && !n.there) || !strcmp(o.id, n.id))
		return r;
	r = make_patch(&o, &n, &patch);
	if (!r && (git_patch_get_delta(patch)->flags & GIT_DIFF_FLAG_BINARY))
		*ret_added = *ret_removed = -1;
	else if (!r && !git_patch_line_stats(NULL, &add, &del, patch)) {
		*ret_added = (int64_t)add;
		*ret_removed = (int64_t)del;
	}
	git_patch_free(patch);
	return r;
}

int ntr_diff_stat(struct ntr_store *s, uint64_t a, uint64_t b, const struct ntr_diff *d,
        int (*fn)(void *user, const struct ntr_diff_entry *en, int64_t added, int64_t removed), void *user)
{
	git_ready();
	for (size_t i = 0; i < d->n; i++) {
		int64_t added, removed;
		int r = stat_entry(s, a, b, &d->v[i], &added, &removed);

		if (!r)
			r = fn(user, &d->v[i], added, removed);
		if (r)
			return r;
	}
	return 0;
}
