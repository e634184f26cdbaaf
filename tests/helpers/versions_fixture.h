/* versions_fixture: a tree of every kind of thing, a versions mount over its store, and the comparison of the
 * two. */
#ifndef NTR_TEST_VERSIONS_FIXTURE_H
#define NTR_TEST_VERSIONS_FIXTURE_H

#include "store_fixture.h"

#include "fs/file.h"
#include "fs/inode_impl.h"
#include "fs/versions_impl.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

struct vfixture {
	struct fixture fx;
	struct ntr_versions *v;
	char mnt[300];
	enum ntr_transport want; /* what the next mount is asked for */
};

static inline void vfx_setup(struct vfixture *f)
{
	enum ntr_transport want = f->want;

	memset(f, 0, sizeof(*f));
	f->want = want;
	fx_setup(&f->fx);
	fx_session(&f->fx, "s");
	snprintf(f->mnt, sizeof(f->mnt), "%s/versions", f->fx.dir);
	assert_int_equal(mkdir(f->mnt, 0755), 0);
}

static inline void vfx_mount(struct vfixture *f, struct ntr_versions_options o)
{
	struct ntr_err e = {0};

	o.uring = f->want == NTR_TRANSPORT_URING;
	o.sched_idle = 1;
	if (ntr_versions_start(f->fx.st, f->mnt, &o, &f->v, &e))
		fx_fail("mount the versions", &e);
	assert_true(ntr_versions_alive(f->v));
	assert_int_equal(ntr_versions_transport(f->v), f->want);
}

#define VFX_PLAIN ((struct ntr_versions_options){.fuse_fd = -1})

static inline void vfx_unmount(struct vfixture *f)
{
	ntr_versions_stop(f->v);
	f->v = NULL;
}

static inline void vfx_teardown(struct vfixture *f)
{
	if (f->v)
		vfx_unmount(f);
	fx_teardown(&f->fx);
}

/* "MNT/<root>" of the session's head. */
static inline void vfx_root_path(struct vfixture *f, uint64_t root, char out[400])
{
	snprintf(out, 400, "%s/%016llx", f->mnt, (unsigned long long)root);
}

/* ---- making a tree ---- */

static inline uint64_t vfx_new(
        struct ntr_txn *t, uint64_t dir, const char *name, uint32_t mode, const void *data, size_t n)
{
	struct ntr_inode in;

	assert_int_equal(ntr_inode_new(t, mode, &in), 0);
	in.mtime = (struct timespec){1000000000, 123456789};
	in.ctime = (struct timespec){1000000001, 999999999};
	in.atime = (struct timespec){-5, 1};
	if (S_ISREG(mode))
		assert_int_equal(ntr_file_take_mem(t, &in, data, n), 0);
	if (S_ISLNK(mode)) {
		in.data_kind = NTR_DATA_SYMLINK;
		in.size = in.payload_len = (uint16_t)n;
		memcpy(in.payload, data, n);
	}
	if (S_ISCHR(mode) || S_ISBLK(mode))
		in.rdev = makedev(7, 200);
	assert_int_equal(ntr_name_create(t, dir, name, &in, NULL), 0);
	return in.ino;
}

static inline uint64_t vfx_sparse(
        struct ntr_txn *t, uint64_t dir, const char *name, const uint64_t *at, size_t n, uint64_t size)
{
	struct ntr_file_sink *k;
	struct ntr_inode in;

	assert_int_equal(ntr_inode_new(t, S_IFREG | 0600, &in), 0);
	assert_int_equal(ntr_file_sink_new(t, &in, &k), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(ntr_file_sink_write(k, at[i], "data", 4), 0);
	assert_int_equal(ntr_file_sink_end(k, size), 0);
	assert_int_equal(ntr_name_create(t, dir, name, &in, NULL), 0);
	return in.ino;
}

static inline void vfx_xattr(struct ntr_txn *t, uint64_t ino, const char *name, const void *val, size_t n)
{
	struct ntr_inode in;

	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), ino, &in), 0);
	assert_int_equal(ntr_xattr_set(t, &in, name, val, n), 0);
}

/* Some of everything below dir: sizes around every border, names that hurt, holes, links, special files,
 * xattrs. */
