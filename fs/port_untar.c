/* Import of a tar. Nothing in it is trusted: names are taken apart here and looked up in the tree that grows,
 * where no symlink is ever followed. */
#include "port_impl.h"

#include <dirent.h>
#include <errno.h>
#include <linux/limits.h>
#include <sys/sysmacros.h>

struct untar {
	struct ntr_txn *t;
	struct ntr_store *st;
	struct archive *a;
	const char *label;
	struct ntr_err *e;
	struct ntr_meter meter;
	char *dir; /* the last entry's directory and its inode: the next one's is mostly the same */
	uint64_t dir_ino;
};

/* What the archive says of one object. */
struct found {
	uint32_t mode, uid, gid;
	uint64_t rdev;
	struct timespec atime, mtime;
	struct ntr_xattrs x;
};

static int refuse(struct untar *u, int code, const char *path, const char *why)
{
	ntr_err_set(u->e, code, "import '%s': entry '%s'", u->label, path);
	if (why)
		ntr_err_why(u->e, "it %s", why);
	if (why)
		ntr_err_todo(u->e, "nothing was imported; make a tar without it");
	else if (code == -ENOSPC || code == -EDQUOT)
		ntr_err_todo(u->e,
		        "nothing was imported; free space on the store's file system, then do it again");
	else
		ntr_err_todo(u->e, "nothing was imported");
	return code;
}

static int archive_fail(struct untar *u, const char *path)
{
	const char *text = archive_error_string(u->a);
	int code = archive_errno(u->a);

	code = code > 0 && code < 4096 ? -code : -EBADMSG;
	if (path)
		ntr_err_set(u->e, code, "import '%s': entry '%s'", u->label, path);
	else
		ntr_err_set(u->e, code, "read the tar '%s'", u->label);
	ntr_err_why(u->e, "%s", text ? text : "it is damaged");
	ntr_err_todo(u->e, "nothing was imported; check that the tar is whole");
	return code;
}

/* ---- names ---- */

/* The path without ".", empty components and slashes at the end, in fresh memory; or why it cannot be. */
static int clean_path(const char *path, char **ret, const char **ret_why)
{
	size_t n = 0;
	char *out;

	if (*path == '/')
		return *ret_why = "has an absolute name", -EBADMSG;
	out = malloc(strlen(path) + 2);
	if (!out)
		return -ENOMEM;
	for (const char *p = path; *p; p += strspn(p, "/")) {
		size_t k = strcspn(p, "/");

		if (k == 2 && !memcmp(p, "..", 2))
			*ret_why = "has '..' in its name";
		else if (k > NAME_MAX)
			*ret_why = "has a name of more than 255 bytes";
		if (*ret_why) {
			free(out);
			return -EBADMSG;
		}
		if (k != 1 || *p != '.') {
			memcpy(out + n, p, k);
			n += k;
			out[n++] = '/';
		}
		p += k;
	}
	out[n ? n - 1 : 0] = '\0';
	*ret = out;
	return 0;
}

/* A directory that entries lie in but that the tar does not list (yet). */
static int make_parent(struct untar *u, uint64_t dir, const char *name, uint64_t *ret)
{
	struct ntr_inode in;
	int r = ntr_inode_new(u->t, S_IFDIR | 0755, &in);

	if (r)
		return r;
	*ret = in.ino;
	return ntr_name_create(u->t, dir, name, &in, NULL);
}

static int find_parent(struct untar *u, char *path, uint64_t *ret)
{
	const struct ntr_snap *s = ntr_txn_snap(u->t);
	uint64_t ino = NTR_INO_ROOT;

	for (char *p = path, *end; *p; p = end) {
		uint8_t dtype = DT_DIR;
		uint64_t next;
		char old;
		int r;

		end = p + strcspn(p, "/");
		old = *end;
		*end = '\0';
		r = ntr_dirent_get(s, ino, p, (size_t)(end - p), &next, &dtype);
		if (r == -ENOENT)
			r = make_parent(u, ino, p, &next);
		*end = old;
		if (r || dtype != DT_DIR)
			return r ? r : -ENOTDIR;
		ino = next;
		end += old == '/';
	}
	*ret = ino;
	return 0;
}

