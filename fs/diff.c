/* From changed items to changed paths. A removed (or added) entry whose directory kept its place is the top
 * of a removed (added) subtree: everything below it is listed by a walk. Entries of directories that moved or
 * went are covered by the walk from above. What is both removed and added at one path was replaced: modified,
 * or of another type. */
#include "diff_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

struct paths { /* a directory's path in both trees, NULL where it is missing */
	uint64_t ino;
	char *a, *b;
	UT_hash_handle hh;
};

struct job {
	struct ntr_diff_set set;
	struct paths *dirs;
	struct ntr_diff_entry *v;
	size_t n, cap;
	struct ntr_inode *x, *y; /* scratch */
};

static int emit(struct job *j, char *path, enum ntr_diff_kind kind, const struct ntr_diff_entry *e)
{
	if (!path)
		return -ENOMEM;
	if (j->n == j->cap) {
		size_t cap = j->cap ? j->cap * 2 : 64;
		struct ntr_diff_entry *v = realloc(j->v, cap * sizeof *v);

		if (!v) {
			free(path);
			return -ENOMEM;
		}
		j->v = v;
		j->cap = cap;
	}
	j->v[j->n] = *e;
	j->v[j->n].path = path;
	j->v[j->n++].kind = kind;
	return 0;
}

static char *join(const char *dir, const char *name)
{
	return *dir ? ntr_sprintf("%s/%s", dir, name) : strdup(name);
}

static int path_in(const struct ntr_snap *s, uint64_t ino, char **ret)
{
	ntr_autofree char *buf = malloc(PATH_MAX * 2);
	int r;

	if (!buf)
		return -ENOMEM;
	r = ntr_path_of(s, ino, buf, PATH_MAX * 2);
	*ret = r ? NULL : strdup(buf);
	if (r == -ENOENT)
		return 0;
	return !r && !*ret ? -ENOMEM : r;
}

static int dir_paths(struct job *j, uint64_t ino, struct paths **ret)
{
	struct paths *p;
	int r;

	HASH_FIND(hh, j->dirs, &ino, sizeof ino, p);
	if (!p) {
		p = calloc(1, sizeof *p);
		if (!p)
			return -ENOMEM;
		p->ino = ino;
		r = path_in(&j->set.a, ino, &p->a);
		if (!r)
			r = path_in(&j->set.b, ino, &p->b);
		if (r) {
			free(p->a);
			free(p->b);
			free(p);
			return r;
		}
		HASH_ADD(hh, j->dirs, ino, sizeof p->ino, p);
		if (!ntr_hashed(hh, p)) {
			free(p->a);
			free(p->b);
			free(p);
			return -ENOMEM;
		}
	}
	*ret = p;
	return 0;
}

/* Lists an object and everything below it as removed (from a) or added (in b). Takes over path. */
static int list_tree(struct job *j, bool added, uint64_t ino, char *path_own)
{
	const struct ntr_snap *snap = added ? &j->set.b : &j->set.a;
	ntr_autofree char *path = path_own;
	struct ntr_diff_entry e = {0};
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r = path ? ntr_inode_get(snap, ino, j->x) : -ENOMEM;

	if (r)
		return r;
	*(added ? &e.new_ino : &e.old_ino) = ino;
	*(added ? &e.new_mode : &e.old_mode) = j->x->mode;
	r = emit(j, strdup(path), added ? NTR_DIFF_CREATED : NTR_DIFF_DELETED, &e);
	if (r || !S_ISDIR(j->x->mode))
		return r;
	ntr_dir_iter_init(&it, snap, ino, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) == 1)
		if ((r = list_tree(j, added, en.ino, join(path, en.name))))
			break;
	ntr_dir_iter_done(&it);
	return r;
}

