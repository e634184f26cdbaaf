/* Content of files: every way in, every way out, holes, and changes from each kind of file to each other. */
#include "store_fixture.h"

#include "fs/file_impl.h"

#include <errno.h>

#define MIB (UINT64_C(1) << 20)

static struct fixture fx;
static uint8_t *noise; /* NOISE bytes */
enum { NOISE = (4 << 20) + 70000 };
static const size_t sizes[] = {0, 1, 511, 512, 513, 4095, 4096, 65535, 65536, 65537, 131072, 1 << 20,
        (1 << 20) + 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, NOISE};

static int setup(void **state)
{
	uint64_t rnd = 4711;
	(void)state;

	memset(&fx, 0, sizeof fx);
	fx_setup(&fx);
	fx_session(&fx, "s");
	noise = malloc(NOISE);
	assert_non_null(noise);
	fx_fill(&rnd, noise, NOISE);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(noise);
	fx_teardown(&fx);
	return 0;
}

static int temp_file(void)
{
	int fd = open(fx.dir, O_TMPFILE | O_RDWR, 0600);

	assert_true(fd >= 0);
	return fd;
}

static int file_with(const uint8_t *data, size_t n)
{
	int fd = temp_file();

	assert_int_equal(ntr_write_all(fd, data, n), 0);
	return fd;
}

static void load_and_attach(struct ntr_txn *t, struct ntr_inode *in, int fd, uint64_t size)
{
	struct ntr_file_loaded *l;
	bool is_short;

	assert_int_equal(ntr_file_load(ntr_txn_chunks(t), fd, size, &l), 0);
	assert_int_equal(ntr_file_attach(t, in, l, &is_short), 0);
	assert_false(is_short);
	ntr_file_loaded_free(l);
	assert_int_equal(ntr_inode_put(t, in), 0);
}

static void new_file(struct ntr_txn *t, struct ntr_inode *in)
{
	assert_int_equal(ntr_inode_new(t, S_IFREG | 0600, in), 0);
}

static void take_fd(struct ntr_txn *t, struct ntr_inode *in, int fd, uint64_t size, bool want_short)
{
	bool is_short;

	assert_int_equal(ntr_file_take_fd(t, in, fd, size, &is_short), 0);
	assert_int_equal(is_short, want_short);
	assert_int_equal(ntr_inode_put(t, in), 0);
}

static void check_content(const struct ntr_snap *s, const struct ntr_inode *in, const uint8_t *want, size_t n)
{
	ntr_autofree uint8_t *got = malloc(n + 1);
	uint64_t rnd = n + 1;

	assert_non_null(got);
	assert_true(in->size == n);
	assert_true(ntr_file_read(s, in, 0, got, n + 1) == (ssize_t)n);
	if (n)
		assert_memory_equal(got, want, n);
	assert_true(ntr_file_read(s, in, n, got, 1) == 0);
	for (int i = 0; n && i < 20; i++) {
		size_t off = fx_below(&rnd, n), len = 1 + fx_below(&rnd, NTR_MIN(n, (size_t)200000));
		size_t expect = NTR_MIN(len, n - off);

		assert_true(ntr_file_read(s, in, off, got, len) == (ssize_t)expect);
		assert_memory_equal(got, want + off, expect);
	}
}

static void check_fd(int fd, const uint8_t *want, size_t n)
{
	ntr_autofree uint8_t *got = malloc(n + 1);

	assert_non_null(got);
	assert_true(pread(fd, got, n + 1, 0) == (ssize_t)n);
	if (n)
		assert_memory_equal(got, want, n);
}

static unsigned groups_of(const struct ntr_snap *s, const struct ntr_inode *in)
{
	return fx_items(s, in->ino, NTR_ITEM_EXTENT);
}

static void check_kind(const struct ntr_snap *s, const struct ntr_inode *in, size_t n)
{
	unsigned kind = !n                    ? NTR_DATA_NONE
	                : n <= 512            ? NTR_DATA_INLINE
	                : n <= NTR_CHUNK_SIZE ? NTR_DATA_CHUNK
	                                      : NTR_DATA_EXTENTS;

	assert_int_equal(in->data_kind, kind);
	assert_int_equal(groups_of(s, in), kind == NTR_DATA_EXTENTS ? (n + 4 * MIB - 1) / (4 * MIB) : 0);
	assert_true(in->blocks == (n + 4095) / 4096 * 8);
}

static void sink_in_pieces(
        struct ntr_txn *t, struct ntr_inode *in, const uint8_t *data, size_t n, uint64_t *rnd)
{
	struct ntr_file_sink *k;
	size_t max = fx_below(rnd, 2) ? 3000 : 300000;

