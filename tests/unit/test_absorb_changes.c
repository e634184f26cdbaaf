/* Every kind of change, one at a time, in a real merged view: what absorb makes of it, which inode keeps its
 * number, and that a second look finds nothing. */
#include "absorb_fixture.h"

#include <sys/mman.h>

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

/* A commit to work on, folded: all of it is in the lower tree. */
static void base(struct afixture *f)
{
	afx_do(f, "mkdir -p d/sub e/x/y; echo hi>d/f; echo g>d/sub/g; echo a>a; ln a b; ln a c; echo z>z; ln "
	          "-s z sl; "
	          "mkfifo p; echo k>e/x/y/k; echo meta>meta; head -c 200000 /dev/urandom >big; mknod dev c 1 "
	          "3; "
	          "setfattr -n user.u -v v meta; touch -d 2020-01-01 meta big");
	assert_true(afx_absorb(f));
	afx_same(f);
	afx_fold(f);
	assert_int_equal(ntr_absorb_check(f->memo), 0);
	assert_false(afx_absorb(f));
}

static void absorbs(struct afixture *f)
{
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	assert_true(afx_absorb(f));
	afx_same(f);
}

static void nothing(struct afixture *f)
{
	assert_false(afx_absorb(f));
	afx_same(f);
}

static void test_first(void **state)
{
	struct afixture *f = *state;

	assert_int_equal(ntr_absorb_check(f->memo), 0);
	afx_do(f, "echo one >f; mkdir -p d/e; : >empty; printf '\\0' >zero; ln f g; ln -s nowhere l; mkfifo "
	          "p; chmod 600 f");
	absorbs(f);
	assert_int_equal(f->last.entries, 8);
	assert_true(afx_ino(f, "f") == afx_ino(f, "g"));
	assert_int_equal(afx_inode(f, "f").nlink, 2);
	assert_int_equal(afx_inode(f, "").nlink, 3);
	afx_fold(f);
	nothing(f);
}

static void test_write(void **state)
{
	struct afixture *f = *state;
	uint64_t ino, tree;
	struct ntr_inode was;

	base(f);
	was = afx_inode(f, "d/f");
	ino = was.ino;
	afx_do(f, "echo more >>d/f");
	absorbs(f);
	assert_true(afx_ino(f, "d/f") == ino);
	assert_true(afx_inode(f, "d/f").version > was.version);
	assert_true(afx_inode(f, "d/f").btime.tv_nsec == was.btime.tv_nsec);
	afx_do(f, "echo again >>d/f");
	absorbs(f);
	tree = f->fx.head.root;
	afx_do(f, "cat d/f >/dev/null; touch -a d/f");
	nothing(f);
	assert_true(tree == f->fx.head.root);
	afx_do(f, "touch -d 2001-01-01 d/f");
	absorbs(f);
	assert_true(afx_ino(f, "d/f") == ino);
}

static void test_large(void **state)
{
	struct afixture *f = *state;
	struct ntr_snap s;
	struct ntr_inode was, now;

	base(f);
	was = afx_inode(f, "big");
	afx_do(f, "printf x | dd of=big bs=1 seek=100000 conv=notrunc status=none");
	absorbs(f);
	now = afx_inode(f, "big");
	assert_true(now.ino == was.ino);
	s = afx_head(f);
	assert_int_equal(ntr_content_equal(&s, &now, &s, &was), 1); /* items are read by number: the same */
	s.root = f->base;
	{
		struct ntr_snap h = afx_head(f);

		assert_int_equal(ntr_content_equal(&h, &now, &s, &was), 0);
	}
	afx_do(f, ": <>big; truncate -s 1000000 big");
	absorbs(f);
	afx_do(f, "truncate -s 300 big");
	absorbs(f);
	assert_int_equal(afx_inode(f, "big").data_kind, NTR_DATA_INLINE);
	afx_do(f, ": >big");
	absorbs(f);
}

