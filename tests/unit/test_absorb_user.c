/* What is different for an ordinary user: marks in user.overlay.*, none on symlinks and special files; files
 * and directories that not even their owner may read; owners that cannot be shown. */
#include "absorb_fixture.h"

static int setup(void **state)
{
	static struct afixture f;

	afx_setup(&f);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	afx_teardown(*state);
	return 0;
}

/* A look with another memo lends rights as well, which this one has to see once. */
static void absorbs(struct afixture *f)
{
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	assert_true(afx_absorb(f));
	assert_false(afx_absorb_as(f, false));
	assert_int_equal(ntr_absorb_check(f->memo), 0);
}

static void base(struct afixture *f)
{
	afx_do(f, "mkdir -p d/sub; echo hi>d/f; echo g>d/sub/g; echo a>a; ln a b; echo z>z; ln -s z sl; "
	          "mkfifo p; "
	          "setfattr -n user.u -v v z");
	absorbs(f);
	afx_same(f);
	afx_fold(f);
	assert_false(afx_absorb(f));
}

static void test_changes(void **state)
{
	struct afixture *f = *state;
	uint64_t d, file, sl, p;

	base(f);
	d = afx_ino(f, "d");
	file = afx_ino(f, "d/f");
	sl = afx_ino(f, "sl");
	p = afx_ino(f, "p");
	afx_do(f, "echo x >>d/f; touch -h -d 2001-01-01 sl; touch -d 2001-01-01 p; chmod 600 z");
	absorbs(f);
	afx_same(f);
	assert_true(afx_ino(f, "d") == d && afx_ino(f, "d/f") == file && afx_ino(f, "sl") == sl &&
	            afx_ino(f, "p") == p);
	assert_true(f->base != f->fx.head.root);
	afx_fold(f);
	f->broken = false;
	afx_do(f, "mv sl d/l; mv p q; mv d/l l; mv q p");
	absorbs(f);
	assert_true(afx_ino(f, "l") == sl && afx_ino(f, "p") == p);
	afx_do(f, "mv l sl");
	absorbs(f);
	assert_true(afx_ino(f, "sl") == sl);
	afx_do(f, "rm sl; ln -s elsewhere sl; rm p; mkdir p; mv d/sub/g p/g; echo y >>b");
	f->broken = true;
	absorbs(f);
	afx_same(f);
	assert_true(afx_ino(f, "sl") != sl && afx_ino(f, "b") != afx_ino(f, "a"));
	afx_do(f, "rm -r d; mkdir d; echo n >d/n; mv d e; mv e/n .");
	absorbs(f);
	afx_same(f);
	afx_do(f, "setfattr -n user.overlay.opaque -v y e; setfattr -x user.u z");
	absorbs(f);
	afx_fold(f);
	assert_false(afx_absorb(f));
	afx_same(f);
}

static void content_is(struct afixture *f, const char *path, const char *want)
{
	struct ntr_snap s = afx_head(f);
	struct ntr_inode in = afx_inode(f, path);
	char buf[64] = "";

	assert_int_equal(ntr_file_read(&s, &in, 0, buf, sizeof buf - 1), strlen(want));
	assert_string_equal(buf, want);
}

/* Nothing that absorb lends itself stays, and its own doing is no change. */
static void test_no_rights(void **state)
{
	struct afixture *f = *state;
	struct stat st;

	base(f);
	afx_do(f, "echo s >secret; setfattr -n user.x -v y secret; chmod 0 secret; mkdir -p l/m; echo in "
	          ">l/m/f; chmod 0 l/m/f l/m; "
	          "chmod 300 l; mkdir x; echo k >x/k; chmod 600 x; : >none; chmod 0 none");
	absorbs(f);
	content_is(f, "secret", "s\n");
	content_is(f, "l/m/f", "in\n");
	content_is(f, "x/k", "k\n");
	assert_int_equal(afx_inode(f, "secret").mode, S_IFREG);
	assert_true(afx_inode(f, "secret").flags & NTR_INODE_HAS_XATTR);
	assert_int_equal(afx_inode(f, "l/m").mode, S_IFDIR);
	assert_int_equal(afx_inode(f, "x").mode, S_IFDIR | 0600);
	assert_int_equal(fstatat(f->upper_fd, "secret", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFREG);
	assert_int_equal(fstatat(f->upper_fd, "l", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0300);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ntr_absorb_check(f->memo), 0);
	afx_do(f, "chmod 700 l l/m; chmod 600 l/m/f; echo more >>l/m/f; chmod 0 l/m/f l/m l");
	absorbs(f);
	content_is(f, "l/m/f", "in\nmore\n");
	afx_do(f, "chmod 0 .");
	absorbs(f);
	assert_int_equal(ntr_absorb_check(f->memo), 0);
	assert_int_equal(afx_inode(f, "").mode, S_IFDIR);
	assert_int_equal(fstat(f->upper_fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR);
	assert_int_equal(fchmod(f->view_fd, 0755), 0);
	absorbs(f);
	afx_do(f, "chmod -R u+rwx .");
	absorbs(f);
	afx_same(f);
}

/* Files of somebody else show as the owner's, and stay theirs until changed hands. */
static void test_owners(void **state)
{
	struct afixture *f = *state;
	struct ntr_txn *t;
	struct ntr_inode in;

	base(f);
	t = fx_begin(&f->fx);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), afx_ino(f, "d/f"), &in), 0);
	in.uid = 1234;
	in.gid = 4321;
	assert_int_equal(ntr_inode_put(t, &in), 0);
	fx_commit(&f->fx, t);
	afx_fold(f);
	afx_same(f);
	afx_do(f, "echo x >>d/f; echo y >own");
	absorbs(f);
	assert_int_equal(afx_inode(f, "d/f").uid, 1234);
	assert_int_equal(afx_inode(f, "d/f").gid, 4321);
	assert_true(afx_inode(f, "own").uid == NTR_OWNER_ID);
	afx_same(f);
}

static int group(void)
{
	const struct CMUnitTest tests[] = {
#define T(n) cmocka_unit_test_setup_teardown(test_##n, setup, teardown)
	        T(changes),
	        T(no_rights),
	        T(owners),
	};

	umask(022);
	return cmocka_run_group_tests_name("absorb_user", tests, NULL, NULL);
}

int main(void)
{
	return afx_as_user(group);
}
