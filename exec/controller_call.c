/* The life of one call: hold the session, make it live, run, wait, limit, commit. */
#include "controller_impl.h"
#include "controller_py.h"
#include "hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

enum { CAPTURE_DEFAULT = 16 << 20, KILL_GRACE_MS = 2000 };
#define PY_START_NS 60000000000u

struct ntr_call *ntr_call_new(void)
{
	struct ntr_call *call = calloc(1, sizeof *call);

	if (call)
		pthread_mutex_init(&call->m, NULL);
	return call;
}

void ntr_call_free(struct ntr_call *call)
{
	if (!call)
		return;
	pthread_mutex_destroy(&call->m);
	free(call);
}

static void send_signal(struct ntr_call *call, int sig)
{
	/* SIGKILL is for the whole tree of the call, everything else for its process group as from a
	 * terminal. */
	json_t *msg = sig == SIGKILL ? json_pack("{s:s,s:I,s:i}", "op", "kill", "call", (json_int_t)call->req,
	                                       "grace_ms", 0)
	                             : json_pack("{s:s,s:I,s:i}", "op", "signal", "call",
	                                       (json_int_t)call->req, "sig", sig);
	struct ntr_initreq rq;

	/* The answer is of no interest, and whoever waits for the call reads it. */
	if (!ntr_initlink_send(call->link, &rq, msg, NULL, 0))
		ntr_initlink_finish(call->link, &rq);
}

void ntr_call_signal(struct ntr_call *call, int sig)
{
	bool ends = sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGKILL || sig == SIGQUIT;

	pthread_mutex_lock(&call->m);
	if (call->link) {
		send_signal(call, sig);
	} else if (ends && !call->cancelled) {
		call->cancelled = true;
		call->cancelled_by = sig;
		if (call->queue) {
			pthread_mutex_lock(&call->queue->m);
			call->waiter->cancelled = true;
			pthread_cond_signal(&call->waiter->cond);
			pthread_mutex_unlock(&call->queue->m);
		}
	} else if (!call->cancelled && call->npending < (int)NTR_COUNT(call->pending)) {
		call->pending[call->npending++] = sig;
	}
	pthread_mutex_unlock(&call->m);
}

void ntr_call_answer(struct ntr_call *call, const json_t *msg)
{
	pthread_mutex_lock(&call->m);
	if (call->py)
		ntr_pyrun_answer(call->py, msg);
	pthread_mutex_unlock(&call->m);
}

void ntr_call_result_done(struct ntr_call_result *r)
{
	json_decref(r->notes);
	json_decref(r->py);
	ntr_buf_done(&r->out);
	ntr_buf_done(&r->err);
}

/* ---- capture: two pipes, drained by a thread with a budget ---- */

struct capture {
	int rd[2], wr[2]; /* stdout, stderr */
	int stop[2];
	size_t budget;
	const struct ntr_call_spec *spec;
	struct ntr_call_result *res;
	pthread_t thread;
	bool on;
};

static void take(struct ntr_buf *b, const char *p, size_t n, size_t budget, bool *truncated)
{
	size_t room = budget > b->len ? budget - b->len : 0;

	if (n > room)
		*truncated = true;
	if (ntr_buf_add(b, p, NTR_MIN(n, room)))
		*truncated = true;
}

static bool drain(struct capture *c, int i, char *tmp, size_t size)
{
	ssize_t k = read(c->rd[i], tmp, size);

	if (k <= 0)
		return false;
	take(i ? &c->res->err : &c->res->out, tmp, (size_t)k, c->budget, &c->res->truncated);
	if (c->spec->output)
		c->spec->output(c->spec->output_user, i, tmp, (size_t)k);
	return true;
}

/* The call ends when its main process does: then what is in the pipes is taken, and no end of file is waited
 * for (a background process may hold the other end for ever). */
static void *capture_main(void *arg)
{
	struct capture *c = arg;
	struct pollfd p[3] = {{c->rd[0], POLLIN, 0}, {c->rd[1], POLLIN, 0}, {c->stop[0], POLLIN, 0}};
	char tmp[65536]; /* not from the heap: without a reader the call would hang */

	while (!(p[2].revents & (POLLIN | POLLHUP))) {
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			break;
		for (int i = 0; i < 2; i++)
			if (p[i].revents && !drain(c, i, tmp, sizeof tmp) && errno != EAGAIN)
				p[i].fd = -1;
	}
	for (int i = 0; i < 2; i++)
		while (drain(c, i, tmp, sizeof tmp))
			;
	return NULL;
}

