/* fsck_fixture: running fsck with its problems collected, and random histories for it to look at. */
#ifndef NTR_TEST_FSCK_FIXTURE_H
#define NTR_TEST_FSCK_FIXTURE_H

#include "store_fixture.h"

#include "fs/cache.h"
#include "fs/file.h"
#include "fs/fsck.h"
#include "fs/inode_impl.h"

#include <dirent.h>
#include <errno.h>

struct report {
	struct ntr_fsck f;
	char text[256 << 10];
	size_t len, progress;
};

static inline void report_problem(void *user, const char *text)
{
	struct report *r = user;
	int n = snprintf(r->text + r->len, sizeof(r->text) - r->len, "%s\n", text);

	r->len = NTR_MIN(r->len + (size_t)n, sizeof(r->text) - 1);
}

static inline void report_progress(void *user, const char *stage, uint64_t done, uint64_t total)
{
	struct report *r = user;

	assert_non_null(stage);
	assert_true(!total || done <= total);
	r->progress++;
}

static inline void fsck_run(struct ntr_store *s, struct report *r)
{
	struct ntr_err e = {0};

	memset(r, 0, sizeof(*r));
	r->f.problem = report_problem;
	r->f.progress = report_progress;
	r->f.user = r;
	if (ntr_fsck_run(s, &r->f, &e))
		fx_fail("fsck", &e);
	assert_true(!r->f.problems == !r->len);
}

static inline void fsck_clean(struct ntr_store *s, struct report *r)
{
	fsck_run(s, r);
	if (r->f.problems)
		fail_msg("%llu problems:\n%s", (unsigned long long)r->f.problems, r->text);
}

/* --- random histories --- */

struct story {
	struct fixture *fx;
	struct ntr_txn *t;
	uint64_t rnd;
	uint64_t dirs[2000];
	size_t ndirs;
};

static inline void story_find_dirs(struct story *s, uint64_t dir)
{
	struct ntr_dir_iter it;
	struct ntr_dirent d;

	if (s->ndirs < NTR_COUNT(s->dirs))
		s->dirs[s->ndirs++] = dir;
	ntr_dir_iter_init(&it, ntr_txn_snap(s->t), dir, 0);
	while (ntr_dir_iter_next(&it, &d) == 1)
		if (d.dtype == DT_DIR)
			story_find_dirs(s, d.ino);
	ntr_dir_iter_done(&it);
}

/* A random entry of dir; false when it has none. */
static inline bool story_entry(struct story *s, uint64_t dir, struct ntr_dirent *d)
{
	struct ntr_dir_iter it;
	int r;

	ntr_dir_iter_init(&it, ntr_txn_snap(s->t), dir, fx_rand(&s->rnd) >> 1);
	r = ntr_dir_iter_next(&it, d);
	ntr_dir_iter_done(&it);
	if (r != 1) {
		ntr_dir_iter_init(&it, ntr_txn_snap(s->t), dir, 0);
		r = ntr_dir_iter_next(&it, d);
		ntr_dir_iter_done(&it);
	}
	return r == 1;
}

static inline uint64_t story_dir(struct story *s)
{
	return s->dirs[fx_below(&s->rnd, s->ndirs)];
}

static inline void story_content(struct story *s, struct ntr_inode *in)
{
	static uint8_t data[700000];
	size_t n = (size_t)(fx_below(&s->rnd, 4) ? fx_below(&s->rnd, 900) : fx_below(&s->rnd, sizeof(data)));
	struct ntr_file_sink *k;

	fx_fill(&s->rnd, data, n);
	if (fx_below(&s->rnd, 6)) {
		assert_int_equal(ntr_file_take_mem(s->t, in, data, n), 0);
		return;
	}
	/* With holes, more than one group of extents long. */
	assert_int_equal(ntr_file_sink_new(s->t, in, &k), 0);
	for (uint64_t off = 0, i = 0; i < 3; i++, off += 3000000 + fx_below(&s->rnd, 200000))
		assert_int_equal(ntr_file_sink_write(k, off + 131072, data, NTR_MIN(n, (size_t)100000)), 0);
	assert_int_equal(ntr_file_sink_end(k, 11000000 + fx_below(&s->rnd, 100000)), 0);
}

