/* Snaps and transactions: against a plain array that does the same, with spills at every size. */
#include "store_fixture.h"

#include "fs/txn_impl.h"
#include "fs/store_impl.h"

#include <errno.h>

static struct fixture fx;

static int setup(void **state)
{
	(void)state;
	memset(&fx, 0, sizeof fx);
	fx_setup(&fx);
	fx_session(&fx, "s");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_teardown(&fx);
	return 0;
}

enum { KEYS = 400 };
struct twin { /* item i has key i: present where len >= 0 */
	int len[KEYS];
	uint8_t val[KEYS][900];
};

/* Keys of different lengths, one a prefix of another, none an INODE record. */
static size_t key_of(unsigned i, uint8_t *key)
{
	ntr_put_be64(key, 100 + i / 40);
	key[8] = NTR_ITEM_XATTR;
	memset(key + 9, 'a' + (int)(i % 40) / 10, 1 + i % 10);
	return 10 + i % 10;
}

static void check_get(const struct ntr_snap *s, const struct twin *t, unsigned i)
{
	uint8_t key[32], val[NTR_VALUE_MAX];
	size_t n = key_of(i, key), len;
	int r = ntr_snap_get(s, key, n, val, &len);

	if (t->len[i] < 0) {
		assert_int_equal(r, -ENOENT);
		return;
	}
	assert_int_equal(r, 0);
	assert_int_equal(len, t->len[i]);
	assert_memory_equal(val, t->val[i], len);
}

/* Every item from i on, by cursor. */
static void check_scan(const struct ntr_snap *s, const struct twin *t, unsigned i)
{
	struct ntr_snap_cursor c;
	uint8_t key[32];
	int r;

	ntr_snap_cursor_init(&c, s);
	r = ntr_snap_cursor_seek(&c, key, key_of(i, key));
	for (; i < KEYS; i++) {
		size_t n = key_of(i, key);

		if (t->len[i] < 0)
			continue;
		assert_int_equal(r, 1);
		assert_int_equal(c.klen, n);
		assert_memory_equal(c.key, key, n);
		assert_int_equal(c.vlen, t->len[i]);
		assert_memory_equal(c.val, t->val[i], c.vlen);
		r = ntr_snap_cursor_next(&c);
	}
	assert_int_equal(r, 0);
	assert_int_equal(ntr_snap_cursor_next(&c), 0);
	ntr_snap_cursor_done(&c);
}

static void do_put(struct ntr_txn *x, struct twin *t, unsigned i, uint64_t *rnd)
{
	uint8_t key[32];

	t->len[i] = (int)fx_below(rnd, fx_below(rnd, 4) ? 30 : 900);
	fx_fill(rnd, t->val[i], (size_t)t->len[i]);
	assert_int_equal(ntr_txn_put(x, key, key_of(i, key), t->val[i], (size_t)t->len[i]), 0);
}

static void do_range(struct ntr_txn *x, struct twin *t, unsigned from, unsigned to)
{
	uint8_t a[32], b[32];
	size_t an = key_of(from, a), bn = key_of(to, b);

	assert_int_equal(ntr_txn_del_range(x, a, an, b, bn), 0);
	for (unsigned i = from; i < to; i++)
		t->len[i] = -1;
}

static void step(struct ntr_txn *x, struct twin *t, uint64_t *rnd)
{
	unsigned i = (unsigned)fx_below(rnd, KEYS), j = (unsigned)fx_below(rnd, KEYS);
	uint8_t key[32];

	switch (fx_below(rnd, 12)) {
	case 0:
		do_range(x, t, NTR_MIN(i, j), NTR_MAX(i, j));
		break;
	case 1:
		check_scan(ntr_txn_snap(x), t, i);
		break;
	case 2:
	case 3:
		assert_int_equal(ntr_txn_del(x, key, key_of(i, key)), 0);
		t->len[i] = -1;
		break;
	case 4:
		check_get(ntr_txn_snap(x), t, i);
		break;
	default:
		do_put(x, t, i, rnd);
	}
}

