/* Names: brings the tree's entries from what head has to what the merged view shows.
 *
 * Objects change places in any permutation (a directory may end up inside one that was inside it), so it is
 * done in steps: every object of upper that has to move is taken off its old names first; then whatever else
 * stands where the view shows something different is removed, with all below it, which by then holds nothing
 * that is still wanted; then objects are entered, directories first and parents before children. */
#include "absorb_impl.h"

#include "../base/buf.h"

#include <errno.h>

struct name { /* one that head has for an object */
	uint64_t dir;
	bool wanted;
	char name[256];
};
struct names {
	struct name *v;
	size_t n, cap;
};

static int names_add(struct names *l, uint64_t dir, const char *name, size_t n)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 4;
		void *p = realloc(l->v, cap * sizeof *l->v);

		if (!p)
			return -ENOMEM;
		l->v = p;
		l->cap = cap;
	}
	l->v[l->n].dir = dir;
	l->v[l->n].wanted = false;
	memcpy(l->v[l->n].name, name, n);
	l->v[l->n++].name[n] = '\0';
	return 0;
}

static int add_link(void *user, uint64_t dir, const char *name)
{
	return names_add(user, dir, name, strlen(name));
}

/* Pairs off the names that the object keeps; the rest of its references are ATTACH, and how many there are.
 */
static size_t keep_wanted(struct ntr_aobj *o, struct names *l)
{
	size_t missing = 0;

	for (struct ntr_aref *f = &o->ref; f; f = f->next) {
		f->place = NTR_PLACE_ATTACH;
		for (size_t i = 0; i < l->n && f->place; i++)
			if (!l->v[i].wanted && l->v[i].dir == f->dir->tree &&
			        !strcmp(l->v[i].name, ntr_me_name(f->dir, f->at))) {
				l->v[i].wanted = true;
				f->place = NTR_PLACE_THERE;
			}
		missing += f->place == NTR_PLACE_ATTACH;
	}
	return missing;
}

/* A directory that loses a name gets its times from upper. */
static void note_listed(struct ntr_arun *w, uint64_t dir)
{
	struct ntr_aobj *o;

	HASH_FIND(by_tree, w->by_tree, &dir, sizeof dir, o);
	if (o && o->dir)
		o->dir->flags |= NTR_MD_LISTED;
}

/* Takes off the names that are not wanted: as many as come instead are moved, the rest removed. */
static int take_off(struct ntr_arun *w, struct ntr_aobj *o, struct names *l, size_t missing)
{
	size_t moved = 0;
	int r = 0;

	for (size_t i = 0; i < l->n && !r; i++) {
		uint64_t ino;

		if (l->v[i].wanted)
			continue;
		if (w->newer) {
			r = ntr_arun_gone(w, l->v[i].dir, l->v[i].name);
			if (r <= 0)
				continue;
			r = 0;
		}
		w->changed = true;
		o->flags |= NTR_AO_NAMED;
		note_listed(w, l->v[i].dir);
		if (moved < missing) {
			r = ntr_name_detach(w->txn, l->v[i].dir, l->v[i].name, &ino);
			moved++;
		} else {
			r = ntr_name_remove(w->txn, l->v[i].dir, l->v[i].name, NULL);
		}
	}
	for (struct ntr_aref *f = &o->ref; f; f = f->next) {
		if (f->place != NTR_PLACE_ATTACH)
			continue;
		w->changed = true;
		if (moved)
			moved--;
		else
			f->place = NTR_PLACE_LINK;
	}
	return r;
}

/* Every name is where it was. */
static bool is_in_place(const struct ntr_aobj *o)
{
	for (const struct ntr_aref *f = &o->ref; f; f = f->next)
		if (!(ntr_aref_entry(f)->flags & NTR_ME_SAME))
			return false;
	return o->flags & NTR_AO_SAME;
}

