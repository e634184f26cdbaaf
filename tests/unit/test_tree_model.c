/* The tree against its twin: long random runs of put, delete, get, seek, walk and diff over many retained
 * roots, with a cache too small to hold them; old roots must stay what they were, also after the store was
 * closed. */
#include "treetwin.h"

#include <errno.h>

enum { VERSIONS = 24, BATCH = 3000 };

struct model {
	struct treefix f;
	struct twin_pool pool;
	struct twin v[VERSIONS];
	size_t n;
	uint64_t rnd;
	struct ntr_change c[BATCH];
	uint64_t next_inode;
};

static size_t below(struct model *m, size_t n)
{
	return treefix_below(&m->rnd, n);
}

/* --- checks --- */

static void check_scan(struct model *m, const struct twin *t)
{
	struct ntr_tree_cursor c;
	size_t i = 0;
	int r;

	ntr_tree_cursor_init(&c, m->f.tree, t->root);
	for (r = ntr_tree_cursor_seek(&c, "", 0); r == 1; r = ntr_tree_cursor_next(&c), i++) {
		assert_true(i < t->n);
		assert_int_equal(c.klen, t->v[i].klen);
		assert_memory_equal(c.key, t->v[i].key, c.klen);
		assert_int_equal(c.vlen, t->v[i].vlen);
		if (c.vlen)
			assert_memory_equal(c.val, t->v[i].val, c.vlen);
	}
	assert_int_equal(r, 0);
	assert_int_equal(i, t->n);
	assert_int_equal(ntr_tree_cursor_next(&c), 0);
	ntr_tree_cursor_done(&c);
	ntr_tree_cursor_done(&c);
}

static void check_key(struct model *m, const struct twin *t, const uint8_t *key, size_t klen)
{
	static uint8_t val[NTR_VALUE_MAX];
	struct ntr_tree_cursor c;
	size_t i = twin_find(t, key, klen), len = 0;
	int r = ntr_tree_get(m->f.tree, t->root, key, klen, val, &len);

	assert_int_equal(r, twin_is(t, i, key, klen) ? 0 : -ENOENT);
	if (!r) {
		assert_int_equal(len, t->v[i].vlen);
		assert_memory_equal(val, t->v[i].val, len);
	}
	ntr_tree_cursor_init(&c, m->f.tree, t->root);
	r = ntr_tree_cursor_seek(&c, key, klen);
	for (size_t k = below(m, 4) + 1; k && i < t->n; k--, i++) {
		assert_int_equal(r, 1);
		assert_int_equal(c.klen, t->v[i].klen);
		assert_memory_equal(c.key, t->v[i].key, c.klen);
		r = ntr_tree_cursor_next(&c);
	}
	if (i == t->n)
		assert_int_equal(r, 0);
	ntr_tree_cursor_done(&c);
}

static size_t random_key(struct model *m, uint8_t *key);

static void check_keys(struct model *m, const struct twin *t, int n)
{
	uint8_t key[NTR_KEY_MAX];

	while (n--) {
		if (t->n && below(m, 2)) {
			const struct twin_item *it = &t->v[below(m, t->n)];

			check_key(m, t, it->key, it->klen);
		} else {
			check_key(m, t, key, random_key(m, key));
		}
	}
}

struct walk_state {
	size_t items, nodes, small;
};

static int walk_visit(void *user, uint64_t id, const struct ntr_node_view *n)
{
	struct walk_state *w = user;

	assert_true(id > 0);
	w->nodes++;
	if (!n->level)
		w->items += n->count;
	if (n->len < NTR_NODE_TARGET / 3)
		w->small++;
	assert_true(n->len <= NTR_NODE_TARGET || n->count == 1); /* only a large item makes a large node */
	return 0;
}

static void walk_broken(void *user, uint64_t id, int err, const char *what)
{
	(void)user;
	print_error("node %llu: %s (%d)\n", (unsigned long long)id, what, err);
	fail();
}