static void test_twin(void **state)
{
	static struct twin t, before;
	const uint64_t seed = 20260101;
	uint64_t rnd = seed;

	(void)state;
	print_message("seed %llu\n", (unsigned long long)seed);
	memset(t.len, 0xFF, sizeof t.len);
	for (int round = 0; round < 60; round++) {
		struct ntr_txn *x = fx_begin(&fx);
		struct ntr_snap old = ntr_snap_root(fx.st, fx.head.root), copy = *ntr_txn_snap(x);

		before = t;
		if (round % 3)
			ntr_txn_set_limit(x, round % 3 == 1 ? 1 : 20000);
		for (int i = 0; i < 60; i++)
			step(x, &t, &rnd);
		check_scan(&copy, &t, 0); /* a copied snap follows the transaction over spills */
		check_scan(&old, &before, 0);
		if (round % 7 == 6) {
			ntr_txn_abort(x);
			t = before;
		} else {
			fx_commit(&fx, x);
		}
		if (round % 20 == 19)
			fx_reopen(&fx);
		old = ntr_snap_root(fx.st, fx.head.root);
		check_scan(&old, &t, 0);
		for (unsigned i = 0; i < KEYS; i++)
			check_get(&old, &t, i);
	}
}

static void test_arguments(void **state)
{
	static uint8_t big[NTR_VALUE_MAX + 1];
	struct ntr_txn *x = fx_begin(&fx);
	uint64_t v, w;

	(void)state;
	assert_true(ntr_txn_empty(x));
	assert_int_equal(ntr_txn_put(x, big, 0, "", 0), -EINVAL);
	assert_int_equal(ntr_txn_put(x, big, NTR_KEY_MAX + 1, "", 0), -EINVAL);
	assert_int_equal(ntr_txn_put(x, "k", 1, big, sizeof big), -EINVAL);
	assert_true(ntr_txn_empty(x));
	assert_int_equal(ntr_txn_put(x, big, NTR_KEY_MAX, big, NTR_VALUE_MAX), 0);
	assert_false(ntr_txn_empty(x));
	assert_int_equal(ntr_txn_version(x, &v), 0);
	assert_int_equal(ntr_txn_version(x, &w), 0);
	assert_int_equal(v, w);
	ntr_txn_abort(x);
	ntr_txn_abort(NULL);
	x = fx_begin(&fx);
	assert_int_equal(ntr_txn_version(x, &w), 0);
	assert_true(w > v);
	ntr_txn_abort(x);
}

/* A range of many items in the root and in memory, more than are deleted at a time. */
static void test_long_range(void **state)
{
	enum { N = 3000 };
	struct ntr_snap_cursor c;
	uint8_t key[17] = {0}, to[17] = {0};

	(void)state;
	for (int half = 0; half < 2; half++) {
		struct ntr_txn *x = fx_begin(&fx);

		for (unsigned i = 0; i < N; i++) {
			ntr_put_be64(key, 77);
			key[8] = NTR_ITEM_EXTENT;
			ntr_put_be64(key + 9, 2 * i + (unsigned)half);
			assert_int_equal(ntr_txn_put(x, key, sizeof key, "v", 1), 0);
		}
		if (half) {
			memcpy(to, key, sizeof to);
			ntr_put_be64(key + 9, 1);
			ntr_put_be64(to + 9, 2 * N - 1);
			assert_int_equal(ntr_txn_del_range(x, key, sizeof key, to, sizeof to), 0);
			ntr_snap_cursor_init(&c, ntr_txn_snap(x));
			ntr_put_be64(key + 9, 0);
			assert_int_equal(ntr_snap_cursor_seek(&c, key, sizeof key), 1);
			assert_memory_equal(c.key, key, sizeof key);
			assert_int_equal(ntr_snap_cursor_next(&c), 1);
			assert_memory_equal(c.key, to, sizeof to);
			assert_int_equal(ntr_snap_cursor_next(&c), 0);
			ntr_snap_cursor_done(&c);
		}
		fx_commit(&fx, x);
	}
}

