/* mcp, lanes: a thread for each session that is worked in, and one for reads. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <errno.h>
#include <poll.h>

enum { JOBS_MAX = 1000, LANES_MAX = 64, IDLE_S = 60 };
#define BYTES_MAX ((size_t)256 << 20)

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

/* A signal is sent only between a request and its answer, and never into the middle of a frame: whoever
 * cancels earlier leaves it to us. */
static int send_asking(struct ntr_mcp_job *job, json_t *req, const int *fds, size_t nfds, struct ntr_err *e)
{
	struct ntr_mcp_lane *lane = job->lane;
	struct ntr_mcp *s = lane->s;
	bool cancelled;
	int r;

	pthread_mutex_lock(&s->m);
	cancelled = job->cancelled_ns != 0;
	pthread_mutex_unlock(&s->m);
	r = cancelled ? ntr_err_set(e, -ECANCELED, "mcp") : ntr_conn_send(lane->conn, req, fds, nfds, e);
	if (r)
		return r;
	pthread_mutex_lock(&s->m);
	lane->asked = true;
	if (job->cancelled_ns)
		ntr_mcp_urge(lane);
	pthread_mutex_unlock(&s->m);
	return 0;
}

static int recv_asked(struct ntr_mcp_lane *lane, json_t **ret, struct ntr_err *e)
{
	bool final = false;
	int r = 0;

	while (!r && !final) {
		json_decref(*ret);
		r = ntr_conn_recv(lane->conn, ret, &final, e);
	}
	pthread_mutex_lock(&lane->s->m);
	lane->asked = false;
	pthread_mutex_unlock(&lane->s->m);
	return r;
}

int ntr_mcp_ask_feed(struct ntr_mcp_job *job, json_t *req, const int *fds, size_t nfds, ntr_mcp_feed *feed,
        void *user, json_t **ret, struct ntr_err *e)
{
	ntr_autojson json_t *owned = req;
	int r = req ? conn_ready(job->lane, e) : ntr_err_set(e, -ENOMEM, "mcp");

	*ret = NULL;
	if (!r)
		r = send_asking(job, owned, fds, nfds, e);
	if (!r && feed)
		feed(user);
	if (!r)
		r = recv_asked(job->lane, ret, e);
	if (r == -ECONNRESET || r == -EPROTO)
		conn_drop(job->lane);
	return r;
}

int ntr_mcp_ask(struct ntr_mcp_job *job, json_t *req, json_t **ret, struct ntr_err *e)
{
	return ntr_mcp_ask_feed(job, req, NULL, 0, NULL, NULL, ret, e);
}

/* ---- jobs */

static struct ntr_mcp_job *job_new(const struct ntr_mcp *s, const struct ntr_mcp_req *q, ntr_mcp_work *fn)
{
	struct ntr_mcp_job *job = calloc(1, sizeof *job);

	if (!job)
		return NULL;
	job->req = *q;
	json_incref(q->id);
	job->req.params = json_is_object(q->params) ? json_incref(q->params) : json_object();
	job->token = json_object_get(json_object_get(job->req.params, "_meta"), "progressToken");
	if (!ntr_mcp_is_id(job->token))
		job->token = NULL;
	job->work = fn;
	job->size = s->line;
	return job;
}

static void job_free(struct ntr_mcp_job *job)
{
	json_decref(job->req.id);
	json_decref(job->req.params);
	free(job);
}

void ntr_mcp_job_done(struct ntr_mcp *s, struct ntr_mcp_job *job)
{
	s->bytes -= job->size;
	job_free(job);
	if (!--s->jobs)
		pthread_cond_broadcast(&s->idle);
}

static void answer(struct ntr_mcp *s, const struct ntr_mcp_req *q, json_t *result,
        const struct ntr_mcp_error *err, bool cancelled)
{
	if (cancelled) {
		json_decref(result);
		ntr_mcp_fail(s, q->id, NTR_RPC_CANCELLED, "cancelled: what had begun was ended");
	} else if (result) {
		ntr_mcp_result(s, q, result);
	} else {
		ntr_mcp_fail(
		        s, q->id, err->code == NTR_RPC_NOT_FOUND ? q->rev->not_found : err->code, err->text);
	}
}

static void work(struct ntr_mcp_lane *lane, struct ntr_mcp_job *job)
{
	struct ntr_mcp_error err = {.code = NTR_RPC_INTERNAL, .text = "out of memory"};
	struct ntr_mcp *s = lane->s;
	json_t *result = job->work(s, job, &err);
	bool cancelled;

	pthread_mutex_lock(&s->m);
	lane->now = NULL; /* no progress comes after the answer */
	cancelled = job->cancelled_ns != 0;
	pthread_mutex_unlock(&s->m);
	answer(s, &job->req, result, &err, cancelled);
	pthread_mutex_lock(&s->m);
	ntr_mcp_job_done(s, job);
	pthread_mutex_unlock(&s->m);
}

