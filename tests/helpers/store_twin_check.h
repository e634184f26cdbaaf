/* store_twin_check: a root of the store against its twin, and the diff of two roots against two twins. */
#ifndef NTR_TEST_STORE_TWIN_CHECK_H
#define NTR_TEST_STORE_TWIN_CHECK_H

#include "store_twin.h"

#include "base/hash.h"
#include "fs/diff.h"
#include "fs/file.h"

#include <dirent.h>

/* ---- an inode and a version name one content for ever (docs/store-format.md, "Version") ---- */

struct twin_pair {
	uint64_t key[2];
	uint64_t sum;
	UT_hash_handle hh;
};

static inline uint64_t twin_sum(uint64_t sum, const void *p, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ b[i]) * UINT64_C(0x100000001b3);
	return sum ^ n;
}

static inline void twin_pair_check(
        struct twin_pair **pairs, const struct ntr_inode *in, const struct twin_obj *o, const char *path)
{
	uint64_t key[2] = {in->ino, in->version}, sum = UINT64_C(0xcbf29ce484222325);
	struct twin_pair *p;

	sum = twin_sum(sum, &in->mode, sizeof in->mode);
	sum = twin_sum(sum, &in->nlink, sizeof in->nlink);
	sum = twin_sum(sum, &in->uid, sizeof in->uid);
	sum = twin_sum(sum, &in->gid, sizeof in->gid);
	sum = twin_sum(sum, &in->mtime, sizeof in->mtime);
	sum = twin_sum(sum, &in->ctime, sizeof in->ctime);
	if (o->data)
		sum = twin_sum(sum, o->data->data, NTR_MIN(o->data->n, (size_t)4096));
	for (int k = 0; k < TWIN_XATTRS; k++)
		if (o->xattr[k])
			sum = twin_sum(sum + (uint64_t)k, o->xattr[k]->data, o->xattr[k]->n);
	HASH_FIND(hh, *pairs, key, sizeof key, p);
	if (p && p->sum != sum)
		fail_msg("%s: inode %llu version %llu has been something else", path,
		        (unsigned long long)in->ino, (unsigned long long)in->version);
	if (p)
		return;
	p = calloc(1, sizeof *p);
	assert_non_null(p);
	memcpy(p->key, key, sizeof key);
	p->sum = sum;
	HASH_ADD(hh, *pairs, key, sizeof p->key, p);
	assert_true(ntr_hashed(hh, p));
}

static inline void twin_pairs_free(struct twin_pair **pairs)
{
	struct twin_pair *p, *next;

	HASH_ITER (hh, *pairs, p, next) {
		HASH_DEL(*pairs, p);
		free(p);
	}
}

/* ---- one root ---- */

struct twin_check {
	const struct twin *t;
	struct ntr_snap s;
	struct twin_pair **pairs;
	size_t seen;
	unsigned xattrs;
	const struct twin_obj *o;
};

static inline int check_xattr(void *user, const char *name, const uint8_t *val, size_t len)
{
	struct twin_check *c = user;

	for (int k = 0; k < TWIN_XATTRS; k++) {
		if (strcmp(name, twin_xattr_names[k]) != 0)
			continue;
		if (!c->o->xattr[k] || c->o->xattr[k]->n != len ||
		        memcmp(c->o->xattr[k]->data, val, len) != 0)
			fail_msg("attribute %s differs", name);
		c->xattrs++;
		return 0;
	}
	fail_msg("attribute %s is too many", name);
	return -1;
}

static inline void check_data(struct twin_check *c, const struct ntr_inode *in, const char *path)
{
	const struct twin_obj *o = c->o;
	size_t n = o->data ? o->data->n : 0;
	uint8_t *buf;

	if (in->size != n)
		fail_msg("%s: %llu bytes, wanted %zu", path, (unsigned long long)in->size, n);
	if (S_ISLNK(o->mode) && (in->payload_len != n || memcmp(in->payload, o->data->data, n) != 0))
		fail_msg("%s: leads elsewhere", path);
	if (!S_ISREG(o->mode) || !n)
		return;
	buf = malloc(n + 1);
	assert_non_null(buf);
	assert_int_equal(ntr_file_read(&c->s, in, 0, buf, n + 1), (ssize_t)n);
	if (memcmp(buf, o->data->data, n) != 0)
		fail_msg("%s: content differs", path);
	if (n > 1) {
		uint64_t off = in->version * UINT64_C(0x9e3779b97f4a7c15) % n;

		assert_int_equal(ntr_file_read(&c->s, in, off, buf, 70000),
		        (ssize_t)NTR_MIN(n - off, (uint64_t)70000));
		assert_memory_equal(buf, o->data->data + off, NTR_MIN(n - off, (uint64_t)70000));
	}
	free(buf);
}

