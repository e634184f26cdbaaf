/* What is made and written in a tree, against what the kernel makes of the same in a directory beside it. */
#include "store_fixture.h"

#include "exec/controller_tree.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { ACL_MAX = 4 + 8 * 16 };

static struct fixture fx;
static struct ntr_txn *txn;
static bool others; /* there are other ids than ours: not for an ordinary user, nor in his namespaces */
static const struct timespec now = {1700000000, 5};
static const char dfl[] = "system.posix_acl_default", acc[] = "system.posix_acl_access";

static int setup(void **state)
{
	(void)state;
	fx = (struct fixture){0};
	fx_setup(&fx);
	fx_session(&fx, "s");
	txn = fx_begin(&fx);
	umask(0);
	others = !chown(fx.dir, (uid_t)-1, 100);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ntr_txn_abort(txn);
	fx_teardown(&fx);
	return 0;
}

static size_t entry(uint8_t *at, unsigned tag, uint64_t perm, uint32_t id)
{
	ntr_put_le16(at, (uint16_t)tag);
	ntr_put_le16(at + 2, perm & 7);
	ntr_put_le32(at + 4, id);
	return 8;
}

/* Any default ACL that the kernel takes; 0: none. */
static size_t random_acl(uint64_t *x, uint8_t acl[ACL_MAX])
{
	uint64_t users = fx_rand(x) % 3, groups = fx_rand(x) % 3;
	size_t n = 4;

	if (fx_rand(x) % 4 == 0)
		return 0;
	ntr_put_le32(acl, 2);
	n += entry(acl + n, 1, fx_rand(x), UINT32_MAX);
	for (uint32_t i = 0; i < users; i++)
		n += entry(acl + n, 2, fx_rand(x), others ? 10 + i : geteuid());
	n += entry(acl + n, 4, fx_rand(x), UINT32_MAX);
	for (uint32_t i = 0; i < groups; i++)
		n += entry(acl + n, 8, fx_rand(x), others ? 20 + i : getegid());
	if (users || groups || fx_rand(x) % 2)
		n += entry(acl + n, 16, fx_rand(x), UINT32_MAX);
	return n + entry(acl + n, 32, fx_rand(x), UINT32_MAX);
}

static gid_t random_group(uint64_t *x)
{
	return others && fx_rand(x) % 2 ? 100 : getegid();
}

/* An object of the tree that is only there for others: a directory, or a file, with an attribute or none. */
static void enter(
        struct ntr_inode *in, uint32_t mode, gid_t gid, const char *xattr, const void *val, size_t len)
{
	char name[32];

	assert_int_equal(ntr_inode_new(txn, mode, in), 0);
	in->gid = ntr_store_gid_in(fx.st, gid);
	snprintf(name, sizeof name, "%llu", (unsigned long long)in->ino);
	assert_int_equal(ntr_name_create(txn, NTR_INO_ROOT, name, in, &now), 0);
	if (len)
		assert_int_equal(ntr_xattr_set(txn, in, xattr, val, len), 0);
}

static void same_xattr(const char *path, const struct ntr_inode *in, const char *name, int round)
{
	ntr_autofree uint8_t *val = NULL;
	uint8_t want[ACL_MAX];
	ssize_t n = getxattr(path, name, want, sizeof want);
	size_t len = 0;
	int r = ntr_xattr_get(ntr_txn_snap(txn), in->ino, name, &val, &len);

	if (r && r != -ENODATA)
		fail_msg("round %d: %s: %d", round, name, r);
	if (n < 0 ? !r : r || len != (size_t)n || memcmp(val, want, len) != 0)
		fail_msg("round %d: %s: of the kernel's %zd bytes, of ours %zu, %d", round, name, n, len, r);
}

/* The record is what the kernel made of path. */
static void same(const char *path, const struct ntr_inode *in, int round)
{
	struct ntr_inode put;
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(txn), in->ino, &put), 0);
	if (put.mode != st.st_mode || ntr_store_gid_out(fx.st, put.gid) != st.st_gid ||
	        ntr_store_uid_out(fx.st, put.uid) != st.st_uid)
		fail_msg("round %d: the kernel %o %u, we %o %u", round, st.st_mode, st.st_gid, put.mode,
		        put.gid);
	assert_int_equal(put.mtime.tv_sec, now.tv_sec);
	same_xattr(path, in, acc, round);
	same_xattr(path, in, dfl, round);
	same_xattr(path, in, "security.capability", round);
}