	assert_int_equal(ntr_file_sink_new(t, in, &k), 0);
	for (size_t off = 0; off < n;) {
		size_t len = NTR_MIN(n - off, 1 + (size_t)fx_below(rnd, max));

		assert_int_equal(ntr_file_sink_write(k, off, data + off, len), 0);
		off += len;
	}
	assert_int_equal(ntr_file_sink_end(k, n), 0);
}

static void boundary_sizes(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	struct ntr_inode in[4][NTR_COUNT(sizes)];
	uint64_t rnd = 1;
	struct ntr_snap s;
	(void)state;

	for (size_t i = 0; i < NTR_COUNT(sizes); i++) {
		size_t n = sizes[i];
		ntr_autoclose int fd = file_with(noise, n);

		for (int way = 0; way < 4; way++) {
			struct ntr_inode *f = &in[way][i];
			char name[32];

			new_file(t, f);
			if (way == 0)
				take_fd(t, f, fd, n, false);
			else if (way == 1)
				assert_int_equal(ntr_file_take_mem(t, f, noise, n), 0);
			else if (way == 2)
				load_and_attach(t, f, fd, n);
			else
				sink_in_pieces(t, f, noise, n, &rnd);
			snprintf(name, sizeof name, "%d-%zu", way, n);
			assert_int_equal(ntr_name_create(t, NTR_INO_ROOT, name, f, NULL), 0);
			check_content(ntr_txn_snap(t), f, noise, n);
			check_kind(ntr_txn_snap(t), f, n);
		}
	}
	fx_commit(&fx, t);
	fx_reopen(&fx);
	s = ntr_snap_root(fx.st, fx.head.root);
	for (size_t i = 0; i < NTR_COUNT(sizes); i++)
		for (int way = 0; way < 4; way++) {
			struct ntr_inode f;
			ntr_autoclose int fd = temp_file();

			assert_int_equal(ntr_inode_get(&s, in[way][i].ino, &f), 0);
			check_content(&s, &f, noise, sizes[i]);
			check_kind(&s, &f, sizes[i]);
			assert_int_equal(ntr_write_all(fd, "something older", 15), 0);
			assert_int_equal(ntr_file_to_fd(&s, &f, fd), 0);
			check_fd(fd, noise, sizes[i]);
			assert_true(!i || f.chunk == in[0][i].chunk); /* four copies, one chunk */
		}
}

static void every_kind_to_every_other(void **state)
{
	static const size_t some[] = {0, 1, 512, 513, 65536, 65537, (4 << 20) + 1};
	(void)state;

	for (size_t a = 0; a < NTR_COUNT(some); a++)
		for (size_t b = 0; b < NTR_COUNT(some); b++) {
			struct ntr_txn *t = fx_begin(&fx);
			struct ntr_inode in;
			char name[32];

			new_file(t, &in);
			assert_int_equal(ntr_file_take_mem(t, &in, noise, some[a]), 0);
			snprintf(name, sizeof name, "%zu-%zu", a, b);
			assert_int_equal(ntr_name_create(t, NTR_INO_ROOT, name, &in, NULL), 0);
			if (a % 2) { /* over a committed file, or one of the same transaction */
				fx_commit(&fx, t);
				t = fx_begin(&fx);
			}
			assert_int_equal(ntr_inode_get(ntr_txn_snap(t), in.ino, &in), 0);
			assert_int_equal(ntr_file_take_mem(t, &in, noise + 7, some[b]), 0);
			assert_int_equal(ntr_inode_put(t, &in), 0);
			check_content(ntr_txn_snap(t), &in, noise + 7, some[b]);
			check_kind(ntr_txn_snap(t), &in, some[b]);
			ntr_txn_abort(t);
		}
}

