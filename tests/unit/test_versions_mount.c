/* The mount against the tree: every kind of thing, on both transports, as root and as an ordinary user; what
 * roots share; what is asked for only once; ends of all kinds. */
#include "versions_fixture.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

static struct vfixture f;

static int setup(void **state)
{
	(void)state;
	vfx_setup(&f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	vfx_teardown(&f);
	return 0;
}

static void commit_filled(void)
{
	struct ntr_txn *t = fx_begin(&f.fx);

	vfx_fill(t, NTR_INO_ROOT);
	fx_commit(&f.fx, t);
}

static void read_all(const char *path)
{
	char cmd[600];

	snprintf(cmd, sizeof(cmd), "find '%s' -type f -exec cat {} + >/dev/null", path);
	assert_int_equal(system(cmd), 0);
}

static void test_everything(void **state)
{
	char path[400];

	(void)state;
	commit_filled();
	vfx_mount(&f, VFX_PLAIN);
	vfx_root_path(&f, f.fx.head.root, path);
	assert_true(vfx_same_tree(&f, f.fx.head.root, path, true) > 30);
	/* again, now from the kernel's caches */
	assert_true(vfx_same_tree(&f, f.fx.head.root, path, true) > 30);
}

static void test_top(void **state)
{
	static const char *const wrong[] = {"0000000000000000", "0000000000000001x", "1", "ffffffffffffffff",
	        "00000000000000AB", "x", "ffffffffffffffffffffffffffffffff"};
	char path[600];
	struct stat st;
	struct statvfs sv;
	DIR *d;

	(void)state;
	vfx_mount(&f, VFX_PLAIN);
	assert_int_equal(stat(f.mnt, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	d = opendir(f.mnt);
	assert_string_equal(readdir(d)->d_name, ".");
	assert_string_equal(readdir(d)->d_name, "..");
	assert_null(readdir(d));
	closedir(d);
	for (size_t i = 0; i < NTR_COUNT(wrong); i++) {
		snprintf(path, sizeof(path), "%s/%s", f.mnt, wrong[i]);
		assert_true(stat(path, &st) < 0 && errno == ENOENT);
	}
	snprintf(path, sizeof(path), "%s/new", f.mnt);
	assert_true(mkdir(path, 0755) < 0 && errno == EROFS);
	assert_int_equal(statvfs(f.mnt, &sv), 0);
	assert_true(sv.f_flag & ST_RDONLY);
	assert_int_equal(sv.f_namemax, 255);
	assert_true(sv.f_blocks > 0);
}

/* A root that was asked for before it existed is there afterwards. */
static void test_root_comes_to_be(void **state)
{
	uint64_t next = ntr_ids_peek(ntr_store_ids(f.fx.st), NTR_ID_NODE);
	char path[400];
	struct stat st;

	(void)state;
	vfx_mount(&f, VFX_PLAIN);
	for (uint64_t id = next; id < next + 200; id++) {
		vfx_root_path(&f, id, path);
		assert_true(stat(path, &st) < 0 && errno == ENOENT);
	}
	commit_filled();
	assert_true(f.fx.head.root >= next && f.fx.head.root < next + 200);
	vfx_root_path(&f, f.fx.head.root, path);
	assert_int_equal(stat(path, &st), 0);
	assert_true(ntr_shown_ino(st.st_ino) == NTR_INO_ROOT);
}

/* Reads root `one` twice, then `two`. True when the second time sent nothing and `two` only its own single
 * file. Another process may drop the kernel's caches in between. */
static bool shares(const char *one, const char *two)
{
	uint64_t before, again, reads;

	read_all(one);
	before = vfx_count(&f, NULL) - vfx_count(&f, "STATFS"); /* which find itself asks for */
	read_all(one);
	again = vfx_count(&f, NULL) - vfx_count(&f, "STATFS");
	reads = vfx_count(&f, "READ");
	assert_true(reads > 10);
	read_all(two);
	return again == before && vfx_count(&f, "READ") == reads + 1;
}

/* A second root after one change: what did not change is not read again. */
static void test_shared(void **state)
{
	char one[400], two[400], path[500], text[16] = {0};
	uint64_t root1, ino;
	struct stat st1, st2;
	struct ntr_txn *t;
	bool shared = false;

	(void)state;
	commit_filled();
	root1 = f.fx.head.root;
	t = fx_begin(&f.fx);
	assert_int_equal(ntr_path_lookup(ntr_txn_snap(t), "sub", &ino), 0);
	vfx_new(t, ino, "added", S_IFREG | 0644, "added", 5);
	fx_commit(&f.fx, t);
	vfx_root_path(&f, root1, one);
	vfx_root_path(&f, f.fx.head.root, two);
	for (int i = 0; i < 5 && !shared; i++) {
		if (f.v)
			vfx_unmount(&f);
		vfx_mount(&f, VFX_PLAIN);
		shared = shares(one, two);
	}
	assert_true(shared);
	snprintf(path, sizeof(path), "%s/sub/added", two);
	ntr_autoclose int fd = open(path, O_RDONLY);

	assert_int_equal(read(fd, text, sizeof(text)), 5);
	assert_string_equal(text, "added");
	snprintf(path, sizeof(path), "%s/sub/added", one);
	assert_true(stat(path, &st1) < 0 && errno == ENOENT);
	snprintf(path, sizeof(path), "%s/size-513", one);
	assert_int_equal(stat(path, &st1), 0);
	snprintf(path, sizeof(path), "%s/size-513", two);
	assert_int_equal(stat(path, &st2), 0);
	assert_true(st1.st_ino == st2.st_ino && st1.st_dev == st2.st_dev);
}

static void test_change_shows_only_above(void **state)
{
	char one[400], two[400], path[500], text[16] = {0};
	uint64_t root1, ino;
	struct ntr_inode in;
	struct ntr_txn *t;

	(void)state;
	commit_filled();
	root1 = f.fx.head.root;
	t = fx_begin(&f.fx);
	assert_int_equal(ntr_path_lookup(ntr_txn_snap(t), "size-513", &ino), 0);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), ino, &in), 0);
	assert_int_equal(ntr_file_take_mem(t, &in, "changed", 7), 0);
	assert_int_equal(ntr_inode_put(t, &in), 0);
	fx_commit(&f.fx, t);
	vfx_mount(&f, VFX_PLAIN);
	vfx_root_path(&f, root1, one);
	vfx_root_path(&f, f.fx.head.root, two);
	vfx_same_tree(&f, f.fx.head.root, two, true);
	vfx_same_tree(&f, root1, one, true);
	snprintf(path, sizeof(path), "%s/size-513", two);
	ntr_autoclose int fd = open(path, O_RDONLY);

	assert_int_equal(read(fd, text, sizeof(text)), 7);
	assert_string_equal(text, "changed");
}