/* Opened for writing and not written: copied up, and no change. */
static void test_copied_up_untouched(void **state)
{
	struct afixture *f = *state;

	base(f);
	afx_do(f, "exec 3<>big; exec 4<>meta");
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	nothing(f);
	afx_do(f, "touch tmp; rm tmp; mkdir -p d/sub; echo x >d/sub/tmp; rm d/sub/tmp");
	assert_int_equal(ntr_absorb_check(f->memo), 1); /* d/sub was copied up */
	nothing(f);
	afx_do(f, "echo x >d/sub/tmp; rm d/sub/tmp");
	assert_int_equal(ntr_absorb_check(f->memo), 0);
	nothing(f);
}

static void test_attributes(void **state)
{
	struct afixture *f = *state;
	struct ntr_inode was;

	base(f);
	was = afx_inode(f, "meta");
	afx_do(f, "chmod 4711 meta; chown 1000:1001 d; chmod 700 d; chown -h 5 sl");
	absorbs(f);
	assert_true(afx_ino(f, "meta") == was.ino);
	assert_int_equal(afx_inode(f, "meta").size, 5);
	assert_int_equal(afx_inode(f, "meta").mode, S_IFREG | 04711);
	afx_do(f, "echo x >>meta");
	absorbs(f);
	assert_true(afx_ino(f, "meta") == was.ino);
	afx_do(f, "chmod 750 .; touch -d 2002-02-02 .");
	absorbs(f);
	assert_int_equal(afx_inode(f, "").mode, S_IFDIR | 0750);
	afx_do(f, "chmod 755 d; chmod 700 d");
	nothing(f);
}

static void test_xattrs(void **state)
{
	struct afixture *f = *state;
	struct ntr_snap s;
	uint8_t *v;
	size_t n;

	base(f);
	afx_do(f, "setfattr -n user.a -v 1 big; setfattr -n trusted.t -v 2 d; setfattr -n user.a -v 1 d; "
	          "setfattr -n trusted.overlay.opaque -v y e; setfattr -x user.u meta; setfattr -n user.e a");
	f->broken = true;
	absorbs(f);
	s = afx_head(f);
	assert_int_equal(ntr_xattr_get(&s, afx_ino(f, "e"), "trusted.overlay.opaque", &v, &n), 0);
	free(v);
	assert_true(afx_ino(f, "e/x/y/k") != 0);
	afx_fold(f);
	nothing(f);
	afx_do(f, "setfattr -n user.a -v 2 big; setfattr -x trusted.t d; setfattr -n user.long -v $(head -c "
	          "3000 /dev/zero | tr '\\0' x) d/f");
	absorbs(f);
	afx_do(f, "setfattr -x user.a d");
	absorbs(f);
	if (!system("command -v setfacl >/dev/null")) {
		afx_do(f, "setfacl -m u:1234:rw d/f; setfacl -d -m g:7:rx d");
		absorbs(f);
		afx_fold(f);
		nothing(f);
	}
}

static void test_remove(void **state)
{
	struct afixture *f = *state;
	uint64_t d;

	base(f);
	d = afx_ino(f, "d");
	afx_do(f, "rm z; rm sl p dev");
	absorbs(f);
	afx_do(f, "rm -r e; rm d/f");
	absorbs(f);
	assert_true(afx_ino(f, "d") == d);
	afx_do(f, "rm -r d; mkdir d; echo n >d/n");
	absorbs(f);
	assert_true(afx_ino(f, "d") != d);
	assert_int_equal(afx_ino(f, "d/sub"), 0);
	afx_do(f, "find . -mindepth 1 -delete");
	absorbs(f);
	afx_fold(f);
	nothing(f);
}