static void small_edit_of_a_large_file(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	ntr_autoclose int fd = temp_file();
	struct ntr_inode in;
	uint8_t byte = 'x';
	uint64_t size = 0;
	(void)state;

	for (int i = 0; i < 8; i++, size += NOISE - 8)
		assert_int_equal(ntr_write_all(fd, noise + i, NOISE - 8), 0);
	new_file(t, &in);
	take_fd(t, &in, fd, size + NOISE, true); /* the tail that is missing */
	take_fd(t, &in, fd, size, false);
	assert_int_equal(ntr_name_create(t, NTR_INO_ROOT, "big", &in, NULL), 0);
	fx_commit(&fx, t);

	t = fx_begin(&fx);
	assert_true(pwrite(fd, &byte, 1, (off_t)size / 2) == 1);
	take_fd(t, &in, fd, size, false);
	assert_true(ntr_chunk_writer_bytes(ntr_txn_chunks(t)) <= NTR_CHUNK_SIZE);
	fx_commit(&fx, t);

	t = fx_begin(&fx);
	assert_int_equal(ftruncate(fd, (off_t)size - 1), 0);
	take_fd(t, &in, fd, size - 1, false);
	assert_true(ntr_chunk_writer_bytes(ntr_txn_chunks(t)) <= NTR_CHUNK_SIZE);
	take_fd(t, &in, fd, 100, false);
	assert_int_equal(groups_of(ntr_txn_snap(t), &in), 0);
	ntr_txn_abort(t);
}

/* Data ranges of a file as the tree tells them, in chunks: "1-2 64-65 …". */
static void ranges(const struct ntr_snap *s, const struct ntr_inode *in, char *buf, size_t size)
{
	uint64_t off = 0, data, hole;
	size_t n = 0;
	int r;

	buf[0] = '\0';
	while (off < in->size && !(r = ntr_file_seek(s, in, off, SEEK_DATA, &data))) {
		assert_int_equal(ntr_file_seek(s, in, data, SEEK_HOLE, &hole), 0);
		n += (size_t)snprintf(buf + n, size - n, "%s%ju-%ju", n ? " " : "", (uintmax_t)data >> 16,
		        ((uintmax_t)hole + 65535) >> 16);
		off = hole;
	}
	assert_true(off >= in->size || r == -ENXIO);
}

static void write_chunk(int fd, uint64_t index)
{
	assert_true(pwrite(fd, noise, NTR_CHUNK_SIZE, (off_t)(index * NTR_CHUNK_SIZE)) == NTR_CHUNK_SIZE);
}

static void fd_ranges(int fd, char *buf, size_t size)
{
	off_t off = 0;
	size_t n = 0;

	buf[0] = '\0';
	while ((off = lseek(fd, off, SEEK_DATA)) >= 0) {
		off_t hole = lseek(fd, off, SEEK_HOLE);

		n += (size_t)snprintf(buf + n, size - n, "%s%jd-%jd", n ? " " : "", (intmax_t)off >> 16,
		        ((intmax_t)hole + 65535) >> 16);
		off = hole;
	}
}

static void sparse_files(void **state)
{
	static const uint64_t at[] = {1, 2, 63, 64, 128, 300, 64 * 1000};
	struct ntr_txn *t = fx_begin(&fx);
	ntr_autoclose int fd = temp_file(), out = temp_file();
	const uint64_t size = 64 * 2000 * 65536ULL + 5;
	struct ntr_inode in;
	char a[256], b[256];
	uint64_t off;
	uint8_t buf[16];
	(void)state;

	for (size_t i = 0; i < NTR_COUNT(at); i++)
		write_chunk(fd, at[i]);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	fd_ranges(fd, b, sizeof b);
	assert_string_equal(
	        b, "1-3 63-65 128-129 300-301 64000-64001"); /* else the file system has no holes */
	new_file(t, &in);
	take_fd(t, &in, fd, size, false);
	assert_int_equal(ntr_name_create(t, NTR_INO_ROOT, "sparse", &in, NULL), 0);
	assert_true(in.blocks == NTR_COUNT(at) * 128);
	assert_int_equal(groups_of(ntr_txn_snap(t), &in), 5);
	ranges(ntr_txn_snap(t), &in, a, sizeof a);
	assert_string_equal(a, b);
	fx_commit(&fx, t);

	t = fx_begin(&fx);
	ranges(ntr_txn_snap(t), &in, a, sizeof a);
	assert_string_equal(a, b);
	assert_true(ntr_file_read(ntr_txn_snap(t), &in, size - 7, buf, sizeof buf) == 7);
	assert_memory_equal(buf, "\0\0\0\0\0\0\0", 7);
	assert_int_equal(ntr_file_seek(ntr_txn_snap(t), &in, 65536 + 9, SEEK_DATA, &off), 0);
	assert_true(off == 65536 + 9);
	assert_int_equal(ntr_file_seek(ntr_txn_snap(t), &in, 9, SEEK_HOLE, &off), 0);
	assert_true(off == 9);
	assert_int_equal(ntr_file_seek(ntr_txn_snap(t), &in, size, SEEK_HOLE, &off), -ENXIO);
	assert_int_equal(ntr_file_seek(ntr_txn_snap(t), &in, 0, SEEK_SET, &off), -EINVAL);
	assert_int_equal(ntr_file_to_fd(ntr_txn_snap(t), &in, out), 0);
	fd_ranges(out, a, sizeof a);
	assert_string_equal(a, b);

	load_and_attach(t, &in, fd, size);
	ranges(ntr_txn_snap(t), &in, a, sizeof a);
	assert_string_equal(a, b);

	/* The middle becomes a hole, a group's only chunk too; the last group gets a neighbour. */
	assert_int_equal(
	        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 64 * 65536, 300 * 65536), 0);
	write_chunk(fd, 64 * 1000 + 1);
	take_fd(t, &in, fd, size, false);
	ranges(ntr_txn_snap(t), &in, a, sizeof a);
	assert_string_equal(a, "1-3 63-64 64000-64002");
	assert_int_equal(groups_of(ntr_txn_snap(t), &in), 2);
	ntr_txn_abort(t);
}

