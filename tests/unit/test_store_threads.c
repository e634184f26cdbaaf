/* Threads: sessions commit side by side, share content, are read, forked and synced meanwhile. */
#include "store_fixture.h"

#include "fs/file.h"
#include "fs/store_impl.h"

#include <errno.h>
#include <pthread.h>

enum { SESSIONS = 8, COMMITS = 25 };

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

#define MUST(cond)                                                                 \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			return (void *)1;                                          \
		}                                                                  \
	} while (0)

/* Content that all sessions have in common at one step; every fifth is written ahead of the commit. */
static size_t content(unsigned n, uint8_t *p)
{
	size_t size = n % 5 ? 3000 + n * 100 : 18 * NTR_CHUNK_SIZE;
	uint64_t rnd = n + 1;

	for (size_t off = 0; off < size; off += 8)
		ntr_put_be64(p + off, fx_rand(&rnd));
	return size;
}

static void *commit_many(void *arg)
{
	ntr_autofree uint8_t *data = malloc(18 * NTR_CHUNK_SIZE + 8);
	char name[16], file[16];
	struct ntr_head h;

	MUST(data);
	snprintf(name, sizeof name, "s%u", (unsigned)(size_t)arg);
	MUST(!ntr_session_get(fx.st, name, &h, NULL));
	for (unsigned n = 0; n < COMMITS; n++) {
		size_t size = content(n, data);
		struct ntr_commit c;
		struct ntr_inode in;
		struct ntr_txn *t;

		snprintf(file, sizeof file, "f%u", n);
		MUST(!ntr_txn_begin(fx.st, h.root, &t));
		MUST(!ntr_inode_new(t, S_IFREG | 0644, &in));
		MUST(!ntr_file_take_mem(t, &in, data, size));
		MUST(!ntr_name_create(t, NTR_INO_ROOT, file, &in, NULL));
		MUST(!ntr_store_commit(fx.st, &h, t, "{}", NULL, &c, NULL));
		MUST(c.id == h.commit);
		ntr_commit_done(&c);
	}
	return NULL;
}

static volatile bool stop;

static void *look_and_sync(void *arg)
{
	uint64_t last = 0;

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct ntr_commit c;
		struct ntr_head h;

		MUST(!ntr_session_get(fx.st, "s3", &h, NULL));
		MUST(h.commit >= last);
		last = h.commit;
		MUST(!ntr_commit_get(fx.st, h.commit, &c, NULL));
		MUST(c.root == h.root);
		ntr_commit_done(&c);
		MUST(!ntr_store_sync(fx.st, NULL));
		MUST(!ntr_session_set_upper(fx.st, h.sid, 0, 0, NULL));
		usleep(1000);
	}
	return NULL;
}

static void check_session(unsigned k, uint8_t *data, uint8_t *got)
{
	struct ntr_snap s;
	struct ntr_inode in;
	struct ntr_head h;
	char name[16];
	uint64_t ino;

	snprintf(name, sizeof name, "s%u", k);
	assert_int_equal(ntr_session_get(fx.st, name, &h, NULL), 0);
	assert_int_equal(h.seq, COMMITS + 1);
	assert_int_equal(h.inodes, COMMITS + 1);
	s = ntr_snap_root(fx.st, h.root);
	for (unsigned n = 0; n < COMMITS; n++) {
		size_t size = content(n, data);

		snprintf(name, sizeof name, "f%u", n);
		assert_int_equal(ntr_path_lookup(&s, name, &ino), 0);
		assert_int_equal(ntr_inode_get(&s, ino, &in), 0);
		assert_int_equal(in.size, size);
		assert_int_equal(ntr_file_read(&s, &in, 0, got, size), size);
		assert_memory_equal(got, data, size);
	}
}

static void test_side_by_side(void **state)
{
	uint8_t *data = malloc(18 * NTR_CHUNK_SIZE + 8), *got = malloc(18 * NTR_CHUNK_SIZE + 8);
	pthread_t t[SESSIONS], looker;
	void *r;

	(void)state;
	for (unsigned i = 0; i < SESSIONS; i++) {
		struct ntr_session_options o = {.durability = i % 2 ? NTR_RELAXED_DURABILITY : NTR_FSYNC};
		char name[16];

		snprintf(name, sizeof name, "s%u", i);
		assert_int_equal(ntr_session_new(fx.st, name, &o, NULL, &fx.head, NULL), 0);
	}
	stop = false;
	assert_int_equal(pthread_create(&looker, NULL, look_and_sync, NULL), 0);
	for (size_t i = 0; i < SESSIONS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, commit_many, (void *)i), 0);
	for (size_t i = 0; i < SESSIONS; i++) {
		pthread_join(t[i], &r);
		assert_null(r);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(looker, &r);
	assert_null(r);
	for (int again = 0; again < 2; again++) {
		for (unsigned i = 0; i < SESSIONS; i++)
			check_session(i, data, got);
		fx.head.name[0] = '\0';
		fx_reopen(&fx);
	}
	free(data);
	free(got);
}

static unsigned won;

static void *race(void *arg)
{
	struct ntr_head h;
	uint64_t me = (uint64_t)(size_t)arg;

	for (unsigned n = 0; n < COMMITS; n++) {
		struct ntr_commit c;
		struct ntr_txn *t;
		int r;

		MUST(!ntr_session_get(fx.st, "one", &h, NULL));
		MUST(!ntr_txn_begin(fx.st, h.root, &t));
		me += 100;
		MUST(!ntr_kvitem_set(t, "c:n", &me, sizeof me));
		r = ntr_store_commit(fx.st, &h, t, "{}", NULL, &c, NULL);
		MUST(!r || r == -ESTALE);
		if (!r) {
			MUST(c.parent[0] < c.id);
			ntr_commit_done(&c);
			__atomic_fetch_add(&won, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

/* On one session: one wins, the others are told; no commit is lost, none is on top of a wrong parent. */
static void test_one_session(void **state)
{
	struct ntr_commit c, back;
	pthread_t t[4];

	(void)state;
	assert_int_equal(ntr_session_new(fx.st, "one", NULL, NULL, &fx.head, NULL), 0);
	won = 0;
	for (size_t i = 0; i < NTR_COUNT(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, race, (void *)i), 0);
	for (size_t i = 0; i < NTR_COUNT(t); i++) {
		void *r;

		pthread_join(t[i], &r);
		assert_null(r);
	}
	assert_true(won >= COMMITS);
	assert_int_equal(ntr_session_get(fx.st, "one", &fx.head, NULL), 0);
	assert_int_equal(fx.head.seq, won + 1);
	assert_int_equal(ntr_commit_get(fx.st, fx.head.commit, &c, NULL), 0);
	assert_int_equal(ntr_commit_back(fx.st, &c, won, &back, NULL), 0);
	assert_int_equal(back.nparents, 0);
	ntr_commit_done(&back);
	ntr_commit_done(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_side_by_side, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_one_session, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
