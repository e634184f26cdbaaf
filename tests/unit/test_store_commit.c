/* Commits: what one writes, when it writes nothing, moving heads, finding commits, walking history. */
#include "store_fixture.h"

#include "fs/store_impl.h"

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

static struct ntr_txn *change(uint64_t n)
{
	struct ntr_txn *t = fx_begin(&fx);

	assert_int_equal(ntr_kvitem_set(t, "c:n", &n, sizeof n), 0);
	return t;
}

static uint64_t commit_n(uint64_t n)
{
	fx_commit(&fx, change(n));
	return fx.head.commit;
}

static uint64_t get_n(uint64_t root)
{
	struct ntr_snap s = ntr_snap_root(fx.st, root);
	uint8_t *v;
	uint64_t n;
	size_t len;

	if (ntr_kvitem_get(&s, "c:n", &v, &len))
		return 0;
	memcpy(&n, v, 8);
	free(v);
	return n;
}

static void get_commit(uint64_t id, struct ntr_commit *c)
{
	assert_int_equal(ntr_commit_get(fx.st, id, c, NULL), 0);
}

static void test_fields(void **state)
{
	struct ntr_stats st = {.created = 3, .modified = 2, .deleted = 1};
	struct ntr_head before = fx.head;
	struct ntr_txn *t = change(7);
	struct ntr_commit c, got;
	uint64_t chunk;
	int r;

	(void)state;
	assert_int_equal(ntr_chunk_put(ntr_txn_chunks(t), "abcdef", 6, 0, &chunk), 0);
	r = ntr_store_commit(fx.st, &fx.head, t, "{\"tool\":\"terminal\"}", &st, &c, NULL);
	assert_int_equal(r, 0);
	assert_int_equal(c.id, fx.head.commit);
	assert_int_equal(c.root, fx.head.root);
	assert_int_not_equal(c.root, before.root);
	assert_int_equal(c.parent[0], before.commit);
	assert_int_equal(c.nparents, 1);
	assert_int_equal(c.seq, before.seq + 1);
	assert_int_equal(fx.head.seq, c.seq);
	assert_int_equal(strlen(c.hex), NTR_COMMIT_HEX);
	assert_true(ntr_wall_ns() - c.time_ns < 60000000000u);
	get_commit(c.id, &got);
	assert_string_equal(got.desc, "{\"tool\":\"terminal\"}");
	assert_string_equal(got.hex, c.hex);
	assert_memory_equal(got.name, c.name, NTR_COMMIT_BYTES);
	assert_int_equal(got.stats.created, 3);
	assert_int_equal(got.stats.modified, 2);
	assert_int_equal(got.stats.deleted, 1);
	assert_int_equal(got.stats.bytes_stored, 6);
	assert_int_equal(got.time_ns, c.time_ns);
	assert_int_equal(got.sid, fx.head.sid);
	assert_int_equal(got.inodes, 1);
	ntr_commit_done(&got);
	ntr_commit_done(&c);
	assert_int_equal(ntr_commit_get(fx.st, 1 << 30, &got, NULL), -ENOENT);
}

static int no_write(void *user, uint64_t number, const char *op)
{
	(void)number;
	(void)op;
	++*(unsigned *)user;
	return -EIO;
}

/* Nothing changed: no write of any kind. */
static void test_same(void **state)
{
	static uint8_t big[NTR_CHUNK_SIZE];
	struct ntr_commit c;
	struct ntr_head before;
	struct ntr_txn *t;
	unsigned writes = 0;
	uint64_t id;

	(void)state;
	commit_n(7);
	before = fx.head;
	ntr_kv_set_fault(ntr_store_kv(fx.st), no_write, &writes);
	assert_int_equal(ntr_store_commit(fx.st, &fx.head, fx_begin(&fx), "{}", NULL, &c, NULL), 0);
	assert_int_equal(c.id, 0);
	t = change(7); /* the same value */
	assert_int_equal(ntr_kvitem_set(t, "c:none", NULL, 0), 0);
	assert_int_equal(
	        ntr_chunk_put(ntr_txn_chunks(t), big, sizeof big, 0, &id), 0); /* put, and named by nothing */
	assert_int_equal(ntr_store_commit(fx.st, &fx.head, t, "{}", NULL, &c, NULL), 0);
	assert_int_equal(c.id, 0);
	assert_null(c.desc);
	assert_int_equal(writes, 0);
	ntr_kv_set_fault(ntr_store_kv(fx.st), NULL, NULL);
	assert_memory_equal(&before, &fx.head, offsetof(struct ntr_head, name));
}

