/* mcp, tools: the daemon describes them and runs them; here its answers take the protocol's form. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <errno.h>

/* ---- the list */

/* With forks about, each tool can be told in which session it is to work. */
static int add_session(json_t *tool)
{
	json_t *properties = json_object_get(json_object_get(tool, "inputSchema"), "properties");

	return json_object_set_new(properties, "session",
	        json_pack("{s:s,s:s,s:s}", "type", "string", "pattern", "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$",
	                "description",
	                "Work in this workspace (one that fork made) instead of the usual one."));
}

static int tools_load(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_err *e)
{
	ntr_autojson json_t *reply = NULL, *tools = json_object();
	json_t *tool;
	size_t i;
	int r = tools ? 0 : ntr_err_set(e, -ENOMEM, "mcp");

	if (!r)
		r = ntr_mcp_ask(job, json_deep_copy(s->listing), &reply, e);
	if (r)
		return r;
	json_array_foreach (json_object_get(reply, "tools"), i, tool) {
		if (json_object_get(s->listing, "versions") && add_session(tool))
			return ntr_err_set(e, -ENOMEM, "mcp");
		if (json_object_set(tools, ntr_json_str(tool, "name", "?"), tool))
			return ntr_err_set(e, -ENOMEM, "mcp");
	}
	pthread_mutex_lock(&s->m);
	if (!s->tools) { /* another lane may have been faster */
		s->wsroot = strdup(ntr_json_str(reply, "wsroot", "/workspace"));
		s->tools = ntr_steal_ptr(tools);
	}
	pthread_mutex_unlock(&s->m);
	return 0;
}

static const json_t *tools_of(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_err *e)
{
	const json_t *tools;
	bool there;

	pthread_mutex_lock(&s->m);
	there = s->tools;
	pthread_mutex_unlock(&s->m);
	if (!there && tools_load(s, job, e))
		return NULL;
	pthread_mutex_lock(&s->m);
	tools = s->tools;
	pthread_mutex_unlock(&s->m);
	return tools;
}

/* A tool as the client's revision knows tools. */
static json_t *tool_row(const struct ntr_mcp_revision *rev, json_t *tool)
{
	json_t *row = json_copy(tool);

	if (!rev->structured)
		json_object_del(row, "title");
	if (!rev->annotations)
		json_object_del(row, "annotations");
	return row;
}

json_t *ntr_mcp_tools_list(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_mcp_error *err)
{
	ntr_autojson json_t *rows = json_array();
	struct ntr_err e = {0};
	json_t *tools = (json_t *)(uintptr_t)tools_of(s, job, &e), *tool;
	const json_t *cursor = json_object_get(job->req.params, "cursor");
	const char *name;

	if (cursor && !json_is_null(cursor)) {
		err->code = NTR_RPC_PARAMS;
		snprintf(err->text, sizeof err->text, "there is no such cursor: the list has one page");
		return NULL;
	}
	if (!tools)
		return ntr_mcp_work_failed(err, NTR_RPC_INTERNAL, &e);
	json_object_foreach (tools, name, tool)
		if (json_array_append_new(rows, tool_row(job->req.rev, tool)))
			return NULL;
	return json_pack("{s:O}", "tools", rows);
}

/* ---- a call */

const char *ntr_mcp_tool_session(const struct ntr_mcp *s, const json_t *params)
{
	const json_t *v = json_object_get(json_object_get(params, "arguments"), "session");
	const char *name = json_string_value(v);

	if (!v || !json_object_get(s->listing, "versions"))
		return s->session;
	return name && *name ? name : NULL;
}

/* A result that says what went wrong: the model reads it and can do something else. before: what the call had
 * printed until then, or NULL. */
static json_t *failure(const json_t *before, const struct ntr_err *e)
{
	char text[1024];
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	ntr_err_format(e, text, sizeof text);
	if (before)
		ntr_buf_printf(&b, "%s\n", json_string_value(before));
	if (ntr_buf_printf(&b, "%s", text))
		return NULL;
	return json_pack("{s:[{s:s,s:o}],s:b}", "content", "type", "text", "text",
	        ntr_json_text(b.data, b.len), "isError", 1);
}

/* A session that is named must be there: a slip of the pen shall not make one. */
static int session_known(struct ntr_mcp_job *job, const char *session, struct ntr_err *e)
{
	ntr_autojson json_t *reply = NULL;

	if (!strcmp(session, job->lane->s->session))
		return 0;
	return ntr_mcp_ask(
	        job, json_pack("{s:s,s:s,s:i}", "op", "log", "session", session, "n", 1), &reply, e);
}

static json_t *call_request(const struct ntr_mcp *s, const json_t *params, const char *session)
{
	ntr_autojson json_t *req = json_deep_copy(s->call);
	json_t *given = json_object_get(params, "arguments");
	ntr_autojson json_t *args = json_is_object(given) ? json_copy(given) : NULL;

	if (args && json_object_get(s->listing, "versions"))
		json_object_del(args, "session");
	if (!req || json_object_set_new(req, "session", json_string(session)) ||
	        json_object_set(req, "name", json_object_get(params, "name")) ||
	        (args && json_object_set(req, "args", args)))
		return NULL;
	return ntr_steal_ptr(req);
}

