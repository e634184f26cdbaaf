/* Committed symlinks and special files that were renamed. Overlayfs copies them up and tells nothing of where
 * from (only that it did, and to an ordinary user not even that), so they are found by what they are: an
 * object of the commit that is no longer to be seen at its place, of the same type, time of change to the
 * nanosecond, device or target, is the one, unless there are two such on either side. Those are told apart by
 * their names at most; what stays ambiguous is a new object. */
#include "absorb_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <unistd.h>

enum { LOOK_MAX = 100000 /* names in removed directories */ };

struct looks {
	uint64_t mtime, type, rdev, target, name; /* target, name: hashes; name 0: whatever it is */
};

struct group { /* everything that looks the same */
	struct looks key;
	UT_hash_handle hh;
	struct ntr_aobj *o; /* the only one of upper, and of the commit */
	uint64_t ino;
	unsigned nobj, nino;
};

struct searched {
	struct ntr_arun *w;
	struct group *by_name, *any;
	uint64_t *dirs; /* removed directories of base that are yet to be looked into */
	size_t ndirs, cap, looked;
};

static uint64_t nanoseconds(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

static bool is_marked(const struct ntr_arun *w, const struct ntr_aobj *o)
{
	return w->memo->userxattr ? !w->full : o->marks.flags & NTR_MARK_ORIGIN;
}

static bool is_wanted(const struct ntr_arun *w, const struct ntr_aobj *o)
{
	return !o->dir && !S_ISREG(o->mode) && !o->tree && o->ref.place != NTR_PLACE_NONE && !o->ref.next &&
	       o->nlink == 1 && is_marked(w, o);
}

static struct group *group_of(struct group **table, const struct looks *key, bool make)
{
	struct group *g;

	HASH_FIND(hh, *table, key, sizeof *key, g);
	if (g || !make)
		return g;
	g = calloc(1, sizeof *g);
	if (!g)
		return NULL;
	g->key = *key;
	HASH_ADD(hh, *table, key, sizeof g->key, g);
	if (ntr_hashed(hh, g))
		return g;
	free(g);
	return NULL;
}

/* ---- of upper ---- */

static int target_of(struct ntr_arun *w, const struct ntr_aobj *o, uint64_t *ret)
{
	char target[PATH_MAX];
	ssize_t n;
	int fd, r = ntr_dirs_get(&w->dirs, o->ref.dir, &fd);

	if (r)
		return r;
	n = readlinkat(fd, ntr_aobj_name(o), target, sizeof target);
	if (n < 0)
		return -errno;
	*ret = XXH3_64bits(target, (size_t)n);
	return 0;
}

static int note_object(struct searched *x, struct ntr_aobj *o)
{
	const char *name = ntr_aobj_name(o);
	struct looks key = {.mtime = nanoseconds(&o->mtime), .type = o->mode & S_IFMT};
	struct group *g;
	int r = 0;

	if (S_ISLNK(o->mode))
		r = target_of(x->w, o, &key.target);
	else if (S_ISCHR(o->mode) || S_ISBLK(o->mode))
		key.rdev = o->rdev;
	if (r)
		return r == -ENOENT ? 0 : ntr_aobj_fail(x->w, o, r);
	for (int i = 0; i < 2; i++) {
		g = group_of(i ? &x->by_name : &x->any, &key, true);
		if (!g)
			return -ENOMEM;
		g->o = o;
		g->nobj++;
		key.name = XXH3_64bits(name, strlen(name)) | 1;
	}
	return 0;
}

static int note_objects(struct searched *x)
{
	struct ntr_aobj *o;
	int r;

	TAILQ_FOREACH (o, &x->w->objs, link)
		if (is_wanted(x->w, o) && (r = note_object(x, o)))
			return r;
	return 0;
}

/* ---- of the commit ---- */

/* Is it in head what and where base has it? */
static int is_there(struct ntr_arun *w, const struct ntr_inode *was)
{
	struct ntr_inode now;
	int r = ntr_arun_in_use(w, was->ino);

	if (r)
		return NTR_MIN(r, 0);
	r = ntr_inode_get(&w->head, was->ino, &now);
	if (r)
		return r == -ENOENT ? 0 : r;
	return now.nlink == 1 && now.parent == was->parent && !strcmp(now.name, was->name) &&
	       nanoseconds(&now.mtime) == nanoseconds(&was->mtime);
}

static int note_covered(struct searched *x, uint64_t ino)
{
	struct ntr_inode was;
	struct looks key;
	struct group *g;
	int r = ntr_inode_get(&x->w->base, ino, &was);

	if (r || was.nlink != 1)
		return r;
	key = (struct looks){.mtime = nanoseconds(&was.mtime), .type = was.mode & S_IFMT};
	if (S_ISLNK(was.mode))
		key.target = XXH3_64bits(was.payload, was.payload_len);
	else if (S_ISCHR(was.mode) || S_ISBLK(was.mode))
		key.rdev = was.rdev;
	if (!group_of(&x->any, &key, false))
		return 0;
	r = is_there(x->w, &was);
	for (int i = 0; i < 2 && r > 0; i++) {
		g = group_of(i ? &x->by_name : &x->any, &key, false);
		if (g) {
			g->ino = ino;
			g->nino++;
		}
		key.name = XXH3_64bits(was.name, was.name_len) | 1;
	}
	return NTR_MIN(r, 0);
}

static int push(struct searched *x, uint64_t dir)
{
	if (x->ndirs == x->cap) {
		size_t cap = x->cap ? x->cap * 2 : 16;
		void *p = realloc(x->dirs, cap * sizeof *x->dirs);

		if (!p)
			return -ENOMEM;
		x->dirs = p;
		x->cap = cap;
	}
	x->dirs[x->ndirs++] = dir;
	return 0;
}

/* A directory that is upper's own is somewhere: its entries are looked at there. */
static int covered(struct searched *x, uint64_t ino, uint8_t dtype)
{
	int r;

	if (dtype == DT_REG)
		return 0;
	if (dtype != DT_DIR)
		return note_covered(x, ino);
	r = ntr_arun_in_use(x->w, ino);
	return r ? NTR_MIN(r, 0) : push(x, ino);
}

static int look_into(struct searched *x, uint64_t dir)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, &x->w->base, dir, 0);
	while (x->looked++ < LOOK_MAX && (r = ntr_dir_iter_next(&it, &en)) > 0) {
		r = covered(x, en.ino, en.dtype);
		if (r)
			break;
	}
	ntr_dir_iter_done(&it);
	return x->looked < LOOK_MAX ? r : -E2BIG;
}