static int lift(struct ntr_arun *w, struct ntr_aobj *o)
{
	const char *name = ntr_aobj_name(o);
	struct names l = {0};
	struct ntr_inode in;
	int r = is_in_place(o) ? 1 : ntr_inode_get(&w->head, o->tree, &in);

	if (r)
		return NTR_MIN(r, 0);
	if (in.parent == o->ref.dir->tree && !strcmp(in.name, name) && !o->ref.next &&
	        !(in.flags & NTR_INODE_HAS_LINKS))
		return 0; /* nearly always */
	r = names_add(&l, in.parent, in.name, in.name_len);
	if (!r && in.flags & NTR_INODE_HAS_LINKS)
		r = ntr_links_each(&w->head, o->tree, add_link, &l);
	if (!r)
		r = take_off(w, o, &l, keep_wanted(o, &l));
	free(l.v);
	return r;
}

static int lift_all(struct ntr_arun *w)
{
	struct ntr_aobj *o;
	int r;

	TAILQ_FOREACH (o, &w->objs, link) {
		if (!o->ref.dir || !o->tree)
			continue;
		if (o->flags & NTR_AO_FRESH) {
			for (struct ntr_aref *f = &o->ref; f; f = f->next)
				f->place = f == &o->ref ? NTR_PLACE_CREATE : NTR_PLACE_LINK;
			continue;
		}
		r = lift(w, o);
		if (r)
			return ntr_aobj_fail(w, o, r);
	}
	return 0;
}

/* When a committed file lost a name nothing tells better than the directory's ctime. false: it is not of
 * upper. */
static bool when_lost(const struct ntr_mdir *d, struct timespec *ret)
{
	*ret = (struct timespec){
	        .tv_sec = (time_t)(d->st.ctime / 1000000000), .tv_nsec = (long)(d->st.ctime % 1000000000)};
	return d->st.ctime;
}

/* Removes what the tree now has under the name, unless it is `want` (0: whatever). */
static int clear_name(struct ntr_arun *w, struct ntr_mdir *d, const char *name, size_t n, uint64_t want)
{
	struct timespec lost;
	uint8_t dtype;
	uint64_t ino;
	int r;

	if (d->flags & NTR_MD_FRESH)
		return 0;
	r = ntr_dirent_get(ntr_txn_snap(w->txn), d->tree, name, n, &ino, &dtype);
	if (r || ino == want)
		return r == -ENOENT ? 0 : r;
	w->changed = true;
	d->flags |= NTR_MD_LISTED;
	return ntr_name_lose(w->txn, d->tree, name, when_lost(d, &lost) ? &lost : NULL);
}

/* A name that upper had and has no longer: what base has there shows again. */
static int uncover(struct ntr_arun *w, struct ntr_mdir *d, const char *name, size_t n)
{
	uint64_t ino;
	uint8_t dtype;
	int r = clear_name(w, d, name, n, 0);

	if (r || !d->base)
		return r;
	r = ntr_dirent_get(&w->base, d->base, name, n, &ino, &dtype);
	if (r)
		return r == -ENOENT ? 0 : r;
	return ntr_arun_want_base(w, d, name, n, ino);
}

static int clear_vanished(struct ntr_arun *w, struct ntr_mdir *d)
{
	struct ntr_mdir *old = d->old;

	if (!old || old->seen == old->n)
		return 0;
	for (uint32_t i = 0; i < old->n; i++) {
		const struct ntr_mentry *e = &old->v[i];
		int64_t k;
		int r;

		if (e->flags & NTR_ME_SEEN)
			continue;
		k = ntr_mdir_find(d, ntr_me_name(old, i), e->name_len, i);
		if (k < -1)
			return (int)k;
		r = k < 0 ? uncover(w, d, ntr_me_name(old, i), e->name_len) : 0;
		if (r)
			return r;
	}
	return 0;
}

/* Names of one listing (of head, or of base) of a directory that upper does not have. */
static int collect(const struct ntr_snap *s, uint64_t dir, struct ntr_mdir *d, struct ntr_buf *ret)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, s, dir, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) > 0) {
		int64_t k = ntr_mdir_find(d, en.name, en.name_len, UINT32_MAX);

		if (k < 0)
			r = k < -1 ? (int)k : ntr_buf_add(ret, &en, sizeof en);
		if (r < 0)
			break;
	}
	ntr_dir_iter_done(&it);
	return r;
}

