/* fsck finds nothing wrong with what the store makes, and finds every rule that is broken on purpose: in a
 * tree that it looks at as a whole and in one of which it looks at the difference only. */
#include "fsck_fixture.h"

#include "fs/chunk_impl.h"
#include "fs/store_impl.h"

static struct fixture fx;
static struct report rep;

static int setup(void **state)
{
	(void)state;
	memset(&fx, 0, sizeof(fx));
	fx_setup(&fx);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_teardown(&fx);
	return 0;
}

static void test_empty(void **state)
{
	(void)state;
	fsck_clean(fx.st, &rep);
	assert_int_equal(rep.f.sessions, 0);
	assert_int_equal(rep.f.commits, 0);
	fx_session(&fx, "one");
	fsck_clean(fx.st, &rep);
	assert_int_equal(rep.f.sessions, 1);
	assert_int_equal(rep.f.commits, 1);
	assert_int_equal(rep.f.inodes, 1);
	assert_true(rep.progress > 0);
}

static void test_histories_are_clean(void **state)
{
	uint64_t rnd = 77003;
	struct ntr_head one;
	struct ntr_commit c;
	struct ntr_err e = {0};

	(void)state;
	print_message("seed %llu\n", (unsigned long long)rnd);
	fx_session(&fx, "one");
	for (int i = 0; i < 25; i++)
		story_commit(&fx, &rnd, 1 + (unsigned)fx_below(&rnd, 30));
	fsck_clean(fx.st, &rep);
	one = fx.head;
	assert_int_equal(ntr_commit_get(fx.st, fx.head.commit, &c, &e), 0);
	assert_int_equal(ntr_session_fork(fx.st, &one, &c, "fork", &fx.head, &e), 0);
	story_commit(&fx, &rnd, 20);
	assert_int_equal(ntr_session_move(fx.st, &fx.head, &c, &e), 0);
	ntr_commit_done(&c);
	story_commit(&fx, &rnd, 20);
	assert_int_equal(ntr_session_rename(fx.st, "fork", "spoon", &e), 0);
	assert_int_equal(ntr_session_set_upper(fx.st, fx.head.sid, 1, fx.head.root, &e), 0);
	fsck_clean(fx.st, &rep);
	assert_int_equal(rep.f.sessions, 2);
	assert_int_equal(rep.f.commits, 28);
	assert_true(rep.f.chunks > 10);
	assert_int_equal(ntr_session_remove(fx.st, one.sid, &e), 0);
	fsck_clean(fx.st, &rep);
	assert_int_equal(rep.f.sessions, 1);
	fx.head.name[0] = '\0';
	fx_reopen(&fx);
	fsck_clean(fx.st, &rep);
	ntr_store_close(fx.st);
	assert_int_equal(
	        ntr_store_open(fx.path, &(struct ntr_store_options){.read_only = true}, &fx.st, &e), 0);
	fsck_clean(fx.st, &rep);
}

/* --- broken trees --- */

struct tree { /* /d/f (content in chunks), /d/sub, /h and /d/h2 (one file), /s (inline) */
	uint64_t d, f, sub, h, s;
};

static uint64_t object(struct ntr_txn *t, uint64_t dir, const char *name, uint32_t mode, size_t size)
{
	ntr_autofree uint8_t *data = calloc(1, size + 1);
	struct ntr_inode in;
	uint64_t rnd = 5;

	assert_non_null(data);
	fx_fill(&rnd, data, size);
	assert_int_equal(ntr_inode_new(t, mode, &in), 0);
	assert_int_equal(ntr_name_create(t, dir, name, &in, NULL), 0);
	if (S_ISREG(mode)) {
		assert_int_equal(ntr_file_take_mem(t, &in, data, size), 0);
		assert_int_equal(ntr_inode_put(t, &in), 0);
	}
	return in.ino;
}

static struct tree tree_make(struct ntr_txn *t)
{
	struct tree r;

	r.d = object(t, NTR_INO_ROOT, "d", S_IFDIR | 0755, 0);
	r.f = object(t, r.d, "f", S_IFREG | 0644, 300000);
	r.sub = object(t, r.d, "sub", S_IFDIR | 0755, 0);
	r.h = object(t, NTR_INO_ROOT, "h", S_IFREG | 0644, 30000);
	r.s = object(t, NTR_INO_ROOT, "s", S_IFREG | 0644, 30);
	assert_int_equal(ntr_name_link(t, r.h, r.d, "h2", NULL), 0);
	return r;
}

