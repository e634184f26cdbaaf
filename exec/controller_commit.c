/* Absorb and commit: how what a session's processes wrote becomes one commit. */
#include "controller_impl.h"
#include "../base/upperfs.h"
#include "live_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { TRIM_BYTES = 16 << 20 };

static const struct ntr_stats uncounted = {.created = NTR_STATS_UNKNOWN};

/* 1: something may be worth a commit, 0: nothing, or negative errno. last: upper is to go. */
static int anything_new(struct ntr_sess *s, bool last, struct ntr_err *e)
{
	int r;

	if ((s->state && s->state->dirty) || ntr_cache_dirty(s))
		return 1;
	if (!s->live)
		return 0;
	if (s->live->background && (r = ntr_live_writeback(s->live, e)))
		return r;
	r = s->live->written ? 1 : ntr_absorb_check(s->live->memo);
	if (!r && last)
		r = ntr_absorb_times_wait(s->live->memo);
	return r < 0 ? ntr_err_default(e, r, "look for changes") : r;
}

/* Fills txn from upper and state. The session's processes stand still while upper is read, so that the commit
 * is one point in time; where there is much, most of it is read before. */
static int collect(
        struct ntr_sess *s, bool last, struct ntr_txn *txn, struct ntr_absorb_result *res, struct ntr_err *e)
{
	int (*absorb)(struct ntr_memo *, struct ntr_txn *, uint64_t, bool, struct ntr_absorb_result *,
	        struct ntr_err *) = last ? ntr_absorb_last : ntr_absorb_run;
	bool frozen = false;
	int r = 0;

	if (s->live && s->live->background) {
		if (!s->live->upper.memory)
			ntr_absorb_early(s->live->memo, txn);
		frozen = true; /* also when only what follows the freeze fails */
		r = ntr_live_freeze(s->live, e);
	}
	if (!r && s->live)
		r = absorb(s->live->memo, txn, s->live->upper.base_root, false, res, e);
	if (frozen)
		ntr_live_thaw(s->live);
	if (s->live)
		ntr_absorb_early_done(s->live->memo);
	if (!r && s->state)
		r = ntr_state_store(s->state, txn);
	if (!r)
		r = ntr_cache_apply(s, txn);
	return r ? ntr_err_default(e, r, "absorb the session's changes") : 0;
}

static int commit_txn(struct ntr_sess *s, struct ntr_head *h, struct ntr_txn *txn, json_t *desc,
        const struct ntr_absorb_result *res, struct ntr_commit *ret, struct ntr_err *e)
{
	ntr_autofree char *text = NULL;

	if (s->live && s->live->background)
		json_object_set_new(desc, "background", json_true());
	if (res->racy)
		json_object_set_new(desc, "racy", json_true());
	if (res->only_times)
		json_object_set_new(desc, NTR_COMMIT_TIMES, json_true());
	text = json_dumps(desc, JSON_COMPACT);
	if (!text) {
		ntr_txn_abort(txn);
		return ntr_err_set(e, -ENOMEM, "describe the commit");
	}
	return ntr_store_commit(s->ctl->store, h, txn, text, &uncounted, ret, e);
}

json_t *ntr_stats_json(const struct ntr_stats *st)
{
	return json_pack("{s:I,s:I,s:I}", "created", (json_int_t)st->created, "modified",
	        (json_int_t)st->modified, "deleted", (json_int_t)st->deleted);
}

int ntr_ctl_count(struct ntr_ctl *c, struct ntr_commit *commit)
{
	struct ntr_commit parent = {0};
	struct ntr_stats st = {0};
	int r = 0;

	if (commit->stats.created != NTR_STATS_UNKNOWN)
		return 0;
	if (commit->nparents)
		r = ntr_commit_get(c->store, commit->parent[0], &parent, NULL);
	if (!r)
		r = ntr_diff_tally(c->store, parent.root, commit->root, &st);
	ntr_commit_done(&parent);
	if (r)
		return r;
	st.bytes_stored = commit->stats.bytes_stored;
	commit->stats = st;
	return ntr_commit_set_stats(c->store, commit, NULL);
}

/* recorded: a commit was written, and with it the session's record; what was found to be the same writes
 * none. */
static void committed(struct ntr_sess *s, bool recorded)
{
	if (s->state)
		s->state->dirty = false;
	ntr_cache_kept(s);
	if (!s->live)
		return;
	ntr_absorb_accept(s->live->memo);
	s->live->dirty = s->live->written = false;
	s->live->unrecorded &= !recorded;
	ntr_sess_note_size(s);
}

static int commit_once(struct ntr_sess *s, struct ntr_head *h, bool last, json_t *desc,
        struct ntr_absorb_result *res, struct ntr_commit *ret, struct ntr_err *e)
{
	struct ntr_txn *txn;
	bool other;
	int r = ntr_txn_begin(s->ctl->store, h->root, &txn);