/* A name that upper does not have must be what base has, or nothing. */
static int compare_one(struct ntr_arun *w, struct ntr_mdir *d, const struct ntr_dirent *en, bool in_base)
{
	uint64_t want = 0, have = 0;
	uint8_t dtype;
	int r;

	if (in_base) {
		r = d->flags & NTR_MD_FRESH ? -ENOENT
		                            : ntr_dirent_get(ntr_txn_snap(w->txn), d->tree, en->name,
		                                      en->name_len, &have, &dtype);
		if (r && r != -ENOENT)
			return r;
		return have == en->ino ? 0 : ntr_arun_want_base(w, d, en->name, en->name_len, en->ino);
	}
	r = d->base ? ntr_dirent_get(&w->base, d->base, en->name, en->name_len, &want, &dtype) : 0;
	if (r && r != -ENOENT)
		return r;
	return clear_name(w, d, en->name, en->name_len, want);
}

static int compare_listing(struct ntr_arun *w, struct ntr_mdir *d, const struct ntr_snap *s, uint64_t dir)
{
	ntr_auto(ntr_buf_done) struct ntr_buf list = {0};
	int r = dir ? collect(s, dir, d, &list) : 0;

	for (size_t off = 0; !r && off < list.len; off += sizeof(struct ntr_dirent)) {
		struct ntr_dirent en;

		memcpy(&en, list.data + off, sizeof en);
		r = compare_one(w, d, &en, s == &w->base);
	}
	return r;
}

int ntr_arun_compare(struct ntr_arun *w, struct ntr_mdir *d)
{
	int r;

	if (w->newer && !(d->flags & NTR_MD_FRESH))
		return ntr_arun_compare_newer(w, d);
	r = d->flags & NTR_MD_FRESH ? 0 : compare_listing(w, d, &w->head, d->tree);

	return r ? r : compare_listing(w, d, &w->base, d->base);
}

static int clear_dir(struct ntr_arun *w, struct ntr_mdir *d)
{
	int r = 0;

	for (uint32_t i = 0; i < d->n && !r; i++)
		if (!(d->v[i].flags & NTR_ME_SAME))
			r = clear_name(w, d, ntr_me_name(d, i), d->v[i].name_len, d->v[i].tree);
	if (!r)
		r = clear_vanished(w, d);
	if (!r && d->flags & NTR_MD_COMPARE)
		r = ntr_arun_compare(w, d);
	return r ? ntr_arun_fail(w, d, NULL, r) : 0;
}

int ntr_arun_clear(struct ntr_arun *w)
{
	int r = lift_all(w);

	for (struct ntr_mdir *d = w->tree->root; d && !r; d = d->next)
		r = clear_dir(w, d);
	return r;
}

static int attach_ref(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_aref *f)
{
	const char *name;
	int r = 0;

	if (f->place == NTR_PLACE_THERE || f->place == NTR_PLACE_NONE)
		return 0;
	w->changed = true;
	o->flags |= NTR_AO_NAMED;
	f->dir->flags |= NTR_MD_LISTED;
	name = ntr_me_name(f->dir, f->at);
	if (f->place == NTR_PLACE_CREATE)
		r = ntr_aobj_create(w, o);
	else if (f->place == NTR_PLACE_ATTACH)
		r = ntr_name_attach(w->txn, f->dir->tree, name, o->tree, NULL);
	else
		r = ntr_name_link(w->txn, o->tree, f->dir->tree, name, NULL);
	return r ? ntr_arun_fail(w, f->dir, name, r) : 0;
}

static int attach_object(struct ntr_arun *w, struct ntr_aobj *o)
{
	int r = 0;

	if (!o->ref.dir || !o->tree)
		return 0;
	for (struct ntr_aref *f = &o->ref; f && !r; f = f->next)
		r = attach_ref(w, o, f);
	return r;
}

int ntr_arun_attach(struct ntr_arun *w)
{
	struct ntr_aobj *o;
	int r = 0;

	TAILQ_FOREACH (o, &w->objs, link)
		if (o->dir && (r = attach_object(w, o)))
			return r;
	TAILQ_FOREACH (o, &w->objs, link)
		if (!o->dir && (r = attach_object(w, o)))
			return r;
	return 0;
}
