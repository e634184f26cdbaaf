/* Names: random operations on a tree and on a plain model of one in memory, compared whole; and the rules one
 * by one. */
#include "store_fixture.h"

#include "fs/file.h"
#include "fs/inode_impl.h"
#include "fs/store_impl.h"

#include <dirent.h>
#include <errno.h>

/* ---- the model ---- */

enum { NAMES = 24, XATTRS = 3, DIRS_MAX = 400 };

struct node {
	uint64_t ino;
	uint32_t mode;
	unsigned links; /* names, for what is no directory */
	uint8_t *data;
	size_t size;
	uint8_t *xattr[XATTRS];
	size_t xattr_len[XATTRS];
	struct node *child[NAMES]; /* by number of the name */
	bool seen;
};

struct model {
	struct node *root;
	struct node *dir[DIRS_MAX]; /* refreshed before each operation */
	unsigned ndirs;
	uint64_t rnd;
	char name[NAMES][256];
};

static struct fixture fx;

static void make_names(struct model *m)
{
	for (unsigned i = 0; i < NAMES; i++) {
		unsigned n = i < 16 ? 1 + i / 3 : i == 16 ? 255 : 1 + (unsigned)fx_below(&m->rnd, 40);

		for (unsigned k = 0; k < n; k++)
			m->name[i][k] = (char)(i < 16 ? 'a' + i : 128 + fx_below(&m->rnd, 128));
		m->name[i][n] = '\0';
		m->name[i][0] = (char)('A' + i); /* all differ */
	}
}

static struct node *node_new(uint64_t ino, uint32_t mode)
{
	struct node *n = calloc(1, sizeof *n);

	assert_non_null(n);
	n->ino = ino;
	n->mode = mode;
	n->links = 1;
	return n;
}

static bool is_dir(const struct node *n)
{
	return S_ISDIR(n->mode);
}

static void node_drop(struct node *n)
{
	if (is_dir(n))
		for (unsigned i = 0; i < NAMES; i++)
			if (n->child[i])
				node_drop(n->child[i]);
	if (!is_dir(n) && --n->links)
		return;
	for (unsigned i = 0; i < XATTRS; i++)
		free(n->xattr[i]);
	free(n->data);
	free(n);
}

static void list_dirs(struct model *m, struct node *d)
{
	assert_true(m->ndirs < DIRS_MAX);
	m->dir[m->ndirs++] = d;
	for (unsigned i = 0; i < NAMES; i++)
		if (d->child[i] && is_dir(d->child[i]))
			list_dirs(m, d->child[i]);
}

static bool dir_empty(const struct node *d)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (d->child[i])
			return false;
	return true;
}

static bool below(const struct node *d, const struct node *top)
{
	if (d == top)
		return true;
	for (unsigned i = 0; i < NAMES; i++)
		if (top->child[i] && is_dir(top->child[i]) && below(d, top->child[i]))
			return true;
	return false;
}

/* ---- comparing ---- */

struct tally {
	const struct ntr_snap *s;
	const struct model *m;
	struct {
		uint64_t ino;
		unsigned links;
	} file[4096];
	unsigned files, dirs;
};

static void check_path(const struct ntr_snap *s, const struct ntr_inode *in)
{
	char path[8192];
	uint64_t ino, own;
	uint8_t dtype;

	assert_int_equal(ntr_dirent_get(s, in->parent, in->name, in->name_len, &own, &dtype), 0);
	assert_true(own == in->ino);
	if (ntr_path_of(s, in->ino, path, sizeof path))
		return; /* deeper than the buffer */
	assert_int_equal(ntr_path_lookup(s, path, &ino), 0);
	assert_true(ino == in->ino);
}

