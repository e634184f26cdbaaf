/* mcp, revisions: how a client chooses one. Up to 2025-11-25 by a handshake, once: initialize. From
 * 2026-07-28 on there is none: each request says in its _meta which revision it is of, and is served by
 * itself. Both kinds may come over one connection. */
#include "ntr_mcp.h"

#include "../base/util.h"

#define META NTR_MCP_META

enum { LISTENS_MAX = 100 };

const struct ntr_mcp_revision ntr_mcp_revisions[] = {
        {.name = "2024-11-05", .handshake = true, .not_found = NTR_RPC_NOT_FOUND},
        {.name = "2025-03-26",
                .handshake = true,
                .not_found = NTR_RPC_NOT_FOUND,
                .annotations = true,
                .batches = true},
        {.name = "2025-06-18",
                .handshake = true,
                .not_found = NTR_RPC_NOT_FOUND,
                .annotations = true,
                .structured = true},
        {.name = "2025-11-25",
                .handshake = true,
                .not_found = NTR_RPC_NOT_FOUND,
                .annotations = true,
                .structured = true},
        {.name = "2026-07-28",
                .not_found = NTR_RPC_PARAMS,
                .annotations = true,
                .structured = true,
                .complete = true},
        {0},
};

static const char instructions[] =
        "These tools work in one workspace: a directory of real files with a history. What a call changes is "
        "one step of it, which can be looked at and taken back. Put everything that belongs to one step into "
        "one call.";

static const struct ntr_mcp_revision *by_name(const char *name)
{
	for (const struct ntr_mcp_revision *r = ntr_mcp_revisions; r->name; r++)
		if (!strcmp(r->name, name))
			return r;
	return NULL;
}

/* Newest first. */
static json_t *names(void)
{
	json_t *list = json_array();

	for (const struct ntr_mcp_revision *r = ntr_mcp_revisions; list && r->name; r++)
		json_array_insert_new(list, 0, json_string(r->name));
	return list;
}

json_t *ntr_mcp_server_info(void)
{
	return json_pack("{s:s,s:s,s:s}", "name", "ntr", "title", "ntr workspace", "version", NTR_VERSION);
}

static json_t *capabilities(void)
{
	return json_pack("{s:{s:b},s:{s:b,s:b},s:{}}", "tools", "listChanged", 0, "resources", "subscribe", 0,
	        "listChanged", 0, "logging");
}

int ntr_mcp_level_of(const char *name)
{
	static const char *const levels[] = {
	        "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

	for (size_t i = 0; i < NTR_COUNT(levels); i++)
		if (!strcmp(levels[i], name))
			return (int)i;
	return -1;
}

/* ---- the handshake */

/* The client's revision where it is one of those, else the newest of them: the client may then refuse. */
static const struct ntr_mcp_revision *agree(const char *asked)
{
	const struct ntr_mcp_revision *best = NULL;

	for (const struct ntr_mcp_revision *r = ntr_mcp_revisions; r->name && r->handshake; r++) {
		best = r;
		if (!strcmp(r->name, asked))
			break;
	}
	return best;
}

void ntr_mcp_initialize(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	const char *asked = ntr_json_str(q->params, "protocolVersion", NULL);
	struct ntr_mcp_req answer = *q;

	if (!asked) {
		ntr_mcp_fail(s, q->id, NTR_RPC_PARAMS, "protocolVersion is missing");
		return;
	}
	answer.rev = s->rev = agree(asked);
	ntr_mcp_result(s, &answer,
	        json_pack("{s:s,s:o,s:o,s:s}", "protocolVersion", s->rev->name, "capabilities",
	                capabilities(), "serverInfo", ntr_mcp_server_info(), "instructions", instructions));
}

/* ---- what a request says of itself */

static bool refuse(struct ntr_mcp *s, const struct ntr_mcp_req *q, const char *text)
{
	ntr_mcp_fail(s, q->id, NTR_RPC_PARAMS, text);
	return false;
}

static bool stateless(struct ntr_mcp *s, struct ntr_mcp_req *q, const json_t *meta, const json_t *version)
{
	const json_t *level = json_object_get(meta, META "logLevel");

	if (!json_is_string(version))
		return refuse(s, q, "_meta: " META "protocolVersion is no string");
	/* First: what else has to be there is the revision's to say. */
	q->rev = by_name(json_string_value(version));
	if (!q->rev) {
		ntr_mcp_fail_data(s, q->id, NTR_RPC_VERSION, "Unsupported protocol version",
		        json_pack("{s:o,s:O}", "supported", names(), "requested", version));
		return false;
	}
	if (!json_is_object(json_object_get(meta, META "clientCapabilities")))
		return refuse(s, q, "_meta: " META "clientCapabilities is missing, or no object");
	q->level = NTR_MCP_SILENT;
	if (level)
		q->level = ntr_mcp_level_of(json_is_string(level) ? json_string_value(level) : "");
	return q->level >= 0 || refuse(s, q, "_meta: there is no such " META "logLevel");
}

bool ntr_mcp_revision_of(struct ntr_mcp *s, struct ntr_mcp_req *q)
{
	const json_t *meta = json_object_get(q->params, "_meta");
	const json_t *version = json_object_get(meta, META "protocolVersion");

	if (version)
		return stateless(s, q, meta, version);
	q->rev = s->rev;
	q->level = -1;
	return q->rev || refuse(s, q,
	                         "_meta: " META "protocolVersion is missing, and there was no initialize "
	                         "before");
}

void ntr_mcp_discover(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	ntr_mcp_result(s, q,
	        json_pack("{s:o,s:o,s:s}", "supportedVersions", names(), "capabilities", capabilities(),
	                "instructions", instructions));
}

/* ---- subscriptions: nothing here changes of which a client could be told, and that is what it is told. Its
 * request stays open until it cancels it or the server ends. */

static json_t *subscription(const json_t *id)
{
	return json_pack("{s:O}", META "subscriptionId", id);
}

void ntr_mcp_listen(struct ntr_mcp *s, const struct ntr_mcp_req *q)
{
	if (!s->listens)
		s->listens = json_array();
	if (json_array_size(s->listens) >= LISTENS_MAX || json_array_append(s->listens, q->id)) {
		ntr_mcp_fail(s, q->id, NTR_RPC_INTERNAL, "too many subscriptions");
		return;
	}
	ntr_mcp_notify(s, "notifications/subscriptions/acknowledged",
	        json_pack("{s:{},s:o}", "notifications", "_meta", subscription(q->id)), true);
}

void ntr_mcp_unlisten(struct ntr_mcp *s, const json_t *id)
{
	for (size_t i = json_array_size(s->listens); i-- > 0;) {
		ntr_autojson json_t *open = json_incref(json_array_get(s->listens, i));
		struct ntr_mcp_req q = {.id = open, .rev = by_name("2026-07-28"), .ttl_ms = -1};

		if (id && !json_equal(id, open))
			continue;
		json_array_remove(s->listens, i);
		ntr_mcp_result(s, &q, json_pack("{s:o}", "_meta", subscription(open)));
	}
}
