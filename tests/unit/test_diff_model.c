/* The diff of two roots against the plain truth: both trees listed path by path and compared. Random changes:
 * create, write, link, unlink, rename of files and directories, replace of one type by another, chmod, xattr;
 * seeds are printed. */
#include "store_fixture.h"

#include "fs/diff.h"
#include "fs/file.h"

#include <dirent.h>

enum { ROUNDS = 40, STEPS = 25, PATHS = 4096 };

static uint64_t seed = 20261129;

static unsigned rnd(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

struct obj {
	char path[512];
	struct ntr_inode in;
	uint64_t sum; /* of content and xattrs */
};
struct listing {
	struct obj *v;
	size_t n;
};

static int add_xattr(void *user, const char *name, const uint8_t *val, size_t len)
{
	uint64_t *sum = user;

	for (const char *p = name; *p; p++)
		*sum = *sum * 31 + (unsigned char)*p;
	for (size_t i = 0; i < len; i++)
		*sum = *sum * 31 + val[i];
	return 0;
}

static void list_dir(const struct ntr_snap *s, uint64_t dir, const char *prefix, struct listing *l)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;

	ntr_dir_iter_init(&it, s, dir, 0);
	while (ntr_dir_iter_next(&it, &en) == 1) {
		struct obj *o = &l->v[l->n++];
		uint64_t xsum = 7;

		assert_true(l->n < PATHS);
		snprintf(o->path, sizeof o->path, "%.250s%s%.250s", prefix, *prefix ? "/" : "", en.name);
		assert_int_equal(ntr_inode_get(s, en.ino, &o->in), 0);
		o->sum = 0;
		if (S_ISREG(o->in.mode)) {
			static char buf[70000];
			ssize_t k = ntr_file_read(s, &o->in, 0, buf, sizeof buf);

			assert_true(k >= 0);
			for (ssize_t i = 0; i < k; i++)
				o->sum = o->sum * 131 + (unsigned char)buf[i] + 1;
		}
		assert_int_equal(ntr_xattr_each(s, en.ino, add_xattr, &xsum), 0);
		o->sum ^= xsum << 1;
		if (S_ISDIR(o->in.mode)) {
			char path[512];

			strcpy(path, o->path);
			list_dir(s, en.ino, path, l);
		}
	}
	ntr_dir_iter_done(&it);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct obj *)a)->path, ((const struct obj *)b)->path);
}

static void list_root(struct ntr_store *st, uint64_t root, struct listing *l)
{
	struct ntr_snap s = ntr_snap_root(st, root);

	l->n = 0;
	list_dir(&s, NTR_INO_ROOT, "", l);
	qsort(l->v, l->n, sizeof *l->v, by_path);
}

/* What a person would call different: 'A', 'D', 'T', 'M', or 0. */
static char truth(const struct obj *a, const struct obj *b)
{
	if (!a)
		return 'A';
	if (!b)
		return 'D';
	if ((a->in.mode ^ b->in.mode) & S_IFMT)
		return 'T';
	if (a->in.mode != b->in.mode || a->sum != b->sum || a->in.uid != b->in.uid)
		return 'M';
	if (S_ISDIR(a->in.mode))
		return 0;
	if (a->in.nlink != b->in.nlink || a->in.size != b->in.size ||
	        a->in.mtime.tv_sec != b->in.mtime.tv_sec || a->in.mtime.tv_nsec != b->in.mtime.tv_nsec)
		return 'M';
	if (S_ISLNK(a->in.mode) && memcmp(a->in.payload, b->in.payload, a->in.payload_len))
		return 'M';
	return 0;
}

static void check_diff(struct ntr_store *st, uint64_t ra, uint64_t rb, struct listing *a, struct listing *b)
{
	size_t i = 0, j = 0, k = 0;
	struct ntr_stats by_path, by_item;
	struct ntr_diff d;

	list_root(st, ra, a);
	list_root(st, rb, b);
	assert_int_equal(ntr_diff_compute(st, ra, rb, NULL, &d), 0);
	while (i < a->n || j < b->n) {
		int c = i == a->n ? 1 : j == b->n ? -1 : strcmp(a->v[i].path, b->v[j].path);
		struct obj *x = c <= 0 ? &a->v[i++] : NULL, *y = c >= 0 ? &b->v[j++] : NULL;
		char want = truth(x, y);

		if (!want)
			continue;
		if (k >= d.n || strcmp(d.v[k].path, x ? x->path : y->path) ||
		        d.v[k].kind != (enum ntr_diff_kind)want)
			fail_msg("wanted %c %s, got %c %s", want, x ? x->path : y->path,
			        k < d.n ? (char)d.v[k].kind : '-', k < d.n ? d.v[k].path : "nothing");
		k++;
	}
	if (k != d.n)
		fail_msg("one entry too many: %c %s what %x", (char)d.v[k].kind, d.v[k].path, d.v[k].what);
	ntr_diff_count(&d, &by_path);
	assert_int_equal(ntr_diff_tally(st, ra, rb, &by_item), 0);
	assert_int_equal(by_item.created, by_path.created);
	assert_int_equal(by_item.modified, by_path.modified);
	assert_int_equal(by_item.deleted, by_path.deleted);
	ntr_diff_done(&d);
}