static int do_names(struct job *j)
{
	for (size_t i = 0; i < j->set.n_names; i++) {
		const struct ntr_diff_name *nm = &j->set.names[i];
		struct paths *p;
		int r = dir_paths(j, nm->dir, &p);

		if (r)
			return r;
		if (!p->a || !p->b || strcmp(p->a, p->b))
			continue; /* an ancestor's entry changed: listed from there */
		if (nm->old_ino == nm->new_ino)
			continue;
		if (nm->old_ino && (r = list_tree(j, false, nm->old_ino, join(p->a, nm->name))))
			return r;
		if (nm->new_ino && (r = list_tree(j, true, nm->new_ino, join(p->b, nm->name))))
			return r;
	}
	return 0;
}

/* One name of an inode that is in both trees: changed in place if that name led to it before too. */
static int modified_name(struct job *j, uint64_t parent, const char *name, const struct ntr_diff_entry *e)
{
	struct paths *p;
	uint64_t was;
	uint8_t dt;
	int r = dir_paths(j, parent, &p);

	if (r)
		return r;
	if (!p->a || !p->b || strcmp(p->a, p->b))
		return 0;
	r = ntr_dirent_get(&j->set.a, parent, name, strlen(name), &was, &dt);
	if (r || was != e->new_ino)
		return r == -ENOENT ? 0 : r;
	return emit(j, join(p->b, name), NTR_DIFF_MODIFIED, e);
}

static int each_link(struct job *j, const struct ntr_diff_entry *e)
{
	struct ntr_snap_cursor c;
	uint8_t key[9];
	int r;

	ntr_put_be64(key, e->new_ino);
	key[8] = NTR_ITEM_LINK;
	ntr_snap_cursor_init(&c, &j->set.b);
	r = ntr_snap_cursor_seek(&c, key, 9);
	while (r == 1 && c.klen > 17 && !memcmp(c.key, key, 9)) {
		ntr_autofree char *name = strndup((const char *)c.key + 17, c.klen - 17);

		r = name ? modified_name(j, ntr_get_be64(c.key + 9), name, e) : -ENOMEM;
		if (r)
			break;
		r = ntr_snap_cursor_next(&c);
	}
	ntr_snap_cursor_done(&c);
	return r < 0 ? r : 0;
}

static int do_inode(struct job *j, const struct ntr_diff_ino *d)
{
	struct ntr_diff_entry e = {.old_ino = d->ino, .new_ino = d->ino};
	int r = ntr_inode_get(&j->set.a, d->ino, j->x);

	if (!r)
		r = ntr_inode_get(&j->set.b, d->ino, j->y);
	if (r)
		return r == -ENOENT ? 0 : r; /* born or gone: the entries tell */
	e.old_mode = j->x->mode;
	e.new_mode = j->y->mode;
	r = ntr_diff_compare(&j->set, j->x, j->y, &e.what);
	e.what |= d->what;
	if (r || !e.what)
		return r;
	if (d->ino == NTR_INO_ROOT)
		return emit(j, strdup("."), NTR_DIFF_MODIFIED, &e);
	r = modified_name(j, j->y->parent, j->y->name, &e);
	if (!r && !S_ISDIR(e.new_mode) && j->y->nlink > 1)
		r = each_link(j, &e);
	return r;
}

static int by_path(const void *p, const void *q)
{
	const struct ntr_diff_entry *x = p, *y = q;
	int c = strcmp(x->path, y->path);

	return c ? c : (int)y->kind - (int)x->kind; /* deleted before created */
}

/* Removed and added at one path: replaced. Drops pairs between which nothing differs. */
static int merge_pair(struct job *j, struct ntr_diff_entry *x, const struct ntr_diff_entry *y, bool *ret_drop)
{
	int r;

	x->new_ino = y->new_ino;
	x->new_mode = y->new_mode;
	x->kind = NTR_DIFF_TYPE;
	*ret_drop = false;
	if ((x->old_mode ^ x->new_mode) & S_IFMT)
		return 0;
	x->kind = NTR_DIFF_MODIFIED;
	r = ntr_inode_get(&j->set.a, x->old_ino, j->x);
	if (!r)
		r = ntr_inode_get(&j->set.b, x->new_ino, j->y);
	if (!r)
		r = ntr_diff_compare(&j->set, j->x, j->y, &x->what);
	*ret_drop = !r && !x->what;
	return r;
}

