/* Node encoding: round trips, search against a linear one, and damage of every kind is refused. */
#include "fs/node.h"
#include "treefix.h"

#include <errno.h>

enum { MAX_ENTRIES = 200 };

struct sample {
	unsigned level;
	size_t n, len;
	struct ntr_node_entry e[MAX_ENTRIES];
	uint8_t bytes[NTR_NODE_MAX];
	uint8_t pool[MAX_ENTRIES * 600];
};

static int by_key(const void *a, const void *b)
{
	const struct ntr_node_entry *x = a, *y = b;
	int c = memcmp(x->key, y->key, NTR_MIN(x->klen, y->klen));

	return c ? c : (x->klen > y->klen) - (x->klen < y->klen);
}

/* Random distinct keys with a common beginning, over few byte values so that they share prefixes. */
static void sample_make(struct sample *s, uint64_t *rnd, unsigned level, size_t n, size_t prefix)
{
	uint8_t *p = s->pool;
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		size_t rest = treefix_below(rnd, 12), vlen = level ? 0 : treefix_below(rnd, 40);
		uint8_t *key = p;

		memset(p, 'p', prefix);
		p += prefix;
		for (size_t j = 0; j < rest; j++)
			*p++ = (uint8_t)treefix_below(rnd, 4);
		treefix_fill(rnd, p, vlen);
		s->e[i] = (struct ntr_node_entry){.key = key,
		        .klen = prefix + rest,
		        .val = level ? NULL : p,
		        .vlen = vlen,
		        .child = level ? treefix_rand(rnd) | 1 : 0};
		p += vlen;
	}
	qsort(s->e, n, sizeof(s->e[0]), by_key);
	for (size_t i = 0; i < n; i++)
		if (!k || by_key(&s->e[k - 1], &s->e[i]))
			s->e[k++] = s->e[i];
	s->n = k;
	s->level = level;
	s->len = ntr_node_size(level, s->e, k);
	assert_true(s->len <= NTR_NODE_MAX);
	ntr_node_encode(level, s->e, k, s->bytes, s->len);
}

static void sample_compare(const struct sample *s, const struct ntr_node_view *v)
{
	assert_int_equal(v->count, s->n);
	assert_int_equal(v->level, s->level);
	for (size_t i = 0; i < s->n; i++) {
		struct ntr_node_entry e;

		ntr_node_entry(v, i, &e);
		assert_int_equal(v->prefix_len + e.klen, s->e[i].klen);
		assert_memory_equal(v->prefix, s->e[i].key, v->prefix_len);
		assert_memory_equal(e.key, s->e[i].key + v->prefix_len, e.klen);
		assert_int_equal(e.vlen, s->e[i].vlen);
		if (e.vlen)
			assert_memory_equal(e.val, s->e[i].val, e.vlen);
		assert_int_equal(e.child, s->e[i].child);
	}
}

static void search_compare(
        const struct sample *s, const struct ntr_node_view *v, const uint8_t *key, size_t klen)
{
	struct ntr_node_entry want = {.key = key, .klen = klen};
	size_t i = 0, got;
	int equal;

	while (i < s->n && by_key(&s->e[i], &want) < 0)
		i++;
	got = ntr_node_search(v, key, klen, &equal);
	assert_int_equal(got, i);
	assert_int_equal(equal, i < s->n && !by_key(&s->e[i], &want));
}

static void test_round_trip(void **state)
{
	static struct sample s;
	uint64_t rnd = treefix_seed();

	(void)state;
	for (int round = 0; round < 400; round++) {
		size_t prefix = treefix_below(&rnd, 20);
		struct ntr_node_view v;
		uint8_t key[64];

		sample_make(&s, &rnd, (unsigned)treefix_below(&rnd, 3), 1 + treefix_below(&rnd, MAX_ENTRIES),
		        prefix);
		assert_int_equal(ntr_node_decode(s.bytes, s.len, &v), 0);
		sample_compare(&s, &v);
		for (int i = 0; i < 50; i++) {
			size_t n = treefix_below(&rnd, 32);

			memset(key, 'p', sizeof(key));
			for (size_t j = treefix_below(&rnd, prefix + 1); j < n; j++)
				key[j] = (uint8_t)treefix_below(&rnd, 4);
			search_compare(&s, &v, key, n);
		}
		for (size_t i = 0; i < s.n; i++)
			search_compare(&s, &v, s.e[i].key, s.e[i].klen);
	}
}