static inline void vfx_fill(struct ntr_txn *t, uint64_t dir)
{
	static const size_t sizes[] = {
	        0, 1, 511, 512, 513, 4095, 4096, 65535, 65536, 65537, 200000, (4 << 20) + 5};
	static const char *const hostile[] = {
	        " ", "\n", "a\nb", "-rf", "\\", "\xff\xfe", "\xc3\xa4", "*", "'\"", "..."};
	ntr_autofree uint8_t *data = malloc(5 << 20);
	uint64_t rnd = 77, sub = vfx_new(t, dir, "sub", S_IFDIR | 0755, NULL, 0), f;
	char name[256];

	assert_non_null(data);
	fx_fill(&rnd, data, 5 << 20);
	for (size_t i = 0; i < NTR_COUNT(sizes); i++) {
		snprintf(name, sizeof(name), "size-%zu", sizes[i]);
		vfx_new(t, dir, name, S_IFREG | 0644, data + i, sizes[i]);
	}
	for (size_t i = 0; i < NTR_COUNT(hostile); i++)
		vfx_new(t, sub, hostile[i], S_IFREG | 0600, hostile[i], strlen(hostile[i]));
	memset(name, 'n', 255);
	name[255] = '\0';
	f = vfx_new(t, sub, name, S_IFREG | 0640, "long", 4);
	assert_int_equal(ntr_name_link(t, f, dir, "hardlink", NULL), 0);
	vfx_new(t, dir, "link", S_IFLNK | 0777, "sub/\n", 5);
	memset(data, 'l', 4095);
	vfx_new(t, dir, "longlink", S_IFLNK | 0777, data, 4095);
	vfx_new(t, dir, "fifo", S_IFIFO | 0600, NULL, 0);
	vfx_new(t, dir, "sock", S_IFSOCK | 0600, NULL, 0);
	vfx_new(t, dir, "chr", S_IFCHR | 0600, NULL, 0);
	vfx_new(t, dir, "blk", S_IFBLK | 0600, NULL, 0);
	vfx_new(t, sub, "empty", S_IFDIR | 0700, NULL, 0);
	vfx_new(t, sub, "sticky", S_IFDIR | 01777, NULL, 0);
	vfx_sparse(t, dir, "sparse", (uint64_t[]){0, 1 << 20, (9 << 20) + 3}, 3, 20 << 20);
	vfx_sparse(t, dir, "hole", NULL, 0, 1 << 20);
	f = vfx_new(t, dir, "attrs", S_IFREG | 0644, "x", 1);
	vfx_xattr(t, f, "user.small", "v", 1);
	vfx_xattr(t, f, "user.empty", "", 0);
	vfx_xattr(t, f, "user.large", data, 20000);
	vfx_xattr(t, f, "user.overlay.opaque", "mine", 4);
}

/* ---- comparing the mount with the tree ---- */

struct vfx_walk {
	struct ntr_store *st;
	struct ntr_snap snap;
	bool escaped;
	unsigned entries;
};

static inline uint64_t vfx_number(const struct vfx_walk *w, uint64_t ino)
{
	struct ntr_inode in;

	assert_int_equal(ntr_inode_get(&w->snap, ino, &in), 0);
	return ntr_shown_of(ino, in.tag);
}

static inline void vfx_same_stat(const struct vfx_walk *w, const struct ntr_inode *in, const struct stat *st)
{
	struct stat want;

	ntr_inode_stat(w->st, in, &want);
	assert_true(st->st_ino == ntr_shown_of(in->ino, in->tag));
	assert_int_equal(st->st_mode, want.st_mode);
	assert_int_equal(st->st_nlink, want.st_nlink);
	assert_int_equal(st->st_uid, want.st_uid);
	assert_int_equal(st->st_gid, want.st_gid);
	assert_true(st->st_rdev == want.st_rdev);
	assert_true(st->st_size == want.st_size);
	assert_true(st->st_blocks == want.st_blocks);
	assert_memory_equal(&st->st_mtim, &want.st_mtim, sizeof(want.st_mtim));
	assert_memory_equal(&st->st_ctim, &want.st_ctim, sizeof(want.st_ctim));
	assert_memory_equal(&st->st_atim, &want.st_atim, sizeof(want.st_atim));
}

static inline void vfx_same_range(
        const struct vfx_walk *w, const struct ntr_inode *in, int fd, uint64_t off, size_t n)
{
	ntr_autofree uint8_t *a = malloc(n + 1), *b = malloc(n + 1);
	ssize_t want = ntr_file_read(&w->snap, in, off, a, n), got = 0, k;

	assert_true(want >= 0);
	while (got < (ssize_t)n && (k = pread(fd, b + got, n - (size_t)got, (off_t)off + got)) > 0)
		got += k;
	assert_int_equal(got, want);
	assert_memory_equal(a, b, (size_t)want);
}

static inline void vfx_same_holes(const struct vfx_walk *w, const struct ntr_inode *in, int fd)
{
	static const uint64_t at[] = {0, 1, 65535, 65536, 1 << 20, (1 << 20) + 65536, 9 << 20, 20 << 20};

	for (size_t i = 0; i < 2 * NTR_COUNT(at); i++) {
		int whence = i % 2 ? SEEK_HOLE : SEEK_DATA;
		uint64_t to;
		int r = ntr_file_seek(&w->snap, in, at[i / 2], whence, &to);
		off_t got = lseek(fd, (off_t)at[i / 2], whence);

		if (r)
			assert_true(got < 0 && errno == -r);
		else
			assert_true(got == (off_t)to);
	}
}

