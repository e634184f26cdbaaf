/* Operations on sessions that must agree with a live one. */
#include "controller_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

int ntr_ctl_new(struct ntr_ctl *c, const char *name, const struct ntr_session_options *o,
        struct ntr_head *ret, struct ntr_err *e)
{
	return ntr_session_new(c->store, name, o, NULL, ret, e);
}

static json_t *commit_desc(const char *tool, const char *message)
{
	json_t *d = json_pack("{s:s}", "tool", tool);

	if (d && message)
		json_object_set_new(d, "message", ntr_json_text(message, strlen(message)));
	return d;
}

int ntr_ctl_commit(struct ntr_ctl *c, const char *session, const char *tool, const char *message,
        struct ntr_commit *ret, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_ctl_hold(c, session, NULL, &s, &h, e);

	*ret = (struct ntr_commit){0};
	if (r)
		return r;
	if (s->live && !ntr_initlink_dead(s->live->link, true))
		ntr_sess_fold_owed(s, &h);
	if (s->live && !ntr_initlink_dead(s->live->link, true))
		r = ntr_sess_commit(s, &h, commit_desc(tool, message), ret, NULL, e);
	else
		r = ntr_sess_stage(s, &h, ret, e);
	ntr_sess_release(s);
	return r;
}

static void forget_state(struct ntr_sess *s)
{
	ntr_state_free(s->state);
	s->state = NULL;
	ntr_cache_drop(s);
}

/* Shows the head (or, with `to`, another commit that becomes the head) afresh; whatever upper holds is gone.
 */
static int renew(struct ntr_sess *s, struct ntr_head *h, const struct ntr_commit *to, unsigned *ret_killed,
        struct ntr_err *e)
{
	struct ntr_live_options o;
	uint64_t old = h->upper;
	int r;

	if (!s->live) {
		r = to ? ntr_session_move(s->ctl->store, h, to, e) : ntr_live_drop_upper(s->ctl->store, h, e);
	} else {
		ntr_ctl_live_options(s->ctl, h, &o);
		r = ntr_live_swap(s->live, h, &o, to, ret_killed, e);
		if (r && h->upper != old) {
			/* The record moved, the view did not follow: the next call makes a new one. */
			s->live->dirty = false;
			ntr_sess_unlive(s);
			ntr_upper_trash(s->ctl->store, h->sid, old);
			r = 0;
		}
		ntr_ctl_sweep(s->ctl);
	}
	if (r)
		return r;
	forget_state(s);
	ntr_sess_fold_reset(s);
	if (s->live)
		ntr_sess_rebind(s);
	return 0;
}

int ntr_ctl_discard(struct ntr_ctl *c, const char *session, unsigned *ret_killed, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	unsigned killed = 0;
	int r = ntr_ctl_hold(c, session, NULL, &s, &h, e);

	if (r)
		return r;
	r = renew(s, &h, NULL, &killed, e);
	ntr_sess_release(s);
	if (ret_killed)
		*ret_killed = killed;
	return r;
}

/* ---- work that no commit has ---- */

static int work_root(struct ntr_sess *s, const struct ntr_head *h, uint64_t *ret, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	struct ntr_absorb_result res = {0};
	struct ntr_txn *txn;
	int r = b ? ntr_txn_begin(s->ctl->store, h->root, &txn) : -ENOMEM;

	if (r)
		return ntr_err_set(e, r, "look at the session's work");
	r = ntr_absorb_run(s->live->memo, txn, s->live->upper.base_root, false, &res, e);
	ntr_absorb_reject(s->live->memo);
	if (!r && s->state)
		r = ntr_state_store(s->state, txn);
	if (!r)
		r = ntr_cache_apply(s, txn);
	if (!r)
		r = ntr_txn_finish(txn, b, ret, e);
	if (!r && *ret != h->root)
		r = ntr_kv_write(ntr_store_kv(s->ctl->store), b, NTR_KV_RELAXED, e);
	ntr_txn_abort(txn);
	return r ? ntr_err_default(e, r, "look at the session's work") : 0;
}