static void check_xattrs(const struct ntr_snap *s, const struct node *n, const struct ntr_inode *in)
{
	bool any = false;

	for (unsigned i = 0; i < XATTRS; i++) {
		ntr_autofree uint8_t *val = NULL;
		char name[16];
		size_t len;
		int r;

		snprintf(name, sizeof name, "user.%u", i);
		r = ntr_xattr_get(s, n->ino, name, &val, &len);
		assert_int_equal(r, n->xattr[i] ? 0 : -ENODATA);
		any = any || !r;
		if (!r)
			assert_true(len == n->xattr_len[i] && !memcmp(val, n->xattr[i], len));
	}
	assert_int_equal(!!(in->flags & NTR_INODE_HAS_XATTR), any);
}

static void check_file(struct tally *ta, const struct node *n, const struct ntr_inode *in)
{
	unsigned links = fx_items(ta->s, n->ino, NTR_ITEM_LINK);

	assert_int_equal(in->nlink, n->links);
	assert_int_equal(links, n->links - 1);
	assert_int_equal(!!(in->flags & NTR_INODE_HAS_LINKS), links > 0);
	assert_true(in->size == n->size);
	if (n->size) {
		ntr_autofree uint8_t *got = malloc(n->size);

		assert_non_null(got);
		assert_true(ntr_file_read(ta->s, in, 0, got, n->size) == (ssize_t)n->size);
		assert_memory_equal(got, n->data, n->size);
	}
	for (unsigned i = 0; i < ta->files; i++)
		if (ta->file[i].ino == n->ino) {
			ta->file[i].links++;
			return;
		}
	assert_true(ta->files < NTR_COUNT(ta->file));
	ta->file[ta->files].ino = n->ino;
	ta->file[ta->files++].links = 1;
}

static unsigned name_number(const struct model *m, const char *name)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (!strcmp(m->name[i], name))
			return i;
	fail_msg("an entry that nobody made");
	return 0;
}

static void check_dir(struct tally *ta, const struct node *d, const struct ntr_inode *in);

static void check_node(struct tally *ta, const struct node *n)
{
	struct ntr_inode in;

	assert_int_equal(ntr_inode_get(ta->s, n->ino, &in), 0);
	assert_int_equal(in.mode, n->mode);
	check_path(ta->s, &in);
	check_xattrs(ta->s, n, &in);
	if (is_dir(n))
		check_dir(ta, n, &in);
	else
		check_file(ta, n, &in);
}

static void check_dir(struct tally *ta, const struct node *d, const struct ntr_inode *in)
{
	unsigned have = 0, want = 0, subdirs = 0;
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	uint64_t last = 0;
	int r;

	ta->dirs++;
	ntr_dir_iter_init(&it, ta->s, d->ino, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) > 0) {
		const struct node *n = d->child[name_number(ta->m, en.name)];

		assert_non_null(n);
		assert_true(n->ino == en.ino && en.dtype == IFTODT(n->mode) && en.hash >= last);
		last = en.hash;
		have++;
	}
	assert_int_equal(r, 0);
	ntr_dir_iter_done(&it);
	for (unsigned i = 0; i < NAMES; i++)
		if (d->child[i]) {
			want++;
			subdirs += is_dir(d->child[i]);
			check_node(ta, d->child[i]);
		}
	assert_int_equal(have, want);
	assert_int_equal(in->nlink, 2 + subdirs);
}

/* No item of an object that is gone. */
static void check_no_leftovers(const struct tally *ta)
{
	struct ntr_snap_cursor c;
	unsigned records = 0;
	uint64_t ino = 0;
	int r;

	ntr_snap_cursor_init(&c, ta->s);
	for (r = ntr_snap_cursor_seek(&c, "", 0); r > 0; r = ntr_snap_cursor_next(&c)) {
		uint64_t of = ntr_get_be64(c.key);

		if (of == NTR_INO_META)
			continue;
		if (of != ino)
			assert_int_equal(c.key[8], NTR_ITEM_INODE);
		records += of != ino;
		ino = of;
	}
	assert_int_equal(r, 0);
	ntr_snap_cursor_done(&c);
	assert_int_equal(records, ta->files + ta->dirs);
}