static inline void vfx_same_file(
        const struct vfx_walk *w, const struct ntr_inode *in, int dirfd, const char *name)
{
	ntr_autoclose int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW);
	uint64_t rnd = in->ino + 1;

	if (fd < 0)
		fail_msg("open %s: %s", name, strerror(errno));
	for (int i = 0; i < 8 && in->size; i++)
		vfx_same_range(w, in, fd, fx_below(&rnd, in->size + 10), 1 + fx_below(&rnd, 300000));
	vfx_same_range(w, in, fd, 0, in->size + 1);
	vfx_same_range(w, in, fd, in->size, 1);
	vfx_same_holes(w, in, fd);
}

struct vfx_xwalk {
	const struct vfx_walk *w;
	const char *path, *list;
	ssize_t len;
	unsigned n;
};

static inline int vfx_same_xattr(void *user, const char *name, const uint8_t *val, size_t len)
{
	struct vfx_xwalk *x = user;
	char served[NTR_VXATTR_MAX];
	ntr_autofree uint8_t *got = malloc(len + 1);
	bool listed = false;

	if (!strncmp(name, "trusted.", 8) && geteuid() != 0)
		return 0;
	x->n++;
	snprintf(served, sizeof(served), "%s", name);
	if (x->w->escaped)
		assert_true(ntr_vxattr_escape(name, served));
	assert_int_equal(lgetxattr(x->path, served, NULL, 0), len);
	assert_int_equal(lgetxattr(x->path, served, got, len + 1), len);
	assert_memory_equal(got, val, len);
	if (len > 1)
		assert_true(lgetxattr(x->path, served, got, len - 1) < 0 && errno == ERANGE);
	for (const char *p = x->list; p < x->list + x->len; p += strlen(p) + 1)
		listed |= !strcmp(p, served);
	assert_true(listed);
	return 0;
}

static inline void vfx_same_xattrs(
        const struct vfx_walk *w, const struct ntr_inode *in, int dirfd, const char *name)
{
	char path[600], list[65536];
	struct vfx_xwalk x = {.w = w, .path = path, .list = list};

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dirfd, name);
	x.len = llistxattr(path, list, sizeof(list));
	assert_true(x.len >= 0);
	assert_int_equal(llistxattr(path, NULL, 0), x.len);
	assert_int_equal(ntr_xattr_each(&w->snap, in->ino, vfx_same_xattr, &x), 0);
	unsigned listed = 0;

	for (const char *p = list; p < list + x.len; p += strlen(p) + 1)
		listed++;
	assert_int_equal(listed, x.n);
	if (S_ISREG(in->mode) || S_ISDIR(in->mode))
		assert_true(lgetxattr(path, "user.absent", NULL, 0) < 0 && errno == ENODATA);
}

static inline void vfx_same_dir(struct vfx_walk *w, uint64_t ino, int dirfd);

static inline void vfx_same_entry(struct vfx_walk *w, const struct ntr_dirent *d, int dirfd)
{
	struct ntr_inode in;
	struct stat st;

	assert_int_equal(ntr_inode_get(&w->snap, d->ino, &in), 0);
	assert_int_equal(fstatat(dirfd, d->name, &st, AT_SYMLINK_NOFOLLOW), 0);
	vfx_same_stat(w, &in, &st);
	vfx_same_xattrs(w, &in, dirfd, d->name);
	if (S_ISREG(in.mode))
		vfx_same_file(w, &in, dirfd, d->name);
	if (S_ISLNK(in.mode)) {
		char to[4097];
		ssize_t n = readlinkat(dirfd, d->name, to, sizeof(to));

		assert_int_equal(n, in.size);
		assert_memory_equal(to, in.payload, (size_t)n);
	}
	if (S_ISDIR(in.mode)) {
		ntr_autoclose int fd = openat(dirfd, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);

		assert_true(fd >= 0);
		vfx_same_dir(w, d->ino, fd);
	}
}

