/* py: a call of the session's Python. */
#include "ntrd_call.h"
#include "ntrd_mounts.h"
#include "ntrd_py.h"
#include "ntrd_stream.h"

#include "../base/util.h"
#include "../base/value.h"

#include <ctype.h>
#include <errno.h>

enum { BUDGET_MAX = 4 << 20, MEMORY_MAX_MB = 1 << 30, OBJECTS_MAX = 1000, ANSWER_WAIT_MS = 10000 };
#define TIMEOUT_MAX 1e9

/* ---- members */

static void json_decref_void(void *j)
{
	json_decref(j);
}

/* A name of Python's; dots: a module's. (What else Python takes for one, the interpreter itself judges.) */
static bool is_name(const char *s, bool dots)
{
	bool first = true;

	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '.' && dots && !first)
			first = true;
		else if (c < 0x80 && c != '_' && !isalpha(c) && (first || !isdigit(c)))
			return false;
		else
			first = false;
	}
	return !first;
}

static void refuse(struct ntrd_req *rq, const char *what, const char *why, const char *todo)
{
	if (rq->bad)
		return;
	rq->bad = ntr_err_full(rq->e, -ENOSYS, what, why, todo);
	rq->kind = "isolation";
}

/* What a setting asks for and this build cannot give is never ignored. */
static void read_isolation(struct ntrd_req *rq)
{
	const char *isolation = ntrd_arg_str(rq, "isolation", NTRD_OPTIONAL);

	if (isolation && strcmp(isolation, "none") != 0) {
		char what[80];

		snprintf(what, sizeof what, "run Python with isolation '%.32s'", isolation);
		refuse(rq, what, "this version has the rung none only, which is no boundary",
		        "leave isolation out, or run ntr itself inside a container or VM");
	}
	if (ntrd_arg_has(rq, "network") && !ntrd_arg_bool(rq, "network"))
		refuse(rq, "run Python without a network", "on the rung none a call has the caller's network",
		        "leave network out, or run ntr itself where there is none");
}

static const json_t *member(struct ntrd_req *rq, const char *key, bool ok, const char *what)
{
	const json_t *v = json_object_get(rq->msg, key);

	if (!v || json_is_null(v))
		return NULL;
	if (!ok)
		ntrd_arg_bad(rq, "the member '%s' is no %s", key, what);
	return v;
}

static void read_code(struct ntrd_req *rq, struct ntrd_py *p, json_t *call)
{
	p->py.code = ntrd_arg_bytes(rq, "code", NTRD_OPTIONAL);
	p->py.file = ntrd_arg_bytes(rq, "file", NTRD_OPTIONAL);
	p->py.args = ntrd_arg_strv(rq, "argv");
	if (rq->bad)
		return;
	if (!p->py.code == !p->py.file)
		ntrd_arg_bad(rq, "one of the members 'code' and 'file' is needed");
	else if (p->py.code)
		json_object_set(
		        call, "code", json_object_get(rq->msg, "code")); /* text or bytes, as it came */
	else
		json_object_set_new(call, "file", ntr_json_bytes(p->py.file, strlen(p->py.file)));
	if (p->py.args)
		json_object_set_new(call, "argv", ntr_json_strv(p->py.args));
}

static void read_inputs(struct ntrd_req *rq, json_t *call)
{
	json_t *inputs = json_object_get(rq->msg, "inputs"), *v;
	char why[NTR_VALUE_WHY];
	const char *name;

	if (!member(rq, "inputs", json_is_object(inputs), "object") || rq->bad)
		return;
	json_object_foreach (inputs, name, v)
		if (!is_name(name, false))
			ntrd_arg_bad(rq, "the input '%.100s' is no Python name", name);
		else if (ntr_value_check(v, why))
			ntrd_arg_bad(rq, "the input '%.100s': %s", name, why);
	json_object_set(call, "inputs", inputs);
}

static bool is_texts(const json_t *a)
{
	const json_t *x;
	size_t i;

	json_array_foreach (a, i, x)
		if (!json_is_string(x))
			return false;
	return json_is_array(a);
}

static void read_objects(struct ntrd_req *rq, struct ntrd_py *p, json_t *call)
{
	json_t *objects = json_object_get(rq->msg, "objects"), *o;
	size_t i;

	if (!member(rq, "objects", json_is_array(objects), "array") || rq->bad)
		return;
	if (json_array_size(objects) > OBJECTS_MAX)
		ntrd_arg_bad(rq, "more than %d objects", OBJECTS_MAX);
	json_array_foreach (objects, i, o) {
		const char *name = ntr_json_str(o, "name", "");
		const json_t *methods = json_object_get(o, "methods");

		if (!is_name(name, false) || name[0] == '_')
			ntrd_arg_bad(rq, "the object '%.100s' has no name that Python code may use", name);
		else if (methods && !json_is_null(methods) && !is_texts(methods))
			ntrd_arg_bad(rq, "the methods of the object '%.100s' are no array of names", name);
	}
	p->py.objects = objects;
	json_object_set(call, "objects", objects);
}

