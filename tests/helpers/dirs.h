/* dirs: a source directory with one of everything, and the comparison of two directories in everything. */
#ifndef NTR_TEST_DIRS_H
#define NTR_TEST_DIRS_H

#include "store_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* user::rwx user:NNN:r-x group::r-- mask::rwx other::--- */
static inline size_t dirs_acl(uint8_t *p, uint32_t user)
{
	const uint32_t v[5][3] = {{1, 7, UINT32_MAX}, {2, 5, user}, {4, 4, UINT32_MAX}, {16, 7, UINT32_MAX},
	        {32, 0, UINT32_MAX}};

	ntr_put_le32(p, 2);
	for (int i = 0; i < 5; i++) {
		ntr_put_le16(p + 4 + 8 * i, (uint16_t)v[i][0]);
		ntr_put_le16(p + 6 + 8 * i, (uint16_t)v[i][1]);
		ntr_put_le32(p + 8 + 8 * i, v[i][2]);
	}
	return 44;
}

static inline int dirs_file(int at, const char *name, const void *data, size_t n, mode_t mode)
{
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ntr_write_all(fd, data, n), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	return fd;
}

static inline int dirs_mkdir(int at, const char *name, mode_t mode)
{
	int fd;

	assert_int_equal(mkdirat(at, name, 0700), 0);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	return fd;
}

static inline void dirs_fill_files(int at, uint64_t *rnd)
{
	static const size_t sizes[] = {0, 1, 512, 513, 65536, 65537, 300000, (4 << 20) + 5};
	ntr_autofree uint8_t *data = malloc((4 << 20) + 5);
	char name[32];

	assert_non_null(data);
	for (size_t i = 0; i < NTR_COUNT(sizes); i++) {
		fx_fill(rnd, data, NTR_MIN(sizes[i], (size_t)100000));
		snprintf(name, sizeof name, "size-%zu", sizes[i]);
		close(dirs_file(at, name, data, sizes[i], i % 2 ? 0644 : 0400));
	}
}

static inline void dirs_fill_sparse(int at)
{
	int fd = dirs_file(at, "sparse", "head", 4, 0644);
	ntr_autofree char *chunk = malloc(65536);

	assert_non_null(chunk);
	memset(chunk, 's', 65536);
	assert_true(pwrite(fd, chunk, 65536, 20 << 20) == 65536);
	assert_int_equal(ftruncate(fd, 30 << 20), 0);
	close(fd);
	fd = dirs_file(at, "all-hole", "", 0, 0644);
	assert_int_equal(ftruncate(fd, 3 << 20), 0);
	close(fd);
	fd = dirs_file(at, "small-hole", "", 0, 0644);
	assert_int_equal(ftruncate(fd, 300), 0);
	close(fd);
}

static inline void dirs_fill_xattrs(int at)
{
	static char big[3000];
	int fd = dirs_file(at, "with-xattrs", "x", 1, 0644), d = dirs_mkdir(at, "with-acl", 0750);
	uint8_t acl[64];
	size_t n = dirs_acl(acl, 4242);

	memset(big, 'b', sizeof big);
	assert_int_equal(fsetxattr(fd, "user.empty", "", 0, 0), 0);
	assert_int_equal(fsetxattr(fd, "user.bytes", "\0\xff\n", 3, 0), 0);
	assert_int_equal(fsetxattr(fd, "user.big", big, sizeof big, 0), 0);
	assert_int_equal(fsetxattr(fd, "system.posix_acl_access", acl, n, 0), 0);
	assert_int_equal(fsetxattr(d, "system.posix_acl_access", acl, n, 0), 0);
	assert_int_equal(fsetxattr(d, "system.posix_acl_default", acl, n, 0), 0);
	close(dirs_file(d, "inherits", "i", 1, 0640));
	close(d);
	close(fd);
}

static inline void dirs_fill_names(int at)
{
	char longest[256];
	int d = dirs_mkdir(at, "odd names", 0755);

	memset(longest, 'L', 255);
	longest[255] = '\0';
	close(dirs_file(d, longest, "long", 4, 0644));
	close(dirs_file(d, "caf\xc3\xa9", "nfc", 3, 0644));
	close(dirs_file(d, "cafe\xcc\x81", "nfd", 3, 0644)); /* the same to the eye, another name */
	close(dirs_file(d, "latin1-\xe9", "raw", 3, 0644));
	close(dirs_file(d, "\xff\xfe\x80", "bytes", 5, 0644));
	close(dirs_file(d, "new\nline", "n", 1, 0644));
	close(dirs_file(d, "back\\slash", "b", 1, 0644));
	close(dirs_file(d, "-rf", "d", 1, 0644));
	close(dirs_file(d, "...", "dots", 4, 0644));
	assert_int_equal(symlinkat("target-\xe9\xff", d, "link-\xe9"), 0);
	close(d);
}

