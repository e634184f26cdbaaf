/* The cache for clients: reading it as it is or was, and changes that are a commit of their own or join the
 * call that they come from. */
#include "controller_cache.h"

#include <errno.h>

static json_t *describe(const char *op, const char *key)
{
	return json_pack("{s:s,s:s,s:s}", "tool", "cache", "op", op, "key", key);
}

static int no_key(struct ntr_err *e, int r, const char *session, const char *key)
{
	if (r != -ENOENT)
		return ntr_err_default(e, r, "use the cache of session %s", session);
	ntr_err_set(e, r, "find '%s' in the cache of session %s", key, session);
	ntr_err_why(e, "there is no such key");
	ntr_err_todo(e, "`ntr cache ls -s %s` lists those there are", session);
	return r;
}

/* The cache as it is now: a commit that goes on meanwhile is seen whole or not at all. */
static int with_head(
        struct ntr_ctl *c, const char *session, struct ntr_sess **ret, struct ntr_head *h, struct ntr_err *e)
{
	int r = ntr_session_get(c->store, session, h, e);

	if (!r)
		r = ntr_ctl_sess(c, h->sid, ret);
	if (r)
		return ntr_err_default(e, r, "use session %s", session);
	pthread_mutex_lock(&(*ret)->cache->m);
	r = ntr_session_by_id(c->store, h->sid, h, e);
	if (r)
		pthread_mutex_unlock(&(*ret)->cache->m);
	return r;
}

/* An upper that a dead supervisor left holds changes, too. */
static int settle(struct ntr_ctl *c, const char *session, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_session_get(c->store, session, &h, e);

	if (!r)
		r = ntr_ctl_sess(c, h.sid, &s);
	if (r || ntr_sess_is_live(s) || !h.upper || !ntr_sess_hold_unless_call(s))
		return r;
	r = ntr_session_by_id(c->store, s->sid, &h, e);
	if (!r && !s->live && h.upper)
		r = ntr_sess_recover(s, &h, e);
	ntr_sess_release(s);
	return r;
}

static int get_at(struct ntr_ctl *c, const char *session, const char *rev, const char *key,
        struct ntr_buf *ret, struct ntr_err *e)
{
	ntr_auto(ntr_commit_done) struct ntr_commit at = {0};
	ntr_autofree uint8_t *val = NULL;
	struct ntr_snap snap;
	size_t n;
	int r = ntr_ctl_resolve(c, session, rev, &at, NULL, e);

	if (r)
		return r;
	snap = ntr_snap_root(c->store, at.root);
	r = ntr_cacheitem_get(&snap, key, &val, &n);
	return r ? no_key(e, r, session, key) : ntr_buf_add(ret, val, n);
}

int ntr_ctl_cache_get(struct ntr_ctl *c, const char *session, const char *rev, const char *key,
        struct ntr_buf *ret, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_cache_key_check(key, strlen(key), e);

	if (!r && rev)
		return get_at(c, session, rev, key, ret, e);
	if (!r)
		r = settle(c, session, e);
	if (!r)
		r = with_head(c, session, &s, &h, e);
	if (r)
		return r;
	r = ntr_cache_get_locked(s, &h, key, ret);
	pthread_mutex_unlock(&s->cache->m);
	return r ? no_key(e, r, session, key) : 0;
}

int ntr_ctl_cache_keys(
        struct ntr_ctl *c, const char *session, const char *rev, json_t **ret, struct ntr_err *e)
{
	ntr_auto(ntr_commit_done) struct ntr_commit at = {0};
	struct ntr_sess *s = NULL;
	struct ntr_snap snap;
	struct ntr_head h;
	int r = rev ? ntr_ctl_resolve(c, session, rev, &at, NULL, e) : settle(c, session, e);

	if (!r && !rev)
		r = with_head(c, session, &s, &h, e);
	if (r)
		return r;
	snap = ntr_snap_root(c->store, rev ? at.root : h.root);
	r = ntr_cache_keys_locked(s ? s->cache : NULL, &snap, ret);
	if (s)
		pthread_mutex_unlock(&s->cache->m);
	return r ? ntr_err_default(e, r, "list the cache of session %s", session) : 0;
}

static int change_locked(
        struct ntr_sess *s, const struct ntr_head *h, const char *key, const void *val, size_t len)
{
	return val ? ntr_cache_set_locked(s, h, key, val, len) : ntr_cache_del_locked(s, h, key);
}

/* Joins the call that runs. -EAGAIN: none does. */
static int join_call(struct ntr_sess *s, const char *key, const void *val, size_t len)
{
	struct ntr_head h;
	int r = -EAGAIN;

	pthread_mutex_lock(&s->call_m); /* keeps the call, and its view */
	if (s->call && s->live) {
		pthread_mutex_lock(&s->cache->m);
		r = ntr_session_by_id(s->ctl->store, s->sid, &h, NULL);
		if (!r)
			r = change_locked(s, &h, key, val, len);
		pthread_mutex_unlock(&s->cache->m);
	}
	pthread_mutex_unlock(&s->call_m);
	return r;
}

/* A session without a view has no journal: its change goes into a commit at once, or nowhere. */
static int commit_cold(struct ntr_sess *s, struct ntr_head *h, const char *key, const void *val, size_t len,
        struct ntr_commit *ret, struct ntr_err *e)
{
	ntr_autojson json_t *d = describe(val ? "set" : "rm", key);
	ntr_autofree char *desc = d ? json_dumps(d, JSON_COMPACT) : NULL;
	struct ntr_stats none = {0};
	struct ntr_snap snap = ntr_snap_root(s->ctl->store, h->root);
	struct ntr_txn *t;
	int r = desc ? ntr_cache_tree_has(&snap, key, val, len) : -ENOMEM;

