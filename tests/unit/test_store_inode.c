/* Records, entries, attributes, links and key-value items. */
#include "store_fixture.h"

#include "fs/inode_impl.h"

#include <dirent.h>
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
	ntr_dirent_hash_hook = NULL;
	fx_teardown(&fx);
	return 0;
}

/* A record of every shape, from a number. */
static void make_record(uint64_t *rnd, struct ntr_inode *in)
{
	static const uint32_t types[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK};

	memset(in, 0, sizeof *in);
	in->ino = 1 + fx_rand(rnd);
	in->version = fx_rand(rnd) >> fx_below(rnd, 64);
	in->flags = (uint32_t)fx_below(rnd, 8);
	in->tag = (uint32_t)fx_rand(rnd);
	in->mode = types[fx_below(rnd, 7)] | (uint32_t)fx_below(rnd, 010000);
	in->uid = fx_below(rnd, 2) ? NTR_OWNER_ID : (uint32_t)fx_rand(rnd);
	in->gid = fx_below(rnd, 2) ? UINT32_MAX : (uint32_t)fx_below(rnd, 3);
	in->nlink = (uint32_t)(fx_rand(rnd) >> (32 + fx_below(rnd, 32)));
	in->mtime = (struct timespec){(time_t)fx_rand(rnd), (long)fx_below(rnd, 1000000000)};
	in->atime = fx_below(rnd, 2) ? in->mtime : (struct timespec){INT64_MIN, 999999999};
	in->ctime = fx_below(rnd, 2) ? in->mtime : (struct timespec){INT64_MAX, 0};
	in->btime = fx_below(rnd, 2) ? in->mtime : (struct timespec){0, 1};
	in->parent = fx_rand(rnd);
	in->name_len = (uint8_t)fx_below(rnd, 256);
	for (unsigned i = 0; i < in->name_len; i++)
		in->name[i] = (char)(128 + fx_below(rnd, 128));
	if (S_ISCHR(in->mode) || S_ISBLK(in->mode))
		in->rdev = fx_rand(rnd) >> fx_below(rnd, 64);
	in->data_kind = S_ISLNK(in->mode) ? NTR_DATA_SYMLINK : NTR_DATA_NONE;
	if (S_ISREG(in->mode))
		in->data_kind = (uint8_t)fx_below(rnd, 4);
	if (in->data_kind == NTR_DATA_INLINE)
		in->payload_len = (uint16_t)(1 + fx_below(rnd, 512));
	if (in->data_kind == NTR_DATA_SYMLINK)
		in->payload_len = (uint16_t)(1 + fx_below(rnd, 4095));
	in->size = in->payload_len;
	fx_fill(rnd, in->payload, in->payload_len);
	if (in->data_kind == NTR_DATA_CHUNK) {
		in->size = 1 + fx_below(rnd, 65536);
		in->chunk = fx_rand(rnd) | 1;
	}
	if (in->data_kind == NTR_DATA_EXTENTS)
		in->size = 1 + fx_below(rnd, UINT64_C(1) << 53);
	in->blocks = fx_below(rnd, 2) ? (in->size + 4095) / 4096 * 8 : fx_rand(rnd);
}

static void assert_same_time(struct timespec a, struct timespec b)
{
	assert_true(a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec);
}

static void assert_same_record(const struct ntr_inode *a, const struct ntr_inode *b)
{
	assert_true(a->ino == b->ino && a->version == b->version && a->flags == b->flags && a->tag == b->tag);
	assert_true(a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->nlink == b->nlink);
	assert_true(a->rdev == b->rdev && a->size == b->size && a->blocks == b->blocks);
	assert_same_time(a->atime, b->atime);
	assert_same_time(a->mtime, b->mtime);
	assert_same_time(a->ctime, b->ctime);
	assert_same_time(a->btime, b->btime);
	assert_true(a->parent == b->parent && a->data_kind == b->data_kind && a->chunk == b->chunk);
	assert_int_equal(a->name_len, b->name_len);
	assert_memory_equal(a->name, b->name, a->name_len + 1u);
	assert_int_equal(a->payload_len, b->payload_len);
	if (a->payload_len)
		assert_memory_equal(a->payload, b->payload, a->payload_len);
}