static void check_walk(struct model *m, const struct twin *t)
{
	struct walk_state s = {0};
	struct ntr_tree_walk w = {.visit = walk_visit, .broken = walk_broken, .user = &s};

	assert_int_equal(ntr_tree_walk(m->f.tree, t->root, &w), 0);
	assert_int_equal(s.items, t->n);
	assert_true((t->root == 0) == (t->n == 0));
	assert_true(s.nodes < 12 || s.small * 2 < s.nodes);
}

struct diff_state {
	const struct twin *a, *b;
	size_t i, j;
};

/* The next difference between the twins must be exactly what the tree reports. */
static bool diff_step(
        struct diff_state *d, const struct twin_item **ret_old, const struct twin_item **ret_new)
{
	for (;;) {
		const struct twin_item *x = d->i < d->a->n ? &d->a->v[d->i] : NULL;
		const struct twin_item *y = d->j < d->b->n ? &d->b->v[d->j] : NULL;
		int c;

		if (!x && !y)
			return false;
		c = !x ? 1 : !y ? -1 : twin_compare(x->key, x->klen, y->key, y->klen);
		*ret_old = c <= 0 ? x : NULL;
		*ret_new = c >= 0 ? y : NULL;
		d->i += c <= 0;
		d->j += c >= 0;
		if (c || !twin_same_value(x, y))
			return true;
	}
}

static void diff_value(const struct twin_item *it, const uint8_t *val, size_t len)
{
	assert_true(!it == !val);
	if (!it)
		return;
	assert_int_equal(it->vlen, len);
	if (len)
		assert_memory_equal(it->val, val, len);
}

static int diff_seen(void *user, const uint8_t *key, size_t klen, const uint8_t *old, size_t old_len,
        const uint8_t *new, size_t new_len)
{
	const struct twin_item *x = NULL, *y = NULL;

	assert_true(diff_step(user, &x, &y));
	diff_value(x, old, old_len);
	diff_value(y, new, new_len);
	assert_int_equal(klen, (x ? x : y)->klen);
	assert_memory_equal(key, (x ? x : y)->key, klen);
	return 0;
}

static void check_diff(struct model *m, const struct twin *a, const struct twin *b)
{
	struct diff_state d = {.a = a, .b = b};
	const struct twin_item *x, *y;

	assert_int_equal(ntr_tree_diff(m->f.tree, a->root, b->root, diff_seen, &d), 0);
	assert_false(diff_step(&d, &x, &y));
}

/* --- random changes --- */

static size_t make_key(uint8_t *key, uint64_t inode, uint8_t type, const void *suffix, size_t n)
{
	ntr_put_be64(key, inode);
	key[8] = type;
	if (n)
		memcpy(key + 9, suffix, n);
	return 9 + n;
}

static size_t random_key(struct model *m, uint8_t *key)
{
	uint64_t inode = 1 + below(m, m->next_inode);
	uint8_t suffix[NTR_KEY_MAX];
	size_t n;

	switch (below(m, 6)) {
	case 0:
		return make_key(key, inode, 1, NULL, 0);
	case 1: /* the longest keys, alike to their last byte */
		memset(suffix, 'x', sizeof(suffix));
		n = below(m, 50) ? 20 : NTR_KEY_MAX - 9;
		suffix[n - 1] = (uint8_t)below(m, 256);
		return make_key(key, inode, 2, suffix, n);
	case 2: /* anything at all */
		n = 1 + below(m, 12);
		for (size_t i = 0; i < n; i++)
			key[i] = (uint8_t)below(m, 5);
		return n;
	default:
		n = 8 + below(m, 20);
		treefix_fill(&m->rnd, suffix, n);
		return make_key(key, 1 + inode % 20, 3, suffix, n);
	}
}

static struct ntr_change put_of(struct model *m, const uint8_t *key, size_t klen)
{
	static uint8_t val[NTR_VALUE_MAX];
	size_t n = below(m, 100) ? below(m, 60) : below(m, NTR_VALUE_MAX + 1);

	treefix_fill(&m->rnd, val, n);
	return (struct ntr_change){.key = twin_bytes(&m->pool, key, klen),
	        .klen = klen,
	        .val = twin_bytes(&m->pool, val, n),
	        .vlen = n};
}