/* The commit is one write, and synced or not as the session wants it. */
static int ops(void *user, uint64_t number, const char *op)
{
	(void)number;
	(void)op;
	++*(unsigned *)user;
	return 0;
}

static void test_one_write(void **state)
{
	unsigned n = 0;

	(void)state;
	ntr_kv_set_fault(ntr_store_kv(fx.st), ops, &n);
	commit_n(1);
	assert_int_equal(n, 1);
	ntr_kv_set_fault(ntr_store_kv(fx.st), NULL, NULL);
}

static void test_stale(void **state)
{
	struct ntr_head old = fx.head, copy;
	struct ntr_commit c;
	struct ntr_err e = {0};

	(void)state;
	commit_n(1);
	copy = old;
	assert_int_equal(ntr_store_commit(fx.st, &copy, change(2), "{}", NULL, &c, &e), -ESTALE);
	assert_non_null(strstr(e.why, "moved"));
	assert_memory_equal(&copy, &old, offsetof(struct ntr_head, name));
	assert_int_equal(get_n(fx.head.root), 1);
	get_commit(old.commit, &c);
	assert_int_equal(ntr_session_move(fx.st, &copy, &c, &e), -ESTALE);
	ntr_commit_done(&c);
	fx_reopen(&fx);
	assert_int_equal(get_n(fx.head.root), 1);
}

struct listed {
	struct ntr_list_entry en[16];
	unsigned n;
};

static int list_add(void *user, const struct ntr_list_entry *en)
{
	struct listed *l = user;

	assert_true(l->n < NTR_COUNT(l->en));
	l->en[l->n++] = *en;
	return 0;
}

/* A rollback: the abandoned head is in the session's list, and can be gone back to. */
static void test_move(void **state)
{
	uint64_t init = fx.head.commit, one = commit_n(1), two = commit_n(2), three;
	struct ntr_head before = fx.head;
	struct ntr_commit c;
	struct listed l = {0};

	(void)state;
	get_commit(init, &c);
	fx.head.upper = 9;
	fx.head.base_root = c.root;
	assert_int_equal(ntr_session_move(fx.st, &fx.head, &c, NULL), 0);
	ntr_commit_done(&c);
	assert_int_equal(fx.head.commit, init);
	assert_int_equal(fx.head.seq, before.seq + 1);
	assert_int_equal(fx.head.inodes, 1);
	three = commit_n(3);
	fx_reopen(&fx);
	assert_int_equal(fx.head.upper, 9);
	assert_int_equal(fx.head.last_upper, 9);
	get_commit(three, &c);
	assert_int_equal(c.parent[0], init);
	ntr_commit_done(&c);
	assert_int_equal(ntr_session_list(fx.st, fx.head.sid, 0, list_add, &l), 0);
	assert_int_equal(l.n, 5);
	for (unsigned i = 0; i < l.n; i++)
		assert_int_equal(l.en[i].seq, i + 1);
	assert_int_equal(l.en[0].kind, NTR_STEP_NEW);
	assert_int_equal(l.en[1].commit, one);
	assert_int_equal(l.en[3].kind, NTR_STEP_MOVE);
	assert_int_equal(l.en[3].commit, init);
	assert_int_equal(l.en[3].from, two);
	assert_int_equal(l.en[4].from, init);
	l.n = 0;
	assert_int_equal(ntr_session_list(fx.st, fx.head.sid, 4, list_add, &l), 0);
	assert_int_equal(l.n, 2);
	get_commit(l.en[0].from, &c);
	assert_int_equal(ntr_session_move(fx.st, &fx.head, &c, NULL), 0);
	ntr_commit_done(&c);
	assert_int_equal(get_n(fx.head.root), 2);
}

static void put_name(uint64_t id, const char *hex40)
{
	struct ntr_kv_batch *b = ntr_kv_batch_new();
	uint8_t key[1 + NTR_COMMIT_BYTES] = {'I'}, val[8];

	for (int i = 0; i < NTR_COMMIT_BYTES; i++) {
		unsigned v;

		assert_int_equal(sscanf(hex40 + 2 * i, "%2x", &v), 1);
		key[1 + i] = (uint8_t)v;
	}
	ntr_put_le64(val, id);
	ntr_kv_batch_put(b, ntr_store_kv(fx.st), NTR_CF_META, key, sizeof key, val, 8);
	assert_int_equal(ntr_kv_write(ntr_store_kv(fx.st), b, NTR_KV_SYNC, NULL), 0);
	ntr_kv_batch_free(b);
}