static void item_del(struct ntr_txn *t, uint64_t ino, uint8_t type)
{
	uint8_t key[NTR_KEY_MAX];

	assert_int_equal(ntr_txn_del(t, key, ntr_item_key(key, ino, type, NULL, 0)), 0);
}

static void item_put(struct ntr_txn *t, uint64_t ino, uint8_t type, const void *suffix, size_t n,
        const void *val, size_t vlen)
{
	uint8_t key[NTR_KEY_MAX];

	assert_int_equal(ntr_txn_put(t, key, ntr_item_key(key, ino, type, suffix, n), val, vlen), 0);
}

static struct ntr_inode record(struct ntr_txn *t, uint64_t ino)
{
	struct ntr_inode in;

	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), ino, &in), 0);
	return in;
}

static void put(struct ntr_txn *t, struct ntr_inode *in)
{
	assert_int_equal(ntr_inode_put(t, in), 0);
}

static void no_record(struct ntr_txn *t, const struct tree *x)
{
	item_del(t, x->s, NTR_ITEM_INODE);
}

static void no_record_with_items(struct ntr_txn *t, const struct tree *x)
{
	item_del(t, x->d, NTR_ITEM_INODE);
}

static void damaged_record(struct ntr_txn *t, const struct tree *x)
{
	item_put(t, x->s, NTR_ITEM_INODE, NULL, 0, "\0bad", 4);
}

static void no_entry(struct ntr_txn *t, const struct tree *x)
{
	(void)x;
	assert_int_equal(ntr_dirent_del(t, NTR_INO_ROOT, "s", 1), 0);
}

static void no_link_entry(struct ntr_txn *t, const struct tree *x)
{
	assert_int_equal(ntr_dirent_del(t, x->d, "h2", 2), 0);
}

static void no_link(struct ntr_txn *t, const struct tree *x)
{
	assert_int_equal(ntr_link_del(t, x->h, x->d, "h2", 2), 0);
}

static void stray_link(struct ntr_txn *t, const struct tree *x)
{
	assert_int_equal(ntr_link_put(t, x->h, x->d, "nowhere", 7), 0);
}

static void second_entry(struct ntr_txn *t, const struct tree *x)
{
	assert_int_equal(ntr_dirent_put(t, x->d, "again", 5, x->s, DT_REG), 0);
}

static void other_type(struct ntr_txn *t, const struct tree *x)
{
	assert_int_equal(ntr_dirent_put(t, NTR_INO_ROOT, "s", 1, x->s, DT_FIFO), 0);
}

static void damaged_entry(struct ntr_txn *t, const struct tree *x)
{
	uint8_t suffix[9];
	uint64_t hash;

	assert_int_equal(ntr_dirent_hash(ntr_txn_snap(t), "z", 1, &hash), 0);
	ntr_put_be64(suffix, hash);
	suffix[8] = 'z';
	item_put(t, x->d, NTR_ITEM_DIRENT, suffix, 9, "\0\4", 2);
}

static void misplaced_entry(struct ntr_txn *t, const struct tree *x)
{
	uint8_t key[NTR_KEY_MAX], val[12] = {0, DT_REG}, suffix[9];
	uint64_t hash;

	(void)key;
	assert_int_equal(ntr_dirent_hash(ntr_txn_snap(t), "s", 1, &hash), 0);
	assert_int_equal(ntr_dirent_del(t, NTR_INO_ROOT, "s", 1), 0);
	ntr_put_be64(suffix, hash + 1);
	suffix[8] = 's';
	item_put(t, NTR_INO_ROOT, NTR_ITEM_DIRENT, suffix, 9, val, 2 + ntr_varint_put(val + 2, x->s));
}

static void other_name(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->s);

	strcpy(in.name, "t");
	put(t, &in);
	assert_int_equal(ntr_dirent_put(t, NTR_INO_ROOT, "t", 1, x->s, DT_REG), 0); /* and "s" stays */
}

static void link_count(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->h);

	in.nlink = 3;
	put(t, &in);
}

static void dir_count(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->d);

	in.nlink = 2;
	put(t, &in);
}

static void xattr_flag(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->s);

	in.flags |= NTR_INODE_HAS_XATTR;
	put(t, &in);
}