/* The directory that a clean path lies in and its last component, which begins at *ret_name. */
static int locate(struct untar *u, char *path, uint64_t *ret_dir, const char **ret_name)
{
	char *last = strrchr(path, '/'), *dir;
	int r;

	*ret_name = last ? last + 1 : path;
	if (!last) {
		*ret_dir = NTR_INO_ROOT;
		return 0;
	}
	*last = '\0';
	if (u->dir && !strcmp(u->dir, path)) {
		*last = '/';
		*ret_dir = u->dir_ino;
		return 0;
	}
	r = find_parent(u, path, ret_dir);
	dir = r ? NULL : strdup(path);
	*last = '/';
	if (r)
		return r;
	if (!dir)
		return -ENOMEM;
	free(u->dir);
	u->dir = dir;
	u->dir_ino = *ret_dir;
	return 0;
}

/* ---- metadata ---- */

static int id_of(la_int64_t id, uint32_t *ret)
{
	if (id < 0 || id >= NTR_OWNER_ID)
		return -EBADMSG;
	*ret = (uint32_t)id;
	return 0;
}

static int read_xattrs(struct archive_entry *en, struct found *f, const char **ret_why)
{
	const char *name;
	const void *val;
	size_t len;

	archive_entry_xattr_reset(en);
	while (archive_entry_xattr_next(en, &name, &val, &len) == ARCHIVE_OK) {
		int r;

		if ((*ret_why = ntr_port_refuse_xattr(name)))
			return -EBADMSG;
		if (ntr_acl_is_xattr(name)) /* the entry's ACL says it */
			continue;
		r = ntr_xattrs_add(&f->x, name, val, len);
		if (r)
			return r;
	}
	return ntr_acl_from_entry(en, &f->x, &f->mode);
}

static int read_found(struct untar *u, struct archive_entry *en, struct found *f, const char **ret_why)
{
	uint32_t uid, gid;

	f->mode = (uint32_t)(archive_entry_filetype(en) | (archive_entry_perm(en) & 07777));
	if (S_ISLNK(f->mode))
		f->mode |= 0777; /* what every filesystem here says of one, whatever the archive does */
	f->rdev = S_ISCHR(f->mode) || S_ISBLK(f->mode) ? archive_entry_rdev(en) : 0;
	if (id_of(archive_entry_uid(en), &uid) || id_of(archive_entry_gid(en), &gid))
		return *ret_why = "has an owner that is no 32-bit number", -EBADMSG;
	f->uid = ntr_store_uid_in(u->st, uid);
	f->gid = ntr_store_gid_in(u->st, gid);
	f->mtime = ntr_archive_time(archive_entry_mtime(en), archive_entry_mtime_nsec(en), false);
	f->atime = f->mtime;
	if (archive_entry_atime_is_set(en))
		f->atime = ntr_archive_time(archive_entry_atime(en), archive_entry_atime_nsec(en), false);
	*ret_why = ntr_port_refuse_node(f->mode, f->rdev);
	return *ret_why ? -EBADMSG : read_xattrs(en, f, ret_why);
}

static void set_meta(const struct found *f, struct ntr_inode *in)
{
	in->mode = f->mode;
	in->uid = f->uid;
	in->gid = f->gid;
	in->rdev = f->rdev;
	in->atime = f->atime;
	in->mtime = f->mtime;
}

/* ---- entries ---- */