static int look_beneath(struct searched *x, const struct ntr_mdir *d)
{
	uint8_t dtype;
	uint64_t ino;
	int r = 0;

	for (uint32_t i = 0; d->base && i < d->n && !r; i++) {
		const struct ntr_mentry *e = &d->v[i];

		if (e->flags & NTR_ME_SAME)
			continue;
		r = ntr_dirent_get(&x->w->base, d->base, ntr_me_name(d, i), e->name_len, &ino, &dtype);
		if (!r && !(e->dir && e->dir->base == ino))
			r = covered(x, ino, dtype);
		else if (r == -ENOENT)
			r = 0;
	}
	return r;
}

/* Without having looked at everything nothing is known to be the only one: -E2BIG. */
static int note_all_covered(struct searched *x)
{
	int r = 0;

	for (const struct ntr_mdir *d = x->w->tree->root; d && !r; d = d->next)
		r = look_beneath(x, d);
	while (!r && x->ndirs)
		r = look_into(x, x->dirs[--x->ndirs]);
	return r;
}

/* ---- both ---- */

static int take_pairs(struct searched *x, struct group *table)
{
	struct group *g, *next;
	int r;

	HASH_ITER (hh, table, g, next) {
		if (g->nobj != 1 || g->nino != 1 || g->o->tree)
			continue;
		r = ntr_arun_in_use(x->w, g->ino);
		if (!r)
			r = ntr_aobj_take(x->w, g->o, g->ino);
		if (r < 0)
			return r;
	}
	return 0;
}

static void table_free(struct group *table)
{
	struct group *g, *next;

	HASH_ITER (hh, table, g, next) {
		HASH_DEL(table, g);
		free(g);
	}
}

int ntr_arun_moved(struct ntr_arun *w)
{
	struct searched x = {.w = w};
	int r = note_objects(&x);

	if (!r && x.any)
		r = note_all_covered(&x);
	if (!r)
		r = take_pairs(&x, x.by_name);
	if (!r)
		r = take_pairs(&x, x.any);
	table_free(x.by_name);
	table_free(x.any);
	free(x.dirs);
	return r == -E2BIG ? 0 : r;
}
