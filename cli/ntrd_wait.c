#include "ntrd_wait.h"

#include "../exec/controller.h"

struct wait {
	struct ntrd_req *rq;
	uint64_t id;
};

static void forward(void *user, int sig)
{
	ntr_call_signal(user, sig);
}

/* A call's own request is watched all the time: then this fails, and it waits unwatched. */
static int begin(void *user, struct ntr_call *call)
{
	struct wait *w = user;
	struct ntrd_watch watch = {.sock = ntrd_conn_sock(w->rq->conn),
	        .signal = forward,
	        .user = call,
	        .session = "",
	        .keep = true};

	return ntrd_watch_add(ntrd_server_watcher(w->rq->srv), &watch, &w->id);
}

static void end(void *user)
{
	struct wait *w = user;

	ntrd_watch_remove(ntrd_server_watcher(w->rq->srv), w->id);
}

int ntrd_run_handler(struct ntrd_req *rq)
{
	struct wait w = {.rq = rq};
	const struct ntr_ctl_patience p = {.begin = begin, .end = end, .user = &w};
	int r;

	ntr_ctl_be_patient(&p);
	r = rq->op->fn(rq);
	ntr_ctl_be_patient(NULL);
	return r;
}