static void test_by_hex(void **state)
{
	static const char *const bad[] = {
	        "", "abc", "xyzw", "abcg", "12345 ", "-1234", "00000000000000000000000000000000000000000"};
	struct ntr_commit c, got;
	char part[NTR_COMMIT_HEX + 1];
	struct ntr_err e;

	(void)state;
	get_commit(commit_n(1), &c);
	for (int n = NTR_COMMIT_HEX; n >= 8; n--) {
		snprintf(part, sizeof part, "%.*s", n, c.hex);
		assert_int_equal(ntr_commit_by_hex(fx.st, part, &got, NULL), 0);
		assert_int_equal(got.id, c.id);
		ntr_commit_done(&got);
	}
	for (char *p = part; *p; p++)
		*p = (char)(*p >= 'a' ? *p - 32 : *p);
	assert_int_equal(ntr_commit_by_hex(fx.st, part, &got, NULL), 0);
	ntr_commit_done(&got);
	for (size_t i = 0; i < NTR_COUNT(bad); i++)
		assert_int_equal(ntr_commit_by_hex(fx.st, bad[i], &got, &e), -EINVAL);
	snprintf(part, sizeof part, "%s", c.hex);
	part[39] = part[39] == '0' ? '1' : '0';
	assert_int_equal(ntr_commit_by_hex(fx.st, part, &got, &e), -ENOENT);
	/* Names that begin alike. */
	put_name(c.id, "abcdef0000000000000000000000000000000000");
	put_name(c.id, "abcdef00ffffffffffffffffffffffffffffffff");
	put_name(c.id, "abcde10000000000000000000000000000000001");
	assert_int_equal(ntr_commit_by_hex(fx.st, "abcdef0", &got, &e), -ENOTUNIQ);
	assert_non_null(strstr(e.why, "abcdef000000 abcdef00ffff"));
	assert_null(strstr(e.why, "abcde1"));
	assert_int_equal(ntr_commit_by_hex(fx.st, "abcde", &got, &e), -ENOTUNIQ);
	assert_non_null(strstr(e.why, "abcde1000000"));
	assert_int_equal(ntr_commit_by_hex(fx.st, "abcde1", &got, &e), 0);
	ntr_commit_done(&got);
	assert_int_equal(ntr_commit_by_hex(fx.st, "abcdef000", &got, &e), 0);
	ntr_commit_done(&got);
	for (int i = 0; i < 9; i++) {
		snprintf(part, sizeof part, "abcd%d00000000000000000000000000000000000", i);
		put_name(c.id, part);
	}
	assert_int_equal(ntr_commit_by_hex(fx.st, "abcd", &got, &e), -ENOTUNIQ);
	assert_non_null(strstr(e.why, "…"));
	ntr_commit_done(&c);
}

static int log_add(void *user, const struct ntr_commit *c)
{
	uint64_t *v = user;

	v[++v[0]] = c->id;
	return v[0] == v[31] ? 5 : 0;
}

static void test_history(void **state)
{
	uint64_t id[10], v[32] = {0}, other;
	struct ntr_commit c, got;
	struct ntr_err e = {0};
	struct ntr_head f;

	(void)state;
	id[0] = fx.head.commit;
	for (unsigned i = 1; i < 10; i++)
		id[i] = commit_n(i);
	assert_int_equal(ntr_commit_log(fx.st, fx.head.commit, 0, log_add, v), 0);
	assert_int_equal(v[0], 10);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(v[1 + i], id[9 - i]);
	v[0] = 0;
	assert_int_equal(ntr_commit_log(fx.st, id[5], 3, log_add, v), 0);
	assert_int_equal(v[0], 3);
	assert_int_equal(v[3], id[3]);
	v[0] = 0;
	v[31] = 2;
	assert_int_equal(ntr_commit_log(fx.st, id[5], 0, log_add, v), 5);
	get_commit(id[9], &c);
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(ntr_commit_back(fx.st, &c, i, &got, NULL), 0);
		assert_int_equal(got.id, id[9 - i]);
		ntr_commit_done(&got);
		assert_int_equal(ntr_commit_reaches(fx.st, &c, id[i]), 1);
	}
	assert_int_equal(ntr_commit_back(fx.st, &c, 10, &got, &e), -ERANGE);
	assert_non_null(strstr(e.why, "9 steps"));
	ntr_commit_done(&c);
	get_commit(id[4], &c);
	assert_int_equal(ntr_commit_reaches(fx.st, &c, id[5]), 0);
	assert_int_equal(ntr_session_fork(fx.st, &fx.head, &c, "f", &f, NULL), 0);
	ntr_commit_done(&c);
	fx.head = f;
	other = commit_n(99);
	get_commit(other, &c);
	assert_int_equal(ntr_commit_reaches(fx.st, &c, id[4]), 1);
	assert_int_equal(ntr_commit_reaches(fx.st, &c, id[5]), 0);
	ntr_commit_done(&c);
}