int ntr_sess_work_root(struct ntr_sess *s, const struct ntr_head *h, uint64_t *ret, struct ntr_err *e)
{
	unsigned tries = 0;
	int r;

	while (ntr_sess_went_meanwhile(r = work_root(s, h, ret, e), &tries, e))
		;
	return r;
}

int ntr_ctl_work(struct ntr_ctl *c, const char *session, struct ntr_diff *ret, uint64_t *ret_head_root,
        uint64_t *ret_work_root, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	uint64_t work;
	int r = ntr_session_get(c->store, session, &h, e);

	*ret = (struct ntr_diff){0};
	if (!r)
		r = ntr_ctl_sess(c, h.sid, &s);
	if (r)
		return ntr_err_default(e, r, "look at session %s", session);
	*ret_head_root = *ret_work_root = h.root;
	if (!ntr_sess_hold_unless_call(s))
		return 0; /* a call runs: the head is what there is (design, section 6) */
	r = ntr_session_by_id(c->store, s->sid, &h, e);
	if (!r && (s->live ? ntr_initlink_dead(s->live->link, true) : h.upper != 0))
		r = ntr_sess_recover(s, &h, e); /* what a dead supervisor left is a commit from here on */
	work = h.root;
	if (!r && s->live && s->live->background)
		ntr_live_writeback(s->live, NULL);
	if (!r && s->live &&
	        ((s->state && s->state->dirty) || ntr_cache_dirty(s) || ntr_absorb_check(s->live->memo) > 0))
		r = ntr_sess_work_root(s, &h, &work, e);
	ntr_sess_release(s);
	*ret_head_root = h.root;
	*ret_work_root = work;
	if (!r && work != h.root)
		r = ntr_diff_compute(c->store, h.root, work, NULL, ret);
	return r ? ntr_err_default(e, r, "look at session %s", session) : 0;
}

/* ---- moving the head ---- */

/* Ends the call that runs. Returns the head it had, 0: there was none. */
static uint64_t interrupt(struct ntr_ctl *c, const char *session)
{
	struct ntr_sess *s;
	struct ntr_head h;
	bool ended;

	if (ntr_session_get(c->store, session, &h, NULL) || ntr_ctl_sess(c, h.sid, &s) || ntr_sess_in_hook(s))
		return 0;
	pthread_mutex_lock(&s->call_m);
	ended = s->call;
	if (ended)
		ntr_call_signal(s->call, SIGKILL);
	pthread_mutex_unlock(&s->call_m);
	return ended ? h.commit : 0;
}

/* What the ended call had written is a commit of its own, which nobody was told of. */
static void tell_interrupted(
        struct ntr_ctl *c, uint64_t before, uint64_t head, struct ntr_rollback_result *ret)
{
	struct ntr_commit at = {0};

	ret->killed++;
	if (!ret->staged[0] && head != before && !ntr_commit_get(c->store, head, &at, NULL))
		memcpy(ret->staged, at.hex, sizeof ret->staged);
	ntr_commit_done(&at);
}

static int rollback_target(struct ntr_ctl *c, const struct ntr_head *h, const char *rev, uint64_t steps,
        struct ntr_commit *ret, struct ntr_err *e)
{
	struct ntr_commit head = {0};
	int r;

	if (rev)
		return ntr_ctl_resolve(c, h->name, rev, ret, NULL, e);
	r = ntr_commit_get(c->store, h->commit, &head, e);
	if (!r)
		r = ntr_commit_back(c->store, &head, steps, ret, e);
	ntr_commit_done(&head);
	return r;
}

static int kill_and_stage(struct ntr_sess *s, struct ntr_head *h, bool discard,
        struct ntr_rollback_result *ret, struct ntr_err *e)
{
	struct ntr_commit staged = {0};
	int r = 0;

	if (s->live && s->live->background && !ntr_initlink_dead(s->live->link, true))
		r = ntr_live_kill(s->live, 0, 0, &ret->killed, e);
	if (r == -EPIPE)
		r = 0;
	if (!r && !discard)
		r = ntr_sess_stage(s, h, &staged, e);
	if (!r && staged.id)
		memcpy(ret->staged, staged.hex, sizeof ret->staged);
	ntr_commit_done(&staged);
	return r;
}

