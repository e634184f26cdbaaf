/* The database layer: reads, batches, iteration, durability modes under a crash, faults, damage to its files.
 */
#include "fs/kv_impl.h"
#include "treefix.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int put_text(
        struct ntr_kv *kv, enum ntr_cf cf, const char *key, const char *val, enum ntr_kv_mode mode)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();

	ntr_kv_batch_put(b, kv, cf, key, strlen(key), val, strlen(val));
	return ntr_kv_write(kv, b, mode, NULL);
}

static void expect(struct ntr_kv *kv, enum ntr_cf cf, const char *key, const char *val)
{
	struct ntr_kv_pin p;
	int r = ntr_kv_get(kv, cf, key, strlen(key), &p);

	assert_int_equal(r, val ? 0 : -ENOENT);
	if (!val) {
		assert_null(p.handle);
		return;
	}
	assert_int_equal(p.len, strlen(val));
	assert_memory_equal(p.data, val, p.len);
	ntr_kv_unpin(&p);
	ntr_kv_unpin(&p);
}

static void test_open_errors(void **state)
{
	struct ntr_kv_options o = {0};
	struct ntr_kv *kv = NULL, *second = NULL;
	struct ntr_err e = {0};
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	assert_int_equal(ntr_kv_open(f.db, &o, &kv, &e), -ENOENT);
	o.create = o.read_only = true;
	assert_int_equal(ntr_kv_open(f.db, &o, &kv, &e), -ENOENT);
	o.read_only = false;
	assert_int_equal(ntr_kv_open(f.db, &o, &kv, &e), 0);
	assert_int_equal(put_text(kv, NTR_CF_META, "k", "v", NTR_KV_RELAXED), 0);
	assert_int_equal(ntr_kv_open(f.db, &o, &second, &e), -EBUSY);
	assert_true(e.todo[0]);

	/* Beside a running owner, reading only. */
	o.read_only = true;
	assert_int_equal(ntr_kv_open(f.db, &o, &second, &e), 0);
	expect(second, NTR_CF_META, "k", "v");
	assert_int_equal(put_text(second, NTR_CF_META, "k", "w", NTR_KV_SYNC), -EROFS);
	ntr_kv_close(second);
	ntr_kv_close(kv);
	ntr_kv_close(NULL);
	treefix_remove(&f);
}

static void test_batch_and_iter(void **state)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = NULL;
	const uint8_t *key, *val;
	size_t klen, vlen, empty = ntr_kv_batch_bytes(b);
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	assert_int_equal(ntr_kv_write(f.kv, b, NTR_KV_SYNC, NULL), 0); /* an empty batch is nothing */
	ntr_kv_batch_put(b, f.kv, NTR_CF_META, "a", 1, "1", 1);
	ntr_kv_batch_put(b, f.kv, NTR_CF_META, "b", 1, "", 0);
	ntr_kv_batch_put(b, f.kv, NTR_CF_CHUNK, "a", 1, "other", 5);
	ntr_kv_batch_put(b, f.kv, NTR_CF_META, "c\0d", 3, "3", 1);
	ntr_kv_batch_del(b, f.kv, NTR_CF_META, "a", 1);
	assert_true(ntr_kv_batch_bytes(b) > empty);
	expect(f.kv, NTR_CF_META, "b", NULL);
	assert_int_equal(ntr_kv_write(f.kv, b, NTR_KV_RELAXED, NULL), 0);
	expect(f.kv, NTR_CF_META, "a", NULL);
	expect(f.kv, NTR_CF_META, "b", "");
	expect(f.kv, NTR_CF_CHUNK, "a", "other");
	ntr_kv_batch_clear(b);
	assert_int_equal(ntr_kv_batch_bytes(b), empty);

	it = ntr_kv_iter_new(f.kv, NTR_CF_META, false);
	assert_int_equal(
	        put_text(f.kv, NTR_CF_META, "bb", "later", NTR_KV_RELAXED), 0); /* not in its snapshot */
	ntr_kv_iter_seek(it, "", 0);
	assert_true(ntr_kv_iter_valid(it, &key, &klen, &val, &vlen));
	assert_int_equal(klen, 1);
	assert_int_equal(key[0], 'b');
	assert_int_equal(vlen, 0);
	ntr_kv_iter_next(it);
	assert_true(ntr_kv_iter_valid(it, &key, &klen, &val, &vlen));
	assert_memory_equal(key, "c\0d", 3);
	ntr_kv_iter_next(it);
	assert_false(ntr_kv_iter_valid(it, NULL, NULL, NULL, NULL));
	ntr_kv_iter_next(it);
	assert_int_equal(ntr_kv_iter_error(it), 0);
	ntr_kv_iter_seek_last(it);
	assert_true(ntr_kv_iter_valid(it, &key, &klen, NULL, NULL));
	assert_int_equal(klen, 3);
	ntr_kv_iter_seek(it, "d", 1);
	assert_false(ntr_kv_iter_valid(it, NULL, NULL, NULL, NULL));
	ntr_kv_iter_free(it);
	it = NULL;
	assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_META, NULL), 0);
	assert_true(ntr_kv_disk_bytes(f.kv, NTR_CF_META) > 0);
	assert_int_equal(ntr_kv_disk_bytes(f.kv, NTR_CF_NODE), 0);
	assert_true(ntr_kv_memory_bytes(f.kv) > 0);
	treefix_close(&f);
	treefix_remove(&f);
}