static inline void dirs_fill_links(int at)
{
	int d = dirs_mkdir(at, "links", 0755), e = dirs_mkdir(at, "links2", 0711);
	char longest[4096];

	close(dirs_file(d, "one", "hard", 4, 0600));
	assert_int_equal(linkat(d, "one", e, "two", 0), 0);
	assert_int_equal(linkat(d, "one", d, "three", 0), 0);
	close(dirs_file(e, "aaa", "", 0, 0600));
	assert_int_equal(linkat(e, "aaa", d, "zzz", 0), 0);
	assert_int_equal(symlinkat("../links2/two", d, "sym"), 0);
	assert_int_equal(linkat(d, "sym", e, "sym-again", 0), 0);
	assert_int_equal(symlinkat("/nowhere/at/all", d, "dangling"), 0);
	memset(longest, 't', 4000);
	longest[4000] = '\0';
	assert_int_equal(symlinkat(longest, d, "long"), 0);
	close(d);
	close(e);
}

static inline void dirs_fill_special(int at, bool sockets)
{
	int d = dirs_mkdir(at, "special", 01777), deep = dup(d);

	assert_int_equal(mknodat(d, "fifo", S_IFIFO | 0620, 0), 0);
	if (sockets)
		assert_int_equal(mknodat(d, "socket", S_IFSOCK | 0600, 0), 0);
	close(dirs_file(d, "setuid", "#!", 2, 06755));
	close(dirs_file(d, "no-rights", "secret", 6, geteuid() ? 0400 : 0));
	if (!geteuid()) {
		assert_int_equal(mknodat(d, "null", S_IFCHR | 0666, makedev(1, 3)), 0);
		assert_int_equal(mknodat(d, "block", S_IFBLK | 0600, makedev(259, 70000)), 0);
		assert_int_equal(fchownat(d, "setuid", 1234, 70000, 0), 0);
		assert_int_equal(fchmodat(d, "setuid", 06755, 0), 0);
		assert_int_equal(fchownat(at, "links/dangling", 99, 98, AT_SYMLINK_NOFOLLOW), 0);
	}
	for (int i = 0; i < 150; i++) { /* deeper than an export keeps open */
		int next = dirs_mkdir(deep, "d", i % 2 ? 0755 : 0700);

		if (i % 50 == 49)
			close(dirs_file(next, "bottom", "b", 1, 0644));
		close(deep);
		deep = next;
	}
	close(deep);
	close(d);
}

/* Gives everything a time of its own, nanoseconds and all, also before 1970. */
static inline void dirs_stamp(int at, uint64_t *rnd)
{
	DIR *dir = fdopendir(openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct timespec t[2];
	struct dirent *en;

	assert_non_null(dir);
	while ((en = readdir(dir))) {
		if (!strcmp(en->d_name, "..") || !strcmp(en->d_name, "."))
			continue;
		if (en->d_type == DT_DIR) {
			int d = openat(at, en->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			dirs_stamp(d, rnd);
			close(d);
			continue;
		}
		for (int i = 0; i < 2; i++)
			t[i] = (struct timespec){(time_t)fx_below(rnd, 3000000000) - 500000000,
			        (long)fx_below(rnd, 1000000000)};
		assert_int_equal(utimensat(at, en->d_name, t, AT_SYMLINK_NOFOLLOW), 0);
	}
	closedir(dir);
	t[0] = (struct timespec){5, 6};
	t[1] = (struct timespec){(time_t)fx_below(rnd, 2000000000), (long)fx_below(rnd, 1000000000)};
	assert_int_equal(futimens(at, t), 0);
}

/* Makes path and everything in it. */
static inline void dirs_make_source(const char *path, bool sockets)
{
	uint64_t rnd = 31337;
	int d, e;

	d = dirs_mkdir(AT_FDCWD, path, 0750);
	dirs_fill_files(d, &rnd);
	dirs_fill_sparse(d);
	dirs_fill_xattrs(d);
	dirs_fill_names(d);
	dirs_fill_links(d);
	dirs_fill_special(d, sockets);
	assert_int_equal(fsetxattr(d, "user.top", "t", 1, 0), 0);
	e = dirs_mkdir(d, "many", 0755);
	for (int i = 0; i < 200; i++) {
		char name[16];

		snprintf(name, sizeof name, "f%d", i);
		close(dirs_file(e, name, name, strlen(name), 0644));
	}
	close(e);
	close(dirs_mkdir(d, "empty", 0555));
	dirs_stamp(d, &rnd);
	close(d);
}

/* ---- comparing ---- */

struct dirs_pair {
	struct {
		uint64_t a, b;
	} ino[8192]; /* of files: two names of one file here must be two names of one file there */
	size_t n;
};

static inline void dirs_same_xattrs(const char *a, const char *b)
{
	static char la[4096], lb[4096], va[65536], vb[65536];
	ssize_t na = llistxattr(a, la, sizeof la), nb = llistxattr(b, lb, sizeof lb);

	if (na != nb)
		fail_msg("other attributes: %s (%zd, %zd)", a, na, nb);
	for (ssize_t off = 0; off < na; off += (ssize_t)strlen(la + off) + 1) {
		ssize_t ka = lgetxattr(a, la + off, va, sizeof va),
		        kb = lgetxattr(b, la + off, vb, sizeof vb);

		if (ka != kb || memcmp(va, vb, (size_t)ka))
			fail_msg("another %s: %s", la + off, a);
	}
}

static inline bool dirs_has_data(int fd, off_t off)
{
	off_t data = lseek(fd, off, SEEK_DATA);

	return data >= 0 && data < off + 65536;
}

static inline void dirs_same_content(const char *a, const char *b, off_t size)
{
	static uint8_t ba[65536], bb[65536];
	ntr_autoclose int fa = open(a, O_RDONLY | O_CLOEXEC), fb = open(b, O_RDONLY | O_CLOEXEC);
	off_t off = 0;

	assert_true(fa >= 0 && fb >= 0);
	while (off < size) {
		ssize_t na = pread(fa, ba, sizeof ba, off);

		assert_true(na > 0 && pread(fb, bb, sizeof bb, off) == na);
		if (memcmp(ba, bb, (size_t)na))
			fail_msg("other content: %s", a);
		off += na;
	}
	for (off = 0; off < size; off += 65536) /* holes, where whole chunks of 64 KiB are ones */
		if (dirs_has_data(fa, off) != dirs_has_data(fb, off))
			fail_msg("other holes: %s", a);
}

static inline void dirs_same_link(struct dirs_pair *p, const struct stat *a, const struct stat *b)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->ino[i].a == a->st_ino || p->ino[i].b == b->st_ino) {
			assert_true(p->ino[i].a == a->st_ino && p->ino[i].b == b->st_ino);
			return;
		}
	assert_true(p->n < NTR_COUNT(p->ino));
	p->ino[p->n].a = a->st_ino;
	p->ino[p->n++].b = b->st_ino;
}

