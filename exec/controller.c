#include "controller_impl.h"
#include "live_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

enum { IDLE_CLOSE_S = 60 };

/* ---- the table and the session's lock ---- */

static struct ntr_sess *sess_new(struct ntr_ctl *c, uint64_t sid)
{
	struct ntr_sess *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->sid = sid;
	s->ctl = c;
	s->mem_fd = -1;
	s->cache = ntr_cache_new();
	if (!s->cache) {
		free(s);
		return NULL;
	}
	pthread_mutex_init(&s->m, NULL);
	pthread_mutex_init(&s->call_m, NULL);
	TAILQ_INIT(&s->waiters);
	return s;
}

static void sess_free(struct ntr_sess *s)
{
	ntr_closep(&s->mem_fd);
	ntr_state_free(s->state);
	ntr_cache_free(s->cache);
	pthread_mutex_destroy(&s->m);
	pthread_mutex_destroy(&s->call_m);
	free(s);
}

int ntr_ctl_sess(struct ntr_ctl *c, uint64_t sid, struct ntr_sess **ret)
{
	struct ntr_sess *s;

	pthread_mutex_lock(&c->m);
	HASH_FIND(hh, c->sessions, &sid, sizeof sid, s);
	if (!s && (s = sess_new(c, sid))) {
		HASH_ADD(hh, c->sessions, sid, sizeof s->sid, s);
		if (!ntr_hashed(hh, s)) {
			sess_free(s);
			s = NULL;
		}
	}
	pthread_mutex_unlock(&c->m);
	*ret = s;
	return s ? 0 : -ENOMEM;
}

bool ntr_sess_try(struct ntr_sess *s)
{
	bool got;

	pthread_mutex_lock(&s->m);
	got = !s->held && TAILQ_EMPTY(&s->waiters);
	if (got)
		s->held = true;
	pthread_mutex_unlock(&s->m);
	return got;
}

static bool call_enqueue(struct ntr_call *call, struct ntr_sess *s, struct ntr_waiter *w)
{
	bool gone;

	pthread_mutex_lock(&call->m);
	gone = call->cancelled;
	call->queue = gone ? NULL : s;
	call->waiter = w;
	pthread_mutex_unlock(&call->m);
	return !gone;
}

static void wake_first(struct ntr_sess *s)
{
	if (!TAILQ_EMPTY(&s->waiters))
		pthread_cond_signal(&TAILQ_FIRST(&s->waiters)->cond);
}

/* Waits in line; with m held. 0: taken, else -EINTR (w was cancelled) or -EBUSY (unless_call, and a call has
 * it). */
static int queue_wait(struct ntr_sess *s, struct ntr_waiter *w, bool is_call)
{
	struct ntr_waiter *other;
	int r = 0;

	while (!r && !w->cancelled && (s->held || TAILQ_FIRST(&s->waiters) != w)) {
		if (w->unless_call && s->by_call)
			r = -EBUSY;
		else
			pthread_cond_wait(&w->cond, &s->m);
	}
	TAILQ_REMOVE(&s->waiters, w, link);
	if (w->cancelled)
		r = -EINTR;
	if (!r) {
		s->held = true;
		s->by_call = is_call;
	} else if (!s->held) {
		wake_first(s);
	}
	if (!r && is_call)
		TAILQ_FOREACH (other, &s->waiters, link)
			if (other->unless_call)
				pthread_cond_signal(&other->cond);
	return r;
}

static int hold(struct ntr_sess *s, struct ntr_call *call, bool is_call)
{
	struct ntr_waiter w = {.cancelled = false};
	int r;

	if (ntr_sess_in_hook(s))
		return -EDEADLK;
	pthread_cond_init(&w.cond, NULL);
	pthread_mutex_lock(&s->m);
	TAILQ_INSERT_TAIL(&s->waiters, &w, link);
	pthread_mutex_unlock(&s->m);
	/* Lock order is call before session: a signal takes call->m, then s->m. */
	if (call && !call_enqueue(call, s, &w))
		w.cancelled = true;
	pthread_mutex_lock(&s->m);
	r = queue_wait(s, &w, is_call);
	pthread_mutex_unlock(&s->m);
	if (call) {
		pthread_mutex_lock(&call->m);
		call->queue = NULL;
		call->waiter = NULL;
		pthread_mutex_unlock(&call->m);
	}
	pthread_cond_destroy(&w.cond);
	return r;
}