/* Merges, written as records: reachability over both parents, visited once each. */
static void test_reaches_merges(void **state)
{
	enum { N = 300 };
	static bool reach[N][N];
	uint64_t rnd = 5;
	uint64_t base = 1000000;

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		struct ntr_commit c = {.id = base + i, .root = 1, .sid = 1, .desc = (char[]){"{}"}};
		struct ntr_kv_batch *b = ntr_kv_batch_new();
		struct ntr_buf rec = {0};
		uint8_t key[NTR_META_KEY];

		reach[i][i] = true;
		c.nparents = i < 2 ? 0 : 1 + (int)fx_below(&rnd, 2);
		for (int p = 0; p < c.nparents; p++) {
			unsigned k = i - 1 - (unsigned)fx_below(&rnd, NTR_MIN(i, 20u));

			c.parent[p] = base + k;
			for (unsigned j = 0; j < N; j++)
				reach[i][j] |= reach[k][j];
		}
		assert_int_equal(ntr_rec_commit(&rec, &c), 0);
		ntr_kv_batch_put(b, ntr_store_kv(fx.st), NTR_CF_META, key, ntr_key_u64(key, 'C', c.id),
		        rec.data, rec.len);
		assert_int_equal(ntr_kv_write(ntr_store_kv(fx.st), b, NTR_KV_RELAXED, NULL), 0);
		ntr_kv_batch_free(b);
		ntr_buf_done(&rec);
	}
	for (unsigned i = 0; i < N; i += 7)
		for (unsigned j = 0; j < N; j += 3) {
			struct ntr_commit c = {.id = base + i};

			assert_int_equal(ntr_commit_reaches(fx.st, &c, base + j), reach[i][j]);
		}
}

/* Records that are damaged read as damage, whatever byte it is. */
static void test_records(void **state)
{
	struct ntr_commit c = {.id = 3, .root = 4, .nparents = 2, .desc = (char[]){"{\"a\":1}"}}, got;
	struct ntr_list_entry en = {.seq = 1, .commit = 2, .from = 3, .kind = NTR_STEP_MOVE}, en2;
	struct ntr_buf rec = {0}, lrec = {0}, hrec = {0};
	struct ntr_head h2;

	(void)state;
	assert_int_equal(ntr_rec_commit(&rec, &c), 0);
	assert_int_equal(ntr_rec_commit_parse(rec.data, rec.len, 3, &got), 0);
	ntr_commit_done(&got);
	for (size_t n = 0; n < rec.len; n++)
		assert_int_equal(ntr_rec_commit_parse(rec.data, n, 3, &got), -EUCLEAN);
	rec.data[0] ^= 1;
	assert_int_equal(ntr_rec_commit_parse(rec.data, rec.len, 3, &got), -EUCLEAN);
	rec.data[0] ^= 1;
	rec.data[2 + 88 + 20] = 3; /* three parents */
	assert_int_equal(ntr_rec_commit_parse(rec.data, rec.len, 3, &got), -EUCLEAN);
	assert_int_equal(ntr_rec_list(&lrec, &en), 0);
	assert_int_equal(ntr_rec_list_parse(lrec.data, lrec.len, 1, &en2), 0);
	assert_int_equal(en2.kind, NTR_STEP_MOVE);
	for (size_t n = 0; n < lrec.len; n++)
		assert_int_equal(ntr_rec_list_parse(lrec.data, n, 1, &en2), -EUCLEAN);
	assert_int_equal(ntr_rec_head(&hrec, &fx.head), 0);
	assert_int_equal(ntr_rec_head_parse(hrec.data, hrec.len, 1, &h2), 0);
	assert_string_equal(h2.wsroot, "/workspace");
	for (size_t n = 0; n < hrec.len; n++)
		assert_int_equal(ntr_rec_head_parse(hrec.data, n, 1, &h2), -EUCLEAN);
	ntr_buf_done(&rec);
	ntr_buf_done(&lrec);
	ntr_buf_done(&hrec);
}

