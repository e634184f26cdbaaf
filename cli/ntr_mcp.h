/* mcp: the server of the Model Context Protocol, over stdin and stdout. What its files share.
 *
 *     ntr_mcp.c            options, start, end      ntr_mcp_rpc.c    lines in, JSON-RPC's rules
 *     ntr_mcp_revision.c   revisions, and how a client chooses one
 *     ntr_mcp_out.c        lines out                ntr_mcp_methods.c    what a message asks for
 *     ntr_mcp_lane.c       who works: a lane for each session, in order
 *     ntr_mcp_cancel.c     cancelling, progress, the end
 *     ntr_mcp_tools.c      tools                    ntr_mcp_files.c  resources
 *
 * The main thread reads and never waits for a client that does not: one thread writes. What needs the daemon
 * is done by lanes, each a thread with a connection of its own: the calls of one session follow one another
 * in the order they came, sessions run side by side, and reads wait for no call. */
#ifndef NTR_CLI_NTR_MCP_H
#define NTR_CLI_NTR_MCP_H

#include "ntr.h"

#include "../base/buf.h"

#include <pthread.h>
#include <sys/queue.h>

#define NTR_MCP_META         "io.modelcontextprotocol/"
#define NTR_MCP_META_VERSION NTR_MCP_META "protocolVersion"

/* JSON-RPC's error codes, those of the protocol, and one for what was cancelled (as the Language Server
 * Protocol has it). */
enum {
	NTR_RPC_PARSE = -32700,
	NTR_RPC_REQUEST = -32600,
	NTR_RPC_METHOD = -32601,
	NTR_RPC_PARAMS = -32602,
	NTR_RPC_INTERNAL = -32603,
	NTR_RPC_NOT_FOUND = -32002, /* each revision has its own for it: not_found */
	NTR_RPC_VERSION = -32022,
	NTR_RPC_CANCELLED = -32800,
};

/* What a revision of the protocol has and others have not. Oldest first; a NULL name ends them. */
struct ntr_mcp_revision {
	const char *name;
	int not_found;    /* the code for a resource that is not there */
	bool handshake;   /* initialize agrees on it */
	bool annotations; /* tools have them */
	bool structured;  /* titles, structured results, links to resources */
	bool batches;
	bool complete; /* a result says its type, who made it and how long it holds */
};
extern const struct ntr_mcp_revision ntr_mcp_revisions[];

/* syslog's severities, as the protocol names them, from debug on. */
enum ntr_mcp_level { NTR_MCP_DEBUG, NTR_MCP_INFO, NTR_MCP_NOTICE, NTR_MCP_WARNING, NTR_MCP_ERROR };
enum { NTR_MCP_SILENT = 100 };

struct ntr_mcp;
struct ntr_mcp_job;
struct ntr_mcp_lane;

/* A request, and how it is to be answered. References are borrowed, but a job's. */
struct ntr_mcp_req {
	json_t *id, *params;
	const struct ntr_mcp_revision *rev;
	int level;   /* of log messages; -1: the connection's */
	long ttl_ms; /* how long a client may keep the result; -1: such results are not kept */
};

/* Work of a lane: gives the result (a new reference) or fails with an error of JSON-RPC's. */
struct ntr_mcp_error {
	int code;
	char text[1024];
};
typedef json_t *ntr_mcp_work(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_mcp_error *err);

struct ntr_mcp_job {
	TAILQ_ENTRY(ntr_mcp_job) link;
	struct ntr_mcp_req req;
	size_t size;         /* of its line */
	const json_t *token; /* of progress; NULL: none wanted */
	ntr_mcp_work *work;
	struct ntr_mcp_lane *lane;
	uint64_t began_ns;     /* 0: it waits */
	uint64_t cancelled_ns; /* 0: it is not */
	unsigned urged;        /* steps taken since, of those in ntr_mcp_cancel.c */
};
TAILQ_HEAD(ntr_mcp_jobs, ntr_mcp_job);

struct ntr_mcp_lane {
	LIST_ENTRY(ntr_mcp_lane) link;
	struct ntr_mcp *s;
	char *session; /* "": the lane of reads */
	struct ntr_mcp_jobs jobs;
	struct ntr_mcp_job *now;
	struct ntr_conn *conn; /* set while it is usable; changed under the server's lock */
	bool asked;            /* a request is out and its answer not here: a signal may be sent */
	pthread_cond_t more;
};

struct ntr_mcp_line {
	STAILQ_ENTRY(ntr_mcp_line) link;
	size_t len;
	char text[];
};

/* Lines that wait to be written. */
struct ntr_mcp_out {
	pthread_mutex_t m;
	pthread_cond_t more, less;
	STAILQ_HEAD(, ntr_mcp_line) lines;
	size_t bytes;        /* with the one being written */
	uint64_t since_ns;   /* when its writing began; 0: none is written */
	pthread_t reader;    /* the thread that reads messages */
	_Atomic bool broken; /* nobody reads them */
};

struct ntr_mcp {
	struct ntr_cmd *cmd;
	const char *session;
	json_t *listing; /* the request for the list of tools */
	json_t *call;    /* the members that every use of a tool has */
	char *wsroot;    /* set together with tools */
	json_t *tools;   /* name -> description; made once, then never changed */
	/* Of the thread that reads. */
	const struct ntr_mcp_revision *rev; /* that initialize agreed on; NULL: none yet */
	json_t *listens;                    /* ids of open subscriptions */
	size_t line;                        /* size of the line in hand */
	/* Of all. */
	_Atomic int level;
	struct ntr_mcp_out out;
	pthread_mutex_t m;         /* guards all below; taken before out.m */
	pthread_cond_t idle, busy; /* no job is left; there is one */
	LIST_HEAD(, ntr_mcp_lane) lanes;
	unsigned nlanes, jobs;
	size_t bytes; /* of jobs */
};