static void xattr_unflagged(struct ntr_txn *t, const struct tree *x)
{
	item_put(t, x->s, NTR_ITEM_XATTR, "user.a", 6, "\0v", 2);
}

static void damaged_xattr(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->s);

	assert_int_equal(ntr_xattr_set(t, &in, "user.a", "v", 1), 0);
	item_put(t, x->s, NTR_ITEM_XATTR, "user.a", 6, "\7v", 2);
}

static void links_flag(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->h);

	in.flags &= ~(uint32_t)NTR_INODE_HAS_LINKS;
	put(t, &in);
}

static void smaller(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->f);

	in.size = 70000;
	put(t, &in);
}

static void chunk_size(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->h);

	in.size++;
	put(t, &in);
}

static void no_chunk(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->h);

	in.chunk = 60000;
	put(t, &in);
}

static void no_extent_chunk(struct ntr_txn *t, const struct tree *x)
{
	uint8_t group[8] = {0}, val[17] = {NTR_ITEM_CHUNKS};

	ntr_put_le64(val + 1, 60001);
	item_put(t, x->f, NTR_ITEM_EXTENT, group, 8, val, sizeof(val));
}

static void extent_of_small(struct ntr_txn *t, const struct tree *x)
{
	uint8_t group[8] = {0}, val[9] = {NTR_ITEM_CHUNKS};

	ntr_put_le64(val + 1, record(t, x->h).chunk);
	item_put(t, x->s, NTR_ITEM_EXTENT, group, 8, val, sizeof(val));
}

static void cache_part_alone(struct ntr_txn *t, const struct tree *x)
{
	(void)x;
	item_put(t, NTR_INO_META, NTR_ITEM_CACHE, "k\0\0\1", 4,
	        "\0"
	        "1",
	        2);
}

static void cache_part_behind(struct ntr_txn *t, const struct tree *x)
{
	cache_part_alone(t, x);
	item_put(t, NTR_INO_META, NTR_ITEM_CACHE, "k", 1,
	        "\0"
	        "1",
	        2);
}

static void cache_key(struct ntr_txn *t, const struct tree *x)
{
	(void)x;
	item_put(t, NTR_INO_META, NTR_ITEM_CACHE, "a/b", 3,
	        "\0"
	        "1",
	        2);
}

static void damaged_cache(struct ntr_txn *t, const struct tree *x)
{
	(void)x;
	item_put(t, NTR_INO_META, NTR_ITEM_CACHE, "k", 1, "\1\11\0\0\0\0\0\0\0", 9);
}

static void unknown_item(struct ntr_txn *t, const struct tree *x)
{
	item_put(t, x->s, 9, "x", 1, "\0", 1);
}

static void loop(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode d = record(t, x->d), root = record(t, NTR_INO_ROOT), sub = record(t, x->sub);

	assert_int_equal(ntr_dirent_del(t, NTR_INO_ROOT, "d", 1), 0);
	root.nlink--;
	put(t, &root);
	d.parent = x->sub;
	put(t, &d);
	sub.nlink++;
	put(t, &sub);
	assert_int_equal(ntr_dirent_put(t, x->sub, "d", 1, x->d, DT_DIR), 0);
}

static void entries_of_file(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->d);

	in.mode = S_IFREG | 0644;
	put(t, &in);
}

static void ino_beyond(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->s);

	in.ino = UINT64_C(1) << 40;
	strcpy(in.name, "far");
	put(t, &in);
	assert_int_equal(ntr_dirent_put(t, NTR_INO_ROOT, "far", 3, in.ino, DT_REG), 0);
}

static void version_beyond(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, x->s);
	uint8_t val[NTR_VALUE_MAX];
	size_t len;

	in.version = UINT64_C(1) << 50;
	assert_int_equal(ntr_inode_encode(&in, val, &len), 0);
	item_put(t, x->s, NTR_ITEM_INODE, NULL, 0, val, len);
}

static void no_root(struct ntr_txn *t, const struct tree *x)
{
	(void)x;
	item_del(t, NTR_INO_ROOT, NTR_ITEM_INODE);
}

static void root_moved(struct ntr_txn *t, const struct tree *x)
{
	struct ntr_inode in = record(t, NTR_INO_ROOT);

	in.parent = x->d;
	put(t, &in);
}

