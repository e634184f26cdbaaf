/* A full filesystem: writes fail with -ENOSPC and change nothing, reads go on, and once there is room again
 * writes work without the store being closed. In a small tmpfs of a mount namespace of our own. */
#include "treefix.h"

#include "../../fs/kv_impl.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static int write_proc(const char *path, const char *text)
{
	ntr_autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : ntr_write_all(fd, text, strlen(text));
}

/* Once: RocksDB's threads outlive a database, and stay in the namespace that they were made in. */
static int own_namespace(void)
{
	static bool entered;
	uid_t uid = getuid();
	gid_t gid = getgid();
	char map[64];
	int r;

	if (entered)
		return 0;
	if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)))
		return -errno;
	entered = true;
	if (!uid)
		return 0;
	r = write_proc("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (!r)
		r = write_proc("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return r ? r : write_proc("/proc/self/gid_map", map);
}

static int put(struct treefix *f, enum ntr_kv_mode mode, enum ntr_cf cf, uint64_t k, const void *v, size_t n,
        struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	uint8_t key[8];

	ntr_put_be64(key, k);
	ntr_kv_batch_put(b, f->kv, cf, key, 8, v, n);
	return ntr_kv_write(f->kv, b, mode, e);
}

static void check(struct treefix *f, enum ntr_cf cf, uint64_t k, bool there)
{
	struct ntr_kv_pin p;
	uint8_t key[8];

	ntr_put_be64(key, k);
	assert_int_equal(ntr_kv_get(f->kv, cf, key, 8, &p), there ? 0 : -ENOENT);
	ntr_kv_unpin(&p);
}

/* Fills the filesystem but for about `leave` bytes. */
static void eat_space(const char *path, size_t leave)
{
	static uint8_t block[65536];
	ntr_autoclose int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;

	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(ftruncate(fd, st.st_size - (off_t)leave), 0);
}

/* Writes numbered values until one fails; returns how many there are now. */
static uint64_t put_until_full(struct treefix *f, uint64_t n, uint64_t *rnd)
{
	static uint8_t value[60000];
	struct ntr_err e = {0};
	int r;

	for (;; n++) {
		treefix_fill(rnd, value, sizeof(value));
		r = put(f, NTR_KV_SYNC, NTR_CF_META, n, value, sizeof(value), &e);
		if (r)
			break;
	}
	assert_int_equal(r, -ENOSPC);
	assert_non_null(strstr(e.why, "No space left"));
	assert_true(e.todo[0]);
	return n;
}

static void recover(struct treefix *f, uint64_t key)
{
	uint64_t start = ntr_mono_ns();
	struct ntr_err e = {0};
	int r;

	while ((r = put(f, NTR_KV_SYNC, NTR_CF_META, key, "later", 5, &e))) {
		if (r != -ENOSPC)
			print_message("%s: %s\n", e.what, e.why);
		assert_int_equal(r, -ENOSPC);
		assert_true(ntr_mono_ns() - start < 30000000000u);
		usleep(20000);
	}
}

static void check_all(struct treefix *f, uint64_t chunks, uint64_t n)
{
	for (uint64_t k = 0; k < chunks; k++)
		check(f, NTR_CF_CHUNK, k, true);
	for (uint64_t k = 0; k < n; k++)
		check(f, NTR_CF_META, k, true);
	check(f, NTR_CF_META, n, false);
}

/* A tmpfs on the folder, or a skipped test. */
static void mount_small(struct treefix *f)
{
	int r = own_namespace();

	if (!r && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		r = -errno;
	if (!r && mount("tmpfs", f->dir, "tmpfs", 0, "size=96m"))
		r = -errno;
	if (!r)
		return;
	print_message("no mount namespace of our own: %s\n", strerror(-r));
	rmdir(f->dir);
	skip();
}

/* A flush that says it is done is done, also after the database was stopped once. */
static void flush_waits(struct treefix *f)
{
	uint64_t left;

	for (uint64_t k = 1000; k < 1050; k++) {
		assert_int_equal(put(f, NTR_KV_NO_WAL, NTR_CF_CHUNK, k, "x", 1, NULL), 0);
		assert_int_equal(ntr_kv_flush(f->kv, NTR_CF_CHUNK, NULL), 0);
		assert_int_equal(rocksdb_property_int_cf(f->kv->db, f->kv->cf[NTR_CF_CHUNK],
		                         "rocksdb.num-immutable-mem-table", &left),
		        0);
		assert_int_equal(left, 0);
	}
}

static void full(bool unchecked)
{
	static uint8_t value[60000];
	uint64_t rnd = treefix_seed(), n, chunks = 0;
	struct ntr_err e = {0};
	struct treefix f;
	char fill[300];

	treefix_dir(&f);
	mount_small(&f);
	snprintf(fill, sizeof(fill), "%s/fill", f.dir);
	treefix_open(&f, 0);
	f.kv->no_room_check = unchecked;
	/* Logless writes go to memory; making them durable is what fails, and they stay readable. */
	for (; chunks < 40; chunks++) {
		treefix_fill(&rnd, value, sizeof(value));
		assert_int_equal(put(&f, NTR_KV_NO_WAL, NTR_CF_CHUNK, chunks, value, sizeof(value), &e), 0);
	}
	eat_space(fill, 1 << 20);
	if (!unchecked)
		assert_int_equal(
		        put(&f, NTR_KV_NO_WAL, NTR_CF_CHUNK, chunks, value, sizeof(value), &e), -ENOSPC);
	n = put_until_full(&f, 0, &rnd);
	check_all(&f, chunks, n);
	assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_CHUNK, &e), -ENOSPC);
	check_all(&f, chunks, n);
	assert_int_equal(unlink(fill), 0);
	if (unchecked)
		recover(&f, n++);
	else /* RocksDB never knew */
		assert_int_equal(put(&f, NTR_KV_SYNC, NTR_CF_META, n++, "later", 5, &e), 0);
	assert_int_equal(ntr_kv_flush(f.kv, NTR_CF_CHUNK, &e), 0);
	flush_waits(&f);
	check_all(&f, chunks, n);
	assert_int_equal(ntr_kv_verify(f.kv, &e), 0);
	treefix_close(&f);
	treefix_open(&f, 0);
	check_all(&f, chunks, n);
	treefix_close(&f);
	assert_int_equal(umount(f.dir), 0);
	rmdir(f.dir);
}

static void test_full(void **state)
{
	(void)state;
	full(false);
}

/* As when another process takes the last room between the check and the write. */
static void test_full_unchecked(void **state)
{
	(void)state;
	full(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_full), cmocka_unit_test(test_full_unchecked)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
