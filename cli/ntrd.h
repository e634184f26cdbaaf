/* ntrd: the daemon. What its files share.
 *
 *     ntrd.c            options, start, idle exit              ntrd_daemon.c   detaching, log, signals
 *     ntrd_server.c     socket, connections, frames            ntrd_request.c  one request: members, reply,
 * errors ntrd_watch.c      signals and hang-ups of running calls  ntrd_json.c     rows ntrd_ops_*.c      one
 * handler per op of docs/protocol.md; ntrd_ops.c is the table
 *
 * Each connection has a thread of its own that reads a request, runs its handler and sends the reply; a
 * client that says nothing or reads nothing holds up nobody else. Server and request know nothing of stores:
 * they are given a table of ops, and so can be tested with one of their own. */
#ifndef NTR_CLI_NTRD_H
#define NTR_CLI_NTRD_H

#include "../base/err.h"
#include "../base/json.h"
#include "../base/wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { NTRD_PROTOCOL = 1 };

struct ntr_ctl;
struct ntr_head;
struct ntr_commit;
struct ntr_stats;
struct ntr_diff;
struct ntr_diff_entry;

/* ---- request */

struct ntrd_server;
struct ntrd_conn;
struct ntrd_op;

struct ntrd_req {
	struct ntrd_server *srv;
	struct ntrd_conn *conn;
	struct ntr_ctl *ctl;
	const struct ntrd_op *op;
	const json_t *msg;
	int *fds; /* closed after the request; a handler that keeps one sets it to -1 */
	size_t nfds;
	json_t *reply;            /* the final reply's members beyond ok; made by the dispatcher */
	bool has_result;          /* an error reply carries reply's members as `result` */
	int reply_fd;             /* goes along with the reply and is closed; -1: none */
	bool silent;              /* no reply at all */
	bool hangup;              /* the connection ends after the reply */
	const char *kind;         /* of an error, where its errno does not tell */
	struct ntrd_owned *owned; /* memory that lives as long as the request */
	struct ntr_err *e;        /* error of the handler and of the ntrd_arg_* calls */
	int bad;                  /* first error of an ntrd_arg_* call; sticky */
	_Atomic uint64_t paced_ns;
};

/* A handler returns 0, or negative errno with text in rq->e. */
typedef int ntrd_op_fn(struct ntrd_req *rq);
struct ntrd_op {
	const char *name;
	ntrd_op_fn *fn;
	unsigned min_fds, max_fds;
	bool before_hello;
};

/* Members of a request. An absent optional member gives the default; a missing required one, a wrong type or
 * a value out of range sets rq->bad (first one wins) and rq->e, and gives the default: a handler reads all,
 * then checks bad. Strings live as long as the request. */