/* A transaction that began elsewhere than on the head (a checkout): the counters are the new tree's. */
static void test_other_base(void **state)
{
	struct ntr_head empty = fx.head;
	struct ntr_commit c;
	struct ntr_inode in;
	struct ntr_txn *t;

	(void)state;
	for (int i = 0; i < 3; i++) {
		char name[8];

		t = fx_begin(&fx);
		snprintf(name, sizeof name, "f%d", i);
		assert_int_equal(ntr_inode_new(t, S_IFREG | 0644, &in), 0);
		in.size = 100;
		in.data_kind = NTR_DATA_EXTENTS;
		assert_int_equal(ntr_name_create(t, NTR_INO_ROOT, name, &in, NULL), 0);
		fx_commit(&fx, t);
	}
	assert_int_equal(fx.head.inodes, 4);
	assert_int_equal(fx.head.bytes, 300);
	assert_int_equal(
	        ntr_txn_begin(fx.st, empty.root, &t), 0); /* the init commit's state as a new commit */
	assert_int_equal(ntr_store_commit(fx.st, &fx.head, t, "{}", NULL, &c, NULL), 0);
	assert_int_equal(c.root, empty.root);
	assert_true(c.id != 0);
	assert_int_equal(fx.head.inodes, 1);
	assert_int_equal(fx.head.bytes, 0);
	ntr_commit_done(&c);
}

/* What a commit of one change costs in a tree of some size. */
static void test_speed(void **state)
{
	enum { N = 20000, ROUNDS = 300 };
	struct ntr_session_options o = {.durability = NTR_RELAXED_DURABILITY};
	uint64_t best[2] = {UINT64_MAX, UINT64_MAX}, sum[2] = {0};
	struct ntr_head head[2];

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct ntr_txn *t;

		assert_int_equal(ntr_session_blank(fx.st, &t, NULL), 0);
		for (unsigned i = 0; i < N; i++) {
			struct ntr_inode in;
			char name[16];

			snprintf(name, sizeof name, "f%u", i);
			assert_int_equal(ntr_inode_new(t, S_IFREG | 0644, &in), 0);
			assert_int_equal(ntr_name_create(t, NTR_INO_ROOT, name, &in, NULL), 0);
		}
		assert_int_equal(
		        ntr_session_new(fx.st, k ? "relaxed" : "synced", k ? &o : NULL, t, &head[k], NULL),
		        0);
	}
	for (unsigned i = 0; i < 2 * ROUNDS; i++) {
		struct ntr_head *h = &head[i % 2];
		struct ntr_commit c;
		struct ntr_inode in;
		struct ntr_txn *t;
		uint64_t ino, t0 = ntr_mono_ns(), t1;
		char name[16];

		assert_int_equal(ntr_txn_begin(fx.st, h->root, &t), 0);
		snprintf(name, sizeof name, "f%u", i * 7919 % N);
		assert_int_equal(ntr_path_lookup(ntr_txn_snap(t), name, &ino), 0);
		assert_int_equal(ntr_inode_get(ntr_txn_snap(t), ino, &in), 0);
		in.data_kind = NTR_DATA_INLINE;
		in.size = in.payload_len = 200;
		assert_int_equal(ntr_inode_put(t, &in), 0);
		assert_int_equal(ntr_store_commit(fx.st, h, t, "{\"tool\":\"terminal\"}", NULL, &c, NULL), 0);
		t1 = ntr_mono_ns() - t0;
		best[i % 2] = NTR_MIN(best[i % 2], t1);
		sum[i % 2] += t1;
		ntr_commit_done(&c);
	}
	print_message("commit of one change, mean (best): synced %.0f (%.0f) us, relaxed %.0f (%.0f) us\n",
	        (double)sum[0] / ROUNDS / 1e3, (double)best[0] / 1e3, (double)sum[1] / ROUNDS / 1e3,
	        (double)best[1] / 1e3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_fields, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_same, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_one_write, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_stale, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_move, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_by_hex, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_history, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_reaches_merges, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_records, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_other_base, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_speed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
