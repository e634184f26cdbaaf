/* The daemon itself: hello, daemon-status, daemon-stop, fsck. */
#include "ntrd.h"

#include "../base/util.h"
#include "../exec/controller.h"
#include "../fs/fsck.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* Lost commits, as the member "warning" of a reply. */
static int reply_lost(struct ntrd_req *rq)
{
	const struct ntr_err *lost = ntr_store_lost(ntr_ctl_store(rq->ctl));
	char line[2048];

	if (!lost)
		return 0;
	ntr_err_format(lost, line, sizeof line);
	return ntrd_reply_row(rq, json_pack("{s:o}", "warning", ntr_json_text(line, strlen(line))));
}

int ntrd_op_hello(struct ntrd_req *rq)
{
	const char *version = ntrd_arg_str(rq, "version", NTRD_OPTIONAL);
	int64_t protocol = ntrd_arg_int(rq, "protocol", INT64_MIN, INT64_MAX, 0);
	const char *store = ntrd_server_store(rq->srv);
	int r;

	if (!ntrd_arg_has(rq, "protocol"))
		ntrd_arg_bad(rq, "the member 'protocol' is missing");
	if (rq->bad)
		return rq->bad;
	if (protocol != NTRD_PROTOCOL) {
		rq->kind = "protocol";
		rq->hangup = true;
		ntr_err_set(rq->e, -EPROTO, "connection to ntrd");
		ntr_err_why(rq->e,
		        "client (version %s) speaks protocol %lld, the daemon (version " NTR_VERSION ") %d",
		        version ? version : "?", (long long)protocol, NTRD_PROTOCOL);
		return ntr_err_todo(rq->e, "stop the daemon (kill %d) so that the client's version starts",
		        (int)getpid());
	}
	*ntrd_conn_greeted(rq->conn) = true;
	if (ntr_store_lost_untold(ntr_ctl_store(rq->ctl)) && (r = reply_lost(rq)))
		return r;
	return ntrd_reply_row(
	        rq, json_pack("{s:i,s:s,s:i,s:o}", "protocol", NTRD_PROTOCOL, "version", NTR_VERSION, "pid",
	                    (int)getpid(), "store", ntr_json_bytes(store, strlen(store))));
}

static uint64_t resident_bytes(void)
{
	ntr_autofree char *text = NULL;
	unsigned long pages = 0;

	if (!ntr_read_file(AT_FDCWD, "/proc/self/statm", 4096, &text, NULL) &&
	        sscanf(text, "%*u %lu", &pages) != 1)
		pages = 0;
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

int ntrd_op_daemon_status(struct ntrd_req *rq)
{
	const char *store = ntrd_server_store(rq->srv);
	int r = ntrd_reply_row(rq, ntr_ctl_status(rq->ctl));

	if (!r)
		r = reply_lost(rq);
	if (r)
		return r;
	return ntrd_reply_row(
	        rq, json_pack("{s:i,s:o,s:s,s:f,s:I,s:I,s:I}", "pid", (int)getpid(), "store",
	                    ntr_json_bytes(store, strlen(store)), "version", NTR_VERSION, "uptime",
	                    (double)ntrd_server_uptime_ns(rq->srv) / 1e9, "rss", (json_int_t)resident_bytes(),
	                    "connections", (json_int_t)ntrd_server_connections(rq->srv), "requests",
	                    (json_int_t)ntrd_server_requests(rq->srv)));
}

int ntrd_op_daemon_stop(struct ntrd_req *rq)
{
	ntrd_conn_keep(rq->conn); /* its end tells the client that the daemon has gone */
	rq->hangup = true;
	ntrd_server_ask_stop(rq->srv);
	return 0;
}

static void problem(void *user, const char *text)
{
	struct ntrd_req *rq = user;
	ntr_autojson json_t *ev =
	        json_pack("{s:s,s:o}", "event", "problem", "text", ntr_json_text(text, strlen(text)));

	if (ev)
		ntrd_conn_send(rq->conn, ev, NULL, 0);
}

static void stage(void *user, const char *name, uint64_t done, uint64_t total)
{
	struct ntrd_req *rq = user;
	ntr_autojson json_t *ev = NULL;

	if (!ntrd_paced(rq))
		return;
	ev = json_pack("{s:s,s:s,s:I,s:I}", "event", "progress", "stage", name, "done", (json_int_t)done,
	        "total", (json_int_t)total);
	if (ev)
		ntrd_conn_send(rq->conn, ev, NULL, 0);
}

int ntrd_op_fsck(struct ntrd_req *rq)
{
	struct ntr_fsck f = {.problem = problem, .progress = stage, .user = rq};
	const struct ntr_err *lost = ntr_store_lost(ntr_ctl_store(rq->ctl));
	int r = ntr_fsck_run(ntr_ctl_store(rq->ctl), &f, rq->e);
	char line[2048];

	if (r)
		return r;
	if (lost) {
		ntr_err_format(lost, line, sizeof line);
		problem(rq, line);
		f.problems++;
	}
	return ntrd_reply_row(rq,
	        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "sessions", (json_int_t)f.sessions, "commits",
	                (json_int_t)f.commits, "nodes", (json_int_t)f.nodes, "items", (json_int_t)f.items,
	                "inodes", (json_int_t)f.inodes, "chunks", (json_int_t)f.chunks, "bytes",
	                (json_int_t)f.bytes, "problems", (json_int_t)f.problems));
}
