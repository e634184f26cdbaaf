/* mcp, methods: what a message asks for; what needs the daemon goes to a lane. */
#include "ntr_mcp.h"

#include "../base/util.h"

typedef void method_fn(struct ntr_mcp *s, const struct ntr_mcp_req *q);

enum { KEEP_MS = 3600000 }; /* what does not change while the server runs */

static void set_level(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	int level = ntr_mcp_level_of(ntr_json_str(q->params, "level", ""));

	if (level < 0) {
		ntr_mcp_fail(s, q->id, NTR_RPC_PARAMS,
		        "there is no such level; debug, info, notice, warning, error, critical, alert and "
		        "emergency are");
		return;
	}
	s->level = level;
	ntr_mcp_result(s, q, json_object());
}

static void tools_list(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	ntr_mcp_submit(s, "", q, ntr_mcp_tools_list);
}

static void tools_call(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	const char *session = ntr_mcp_tool_session(s, q->params);

	if (!ntr_json_str(q->params, "name", NULL))
		ntr_mcp_fail(s, q->id, NTR_RPC_PARAMS, "name is missing");
	else if (!session)
		ntr_mcp_fail(s, q->id, NTR_RPC_PARAMS, "session is no name of a session");
	else
		ntr_mcp_submit(s, session, q, ntr_mcp_tools_call);
}

static void resources_list(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	ntr_mcp_result(s, q, ntr_mcp_resources());
}

static void templates_list(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	ntr_mcp_result(s, q, ntr_mcp_templates());
}

static void resources_read(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	ntr_mcp_submit(s, "", q, ntr_mcp_resources_read);
}

static void ping(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	ntr_mcp_result(s, q, json_object());
}

enum {
	EARLY = 1 /* before initialize too */,
	HANDSHAKE = 2 /* revisions with one */,
	STATELESS = 4,
	ALL = 6
};

static const struct method {
	const char *name;
	method_fn *fn;
	unsigned when;
	long ttl_ms;
} methods[] = {
        {"initialize", ntr_mcp_initialize, EARLY | HANDSHAKE, -1},
        {"ping", ping, EARLY | HANDSHAKE, -1},
        {"logging/setLevel", set_level, HANDSHAKE, -1},
        {"server/discover", ntr_mcp_discover, STATELESS, KEEP_MS},
        {"subscriptions/listen", ntr_mcp_listen, STATELESS, -1},
        {"tools/list", tools_list, ALL, KEEP_MS},
        {"tools/call", tools_call, ALL, -1},
        {"resources/list", resources_list, ALL, KEEP_MS},
        {"resources/templates/list", templates_list, ALL, KEEP_MS},
        {"resources/read", resources_read, ALL, 0},
};

static const struct method *find(const char *name)
{
	for (size_t i = 0; i < NTR_COUNT(methods); i++)
		if (!strcmp(methods[i].name, name))
			return &methods[i];
	return NULL;
}

/* Before initialize a request has no revision, unless it says so itself; initialize is what it is under any.
 */
static bool early(const struct ntr_mcp *s, const struct method *m, const json_t *params)
{
	const json_t *meta = json_object_get(params, "_meta");

	if (!m || !(m->when & EARLY))
		return false;
	return m->fn == ntr_mcp_initialize || (!s->rev && !json_object_get(meta, NTR_MCP_META_VERSION));
}

void ntr_mcp_request(struct ntr_mcp *s, json_t *id, const char *method, json_t *params)
{
	const struct method *m = find(method);
	struct ntr_mcp_req q = {.id = id, .params = params, .level = -1, .ttl_ms = m ? m->ttl_ms : -1};
	char text[160];

	if (early(s, m, params)) {
		m->fn(s, &q);
		return;
	}
	if (!ntr_mcp_revision_of(s, &q))
		return;
	if (m && m->when & (q.rev->handshake ? HANDSHAKE : STATELESS)) {
		m->fn(s, &q);
		return;
	}
	snprintf(text, sizeof text, "revision %s has no method '%.100s' here", q.rev->name, method);
	ntr_mcp_fail(s, id, NTR_RPC_METHOD, text);
}

void ntr_mcp_notified(struct ntr_mcp *s, const char *method, const json_t *params)
{
	const json_t *id = json_object_get(params, "requestId");

	if (strcmp(method, "notifications/cancelled") != 0 || !ntr_mcp_is_id(id))
		return;
	ntr_mcp_unlisten(s, id);
	ntr_mcp_cancel(s, id);
}
