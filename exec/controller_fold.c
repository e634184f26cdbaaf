/* Folds: when a live session's upper, all of it committed, gives way to an empty one over the new commit.
 *
 * Every look at upper walks all of it, so a large one makes each call dear. At rest any upper that is not
 * small is folded by the tick. Where calls leave no rest, what the walks have cost is counted, and once they
 * have cost more than a fold the next use of the session begins with one: so all walking together stays
 * within a small multiple of what was written. */
#include "controller_impl.h"

#include <errno.h>

enum {
	FOLD_BYTES = 256 << 20,
	FOLD_WALKS = 2,  /* one when upper's entries were new, one within the fold */
	REFUSED_MAX = 5, /* doublings of the price */
	RETRY_NS = 2000000000
};

void ntr_sess_note_size(struct ntr_sess *s)
{
	uint64_t entries = 0, bytes = 0;

	ntr_memo_size(s->live->memo, &entries, &bytes);
	s->fold_due = entries >= s->ctl->o.fold_entries || bytes >= FOLD_BYTES;
}

void ntr_sess_fold_reset(struct ntr_sess *s)
{
	s->fold_due = false;
	s->fold_refused = 0;
	s->fold_retry_ns = s->fold_tried = 0;
}

/* A try costs walks and two synced writes: the next one comes after twice as much walking, and at rest after
 * a pause. */
static void refused(struct ntr_sess *s, uint64_t began)
{
	s->fold_tried = ntr_memo_walked(s->live->memo);
	s->fold_refused = NTR_MIN(s->fold_refused + 1, (unsigned)REFUSED_MAX);
	s->fold_retry_ns = ntr_mono_ns() + RETRY_NS;
	ntr_hist_add(&s->ctl->ops[NTR_OP_FOLD_REFUSED], ntr_mono_ns() - began);
}

/* What no commit has must stay in this upper; and in a process's hands the view cannot be exchanged. The
 * daemon knows so much without a look. */
static bool is_ruled_out(struct ntr_sess *s)
{
	return s->live->background || s->live->dirty || ntr_cache_dirty(s);
}

static int fold(struct ntr_sess *s, struct ntr_head *h)
{
	struct ntr_live_options o;
	struct ntr_err e = {0};
	int r = ntr_sess_binds(s) ? -EBUSY : ntr_absorb_check(s->live->memo);

	if (r)
		return r;
	r = ntr_absorb_times_wait(s->live->memo);
	if (r)
		r = ntr_sess_keep_times(s, h, &e);
	if (r)
		return r;
	ntr_ctl_live_options(s->ctl, h, &o);
	return ntr_live_fold(s->live, h, &o, &e); /* -EBUSY: somebody uses the view */
}

/* 1: folded, 0: ruled out, negative: nothing came of it. */
static int try_fold(struct ntr_sess *s, struct ntr_head *h)
{
	uint64_t began = ntr_mono_ns();

	if (is_ruled_out(s))
		return 0;
	if (fold(s, h)) {
		refused(s, began);
		return -1;
	}
	ntr_sess_fold_reset(s);
	ntr_hist_add(&s->ctl->ops[NTR_OP_FOLD], ntr_mono_ns() - began);
	ntr_ctl_sweep(s->ctl);
	return 1;
}

bool ntr_sess_fold_at_rest(struct ntr_sess *s, struct ntr_head *h)
{
	if (!s->fold_due || ntr_mono_ns() < s->fold_retry_ns)
		return false;
	return try_fold(s, h) != 0;
}

static bool is_owed(const struct ntr_sess *s)
{
	uint64_t entries = 0, bytes = 0, walked = ntr_memo_walked(s->live->memo) - s->fold_tried;

	ntr_memo_size(s->live->memo, &entries, &bytes);
	return walked >= (FOLD_WALKS * entries + s->ctl->o.fold_price) << s->fold_refused;
}

void ntr_sess_fold_owed(struct ntr_sess *s, struct ntr_head *h)
{
	uint64_t began = ntr_mono_ns();

	if (s->fold_due && is_owed(s) && try_fold(s, h) > 0)
		ntr_hist_add(&s->ctl->ops[NTR_OP_FOLD_OWED], ntr_mono_ns() - began);
}