static const struct rule {
	const char *name;
	void (*breaks)(struct ntr_txn *t, const struct tree *x);
	const char *says;
} rules[] = {
        {"no record", no_record, "does not exist"},
        {"items without record", no_record_with_items, "has items and no record"},
        {"damaged record", damaged_record, "its record is damaged"},
        {"no entry", no_entry, "does not lead to it"},
        {"no entry of a link", no_link_entry, "does not lead to it"},
        {"no link item", no_link, "does not know this name"},
        {"stray link", stray_link, "does not lead to it"},
        {"second entry", second_entry, "does not know this name"},
        {"entry of another type", other_type, "has another type"},
        {"damaged entry", damaged_entry, "is damaged"},
        {"misplaced entry", misplaced_entry, "stands where nobody looks"},
        {"old entry stays", other_name, "does not know this name"},
        {"link count", link_count, "its link count is 3"},
        {"directory count", dir_count, "its link count is 2 instead of 3"},
        {"xattr flag", xattr_flag, "flag for extended attributes"},
        {"xattr without flag", xattr_unflagged, "flag for extended attributes"},
        {"damaged xattr", damaged_xattr, "a damaged attribute"},
        {"links flag", links_flag, "flag for hard links"},
        {"size below extents", smaller, "does not fit its size"},
        {"size of a chunk", chunk_size, "its chunk has 30000 bytes"},
        {"missing chunk", no_chunk, "chunk 60000 is missing"},
        {"missing chunk of an extent", no_extent_chunk, "chunk 60001 is missing"},
        {"extents of an inline file", extent_of_small, "does not fit its size"},
        {"unknown item", unknown_item, "an item of unknown form"},
        {"part of a cache value alone", cache_part_alone, "part 1 follows none that is full"},
        {"cache value behind its end", cache_part_behind, "it goes on behind its end"},
        {"cache key", cache_key, "an item of unknown form"},
        {"damaged cache value", damaged_cache, "a damaged cache item"},
        {"directory loop", loop, "lies in itself"},
        {"entries of a file", entries_of_file, "has entries and is no directory"},
        {"inode number", ino_beyond, "its number was never given out"},
        {"version", version_beyond, "its version was never given out"},
        {"no root", no_root, "no root directory"},
        {"root with a parent", root_moved, "the root directory's record is wrong"},
};

static void expect(const char *what, const char *says)
{
	fsck_run(fx.st, &rep);
	if (!strstr(rep.text, says))
		fail_msg("%s: \"%s\" is not among the problems:\n%s", what, says, rep.text);
}

/* A line about this commit that says so. */
static void expect_of(uint64_t commit, const char *what, const char *says)
{
	struct ntr_commit c;
	char hex[NTR_COMMIT_PREFIX + 1] = "";

	assert_int_equal(ntr_commit_get(fx.st, commit, &c, NULL), 0);
	memcpy(hex, c.hex, NTR_COMMIT_PREFIX);
	ntr_commit_done(&c);
	for (const char *p = rep.text; (p = strstr(p, hex)); p++) {
		const char *line = p, *end = strchr(p, '\n'), *at;

		while (line > rep.text && line[-1] != '\n')
			line--;
		at = strstr(line, says);
		if (at && at < end)
			return;
	}
	fail_msg("%s: no line on %s says \"%s\":\n%s", what, hex, says, rep.text);
}

/* Each rule is broken by the commit that makes it all, and by one that changes nothing else. */
static void test_broken_trees(void **state)
{
	uint64_t whole[NTR_COUNT(rules)], later[NTR_COUNT(rules)];

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rules); i++) {
		struct ntr_session_options o = {.durability = NTR_RELAXED_DURABILITY};
		struct ntr_err e = {0};
		struct ntr_txn *t;
		struct tree x;
		char name[16];

		assert_int_equal(ntr_session_blank(fx.st, &t, &e), 0);
		x = tree_make(t);
		rules[i].breaks(t, &x);
		snprintf(name, sizeof(name), "whole%zu", i);
		if (ntr_session_new(fx.st, name, &o, t, &fx.head, &e))
			fx_fail(rules[i].name, &e);
		whole[i] = fx.head.commit;
		snprintf(name, sizeof(name), "later%zu", i);
		assert_int_equal(ntr_session_new(fx.st, name, &o, NULL, &fx.head, &e), 0);
		t = fx_begin(&fx);
		x = tree_make(t);
		fx_commit(&fx, t);
		t = fx_begin(&fx);
		rules[i].breaks(t, &x);
		fx_commit(&fx, t);
		later[i] = fx.head.commit;
	}
	fsck_run(fx.st, &rep);
	for (size_t i = 0; i < NTR_COUNT(rules); i++) {
		expect_of(whole[i], rules[i].name, rules[i].says);
		expect_of(later[i], rules[i].name, rules[i].says);
	}
}