/* A child writes in some mode and dies at once, without closing anything. */
static void crash_write(struct treefix *f, enum ntr_cf cf, const char *key, enum ntr_kv_mode mode, bool flush)
{
	pid_t pid = fork();
	int st;

	if (!pid) {
		struct ntr_kv *kv;
		int r = ntr_kv_open(f->db, &(struct ntr_kv_options){.create = true}, &kv, NULL);

		if (!r)
			r = put_text(kv, cf, key, "v", mode);
		if (!r && flush)
			r = ntr_kv_flush(kv, cf, NULL);
		_exit(r ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st) && !WEXITSTATUS(st));
}

static void test_modes(void **state)
{
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	crash_write(&f, NTR_CF_META, "synced", NTR_KV_SYNC, false);
	crash_write(&f, NTR_CF_META, "relaxed", NTR_KV_RELAXED, false);
	crash_write(&f, NTR_CF_CHUNK, "logless", NTR_KV_NO_WAL, false);
	crash_write(&f, NTR_CF_CHUNK, "flushed", NTR_KV_NO_WAL, true);
	treefix_open(&f, 0);
	expect(f.kv, NTR_CF_META, "synced", "v");
	expect(f.kv, NTR_CF_META, "relaxed", "v"); /* a dead process is not a dead machine */
	expect(f.kv, NTR_CF_CHUNK, "logless", NULL);
	expect(f.kv, NTR_CF_CHUNK, "flushed", "v");
	assert_int_equal(put_text(f.kv, NTR_CF_META, "r", "v", NTR_KV_RELAXED), 0);
	assert_int_equal(ntr_kv_sync_wal(f.kv, NULL), 0);
	treefix_close(&f);
	treefix_remove(&f);
}

/* Another process has it open. The opening that fails is a child's too: this process must have no threads of
 * RocksDB's yet where it forks. */
