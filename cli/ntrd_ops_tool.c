/* tool and tools: what agents work with. A tool answers a text also where it could not do what was asked; an
 * error reply is for what no agent can put right. */
#include "ntrd_tool.h"
#include "ntrd_call.h"
#include "ntrd_mounts.h"
#include "ntrd_py.h"

#include "../base/util.h"
#include "../exec/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { BUDGET_MAX = 4 << 20 };

int ntrd_tool_fail(struct ntrd_tool *t, const char *what, const char *why)
{
	t->is_error = true;
	t->text.len = 0;
	return ntr_buf_printf(&t->text, "%s failed: %s", what, why);
}

int ntrd_tool_error(struct ntrd_tool *t, const char *what, int r, const struct ntr_err *e)
{
	char why[2048];

	switch (-r) {
	case ENOENT:
	case EEXIST:
	case EINVAL:
	case ERANGE:
	case ENOTUNIQ:
	case ENAMETOOLONG:
	case EDEADLK:
	case EKEYREJECTED: /* a hook said no: what it says is for whoever asked for the call */
		ntr_err_format(e, why, sizeof why);
		return ntrd_tool_fail(t, what, why);
	default:
		*t->rq->e = *e;
		return r;
	}
}

const char *ntrd_tool_arg(const struct ntrd_tool *t, const char *key, size_t *ret_len)
{
	const json_t *v = json_object_get(t->args, key);

	if (ret_len)
		*ret_len = json_string_length(v);
	return json_string_value(v);
}

size_t ntrd_tool_budget(struct ntrd_req *rq)
{
	return (size_t)ntrd_arg_int(rq, "budget", 1, BUDGET_MAX, NTR_TOOLS_BUDGET);
}

/* ---- calls */

static const char *text_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_string_value(v);
}

int ntrd_call_render(
        struct ntrd_req *rq, const struct ntr_call_spec *spec, const struct ntr_call_result *res, json_t *o)
{
	ntr_auto(ntr_buf_done) struct ntr_buf text = {0};
	struct ntr_tool_call call = {.out = res->out.data,
	        .err = res->err.data,
	        .out_len = res->out.len,
	        .err_len = res->err.len,
	        .budget = ntrd_tool_budget(rq),
	        .exit_code = res->timed_out ? NTR_EXIT_TIMEOUT : res->exit_code,
	        .timed_out = res->timed_out,
	        .truncated = res->truncated,
	        .timeout_s = spec->timeout_s,
	        .python = spec->py != NULL,
	        .error = text_of(res->py, "error"),
	        .hints = json_object_get(res->py, "hints"),
	        .ui = json_object_get(res->py, "ui"),
	        .notes = res->py ? json_object_get(res->py, "notes") : res->notes};
	bool is_error, cut;
	int r = ntr_tool_render(&call, &text, &is_error, &cut);

	if (!r && json_object_set_new(o, "text", ntr_json_text(text.data, text.len)))
		r = -ENOMEM;
	if (!r && json_object_set_new(o, "is_error", json_boolean(is_error)))
		r = -ENOMEM;
	if (!r && json_object_set_new(o, "truncated", json_boolean(cut)))
		r = -ENOMEM;
	return r;
}

/* The request as the op of such a call would get it: the tool's members, the code or script, no input. */
static json_t *call_message(const struct ntrd_tool *t, const char *key, const char *arg)
{
	ntr_autojson json_t *m = json_copy((json_t *)(uintptr_t)t->rq->msg);

	if (!m)
		return NULL;
	json_object_del(m, "args");
	json_object_del(m, "name");
	json_object_del(m, "argv");
	if (json_object_set(m, key, json_object_get(t->args, arg)) ||
	        json_object_set_new(m, "capture", json_true()) ||
	        json_object_set_new(m, "render", json_true()))
		return NULL;
	return ntr_steal_ptr(m);
}

/* What the call's op would answer becomes the structured result; its text the tool's. */
static int take_call(struct ntrd_tool *t, json_t *reply)
{
	const char *commit = ntr_json_str(reply, "commit", "");
	const json_t *text = json_object_get(reply, "text");

	snprintf(t->commit, sizeof t->commit, "%s", commit);
	t->is_error = ntr_json_bool(reply, "is_error", false);
	if (ntr_buf_add(&t->text, json_string_value(text), json_string_length(text)))
		return -ENOMEM;
	json_object_del(reply, "text");
	json_object_del(reply, "is_error");
	return json_object_update(t->structured, reply) ? -ENOMEM : 0;
}

static void call_freep(struct ntr_call **call)
{
	ntr_call_free(*call);
}