static inline void dirs_same_stat(const char *path, const struct stat *a, const struct stat *b)
{
	if (a->st_mode != b->st_mode)
		fail_msg("mode %o, %o: %s", a->st_mode, b->st_mode, path);
	if (a->st_uid != b->st_uid || a->st_gid != b->st_gid)
		fail_msg("owner %u:%u, %u:%u: %s", a->st_uid, a->st_gid, b->st_uid, b->st_gid, path);
	if (a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec)
		fail_msg("mtime %jd.%09ld, %jd.%09ld: %s", (intmax_t)a->st_mtim.tv_sec, a->st_mtim.tv_nsec,
		        (intmax_t)b->st_mtim.tv_sec, b->st_mtim.tv_nsec, path);
	if (a->st_nlink != b->st_nlink)
		fail_msg("links %ju, %ju: %s", (uintmax_t)a->st_nlink, (uintmax_t)b->st_nlink, path);
	if (!S_ISDIR(a->st_mode) && a->st_size != b->st_size)
		fail_msg("size: %s", path);
	if ((S_ISCHR(a->st_mode) || S_ISBLK(a->st_mode)) && a->st_rdev != b->st_rdev)
		fail_msg("device: %s", path);
}

static inline int dirs_count(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline void dirs_same_entry(struct dirs_pair *p, const char *a, const char *b);

static inline void dirs_same_entries(struct dirs_pair *p, const char *a, const char *b)
{
	DIR *d = opendir(a);
	struct dirent *en;

	assert_non_null(d);
	if (dirs_count(a) != dirs_count(b))
		fail_msg("other entries: %s", a);
	while ((en = readdir(d))) {
		ntr_autofree char *pa = ntr_sprintf("%s/%s", a, en->d_name),
		                  *pb = ntr_sprintf("%s/%s", b, en->d_name);

		if (strcmp(en->d_name, ".") && strcmp(en->d_name, ".."))
			dirs_same_entry(p, pa, pb);
	}
	closedir(d);
}

static inline void dirs_same_entry(struct dirs_pair *p, const char *a, const char *b)
{
	char ta[4096], tb[4096];
	struct stat sa, sb;

	assert_int_equal(lstat(a, &sa), 0);
	if (lstat(b, &sb))
		fail_msg("missing: %s", b);
	dirs_same_stat(a, &sa, &sb);
	dirs_same_xattrs(a, b);
	if (S_ISDIR(sa.st_mode)) {
		dirs_same_entries(p, a, b);
		return;
	}
	dirs_same_link(p, &sa, &sb);
	if (S_ISREG(sa.st_mode))
		dirs_same_content(a, b, sa.st_size);
	if (S_ISLNK(sa.st_mode)) {
		assert_true(
		        readlink(a, ta, sizeof ta) == sa.st_size && readlink(b, tb, sizeof tb) == sa.st_size);
		assert_memory_equal(ta, tb, (size_t)sa.st_size);
	}
}

/* Fails with a text unless both are the same in every way a program could see, but for atime, ctime and
 * numbers. */
static inline void dirs_assert_same(const char *a, const char *b)
{
	struct dirs_pair *p = calloc(1, sizeof *p);

	assert_non_null(p);
	dirs_same_entry(p, a, b);
	free(p);
}

#endif