static inline void story_create(struct story *s, uint64_t dir, const char *name)
{
	static const uint32_t types[] = {S_IFREG, S_IFREG, S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO};
	uint32_t type = types[fx_below(&s->rnd, NTR_COUNT(types))];
	struct ntr_inode in;
	int r;

	assert_int_equal(ntr_inode_new(s->t, type | 0644, &in), 0);
	if (type == S_IFLNK) {
		in.data_kind = NTR_DATA_SYMLINK;
		in.size = in.payload_len = (uint16_t)(1 + fx_below(&s->rnd, 3000));
		memset(in.payload, 't', in.payload_len);
	}
	r = ntr_name_create(s->t, dir, name, &in, NULL);
	if (r == -EEXIST)
		return;
	assert_int_equal(r, 0);
	if (type != S_IFREG)
		return;
	story_content(s, &in);
	assert_int_equal(ntr_inode_put(s->t, &in), 0);
}

static inline void story_xattr(struct story *s, uint64_t ino)
{
	static uint8_t val[NTR_XATTR_VALUE_MAX];
	struct ntr_inode in;
	char name[16];
	int r;

	snprintf(name, sizeof(name), "user.x%u", (unsigned)fx_below(&s->rnd, 3));
	assert_int_equal(ntr_inode_get(ntr_txn_snap(s->t), ino, &in), 0);
	if (fx_below(&s->rnd, 3)) {
		size_t n = (size_t)(fx_below(&s->rnd, 5) ? fx_below(&s->rnd, 50)
		                                         : fx_below(&s->rnd, sizeof(val)));

		fx_fill(&s->rnd, val, n);
		r = ntr_xattr_set(s->t, &in, name, val, n);
	} else {
		r = ntr_xattr_del(s->t, &in, name);
	}
	assert_true(!r || r == -ENODATA);
}

static inline void story_step(struct story *s)
{
	uint64_t dir = story_dir(s), other = story_dir(s);
	struct ntr_dirent d = {0};
	bool have = story_entry(s, dir, &d);
	struct ntr_inode in;
	char name[16];
	int r = 0;

	snprintf(name, sizeof(name), "n%u", (unsigned)fx_below(&s->rnd, 40));
	switch (have ? fx_below(&s->rnd, 9) : 8) {
	case 0:
		r = ntr_name_remove(s->t, dir, d.name, NULL);
		break;
	case 1:
		r = ntr_name_rename(s->t, dir, d.name, other, name, NULL);
		break;
	case 2:
		r = ntr_name_link(s->t, d.ino, other, name, NULL);
		break;
	case 3:
		story_xattr(s, d.ino);
		break;
	case 4:
		assert_int_equal(ntr_inode_get(ntr_txn_snap(s->t), d.ino, &in), 0);
		if (d.dtype == DT_REG) {
			story_content(s, &in);
			r = ntr_inode_put(s->t, &in);
		}
		break;
	default:
		story_create(s, dir, name);
	}
	assert_true(!r || r == -EEXIST || r == -EPERM || r == -EINVAL || r == -ENOTDIR || r == -EISDIR ||
	            r == -ENOTEMPTY);
	s->ndirs = 0;
	story_find_dirs(s, NTR_INO_ROOT);
}

/* One commit of some random steps to the fixture's head. */
static inline void story_commit(struct fixture *fx, uint64_t *rnd, unsigned steps)
{
	struct story s = {.fx = fx, .t = fx_begin(fx), .rnd = *rnd};
	static uint8_t value[200000];
	char cwd[64];

	story_find_dirs(&s, NTR_INO_ROOT);
	while (steps--)
		story_step(&s);
	/* Never twice the same: steps may all be refused (the seed of the name hash, and with it which entry
	 * is found, is another in every run), and a commit without any change is none. */
	snprintf(cwd, sizeof(cwd), "/workspace/%llu", (unsigned long long)fx_rand(&s.rnd));
	assert_int_equal(ntr_kvitem_set(s.t, "s:cwd", cwd, strlen(cwd)), 0);
	snprintf(cwd, sizeof(cwd), "key%llu", (unsigned long long)fx_below(&s.rnd, 5));
	fx_fill(&s.rnd, value, sizeof(value));
	assert_int_equal(ntr_cacheitem_set(s.t, cwd, fx_below(&s.rnd, 4) ? value : NULL,
	                         (size_t)fx_below(&s.rnd, sizeof(value))),
	        0);
	fx_commit(fx, s.t);
	*rnd = s.rnd;
}

#endif
