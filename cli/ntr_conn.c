/* conn: the connection to the store's daemon. The daemon is started where none runs: by the first command
 * that needs it. */
#include "ntr.h"
#include "ntr_spawn.h"

#include "../base/sockpath.h"
#include "../base/util.h"

#include <errno.h>
#include <sys/socket.h>

enum { HELLO_LIMIT_S = 30 }; /* every daemon that runs answers a hello at once */

struct ntr_conn {
	int sock;
	char *store;
	char what[64]; /* WHAT of errors: the verb */
	pid_t pid;
	bool usage;       /* the last error was the request's own fault */
	bool said;        /* that the daemon is stopped */
	unsigned limit_s; /* of the wait for a reply; 0: none */
	json_t *result;   /* that came with the last error */
	int fds[NTR_WIRE_FDS];
	size_t nfds;
};

static int conn_lost(struct ntr_conn *c, int code, struct ntr_err *e)
{
	ntr_err_set(e, code, "%s", c->what);
	if (code == -ETIMEDOUT) {
		pid_t pid;
		char state = ntr_daemon_state(c->sock, &pid);

		ntr_err_why(e, "the daemon (pid %d) %s", (int)pid,
		        state == 'T'   ? "is stopped"
		        : state == 'Z' ? "was killed, but waits in the kernel for a mount of its own"
		                       : "does not answer");
		if (state == 'Z')
			ntr_err_todo(e, "as root `umount -f` what `findmnt -t fuse.ntr` lists; nothing that "
			                "was written is "
			                "lost");
		else if (state == 'T')
			ntr_err_todo(e,
			        "let it go on with `kill -CONT %d`, or end it with `kill -KILL %d`: nothing "
			        "that was written is lost",
			        (int)pid, (int)pid);
		else
			ntr_err_todo(e,
			        "see %s/ntrd.log and the disk; `kill -KILL %d` ends it, and nothing that was "
			        "written is lost",
			        c->store, (int)pid);
		return code;
	}
	if (code == -ENODATA || code == -ECONNRESET || code == -EPIPE) {
		ntr_err_why(e, "the daemon ended unexpectedly");
		ntr_err_todo(
		        e, "its last words are in %s/ntrd.log; the next command starts it again", c->store);
		return -ECONNRESET;
	}
	ntr_err_why(e, "cannot talk to the daemon: %s", strerror(-code));
	return code;
}

/* {"error":{…}} to an error object. */
static int conn_error(struct ntr_conn *c, const json_t *err, struct ntr_err *e)
{
	int64_t code = ntr_json_int(err, "errno", 0);
	const char *kind = ntr_json_str(err, "kind", "");

	if (code < 0)
		code = -code;
	if (code == 0 || code > 4095)
		code = strcmp(kind, "protocol") ? EIO : EPROTO;
	c->usage = !strcmp(kind, "usage");
	ntr_err_set(e, (int)-code, "%s", ntr_json_str(err, "what", c->what));
	ntr_err_why(e, "%s", ntr_json_str(err, "why", ""));
	ntr_err_todo(e, "%s", ntr_json_str(err, "todo", ""));
	return (int)-code;
}

/* A client that runs inside a call says so: a request that would wait for that very call can only be refused.
 */
static int add_inside(json_t *req)
{
	const char *session = getenv("NTR_SESSION");

	if (!getenv("NTR_CALL") || !session || !*session)
		return 0;
	return json_object_set_new(req, "inside", ntr_json_bytes(session, strlen(session))) ? -ENOMEM : 0;
}

int ntr_conn_send(struct ntr_conn *c, json_t *req, const int *fds, size_t nfds, struct ntr_err *e)
{
	int r = req ? add_inside(req) : -ENOMEM;

	if (!r)
		r = ntr_wire_send(c->sock, req, fds, nfds);

	if (!r)
		return 0;
	if (r == -EMSGSIZE) {
		ntr_err_set(e, r, "%s", c->what);
		ntr_err_why(e, "arguments, script and environment are more than %d MiB together",
		        NTR_WIRE_MAX >> 20);
		return r;
	}
	/* A daemon that refuses says why before it hangs up. */
	if (r == -EPIPE || r == -ECONNRESET) {
		ntr_autojson json_t *reply = NULL;
		bool final;
		int k = ntr_conn_recv(c, &reply, &final, e);

		return k ? k : conn_lost(c, r, e);
	}
	return conn_lost(c, r, e);
}