static void check_all(const struct ntr_snap *s, const struct model *m)
{
	struct tally *ta = calloc(1, sizeof *ta);
	struct ntr_inode root;

	assert_non_null(ta);
	ta->s = s;
	ta->m = m;
	assert_int_equal(ntr_inode_get(s, NTR_INO_ROOT, &root), 0);
	check_dir(ta, m->root, &root);
	check_no_leftovers(ta);
	free(ta);
}

/* ---- random operations ---- */

static struct node *some_dir(struct model *m)
{
	return m->dir[fx_below(&m->rnd, m->ndirs)];
}

static unsigned some_name(struct model *m)
{
	return (unsigned)fx_below(&m->rnd, NAMES);
}

/* A name that exists in some directory: *ret_dir, its number; NULL when luck fails. */
static struct node *some_child(struct model *m, struct node **ret_dir, unsigned *ret_name)
{
	for (int i = 0; i < 20; i++) {
		*ret_dir = some_dir(m);
		*ret_name = some_name(m);
		if ((*ret_dir)->child[*ret_name])
			return (*ret_dir)->child[*ret_name];
	}
	return NULL;
}

static void op_create(struct model *m, struct ntr_txn *t, const struct timespec *now)
{
	static const uint32_t modes[] = {S_IFREG | 0644, S_IFREG | 04755, S_IFDIR | 0755, S_IFDIR | 01777,
	        S_IFLNK | 0777, S_IFIFO | 0600};
	struct node *d = some_dir(m), *n;
	unsigned name = some_name(m);
	struct ntr_inode in;
	int r;

	assert_int_equal(ntr_inode_new(t, modes[fx_below(&m->rnd, NTR_COUNT(modes))], &in), 0);
	if (S_ISDIR(in.mode) && m->ndirs > 60)
		in.mode = S_IFREG | 0600;
	if (S_ISLNK(in.mode)) {
		in.data_kind = NTR_DATA_SYMLINK;
		in.size = in.payload_len = 4;
		memcpy(in.payload, "dest", 4);
	}
	r = ntr_name_create(t, d->ino, m->name[name], &in, now);
	assert_int_equal(r, d->child[name] ? -EEXIST : 0);
	if (r)
		return;
	d->child[name] = n = node_new(in.ino, in.mode);
	if (S_ISLNK(in.mode)) {
		n->data = malloc(4);
		assert_non_null(n->data);
		memcpy(n->data, "dest", n->size = 4);
	}
}

static void op_link(struct model *m, struct ntr_txn *t, const struct timespec *now)
{
	struct node *from, *d = some_dir(m), *n;
	unsigned k, name = some_name(m);
	int r;

	n = some_child(m, &from, &k);
	if (!n)
		return;
	r = ntr_name_link(t, n->ino, d->ino, m->name[name], now);
	assert_int_equal(r, d->child[name] ? -EEXIST : is_dir(n) ? -EPERM : 0);
	if (r)
		return;
	d->child[name] = n;
	n->links++;
}

static void op_remove(struct model *m, struct ntr_txn *t, const struct timespec *now)
{
	struct node *d = some_dir(m);
	unsigned name = some_name(m);
	int r;

	if (d == m->root && d->child[name] && is_dir(d->child[name]) && fx_below(&m->rnd, 4))
		return; /* large trees shall live a while */
	r = ntr_name_remove(t, d->ino, m->name[name], now);
	assert_int_equal(r, d->child[name] ? 0 : -ENOENT);
	if (r)
		return;
	node_drop(d->child[name]);
	d->child[name] = NULL;
}

static int rename_result(const struct node *n, const struct node *nd, const struct node *target)
{
	if (is_dir(n) && below(nd, n))
		return -EINVAL;
	if (!target || target == n)
		return 0;
	if (is_dir(n) && !is_dir(target))
		return -ENOTDIR;
	if (!is_dir(n) && is_dir(target))
		return -EISDIR;
	return is_dir(target) && !dir_empty(target) ? -ENOTEMPTY : 0;
}