static void only_holes(void **state)
{
	static const uint64_t lens[] = {1, 512, 513, 65536, 65537, UINT64_C(1) << 40};
	struct ntr_txn *t = fx_begin(&fx);
	(void)state;

	for (size_t i = 0; i < NTR_COUNT(lens); i++) {
		ntr_autoclose int fd = temp_file();
		struct ntr_inode in;
		uint64_t off;
		uint8_t byte = 1;

		assert_int_equal(ftruncate(fd, (off_t)lens[i]), 0);
		new_file(t, &in);
		take_fd(t, &in, fd, lens[i], false);
		if (i % 2)
			load_and_attach(t, &in, fd, lens[i]);
		assert_true(in.size == lens[i] && in.blocks == 0 && in.data_kind == NTR_DATA_EXTENTS);
		assert_int_equal(groups_of(ntr_txn_snap(t), &in), 0);
		assert_int_equal(ntr_file_seek(ntr_txn_snap(t), &in, 0, SEEK_DATA, &off), -ENXIO);
		assert_int_equal(ntr_file_seek(ntr_txn_snap(t), &in, 0, SEEK_HOLE, &off), 0);
		assert_true(off == 0);
		assert_true(ntr_file_read(ntr_txn_snap(t), &in, lens[i] - 1, &byte, 1) == 1);
		assert_int_equal(byte, 0);
	}
	ntr_txn_abort(t);
}

/* Written zeros are data, whatever their length. */
static void zeros_are_data(void **state)
{
	static const size_t lens[] = {1, 600, 65536, 200000};
	struct ntr_txn *t = fx_begin(&fx);
	uint8_t *zeros = calloc(1, 200000);
	(void)state;

	assert_non_null(zeros);
	for (size_t i = 0; i < NTR_COUNT(lens); i++) {
		ntr_autoclose int fd = file_with(zeros, lens[i]);
		struct ntr_inode in;
		uint64_t off;

		new_file(t, &in);
		assert_int_equal(fsync(fd), 0);
		take_fd(t, &in, fd, lens[i], false);
		assert_true(in.blocks > 0);
		assert_int_equal(ntr_file_seek(ntr_txn_snap(t), &in, 0, SEEK_HOLE, &off), 0);
		assert_true(off == lens[i]);
		check_content(ntr_txn_snap(t), &in, zeros, lens[i]);
	}
	free(zeros);
	ntr_txn_abort(t);
}

static void a_file_that_shrinks(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	ntr_autoclose int fd = file_with(noise, 70000);
	uint8_t *want = calloc(1, 3 << 20);
	struct ntr_inode in;
	(void)state;

	assert_non_null(want);
	memcpy(want, noise, 70000);
	new_file(t, &in);
	take_fd(t, &in, fd, 3 << 20, true);
	check_content(ntr_txn_snap(t), &in, want, 3 << 20);
	take_fd(t, &in, fd, 70001, true);
	check_content(ntr_txn_snap(t), &in, want, 70001);
	assert_int_equal(ftruncate(fd, 10), 0);
	memset(want + 10, 0, 70000);
	take_fd(t, &in, fd, 600, true);
	check_content(ntr_txn_snap(t), &in, want, 600);
	free(want);
	ntr_txn_abort(t);
}