static void capture_close(struct capture *c)
{
	int *all[] = {&c->rd[0], &c->rd[1], &c->wr[0], &c->wr[1], &c->stop[0], &c->stop[1]};

	for (size_t i = 0; i < NTR_COUNT(all); i++) {
		ntr_closep(all[i]);
		*all[i] = -1;
	}
}

static int capture_start(struct capture *c, const struct ntr_call_spec *spec, struct ntr_call_result *res)
{
	int p[2];

	*c = (struct capture){.rd = {-1, -1},
	        .wr = {-1, -1},
	        .stop = {-1, -1},
	        .budget = spec->budget ? spec->budget : CAPTURE_DEFAULT,
	        .spec = spec,
	        .res = res};
	for (int i = 0; i < 2; i++) {
		if (pipe2(p, O_CLOEXEC))
			return -errno;
		c->rd[i] = p[0];
		c->wr[i] = p[1];
		fcntl(p[0], F_SETFL, O_NONBLOCK);
	}
	if (pipe2(c->stop, O_CLOEXEC))
		return -errno;
	c->on = !pthread_create(&c->thread, NULL, capture_main, c);
	return c->on ? 0 : -EAGAIN;
}

static void capture_end(struct capture *c)
{
	if (c->on) {
		ntr_closep(&c->stop[1]);
		c->stop[1] = -1;
		pthread_join(c->thread, NULL);
		c->on = false;
	}
	capture_close(c);
}

/* ---- the run itself ---- */

/* A call's environment, and what its PATH has for this call only. */
struct callenv {
	char **v;
	int path_first;  /* so many directories */
	char *path_last; /* for the supervisor to add where python is missing; NULL: none */
};

static void callenv_done(struct callenv *env)
{
	ntr_strv_free(env->v);
	free(env->path_last);
}

static int put_first(struct callenv *env, const char *dir)
{
	env->path_first += dir != NULL;
	return dir ? ntr_state_path_first(env->v, dir) : 0;
}

static int callenv_make(
        struct ntr_sess *s, const struct ntr_head *h, const struct ntr_call_spec *spec, struct callenv *ret)
{
	ntr_autofree char *dir =
	        ntr_pypath_folder(s->ctl, h->wsroot, spec->python ? spec->python : "python3");
	int r = ntr_state_env(s->state, spec->env, spec->set_env, h->name, h->wsroot, &ret->v);

	if (!spec->python)
		ret->path_last = ntr_steal_ptr(dir);
	if (!r)
		r = put_first(ret, dir);
	if (!r)
		r = put_first(ret, spec->path_first);
	if (!r) /* a command that runs ntr itself finds the same store */
		r = ntr_state_env_default(&ret->v, "NTR_STORE", ntr_store_path(s->ctl->store));
	return r;
}

static json_t *call_msg(
        const struct ntr_call_spec *spec, const struct ntr_state *st, const struct callenv *env)
{
	const char *cwd = spec->cwd ? spec->cwd : st->cwd;
	json_t *what =
	        spec->script ? ntr_json_bytes(spec->script, spec->script_len) : ntr_json_strv(spec->argv);

	return json_pack("{s:s,s:o,s:i,s:o,s:o,s:i,s:o*}", "op", "call", "env", ntr_json_strv(env->v),
	        "umask", (int)st->umask, "cwd", ntr_json_bytes(cwd, strlen(cwd)),
	        spec->script ? "script" : "argv", what, "path_first", env->path_first, "path_last",
	        env->path_last ? ntr_json_bytes(env->path_last, strlen(env->path_last)) : NULL);
}

static void call_attach(struct ntr_call *call, struct ntr_initlink *link, uint64_t req)
{
	pthread_mutex_lock(&call->m);
	call->link = link;
	call->req = req;
	if (link && call->cancelled)
		send_signal(call, call->cancelled_by);
	for (int i = 0; link && i < call->npending; i++)
		send_signal(call, call->pending[i]);
	call->npending = 0;
	pthread_mutex_unlock(&call->m);
}

/* Waits for the call's end, killing its tree when the limit runs out. *ret is the final reply. */
static int await_end(struct ntr_live *l, struct ntr_initreq *rq, const struct ntr_call_spec *spec,
        struct ntr_call_result *res, json_t **ret)
{
	uint64_t limit = (uint64_t)(spec->timeout_s * 1e9);
	uint64_t deadline = limit ? ntr_mono_ns() + limit + (spec->py ? PY_START_NS : 0) : 0;
	int fds[NTR_WIRE_FDS], r;
	size_t n = 0;