static void test_replace(void **state)
{
	struct afixture *f = *state;
	uint64_t z, meta;

	base(f);
	z = afx_ino(f, "z");
	meta = afx_ino(f, "meta");
	afx_do(f, "rm z; echo new >z; rm meta; mkdir meta; rm -r e; echo file >e; rm dev; mkfifo dev");
	absorbs(f);
	assert_true(afx_ino(f, "z") != z);
	assert_true(afx_ino(f, "meta") != meta);
	afx_do(f, "echo tmp >d/f.tmp; mv d/f.tmp d/f");
	absorbs(f);
	z = afx_ino(f, "z");
	afx_do(f, "rm z; echo newer >z");
	absorbs(f);
}

static void test_rename_file(void **state)
{
	struct afixture *f = *state;
	uint64_t meta, big;

	base(f);
	meta = afx_ino(f, "meta");
	big = afx_ino(f, "big");
	afx_do(f, "mv meta d/meta2");
	absorbs(f);
	assert_true(afx_ino(f, "d/meta2") == meta);
	assert_int_equal(afx_ino(f, "meta"), 0);
	afx_do(f, "echo x >>big");
	absorbs(f);
	assert_true(afx_ino(f, "big") == big);
	afx_do(f, "mv big e/x/big3; mv d/meta2 meta3; echo x >>meta3");
	absorbs(f);
	assert_true(afx_ino(f, "e/x/big3") == big);
	assert_true(afx_ino(f, "meta3") == meta);
	afx_do(f, "mv meta3 big; mv e/x/big3 meta");
	absorbs(f);
	assert_true(afx_ino(f, "big") == meta);
	assert_true(afx_ino(f, "meta") == big);
}

/* Overlayfs does not tell where a symlink or special file came from. */
static void test_rename_special(void **state)
{
	struct afixture *f = *state;
	uint64_t sl, p, dev, twin, s2;

	afx_do(f, "mkdir -p t/a t/b q/r; ln -s x t/a/l; ln -s x t/b/l; ln -s x t/b/m; touch -h -d 2020-01-01 "
	          "t/a/l t/b/l t/b/m; ln -s z q/r/s; mkfifo q/r/p");
	base(f);
	sl = afx_ino(f, "sl");
	p = afx_ino(f, "p");
	dev = afx_ino(f, "dev");
	afx_do(f, "mv sl d/other; mv p dev2; mv dev p; mv dev2 dev");
	absorbs(f);
	assert_true(afx_ino(f, "d/other") == sl && afx_ino(f, "dev") == p && afx_ino(f, "p") == dev);
	afx_fold(f);
	nothing(f);
	/* Over another, and one that is changed as well; out of a directory that goes. */
	sl = afx_ino(f, "q/r/s");
	s2 = afx_ino(f, "q/r/p");
	afx_do(f, "mv p dev; chmod 600 dev; mv q/r/s d/other; mv q/r/p .; rm -r q");
	absorbs(f);
	assert_true(afx_ino(f, "dev") == dev && afx_ino(f, "d/other") == sl && afx_ino(f, "p") == s2);
	afx_do(f, "mv d/other sl");
	absorbs(f);
	assert_true(afx_ino(f, "sl") == sl);
	afx_fold(f);
	nothing(f);
	/* A new one is a new one, and so is what may be any of two. */
	twin = afx_ino(f, "t/b/m");
	afx_do(f, "cp -a sl copy; rm sl; mv t/b/m t/m; mv t/a/l one; mv t/b/l two");
	absorbs(f);
	assert_true(f->user || afx_ino(f, "copy") != sl);
	assert_true(afx_ino(f, "t/m") == twin);
	afx_fold(f);
	nothing(f);
}

static void test_rename_new(void **state)
{
	struct afixture *f = *state;
	uint64_t n, nd;

	base(f);
	afx_do(f, "echo n >n; mkdir -p nd/in; echo i >nd/in/i");
	absorbs(f);
	n = afx_ino(f, "n");
	nd = afx_ino(f, "nd");
	afx_do(f, "mv n d/n2; mv nd e/nd2; ln d/n2 n3");
	absorbs(f);
	assert_true(afx_ino(f, "d/n2") == n);
	assert_true(afx_ino(f, "n3") == n);
	assert_true(afx_ino(f, "e/nd2") == nd);
	afx_do(f, "rm d/n2; mv n3 e/nd2/in/i");
	absorbs(f);
	assert_true(afx_ino(f, "e/nd2/in/i") == n);
	assert_int_equal(afx_inode(f, "e/nd2/in/i").nlink, 1);
}

