/* absorb: see absorb.h, and absorb_impl.h for the steps of a run. */
#include "absorb_impl.h"

#include <errno.h>

static void objects_free(struct ntr_arun *w)
{
	struct ntr_aobj *o;

	HASH_CLEAR(by_upper, w->by_upper);
	HASH_CLEAR(by_tree, w->by_tree);
	while ((o = TAILQ_FIRST(&w->objs))) {
		TAILQ_REMOVE(&w->objs, o, link);
		for (struct ntr_aref *f = o->ref.next, *next; f; f = next) {
			next = f->next;
			free(f);
		}
		ntr_marks_done(&o->marks);
		ntr_file_loaded_free(o->content.loaded);
		free(o->content.sx);
		free(o);
	}
}

static void run_done(struct ntr_arun *w)
{
	ntr_pool_stop(w); /* first: its threads hold objects */
	objects_free(w);
	HASH_CLEAR(hh, w->used);
	free(w->used_mem);
	ntr_arun_differ_done(w);
	ntr_arun_bases_done(w);
	ntr_arun_restore_done(w);
	ntr_mtree_drop_scratch(w->memo->cur);
	if (w->tree)
		ntr_mtree_drop_scratch(w->tree);
}

/* Did the walk find anything at all to look into? */
static bool is_still(const struct ntr_arun *w)
{
	const struct ntr_aobj *o;

	if (w->full)
		return false;
	TAILQ_FOREACH (o, &w->objs, link)
		if (!(o->flags & NTR_AO_SAME))
			return false;
	for (const struct ntr_mdir *d = w->tree->root; d; d = d->next) {
		if (!d->old || d->old->seen != d->old->n)
			return false;
		for (uint32_t i = 0; i < d->n; i++)
			if (!(d->v[i].flags & NTR_ME_SAME))
				return false;
	}
	return true;
}

static int apply(struct ntr_arun *w)
{
	int r = w->full ? ntr_arun_differ(w) : ntr_arun_match(w);

	if (!r)
		r = w->newer ? ntr_arun_identify_newer(w) : ntr_arun_identify(w);
	if (!r)
		r = ntr_pool_start(w);
	if (!r)
		r = ntr_arun_clear(w);
	if (!r)
		r = ntr_arun_attach(w);
	if (!r)
		r = ntr_arun_update(w);
	if (!r && w->full && !w->newer)
		r = ntr_arun_reset(w);
	if (!r)
		r = ntr_arun_restore(w);
	return r;
}

static void settle_entries(struct ntr_arun *w)
{
	struct ntr_aobj *o;

	TAILQ_FOREACH (o, &w->objs, link)
		if (!o->dir && o->tree)
			ntr_aobj_set_entries(w, o);
}

static int run(struct ntr_arun *w)
{
	int r;

	w->tree = ntr_mtree_new();
	if (!w->tree)
		return -ENOMEM;
	r = ntr_arun_walk(w);
	if (!r && !is_still(w))
		r = apply(w);
	w->only_times = !w->changed;
	if (!r && (w->changed || w->last))
		r = ntr_arun_ride(w);
	ntr_dirs_done(&w->dirs); /* gives lent modes back, and notes the times that this leaves */
	if (!r)
		settle_entries(w);
	return r;
}

static int absorb(const struct ntr_arun *as, uint64_t base_root, struct ntr_absorb_result *ret)
{
	struct ntr_arun w = *as;
	struct ntr_memo *m = w.memo;
	int r;

	memset(ret, 0, sizeof *ret);
	ntr_absorb_reject(m);
	w.store = ntr_txn_snap(w.txn)->store;
	w.head = ntr_snap_root(w.store, ntr_txn_snap(w.txn)->root);
	w.base = ntr_snap_root(w.store, base_root);
	w.now = ntr_wall_ns();
	TAILQ_INIT(&w.objs);
	r = run(&w);
	m->walked += w.tree ? w.tree->entries : 0;
	run_done(&w);
	if (r) {
		ntr_mtree_free(w.tree);
		return ntr_err_default(w.e, r, "absorb the session's changes");
	}
	m->shadow = w.tree;
	ret->changed = w.changed;
	ret->only_times = w.changed && w.only_times;
	ret->racy = w.racy;
	ret->entries = w.tree->entries;
	ret->bytes = w.bytes;
	return 0;
}

void ntr_absorb_early(struct ntr_memo *m, struct ntr_txn *txn)
{
	struct ntr_arun w = {.memo = m, .txn = txn, .old = m->cur, .now = ntr_wall_ns()};

	ntr_absorb_early_done(m);
	TAILQ_INIT(&w.objs);
	w.tree = ntr_mtree_new();
	if (!w.tree)
		return;
	ntr_arun_early(&w);
	ntr_dirs_done(&w.dirs);
	m->walked += w.tree->entries;
	run_done(&w);
	ntr_mtree_free(w.tree);
}

int ntr_absorb_run(struct ntr_memo *m, struct ntr_txn *txn, uint64_t base_root, bool full,
        struct ntr_absorb_result *ret, struct ntr_err *e)
{
	struct ntr_arun w = {.memo = m, .txn = txn, .full = full, .old = full ? NULL : m->cur, .e = e};

	return absorb(&w, base_root, ret);
}

int ntr_absorb_last(struct ntr_memo *m, struct ntr_txn *txn, uint64_t base_root, bool full,
        struct ntr_absorb_result *ret, struct ntr_err *e)
{
	struct ntr_arun w = {
	        .memo = m, .txn = txn, .full = full, .last = true, .old = full ? NULL : m->cur, .e = e};

	return absorb(&w, base_root, ret);
}

int ntr_absorb_newer(struct ntr_memo *m, struct ntr_txn *txn, const struct ntr_head *h,
        struct ntr_absorb_result *ret, struct ntr_err *e)
{
	struct ntr_arun w = {.memo = m, .txn = txn, .full = true, .newer = h, .e = e};

	return absorb(&w, h->base_root, ret);
}
