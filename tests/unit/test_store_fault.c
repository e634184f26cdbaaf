/* Failures: of every write of every operation, and of every allocation of a commit. Afterwards, and after
 * opening the store again, either nothing has happened or all of it, as the call said. */
#include "store_fixture.h"
#include "failing_malloc.h"

#include "fs/file.h"
#include "fs/store_impl.h"

#include <errno.h>

static struct fixture fx;

/* ---- failing allocations: those that this program's own code makes while `armed` ---- */

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

/* ---- what the store holds, as one text ---- */

static int head_text(void *user, const struct ntr_head *h)
{
	return ntr_buf_printf(user,
	        "%s:%llu root %llu commit %llu seq %llu upper %llu/%llu/%llu n %llu %llu;", h->name,
	        (unsigned long long)h->sid, (unsigned long long)h->root, (unsigned long long)h->commit,
	        (unsigned long long)h->seq, (unsigned long long)h->upper, (unsigned long long)h->base_root,
	        (unsigned long long)h->last_upper, (unsigned long long)h->inodes,
	        (unsigned long long)h->bytes);
}

/* Heads from memory, and every record of meta but the id marks. */
static void state_text(struct ntr_buf *b)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it =
	        ntr_kv_iter_new(ntr_store_kv(fx.st), NTR_CF_META, false);
	const uint8_t *key, *val;
	size_t klen, vlen;

	b->len = 0;
	assert_int_equal(ntr_session_each(fx.st, head_text, b), 0);
	for (ntr_kv_iter_seek(it, "B", 1); ntr_kv_iter_valid(it, &key, &klen, &val, &vlen);
	        ntr_kv_iter_next(it)) {
		ntr_buf_add(b, key, klen);
		ntr_buf_add(b, val, vlen);
	}
	assert_int_equal(ntr_buf_byte(b, 0), 0);
}

static void assert_state(const struct ntr_buf *a, const struct ntr_buf *b)
{
	assert_int_equal(a->len, b->len);
	assert_memory_equal(a->data, b->data, a->len);
}

static void reopen(void)
{
	fx_reopen(&fx);
	assert_int_equal(ntr_session_get(fx.st, "s", &fx.head, NULL), 0);
}

/* ---- operations ---- */

static int fill(struct ntr_txn *t, size_t bytes, uint64_t salt)
{
	static uint8_t data[40 * NTR_CHUNK_SIZE];
	struct ntr_inode in;
	uint64_t rnd = salt + 1;
	char name[24];
	int r;

	for (size_t off = 0; off < bytes; off += 4096)
		ntr_put_be64(data + off, fx_rand(&rnd));
	snprintf(name, sizeof name, "f%llu", (unsigned long long)salt);
	r = ntr_inode_new(t, S_IFREG | 0644, &in);
	if (!r)
		r = ntr_file_take_mem(t, &in, data, bytes);
	return r ? r : ntr_name_create(t, NTR_INO_ROOT, name, &in, NULL);
}

static uint64_t salt;

static int commit_bytes(size_t bytes)
{
	struct ntr_commit c;
	struct ntr_txn *t;
	int r = ntr_txn_begin(fx.st, fx.head.root, &t);

	if (r)
		return r;
	if (bytes > NTR_CHUNK_INLINE_BYTES)
		ntr_txn_set_limit(t, 5000); /* an intermediate root as well */
	r = fill(t, bytes, ++salt);
	if (r) {
		ntr_txn_abort(t);
		return r;
	}
	r = ntr_store_commit(fx.st, &fx.head, t, "{\"tool\":\"test\"}", NULL, &c, NULL);
	ntr_commit_done(&c);
	return r;
}

static int op_commit(void)
{
	return commit_bytes(100);
}

static int op_commit_chunk(void)
{
	return commit_bytes(100000);
}

static int op_commit_big(void)
{
	return commit_bytes(40 * NTR_CHUNK_SIZE);
}

static int op_new(void)
{
	struct ntr_head h;

	return ntr_session_new(fx.st, "new", NULL, NULL, &h, NULL);
}

static int op_fork(void)
{
	struct ntr_commit c;
	struct ntr_head h;
	int r = ntr_commit_get(fx.st, fx.head.commit, &c, NULL);

	if (r)
		return r;
	r = ntr_session_fork(fx.st, &fx.head, &c, "fork", &h, NULL);
	ntr_commit_done(&c);
	return r;
}

static int op_rename(void)
{
	return ntr_session_rename(fx.st, "victim", "renamed", NULL);
}

static int op_remove(void)
{
	struct ntr_head h;
	int r = ntr_session_get(fx.st, "victim", &h, NULL);

	return r ? r : ntr_session_remove(fx.st, h.sid, NULL);
}

static int op_upper(void)
{
	return ntr_session_set_upper(fx.st, fx.head.sid, fx.head.last_upper + 1, fx.head.root, NULL);
}

static int op_move(void)
{
	struct ntr_commit c, to;
	int r = ntr_commit_get(fx.st, fx.head.commit, &c, NULL);

	if (r)
		return r;
	r = ntr_commit_back(fx.st, &c, 1, &to, NULL);
	ntr_commit_done(&c);
	if (r)
		return r;
	r = ntr_session_move(fx.st, &fx.head, &to, NULL);
	ntr_commit_done(&to);
	return r;
}