static void codec_round_trip(void **state)
{
	uint64_t rnd = 20240601;
	(void)state;

	for (int i = 0; i < 20000; i++) {
		static struct ntr_inode a, b;
		uint8_t val[NTR_VALUE_MAX];
		size_t len;

		make_record(&rnd, &a);
		memset(&b, 0xa5, sizeof b);
		assert_int_equal(ntr_inode_encode(&a, val, &len), 0);
		assert_true(len <= NTR_VALUE_MAX);
		assert_int_equal(ntr_inode_decode(a.ino, val, len, &b), 0);
		assert_same_record(&a, &b);
	}
}

/* An ordinary file's record without its name: what every file of a tree costs. */
static void codec_is_compact(void **state)
{
	struct ntr_inode in;
	uint8_t val[NTR_VALUE_MAX];
	size_t len;
	(void)state;

	memset(&in, 0, sizeof in);
	in = (struct ntr_inode){.ino = 70000,
	        .version = 70000,
	        .tag = 1,
	        .mode = S_IFREG | 0644,
	        .uid = NTR_OWNER_ID,
	        .gid = NTR_OWNER_ID,
	        .nlink = 1,
	        .size = 12000,
	        .blocks = 24,
	        .parent = 69000,
	        .data_kind = NTR_DATA_CHUNK,
	        .chunk = 5};
	in.mtime = (struct timespec){1700000000, 123456789};
	in.atime = in.ctime = in.btime = (struct timespec){1700000100, 987654321};
	assert_int_equal(ntr_inode_encode(&in, val, &len), 0);
	assert_true(len <= 64);
}

/* Exact-size heap copies, so that a sanitizer sees every byte read behind the end. */
static int decode_copy(const uint8_t *val, size_t len, struct ntr_inode *out)
{
	uint8_t *copy = malloc(len ? len : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, val, len);
	r = ntr_inode_decode(7, copy, len, out);
	free(copy);
	return r;
}

static void check_damaged(const uint8_t *val, size_t len)
{
	static struct ntr_inode in, again;
	uint8_t val2[NTR_VALUE_MAX];
	size_t len2;
	int r = decode_copy(val, len, &in);

	assert_true(!r || r == -EUCLEAN);
	if (r)
		return;
	assert_int_equal(ntr_inode_encode(&in, val2, &len2), 0);
	assert_int_equal(ntr_inode_decode(7, val2, len2, &again), 0);
	assert_same_record(&in, &again);
}

static void codec_refuses_damage(void **state)
{
	uint64_t rnd = 77;
	unsigned refused = 0;
	(void)state;

	for (int i = 0; i < 150; i++) {
		static struct ntr_inode in, out;
		uint8_t val[NTR_VALUE_MAX + 1];
		size_t len;

		make_record(&rnd, &in);
		assert_int_equal(ntr_inode_encode(&in, val, &len), 0);
		for (size_t n = 0; n < NTR_MIN(len, (size_t)700); n++)
			check_damaged(val, n);
		for (size_t at = 0; at < NTR_MIN(len, (size_t)400); at++) {
			uint8_t old = val[at];

			for (unsigned x = 1; x < 256; x += 1 + (unsigned)fx_below(&rnd, 16)) {
				val[at] = old ^ (uint8_t)x;
				check_damaged(val, len);
			}
			val[at] = old;
		}
		val[len] = 'x'; /* one byte too many is damage wherever the length is known */
		if (decode_copy(val, len + 1, &out) == -EUCLEAN)
			refused++;
	}
	assert_true(refused > 100);
}