static int open_in_child(const struct treefix *f)
{
	struct ntr_err e = {0};
	struct ntr_kv *kv;
	pid_t pid = fork();
	int st;

	if (!pid) {
		int r = ntr_kv_open(f->db, &(struct ntr_kv_options){0}, &kv, &e);

		_exit(r && !(e.why[0] && e.todo[0]) ? 255 : -r);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	return -WEXITSTATUS(st);
}

static void test_busy(void **state)
{
	int up[2], down[2], st;
	struct ntr_kv *kv;
	struct treefix f;
	char c = 0;
	pid_t pid;

	(void)state;
	treefix_dir(&f);
	assert_int_equal(pipe(up) | pipe(down), 0);
	pid = fork();
	if (!pid) {
		close(down[1]);
		if (ntr_kv_open(f.db, &(struct ntr_kv_options){.create = true}, &kv, NULL))
			c = 1;
		_exit(write(up[1], &c, 1) != 1 || read(down[0], &c, 1) != 0);
	}
	close(up[1]);
	close(down[0]);
	assert_int_equal(read(up[0], &c, 1), 1);
	assert_int_equal(c, 0);
	assert_int_equal(open_in_child(&f), -EBUSY);
	close(up[0]);
	close(down[1]);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
	assert_int_equal(open_in_child(&f), 0);
	treefix_remove(&f);
}

struct fault {
	uint64_t at, seen;
	char ops[200];
};

static int fault_at(void *user, uint64_t number, const char *op)
{
	struct fault *t = user;

	assert_int_equal(number, ++t->seen);
	snprintf(t->ops + strlen(t->ops), sizeof(t->ops) - strlen(t->ops), "%s;", op);
	return number == t->at ? -ENOSPC : 0;
}

static void test_fault(void **state)
{
	struct fault t = {.at = 2};
	struct ntr_err e = {0};
	struct treefix f;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	ntr_kv_set_fault(f.kv, fault_at, &t);
	assert_int_equal(put_text(f.kv, NTR_CF_META, "one", "v", NTR_KV_SYNC), 0);
	assert_int_equal(put_text(f.kv, NTR_CF_META, "two", "v", NTR_KV_SYNC), -ENOSPC);
	assert_int_equal(put_text(f.kv, NTR_CF_META, "three", "v", NTR_KV_NO_WAL), 0);
	t.at = 4;
	assert_int_equal(ntr_kv_sync_wal(f.kv, &e), -ENOSPC);
	assert_int_equal(e.code, -ENOSPC);
	assert_string_equal(ntr_err_reason(&e), strerror(ENOSPC));
	assert_int_equal(ntr_kv_sync_wal(f.kv, NULL), 0);
	t.at = 6;
	assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_META, &e), -ENOSPC);
	assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_META, NULL), 0);
	ntr_kv_set_fault(f.kv, NULL, NULL);
	assert_int_equal(put_text(f.kv, NTR_CF_META, "four", "v", NTR_KV_SYNC), 0);
	assert_int_equal(t.seen, 7);
	assert_string_equal(t.ops, "write to;write to;write to;sync;sync;flush;flush;");
	expect(f.kv, NTR_CF_META, "one", "v");
	expect(f.kv, NTR_CF_META, "two", NULL);
	expect(f.kv, NTR_CF_META, "three", "v");
	treefix_close(&f);
	treefix_remove(&f);
}

/* A limit on the size of files: a log that reaches it is left for a new one, and only what is larger than any
 * file may be fails, with its own error. Reads go on, and writing does once the limit is gone. */
static void test_file_limit(void **state)
{
	enum { FITS = 60000, LIMIT = 300000, WRITES = 12 };
	static char val[FITS + 1], large[LIMIT + 2];
	struct rlimit limit, low;
	struct ntr_err e = {0};
	struct treefix f;
	char key[16];

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	memset(val, 'v', FITS);
	memset(large, 'v', LIMIT + 1);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	low = limit;
	low.rlim_cur = LIMIT;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	for (int i = 0; i < WRITES; i++) {
		snprintf(key, sizeof(key), "%d", i);
		assert_int_equal(put_text(f.kv, NTR_CF_META, key, val, NTR_KV_SYNC), 0);
	}
	assert_true(ntr_kv_resumed(f.kv) > 0);
	assert_int_equal(put_text(f.kv, NTR_CF_META, "large", large, NTR_KV_SYNC), -EFBIG);
	expect(f.kv, NTR_CF_META, "0", val);
	expect(f.kv, NTR_CF_META, "large", NULL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(put_text(f.kv, NTR_CF_META, "after", large, NTR_KV_SYNC), 0);
	treefix_close(&f);
	treefix_open(&f, 0);
	for (int i = 0; i < WRITES; i++) {
		snprintf(key, sizeof(key), "%d", i);
		expect(f.kv, NTR_CF_META, key, val);
	}
	expect(f.kv, NTR_CF_META, "large", NULL);
	expect(f.kv, NTR_CF_META, "after", large);
	assert_int_equal(ntr_kv_verify(f.kv, &e), 0);
	treefix_close(&f);
	treefix_remove(&f);
}

/* --- damage --- */

enum { ITEMS = 300, VALUE = 3000 };

static void value_of(unsigned i, uint8_t val[VALUE])
{
	uint64_t rnd = i;

	treefix_fill(&rnd, val, VALUE);
}

static void items_write(struct ntr_kv *kv, enum ntr_cf cf)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	uint8_t key[8], val[VALUE];

	for (unsigned i = 0; i < ITEMS; i++) {
		ntr_put_be64(key, i);
		value_of(i, val);
		ntr_kv_batch_put(b, kv, cf, key, 8, val, VALUE);
		assert_int_equal(ntr_kv_write(kv, b, NTR_KV_RELAXED, NULL), 0);
		ntr_kv_batch_clear(b);
	}
}

