/* Listings: large directories, positions kept and gone back to, entries of one hash, references of long
 * streams. */
#include "versions_fixture.h"

#include <sys/syscall.h>

enum { MANY = 100000 };

static struct vfixture f;
static char root[400];

static int setup(void **state)
{
	(void)state;
	vfx_setup(&f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ntr_dirent_hash_hook = NULL;
	vfx_teardown(&f);
	return 0;
}

static void many_files(unsigned n)
{
	struct ntr_txn *t = fx_begin(&f.fx);
	char name[32];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%u", i);
		vfx_new(t, NTR_INO_ROOT, name, S_IFREG | 0644, "x", 1);
	}
	fx_commit(&f.fx, t);
	vfx_mount(&f, VFX_PLAIN);
	vfx_root_path(&f, f.fx.head.root, root);
}

/* Lists dir and marks each number in seen; returns how many entries came. */
static unsigned mark_all(DIR *d, uint8_t *seen)
{
	struct dirent *de;
	unsigned n = 0;

	while ((de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		seen[atoi(de->d_name)]++;
		n++;
	}
	return n;
}

static void test_many(void **state)
{
	uint8_t *seen = calloc(MANY, 1);
	DIR *d;

	(void)state;
	many_files(MANY);
	d = opendir(root);
	assert_int_equal(mark_all(d, seen), MANY);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(seen[i], 1);
	/* a long stream pins no more than its share in the kernel */
	assert_true(vfx_inodes(&f) <= NTR_VPLUS_MAX + 2);
	/* again from the kernel's cache, unless somebody has just dropped that */
	bool cached = false, pinned = vfx_inodes(&f) > NTR_VPLUS_MAX / 2;

	for (int i = 0; i < 100 && !(cached && pinned); i++) {
		usleep(i ? 200000 : 0);
		uint64_t before = vfx_count(&f, NULL);

		rewinddir(d);
		assert_int_equal(mark_all(d, seen), MANY);
		cached |= vfx_count(&f, NULL) == before;
		pinned |= vfx_inodes(&f) > NTR_VPLUS_MAX / 2;
	}
	assert_true(pinned);
	assert_true(cached);
	closedir(d);
	free(seen);
}

static void test_seek(void **state)
{
	enum { N = 3000 };
	static long pos[N + 3];
	static char name[N + 2][256];
	uint64_t rnd = 5;
	struct dirent *de;
	unsigned n = 0;
	DIR *d;

	(void)state;
	many_files(N);
	d = opendir(root);
	for (pos[0] = telldir(d); (de = readdir(d)); pos[n] = telldir(d)) {
		snprintf(name[n++], sizeof(name[0]), "%s", de->d_name);
		assert_true(n <= N + 2);
		if (n == N + 2)
			break;
	}
	assert_int_equal(n, N + 2);
	for (int i = 0; i < 300; i++) {
		unsigned at = (unsigned)fx_below(&rnd, N + 1);

		seekdir(d, pos[at]);
		for (unsigned k = at; k < at + 3 && k < N + 2; k++) {
			de = readdir(d);
			assert_non_null(de);
			assert_string_equal(de->d_name, name[k]);
		}
	}
	/* from another open file too: positions are hashes, not of one stream */
	DIR *other = opendir(root);

	seekdir(other, pos[N / 2]);
	de = readdir(other);
	assert_string_equal(de->d_name, name[N / 2]);
	closedir(other);
	closedir(d);
}

/* Eight names to a hash, at both ends of the range too. */
static uint64_t few_hashes(const char *name, size_t n)
{
	uint64_t k = 0;

	for (size_t i = 0; i < n; i++)
		k = k * 10 + (uint64_t)(name[i] - '0');
	k /= 8;
	return k == 0 ? 3 : k == 1 ? (UINT64_C(1) << 63) - 1 : 3 + k * 1000;
}

struct linux_dirent64 {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

/* Reads with a buffer that ends anywhere, going on at the last entry's own position each time from a fresh
 * open, as nothing of the stream but its position would do. Duplicates may come, losses not. */
static void read_by_position(size_t size, uint8_t *seen)
{
	char buf[4096];
	int64_t pos = 0;
	long n;

	do {
		ntr_autoclose int fd = open(root, O_RDONLY | O_DIRECTORY);

		assert_true(fd >= 0);
		assert_true(lseek(fd, pos, SEEK_SET) == pos);
		n = syscall(SYS_getdents64, fd, buf, size);
		assert_true(n >= 0);
		for (long at = 0; at < n;) {
			struct linux_dirent64 *d = (void *)(buf + at);

			if (d->name[0] != '.')
				seen[atoi(d->name)] = 1;
			pos = d->off;
			at += d->len;
		}
	} while (n > 0);
}

static void test_equal_hashes(void **state)
{
	enum { N = 400 };
	uint8_t seen[N] = {0};
	struct stat st;
	char path[500];
	DIR *d;

	(void)state;
	ntr_dirent_hash_hook = few_hashes;
	many_files(N);
	d = opendir(root);
	assert_int_equal(mark_all(d, seen), N);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(seen[i], 1);
	closedir(d);
	for (size_t size = 300; size < 600; size += 24) {
		memset(seen, 0, sizeof(seen));
		read_by_position(size, seen);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(seen[i], 1);
	}
	for (unsigned i = 0; i < N; i += 7) {
		snprintf(path, sizeof(path), "%s/%u", root, i);
		assert_int_equal(stat(path, &st), 0);
	}
}

/* Every reference that listings and look-ups took is given back. */
static void test_references(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	many_files(5000);
	for (int round = 0; round < 2; round++) {
		char cmd[500];
		bool all = false;

		snprintf(cmd, sizeof(cmd), "ls -l '%s' | wc -l >/dev/null", root);
		for (int i = 0; i < 100 && !all; i++) { /* somebody may have dropped some just now */
			usleep(i ? 200000 : 0);
			assert_int_equal(system(cmd), 0);
			all = vfx_inodes(&f) >= 5000;
		}
		assert_true(all);
		for (int i = 0; i < 50 && vfx_inodes(&f) > 2; i++) {
			ntr_autoclose int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

			assert_int_equal(write(fd, "2", 1), 1);
			usleep(20000);
		}
		assert_true(vfx_inodes(&f) <= 2);
	}
}

static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_seek, setup, teardown),
        cmocka_unit_test_setup_teardown(test_equal_hashes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_references, setup, teardown),
};

int main(void)
{
	int failed;

	if (geteuid() != 0 && access("/dev/fuse", R_OK | W_OK) < 0) {
		print_message("skipped: /dev/fuse cannot be opened\n");
		return 0;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (vfx_enable_uring()) {
		print_message("over io_uring\n");
		f.want = NTR_TRANSPORT_URING;
		failed += cmocka_run_group_tests(tests, NULL, NULL);
	}
	return failed;
}