static size_t changes_random(struct model *m, const struct twin *t, size_t n)
{
	uint8_t key[NTR_KEY_MAX];

	for (size_t i = 0; i < n; i++) {
		const struct twin_item *it = t->n ? &t->v[below(m, t->n)] : NULL;
		size_t klen;

		switch (it ? below(m, 6) : 5) {
		case 0: /* delete what is there */
		case 1:
			m->c[i] = (struct ntr_change){.key = it->key, .klen = it->klen};
			break;
		case 2: /* the value it has */
			m->c[i] = (struct ntr_change){
			        .key = it->key, .klen = it->klen, .val = it->val, .vlen = it->vlen};
			break;
		case 3: /* another value */
			m->c[i] = put_of(m, it->key, it->klen);
			break;
		case 4: /* delete what is (mostly) absent */
			klen = random_key(m, key);
			m->c[i] = (struct ntr_change){.key = twin_bytes(&m->pool, key, klen), .klen = klen};
			break;
		default:
			klen = random_key(m, key);
			m->c[i] = put_of(m, key, klen);
		}
	}
	return n;
}

static size_t changes_append(struct model *m, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t key[NTR_KEY_MAX];
		size_t klen = make_key(key, m->next_inode++, 1, NULL, 0);

		m->c[i] = put_of(m, key, klen);
	}
	return n;
}

static size_t changes_delete_run(struct model *m, const struct twin *t, size_t n)
{
	size_t from = t->n ? below(m, t->n) : 0;

	n = NTR_MIN(n, t->n - from);
	for (size_t i = 0; i < n; i++)
		m->c[i] = (struct ntr_change){.key = t->v[from + i].key, .klen = t->v[from + i].klen};
	return n;
}

static size_t changes_delete_from_end(struct model *m, const struct twin *t, size_t n)
{
	n = NTR_MIN(n, t->n);
	for (size_t i = 0; i < n; i++)
		m->c[i] = (struct ntr_change){.key = t->v[t->n - n + i].key, .klen = t->v[t->n - n + i].klen};
	return n;
}

static int by_change_key(const void *a, const void *b)
{
	const struct ntr_change *x = a, *y = b;

	return twin_compare(x->key, x->klen, y->key, y->klen);
}

static size_t changes_make(struct model *m, const struct twin *t)
{
	size_t n, k = 0;

	switch (below(m, 12)) {
	case 0:
		n = changes_append(m, 1 + below(m, BATCH));
		break;
	case 1:
		n = changes_delete_run(m, t, 1 + below(m, BATCH));
		break;
	case 2:
		n = changes_delete_from_end(m, t, 1 + below(m, 200));
		break;
	case 3:
		n = changes_append(m, 1 + below(m, 3));
		break;
	case 4:
		n = changes_random(m, t, 1 + below(m, 400));
		break;
	default:
		n = changes_random(m, t, 1 + below(m, 20));
	}
	qsort(m->c, n, sizeof(m->c[0]), by_change_key);
	for (size_t i = 0; i < n; i++)
		if (!k || by_change_key(&m->c[k - 1], &m->c[i]))
			m->c[k++] = m->c[i];
	return k;
}

static bool twins_equal(const struct twin *a, const struct twin *b)
{
	struct diff_state d = {.a = a, .b = b};
	const struct twin_item *x, *y;

	return !diff_step(&d, &x, &y);
}

static void step(struct model *m)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	const struct twin *base = &m->v[below(m, m->n)];
	size_t n = changes_make(m, base), slot;
	struct twin next = twin_apply(base, m->c, n);

	assert_int_equal(ntr_tree_apply(m->f.tree, base->root, m->c, n, b, &next.root), 0);
	assert_int_equal(ntr_kv_write(m->f.kv, b, NTR_KV_RELAXED, NULL), 0);
	assert_int_equal(next.root == base->root, twins_equal(base, &next));
	slot = m->n < VERSIONS ? m->n++ : below(m, VERSIONS);
	check_diff(m, base, &next);
	free(m->v[slot].v);
	m->v[slot] = next;
	check_keys(m, &next, 40);
	check_diff(m, &m->v[below(m, m->n)], &m->v[below(m, m->n)]);
}

