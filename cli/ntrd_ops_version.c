/* History: commit, discard, rollback, log, show, status. */
#include "ntrd.h"

#include "../base/util.h"
#include "../exec/controller.h"

#include <errno.h>

int ntrd_op_commit(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	const char *message = ntrd_arg_str(rq, "message", NTRD_OPTIONAL);
	ntr_auto(ntr_commit_done) struct ntr_commit c = {0};
	int r = rq->bad;

	if (!r)
		r = ntrd_check_inside(rq, session);
	if (!r)
		r = ntr_ctl_commit(rq->ctl, session, "commit", message, &c, rq->e);
	if (r)
		return r;
	return c.id ? ntrd_reply_row(rq, ntrd_row_commit(rq->ctl, &c))
	            : ntrd_reply_set(rq, "commit", json_null());
}

int ntrd_op_discard(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	unsigned killed = 0;
	int r = rq->bad;

	if (!r)
		r = ntrd_check_inside(rq, session);
	if (!r)
		r = ntr_ctl_discard(rq->ctl, session, &killed, rq->e);
	return r ? r : ntrd_reply_set(rq, "killed", json_integer(killed));
}

static void rollback_done(struct ntr_rollback_result *res)
{
	ntr_commit_done(&res->to);
}

int ntrd_op_rollback(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	int64_t steps = ntrd_arg_int(rq, "steps", 1, INT32_MAX, 0);
	bool discard = ntrd_arg_bool(rq, "discard"), force = ntrd_arg_bool(rq, "force");
	ntr_auto(rollback_done) struct ntr_rollback_result res = {0};
	int r = rq->bad;

	if (r)
		return r;
	if (!rev == !steps)
		return ntrd_arg_bad(rq, "one of the members 'rev' and 'steps' is needed");
	r = ntrd_check_inside(rq, session);
	if (!r)
		r = ntr_ctl_rollback(rq->ctl, session, rev, (uint64_t)steps, discard, force, &res, rq->e);
	if (r)
		return r;
	return ntrd_reply_row(
	        rq, json_pack("{s:o,s:o,s:I}", "to", ntrd_row_commit(rq->ctl, &res.to), "staged",
	                    ntrd_json_hex(res.staged), "killed", (json_int_t)res.killed));
}

/* The commit that the members session and rev name; rev NULL: the session's head. */
static int resolve(struct ntrd_req *rq, const char *session, const char *rev, struct ntr_commit *ret)
{
	struct ntr_head h;

	if (rq->bad)
		return rq->bad;
	if (!session && !rev)
		return ntrd_arg_bad(rq, "one of the members 'session' and 'rev' is needed");
	return ntr_ctl_resolve(rq->ctl, session, rev ? rev : "HEAD", ret, &h, rq->e);
}

static int log_row(void *user, const struct ntr_commit *c)
{
	struct ntrd_req *rq = user;

	return ntrd_event(rq, "row", ntrd_row_commit(rq->ctl, c));
}

int ntrd_op_log(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_OPTIONAL);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	int64_t n = ntrd_arg_int(rq, "n", 0, INT64_MAX, 0);
	ntr_auto(ntr_commit_done) struct ntr_commit c = {0};
	int r = resolve(rq, session, rev, &c);

	if (!r)
		r = ntr_commit_log(ntr_ctl_store(rq->ctl), c.id, (uint64_t)n, log_row, rq);
	return r ? ntr_err_default(rq->e, r, "list the history") : 0;
}

static int compare_with_parent(struct ntrd_req *rq, const struct ntr_commit *c, struct ntr_diff *d)
{
	struct ntr_store *st = ntr_ctl_store(rq->ctl);
	ntr_auto(ntr_commit_done) struct ntr_commit parent = {0};
	int r = c->nparents ? ntr_commit_get(st, c->parent[0], &parent, rq->e) : 0;

	if (!r)
		r = ntr_diff_compute(st, parent.root, c->root, NULL, d);
	return r ? ntr_err_default(rq->e, r, "compare commit %.12s with its parent", c->hex) : 0;
}

int ntrd_op_show(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_OPTIONAL);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	ntr_auto(ntr_commit_done) struct ntr_commit c = {0};
	ntr_auto(ntr_diff_done) struct ntr_diff d = {0};
	int r = resolve(rq, session, rev, &c);

	if (!r)
		r = compare_with_parent(rq, &c, &d);
	if (!r)
		r = ntrd_reply_row(rq, ntrd_row_commit(rq->ctl, &c));
	if (!r)
		r = ntrd_reply_set(rq, "state_changed", json_boolean(d.state_changed));
	return r ? r : ntrd_reply_list(rq, "entries", ntrd_rows_diff(&d));
}

int ntrd_op_status(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	ntr_auto(ntr_diff_done) struct ntr_diff d = {0};
	uint64_t head, work;
	struct ntr_head h;
	int r = rq->bad;

	if (!r)
		r = ntr_ctl_work(rq->ctl, session, &d, &head, &work, rq->e);
	if (!r)
		r = ntr_session_get(ntr_ctl_store(rq->ctl), session, &h, rq->e);
	if (!r)
		r = ntrd_reply_row(rq, ntrd_row_session(rq->ctl, &h));
	if (!r)
		r = ntrd_reply_set(rq, "state_changed", json_boolean(d.state_changed));
	return r ? r : ntrd_reply_list(rq, "changes", ntrd_rows_diff(&d));
}
