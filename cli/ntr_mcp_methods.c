/* mcp, methods: what a message asks for; what needs the daemon goes to a lane. */
#include "ntr_mcp.h"

#include "../base/util.h"

static const char *const revisions[NTR_MCP_REVISIONS] = {
        [NTR_MCP_2024_11] = "2024-11-05",
        [NTR_MCP_2025_03] = "2025-03-26",
        [NTR_MCP_2025_06] = "2025-06-18",
        [NTR_MCP_2025_11] = "2025-11-25",
};

static const char instructions[] =
        "These tools work in one workspace: a directory of real files with a history. What a call changes is "
        "one step of it, which can be looked at and taken back. Put everything that belongs to one step into "
        "one call.";

/* The client's revision where it is known here, else the newest: the client may then refuse. */
static enum ntr_mcp_revision choose(const char *asked)
{
	for (int i = 0; i < NTR_MCP_REVISIONS; i++)
		if (!strcmp(revisions[i], asked))
			return (enum ntr_mcp_revision)i;
	return NTR_MCP_REVISIONS - 1;
}

static void initialize(struct ntr_mcp *s, const json_t *id, json_t *params)
{
	const char *asked = ntr_json_str(params, "protocolVersion", NULL);
	enum ntr_mcp_revision rev;

	if (!asked) {
		ntr_mcp_fail(s, id, NTR_RPC_PARAMS, "protocolVersion is missing");
		return;
	}
	rev = choose(asked);
	s->revision = (int)rev;
	ntr_mcp_result(s, id,
	        json_pack("{s:s,s:{s:{s:b},s:{s:b,s:b},s:{}},s:{s:s,s:s,s:s},s:s}", "protocolVersion",
	                revisions[rev], "capabilities", "tools", "listChanged", 0, "resources", "subscribe",
	                0, "listChanged", 0, "logging", "serverInfo", "name", "ntr", "title", "ntr workspace",
	                "version", NTR_VERSION, "instructions", instructions));
}

static void set_level(struct ntr_mcp *s, const json_t *id, json_t *params)
{
	static const struct {
		const char *name;
		int level;
	} levels[] = {{"debug", NTR_MCP_DEBUG}, {"info", NTR_MCP_INFO}, {"notice", NTR_MCP_NOTICE},
	        {"warning", NTR_MCP_WARNING}, {"error", NTR_MCP_ERROR}, {"critical", NTR_MCP_ERROR + 1},
	        {"alert", NTR_MCP_ERROR + 2}, {"emergency", NTR_MCP_ERROR + 3}};
	const char *name = ntr_json_str(params, "level", "");

	for (size_t i = 0; i < NTR_COUNT(levels); i++)
		if (!strcmp(levels[i].name, name)) {
			s->level = levels[i].level;
			ntr_mcp_result(s, id, json_object());
			return;
		}
	ntr_mcp_fail(s, id, NTR_RPC_PARAMS,
	        "there is no such level; debug, info, notice, warning, error, "
	        "critical, alert and emergency are");
}

static void submit(
        struct ntr_mcp *s, const char *session, const json_t *id, json_t *params, ntr_mcp_work *work)
{
	if (!ntr_mcp_submit(s, session, id, params, work))
		ntr_mcp_fail(s, id, NTR_RPC_INTERNAL, "out of memory or threads");
}

static void tools_list(struct ntr_mcp *s, const json_t *id, json_t *params)
{
	submit(s, "", id, params, ntr_mcp_tools_list);
}

static void tools_call(struct ntr_mcp *s, const json_t *id, json_t *params)
{
	const char *session = ntr_mcp_tool_session(s, params);

	if (!ntr_json_str(params, "name", NULL))
		ntr_mcp_fail(s, id, NTR_RPC_PARAMS, "name is missing");
	else if (!session)
		ntr_mcp_fail(s, id, NTR_RPC_PARAMS, "session is no name of a session");
	else
		submit(s, session, id, params, ntr_mcp_tools_call);
}

static void resources_list(struct ntr_mcp *s, const json_t *id, json_t *params)
{
	(void)params;
	ntr_mcp_result(s, id, ntr_mcp_resources());
}

static void templates_list(struct ntr_mcp *s, const json_t *id, json_t *params)
{
	(void)params;
	ntr_mcp_result(s, id, ntr_mcp_templates());
}

static void resources_read(struct ntr_mcp *s, const json_t *id, json_t *params)
{
	submit(s, "", id, params, ntr_mcp_resources_read);
}

static void ping(struct ntr_mcp *s, const json_t *id, json_t *params)
{
	(void)params;
	ntr_mcp_result(s, id, json_object());
}

static const struct {
	const char *name;
	void (*fn)(struct ntr_mcp *s, const json_t *id, json_t *params);
	bool early; /* before initialize too */
} methods[] = {
        {"initialize", initialize, true},
        {"ping", ping, true},
        {"logging/setLevel", set_level, false},
        {"tools/list", tools_list, false},
        {"tools/call", tools_call, false},
        {"resources/list", resources_list, false},
        {"resources/templates/list", templates_list, false},
        {"resources/read", resources_read, false},
};

void ntr_mcp_request(struct ntr_mcp *s, const json_t *id, const char *method, json_t *params)
{
	char text[160];

	for (size_t i = 0; i < NTR_COUNT(methods); i++) {
		if (strcmp(methods[i].name, method) != 0)
			continue;
		if (s->revision < 0 && !methods[i].early)
			ntr_mcp_fail(s, id, NTR_RPC_REQUEST, "the first request has to be initialize");
		else
			methods[i].fn(s, id, params);
		return;
	}
	snprintf(text, sizeof text, "there is no method '%.100s'", method);
	ntr_mcp_fail(s, id, NTR_RPC_METHOD, text);
}

void ntr_mcp_notified(struct ntr_mcp *s, const char *method, const json_t *params)
{
	if (!strcmp(method, "notifications/cancelled"))
		ntr_mcp_cancel(s, json_object_get(params, "requestId"));
}
