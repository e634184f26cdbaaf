/* The table of ops, and what several of them check. */
#include "ntrd.h"

#include "../exec/controller.h"

#include <errno.h>
#include <string.h>

const struct ntrd_op ntrd_ops[] = {
        {"hello", ntrd_op_hello, 0, 0, true},
        {"run", ntrd_op_run, 1, 3, false},
        {"py", ntrd_op_py, 1, 3, false},
        {"signal", ntrd_op_signal, 0, 0, false},
        {"answer", ntrd_op_signal, 0, 0, false}, /* as late as such a signal */
        {"new", ntrd_op_new, 0, 1, false},
        {"fork", ntrd_op_fork, 0, 0, false},
        {"commit", ntrd_op_commit, 0, 0, false},
        {"discard", ntrd_op_discard, 0, 0, false},
        {"rollback", ntrd_op_rollback, 0, 0, false},
        {"log", ntrd_op_log, 0, 0, false},
        {"show", ntrd_op_show, 0, 0, false},
        {"diff", ntrd_op_diff, 1, 1, false},
        {"status", ntrd_op_status, 0, 0, false},
        {"sessions", ntrd_op_sessions, 0, 0, false},
        {"rm", ntrd_op_rm, 0, 0, false},
        {"rename", ntrd_op_rename, 0, 0, false},
        {"ls", ntrd_op_ls, 0, 0, false},
        {"cat", ntrd_op_cat, 1, 1, false},
        {"get", ntrd_op_cat, 1, 1, false},
        {"put", ntrd_op_put, 1, 1, false},
        {"cache-get", ntrd_op_cache_get, 0, 1, false},
        {"cache-set", ntrd_op_cache_set, 0, 1, false},
        {"cache-rm", ntrd_op_cache_rm, 0, 0, false},
        {"cache-ls", ntrd_op_cache_ls, 0, 0, false},
        {"tool", ntrd_op_tool, 0, 0, false},
        {"tools", ntrd_op_tools, 0, 0, false},
        {"export", ntrd_op_export, 1, 1, false},
        {"mount", ntrd_op_mount, 0, 1, false},
        {"ps", ntrd_op_ps, 0, 0, false},
        {"stop", ntrd_op_stop, 0, 0, false},
        {"daemon-status", ntrd_op_daemon_status, 0, 0, false},
        {"daemon-stop", ntrd_op_daemon_stop, 0, 0, false},
        {"fsck", ntrd_op_fsck, 0, 0, false},
        {NULL, NULL, 0, 0, false},
};

static const char *checked_name(struct ntrd_req *rq, const char *key, enum ntrd_need need,
        int (*check)(const char *name, struct ntr_err *e))
{
	const char *name = ntrd_arg_bytes(rq, key, need);
	int r;

	if (!name || rq->bad)
		return NULL;
	r = check(name, rq->e);
	if (!r)
		return name;
	rq->bad = r;
	return NULL;
}

const char *ntrd_arg_session(struct ntrd_req *rq, const char *key, enum ntrd_need need)
{
	return checked_name(rq, key, need, ntr_session_name_check);
}

const char *ntrd_arg_new_session(struct ntrd_req *rq, const char *key)
{
	return checked_name(rq, key, NTRD_REQUIRED, ntr_session_name_new);
}

int ntrd_check_inside(struct ntrd_req *rq, const char *session)
{
	const char *inside = ntrd_arg_bytes(rq, "inside", NTRD_OPTIONAL);

	if (rq->bad)
		return rq->bad;
	if (!inside || !ntrd_watch_waits(ntrd_server_watcher(rq->srv), session, inside))
		return 0;
	ntr_err_set(rq->e, -EDEADLK, "%s in session %s", rq->op->name, session);
	ntr_err_why(rq->e, "it comes from inside a call of that session and would wait for itself");
	return ntr_err_todo(rq->e, "do it after the call, or run the command without ntr");
}
