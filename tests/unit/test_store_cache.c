/* Cache items: keys, values of every size, parts of large ones; random changes against a twin, over commits.
 */
#include "store_fixture.h"

#include "fs/cache.h"
#include "fs/inode_impl.h"

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

static void test_keys(void **state)
{
	static char long_key[202];
	static const struct {
		const char *key;
		size_t len;
		const char *why;
	} rows[] = {
	        {"a", 1, NULL},
	        {"_private", 8, NULL},
	        {"with space", 10, NULL},
	        {"a.b:c\n", 6, NULL},
	        {"\xc3\xa9", 2, NULL},
	        {long_key, 200, NULL},
	        {"", 0, "empty"},
	        {long_key, 201, "more than 200"},
	        {"a/b", 3, "'/'"},
	        {"a\0b", 3, "NUL"},
	        {"__x", 3, "'__'"},
	        {"__", 2, "'__'"},
	        {"\xff", 1, "UTF-8"},
	        {"\xed\xa0\x80", 3, "UTF-8"},
	};
	const char *why;

	(void)state;
	memset(long_key, 'k', 201);
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		int r = ntr_cacheitem_key_check(rows[i].key, rows[i].len, &why);

		assert_int_equal(r, rows[i].why ? -EINVAL : 0);
		if (r)
			assert_non_null(strstr(why, rows[i].why));
	}
}

static void check(const struct ntr_snap *s, const char *key, const uint8_t *want, size_t n)
{
	ntr_autofree uint8_t *got = NULL;
	size_t len = 0;

	assert_int_equal(ntr_cacheitem_get(s, key, &got, &len), want ? 0 : -ENOENT);
	if (!want)
		return;
	assert_int_equal(len, n);
	assert_memory_equal(got, want, n);
	assert_int_equal(got[n], 0);
}

/* One item a key up to where a chunk list ends; then parts, which come and go with the size. */
static void test_sizes(void **state)
{
	static const struct {
		size_t bytes;
		unsigned items;
	} rows[] = {{0, 1}, {1, 1}, {1024, 1}, {1025, 1}, {65536, 1}, {65537, 1},
	        {(size_t)NTR_ITEM_CHUNKS_MAX * 65536, 1}, {(size_t)NTR_ITEM_CHUNKS_MAX * 65536 + 1, 2},
	        {(size_t)NTR_ITEM_CHUNKS_MAX * 65536 * 2 + 77, 3}, {70000, 1}, {5, 1}};
	size_t max = (size_t)NTR_ITEM_CHUNKS_MAX * 65536 * 2 + 77;
	ntr_autofree uint8_t *data = malloc(max + 1);
	uint64_t rnd = 99;

	(void)state;
	assert_non_null(data);
	fx_fill(&rnd, data, 1 << 20);
	for (size_t off = 1 << 20; off < max; off += 1 << 20)
		memcpy(data + off, data, NTR_MIN((size_t)1 << 20, max - off));
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		struct ntr_txn *t = fx_begin(&fx);
		struct ntr_snap s;

		data[0] = (uint8_t)i;
		assert_int_equal(ntr_cacheitem_set(t, "big", data, rows[i].bytes), 0);
		check(ntr_txn_snap(t), "big", data, rows[i].bytes);
		fx_commit(&fx, t);
		s = ntr_snap_root(fx.st, fx.head.root);
		check(&s, "big", data, rows[i].bytes);
		assert_int_equal(fx_items(&s, NTR_INO_META, NTR_ITEM_CACHE), rows[i].items);
	}
}

static void test_limits(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	uint8_t *val;
	size_t n;

	(void)state;
	assert_int_equal(ntr_cacheitem_set(t, "k", "", (size_t)NTR_CACHE_VALUE_MAX + 1), -E2BIG);
	assert_int_equal(ntr_cacheitem_set(t, "a/b", "1", 1), -EINVAL);
	assert_int_equal(ntr_cacheitem_set(t, "", "1", 1), -EINVAL);
	assert_int_equal(ntr_cacheitem_get(ntr_txn_snap(t), "__x", &val, &n), -EINVAL);
	assert_int_equal(ntr_cacheitem_set(t, "none", NULL, 0), 0);
	ntr_txn_abort(t);
}

enum { KEYS = 12 };

struct twin {
	uint8_t *val[KEYS];
	size_t len[KEYS];
};

static int count_key(void *user, const char *key)
{
	unsigned *seen = user;
	char *end;
	unsigned long i = strtoul(key + 1, &end, 10);

	assert_true(key[0] == 'k' && i < KEYS);
	assert_false(*seen & 1u << i);
	*seen |= 1u << i;
	return 0;
}

static void compare(const struct ntr_snap *s, const struct twin *w)
{
	unsigned seen = 0;
	char key[16];

	assert_int_equal(ntr_cacheitem_each(s, count_key, &seen), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		/* names of which one begins another */
		snprintf(key, sizeof key, "k%u%s", i, i % 3 ? "" : "\x01");
		check(s, key, w->val[i], w->len[i]);
		assert_int_equal(seen >> i & 1, w->val[i] != NULL);
	}
}

static void change(struct ntr_txn *t, struct twin *w, uint64_t *rnd)
{
	unsigned i = (unsigned)fx_below(rnd, KEYS);
	size_t n = (size_t)(fx_below(rnd, 4) ? fx_below(rnd, 3000) : fx_below(rnd, 300000));
	char key[16];

	snprintf(key, sizeof key, "k%u%s", i, i % 3 ? "" : "\x01");
	free(w->val[i]);
	w->val[i] = NULL;
	if (fx_below(rnd, 4)) {
		w->val[i] = malloc(n + 1);
		assert_non_null(w->val[i]);
		fx_fill(rnd, w->val[i], n);
		w->len[i] = n;
	}
	assert_int_equal(ntr_cacheitem_set(t, key, w->val[i], n), 0);
}

static void test_random(void **state)
{
	uint64_t rnd = 20261129;
	struct twin w = {0};

	(void)state;
	print_message("seed %llu\n", (unsigned long long)rnd);
	for (int round = 0; round < 40; round++) {
		struct ntr_txn *t = fx_begin(&fx);
		struct ntr_snap s;

		for (unsigned i = 0; i < 10; i++)
			change(t, &w, &rnd);
		compare(ntr_txn_snap(t), &w);
		fx_commit(&fx, t);
		if (round % 10 == 9)
			fx_reopen(&fx);
		s = ntr_snap_root(fx.st, fx.head.root);
		compare(&s, &w);
	}
	for (unsigned i = 0; i < KEYS; i++)
		free(w.val[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys),
	        cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_random, setup, teardown)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
