/* mcp, cancel: ends of what runs, progress of it, and the end of all. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <signal.h>
#include <sys/socket.h>

enum { TICK_MS = 500, GONE_S = 12 /* longer than all steps below */ };

/* ---- urging; with the lock held */

/* What is done to a cancelled call, and how long after: asked, killed, and at last not waited for any more
 * (its daemon is stopped, or stuck: it ends the call when it finds us gone). */
static const struct {
	unsigned after_ms;
	int sig; /* 0: the connection is cut */
} steps[] = {{0, SIGTERM}, {1500, SIGKILL}, {10000, 0}};

static void step(const struct ntr_mcp_lane *lane, int sig)
{
	if (sig)
		ntr_wire_send_new(
		        ntr_conn_fd(lane->conn), json_pack("{s:s,s:i}", "op", "signal", "sig", sig), NULL, 0);
	else
		shutdown(ntr_conn_fd(lane->conn), SHUT_RDWR);
}

void ntr_mcp_urge(struct ntr_mcp_lane *lane)
{
	struct ntr_mcp_job *job = lane->now;
	uint64_t ms = (ntr_mono_ns() - job->cancelled_ns) / 1000000;

	if (!lane->asked || !lane->conn)
		return;
	while (job->urged < NTR_COUNT(steps) && ms >= steps[job->urged].after_ms)
		step(lane, steps[job->urged++].sig);
}

static void cancel_running(struct ntr_mcp_lane *lane)
{
	if (lane->now->cancelled_ns)
		return;
	lane->now->cancelled_ns = ntr_mono_ns();
	ntr_mcp_urge(lane);
}

/* ---- cancelling */

/* What waited in its lane is answered at once. */
static void answer_waiting(struct ntr_mcp *s, struct ntr_mcp_jobs *jobs)
{
	struct ntr_mcp_job *job;

	while ((job = TAILQ_FIRST(jobs))) {
		TAILQ_REMOVE(jobs, job, link);
		ntr_mcp_fail(s, job->req.id, NTR_RPC_CANCELLED, "cancelled: it had not begun");
		pthread_mutex_lock(&s->m);
		ntr_mcp_job_done(s, job);
		pthread_mutex_unlock(&s->m);
	}
}

/* id NULL: all. */
static void cancel(struct ntr_mcp *s, const json_t *id)
{
	struct ntr_mcp_jobs waited = TAILQ_HEAD_INITIALIZER(waited);
	struct ntr_mcp_lane *lane;

	pthread_mutex_lock(&s->m);
	LIST_FOREACH (lane, &s->lanes, link) {
		struct ntr_mcp_job *job, *next;

		for (job = TAILQ_FIRST(&lane->jobs); job; job = next) {
			next = TAILQ_NEXT(job, link);
			if (id && !json_equal(job->req.id, id))
				continue;
			TAILQ_REMOVE(&lane->jobs, job, link);
			TAILQ_INSERT_TAIL(&waited, job, link);
		}
		if (lane->now && (!id || json_equal(lane->now->req.id, id)))
			cancel_running(lane);
	}
	pthread_mutex_unlock(&s->m);
	answer_waiting(s, &waited);
}

void ntr_mcp_cancel(struct ntr_mcp *s, const json_t *id)
{
	cancel(s, id);
}

/* ---- time */

static void progress(struct ntr_mcp *s, const struct ntr_mcp_job *job, uint64_t now)
{
	unsigned long long sec = (now - job->began_ns) / 1000000000ull;
	char text[64];

	snprintf(text, sizeof text, "running for %llu s", sec);
	ntr_mcp_notify(s, "notifications/progress",
	        json_pack("{s:O,s:f,s:s}", "progressToken", job->token, "progress",
	                (double)(now - job->began_ns) / 1e9, "message", text),
	        false);
}

static void tick(struct ntr_mcp *s)
{
	struct ntr_mcp_lane *lane;
	uint64_t now = ntr_mono_ns();

	LIST_FOREACH (lane, &s->lanes, link) {
		if (lane->now && lane->now->cancelled_ns)
			ntr_mcp_urge(lane);
		else if (lane->now && lane->now->token)
			progress(s, lane->now, now);
	}
}

void *ntr_mcp_ticker(void *arg)
{
	struct timespec pause = {.tv_nsec = TICK_MS * 1000000L};
	struct ntr_mcp *s = arg;

	for (;;) {
		pthread_mutex_lock(&s->m);
		while (!s->jobs)
			pthread_cond_wait(&s->busy, &s->m);
		pthread_mutex_unlock(&s->m);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&s->m);
		tick(s);
		pthread_mutex_unlock(&s->m);
	}
	return NULL;
}

/* ---- the end */

void ntr_mcp_drain(struct ntr_mcp *s)
{
	bool busy = true;

	/* A lane may be stuck in writing its answer: it is left behind. */
	for (unsigned gone = 0; busy && gone < GONE_S; gone += s->out.broken) {
		struct timespec until;

		if (ntr_mcp_out_gone(s))
			cancel(s, NULL);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_mutex_lock(&s->m);
		if (s->jobs)
			pthread_cond_timedwait(&s->idle, &s->m, &until);
		busy = s->jobs;
		pthread_mutex_unlock(&s->m);
	}
	ntr_mcp_unlisten(s, NULL);
	ntr_mcp_out_flush(s);
}