/* Where a file was written, a link to it. */
static int add_link(const struct ntr_mcp *s, json_t *content, const char *tool, const json_t *reply)
{
	const char *path = ntr_json_str(json_object_get(reply, "structured"), "path", NULL);
	ntr_autofree char *uri = NULL;
	const char *base;

	if (!path || strncmp(tool, "file_", 5) != 0)
		return 0;
	base = strrchr(path, '/');
	if (s->wsroot && !strncmp(path, s->wsroot, strlen(s->wsroot)) && path[strlen(s->wsroot)] == '/')
		path += strlen(s->wsroot) + 1;
	uri = ntr_mcp_uri(path);
	if (!uri)
		return -ENOMEM;
	return json_array_append_new(content, json_pack("{s:s,s:s,s:s}", "type", "resource_link", "uri", uri,
	                                              "name", base ? base + 1 : path))
	               ? -ENOMEM
	               : 0;
}

static json_t *content_of(const struct ntr_mcp_job *job, const char *tool, const json_t *reply)
{
	ntr_autojson json_t *content =
	        json_pack("[{s:s,s:O}]", "type", "text", "text", json_object_get(reply, "text"));
	const json_t *image = json_object_get(reply, "image");

	if (!content)
		return NULL;
	if (image && json_array_append_new(content, json_pack("{s:s,s:O,s:O}", "type", "image", "data",
	                                                    json_object_get(image, "b64"), "mimeType",
	                                                    json_object_get(image, "mime"))))
		return NULL;
	if (job->req.rev->structured && !ntr_json_bool(reply, "is_error", false) &&
	        add_link(job->lane->s, content, tool, reply))
		return NULL;
	return ntr_steal_ptr(content);
}

/* Usual programs show a model the structured result alone where there is one. So it holds the text too, once,
 * and nothing that the text tells in other words or that is of use to a program only; and there is none
 * beside an image. NULL: out of memory. */
static json_t *structured_of(const json_t *reply)
{
	static const char *const told[] = {
	        "stdout", "stderr", "echo", "error", "namespace", "notes", "hints", NULL};
	enum { ROWS_MAX = 100 };
	ntr_autojson json_t *o = json_pack("{s:O}", "text", json_object_get(reply, "text"));
	json_t *all = json_object_get(reply, "structured"), *v;
	const char *key;
	void *next;

	if (!o || json_object_update(o, all))
		return NULL;
	for (size_t i = 0; told[i]; i++)
		json_object_del(o, told[i]);
	json_object_foreach_safe(o, next, key, v) if (json_array_size(v) > ROWS_MAX) json_object_del(o, key);
	if (!json_object_get(o, "commit") && json_object_set(o, "commit", json_object_get(reply, "commit")))
		return NULL;
	return ntr_steal_ptr(o);
}

static json_t *call_result(const struct ntr_mcp_job *job, const char *tool, const json_t *reply)
{
	ntr_autojson json_t *result = json_pack("{s:o,s:b}", "content", content_of(job, tool, reply),
	        "isError", ntr_json_bool(reply, "is_error", false));

	if (!result)
		return NULL;
	if (job->req.rev->structured && !json_object_get(reply, "image") &&
	        json_object_set_new(result, "structuredContent", structured_of(reply)))
		return NULL;
	return ntr_steal_ptr(result);
}

static void log_call(struct ntr_mcp *s, const struct ntr_mcp_job *job, const json_t *reply)
{
	const json_t *st = json_object_get(reply, "structured");
	enum ntr_mcp_level level = ntr_json_bool(st, "timed_out", false) ? NTR_MCP_WARNING : NTR_MCP_DEBUG;
	json_t *data = json_pack("{s:O,s:s,s:O?,s:f}", "tool", json_object_get(job->req.params, "name"),
	        "session", job->lane->session, "commit", json_object_get(reply, "commit"), "seconds",
	        (double)(ntr_mono_ns() - job->began_ns) / 1e9);

	if (data)
		ntr_mcp_log(s, &job->req, level, data);
}

/* What may have run is not run again by us; who reads this has to look first. */
static json_t *lost(struct ntr_mcp_job *job, int r, struct ntr_err *e)
{
	if (r == -ECONNRESET)
		ntr_err_todo(e, "the call may have run to its end, in part or not at all, and is not "
		                "repeated: look at the "
		                "files before you do it again");
	return failure(json_object_get(ntr_conn_result(job->lane->conn), "text"), e);
}

static bool bad_call(const json_t *tools, const json_t *params, struct ntr_mcp_error *err)
{
	const json_t *args = json_object_get(params, "arguments");
	const char *name = ntr_json_str(params, "name", "");

	err->code = NTR_RPC_PARAMS;
	if (!json_object_get(tools, name))
		snprintf(err->text, sizeof err->text, "there is no tool '%.100s'", name);
	else if (args && !json_is_object(args) && !json_is_null(args))
		snprintf(err->text, sizeof err->text, "arguments is no object");
	else
		return false;
	return true;
}

json_t *ntr_mcp_tools_call(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_mcp_error *err)
{
	const char *name = ntr_json_str(job->req.params, "name", ""), *session = job->lane->session;
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};
	const json_t *tools = tools_of(s, job, &e);
	int r;

	if (!tools)
		return failure(NULL, &e);
	if (bad_call(tools, job->req.params, err))
		return NULL;
	if (session_known(job, session, &e))
		return failure(NULL, &e);
	r = ntr_mcp_ask(job, call_request(s, job->req.params, session), &reply, &e);
	if (r)
		return lost(job, r, &e);
	log_call(s, job, reply);
	return call_result(job, name, reply);
}