/* Every read gives the right bytes or an error; returns how many gave an error. */
static unsigned items_read(struct ntr_kv *kv, enum ntr_cf cf)
{
	uint8_t key[8], val[VALUE];
	unsigned bad = 0;

	for (unsigned i = 0; i < ITEMS; i++) {
		struct ntr_kv_pin p;
		int r;

		ntr_put_be64(key, i);
		r = ntr_kv_get(kv, cf, key, 8, &p);
		if (r) {
			assert_true(r == -EUCLEAN || r == -EIO || r == -ENOENT);
			bad++;
			continue;
		}
		value_of(i, val);
		assert_int_equal(p.len, VALUE);
		assert_memory_equal(p.data, val, VALUE);
		ntr_kv_unpin(&p);
	}
	return bad;
}

/* The largest file of the database whose name ends in ext. */
static void find_file(const struct treefix *f, const char *ext, char path[600], off_t *ret_size)
{
	DIR *d = opendir(f->db);
	struct dirent *en;

	*ret_size = -1;
	assert_non_null(d);
	while ((en = readdir(d))) {
		size_t n = strlen(en->d_name), x = strlen(ext);
		struct stat st;

		if (n < x || strcmp(en->d_name + n - x, ext) || fstatat(dirfd(d), en->d_name, &st, 0))
			continue;
		if (st.st_size <= *ret_size)
			continue;
		*ret_size = st.st_size;
		snprintf(path, 600, "%s/%s", f->db, en->d_name);
	}
	closedir(d);
	assert_true(*ret_size > 0);
}

static void flip(const char *path, off_t at)
{
	ntr_autoclose int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t b;

	assert_int_equal(pread(fd, &b, 1, at), 1);
	b ^= 0x40;
	assert_int_equal(pwrite(fd, &b, 1, at), 1);
}

static void test_damaged_table(void **state)
{
	uint64_t rnd = treefix_seed();
	struct ntr_err e = {0};
	char path[600];
	struct treefix f;
	unsigned caught = 0;
	off_t size;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	items_write(f.kv, NTR_CF_NODE);
	assert_int_equal(ntr_kv_verify(f.kv, &e), 0); /* flushes */
	treefix_close(&f);
	find_file(&f, ".sst", path, &size);
	for (int round = 0; round < 30; round++) {
		off_t at = round < 15
		                   ? (off_t)treefix_below(&rnd, (size_t)size)
		                   : size - 1 - (off_t)treefix_below(&rnd, 3000); /* index, filter, footer */
		struct ntr_kv *kv = NULL;
		unsigned bad = 0;
		int r;

		flip(path, at);
		r = ntr_kv_open(f.db, &(struct ntr_kv_options){0}, &kv, &e);
		if (!r) {
			bad = items_read(kv, NTR_CF_NODE);
			r = ntr_kv_verify(kv, &e);
			ntr_kv_close(kv);
		}
		/* Whatever a read stumbles over, verification finds. */
		assert_true(r == 0 || r == -EUCLEAN || r == -EIO);
		assert_true(!bad || r);
		caught += r != 0;
		flip(path, at);
	}
	assert_true(caught >= 25);
	treefix_open(&f, 0);
	assert_int_equal(items_read(f.kv, NTR_CF_NODE), 0);
	assert_int_equal(ntr_kv_verify(f.kv, &e), 0);
	treefix_close(&f);
	treefix_remove(&f);
}