static inline void check_object(struct twin_check *c, size_t entry, uint64_t ino)
{
	const char *path = c->t->e[entry].path;
	const struct twin_obj *o = &c->t->o[c->t->e[entry].obj];
	struct ntr_inode in;
	unsigned want = 0;

	assert_int_equal(ntr_inode_get(&c->s, ino, &in), 0);
	if (ino != o->ino || in.mode != o->mode || in.uid != o->uid || in.gid != o->gid ||
	        in.rdev != o->rdev || in.nlink != twin_nlink(c->t, entry) ||
	        memcmp(&in.mtime, &o->mtime, sizeof in.mtime) != 0)
		fail_msg("'%s': inode %llu (%llu) mode %o (%o) owner %u:%u (%u:%u) links %u (%u) mtime "
		         "%lld.%ld (%lld.%ld)",
		        path, (unsigned long long)ino, (unsigned long long)o->ino, in.mode, o->mode, in.uid,
		        in.gid, o->uid, o->gid, in.nlink, twin_nlink(c->t, entry), (long long)in.mtime.tv_sec,
		        in.mtime.tv_nsec, (long long)o->mtime.tv_sec, o->mtime.tv_nsec);
	c->o = o;
	c->xattrs = 0;
	assert_int_equal(ntr_xattr_each(&c->s, ino, check_xattr, c), 0);
	for (int k = 0; k < TWIN_XATTRS; k++)
		want += o->xattr[k] != NULL;
	assert_int_equal(c->xattrs, want);
	assert_int_equal(!(in.flags & NTR_INODE_HAS_XATTR), !want);
	check_data(c, &in, path);
	if (!S_ISDIR(o->mode))
		twin_pair_check(c->pairs, &in, o, path);
}

static inline void check_dir(struct twin_check *c, const char *path, uint64_t ino)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, &c->s, ino, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) == 1) {
		char sub[TWIN_PATH];
		bool there;
		size_t i;

		path_join(sub, path, en.name);
		i = twin_place(c->t, sub, &there);
		if (!there)
			fail_msg("'%s' is too many", sub);
		assert_int_equal(en.dtype, IFTODT(c->t->o[c->t->e[i].obj].mode));
		c->seen++;
		check_object(c, i, en.ino);
		if (en.dtype == DT_DIR)
			check_dir(c, sub, en.ino);
	}
	assert_int_equal(r, 0);
	ntr_dir_iter_done(&it);
}

static inline void check_states(struct twin_check *c)
{
	for (int k = 0; k < TWIN_STATES; k++) {
		ntr_autofree uint8_t *val = NULL;
		size_t n = 0;
		int r = ntr_kvitem_get(&c->s, twin_state_names[k], &val, &n);

		assert_int_equal(r, c->t->state[k] ? 0 : -ENOENT);
		if (!r)
			assert_int_equal(n, c->t->state[k]->n);
		if (!r && n)
			assert_memory_equal(val, c->t->state[k]->data, n);
	}
}

/* Everything that the root holds is in the twin, and the other way round. */
static inline void twin_check_root(
        struct ntr_store *st, uint64_t root, const struct twin *t, struct twin_pair **pairs)
{
	struct twin_check c = {.t = t, .s = ntr_snap_root(st, root), .pairs = pairs, .seen = 1};

	check_object(&c, 0, NTR_INO_ROOT);
	check_dir(&c, "", NTR_INO_ROOT);
	if (c.seen != t->n)
		fail_msg("%zu entries, wanted %zu", c.seen, t->n);
	check_states(&c);
}

/* ---- two roots ---- */