enum ntrd_need { NTRD_OPTIONAL, NTRD_REQUIRED };
const char *ntrd_arg_str(struct ntrd_req *rq, const char *key, enum ntrd_need need);
/* Bytes without a NUL among them. */
const char *ntrd_arg_bytes(struct ntrd_req *rq, const char *key, enum ntrd_need need);
/* The member path_first of a call: a directory that comes before PATH. NULL: none. */
const char *ntrd_arg_path_first(struct ntrd_req *rq);
/* The member python of a call: an interpreter. NULL: none is chosen. */
const char *ntrd_arg_python(struct ntrd_req *rq);
/* Bytes of any kind; NULL: absent. */
const char *ntrd_arg_blob(struct ntrd_req *rq, const char *key, size_t *ret_len);
/* An array of bytes as a vector; NULL: absent. */
char *const *ntrd_arg_strv(struct ntrd_req *rq, const char *key);
bool ntrd_arg_bool(struct ntrd_req *rq, const char *key);
int64_t ntrd_arg_int(struct ntrd_req *rq, const char *key, int64_t min, int64_t max, int64_t def);
double ntrd_arg_real(struct ntrd_req *rq, const char *key, double min, double max, double def);
/* One of the NULL-terminated words; its index, -1 when absent. */
int ntrd_arg_word(struct ntrd_req *rq, const char *key, const char *const *words);
/* Whether the member is there and not null. */
bool ntrd_arg_has(const struct ntrd_req *rq, const char *key);
/* Reports a bad request: sets rq->bad. Returns -EINVAL. */
int ntrd_arg_bad(struct ntrd_req *rq, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Keeps memory until the request's end, freed with fn. 0 or -ENOMEM (p is freed then). */
int ntrd_own(struct ntrd_req *rq, void *p, void (*fn)(void *));

/* Adds a member to the reply; takes value over (NULL: out of memory). 0 or -ENOMEM. */
int ntrd_reply_set(struct ntrd_req *rq, const char *key, json_t *value);
/* Adds all members of row, which is taken over (NULL: out of memory). */
int ntrd_reply_row(struct ntrd_req *rq, json_t *row);
/* Sends {"event":name, …members of o}; o is taken over (NULL: out of memory). From any thread. 0 or negative
 * errno. */
int ntrd_event(struct ntrd_req *rq, const char *name, json_t *o);
/* Sets reply[key] to the array, or streams its members as row events where the request asked for that. Takes
 * it over. */
int ntrd_reply_list(struct ntrd_req *rq, const char *key, json_t *array);
/* Fits ntr_progress.fn; user: the request. */
void ntrd_progress(void *user, uint64_t entries, uint64_t bytes);
/* Says true at most ten times a second. */
bool ntrd_paced(struct ntrd_req *rq);

/* The error object of docs/protocol.md; kind NULL: from the errno. */
json_t *ntrd_error_json(const struct ntr_err *e, const char *kind);
const char *ntrd_error_kind(int code);

/* Runs one request of a connection and sends the reply. 0: go on; else the connection ends. */
int ntrd_dispatch(struct ntrd_server *srv, struct ntrd_conn *conn, json_t *msg, int *fds, size_t nfds);

/* ---- server */

struct ntrd_server_options {
	struct ntr_ctl *ctl;
	const struct ntrd_op *ops; /* ends with a NULL name */
	const char *store;
	int listen_fd; /* listening and blocking; borrowed */
};
/* Serves from now on. */
int ntrd_server_new(const struct ntrd_server_options *o, struct ntrd_server **ret);
unsigned ntrd_server_connections(struct ntrd_server *srv);
/* Ends running calls as if their clients had gone, lets every connection finish its request and waits for
 * that at most timeout_ms. 0, or -ETIMEDOUT with connections left. */
int ntrd_server_drain(struct ntrd_server *srv, unsigned timeout_ms);
/* Only after a drain that left nothing. */
void ntrd_server_free(struct ntrd_server *srv);

/* For handlers and the dispatcher. */
struct ntr_ctl *ntrd_server_ctl(struct ntrd_server *srv);
const struct ntrd_op *ntrd_server_ops(struct ntrd_server *srv);
const char *ntrd_server_store(struct ntrd_server *srv);
struct ntrd_watcher *ntrd_server_watcher(struct ntrd_server *srv);
uint64_t ntrd_server_requests(struct ntrd_server *srv);
uint64_t ntrd_server_uptime_ns(struct ntrd_server *srv);
/* The main loop is to end: its descriptor, an eventfd, becomes readable. */
void ntrd_server_ask_stop(struct ntrd_server *srv);
int ntrd_server_stop_fd(struct ntrd_server *srv);

int ntrd_conn_sock(const struct ntrd_conn *conn);
bool *ntrd_conn_greeted(struct ntrd_conn *conn);
/* The socket stays open until the process ends. */
void ntrd_conn_keep(struct ntrd_conn *conn);
/* Whole frames only, also with several threads sending. Waits for a client that does not read. */
int ntrd_conn_send(struct ntrd_conn *conn, json_t *msg, const int *fds, size_t nfds);

/* As ntrd_conn_send without descriptors, but waits at most timeout_ms for the client: then -ETIMEDOUT, and of
 * the frame all or nothing will be sent (what it began is ended by the next ntrd_conn_send). Takes msg over;
 * NULL: out of memory. */
int ntrd_conn_try_send(struct ntrd_conn *conn, json_t *msg, unsigned timeout_ms);

/* ---- watch: while a call runs in a connection's thread, one thread for all of them reads `signal` and
 * `answer` frames and notices that a client has gone. */

struct ntrd_watcher;
struct ntrd_watch {
	int sock;
	void (*signal)(void *user, int sig);
	/* An answer of the client to an event; NULL: none is expected. It must not wait: other calls' signals
	 * come from the same thread. */
	void (*answer)(void *user, const json_t *msg);
	void *user;
	const char *session, *inside; /* who waits for whom; inside may be NULL */
	bool keep;                    /* ntrd_watch_hangup does not mean it */
};
int ntrd_watcher_new(struct ntrd_watcher **ret);
void ntrd_watcher_free(struct ntrd_watcher *w);
/* *w is copied, its strings borrowed until removal. -EDEADLK: the call would wait for one that waits for it.
 */
int ntrd_watch_add(struct ntrd_watcher *w, const struct ntrd_watch *watch, uint64_t *ret_id);
/* Would a request for session that comes from inside a call of `inside` wait for that very call? */
bool ntrd_watch_waits(struct ntrd_watcher *w, const char *session, const char *inside);
/* After it signal and answer are not called any more. */
void ntrd_watch_remove(struct ntrd_watcher *w, uint64_t id);
/* As if every client had gone. */
void ntrd_watch_hangup(struct ntrd_watcher *w);

/* ---- rows; each a new reference or NULL when out of memory */

json_t *ntrd_row_commit(struct ntr_ctl *ctl, const struct ntr_commit *c);
json_t *ntrd_row_session(struct ntr_ctl *ctl, const struct ntr_head *h);
json_t *ntrd_row_diff(const struct ntr_diff_entry *en);
json_t *ntrd_rows_diff(const struct ntr_diff *d);
json_t *ntrd_json_hex(const char *hex); /* null for "" */
/* Captured output: bytes, as base64 where their escapes would not fit into a frame. */
json_t *ntrd_json_output(const void *p, size_t n);

/* ---- ops */

extern const struct ntrd_op ntrd_ops[];
/* Refuses a session name that cannot be one; sets rq->bad. */
const char *ntrd_arg_session(struct ntrd_req *rq, const char *key, enum ntrd_need need);
/* The name that somebody gives a session: required, and none of those that throw-away sessions have. */
const char *ntrd_arg_new_session(struct ntrd_req *rq, const char *key);
/* EDEADLK when the request comes from inside a call of that session, or of one that the session's call waits
 * for. */
int ntrd_check_inside(struct ntrd_req *rq, const char *session);

ntrd_op_fn ntrd_op_hello, ntrd_op_daemon_status, ntrd_op_daemon_stop, ntrd_op_fsck;
ntrd_op_fn ntrd_op_run, ntrd_op_signal, ntrd_op_py;
ntrd_op_fn ntrd_op_new, ntrd_op_fork, ntrd_op_sessions, ntrd_op_rm, ntrd_op_rename, ntrd_op_ps, ntrd_op_stop;
ntrd_op_fn ntrd_op_commit, ntrd_op_discard, ntrd_op_rollback, ntrd_op_log, ntrd_op_show, ntrd_op_status;
ntrd_op_fn ntrd_op_tool, ntrd_op_tools;
ntrd_op_fn ntrd_op_cache_get, ntrd_op_cache_set, ntrd_op_cache_rm, ntrd_op_cache_ls;
ntrd_op_fn ntrd_op_diff, ntrd_op_ls, ntrd_op_cat, ntrd_op_put, ntrd_op_export, ntrd_op_mount;

/* ---- daemon */

/* Detaches from the caller: its terminal, session, folder and descriptors (but ready_fd; -1: none). */
int ntrd_detach(bool foreground, int ready_fd, struct ntr_err *e);
/* Termination signals write to fd from now on; SIGPIPE does nothing. */
int ntrd_signals(int fd);
/* stderr goes to the file from now on. */
int ntrd_log_open(const char *path);
/* Begins a new file when the present one is above 1 MiB; the old one stays as PATH.1. */
void ntrd_log_rotate(void);
void ntrd_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
