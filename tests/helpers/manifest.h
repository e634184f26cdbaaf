/* manifest: everything that can be seen of a directory tree, as lines to compare: of a real directory, or of
 * a tree in a store. Hard links show as groups: each name carries the first (by path) of its file's names. */
#ifndef NTR_TEST_MANIFEST_H
#define NTR_TEST_MANIFEST_H

#include "base/buf.h"
#include "base/util.h"
#include "fs/file.h"
#include "fs/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <xxhash.h>

enum { /* what a comparison leaves out */
	MF_NO_DIR_MTIME = 1,
	MF_NO_OWNER = 2,
	MF_NO_MTIME = 4,
	MF_NO_ROOT = 8, /* the root directory's own line */
	MF_NO_NLINK = 16,
};

struct mf_entry {
	char *path;   /* "" is the root */
	char *detail; /* symlink's target, xattrs */
	uint64_t ino, size, hash, rdev;
	uint32_t mode, uid, gid, nlink;
	struct timespec mtime;
	const char *group;
};
struct manifest {
	struct mf_entry *v;
	size_t n, cap;
};

static inline void mf_done(struct manifest *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->v[i].path);
		free(m->v[i].detail);
	}
	free(m->v);
	*m = (struct manifest){0};
}

static inline void mf_die(const char *what, const char *path, int err)
{
	fprintf(stderr, "manifest: %s '%s': %s\n", what, path, strerror(err));
	abort();
}

static inline struct mf_entry *mf_add(struct manifest *m, const char *path)
{
	if (m->n == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 64;
		m->v = realloc(m->v, m->cap * sizeof(*m->v));
		if (!m->v)
			mf_die("memory for", path, ENOMEM);
	}
	m->v[m->n] = (struct mf_entry){.path = strdup(path)};
	return &m->v[m->n++];
}

static inline char *mf_join(const char *dir, const char *name)
{
	return *dir ? ntr_sprintf("%s/%s", dir, name) : strdup(name);
}

static inline int mf_by_path(const void *a, const void *b)
{
	return strcmp(((const struct mf_entry *)a)->path, ((const struct mf_entry *)b)->path);
}

static inline int mf_by_ino(const void *a, const void *b)
{
	const struct mf_entry *x = *(struct mf_entry *const *)a, *y = *(struct mf_entry *const *)b;

	return x->ino != y->ino ? (x->ino > y->ino) - (x->ino < y->ino) : strcmp(x->path, y->path);
}

/* Sorts by path and finds the groups of hard links. */
static inline void mf_finish(struct manifest *m)
{
	ntr_autofree struct mf_entry **p = calloc(m->n + 1, sizeof(*p));

	qsort(m->v, m->n, sizeof(*m->v), mf_by_path);
	for (size_t i = 0; i < m->n; i++)
		p[i] = &m->v[i];
	qsort(p, m->n, sizeof(struct mf_entry *), mf_by_ino);
	for (size_t i = 0; i < m->n; i++)
		p[i]->group = i && p[i - 1]->ino == p[i]->ino ? p[i - 1]->group : p[i]->path;
}

/* ---- xattrs as text ---- */

struct mf_xattrs {
	char *v[64];
	size_t n;
};