int ntr_ctl_rollback(struct ntr_ctl *c, const char *session, const char *rev, uint64_t steps, bool discard,
        bool force, struct ntr_rollback_result *ret, struct ntr_err *e)
{
	uint64_t began, from, ended;
	struct ntr_sess *s;
	struct ntr_head h;
	int r;

	*ret = (struct ntr_rollback_result){0};
	ended = force ? interrupt(c, session) : 0;
	r = ntr_ctl_hold(c, session, NULL, &s, &h, e);
	if (r)
		return r;
	began = ntr_mono_ns();
	/* The target is found before anything is ended or staged: a wrong name changes nothing, and steps
	 * count from the head that the user sees. */
	r = rollback_target(c, &h, rev, steps, &ret->to, e);
	if (!r)
		r = kill_and_stage(s, &h, discard, ret, e);
	from = h.commit;
	if (!r && discard && !s->live && h.upper)
		r = ntr_live_drop_upper(c->store, &h, e);
	if (!r)
		r = renew(s, &h, &ret->to, &ret->killed, e);
	if (!r && ended)
		tell_interrupted(c, ended, from, ret);
	if (!r)
		ntr_hooks_post_rollback(s, &h, from, ret);
	ntr_hist_add(&c->ops[NTR_OP_ROLLBACK], ntr_mono_ns() - began);
	ntr_sess_release(s);
	if (r)
		ntr_commit_done(&ret->to);
	return r;
}

/* Fork and export take what is on disk now, unless a call is running: then the head as it is. */
int ntr_ctl_stage(struct ntr_ctl *c, const char *session, struct ntr_err *e)
{
	struct ntr_commit staged = {0};
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_session_get(c->store, session, &h, e);

	if (!r)
		r = ntr_ctl_sess(c, h.sid, &s);
	if (r || !ntr_sess_hold_unless_call(s))
		return r;
	r = ntr_session_by_id(c->store, s->sid, &h, e);
	if (!r && s->live && !ntr_initlink_dead(s->live->link, true)) {
		ntr_sess_fold_owed(s, &h);
		r = ntr_sess_keep_times(s, &h, e); /* and whatever else waits */
	} else if (!r) {
		r = ntr_sess_stage(s, &h, &staged, e);
	}
	ntr_commit_done(&staged);
	ntr_sess_release(s);
	return r;
}

int ntr_ctl_fork(
        struct ntr_ctl *c, const char *source, const char *name, struct ntr_head *ret, struct ntr_err *e)
{
	struct ntr_commit at = {0};
	struct ntr_head src = {0};
	uint64_t began = ntr_mono_ns();
	int r = ntr_session_name_check(name, e);

	if (!r && !strpbrk(source, "@~"))
		r = ntr_ctl_stage(c, source, e);
	if (!r)
		r = ntr_ctl_resolve(c, NULL, source, &at, &src, e);
	if (!r && !src.sid)
		r = ntr_session_by_id(c->store, at.sid, &src, NULL) == 0 ? 0 : -ENOENT;
	if (!r)
		r = ntr_session_fork(c->store, &src, &at, name, ret, e);
	if (!r && !ntr_session_is_throwaway(name)) /* a throw-away fork is a call's business */
		ntr_hooks_post_fork(c, &src, ret);
	ntr_hist_add(&c->ops[NTR_OP_FORK], ntr_mono_ns() - began);
	ntr_commit_done(&at);
	return r ? ntr_err_default(e, r, "fork %s", source) : 0;
}

int ntr_ctl_remove(struct ntr_ctl *c, const char *name, bool discard, unsigned *ret_killed, struct ntr_err *e)
{
	struct ntr_commit staged = {0};
	unsigned killed = 0;
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_ctl_hold(c, name, NULL, &s, &h, e);

	if (r)
		return r;
	r = ntr_sess_close(s, &h, discard, &killed, &staged, e);
	ntr_commit_done(&staged);
	if (!r)
		r = ntr_session_remove(c->store, h.sid, e);
	if (!r)
		forget_state(s);
	ntr_sess_release(s);
	if (ret_killed)
		*ret_killed = killed;
	return r;
}