/* The log in use: damage is found while the memory tables still hide it. */
static void test_damaged_log_in_use(void **state)
{
	uint64_t rnd = treefix_seed();
	struct ntr_err e = {0};
	char path[600];
	struct treefix f;
	off_t size;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	items_write(f.kv, NTR_CF_META);
	for (int round = 0; round < 40; round++) {
		off_t at;

		find_file(&f, ".log", path, &size);
		at = round ? (off_t)treefix_below(&rnd, (size_t)size) : size - 1;
		flip(path, at);
		assert_int_equal(ntr_kv_verify(f.kv, &e), -EUCLEAN);
		assert_non_null(strstr(e.what, ".log"));
		flip(path, at);
	}
	assert_int_equal(ntr_kv_verify(f.kv, &e), 0);
	treefix_close(&f);
	treefix_remove(&f);
}

static void copy_folder(const char *from, const char *to)
{
	ntr_autofree char *cmd = ntr_sprintf("rm -rf '%s' && cp -r '%s' '%s'", to, from, to);

	assert_int_equal(system(cmd), 0);
}

/* After a crash a damaged log gives a prefix of what was written, never a hole or other bytes. */
static void test_damaged_log_after_crash(void **state)
{
	uint64_t rnd = treefix_seed();
	char copy[320], path[600];
	struct treefix f, g;
	off_t size;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	items_write(f.kv, NTR_CF_META);
	snprintf(copy, sizeof(copy), "%s/crashed", f.dir);
	g = f;
	snprintf(g.db, sizeof(g.db), "%.290s/damaged", f.dir);
	copy_folder(f.db, copy);
	for (int round = 0; round < 12; round++) {
		struct ntr_kv *kv;
		uint8_t key[8];
		unsigned n = 0;

		copy_folder(copy, g.db);
		find_file(&g, ".log", path, &size);
		if (round % 3)
			flip(path, (off_t)treefix_below(&rnd, (size_t)size));
		else
			assert_int_equal(truncate(path, (off_t)treefix_below(&rnd, (size_t)size)), 0);
		assert_int_equal(ntr_kv_open(g.db, &(struct ntr_kv_options){0}, &kv, NULL), 0);
		for (;; n++) {
			struct ntr_kv_pin p;

			ntr_put_be64(key, n);
			if (ntr_kv_get(kv, NTR_CF_META, key, 8, &p))
				break;
			ntr_kv_unpin(&p);
		}
		assert_true(n < ITEMS);
		assert_int_equal(items_read(kv, NTR_CF_META), ITEMS - n);
		ntr_kv_close(kv);
	}
	treefix_close(&f);
	treefix_remove(&f);
}

static void test_damaged_manifest(void **state)
{
	struct ntr_kv *kv = NULL;
	struct ntr_err e = {0};
	char path[600];
	struct treefix f;
	off_t size;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	items_write(f.kv, NTR_CF_META);
	assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_META, &e), 0);
	treefix_close(&f);
	find_file(&f, "CURRENT", path, &size);
	flip(path, size - 2);
	assert_int_equal(ntr_kv_open(f.db, &(struct ntr_kv_options){0}, &kv, &e), -EUCLEAN);
	flip(path, size - 2);
	find_file(&f, ".sst", path, &size);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ntr_kv_open(f.db, &(struct ntr_kv_options){.create = true}, &kv, &e), -EUCLEAN);
	assert_true(e.why[0]);
	treefix_remove(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_busy), /* these two fork, so before any thread of RocksDB's */
	        cmocka_unit_test(test_modes),
	        cmocka_unit_test(test_open_errors),
	        cmocka_unit_test(test_batch_and_iter),
	        cmocka_unit_test(test_fault),
	        cmocka_unit_test(test_file_limit),
	        cmocka_unit_test(test_damaged_table),
	        cmocka_unit_test(test_damaged_log_in_use),
	        cmocka_unit_test(test_damaged_log_after_crash),
	        cmocka_unit_test(test_damaged_manifest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