static int run_script(struct ntrd_req *rq, const char *session)
{
	ntr_auto(ntr_call_result_done) struct ntr_call_result res = {0};
	ntr_auto(call_freep) struct ntr_call *call = ntr_call_new();
	struct ntr_call_spec spec;
	uint64_t id;
	int r = ntrd_call_read(rq, &spec);

	spec.tool = "terminal";
	if (!r)
		r = call ? ntrd_check_inside(rq, session) : -ENOMEM;
	if (!r)
		r = ntrd_call_watch(rq, session, ntrd_arg_bytes(rq, "inside", NTRD_OPTIONAL), call, &id);
	if (r)
		return r;
	r = ntrd_call_in(rq, session, &spec, call, &res);
	ntrd_watch_remove(ntrd_server_watcher(rq->srv), id);
	if (!r)
		r = ntrd_call_reply(rq, &spec, &res);
	return r ? ntrd_call_failed(rq, &spec, &res, true, r) : ntrd_call_render(rq, &spec, &res, rq->reply);
}

static int run_python(struct ntrd_req *rq, const char *session)
{
	ntr_auto(ntr_call_result_done) struct ntr_call_result res = {0};
	struct ntrd_py p;
	int r;

	(void)session;
	r = ntrd_py_read(rq, &p);
	p.spec.tool = "run_python";
	if (!r)
		r = ntrd_py_call(rq, &p, &res);
	return r ? ntrd_call_failed(rq, &p.spec, &res, true, r) : ntrd_py_reply(rq, &p, &res);
}

/* What a hook said against a call, after what the call printed. */
static int refused(struct ntrd_tool *t, const json_t *reply)
{
	const json_t *printed = json_object_get(reply, "text");
	ntr_auto(ntr_buf_done) struct ntr_buf no = {0};
	struct ntr_err e = *t->rq->e;
	int r;

	*t->rq->e = (struct ntr_err){0};
	r = ntrd_tool_error(t, t->name, -EKEYREJECTED, &e);
	if (r || !printed)
		return r;
	no = t->text;
	t->text = (struct ntr_buf){0};
	ntr_buf_add(&t->text, json_string_value(printed), json_string_length(printed));
	ntr_buf_byte(&t->text, '\n');
	return ntr_buf_add(&t->text, no.data, no.len);
}

/* Runs it as a request of its own over the same connection. */
static int call_as(struct ntrd_tool *t, const char *key, const char *arg,
        int (*run)(struct ntrd_req *rq, const char *session))
{
	ntr_autojson json_t *msg = call_message(t, key, arg), *reply = json_object();
	ntr_autoclose int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct ntrd_req sub = *t->rq;
	int r = 0;

	if (!msg || !reply)
		return -ENOMEM;
	if (null < 0)
		return ntr_err_set(t->rq->e, -errno, "open /dev/null");
	sub.msg = msg;
	sub.reply = reply;
	sub.fds = &null;
	sub.nfds = 1;
	r = run(&sub, t->session);
	t->rq->owned = sub.owned;
	t->rq->bad = sub.bad;
	t->rq->kind = sub.kind;
	if (r == -EKEYREJECTED)
		return refused(t, reply);
	if (r && sub.has_result && !json_object_update(t->rq->reply, reply))
		t->rq->has_result = true;
	return r ? r : take_call(t, reply);
}

static int tool_terminal(struct ntrd_tool *t)
{
	size_t n;
	const char *script = ntrd_tool_arg(t, "command", &n);

	if (memchr(script, '\0', n))
		return ntrd_tool_fail(t, "terminal", "the command holds a NUL, which bash cannot read");
	return call_as(t, "script", "command", run_script);
}

static int tool_python(struct ntrd_tool *t)
{
	size_t n;
	const char *code = ntrd_tool_arg(t, "code", &n);

	if (memchr(code, '\0', n))
		return ntrd_tool_fail(t, "run_python", "the code holds a NUL; write it as \\0 in a string");
	return call_as(t, "code", "code", run_python);
}

/* ---- the ops */

static const struct {
	const char *name, *what; /* what: as its failures begin */
	ntrd_tool_fn *fn;
} tools[] = {
        {"terminal", "terminal", tool_terminal},
        {"run_python", "run_python", tool_python},
        {"file_write", "write", ntrd_tool_write},
        {"file_edit", "edit", ntrd_tool_edit},
        {"view_image", "view_image", ntrd_tool_image},
        {"history", "history", ntrd_tool_history},
        {"diff", "diff", ntrd_tool_diff},
        {"fork", "fork", ntrd_tool_fork},
        {"rollback", "rollback", ntrd_tool_rollback},
};

