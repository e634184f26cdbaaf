/* init_freeze: all processes of the session stand still, so that a commit is one point in time.
 *
 * Order matters to shells: a parent stands still before its children are stopped, and is continued after
 * them. Otherwise it could see a child as stopped and take it for a job that was suspended. */
#include "init.h"

#include <signal.h>

/* A process that waits in the kernel (a disk, a vfork) cannot run code of its own before it stops, so after
 * this many looks it counts as standing still. */
enum { LOOKS_ASLEEP = 20, LOOKS_MAX = 500, LOOKS_QUICK = 20, QUICK_US = 50, LOOK_US = 1000 };

static bool is_frozen(const struct ntr_init *in, const struct ntr_proc *p)
{
	for (size_t i = 0; i < in->frozen.n; i++)
		if (in->frozen.v[i].pid == p->pid && in->frozen.v[i].start == p->start)
			return true;
	return false;
}

static bool stands(const struct ntr_proc *p)
{
	return p->state == 'T' || p->state == 't' || p->state == 'Z' || p->state == 'X';
}

/* May its children be stopped? A parent that sleeps in the kernel may wait for just that (vfork). */
static bool parent_held(const struct ntr_proclist *l, size_t i)
{
	pid_t parent = l->v[i].ppid;

	while (i-- > 0)
		if (l->v[i].pid == parent)
			return stands(&l->v[i]) || l->v[i].state == 'D';
	return true; /* ntr-init's own child */
}

/* One look: stops what runs. Returns how many do not stand still yet; *ret_awake: those that are not asleep
 * in the kernel. */
static unsigned stop_running(struct ntr_init *in, unsigned *ret_awake)
{
	struct ntr_proclist l = {0};
	unsigned moving = 0;

	*ret_awake = 0;
	if (ntr_init_scan(in, &l))
		moving = *ret_awake = 1;
	for (size_t i = 0; i < l.n; i++) {
		const struct ntr_proc *p = &l.v[i];

		if (stands(p))
			continue;
		moving++;
		if (!parent_held(&l, i)) {
			++*ret_awake;
		} else if (!is_frozen(in, p)) {
			if (ntr_proclist_add(&in->frozen, p) || kill(p->pid, SIGSTOP))
				continue;
			++*ret_awake;
		} else if (p->state != 'D') {
			kill(p->pid, SIGSTOP); /* should somebody have continued it */
			++*ret_awake;
		}
	}
	ntr_proclist_done(&l);
	return moving;
}

unsigned ntr_init_freeze(struct ntr_init *in)
{
	unsigned before = (unsigned)in->frozen.n, awake, asleep = 0;

	for (int i = 0; i < LOOKS_MAX && stop_running(in, &awake); i++) {
		asleep = awake ? 0 : asleep + 1;
		if (asleep > LOOKS_ASLEEP + LOOKS_QUICK)
			break;
		usleep(i < LOOKS_QUICK ? QUICK_US : LOOK_US);
	}
	return (unsigned)in->frozen.n - before;
}

void ntr_init_thaw(struct ntr_init *in)
{
	for (size_t i = in->frozen.n; i-- > 0;) {
		struct ntr_proc now;

		if (!ntr_proc_read(in->frozen.v[i].pid, &now) && now.start == in->frozen.v[i].start)
			kill(now.pid, SIGCONT);
	}
	ntr_proclist_done(&in->frozen);
}

static void answer(struct ntr_init *in, uint64_t req, unsigned n)
{
	ntr_init_send(in, req, json_pack("{s:I}", "frozen", (json_int_t)n), NULL, 0);
}

void ntr_init_freeze_op(struct ntr_init *in, struct ntr_initreq *rq)
{
	answer(in, rq->req, ntr_init_freeze(in));
}

void ntr_init_thaw_op(struct ntr_init *in, struct ntr_initreq *rq)
{
	unsigned n = (unsigned)in->frozen.n;

	ntr_init_thaw(in);
	answer(in, rq->req, n);
}
