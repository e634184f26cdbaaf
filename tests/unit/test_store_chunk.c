/* Chunks: stored once, found again by content, compared by bytes, never named before they are durable. */
#include "store_kill.h"

#include "fs/chunk_impl.h"

#include <errno.h>
#include <pthread.h>

static struct fixture fx;

static int setup(void **state)
{
	(void)state;
	memset(&fx, 0, sizeof fx);
	fx_setup(&fx);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_teardown(&fx);
	return 0;
}

static struct ntr_chunks *chunks(void)
{
	return ntr_store_chunks(fx.st);
}

static struct ntr_chunk_writer *writer(void)
{
	struct ntr_chunk_writer *w;

	assert_int_equal(ntr_chunk_writer_new(chunks(), &w), 0);
	return w;
}

/* Finishes and writes a writer as a commit does. */
static void land(struct ntr_chunk_writer *w)
{
	struct ntr_kv_batch *b = ntr_kv_batch_new();

	assert_int_equal(ntr_chunk_writer_finish(w, b, NULL), 0);
	assert_int_equal(ntr_kv_write(ntr_store_kv(fx.st), b, NTR_KV_SYNC, NULL), 0);
	ntr_kv_batch_free(b);
	ntr_chunk_writer_free(w);
}

static uint64_t put(struct ntr_chunk_writer *w, const void *p, size_t n, uint64_t hint)
{
	uint64_t id = 0;

	assert_int_equal(ntr_chunk_put(w, p, n, hint, &id), 0);
	assert_true(id != 0);
	return id;
}

static void check(uint64_t id, const void *p, size_t n)
{
	struct ntr_kv_pin pin;

	assert_int_equal(ntr_chunk_get(chunks(), id, &pin), 0);
	assert_int_equal(pin.len, n);
	assert_memory_equal(pin.data, p, n);
	ntr_kv_unpin(&pin);
}

static int op_count(void *user, uint64_t number, const char *op)
{
	unsigned *n = user;

	(void)number;
	n[op[0] == 'f' ? 1 : 0]++;
	return 0;
}

static void test_small(void **state)
{
	struct ntr_chunk_writer *w = writer();
	struct ntr_kv_pin pin;
	uint64_t a, b, c;

	(void)state;
	a = put(w, "hello", 5, 0);
	b = put(w, "hellp", 5, 0);
	c = put(w, "hello", 5, 0);
	assert_int_equal(a, c);
	assert_int_not_equal(a, b);
	assert_int_equal(ntr_chunk_writer_bytes(w), 10);
	assert_int_equal(ntr_chunk_get(chunks(), a, &pin), -EUCLEAN); /* not before the commit */
	land(w);
	check(a, "hello", 5);
	check(b, "hellp", 5);
	w = writer();
	assert_int_equal(put(w, "hello", 5, 0), a);
	assert_int_equal(put(w, "hello", 5, a), a);
	assert_int_equal(put(w, "hello", 5, b), a); /* a wrong hint is only a hint */
	assert_int_equal(put(w, "hello", 5, 1 << 30), a);
	assert_int_equal(ntr_chunk_writer_bytes(w), 0);
	ntr_chunk_writer_free(w);
}

static void test_limits(void **state)
{
	struct ntr_chunk_writer *w = writer();
	static uint8_t big[NTR_CHUNK_SIZE + 1];
	uint64_t id;

	(void)state;
	assert_int_equal(ntr_chunk_put(w, big, 0, 0, &id), -EINVAL);
	assert_int_equal(ntr_chunk_put(w, big, sizeof big, 0, &id), -EINVAL);
	id = put(w, big, NTR_CHUNK_SIZE, 0);
	land(w);
	check(id, big, NTR_CHUNK_SIZE);
}