static void write_byte(int fd)
{
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	close(fd);
}

/* A directory that hands something down, or not, in the tree and at path. False: no ACLs there. */
static bool random_dir(uint64_t *x, const char *path, struct ntr_inode *d)
{
	uint8_t acl[ACL_MAX];
	size_t len = random_acl(x, acl);
	gid_t gid = random_group(x);
	struct stat st;

	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(chown(path, (uid_t)-1, gid), 0);
	assert_int_equal(chmod(path, fx_rand(x) % 2 ? 02755 : 0755), 0);
	if (len && setxattr(path, dfl, acl, len, 0)) {
		assert_int_equal(errno, EOPNOTSUPP);
		return false;
	}
	assert_int_equal(stat(path, &st), 0); /* not everybody may give each bit */
	enter(d, st.st_mode, gid, dfl, acl, len);
	return true;
}

static void test_create(void **state)
{
	uint64_t x = 20261130;

	(void)state;
	for (int round = 0; round < 1500; round++) {
		ntr_autofree char *dir = ntr_sprintf("%s/d%d", fx.dir, round),
		                  *path = ntr_sprintf("%s/o", dir);
		bool is_dir = fx_rand(&x) % 2;
		uint32_t mode = (uint32_t)fx_rand(&x) & (is_dir ? 0777 : 07777);
		struct ntr_inode d, in;

		if (!random_dir(&x, dir, &d))
			skip();
		if (is_dir)
			assert_int_equal(mkdir(path, mode), 0);
		else
			write_byte(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
		assert_int_equal(ntr_inode_new(txn, (is_dir ? S_IFDIR : S_IFREG) | mode, &in), 0);
		assert_int_equal(ntr_tree_create(txn, d.ino, "o", &in, &now), 0);
		same(path, &in, round);
	}
}

static void test_written(void **state)
{
	static const uint8_t cap[20] = {1, 0, 0, 2, 0, 32};
	uint64_t x = 20261130;

	(void)state;
	for (int round = 0; round < 1000; round++) {
		ntr_autofree char *path = ntr_sprintf("%s/f%d", fx.dir, round);
		ntr_autoclose int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		gid_t gid = random_group(&x);
		uint32_t mode = (fx_rand(&x) & 07777) | 0400;
		bool able = fx_rand(&x) % 4 == 0;
		struct ntr_inode in;

		assert_int_equal(fchown(fd, (uid_t)-1, gid), 0);
		if (able)
			able = !fsetxattr(fd, "security.capability", cap, sizeof cap, 0);
		assert_int_equal(fchmod(fd, mode), 0);
		enter(&in, S_IFREG | mode, gid, "security.capability", cap, able ? sizeof cap : 0);
		assert_int_equal(write(fd, "x", 1), 1);
		assert_int_equal(ntr_tree_written(txn, &in, &now), 0);
		assert_false(in.flags & NTR_INODE_HAS_XATTR);
		same(path, &in, round);
	}
}

/* An ACL that is none makes nothing. */
static void test_no_acl(void **state)
{
	static const struct {
		const char *val;
		size_t len;
	} rows[] = {
	        {"\2\0\0", 3},
	        {"\2\0\0\0", 4},
	        {"\1\0\0\0\1\0\7\0\377\377\377\377\4\0\7\0\377\377\377\377\40\0\7\0\377\377\377\377", 28},
	        {"\2\0\0\0\1\0\7\0\377\377\377\377\4\0\7\0\377\377\377\377\40\0\7\0\377\377\377", 27},
	        {"\2\0\0\0\1\0\7\0\377\377\377\377\40\0\7\0\377\377\377\377", 20},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		struct ntr_inode d, in;
		uint64_t ino;
		uint8_t dt;

		enter(&d, S_IFDIR | 0755, getegid(), dfl, rows[i].val, rows[i].len);
		assert_int_equal(ntr_inode_new(txn, S_IFREG | 0644, &in), 0);
		assert_int_equal(ntr_tree_create(txn, d.ino, "o", &in, &now), -EUCLEAN);
		assert_int_equal(ntr_dirent_get(ntr_txn_snap(txn), d.ino, "o", 1, &ino, &dt), -ENOENT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_create, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_written, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_no_acl, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