static void op_rename(struct model *m, struct ntr_txn *t, const struct timespec *now)
{
	struct node *d, *nd = some_dir(m), *n, *target;
	unsigned k, nk = some_name(m);
	int r;

	n = some_child(m, &d, &k);
	if (!n)
		return;
	target = nd->child[nk];
	r = ntr_name_rename(t, d->ino, m->name[k], nd->ino, m->name[nk], now);
	assert_int_equal(r, rename_result(n, nd, target));
	if (r || target == n)
		return;
	if (target)
		node_drop(target);
	d->child[k] = NULL;
	nd->child[nk] = n;
}

/* Two names change places: both detached before either is attached. */
static void op_swap(struct model *m, struct ntr_txn *t)
{
	struct node *d, *e, *a = NULL, *b;
	unsigned k, l;
	uint64_t x, y;

	b = some_child(m, &d, &k);
	if (b)
		a = some_child(m, &e, &l);
	if (!a || (d == e && k == l) || (is_dir(b) && below(e, b)) || (is_dir(a) && below(d, a)))
		return;
	assert_int_equal(ntr_name_detach(t, d->ino, m->name[k], &x), 0);
	assert_int_equal(ntr_name_detach(t, e->ino, m->name[l], &y), 0);
	assert_true(x == b->ino && y == a->ino);
	assert_int_equal(ntr_name_attach(t, e->ino, m->name[l], x, NULL), 0);
	assert_int_equal(ntr_name_attach(t, d->ino, m->name[k], y, NULL), 0);
	d->child[k] = a;
	e->child[l] = b;
}

static bool keep_one(void *user, uint64_t ino)
{
	return ino == *(uint64_t *)user;
}

/* A directory is deleted after something from below it has moved out; its entry there was or was not
 * detached. */
static void op_move_out_and_erase(struct model *m, struct ntr_txn *t)
{
	struct node *d, *e, *gone, *kept;
	unsigned k, l = some_name(m), free_name = some_name(m);
	bool detached = fx_below(&m->rnd, 2);
	uint64_t ino;

	gone = some_child(m, &d, &k);
	if (!gone || !is_dir(gone))
		return;
	kept = gone->child[l];
	e = some_dir(m);
	if (!kept || below(e, gone) || e->child[free_name] || (is_dir(kept) && below(e, kept)))
		return;
	if (!is_dir(kept) && kept->links > 1 &&
	        !detached) /* keep is by inode: another name below would stay too */
		return;
	assert_int_equal(ntr_name_detach(t, d->ino, m->name[k], &ino), 0);
	if (detached)
		assert_int_equal(ntr_name_detach(t, gone->ino, m->name[l], &ino), 0);
	assert_int_equal(ntr_name_attach(t, e->ino, m->name[free_name], kept->ino, NULL), 0);
	assert_int_equal(ntr_name_erase_tree(t, gone->ino, detached ? NULL : keep_one, &kept->ino), 0);
	d->child[k] = NULL;
	gone->child[l] = NULL;
	e->child[free_name] = kept;
	node_drop(gone);
}

/* A file loses a name by detach + erase_tree. */
static void op_detach_and_erase(struct model *m, struct ntr_txn *t)
{
	struct node *d, *n;
	unsigned k;
	uint64_t ino;

	n = some_child(m, &d, &k);
	if (!n || is_dir(n))
		return;
	assert_int_equal(ntr_name_detach(t, d->ino, m->name[k], &ino), 0);
	assert_int_equal(ntr_name_erase_tree(t, ino, NULL, NULL), 0);
	d->child[k] = NULL;
	node_drop(n);
}