/* Names listed by the mount and by the tree, in order; then each entry. */
static inline void vfx_same_dir(struct vfx_walk *w, uint64_t ino, int dirfd)
{
	DIR *dir = fdopendir(dup(dirfd));
	struct ntr_dir_iter it;
	struct ntr_dirent d;
	struct dirent *de;
	int r;

	assert_non_null(dir);
	de = readdir(dir);
	assert_non_null(de);
	assert_string_equal(de->d_name, ".");
	assert_true(de->d_ino == vfx_number(w, ino));
	de = readdir(dir);
	assert_non_null(de);
	assert_string_equal(de->d_name, "..");
	ntr_dir_iter_init(&it, &w->snap, ino, 0);
	while ((r = ntr_dir_iter_next(&it, &d)) > 0) {
		de = readdir(dir);
		assert_non_null(de);
		assert_string_equal(de->d_name, d.name);
		assert_true(de->d_ino == vfx_number(w, d.ino));
		assert_int_equal(de->d_type, d.dtype);
		vfx_same_entry(w, &d, dirfd);
		w->entries++;
	}
	assert_int_equal(r, 0);
	errno = 0;
	assert_null(readdir(dir));
	assert_int_equal(errno, 0);
	ntr_dir_iter_done(&it);
	closedir(dir);
}

/* Compares the whole tree of root with what path shows. Returns the number of entries. */
static inline unsigned vfx_same_tree(struct vfixture *f, uint64_t root, const char *path, bool escaped)
{
	struct vfx_walk w = {.st = f->fx.st, .snap = ntr_snap_root(f->fx.st, root), .escaped = escaped};
	struct ntr_inode in;
	struct stat st;
	ntr_autoclose int fd = open(path, O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		fail_msg("open %s: %s", path, strerror(errno));
	assert_int_equal(ntr_inode_get(&w.snap, NTR_INO_ROOT, &in), 0);
	assert_int_equal(fstat(fd, &st), 0);
	vfx_same_stat(&w, &in, &st);
	vfx_same_dir(&w, NTR_INO_ROOT, fd);
	return w.entries;
}

/* ---- counts ---- */

struct vfx_count {
	const char *op;
	uint64_t n;
	double p50;
};

static inline int vfx_count_fn(void *user, const char *op, uint64_t count, double p50, double p99)
{
	struct vfx_count *c = user;

	(void)p99;
	if (!c->op || !strcmp(c->op, op)) {
		c->n += !c->op && !strcmp(op, "FORGET") ? 0 : count;
		c->p50 = p50;
	}
	return 0;
}

/* Requests of one type, or (NULL) of all but FORGET. */
static inline uint64_t vfx_count(struct vfixture *f, const char *op)
{
	struct vfx_count c = {.op = op};

	assert_int_equal(ntr_versions_stats(f->v, vfx_count_fn, &c), 0);
	return c.n;
}

static inline int vfx_print_fn(void *user, const char *op, uint64_t count, double p50, double p99)
{
	(void)user;
	if (count)
		print_message(
		        "%12s %8llu  p50 %7.1f us  p99 %7.1f us\n", op, (unsigned long long)count, p50, p99);
	return 0;
}

static inline void vfx_print(struct vfixture *f)
{
	assert_int_equal(ntr_versions_stats(f->v, vfx_print_fn, NULL), 0);
}

static inline uint64_t vfx_inodes(struct vfixture *f)
{
	uint64_t inodes, bytes;

	ntr_versions_table(f->v, &inodes, &bytes);
	return inodes;
}

/* ---- who and how ---- */

static inline bool vfx_set_uring(char yn)
{
	ntr_autoclose int fd = open("/sys/module/fuse/parameters/enable_uring", O_WRONLY);

	return fd >= 0 && write(fd, &yn, 1) == 1;
}

static inline void vfx_uring_off(void)
{
	(void)vfx_set_uring('N');
}

/* Lets the kernel offer io_uring to FUSE until this program ends; false where it cannot or may not be. */
static inline bool vfx_enable_uring(void)
{
	ntr_autoclose int fd = open("/sys/module/fuse/parameters/enable_uring", O_RDONLY);
	char was = 0;

	if (!ntr_versions_can_uring() || fd < 0 || read(fd, &was, 1) != 1 || !vfx_set_uring('Y'))
		return false;
	if (was == 'N')
		atexit(vfx_uring_off);
	return true;
}

static inline void vfx_become_user(const char *dir)
{
	if (geteuid() != 0)
		return;
	if (chmod("/dev/fuse", 0666) || setenv("TMPDIR", dir, 1) || setgroups(0, NULL) || setgid(65534) ||
	        setuid(65534))
		_exit(111);
}

/* Runs fn in a child, as an ordinary user with a temporary folder of its own when this one is root. Returns
 * its result. */
static inline int vfx_as_user(int (*fn)(void))
{
	char dir[300];
	const char *tmp = getenv("TMPDIR");
	int status;

	snprintf(dir, sizeof(dir), "%s/ntr-user.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir) || (geteuid() == 0 && chown(dir, 65534, 65534)))
		return 112;
	fflush(NULL);
	pid_t pid = fork();

	if (pid == 0) {
		vfx_become_user(dir);
		status = fn();
		fflush(NULL);
		_exit(status);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 113;
	(void)ntr_rm_rf(AT_FDCWD, dir);
	return WEXITSTATUS(status);
}

#endif