static void test_rename_dir(void **state)
{
	struct afixture *f = *state;
	uint64_t d, sub, g, x, y;

	base(f);
	d = afx_ino(f, "d");
	sub = afx_ino(f, "d/sub");
	g = afx_ino(f, "d/sub/g");
	x = afx_ino(f, "e/x");
	y = afx_ino(f, "e/x/y");
	afx_do(f, "mv d D");
	absorbs(f);
	assert_true(afx_ino(f, "D") == d && afx_ino(f, "D/sub/g") == g);
	afx_do(f, "mv e/x D/sub/x; mv D/sub/x/y y; rmdir D/sub/x");
	absorbs(f);
	assert_true(afx_ino(f, "y") == y && !afx_ino(f, "D/sub/x"));
	afx_do(f, "echo more >>D/sub/g; mv D/sub d; echo new >D/sub");
	absorbs(f);
	assert_true(afx_ino(f, "d") == sub && afx_ino(f, "d/g") == g);
	(void)x;
	afx_fold(f);
	nothing(f);
	afx_do(f, "mv d D/in; mv D/in/g D/f; mv y D/in/y");
	absorbs(f);
	assert_true(afx_ino(f, "D/f") == g && afx_ino(f, "D/in/y") == y);
}

/* A directory changes places with its own child. */
static void test_swap_dirs(void **state)
{
	struct afixture *f = *state;
	uint64_t e, x, y;

	base(f);
	e = afx_ino(f, "e");
	x = afx_ino(f, "e/x");
	y = afx_ino(f, "e/x/y");
	afx_do(f, "mv e/x t; mv e t/x; mv t e");
	absorbs(f);
	assert_true(afx_ino(f, "e") == x && afx_ino(f, "e/x") == e && afx_ino(f, "e/y") == y);
	afx_do(f, "mv e/y y; mv e y/e; mv y/e/x x; mv y x/y");
	absorbs(f);
	assert_true(afx_ino(f, "x") == e && afx_ino(f, "x/y") == y && afx_ino(f, "x/y/e") == x);
}

/* Out of a directory that goes. */
static void test_rescue(void **state)
{
	struct afixture *f = *state;
	uint64_t g, y, h;

	base(f);
	g = afx_ino(f, "d/sub/g");
	y = afx_ino(f, "e/x/y");
	afx_do(f, "mv d/sub/g g; rm -r d; mv e/x/y .; rm -r e");
	absorbs(f);
	assert_true(afx_ino(f, "g") == g && afx_ino(f, "y") == y);
	afx_do(f, "mkdir -p n/m; echo 1 >n/m/f; ln n/m/f h");
	absorbs(f);
	h = afx_ino(f, "h");
	afx_do(f, "rm -r n");
	absorbs(f);
	assert_true(afx_ino(f, "h") == h);
	assert_int_equal(afx_inode(f, "h").nlink, 1);
}

/* A file of three names in the commit: the name that is written to becomes a file of its own. */
static void test_broken_links(void **state)
{
	struct afixture *f = *state;
	uint64_t ino;

	base(f);
	ino = afx_ino(f, "a");
	assert_int_equal(afx_inode(f, "a").nlink, 3);
	afx_do(f, "chmod 600 a");
	f->broken = true;
	absorbs(f);
	assert_true(afx_ino(f, "a") != ino && afx_ino(f, "b") == ino && afx_ino(f, "c") == ino);
	assert_int_equal(afx_inode(f, "b").nlink, 2);
	afx_do(f, "echo x >>b");
	absorbs(f);
	assert_true(afx_ino(f, "b") != ino && afx_ino(f, "c") == ino);
	assert_int_equal(afx_inode(f, "c").nlink, 1);
	afx_do(f, "echo y >>c; ln c cc; ln a aa");
	absorbs(f);
	assert_true(afx_ino(f, "cc") == afx_ino(f, "c") && afx_ino(f, "aa") == afx_ino(f, "a"));
	afx_fold(f);
	nothing(f);
	afx_do(f, "rm c; mv aa d/aa");
	f->broken = true;
	absorbs(f);
	assert_true(afx_ino(f, "a") != afx_ino(f, "d/aa"));
}