static void codec_refuses_nonsense(void **state)
{
	uint8_t val[NTR_VALUE_MAX];
	struct ntr_inode good, in;
	size_t len;
	(void)state;

	memset(&good, 0, sizeof good);
	good.mode = S_IFREG | 0644;
	assert_int_equal(ntr_inode_encode(&good, val, &len), 0);
#define REFUSED(field, value)                                                \
	do {                                                                 \
		in = good;                                                   \
		in.field = value;                                            \
		assert_int_equal(ntr_inode_encode(&in, val, &len), -EINVAL); \
	} while (0)
	REFUSED(mode, 0644);
	REFUSED(mode, S_IFREG | 0x10000);
	REFUSED(mode, S_IFLNK | 0777);
	REFUSED(flags, 0x80000000);
	REFUSED(size, 1);
	REFUSED(data_kind, NTR_DATA_INLINE);
	REFUSED(data_kind, NTR_DATA_CHUNK);
	REFUSED(data_kind, NTR_DATA_EXTENTS);
	REFUSED(data_kind, NTR_DATA_SYMLINK);
	REFUSED(data_kind, 7);
	REFUSED(mtime.tv_nsec, 1000000000);
	REFUSED(atime.tv_nsec, -1);
	in = good;
	in.name_len = 3;
	memcpy(in.name, "a/b", 4);
	assert_int_equal(ntr_inode_encode(&in, val, &len), -EINVAL);
	in = good;
	in.data_kind = NTR_DATA_EXTENTS;
	in.size = (UINT64_C(1) << 53) + 1;
	assert_int_equal(ntr_inode_encode(&in, val, &len), -EINVAL);
}

static void record_get_put(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	struct ntr_inode in, out;
	uint64_t first, version;
	struct stat st;
	(void)state;

	assert_int_equal(ntr_inode_new(t, S_IFREG | 0600, &in), 0);
	first = in.ino;
	assert_true(first >= NTR_INO_FIRST);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), in.ino, &out), -ENOENT);
	assert_int_equal(ntr_inode_put(t, &in), 0);
	assert_int_equal(ntr_txn_version(t, &version), 0);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), in.ino, &out), 0);
	assert_same_record(&in, &out);
	assert_true(out.version == version);
	ntr_inode_stat(fx.st, &out, &st);
	assert_true(st.st_ino == first && st.st_mode == (S_IFREG | 0600) && st.st_uid == geteuid());
	assert_int_equal(ntr_inode_new(t, S_IFREG | 0600, &in), 0);
	assert_true(in.ino != first);
	assert_int_equal(ntr_inode_erase(t, first), 0);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), first, &out), -ENOENT);
	ntr_txn_abort(t);
}

static void hashes(void **state)
{
	struct ntr_snap s = ntr_snap_root(fx.st, fx.head.root), s2;
	struct ntr_err e = {0};
	struct ntr_head other;
	struct ntr_txn *t;
	uint64_t a, b, c, again;
	(void)state;

	assert_int_equal(ntr_dirent_hash(&s, "name", 4, &a), 0);
	assert_true(a >= 3 && a <= INT64_MAX);
	assert_int_equal(ntr_dirent_hash(&s, "nami", 4, &b), 0);
	assert_true(a != b);
	if (ntr_session_new(fx.st, "other", NULL, NULL, &other, &e))
		fx_fail("session", &e);
	s2 = ntr_snap_root(fx.st, other.root);
	assert_int_equal(ntr_dirent_hash(&s2, "name", 4, &c), 0);
	assert_true(a != c); /* another tree, another seed */
	t = fx_begin(&fx);
	assert_int_equal(ntr_dirent_hash(ntr_txn_snap(t), "name", 4, &again), 0);
	assert_true(a == again);
	assert_int_equal(ntr_kvitem_set(t, "s:seed", "12345678", 8), -EPERM);
	assert_int_equal(ntr_kvitem_set(t, "s:seed", NULL, 0), -EPERM);
	ntr_txn_abort(t);
	assert_int_equal(ntr_txn_begin(fx.st, 0, &t), 0);
	assert_int_equal(ntr_kvitem_set(t, "s:seed", "1234567", 7), -EINVAL);
	assert_int_equal(ntr_kvitem_set(t, "s:seed", "12345678", 8), 0);
	assert_int_equal(ntr_dirent_hash(ntr_txn_snap(t), "name", 4, &a), 0);
	assert_int_equal(ntr_kvitem_set(t, "s:seed", "12345679", 8), 0);
	assert_int_equal(ntr_dirent_hash(ntr_txn_snap(t), "name", 4, &b), 0);
	assert_true(a != b);
	ntr_txn_abort(t);
}