static void new_file(struct ntr_txn *x, const char *name, uint64_t size)
{
	struct ntr_inode in;

	assert_int_equal(ntr_inode_new(x, S_IFREG | 0644, &in), 0);
	in.size = size;
	in.data_kind = size ? NTR_DATA_EXTENTS : NTR_DATA_NONE;
	assert_int_equal(ntr_name_create(x, NTR_INO_ROOT, name, &in, NULL), 0);
}

static void check_counts(uint64_t inodes, uint64_t bytes)
{
	assert_int_equal(fx.head.inodes, inodes);
	assert_int_equal(fx.head.bytes, bytes);
}

/* The counters follow creation, change and removal, across spills and commits. */
static void test_counts(void **state)
{
	struct ntr_inode in;
	struct ntr_txn *x;
	uint64_t ino;
	char name[16];

	(void)state;
	check_counts(1, 0);
	for (int spill = 0; spill < 2; spill++) {
		x = fx_begin(&fx);
		if (spill)
			ntr_txn_set_limit(x, 5000);
		for (int i = 0; i < 300; i++) {
			snprintf(name, sizeof name, "f%d.%d", spill, i);
			new_file(x, name, 1000);
		}
		fx_commit(&fx, x);
		check_counts(301 + 300 * (unsigned)spill, 300000 * (1 + (unsigned)spill));
	}
	x = fx_begin(&fx);
	ntr_txn_set_limit(x, 5000);
	for (int i = 0; i < 300; i += 2) {
		snprintf(name, sizeof name, "f0.%d", i);
		assert_int_equal(ntr_path_lookup(ntr_txn_snap(x), name, &ino), 0);
		assert_int_equal(ntr_inode_get(ntr_txn_snap(x), ino, &in), 0);
		in.size = 500;
		assert_int_equal(ntr_inode_put(x, &in), 0);
		snprintf(name, sizeof name, "f0.%d", i + 1);
		assert_int_equal(ntr_name_remove(x, NTR_INO_ROOT, name, NULL), 0);
	}
	new_file(x, "gone again", 7);
	new_file(x, "changed again", 7);
	for (int i = 0; i < 50; i++) { /* both spill */
		snprintf(name, sizeof name, "x%d", i);
		new_file(x, name, 0);
	}
	assert_int_equal(ntr_path_lookup(ntr_txn_snap(x), "changed again", &ino), 0);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(x), ino, &in), 0);
	in.size = 10;
	assert_int_equal(ntr_inode_put(x, &in), 0);
	assert_int_equal(ntr_name_remove(x, NTR_INO_ROOT, "gone again", NULL), 0);
	fx_commit(&fx, x);
	check_counts(502, 300010 + 150 * 500);
	fx_reopen(&fx);
	check_counts(502, 300010 + 150 * 500);
}

/* A cursor with an end does not walk over what the transaction has deleted behind it. */
static void test_end(void **state)
{
	enum { N = 100, END = 10 };
	struct ntr_txn *x = fx_begin(&fx);
	struct ntr_snap_cursor c;
	uint8_t key[8], to[8];

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		ntr_put_be64(key, i);
		assert_int_equal(ntr_txn_put(x, key, sizeof key, "v", 1), 0);
	}
	fx_commit(&fx, x);
	x = fx_begin(&fx);
	ntr_put_be64(key, 1);
	ntr_put_be64(to, N);
	assert_int_equal(ntr_txn_del_range(x, key, sizeof key, to, sizeof to), 0);
	ntr_snap_cursor_init(&c, ntr_txn_snap(x));
	ntr_put_be64(to, END);
	c.end = to;
	c.elen = sizeof to;
	assert_int_equal(ntr_snap_cursor_seek(&c, key, sizeof key), 0);
	assert_non_null(c.mem);
	assert_memory_equal(((const struct ntr_item *)c.mem)->key, to, sizeof to);
	ntr_put_be64(key, 0); /* in front of it nothing changes */
	assert_int_equal(ntr_snap_cursor_seek(&c, key, sizeof key), 1);
	assert_memory_equal(c.key, key, sizeof key);
	ntr_snap_cursor_done(&c);
	fx_commit(&fx, x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_twin, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_arguments, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_long_range, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_end, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