/* What went wrong beside the request: it is done. */
static void print_warnings(const json_t *list)
{
	const json_t *w;
	size_t i;

	json_array_foreach (list, i, w)
		if (json_is_string(w))
			fprintf(stderr, "ntr: warning: %s\n", json_string_value(w));
}

int ntr_conn_recv(struct ntr_conn *c, json_t **ret, bool *ret_final, struct ntr_err *e)
{
	json_t *err;
	int r;

	ntr_wire_close_fds(c->fds, c->nfds);
	c->nfds = 0;
	*ret = NULL;
	r = ntr_daemon_wait(c->sock, c->store, c->what, c->limit_s, &c->said);
	if (!r)
		r = ntr_wire_recv(c->sock, ret, c->fds, &c->nfds);
	if (r)
		return conn_lost(c, r, e);
	*ret_final = !json_object_get(*ret, "event");
	if (*ret_final)
		print_warnings(json_object_get(*ret, "warnings"));
	err = json_object_get(*ret, "ok") ? NULL : json_object_get(*ret, "error");
	json_decref(c->result);
	c->result = err ? json_incref(json_object_get(*ret, "result")) : NULL;
	if (*ret_final && err)
		r = conn_error(c, err, e);
	else if (*ret_final && !ntr_json_bool(*ret, "ok", false))
		r = conn_lost(c, -EPROTO, e);
	if (r) {
		json_decref(*ret);
		*ret = NULL;
	}
	return r;
}

int ntr_conn_take_fd(struct ntr_conn *c)
{
	return c->nfds ? ntr_steal_fd(&c->fds[0]) : -1;
}

void ntr_conn_notice(struct ntr_conn *c)
{
	ntr_daemon_notice(c->sock, c->store, c->what, &c->said);
}

int ntr_conn_fd(const struct ntr_conn *c)
{
	return c->sock;
}

const json_t *ntr_conn_result(const struct ntr_conn *c)
{
	return c ? c->result : NULL;
}

bool ntr_conn_usage(const struct ntr_conn *c)
{
	return c->usage;
}

pid_t ntr_conn_pid(const struct ntr_conn *c)
{
	return c->pid;
}

const char *ntr_conn_store(const struct ntr_conn *c)
{
	return c->store;
}

void ntr_conn_close(struct ntr_conn *c)
{
	if (!c)
		return;
	ntr_wire_close_fds(c->fds, c->nfds);
	if (c->sock >= 0)
		close(c->sock);
	json_decref(c->result);
	free(c->store);
	free(c);
}

static void conn_closep(struct ntr_conn **c)
{
	ntr_conn_close(*c);
}

static int conn_hello(struct ntr_conn *c, struct ntr_err *e)
{
	ntr_autojson json_t *req =
	        json_pack("{s:s,s:i,s:s}", "op", "hello", "protocol", NTR_PROTOCOL, "version", NTR_VERSION);
	ntr_autojson json_t *reply = NULL;
	const char *warning;
	bool final = false;
	int r;

	c->limit_s = HELLO_LIMIT_S;
	r = ntr_conn_send(c, req, NULL, 0, e);
	if (!r)
		r = ntr_conn_recv(c, &reply, &final, e);
	c->limit_s = 0;
	if (r)
		return r;
	c->pid = (pid_t)ntr_json_int(reply, "pid", 0);
	warning = ntr_json_str(reply, "warning", NULL);
	if (warning)
		fprintf(stderr, "ntr: %s\n", warning);
	if (ntr_json_int(reply, "protocol", 0) == NTR_PROTOCOL)
		return 0;
	ntr_err_set(e, -EPROTO, "%s", c->what);
	ntr_err_why(e, "the daemon (version %s) speaks protocol %lld, this ntr (version %s) speaks %d",
	        ntr_json_str(reply, "version", "?"), (long long)ntr_json_int(reply, "protocol", 0),
	        NTR_VERSION, NTR_PROTOCOL);
	ntr_err_todo(e, "end it with 'ntr daemon stop' of its own version, or kill %d", (int)c->pid);
	return -EPROTO;
}

