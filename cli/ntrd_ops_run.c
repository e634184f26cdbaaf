/* run and signal. */
#include "ntrd.h"
#include "ntrd_call.h"
#include "ntrd_mounts.h"
#include "ntrd_py.h"
#include "ntrd_stream.h"

#include "../base/util.h"
#include "../exec/controller.h"
#include "../exec/tools.h"

#include <errno.h>
#include <stdio.h>

enum { BUDGET_MAX = 16 << 20 };
#define TIMEOUT_MAX 1e9

/* Late: the call it meant has ended, else the watcher had taken it. */
int ntrd_op_signal(struct ntrd_req *rq)
{
	rq->silent = true;
	return 0;
}

static void read_command(struct ntrd_req *rq, struct ntr_call_spec *spec)
{
	spec->argv = ntrd_arg_strv(rq, "argv");
	spec->script = ntrd_arg_blob(rq, "script", &spec->script_len);
	if (rq->bad)
		return;
	if (!spec->argv == !spec->script)
		ntrd_arg_bad(rq, "one of the members 'argv' and 'script' is needed");
	else if (spec->argv && !spec->argv[0])
		ntrd_arg_bad(rq, "the member 'argv' is empty");
	else if (spec->script && memchr(spec->script, '\0', spec->script_len))
		ntrd_arg_bad(rq, "the member 'script' holds a NUL, which bash cannot read");
}

static void read_environment(struct ntrd_req *rq, struct ntr_call_spec *spec)
{
	static char *const none[] = {NULL};

	spec->env = ntrd_arg_strv(rq, "env");
	spec->set_env = ntrd_arg_strv(rq, "set_env");
	if (!spec->env)
		spec->env = none;
	for (char *const *p = spec->set_env; p && *p; p++)
		if (**p == '=' || !strchr(*p, '='))
			ntrd_arg_bad(rq, "'%.100s' in the member 'set_env' is no NAME=VALUE", *p);
	spec->cwd = ntrd_arg_bytes(rq, "cwd", NTRD_OPTIONAL);
	spec->cwd_hint = ntrd_arg_bool(rq, "cwd_hint");
	spec->path_first = ntrd_arg_path_first(rq);
	spec->python = ntrd_arg_python(rq);
}

static void read_fds(struct ntrd_req *rq, struct ntr_call_spec *spec)
{
	size_t need = spec->capture ? 1 : 3;

	if (rq->nfds != need)
		ntrd_arg_bad(rq, "%zu descriptors came along, it takes %zu", rq->nfds, need);
	for (size_t i = 0; i < 3; i++)
		spec->fds[i] = i < rq->nfds ? rq->fds[i] : -1;
}

int ntrd_call_read(struct ntrd_req *rq, struct ntr_call_spec *spec)
{
	*spec = (struct ntr_call_spec){.tool = "run"};
	read_command(rq, spec);
	read_environment(rq, spec);
	spec->timeout_s = ntrd_arg_real(rq, "timeout", 1e-3, TIMEOUT_MAX, 0);
	spec->no_commit = ntrd_arg_bool(rq, "no_commit");
	spec->capture = ntrd_arg_bool(rq, "capture");
	spec->budget = (size_t)ntrd_arg_int(rq, "budget", 1, BUDGET_MAX, 0);
	if (ntrd_arg_bool(rq, "render")) /* characters then */
		spec->budget = 4 * NTR_MIN(spec->budget ? spec->budget : (size_t)NTR_TOOLS_BUDGET,
		                           (size_t)BUDGET_MAX / 4);
	read_fds(rq, spec);
	if (!spec->capture && (ntrd_arg_bool(rq, "stream") || ntrd_arg_bool(rq, "render")))
		ntrd_arg_bad(rq, "the members 'stream' and 'render' need 'capture'");
	return rq->bad;
}

int ntrd_call_reply(struct ntrd_req *rq, const struct ntr_call_spec *spec, const struct ntr_call_result *res)
{
	int r = ntrd_reply_row(
	        rq, json_pack("{s:i,s:i,s:b,s:o,s:b,s:f,s:o,s:o,s:I,s:b,s:b}", "exit_code",
	                    res->timed_out ? NTR_EXIT_TIMEOUT : res->exit_code, "signal", res->signal,
	                    "timed_out", res->timed_out, "timeout",
	                    spec->timeout_s > 0 ? json_real(spec->timeout_s) : json_null(), "truncated",
	                    res->truncated, "duration", res->duration_s, "commit", ntrd_json_hex(res->commit),
	                    "changes", ntr_stats_json(&res->changes), "background",
	                    (json_int_t)res->background, "cwd_gone", res->cwd_gone, "racy", res->racy));

	if (!r && res->notes)
		r = ntrd_reply_set(rq, "notes", json_incref(res->notes));
	if (!r && spec->capture)
		r = ntrd_reply_set(rq, "stdout", ntrd_json_output(res->out.data, res->out.len));
	if (!r && spec->capture)
		r = ntrd_reply_set(rq, "stderr", ntrd_json_output(res->err.data, res->err.len));
	return r;
}