static int reply_tool(struct ntrd_tool *t)
{
	struct ntrd_req *rq = t->rq;
	int r = ntrd_reply_set(rq, "text", ntr_json_text(t->text.data, t->text.len));

	if (!r)
		r = ntrd_reply_set(rq, "is_error", json_boolean(t->is_error));
	if (!r)
		r = ntrd_reply_set(rq, "structured", json_incref(t->structured));
	if (!r && t->image)
		r = ntrd_reply_set(rq, "image", json_incref(t->image));
	return r ? r : ntrd_reply_set(rq, "commit", ntrd_json_hex(t->commit));
}

static int use(struct ntrd_tool *t, size_t i)
{
	ntr_auto(ntr_buf_done) struct ntr_buf why = {0};
	int r = ntr_tool_args_check(t->name, t->args, &why);

	if (r == -EINVAL)
		return ntr_buf_cstr(&why) ? ntrd_tool_fail(t, tools[i].what, (const char *)why.data)
		                          : -ENOMEM;
	return r ? r : tools[i].fn(t);
}

int ntrd_op_tool(struct ntrd_req *rq)
{
	struct ntrd_tool t = {.rq = rq,
	        .session = ntrd_arg_session(rq, "session", NTRD_REQUIRED),
	        .name = ntrd_arg_str(rq, "name", NTRD_REQUIRED)};
	ntr_autojson json_t *args = json_incref(json_object_get(rq->msg, "args"));
	size_t i = 0;
	int r = rq->bad;

	if (r)
		return r;
	while (i < NTR_COUNT(tools) && strcmp(tools[i].name, t.name) != 0)
		i++;
	if (i == NTR_COUNT(tools))
		return ntrd_arg_bad(rq, "there is no tool '%.100s'", t.name);
	r = ntrd_mounts_set(rq, t.session);
	if (r)
		return r;
	if (!args || json_is_null(args)) {
		json_decref(args);
		args = json_object();
	}
	t.args = args;
	t.structured = json_object();
	r = args && t.structured ? use(&t, i) : -ENOMEM;
	if (!r)
		r = rq->bad ? rq->bad : reply_tool(&t);
	json_decref(t.structured);
	json_decref(t.image);
	ntr_buf_done(&t.text);
	return r;
}

/* Names out of a list of names, or of objects that have one. */
static json_t *names_of(const json_t *list)
{
	json_t *names = json_array(), *x;
	size_t i;

	json_array_foreach (list, i, x)
		json_array_append(names, json_is_object(x) ? json_object_get(x, "name") : x);
	return names;
}

/* "a, b" out of ["a", "b"]. */
static const char *joined(const json_t *list, struct ntr_buf *b)
{
	const json_t *x;
	size_t i;

	json_array_foreach (list, i, x)
		if (json_is_string(x))
			ntr_buf_printf(b, "%s%s", i ? ", " : "", json_string_value(x));
	return b->len ? ntr_buf_cstr(b) : NULL;
}

static bool not_false(struct ntrd_req *rq, const char *key)
{
	return !ntrd_arg_has(rq, key) || ntrd_arg_bool(rq, key);
}

int ntrd_op_tools(struct ntrd_req *rq)
{
	static const char *const modes[] = {"auto", "terminal", "split", NULL};
	const char *session = ntrd_arg_session(rq, "session", NTRD_OPTIONAL);
	const json_t *primers = json_object_get(rq->msg, "primers");
	ntr_autojson json_t *objects = names_of(json_object_get(rq->msg, "objects"));
	ntr_auto(ntr_buf_done) struct ntr_buf modules = {0};
	int mode = ntrd_arg_word(rq, "mode", modes);
	struct ntr_head h = {.wsroot = "/workspace"};
	struct ntr_tools_options o = {.mode = mode < 0 ? NTR_TOOLS_AUTO : (enum ntr_tools_mode)mode,
	        .versions = ntrd_arg_bool(rq, "versions"),
	        .no_cache = !not_false(rq, "cache"),
	        .no_images = !not_false(rq, "images"),
	        .offline = !not_false(rq, "network"),
	        .objects = objects,
	        .modules = joined(json_object_get(rq->msg, "modules"), &modules),
	        .terminal_primer = ntr_json_str(primers, "terminal", NULL),
	        .python_primer = ntr_json_str(primers, "python", NULL),
	        .wsroot = h.wsroot};
	int r;

	if (rq->bad)
		return rq->bad;
	if (session && ntr_session_get(ntr_ctl_store(rq->ctl), session, &h, NULL))
		snprintf(h.wsroot, sizeof h.wsroot, "/workspace"); /* it will be made by its first use */
	r = ntrd_reply_set(rq, "wsroot", ntr_json_bytes(h.wsroot, strlen(h.wsroot)));
	return r ? r : ntrd_reply_set(rq, "tools", ntr_tools_list(&o));
}
