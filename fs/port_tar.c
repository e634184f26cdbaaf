/* Export as a tar in the pax format. */
#include "port_impl.h"

#include <dirent.h>
#include <errno.h>

enum { BUF_SIZE = 1 << 20 };

struct level {
	size_t path_len;
	struct ntr_listing list;
	size_t at;
};

struct taker {
	const struct ntr_snap *s;
	struct archive *a;
	struct archive_entry *en;
	struct ntr_buf path, levels;
	struct ntr_linkmap links;
	struct ntr_meter meter;
	uint8_t *buf;
};

/* The archive's own error, as negative errno. */
static int archive_code(struct archive *a)
{
	int k = archive_errno(a);

	return k > 0 && k < 4096 ? -k : -EIO;
}

static int add_xattr(void *user, const char *name, const uint8_t *val, size_t len)
{
	struct archive_entry *en = user;

	if (ntr_acl_is_xattr(name))
		return ntr_acl_to_entry(en, name, val, len);
	archive_entry_xattr_add_entry(en, name, val, len);
	return 0;
}

/* Data ranges, when there are holes. A file that is all hole has one empty range. */
static int add_sparse(struct taker *k, const struct ntr_inode *in)
{
	uint64_t off = 0, data, hole;
	bool any = false;
	int r;

	if (in->data_kind != NTR_DATA_EXTENTS)
		return 0;
	r = ntr_file_seek(k->s, in, 0, SEEK_HOLE, &hole);
	if (r || hole == in->size)
		return r;
	while (off < in->size && !(r = ntr_file_seek(k->s, in, off, SEEK_DATA, &data))) {
		r = ntr_file_seek(k->s, in, data, SEEK_HOLE, &hole);
		if (r)
			return r;
		archive_entry_sparse_add_entry(k->en, (la_int64_t)data, (la_int64_t)(hole - data));
		any = true;
		off = hole;
	}
	if (r && r != -ENXIO)
		return r;
	if (!any)
		archive_entry_sparse_add_entry(k->en, 0, 0);
	return 0;
}

static int set_symlink(struct archive_entry *en, const struct ntr_inode *in)
{
	char target[4096];

	if (in->payload_len >= sizeof target)
		return -EUCLEAN;
	memcpy(target, in->payload, in->payload_len);
	target[in->payload_len] = '\0';
	archive_entry_copy_symlink(en, target);
	return 0;
}

static void set_times(struct archive_entry *en, const struct ntr_inode *in)
{
	struct timespec m = ntr_archive_time(in->mtime.tv_sec, in->mtime.tv_nsec, true);
	struct timespec a = ntr_archive_time(in->atime.tv_sec, in->atime.tv_nsec, true);

	archive_entry_set_mtime(en, m.tv_sec, m.tv_nsec);
	archive_entry_set_atime(en, a.tv_sec, a.tv_nsec);
}

/* Fills the entry with everything but a hard link's target. */
static int fill_entry(struct taker *k, const char *path, const struct ntr_inode *in)
{
	struct archive_entry *en = archive_entry_clear(k->en);
	int r = 0;

	archive_entry_copy_pathname(en, path);
	archive_entry_set_filetype(en, in->mode & S_IFMT);
	archive_entry_set_perm(en, in->mode & 07777);
	archive_entry_set_uid(en, ntr_store_uid_out(k->s->store, in->uid));
	archive_entry_set_gid(en, ntr_store_gid_out(k->s->store, in->gid));
	set_times(en, in);
	if (S_ISREG(in->mode))
		archive_entry_set_size(en, (la_int64_t)in->size);
	if (S_ISCHR(in->mode) || S_ISBLK(in->mode))
		archive_entry_set_rdev(en, (dev_t)in->rdev);
	if (S_ISLNK(in->mode))
		r = set_symlink(en, in);
	if (!r && in->flags & NTR_INODE_HAS_XATTR)
		r = ntr_xattr_each(k->s, in->ino, add_xattr, en);
	return r ? r : S_ISREG(in->mode) ? add_sparse(k, in) : 0;
}

