/* Tars into a tree and out of it; what other programs write and read; what is refused; what is damaged. */
#include "dirs.h"

#include "fs/file.h"
#include "fs/port.h"

#include <archive.h>
#include <archive_entry.h>

static struct fixture fx;
static int tar_fd = -1;

static int setup(void **state)
{
	(void)state;
	memset(&fx, 0, sizeof fx);
	fx_setup(&fx);
	tar_fd = open(fx.dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	assert_true(tar_fd >= 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(tar_fd);
	fx_teardown(&fx);
	return 0;
}

static char *in_dir(const char *name)
{
	char *p = ntr_sprintf("%s/%s", fx.dir, name);

	assert_non_null(p);
	return p;
}

static void import_dir_as(const char *path, const char *session)
{
	ntr_autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ntr_err e = {0};
	struct ntr_txn *t;

	if (ntr_session_blank(fx.st, &t, &e) || ntr_import_dir(t, fd, path, NULL, &e) ||
	        ntr_session_new(fx.st, session, NULL, t, &fx.head, &e))
		fx_fail("import", &e);
}

static void import_tar_as(int fd, const char *session)
{
	struct ntr_err e = {0};
	struct ntr_txn *t;

	assert_true(lseek(fd, 0, SEEK_SET) == 0);
	if (ntr_session_blank(fx.st, &t, &e) || ntr_import_tar(t, fd, "T", NULL, &e) ||
	        ntr_session_new(fx.st, session, NULL, t, &fx.head, &e))
		fx_fail("import of the tar", &e);
}

static void export_to(const char *path)
{
	struct ntr_snap s = ntr_snap_root(fx.st, fx.head.root);
	ntr_autoclose int fd = -1;
	struct ntr_err e = {0};

	assert_int_equal(mkdir(path, 0700), 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ntr_export_dir(&s, NTR_INO_ROOT, fd, path, NULL, &e))
		fx_fail("export", &e);
}

static void export_tar(int fd)
{
	struct ntr_snap s = ntr_snap_root(fx.st, fx.head.root);
	struct ntr_err e = {0};

	assert_int_equal(ftruncate(fd, 0), 0);
	assert_true(lseek(fd, 0, SEEK_SET) == 0);
	if (ntr_export_tar(&s, NTR_INO_ROOT, fd, NULL, &e))
		fx_fail("export of a tar", &e);
}

static void dir_tree_tar_tree_dir(void **state)
{
	ntr_autofree char *a = in_dir("a"), *b = in_dir("b");
	struct stat st;
	(void)state;

	dirs_make_source(a, false);
	import_dir_as(a, "one");
	export_tar(tar_fd);
	assert_int_equal(fstat(tar_fd, &st), 0);
	assert_true(st.st_size < 8 << 20); /* 37 MiB of holes are not in it */
	import_tar_as(tar_fd, "two");
	export_to(b);
	dirs_assert_same(a, b);
}

static void same_tree_same_tar(void **state)
{
	ntr_autofree char *a = in_dir("a");
	ntr_autoclose int other = open(fx.dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	static uint8_t x[65536], y[65536];
	ssize_t n;
	(void)state;

	dirs_make_source(a, true); /* a socket is left out */
	import_dir_as(a, "one");
	export_tar(tar_fd);
	export_tar(other);
	for (off_t off = 0; (n = pread(tar_fd, x, sizeof x, off)) > 0; off += n) {
		assert_true(pread(other, y, sizeof y, off) == n);
		assert_memory_equal(x, y, (size_t)n);
	}
}

static bool have(const char *command)
{
	ntr_autofree char *c = ntr_sprintf("command -v %s >/dev/null 2>&1", command);

	return !system(c);
}

static bool gnu_tar_does_all(void)
{
	return !geteuid() && have("tar") && !system("tar --version 2>/dev/null | grep -q GNU") &&
	       !system("tar --acls --xattrs -cf /dev/null /dev/null 2>/dev/null");
}

static void gnu_tar_reads_ours(void **state)
{
	ntr_autofree char *a = in_dir("a"), *b = in_dir("b"), *cmd = NULL;
	(void)state;

	if (!gnu_tar_does_all())
		skip(); /* needs root and GNU tar */
	dirs_make_source(a, false);
	import_dir_as(a, "one");
	export_tar(tar_fd);
	assert_int_equal(mkdir(b, 0700), 0);
	cmd = ntr_sprintf("tar --warning=no-unknown-keyword --warning=no-timestamp --acls --xattrs "
	                  "--xattrs-include='*' --numeric-owner -xpf "
	                  "/proc/%d/fd/%d -C %s",
	        getpid(), tar_fd, b);
	assert_int_equal(system(cmd), 0);
	dirs_assert_same(a, b);
}

static void we_read_gnu_tar(void **state)
{
	static const char *const forms[][2] = {
	        {"--format=pax --acls --xattrs --xattrs-include='*' -S", "cat"},
	        {"--format=pax --acls --xattrs --xattrs-include='*'", "gzip -1"},
	        {"--format=pax --acls --xattrs --xattrs-include='*'", "xz -0"},
	        {"--format=pax --acls --xattrs --xattrs-include='*'", "zstd -1"},
	        {"--format=pax --acls --xattrs --xattrs-include='*'", "bzip2 -1"}};
	ntr_autofree char *a = in_dir("a"), *small = in_dir("a/small-hole");
	(void)state;

	if (!gnu_tar_does_all())
		skip(); /* needs root and GNU tar */
	dirs_make_source(a, false);
	assert_int_equal(unlink(small), 0); /* GNU tar writes a hole of 300 bytes as 300 zeros */
	for (size_t i = 0; i < NTR_COUNT(forms); i++) {
		ntr_autofree char *name = ntr_sprintf("t%zu", i), *file = in_dir(name), *b = NULL,
		                  *cmd = NULL, *rm = NULL;
		ntr_autoclose int fd = -1;
		char tool[8];

		snprintf(tool, sizeof tool, "%.*s", (int)strcspn(forms[i][1], " "), forms[i][1]);
		if (!have(tool))
			continue;
		cmd = ntr_sprintf(
		        "tar %s --numeric-owner -C %s -cf - . | %s > %s", forms[i][0], a, forms[i][1], file);
		assert_int_equal(system(cmd), 0);
		fd = open(file, O_RDONLY | O_CLOEXEC);
		import_tar_as(fd, name);
		b = ntr_sprintf("%s-out", file);
		export_to(b);
		if (!i) /* others have no -S: their holes are zeros */
			dirs_assert_same(a, b);
		rm = ntr_sprintf(
		        "diff -r --no-dereference %s/links %s/links && diff -r %s/many %s/many", a, b, a, b);
		assert_int_equal(system(rm), 0);
	}
}

/* ---- tars made by hand ---- */

struct made {
	struct archive *a;
};

static struct made made_begin(void)
{
	struct made m = {archive_write_new()};

	assert_non_null(m.a);
	assert_int_equal(ftruncate(tar_fd, 0), 0);
	assert_true(lseek(tar_fd, 0, SEEK_SET) == 0);
	assert_int_equal(archive_write_set_format_pax(m.a), ARCHIVE_OK);
	assert_int_equal(archive_write_open_fd(m.a, tar_fd), ARCHIVE_OK);
	return m;
}

static void made_end(struct made *m)
{
	assert_int_equal(archive_write_close(m->a), ARCHIVE_OK);
	archive_write_free(m->a);
}

static void put(struct made *m, struct archive_entry *en, const char *content)
{
	assert_true(archive_write_header(m->a, en) >= ARCHIVE_WARN);
	if (content)
		assert_true(
		        archive_write_data(m->a, content, strlen(content)) == (la_ssize_t)strlen(content));
	archive_entry_free(en);
}

static struct archive_entry *entry(const char *path, unsigned type)
{
	struct archive_entry *en = archive_entry_new();

	assert_non_null(en);
	archive_entry_copy_pathname(en, path);
	archive_entry_set_filetype(en, type);
	archive_entry_set_perm(en, type == S_IFDIR ? 0755 : 0644);
	archive_entry_set_mtime(en, 1000, 7);
	archive_entry_set_size(en, 0);
	return en;
}

static void add_file(struct made *m, const char *path, const char *content)
{
	struct archive_entry *en = entry(path, S_IFREG);

	archive_entry_set_size(en, (la_int64_t)strlen(content));
	put(m, en, content);
}

static void add_dir(struct made *m, const char *path)
{
	put(m, entry(path, S_IFDIR), NULL);
}

static void add_symlink(struct made *m, const char *path, const char *target)
{
	struct archive_entry *en = entry(path, S_IFLNK);

	archive_entry_copy_symlink(en, target);
	put(m, en, NULL);
}

static void add_hardlink(struct made *m, const char *path, const char *target)
{
	struct archive_entry *en = entry(path, S_IFREG);

	archive_entry_copy_hardlink(en, target);
	put(m, en, NULL);
}

static void add_device(struct made *m, const char *path, unsigned type, dev_t dev)
{
	struct archive_entry *en = entry(path, type);

	archive_entry_set_rdev(en, dev);
	put(m, en, NULL);
}

static void add_xattr(struct made *m, const char *path, const char *name)
{
	struct archive_entry *en = entry(path, S_IFREG);

	archive_entry_xattr_add_entry(en, name, "y", 1);
	put(m, en, NULL);
}

static void expect_refused(struct made *m, const char *name, const char *why)
{
	struct ntr_err e = {0};
	struct ntr_txn *t;
	char text[2048];

	made_end(m);
	assert_true(lseek(tar_fd, 0, SEEK_SET) == 0);
	assert_int_equal(ntr_session_blank(fx.st, &t, &e), 0);
	assert_true(ntr_import_tar(t, tar_fd, "T", NULL, &e) < 0);
	ntr_txn_abort(t);
	ntr_err_format(&e, text, sizeof text);
	if (!strstr(text, name) || !strstr(text, why))
		fail_msg("'%s', '%s' are not in: %s", name, why, text);
}

#define REFUSED(name, why, ...)                     \
	do {                                        \
		struct made m = made_begin();       \
		add_file(&m, "innocent", "before"); \
		__VA_ARGS__;                        \
		expect_refused(&m, name, why);      \
	} while (0)

static void hostile_names(void **state)
{
	char longest[300];
	(void)state;

	memset(longest, 'n', 256);
	longest[256] = '\0';
	REFUSED("'../evil'", "'..'", add_file(&m, "../evil", "x"));
	REFUSED("'a/../../evil'", "'..'", add_file(&m, "a/../../evil", "x"));
	REFUSED("'a/../'", "'..'", add_dir(&m, "a/.."));
	REFUSED("'/etc/passwd'", "absolute", add_file(&m, "/etc/passwd", "x"));
	REFUSED("'/'", "absolute", add_dir(&m, "/"));
	REFUSED(longest, "255", add_file(&m, longest, "x"));
	REFUSED("'./'", "no name", add_symlink(&m, "./", "x"));
	REFUSED("'.'", "no name", add_hardlink(&m, ".", "innocent"));
}

static void hostile_links(void **state)
{
	(void)state;
	REFUSED("'l'", "does not hold", add_hardlink(&m, "l", "../../etc/passwd"));
	REFUSED("'l'", "does not hold", add_hardlink(&m, "l", "/etc/passwd"));
	REFUSED("'l'", "does not hold", add_hardlink(&m, "l", "missing"));
	REFUSED("'l'", "does not hold", add_hardlink(&m, "l", "innocent/x"));
	REFUSED("'l'", "does not hold", add_symlink(&m, "s", "/etc"), add_hardlink(&m, "l", "s/passwd"));
	REFUSED("'l'", "to a directory", add_dir(&m, "d"), add_hardlink(&m, "l", "d"));
	REFUSED("'s/x'", "no directory", add_symlink(&m, "s", "/etc"), add_file(&m, "s/x", "x"));
	REFUSED("'s/x/y'", "no directory", add_symlink(&m, "s", "."), add_file(&m, "s/x/y", "x"));
	REFUSED("'innocent/x'", "no directory", add_file(&m, "innocent/x", "x"));
	REFUSED("'d'", "something else", add_dir(&m, "d"), add_symlink(&m, "d", "/etc"));
	REFUSED("'innocent/'", "something else", add_dir(&m, "innocent"));
	REFUSED("'d'", "something else", add_dir(&m, "d"), add_hardlink(&m, "d", "innocent"));
}

static void add_owned(struct made *m, la_int64_t uid)
{
	struct archive_entry *en = entry("owned", S_IFREG);

	archive_entry_set_uid(en, uid);
	put(m, en, NULL);
}

static void hostile_metadata(void **state)
{
	(void)state;
	REFUSED("'d/w'", "whiteout", add_device(&m, "d/w", S_IFCHR, 0));
	REFUSED("'f'", "overlayfs", add_xattr(&m, "f", "trusted.overlay.redirect"));
	REFUSED("'f'", "overlayfs", add_xattr(&m, "f", "user.overlay.metacopy"));
	REFUSED("'f'", "overlayfs", add_xattr(&m, "f", "trusted.overlay.overlay.x"));
	REFUSED("'owned'", "owner", add_owned(&m, INT64_C(0xFFFFFFFE)));
	REFUSED("'owned'", "owner", add_owned(&m, INT64_C(1) << 40));
	if (geteuid())
		REFUSED("'null'", "root", add_device(&m, "null", S_IFCHR, makedev(1, 3)));
}

static void check_file(const char *path, const char *want)
{
	struct ntr_snap s = ntr_snap_root(fx.st, fx.head.root);
	struct ntr_inode in;
	char buf[100];
	uint64_t ino;

	if (ntr_path_lookup(&s, path, &ino))
		fail_msg("missing: %s", path);
	assert_int_equal(ntr_inode_get(&s, ino, &in), 0);
	assert_true(ntr_file_read(&s, &in, 0, buf, sizeof buf) == (ssize_t)strlen(want));
	assert_memory_equal(buf, want, strlen(want));
}

static void inode_of(const char *path, struct ntr_inode *ret)
{
	struct ntr_snap s = ntr_snap_root(fx.st, fx.head.root);
	uint64_t ino;

	assert_int_equal(ntr_path_lookup(&s, path, &ino), 0);
	assert_int_equal(ntr_inode_get(&s, ino, ret), 0);
}

static void unusual_but_right(void **state)
{
	struct made m = made_begin();
	struct ntr_inode in;
	(void)state;

	add_file(&m, "no/parent//listed/./f", "one");
	add_file(&m, "no/parent/listed/g", "two");
	add_file(&m, "again", "old and longer");
	add_hardlink(&m, "again-link", "again");
	add_file(&m, "again", "new");
	add_symlink(&m, "out", "/etc/passwd");
	add_symlink(&m, "up", "../../..");
	add_dir(&m, "no/parent/");
	add_hardlink(&m, "again", "./no//parent/listed/f");
	add_hardlink(&m, "again", "again");
	add_dir(&m, "./");
	made_end(&m);
	import_tar_as(tar_fd, "s");
	check_file("no/parent/listed/f", "one");
	check_file("no/parent/listed/g", "two");
	check_file("again", "one");
	check_file("again-link", "old and longer");
	inode_of("again", &in);
	assert_true(in.nlink == 2 && in.mtime.tv_sec == 1000);
	inode_of("again-link", &in);
	assert_true(in.nlink == 1);
	inode_of("out", &in);
	assert_true(S_ISLNK(in.mode) && in.size == 11);
	inode_of("no", &in);
	assert_true(in.mtime.tv_sec > 1000 && in.nlink == 3 && in.uid == NTR_OWNER_ID);
	inode_of("no/parent", &in);
	assert_true(in.mtime.tv_sec == 1000 && in.mtime.tv_nsec == 7);
	inode_of("/", &in);
	assert_true(in.mtime.tv_sec == 1000 && in.mode == (S_IFDIR | 0755));
}

/* ---- damage ---- */

/* Whatever the bytes are: an error with a text, or a tree. */
static int try_bytes(const uint8_t *data, size_t n)
{
	struct ntr_err e = {0};
	struct ntr_txn *t;
	int r;

	assert_int_equal(ftruncate(tar_fd, 0), 0);
	assert_true(pwrite(tar_fd, data, n, 0) == (ssize_t)n && lseek(tar_fd, 0, SEEK_SET) == 0);
	assert_int_equal(ntr_session_blank(fx.st, &t, &e), 0);
	r = ntr_import_tar(t, tar_fd, "T", NULL, &e);
	assert_true(!r || (r == e.code && e.what[0]));
	ntr_txn_abort(t);
	return r;
}

static void damaged_tars(void **state)
{
	struct made m = made_begin();
	ntr_autofree uint8_t *good = malloc(200000), *bad = malloc(200000);
	uint64_t rnd = 99;
	struct stat st;
	size_t n;
	(void)state;

	assert_true(good && bad);
	add_dir(&m, "d");
	add_file(&m, "d/f", "some content");
	add_xattr(&m, "x", "user.x");
	add_symlink(&m, "d/s", "f");
	add_hardlink(&m, "h", "d/f");
	made_end(&m);
	assert_int_equal(fstat(tar_fd, &st), 0);
	n = (size_t)st.st_size;
	assert_true(n < 200000 && pread(tar_fd, good, n, 0) == (ssize_t)n);
	assert_int_equal(try_bytes(good, n), 0);
	assert_true(try_bytes(good, 0) < 0);
	assert_true(try_bytes(good, 100) < 0);
	assert_true(try_bytes(good, 700) < 0);
	for (int i = 0; i < 300; i++) {
		memcpy(bad, good, n);
		for (int k = 0; k < 3; k++)
			bad[fx_below(&rnd, n)] = (uint8_t)fx_rand(&rnd);
		try_bytes(bad, i % 3 ? n : fx_below(&rnd, n));
	}
	for (size_t i = 0; i < 4096; i++)
		bad[i] = (uint8_t)fx_rand(&rnd);
	assert_true(try_bytes(bad, 4096) < 0);
}

static void an_empty_tar_and_a_full_disk(void **state)
{
	ntr_autoclose int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct made m = made_begin();
	struct ntr_err e = {0};
	struct ntr_snap s;
	(void)state;

	made_end(&m);
	import_tar_as(tar_fd, "empty");
	assert_true(fx.head.inodes == 1);
	s = ntr_snap_root(fx.st, fx.head.root);
	assert_true(full >= 0);
	assert_int_equal(ntr_export_tar(&s, NTR_INO_ROOT, full, NULL, &e), -ENOSPC);
	assert_true(strstr(e.what, "as a tar") != NULL);
	assert_int_equal(ntr_export_tar(&s, 12345, full, NULL, &e), -ENOENT);
}

int main(void)
{
#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	        WITH(dir_tree_tar_tree_dir),
	        WITH(same_tree_same_tar),
	        WITH(gnu_tar_reads_ours),
	        WITH(we_read_gnu_tar),
	        WITH(hostile_names),
	        WITH(hostile_links),
	        WITH(hostile_metadata),
	        WITH(unusual_but_right),
	        WITH(damaged_tars),
	        WITH(an_empty_tar_and_a_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