static void test_names(void **state)
{
	struct afixture *f = *state;
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	afx_do(f,
	        "echo 1 >$'\\xff\\xfe'; echo 2 >$'a\\nb'; mkdir $'\\xc3('; echo 3 >$'\\xc3('/%s; echo 4 "
	        ">'...'; echo 5 >-x",
	        name);
	absorbs(f);
	afx_fold(f);
	nothing(f);
	afx_do(f, "rm $'\\xff\\xfe'; mv $'a\\nb' $'a\\tb'");
	absorbs(f);
}

static void test_sparse(void **state)
{
	struct afixture *f = *state;

	afx_do(f, "truncate -s 300M hole; truncate -s 40M s; printf x | dd of=s bs=1 seek=20000000 "
	          "conv=notrunc status=none; "
	          "truncate -s 1000 small");
	absorbs(f);
	assert_int_equal(afx_inode(f, "hole").blocks, 0);
	assert_true(afx_inode(f, "s").blocks <= 128);
	afx_fold(f);
	nothing(f);
	afx_do(f, "printf y | dd of=hole bs=1 seek=5000000 conv=notrunc status=none");
	absorbs(f);
	assert_true(afx_inode(f, "hole").blocks <= 128);
}

static void test_types(void **state)
{
	struct afixture *f = *state;

	afx_do(f, "mkfifo -m 600 f; mknod c c 1 3; mknod b b 7 200; python3 -c \"import socket; "
	          "socket.socket(socket.AF_UNIX).bind('s')\"; ln -s $(head -c 4000 /dev/zero | tr '\\0' l) "
	          "long");
	absorbs(f);
	assert_true(S_ISSOCK(afx_inode(f, "s").mode));
	assert_true(afx_inode(f, "b").rdev == makedev(7, 200));
	afx_fold(f);
	nothing(f);
	afx_do(f, "chmod 640 f c; touch -h -d 2003-03-03 long s; mv b B");
	absorbs(f);
}

/* Directories' own times are not worth a commit, and ride with one. */
static void test_riding_times(void **state)
{
	struct afixture *f = *state;

	base(f);
	afx_do(f, "touch -d 2004-04-04 d");
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	nothing(f);
	assert_true(afx_inode(f, "d").mtime.tv_sec != 1081036800);
	assert_int_equal(ntr_absorb_times_wait(f->memo), 1);
	afx_do(f, "echo x >>z");
	absorbs(f);
	afx_same_as(f, f->view, 0);
	assert_int_equal(ntr_absorb_times_wait(f->memo), 0);
}

/* The last absorb of an upper takes them, however they came to be. */
static void test_last_times(void **state)
{
	static const char *const touches[] = {"touch d", "touch e/x", "touch d/tmp; rm d/tmp",
	        "touch -d 2005-05-05 .", "touch d d/sub; : >e/tmp; rm e/tmp"};
	struct afixture *f = *state;

	base(f);
	afx_do(f, "exec 3<>d/f; exec 4<>e/x/y/k");
	nothing(f);
	assert_int_equal(ntr_absorb_times_wait(f->memo), 0);
	for (size_t i = 0; i < NTR_COUNT(touches); i++) {
		struct ntr_txn *t;

		afx_do(f, "%s", touches[i]);
		nothing(f);
		assert_int_equal(ntr_absorb_times_wait(f->memo), 1);
		t = fx_begin(&f->fx);
		assert_int_equal(ntr_absorb_last(f->memo, t, f->base, i == 3, &f->last, NULL), 0);
		assert_true(f->last.changed);
		fx_commit(&f->fx, t);
		ntr_absorb_accept(f->memo);
		afx_same_as(f, f->view, 0);
		assert_int_equal(ntr_absorb_times_wait(f->memo), 0);
		if (i % 2)
			afx_fold(f);
	}
}