/* --- broken records --- */

static void meta_put(const void *key, size_t klen, const void *val, size_t vlen)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();

	if (val)
		ntr_kv_batch_put(b, ntr_store_kv(fx.st), NTR_CF_META, key, klen, val, vlen);
	else
		ntr_kv_batch_del(b, ntr_store_kv(fx.st), NTR_CF_META, key, klen);
	assert_int_equal(ntr_kv_write(ntr_store_kv(fx.st), b, NTR_KV_SYNC, NULL), 0);
}

/* Changes a record, expects the complaint, and puts it back. */
static void meta_break(const void *key, size_t klen, const void *val, size_t vlen, const char *says)
{
	struct ntr_kv_pin p = {0};
	int r = ntr_kv_get(ntr_store_kv(fx.st), NTR_CF_META, key, klen, &p);

	meta_put(key, klen, val, vlen);
	expect(says, says);
	meta_put(key, klen, r ? NULL : p.data, p.len);
	ntr_kv_unpin(&p);
	fsck_clean(fx.st, &rep);
}

static void test_broken_records(void **state)
{
	uint8_t key[NTR_META_KEY], head[NTR_META_KEY], val[8];
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	struct ntr_commit c;
	struct ntr_head h;
	uint64_t rnd = 9;
	size_t n;

	(void)state;
	fx_session(&fx, "one");
	story_commit(&fx, &rnd, 10);
	story_commit(&fx, &rnd, 10);
	assert_int_equal(ntr_commit_get(fx.st, fx.head.commit, &c, NULL), 0);
	n = ntr_key_u64(key, 'C', fx.head.commit);
	meta_break(key, n, NULL, 0, "its head, commit number");
	meta_break(key, n, "x", 1, "its record is damaged");
	n = ntr_key_public(key, c.name);
	meta_break(key, n, NULL, 0, "cannot be found by its name");
	meta_break(key, n, "x", 1, "leads to no commit");
	n = ntr_key_list(key, fx.head.sid, 2);
	meta_break(key, n, NULL, 0, "steps before 3");
	meta_break(key, n, "x", 1, "a step of its history is damaged");
	n = ntr_key_list(key, fx.head.sid, fx.head.seq);
	meta_break(key, n, NULL, 0, "its history ends at step");
	n = ntr_key_list(key, 400, 1);
	meta_break(key, n, "x", 1, "which does not exist");
	n = ntr_key_text(key, 'N', "one");
	meta_break(key, n, NULL, 0, "session 'one' cannot be found by its name");
	ntr_put_le64(val, fx.head.sid);
	n = ntr_key_text(key, 'N', "two");
	meta_break(key, n, val, 8, "name 'two' leads to no session");
	n = ntr_key_text(key, 'T', "v1");
	ntr_put_le64(val, 12345);
	meta_break(key, n, val, 8, "tag 'v1' pins a missing commit");
	n = ntr_key_u64(key, 'M', fx.head.sid);
	meta_break(key, n, "\1\0[", 3, "session 'one': its host directories are damaged");
	meta_break(key, n, "\2\0[]", 4, "session 'one': its host directories are damaged");
	n = ntr_key_u64(key, 'M', 400);
	meta_break(key, n, "\1\0[]", 4, "host directories of session number 400");
	meta_break("?", 1, "x", 1, "a record of unknown kind");

	n = ntr_key_u64(head, 'H', fx.head.sid);
	meta_break(head, n, "x", 1, "the session is lost");
	h = fx.head;
	h.root = 999999;
	assert_int_equal(ntr_rec_head(&b, &h), 0);
	meta_break(head, n, b.data, b.len, "not those of the commit");
	h = fx.head;
	h.upper = 3;
	b.len = 0;
	assert_int_equal(ntr_rec_head(&b, &h), 0);
	meta_break(head, n, b.data, b.len, "folder of changes");
	c.inodes++;
	b.len = 0;
	assert_int_equal(ntr_rec_commit(&b, &c), 0);
	n = ntr_key_u64(key, 'C', c.id);
	meta_break(key, n, b.data, b.len, "its tree has");
	c.inodes--;
	free(c.desc);
	c.desc = strdup("no json");
	b.len = 0;
	assert_int_equal(ntr_rec_commit(&b, &c), 0);
	meta_break(key, n, b.data, b.len, "no JSON object");
	ntr_commit_done(&c);
}