static bool is_grant(const json_t *g)
{
	const json_t *include = json_object_get(g, "include"), *exclude = json_object_get(g, "exclude");

	if (json_is_string(g))
		return is_name(json_string_value(g), true);
	return is_name(ntr_json_str(g, "module", ""), true) &&
	       (!include || json_is_null(include) || is_texts(include)) &&
	       (!exclude || json_is_null(exclude) || is_texts(exclude));
}

static void read_policy(struct ntrd_req *rq, json_t *call)
{
	json_t *policy = json_object_get(rq->msg, "policy"), *g;
	const json_t *modules = json_object_get(policy, "modules");
	size_t i;

	if (!member(rq, "policy", json_is_object(policy), "object") || rq->bad)
		return;
	if (modules && !json_is_null(modules) && !json_is_array(modules))
		ntrd_arg_bad(rq, "the policy's modules are no array");
	json_array_foreach (modules, i, g)
		if (!is_grant(g))
			ntrd_arg_bad(rq,
			        "grant %zu of the policy is neither a module's name nor an object with one",
			        i);
	json_object_set(call, "policy", policy);
}

static void read_preload(struct ntrd_req *rq, struct ntrd_py *p)
{
	json_t *names = json_object_get(rq->msg, "preload"), *x;
	size_t i;

	if (!member(rq, "preload", is_texts(names), "array of names") || rq->bad)
		return;
	json_array_foreach (names, i, x)
		if (!is_name(json_string_value(x), true))
			ntrd_arg_bad(rq, "'%.100s' in the member 'preload' is no module's name",
			        json_string_value(x));
	if (json_array_size(names))
		p->py.preload = names;
}

static void read_limits(struct ntrd_req *rq, struct ntrd_py *p, json_t *call)
{
	static const char *const echoes[] = {"none", "last", "all", NULL};
	int echo = ntrd_arg_word(rq, "echo", echoes);
	int64_t mb = ntrd_arg_int(rq, "memory_mb", 1, MEMORY_MAX_MB, 0);

	p->spec.timeout_s = ntrd_arg_real(rq, "timeout", 0, TIMEOUT_MAX, NTRD_PY_TIMEOUT_S);
	p->py.budget = (size_t)ntrd_arg_int(rq, "budget", 0, BUDGET_MAX, NTRD_PY_BUDGET);
	if (!p->spec.capture)
		p->py.budget = 0;
	p->spec.budget = p->py.budget * 4; /* bytes of as many characters */
	json_object_set_new(call, "budget", json_integer((json_int_t)p->py.budget));
	json_object_set_new(call, "echo", json_string(echo < 0 ? "last" : echoes[echo]));
	if (mb)
		json_object_set_new(call, "memory_mb", json_integer(mb));
}

static void read_modes(struct ntrd_req *rq, struct ntrd_py *p, json_t *call)
{
	p->py.readonly = ntrd_arg_bool(rq, "readonly");
	p->py.cache = !ntrd_arg_has(rq, "cache") || ntrd_arg_bool(rq, "cache");
	p->spec.no_commit = p->py.readonly || ntrd_arg_bool(rq, "no_commit");
	json_object_set_new(call, "readonly", json_boolean(p->py.readonly));
	json_object_set_new(call, "cache", json_boolean(p->py.cache));
	json_object_set_new(call, "namespace",
	        json_boolean(!ntrd_arg_has(rq, "namespace") || ntrd_arg_bool(rq, "namespace")));
}

static void read_stdio(struct ntrd_req *rq, struct ntrd_py *p)
{
	size_t need;

	p->spec.capture = ntrd_arg_bool(rq, "capture");
	need = p->spec.capture ? 1 : 3;
	if (rq->nfds != need)
		ntrd_arg_bad(rq, "%zu descriptors came along, it takes %zu", rq->nfds, need);
	for (size_t i = 0; i < 3; i++)
		p->spec.fds[i] = i < rq->nfds ? rq->fds[i] : -1;
	if ((ntrd_arg_bool(rq, "stream") || ntrd_arg_bool(rq, "render")) && !p->spec.capture)
		ntrd_arg_bad(rq, "the members 'stream' and 'render' need 'capture'");
}

static void read_environment(struct ntrd_req *rq, struct ntrd_py *p)
{
	static char *const none[] = {NULL};

	p->spec.env = ntrd_arg_strv(rq, "env");
	p->spec.set_env = ntrd_arg_strv(rq, "set_env");
	if (!p->spec.env)
		p->spec.env = none;
	p->spec.cwd = ntrd_arg_bytes(rq, "cwd", NTRD_OPTIONAL);
	p->spec.cwd_hint = ntrd_arg_bool(rq, "cwd_hint");
	p->spec.path_first = ntrd_arg_path_first(rq);
	p->py.python = p->spec.python = ntrd_arg_python(rq);
}

