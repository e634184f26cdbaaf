/* store_fixture: a store in a folder of its own, sessions and transactions in it, and small checks. */
#ifndef NTR_TEST_STORE_FIXTURE_H
#define NTR_TEST_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/util.h"
#include "fs/names.h"

#include <fcntl.h>

struct fixture {
	char dir[256], path[300];
	struct ntr_store *st;
	struct ntr_head head;
};

static inline void fx_fail(const char *what, const struct ntr_err *e)
{
	char text[2048];

	ntr_err_format(e, text, sizeof text);
	fail_msg("%s: %s", what, text);
}

static inline void fx_open(struct fixture *f, bool create)
{
	struct ntr_err e = {0};

	if (ntr_store_open(f->path, &(struct ntr_store_options){.create = create}, &f->st, &e))
		fx_fail("open the store", &e);
}

static inline void fx_setup(struct fixture *f)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(f->dir, sizeof f->dir, "%s/ntr-test.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof f->path, "%s/store", f->dir);
	fx_open(f, true);
}

static inline void fx_teardown(struct fixture *f)
{
	ntr_store_close(f->st);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, f->dir), 0);
}

static inline void fx_session(struct fixture *f, const char *name)
{
	struct ntr_err e = {0};

	if (ntr_session_new(f->st, name, NULL, NULL, &f->head, &e))
		fx_fail("new session", &e);
}

static inline struct ntr_txn *fx_begin(struct fixture *f)
{
	struct ntr_txn *t;

	assert_int_equal(ntr_txn_begin(f->st, f->head.root, &t), 0);
	return t;
}

static inline void fx_commit(struct fixture *f, struct ntr_txn *t)
{
	struct ntr_stats stats = {0};
	struct ntr_commit c = {0};
	struct ntr_err e = {0};

	if (ntr_store_commit(f->st, &f->head, t, "{\"tool\":\"test\"}", &stats, &c, &e))
		fx_fail("commit", &e);
	ntr_commit_done(&c);
}

static inline void fx_reopen(struct fixture *f)
{
	char name[sizeof f->head.name];
	struct ntr_err e = {0};

	memcpy(name, f->head.name, sizeof name);
	ntr_store_close(f->st);
	fx_open(f, false);
	if (name[0] && ntr_session_get(f->st, name, &f->head, &e))
		fx_fail("session after reopening", &e);
}

/* Items of one type that an inode has. */
static inline unsigned fx_items(const struct ntr_snap *s, uint64_t ino, uint8_t type)
{
	struct ntr_snap_cursor c;
	uint8_t key[9];
	unsigned n = 0;
	int r;

	ntr_put_be64(key, ino);
	key[8] = type;
	ntr_snap_cursor_init(&c, s);
	for (r = ntr_snap_cursor_seek(&c, key, sizeof key); r > 0; r = ntr_snap_cursor_next(&c)) {
		if (memcmp(c.key, key, sizeof key))
			break;
		n++;
	}
	assert_true(r >= 0);
	ntr_snap_cursor_done(&c);
	return n;
}

/* xorshift64*: the same numbers for the same seed everywhere. */
static inline uint64_t fx_rand(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * UINT64_C(2685821657736338717);
}

static inline uint64_t fx_below(uint64_t *s, uint64_t n)
{
	return (fx_rand(s) >> 11) % n;
}

static inline void fx_fill(uint64_t *s, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(fx_rand(s) >> 40);
}

#endif
