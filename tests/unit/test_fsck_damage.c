/* Bytes of a store's files are flipped one at a time: the store then refuses to open and says why, or
 * everything that it serves is what was written, and what it cannot serve any more is reported, by the open
 * or by fsck. */
#include "fsck_fixture.h"

#include <ftw.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { COMMITS = 8, ITEMS_MAX = 20000, FLIPS = 4 };

struct content { /* of one commit: a hash per item, with the file's bytes where the item is a record */
	uint64_t id;
	size_t from, n;
};

static struct fixture fx;
static struct report rep;
static struct content commits[COMMITS];
static uint64_t hashes[ITEMS_MAX];
static size_t nhashes;

/* Reads a file whole; 0 and its hash, or an error. */
static int file_hash(const struct ntr_snap *s, const struct ntr_inode *in, uint64_t *ret)
{
	static uint8_t buf[1 << 20];
	uint64_t h = in->size;

	for (uint64_t off = 0; off < in->size;) {
		ssize_t n = ntr_file_read(s, in, off, buf, sizeof(buf));

		if (n <= 0)
			return n ? (int)n : -EUCLEAN;
		h = XXH3_64bits_withSeed(buf, (size_t)n, h);
		off += (uint64_t)n;
	}
	*ret = h;
	return 0;
}

/* Hash of the item at the cursor and of what it leads to. */
static int item_hash(const struct ntr_snap *s, const struct ntr_snap_cursor *c, uint64_t *ret)
{
	uint64_t content = 0;
	struct ntr_inode in;
	ntr_autofree uint8_t *val = NULL;
	size_t len;
	int r = 0;

	if (c->klen == 9 && c->key[8] == NTR_ITEM_INODE) {
		r = ntr_inode_decode(ntr_get_be64(c->key), c->val, c->vlen, &in);
		if (!r && S_ISREG(in.mode))
			r = file_hash(s, &in, &content);
	} else if (c->key[8] == NTR_ITEM_XATTR) {
		char name[NTR_KEY_MAX] = "";

		memcpy(name, c->key + 9, c->klen - 9);
		r = ntr_xattr_get(s, ntr_get_be64(c->key), name, &val, &len);
		content = r ? 0 : XXH3_64bits(val, len);
	}
	*ret = XXH3_64bits_withSeed(c->val, c->vlen, XXH3_64bits_withSeed(c->key, c->klen, content));
	return r;
}

static void remember(struct content *x, const struct ntr_commit *c)
{
	struct ntr_snap s = ntr_snap_root(fx.st, c->root);
	struct ntr_snap_cursor cur;
	int r;

	x->id = c->id;
	x->from = nhashes;
	ntr_snap_cursor_init(&cur, &s);
	for (r = ntr_snap_cursor_seek(&cur, "", 0); r == 1; r = ntr_snap_cursor_next(&cur)) {
		assert_true(nhashes < ITEMS_MAX);
		assert_int_equal(item_hash(&s, &cur, &hashes[nhashes++]), 0);
	}
	assert_int_equal(r, 0);
	x->n = nhashes - x->from;
	ntr_snap_cursor_done(&cur);
}

/* Reads a commit again. False: something of it cannot be read; what can must be what was written. */
static bool recall(struct ntr_store *st, const struct content *x)
{
	struct ntr_commit c;
	struct ntr_snap s;
	struct ntr_snap_cursor cur;
	bool whole = true;
	size_t i = 0;
	int r;

	if (ntr_commit_get(st, x->id, &c, NULL))
		return false;
	s = ntr_snap_root(st, c.root);
	ntr_commit_done(&c);
	ntr_snap_cursor_init(&cur, &s);
	for (r = ntr_snap_cursor_seek(&cur, "", 0); r == 1; r = ntr_snap_cursor_next(&cur)) {
		uint64_t h;

		assert_true(i < x->n);
		if (item_hash(&s, &cur, &h))
			whole = false;
		else
			assert_true(h == hashes[x->from + i]);
		i++;
	}
	ntr_snap_cursor_done(&cur);
	assert_true(r < 0 || i == x->n);
	return whole && !r;
}

