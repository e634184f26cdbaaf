/* Writes of the database's files that fail with EIO, EFBIG, EDQUOT, EMFILE, once or for a while: what was
 * acknowledged is there, what failed is not, writing goes on without a new opening as soon as the disk lets
 * it, and a new opening finds the same. */
#include "failing_io.h"
#include "treefix.h"

#include <pthread.h>

static struct treefix f;

static int setup(void **state)
{
	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	snprintf(fio.dir, sizeof fio.dir, "%s/", f.db);
	fio.suffix = NULL;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fio_arm(0, 0, 0, 0);
	treefix_close(&f);
	treefix_remove(&f);
	return 0;
}

static int put(enum ntr_cf cf, enum ntr_kv_mode mode, uint64_t k, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	uint8_t key[9] = "k";

	ntr_put_be64(key + 1, k);
	ntr_kv_batch_put(b, f.kv, cf, key, sizeof key, key, sizeof key);
	return ntr_kv_write(f.kv, b, mode, e);
}

static bool there(enum ntr_cf cf, uint64_t k)
{
	struct ntr_kv_pin p;
	uint8_t key[9] = "k";

	ntr_put_be64(key + 1, k);
	int r = ntr_kv_get(f.kv, cf, key, sizeof key, &p);

	ntr_kv_unpin(&p);
	assert_true(r == 0 || r == -ENOENT);
	return r == 0;
}

static void reopen(void)
{
	treefix_close(&f);
	treefix_open(&f, 0);
}

/* All of [0, n) but those in `lost` (up to -1). */
static void check(uint64_t n, const uint64_t *lost)
{
	for (uint64_t k = 0; k < n; k++) {
		bool gone = false;

		for (const uint64_t *l = lost; *l != UINT64_MAX; l++)
			gone |= *l == k;
		if (there(NTR_CF_META, k) == gone)
			fail_msg("record %llu: %s", (unsigned long long)k, gone ? "there" : "lost");
	}
}

static const int codes[] = {EIO, EDQUOT, EFBIG, EMFILE, EROFS};

/* Each takes seconds, for RocksDB pauses after errors. */
static size_t ncodes(void)
{
	return getenv("NTR_LONG") ? NTR_COUNT(codes) : 1;
}

/* One failure, at each step of a write in turn: it is told of by nothing but a line in the log. */
static void passes(int what, enum ntr_kv_mode mode)
{
	static const uint64_t none[] = {UINT64_MAX};
	uint64_t n = 0;

	for (size_t i = 0; i < ncodes(); i++) {
		for (long after = 0; after < 3; after++) {
			struct ntr_err e = {0};

			/* with and without something in the memory tables */
			if (after == 1)
				assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_META, NULL), 0);
			fio_arm(what, codes[i], 0, 1);
			for (long j = 0; j <= after; j++)
				assert_int_equal(put(NTR_CF_META, mode, n++, &e), 0);
			assert_int_equal(atomic_load(&fio.met), 1);
			assert_int_equal(e.code, 0);
			fio_arm(0, 0, 0, 0);
			check(n, none);
		}
		reopen();
		check(n, none);
	}
	assert_int_equal(ntr_kv_verify(f.kv, NULL), 0);
}

static void test_write_passes(void **state)
{
	(void)state;
	passes(FIO_WRITE, NTR_KV_SYNC);
	reopen();
	passes(FIO_WRITE, NTR_KV_RELAXED);
}

static void test_sync_passes(void **state)
{
	(void)state;
	passes(FIO_SYNC, NTR_KV_SYNC);
}

/* A failure that stays until the disk is mended: each write says so; the first one afterwards works. What was
 * acknowledged before without a sync, or without a log, is not lost. */
static void stays(int what, const char *suffix)
{
	uint64_t n = 0, lost[64], nlost = 0;

	for (size_t i = 0; i < ncodes(); i++) {
		struct ntr_err e = {0};
		uint64_t start;
		int r;

		assert_int_equal(put(NTR_CF_META, NTR_KV_RELAXED, n++, NULL), 0);
		assert_int_equal(put(NTR_CF_CHUNK, NTR_KV_NO_WAL, i, NULL), 0);
		fio.suffix = suffix;
		fio_arm(what, codes[i], 0, -1);
		for (int j = 0; j < 3; j++) {
			r = put(NTR_CF_META, NTR_KV_SYNC, n, &e);
			assert_int_equal(r, -codes[i]);
			assert_true(e.why[0] && ntr_err_advice(&e)[0]);
			assert_true(ntr_kv_sync_wal(f.kv, NULL) < 0); /* and is refused in order */
			lost[nlost++] = n++;
			assert_true(there(NTR_CF_META, 0));
		}
		assert_true(atomic_load(&fio.met) > 0);
		fio_arm(0, 0, 0, 0);
		start = ntr_mono_ns();
		while ((r = put(NTR_CF_META, NTR_KV_SYNC, n, &e))) {
			lost[nlost] = n;
			assert_true(ntr_mono_ns() - start < 5000000000u);
			usleep(20000);
		}
		n++;
		lost[nlost] = UINT64_MAX;
		check(n, lost);
		for (size_t j = 0; j <= i; j++)
			assert_true(there(NTR_CF_CHUNK, j));
		if (i % 2) {
			assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_CHUNK, NULL), 0);
			reopen();
			check(n, lost);
		}
	}
	assert_int_equal(ntr_kv_verify(f.kv, NULL), 0);
}