/* --- broken nodes and chunks --- */

static void raw_put(enum ntr_cf cf, const void *key, size_t klen, const void *val, size_t vlen)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();

	if (val)
		ntr_kv_batch_put(b, ntr_store_kv(fx.st), cf, key, klen, val, vlen);
	else
		ntr_kv_batch_del(b, ntr_store_kv(fx.st), cf, key, klen);
	assert_int_equal(ntr_kv_write(ntr_store_kv(fx.st), b, NTR_KV_SYNC, NULL), 0);
}

struct pair {
	uint8_t key[16], val[NTR_CHUNK_HEAD + NTR_CHUNK_SIZE];
	size_t klen, vlen;
};

/* Entry number i of a family. */
static bool pair_get(enum ntr_cf cf, size_t i, struct pair *p)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(ntr_store_kv(fx.st), cf, true);
	const uint8_t *key, *val;

	ntr_kv_iter_seek(it, "", 0);
	while (i-- && ntr_kv_iter_valid(it, NULL, NULL, NULL, NULL))
		ntr_kv_iter_next(it);
	if (!ntr_kv_iter_valid(it, &key, &p->klen, &val, &p->vlen))
		return false;
	memcpy(p->key, key, p->klen);
	memcpy(p->val, val, p->vlen);
	return true;
}

static void break_pair(enum ntr_cf cf, const struct pair *p, const char *missing, const char *damaged)
{
	ntr_autofree uint8_t *val = malloc(p->vlen);

	assert_non_null(val);
	memcpy(val, p->val, p->vlen);
	val[p->vlen - 1] ^= 1;
	raw_put(cf, p->key, p->klen, val, p->vlen);
	expect(damaged, damaged);
	raw_put(cf, p->key, p->klen, NULL, 0);
	if (missing)
		expect(missing, missing);
	raw_put(cf, p->key, p->klen, p->val, p->vlen);
}

static void test_broken_nodes_and_chunks(void **state)
{
	static struct pair p, q;
	struct ntr_txn *t;

	(void)state;
	fx_session(&fx, "one");
	t = fx_begin(&fx);
	tree_make(t);
	for (int i = 0; i < 300; i++) {
		char name[16];

		snprintf(name, sizeof(name), "many%d", i);
		object(t, NTR_INO_ROOT, name, S_IFREG | 0600, 400);
	}
	fx_commit(&fx, t);
	fsck_clean(fx.st, &rep);
	assert_true(rep.f.nodes > 20);
	for (size_t i = 0; pair_get(NTR_CF_NODE, i, &p); i++)
		break_pair(NTR_CF_NODE, &p, "missing; commit", "damaged; commit");
	for (size_t i = 0; pair_get(NTR_CF_CHUNK, i, &p); i++) {
		break_pair(NTR_CF_CHUNK, &p, "is missing or damaged; inode", "fails its checksum");
		assert_true(pair_get(NTR_CF_CHUNK, 0, &q));
		q.vlen = 3;
		raw_put(NTR_CF_CHUNK, p.key, 8, q.val, q.vlen);
		expect("short", "is no chunk");
		raw_put(NTR_CF_CHUNK, p.key, 8, p.val, p.vlen);
	}
	fsck_clean(fx.st, &rep);
	assert_true(pair_get(NTR_CF_CIDX, 0, &p) && pair_get(NTR_CF_CIDX, 1, &q));
	raw_put(NTR_CF_CIDX, p.key, 16, q.val, 8);
	expect("swapped", "for content that it does not have");
	raw_put(NTR_CF_CIDX, p.key, 16, "x", 1);
	expect("short", "an entry of the chunk index is damaged");
	raw_put(NTR_CF_CIDX, p.key, 16, NULL, 0); /* not known is not wrong */
	fsck_clean(fx.st, &rep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_histories_are_clean, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_broken_trees, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_broken_records, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_broken_nodes_and_chunks, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