static void test_one_root(void **state)
{
	struct ntr_versions_options o = VFX_PLAIN;
	struct ntr_err e = {0};
	struct ntr_versions *v;

	(void)state;
	commit_filled();
	o.root = f.fx.head.root;
	vfx_mount(&f, o);
	assert_true(vfx_same_tree(&f, f.fx.head.root, f.mnt, false) > 30);
	vfx_unmount(&f);
	o.root = 1ull << 60;
	assert_true(ntr_versions_start(f.fx.st, f.mnt, &o, &v, &e) < 0);
	assert_true(strstr(e.what, "read tree") != NULL);
}

/* What has no answer in the tree must not be asked for again and again. */
static void test_asked_once(void **state)
{
	char path[500];

	(void)state;
	commit_filled();
	vfx_mount(&f, VFX_PLAIN);
	vfx_root_path(&f, f.fx.head.root, path);
	read_all(path);
	read_all(path);
	assert_int_equal(vfx_count(&f, "OPEN"), 1);
	assert_int_equal(vfx_count(&f, "OPENDIR"), 1);
	assert_true(vfx_count(&f, "FLUSH") <= 1);
	assert_true(vfx_count(&f, "ACCESS") <= 1);
	assert_int_equal(vfx_count(&f, "READDIR"), 0);
	uint64_t before = vfx_count(&f, "LOOKUP");

	for (int i = 0; i < 100; i++) {
		snprintf(path, sizeof(path), "%s/%016llx/absent", f.mnt, (unsigned long long)f.fx.head.root);
		assert_true(access(path, F_OK) < 0 && errno == ENOENT);
	}
	/* one; a few more if somebody drops the kernel's caches just now */
	assert_in_range(vfx_count(&f, "LOOKUP"), before + 1, before + 10);
}

