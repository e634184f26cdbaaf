/* Counting without paths: what a commit's record says. Every new or removed entry is one item of the
 * difference, so counting items is exact, except where entries appear or vanish without being items: below a
 * directory that moved, or that replaced something. There the full difference is computed. */
#include "diff_impl.h"

#include <errno.h>

struct tally {
	struct ntr_diff_set set;
	struct ntr_diff_ino *moved; /* inodes whose names changed */
	struct ntr_inode *x, *y;
	struct ntr_stats n;
	bool needs_paths;
};

static int note_moved(struct tally *t, uint64_t ino)
{
	struct ntr_diff_ino *d;

	HASH_FIND(hh, t->moved, &ino, sizeof ino, d);
	if (d)
		return 0;
	d = calloc(1, sizeof *d);
	if (!d)
		return -ENOMEM;
	d->ino = ino;
	HASH_ADD(hh, t->moved, ino, sizeof d->ino, d);
	if (ntr_hashed(hh, d))
		return 0;
	free(d);
	return -ENOMEM;
}

/* Is ino in both trees? 1, 0, negative errno. x and y get the records. */
static int in_both(struct tally *t, uint64_t ino)
{
	int r = ntr_inode_get(&t->set.a, ino, t->x);

	if (!r)
		r = ntr_inode_get(&t->set.b, ino, t->y);
	return r == -ENOENT ? 0 : r ? r : 1;
}

static int one_side(struct tally *t, uint64_t ino, uint64_t *count)
{
	int r = in_both(t, ino);

	++*count;
	if (r == 1 && S_ISDIR(t->x->mode))
		t->needs_paths = true;
	return r < 0 ? r : note_moved(t, ino);
}

static int tally_names(struct tally *t)
{
	for (size_t i = 0; i < t->set.n_names && !t->needs_paths; i++) {
		const struct ntr_diff_name *nm = &t->set.names[i];
		int r = 0;

		if (nm->old_ino && nm->new_ino)
			t->needs_paths = nm->old_ino != nm->new_ino;
		else if (nm->new_ino)
			r = one_side(t, nm->new_ino, &t->n.created);
		else
			r = one_side(t, nm->old_ino, &t->n.deleted);
		if (r)
			return r;
	}
	return 0;
}

static int tally_inode(struct tally *t, const struct ntr_diff_ino *d)
{
	struct ntr_diff_ino *m;
	unsigned what;
	int r = in_both(t, d->ino);

	if (r <= 0)
		return r;
	r = ntr_diff_compare(&t->set, t->x, t->y, &what);
	if (r || !(what | d->what))
		return r;
	HASH_FIND(hh, t->moved, &d->ino, sizeof d->ino, m);
	if (m && NTR_MAX(t->x->nlink, t->y->nlink) > 1 && !S_ISDIR(t->y->mode))
		t->needs_paths = true;
	else if (!m)
		t->n.modified += S_ISDIR(t->y->mode) ? 1 : t->y->nlink;
	return 0;
}

static int tally(struct tally *t)
{
	struct ntr_diff_ino *d, *next;
	int r = ntr_diff_collect(&t->set);

	if (!r)
		r = tally_names(t);
	HASH_ITER (hh, t->set.inos, d, next)
		if (!r && !t->needs_paths)
			r = tally_inode(t, d);
	return r;
}

static int by_paths(struct ntr_store *s, uint64_t a, uint64_t b, struct ntr_stats *ret)
{
	struct ntr_diff d;
	int r = ntr_diff_compute(s, a, b, NULL, &d);

	if (r)
		return r;
	ntr_diff_count(&d, ret);
	ntr_diff_done(&d);
	return 0;
}

int ntr_diff_tally(struct ntr_store *s, uint64_t a, uint64_t b, struct ntr_stats *ret)
{
	struct tally t = {.set = {.store = s, .a = ntr_snap_root(s, a), .b = ntr_snap_root(s, b)}};
	struct ntr_diff_ino *d, *next;
	int r;

	t.x = malloc(sizeof *t.x);
	t.y = malloc(sizeof *t.y);
	r = t.x && t.y ? tally(&t) : -ENOMEM;
	HASH_ITER (hh, t.moved, d, next) {
		HASH_DEL(t.moved, d);
		free(d);
	}
	ntr_diff_set_done(&t.set);
	free(t.x);
	free(t.y);
	if (r)
		return r;
	if (t.needs_paths)
		return by_paths(s, a, b, ret);
	*ret = t.n;
	return 0;
}