/* ---- random changes ---- */

static bool pick(struct listing *l, mode_t type, struct obj **ret)
{
	for (int tries = 0; l->n && tries < 60; tries++) {
		*ret = &l->v[rnd((unsigned)l->n)];
		if (!type || (((*ret)->in.mode & S_IFMT) == type))
			return true;
	}
	return false;
}

static uint64_t some_dir(struct listing *l)
{
	struct obj *o;

	return rnd(4) && pick(l, S_IFDIR, &o) ? o->in.ino : NTR_INO_ROOT;
}

static void write_some(struct ntr_txn *t, struct ntr_inode *in)
{
	static char buf[70000];
	static const unsigned sizes[] = {0, 5, 400, 3000, 65536, 68000};
	unsigned n = sizes[rnd(NTR_COUNT(sizes))];

	memset(buf, 'a' + (int)rnd(20), n);
	assert_int_equal(ntr_file_take_mem(t, in, buf, n), 0);
	clock_gettime(CLOCK_REALTIME, &in->mtime);
}

static void op_create(struct ntr_txn *t, struct listing *l)
{
	static const uint32_t types[] = {S_IFREG, S_IFREG, S_IFREG, S_IFDIR, S_IFDIR, S_IFLNK, S_IFIFO};
	struct ntr_inode in;
	uint32_t mode = types[rnd(NTR_COUNT(types))];
	char name[32];

	snprintf(name, sizeof name, "n%u", rnd(30));
	assert_int_equal(ntr_inode_new(t, mode | 0644, &in), 0);
	clock_gettime(CLOCK_REALTIME, &in.mtime);
	if (S_ISREG(mode))
		write_some(t, &in);
	if (S_ISLNK(mode)) {
		in.data_kind = NTR_DATA_SYMLINK;
		in.payload_len = (uint16_t)snprintf((char *)in.payload, 32, "to%u", rnd(100));
		in.size = in.payload_len;
	}
	(void)ntr_name_create(t, some_dir(l), name, &in, NULL); /* -EEXIST is as good */
}

static void split(const struct obj *o, uint64_t *dir, const char **name, const struct ntr_snap *s)
{
	char parent[512];
	char *slash;

	strcpy(parent, o->path);
	slash = strrchr(parent, '/');
	*name = slash ? o->path + (slash - parent) + 1 : o->path;
	if (slash)
		*slash = '\0';
	if (ntr_path_lookup(s, slash ? parent : "", dir))
		*dir = 0;
}

static void op_random(struct ntr_txn *t, struct listing *l)
{
	const struct ntr_snap *s = ntr_txn_snap(t);
	struct ntr_inode in;
	struct obj *o;
	const char *name;
	uint64_t dir, ino;
	char nname[32];

	snprintf(nname, sizeof nname, "n%u", rnd(30));
	if (rnd(10) < 3 || !pick(l, 0, &o)) {
		op_create(t, l);
		return;
	}
	split(o, &dir, &name, s);
	if (!dir || ntr_path_lookup(s, o->path, &ino) || ntr_inode_get(s, ino, &in))
		return; /* an earlier step of this transaction took it away */
	switch (rnd(7)) {
	case 0:
		(void)ntr_name_remove(t, dir, name, NULL);
		break;
	case 1:
		(void)ntr_name_rename(t, dir, name, some_dir(l), nname, NULL);
		break;
	case 2:
		(void)ntr_name_link(t, ino, some_dir(l), nname, NULL);
		break;
	case 3:
		in.mode ^= 0111;
		assert_int_equal(ntr_inode_put(t, &in), 0);
		break;
	case 4:
		assert_int_equal(ntr_xattr_set(t, &in, "user.k", nname, strlen(nname)), 0);
		break;
	case 5:
		(void)ntr_name_rename(t, dir, name, dir, nname, NULL);
		break;
	default:
		if (S_ISREG(in.mode)) {
			write_some(t, &in);
			assert_int_equal(ntr_inode_put(t, &in), 0);
		}
	}
}

static void test_model(void **state)
{
	struct listing a = {.v = calloc(PATHS, sizeof(struct obj))},
	               b = {.v = calloc(PATHS, sizeof(struct obj))};
	uint64_t roots[ROUNDS + 1];
	struct fixture f;

	(void)state;
	if (getenv("NTR_SEED"))
		seed = strtoull(getenv("NTR_SEED"), NULL, 0);
	print_message("seed %llu\n", (unsigned long long)seed);
	fx_setup(&f);
	fx_session(&f, "m");
	roots[0] = f.head.root;
	for (int i = 0; i < ROUNDS; i++) {
		struct ntr_commit c;
		struct ntr_txn *t;

		list_root(f.st, f.head.root, &a);
		assert_int_equal(ntr_txn_begin(f.st, f.head.root, &t), 0);
		for (int k = 0; k < STEPS; k++)
			op_random(t, &a);
		assert_int_equal(ntr_store_commit(f.st, &f.head, t, "{}", NULL, &c, NULL), 0);
		ntr_commit_done(&c);
		roots[i + 1] = f.head.root;
		check_diff(f.st, roots[i], roots[i + 1], &a, &b);
		check_diff(f.st, roots[rnd((unsigned)i + 1)], roots[i + 1], &a, &b);
		check_diff(f.st, roots[i + 1], roots[rnd((unsigned)i + 1)], &a, &b);
	}
	free(a.v);
	free(b.v);
	fx_teardown(&f);
}