static void check_all(struct model *m)
{
	for (size_t i = 0; i < m->n; i++) {
		check_scan(m, &m->v[i]);
		check_walk(m, &m->v[i]);
	}
}

static void test_model(void **state)
{
	static struct model m;

	(void)state;
	m.rnd = treefix_seed();
	m.next_inode = 100;
	treefix_dir(&m.f);
	treefix_open(&m.f, 400 << 10);
	m.v[0].v = calloc(1, sizeof(*m.v[0].v));
	m.n = 1;
	for (int round = 1; round <= 1200; round++) {
		step(&m);
		if (round % 150 == 0)
			check_all(&m);
	}
	treefix_close(&m.f);
	treefix_open(&m.f, 0);
	check_all(&m);
	for (size_t i = 0; i < m.n; i++)
		check_diff(&m, &m.v[0], &m.v[i]);
	for (size_t i = 0; i < m.n; i++)
		free(m.v[i].v);
	twin_pool_done(&m.pool);
	treefix_close(&m.f);
	treefix_remove(&m.f);
}

/* --- single behaviours --- */

static uint64_t apply(struct treefix *f, uint64_t root, const struct ntr_change *c, size_t n)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	uint64_t ret;

	assert_int_equal(ntr_tree_apply(f->tree, root, c, n, b, &ret), 0);
	assert_int_equal(ntr_kv_write(f->kv, b, NTR_KV_RELAXED, NULL), 0);
	return ret;
}

static void test_empty(void **state)
{
	struct ntr_change put = {
	        .key = (const uint8_t *)"k", .klen = 1, .val = (const uint8_t *)"", .vlen = 0};
	struct ntr_change del = {.key = (const uint8_t *)"k", .klen = 1};
	struct ntr_tree_cursor c;
	uint8_t val[NTR_VALUE_MAX];
	struct treefix f;
	uint64_t root;
	size_t len;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	assert_int_equal(ntr_tree_get(f.tree, 0, "k", 1, val, &len), -ENOENT);
	ntr_tree_cursor_init(&c, f.tree, 0);
	assert_int_equal(ntr_tree_cursor_next(&c), 0);
	assert_int_equal(ntr_tree_cursor_seek(&c, "", 0), 0);
	ntr_tree_cursor_done(&c);
	assert_int_equal(apply(&f, 0, &del, 1), 0);
	assert_int_equal(apply(&f, 0, NULL, 0), 0);
	root = apply(&f, 0, &put, 1);
	assert_true(root > 0);
	assert_int_equal(ntr_tree_get(f.tree, root, "k", 1, val, &len), 0);
	assert_int_equal(len, 0);
	assert_int_equal(apply(&f, root, &put, 1), root);
	assert_int_equal(apply(&f, root, &del, 1), 0);
	treefix_close(&f);
	treefix_remove(&f);
}

static void test_bad_changes(void **state)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	static uint8_t big[NTR_VALUE_MAX + 1];
	const uint8_t *k = big;
	struct ntr_change bad[][2] = {
	        {{.key = k, .klen = 2, .val = k}, {.key = k, .klen = 1, .val = k}},     /* descending */
	        {{.key = k, .klen = 2, .val = k}, {.key = k, .klen = 2}},               /* twice */
	        {{.key = k, .klen = NTR_KEY_MAX + 1, .val = k}, {.key = k, .klen = 1}}, /* too long */
	        {{.key = k, .klen = 1, .val = k, .vlen = sizeof(big)}, {.key = k, .klen = 2}}, /* too large */
	        {{.key = k, .klen = 0, .val = k}, {.key = k, .klen = 2}},                      /* empty */
	};
	struct treefix f;
	uint64_t root;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	for (size_t i = 0; i < NTR_COUNT(bad); i++)
		assert_int_equal(ntr_tree_apply(f.tree, 0, bad[i], 2, b, &root), -EINVAL);
	treefix_close(&f);
	treefix_remove(&f);
}