static int read_content(struct untar *u, struct archive_entry *en, const char *path, struct ntr_inode *in)
{
	struct ntr_file_sink *k;
	const void *data;
	la_int64_t off;
	size_t n;
	int r = ntr_file_sink_new(u->t, in, &k), got;

	if (r)
		return r;
	while ((got = archive_read_data_block(u->a, &data, &n, &off)) == ARCHIVE_OK) {
		r = n ? ntr_file_sink_write(k, (uint64_t)off, data, n) : 0;
		if (r)
			break;
		u->meter.bytes += n;
	}
	if (!r && got != ARCHIVE_EOF)
		r = archive_fail(u, path);
	if (!r)
		return ntr_file_sink_end(k, (uint64_t)archive_entry_size(en));
	ntr_file_sink_abort(k);
	return r;
}

static int set_symlink(struct archive_entry *en, struct ntr_inode *in, const char **ret_why)
{
	const char *target = archive_entry_symlink(en);
	size_t n = target ? strlen(target) : 0;

	if (!n || n >= sizeof in->payload)
		return *ret_why = "is a symbolic link without a target that could be kept", -EBADMSG;
	in->data_kind = NTR_DATA_SYMLINK;
	in->size = in->payload_len = (uint16_t)n;
	memcpy(in->payload, target, n);
	return 0;
}

static int create(struct untar *u, struct archive_entry *en, const char *path, uint64_t dir, const char *name,
        const struct found *f, const char **ret_why)
{
	struct ntr_inode in;
	int r = ntr_inode_new(u->t, f->mode, &in);

	if (r)
		return r;
	set_meta(f, &in);
	if (S_ISREG(f->mode))
		r = read_content(u, en, path, &in);
	else if (S_ISLNK(f->mode))
		r = set_symlink(en, &in, ret_why);
	if (!r)
		r = ntr_xattrs_store(u->t, &in, &f->x);
	return r ? r : ntr_name_create(u->t, dir, name, &in, NULL);
}

/* A directory listed again, or met before as a parent only, or the top: it gets what the entry says. */
static int update_dir(struct untar *u, uint64_t ino, const struct found *f)
{
	struct ntr_inode in;
	int r = ntr_inode_get(ntr_txn_snap(u->t), ino, &in);

	if (r)
		return r;
	set_meta(f, &in);
	r = ntr_inode_put(u->t, &in);
	return r ? r : ntr_xattrs_store(u->t, &in, &f->x);
}

/* What stands under the name already gives way, as when a tar is unpacked over it. */
static int make_room(struct untar *u, uint64_t dir, const char *name, bool is_dir, uint64_t *ret_dir_ino,
        const char **ret_why)
{
	uint64_t ino;
	uint8_t dtype;
	int r = ntr_dirent_get(ntr_txn_snap(u->t), dir, name, strlen(name), &ino, &dtype);

	*ret_dir_ino = 0;
	if (r)
		return r == -ENOENT ? 0 : r;
	if ((dtype == DT_DIR) != is_dir)
		return *ret_why = "stands in the tar before as something else", -EEXIST;
	if (!is_dir)
		return ntr_name_remove(u->t, dir, name, NULL);
	*ret_dir_ino = ino;
	return 0;
}

static int add_link(struct untar *u, const char *link, uint64_t dir, const char *name, const char **ret_why)
{
	ntr_autofree char *target = NULL;
	const char *bad = NULL;
	uint64_t ino, there, is_dir;
	uint8_t dtype;
	int r = clean_path(link, &target, &bad);

	if (!r)
		r = ntr_path_lookup(ntr_txn_snap(u->t), target, &ino);
	if (bad || r == -ENOENT || r == -ENOTDIR)
		return *ret_why = "is a hard link to what the tar does not hold", -EBADMSG;
	if (r)
		return r;
	if (!ntr_dirent_get(ntr_txn_snap(u->t), dir, name, strlen(name), &there, &dtype) && there == ino)
		return 0;
	r = make_room(u, dir, name, false, &is_dir, ret_why);
	if (!r)
		r = ntr_name_link(u->t, ino, dir, name, NULL);
	if (r == -EPERM)
		*ret_why = "is a hard link to a directory";
	return r;
}

static void found_done(struct found *f)
{
	ntr_buf_done(&f->x.b);
}

