/* Sessions: names, making, finding, forking, renaming, removing; many of them; several threads. */
#include "store_fixture.h"

#include "fs/store_impl.h"

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

static void commit_n(uint64_t n)
{
	struct ntr_txn *t = fx_begin(&fx);

	assert_int_equal(ntr_kvitem_set(t, "c:n", &n, sizeof n), 0);
	fx_commit(&fx, t);
}

static uint64_t get_n(uint64_t root)
{
	struct ntr_snap s = ntr_snap_root(fx.st, root);
	uint8_t *v;
	uint64_t n;
	size_t len;

	assert_int_equal(ntr_kvitem_get(&s, "c:n", &v, &len), 0);
	assert_int_equal(len, 8);
	memcpy(&n, v, 8);
	free(v);
	return n;
}

static void get_commit(uint64_t id, struct ntr_commit *c)
{
	assert_int_equal(ntr_commit_get(fx.st, id, c, NULL), 0);
}

static void test_names(void **state)
{
	static const char *const good[] = {"a", "A-b_c.d", "_", "-", "0", "a..b", "a."};
	static const char *const bad[] = {"", ".", ".a", "..", "a/b", "a b", "a\n", "ä", "a@b", "a~1", "a:b"};
	char longest[NTR_NAME_MAX + 2];
	struct ntr_head h;
	struct ntr_err e;

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(good); i++)
		assert_int_equal(ntr_session_name_check(good[i], NULL), 0);
	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		memset(&e, 0, sizeof e);
		assert_int_equal(ntr_session_name_check(bad[i], &e), -EINVAL);
		assert_true(e.what[0] && e.why[0] && e.todo[0]);
		assert_int_equal(ntr_session_get(fx.st, bad[i], &h, &e), -EINVAL);
		assert_int_equal(ntr_session_new(fx.st, bad[i], NULL, NULL, &h, &e), -EINVAL);
	}
	memset(longest, 'x', sizeof longest);
	longest[NTR_NAME_MAX + 1] = '\0';
	assert_int_equal(ntr_session_name_check(longest, &e), -EINVAL);
	assert_non_null(strstr(e.why, "200"));
	longest[NTR_NAME_MAX] = '\0';
	fx_session(&fx, longest);
	fx_reopen(&fx);
	assert_string_equal(fx.head.name, longest);
}