/* 0 with c->sock >= 0; 0 with c->sock < 0: no daemon runs. */
static int conn_connect(struct ntr_conn *c, struct ntr_err *e)
{
	int r = ntr_sock_connect(c->store, &c->sock);

	if (r) /* whatever it left there is no descriptor of ours */
		c->sock = -1;
	if (!r || r == -ENOENT || r == -ECONNREFUSED)
		return 0;
	ntr_err_set(e, r, "%s", c->what);
	return ntr_sock_explain(c->store, r, e);
}

/* Two clients may start a daemon at once: the loser's finds the store locked ("busy") and the winner's is
 * about to listen. So a busy store is asked again for a while before it is an error. */
static int conn_start(struct ntr_conn *c, struct ntr_err *e)
{
	uint64_t until = ntr_mono_ns() + 10 * 1000000000ull;
	struct timespec pause = {.tv_nsec = 2000000};
	bool started = false, busy = false;
	int r;

	for (;;) {
		r = conn_connect(c, e);
		if (r || c->sock >= 0)
			return r;
		if (!started || busy) {
			r = ntr_spawn_daemon(c->store, c->what, &busy, e);
			started = true;
			if (r && !busy)
				return r;
			if (!r)
				continue;
		}
		if (ntr_mono_ns() > until)
			return r ? r : conn_lost(c, -ECONNRESET, e);
		nanosleep(&pause, NULL);
		pause.tv_nsec = NTR_MIN(pause.tv_nsec * 2, 200000000L);
	}
}

/* A daemon that is about to end hangs up on the hello: then its successor is asked. */
static int conn_greet(struct ntr_conn *c, bool start, struct ntr_err *e)
{
	int r;

	for (int tries = 0;; tries++) {
		r = start ? conn_start(c, e) : conn_connect(c, e);
		if (r || c->sock < 0)
			return r;
		r = conn_hello(c, e);
		if (r != -ECONNRESET || tries == 3)
			return r;
		close(ntr_steal_fd(&c->sock));
	}
}

int ntr_conn_open(const char *store, const char *what, bool start, struct ntr_conn **ret, struct ntr_err *e)
{
	ntr_auto(conn_closep) struct ntr_conn *c = calloc(1, sizeof *c);
	int r;

	*ret = NULL;
	if (!c)
		return ntr_err_set(e, -ENOMEM, "%s", what);
	c->sock = -1;
	snprintf(c->what, sizeof c->what, "%s", what);
	r = ntr_store_default_path(store, &c->store, e);
	if (!r)
		r = conn_greet(c, start, e);
	if (r || c->sock < 0)
		return r;
	*ret = ntr_steal_ptr(c);
	return 0;
}

static int request_reply(struct ntr_conn *c, ntr_event_fn *fn, void *user, json_t **ret, struct ntr_err *e)
{
	for (;;) {
		ntr_autojson json_t *msg = NULL;
		bool final = false;
		int r = ntr_conn_recv(c, &msg, &final, e);

		if (r)
			return r;
		if (!final && fn)
			fn(user, msg);
		if (final && ret)
			*ret = ntr_steal_ptr(msg);
		if (final)
			return 0;
	}
}

int ntr_request(struct ntr_cmd *cmd, json_t *req, const int *fds, size_t nfds, ntr_event_fn *fn, void *user,
        json_t **ret, struct ntr_err *e)
{
	ntr_autojson json_t *owned = req;
	int r = 0;

	if (!req)
		return ntr_err_set(e, -ENOMEM, "%s", cmd->verb->name);
	if (!cmd->conn)
		r = ntr_conn_open(cmd->store, cmd->verb->name, true, &cmd->conn, e);
	if (!r)
		r = ntr_conn_send(cmd->conn, owned, fds, nfds, e);
	return r ? r : request_reply(cmd->conn, fn, user, ret, e);
}