static int merge(struct job *j)
{
	size_t n = 0;

	if (j->n) /* NULL is no array, not even of nothing */
		qsort(j->v, j->n, sizeof *j->v, by_path);
	for (size_t i = 0; i < j->n; i++) {
		struct ntr_diff_entry *x = &j->v[i], *y = i + 1 < j->n ? x + 1 : NULL;
		bool drop = false;
		int r = 0;

		if (y && x->kind == NTR_DIFF_DELETED && y->kind == NTR_DIFF_CREATED &&
		        !strcmp(x->path, y->path)) {
			r = merge_pair(j, x, y, &drop);
			free(y->path);
			y->path = NULL;
			i++;
		}
		if (drop) {
			free(x->path);
			x->path = NULL;
		} else {
			struct ntr_diff_entry keep = *x;

			x->path = NULL;
			j->v[n++] = keep;
		}
		if (r) {
			for (; i < j->n; i++)
				if (i >= n)
					free(j->v[i].path);
			j->n = n;
			return r;
		}
	}
	j->n = n;
	return 0;
}

static bool wanted(const char *path, char *const *paths)
{
	if (!paths || !*paths)
		return true;
	for (; *paths; paths++) {
		const char *p = *paths;
		size_t n = strlen(p);

		while (n && p[n - 1] == '/')
			n--;
		if (!n || (!strncmp(path, p, n) && (!path[n] || path[n] == '/')))
			return true;
	}
	return false;
}

static void filter(struct job *j, char *const *paths)
{
	size_t n = 0;

	for (size_t i = 0; i < j->n; i++) {
		if (wanted(j->v[i].path, paths))
			j->v[n++] = j->v[i];
		else
			free(j->v[i].path);
	}
	j->n = n;
}

static void job_done(struct job *j)
{
	struct paths *p, *next;

	HASH_ITER (hh, j->dirs, p, next) {
		HASH_DEL(j->dirs, p);
		free(p->a);
		free(p->b);
		free(p);
	}
	ntr_diff_set_done(&j->set);
	free(j->x);
	free(j->y);
}

int ntr_diff_compute(struct ntr_store *s, uint64_t a, uint64_t b, char *const *paths, struct ntr_diff *ret)
{
	struct job j = {.set = {.store = s, .a = ntr_snap_root(s, a), .b = ntr_snap_root(s, b)}};
	struct ntr_diff_ino *d, *next;
	int r;

	*ret = (struct ntr_diff){0};
	if (a == b)
		return 0;
	j.x = malloc(sizeof *j.x);
	j.y = malloc(sizeof *j.y);
	r = j.x && j.y ? ntr_diff_collect(&j.set) : -ENOMEM;
	if (!r)
		r = do_names(&j);
	HASH_ITER (hh, j.set.inos, d, next)
		if (!r)
			r = do_inode(&j, d);
	if (!r)
		r = merge(&j);
	if (!r)
		filter(&j, paths);
	*ret = (struct ntr_diff){.v = j.v, .n = j.n, .state_changed = j.set.state_changed};
	if (r)
		ntr_diff_done(ret);
	job_done(&j);
	return r;
}

void ntr_diff_done(struct ntr_diff *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->v[i].path);
	free(d->v);
	*d = (struct ntr_diff){0};
}

void ntr_diff_count(const struct ntr_diff *d, struct ntr_stats *ret)
{
	*ret = (struct ntr_stats){0};
	for (size_t i = 0; i < d->n; i++) {
		ret->created += d->v[i].kind == NTR_DIFF_CREATED;
		ret->deleted += d->v[i].kind == NTR_DIFF_DELETED;
		ret->modified += d->v[i].kind == NTR_DIFF_MODIFIED || d->v[i].kind == NTR_DIFF_TYPE;
	}
}

const char *ntr_diff_kind_word(enum ntr_diff_kind kind)
{
	switch (kind) {
	case NTR_DIFF_CREATED:
		return "created";
	case NTR_DIFF_DELETED:
		return "deleted";
	case NTR_DIFF_TYPE:
		return "type";
	case NTR_DIFF_MODIFIED:
	default:
		return "modified";
	}
}