	if (r)
		return ntr_err_set(e, r, "begin a commit");
	if (s->live && s->live->unrecorded) { /* the commit writes the whole record */
		h->upper = s->live->upper.n;
		h->base_root = s->live->upper.base_root;
	}
	other = (s->state && s->state->dirty) || ntr_cache_dirty(s);
	r = collect(s, last, txn, res, e);
	res->only_times &= !other;
	if (r)
		ntr_txn_abort(txn);
	else
		r = commit_txn(s, h, txn, desc, res, ret, e);
	if (!r) {
		committed(s, ret->id != 0);
	} else if (s->live) {
		ntr_absorb_reject(s->live->memo);
		s->live->dirty = true;
	}
	return r;
}

/* A file that goes between the walk and its reading: nobody can hold a writer still that is on the other side
 * of a mount. The next walk does not find it. */
bool ntr_sess_went_meanwhile(int r, unsigned *tries, struct ntr_err *e)
{
	if ((r != -ENOENT && r != -ESTALE) || ++*tries > 20)
		return false;
	if (e)
		*e = (struct ntr_err){0};
	return true;
}

/* Tries again what a moment later may succeed. */
static int commit_tries(struct ntr_sess *s, struct ntr_head *h, bool last, json_t *desc,
        struct ntr_absorb_result *res, struct ntr_commit *ret, struct ntr_err *e)
{
	unsigned tries = 0;
	int r;

	for (;;) {
		r = commit_once(s, h, last, desc, res, ret, e);
		if (!ntr_sess_went_meanwhile(r, &tries, e) && (r != -EMFILE || !ntr_ctl_close_idle(s)))
			return r;
		if (e)
			*e = (struct ntr_err){0};
		*res = (struct ntr_absorb_result){0};
	}
}

static int commit(struct ntr_sess *s, struct ntr_head *h, bool last, json_t *desc_ref, struct ntr_commit *ret,
        bool *ret_racy, struct ntr_err *e)
{
	ntr_autojson json_t *desc = desc_ref;
	struct ntr_absorb_result res = {0};
	uint64_t before = h->root;
	int r;

	*ret = (struct ntr_commit){0};
	r = anything_new(s, last, e);
	if (r <= 0) {
		if (!r && s->live)
			s->live->dirty = false;
		return r;
	}
	r = ntr_hooks_pre_commit(s, h, desc, e);
	if (r && s->live) {
		s->live->dirty = true;
		s->live->used_ns = ntr_mono_ns(); /* asked again when it is idle, but not all the time */
	}
	if (r)
		return r;
	r = commit_tries(s, h, last, desc, &res, ret, e);
	if (r)
		return r;
	if (ret->id)
		ntr_ctl_count(s->ctl, ret);
	if (ret->stats.bytes_stored > TRIM_BYTES)
		__atomic_store_n(&s->ctl->trim, true, __ATOMIC_RELAXED);
	if (ret_racy)
		*ret_racy = res.racy;
	if (ret->id && !json_is_true(json_object_get(desc, NTR_COMMIT_TIMES)))
		ntr_hooks_post_commit(s, h, desc, before, ret);
	return 0;
}

int ntr_sess_commit(struct ntr_sess *s, struct ntr_head *h, json_t *desc, struct ntr_commit *ret,
        bool *ret_racy, struct ntr_err *e)
{
	return commit(s, h, false, desc, ret, ret_racy, e);
}

static json_t *staged(void)
{
	return json_pack("{s:s}", "tool", "staged");
}

int ntr_sess_keep_times(struct ntr_sess *s, struct ntr_head *h, struct ntr_err *e)
{
	struct ntr_commit done = {0};
	int r = commit(s, h, true, staged(), &done, NULL, e);

	ntr_commit_done(&done);
	return r;
}

static int stage(struct ntr_sess *s, struct ntr_head *h, bool last, struct ntr_commit *ret, struct ntr_err *e)
{
	*ret = (struct ntr_commit){0};
	if (s->live && ntr_initlink_dead(s->live->link, true))
		return ntr_sess_recover(s, h, e);
	if (s->live || (s->state && s->state->dirty) || ntr_cache_dirty(s))
		return commit(s, h, last, staged(), ret, NULL, e);
	return h->upper ? ntr_sess_recover(s, h, e) : 0;
}

int ntr_sess_stage(struct ntr_sess *s, struct ntr_head *h, struct ntr_commit *ret, struct ntr_err *e)
{
	return stage(s, h, false, ret, e);
}

/* One write makes the commit and takes the upper out of the record: absorbing it a second time cannot happen.
 */