/* Up to a limit content rides in the commit's batch; more is written ahead, and flushed once. */
static void test_paths(void **state)
{
	enum { N = 40 };
	static uint8_t data[N][NTR_CHUNK_SIZE];
	uint64_t rnd = 7, id[N];
	unsigned ops[2] = {0};
	struct ntr_chunk_writer *w = writer();
	struct ntr_kv *kv = ntr_store_kv(fx.st);

	(void)state;
	fx_fill(&rnd, data[0], sizeof data);
	id[0] = put(w, "warm", 4, 0); /* the id mark is advanced before counting */
	ntr_kv_set_fault(kv, op_count, ops);
	for (int i = 0; i < 16; i++)
		id[i] = put(w, data[i], sizeof data[i] - 1, 0);
	assert_int_equal(ops[0] + ops[1], 0);
	land(w);
	assert_int_equal(ops[0], 1);
	assert_int_equal(ops[1], 0);
	w = writer();
	for (int i = 16; i < N; i++)
		id[i] = put(w, data[i], sizeof data[i], 0);
	assert_int_equal(ops[1], 0);
	assert_true(ops[0] > 1);
	for (int i = 16; i < N; i++) /* its own chunks, queued or written */
		assert_int_equal(put(w, data[i], sizeof data[i], 0), id[i]);
	land(w);
	assert_int_equal(ops[1], 1);
	ntr_kv_set_fault(kv, NULL, NULL);
	for (int i = 0; i < N; i++)
		check(id[i], data[i], sizeof data[i] - (i < 16));
	fx_reopen(&fx);
	w = writer();
	for (int i = 16; i < N; i++)
		assert_int_equal(put(w, data[i], sizeof data[i], 0), id[i]);
	ntr_chunk_writer_free(w);
}

static void damage(uint64_t id, size_t at, uint64_t as)
{
	struct ntr_kv_batch *b = ntr_kv_batch_new();
	static uint8_t rec[NTR_CHUNK_HEAD + NTR_CHUNK_SIZE];
	struct ntr_kv_pin pin;
	uint8_t key[8];
	size_t n;

	ntr_put_be64(key, id);
	assert_int_equal(ntr_kv_get(ntr_store_kv(fx.st), NTR_CF_CHUNK, key, 8, &pin), 0);
	memcpy(rec, pin.data, n = pin.len);
	ntr_kv_unpin(&pin);
	if (at < n)
		rec[at] ^= 0x40;
	ntr_put_be64(key, as);
	ntr_kv_batch_put(b, ntr_store_kv(fx.st), NTR_CF_CHUNK, key, 8, rec, n);
	assert_int_equal(ntr_kv_write(ntr_store_kv(fx.st), b, NTR_KV_SYNC, NULL), 0);
	ntr_kv_batch_free(b);
}

static void test_damage(void **state)
{
	struct ntr_chunk_writer *w = writer();
	uint64_t a = put(w, "content a", 9, 0), b = put(w, "content b", 9, 0), again;
	struct ntr_kv_pin pin;

	(void)state;
	land(w);
	for (size_t at = 0; at < NTR_CHUNK_HEAD + 9; at++) {
		damage(a, at, a);
		assert_int_equal(ntr_chunk_get(chunks(), a, &pin), -EUCLEAN);
		damage(a, at, a);
		check(a, "content a", 9);
	}
	damage(a, SIZE_MAX, b); /* a's record in b's place */
	assert_int_equal(ntr_chunk_get(chunks(), b, &pin), -EUCLEAN);
	assert_int_equal(ntr_chunk_get(chunks(), 1 << 20, &pin), -EUCLEAN);
	/* Content whose stored chunk is damaged is stored anew, and found there from then on. */
	w = writer();
	again = put(w, "content b", 9, 0);
	assert_int_not_equal(again, b);
	land(w);
	check(again, "content b", 9);
	w = writer();
	assert_int_equal(put(w, "content b", 9, 0), again);
	ntr_chunk_writer_free(w);
}

static void same_hash(const void *data, size_t n, uint8_t ret[16])
{
	(void)data;
	(void)n;
	memset(ret, 0x5A, 16);
}