static inline int mf_by_string(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline int mf_xattr(void *user, const char *name, const uint8_t *val, size_t len)
{
	struct mf_xattrs *x = user;

	if (x->n < NTR_COUNT(x->v))
		x->v[x->n++] =
		        ntr_sprintf("%s=%zu:%016llx", name, len, (unsigned long long)XXH3_64bits(val, len));
	return 0;
}

static inline char *mf_detail(const char *target, struct mf_xattrs *x)
{
	struct ntr_buf b = {0};

	qsort(x->v, x->n, sizeof(*x->v), mf_by_string);
	ntr_buf_str(&b, target);
	for (size_t i = 0; i < x->n; i++) {
		ntr_buf_printf(&b, " %s", x->v[i]);
		free(x->v[i]);
	}
	ntr_buf_cstr(&b);
	return (char *)b.data;
}

/* ---- a real directory ---- */

static inline uint64_t mf_hash_fd(int fd)
{
	static __thread uint8_t buf[1 << 16];
	XXH3_state_t *h = XXH3_createState();
	uint64_t r;
	ssize_t k;

	XXH3_64bits_reset(h);
	while ((k = read(fd, buf, sizeof(buf))) > 0)
		XXH3_64bits_update(h, buf, (size_t)k);
	r = XXH3_64bits_digest(h);
	XXH3_freeState(h);
	return r;
}

static inline char *mf_dir_detail(int dirfd, const char *name, bool link)
{
	char path[400], list[8192], target[4097] = "";
	uint8_t val[65536];
	struct mf_xattrs x = {.n = 0};
	ssize_t k;

	if (link && (k = readlinkat(dirfd, name, target, 4096)) >= 0)
		target[k] = '\0';
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dirfd, name);
	k = llistxattr(path, list, sizeof(list));
	for (const char *p = list; k > 0 && p < list + k; p += strlen(p) + 1) {
		ssize_t n = lgetxattr(path, p, val, sizeof(val));

		if (n >= 0 && strcmp(p, "security.selinux"))
			mf_xattr(&x, p, val, (size_t)n);
	}
	return mf_detail(target, &x);
}

static inline void mf_dir_entry(struct manifest *m, int dirfd, const char *name, const char *path)
{
	struct mf_entry *e = mf_add(m, path);
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		mf_die("stat", path, errno);
	e->ino = st.st_ino;
	e->mode = st.st_mode;
	e->uid = st.st_uid;
	e->gid = st.st_gid;
	e->nlink = (uint32_t)st.st_nlink;
	e->size = S_ISDIR(st.st_mode) ? 0 : (uint64_t)st.st_size;
	e->mtime = st.st_mtim;
	e->rdev = S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) ? st.st_rdev : 0;
	e->detail = mf_dir_detail(dirfd, name, S_ISLNK(st.st_mode));
	if (S_ISREG(st.st_mode)) {
		ntr_autoclose int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW);

		if (fd >= 0)
			e->hash = mf_hash_fd(fd);
		else if (errno != EACCES)
			mf_die("open", path, errno);
	}
}

static inline void mf_dir_walk(struct manifest *m, int dirfd, const char *path)
{
	DIR *d = fdopendir(dirfd);
	struct dirent *en;

	if (!d)
		mf_die("list", path, errno);
	while ((en = readdir(d))) {
		ntr_autofree char *sub = mf_join(path, en->d_name);

		if (!strcmp(en->d_name, ".") || !strcmp(en->d_name, ".."))
			continue;
		mf_dir_entry(m, dirfd, en->d_name, sub);
		if (S_ISDIR(m->v[m->n - 1].mode))
			mf_dir_walk(m, openat(dirfd, en->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), sub);
	}
	closedir(d);
}

static inline struct manifest mf_of_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	struct manifest m = {0};

	if (fd < 0)
		mf_die("open", path, errno);
	mf_dir_entry(&m, fd, ".", "");
	mf_dir_walk(&m, fd, "");
	mf_finish(&m);
	return m;
}

/* ---- a tree ---- */

static inline uint64_t mf_hash_inode(const struct ntr_snap *s, const struct ntr_inode *in)
{
	static __thread uint8_t buf[1 << 16];
	XXH3_state_t *h = XXH3_createState();
	uint64_t r, off = 0;
	ssize_t k;

	XXH3_64bits_reset(h);
	while ((k = ntr_file_read(s, in, off, buf, sizeof(buf))) > 0) {
		XXH3_64bits_update(h, buf, (size_t)k);
		off += (uint64_t)k;
	}
	if (k < 0)
		mf_die("read", in->name, (int)-k);
	r = XXH3_64bits_digest(h);
	XXH3_freeState(h);
	return r;
}