static _Thread_local const struct ntr_ctl_patience *patience;

void ntr_ctl_be_patient(const struct ntr_ctl_patience *p)
{
	patience = p;
}

static int hold_watched(struct ntr_sess *s)
{
	struct ntr_call *call = ntr_call_new();
	int r;

	if (!call)
		return -ENOMEM;
	if (patience->begin(patience->user, call)) {
		r = hold(s, NULL, false);
	} else {
		r = hold(s, call, false);
		patience->end(patience->user);
	}
	ntr_call_free(call);
	return r;
}

int ntr_sess_hold(struct ntr_sess *s, struct ntr_call *call)
{
	if (call || !patience)
		return hold(s, call, call != NULL);
	return ntr_sess_try(s) ? 0 : hold_watched(s);
}

bool ntr_sess_hold_unless_call(struct ntr_sess *s)
{
	struct ntr_waiter w = {.unless_call = true};
	int r;

	if (ntr_sess_in_hook(s))
		return false;
	pthread_cond_init(&w.cond, NULL);
	pthread_mutex_lock(&s->m);
	TAILQ_INSERT_TAIL(&s->waiters, &w, link);
	r = queue_wait(s, &w, false);
	pthread_mutex_unlock(&s->m);
	pthread_cond_destroy(&w.cond);
	return !r;
}

void ntr_sess_release(struct ntr_sess *s)
{
	pthread_mutex_lock(&s->m);
	s->held = s->by_call = false;
	wake_first(s);
	pthread_mutex_unlock(&s->m);
}

int ntr_ctl_hold(struct ntr_ctl *c, const char *name, struct ntr_call *call, struct ntr_sess **ret,
        struct ntr_head *h, struct ntr_err *e)
{
	struct ntr_sess *s;
	int r = ntr_session_get(c->store, name, h, e);

	if (!r)
		r = ntr_ctl_sess(c, h->sid, &s);
	if (!r)
		r = ntr_sess_hold(s, call);
	if (r == -EDEADLK) {
		ntr_err_set(e, r, "use session %s", name);
		ntr_err_why(e, "it comes from a hook of that session, which would wait for itself");
		return ntr_err_todo(e, "do it after the hook, or in another session"), r;
	}
	if (r)
		return ntr_err_default(e, r, "use session %s", name);
	r = ntr_session_by_id(c->store, s->sid, h, e); /* it may have gone or moved while we waited */
	if (r) {
		ntr_sess_release(s);
		return ntr_err_default(e, r, "use session %s", name);
	}
	ntr_ctl_used(c);
	*ret = s;
	return 0;
}

/* ---- live sessions ---- */

void ntr_ctl_live_options(struct ntr_ctl *c, const struct ntr_head *h, struct ntr_live_options *ret)
{
	*ret = (struct ntr_live_options){.init_path = c->init_path,
	        .full_path = c->mounts[NTR_VMOUNT_FULL].path,
	        .plain_path = c->mounts[NTR_VMOUNT_PLAIN].path,
	        .session = h->name};
}

/* A CPU that runs nothing but such threads counts as idle, so the scheduler leaves the client there instead
 * of waking another CPU for each request. NTR_SCHED_IDLE=0: as any thread. */
static int ring_threads_idle(void)
{
	const char *text = getenv("NTR_SCHED_IDLE");

	return !text || strcmp(text, "0") != 0;
}