static void test_limits(void **state)
{
	static uint8_t key[2][NTR_KEY_MAX], val[NTR_VALUE_MAX], out[NTR_NODE_MAX];
	struct ntr_node_entry e[2] = {{.key = key[0], .klen = NTR_KEY_MAX, .val = val, .vlen = NTR_VALUE_MAX},
	        {.key = key[1], .klen = NTR_KEY_MAX, .val = val, .vlen = NTR_VALUE_MAX}};
	struct ntr_node_view v;
	size_t n;

	(void)state;
	key[1][0] = 1;
	n = ntr_node_size(0, e, 2);
	assert_true(n <= NTR_NODE_MAX);
	ntr_node_encode(0, e, 2, out, n);
	assert_int_equal(ntr_node_decode(out, n, &v), 0);
	e[0] = (struct ntr_node_entry){.key = key[0], .klen = 0, .val = val, .vlen = 0};
	n = ntr_node_size(0, e, 1);
	ntr_node_encode(0, e, 1, out, n);
	assert_int_equal(ntr_node_decode(out, n, &v), 0);
	assert_int_equal(v.count, 1);
}

static void test_every_flip(void **state)
{
	static struct sample s;
	uint64_t rnd = treefix_seed();
	struct ntr_node_view v;

	(void)state;
	for (unsigned level = 0; level < 2; level++) {
		sample_make(&s, &rnd, level, 40, 9);
		for (size_t i = 0; i < s.len; i++) {
			/* An exact-size copy, so that a sanitizer sees any step over its end. */
			ntr_autofree uint8_t *copy = malloc(s.len);

			assert_non_null(copy);
			for (int bit = 0; bit < 8; bit++) {
				memcpy(copy, s.bytes, s.len);
				copy[i] ^= (uint8_t)(1 << bit);
				assert_int_equal(ntr_node_decode(copy, s.len, &v), -EUCLEAN);
			}
		}
	}
}

static void test_every_cut(void **state)
{
	static struct sample s;
	uint64_t rnd = treefix_seed();
	struct ntr_node_view v;

	(void)state;
	sample_make(&s, &rnd, 0, 60, 4);
	for (size_t n = 0; n < s.len; n++) {
		ntr_autofree uint8_t *copy = malloc(n ? n : 1);

		assert_non_null(copy);
		memcpy(copy, s.bytes, n);
		assert_int_equal(ntr_node_decode(copy, n, &v), -EUCLEAN);
	}
}

/* Recomputes the checksum the way node.h defines it, so that only the structure can be refused. */
static void reseal(uint8_t *p, size_t n);

/* Structure is checked on its own: damage under a valid checksum must be refused or decode to something that
 * stays within the buffer (a value's byte may of course be any). */
static void test_resealed(void **state)
{
	static struct sample s;
	uint64_t rnd = treefix_seed();
	unsigned refused = 0;

	(void)state;
	for (int round = 0; round < 6000; round++) {
		ntr_autofree uint8_t *copy = NULL;
		struct ntr_node_view v;

		if (round % 300 == 0)
			sample_make(&s, &rnd, (unsigned)(round / 300 % 2), 30, treefix_below(&rnd, 8));
		copy = malloc(s.len);
		assert_non_null(copy);
		memcpy(copy, s.bytes, s.len);
		for (size_t k = 1 + treefix_below(&rnd, 3); k; k--)
			copy[treefix_below(&rnd, NTR_MIN(s.len, (size_t)200))] = (uint8_t)treefix_rand(&rnd);
		reseal(copy, s.len);
		if (ntr_node_decode(copy, s.len, &v)) {
			refused++;
			continue;
		}
		for (size_t i = 0; i < v.count; i++) {
			struct ntr_node_entry e;
			int equal;

			ntr_node_entry(&v, i, &e);
			assert_true(e.key >= copy && e.key + e.klen <= copy + s.len);
			assert_true(v.level || e.val + e.vlen <= copy + s.len);
			ntr_node_search(&v, s.e[0].key, s.e[0].klen, &equal);
		}
	}
	assert_true(refused > 3000);
}

#define XXH_INLINE_ALL
#include <xxhash.h>

static void reseal(uint8_t *p, size_t n)
{
	memset(p + 8, 0, 8);
	ntr_put_le64(p + 8, XXH3_64bits(p, n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_round_trip),
	        cmocka_unit_test(test_limits),
	        cmocka_unit_test(test_every_flip),
	        cmocka_unit_test(test_every_cut),
	        cmocka_unit_test(test_resealed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
