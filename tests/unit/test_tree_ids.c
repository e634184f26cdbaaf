/* Ids: never given out twice, over reopenings, crashes, failed marks and threads; raised above what is
 * stored. */
#include "treefix.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

static void ids_reopen(struct treefix *f)
{
	treefix_close(f);
	treefix_open(f, 0);
}

static uint64_t take(struct treefix *f, enum ntr_id_kind k, uint64_t n)
{
	uint64_t id;

	assert_int_equal(ntr_ids_take(f->ids, k, n, &id), 0);
	return id;
}

static void test_start_and_reopen(void **state)
{
	uint64_t last[NTR_ID_KINDS];
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	for (int k = 0; k < NTR_ID_KINDS; k++) {
		uint64_t first = k == NTR_ID_INODE ? NTR_INO_FIRST : 1;

		assert_int_equal(ntr_ids_peek(f.ids, (enum ntr_id_kind)k), first);
		assert_int_equal(take(&f, (enum ntr_id_kind)k, 3), first);
		assert_int_equal(take(&f, (enum ntr_id_kind)k, 1), first + 3);
		last[k] = first + 3;
	}
	for (int round = 0; round < 3; round++) {
		ids_reopen(&f);
		for (int k = 0; k < NTR_ID_KINDS; k++) {
			uint64_t n = round == 1 ? 3 * NTR_IDS_STEP + 7 : 5;
			uint64_t id = take(&f, (enum ntr_id_kind)k, n);

			assert_true(id > last[k]);
			last[k] = id + n - 1;
			assert_int_equal(ntr_ids_peek(f.ids, (enum ntr_id_kind)k), last[k] + 1);
		}
	}
	treefix_close(&f);
	treefix_remove(&f);
}

/* The child takes numbers and dies without closing anything. */
static uint64_t crash_take(struct treefix *f, uint64_t n)
{
	uint64_t last = 0;
	int fds[2], st;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		struct treefix c = *f;

		treefix_open(&c, 0);
		for (uint64_t i = 0; i < n; i++)
			if (ntr_ids_take(c.ids, NTR_ID_INODE, 1, &last))
				_exit(1);
		_exit(write(fds[1], &last, sizeof(last)) != sizeof(last));
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &last, sizeof(last)), sizeof(last));
	close(fds[0]);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st) && !WEXITSTATUS(st));
	return last;
}

static void test_crash(void **state)
{
	uint64_t last = 0;
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	for (int round = 0; round < 3; round++) {
		uint64_t id = crash_take(&f, round == 1 ? NTR_IDS_STEP + 100 : 10);

		assert_true(id > last + 9);
		last = id;
	}
	treefix_open(&f, 0);
	assert_true(take(&f, NTR_ID_INODE, 1) > last);
	treefix_close(&f);
	treefix_remove(&f);
}

static void put(struct treefix *f, enum ntr_cf cf, const void *key, size_t klen)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();

	ntr_kv_batch_put(b, f->kv, cf, key, klen, "x", 1);
	assert_int_equal(ntr_kv_write(f->kv, b, NTR_KV_SYNC, NULL), 0);
}

static void test_raised_above_records(void **state)
{
	uint8_t key[9];
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	ntr_put_be64(key, ~(uint64_t)900000);
	put(&f, NTR_CF_NODE, key, 8);
	ntr_put_be64(key, ~(uint64_t)7);
	put(&f, NTR_CF_NODE, key, 8);
	ntr_put_be64(key, 800000);
	put(&f, NTR_CF_CHUNK, key, 8);
	key[0] = 'C';
	for (uint64_t id = 1; id < 400; id++) {
		ntr_put_be64(key + 1, id * 1000);
		put(&f, NTR_CF_META, key, 9);
	}
	key[0] = 'H';
	ntr_put_be64(key + 1, 77);
	put(&f, NTR_CF_META, key, 9);
	put(&f, NTR_CF_META, "I000000000000000000000", 21);
	ids_reopen(&f);
	assert_int_equal(ntr_ids_peek(f.ids, NTR_ID_NODE), 900001);
	assert_int_equal(ntr_ids_peek(f.ids, NTR_ID_CHUNK), 800001);
	assert_int_equal(ntr_ids_peek(f.ids, NTR_ID_COMMIT), 399001);
	assert_int_equal(ntr_ids_peek(f.ids, NTR_ID_SESSION), 78);
	assert_int_equal(ntr_ids_peek(f.ids, NTR_ID_VERSION), 1);
	treefix_close(&f);
	treefix_remove(&f);
}

static int fail_write(void *user, uint64_t number, const char *op)
{
	(void)number;
	(void)op;
	return *(int *)user;
}

static void test_mark_cannot_be_written(void **state)
{
	int err = -ENOSPC;
	struct treefix f;
	uint64_t id, before;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	before = take(&f, NTR_ID_CHUNK, 1);
	ntr_kv_set_fault(f.kv, fail_write, &err);
	assert_int_equal(ntr_ids_take(f.ids, NTR_ID_CHUNK, NTR_IDS_STEP * 2, &id), -ENOSPC);
	assert_int_equal(take(&f, NTR_ID_CHUNK, 1), before + 1); /* still covered by the mark */
	ntr_kv_set_fault(f.kv, NULL, NULL);
	assert_int_equal(take(&f, NTR_ID_CHUNK, NTR_IDS_STEP * 2), before + 2);
	assert_int_equal(ntr_ids_take(f.ids, NTR_ID_CHUNK, UINT64_MAX, &id), -ERANGE);
	treefix_close(&f);
	treefix_remove(&f);
}

static void test_damaged_marks(void **state)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	struct ntr_err e = {0};
	struct ntr_ids *ids;
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	ntr_kv_batch_put(b, f.kv, NTR_CF_META, "A", 1, "short", 5);
	assert_int_equal(ntr_kv_write(f.kv, b, NTR_KV_SYNC, NULL), 0);
	assert_int_equal(ntr_ids_open(f.kv, &ids, &e), -EUCLEAN);
	assert_int_equal(e.code, -EUCLEAN);
	treefix_close(&f);
	treefix_remove(&f);
}

enum { THREADS = 4, TAKES = 20000 };
struct taker {
	struct treefix *f;
	uint64_t got[TAKES];
};

static void *taker_run(void *p)
{
	struct taker *t = p;

	for (int i = 0; i < TAKES; i++)
		if (ntr_ids_take(t->f->ids, NTR_ID_NODE, 1 + (uint64_t)i % 5, &t->got[i]))
			t->got[i] = 0;
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void test_threads(void **state)
{
	static struct taker t[THREADS];
	static uint64_t all[THREADS * TAKES];
	pthread_t id[THREADS];
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	for (int i = 0; i < THREADS; i++) {
		t[i].f = &f;
		assert_int_equal(pthread_create(&id[i], NULL, taker_run, &t[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	for (int i = 0; i < THREADS; i++)
		memcpy(all + i * TAKES, t[i].got, sizeof(t[i].got));
	qsort(all, NTR_COUNT(all), sizeof(all[0]), by_value);
	assert_true(all[0] > 0);
	for (size_t i = 1; i < NTR_COUNT(all); i++)
		assert_true(all[i] > all[i - 1]);
	treefix_close(&f);
	treefix_remove(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_crash), /* forks, so before any thread of RocksDB's */
	        cmocka_unit_test(test_start_and_reopen),
	        cmocka_unit_test(test_raised_above_records),
	        cmocka_unit_test(test_mark_cannot_be_written),
	        cmocka_unit_test(test_damaged_marks),
	        cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