static void test_forget(void **state)
{
	char path[400];
	uint64_t held;

	(void)state;
	if (geteuid() != 0)
		skip();
	commit_filled();
	vfx_mount(&f, VFX_PLAIN);
	vfx_root_path(&f, f.fx.head.root, path);
	vfx_same_tree(&f, f.fx.head.root, path, true);
	held = vfx_inodes(&f);
	assert_true(held > 30);
	for (int i = 0; i < 50 && vfx_inodes(&f) > 2; i++) {
		ntr_autoclose int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

		assert_int_equal(write(fd, "2", 1), 1);
		usleep(20000);
	}
	assert_true(vfx_inodes(&f) <= 2);
	vfx_same_tree(&f, f.fx.head.root, path, true);
	assert_int_equal(vfx_inodes(&f), held);
}

static void test_posix_acl(void **state)
{
	/* version 2; user::rw- user:1:rwx group::r-- mask::rwx other::--- */
	static const uint8_t acl[] = {2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 7, 0, 1, 0, 0, 0, 4,
	        0, 4, 0, 255, 255, 255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255,
	        255};
	char path[500];
	uint8_t got[100];
	struct ntr_txn *t = fx_begin(&f.fx);
	uint64_t ino = vfx_new(t, NTR_INO_ROOT, "acl", S_IFREG | 0670, "x", 1);

	(void)state;
	vfx_xattr(t, ino, "system.posix_acl_access", acl, sizeof(acl));
	fx_commit(&f.fx, t);
	vfx_mount(&f, VFX_PLAIN);
	snprintf(path, sizeof(path), "%s/%016llx/acl", f.mnt, (unsigned long long)f.fx.head.root);
	assert_int_equal(getxattr(path, "system.posix_acl_access", got, sizeof(got)), sizeof(acl));
	assert_memory_equal(got, acl, sizeof(acl));
	assert_true(getxattr(path, "system.posix_acl_default", got, sizeof(got)) < 0);
}

static char user_path[600];

static int user_reads(void)
{
	/* 0644 may be read, 0600 of root may not: default_permissions */
	int ok = open(user_path, O_RDONLY), no;

	strcat(user_path, "-secret");
	no = open(user_path, O_RDONLY);
	return ok >= 0 && no < 0 && errno == EACCES ? 0 : 1;
}

/* Root's mount serves processes of other users, with the files' own permissions. */
static void test_other_users(void **state)
{
	struct ntr_txn *t;

	(void)state;
	if (geteuid() != 0)
		skip();
	t = fx_begin(&f.fx);
	vfx_new(t, NTR_INO_ROOT, "file", S_IFREG | 0644, "x", 1);
	vfx_new(t, NTR_INO_ROOT, "file-secret", S_IFREG | 0600, "x", 1);
	fx_commit(&f.fx, t);
	assert_int_equal(chmod(f.fx.dir, 0755), 0);
	vfx_mount(&f, VFX_PLAIN);
	snprintf(user_path, sizeof(user_path), "%s/%016llx/file", f.mnt, (unsigned long long)f.fx.head.root);
	assert_int_equal(vfx_as_user(user_reads), 0);
}

static void test_unmounted_outside(void **state)
{
	(void)state;
	vfx_mount(&f, VFX_PLAIN);
	assert_int_equal(ntr_mount_is_dead(f.mnt), 0);
	assert_int_equal(ntr_mount_detach(f.mnt), 0);
	for (int i = 0; i < 200 && ntr_versions_alive(f.v); i++)
		usleep(10000);
	assert_false(ntr_versions_alive(f.v));
	assert_true(ntr_mount_detach(f.mnt) < 0);
}

/* Stop must return, and its users get an error, while one of them keeps the mount busy. */
static void test_stop_while_busy(void **state)
{
	char path[400], name[64];
	struct stat st;

	(void)state;
	commit_filled();
	vfx_mount(&f, VFX_PLAIN);
	vfx_root_path(&f, f.fx.head.root, path);
	ntr_autoclose int fd = open(path, O_RDONLY | O_DIRECTORY);

	assert_true(fd >= 0);
	uint64_t t0 = ntr_mono_ns();

	vfx_unmount(&f);
	assert_true(ntr_mono_ns() - t0 < 9000000000ull);
	snprintf(name, sizeof(name), "size-%d", 513);
	assert_true(fstatat(fd, name, &st, 0) < 0);
	/* a ring's end takes the kernel a moment, which may catch the request on its way */
	if (errno != ENOTCONN && errno != ECONNABORTED && errno != ECANCELED)
		fail_msg("%s", strerror(errno));
	/* and the place is free again */
	vfx_mount(&f, VFX_PLAIN);
	assert_int_equal(stat(path, &st), 0);
}

