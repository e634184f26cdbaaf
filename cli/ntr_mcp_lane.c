/* mcp, lanes: a thread for each session that is worked in, and one for reads. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

enum { GRACE_MS = 1500 }; /* between SIGTERM and SIGKILL */

static void job_free(struct ntr_mcp_job *job)
{
	json_decref(job->id);
	json_decref(job->params);
	free(job);
}

json_t *ntr_mcp_work_failed(struct ntr_mcp_error *err, int code, const struct ntr_err *e)
{
	err->code = code;
	ntr_err_format(e, err->text, sizeof err->text);
	return NULL;
}

/* ---- requests to the daemon */

static void conn_drop(struct ntr_mcp_lane *lane)
{
	struct ntr_conn *c;

	pthread_mutex_lock(&lane->s->m);
	c = lane->conn;
	lane->conn = NULL;
	pthread_mutex_unlock(&lane->s->m);
	ntr_conn_close(c);
}

static int conn_ready(struct ntr_mcp_lane *lane, struct ntr_err *e)
{
	struct ntr_conn *c;
	int r;

	/* A daemon that ended while nobody asked is no news. */
	if (lane->conn) {
		struct pollfd p = {ntr_conn_fd(lane->conn), POLLIN, 0};

		if (poll(&p, 1, 0) <= 0)
			return 0;
		conn_drop(lane);
	}
	r = ntr_conn_open(lane->s->cmd->store, "mcp", true, &c, e);
	if (r)
		return r;
	pthread_mutex_lock(&lane->s->m);
	lane->conn = c;
	pthread_mutex_unlock(&lane->s->m);
	return 0;
}

int ntr_mcp_ask(
        struct ntr_mcp_job *job, json_t *req, const int *fds, size_t nfds, json_t **ret, struct ntr_err *e)
{
	ntr_autojson json_t *owned = req;
	struct ntr_mcp_lane *lane = job->lane;
	bool final = false;
	int r = req ? conn_ready(lane, e) : ntr_err_set(e, -ENOMEM, "mcp");

	*ret = NULL;
	if (!r)
		r = ntr_conn_send(lane->conn, owned, fds, nfds, e);
	while (!r && !final) {
		json_decref(*ret);
		r = ntr_conn_recv(lane->conn, ret, &final, e);
	}
	if (r == -ECONNRESET || r == -EPROTO)
		conn_drop(lane);
	return r;
}

/* ---- work */

static void answer(struct ntr_mcp *s, struct ntr_mcp_job *job, json_t *result,
        const struct ntr_mcp_error *err, bool cancelled)
{
	if (cancelled) {
		json_decref(result);
		ntr_mcp_fail(s, job->id, NTR_RPC_CANCELLED, "cancelled: what had begun was ended");
	} else if (result) {
		ntr_mcp_result(s, job->id, result);
	} else {
		ntr_mcp_fail(s, job->id, err->code, err->text);
	}
}

static void work(struct ntr_mcp_lane *lane, struct ntr_mcp_job *job)
{
	struct ntr_mcp_error err = {.code = NTR_RPC_INTERNAL, .text = "out of memory"};
	struct ntr_mcp *s = lane->s;
	json_t *result = job->work(s, job, &err);
	bool cancelled;

	pthread_mutex_lock(&s->m);
	lane->now = NULL;
	cancelled = job->cancelled_ns != 0;
	pthread_mutex_unlock(&s->m);
	answer(s, job, result, &err, cancelled);
	job_free(job);
	pthread_mutex_lock(&s->m);
	if (!--s->jobs)
		pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->m);
}

static void *lane_main(void *arg)
{
	struct ntr_mcp_lane *lane = arg;
	struct ntr_mcp *s = lane->s;

	for (;;) {
		struct ntr_mcp_job *job;

		pthread_mutex_lock(&s->m);
		while (!(job = TAILQ_FIRST(&lane->jobs)))
			pthread_cond_wait(&lane->more, &s->m);
		TAILQ_REMOVE(&lane->jobs, job, link);
		job->began_ns = ntr_mono_ns();
		lane->now = job;
		pthread_mutex_unlock(&s->m);
		work(lane, job);
	}
	return NULL;
}

/* ---- lanes; with the lock held. They live as long as the server: there are as many as sessions it was told
 * of. */

static struct ntr_mcp_lane *lane_new(struct ntr_mcp *s, const char *session)
{
	struct ntr_mcp_lane *lane = calloc(1, sizeof *lane);
	pthread_t thread;

	if (!lane)
		return NULL;
	lane->s = s;
	lane->session = strdup(session);
	TAILQ_INIT(&lane->jobs);
	pthread_cond_init(&lane->more, NULL);
	if (!lane->session || pthread_create(&thread, NULL, lane_main, lane)) {
		free(lane->session);
		free(lane);
		return NULL;
	}
	pthread_detach(thread);
	LIST_INSERT_HEAD(&s->lanes, lane, link);
	return lane;
}

static struct ntr_mcp_lane *lane_of(struct ntr_mcp *s, const char *session)
{
	struct ntr_mcp_lane *lane;

	LIST_FOREACH (lane, &s->lanes, link)
		if (!strcmp(lane->session, session))
			return lane;
	return lane_new(s, session);
}

