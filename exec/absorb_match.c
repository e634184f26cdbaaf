/* Matching: objects of upper that moved since the memo was made, found again by inode and birth; and, where there is no
 * memo, what tells the objects of head apart: which inodes differ between base and head at all, and when those that
 * base does not have were born. */
#include "absorb_impl.h"

#include <errno.h>

struct vanished { /* an entry of the old tree that no longer is where it was */
	uint64_t ino;
	struct ntr_mentry *e;
	UT_hash_handle hh;
};

struct matcher {
	struct ntr_arun *w;
	struct vanished *table, *mem;
	size_t n;
};

static bool is_vanished(const struct ntr_mdir *d, const struct ntr_mentry *e)
{
	if (e->flags & NTR_ME_WHITEOUT)
		return false;
	return !(d->flags & NTR_MD_VISITED) || !(e->flags & NTR_ME_SEEN);
}

static size_t count_vanished(const struct ntr_mdir *d)
{
	size_t n = 0;

	if (d->flags & NTR_MD_VISITED && d->seen == d->n)
		return 0;
	for (uint32_t i = 0; i < d->n; i++)
		n += is_vanished(d, &d->v[i]);
	return n;
}

static int build(struct matcher *m)
{
	size_t n = 0;

	for (const struct ntr_mdir *d = m->w->old->root; d; d = d->next)
		n += count_vanished(d);
	if (!n)
		return 0;
	m->mem = malloc(n * sizeof *m->mem);
	if (!m->mem)
		return -ENOMEM;
	for (struct ntr_mdir *d = m->w->old->root; d; d = d->next) {
		if (!count_vanished(d))
			continue;
		for (uint32_t i = 0; i < d->n; i++) {
			struct vanished *v = &m->mem[m->n];

			if (!is_vanished(d, &d->v[i]))
				continue;
			*v = (struct vanished){.ino = d->v[i].st.ino, .e = &d->v[i]};
			HASH_ADD(hh, m->table, ino, sizeof v->ino, v);
			m->n++;
		}
	}
	return 0;
}

/* The old entry of the same name in the directory that an object's first name is in (which may itself have moved),
 * else any that vanished. */
static int find(struct matcher *m, const struct ntr_aobj *o, struct ntr_mentry **ret)
{
	struct ntr_mdir *old = o->ref.dir->old;
	const struct ntr_mentry *e = ntr_aref_entry(&o->ref);
	struct vanished *v;
	int64_t i = old ? ntr_mdir_find(old, ntr_aobj_name(o), e->name_len, UINT32_MAX) : -1;

	*ret = NULL;
	if (i < -1)
		return (int)i;
	if (i >= 0 && !(old->v[i].flags & NTR_ME_WHITEOUT) && ntr_mstat_same_object(&old->v[i].st, &o->st)) {
		if (!(old->v[i].flags & NTR_ME_SEEN)) {
			old->v[i].flags |= NTR_ME_SEEN;
			old->seen++;
		}
		*ret = &old->v[i];
		return 0;
	}
	HASH_FIND(hh, m->table, &o->st.ino, sizeof o->st.ino, v);
	if (v && ntr_mstat_same_object(&v->e->st, &o->st))
		*ret = v->e;
	return 0;
}

static bool same_state(const struct ntr_mentry *oe, const struct ntr_aobj *o)
{
	if (oe->flags & NTR_ME_UNTRUSTED)
		return false;
	return oe->dir ? oe->dir->st.ctime == o->st.ctime : ntr_mstat_same(&oe->st, &o->st);
}

static void adopt_dir(struct ntr_mdir *d, struct ntr_mdir *old)
{
	d->old = old;
	old->flags |= NTR_MD_VISITED;
	d->tree = old->tree;
	d->base = old->base;
	d->flags |= old->flags & (NTR_MD_OPAQUE | NTR_MD_XWHITEOUT | NTR_MD_PENDING);
}

/* Does the object stand in the old tree under the name and in the directory that the entry oe is? */
static bool in_place(const struct ntr_aobj *o, const struct ntr_mentry *oe)
{
	const struct ntr_mdir *old = o->ref.dir->old;

	return old && oe >= old->v && oe < old->v + old->n && !o->ref.next;
}

/* Names in a directory that moved: whiteouts and the like that are as they were. */
static int match_whiteouts(struct ntr_mdir *d)
{
	for (uint32_t i = 0; i < d->n; i++) {
		struct ntr_mentry *e = &d->v[i];
		int64_t k;

		if (!(e->flags & NTR_ME_WHITEOUT))
			continue;
		k = ntr_mdir_find(d->old, ntr_me_name(d, i), e->name_len, i);
		if (k < -1)
			return (int)k;
		if (k < 0 || !(d->old->v[k].flags & NTR_ME_WHITEOUT))
			continue;
		e->flags |= NTR_ME_SAME;
		if (!(d->old->v[k].flags & NTR_ME_SEEN)) {
			d->old->v[k].flags |= NTR_ME_SEEN;
			d->old->seen++;
		}
	}
	return 0;
}

static int match(struct matcher *m, struct ntr_aobj *o)
{
	struct ntr_mentry *oe;
	int r = find(m, o, &oe);

	if (r || !oe || !oe->tree || !oe->dir != !o->dir)
		return r;
	o->flags |= NTR_AO_KNOWN;
	o->tree = oe->tree;
	if (same_state(oe, o)) {
		o->flags |= NTR_AO_SAME;
		if (in_place(o, oe))
			o->dir ? (void)0 : (void)(o->dir = NULL);
	}
	if (o->dir) {
		adopt_dir(o->dir, oe->dir);
		r = match_whiteouts(o->dir);
	}
	return r;
}

int ntr_arun_match(struct ntr_arun *w)
{
	struct matcher m = {.w = w};
	struct ntr_aobj *o;
	bool unknown = false;
	int r = 0;

	TAILQ_FOREACH(o, &w->objs, link)
		unknown |= !(o->flags & NTR_AO_KNOWN);
	if (!unknown || !w->old)
		return 0;
	r = build(&m);
	/* Parents come before what is in them: a directory that moved is known when its entries are looked at. */
	TAILQ_FOREACH(o, &w->objs, link)
		if (!r && m.n && !(o->flags & NTR_AO_KNOWN))
			r = match(&m, o);
	HASH_CLEAR(hh, m.table);
	free(m.mem);
	return r;
}
