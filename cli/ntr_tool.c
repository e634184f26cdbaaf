/* tool: the tools that agents get, from a shell: for scripts that put an agent together, and to see what it
 * sees. */
#include "ntr.h"
#include "ntr_call.h"

#include "../base/util.h"

#include <errno.h>

/* The arguments, as JSON on the command line or stdin. 0, or the exit status after a complaint. */
static int take_args(struct ntr_cmd *cmd, json_t **ret)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	const char *arg = cmd->nargs > 1 ? cmd->args[1] : "{}";
	json_error_t je;
	int r = strcmp(arg, "-") ? ntr_buf_str(&b, arg) : ntr_call_stdin(&b);

	if (r)
		return ntr_cmd_die(cmd, r, NULL, "cannot read the arguments from stdin: %s", strerror(-r));
	*ret = json_loadb(
	        b.len ? (const char *)b.data : "", b.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!json_is_object(*ret))
		return ntr_cmd_usage(
		        cmd, "the arguments are no JSON object%s%s", *ret ? "" : ": ", *ret ? "" : je.text);
	return 0;
}

static json_t *tool_request(struct ntr_cmd *cmd, json_t *args, int *ret_status)
{
	ntr_autojson json_t *req = json_pack("{s:s,s:o,s:o,s:O}", "op", "tool", "session",
	        ntr_arg(cmd->session), "name", ntr_arg(cmd->args[0]), "args", args);
	int r;

	*ret_status = 0;
	if (!req)
		return NULL;
	r = ntr_call_members(cmd, req);
	if (r) {
		*ret_status = r < 0 ? 0 : r;
		return NULL;
	}
	return ntr_steal_ptr(req);
}

static void print_list(const struct ntr_cmd *cmd, const json_t *reply)
{
	const json_t *x;
	size_t i;

	(void)cmd;
	json_array_foreach (json_object_get(reply, "tools"), i, x)
		printf("%s%s\n\n%s\n", i ? "\n\n" : "", ntr_json_str(x, "name", "?"),
		        ntr_json_str(x, "description", ""));
}

static int list(struct ntr_cmd *cmd)
{
	return ntr_simple(cmd,
	        json_pack("{s:s,s:o,s:b}", "op", "tools", "session", ntr_arg(cmd->session), "versions", 1),
	        print_list);
}

int ntr_tool_main(struct ntr_cmd *cmd)
{
	ntr_autojson json_t *args = NULL, *req = NULL, *reply = NULL;
	struct ntr_err e = {0};
	int status;

	if (!cmd->nargs)
		return list(cmd);
	status = take_args(cmd, &args);
	if (status)
		return status;
	req = tool_request(cmd, args, &status);
	if (!req)
		return status ? status : ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	if (ntr_request(cmd, ntr_steal_ptr(req), NULL, 0, NULL, NULL, &reply, &e)) {
		if (ntr_conn_result(cmd->conn))
			ntr_call_print_text(ntr_conn_result(cmd->conn));
		return ntr_cmd_fail(cmd, &e);
	}
	if (cmd->json)
		ntr_json_reply(reply);
	else
		ntr_call_print_text(reply);
	return ntr_json_bool(reply, "is_error", false) ? NTR_EXIT_FAILED : 0;
}