/* What of a path differs; a directory's own times do not count. */
static inline unsigned twin_what(const struct twin *a, size_t i, const struct twin *b, size_t j)
{
	const struct twin_obj *x = &a->o[a->e[i].obj], *y = &b->o[b->e[j].obj];
	unsigned what = 0;

	if ((x->mode ^ y->mode) & 07777)
		what |= NTR_DIFF_MODE;
	if (x->uid != y->uid || x->gid != y->gid)
		what |= NTR_DIFF_OWNER;
	for (int k = 0; k < TWIN_XATTRS; k++)
		if (!x->xattr[k] != !y->xattr[k] || !blob_same(x->xattr[k], y->xattr[k]))
			what |= NTR_DIFF_XATTR;
	if (S_ISDIR(x->mode))
		return what;
	if (memcmp(&x->mtime, &y->mtime, sizeof x->mtime) != 0)
		what |= NTR_DIFF_MTIME;
	if (x->rdev != y->rdev || !blob_same(x->data, y->data))
		what |= NTR_DIFF_CONTENT;
	if (twin_nlink(a, i) != twin_nlink(b, j))
		what |= NTR_DIFF_LINKS;
	return what;
}

/* A chunk of zeros may be a hole in one of two files with equal bytes: then they do differ, in what they
 * take. */
static inline unsigned twin_maybe(const struct blob *b)
{
	for (size_t off = 0; b && off < b->n; off += NTR_CHUNK_SIZE) {
		size_t n = NTR_MIN(b->n - off, (size_t)NTR_CHUNK_SIZE), i = 0;

		while (i < n && !b->data[off + i])
			i++;
		if (i == n)
			return NTR_DIFF_CONTENT;
	}
	return 0;
}

static inline const char *diff_path(const char *path)
{
	return *path ? path : "."; /* the root itself */
}

/* The entry of the diff for path (both lists are sorted, but for the root's name), or NULL. */
static inline const struct ntr_diff_entry *diff_find(const struct ntr_diff *d, const char *path)
{
	for (size_t i = 0; i < d->n; i++)
		if (!strcmp(d->v[i].path, diff_path(path)))
			return &d->v[i];
	return NULL;
}

/* What the diff says of a path; returns whether it says anything. */
static inline bool diff_wants(
        const struct ntr_diff *d, const char *path, int kind, unsigned what, unsigned maybe)
{
	const struct ntr_diff_entry *en = diff_find(d, path);

	if (!kind && en && en->kind == NTR_DIFF_MODIFIED && en->what == maybe)
		return true;
	if (!kind && en)
		fail_msg("'%s': %c what %x, but nothing differs", path, en->kind, en->what);
	if (kind && (!en || (int)en->kind != kind))
		fail_msg("'%s': %c, wanted %c", path, en ? (char)en->kind : '-', kind);
	if (kind == NTR_DIFF_MODIFIED && en->what != what && en->what != (what | maybe))
		fail_msg("'%s': what %x, wanted %x", path, en->what, what);
	return kind != 0;
}

static inline void twin_check_diff(
        struct ntr_store *st, uint64_t ra, uint64_t rb, const struct twin *a, const struct twin *b)
{
	size_t i = 0, j = 0, count = 0;
	struct ntr_diff d;
	bool state = false;

	assert_int_equal(ntr_diff_compute(st, ra, rb, NULL, &d), 0);
	while (i < a->n || j < b->n) {
		int c = i == a->n ? 1 : j == b->n ? -1 : strcmp(a->e[i].path, b->e[j].path), kind = 0;
		const char *path = c <= 0 ? a->e[i].path : b->e[j].path;
		unsigned what = 0, maybe = 0;

		if (c)
			kind = c < 0 ? NTR_DIFF_DELETED : NTR_DIFF_CREATED;
		else if ((a->o[a->e[i].obj].mode ^ b->o[b->e[j].obj].mode) & S_IFMT)
			kind = NTR_DIFF_TYPE;
		else if ((what = twin_what(a, i, b, j)))
			kind = NTR_DIFF_MODIFIED;
		if (!c)
			maybe = twin_maybe(a->o[a->e[i].obj].data);
		count += diff_wants(&d, path, kind, what, maybe);
		i += c <= 0;
		j += c >= 0;
	}
	assert_int_equal(d.n, count);
	for (size_t k = 1; k < d.n; k++)
		assert_true(strcmp(d.v[k - 1].path, d.v[k].path) < 0);
	for (int k = 0; k < TWIN_STATES; k++)
		state |= !a->state[k] != !b->state[k] || !blob_same(a->state[k], b->state[k]);
	if (state)
		assert_true(d.state_changed);
	ntr_diff_done(&d);
}

#endif