	if (r)
		return r < 0 ? r : val ? 0 : -ENOENT;
	r = ntr_txn_begin(s->ctl->store, h->root, &t);
	if (r)
		return r;
	r = ntr_cacheitem_set(t, key, val, len);
	if (!r)
		return ntr_store_commit(s->ctl->store, h, t, desc, &none, ret, e);
	ntr_txn_abort(t);
	return r;
}

static int commit_live(struct ntr_sess *s, struct ntr_head *h, const char *key, const void *val, size_t len,
        struct ntr_commit *ret, struct ntr_err *e)
{
	int r;

	pthread_mutex_lock(&s->cache->m);
	r = change_locked(s, h, key, val, len);
	pthread_mutex_unlock(&s->cache->m);
	if (r || !ntr_cache_dirty(s))
		return r;
	return ntr_sess_commit(s, h, describe(val ? "set" : "rm", key), ret, NULL, e);
}

/* With the session held. */
static int change_held(struct ntr_sess *s, const char *key, const void *val, size_t len,
        char commit[NTR_COMMIT_HEX + 1], struct ntr_err *e)
{
	ntr_auto(ntr_commit_done) struct ntr_commit done = {0};
	struct ntr_head h;
	int r = ntr_session_by_id(s->ctl->store, s->sid, &h, e);

	if (!r && s->live)
		r = ntr_sess_live(s, &h, e);
	else if (!r && ntr_hooks_of_commit(s->ctl, h.name))
		r = ntr_sess_live(s, &h, e); /* what a hook refuses stays there */
	else if (!r && h.upper)
		r = ntr_sess_recover(s, &h, e);
	if (!r && s->live)
		r = commit_live(s, &h, key, val, len, &done, e);
	else if (!r)
		r = commit_cold(s, &h, key, val, len, &done, e);
	if (!r && done.id)
		memcpy(commit, done.hex, NTR_COMMIT_HEX + 1);
	return r;
}

/* A process of the session must not wait for the session's call, which may wait for it. */
static int hold_or_join(
        struct ntr_sess *s, bool inside, const char *key, const void *val, size_t len, bool *ret_held)
{
	int r;

	*ret_held = false;
	if (!inside) {
		r = ntr_sess_hold(s, NULL);
		*ret_held = !r;
		return r;
	}
	for (;;) {
		r = join_call(s, key, val, len);
		if (r != -EAGAIN)
			return r;
		if (ntr_sess_in_hook(s))
			return -EDEADLK;
		*ret_held = ntr_sess_hold_unless_call(s);
		if (*ret_held)
			return 0;
		usleep(200); /* a call just begins or ends */
	}
}

/* A process has its session's name from when its call began. That there is none of it any more is no reason
 * to make one. */
static int not_there(struct ntr_err *e, const char *session)
{
	ntr_err_set(e, -ENOENT, "use the cache of session %s", session);
	ntr_err_why(e, "the request comes from inside that session, which was renamed or removed");
	return ntr_err_todo(e, "name the session with -s; `ntr sessions` lists those there are");
}

static int session_of_change(struct ntr_ctl *c, const char *session, bool inside, bool set,
        struct ntr_head *ret, struct ntr_err *e)
{
	int r = set && !inside ? ntr_ctl_find_or_make(c, session, e) : 0;

	if (r)
		return r;
	r = ntr_session_get(c->store, session, ret, inside ? NULL : e);
	if (r == -ENOENT && inside)
		return not_there(e, session);
	return r ? ntr_err_default(e, r, "use the cache of session %s", session) : 0;
}

static int change(struct ntr_ctl *c, const char *session, const char *key, const void *val, size_t len,
        bool inside, char commit[NTR_COMMIT_HEX + 1], struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	bool held;
	int r = ntr_cache_key_check(key, strlen(key), e);

	commit[0] = '\0';
	if (!r)
		r = session_of_change(c, session, inside, val != NULL, &h, e);
	if (r)
		return r;
	r = ntr_ctl_sess(c, h.sid, &s);
	if (!r)
		r = hold_or_join(s, inside, key, val, len, &held);
	if (!r && held) {
		r = change_held(s, key, val, len, commit, e);
		ntr_sess_release(s);
	}
	return r ? no_key(e, r, session, key) : 0;
}

int ntr_ctl_cache_set(struct ntr_ctl *c, const char *session, const char *key, const void *val, size_t len,
        bool inside, char commit[NTR_COMMIT_HEX + 1], struct ntr_err *e)
{
	if (len > NTR_CACHE_VALUE_MAX) {
		commit[0] = '\0';
		ntr_err_set(e, -E2BIG, "set '%.200s' in the cache", key);
		ntr_err_why(e, "a value has at most %d MiB, and this one %zu", NTR_CACHE_VALUE_MAX >> 20,
		        len >> 20);
		return ntr_err_todo(e, "keep it in a file, and its path in the cache");
	}
	return change(c, session, key, val, len, inside, commit, e);
}

int ntr_ctl_cache_del(struct ntr_ctl *c, const char *session, const char *key, bool inside,
        char commit[NTR_COMMIT_HEX + 1], struct ntr_err *e)
{
	return change(c, session, key, NULL, 0, inside, commit, e);
}
