/* mcp: `ntr mcp`: options, start and end of the server. */
#include "ntr_mcp.h"
#include "ntr_call.h"

#include "../base/util.h"

#include <errno.h>
#include <signal.h>

/* ---- options */

static json_t *modules_of(const struct ntr_cmd *cmd)
{
	json_t *names = json_array();

	for (size_t i = 0; names && i < cmd->nopts; i++)
		if (cmd->opts[i].key == NTR_OPT_MODULE)
			json_array_append_new(names, ntr_arg(cmd->opts[i].value));
	return names;
}

/* Members of the request for the list: what the tools are to look like. */
static json_t *listing_of(const struct ntr_cmd *cmd, const char *mode, const json_t *modules)
{
	ntr_autojson json_t *o =
	        json_pack("{s:s,s:s,s:s}", "op", "tools", "session", cmd->session, "mode", mode);

	if (!o)
		return NULL;
	if (ntr_cmd_opt(cmd, NTR_OPT_VERSIONS) && json_object_set_new(o, "versions", json_true()))
		return NULL;
	if (ntr_cmd_opt(cmd, NTR_OPT_NO_CACHE) && json_object_set_new(o, "cache", json_false()))
		return NULL;
	if (json_array_size(modules) && json_object_set(o, "modules", (json_t *)(uintptr_t)modules))
		return NULL;
	return ntr_steal_ptr(o);
}

/* Members that every use of a tool has. 0, negative errno, or the exit status after a complaint. */
static int call_of(struct ntr_cmd *cmd, const json_t *modules, json_t **ret)
{
	ntr_autojson json_t *o = json_pack("{s:s}", "op", "tool");
	const char *python = ntr_cmd_opt(cmd, NTR_OPT_PYTHON);
	int r = o ? ntr_call_members(cmd, o) : -ENOMEM;

	if (!r && python)
		r = json_object_set_new(o, "python", ntr_arg(python));
	if (!r && ntr_cmd_opt(cmd, NTR_OPT_CWD)) /* the first calls may be those that make it */
		r = json_object_set_new(o, "cwd_hint", json_true());
	if (!r && ntr_cmd_opt(cmd, NTR_OPT_NO_CACHE))
		r = json_object_set_new(o, "cache", json_false());
	if (!r && json_array_size(modules))
		r = json_object_set(o, "preload", (json_t *)(uintptr_t)modules);
	if (!r)
		*ret = ntr_steal_ptr(o);
	return r == -1 ? -ENOMEM : r;
}

static int options(struct ntr_mcp *s)
{
	static const char *const modes[] = {"auto", "terminal", "split"};
	const char *mode = ntr_cmd_opt(s->cmd, NTR_OPT_TOOLS);
	ntr_autojson json_t *modules = modules_of(s->cmd);
	bool known = !mode;
	int r;

	for (size_t i = 0; mode && i < NTR_COUNT(modes); i++)
		known = known || !strcmp(mode, modes[i]);
	if (!known)
		return ntr_cmd_usage(s->cmd, "--tools '%s' is none of auto, terminal, split", mode);
	s->listing = listing_of(s->cmd, mode ? mode : "auto", modules);
	r = s->listing ? call_of(s->cmd, modules, &s->call) : -ENOMEM;
	return r < 0 ? ntr_cmd_die(s->cmd, r, NULL, "%s", strerror(-r)) : r;
}

/* ---- start and end */

/* The store, its daemon and the session's name are looked at at once: what is wrong with them shows where the
 * server is set up, and not in the middle of somebody's work. */
static int greet(struct ntr_mcp *s, struct ntr_err *e)
{
	int r = ntr_request(s->cmd, json_deep_copy(s->listing), NULL, 0, NULL, NULL, NULL, e);

	if (r)
		return r;
	ntr_conn_close(s->cmd->conn);
	s->cmd->conn = NULL;
	return 0;
}

static int serve(struct ntr_mcp *s)
{
	struct ntr_err e = {0};
	pthread_t thread;
	int r;

	signal(SIGPIPE, SIG_IGN);
	if (greet(s, &e))
		return ntr_cmd_fail(s->cmd, &e);
	r = ntr_mcp_out_start(s);
	if (!r)
		r = -pthread_create(&thread, NULL, ntr_mcp_ticker, s);
	if (r)
		return ntr_cmd_die(s->cmd, r, NULL, "%s", strerror(-r));
	r = ntr_mcp_read(s, &e);
	ntr_mcp_drain(s);
	return r ? ntr_cmd_fail(s->cmd, &e) : 0;
}

int ntr_mcp_main(struct ntr_cmd *cmd)
{
	/* Lanes outlive this function: what they use is never freed. */
	static struct ntr_mcp s = {.level = NTR_MCP_INFO,
	        .out = {.m = PTHREAD_MUTEX_INITIALIZER,
	                .more = PTHREAD_COND_INITIALIZER,
	                .less = PTHREAD_COND_INITIALIZER},
	        .m = PTHREAD_MUTEX_INITIALIZER,
	        .idle = PTHREAD_COND_INITIALIZER,
	        .busy = PTHREAD_COND_INITIALIZER};
	int r;

	s.cmd = cmd;
	s.session = cmd->session;
	LIST_INIT(&s.lanes);
	r = options(&s);
	return r ? r : serve(&s);
}