static int add_object(struct untar *u, struct archive_entry *en, const char *path, uint64_t dir,
        const char *name, const char **ret_why)
{
	ntr_auto(found_done) struct found f = {0};
	uint64_t ino;
	int r = read_found(u, en, &f, ret_why);

	if (!r)
		r = make_room(u, dir, name, S_ISDIR(f.mode), &ino, ret_why);
	if (r)
		return r;
	return ino ? update_dir(u, ino, &f) : create(u, en, path, dir, name, &f, ret_why);
}

static int add_top(struct untar *u, struct archive_entry *en, const char **ret_why)
{
	ntr_auto(found_done) struct found f = {0};
	int r = read_found(u, en, &f, ret_why);

	if (!r && !S_ISDIR(f.mode))
		return *ret_why = "has no name", -EBADMSG;
	return r ? r : update_dir(u, NTR_INO_ROOT, &f);
}

static int add_clean(struct untar *u, struct archive_entry *en, char *path, const char **ret_why)
{
	const char *link = archive_entry_hardlink(en), *name;
	uint64_t dir;
	int r;

	if (!*path)
		return link ? (*ret_why = "has no name", -EBADMSG) : add_top(u, en, ret_why);
	r = locate(u, path, &dir, &name);
	if (r == -ENOTDIR)
		*ret_why = "lies below what is no directory";
	if (r)
		return r;
	return link ? add_link(u, link, dir, name, ret_why) : add_object(u, en, path, dir, name, ret_why);
}

static int add_entry(struct untar *u, struct archive_entry *en)
{
	const char *raw = archive_entry_pathname(en), *why = NULL;
	ntr_autofree char *path = NULL;
	int r;

	if (!raw)
		return archive_fail(u, NULL);
	r = clean_path(raw, &path, &why);
	if (!r)
		r = add_clean(u, en, path, &why);
	ntr_meter_tick(&u->meter);
	if (r && !(u->e->code == r && !why)) /* unless the archive's own error is told already */
		return refuse(u, r, raw, why);
	return r;
}

static int read_all(struct untar *u)
{
	struct archive_entry *en;
	int r = 0;

	while (!r) {
		int k = archive_read_next_header(u->a, &en);

		if (k == ARCHIVE_EOF)
			break;
		if (k == ARCHIVE_RETRY)
			continue;
		if (k < ARCHIVE_WARN)
			return archive_fail(u, NULL);
		r = add_entry(u, en);
	}
	return r;
}

/* Only what libarchive reads by itself: others would run a program named like the compressor. */
static int open_tar(struct untar *u, int fd)
{
	struct archive *a = u->a = archive_read_new();

	if (!a)
		return -ENOMEM;
	archive_read_support_filter_gzip(a);
	archive_read_support_filter_bzip2(a);
	archive_read_support_filter_compress(a);
	archive_read_support_filter_lzip(a);
	archive_read_support_filter_lzma(a);
	archive_read_support_filter_xz(a);
	archive_read_support_filter_lz4(a);
	archive_read_support_filter_zstd(a);
	if (archive_read_support_format_tar(a) != ARCHIVE_OK ||
	        archive_read_open_fd(a, fd, 1 << 18) != ARCHIVE_OK)
		return archive_fail(u, NULL);
	return 0;
}

int ntr_import_tar(
        struct ntr_txn *t, int fd, const char *label, const struct ntr_progress *p, struct ntr_err *e)
{
	struct ntr_err own = {0};
	struct untar u = {.t = t, .label = label, .e = e ? e : &own, .meter.p = p};
	void *locale = ntr_archive_locale(false);
	int r;

	u.st = ntr_txn_snap(t)->store;
	*u.e = (struct ntr_err){0};
	r = open_tar(&u, fd);
	if (!r)
		r = read_all(&u);
	if (u.a)
		archive_read_free(u.a);
	free(u.dir);
	ntr_archive_locale_restore(locale);
	if (r)
		return ntr_err_default(u.e, r, "import '%s'", label);
	ntr_meter_end(&u.meter);
	return 0;
}
