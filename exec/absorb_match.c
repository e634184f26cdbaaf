/* Matching: objects of upper that moved since the memo was made, found again by inode and birth; and, where
 * there is no memo, what tells the objects of head apart: which inodes differ between base and head at all,
 * and when those that base does not have were born. */
#include "absorb_impl.h"

#include <errno.h>
#include <stddef.h>

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
			if (!ntr_hashed(hh, v))
				return -ENOMEM;
			m->n++;
		}
	}
	return 0;
}

/* The old entry of the same name in the directory that an object's first name is in (which may itself have
 * moved), else any that vanished. */
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
	d->xhash = old->xhash;
	d->flags |= old->flags & (NTR_MD_OPAQUE | NTR_MD_XWHITEOUT | NTR_MD_PENDING);
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
	if (same_state(oe, o))
		o->flags |= NTR_AO_SAME;
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

	TAILQ_FOREACH (o, &w->objs, link)
		unknown |= !(o->flags & NTR_AO_KNOWN);
	if (!unknown || !w->old)
		return 0;
	r = build(&m);
	/* Parents come before what is in them: a directory that moved is known when its entries are looked
	 * at. */
	TAILQ_FOREACH (o, &w->objs, link)
		if (!r && m.n && !(o->flags & NTR_AO_KNOWN))
			r = match(&m, o);
	HASH_CLEAR(hh, m.table);
	free(m.mem);
	return r;
}

struct ntr_birth { /* keyed by everything up to hh */
	uint64_t btime, mtime, size;
	uint64_t type;
	UT_hash_handle hh;
	uint64_t ino; /* 0: more than one such object */
};
enum { BIRTH_KEY = offsetof(struct ntr_birth, hh) };

static uint64_t nanoseconds(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* A moment alone is no proof: everything made within a tick of the clock may have the same. */
static struct ntr_birth birth_of(
        uint32_t mode, const struct timespec *btime, const struct timespec *mtime, uint64_t size)
{
	struct ntr_birth b = {.btime = nanoseconds(btime), .type = mode & S_IFMT};

	if (!S_ISDIR(mode)) {
		b.mtime = nanoseconds(mtime);
		b.size = size;
	}
	return b;
}

static int note_birth(struct ntr_arun *w, uint64_t ino, const uint8_t *val, size_t len)
{
	struct ntr_inode in;
	struct ntr_birth *b, *other;
	int r = ntr_inode_decode(ino, val, len, &in);

	if (r)
		return r;
	b = malloc(sizeof *b);
	if (!b)
		return -ENOMEM;
	*b = birth_of(in.mode, &in.btime, &in.mtime, S_ISDIR(in.mode) ? 0 : in.size);
	if (w->newer) /* which may have lost both */
		b->mtime = b->size = 0;
	b->ino = ino;
	HASH_FIND(hh, w->births, b, BIRTH_KEY, other);
	if (other) {
		other->ino = 0;
		free(b);
	} else {
		HASH_ADD(hh, w->births, btime, BIRTH_KEY, b);
		if (!ntr_hashed(hh, b)) {
			free(b);
			return -ENOMEM;
		}
	}
	return 0;
}

static int note_difference(void *user, const uint8_t *key, size_t klen, const uint8_t *old, size_t old_len,
        const uint8_t *new, size_t new_len)
{
	struct ntr_arun *w = user;
	uint64_t ino = klen > 8 ? ntr_get_be64(key) : 0;

	(void)old_len;
	if (ino == NTR_INO_META || !ino)
		return 0;
	if (!w->ndiffer || w->differ[w->ndiffer - 1] != ino) {
		if (w->ndiffer == w->differ_cap) {
			size_t cap = w->differ_cap ? w->differ_cap * 2 : 64;
			void *p = realloc(w->differ, cap * sizeof *w->differ);

			if (!p)
				return -ENOMEM;
			w->differ = p;
			w->differ_cap = cap;
		}
		w->differ[w->ndiffer++] = ino;
	}
	return key[8] == NTR_ITEM_INODE && !old && new ? note_birth(w, ino, new, new_len) : 0;
}

int ntr_arun_differ(struct ntr_arun *w)
{
	return ntr_tree_diff(ntr_store_tree(w->store), w->base.root, w->head.root, note_difference, w);
}

uint64_t ntr_arun_born(struct ntr_arun *w, const struct ntr_aobj *o)
{
	struct ntr_birth key, *b;

	if (!w->births || !o->st.btime)
		return 0;
	key = birth_of(o->mode, &o->btime, &o->mtime, o->dir ? 0 : o->st.size);
	if (w->newer)
		key.mtime = key.size = 0;
	HASH_FIND(hh, w->births, &key, BIRTH_KEY, b);
	return b ? b->ino : 0;
}

void ntr_arun_differ_done(struct ntr_arun *w)
{
	struct ntr_birth *b, *tmp;

	HASH_ITER (hh, w->births, b, tmp) {
		HASH_DEL(w->births, b);
		free(b);
	}
	free(w->differ);
}