	for (;;) {
		json_t *m = NULL;

		r = ntr_initlink_wait(l->link, rq, deadline, &m, fds, &n);
		if (r == -ETIMEDOUT) {
			res->timed_out = true;
			deadline = 0;
			r = ntr_live_kill(l, rq->req, 0, NULL, NULL);
			if (r)
				return r;
			continue;
		}
		if (r)
			return r;
		ntr_wire_close_fds(fds, n);
		if (json_object_get(m, "code") || json_object_get(m, "error")) {
			*ret = m;
			return 0;
		}
		if (json_object_get(m, "started")) {
			res->started = true;
			if (deadline && spec->py) /* an interpreter may have had to be started first */
				deadline = ntr_mono_ns() + limit;
		}
		json_decref(m);
	}
}

/* The reply to a request that was sent. */
static int await_call(struct ntr_sess *s, const struct ntr_call_spec *spec, struct ntr_call *call,
        struct ntr_initreq *rq, struct ntr_call_result *ret, json_t **ret_reply)
{
	int r;

	call_attach(call, s->live->link, rq->req);
	r = await_end(s->live, rq, spec, ret, ret_reply);
	call_attach(call, NULL, 0);
	ntr_initlink_finish(s->live->link, rq);
	return r;
}

/* Sends the request; of a Python call the channel goes along. */
static int send_call(struct ntr_sess *s, const struct ntr_call_spec *spec, const struct callenv *env,
        const int fds[3], int channel, struct ntr_initreq *rq)
{
	const int all[] = {fds[0], fds[1], fds[2], channel};

	if (!spec->py)
		return ntr_initlink_send(s->live->link, rq, call_msg(spec, s->state, env), fds, 3);
	return ntr_initlink_send(s->live->link, rq, ntr_pycall_msg(spec->py, env->v), all, 4);
}

static int exchange(struct ntr_sess *s, const struct ntr_call_spec *spec, struct ntr_call *call,
        const struct callenv *env, const int fds[3], int channel, struct ntr_call_result *ret,
        json_t **ret_reply, struct ntr_err *e)
{
	struct ntr_initreq rq;
	int r = send_call(s, spec, env, fds, channel, &rq), begun = 0;

	if (r == -EPIPE)
		r = -ECONNRESET; /* not even sent */
	if (!r && spec->py)
		begun = ntr_pyrun_begin(call->py, spec, env->v, rq.req);
	if (!r)
		r = await_call(s, spec, call, &rq, ret, ret_reply);
	if (!r && begun)
		return begun;
	if (r == -EPIPE || r == -ECONNRESET) {
		ntr_err_set(e, -EPIPE, "run the command");
		ntr_err_why(e, "the session's supervisor ended unexpectedly");
		ntr_err_todo(
		        e, "what the command had written is kept: see it with `ntr log`; then run it again");
		return r;
	}
	if (!r)
		r = ntr_initlink_error(*ret_reply, e);
	return r ? ntr_err_default(e, r, "run the command") : 0;
}

static void read_reply(const json_t *m, struct ntr_call_result *ret)
{
	ret->ended = true;
	ret->exit_code = (int)ntr_json_int(m, "code", 125);
	ret->signal = (int)ntr_json_int(m, "signal", 0);
	ret->cwd_gone = ntr_json_bool(m, "cwd_gone", false);
	ret->background = (unsigned)ntr_json_int(m, "background", 0);
}

unsigned ntr_sess_background(struct ntr_sess *s)
{
	ntr_autojson json_t *reply = NULL;

	if (!s->live || !s->live->background || ntr_initlink_dead(s->live->link, true))
		return 0;
	if (!ntr_initlink_do(
	            s->live->link, json_pack("{s:s}", "op", "background"), NULL, 0, &reply, NULL, NULL))
		s->live->background = (unsigned)ntr_json_int(reply, "background", s->live->background);
	return s->live->background;
}

/* The same with a channel, whose result completes the reply. */
static int run_py(struct ntr_sess *s, const struct ntr_head *h, const struct ntr_call_spec *spec,
        struct ntr_call *call, const struct callenv *env, const int fds[3], struct ntr_call_result *ret,
        json_t **ret_reply, struct ntr_err *e)
{
	ntr_autoclose int channel = -1;
	int r = ntr_pycall_open(s, h, spec->py, call, &channel);

	if (r)
		return ntr_err_set(e, r, "start a Python call");
	r = exchange(s, spec, call, env, fds, channel, ret, ret_reply, e);
	return ntr_pycall_close(call, env->v, r, *ret_reply, ret, e);
}