static void op_write(struct model *m, struct ntr_txn *t)
{
	static const size_t sizes[] = {
	        0, 1, 511, 512, 513, 5000, 65535, 65536, 65537, 140000, 140000, 4194305};
	struct node *d, *n;
	struct ntr_inode in;
	unsigned k;

	n = some_child(m, &d, &k);
	if (!n || !S_ISREG(n->mode))
		return;
	free(n->data);
	n->size = sizes[fx_below(&m->rnd, NTR_COUNT(sizes) - (fx_below(&m->rnd, 10) > 0))];
	n->data = malloc(n->size + 1);
	assert_non_null(n->data);
	memset(n->data, (int)fx_rand(&m->rnd), n->size);
	fx_fill(&m->rnd, n->data, NTR_MIN(n->size, (size_t)1000));
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), n->ino, &in), 0);
	assert_int_equal(ntr_file_take_mem(t, &in, n->data, n->size), 0);
	assert_int_equal(ntr_inode_put(t, &in), 0);
}

static void op_xattr(struct model *m, struct ntr_txn *t)
{
	static const size_t sizes[] = {0, 20, 1024, 1025, 65536};
	struct node *d, *n;
	struct ntr_inode in;
	unsigned k, i = (unsigned)fx_below(&m->rnd, XATTRS);
	char name[16];

	n = some_child(m, &d, &k);
	if (!n)
		return;
	snprintf(name, sizeof name, "user.%u", i);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), n->ino, &in), 0);
	if (fx_below(&m->rnd, 3)) {
		free(n->xattr[i]);
		n->xattr_len[i] = sizes[fx_below(&m->rnd, NTR_COUNT(sizes))];
		n->xattr[i] = malloc(n->xattr_len[i] + 1);
		assert_non_null(n->xattr[i]);
		fx_fill(&m->rnd, n->xattr[i], n->xattr_len[i]);
		assert_int_equal(ntr_xattr_set(t, &in, name, n->xattr[i], n->xattr_len[i]), 0);
		return;
	}
	assert_int_equal(ntr_xattr_del(t, &in, name), n->xattr[i] ? 0 : -ENODATA);
	free(n->xattr[i]);
	n->xattr[i] = NULL;
}

static void one_operation(struct model *m, struct ntr_txn *t)
{
	struct timespec now = {(time_t)fx_below(&m->rnd, 2000000000), 5};
	const struct timespec *at = fx_below(&m->rnd, 2) ? &now : NULL;

	m->ndirs = 0;
	list_dirs(m, m->root);
	switch (fx_below(&m->rnd, 16)) {
	case 0 ... 4:
		op_create(m, t, at);
		break;
	case 5:
	case 6:
		op_link(m, t, at);
		break;
	case 7:
		op_remove(m, t, at);
		break;
	case 8:
	case 9:
		op_rename(m, t, at);
		break;
	case 10:
		op_swap(m, t);
		break;
	case 11:
		op_move_out_and_erase(m, t);
		break;
	case 12:
		op_detach_and_erase(m, t);
		break;
	case 13:
		op_xattr(m, t);
		break;
	default:
		op_write(m, t);
	}
}

static void run_model(uint64_t seed, int rounds)
{
	struct model *m = calloc(1, sizeof *m);
	struct ntr_snap s;

	printf("seed %ju\n", (uintmax_t)seed);
	assert_non_null(m);
	fx_setup(&fx);
	fx_session(&fx, "s");
	m->rnd = seed;
	make_names(m);
	m->root = node_new(NTR_INO_ROOT, S_IFDIR | 0755);
	for (int round = 0; round < rounds; round++) {
		struct ntr_txn *t = fx_begin(&fx);
		int n = 1 + (int)fx_below(&m->rnd, 120);

		if (!fx_below(&m->rnd, 3))
			ntr_txn_set_limit(t, 20000); /* spills again and again */
		while (n--)
			one_operation(m, t);
		check_all(ntr_txn_snap(t), m);
		fx_commit(&fx, t);
		if (!fx_below(&m->rnd, 8))
			fx_reopen(&fx);
		s = ntr_snap_root(fx.st, fx.head.root);
		check_all(&s, m);
	}
	node_drop(m->root);
	free(m);
	fx_teardown(&fx);
}

static void random_operations(void **state)
{
	(void)state;
	run_model(1, 120);
	run_model(2, 120);
}

static uint64_t few_hashes(const char *name, size_t n)
{
	return 3 + (uint64_t)(name[0] + (int)n) % 2;
}

