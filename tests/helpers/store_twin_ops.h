/* store_twin_ops: one random change, made in a transaction and in its twin; what must be refused is refused.
 */
#ifndef NTR_TEST_STORE_TWIN_OPS_H
#define NTR_TEST_STORE_TWIN_OPS_H

#include "store_twin.h"

#include "fs/file.h"

#include <errno.h>
#include <sys/mman.h>

enum { ENTRIES = 160, DEPTH = 5 };

static uint64_t rnd, highest_ino;

static inline uint64_t below(uint64_t n)
{
	return fx_below(&rnd, n);
}

/* ---- choosing ---- */

static inline const char *name_any(void)
{
	static const char *const odd[] = {
	        "a b", "\xC3\xA9t\xC3\xA9", "\xFF\x01", "...", ".hidden", "new\nline", "-", "core~"};
	static char name[256];

	if (!below(5))
		return odd[below(NTR_COUNT(odd))];
	if (!below(30)) {
		memset(name, 'L', 255);
		name[254] = (char)('0' + below(3));
		name[255] = '\0';
		return name;
	}
	snprintf(name, sizeof name, "n%u", (unsigned)below(16));
	return name;
}

static inline unsigned depth_of(const char *path)
{
	unsigned n = *path != '\0';

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* An entry of one of these types (0: any but the root); false when none was found. */
static inline bool pick(const struct twin *t, mode_t type, char path[TWIN_PATH])
{
	for (int i = 0; i < 40; i++) {
		const struct twin_entry *e = &t->e[below(t->n)];

		if (type ? (t->o[e->obj].mode & S_IFMT) == type : *e->path != '\0') {
			snprintf(path, TWIN_PATH, "%s", e->path);
			return true;
		}
	}
	return false;
}

static inline void pick_dir(const struct twin *t, char path[TWIN_PATH])
{
	if (!below(3) || !pick(t, S_IFDIR, path) || depth_of(path) >= DEPTH)
		*path = '\0';
}

/* ---- a transaction and the twin that follows it ---- */

struct work {
	struct ntr_txn *t;
	struct twin w;
	struct timespec now;
	bool touched;
};

static inline uint64_t ino_of(const struct work *k, const char *path)
{
	const struct twin_obj *o = twin_get(&k->w, path);
	uint64_t ino = 0;

	assert_int_equal(ntr_path_lookup(ntr_txn_snap(k->t), path, &ino), 0);
	assert_true(ino == o->ino);
	return ino;
}

static inline void stamp_dir(struct work *k, const char *path)
{
	twin_get(&k->w, path)->mtime = k->now;
	k->touched = true;
}

static inline struct blob *content_any(const struct blob *before)
{
	static const size_t sizes[] = {0, 1, 100, NTR_INODE_INLINE, NTR_INODE_INLINE + 1, 5000,
	        NTR_CHUNK_SIZE - 1, NTR_CHUNK_SIZE, NTR_CHUNK_SIZE + 1, 200000, 4500000};
	size_t n = sizes[below(below(60) ? 7 : NTR_COUNT(sizes))];
	struct blob *b = blob_new(n);

	if (before && below(2)) { /* the content before, with a few bytes changed at most */
		n = NTR_MIN(n, before->n);
		memcpy(b->data, before->data, n);
		memset(b->data + n, 'z', b->n - n);
		if (b->n && below(3))
			b->data[below(b->n)] ^= 1;
	} else if (below(2)) { /* equal files all over the store */
		memset(b->data, (int)('a' + below(3)), n);
	} else {
		fx_fill(&rnd, b->data, n);
	}
	return b;
}

/* With holes: zeros that were never written. */
static inline void take_sparse(struct work *k, struct ntr_inode *in, struct blob *b)
{
	ntr_autoclose int fd = memfd_create("model", MFD_CLOEXEC);
	size_t from = (size_t)below(b->n + 1), to = from + (size_t)below(b->n - from + 1);
	bool cut;

	assert_true(fd >= 0);
	memset(b->data, 0, from);
	memset(b->data + to, 0, b->n - to);
	assert_int_equal(ftruncate(fd, (off_t)b->n), 0);
	assert_int_equal(pwrite(fd, b->data + from, to - from, (off_t)from), (ssize_t)(to - from));
	assert_int_equal(ntr_file_take_fd(k->t, in, fd, b->n, &cut), 0);
	assert_false(cut);
}

static inline void take_stream(struct work *k, struct ntr_inode *in, const struct blob *b)
{
	struct ntr_file_sink *sink;

	assert_int_equal(ntr_file_sink_new(k->t, in, &sink), 0);
	for (size_t off = 0; off < b->n;) {
		size_t n = NTR_MIN(b->n - off, (size_t)(1 + below(90000)));

		assert_int_equal(ntr_file_sink_write(sink, off, b->data + off, n), 0);
		off += n;
	}
	assert_int_equal(ntr_file_sink_end(sink, b->n), 0);
}

static inline void take_any(struct work *k, struct ntr_inode *in, struct twin_obj *o)
{
	struct blob *b = content_any(o->data);

	switch (below(4)) {
	case 0:
		take_sparse(k, in, b);
		break;
	case 1:
		take_stream(k, in, b);
		break;
	default:
		assert_int_equal(ntr_file_take_mem(k->t, in, b->data, b->n), 0);
	}
	blob_set(&o->data, b);
}

static inline uint64_t inode_of(struct work *k, const char *path, struct ntr_inode *ret)
{
	uint64_t ino = ino_of(k, path);

	assert_int_equal(ntr_inode_get(ntr_txn_snap(k->t), ino, ret), 0);
	return ino;
}

static inline void op_create(struct work *k)
{
	static const uint32_t types[] = {
	        S_IFREG, S_IFREG, S_IFREG, S_IFREG, S_IFDIR, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR};
	struct twin_obj o = {
	        .mode = types[below(NTR_COUNT(types))] | 0644, .uid = NTR_OWNER_ID, .gid = NTR_OWNER_ID};
	char dir[TWIN_PATH], path[TWIN_PATH];
	struct ntr_inode in;
	const char *name = name_any();
	int r;

	pick_dir(&k->w, dir);
	path_join(path, dir, name);
	assert_int_equal(ntr_inode_new(k->t, o.mode, &in), 0);
	assert_true(in.ino > highest_ino); /* never used before, in no session */
	highest_ino = o.ino = in.ino;
	in.mtime = o.mtime = k->now;
	if (S_ISCHR(o.mode))
		in.rdev = o.rdev = 0x103;
	if (S_ISREG(o.mode))
		take_any(k, &in, &o);
	if (S_ISLNK(o.mode)) {
		o.data = blob_new(1 + (size_t)below(300));
		memset(o.data->data, 'x', o.data->n);
		in.data_kind = NTR_DATA_SYMLINK;
		in.size = in.payload_len = (uint16_t)o.data->n;
		memcpy(in.payload, o.data->data, o.data->n);
	}
	r = ntr_name_create(k->t, ino_of(k, dir), name, &in, &k->now);
	if (twin_find(&k->w, path)) {
		assert_int_equal(r, -EEXIST);
		blob_set(&o.data, NULL);
		k->touched =
		        true; /* chunks and EXTENT items of nobody: the transaction says that it changed */
		if (S_ISREG(o.mode))
			assert_int_equal(ntr_inode_erase(k->t, in.ino), 0);
		return;
	}
	assert_int_equal(r, 0);
	twin_enter(&k->w, path, twin_obj_add(&k->w, &o));
	stamp_dir(k, dir);
}

static inline void op_link(struct work *k)
{
	char dir[TWIN_PATH], path[TWIN_PATH], from[TWIN_PATH];
	const char *name = name_any();
	bool there;
	unsigned obj;
	int r;

	if (!pick(&k->w, below(4) ? S_IFREG : 0, from))
		return;
	pick_dir(&k->w, dir);
	path_join(path, dir, name);
	obj = k->w.e[twin_place(&k->w, from, &there)].obj;
	r = ntr_name_link(k->t, ino_of(k, from), ino_of(k, dir), name, &k->now);
	if (twin_find(&k->w, path)) {
		assert_int_equal(r, -EEXIST);
	} else if (S_ISDIR(k->w.o[obj].mode)) {
		assert_int_equal(r, -EPERM);
	} else {
		assert_int_equal(r, 0);
		twin_enter(&k->w, path, obj);
		stamp_dir(k, dir);
	}
}

static inline void op_remove(struct work *k)
{
	char dir[TWIN_PATH], path[TWIN_PATH];
	const char *name;

	if (!pick(&k->w, 0, path))
		return;
	path_split(path, dir, &name);
	assert_int_equal(ntr_name_remove(k->t, ino_of(k, dir), name, &k->now), 0);
	twin_remove(&k->w, path);
	stamp_dir(k, dir);
	assert_int_equal(ntr_name_remove(k->t, ino_of(k, dir), name, &k->now), -ENOENT);
}

static inline int rename_expected(const struct work *k, const char *from, const char *to)
{
	const struct twin_obj *o = twin_get(&k->w, from), *p = twin_find(&k->w, to);

	if (S_ISDIR(o->mode) && path_below(to, from) && strcmp(to, from) != 0)
		return -EINVAL;
	if (!p || p == o)
		return 0;
	if (!S_ISDIR(p->mode))
		return S_ISDIR(o->mode) ? -ENOTDIR : 0;
	if (!S_ISDIR(o->mode))
		return -EISDIR;
	return twin_empty_dir(&k->w, to) ? 0 : -ENOTEMPTY;
}

static inline void op_rename(struct work *k)
{
	char from[TWIN_PATH], to[TWIN_PATH], dir[TWIN_PATH], ndir[TWIN_PATH];
	const char *name, *nname;
	int want, r;

	if (!pick(&k->w, 0, from))
		return;
	path_split(from, dir, &name);
	pick_dir(&k->w, ndir);
	nname = name_any();
	path_join(to, ndir, nname);
	want = rename_expected(k, from, to);
	r = ntr_name_rename(k->t, ino_of(k, dir), name, ino_of(k, ndir), nname, &k->now);
	if (r != want)
		fail_msg("rename '%s' '%s': %d, wanted %d", from, to, r, want);
	if (r || twin_find(&k->w, from) == twin_find(&k->w, to))
		return;
	twin_remove(&k->w, to);
	twin_move(&k->w, from, to);
	stamp_dir(k, dir);
	stamp_dir(k, ndir);
}

static inline void op_write(struct work *k)
{
	char path[TWIN_PATH];
	struct twin_obj *o;
	struct ntr_inode in;

	if (!pick(&k->w, S_IFREG, path))
		return;
	o = twin_get(&k->w, path);
	inode_of(k, path, &in);
	take_any(k, &in, o);
	in.mtime = in.ctime = o->mtime = k->now;
	assert_int_equal(ntr_inode_put(k->t, &in), 0);
	k->touched = true;
}

static inline void op_attr(struct work *k)
{
	char path[TWIN_PATH] = "";
	struct twin_obj *o;
	struct ntr_inode in;

	if (below(10))
		pick(&k->w, 0, path);
	o = twin_get(&k->w, path);
	inode_of(k, path, &in);
	switch (below(3)) {
	case 0:
		in.mode = o->mode = (o->mode & S_IFMT) | (uint32_t)below(010000);
		break;
	case 1:
		in.uid = o->uid = below(2) ? NTR_OWNER_ID : (uint32_t)below(70000);
		in.gid = o->gid = (uint32_t)below(3);
		break;
	default:
		in.mtime = o->mtime = (struct timespec){
		        .tv_sec = (time_t)below(UINT32_MAX), .tv_nsec = (long)below(1000000000)};
	}
	assert_int_equal(ntr_inode_put(k->t, &in), 0);
	k->touched = true;
}

static inline void op_xattr(struct work *k)
{
	char path[TWIN_PATH] = "";
	int which = (int)below(TWIN_XATTRS), r;
	struct twin_obj *o;
	struct ntr_inode in;
	struct blob *b;

	if (below(10))
		pick(&k->w, 0, path);
	o = twin_get(&k->w, path);
	inode_of(k, path, &in);
	if (below(3)) {
		b = blob_new((size_t)(below(10) ? below(200) : below(65537)));
		fx_fill(&rnd, b->data, b->n);
		assert_int_equal(ntr_xattr_set(k->t, &in, twin_xattr_names[which], b->data, b->n), 0);
		blob_set(&o->xattr[which], b);
	} else {
		r = ntr_xattr_del(k->t, &in, twin_xattr_names[which]);
		assert_int_equal(r, o->xattr[which] ? 0 : -ENODATA);
		blob_set(&o->xattr[which], NULL);
		if (r)
			return;
	}
	k->touched = true;
}

static inline void op_state(struct work *k)
{
	int which = (int)below(TWIN_STATES);
	struct blob *b = below(4) ? blob_new((size_t)(1 + below(below(10) ? 60 : 20000))) : NULL;

	if (b)
		memset(b->data, (int)('a' + below(5)), b->n);
	assert_int_equal(ntr_kvitem_set(k->t, twin_state_names[which], b ? b->data : NULL, b ? b->n : 0), 0);
	blob_set(&k->w.state[which], b);
	k->touched = true;
}

/* What must be refused, and leave the transaction as it was. */
static inline void op_refused(struct work *k)
{
	static const char *const bad[] = {"", ".", "..", "a/b"};
	char file[TWIN_PATH];
	uint64_t ino;

	assert_int_equal(ntr_name_remove(k->t, NTR_INO_ROOT, bad[below(NTR_COUNT(bad))], &k->now), -EINVAL);
	assert_int_equal(ntr_name_remove(k->t, NTR_INO_ROOT, "not there", &k->now), -ENOENT);
	assert_int_equal(ntr_path_lookup(ntr_txn_snap(k->t), "not/there", &ino), -ENOENT);
	if (!pick(&k->w, S_IFREG, file))
		return;
	assert_int_equal(ntr_name_remove(k->t, ino_of(k, file), "x", &k->now), -ENOTDIR);
	assert_int_equal(ntr_name_link(k->t, ino_of(k, file), NTR_INO_ROOT, "..", &k->now), -EINVAL);
}

static inline void op_any(struct work *k)
{
	static void (*const ops[])(struct work *) = {op_create, op_create, op_create, op_link, op_remove,
	        op_rename, op_rename, op_write, op_write, op_attr, op_xattr, op_state, op_refused};

	if (k->w.n > ENTRIES)
		op_remove(k);
	else
		ops[below(NTR_COUNT(ops))](k);
}

#endif