static int commit_dead(struct ntr_ctl *c, struct ntr_head *h, struct ntr_txn *txn, const char *tool,
        struct ntr_commit *ret, struct ntr_err *e)
{
	ntr_autojson json_t *desc = json_pack("{s:s}", "tool", tool);
	ntr_autofree char *text = desc ? json_dumps(desc, JSON_COMPACT) : NULL;
	struct ntr_head next = *h;
	int r;

	if (!text) {
		ntr_txn_abort(txn);
		return ntr_err_set(e, -ENOMEM, "describe the commit");
	}
	next.upper = next.base_root = 0;
	r = ntr_store_commit(c->store, &next, txn, text, &uncounted, ret, e);
	if (!r && ret->id)
		*h = next;
	return r;
}

static int open_dead(struct ntr_ctl *c, const struct ntr_head *h, int held_fd, struct ntr_upper *ret)
{
	int r;

	if (held_fd < 0) {
		r = ntr_upper_open(c->store, h->sid, h->upper, ret);
		if (r == -ENODATA)
			fprintf(stderr,
			        "ntrd: session %s: what no commit held was in memory, and went with its "
			        "supervisor\n",
			        h->name);
		return r == -ENODATA ? -ENOENT : r;
	}
	*ret = (struct ntr_upper){.fd = fcntl(held_fd, F_DUPFD_CLOEXEC, 3), .work_fd = -1};
	return ret->fd < 0 ? -errno : 0;
}

int ntr_ctl_absorb_dead(struct ntr_ctl *c, struct ntr_head *h, const char *tool, int held_fd,
        struct ntr_commit *ret, struct ntr_err *e)
{
	ntr_auto(ntr_upper_close) struct ntr_upper u = {.fd = -1, .work_fd = -1};
	struct ntr_absorb_result res = {0};
	struct ntr_memo *memo = NULL;
	struct ntr_txn *txn;
	uint64_t n = h->upper;
	int r;

	*ret = (struct ntr_commit){0};
	r = ntr_upper_end_leftovers(c->store, h->sid, n); /* nobody writes to it while it is read */
	if (!r)
		r = open_dead(c, h, held_fd, &u);
	if (r == -ENOENT) /* a stop was cut short between trash and record: all of it had been committed */
		return ntr_live_drop_upper(c->store, h, e);
	if (!r)
		r = ntr_memo_new(u.fd, ntr_fs_userxattr(), &memo);
	if (!r)
		r = ntr_txn_begin(c->store, h->root, &txn);
	if (r) {
		ntr_memo_free(memo);
		return ntr_err_set(e, r, "recover the work of session %s", h->name);
	}
	/* After a power failure upper may hold less than what was committed from it. */
	if (ntr_head_of_other_boot(h))
		r = ntr_absorb_newer(memo, txn, h, &res, e);
	else
		r = ntr_absorb_last(memo, txn, h->base_root, true, &res, e);
	if (!r)
		r = ntr_cache_replay(c->store, h, txn);
	if (r)
		ntr_txn_abort(txn);
	else
		r = commit_dead(c, h, txn, tool, ret, e);
	ntr_memo_free(memo);
	if (r)
		return ntr_err_default(e, r, "recover the work of session %s", h->name);
	if (h->upper)
		return ntr_live_drop_upper(c->store, h, e);
	ntr_memory_end(c->store, h->sid, n);
	return ntr_upper_trash(c->store, h->sid, n);
}

int ntr_sess_close(struct ntr_sess *s, struct ntr_head *h, bool discard, unsigned *ret_killed,
        struct ntr_commit *ret, struct ntr_err *e)
{
	unsigned killed = 0;
	int r = 0;

	*ret = (struct ntr_commit){0};
	r = ntr_sess_unbind(s, discard, e);
	if (!r)
		r = ntr_sess_passes_release(s, discard, e);
	if (r)
		return r;
	if (s->live && !ntr_initlink_dead(s->live->link, true))
		r = ntr_live_kill(s->live, 0, 0, &killed, e);
	if (r == -EPIPE)
		r = 0; /* the supervisor died just now: what it left is absorbed below */
	if (ret_killed)
		*ret_killed += killed;
	if (!r && !discard)
		r = stage(s, h, true, ret, e);
	if (r) {
		ntr_sess_passes_resume(s);
		return r;
	}
	if (discard && s->live)
		s->live->dirty = false;
	if (discard) {
		ntr_state_free(s->state);
		s->state = NULL;
		ntr_cache_drop(s);
	}
	ntr_sess_unlive(s);
	ntr_sess_fold_reset(s);
	r = ntr_live_drop_upper(s->ctl->store, h, e);
	ntr_ctl_sweep(s->ctl);
	return r;
}