static void random_operations_with_equal_hashes(void **state)
{
	(void)state;
	ntr_dirent_hash_hook = few_hashes;
	run_model(3, 80);
	ntr_dirent_hash_hook = NULL;
}

/* ---- rules one by one ---- */

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
	fx_teardown(&fx);
	return 0;
}

static uint64_t make(struct ntr_txn *t, uint64_t dir, const char *name, uint32_t mode)
{
	struct ntr_inode in;

	assert_int_equal(ntr_inode_new(t, mode, &in), 0);
	assert_int_equal(ntr_name_create(t, dir, name, &in, NULL), 0);
	return in.ino;
}

static void bad_names(void **state)
{
	static const char *const bad[] = {"", ".", "..", "a/b", "/"};
	struct ntr_txn *t = fx_begin(&fx);
	uint64_t ino, f = make(t, 1, "f", S_IFREG | 0644);
	struct ntr_inode in;
	char longest[257];
	(void)state;

	memset(longest, 'n', 256);
	longest[256] = '\0';
	assert_int_equal(ntr_inode_new(t, S_IFREG | 0600, &in), 0);
	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		assert_int_equal(ntr_name_create(t, 1, bad[i], &in, NULL), -EINVAL);
		assert_int_equal(ntr_name_link(t, f, 1, bad[i], NULL), -EINVAL);
		assert_int_equal(ntr_name_remove(t, 1, bad[i], NULL), -EINVAL);
		assert_int_equal(ntr_name_detach(t, 1, bad[i], &ino), -EINVAL);
		assert_int_equal(ntr_name_attach(t, 1, bad[i], f, NULL), -EINVAL);
		assert_int_equal(ntr_name_rename(t, 1, "f", 1, bad[i], NULL), -EINVAL);
		assert_int_equal(ntr_name_rename(t, 1, bad[i], 1, "g", NULL), -EINVAL);
	}
	assert_int_equal(ntr_name_create(t, 1, longest, &in, NULL), -ENAMETOOLONG);
	longest[255] = '\0';
	assert_int_equal(ntr_name_create(t, 1, longest, &in, NULL), 0);
	assert_int_equal(ntr_name_create(t, f, "x", &in, NULL), -ENOTDIR);
	assert_int_equal(ntr_name_create(t, 999, "x", &in, NULL), -ENOENT);
	assert_int_equal(ntr_name_remove(t, f, "x", NULL), -ENOTDIR);
	ntr_txn_abort(t);
}

static void paths(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	const struct ntr_snap *s = ntr_txn_snap(t);
	uint64_t a = make(t, 1, "a", S_IFDIR | 0755), b = make(t, a, "b", S_IFDIR | 0755),
	         f = make(t, b, "f", S_IFREG | 0644), ino;
	char buf[4096], big[6000];
	struct ntr_inode in;
	(void)state;

#define LEADS(path, want) (assert_int_equal(ntr_path_lookup(s, path, &ino), 0), assert_true(ino == (want)))
	LEADS("", 1);
	LEADS("/", 1);
	LEADS("//", 1);
	LEADS(".", 1);
	LEADS("a", a);
	LEADS("/a/", a);
	LEADS("a//b/./f", f);
	assert_int_equal(ntr_path_lookup(s, "a/c", &ino), -ENOENT);
	assert_int_equal(ntr_path_lookup(s, "a/../a", &ino), -EINVAL);
	assert_int_equal(ntr_path_lookup(s, "a/b/f/g", &ino), -ENOTDIR);
	assert_int_equal(ntr_path_lookup(s, "a/b/f/", &ino), -ENOTDIR);
	memset(big, 'x', 300);
	big[300] = '\0';
	assert_int_equal(ntr_path_lookup(s, big, &ino), -ENAMETOOLONG);
	assert_int_equal(ntr_path_of(s, 1, buf, sizeof buf), 0);
	assert_string_equal(buf, "");
	assert_int_equal(ntr_path_of(s, f, buf, sizeof buf), 0);
	assert_string_equal(buf, "a/b/f");
	big[255] = '\0';
	for (int i = 0; i < 16; i++)
		b = make(t, b, big, S_IFDIR | 0755);
	assert_int_equal(ntr_path_of(s, b, buf, sizeof buf), -ENAMETOOLONG);
	assert_int_equal(ntr_inode_new(t, S_IFREG | 0600, &in), 0);
	assert_int_equal(ntr_inode_put(t, &in), 0);
	assert_int_equal(ntr_path_of(s, in.ino, buf, sizeof buf), -EUCLEAN);
	ntr_txn_abort(t);
}

