/* treefix: a temporary folder with a database, ids and a tree in it, and a random generator with a printed
 * seed. */
#ifndef NTR_TESTS_TREEFIX_H
#define NTR_TESTS_TREEFIX_H

#include "base/util.h"
#include "fs/ids.h"
#include "fs/kv.h"
#include "fs/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

struct treefix {
	char dir[256], db[300];
	struct ntr_kv *kv;
	struct ntr_ids *ids;
	struct ntr_tree *tree;
};

static inline void treefix_dir(struct treefix *f)
{
	const char *tmp = getenv("TMPDIR");

	memset(f, 0, sizeof(*f));
	snprintf(f->dir, sizeof(f->dir), "%s/ntr-test-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->db, sizeof(f->db), "%s/db", f->dir);
}

static inline void treefix_open(struct treefix *f, size_t node_cache)
{
	struct ntr_err e = {0};
	int r = ntr_kv_open(
	        f->db, &(struct ntr_kv_options){.create = true, .cache_bytes = 8 << 20}, &f->kv, &e);

	if (r)
		ntr_err_print(&e);
	assert_int_equal(r, 0);
	assert_int_equal(ntr_ids_open(f->kv, &f->ids, NULL), 0);
	assert_int_equal(ntr_tree_new(f->kv, f->ids, node_cache, &f->tree), 0);
}

static inline void treefix_close(struct treefix *f)
{
	ntr_tree_free(f->tree);
	ntr_ids_close(f->ids);
	ntr_kv_close(f->kv);
	f->tree = NULL;
	f->ids = NULL;
	f->kv = NULL;
}

static inline void treefix_remove(struct treefix *f)
{
	assert_int_equal(ntr_rm_rf(AT_FDCWD, f->dir), 0);
}

static inline uint64_t treefix_seed(void)
{
	const char *s = getenv("NTR_TEST_SEED");
	uint64_t seed = s ? strtoull(s, NULL, 0) : 20240607;

	print_message("seed %llu (NTR_TEST_SEED)\n", (unsigned long long)seed);
	return seed;
}

/* splitmix64 */
static inline uint64_t treefix_rand(uint64_t *s)
{
	uint64_t z = *s += 0x9E3779B97F4A7C15u;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

static inline size_t treefix_below(uint64_t *s, size_t n)
{
	return (size_t)(treefix_rand(s) % n);
}

static inline void treefix_fill(uint64_t *s, void *p, size_t n)
{
	uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		b[i] = (uint8_t)treefix_rand(s);
}

#endif