static int mount_versions(struct ntr_ctl *c, int i, struct ntr_err *e)
{
	struct ntr_versions_options o = {.uring = c->o.uring != 0,
	        .sched_idle = ring_threads_idle(),
	        .fuse_fd = -1,
	        .plain = i == NTR_VMOUNT_PLAIN,
	        .watchdog_s = c->o.watchdog_s};
	struct ntr_vmount *m = &c->mounts[i];

	if (m->v && ntr_versions_alive(m->v))
		return 0;
	if (m->v)
		ntr_versions_stop(ntr_steal_ptr(m->v));
	if (mkdir(m->path, 0700) && errno != EEXIST)
		return ntr_err_set(e, -errno, "make %s", m->path);
	c->mounted++;
	return ntr_versions_start(c->store, m->path, &o, &m->v, e);
}

/* Both, before the first supervisor starts: it sees the mounts of that moment. */
int ntr_ctl_versions(struct ntr_ctl *c, struct ntr_err *e)
{
	int r = 0;

	pthread_mutex_lock(&c->m);
	for (int i = 0; i < NTR_VMOUNTS && !r; i++)
		r = mount_versions(c, i, e);
	pthread_mutex_unlock(&c->m);
	return r;
}

/* The mount below a session's view is gone (a wedged disk made the watchdog or the kernel end it, or somebody
 * unmounted it): the view only gives errors, and its supervisor sees no newer mount. */
static bool view_lost(struct ntr_sess *s)
{
	struct ntr_ctl *c = s->ctl;
	bool lost;

	pthread_mutex_lock(&c->m);
	lost = s->view != c->mounted;
	for (int i = 0; i < NTR_VMOUNTS; i++)
		lost |= c->mounts[i].v && !ntr_versions_alive(c->mounts[i].v);
	pthread_mutex_unlock(&c->m);
	return lost;
}

static bool live_lost(struct ntr_sess *s)
{
	return ntr_initlink_dead(s->live->link, true) || view_lost(s);
}

/* What is in memory is lost with its last descriptor. */
static void keep_memory(struct ntr_sess *s)
{
	if (!s->live || !s->live->upper.memory)
		return;
	ntr_closep(&s->mem_fd);
	s->mem_fd = fcntl(s->live->upper.fd, F_DUPFD_CLOEXEC, 3);
	s->mem_n = s->live->upper.n;
	if (s->mem_fd >= 0)
		s->live->dirty = false; /* the supervisor need not keep it, too */
}

int ntr_sess_recover(struct ntr_sess *s, struct ntr_head *h, struct ntr_err *e)
{
	struct ntr_commit done = {0};
	int r;

	keep_memory(s);
	ntr_sess_unlive(s);
	if (!h->upper)
		return 0;
	r = ntr_ctl_absorb_dead(s->ctl, h, "recovered", s->mem_n == h->upper ? s->mem_fd : -1, &done, e);
	ntr_commit_done(&done);
	if (r)
		return r;
	ntr_cache_drop(s); /* its journal was absorbed with the upper */
	ntr_closep(&s->mem_fd);
	s->mem_fd = -1;
	ntr_ctl_sweep(s->ctl);
	return 0;
}

size_t ntr_ctl_live_sessions(struct ntr_ctl *c, struct ntr_sess ***ret)
{
	struct ntr_sess *s, *next;
	size_t n = 0;

	pthread_mutex_lock(&c->m);
	*ret = calloc(HASH_COUNT(c->sessions) + 1, sizeof **ret);
	HASH_ITER (hh, c->sessions, s, next)
		if (*ret && ntr_sess_is_live(s))
			(*ret)[n++] = s; /* entries are never freed while the controller is open */
	pthread_mutex_unlock(&c->m);
	return n;
}

bool ntr_sess_in_use(struct ntr_sess *s)
{
	return ntr_sess_background(s) || ntr_sess_binds(s) || ntr_sess_passes(s);
}

static bool is_idle(struct ntr_sess *s)
{
	return s->live && !ntr_sess_in_use(s);
}

bool ntr_ctl_close_idle(struct ntr_sess *not_this)
{
	ntr_autofree struct ntr_sess **v = NULL;
	size_t n = ntr_ctl_live_sessions(not_this->ctl, &v);
	bool closed = false;

	for (size_t i = 0; i < n && !closed; i++) {
		struct ntr_commit done = {0};
		struct ntr_head h;

		if (v[i] == not_this || !ntr_sess_try(v[i]))
			continue;
		closed = is_idle(v[i]) && !ntr_session_by_id(v[i]->ctl->store, v[i]->sid, &h, NULL) &&
		         !ntr_sess_close(v[i], &h, false, NULL, &done, NULL);
		ntr_commit_done(&done);
		ntr_sess_release(v[i]);
	}
	return closed;
}

