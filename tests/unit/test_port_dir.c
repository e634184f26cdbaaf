/* Directories into a tree and out of it: exact, and refused by name where they cannot be. */
#include "dirs.h"

#include "fs/file.h"
#include "fs/port.h"

#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct fixture fx;

static int setup(void **state)
{
	(void)state;
	memset(&fx, 0, sizeof fx);
	fx_setup(&fx);
	assert_int_equal(chmod(fx.dir, 0755), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_teardown(&fx);
	return 0;
}

static char *in_dir(const char *name)
{
	char *p = ntr_sprintf("%s/%s", fx.dir, name);

	assert_non_null(p);
	return p;
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int import(const char *path, struct ntr_txn **ret, struct ntr_err *e)
{
	ntr_autoclose int fd = open_dir(path);

	assert_int_equal(ntr_session_blank(fx.st, ret, e), 0);
	return ntr_import_dir(*ret, fd, "SRC", NULL, e);
}

static void import_as(const char *path, const char *session)
{
	struct ntr_err e = {0};
	struct ntr_txn *t;

	if (import(path, &t, &e) || ntr_session_new(fx.st, session, NULL, t, &fx.head, &e))
		fx_fail("import", &e);
}

static void export_to(const char *path)
{
	struct ntr_snap s = ntr_snap_root(fx.st, fx.head.root);
	ntr_autoclose int fd = -1;
	struct ntr_err e = {0};

	assert_int_equal(mkdir(path, 0700), 0);
	fd = open_dir(path);
	if (ntr_export_dir(&s, NTR_INO_ROOT, fd, path, NULL, &e))
		fx_fail("export", &e);
}

static void assert_err(const struct ntr_err *e, const char *part)
{
	char text[2048];

	ntr_err_format(e, text, sizeof text);
	if (!strstr(text, part))
		fail_msg("'%s' is not in: %s", part, text);
}

static void round_trip(void **state)
{
	ntr_autofree char *a = in_dir("a"), *b = in_dir("b");
	(void)state;

	dirs_make_source(a, true);
	import_as(a, "s");
	fx_reopen(&fx);
	export_to(b);
	dirs_assert_same(a, b);
}

/* The source's access times survive being read, where we own it. */
static void atimes_stay(void **state)
{
	const struct timespec old[2] = {{1000, 5}, {2000, 6}};
	ntr_autofree char *a = in_dir("a"), *f = in_dir("a/f");
	struct ntr_inode in;
	struct ntr_snap s;
	struct stat st;
	uint64_t ino;
	int d = dirs_mkdir(AT_FDCWD, a, 0755);
	(void)state;

	close(dirs_file(d, "f", "x", 1, 0644));
	close(d);
	assert_int_equal(utimensat(AT_FDCWD, f, old, 0), 0);
	import_as(a, "s");
	assert_int_equal(stat(f, &st), 0);
	assert_true(st.st_atim.tv_sec == 1000 && st.st_atim.tv_nsec == 5);
	s = ntr_snap_root(fx.st, fx.head.root);
	assert_int_equal(ntr_path_lookup(&s, "f", &ino), 0);
	assert_int_equal(ntr_inode_get(&s, ino, &in), 0);
	assert_true(in.atime.tv_sec == 1000 && in.mtime.tv_nsec == 6 && in.ctime.tv_sec > 1000000000);
}

static void part_of_a_tree(void **state)
{
	ntr_autofree char *a = in_dir("a"), *sub = in_dir("a/odd names"), *b = in_dir("b");
	struct ntr_err e = {0};
	struct ntr_snap s;
	uint64_t ino;
	int fd;
	(void)state;

	dirs_make_source(a, true);
	import_as(a, "s");
	s = ntr_snap_root(fx.st, fx.head.root);
	assert_int_equal(ntr_path_lookup(&s, "odd names", &ino), 0);
	assert_int_equal(mkdir(b, 0700), 0);
	fd = open_dir(b);
	if (ntr_export_dir(&s, ino, fd, b, NULL, &e))
		fx_fail("export", &e);
	dirs_assert_same(sub, b);
	assert_int_equal(ntr_export_dir(&s, ino, fd, b, NULL, &e), -ENOTEMPTY);
	assert_err(&e, "not empty");
	close(fd);
}

static void into_a_full_place(void **state)
{
	ntr_autofree char *a = in_dir("a"), *b = in_dir("b"), *c = in_dir("b/x");
	int d = dirs_mkdir(AT_FDCWD, a, 0755), fd;
	struct ntr_err e = {0};
	struct ntr_snap s;
	(void)state;

	close(dirs_file(d, "f", "x", 1, 0644));
	close(d);
	import_as(a, "s");
	s = ntr_snap_root(fx.st, fx.head.root);
	assert_int_equal(mkdir(b, 0700), 0);
	fd = open_dir(b);
	assert_int_equal(mkdir(c, 0700), 0);
	assert_int_equal(ntr_export_dir(&s, NTR_INO_ROOT, fd, "B", NULL, &e), -ENOTEMPTY);
	assert_int_equal(rmdir(c), 0);
	assert_int_equal(rmdir(b), 0); /* nothing can be made in a directory that is gone */
	assert_int_equal(ntr_export_dir(&s, NTR_INO_ROOT, fd, "B", NULL, &e), -ENOENT);
	assert_err(&e, "export 'f' to 'B'");
	assert_err(&e, "1 entries");
	close(fd);
}

static void expect_refused(const char *path, const char *name, const char *why)
{
	struct ntr_err e = {0};
	struct ntr_txn *t;

	assert_true(import(path, &t, &e) < 0);
	ntr_txn_abort(t);
	assert_err(&e, name);
	assert_err(&e, why);
	assert_int_equal(ntr_session_get(fx.st, "s", &fx.head, &e), -ENOENT);
}

static void overlay_markers(void **state)
{
	ntr_autofree char *a = in_dir("a");
	int d = dirs_mkdir(AT_FDCWD, a, 0755), e = dirs_mkdir(d, "sub", 0755);
	(void)state;

	assert_int_equal(fsetxattr(e, "user.overlay.opaque", "y", 1, 0), 0);
	expect_refused(a, "SRC/sub'", "overlayfs");
	assert_int_equal(fremovexattr(e, "user.overlay.opaque"), 0);
	close(dirs_file(e, "file", "", 0, 0644));
	assert_int_equal(fsetxattr(d, "user.overlay.redirect", "y", 1, 0), 0);
	expect_refused(a, "SRC/", "overlayfs");
	assert_int_equal(fremovexattr(d, "user.overlay.redirect"), 0);
	if (!geteuid()) {
		int f = openat(e, "file", O_RDONLY);

		assert_int_equal(fsetxattr(f, "trusted.overlay.metacopy", "", 0, 0), 0);
		expect_refused(a, "SRC/sub/file", "overlayfs");
		assert_int_equal(fremovexattr(f, "trusted.overlay.metacopy"), 0);
		close(f);
		assert_int_equal(mknodat(e, "white", S_IFCHR, 0), 0);
		expect_refused(a, "SRC/sub/white", "whiteout");
		assert_int_equal(unlinkat(e, "white", 0), 0);
	}
	import_as(a, "s");
	close(e);
	close(d);
}

static void mounts_below(void **state)
{
	ntr_autofree char *a = in_dir("a"), *sub = in_dir("a/sub"), *file = in_dir("a/file");
	(void)state;

	if (geteuid())
		skip(); /* mounting needs root */
	close(dirs_mkdir(AT_FDCWD, a, 0755));
	close(dirs_mkdir(AT_FDCWD, sub, 0755));
	close(dirs_file(AT_FDCWD, file, "", 0, 0644));
	if (mount("none", sub, "tmpfs", 0, "size=64k"))
		skip(); /* nor may this root */
	expect_refused(a, "SRC/sub", "mount point");
	import_as(sub, "top-is-a-mount");
	assert_int_equal(umount(sub), 0);
	assert_int_equal(mount(file, file, NULL, MS_BIND, NULL), 0);
	expect_refused(a, "SRC/file", "mount point");
	assert_int_equal(umount(file), 0);
	import_as(a, "s");
}

/* Runs this program again as an ordinary user, who does `what` with a store of his own. (A child that only
 * forked would lack RocksDB's threads.) */
static void as_user(const char *what, const char *src)
{
	ntr_autofree char *home = in_dir("home");
	int status, self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	pid_t pid;

	assert_true(self >= 0);
	assert_int_equal(mkdir(home, 0700), 0);
	if (!geteuid())
		assert_int_equal(chown(home, 65534, 65534), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		char *args[] = {strdup("as-user"), strdup(what), strdup(src), home, NULL};

		if (geteuid() || (!setgid(65534) && !setuid(65534)))
			fexecve(self, args, environ);
		_exit(99);
	}
	close(self);
	assert_true(waitpid(pid, &status, 0) == pid);
	assert_int_equal(status, 0);
}

static void die(const char *what)
{
	fprintf(stderr, "as a user: %s\n", what);
	_exit(1);
}

static void user_cannot_read(const char *src)
{
	struct ntr_err e = {0};
	struct ntr_txn *t;
	char text[2048];

	if (import(src, &t, &e) != -EACCES)
		die("an unreadable file came in");
	ntr_txn_abort(t);
	ntr_err_format(&e, text, sizeof text);
	if (!strstr(text, "SRC/sub/secret") || !strstr(text, "Permission denied"))
		die(text);
}

static void an_unreadable_file(void **state)
{
	ntr_autofree char *a = in_dir("a");
	int d = dirs_mkdir(AT_FDCWD, a, 0755), e = dirs_mkdir(d, "sub", 0755);
	(void)state;

	close(dirs_file(e, "secret", "s", 1, geteuid() ? 0 : 0600));
	close(dirs_file(e, "open", "o", 1, 0644));
	close(e);
	close(d);
	as_user("cannot-read", a);
}

static void user_round_trip(const char *src)
{
	ntr_autofree char *out = ntr_sprintf("%s/../out", fx.path), *text = NULL;
	struct stat st;

	import_as(src, "s");
	export_to(out);
	text = ntr_sprintf("%s/root-suid", out);
	if (stat(text, &st) || (st.st_mode & 07777) != 0755 || st.st_uid != geteuid())
		die("a foreign set-uid file kept its bit");
	free(text);
	text = ntr_sprintf("%s/plain", out);
	if (stat(text, &st) || (st.st_mode & 07777) != 0640 || st.st_mtim.tv_nsec != 77)
		die("another mode or time");
}

static void as_an_ordinary_user(void **state)
{
	const struct timespec t[2] = {{1, 2}, {3, 77}};
	ntr_autofree char *a = in_dir("a");
	int d = dirs_mkdir(AT_FDCWD, a, 0755), f;
	(void)state;

	if (geteuid())
		skip(); /* all tests here run as one */
	close(dirs_file(d, "root-suid", "s", 1, 04755));
	f = dirs_file(d, "plain", "p", 1, 0640);
	assert_int_equal(fchown(f, 65534, 65534), 0);
	assert_int_equal(futimens(f, t), 0);
	close(f);
	close(d);
	as_user("round-trip", a);
}

static uint64_t told_entries, told_bytes;
static unsigned told;

static void note(void *user, uint64_t entries, uint64_t bytes)
{
	(void)user;
	assert_true(entries >= told_entries && bytes >= told_bytes);
	told_entries = entries;
	told_bytes = bytes;
	told++;
}

static void progress_is_told(void **state)
{
	const struct ntr_progress p = {note, NULL};
	ntr_autofree char *a = in_dir("a");
	struct ntr_err e = {0};
	struct ntr_txn *t;
	int fd;
	(void)state;

	dirs_make_source(a, true);
	fd = open_dir(a);
	assert_int_equal(ntr_session_blank(fx.st, &t, &e), 0);
	assert_int_equal(ntr_import_dir(t, fd, "SRC", &p, &e), 0);
	assert_true(told > 0 && told_entries > 350 && told_bytes > 4 << 20);
	ntr_txn_abort(t);
	close(fd);
}

/* Many names of one file arrive in any order, from several threads. */
static void hard_links_from_many_threads(void **state)
{
	ntr_autofree char *a = in_dir("a"), *b = in_dir("b");
	int d = dirs_mkdir(AT_FDCWD, a, 0755);
	(void)state;

	for (int i = 0; i < 40; i++) {
		char dir[16], name[32], first[32];
		int e;

		snprintf(dir, sizeof dir, "d%d", i);
		e = dirs_mkdir(d, dir, 0755);
		for (int k = 0; k < 20; k++) {
			snprintf(name, sizeof name, "f%d", k);
			snprintf(first, sizeof first, "d0/f%d", k);
			if (i)
				assert_int_equal(linkat(d, first, e, name, 0), 0);
			else
				close(dirs_file(e, name, name, strlen(name), 0644));
		}
		close(e);
	}
	close(d);
	import_as(a, "s");
	assert_true(fx.head.inodes == 1 + 40 + 20);
	export_to(b);
	dirs_assert_same(a, b);
}

/* The other side of as_user. */
static int user_main(char **argv)
{
	snprintf(fx.path, sizeof fx.path, "%s/store", argv[3]);
	fx_open(&fx, true);
	if (!strcmp(argv[1], "cannot-read"))
		user_cannot_read(argv[2]);
	else
		user_round_trip(argv[2]);
	ntr_store_close(fx.st);
	return 0;
}

int main(int argc, char **argv)
{
#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	        WITH(round_trip),
	        WITH(atimes_stay),
	        WITH(part_of_a_tree),
	        WITH(into_a_full_place),
	        WITH(overlay_markers),
	        WITH(mounts_below),
	        WITH(an_unreadable_file),
	        WITH(as_an_ordinary_user),
	        WITH(progress_is_told),
	        WITH(hard_links_from_many_threads),
	};

	if (argc == 4 && !strcmp(argv[0], "as-user"))
		return user_main(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
