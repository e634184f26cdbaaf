/* Crashes: a process that commits in a loop is killed; every commit that it acknowledged is there, whole. */
#include "store_kill.h"

#include "fs/file.h"
#include "fs/store_impl.h"

#include <errno.h>

#ifdef NTR_SANITIZED
enum { SLOWER = 8 };
#else
enum { SLOWER = 1 };
#endif
enum { ROUNDS = 20, FILES = 7 };

struct acked {
	volatile uint64_t commit, count; /* of the last acknowledged one */
	uint32_t durability;
	uint32_t pad;
};

/* The content of file k at count n; some of it large enough to be written ahead. */
static size_t content(uint64_t n, unsigned k, uint8_t *p)
{
	size_t size = k == 0 && n % 5 == 0 ? 30 * NTR_CHUNK_SIZE : 50 + n * 977 % 5000 * (k + 1);
	uint64_t rnd = n * 16 + k + 1;

	for (size_t off = 0; off < size; off += 8)
		ntr_put_be64(p + off, fx_rand(&rnd));
	return size;
}

static uint8_t buffer[30 * NTR_CHUNK_SIZE + 8];

static int write_file(struct ntr_txn *t, uint64_t n, unsigned k)
{
	size_t size = content(n, k, buffer);
	struct ntr_inode in;
	char name[8];
	uint64_t ino;
	int r;

	snprintf(name, sizeof name, "f%u", k);
	r = ntr_path_lookup(ntr_txn_snap(t), name, &ino);
	if (!r)
		r = ntr_inode_get(ntr_txn_snap(t), ino, &in);
	else if (r == -ENOENT && !(r = ntr_inode_new(t, S_IFREG | 0644, &in)))
		r = ntr_name_create(t, NTR_INO_ROOT, name, &in, NULL);
	if (!r)
		r = ntr_file_take_mem(t, &in, buffer, size);
	return r ? r : ntr_inode_put(t, &in);
}

static void commit_loop(const char *path)
{
	struct acked *a = kill_shared();
	struct ntr_store *s;
	struct ntr_head h;

	KILL_MUST(!ntr_store_open(path, &(struct ntr_store_options){0}, &s, NULL));
	KILL_MUST(!ntr_session_get(s, "s", &h, NULL));
	*kill_begun(a) = 1;
	for (uint64_t n = a->count + 1;; n++) {
		struct ntr_commit c;
		struct ntr_txn *t;

		KILL_MUST(!ntr_txn_begin(s, h.root, &t));
		KILL_MUST(!ntr_kvitem_set(t, "c:n", &n, sizeof n));
		for (unsigned k = 0; k < FILES; k++)
			if (!k || (n + k) % 3 == 0)
				KILL_MUST(!write_file(t, n, k));
		KILL_MUST(!ntr_store_commit(s, &h, t, "{}", NULL, &c, NULL));
		a->commit = c.id;
		a->count = n;
		ntr_commit_done(&c);
		if (n % 4 == 0)
			KILL_MUST(!ntr_store_sync(s, NULL));
	}
}

static void check_file(const struct ntr_snap *s, uint64_t n, unsigned k)
{
	static uint8_t got[sizeof buffer];
	struct ntr_inode in;
	char name[8];
	uint64_t ino;
	size_t size;

	while (k && n && (n + k) % 3)
		n--; /* when it was written last */
	if (!n)
		return;
	snprintf(name, sizeof name, "f%u", k);
	assert_int_equal(ntr_path_lookup(s, name, &ino), 0);
	assert_int_equal(ntr_inode_get(s, ino, &in), 0);
	size = content(n, k, buffer);
	assert_int_equal(in.size, size);
	assert_int_equal(ntr_file_read(s, &in, 0, got, sizeof got), size);
	assert_memory_equal(got, buffer, size);
}

/* The head is the last acknowledged commit or the one after it, whole, and its history reaches back without a
 * gap. */
static void check_store(struct fixture *f, struct acked *a)
{
	struct ntr_commit c;
	struct ntr_snap s;
	uint64_t n;
	uint8_t *v;
	size_t len;

	assert_int_equal(ntr_session_get(f->st, "s", &f->head, NULL), 0);
	s = ntr_snap_root(f->st, f->head.root);
	if (ntr_kvitem_get(&s, "c:n", &v, &len)) {
		assert_int_equal(a->count, 0);
		return;
	}
	memcpy(&n, v, sizeof n);
	free(v);
	assert_true(n == a->count || n == a->count + 1);
	for (unsigned k = 0; k < FILES; k++)
		check_file(&s, n, k);
	assert_int_equal(ntr_commit_get(f->st, f->head.commit, &c, NULL), 0);
	assert_int_equal(c.root, f->head.root);
	if (a->commit)
		assert_int_equal(ntr_commit_reaches(f->st, &c, a->commit), 1);
	ntr_commit_done(&c);
	a->count = n;
	a->commit = f->head.commit;
}

static void run(uint32_t durability)
{
	struct ntr_session_options o = {.durability = durability};
	struct acked *a = kill_shared();
	struct fixture f = {0};
	uint64_t rnd = 99 + durability;

	memset(a, 0, sizeof *a);
	fx_setup(&f);
	assert_int_equal(ntr_session_new(f.st, "s", &o, NULL, &f.head, NULL), 0);
	ntr_store_close(f.st);
	for (int i = 0; i < ROUNDS; i++) {
		struct ntr_err e = {0};

		kill_child(0, f.path, SLOWER * (5000 + (unsigned)fx_below(&rnd, 60000)));
		assert_int_equal(ntr_store_open(f.path, &(struct ntr_store_options){0}, &f.st, &e), 0);
		assert_int_equal(e.what[0], 0); /* no regression */
		check_store(&f, a);
		ntr_store_close(f.st);
	}
	print_message("%llu commits\n", (unsigned long long)a->count);
	assert_true(a->count >= 3);
	f.st = NULL;
	fx_teardown(&f);
}

static void test_synced(void **state)
{
	(void)state;
	run(NTR_FSYNC);
}

/* A kill loses nothing of a relaxed session either: the log is in the page cache. */
static void test_relaxed(void **state)
{
	(void)state;
	run(NTR_RELAXED_DURABILITY);
}

int main(int argc, char **argv)
{
	static void (*const children[])(const char *) = {commit_loop};
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_synced),
	        cmocka_unit_test(test_relaxed),
	};

	kill_main(argc, argv, children);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