/* ---- the patch's text, by example ---- */

static void put_file(struct ntr_txn *t, const char *name, const char *text, uint32_t mode)
{
	struct ntr_inode in;

	assert_int_equal(ntr_inode_new(t, S_IFREG | mode, &in), 0);
	assert_int_equal(ntr_file_take_mem(t, &in, text, strlen(text)), 0);
	assert_int_equal(ntr_name_create(t, NTR_INO_ROOT, name, &in, NULL), 0);
}

static void commit(struct fixture *f, struct ntr_txn *t)
{
	struct ntr_commit c;

	assert_int_equal(ntr_store_commit(f->st, &f->head, t, "{}", NULL, &c, NULL), 0);
	ntr_commit_done(&c);
}

static void test_patch(void **state)
{
	struct fixture f;
	struct ntr_txn *t;
	struct ntr_inode in;
	struct ntr_diff d;
	uint64_t before, ino;
	uint8_t dt;
	FILE *out = tmpfile();
	char text[4096];
	size_t n;

	(void)state;
	fx_setup(&f);
	fx_session(&f, "p");
	assert_int_equal(ntr_txn_begin(f.st, f.head.root, &t), 0);
	put_file(t, "a", "one\ntwo\n", 0644);
	put_file(t, "gone", "bye\n", 0644);
	put_file(t, "tool", "#!/bin/sh\n", 0644);
	commit(&f, t);
	before = f.head.root;
	assert_int_equal(ntr_txn_begin(f.st, f.head.root, &t), 0);
	assert_int_equal(ntr_dirent_get(ntr_txn_snap(t), NTR_INO_ROOT, "a", 1, &ino, &dt), 0);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), ino, &in), 0);
	assert_int_equal(ntr_file_take_mem(t, &in, "one\n2\n", 6), 0);
	assert_int_equal(ntr_inode_put(t, &in), 0);
	assert_int_equal(ntr_dirent_get(ntr_txn_snap(t), NTR_INO_ROOT, "tool", 4, &ino, &dt), 0);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), ino, &in), 0);
	in.mode |= 0111;
	assert_int_equal(ntr_inode_put(t, &in), 0);
	assert_int_equal(ntr_name_remove(t, NTR_INO_ROOT, "gone", NULL), 0);
	put_file(t, "n\303\251w \"x\"", "no newline", 0755);
	commit(&f, t);
	assert_int_equal(ntr_diff_compute(f.st, before, f.head.root, NULL, &d), 0);
	assert_int_equal(d.n, 4);
	assert_int_equal(ntr_diff_patch(f.st, before, f.head.root, &d, fileno(out), NULL), 0);
	rewind(out);
	n = fread(text, 1, sizeof text - 1, out);
	text[n] = '\0';
	assert_string_equal(text,
	        "diff --git a/a b/a\n"
	        "index 814f4a422927b82f5f8a43f8fab6d3839e3983f2..99b356dcd03dde0755c749bcd4cae4b2b73a8fa8 "
	        "100644\n"
	        "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
	        "diff --git a/gone b/gone\ndeleted file mode 100644\n"
	        "index b023018cabc396e7692c70bbf5784a93d3f738ab..0000000000000000000000000000000000000000\n"
	        "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
	        "diff --git \"a/n\\303\\251w \\\"x\\\"\" \"b/n\\303\\251w \\\"x\\\"\"\nnew file mode 100755\n"
	        "index 0000000000000000000000000000000000000000..20cbb4d89224e1ed724b7feaf5c4f4479e25212a\n"
	        "--- /dev/null\n+++ \"b/n\\303\\251w \\\"x\\\"\"\n@@ -0,0 +1 @@\n+no newline\n\\ No newline "
	        "at end of file\n"
	        "diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n");
	ntr_diff_done(&d);
	fclose(out);
	fx_teardown(&f);
}

static void test_paths(void **state)
{
	char *const only[] = {(char *)(uintptr_t) "a", NULL};
	struct fixture f;
	struct ntr_txn *t;
	struct ntr_diff d;
	uint64_t before;

	(void)state;
	fx_setup(&f);
	fx_session(&f, "q");
	before = f.head.root;
	assert_int_equal(ntr_txn_begin(f.st, f.head.root, &t), 0);
	put_file(t, "a", "1", 0644);
	put_file(t, "ab", "2", 0644);
	commit(&f, t);
	assert_int_equal(ntr_diff_compute(f.st, before, f.head.root, only, &d), 0);
	assert_int_equal(d.n, 1);
	assert_string_equal(d.v[0].path, "a");
	ntr_diff_done(&d);
	fx_teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_model),
	        cmocka_unit_test(test_patch),
	        cmocka_unit_test(test_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
