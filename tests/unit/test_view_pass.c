/* ntr-pass: the view on a fuse descriptor outside. As root here, with mount(2): what fusermount3 does for a
 * user. */
#include "init_harness.h"

#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

struct served {
	struct th t;
	char mnt[128];
	bool mounted;
};

static void serve(struct served *s)
{
	ntr_autojson json_t *m = NULL;
	char options[128];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (geteuid() || fuse < 0)
		skip();
	th_open(&s->t, false);
	snprintf(s->mnt, sizeof s->mnt, "%s/mnt", s->t.dir);
	assert_int_equal(mkdir(s->mnt, 0755), 0);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions",
	        fuse);
	assert_int_equal(mount("ntr", s->mnt, "fuse", MS_NOSUID | MS_NODEV, options), 0);
	s->mounted = true;
	m = th_do(&s->t, json_pack("{s:s,s:b}", "op", "serve", "rw", 1), &fuse, 1);
	close(fuse);
	assert_true(ntr_json_bool(m, "ok", false));
	assert_int_equal(chdir(s->mnt), 0);
}

static void served_end(struct served *s)
{
	if (chdir("/"))
		abort();
	if (s->mounted)
		umount2(s->mnt, MNT_DETACH);
	if (s->t.backlog)
		th_close(&s->t);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(ntr_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(close(fd), 0);
}

static void expect(const char *path, const char *want)
{
	ntr_autofree char *text = NULL;
	int r = ntr_read_file(AT_FDCWD, path, 1 << 20, &text, NULL);

	if (r || strcmp(text, want))
		fail_msg("%s holds '%s' (%s), expected '%s'", path, text ? text : "", strerror(-r), want);
}

static nlink_t links(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_nlink;
}

static void names(void **state)
{
	ntr_auto(served_end) struct served s = {.mounted = false};
	char target[64] = "";
	struct stat a, b;

	(void)state;
	serve(&s);
	expect("hello", "hello\n");
	put("a", "a\n");
	assert_int_equal(mkdir("d", 0750), 0);
	assert_int_equal(rename("a", "d/b"), 0);
	assert_int_equal(link("d/b", "c"), 0);
	assert_int_equal(links("c"), 2);
	assert_int_equal(stat("c", &a), 0);
	assert_int_equal(stat("d/b", &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(symlink("d/b", "l"), 0);
	assert_int_equal(readlink("l", target, sizeof target), 3);
	assert_string_equal(target, "d/b");
	expect("l", "a\n");
	put("e", "e\n");
	assert_int_equal(renameat2(AT_FDCWD, "e", AT_FDCWD, "c", RENAME_NOREPLACE), -1);
	assert_int_equal(errno, EEXIST);
	assert_int_equal(renameat2(AT_FDCWD, "e", AT_FDCWD, "c", RENAME_EXCHANGE), 0);
	expect("c", "e\n");
	expect("e", "a\n");
	assert_int_equal(mkfifo("f", 0600), 0);
	assert_int_equal(mknod("sock", S_IFSOCK | 0600, 0), 0);
	assert_int_equal(rmdir("d"), -1);
	assert_int_equal(errno, ENOTEMPTY);
	assert_int_equal(unlink("d/b"), 0);
	assert_int_equal(rmdir("d"), 0);
	assert_int_equal(access("d", F_OK), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(open("c", O_RDWR | O_CREAT | O_EXCL, 0600), -1);
	assert_int_equal(errno, EEXIST);
	th_expect(&s.t, "ls; cat c e; readlink l", "c\ne\nf\nhello\nl\nsock\ne\na\nd/b\n");
}

static void attributes(void **state)
{
	ntr_auto(served_end) struct served s = {.mounted = false};
	const struct timespec ts[2] = {{.tv_sec = 1000, .tv_nsec = 5}, {.tv_sec = 2000, .tv_nsec = 7}};
	char value[64], list[256];
	struct statvfs sv;
	struct stat st;

	(void)state;
	serve(&s);
	put("x", "12345");
	assert_int_equal(chmod("x", 0640), 0);
	assert_int_equal(chown("x", 12, 34), 0);
	assert_int_equal(truncate("x", 3), 0);
	assert_int_equal(utimensat(AT_FDCWD, "x", ts, 0), 0);
	assert_int_equal(stat("x", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(st.st_uid, 12);
	assert_int_equal(st.st_gid, 34);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(st.st_atim.tv_nsec, 5);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(st.st_mtim.tv_nsec, 7);
	th_expect(&s.t, "stat -c '%a %u %g %s %Y' x", "640 12 34 3 2000\n");
	assert_int_equal(symlink("x", "l"), 0);
	assert_int_equal(utimensat(AT_FDCWD, "l", ts, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(lchown("l", 5, 6), 0);
	th_expect(&s.t, "stat -c '%u %g %Y' l", "5 6 2000\n");
	assert_int_equal(setxattr("x", "user.k", "val", 3, XATTR_CREATE), 0);
	assert_int_equal(setxattr("x", "user.k", "val", 3, XATTR_CREATE), -1);
	assert_int_equal(errno, EEXIST);
	assert_int_equal(getxattr("x", "user.k", value, sizeof value), 3);
	assert_memory_equal(value, "val", 3);
	assert_int_equal(getxattr("x", "user.k", NULL, 0), 3);
	assert_int_equal(getxattr("x", "user.k", value, 1), -1);
	assert_int_equal(errno, ERANGE);
	assert_int_equal(listxattr("x", list, sizeof list), 7);
	assert_string_equal(list, "user.k");
	assert_int_equal(removexattr("x", "user.k"), 0);
	assert_int_equal(getxattr("x", "user.k", value, sizeof value), -1);
	assert_int_equal(errno, ENODATA);
	assert_int_equal(statvfs(".", &sv), 0);
	assert_true(sv.f_blocks > 0);
	/* Umask, and bits that a creator asks for. */
	umask(027);
	close(open("masked", O_WRONLY | O_CREAT, 0666));
	umask(022);
	assert_int_equal(stat("masked", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
}

static void data(void **state)
{
	ntr_auto(served_end) struct served s = {.mounted = false};
	ntr_autoclose int fd = -1, to = -1, app = -1;
	char buf[16] = "";
	struct stat st;
	char *map;

	(void)state;
	serve(&s);
	fd = open("big", O_RDWR | O_CREAT, 0644);
	assert_int_equal(fallocate(fd, 0, 0, 1 << 20), 0);
	assert_int_equal(ftruncate(fd, 4 << 20), 0);
	assert_int_equal(pwrite(fd, "tail", 4, (4 << 20) - 4), 4);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0);
	assert_true(lseek(fd, 0, SEEK_DATA) >= (1 << 20));
	assert_int_equal(lseek(fd, 0, SEEK_HOLE), 0);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(fdatasync(fd), 0);
	to = open("copy", O_RDWR | O_CREAT, 0644);
	assert_int_equal(copy_file_range(fd, &(off_t){(4 << 20) - 4}, to, NULL, 4, 0), 4);
	expect("copy", "tail");
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 4 << 20);
	/* Appending: the end is where it really is, also after somebody inside has written. */
	app = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
	assert_int_equal(ntr_write_all(app, "1\n", 2), 0);
	th_expect(&s.t, "echo 2 >> log", "");
	assert_int_equal(ntr_write_all(app, "3\n", 2), 0);
	expect("log", "1\n2\n3\n");
	/* A shared mapping. */
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	memcpy(map, "mapped", 6);
	assert_int_equal(msync(map, 4096, MS_SYNC), 0);
	munmap(map, 4096);
	th_expect(&s.t, "head -c6 big", "mapped");
	/* An open file without a name. */
	assert_int_equal(unlink("copy"), 0);
	assert_int_equal(pread(to, buf, 4, 0), 4);
	assert_int_equal(ftruncate(to, 2), 0);
	assert_int_equal(fstat(to, &st), 0);
	assert_int_equal(st.st_size, 2);
	assert_int_equal(st.st_nlink, 0);
	/* Direct. */
	app = (close(app), open("log", O_RDONLY | O_DIRECT));
	assert_true(app >= 0);
	assert_int_equal(pread(app, buf, 3, 1), 3);
	assert_memory_equal(buf, "\n2\n", 3);
}

/* Both sides see at once what the other does, also through files that are open. */
static void coherence(void **state)
{
	ntr_auto(served_end) struct served s = {.mounted = false};
	ntr_autoclose int fd = -1;
	char buf[64] = "";

	(void)state;
	serve(&s);
	fd = open("hello", O_RDONLY);
	assert_int_equal(pread(fd, buf, sizeof buf, 0), 6);
	th_expect(&s.t, "echo longer than before > hello; mkdir in; echo x > in/x", "");
	assert_int_equal(pread(fd, buf, sizeof buf, 0), 19);
	expect("in/x", "x\n");
	th_expect(&s.t, "mv in out; rm out/x", "");
	assert_int_equal(access("in", F_OK), -1);
	assert_int_equal(access("out/x", F_OK), -1);
	assert_int_equal(access("out", F_OK), 0);
	put("out/y", "y\n");
	th_expect(&s.t, "cat out/y; rm -r out", "y\n");
	assert_int_equal(access("out", F_OK), -1);
}

/* More names than one reply holds, while names come and go. */
static void directories(void **state)
{
	enum { FILES = 3000 };
	ntr_auto(served_end) struct served s = {.mounted = false};
	static bool seen[FILES];
	char name[64];
	struct dirent *d;
	DIR *dir;
	long where = 0;
	int n = 0;

	(void)state;
	serve(&s);
	th_expect(&s.t,
	        "mkdir d; cd d; for ((i = 0; i < 3000; i++)); do : > file-with-a-rather-long-name-$i; done",
	        "");
	dir = opendir("d");
	assert_non_null(dir);
	memset(seen, 0, sizeof seen);
	while ((d = readdir(dir))) {
		int i = 0;

		if (sscanf(d->d_name, "file-with-a-rather-long-name-%d", &i) != 1)
			continue;
		assert_false(seen[i]);
		seen[i] = true;
		if (++n == 1500)
			where = telldir(dir);
	}
	assert_int_equal(n, FILES);
	seekdir(dir, where);
	for (n = 0; readdir(dir);)
		n++;
	assert_int_equal(n, FILES - 1500 + 0);
	closedir(dir);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "d/file-with-a-rather-long-name-%d", i);
		assert_int_equal(unlink(name), 0);
	}
	assert_int_equal(rmdir("d"), 0);
}

static json_t *layer_op(struct th *t, const char *op)
{
	int fds[3];
	json_t *m;

	th_next_layers(t, fds);
	m = th_do(t, json_pack("{s:s}", "op", op), fds, 3);
	ntr_wire_close_fds(fds, 3);
	return m;
}

/* A mount outside does not keep the view from being folded, unless files are open there; a rollback shows at
 * once. */
static void fold_and_swap(void **state)
{
	ntr_auto(served_end) struct served s = {.mounted = false};
	ntr_autojson json_t *busy = NULL, *fold = NULL, *swap = NULL;
	char buf[64];
	int fd;

	(void)state;
	serve(&s);
	assert_int_equal(mkdir("d", 0755), 0);
	put("d/one", "1\n");
	fd = open("d/one", O_RDONLY);
	busy = layer_op(&s.t, "fold");
	assert_true(ntr_json_bool(busy, "busy", false));
	assert_int_equal(pread(fd, buf, sizeof buf, 0), 2);
	close(fd);
	/* The folder as if committed: */
	{
		char p[256];

		th_path(&s.t, p, sizeof p, "lower", "d");
		assert_int_equal(mkdir(p, 0755), 0);
		th_put(&s.t, "lower", "d/one", "1\n");
	}
	assert_int_equal(chdir("d"), 0); /* a working directory outlives the exchange */
	s.t.n = 10;
	fold = layer_op(&s.t, "fold");
	assert_true(ntr_json_bool(fold, "ok", false));
	expect("one", "1\n");
	put("two", "2\n");
	assert_true(th_exists(&s.t, "upper", "d/two"));
	fd = open("two", O_RDONLY);
	swap = layer_op(&s.t, "swap");
	assert_true(ntr_json_bool(swap, "ok", false));
	assert_int_equal(read(fd, buf, sizeof buf), -1);
	assert_int_equal(errno, ESTALE);
	close(fd);
	assert_int_equal(access("two", F_OK), -1);
	expect("one", "1\n");
	th_expect(&s.t, "echo 3 > d/three", "");
	expect("three", "3\n");
}

/* It ends with the mount and with the session, and is none of the session's processes. */
static void ends(void **state)
{
	ntr_auto(served_end) struct served s = {.mounted = false};

	(void)state;
	serve(&s);
	assert_int_equal(th_ask(&s.t, "freeze", "frozen"), 0);
	assert_int_equal(th_children(s.t.pid), 1);
	if (chdir("/"))
		abort();
	assert_int_equal(umount2(s.mnt, 0), 0);
	s.mounted = false;
	TH_EVENTUALLY(th_children(s.t.pid) == 0);
	th_expect(&s.t, "echo on", "on\n");
}

static void session_ends(void **state)
{
	ntr_auto(served_end) struct served s = {.mounted = false};

	(void)state;
	serve(&s);
	json_decref(th_do(&s.t, json_pack("{s:s}", "op", "stop"), NULL, 0));
	th_gone(&s.t);
	TH_EVENTUALLY(access("hello", F_OK) == -1 && errno == ENOTCONN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(attributes),
	        cmocka_unit_test(data), cmocka_unit_test(coherence), cmocka_unit_test(directories),
	        cmocka_unit_test(fold_and_swap), cmocka_unit_test(ends), cmocka_unit_test(session_ends)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