/* Stores opened one after the other, perhaps at one address, never see each other's seeds. */
static void hash_cache_is_per_opening(void **state)
{
	uint64_t before[3], after;
	struct ntr_snap s;
	(void)state;

	for (int i = 0; i < 3; i++) {
		struct fixture f = {0};

		fx_setup(&f);
		fx_session(&f, "s");
		s = ntr_snap_root(f.st, f.head.root);
		assert_int_equal(ntr_dirent_hash(&s, "n", 1, &before[i]), 0);
		fx_reopen(&f);
		s = ntr_snap_root(f.st, f.head.root);
		assert_int_equal(ntr_dirent_hash(&s, "n", 1, &after), 0);
		assert_true(before[i] == after);
		fx_teardown(&f);
	}
	assert_true(before[0] != before[1] && before[1] != before[2]);
}

static uint64_t equal_hash(const char *name, size_t n)
{
	return n && name[0] == 'z' ? 9 : 5;
}

static void equal_hashes(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	const struct ntr_snap *s = ntr_txn_snap(t);
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	uint64_t ino;
	uint8_t dtype;
	int n = 0;
	(void)state;

	ntr_dirent_hash_hook = equal_hash;
	for (int i = 0; i < 100; i++) {
		char name[8];

		snprintf(name, sizeof name, "%c%02d", i % 2 ? 'z' : 'a', i);
		assert_int_equal(ntr_dirent_put(t, 500, name, 3, (uint64_t)(1000 + i), DT_REG), 0);
	}
	assert_int_equal(ntr_dirent_get(s, 500, "a42", 3, &ino, &dtype), 0);
	assert_true(ino == 1042 && dtype == DT_REG);
	assert_int_equal(ntr_dirent_del(t, 500, "a42", 3), 0);
	assert_int_equal(ntr_dirent_get(s, 500, "a42", 3, &ino, &dtype), -ENOENT);
	assert_int_equal(ntr_dirent_get(s, 500, "a44", 3, &ino, &dtype), 0);
	ntr_dir_iter_init(&it, s, 500, 0);
	while (ntr_dir_iter_next(&it, &en) > 0) {
		assert_true(en.hash == (n < 49 ? 5 : 9));
		assert_true(en.ino == 1000 + strtoull(en.name + 1, NULL, 10));
		n++;
	}
	ntr_dir_iter_done(&it);
	assert_int_equal(n, 99);
	n = 0;
	ntr_dir_iter_init(&it, s, 500, 6);
	while (ntr_dir_iter_next(&it, &en) > 0)
		n++;
	ntr_dir_iter_done(&it);
	assert_int_equal(n, 50);
	ntr_txn_abort(t);
}

static void strange_names(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	const struct ntr_snap *s = ntr_txn_snap(t);
	char longest[257];
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	uint64_t ino, rnd = 5;
	uint8_t dtype;
	int n = 0;
	(void)state;

	for (int i = 0; i < 256; i++)
		longest[i] = (char)(1 + fx_below(&rnd, 46));
	longest[256] = '\0';
	assert_int_equal(ntr_dirent_put(t, 600, longest, 255, 1, DT_DIR), 0);
	assert_int_equal(ntr_dirent_put(t, 600, longest, 256, 1, DT_DIR), -ENAMETOOLONG);
	assert_int_equal(ntr_dirent_put(t, 600, "", 0, 1, DT_DIR), -EINVAL);
	assert_int_equal(ntr_dirent_put(t, 600, "\xff\xfe\x80\n", 4, UINT64_MAX, DT_FIFO), 0);
	assert_int_equal(ntr_dirent_get(s, 600, longest, 255, &ino, &dtype), 0);
	assert_int_equal(ntr_dirent_get(s, 600, "\xff\xfe\x80\n", 4, &ino, &dtype), 0);
	assert_true(ino == UINT64_MAX && dtype == DT_FIFO);
	ntr_dir_iter_init(&it, s, 600, 0);
	while (ntr_dir_iter_next(&it, &en) > 0) {
		assert_int_equal(strlen(en.name), en.name_len);
		n += en.name_len;
	}
	ntr_dir_iter_done(&it);
	assert_int_equal(n, 259);
	ntr_txn_abort(t);
}

struct seen {
	unsigned n;
	uint64_t bytes;
};

static int count_value(void *user, const char *name, const uint8_t *val, size_t len)
{
	struct seen *seen = user;

	assert_true(strlen(name) > 0);
	assert_int_equal(val[len], 0);
	seen->n++;
	seen->bytes += len;
	return 0;
}