static inline void mf_tree_entry(struct manifest *m, const struct ntr_snap *s, uint64_t ino, const char *path)
{
	struct mf_entry *e = mf_add(m, path);
	struct mf_xattrs x = {.n = 0};
	struct ntr_inode in;
	char target[4097] = "";
	int r = ntr_inode_get(s, ino, &in);

	if (r)
		mf_die("record of", path, -r);
	e->ino = ino;
	e->mode = in.mode;
	e->uid = ntr_store_uid_out(s->store, in.uid);
	e->gid = ntr_store_gid_out(s->store, in.gid);
	e->nlink = in.nlink;
	e->size = S_ISDIR(in.mode) ? 0 : in.size;
	e->mtime = in.mtime;
	e->rdev = in.rdev;
	if (S_ISLNK(in.mode)) {
		memcpy(target, in.payload, in.payload_len);
		target[in.payload_len] = '\0';
	}
	if (ntr_xattr_each(s, ino, mf_xattr, &x))
		mf_die("xattrs of", path, EIO);
	if (!x.n != !(in.flags & NTR_INODE_HAS_XATTR))
		mf_die("xattr flag of", path, EUCLEAN);
	e->detail = mf_detail(target, &x);
	if (S_ISREG(in.mode))
		e->hash = mf_hash_inode(s, &in);
}

static inline void mf_tree_walk(struct manifest *m, const struct ntr_snap *s, uint64_t dir, const char *path)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, s, dir, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) > 0) {
		ntr_autofree char *sub = mf_join(path, en.name);

		mf_tree_entry(m, s, en.ino, sub);
		if (IFTODT(m->v[m->n - 1].mode) != en.dtype)
			mf_die("type of entry", sub, EUCLEAN);
		if (en.dtype == DT_DIR)
			mf_tree_walk(m, s, en.ino, sub);
	}
	ntr_dir_iter_done(&it);
	if (r)
		mf_die("list", path, -r);
}

static inline struct manifest mf_of_tree(const struct ntr_snap *s)
{
	struct manifest m = {0};

	mf_tree_entry(&m, s, NTR_INO_ROOT, "");
	mf_tree_walk(&m, s, NTR_INO_ROOT, "");
	mf_finish(&m);
	return m;
}

/* ---- comparison ---- */

static inline void mf_print(const char *mark, const struct mf_entry *e)
{
	fprintf(stderr,
	        "%s '%s' mode %o uid %u gid %u size %llu hash %llx rdev %llx nlink %u group '%s' mtime "
	        "%lld.%09ld [%s]\n",
	        mark, e->path, e->mode, e->uid, e->gid, (unsigned long long)e->size,
	        (unsigned long long)e->hash, (unsigned long long)e->rdev, e->nlink, e->group,
	        (long long)e->mtime.tv_sec, e->mtime.tv_nsec, e->detail);
}

static inline bool mf_same(const struct mf_entry *a, const struct mf_entry *b, unsigned skip)
{
	bool dir = S_ISDIR(a->mode);
	bool times = !(skip & MF_NO_MTIME) && !(dir && skip & MF_NO_DIR_MTIME);

	if (a->mode != b->mode || a->size != b->size || a->hash != b->hash || a->rdev != b->rdev)
		return false;
	if (!(skip & MF_NO_OWNER) && (a->uid != b->uid || a->gid != b->gid))
		return false;
	if (times && (a->mtime.tv_sec != b->mtime.tv_sec || a->mtime.tv_nsec != b->mtime.tv_nsec))
		return false;
	return (dir || skip & MF_NO_NLINK || a->nlink == b->nlink) && !strcmp(a->group, b->group) &&
	       !strcmp(a->detail, b->detail);
}

/* Prints what differs (the first few lines of it); the number of differing paths. */
static inline size_t mf_compare(const struct manifest *a, const struct manifest *b, unsigned skip)
{
	size_t i = 0, k = 0, n = 0;

	while (i < a->n || k < b->n) {
		int order = i == a->n ? 1 : k == b->n ? -1 : strcmp(a->v[i].path, b->v[k].path);
		bool root = (order <= 0 ? !*a->v[i].path : !*b->v[k].path) && skip & MF_NO_ROOT;

		if ((order || !mf_same(&a->v[i], &b->v[k], skip)) && !root && n++ < 8) {
			if (order <= 0)
				mf_print("-", &a->v[i]);
			if (order >= 0)
				mf_print("+", &b->v[k]);
		}
		i += order <= 0;
		k += order >= 0;
	}
	return n;
}

#endif