/* All contents have one hash: nothing is mixed up, among queued, logless and indexed chunks alike. */
static void test_collisions(void **state)
{
	enum { N = 30 };
	static uint8_t data[N][NTR_CHUNK_SIZE];
	struct ntr_chunk_writer *w, *v;
	uint64_t rnd = 11, id[N];

	(void)state;
	ntr_chunks_set_hash(chunks(), same_hash);
	fx_fill(&rnd, data[0], sizeof data);
	w = writer();
	for (int i = 0; i < N; i++) {
		id[i] = put(w, data[i], sizeof data[i], 0);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(id[i], id[j]);
	}
	assert_int_equal(put(w, data[0], sizeof data[0], 0), id[0]);
	v = writer(); /* meets w's logless chunk of the same hash */
	assert_int_not_equal(put(v, data[1], 100, 0), id[0]);
	assert_int_equal(put(v, data[0], sizeof data[0], 0), id[0]);
	land(w);
	land(v);
	for (int i = 0; i < N; i++)
		check(id[i], data[i], sizeof data[i]);
	for (int i = 0; i < N;
	        i++) { /* one of them holds the only index entry; whatever is found is the content */
		uint64_t found;

		w = writer();
		found = put(w, data[i], sizeof data[i], 0);
		land(w);
		check(found, data[i], sizeof data[i]);
		check(id[i], data[i], sizeof data[i]);
	}
}

/* A writer with very many chunks indexes them ahead of its commit. */
static void test_settle(void **state)
{
	enum { N = 200 };
	static uint8_t data[N][NTR_CHUNK_SIZE];
	struct ntr_chunk_writer *w = writer(), *v;
	uint64_t rnd = 13, id[N];

	(void)state;
	ntr_chunks_set_pending(chunks(), 20);
	fx_fill(&rnd, data[0], sizeof data);
	for (int i = 0; i < N; i++) {
		id[i] = put(w, data[i], sizeof data[i], 0);
		assert_int_equal(put(w, data[i / 2], sizeof data[i], 0), id[i / 2]);
	}
	v = writer();
	for (int i = 0; i < 150; i++)
		assert_int_equal(put(v, data[i], sizeof data[i], 0), id[i]);
	ntr_chunk_writer_free(w); /* never committed */
	land(v);
	fx_reopen(&fx);
	for (int i = 0; i < 150; i++)
		check(id[i], data[i], sizeof data[i]);
}

struct crash {
	uint64_t id[40];
	bool finish_other;
};
static uint8_t crash_data[40][NTR_CHUNK_SIZE];

static void crash_fill(void)
{
	uint64_t rnd = 17;

	fx_fill(&rnd, crash_data[0], sizeof crash_data);
}

/* One writer writes 2.5 MiB ahead and never commits; a second finds that content and (finish_other) commits.
 */
static void crash_child(const char *path)
{
	struct ntr_kv_batch *b = ntr_kv_batch_new();
	struct crash *crash = kill_shared();
	struct ntr_chunk_writer *w, *v;

	crash_fill();
	KILL_MUST(!ntr_store_open(path, &(struct ntr_store_options){0}, &fx.st, NULL));
	KILL_MUST(!ntr_chunk_writer_new(chunks(), &w) && !ntr_chunk_writer_new(chunks(), &v));
	for (int i = 0; i < 40; i++)
		KILL_MUST(!ntr_chunk_put(w, crash_data[i], NTR_CHUNK_SIZE, 0, &crash->id[i]));
	if (crash->finish_other) {
		uint64_t id;

		KILL_MUST(!ntr_chunk_put(v, crash_data[0], NTR_CHUNK_SIZE, 0, &id) && id == crash->id[0]);
		KILL_MUST(ntr_chunk_writer_bytes(v) == 0);
		KILL_MUST(!ntr_chunk_writer_finish(v, b, NULL));
	}
	KILL_MUST(!ntr_kv_write(ntr_store_kv(fx.st), b, NTR_KV_SYNC, NULL));
}

/* A hit on another writer's chunk that is not durable yet inherits the duty to make it so. The first half
 * shows that the content would be gone otherwise. */