static int write_bytes(struct taker *k, const uint8_t *p, size_t n)
{
	while (n) {
		la_ssize_t w = archive_write_data(k->a, p, n);

		if (w <= 0)
			return w < 0 ? archive_code(k->a) : -EIO;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

/* The writer wants the holes' bytes too; it leaves them out by the ranges it was told. */
static int write_hole(struct taker *k, uint64_t n)
{
	int r = 0;

	memset(k->buf, 0, (size_t)NTR_MIN(n, (uint64_t)BUF_SIZE));
	while (!r && n) {
		size_t len = (size_t)NTR_MIN(n, (uint64_t)BUF_SIZE);

		r = write_bytes(k, k->buf, len);
		n -= len;
	}
	return r;
}

static int write_range(struct taker *k, const struct ntr_inode *in, uint64_t off, uint64_t end)
{
	while (off < end) {
		size_t len = (size_t)NTR_MIN(end - off, (uint64_t)BUF_SIZE);
		ssize_t n = ntr_file_read(k->s, in, off, k->buf, len);
		int r = n < 0 ? (int)n : write_bytes(k, k->buf, (size_t)n);

		if (r)
			return r;
		off += (uint64_t)n;
	}
	return 0;
}

static int write_content(struct taker *k, const struct ntr_inode *in)
{
	uint64_t off = 0, data, hole;

	while (off < in->size) {
		int r = ntr_file_seek(k->s, in, off, SEEK_DATA, &data);

		if (r == -ENXIO)
			return write_hole(k, in->size - off);
		if (!r)
			r = write_hole(k, data - off);
		if (!r)
			r = ntr_file_seek(k->s, in, data, SEEK_HOLE, &hole);
		if (!r)
			r = write_range(k, in, data, hole);
		if (r)
			return r;
		off = hole;
	}
	k->meter.bytes += in->size;
	return 0;
}

static int write_entry(struct taker *k, const char *path, const struct ntr_inode *in)
{
	const char *first = NULL;
	int r = fill_entry(k, path, in);

	if (!r && in->nlink > 1 && !S_ISDIR(in->mode))
		r = ntr_linkmap_note(&k->links, in->ino, path, &first);
	if (r)
		return r;
	if (first) {
		archive_entry_sparse_clear(k->en);
		archive_entry_set_size(k->en, 0);
		archive_entry_copy_hardlink(k->en, first);
	}
	if (archive_write_header(k->a, k->en) < ARCHIVE_WARN)
		return archive_code(k->a);
	if (!first && S_ISREG(in->mode))
		r = write_content(k, in);
	if (!r && archive_write_finish_entry(k->a) < ARCHIVE_WARN)
		r = archive_code(k->a);
	ntr_meter_tick(&k->meter);
	return r;
}

static int push(struct taker *k, uint64_t ino)
{
	struct level l = {.path_len = k->path.len};
	int r = ntr_listing_read(k->s, ino, &l.list);

	if (!r)
		r = ntr_buf_add(&k->levels, &l, sizeof l);
	if (r)
		ntr_listing_done(&l.list);
	return r;
}

static struct level *top(struct taker *k)
{
	return (struct level *)(void *)(k->levels.data + k->levels.len - sizeof(struct level));
}

static int step(struct taker *k)
{
	struct level *l = top(k);
	const struct ntr_listed *x;
	struct ntr_inode in;
	const char *path;
	int r;

	if (l->at == l->list.n) {
		ntr_listing_done(&l->list);
		k->levels.len -= sizeof *l;
		return 0;
	}
	x = &l->list.v[l->at++];
	k->path.len = l->path_len;
	if (l->path_len)
		ntr_buf_byte(&k->path, '/');
	r = ntr_buf_str(&k->path, x->name);
	if (!r)
		r = ntr_inode_get(k->s, x->ino, &in);
	if (r)
		return r == -ENOENT ? -EUCLEAN : r;
	if (S_ISSOCK(in.mode)) /* no tar can hold one */
		return 0;
	path = ntr_buf_cstr(&k->path);
	r = path ? write_entry(k, path, &in) : -ENOMEM;
	return r || !S_ISDIR(in.mode) ? r : push(k, x->ino);
}

static int walk(struct taker *k, uint64_t ino)
{
	struct ntr_inode in;
	int r = ntr_inode_get(k->s, ino, &in);

	if (!r && !S_ISDIR(in.mode))
		r = -ENOTDIR;
	if (!r)
		r = write_entry(k, "./", &in);
	if (!r)
		r = push(k, ino);
	while (!r && k->levels.len)
		r = step(k);
	if (!r && archive_write_close(k->a) != ARCHIVE_OK)
		r = archive_code(k->a);
	return r;
}

static int open_tar(struct taker *k, int fd)
{
	k->a = archive_write_new();
	k->en = archive_entry_new();
	k->buf = malloc(BUF_SIZE);
	if (!k->a || !k->en || !k->buf)
		return -ENOMEM;
	if (archive_write_set_format_pax(k->a) != ARCHIVE_OK ||
	        archive_write_set_bytes_per_block(k->a, 1 << 16) != ARCHIVE_OK ||
	        archive_write_set_bytes_in_last_block(k->a, 512) != ARCHIVE_OK ||
	        archive_write_open_fd(k->a, fd) != ARCHIVE_OK)
		return archive_code(k->a);
	return 0;
}

static void taker_done(struct taker *k)
{
	for (; k->levels.len; k->levels.len -= sizeof(struct level))
		ntr_listing_done(&top(k)->list);
	ntr_buf_done(&k->levels);
	ntr_buf_done(&k->path);
	ntr_linkmap_done(&k->links);
	if (k->a)
		archive_write_free(k->a);
	archive_entry_free(k->en);
	free(k->buf);
}

static int fail(struct taker *k, int code, struct ntr_err *e)
{
	const char *path = ntr_buf_cstr(&k->path), *text = k->a ? archive_error_string(k->a) : NULL;

	ntr_err_set(e, code, "export '%s' as a tar", path && *path ? path : "/");
	if (text)
		ntr_err_why(e, "%s: %s", text, strerror(-code));
	ntr_err_todo(e, "the tar is incomplete after %ju entries%s", (uintmax_t)k->meter.entries,
	        code == -ENOSPC || code == -EDQUOT ? ": free some space, then do it again" : "");
	return code;
}

int ntr_export_tar(
        const struct ntr_snap *s, uint64_t ino, int fd, const struct ntr_progress *p, struct ntr_err *e)
{
	ntr_auto(taker_done) struct taker k = {.s = s, .meter.p = p};
	void *locale = ntr_archive_locale(true);
	int r = open_tar(&k, fd);

	if (!r)
		r = walk(&k, ino);
	ntr_archive_locale_restore(locale);
	if (r)
		return fail(&k, r, e);
	ntr_meter_end(&k.meter);
	return 0;
}