/* More files than one thread is given. */
static void test_many(void **state)
{
	struct afixture *f = *state;

	afx_do(f, "mkdir many; i=0; while [ $i -lt 400 ]; do echo $i >many/$i; i=$((i+1)); done; "
	          "head -c 700 /dev/urandom >many/c; head -c 5000000 /dev/urandom >many/l; : >many/e; "
	          "i=0; while [ $i -lt 60 ]; do cat many/c many/$i >many/c$i; i=$((i+1)); done; truncate -s "
	          "60000 many/h");
	absorbs(f);
	afx_fold(f);
	nothing(f);
	afx_do(f, "cd many; for i in *; do echo x >>$i; done");
	absorbs(f);
}

/* Deeper than any path, any stack and any number of descriptors. */
static void test_deep(void **state)
{
	struct afixture *f = *state;
	int fd = open(f->view, O_RDONLY | O_DIRECTORY);

	for (int i = 0; i < 1500; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "deep", 0755), 0);
		next = openat(fd, "deep", O_RDONLY | O_DIRECTORY);
		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	close(openat(fd, "end", O_CREAT | O_WRONLY, 0644));
	close(fd);
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	assert_true(afx_absorb(f));
	assert_int_equal(f->last.entries, 1501);
	afx_do(f, "rm -r deep");
	absorbs(f);
}

static void test_failures(void **state)
{
	struct afixture *f = *state;
	struct ntr_absorb_result res;
	struct ntr_err e = {0};
	struct ntr_txn *t;
	char text[2048];

	afx_do(f, "mkdir d; truncate -s 9007199254740993 d/huge 2>/dev/null || truncate -s 8E d/huge "
	          "2>/dev/null || :");
	if (!faccessat(AT_FDCWD, f->view, R_OK, 0) && afx_ino(f, "d") == 0) {
		struct stat st;
		char path[400];

		snprintf(path, sizeof(path), "%s/d/huge", f->view);
		if (!stat(path, &st) && st.st_size > (off_t)1 << 53) {
			t = fx_begin(&f->fx);
			assert_int_equal(ntr_absorb_run(f->memo, t, f->base, false, &res, &e), -EFBIG);
			ntr_err_format(&e, text, sizeof text);
			assert_non_null(strstr(text, "d/huge"));
			ntr_txn_abort(t);
			ntr_absorb_reject(f->memo);
			afx_do(f, "rm d/huge");
		}
	}
	absorbs(f);
}

