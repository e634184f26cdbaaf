/* Readers on many threads while one applies: every version reads as it was made, through a cache too small
 * for all. */
#include "treefix.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum { KEYS = 4000, READERS = 3, VERSIONS = 64 };

struct version {
	uint64_t root;
	uint64_t stamp; /* value of key i: the highest version v' <= stamp that touched it */
};

struct shared {
	struct treefix f;
	struct version v[VERSIONS];
	_Atomic size_t n; /* published versions */
	_Atomic bool stop;
	_Atomic unsigned failures, reads;
};

static void key_of(uint64_t i, uint8_t key[9])
{
	ntr_put_be64(key, i * 7);
	key[8] = 1;
}

/* Version s touched the keys i with i % 16 == s % 16. */
static uint64_t value_at(uint64_t i, uint64_t stamp)
{
	uint64_t back = (stamp - i % 16) % 16;

	return stamp >= back ? stamp - back : 0;
}

static bool get_ok(struct shared *s, const struct version *v, uint64_t i)
{
	uint8_t key[9], val[NTR_VALUE_MAX];
	size_t len;

	key_of(i, key);
	return !ntr_tree_get(s->f.tree, v->root, key, sizeof(key), val, &len) && len == 40 &&
	       ntr_get_le64(val) == value_at(i, v->stamp);
}

static bool scan_ok(struct shared *s, const struct version *v, uint64_t from)
{
	struct ntr_tree_cursor c;
	uint8_t key[9];
	bool ok = true;
	int r;

	key_of(from, key);
	ntr_tree_cursor_init(&c, s->f.tree, v->root);
	r = ntr_tree_cursor_seek(&c, key, sizeof(key));
	for (uint64_t i = from; ok && i < NTR_MIN(from + 200, (uint64_t)KEYS); i++) {
		ok = r == 1 && ntr_get_be64(c.key) == i * 7 && ntr_get_le64(c.val) == value_at(i, v->stamp);
		r = ntr_tree_cursor_next(&c);
	}
	ntr_tree_cursor_done(&c);
	return ok;
}

static int count(void *user, const uint8_t *key, size_t klen, const uint8_t *old, size_t old_len,
        const uint8_t *new, size_t new_len)
{
	(void)key;
	(void)klen;
	++*(size_t *)user;
	return !old || !new || old_len != 40 || new_len != 40;
}

static bool diff_ok(struct shared *s, const struct version *a, const struct version *b)
{
	size_t got = 0, want = 0;

	for (uint64_t i = 0; i < KEYS; i++)
		want += value_at(i, a->stamp) != value_at(i, b->stamp);
	return !ntr_tree_diff(s->f.tree, a->root, b->root, count, &got) && got == want;
}

static void *reader(void *p)
{
	struct shared *s = p;
	uint64_t rnd = (uint64_t)(uintptr_t)&rnd;

	while (!s->stop) {
		size_t n = s->n;
		const struct version *v = &s->v[treefix_below(&rnd, n)];
		bool ok = get_ok(s, v, treefix_below(&rnd, KEYS)) &&
		          get_ok(s, v, treefix_below(&rnd, KEYS)) && scan_ok(s, v, treefix_below(&rnd, KEYS));

		if (ok && s->reads % 32 == 0)
			ok = diff_ok(s, v, &s->v[treefix_below(&rnd, n)]);
		s->reads++;
		if (!ok)
			s->failures++;
	}
	return NULL;
}

static uint64_t apply(struct shared *s, uint64_t root, uint64_t stamp, bool all)
{
	static uint8_t key[KEYS][9], val[40];
	static struct ntr_change c[KEYS];
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	size_t n = 0;

	ntr_put_le64(val, stamp);
	for (uint64_t i = 0; i < KEYS; i++) {
		if (!all && i % 16 != stamp % 16)
			continue;
		key_of(i, key[n]);
		c[n] = (struct ntr_change){.key = key[n], .klen = 9, .val = val, .vlen = sizeof(val)};
		n++;
	}
	assert_int_equal(ntr_tree_apply(s->f.tree, root, c, n, b, &root), 0);
	assert_int_equal(ntr_kv_write(s->f.kv, b, NTR_KV_RELAXED, NULL), 0);
	return root;
}

static void test_readers_and_writer(void **state)
{
	static struct shared s;
	pthread_t id[READERS];
	uint64_t root;

	(void)state;
	treefix_dir(&s.f);
	treefix_open(&s.f, 200 << 10);
	root = apply(&s, 0, 0, true);
	s.v[0] = (struct version){.root = root};
	s.n = 1;
	for (int i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&id[i], NULL, reader, &s), 0);
	for (uint64_t stamp = 1; stamp < VERSIONS; stamp++) {
		root = apply(&s, root, stamp, false);
		s.v[stamp] = (struct version){.root = root, .stamp = stamp};
		s.n = stamp + 1;
		usleep(5000);
	}
	s.stop = true;
	for (int i = 0; i < READERS; i++)
		pthread_join(id[i], NULL);
	assert_int_equal(s.failures, 0);
	assert_true(s.reads > 10);
	treefix_close(&s.f);
	treefix_remove(&s.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_readers_and_writer)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