int ntrd_py_read(struct ntrd_req *rq, struct ntrd_py *ret)
{
	json_t *call = json_object();
	int r;

	*ret = (struct ntrd_py){.spec.tool = "py"};
	r = call ? ntrd_own(rq, call, json_decref_void) : -ENOMEM;
	if (r)
		return r;
	ret->spec.py = &ret->py;
	ret->py.call = call;
	ret->session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	ret->inside = ntrd_arg_bytes(rq, "inside", NTRD_OPTIONAL);
	read_code(rq, ret, call);
	read_stdio(rq, ret);
	read_environment(rq, ret);
	read_inputs(rq, call);
	read_objects(rq, ret, call);
	read_policy(rq, call);
	read_preload(rq, ret);
	read_limits(rq, ret, call);
	read_modes(rq, ret, call);
	read_isolation(rq);
	return rq->bad;
}

/* ---- the call */

static void forward_signal(void *user, int sig)
{
	ntr_call_signal(user, sig);
}

static void forward_answer(void *user, const json_t *msg)
{
	ntr_call_answer(user, msg);
}

/* From the thread that serves the call's channel. */
static int ask_host(
        void *user, int64_t n, const char *name, const char *method, const json_t *args, const json_t *kwargs)
{
	struct ntrd_req *rq = user;
	json_t *ev = json_pack("{s:s,s:I,s:s,s:s,s:O,s:O}", "event", "object", "n", (json_int_t)n, "name",
	        name, "method", method, "args", args, "kwargs", kwargs);

	return ntrd_conn_try_send(rq->conn, ev, ANSWER_WAIT_MS);
}

static int watch(struct ntrd_req *rq, const struct ntrd_py *p, struct ntr_call *call, uint64_t *ret_id)
{
	struct ntrd_watch w = {.sock = ntrd_conn_sock(rq->conn),
	        .signal = forward_signal,
	        .answer = forward_answer,
	        .user = call,
	        .session = p->session,
	        .inside = p->inside};
	int r = ntrd_watch_add(ntrd_server_watcher(rq->srv), &w, ret_id);

	if (r != -EDEADLK)
		return r;
	ntr_err_set(rq->e, r, "run Python in session %s", p->session);
	ntr_err_why(rq->e, "that session's call waits for the one this comes from: it would wait for itself");
	return r;
}

static void call_freep(struct ntr_call **call)
{
	ntr_call_free(*call);
}

int ntrd_py_call(struct ntrd_req *rq, struct ntrd_py *p, struct ntr_call_result *ret)
{
	ntr_auto(call_freep) struct ntr_call *call = ntr_call_new();
	struct ntrd_stream st = {.rq = rq};
	uint64_t id;
	int r;

	*ret = (struct ntr_call_result){0};
	if (!call)
		return -ENOMEM;
	r = ntrd_check_inside(rq, p->session);
	if (!r)
		r = ntrd_mounts_set(rq, p->session);
	if (!r)
		r = watch(rq, p, call, &id);
	if (r)
		return r;
	p->spec.output = ntrd_arg_bool(rq, "stream") ? ntrd_stream_output : NULL;
	p->spec.output_user = &st;
	p->py.object = ask_host;
	p->py.user = rq;
	r = ntrd_event(rq, "started", json_object());
	if (!r)
		r = ntr_ctl_run(rq->ctl, p->session, &p->spec, call, ret, rq->e);
	ntrd_watch_remove(ntrd_server_watcher(rq->srv), id);
	ntrd_stream_end(&st);
	if (!r && st.lost)
		r = ntrd_reply_set(rq, "stream_lost", json_true());
	return r;
}

int ntrd_py_reply(struct ntrd_req *rq, const struct ntrd_py *p, const struct ntr_call_result *res)
{
	int r = ntrd_call_reply(rq, &p->spec, res);

	if (!r)
		r = ntrd_reply_row(rq, json_incref(res->py));
	return r || !ntrd_arg_bool(rq, "render") ? r : ntrd_call_render(rq, &p->spec, res, rq->reply);
}

int ntrd_op_py(struct ntrd_req *rq)
{
	ntr_auto(ntr_call_result_done) struct ntr_call_result res = {0};
	struct ntrd_py p;
	int r = ntrd_py_read(rq, &p);

	if (!r)
		r = ntrd_py_call(rq, &p, &res);
	return r ? ntrd_call_failed(rq, &p.spec, &res, ntrd_arg_bool(rq, "render"), r)
	         : ntrd_py_reply(rq, &p, &res);
}