static void test_write_stays(void **state)
{
	(void)state;
	stays(FIO_WRITE, NULL);
}

static void test_sync_stays(void **state)
{
	(void)state;
	stays(FIO_SYNC, NULL);
}

/* Files of tables that cannot be made or written: a flush says so, and works later. */
static void test_flush(void **state)
{
	(void)state;
	for (int what = FIO_WRITE; what <= FIO_OPEN; what *= 2) {
		for (size_t i = 0; i < ncodes(); i++) {
			struct ntr_err e = {0};
			uint64_t start = ntr_mono_ns();

			assert_int_equal(put(NTR_CF_CHUNK, NTR_KV_NO_WAL, i, NULL), 0);
			fio.suffix = ".sst";
			fio_arm(what, codes[i], 0, -1);
			assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_CHUNK, &e), -codes[i]);
			assert_true(atomic_load(&fio.met) > 0);
			assert_true(there(NTR_CF_CHUNK, i));
			fio_arm(0, 0, 0, 0);
			while (ntr_kv_flush(f.kv, NTR_CF_CHUNK, &e)) {
				assert_true(ntr_mono_ns() - start < 5000000000u);
				usleep(20000);
			}
			reopen();
			for (size_t j = 0; j <= i; j++)
				assert_true(there(NTR_CF_CHUNK, j));
		}
	}
}

/* Many writers meet it at once: each of them either knows that it failed or finds its record for good. */
static _Atomic uint64_t next;
static _Atomic bool stop;

static void *writer(void *arg)
{
	uint8_t *ok = arg;

	while (!atomic_load(&stop)) {
		uint64_t k = atomic_fetch_add(&next, 1);

		if (k >= 100000)
			break;
		ok[k] = put(NTR_CF_META, k % 3 ? NTR_KV_RELAXED : NTR_KV_SYNC, k, NULL) ? 2 : 1;
		if (ok[k] == 2)
			usleep(2000);
	}
	return NULL;
}

static void test_many(void **state)
{
	static uint8_t ok[100000];
	uint64_t rnd = treefix_seed(), n, failed = 0;
	pthread_t th[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&th[i], NULL, writer, ok), 0);
	for (int i = 0; i < (getenv("NTR_LONG") ? 100 : 20); i++) {
		uint64_t x = treefix_rand(&rnd);

		fio_arm(x & 1 ? FIO_WRITE : FIO_SYNC, EIO, (long)(x >> 8 & 15),
		        x & 2 ? 1 : (long)(x >> 16 & 7));
		usleep(20000);
	}
	fio_arm(0, 0, 0, 0);
	atomic_store(&stop, true);
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	n = atomic_load(&next);
	n = NTR_MIN(n, (uint64_t)100000);
	for (int round = 0; round < 2; round++) {
		for (uint64_t k = 0; k < n; k++) {
			failed += ok[k] == 2;
			if (ok[k] == 1 && !there(NTR_CF_META, k))
				fail_msg("record %llu lost", (unsigned long long)k);
		}
		reopen();
	}
	print_message("%llu writes, %llu told to have failed\n", (unsigned long long)n,
	        (unsigned long long)failed / 2);
}

static int put_large(uint64_t k)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	static uint8_t value[60000];
	uint64_t rnd = k;
	uint8_t key[8];

	treefix_fill(&rnd, value, sizeof value);
	ntr_put_be64(key, k);
	ntr_kv_batch_put(b, f.kv, NTR_CF_CHUNK, key, sizeof key, value, sizeof value);
	return ntr_kv_write(f.kv, b, NTR_KV_NO_WAL, NULL);
}

/* A table that cannot be read is an error of the disk, not of the data: nothing is remembered. */
static void test_read(void **state)
{
	struct ntr_kv_pin p;
	uint8_t key[8];
	unsigned failed = 0;

	(void)state;
	for (uint64_t k = 0; k < 50; k++)
		assert_int_equal(put_large(k), 0);
	assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_CHUNK, NULL), 0);
	reopen();
	fio.suffix = ".sst";
	for (int round = 0; round < 2; round++) {
		fio_arm(FIO_READ, EIO, 0, round ? 0 : -1);
		for (uint64_t k = 0; k < 50; k++) {
			ntr_put_be64(key, k);
			int r = ntr_kv_get(f.kv, NTR_CF_CHUNK, key, sizeof key, &p);

			ntr_kv_unpin(&p);
			failed += r == -EIO;
			assert_true(r == 0 || (!round && r == -EIO));
		}
	}
	assert_true(failed >= 40);
	assert_int_equal(put_large(50), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_write_passes, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_sync_passes, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_write_stays, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_sync_stays, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_flush, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_read, setup, teardown),
	};

	cmocka_set_test_filter(getenv("NTR_TEST_ONLY"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