static int no_place(struct ntr_err *e, int r, const char *cwd)
{
	ntr_err_set(e, r, "start a call in %s", cwd);
	if (r == -ENOENT || r == -ENOTDIR)
		ntr_err_why(e, r == -ENOENT ? "there is no such directory" : "it is no directory");
	ntr_err_todo(e, "name one that is there, or make it first");
	return r;
}

/* The directory that is asked for, as an absolute path. One that is not there is refused: the command may be
 * meant for it alone. */
static int place(struct ntr_sess *s, const struct ntr_head *h, struct ntr_call_spec *spec, char **ret,
        struct ntr_err *e)
{
	const char *cwd = spec->cwd;
	int r;

	*ret = *cwd == '/' ? strdup(cwd) : ntr_sprintf("%s/%s", h->wsroot, cwd);
	if (!*ret)
		return -ENOMEM;
	spec->cwd = *ret;
	if (spec->cwd_hint)
		return 0;
	r = ntr_initlink_do(s->live->link,
	        json_pack("{s:s,s:o}", "op", "there", "path", ntr_json_bytes(*ret, strlen(*ret))), NULL, 0,
	        NULL, NULL, NULL);
	return r == -ENOENT || r == -ENOTDIR || r == -EACCES || r == -ELOOP || r == -ENAMETOOLONG
	               ? no_place(e, r, cwd)
	               : 0;
}

static int run_in_view(struct ntr_sess *s, struct ntr_head *h, const struct ntr_call_spec *asked,
        struct ntr_call *call, struct ntr_call_result *ret, struct ntr_err *e)
{
	struct ntr_call_spec own = *asked;
	const struct ntr_call_spec *spec = &own;
	ntr_autofree char *cwd = NULL;
	ntr_autojson json_t *reply = NULL;
	struct capture cap = {.on = false, .rd = {-1, -1}, .wr = {-1, -1}, .stop = {-1, -1}};
	int fds[3] = {spec->fds[0], spec->fds[1], spec->fds[2]};
	uint64_t began = ntr_mono_ns();
	ntr_auto(callenv_done) struct callenv env = {0};
	int r;

	r = own.cwd ? place(s, h, &own, &cwd, e) : 0;
	if (r)
		return r;
	r = callenv_make(s, h, spec, &env);
	if (!r && spec->capture) {
		r = capture_start(&cap, spec, ret);
		fds[1] = cap.wr[0];
		fds[2] = cap.wr[1];
	}
	if (!r)
		r = spec->py ? run_py(s, h, spec, call, &env, fds, ret, &reply, e)
		             : exchange(s, spec, call, &env, fds, -1, ret, &reply, e);
	capture_end(&cap);
	ret->duration_s = (double)(ntr_mono_ns() - began) / 1e9;
	if (!r) {
		read_reply(reply, ret);
		s->live->background = ret->background;
		if (spec->cwd) /* for this call only: what sticks stays as it is */
			json_object_set_new(json_object_get(reply, "state"), "cwd",
			        ntr_json_bytes(s->state->cwd, strlen(s->state->cwd)));
		r = ntr_state_learn(s->state, json_object_get(reply, "state"), env.v,
		        &(struct ntr_state_own){.dir = spec->path_first, .below = s->ctl->python_dir},
		        &ret->notes);
		if (!r && spec->py)
			r = ntr_pyresult_make(spec, ret);
	}
	return r ? ntr_err_default(e, r, "run the command") : 0;
}

static json_t *describe(const struct ntr_call_spec *spec, const struct ntr_call_result *res)
{
	json_t *d = json_pack("{s:s,s:i,s:f}", "tool", spec->tool ? spec->tool : "run", "exit_code",
	        res->timed_out ? NTR_EXIT_TIMEOUT : res->exit_code, "duration", res->duration_s);

	if (d && spec->py)
		ntr_pycall_describe(spec->py, d);
	else if (d && spec->script)
		json_object_set_new(d, "script", ntr_json_bytes(spec->script, spec->script_len));
	else if (d)
		json_object_set_new(d, "argv", ntr_json_strv(spec->argv));
	if (d && spec->capture)
		json_object_set_new(d, "bytes_out", json_integer((json_int_t)(res->out.len + res->err.len)));
	if (d && res->timed_out)
		json_object_set_new(d, "timed_out", json_true());
	return d;
}

/* A supervisor may have been killed a moment before: a command that it surely never saw is begun again under
 * a new one. One that may have begun is never repeated. */