/* What somebody else mounted over the place is not ours to unmount. */
static void test_not_ours(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	vfx_mount(&f, VFX_PLAIN);
	assert_int_equal(umount2(f.mnt, MNT_DETACH), 0);
	assert_int_equal(mount("tmpfs", f.mnt, "tmpfs", 0, "size=64k"), 0);
	vfx_unmount(&f);
	assert_int_equal(umount2(f.mnt, 0), 0);
}

static void test_descriptor(void **state)
{
	struct ntr_versions_options o = VFX_PLAIN;
	struct ntr_err e = {0};
	struct ntr_versions *v;
	int fd, sv[2];

	(void)state;
	if (f.want == NTR_TRANSPORT_URING)
		skip(); /* nothing can be probed there: the transport shows with the first request */
	commit_filled();
	assert_int_equal(ntr_vmount(f.mnt, &fd, &e), 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	o.fuse_fd = fd;
	vfx_mount(&f, o);
	char path[400];

	vfx_root_path(&f, f.fx.head.root, path);
	assert_true(vfx_same_tree(&f, f.fx.head.root, path, true) > 30);
	vfx_unmount(&f);
	assert_int_equal(ntr_mount_is_dead(f.mnt), 1);
	assert_int_equal(ntr_mount_detach(f.mnt), 0);
	/* what is no FUSE device is refused, and closed */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	close(sv[1]);
	o.fuse_fd = sv[0];
	assert_true(ntr_versions_start(f.fx.st, f.mnt, &o, &v, &e) < 0);
	assert_true(fcntl(sv[0], F_GETFD) < 0);
}

static void test_no_place(void **state)
{
	struct ntr_versions_options o = VFX_PLAIN;
	struct ntr_err e = {0};
	struct ntr_versions *v;
	char path[400];

	(void)state;
	snprintf(path, sizeof(path), "%s/absent", f.fx.dir);
	assert_int_equal(ntr_versions_start(f.fx.st, path, &o, &v, &e), -ENOENT);
	assert_true(strstr(e.what, path) != NULL);
	snprintf(path, sizeof(path), "%s/store/lock", f.fx.dir);
	assert_true(ntr_versions_start(f.fx.st, path, &o, &v, &e) < 0);
}

/* overlayfs must not be able to keep handles of what may be evicted. */
static void test_no_handles(void **state)
{
	struct {
		struct file_handle h;
		char room[128];
	} fh = {.h.handle_bytes = 128};
	char path[400];
	struct stat st;
	int id;

	(void)state;
	vfx_mount(&f, VFX_PLAIN);
	vfx_root_path(&f, f.fx.head.root, path);
	assert_int_equal(stat(path, &st), 0);
	assert_true(name_to_handle_at(AT_FDCWD, path, &fh.h, &id, 0) < 0);
	assert_int_equal(errno, EOPNOTSUPP);
}

/* The device must not live on in a program that somebody starts. */
static void test_cloexec(void **state)
{
	char cmd[200];

	(void)state;
	vfx_mount(&f, VFX_PLAIN);
	snprintf(cmd, sizeof(cmd), "! ls -l /proc/self/fd | grep -q -e /dev/fuse -e io_uring");
	assert_int_equal(system(cmd), 0);
}

/* A ring that cannot be made (here: no descriptors left) must not be a mount that hangs, or none. */
static void test_fall_back(void **state)
{
	struct ntr_versions_options o = VFX_PLAIN;
	struct ntr_err e = {0};
	struct rlimit old, few;
	char path[400];

	(void)state;
	if (f.want != NTR_TRANSPORT_URING)
		skip();
	commit_filled();
	int top = dup(0);

	close(top);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	/* enough for the device and what mounting needs beside it, not for two descriptors a CPU more */
	few = (struct rlimit){.rlim_cur = (rlim_t)top + 3, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	o.uring = 1;
	int r = ntr_versions_start(f.fx.st, f.mnt, &o, &f.v, &e);

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	if (r)
		fx_fail("mount with few descriptors", &e);
	assert_int_equal(ntr_versions_transport(f.v), NTR_TRANSPORT_DEV);
	vfx_root_path(&f, f.fx.head.root, path);
	assert_true(vfx_same_tree(&f, f.fx.head.root, path, true) > 30);
}

/* What overlayfs makes of it: a user's own overlay attributes show as they are stored, and change a file in
 * spite of an evicted lower inode. */
static void test_overlay(void **state)
{
	char dirs[3][400], data[1600], path[600], val[16];
	struct stat st;

	(void)state;
	if (geteuid() != 0)
		skip();
	struct ntr_txn *t = fx_begin(&f.fx);
	uint64_t ino = vfx_new(t, NTR_INO_ROOT, "file", S_IFREG | 0644, "content", 7);

	vfx_xattr(t, ino, "trusted.overlay.opaque", "mine", 4);
	vfx_xattr(t, ino, "trusted.overlay.overlay.x", "deep", 4);
	fx_commit(&f.fx, t);
	vfx_mount(&f, VFX_PLAIN);
	snprintf(path, sizeof(path), "%s/tmpfs", f.fx.dir);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(mount("tmpfs", path, "tmpfs", 0, "size=1m"), 0);
	static const char *const names[] = {"upper", "work", "merged"};

	for (int i = 0; i < 3; i++) {
		snprintf(dirs[i], sizeof(dirs[i]), "%s/tmpfs/%s", f.fx.dir, names[i]);
		assert_int_equal(mkdir(dirs[i], 0755), 0);
	}
	vfx_root_path(&f, f.fx.head.root, path);
	snprintf(data, sizeof(data),
	        "lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=on,index=off,xino=on", path,
	        dirs[0], dirs[1]);
	assert_int_equal(mount("overlay", dirs[2], "overlay", 0, data), 0);
	snprintf(path, sizeof(path), "%s/file", dirs[2]);
	assert_int_equal(getxattr(path, "trusted.overlay.opaque", val, sizeof(val)), 4);
	assert_memory_equal(val, "mine", 4);
	assert_int_equal(getxattr(path, "trusted.overlay.overlay.x", val, sizeof(val)), 4);
	assert_memory_equal(val, "deep", 4);
	assert_int_equal(chmod(path, 0600), 0); /* copied up: attributes only */
	for (int i = 0; i < 3; i++) {
		ntr_autoclose int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

		assert_int_equal(write(fd, "2", 1), 1);
		usleep(20000);
	}
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	ntr_autoclose int fd = open(path, O_RDONLY);

	assert_int_equal(read(fd, val, sizeof(val)), 7);
	assert_int_equal(umount2(dirs[2], MNT_DETACH), 0);
	snprintf(path, sizeof(path), "%s/tmpfs", f.fx.dir);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
}

static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(test_top, setup, teardown),
        cmocka_unit_test_setup_teardown(test_root_comes_to_be, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shared, setup, teardown),
        cmocka_unit_test_setup_teardown(test_change_shows_only_above, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_root, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forget, setup, teardown),
        cmocka_unit_test_setup_teardown(test_posix_acl, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_users, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unmounted_outside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_while_busy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_descriptor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cloexec, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_handles, setup, teardown),

        cmocka_unit_test_setup_teardown(test_fall_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overlay, setup, teardown),
};

static int run_group(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	int failed = 0;

	if (access("/dev/fuse", F_OK) < 0 || (geteuid() != 0 && access("/dev/fuse", R_OK | W_OK) < 0)) {
		print_message("skipped: /dev/fuse cannot be opened\n");
		return 0;
	}
	/* first: RocksDB's threads do not survive a fork */
	if (geteuid() == 0) {
		print_message("over /dev/fuse, as an ordinary user\n");
		failed += vfx_as_user(run_group);
	}
	print_message("over /dev/fuse\n");
	failed += run_group();
	if (vfx_enable_uring()) {
		print_message("over io_uring\n");
		f.want = NTR_TRANSPORT_URING;
		failed += run_group();
	} else {
		print_message("skipped: io_uring is not to be had\n");
	}
	return failed;
}