static void sink_holes_and_mistakes(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	ntr_autofree uint8_t *want = calloc(1, 10 * MIB);
	struct ntr_file_sink *k;
	struct ntr_inode in;
	char text[128];
	(void)state;

	assert_non_null(want);
	new_file(t, &in);
	assert_int_equal(ntr_file_sink_new(t, &in, &k), 0);
	for (uint64_t off = 100; off < 9 * MIB; off += 3 * MIB + 17) {
		memcpy(want + off, noise, 70000);
		assert_int_equal(ntr_file_sink_write(k, off, noise, 70000), 0);
	}
	assert_int_equal(ntr_file_sink_end(k, 10 * MIB), 0);
	assert_int_equal(ntr_inode_put(t, &in), 0);
	check_content(ntr_txn_snap(t), &in, want, 10 * MIB);
	ranges(ntr_txn_snap(t), &in, text, sizeof text);
	assert_string_equal(text, "0-2 48-50 96-98");

	assert_int_equal(ntr_file_sink_new(t, &in, &k), 0);
	assert_int_equal(ntr_file_sink_write(k, 10, "abc", 3), 0);
	assert_int_equal(ntr_file_sink_write(k, 12, "abc", 3), -EINVAL);
	assert_int_equal(ntr_file_sink_write(k, NTR_FILE_MAX - 1, "abc", 3), -EFBIG);
	assert_int_equal(ntr_file_sink_end(k, 12), -EINVAL);
	assert_int_equal(ntr_file_sink_new(t, &in, &k), 0);
	assert_int_equal(ntr_file_sink_end(k, NTR_FILE_MAX + 1), -EFBIG);
	assert_int_equal(ntr_file_sink_new(t, &in, &k), 0);
	assert_int_equal(ntr_file_sink_write(k, 0, noise, 100000), 0);
	ntr_file_sink_abort(k);
	assert_int_equal(ntr_file_sink_new(t, &in, &k), 0);
	assert_int_equal(ntr_file_sink_end(k, NTR_FILE_MAX), 0);
	assert_true(in.size == NTR_FILE_MAX && !groups_of(ntr_txn_snap(t), &in));
	ntr_txn_abort(t);
}

static void to_a_pipe(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	ntr_autofree uint8_t *want = calloc(1, 40000), *got = malloc(40001);
	struct ntr_file_sink *k;
	struct ntr_inode in;
	int p[2];
	(void)state;

	assert_true(want && got && !pipe(p));
	memcpy(want + 700, noise, 10000);
	new_file(t, &in);
	assert_int_equal(ntr_file_sink_new(t, &in, &k), 0);
	assert_int_equal(ntr_file_sink_write(k, 700, noise, 10000), 0);
	assert_int_equal(ntr_file_sink_end(k, 40000), 0);
	assert_int_equal(ntr_file_to_fd(ntr_txn_snap(t), &in, p[1]), 0);
	close(p[1]);
	assert_int_equal(ntr_read_exact(p[0], got, 40000), 0);
	assert_true(read(p[0], got + 40000, 1) == 0);
	assert_memory_equal(got, want, 40000);
	close(p[0]);
	ntr_txn_abort(t);
}

static void damage_is_told(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	struct ntr_inode in;
	uint8_t buf[700], key[NTR_KEY_MAX];
	uint64_t off;
	(void)state;

	new_file(t, &in);
	in.data_kind = NTR_DATA_CHUNK;
	in.chunk = UINT64_C(1) << 50;
	in.size = 700;
	assert_true(ntr_file_read(ntr_txn_snap(t), &in, 0, buf, 700) == -EUCLEAN);
	assert_int_equal(ntr_file_take_mem(t, &in, noise, 700), 0);
	in.size = 699; /* the chunk has another length */
	assert_true(ntr_file_read(ntr_txn_snap(t), &in, 0, buf, 700) == -EUCLEAN);
	in.data_kind = NTR_DATA_EXTENTS;
	in.size = 200000;
	assert_int_equal(
	        ntr_txn_put(t, key, ntr_item_key64(key, in.ino, NTR_ITEM_EXTENT, 0, NULL, 0), "\1xx", 3), 0);
	assert_true(ntr_file_read(ntr_txn_snap(t), &in, 0, buf, 700) == -EUCLEAN);
	assert_int_equal(ntr_file_seek(ntr_txn_snap(t), &in, 0, SEEK_DATA, &off), -EUCLEAN);
	ntr_txn_abort(t);
}

int main(void)
{
#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	        WITH(boundary_sizes),
	        WITH(every_kind_to_every_other),
	        WITH(small_edit_of_a_large_file),
	        WITH(sparse_files),
	        WITH(only_holes),
	        WITH(zeros_are_data),
	        WITH(a_file_that_shrinks),
	        WITH(sink_holes_and_mistakes),
	        WITH(to_a_pipe),
	        WITH(damage_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