static void build(bool flushed)
{
	uint64_t rnd = 4242;

	memset(&fx, 0, sizeof(fx));
	nhashes = 0;
	fx_setup(&fx);
	fx_session(&fx, "one");
	for (size_t i = 0; i < COMMITS; i++) {
		struct ntr_commit c;

		story_commit(&fx, &rnd, 25);
		assert_int_equal(ntr_commit_get(fx.st, fx.head.commit, &c, NULL), 0);
		remember(&commits[i], &c);
		ntr_commit_done(&c);
		if (flushed && i == COMMITS / 2)
			fx_reopen(&fx); /* its log becomes tables */
	}
	for (int cf = 0; flushed && cf < NTR_CF_COUNT; cf++)
		assert_int_equal(ntr_kv_flush(ntr_store_kv(fx.st), (enum ntr_cf)cf, NULL), 0);
	ntr_store_close(fx.st);
	fx.st = NULL;
}

static void flip(const char *path, off_t at, uint8_t mask)
{
	ntr_autoclose int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t b;

	assert_int_equal(pread(fd, &b, 1, at), 1);
	b ^= mask;
	assert_int_equal(pwrite(fd, &b, 1, at), 1);
}

struct tally {
	unsigned refused, lost, reported, harmless;
};

static void try_open(const char *path, const char *what, struct tally *t)
{
	struct ntr_err e = {0};
	struct ntr_store *st = NULL;
	bool whole = true;
	int r = ntr_store_open(path, &(struct ntr_store_options){0}, &st, &e);

	if (r) {
		assert_true(e.what[0] && ntr_err_reason(&e)[0]);
		t->refused++;
		return;
	}
	for (size_t i = 0; i < COMMITS; i++)
		whole &= recall(st, &commits[i]);
	fsck_run(st, &rep);
	ntr_store_close(st);
	if (!whole && !rep.f.problems && !e.what[0])
		fail_msg("%s: commits are gone and nobody says so", what);
	if (whole)
		*(rep.f.problems ? &t->reported : &t->harmless) += 1;
	else
		t->lost++;
}

static void copy_store(const char *to)
{
	ntr_autofree char *cmd = ntr_sprintf("rm -rf '%s' && cp -r '%s' '%s'", to, fx.path, to);

	assert_int_equal(system(cmd), 0);
}

static char files[64][PATH_MAX];
static size_t nfiles;

static int file_found(const char *path, const struct stat *st, int type, struct FTW *f)
{
	const char *base = path + f->base;

	if (type == FTW_F && st->st_size && strncmp(base, "LOG", 3) != 0 && nfiles < NTR_COUNT(files))
		strcpy(files[nfiles++], path + strlen(fx.path));
	return 0;
}

static void damage_everywhere(uint64_t rnd)
{
	struct tally t = {0};
	char copy[320];

	print_message("seed %llu\n", (unsigned long long)rnd);
	snprintf(copy, sizeof(copy), "%s/damaged", fx.dir);
	nfiles = 0;
	assert_int_equal(nftw(fx.path, file_found, 8, FTW_PHYS), 0);
	for (size_t i = 0; i < nfiles; i++)
		for (unsigned k = 0; k < FLIPS; k++) {
			ntr_autofree char *path = ntr_sprintf("%s%s", copy, files[i]), *what = NULL;
			struct stat st;
			off_t at;

			copy_store(copy);
			assert_int_equal(stat(path, &st), 0);
			at = (off_t)fx_below(&rnd, (uint64_t)st.st_size);
			if (k % 4 == 3) /* ends hold indexes and footers */
				at = st.st_size - 1 -
				     (off_t)fx_below(&rnd, NTR_MIN((uint64_t)st.st_size, (uint64_t)64));
			what = ntr_sprintf("%s, byte %lld", files[i], (long long)at);
			flip(path, at, (uint8_t)(1u << fx_below(&rnd, 8)));
			try_open(copy, what, &t);
		}
	print_message(
	        "%zu files: refused %u, commits lost and said so %u, whole but reported %u, harmless %u\n",
	        nfiles, t.refused, t.lost, t.reported, t.harmless);
	assert_true(t.refused && t.lost && t.harmless);
}

static void test_tables(void **state)
{
	(void)state;
	build(true);
	damage_everywhere(1234567);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, fx.dir), 0);
}

static void test_log(void **state)
{
	(void)state;
	build(false);
	damage_everywhere(7654321);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, fx.dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables), cmocka_unit_test(test_log)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
