/* Reading a family's files ahead: what is in its files comes into the page cache, of that family only. */
#include "fs/kv_impl.h"
#include "treefix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void fill(struct ntr_kv *kv, enum ntr_cf cf)
{
	uint8_t key[8], val[4096];
	uint64_t x = 88172645463325252u;

	for (uint64_t i = 0; i < 200; i++) {
		ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();

		for (size_t k = 0; k < sizeof(val); k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			val[k] = (uint8_t)x;
		}
		ntr_put_be64(key, i);
		ntr_kv_batch_put(b, kv, cf, key, sizeof(key), val, sizeof(val));
		assert_int_equal(ntr_kv_write(kv, b, NTR_KV_RELAXED, NULL), 0);
	}
	assert_int_equal(ntr_kv_flush(kv, cf, NULL), 0);
}

/* Tells of one file how many of its pages are in memory; drop: takes them out first. */
static size_t resident(const char *path, bool drop, size_t *ret_pages)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char vec[1024];
	struct stat st;
	size_t n = 0;

	assert_true(fd >= 0);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	*ret_pages = ((size_t)st.st_size + 4095) / 4096;
	assert_true(*ret_pages <= sizeof(vec));
	if (drop)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mincore(p, (size_t)st.st_size, vec), 0);
	for (size_t i = 0; i < *ret_pages; i++)
		n += vec[i] & 1;
	munmap(p, (size_t)st.st_size);
	close(fd);
	return n;
}

static char *file_of(struct ntr_kv *kv, enum ntr_cf cf)
{
	const rocksdb_livefiles_t *l = rocksdb_livefiles(kv->db);
	char *path = NULL;

	for (int i = 0; i < rocksdb_livefiles_count(l) && !path; i++)
		if (!strcmp(rocksdb_livefiles_column_family_name(l, i), ntr_kv_family_names[cf]))
			path = ntr_sprintf("%s/%s", kv->dir, rocksdb_livefiles_name(l, i));
	rocksdb_livefiles_destroy(l);
	assert_non_null(path);
	return path;
}

static void test_reads_ahead(void **state)
{
	struct ntr_kv_options o = {.create = true};
	struct ntr_kv *kv = NULL;
	struct treefix f;
	size_t pages, n = 0;

	(void)state;
	treefix_dir(&f);
	assert_int_equal(ntr_kv_open(f.db, &o, &kv, NULL), 0);
	fill(kv, NTR_CF_NODE);
	fill(kv, NTR_CF_CHUNK);
	ntr_autofree char *node = file_of(kv, NTR_CF_NODE), *chunk = file_of(kv, NTR_CF_CHUNK);
	size_t left = resident(node, true, &pages), other = resident(chunk, true, &pages);

	if (left || other) /* a filesystem in memory keeps everything */
		print_message("%zu pages cannot be dropped here\n", left + other);
	assert_int_equal(ntr_kv_warm(kv, NTR_CF_NODE, (size_t)4 << 20), 0);
	for (int i = 0; i < 500; i++) {
		n = resident(node, false, &pages);
		if (n == pages)
			break;
		usleep(10000);
	}
	assert_int_equal(n, pages);
	assert_true(pages > 150);
	assert_int_equal(resident(chunk, false, &pages), other);
	ntr_kv_close(kv);
	treefix_remove(&f);
}

/* Nothing larger than what is allowed, nothing twice, nothing where there is nothing. */
static void test_bounds(void **state)
{
	struct ntr_kv_options o = {.create = true};
	struct ntr_kv *kv = NULL;
	struct treefix f;
	size_t pages;

	(void)state;
	treefix_dir(&f);
	assert_int_equal(ntr_kv_open(f.db, &o, &kv, NULL), 0);
	assert_int_equal(ntr_kv_warm(kv, NTR_CF_CHUNK, 1 << 20), 0);
	fill(kv, NTR_CF_NODE);
	fill(kv, NTR_CF_CHUNK);
	ntr_autofree char *node = file_of(kv, NTR_CF_NODE), *chunk = file_of(kv, NTR_CF_CHUNK);
	size_t a = resident(node, true, &pages), b = resident(chunk, true, &pages);

	assert_int_equal(ntr_kv_warm(kv, NTR_CF_NODE, 4096), 0);
	assert_int_equal(ntr_kv_warm(kv, NTR_CF_NODE, 1 << 30), 0);
	assert_int_equal(ntr_kv_warm(kv, NTR_CF_CHUNK, 1 << 30), 0);
	usleep(100000);
	assert_int_equal(resident(node, false, &pages), a);
	assert_int_equal(resident(chunk, false, &pages), b);
	ntr_kv_close(kv);
	treefix_remove(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reads_ahead),
	        cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