static int stop_at_third(void *user, const uint8_t *key, size_t klen, const uint8_t *old, size_t old_len,
        const uint8_t *new, size_t new_len)
{
	(void)key;
	(void)klen;
	(void)old;
	(void)old_len;
	(void)new;
	(void)new_len;
	return ++*(int *)user == 3 ? 42 : 0;
}

static uint64_t numbers(struct treefix *f, uint64_t root, uint32_t from, uint32_t to, const char *val)
{
	size_t n = to - from;
	uint8_t(*key)[9] = calloc(n, 9);
	struct ntr_change *c = calloc(n, sizeof(*c));

	assert_true(key && c);
	for (size_t i = 0; i < n; i++) {
		ntr_put_be64(key[i], from + i);
		key[i][8] = 1;
		c[i] = (struct ntr_change){
		        .key = key[i], .klen = 9, .val = (const uint8_t *)val, .vlen = val ? strlen(val) : 0};
	}
	root = apply(f, root, c, n);
	free(key);
	free(c);
	return root;
}

static int count_node(void *user, uint64_t id, const struct ntr_node_view *n)
{
	(void)id;
	(void)n;
	++*(size_t *)user;
	return 0;
}

static size_t count_nodes(struct treefix *f, uint64_t root)
{
	size_t n = 0;
	struct ntr_tree_walk w = {.visit = count_node, .broken = walk_broken, .user = &n};

	assert_int_equal(ntr_tree_walk(f->tree, root, &w), 0);
	return n;
}

static void test_sharing_and_fill(void **state)
{
	static const char val[] = "0123456789012345678901234567890123456789";
	struct treefix f;
	uint64_t root, one, hits, before, after, bytes, r2 = 0;
	size_t nodes, slow;
	int stop = 0;

	(void)state;
	treefix_dir(&f);
	treefix_open(&f, 0);
	root = numbers(&f, 0, 0, 20000, val);
	nodes = count_nodes(&f, root);
	assert_true(nodes * NTR_NODE_TARGET * 85 / 100 < 20000 * 50); /* packed to about 90 % */
	for (uint32_t i = 0; i < 2000; i++)
		r2 = numbers(&f, r2, i * 10, i * 10 + 10, val);
	slow = count_nodes(&f, r2);
	assert_true(slow <= nodes * 110 / 100 + 2); /* appending piece by piece packs as well */

	/* One change writes one path. */
	before = ntr_ids_peek(f.ids, NTR_ID_NODE);
	one = numbers(&f, root, 10000, 10001, "other");
	after = ntr_ids_peek(f.ids, NTR_ID_NODE);
	assert_true(after - before <= 3);
	/* And its diff reads two paths, not the trees. */
	ntr_tree_stats(f.tree, &bytes, &hits, &before);
	stop = 0;
	assert_int_equal(ntr_tree_diff(f.tree, root, one, stop_at_third, &stop), 0);
	assert_int_equal(stop, 1);
	before = hits;
	ntr_tree_stats(f.tree, &bytes, &hits, &after);
	assert_true(hits - before <= 8);
	/* Stopped by the callback. */
	stop = 0;
	assert_int_equal(ntr_tree_diff(f.tree, 0, root, stop_at_third, &stop), 42);
	assert_int_equal(stop, 3);
	/* Trees of different height that share their leaves. */
	one = numbers(&f, root, 100, 20000, NULL);
	r2 = numbers(&f, one, 100, 101, val);
	stop = -100;
	assert_int_equal(ntr_tree_diff(f.tree, one, r2, stop_at_third, &stop), 0);
	assert_int_equal(stop, -99);
	/* Deleted in runs, the tree shrinks to one leaf. */
	assert_int_equal(count_nodes(&f, numbers(&f, root, 3, 20000, NULL)), 1);
	assert_int_equal(numbers(&f, root, 0, 20000, NULL), 0);
	treefix_close(&f);
	treefix_remove(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_empty),
	        cmocka_unit_test(test_bad_changes),
	        cmocka_unit_test(test_sharing_and_fill),
	        cmocka_unit_test(test_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