static void times_and_counts(void **state)
{
	struct timespec t1 = {1000, 1}, t2 = {2000, 2};
	struct ntr_txn *t = fx_begin(&fx);
	const struct ntr_snap *s = ntr_txn_snap(t);
	uint64_t d = make(t, 1, "d", S_IFDIR | 0755), e = make(t, 1, "e", S_IFDIR | 0755),
	         f = make(t, d, "f", S_IFREG);
	struct ntr_inode in;
	(void)state;

	assert_int_equal(ntr_name_link(t, f, e, "g", &t1), 0);
	assert_int_equal(ntr_inode_get(s, f, &in), 0);
	assert_true(in.nlink == 2 && in.ctime.tv_sec == 1000 && in.mtime.tv_sec > 2000);
	assert_int_equal(ntr_inode_get(s, e, &in), 0);
	assert_true(in.mtime.tv_sec == 1000 && in.ctime.tv_nsec == 1);
	assert_int_equal(ntr_inode_get(s, d, &in), 0);
	assert_true(in.mtime.tv_sec > 2000);
	assert_int_equal(ntr_name_rename(t, 1, "e", d, "e", &t2), 0);
	assert_int_equal(ntr_inode_get(s, d, &in), 0);
	assert_true(in.mtime.tv_sec == 2000 && in.nlink == 3);
	assert_int_equal(ntr_inode_get(s, 1, &in), 0);
	assert_true(in.mtime.tv_sec == 2000 && in.nlink == 3);
	assert_int_equal(ntr_inode_get(s, e, &in), 0);
	assert_true(in.mtime.tv_sec == 1000 && in.ctime.tv_sec == 2000 && in.parent == d);
	assert_int_equal(ntr_name_remove(t, d, "f", &t1), 0); /* the record's own name: "g" is promoted */
	assert_int_equal(ntr_inode_get(s, f, &in), 0);
	assert_true(in.nlink == 1 && in.parent == e && in.flags == 0 && in.ctime.tv_sec == 1000);
	assert_string_equal(in.name, "g");
	ntr_txn_abort(t);
}

/* Deeper than any recursion on a small stack could go, and wider than one batch. */
static void large_trees_go_whole(void **state)
{
	struct ntr_txn *t = fx_begin(&fx);
	uint64_t top = make(t, 1, "top", S_IFDIR | 0755), dir = top;
	struct ntr_inode in;
	char name[32];
	(void)state;

	for (int i = 0; i < 3000; i++)
		dir = make(t, dir, "d", S_IFDIR | 0755);
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof name, "file-%d", i);
		make(t, dir, name, S_IFREG | 0644);
	}
	assert_int_equal(ntr_name_rename(t, 1, "top", dir, "x", NULL), -EINVAL);
	fx_commit(&fx, t);
	t = fx_begin(&fx);
	assert_int_equal(ntr_name_remove(t, 1, "top", NULL), 0);
	assert_int_equal(ntr_inode_get(ntr_txn_snap(t), dir, &in), -ENOENT);
	fx_commit(&fx, t);
	assert_true(fx.head.inodes == 1);
}

int main(void)
{
#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(random_operations),
	        cmocka_unit_test(random_operations_with_equal_hashes),
	        WITH(bad_names),
	        WITH(paths),
	        WITH(times_and_counts),
	        WITH(large_trees_go_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