enum { SPARE_FDS = 8 };

/* Sessions leave descriptors to the rest of the daemon: a check, the sweeper, requests that bring some. */
static int check_spare(struct ntr_ctl *c)
{
	int fds[SPARE_FDS], n = 0;

	while (n < SPARE_FDS && (fds[n] = fcntl(ntr_store_dirfd(c->store), F_DUPFD_CLOEXEC, 3)) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(fds[i]);
	return n < SPARE_FDS ? -EMFILE : 0;
}

static int start_live(struct ntr_sess *s, struct ntr_head *h, const struct ntr_live_options *o,
        struct ntr_live **ret, struct ntr_err *e)
{
	int r = check_spare(s->ctl);

	return r ? ntr_err_set(e, r, "make session %s live", h->name)
	         : ntr_live_start(s->ctl->store, h, o, ret, e);
}

int ntr_sess_live(struct ntr_sess *s, struct ntr_head *h, struct ntr_err *e)
{
	struct ntr_live_options o;
	struct ntr_live *l;
	uint64_t began = ntr_mono_ns();
	int r = 0;

	if (s->live && !live_lost(s))
		ntr_sess_fold_owed(s, h);
	if (s->live && !live_lost(s)) {
		s->live->used_ns = ntr_mono_ns();
		return ntr_live_record(s->live, h, e);
	}
	if (s->live || h->upper)
		r = ntr_sess_recover(s, h, e);
	if (!r)
		r = ntr_ctl_versions(s->ctl, e);
	if (r)
		return r;
	pthread_mutex_lock(&s->ctl->m);
	s->view = s->ctl->mounted;
	pthread_mutex_unlock(&s->ctl->m);
	ntr_ctl_live_options(s->ctl, h, &o);
	while ((r = start_live(s, h, &o, &l, e)) == -EMFILE && ntr_ctl_close_idle(s))
		if (e)
			*e = (struct ntr_err){0};
	if (r)
		return r;
	ntr_sess_fold_reset(s);
	pthread_mutex_lock(&s->call_m);
	__atomic_store_n(&s->live, l, __ATOMIC_RELEASE);
	ntr_ctl_sweep(s->ctl);
	pthread_mutex_unlock(&s->call_m);
	ntr_hist_add(&s->ctl->ops[NTR_OP_LIVE], ntr_mono_ns() - began);
	return 0;
}

void ntr_sess_unlive(struct ntr_sess *s)
{
	struct ntr_live *l = s->live;

	pthread_mutex_lock(&s->call_m);
	__atomic_store_n(&s->live, NULL, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&s->call_m);
	ntr_live_end(l);
	ntr_live_free(l);
}

int ntr_sess_state(struct ntr_sess *s, const struct ntr_head *h, struct ntr_err *e)
{
	struct ntr_snap snap = ntr_snap_root(s->ctl->store, h->root);
	int r = 0;

	if (!s->state)
		r = ntr_state_load(&snap, h->wsroot, &s->state);
	return r ? ntr_err_default(e, r, "read the state of session %s", h->name) : 0;
}

/* ---- opening and closing ---- */

struct opening {
	struct ntr_ctl *c;
	uint64_t *gone; /* sessions to be removed */
	size_t n;
};

static int note_gone(struct opening *o, uint64_t sid)
{
	uint64_t *v = reallocarray(o->gone, o->n + 1, sizeof *v);

	if (!v)
		return -ENOMEM;
	o->gone = v;
	v[o->n++] = sid;
	return 0;
}

static int recover_one(void *user, const struct ntr_head *head)
{
	struct opening *o = user;
	struct ntr_ctl *c = o->c;
	struct ntr_commit done = {0};
	struct ntr_head h = *head;
	struct ntr_err e = {0};
	char line[2048];

	if (ntr_session_is_throwaway(h.name)) /* left by a daemon that was killed */
		return note_gone(o, h.sid);
	if (!h.upper)
		return 0;
	if (ntr_ctl_absorb_dead(c, &h, "recovered", -1, &done, &e)) {
		/* Its upper stays and is tried again at the session's next use, which then tells the user. */
		ntr_err_format(&e, line, sizeof line);
		fprintf(stderr, "ntrd: recover session %s: %s\n", h.name, line);
	} else if (done.id) {
		fprintf(stderr, "ntrd: session %s: unfinished work recovered as commit %.12s\n", h.name,
		        done.hex);
	}
	ntr_commit_done(&done);
	return 0;
}

/* An upper that no record names any more is history (its fold or stop was cut short after the record was
 * written). */
static int trash_orphan(void *user, uint64_t sid, uint64_t n)
{
	struct ntr_ctl *c = user;
	struct ntr_head h;

	if (!ntr_session_by_id(c->store, sid, &h, NULL) && h.upper == n)
		return 0;
	if (ntr_upper_end_leftovers(c->store, sid, n))
		return 0; /* somebody may be in it: the next daemon's */
	ntr_memory_end(c->store, sid, n);
	ntr_upper_trash(c->store, sid, n);
	return 0;
}

static void recover_all(struct ntr_ctl *c)
{
	struct opening o = {.c = c};

	ntr_session_each(c->store, recover_one, &o);
	for (size_t i = 0; i < o.n; i++) /* their uppers are orphans then */
		ntr_session_remove(c->store, o.gone[i], NULL);
	free(o.gone);
}

/* The store is ours alone: whatever of ours is mounted there was a dead daemon's, or a dying one's. */
static int detach_dead_mount(const char *path, struct ntr_err *e)
{
	for (int i = 0; i < 64 && ntr_mount_is_there(path); i++) {
		int r = ntr_mount_detach(path);

		if (r) {
			ntr_err_set(e, r, "unmount what a dead daemon left at %s", path);
			return ntr_err_todo(
			        e, "run `fusermount3 -u -z %s`, or as root `umount -l %s`", path, path);
		}
	}
	return 0;
}

static int name_mounts(struct ntr_ctl *c, struct ntr_err *e)
{
	static const char *const names[NTR_VMOUNTS] = {
	        [NTR_VMOUNT_FULL] = "versions", [NTR_VMOUNT_PLAIN] = "plain"};
	int r = 0;

	for (int i = 0; i < NTR_VMOUNTS && !r; i++) {
		c->mounts[i].path = ntr_sprintf("%s/%s", ntr_store_path(c->store), names[i]);
		r = c->mounts[i].path ? detach_dead_mount(c->mounts[i].path, e) : -ENOMEM;
	}
	return r;
}

int ntr_ctl_open(const char *store, const struct ntr_ctl_options *o, struct ntr_ctl **ret, struct ntr_err *e)
{
	/* halves: blocks as they are on disk, and nodes of trees decoded */
	struct ntr_store_options so = {
	        .create = true, .cache_bytes = o->cache_bytes / 2, .node_cache_bytes = o->cache_bytes / 2};
	struct ntr_ctl *c = calloc(1, sizeof *c);
	int r;

	if (!c)
		return ntr_err_set(e, -ENOMEM, "open the store %s", store);
	c->o = *o;
	if (!c->o.fold_entries)
		c->o.fold_entries = 150;
	if (!c->o.fold_price)
		c->o.fold_price = 8192;
	pthread_mutex_init(&c->m, NULL);
	ntr_cond_init(&c->sweep_cond);
	c->started_ns = ntr_mono_ns();
	r = ntr_store_open(store, &so, &c->store, e);
	if (!r) {
		c->init_path = strdup(o->init_path);
		r = c->init_path ? name_mounts(c, e) : -ENOMEM;
		if (!r)
			r = ntr_pypath_open(c);
	}
	if (!r) {
		ntr_upper_unstock(c->store);
		recover_all(c);
		ntr_upper_each(c->store, trash_orphan, c);
		ntr_ctl_sweeper_start(c);
		*ret = c;
		return 0;
	}
	ntr_ctl_close(c);
	return r;
}

static void close_session(struct ntr_sess *s)
{
	struct ntr_commit done = {0};
	struct ntr_head h;
	struct ntr_err e = {0};
	char line[2048];

	if (ntr_sess_hold(s, NULL))
		return;
	if (s->live && !ntr_session_by_id(s->ctl->store, s->sid, &h, &e))
		ntr_sess_close(s, &h, false, NULL, &done, &e);
	if (e.code) {
		ntr_err_format(&e, line, sizeof line);
		fprintf(stderr, "ntrd: close a session: %s\n",
		        line); /* its upper stays: recovered at the next start */
	}
	ntr_commit_done(&done);
	ntr_sess_unlive(s);
	ntr_sess_release(s);
}

void ntr_ctl_close(struct ntr_ctl *c)
{
	struct ntr_sess *s, *next;

	if (!c)
		return;
	HASH_ITER (hh, c->sessions, s, next)
		close_session(s);
	ntr_ctl_sweeper_end(c);
	ntr_ctl_served_end(c, false);
	for (int i = 0; i < NTR_VMOUNTS; i++)
		if (c->mounts[i].v)
			ntr_versions_stop(c->mounts[i].v);
	HASH_ITER (hh, c->sessions, s, next) {
		HASH_DEL(c->sessions, s);
		sess_free(s);
	}
	/* A thread that is stuck in the store for good keeps it: the process ends soon, and what was
	 * acknowledged is on disk. */
	if (c->store && !ntr_versions_left_behind())
		ntr_store_close(c->store);
	free(c->init_path);
	free(c->python_dir);
	for (int i = 0; i < NTR_VMOUNTS; i++)
		free(c->mounts[i].path);
	pthread_cond_destroy(&c->sweep_cond);
	pthread_mutex_destroy(&c->m);
	free(c);
}

struct ntr_store *ntr_ctl_store(struct ntr_ctl *c)
{
	return c->store;
}

unsigned ntr_ctl_busy(struct ntr_ctl *c)
{
	struct ntr_sess *s, *next;
	unsigned n;

	pthread_mutex_lock(&c->m);
	n = __atomic_load_n(&c->running, __ATOMIC_RELAXED) + (c->served != NULL);
	HASH_ITER (hh, c->sessions, s, next)
		n += ntr_sess_is_live(s);
	pthread_mutex_unlock(&c->m);
	return n;
}

/* ---- housekeeping ---- */

static void tick_session(struct ntr_sess *s, uint64_t now)
{
	struct ntr_commit done = {0};
	struct ntr_head h;

	if (!ntr_sess_try(s))
		return;
	if (s->live && !ntr_session_by_id(s->ctl->store, s->sid, &h, NULL)) {
		uint64_t idle = now - NTR_MIN(now, s->live->used_ns);

		if (live_lost(s))
			ntr_sess_recover(s, &h, NULL);
		else if (s->live->unrecorded)
			ntr_live_record(s->live, &h, NULL);
		else if (!ntr_sess_fold_at_rest(s, &h) && idle > IDLE_CLOSE_S * 1000000000ull && is_idle(s))
			ntr_sess_close(s, &h, false, NULL, &done, NULL);
	}
	ntr_commit_done(&done);
	ntr_sess_release(s);
}

void ntr_ctl_tick(struct ntr_ctl *c)
{
	ntr_autofree struct ntr_sess **v = NULL;
	uint64_t now = ntr_mono_ns();
	size_t n;

	ntr_store_sync(c->store, NULL);
	ntr_ctl_served_end(c, true);
	if (__atomic_exchange_n(&c->trim, false, __ATOMIC_RELAXED))
		malloc_trim(0); /* what a large commit had held is in free lists of many threads */
	n = ntr_ctl_live_sessions(c, &v);
	for (size_t i = 0; i < n; i++)
		tick_session(v[i], now);
	json_decref(ntr_ctl_warnings()); /* they are in the log */
}