static void test_new(void **state)
{
	struct ntr_session_options o = {.wsroot = "/srv/code", .durability = NTR_RELAXED_DURABILITY};
	struct ntr_commit c;
	struct ntr_inode in;
	struct ntr_snap s;
	struct ntr_err e;
	uint8_t *seed;
	size_t n;

	(void)state;
	assert_int_equal(ntr_session_get(fx.st, "s", &fx.head, &e), -ENOENT);
	assert_non_null(strstr(e.what, "'s'"));
	assert_int_equal(ntr_session_new(fx.st, "s", &o, NULL, &fx.head, NULL), 0);
	assert_string_equal(fx.head.wsroot, "/srv/code");
	assert_int_equal(fx.head.durability, NTR_RELAXED_DURABILITY);
	get_commit(fx.head.commit, &c);
	assert_int_equal(c.nparents, 0);
	assert_int_equal(c.sid, fx.head.sid);
	assert_int_equal(c.seq, 1);
	assert_int_equal(c.root, fx.head.root);
	assert_string_equal(c.desc, "{\"tool\":\"init\"}");
	assert_int_equal(c.inodes, 1);
	ntr_commit_done(&c);
	s = ntr_snap_root(fx.st, fx.head.root);
	assert_int_equal(ntr_inode_get(&s, NTR_INO_ROOT, &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 0755);
	assert_int_equal(in.uid, NTR_OWNER_ID);
	assert_int_equal(in.gid, NTR_OWNER_ID);
	assert_int_equal(in.nlink, 2);
	assert_int_equal(in.parent, NTR_INO_ROOT);
	assert_true(in.mtime.tv_sec > 1600000000);
	assert_int_equal(ntr_kvitem_get(&s, "s:seed", &seed, &n), 0);
	assert_int_equal(n, 8);
	free(seed);
	memset(&e, 0, sizeof e);
	assert_int_equal(ntr_session_new(fx.st, "s", NULL, NULL, &fx.head, &e), -EEXIST);
	assert_non_null(strstr(e.why, "of that name"));
	o.wsroot = "relative";
	assert_int_equal(ntr_session_new(fx.st, "t", &o, NULL, &fx.head, &e), -EINVAL);
	o.wsroot = "/";
	assert_int_equal(ntr_session_new(fx.st, "t", &o, NULL, &fx.head, &e), -EINVAL);
	assert_int_equal(ntr_session_get(fx.st, "s", &fx.head, NULL), 0);
	fx_reopen(&fx);
	assert_string_equal(fx.head.wsroot, "/srv/code");
}

/* An import: the given transaction's tree is the init commit. */
static void test_new_from(void **state)
{
	struct ntr_session_options o = {.desc = "{\"tool\":\"import\"}"};
	struct ntr_commit c;
	struct ntr_txn *t;
	uint64_t n = 42;

	(void)state;
	assert_int_equal(ntr_session_blank(fx.st, &t, NULL), 0);
	assert_int_equal(ntr_kvitem_set(t, "c:n", &n, sizeof n), 0);
	assert_int_equal(ntr_session_new(fx.st, "s", &o, t, &fx.head, NULL), 0);
	assert_int_equal(get_n(fx.head.root), 42);
	get_commit(fx.head.commit, &c);
	assert_string_equal(c.desc, "{\"tool\":\"import\"}");
	ntr_commit_done(&c);
	/* A second one on the first one's tree, unchanged: the counters are the tree's. */
	assert_int_equal(ntr_txn_begin(fx.st, fx.head.root, &t), 0);
	assert_int_equal(ntr_session_new(fx.st, "t", NULL, t, &fx.head, NULL), 0);
	assert_int_equal(get_n(fx.head.root), 42);
	assert_int_equal(fx.head.inodes, 1);
	/* Refused: the transaction is gone as well (the sanitizer would tell). */
	assert_int_equal(ntr_session_blank(fx.st, &t, NULL), 0);
	assert_int_equal(ntr_session_new(fx.st, "t", NULL, t, &fx.head, NULL), -EEXIST);
}

static void check_init(const struct ntr_head *h, uint64_t commit)
{
	struct ntr_commit c, back;

	get_commit(commit, &c);
	assert_int_equal(ntr_commit_back(fx.st, &c, 3, &back, NULL), 0);
	assert_int_equal(back.nparents, 0);
	assert_true(h->origin > back.id);
	ntr_commit_done(&back);
	ntr_commit_done(&c);
}

static void test_fork(void **state)
{
	struct ntr_head src, f, g;
	struct ntr_commit at;
	struct ntr_err e = {0};

	(void)state;
	fx_session(&fx, "src");
	commit_n(1);
	get_commit(fx.head.commit, &at);
	commit_n(2);
	assert_int_equal(ntr_session_set_upper(fx.st, fx.head.sid, 4, fx.head.root, NULL), 0);
	assert_int_equal(ntr_session_get(fx.st, "src", &src, NULL), 0);
	assert_int_equal(ntr_session_fork(fx.st, &src, &at, "f", &f, &e), 0);
	assert_int_equal(f.commit, at.id);
	assert_int_equal(f.origin, at.id);
	assert_int_equal(f.root, at.root);
	assert_int_equal(f.upper | f.base_root | f.last_upper, 0);
	assert_int_not_equal(f.sid, src.sid);
	assert_int_equal(get_n(f.root), 1);
	assert_int_equal(ntr_session_fork(fx.st, &src, &at, "f", &g, &e), -EEXIST);
	assert_int_equal(ntr_session_fork(fx.st, &src, &at, "a/b", &g, &e), -EINVAL);
	assert_int_equal(ntr_session_fork(fx.st, &f, &at, "g", &g, NULL), 0);
	/* Each goes its own way, also after a restart. */
	fx.head = f;
	commit_n(10);
	commit_n(11);
	check_init(&fx.head, fx.head.commit);
	fx_reopen(&fx);
	assert_int_equal(get_n(fx.head.root), 11);
	assert_int_equal(ntr_session_get(fx.st, "src", &src, NULL), 0);
	assert_int_equal(get_n(src.root), 2);
	assert_int_equal(src.upper, 4);
	assert_int_equal(ntr_session_get(fx.st, "g", &g, NULL), 0);
	assert_int_equal(get_n(g.root), 1);
	ntr_commit_done(&at);
}

static void mounts_are(uint64_t sid, const char *want)
{
	ntr_autofree char *text = NULL;

	assert_int_equal(ntr_session_mounts(fx.st, sid, &text), 0);
	if (want)
		assert_string_equal(text, want);
	else
		assert_null(text);
}

/* Host directories are the session's: forks copy them, commits and rollbacks do not know them. */
static void test_mounts(void **state)
{
	static const char one[] = "[{\"point\":\"/a\"}]";
	struct ntr_commit at;
	struct ntr_head src, f;

	(void)state;
	fx_session(&fx, "src");
	src = fx.head;
	mounts_are(src.sid, NULL);
	get_commit(fx.head.commit, &at);
	assert_int_equal(ntr_session_set_mounts(fx.st, src.sid, one, NULL), 0);
	assert_int_equal(ntr_session_fork(fx.st, &src, &at, "f", &f, NULL), 0);
	assert_int_equal(ntr_session_set_mounts(fx.st, src.sid, "[]", NULL), 0);
	commit_n(1);
	assert_int_equal(ntr_session_move(fx.st, &fx.head, &at, NULL), 0);
	fx_reopen(&fx);
	mounts_are(src.sid, "[]");
	mounts_are(f.sid, one);
	assert_int_equal(ntr_session_set_mounts(fx.st, src.sid, NULL, NULL), 0);
	mounts_are(src.sid, NULL);
	assert_int_equal(ntr_session_remove(fx.st, f.sid, NULL), 0);
	mounts_are(f.sid, NULL);
	ntr_commit_done(&at);
}

static void test_rename(void **state)
{
	struct ntr_head h, g;
	struct ntr_err e = {0};

	(void)state;
	fx_session(&fx, "b");
	fx_session(&fx, "a");
	assert_int_equal(ntr_session_rename(fx.st, "none", "c", &e), -ENOENT);
	assert_int_equal(ntr_session_rename(fx.st, "a", "b", &e), -EEXIST);
	assert_int_equal(ntr_session_rename(fx.st, "a", ".c", &e), -EINVAL);
	assert_int_equal(ntr_session_rename(fx.st, "a", "a", &e), 0);
	assert_int_equal(ntr_session_rename(fx.st, "none", "none", &e), -ENOENT);
	h = fx.head;
	assert_int_equal(ntr_session_rename(fx.st, "a", "z", &e), 0);
	assert_int_equal(ntr_session_get(fx.st, "a", &g, NULL), -ENOENT);
	assert_int_equal(ntr_session_get(fx.st, "z", &g, NULL), 0);
	assert_int_equal(g.sid, h.sid);
	/* A head from before the rename still commits, and the new name stays. */
	commit_n(5);
	assert_string_equal(fx.head.name, "z");
	fx_reopen(&fx);
	assert_int_equal(get_n(fx.head.root), 5);
	assert_int_equal(ntr_session_get(fx.st, "a", &g, NULL), -ENOENT);
	fx_session(&fx, "a");
}

static int count_kind(void *user, const struct ntr_list_entry *en)
{
	unsigned *n = user;

	n[en->kind]++;
	return 0;
}

static void test_remove(void **state)
{
	unsigned kinds[5] = {0};
	struct ntr_commit at, c;
	struct ntr_head f, g;
	uint64_t sid;

	(void)state;
	fx_session(&fx, "src");
	commit_n(1);
	commit_n(2);
	sid = fx.head.sid;
	get_commit(fx.head.commit, &at);
	assert_int_equal(ntr_session_fork(fx.st, &fx.head, &at, "f", &f, NULL), 0);
	assert_int_equal(ntr_session_list(fx.st, sid, 0, count_kind, kinds), 0);
	assert_int_equal(kinds[NTR_STEP_NEW], 1);
	assert_int_equal(kinds[NTR_STEP_COMMIT], 2);
	assert_int_equal(ntr_session_remove(fx.st, sid, NULL), 0);
	assert_int_equal(ntr_session_remove(fx.st, sid, NULL), -ENOENT);
	assert_int_equal(ntr_session_get(fx.st, "src", &g, NULL), -ENOENT);
	assert_int_equal(ntr_session_by_id(fx.st, sid, &g, NULL), -ENOENT);
	memset(kinds, 0, sizeof kinds);
	assert_int_equal(ntr_session_list(fx.st, sid, 0, count_kind, kinds), 0);
	assert_int_equal(kinds[NTR_STEP_NEW] + kinds[NTR_STEP_COMMIT], 0);
	/* A fork's history still leads through the removed session's commits. */
	assert_int_equal(ntr_commit_by_hex(fx.st, at.hex, &c, NULL), 0);
	assert_int_equal(c.id, f.commit);
	assert_int_equal(get_n(c.root), 2);
	ntr_commit_done(&c);
	assert_int_equal(ntr_commit_back(fx.st, &at, 2, &c, NULL), 0);
	ntr_commit_done(&c);
	ntr_commit_done(&at);
	/* A commit to the removed one is refused. */
	{
		struct ntr_err e = {0};
		struct ntr_txn *t = fx_begin(&fx);

		assert_int_equal(ntr_kvitem_set(t, "c:x", "1", 1), 0);
		assert_int_equal(ntr_store_commit(fx.st, &fx.head, t, "{}", NULL, &c, &e), -ENOENT);
		assert_non_null(strstr(e.why, "removed"));
	}
	assert_int_equal(ntr_session_set_upper(fx.st, sid, 1, 1, NULL), -ENOENT);
	fx.head = f;
	fx_reopen(&fx);
	assert_int_equal(ntr_session_get(fx.st, "src", &g, NULL), -ENOENT);
	fx_session(&fx, "src");
	assert_true(fx.head.sid > f.sid);
}

static void test_upper(void **state)
{
	struct ntr_head h;

	(void)state;
	fx_session(&fx, "s");
	assert_int_equal(ntr_session_set_upper(fx.st, fx.head.sid, 3, fx.head.root, NULL), 0);
	assert_int_equal(ntr_session_set_upper(fx.st, fx.head.sid, 0, 0, NULL), 0);
	assert_int_equal(ntr_session_get(fx.st, "s", &h, NULL), 0);
	assert_int_equal(h.upper, 0);
	assert_int_equal(h.last_upper, 3);
	/* A commit carries the upper as the caller's head has it. */
	fx.head.upper = 4;
	fx.head.base_root = fx.head.root;
	commit_n(1);
	assert_int_equal(fx.head.upper, 4);
	assert_int_equal(fx.head.last_upper, 4);
	h = fx.head;
	fx_reopen(&fx);
	assert_int_equal(fx.head.upper, h.upper);
	assert_int_equal(fx.head.base_root, h.base_root);
	assert_int_equal(fx.head.last_upper, h.last_upper);
}

struct order {
	char last[NTR_NAME_MAX + 1];
	unsigned n, stop;
};

static int in_order(void *user, const struct ntr_head *h)
{
	struct order *o = user;

	assert_true(strcmp(o->last, h->name) < 0);
	strcpy(o->last, h->name);
	return ++o->n == o->stop ? 77 : 0;
}

static int remove_odd(void *user, const struct ntr_head *h)
{
	(void)user;
	if (h->name[strlen(h->name) - 1] % 2)
		assert_int_equal(ntr_session_remove(fx.st, h->sid, NULL), 0);
	return 0;
}

static int no_sync(void *user, uint64_t number, const char *op)
{
	(void)number;
	*(unsigned *)user += op[0] == 's';
	return 0;
}

/* Ten thousand forks: made, found, listed, opened again, quickly and in little memory. */
static void test_many(void **state)
{
	enum { N = 10000 };
	struct order o = {0}, some = {.stop = 10};
	struct ntr_commit at;
	struct ntr_head h;
	uint64_t t0, t1, t2, t3;
	unsigned syncs = 0;
	char name[32];

	(void)state;
	fx_session(&fx, "s");
	commit_n(1);
	get_commit(fx.head.commit, &at);
	ntr_kv_set_fault(ntr_store_kv(fx.st), no_sync, &syncs);
	t0 = ntr_mono_ns();
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof name, "f%u", i * 7919 % N);
		assert_int_equal(ntr_session_fork(fx.st, &fx.head, &at, name, &h, NULL), 0);
	}
	t1 = ntr_mono_ns();
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof name, "f%u", i);
		assert_int_equal(ntr_session_get(fx.st, name, &h, NULL), 0);
		assert_string_equal(h.name, name);
	}
	t2 = ntr_mono_ns();
	assert_int_equal(syncs, 0);
	ntr_kv_set_fault(ntr_store_kv(fx.st), NULL, NULL);
	fx_reopen(&fx);
	t3 = ntr_mono_ns();
	assert_int_equal(ntr_session_each(fx.st, in_order, &o), 0);
	assert_int_equal(o.n, N + 1);
	assert_int_equal(ntr_session_each(fx.st, in_order, &some), 77);
	print_message("fork %.1f us, get %.2f us, close and open with %d sessions %.1f ms\n",
	        (double)(t1 - t0) / N / 1e3, (double)(t2 - t1) / N / 1e3, N + 1, (double)(t3 - t2) / 1e6);
	ntr_commit_done(&at);
}