/* ---- lanes */

static void lane_free(struct ntr_mcp_lane *lane)
{
	ntr_conn_close(lane->conn);
	pthread_cond_destroy(&lane->more);
	free(lane->session);
	free(lane);
}

/* With the lock held. The next job, or NULL after a while without one. The lanes of reads and of the server's
 * own session wait for ever. */
static struct ntr_mcp_job *next_job(struct ntr_mcp_lane *lane)
{
	struct ntr_mcp *s = lane->s;
	bool stays = !*lane->session || !strcmp(lane->session, s->session);
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += IDLE_S;
	while (TAILQ_EMPTY(&lane->jobs) && r != ETIMEDOUT)
		r = stays ? pthread_cond_wait(&lane->more, &s->m)
		          : pthread_cond_timedwait(&lane->more, &s->m, &until);
	return TAILQ_FIRST(&lane->jobs);
}

static void *lane_main(void *arg)
{
	struct ntr_mcp_lane *lane = arg;
	struct ntr_mcp *s = lane->s;
	struct ntr_mcp_job *job;

	pthread_mutex_lock(&s->m);
	while ((job = next_job(lane))) {
		TAILQ_REMOVE(&lane->jobs, job, link);
		job->began_ns = ntr_mono_ns();
		lane->now = job;
		pthread_mutex_unlock(&s->m);
		work(lane, job);
		pthread_mutex_lock(&s->m);
	}
	LIST_REMOVE(lane, link);
	s->nlanes--;
	pthread_mutex_unlock(&s->m);
	lane_free(lane);
	return NULL;
}

static struct ntr_mcp_lane *lane_new(struct ntr_mcp *s, const char *session)
{
	struct ntr_mcp_lane *lane = s->nlanes < LANES_MAX ? calloc(1, sizeof *lane) : NULL;
	pthread_t thread;

	if (!lane)
		return NULL;
	lane->s = s;
	lane->session = strdup(session);
	TAILQ_INIT(&lane->jobs);
	pthread_cond_init(&lane->more, NULL);
	if (!lane->session || pthread_create(&thread, NULL, lane_main, lane)) {
		lane_free(lane);
		return NULL;
	}
	pthread_detach(thread);
	LIST_INSERT_HEAD(&s->lanes, lane, link);
	s->nlanes++;
	return lane;
}

/* ---- taking work; with the lock held */

static struct ntr_mcp_lane *lane_of(struct ntr_mcp *s, const char *session)
{
	struct ntr_mcp_lane *lane;

	LIST_FOREACH (lane, &s->lanes, link)
		if (!strcmp(lane->session, session))
			return lane;
	return lane_new(s, session);
}

static bool in_flight(const struct ntr_mcp *s, const json_t *id)
{
	struct ntr_mcp_lane *lane;
	struct ntr_mcp_job *job;

	LIST_FOREACH (lane, &s->lanes, link) {
		if (lane->now && json_equal(lane->now->req.id, id))
			return true;
		TAILQ_FOREACH (job, &lane->jobs, link)
			if (json_equal(job->req.id, id))
				return true;
	}
	return false;
}

static void enqueue(struct ntr_mcp *s, struct ntr_mcp_lane *lane, struct ntr_mcp_job *job)
{
	job->lane = lane;
	TAILQ_INSERT_TAIL(&lane->jobs, job, link);
	s->bytes += job->size;
	if (!s->jobs++)
		pthread_cond_signal(&s->busy);
	pthread_cond_signal(&lane->more);
}

/* NULL: it is taken. */
static const char *take(struct ntr_mcp *s, const char *session, struct ntr_mcp_job *job)
{
	struct ntr_mcp_lane *lane;

	if (in_flight(s, job->req.id))
		return "a request with this id is under way; each needs an id of its own";
	if (s->jobs >= JOBS_MAX || s->bytes + job->size > BYTES_MAX)
		return "too many requests wait for their turn; send this one again when some were answered";
	lane = lane_of(s, session);
	if (!lane)
		return "out of threads: too many sessions are worked in at once; try again in a minute";
	enqueue(s, lane, job);
	return NULL;
}

void ntr_mcp_submit(struct ntr_mcp *s, const char *session, const struct ntr_mcp_req *q, ntr_mcp_work *fn)
{
	struct ntr_mcp_job *job = job_new(s, q, fn);
	const char *why = "out of memory";

	if (job && job->req.params) {
		pthread_mutex_lock(&s->m);
		why = take(s, session, job);
		pthread_mutex_unlock(&s->m);
	}
	if (!why)
		return;
	if (job)
		job_free(job);
	ntr_mcp_fail(s, q->id, NTR_RPC_REQUEST, why);
}