int ntrd_call_failed(struct ntrd_req *rq, const struct ntr_call_spec *spec, const struct ntr_call_result *res,
        bool render, int r)
{
	bool said = res->out.len || res->err.len || res->exit_code;

	if (!res->ended || !spec->capture)
		return r;
	if (!ntrd_call_reply(rq, spec, res) && (!res->py || !ntrd_reply_row(rq, json_incref(res->py))) &&
	        (!render || !said || !ntrd_call_render(rq, spec, res, rq->reply)))
		rq->has_result = true;
	return r;
}

static void forward(void *user, int sig)
{
	ntr_call_signal(user, sig);
}

static void call_freep(struct ntr_call **call)
{
	ntr_call_free(*call);
}

int ntrd_call_in(struct ntrd_req *rq, const char *session, struct ntr_call_spec *spec, struct ntr_call *call,
        struct ntr_call_result *ret)
{
	struct ntrd_stream st = {.rq = rq};
	int r;

	spec->output = ntrd_arg_bool(rq, "stream") ? ntrd_stream_output : NULL;
	spec->output_user = &st;
	r = ntrd_event(rq, "started", json_object());
	if (!r)
		r = ntr_ctl_run(rq->ctl, session, spec, call, ret, rq->e);
	ntrd_stream_end(&st);
	return r || !st.lost ? r : ntrd_reply_set(rq, "stream_lost", json_true());
}

static int run_in(struct ntrd_req *rq, const char *session, struct ntr_call_spec *spec, struct ntr_call *call)
{
	ntr_auto(ntr_call_result_done) struct ntr_call_result res = {0};
	int r = ntrd_mounts_set(rq, session);

	if (!r)
		r = ntrd_call_in(rq, session, spec, call, &res);
	if (r)
		return ntrd_call_failed(rq, spec, &res, ntrd_arg_bool(rq, "render"), r);
	r = ntrd_call_reply(rq, spec, &res);
	return r || !ntrd_arg_bool(rq, "render") ? r : ntrd_call_render(rq, spec, &res, rq->reply);
}

/* A fork of the session (or nothing, where it does not exist yet) that lives as long as the call. */
static int run_throwaway(
        struct ntrd_req *rq, const char *session, struct ntr_call_spec *spec, struct ntr_call *call)
{
	struct ntr_err ignored = {0};
	struct ntr_head h;
	uint64_t rnd = 0;
	char name[32], line[2048];
	int r = ntr_random(&rnd, sizeof rnd);

	if (r)
		return r;
	snprintf(name, sizeof name, "tmp-%016llx", (unsigned long long)rnd);
	r = ntr_session_get(ntr_ctl_store(rq->ctl), session, &h, &ignored);
	if (!r)
		r = ntr_ctl_fork(rq->ctl, session, name, &h, rq->e);
	else if (r == -ENOENT)
		r = ntr_ctl_new(rq->ctl, name, &(struct ntr_session_options){0}, &h, rq->e);
	if (r)
		return r;
	spec->no_commit = true;
	spec->hooks_of = session;
	r = run_in(rq, name, spec, call);
	ignored.code = 0;
	if (ntr_ctl_remove(rq->ctl, name, true, NULL, &ignored)) {
		ntr_err_format(&ignored, line, sizeof line);
		ntrd_log("throw-away session %s stays: %s", name, line);
	}
	return r;
}

int ntrd_call_watch(
        struct ntrd_req *rq, const char *session, const char *inside, struct ntr_call *call, uint64_t *ret_id)
{
	struct ntrd_watch w = {.sock = ntrd_conn_sock(rq->conn),
	        .signal = forward,
	        .user = call,
	        .session = session,
	        .inside = inside};
	int r = ntrd_watch_add(ntrd_server_watcher(rq->srv), &w, ret_id);

	if (r != -EDEADLK)
		return r;
	ntr_err_set(rq->e, r, "run in session %s", session);
	ntr_err_why(rq->e, "that session's call waits for the one this comes from: it would wait for itself");
	return r;
}

int ntrd_op_run(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	const char *inside = ntrd_arg_bytes(rq, "inside", NTRD_OPTIONAL);
	bool rm = ntrd_arg_bool(rq, "rm");
	ntr_auto(call_freep) struct ntr_call *call = ntr_call_new();
	struct ntr_call_spec spec;
	uint64_t id;
	int r = ntrd_call_read(rq, &spec);

	if (r)
		return r;
	if (!call)
		return -ENOMEM;
	/* A throw-away fork waits for nobody: the head is taken as it is. */
	r = rm ? 0 : ntrd_check_inside(rq, session);
	if (!r)
		r = ntrd_call_watch(rq, rm ? "" : session, inside, call, &id);
	if (r)
		return r;
	r = rm ? run_throwaway(rq, session, &spec, call) : run_in(rq, session, &spec, call);
	ntrd_watch_remove(ntrd_server_watcher(rq->srv), id);
	return r;
}