static int stop_at_once(void *user, const char *name, const uint8_t *val, size_t len)
{
	(void)user, (void)name, (void)val, (void)len;
	return 42;
}

static void check_xattr(
        const struct ntr_snap *s, uint64_t ino, const char *name, const uint8_t *want, size_t n)
{
	ntr_autofree uint8_t *got = NULL;
	size_t len;

	assert_int_equal(ntr_xattr_get(s, ino, name, &got, &len), 0);
	assert_int_equal(len, n);
	assert_memory_equal(got, want, n);
}

static void xattrs(void **state)
{
	static const size_t sizes[] = {0, 1, 1024, 1025, 6000, 65535, 65536};
	static uint8_t big[65537];
	struct ntr_txn *t = fx_begin(&fx);
	struct ntr_inode in, out;
	struct seen seen = {0};
	uint64_t rnd = 3, total = 0;
	char name[300] = "user.";
	uint8_t *got;
	size_t len;
	(void)state;

	fx_fill(&rnd, big, sizeof big);
	assert_int_equal(ntr_inode_new(t, S_IFREG | 0600, &in), 0);
	for (size_t i = 0; i < NTR_COUNT(sizes); i++) {
		snprintf(name, sizeof name, "user.%zu", i);
		assert_int_equal(ntr_xattr_set(t, &in, name, big, sizes[i]), 0);
		check_xattr(ntr_txn_snap(t), in.ino, name, big, sizes[i]);
		total += sizes[i];
	}
	assert_true(in.flags & NTR_INODE_HAS_XATTR);
	assert_int_equal(ntr_xattr_set(t, &in, "user.x", big, 65537), -E2BIG);
	assert_int_equal(ntr_xattr_set(t, &in, "", big, 1), -EINVAL);
	memset(name + 5, 'n', 251);
	name[256] = '\0';
	assert_int_equal(ntr_xattr_set(t, &in, name, big, 1), -ERANGE);
	name[255] = '\0';
	assert_int_equal(ntr_xattr_set(t, &in, name, big, 1), 0);
	assert_int_equal(ntr_xattr_del(t, &in, name), 0);
	assert_int_equal(ntr_xattr_del(t, &in, name), -ENODATA);
	assert_int_equal(ntr_xattr_get(ntr_txn_snap(t), in.ino, name, &got, &len), -ENODATA);
	assert_int_equal(ntr_name_create(t, NTR_INO_ROOT, "f", &in, NULL), 0);
	fx_commit(&fx, t);
	fx_reopen(&fx);

	t = fx_begin(&fx);
	assert_int_equal(ntr_xattr_each(ntr_txn_snap(t), in.ino, count_value, &seen), 0);
	assert_true(seen.n == NTR_COUNT(sizes) && seen.bytes == total);
	assert_int_equal(ntr_xattr_each(ntr_txn_snap(t), in.ino, stop_at_once, NULL), 42);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), in.ino, &in), 0);
	for (size_t i = 0; i < NTR_COUNT(sizes); i++) {
		snprintf(name, sizeof name, "user.%zu", i);
		check_xattr(ntr_txn_snap(t), in.ino, name, big, sizes[i]);
		assert_true(in.flags & NTR_INODE_HAS_XATTR);
		assert_int_equal(ntr_xattr_del(t, &in, name), 0);
	}
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), in.ino, &out), 0);
	assert_false(out.flags & NTR_INODE_HAS_XATTR);
	ntr_txn_abort(t);
}

