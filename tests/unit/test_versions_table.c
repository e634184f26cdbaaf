/* The inode table against a plain array, from several threads; the histogram; the escaping of attribute
 * names. */
#include "store_fixture.h"

#include "fs/versions_impl.h"

#include <pthread.h>

enum { PAIRS = 20000, STEPS = 400000, THREADS = 4, THREAD_STEPS = 100000 };

struct twin {
	struct ntr_vnode *node;
	uint64_t lookups;
};

/* Pair i: ten versions of an inode, as files and as directories. */
static uint64_t ino_of(size_t i)
{
	return 16 + i / 20;
}
static uint64_t key_of(size_t i)
{
	return i % 20 / 2;
}
static bool dir_of(size_t i)
{
	return i & 1;
}

static void test_twin(void **state)
{
	struct twin *tw = calloc(PAIRS, sizeof(*tw));
	struct ntr_vtable *t;
	uint64_t rnd = 20261129, live = 0, inodes, bytes;

	(void)state;
	assert_int_equal(ntr_vtable_new(&t), 0);
	for (int step = 0; step < STEPS; step++) {
		/* grows over the first half, shrinks over the second */
		bool take = fx_below(&rnd, 100) < (step < STEPS / 2 ? 70 : 30);
		size_t i = fx_below(&rnd, PAIRS);
		struct twin *w = &tw[i];

		if (take) {
			struct ntr_vnode *n = ntr_vtable_get(t, ino_of(i), key_of(i), dir_of(i), i);

			assert_non_null(n);
			assert_true(!w->lookups || n == w->node);
			assert_true(n->ino == ino_of(i) && n->key == key_of(i) && n->dir == dir_of(i));
			assert_true(atomic_load(&n->root) == i);
			live += !w->lookups++;
			w->node = n;
		} else if (w->lookups) {
			uint64_t n = 1 + fx_below(&rnd, w->lookups);

			ntr_vtable_forget(t, w->node, n);
			w->lookups -= n;
			live -= !w->lookups;
		}
	}
	ntr_vtable_stats(t, &inodes, &bytes);
	assert_int_equal(inodes, live);
	for (size_t i = 0; i < PAIRS; i++)
		if (tw[i].lookups)
			ntr_vtable_forget(t, tw[i].node, tw[i].lookups + i % 3);
	ntr_vtable_stats(t, &inodes, &bytes);
	assert_int_equal(inodes, 0);
	assert_true(bytes < 100000); /* it has shrunk again */
	ntr_vtable_free(t);
	free(tw);
}

static void test_million(void **state)
{
	struct ntr_vtable *t;
	uint64_t inodes, bytes;

	(void)state;
	assert_int_equal(ntr_vtable_new(&t), 0);
	for (uint64_t i = 0; i < 1000000; i++)
		assert_non_null(ntr_vtable_get(t, i, i % 7, false, 1));
	ntr_vtable_stats(t, &inodes, &bytes);
	assert_int_equal(inodes, 1000000);
	print_message("1,000,000 inodes: %.1f MB\n", (double)bytes / 1e6);
	assert_true(bytes <= 100000000);
	ntr_vtable_free(t);
}

/* Every thread takes and gives back one reference at a time to the same few pairs. */
static void *worker(void *arg)
{
	struct ntr_vtable *t = arg;
	uint64_t rnd = (uint64_t)(uintptr_t)&rnd | 1;

	for (int i = 0; i < THREAD_STEPS; i++) {
		uint64_t k = fx_below(&rnd, 50);
		struct ntr_vnode *n = ntr_vtable_get(t, k, 1, false, 1);

		if (!n || n->ino != k)
			return arg;
		ntr_vtable_forget(t, n, 1);
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t th[THREADS];
	struct ntr_vtable *t;
	uint64_t inodes, bytes;
	void *bad;

	(void)state;
	assert_int_equal(ntr_vtable_new(&t), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&th[i], NULL, worker, t), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(th[i], &bad);
		assert_null(bad);
	}
	ntr_vtable_stats(t, &inodes, &bytes);
	assert_int_equal(inodes, 0);
	ntr_vtable_free(t);
}

static void test_quantiles(void **state)
{
	struct ntr_vstats *s = calloc(1, sizeof(*s));
	uint64_t hist[NTR_VSTATS_BUCKETS] = {0}, count = 0;

	(void)state;
	for (uint64_t i = 1; i <= 10000; i++)
		ntr_vstats_add(s, NTR_VOP_READ, 1, i * 100); /* 0.1 us .. 1 ms, even */
	ntr_vstats_sum(s, NTR_VOP_READ, &count, hist);
	assert_int_equal(count, 10000);
	assert_true(ntr_hist_quantile(hist, 0.5) > 440 && ntr_hist_quantile(hist, 0.5) < 560);
	assert_true(ntr_hist_quantile(hist, 0.99) > 870 && ntr_hist_quantile(hist, 0.99) < 1110);
	ntr_vstats_add(s, NTR_VOP_READ, 1, UINT64_MAX);
	ntr_vstats_add(s, NTR_VOP_READ, 1, 0);
	ntr_vstats_sum(s, NTR_VOP_STATFS, &count, hist);
	assert_int_equal(count, 10000);
	free(s);
}

static void test_escape(void **state)
{
	static const char *const all[][3][2] = {
	        {{"trusted.overlay.opaque", "trusted.overlay.overlay.opaque"},
	                {"user.overlay.redirect", "user.overlay.redirect"},
	                {"trusted.overlay.overlay.x", "trusted.overlay.overlay.overlay.x"}},
	        {{"user.overlay.opaque", "user.overlay.overlay.opaque"}, {"user.x", "user.x"},
	                {"user.overlay.overlay.x", "user.overlay.overlay.overlay.x"}},
	};
	static const char *const plain[] = {
	        "user.x", "security.capability", "user.overlayx", "trusted.overlayx"};
	const char *const(*pairs)[2] = all[geteuid() != 0];
	char out[NTR_VXATTR_MAX], name[300];

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(plain); i++) {
		assert_true(ntr_vxattr_escape(plain[i], out));
		assert_string_equal(out, plain[i]);
	}
	for (size_t i = 0; i < NTR_COUNT(all[0]); i++) {
		assert_true(ntr_vxattr_escape(pairs[i][0], out));
		assert_string_equal(out, pairs[i][1]);
		assert_true(ntr_vxattr_unescape(pairs[i][1], out));
		assert_string_equal(out, pairs[i][0]);
	}
	/* overlayfs's own marks are never there */
	assert_false(ntr_vxattr_unescape(geteuid() ? "user.overlay.opaque" : "trusted.overlay.opaque", out));
	snprintf(name, sizeof(name), "%s%0239d", geteuid() ? "user.overlay." : "trusted.overlay.", 0);
	assert_false(ntr_vxattr_escape(name, out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_twin),
	        cmocka_unit_test(test_million),
	        cmocka_unit_test(test_threads),
	        cmocka_unit_test(test_quantiles),
	        cmocka_unit_test(test_escape),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