/* What was not committed is found again. */
/* What is read before the session stands still counts only as long as nothing writes to it. */
static void test_early(void **state)
{
	struct afixture *f = *state;
	struct ntr_txn *t;
	char path[400];
	char *p;
	int fd, up;

	base(f);
	afx_do(f, "head -c 9000000 /dev/urandom >mapped; head -c 70000 /dev/urandom >still; head -c 70000 "
	          "/dev/urandom "
	          ">grows; head -c 70000 /dev/urandom >goes; chmod 600 meta; printf x | dd of=big bs=1 "
	          "seek=100000 "
	          "conv=notrunc status=none; touch -d 2001-01-01 still");
	snprintf(path, sizeof path, "%s/mapped", f->view);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	p = mmap(NULL, 9000000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	p[5000] ^= 1;
	t = fx_begin(&f->fx);
	ntr_absorb_early(f->memo, t);
	assert_true(f->memo->coarse || f->memo->early);
	p[5001] ^= 1;
	afx_do(f, "echo more >>grows; rm goes; printf y | dd of=big bs=1 seek=150000 conv=notrunc "
	          "status=none; mv still d/");
	up = openat(f->upper_fd, "mapped", O_RDONLY | O_CLOEXEC); /* as the supervisor does it */
	assert_int_equal(sync_file_range(up, 0, 0, 7), 0);
	close(up);
	assert_int_equal(ntr_absorb_run(f->memo, t, f->base, false, &f->last, NULL), 0);
	ntr_absorb_early_done(f->memo);
	fx_commit(&f->fx, t);
	ntr_absorb_accept(f->memo);
	afx_same(f);
	munmap(p, 9000000);
	close(fd);
	assert_false(afx_absorb_as(f, true));
	afx_fold(f);
	nothing(f);
	/* Little is not read twice; and a run that came to nothing leaves no trace. */
	afx_do(f, "head -c 70000 /dev/urandom >grows");
	t = fx_begin(&f->fx);
	ntr_absorb_early(f->memo, t);
	assert_null(f->memo->early);
	ntr_txn_abort(t);
	afx_do(f, "head -c 9000000 /dev/urandom >grows");
	t = fx_begin(&f->fx);
	ntr_absorb_early(f->memo, t);
	ntr_absorb_early_done(f->memo);
	ntr_txn_abort(t);
	absorbs(f);
}

static void test_reject(void **state)
{
	struct afixture *f = *state;
	struct ntr_absorb_result res;
	struct ntr_err e = {0};
	struct ntr_txn *t;

	base(f);
	afx_do(f, "echo x >>d/f; mv e E; rm z");
	for (int i = 0; i < 2; i++) {
		t = fx_begin(&f->fx);
		assert_int_equal(ntr_absorb_run(f->memo, t, f->base, i == 1, &res, &e), 0);
		assert_true(res.changed);
		ntr_txn_abort(t);
		ntr_absorb_reject(f->memo);
		assert_int_equal(ntr_absorb_check(f->memo), 1);
	}
	absorbs(f);
}

/* Hot files that a fold moves into the new upper are what the commit has in their place. */
static void test_hot(void **state)
{
	struct afixture *f = *state;
	uint64_t big, n;
	char old[320];

	base(f);
	afx_do(f, "echo x >>big; head -c 100000 /dev/urandom >d/new");
	absorbs(f);
	big = afx_ino(f, "big");
	n = afx_ino(f, "d/new");
	afx_unmount(f);
	memcpy(old, f->upper, sizeof old);
	ntr_memo_free(f->memo);
	f->memo = NULL;
	close(f->upper_fd);
	afx_new_upper(f);
	afx_sh("mv '%s/big' '%s/'; mkdir '%s/d'; mv '%s/d/new' '%s/d/'; rm -r '%s'", old, f->upper, f->upper,
	        old, f->upper, old);
	afx_mount(f);
	assert_int_equal(ntr_absorb_check(f->memo), 1);
	nothing(f);
	afx_do(f, "echo y >>big; echo y >>d/new");
	absorbs(f);
	assert_true(afx_ino(f, "big") == big && afx_ino(f, "d/new") == n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(n) cmocka_unit_test_setup_teardown(test_##n, setup, teardown)
	        T(first),
	        T(write),
	        T(large),
	        T(copied_up_untouched),
	        T(attributes),
	        T(xattrs),
	        T(remove),
	        T(replace),
	        T(rename_file),
	        T(rename_special),
	        T(rename_new),
	        T(rename_dir),
	        T(swap_dirs),
	        T(rescue),
	        T(broken_links),
	        T(names),
	        T(sparse),
	        T(types),
	        T(riding_times),
	        T(last_times),
	        T(many),
	        T(deep),
	        T(failures),
	        T(early),
	        T(reject),
	        T(hot),
	};

	if (geteuid()) {
		print_message("SKIPPED: the merged view of root needs root\n");
		return 77;
	}
	return cmocka_run_group_tests_name("absorb_changes", tests, NULL, NULL);
}