static void test_each_changing(void **state)
{
	struct order o = {0};
	char name[32];

	(void)state;
	for (int i = 0; i < 30; i++) {
		snprintf(name, sizeof name, "s%02d", i);
		fx_session(&fx, name);
	}
	assert_int_equal(ntr_session_each(fx.st, remove_odd, NULL), 0);
	assert_int_equal(ntr_session_each(fx.st, in_order, &o), 0);
	assert_int_equal(o.n, 15);
	fx.head.name[0] = '\0';
	fx_reopen(&fx);
	memset(&o, 0, sizeof o);
	assert_int_equal(ntr_session_each(fx.st, in_order, &o), 0);
	assert_int_equal(o.n, 15);
}

enum { THREADS = 4, ROUNDS = 30 };

/* Makes, renames and removes; all threads want the same names. Every result is one that order could explain.
 */
static void *churn(void *arg)
{
	uint64_t rnd = 1 + (uint64_t)(size_t)arg;
	char a[16], b[16];

	for (int i = 0; i < ROUNDS; i++) {
		struct ntr_head h;
		int r;

		snprintf(a, sizeof a, "n%u", (unsigned)fx_below(&rnd, 3));
		snprintf(b, sizeof b, "n%u", (unsigned)fx_below(&rnd, 3));
		r = ntr_session_new(fx.st, a, NULL, NULL, &h, NULL);
		if (r && r != -EEXIST)
			return (void *)1;
		r = ntr_session_rename(fx.st, a, b, NULL);
		if (r && r != -EEXIST && r != -ENOENT)
			return (void *)2;
		if (ntr_session_get(fx.st, b, &h, NULL))
			continue;
		r = ntr_session_remove(fx.st, h.sid, NULL);
		if (r && r != -ENOENT)
			return (void *)3;
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct order before = {0}, after = {0};
	pthread_t t[THREADS];

	(void)state;
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)i), 0);
	for (size_t i = 0; i < THREADS; i++) {
		void *r;

		pthread_join(t[i], &r);
		assert_null(r);
	}
	assert_int_equal(ntr_session_each(fx.st, in_order, &before), 0);
	fx_reopen(&fx);
	assert_int_equal(ntr_session_each(fx.st, in_order, &after), 0);
	assert_int_equal(before.n, after.n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_new, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_new_from, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_mounts, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rename, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_remove, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_upper, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_each_changing, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