int ntr_ctl_rename(struct ntr_ctl *c, const char *old, const char *new, struct ntr_err *e)
{
	int r = ntr_session_name_check(new, e);

	return r ? r : ntr_session_rename(c->store, old, new, e);
}

static int stop_one(struct ntr_ctl *c, const char *session, unsigned *killed, struct ntr_err *e)
{
	struct ntr_commit staged = {0};
	struct ntr_sess *s;
	struct ntr_head h;
	int r;

	interrupt(c, session);
	r = ntr_ctl_hold(c, session, NULL, &s, &h, e);
	if (r)
		return r;
	r = ntr_sess_close(s, &h, false, killed, &staged, e);
	ntr_commit_done(&staged);
	ntr_sess_release(s);
	return r;
}

struct names {
	char **v;
	size_t n;
};

static int add_name(void *user, const struct ntr_head *h)
{
	struct names *l = user;
	char **v = realloc(l->v, (l->n + 1) * sizeof *v);

	if (!v)
		return -ENOMEM;
	l->v = v;
	v[l->n] = strdup(h->name);
	return v[l->n++] ? 0 : -ENOMEM;
}

int ntr_ctl_stop(struct ntr_ctl *c, const char *session, unsigned *ret_killed, struct ntr_err *e)
{
	struct names l = {0};
	unsigned killed = 0;
	int r = 0;

	if (session)
		r = stop_one(c, session, &killed, e);
	else
		r = ntr_session_each(c->store, add_name, &l);
	for (size_t i = 0; i < l.n; i++) {
		int k = stop_one(c, l.v[i], &killed, e);

		if (k && k != -ENOENT && !r)
			r = k;
		free(l.v[i]);
	}
	free(l.v);
	if (ret_killed)
		*ret_killed = killed;
	return r;
}

int ntr_ctl_ps(struct ntr_ctl *c, const char *session, json_t **ret, struct ntr_err *e)
{
	ntr_autojson json_t *reply = NULL;
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_session_get(c->store, session, &h, e);

	if (!r)
		r = ntr_ctl_sess(c, h.sid, &s);
	if (r)
		return ntr_err_default(e, r, "list processes of session %s", session);
	/* Asked for while a call runs, so without the session: call_m keeps the link from going away. */
	pthread_mutex_lock(&s->call_m);
	if (ntr_sess_is_live(s) && !ntr_initlink_dead(s->live->link, true))
		r = ntr_initlink_do(s->live->link, json_pack("{s:s}", "op", "ps"), NULL, 0, &reply, NULL, e);
	pthread_mutex_unlock(&s->call_m);
	if (r)
		return r;
	*ret = reply ? json_incref(json_object_get(reply, "procs")) : json_array();
	return *ret ? 0 : -ENOMEM;
}

json_t *ntr_ctl_session_info(struct ntr_ctl *c, const struct ntr_head *h)
{
	struct ntr_sess *s = NULL;
	uint64_t sid = h->sid, entries = 0, bytes = 0, walked = 0;
	unsigned background = 0;
	bool live = false, running = false;

	pthread_mutex_lock(&c->m);
	HASH_FIND(hh, c->sessions, &sid, sizeof sid, s);
	pthread_mutex_unlock(&c->m);
	if (s) {
		live = ntr_sess_is_live(s);
		pthread_mutex_lock(&s->call_m);
		running = s->call != NULL;
		pthread_mutex_unlock(&s->call_m);
		if (live && ntr_sess_hold_unless_call(s)) {
			if (s->live) {
				background = ntr_sess_background(s);
				ntr_memo_size(s->live->memo, &entries, &bytes);
				walked = s->live->walked + ntr_memo_walked(s->live->memo);
			}
			ntr_sess_release(s);
		}
	}
	return json_pack("{s:b,s:b,s:i,s:I,s:I}", "live", live, "running", running, "background",
	        (int)background, "upper_entries", (json_int_t)entries, "upper_walked", (json_int_t)walked);
}
