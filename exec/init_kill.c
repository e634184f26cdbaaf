/* init_kill: ending processes. A job asks first (SIGTERM) when it has a grace, then kills, again and again
 * until a walk of the tree finds nothing in its scope: a process may fork while it is being looked at, and
 * one that is deep in the kernel takes its time. */
#include "init.h"
#include "../base/hash.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

struct ntr_pidset {
	pid_t pid;
	uint64_t start;
	UT_hash_handle hh;
};

/* Between two looks at what is being killed; SIGCHLD of a process that became ours wakes the loop earlier. */
enum { TICK_MS = 5 };

void ntr_initjob_free(struct ntr_initjob *j)
{
	struct ntr_pidset *s, *next;

	if (!j)
		return;
	HASH_ITER (hh, j->hit, s, next) {
		HASH_DEL(j->hit, s);
		free(s);
	}
	ntr_closep(&j->mount_fd);
	ntr_closep(&j->upper_fd);
	free(j);
}

/* true if the process is new to the set (or there is no memory to know). */
static bool note(struct ntr_pidset **set, const struct ntr_proc *p)
{
	struct ntr_pidset *s;

	HASH_FIND(hh, *set, &p->pid, sizeof p->pid, s);
	if (s && s->start == p->start)
		return false;
	if (!s) {
		s = calloc(1, sizeof *s);
		if (!s)
			return true;
		s->pid = p->pid;
		HASH_ADD(hh, *set, pid, sizeof s->pid, s);
		if (!ntr_hashed(hh, s)) {
			free(s);
			return true;
		}
	}
	s->start = p->start;
	return true;
}

/* Signals what is in the job's scope. Returns how many are left: a zombie counts while it is ours to collect,
 * so that a call's end is reported before the end of its killing. */
static unsigned hit_all(struct ntr_init *in, struct ntr_initjob *j, bool hard)
{
	struct ntr_proclist l = {0};
	unsigned left = 0;

	if (ntr_init_scan(in, &l))
		left++; /* not known: look again */
	for (size_t i = 0; i < l.n; i++) {
		const struct ntr_proc *p = &l.v[i];
		bool dead = p->state == 'Z' || p->state == 'X';

		if ((j->call && p->call != j->call) ||
		        (dead && p->ppid != getpid() && !ntr_initpy_is(in, p->ppid)))
			continue;
		left++;
		if (dead)
			continue;
		if (note(&j->hit, p) || hard)
			kill(p->pid, hard ? SIGKILL : SIGTERM);
		if (!hard && p->state == 'T')
			kill(p->pid, SIGCONT); /* a stopped process would not get to know */
	}
	ntr_proclist_done(&l);
	return left;
}

static void finish(struct ntr_init *in, struct ntr_initjob *j)
{
	unsigned killed = HASH_COUNT(j->hit);
	struct ntr_err e = {0};

	if (!j->call) /* whoever was stopped is gone */
		ntr_proclist_done(&in->frozen);
	switch (j->kind) {
	case NTR_JOB_KILL:
		ntr_init_send(in, j->req, json_pack("{s:i}", "killed", (int)killed), NULL, 0);
		break;
	case NTR_JOB_SWAP:
		if (ntr_init_swap_view(in, j, &e))
			ntr_init_error(in, j->req, &e);
		else
			ntr_init_view_ok(in, j->req, json_pack("{s:b,s:i}", "ok", 1, "killed", (int)killed));
		break;
	case NTR_JOB_STOP:
		ntr_init_send(in, j->req, json_pack("{s:b,s:i}", "ok", 1, "killed", (int)killed), NULL, 0);
		in->over = in->stopped = true;
		break;
	}
}

int ntr_init_jobs(struct ntr_init *in)
{
	int wait = -1;

	for (struct ntr_initjob **p = &in->jobs, *j; (j = *p);) {
		uint64_t now = ntr_mono_ns();

		/* What somebody has begun to move is moved to its end. */
		if (hit_all(in, j, now >= j->kill_at) || (!j->call && ntr_rename_busy(in))) {
			/* SIGTERM's effect is seen at the next SIGCHLD or look; then no later than the
			 * deadline. */
			wait = TICK_MS;
			p = &j->next;
			continue;
		}
		*p = j->next;
		finish(in, j);
		ntr_initjob_free(j);
	}
	return wait;
}

void ntr_initjob_start(struct ntr_init *in, enum ntr_initjob_kind kind, const struct ntr_initreq *rq,
        int mount_fd, int upper_fd)
{
	struct ntr_initjob *j = calloc(1, sizeof *j), **end = &in->jobs;
	int64_t grace = kind == NTR_JOB_KILL ? ntr_json_int(rq->msg, "grace_ms", 0) : 0;
	struct ntr_err e = {0};

	if (!j) {
		ntr_err_set(&e, -ENOMEM, "end the session's processes");
		ntr_init_error(in, rq->req, &e);
		ntr_closep(&mount_fd);
		ntr_closep(&upper_fd);
		return;
	}
	j->kind = kind;
	j->req = rq->req;
	j->call = kind == NTR_JOB_KILL ? (uint64_t)ntr_json_int(rq->msg, "call", 0) : 0;
	j->kill_at = ntr_mono_ns() + (uint64_t)NTR_MAX(grace, (int64_t)0) * 1000000u;
	j->mount_fd = mount_fd;
	j->upper_fd = upper_fd;
	while (*end)
		end = &(*end)->next;
	*end = j;
}

void ntr_init_kill(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_initpy_cancel(in, (uint64_t)ntr_json_int(rq->msg, "call", 0));
	ntr_initjob_start(in, NTR_JOB_KILL, rq, -1, -1);
}

void ntr_init_stop(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_initjob_start(in, NTR_JOB_STOP, rq, -1, -1);
}

void ntr_init_kill_all(struct ntr_init *in, unsigned wait_ms)
{
	struct ntr_initjob j = {.mount_fd = -1, .upper_fd = -1};
	struct pollfd p = {.fd = in->sig_fd, .events = POLLIN};
	uint64_t until = ntr_mono_ns() + (uint64_t)wait_ms * 1000000u;
	struct ntr_pidset *s, *next;
	char drain[1024];

	while (hit_all(in, &j, true) && ntr_mono_ns() < until) {
		poll(&p, 1, TICK_MS);
		while (read(in->sig_fd, drain, sizeof drain) > 0)
			;
		ntr_init_reap(in);
	}
	HASH_ITER (hh, j.hit, s, next) {
		HASH_DEL(j.hit, s);
		free(s);
	}
}