static void kv_items(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	struct seen seen = {0};
	uint8_t *huge = calloc(1, 3 << 20), *got;
	char key[600];
	uint64_t rnd = 9;
	size_t len;
	(void)state;

	assert_non_null(huge);
	fx_fill(&rnd, huge, 3 << 20);
	assert_int_equal(ntr_kvitem_set(t, "e:PATH", "/bin", 4), 0);
	assert_int_equal(ntr_kvitem_set(t, "e:", "", 0), 0);
	assert_int_equal(ntr_kvitem_set(t, "f:x", "1", 1), 0);
	assert_int_equal(ntr_kvitem_set(t, "e:HUGE", huge, 3 << 20), 0);
	memset(key, 'k', sizeof key);
	key[NTR_KEY_MAX - 9] = '\0';
	assert_int_equal(ntr_kvitem_set(t, key, "v", 1), 0);
	key[NTR_KEY_MAX - 9] = 'k';
	key[NTR_KEY_MAX - 8] = '\0';
	assert_int_equal(ntr_kvitem_set(t, key, "v", 1), -ENAMETOOLONG);
	fx_commit(&fx, t);
	t = fx_begin(&fx);
	assert_int_equal(ntr_kvitem_each(ntr_txn_snap(t), "e:", count_value, &seen), 0);
	assert_true(seen.n == 3 && seen.bytes == 4 + (3 << 20));
	assert_int_equal(ntr_kvitem_get(ntr_txn_snap(t), "e:HUGE", &got, &len), 0);
	assert_true(len == 3 << 20 && !memcmp(got, huge, len));
	free(got);
	assert_int_equal(ntr_kvitem_set(t, "e:HUGE", NULL, 0), 0);
	assert_int_equal(ntr_kvitem_get(ntr_txn_snap(t), "e:HUGE", &got, &len), -ENOENT);
	ntr_txn_abort(t);
	free(huge);
}

static void link_items(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	const struct ntr_snap *s = ntr_txn_snap(t);
	uint64_t parent;
	char name[256];
	size_t n;
	(void)state;

	assert_int_equal(ntr_link_first(s, 700, &parent, name, &n), -ENOENT);
	assert_int_equal(ntr_link_put(t, 700, 9, "b", 1), 0);
	assert_int_equal(ntr_link_put(t, 700, 8, "zz", 2), 0);
	assert_int_equal(ntr_link_put(t, 701, 7, "x", 1), 0);
	assert_int_equal(ntr_link_first(s, 700, &parent, name, &n), 0);
	assert_true(parent == 8 && n == 2);
	assert_string_equal(name, "zz");
	assert_int_equal(ntr_link_del(t, 700, 8, "zz", 2), 0);
	assert_int_equal(ntr_link_del(t, 700, 9, "b", 1), 0);
	assert_int_equal(ntr_link_first(s, 700, &parent, name, &n), -ENOENT);
	ntr_txn_abort(t);
}

static void chunk_ids_of_items(void **state)
{
	uint8_t key[9] = {0}, val[9 + 16] = {0};
	const uint8_t *ids;
	size_t n;
	(void)state;

	key[8] = NTR_ITEM_EXTENT;
	assert_int_equal(ntr_item_chunks(key, 9, val, 17, &ids, &n), 0);
	assert_int_equal(n, 0);
	val[0] = NTR_ITEM_CHUNKS;
	assert_int_equal(ntr_item_chunks(key, 9, val, 17, &ids, &n), 0);
	assert_true(n == 2 && ids == val + 1);
	assert_int_equal(ntr_item_chunks(key, 9, val, 18, &ids, &n), -EUCLEAN);
	key[8] = NTR_ITEM_XATTR;
	assert_int_equal(ntr_item_chunks(key, 9, val, 25, &ids, &n), 0);
	assert_true(n == 2 && ids == val + 9);
	assert_int_equal(ntr_item_chunks(key, 9, val, 9, &ids, &n), -EUCLEAN);
	key[8] = NTR_ITEM_INODE;
	assert_int_equal(ntr_item_chunks(key, 9, val, 25, &ids, &n), 0);
	assert_true(n == 1 && ids == val + 1);
	key[8] = NTR_ITEM_DIRENT;
	assert_int_equal(ntr_item_chunks(key, 9, val, 17, &ids, &n), -EUCLEAN);
	val[0] = 2;
	assert_int_equal(ntr_item_chunks(key, 9, val, 17, &ids, &n), -EUCLEAN);
}

int main(void)
{
#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(codec_round_trip),
	        cmocka_unit_test(codec_is_compact),
	        cmocka_unit_test(codec_refuses_damage),
	        cmocka_unit_test(codec_refuses_nonsense),
	        cmocka_unit_test(chunk_ids_of_items),
	        WITH(record_get_put),
	        WITH(hashes),
	        WITH(hash_cache_is_per_opening),
	        WITH(equal_hashes),
	        WITH(strange_names),
	        WITH(xattrs),
	        WITH(kv_items),
	        WITH(link_items),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
