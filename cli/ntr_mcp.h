/* mcp: the server of the Model Context Protocol, over stdin and stdout. What its files share.
 *
 *     ntr_mcp.c            options, start, end      ntr_mcp_rpc.c    lines in and out, JSON-RPC's rules
 *     ntr_mcp_methods.c    what is no work: initialize, lists, cancel
 *     ntr_mcp_lane.c       who works: a lane for each session, in order; cancellation, progress
 *     ntr_mcp_tools.c      tools                    ntr_mcp_files.c  resources
 *
 * The main thread reads. What needs the daemon is done by lanes, each a thread with a connection of its own:
 * the calls of one session follow one another in the order they came, sessions run side by side, and reads
 * wait for no call. Revisions: 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25. */
#ifndef NTR_CLI_NTR_MCP_H
#define NTR_CLI_NTR_MCP_H

#include "ntr.h"

#include "../base/buf.h"

#include <pthread.h>
#include <sys/queue.h>

/* JSON-RPC's error codes, and one for what was cancelled (as the Language Server Protocol has it). */
enum {
	NTR_RPC_PARSE = -32700,
	NTR_RPC_REQUEST = -32600,
	NTR_RPC_METHOD = -32601,
	NTR_RPC_PARAMS = -32602,
	NTR_RPC_INTERNAL = -32603,
	NTR_RPC_NOT_FOUND = -32002,
	NTR_RPC_CANCELLED = -32800,
};

/* The order of revisions; what a feature needs is compared with it. */
enum ntr_mcp_revision {
	NTR_MCP_2024_11,
	NTR_MCP_2025_03,
	NTR_MCP_2025_06,
	NTR_MCP_2025_11,
	NTR_MCP_REVISIONS
};

/* syslog's severities, as the protocol names them, from debug on. */
enum ntr_mcp_level { NTR_MCP_DEBUG, NTR_MCP_INFO, NTR_MCP_NOTICE, NTR_MCP_WARNING, NTR_MCP_ERROR };

struct ntr_mcp;
struct ntr_mcp_job;
struct ntr_mcp_lane;

/* Work of a lane: gives the result (a new reference) or fails with an error of JSON-RPC's. */
struct ntr_mcp_error {
	int code;
	char text[1024];
};
typedef json_t *ntr_mcp_work(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_mcp_error *err);

struct ntr_mcp_job {
	TAILQ_ENTRY(ntr_mcp_job) link;
	json_t *id, *params;
	const json_t *token; /* of progress; NULL: none wanted */
	ntr_mcp_work *work;
	struct ntr_mcp_lane *lane;
	uint64_t began_ns;     /* 0: it waits */
	uint64_t cancelled_ns; /* 0: it is not */
	bool killed;           /* the second signal was sent */
};

struct ntr_mcp_lane {
	LIST_ENTRY(ntr_mcp_lane) link;
	struct ntr_mcp *s;
	char *session; /* "": the lane of reads */
	TAILQ_HEAD(, ntr_mcp_job) jobs;
	struct ntr_mcp_job *now;
	struct ntr_conn *conn; /* set while it is usable; changed under the server's lock */
	pthread_cond_t more;
};

struct ntr_mcp {
	struct ntr_cmd *cmd;
	const char *session;
	json_t *listing;      /* the request for the list of tools */
	json_t *call;         /* the members that every use of a tool has */
	char *wsroot;         /* set together with tools */
	json_t *tools;        /* name -> description; of the lane of reads and, once made, never changed */
	_Atomic int revision; /* -1: not initialized yet */
	_Atomic int level;
	pthread_mutex_t out; /* whole lines only */
	_Atomic bool broken; /* nobody reads them */
	pthread_mutex_t m;   /* guards all below */
	pthread_cond_t idle; /* no job is left */
	LIST_HEAD(, ntr_mcp_lane) lanes;
	unsigned jobs;
};

/* ---- rpc */

/* Reads messages until the end of stdin. 0, or negative errno with text. */
int ntr_mcp_read(struct ntr_mcp *s, struct ntr_err *e);
/* Sends a result or an error; id NULL: null. They take result over; NULL is "out of memory". */
void ntr_mcp_result(struct ntr_mcp *s, const json_t *id, json_t *result);
void ntr_mcp_fail(struct ntr_mcp *s, const json_t *id, int code, const char *text);
/* Sends a notification; takes params over. */
void ntr_mcp_notify(struct ntr_mcp *s, const char *method, json_t *params);
/* A log message, where the client wants to hear of such; takes data over. */
void ntr_mcp_log(struct ntr_mcp *s, enum ntr_mcp_level level, json_t *data);

/* ---- methods */

/* A whole message without an id, and one with it. */
void ntr_mcp_notified(struct ntr_mcp *s, const char *method, const json_t *params);
void ntr_mcp_request(struct ntr_mcp *s, const json_t *id, const char *method, json_t *params);

/* ---- lanes */

/* Gives work to the session's lane ("": reads). false: out of memory or threads. */
bool ntr_mcp_submit(
        struct ntr_mcp *s, const char *session, const json_t *id, json_t *params, ntr_mcp_work *work);
/* Cancels a request that waits or runs; an unknown one is none of ours any more. */
void ntr_mcp_cancel(struct ntr_mcp *s, const json_t *id);
void ntr_mcp_cancel_all(struct ntr_mcp *s);
/* Waits until everything is answered, or nobody reads the answers. */
void ntr_mcp_drain(struct ntr_mcp *s);
/* Sends progress, and the second signal to what does not end; called about twice a second. */
void ntr_mcp_tick(struct ntr_mcp *s);
/* For work: one request over the lane's connection, which is made when there is none. Never repeated. req is
 * taken over. 0, or negative errno with text. */
int ntr_mcp_ask(
        struct ntr_mcp_job *job, json_t *req, const int *fds, size_t nfds, json_t **ret, struct ntr_err *e);
/* "ntr: …" of e as an error of code. Returns NULL. */
json_t *ntr_mcp_work_failed(struct ntr_mcp_error *err, int code, const struct ntr_err *e);

/* ---- tools, files */

/* Fills s->tools. 0, or negative errno with text. */
int ntr_mcp_tools_load(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_err *e);
ntr_mcp_work ntr_mcp_tools_list, ntr_mcp_tools_call, ntr_mcp_resources_read;
/* The session that a use of a tool names, or the server's own. NULL: what it names cannot be one. */
const char *ntr_mcp_tool_session(const struct ntr_mcp *s, const json_t *params);
json_t *ntr_mcp_resources(void);
json_t *ntr_mcp_templates(void);
/* A file's URI below workspace://, in fresh memory. path: relative to the workspace. */
char *ntr_mcp_uri(const char *path);

#endif
