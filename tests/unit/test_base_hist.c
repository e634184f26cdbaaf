/* hist: buckets without gaps, and percentiles within a ninth of the truth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hist.h"
#include "base/util.h"

#include <pthread.h>

static void test_buckets(void **state)
{
	unsigned last = 0;

	(void)state;
	assert_int_equal(ntr_hist_bucket(0), 0);
	for (uint64_t ns = 1; ns < 100000; ns++) {
		unsigned b = ntr_hist_bucket(ns);

		if (b < last)
			fail_msg("%llu ns: bucket %u after %u", (unsigned long long)ns, b, last);
		last = b;
	}
	for (unsigned bit = 2; bit < 64; bit++) {
		uint64_t ns = UINT64_C(1) << bit;

		assert_true(ntr_hist_bucket(ns) < NTR_HIST_BUCKETS);
		assert_true(ntr_hist_bucket(ns) >= ntr_hist_bucket(ns - 1));
	}
	assert_int_equal(ntr_hist_bucket(UINT64_MAX), NTR_HIST_BUCKETS - 1);
}

static void assert_near(double got_us, double ns)
{
	double want = ns / 1000;

	if (want < got_us * 8 / 9 - 1e-9 || want > got_us * 10 / 9 + 1e-9)
		fail_msg("%f us, wanted %f", got_us, want);
}

/* One value alone: every quantile is it, wherever it lies in its bucket. */
static void test_single(void **state)
{
	static const double qs[] = {0.001, 0.5, 0.99, 1};

	(void)state;
	for (uint64_t ns = 4; ns < UINT64_C(1) << 39; ns += ns / 13 + 1) {
		uint64_t counts[NTR_HIST_BUCKETS] = {0};

		counts[ntr_hist_bucket(ns)] = 3;
		for (size_t i = 0; i < NTR_COUNT(qs); i++)
			assert_near(ntr_hist_quantile(counts, qs[i]), (double)ns);
	}
}

static void test_none(void **state)
{
	const uint64_t counts[NTR_HIST_BUCKETS] = {0};
	struct ntr_hist h = {0};
	uint64_t n = 1;
	double p50 = 1, p99 = 1;

	(void)state;
	assert_true(ntr_hist_quantile(counts, 0.5) <= 0);
	ntr_hist_read(&h, &n, &p50, &p99);
	assert_int_equal(n, 0);
	assert_true(p50 <= 0 && p99 <= 0);
}

static void test_percentiles(void **state)
{
	struct ntr_hist h = {0};
	uint64_t n;
	double p50, p99;

	(void)state;
	for (uint64_t i = 1; i <= 10000; i++)
		ntr_hist_add(&h, i * 1000);
	ntr_hist_read(&h, &n, &p50, &p99);
	assert_int_equal(n, 10000);
	assert_near(p50, 5000e3);
	assert_near(p99, 9900e3);
	for (int i = 0; i < 300; i++) /* a tail above one in a hundred shows in p99 only */
		ntr_hist_add(&h, 1000000000);
	ntr_hist_read(&h, &n, &p50, &p99);
	assert_near(p50, 5150e3);
	assert_near(p99, 1e9);
}

static void *adder(void *arg)
{
	for (int i = 0; i < 20000; i++)
		ntr_hist_add(arg, 5000);
	return NULL;
}

static void test_threads(void **state)
{
	struct ntr_hist h = {0};
	pthread_t t[4];
	uint64_t n;
	double p50, p99;

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, adder, &h), 0);
	for (size_t i = 0; i < NTR_COUNT(t); i++)
		pthread_join(t[i], NULL);
	ntr_hist_read(&h, &n, &p50, &p99);
	assert_int_equal(n, 80000);
	assert_near(p50, 5000);
	assert_near(p99, 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_buckets),
	        cmocka_unit_test(test_single),
	        cmocka_unit_test(test_none),
	        cmocka_unit_test(test_percentiles),
	        cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