static int run_live(struct ntr_sess *s, struct ntr_head *h, const struct ntr_call_spec *spec,
        struct ntr_call *call, struct ntr_call_result *ret, struct ntr_err *e)
{
	for (int tries = 0;; tries++) {
		int r = ntr_sess_live(s, h, e);
		bool again;

		if (!r)
			r = ntr_sess_state(s, h, e);
		if (!r)
			r = run_in_view(s, h, spec, call, ret, e);
		if (!r || !s->live || !ntr_initlink_dead(s->live->link, true))
			return r;
		again = !ntr_sess_recover(s, h, NULL) && r == -ECONNRESET && tries < 2;
		if (!again)
			return r == -ECONNRESET ? -EPIPE : r;
		if (e)
			*e = (struct ntr_err){0};
	}
}

/* The call itself is over, so the reader has to know that nothing of it is lost. */
static int not_committed(const struct ntr_head *h, int r, struct ntr_err *e)
{
	ntr_err_default(e, r, "commit what the command changed");
	if (r == -ENOSPC || r == -EDQUOT)
		ntr_err_todo(e,
		        "free space on the store's filesystem, then `ntr commit -s %s`: what the command "
		        "wrote is kept",
		        h->name);
	else if (r == -NTR_HOOK_REFUSED)
		ntr_err_todo(e,
		        "what the command wrote stays uncommitted: put it right with another call, or drop "
		        "it: "
		        "ntr discard -s %s",
		        h->name);
	else
		ntr_err_todo(e, "what the command wrote is kept: `ntr commit -s %s` tries again", h->name);
	return r;
}

static int run_held(struct ntr_sess *s, struct ntr_head *h, const struct ntr_call_spec *spec,
        struct ntr_call *call, struct ntr_call_result *ret, struct ntr_err *e)
{
	struct ntr_commit done = {0};
	uint64_t ended;
	int r = run_live(s, h, spec, call, ret, e);

	if (r)
		return r;
	ended = ntr_mono_ns();
	if (spec->no_commit) {
		s->live->dirty = true;
		return 0;
	}
	r = ntr_sess_commit(s, h, describe(spec, ret), &done, &ret->racy, e);
	if (!r && done.id) {
		memcpy(ret->commit, done.hex, sizeof ret->commit);
		ret->changes = done.stats;
	}
	s->live->used_ns = ntr_mono_ns();
	if (!r)
		ntr_hist_add(&s->ctl->ops[done.id ? NTR_OP_COMMIT : NTR_OP_AFTER], s->live->used_ns - ended);
	ntr_commit_done(&done);
	return r ? not_committed(h, r, e) : 0;
}

/* The session a call names is made when it does not exist: the first `ntr run` needs nothing before it. */
int ntr_ctl_find_or_make(struct ntr_ctl *c, const char *name, struct ntr_err *e)
{
	struct ntr_session_options o = {0};
	struct ntr_head h;
	int r = ntr_session_get(c->store, name, &h, NULL);

	if (r != -ENOENT)
		return 0; /* errors show when it is taken */
	r = ntr_session_name_new(name, e);
	if (!r)
		r = ntr_session_new(c->store, name, &o, NULL, &h, e);
	return r == -EEXIST ? 0 : r;
}

int ntr_ctl_run(struct ntr_ctl *c, const char *session, const struct ntr_call_spec *spec,
        struct ntr_call *call, struct ntr_call_result *ret, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	int r = ntr_ctl_find_or_make(c, session, e);

	uint64_t began = ntr_mono_ns();

	*ret = (struct ntr_call_result){0};
	if (r)
		return r;
	__atomic_add_fetch(&c->running, 1, __ATOMIC_RELAXED);
	r = ntr_ctl_hold(c, session, call, &s, &h, e);
	if (!r) {
		pthread_mutex_lock(&s->call_m);
		s->call = call;
		pthread_mutex_unlock(&s->call_m);
		r = ntr_hooks_pre_run(s, &h, spec, describe, e);
		if (!r) {
			r = run_held(s, &h, spec, call, ret, e);
			ntr_hooks_post_run(s, &h, spec, describe, ret, r ? e : NULL);
		}
		pthread_mutex_lock(&s->call_m);
		s->call = NULL;
		pthread_mutex_unlock(&s->call_m);
		ntr_sess_release(s);
	} else if (r == -EINTR) {
		ntr_err_set(e, r, "run the command");
		ntr_err_why(e, "interrupted while waiting for an earlier call of session %s", session);
	}
	ntr_ctl_used(c);
	__atomic_sub_fetch(&c->running, 1, __ATOMIC_RELAXED);
	ntr_hist_add(&c->ops[NTR_OP_RUN], ntr_mono_ns() - began);
	return r;
}