static const struct op {
	const char *name;
	int (*fn)(void);
	unsigned writes; /* at least so many */
} all_ops[] = {{"commit", op_commit, 1}, {"commit with a chunk", op_commit_chunk, 1},
        {"big commit", op_commit_big, 4}, {"new", op_new, 1}, {"fork", op_fork, 1},
        {"set upper", op_upper, 1}, {"move", op_move, 1}, {"rename", op_rename, 1}, {"remove", op_remove, 1}};

static void prepare(void)
{
	struct ntr_head h;

	for (int i = 0; i < 3; i++)
		assert_int_equal(commit_bytes(100), 0);
	(void)ntr_session_new(fx.st, "victim", NULL, NULL, &h, NULL);
}

/* Undoes what names an operation has taken, so that it can be done again. */
static void undo(void)
{
	static const char *const names[] = {"new", "fork", "renamed"};
	struct ntr_head h;

	for (size_t i = 0; i < NTR_COUNT(names); i++)
		if (!ntr_session_get(fx.st, names[i], &h, NULL))
			assert_int_equal(ntr_session_remove(fx.st, h.sid, NULL), 0);
	prepare();
}

/* ---- failing writes ---- */

struct at {
	uint64_t n, seen;
	int code;
};

static int fail_at(void *user, uint64_t number, const char *op)
{
	struct at *a = user;

	(void)op;
	a->seen = number;
	return number == a->n ? a->code : 0;
}

static void fail_op_writes(const struct op *op, struct ntr_buf *before, struct ntr_buf *after)
{
	struct at a = {.n = 1, .code = -ENOSPC};
	struct ntr_head head;
	int r;

	for (;; a.n++) {
		head = fx.head;
		state_text(before);
		ntr_kv_set_fault(ntr_store_kv(fx.st), fail_at, &a);
		r = op->fn();
		ntr_kv_set_fault(ntr_store_kv(fx.st), NULL, NULL);
		if (!r)
			break;
		assert_int_equal(r, -ENOSPC);
		assert_memory_equal(&head, &fx.head, offsetof(struct ntr_head, name));
		state_text(after);
		assert_state(before, after);
		reopen();
		state_text(after);
		assert_state(before, after);
	}
	assert_true(a.n > op->writes);
	state_text(before);
	reopen();
	state_text(after);
	assert_state(before, after);
}

static void test_writes(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf before = {0}, after = {0};

	(void)state;
	prepare();
	for (size_t i = 0; i < NTR_COUNT(all_ops); i++) {
		fail_op_writes(&all_ops[i], &before, &after);
		undo();
	}
}

/* Making a store: whichever write fails, the next try succeeds. There is no hook before the database is open,
 * so a directory in the way stands for the failure. */
static void test_create(void **state)
{
	char path[320], file[340];
	struct ntr_store *s;
	struct ntr_err e = {0};

	(void)state;
	snprintf(path, sizeof path, "%s/other", fx.dir);
	snprintf(file, sizeof file, "%s/synced", path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mkdir(file, 0700), 0);
	assert_int_equal(ntr_store_open(path, &(struct ntr_store_options){.create = true}, &s, &e), -EISDIR);
	assert_non_null(strstr(e.what, "synced"));
	assert_int_equal(rmdir(file), 0);
	assert_int_equal(ntr_store_open(path, &(struct ntr_store_options){.create = true}, &s, &e), 0);
	ntr_store_close(s);
}

/* ---- failing allocations ---- */

#ifndef NTR_SANITIZED
static void fail_op_allocs(const struct op *op, struct ntr_buf *before, struct ntr_buf *after)
{
	struct ntr_head head;
	long n, left;
	int r;

	for (n = 1;; n++) {
		head = fx.head;
		state_text(before);
		armed = n;
		r = op->fn();
		left = armed;
		armed = 0;
		if (!r)
			break;
		assert_int_equal(r, -ENOMEM);
		assert_memory_equal(&head, &fx.head, offsetof(struct ntr_head, name));
		state_text(after);
		assert_state(before, after);
		if (n % 16)
			continue;
		reopen();
		state_text(after);
		assert_state(before, after);
	}
	print_message("%s: %ld allocations failed\n", op->name, n - 1);
	assert_true(n > 2 && left > 0); /* it succeeded because none failed */
	state_text(before);
	reopen();
	state_text(after);
	assert_state(before, after);
}

static void test_allocations(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf before = {0}, after = {0};

	(void)state;
	prepare();
	for (size_t i = 0; i < NTR_COUNT(all_ops); i++) {
		fail_op_allocs(&all_ops[i], &before, &after);
		undo();
	}
}

/* Opening: no crash, no descriptor or lock left behind. */
static void test_open_allocations(void **state)
{
	struct ntr_store_options o = {0};
	long n;
	int r;

	(void)state;
	prepare();
	ntr_store_close(fx.st);
	for (n = 1;; n++) {
		armed = n;
		r = ntr_store_open(fx.path, &o, &fx.st, NULL);
		if (!r && armed > 0)
			break;
		armed = 0;
		if (!r)
			ntr_store_close(fx.st);
		else
			assert_int_equal(r, -ENOMEM);
	}
	armed = 0;
	assert_true(n > 5);
	assert_int_equal(ntr_session_get(fx.st, "s", &fx.head, NULL), 0);
}
#else
static void test_allocations(void **state)
{
	(void)state;
	skip();
}

static void test_open_allocations(void **state)
{
	(void)state;
	skip();
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_writes, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_create, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_allocations, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_open_allocations, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