bool ntr_mcp_submit(
        struct ntr_mcp *s, const char *session, const json_t *id, json_t *params, ntr_mcp_work *fn)
{
	struct ntr_mcp_job *job = calloc(1, sizeof *job);
	struct ntr_mcp_lane *lane = NULL;

	if (!job)
		return false;
	job->id = json_incref((json_t *)(uintptr_t)id);
	job->params = json_is_object(params) ? json_incref(params) : json_object();
	job->token = json_object_get(json_object_get(job->params, "_meta"), "progressToken");
	job->work = fn;
	pthread_mutex_lock(&s->m);
	if (job->params)
		lane = lane_of(s, session);
	if (lane) {
		job->lane = lane;
		TAILQ_INSERT_TAIL(&lane->jobs, job, link);
		s->jobs++;
		pthread_cond_signal(&lane->more);
	}
	pthread_mutex_unlock(&s->m);
	if (!lane)
		job_free(job);
	return lane;
}

/* ---- cancelling */

/* The daemon hands it to the call, or takes the call out of the session's queue. */
static void send_signal(struct ntr_mcp_lane *lane, int sig)
{
	if (lane->conn)
		ntr_wire_send_new(
		        ntr_conn_fd(lane->conn), json_pack("{s:s,s:i}", "op", "signal", "sig", sig), NULL, 0);
}

static void cancel_running(struct ntr_mcp_lane *lane)
{
	if (lane->now->cancelled_ns)
		return;
	lane->now->cancelled_ns = ntr_mono_ns();
	send_signal(lane, SIGTERM);
}

/* One that waits in its lane is answered at once. */
static void cancel_waiting(struct ntr_mcp *s, struct ntr_mcp_lane *lane, struct ntr_mcp_job *job)
{
	TAILQ_REMOVE(&lane->jobs, job, link);
	ntr_mcp_fail(s, job->id, NTR_RPC_CANCELLED, "cancelled: it had not begun");
	job_free(job);
	if (!--s->jobs)
		pthread_cond_broadcast(&s->idle);
}

static struct ntr_mcp_job *find(struct ntr_mcp_lane *lane, const json_t *id)
{
	struct ntr_mcp_job *job;

	TAILQ_FOREACH (job, &lane->jobs, link)
		if (json_equal(job->id, id))
			return job;
	return NULL;
}

void ntr_mcp_cancel(struct ntr_mcp *s, const json_t *id)
{
	struct ntr_mcp_lane *lane;

	if (!id)
		return;
	pthread_mutex_lock(&s->m);
	LIST_FOREACH (lane, &s->lanes, link) {
		struct ntr_mcp_job *job = find(lane, id);

		if (job)
			cancel_waiting(s, lane, job);
		else if (lane->now && json_equal(lane->now->id, id))
			cancel_running(lane);
	}
	pthread_mutex_unlock(&s->m);
}

void ntr_mcp_cancel_all(struct ntr_mcp *s)
{
	struct ntr_mcp_lane *lane;

	pthread_mutex_lock(&s->m);
	LIST_FOREACH (lane, &s->lanes, link) {
		while (TAILQ_FIRST(&lane->jobs))
			cancel_waiting(s, lane, TAILQ_FIRST(&lane->jobs));
		if (lane->now)
			cancel_running(lane);
	}
	pthread_mutex_unlock(&s->m);
}

/* ---- time */

static void progress(struct ntr_mcp *s, const struct ntr_mcp_job *job, uint64_t now)
{
	unsigned long long sec = (now - job->began_ns) / 1000000000ull;
	char text[64];

	snprintf(text, sizeof text, "running for %llu s", sec);
	ntr_mcp_notify(s, "notifications/progress",
	        json_pack("{s:O,s:f,s:s}", "progressToken", job->token, "progress",
	                (double)(now - job->began_ns) / 1e9, "message", text));
}

void ntr_mcp_tick(struct ntr_mcp *s)
{
	struct ntr_mcp_lane *lane;
	uint64_t now = ntr_mono_ns();

	pthread_mutex_lock(&s->m);
	LIST_FOREACH (lane, &s->lanes, link) {
		struct ntr_mcp_job *job = lane->now;

		if (!job)
			continue;
		if (job->cancelled_ns && !job->killed && now - job->cancelled_ns > GRACE_MS * 1000000ull) {
			job->killed = true;
			send_signal(lane, SIGKILL);
		}
		if (job->token && !job->cancelled_ns)
			progress(s, job, now);
	}
	pthread_mutex_unlock(&s->m);
}

/* stdout's other end is gone: with it everybody who waited. */
static bool nobody_reads(struct ntr_mcp *s)
{
	struct pollfd p = {STDOUT_FILENO, 0, 0};

	return s->broken || (poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP));
}

void ntr_mcp_drain(struct ntr_mcp *s)
{
	pthread_mutex_lock(&s->m);
	while (s->jobs) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&s->idle, &s->m, &until);
		if (!s->jobs || !nobody_reads(s))
			continue;
		pthread_mutex_unlock(&s->m);
		ntr_mcp_cancel_all(s);
		pthread_mutex_lock(&s->m);
	}
	pthread_mutex_unlock(&s->m);
}