static void test_inherit(void **state)
{
	struct crash *crash = kill_shared();
	struct ntr_kv_pin pin;
	struct ntr_chunk_writer *w;

	(void)state;
	crash_fill();
	ntr_store_close(fx.st);
	kill_child(0, fx.path, 0);
	fx_open(&fx, false);
	assert_int_equal(ntr_chunk_get(chunks(), crash->id[0], &pin), -EUCLEAN);
	ntr_store_close(fx.st);
	crash->finish_other = true;
	kill_child(0, fx.path, 0);
	fx_open(&fx, false);
	check(crash->id[0], crash_data[0], NTR_CHUNK_SIZE);
	w = writer();
	assert_int_equal(put(w, crash_data[0], NTR_CHUNK_SIZE, 0), crash->id[0]); /* and it indexed it */
	ntr_chunk_writer_free(w);
}

static int fault_at(void *user, uint64_t number, const char *op)
{
	(void)op;
	return number == *(uint64_t *)user ? -EIO : 0;
}

/* A failed write ahead sticks: its callers hold ids that name nothing. */
static void test_faults(void **state)
{
	static uint8_t data[60][NTR_CHUNK_SIZE];
	uint64_t rnd = 19, n = 1;
	bool failed = true;

	(void)state;
	fx_fill(&rnd, data[0], sizeof data);
	for (; failed; n++) {
		struct ntr_chunk_writer *w = writer();
		struct ntr_kv_batch *b = ntr_kv_batch_new();
		uint64_t id;

		failed = false;
		put(w, &rnd, 8, 0);
		ntr_kv_set_fault(ntr_store_kv(fx.st), fault_at, &n);
		for (int i = 0; i < 60; i++) {
			ntr_put_be64(data[i], n);
			if (ntr_chunk_put(w, data[i], NTR_CHUNK_SIZE, 0, &id) == -EIO)
				failed = true;
			else
				assert_false(failed);
		}
		if (failed)
			assert_int_equal(ntr_chunk_writer_finish(w, b, NULL), -EIO);
		else
			failed = ntr_chunk_writer_finish(w, b, NULL) == -EIO;
		ntr_kv_set_fault(ntr_store_kv(fx.st), NULL, NULL);
		ntr_kv_batch_free(b);
		ntr_chunk_writer_free(w);
	}
	assert_true(n > 4);
}

enum { THREADS = 4, PUTS = 200, CONTENTS = 120 };
static struct {
	struct ntr_chunk_writer *w[THREADS];
	uint64_t id[THREADS][CONTENTS];
} shared;

static void content(unsigned k, uint8_t *p)
{
	uint64_t rnd = 1000 + k;

	fx_fill(&rnd, p, 30000);
}

static void *put_many(void *arg)
{
	size_t me = (size_t)arg;
	uint64_t rnd = 1 + me;
	uint8_t data[30000];

	for (int i = 0; i < PUTS; i++) {
		unsigned k = (unsigned)fx_below(&rnd, CONTENTS);
		uint64_t id;

		content(k, data);
		if (ntr_chunk_put(shared.w[me], data, sizeof data, shared.id[me][k], &id))
			return (void *)1;
		shared.id[me][k] = id;
	}
	return NULL;
}

/* Threads on one writer, and threads each with its own: every id names its content after the commit. */
static void test_threads(void **state)
{
	uint8_t data[30000];

	(void)state;
	for (int each = 0; each < 2; each++) {
		pthread_t t[THREADS];

		memset(&shared, 0, sizeof shared);
		for (size_t i = 0; i < THREADS; i++)
			shared.w[i] = i && !each ? shared.w[0] : writer();
		for (size_t i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&t[i], NULL, put_many, (void *)i), 0);
		for (size_t i = 0; i < THREADS; i++) {
			void *r;

			pthread_join(t[i], &r);
			assert_null(r);
		}
		for (size_t i = 0; i < (each ? THREADS : 1); i++)
			land(shared.w[i]);
		for (size_t i = 0; i < THREADS; i++)
			for (unsigned k = 0; k < CONTENTS; k++)
				if (shared.id[i][k]) {
					content(k, data);
					check(shared.id[i][k], data, sizeof data);
				}
	}
}

int main(int argc, char **argv)
{
	static void (*const children[])(const char *) = {crash_child};
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_small, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_collisions, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_settle, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_inherit, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_faults, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
	};

	kill_main(argc, argv, children);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
