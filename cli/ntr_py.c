/* py: Python code in a session. As with run, the client's own stdin, stdout and stderr are the call's. */
#include "ntr.h"
#include "ntr_call.h"

#include "../base/buf.h"
#include "../base/util.h"

#include <errno.h>

/* "1", "2.5", "{…}": JSON; anything else is refused, so that a text is not taken for what it is not. */
static int add_input(struct ntr_cmd *cmd, json_t *inputs, const char *arg)
{
	ntr_autofree char *name = strndup(arg, strcspn(arg, "="));
	const char *text = strchr(arg, '=');
	json_t *v;

	if (!name)
		return ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	if (!text || !*name)
		return ntr_cmd_usage(cmd, "--input '%s' is not NAME=JSON", arg);
	v = json_loads(text + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	if (!v)
		return ntr_cmd_usage(
		        cmd, "--input %s: '%s' is no JSON (a text needs quotes: '\"text\"')", name, text + 1);
	return json_object_set_new(inputs, name, v) ? ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM))
	                                            : 0;
}

/* --input and --preload, each. 0, or the exit status after a complaint. */
static int add_lists(struct ntr_cmd *cmd, json_t *req)
{
	json_t *inputs = json_object(), *preload = json_array();
	int r = 0;

	if (json_object_set_new(req, "inputs", inputs) || json_object_set_new(req, "preload", preload))
		return ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	for (size_t i = 0; !r && i < cmd->nopts; i++) {
		if (cmd->opts[i].key == NTR_OPT_INPUT)
			r = add_input(cmd, inputs, cmd->opts[i].value);
		if (cmd->opts[i].key == NTR_OPT_PRELOAD)
			json_array_append_new(preload, ntr_arg(cmd->opts[i].value));
	}
	return r;
}

/* -c CODE, FILE of the session, or - and nothing: code on stdin. */
static int add_code(struct ntr_cmd *cmd, json_t *req)
{
	const char *code = ntr_cmd_opt(cmd, 'c');
	bool dash = !code && (!cmd->nargs || !strcmp(cmd->args[0], "-"));
	size_t first = code || !cmd->nargs ? 0 : 1;
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	int r = 0;

	if (code)
		r = json_object_set_new(req, "code", ntr_arg(code));
	else if (!dash)
		r = json_object_set_new(req, "file", ntr_arg(cmd->args[0]));
	else if (!cmd->nargs && isatty(STDIN_FILENO))
		return ntr_cmd_usage(cmd, "code is missing: -c CODE, a FILE of the session, or - for stdin");
	else if ((r = ntr_call_stdin(&b)))
		return ntr_cmd_die(cmd, r, NULL, "cannot read the code from stdin: %s", strerror(-r));
	else /* as bytes: a coding line in it is Python's to read */
		r = json_object_set_new(req, "code", ntr_json_base64(b.len ? (void *)b.data : "", b.len));
	if (!r)
		r = json_object_set_new(req, "argv", ntr_json_strv(cmd->args + first));
	return r ? ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM)) : 0;
}

static int add_limits(struct ntr_cmd *cmd, json_t *req)
{
	const char *mb = ntr_cmd_opt(cmd, NTR_OPT_MEMORY), *echo = ntr_cmd_opt(cmd, NTR_OPT_ECHO);
	const char *python = ntr_cmd_opt(cmd, NTR_OPT_PYTHON);
	int64_t n = 0;

	if (mb && ntr_parse_count(mb, 1, &n))
		return ntr_cmd_usage(cmd, "--memory '%s' is no number of megabytes", mb);
	if (mb)
		json_object_set_new(req, "memory_mb", json_integer(n));
	if (echo)
		json_object_set_new(req, "echo", ntr_arg(echo));
	if (python)
		json_object_set_new(req, "python", ntr_arg(python));
	if (!ntr_cmd_opt(cmd, NTR_OPT_TIMEOUT)) /* as with run */
		json_object_set_new(req, "timeout", json_integer(0));
	return ntr_call_timeout(cmd, req);
}

static json_t *py_request(struct ntr_cmd *cmd, int *ret_status)
{
	ntr_autojson json_t *req = json_pack("{s:s,s:o,s:b,s:b,s:b,s:b,s:b}", "op", "py", "session",
	        ntr_arg(cmd->session), "no_commit", ntr_cmd_opt(cmd, NTR_OPT_NO_COMMIT) != NULL, "readonly",
	        ntr_cmd_opt(cmd, NTR_OPT_READONLY) != NULL, "capture", (int)ntr_call_captures(cmd), "render",
	        ntr_cmd_opt(cmd, NTR_OPT_RENDER) != NULL, "namespace", (int)cmd->json);
	int r;

	*ret_status = 0;
	if (!req)
		return NULL;
	r = add_limits(cmd, req);
	if (!r)
		r = add_lists(cmd, req);
	if (!r)
		r = ntr_call_environment(cmd, req);
	if (!r)
		r = ntr_call_mounts(cmd, req);
	if (!r)
		r = add_code(cmd, req);
	if (r) {
		*ret_status = r < 0 ? 0 : r;
		return NULL;
	}
	return ntr_steal_ptr(req);
}

static void print_json(const json_t *reply)
{
	static const char *const keys[] = {"stdout", "stderr", "error", "echo", "exit_code", "timed_out",
	        "truncated", "duration", "namespace", "ui", "notes", "hints", "mechanisms", "commit",
	        "changes"};
	ntr_autojson json_t *o = json_object();

	for (size_t i = 0; i < NTR_COUNT(keys); i++) {
		json_t *v = json_object_get(reply, keys[i]);

		json_object_set_new(o, keys[i], v ? json_incref(v) : json_null());
	}
	ntr_json_line(o, NULL);
}

static void print_lines(const json_t *a, const char *form)
{
	const json_t *x;
	size_t i;

	json_array_foreach (a, i, x)
		fprintf(stderr, *form ? "[hint: %s]\n" : "%s\n", json_string_value(x));
}

/* What the interpreter says beside the code's own output. */
static void print_text(const json_t *reply)
{
	const char *error = ntr_json_str(reply, "error", NULL);

	fflush(stdout);
	if (error)
		fprintf(stderr, "%s\n", error);
	print_lines(json_object_get(reply, "hints"), "hint");
	print_lines(json_object_get(reply, "notes"), "");
}

int ntr_py_main(struct ntr_cmd *cmd)
{
	ntr_autojson json_t *req = NULL, *reply = NULL;
	const json_t *result;
	struct ntr_err e = {0};
	int status = 0, last = 0, r;

	req = py_request(cmd, &status);
	if (!req)
		return status ? status : ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	r = ntr_call_run(cmd, req, &last, &reply, &e);
	if (r == -EINTR && last) /* taken out of the queue before it began */
		return 128 + last;
	result = r ? ntr_conn_result(cmd->conn) : reply; /* also where the commit failed then */
	if (result && cmd->json)
		print_json(result);
	else if (result && ntr_cmd_opt(cmd, NTR_OPT_RENDER))
		ntr_call_print_text(result);
	else if (result)
		print_text(result);
	return r ? ntr_cmd_fail(cmd, &e) : ntr_call_status(cmd, reply);
}