/* ---- rpc */

/* Reads messages until the end of stdin. 0, or negative errno with text. */
int ntr_mcp_read(struct ntr_mcp *s, struct ntr_err *e);
/* What is an id of JSON-RPC's (and a token of progress). */
bool ntr_mcp_is_id(const json_t *id);

/* ---- out */

/* Starts the thread that writes. 0 or negative errno. */
int ntr_mcp_out_start(struct ntr_mcp *s);
/* Whether nobody reads: stdout's other end is closed, or has taken nothing for half a minute while a line was
 * being written. For the end only: before, such a client is waited for. Whoever waits for it goes on. */
bool ntr_mcp_out_gone(struct ntr_mcp *s);
/* Waits until all is written, or nobody reads. */
void ntr_mcp_out_flush(struct ntr_mcp *s);
/* Sends a result or an error; id NULL: null. They take result and data over; a NULL result is "out of
 * memory".
 */
void ntr_mcp_result(struct ntr_mcp *s, const struct ntr_mcp_req *q, json_t *result);
void ntr_mcp_fail(struct ntr_mcp *s, const json_t *id, int code, const char *text);
void ntr_mcp_fail_data(struct ntr_mcp *s, const json_t *id, int code, const char *text, json_t *data);
/* Sends a notification; takes params over. One that finds the client far behind is dropped, unless it must
 * not be missed. */
void ntr_mcp_notify(struct ntr_mcp *s, const char *method, json_t *params, bool must);
/* A log message about a request, where the client wants to hear of such; takes data over. */
void ntr_mcp_log(struct ntr_mcp *s, const struct ntr_mcp_req *q, enum ntr_mcp_level level, json_t *data);

/* ---- revisions */

/* Sets rev and level of a request that says by itself which revision it is of, or takes the connection's.
 * false: an error was sent. */
bool ntr_mcp_revision_of(struct ntr_mcp *s, struct ntr_mcp_req *q);
/* A level by its name; -1: there is none. */
int ntr_mcp_level_of(const char *name);
/* {"name","title","version"} of this server. */
json_t *ntr_mcp_server_info(void);
void ntr_mcp_initialize(struct ntr_mcp *s, const struct ntr_mcp_req *q);
void ntr_mcp_discover(struct ntr_mcp *s, const struct ntr_mcp_req *q);
void ntr_mcp_listen(struct ntr_mcp *s, const struct ntr_mcp_req *q);
/* Ends the subscription with this id, or all (NULL). */
void ntr_mcp_unlisten(struct ntr_mcp *s, const json_t *id);

/* ---- methods */

/* A whole message without an id, and one with it. */
void ntr_mcp_notified(struct ntr_mcp *s, const char *method, const json_t *params);
void ntr_mcp_request(struct ntr_mcp *s, json_t *id, const char *method, json_t *params);

/* ---- lanes */

/* Gives work to the session's lane ("": reads). What cannot be taken is answered. */
void ntr_mcp_submit(struct ntr_mcp *s, const char *session, const struct ntr_mcp_req *q, ntr_mcp_work *work);
/* One job less; with the lock held. Frees it. */
void ntr_mcp_job_done(struct ntr_mcp *s, struct ntr_mcp_job *job);
/* For work: one request over the lane's connection, which is made when there is none. Never repeated. req is
 * taken over. `feed`, unless NULL, runs between the request and its answer. 0, -ECANCELED, or negative errno
 * with text. */
typedef void ntr_mcp_feed(void *user);
int ntr_mcp_ask_feed(struct ntr_mcp_job *job, json_t *req, const int *fds, size_t nfds, ntr_mcp_feed *feed,
        void *user, json_t **ret, struct ntr_err *e);
int ntr_mcp_ask(struct ntr_mcp_job *job, json_t *req, json_t **ret, struct ntr_err *e);
/* "ntr: …" of e as an error of code. Returns NULL. */
json_t *ntr_mcp_work_failed(struct ntr_mcp_error *err, int code, const struct ntr_err *e);

/* ---- cancelling, the end */

/* Cancels a request that waits or runs; an unknown one is none of ours any more. */
void ntr_mcp_cancel(struct ntr_mcp *s, const json_t *id);
/* Asks a running job's call to end, where it has not been asked; with the lock held. */
void ntr_mcp_urge(struct ntr_mcp_lane *lane);
/* Sends progress, and urges what was cancelled and does not end, while there are jobs. A thread's main. */
void *ntr_mcp_ticker(void *arg);
/* Waits until everything is answered, or nobody reads the answers. */
void ntr_mcp_drain(struct ntr_mcp *s);

/* ---- tools, files */

ntr_mcp_work ntr_mcp_tools_list, ntr_mcp_tools_call, ntr_mcp_resources_read;
/* The session that a use of a tool names, or the server's own. NULL: what it names cannot be one. */
const char *ntr_mcp_tool_session(const struct ntr_mcp *s, const json_t *params);
json_t *ntr_mcp_resources(void);
json_t *ntr_mcp_templates(void);
/* A file's URI below workspace://, in fresh memory. path: relative to the workspace. */
char *ntr_mcp_uri(const char *path);

#endif
