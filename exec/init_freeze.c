/* init_freeze: all processes of the session stand still, so that a commit is one point in time.
 *
 * Order matters to shells: a parent stands still before its children are stopped, and is continued after
 * them. Otherwise it could see a child as stopped and take it for a job that was suspended. */
#include "init.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

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

/* NULL: ntr-init, or a process that is none of the session's. */
static const struct ntr_proc *parent_of(const struct ntr_proclist *l, size_t i)
{
	pid_t parent = l->v[i].ppid;

	while (i-- > 0)
		if (l->v[i].pid == parent)
			return &l->v[i];
	return NULL;
}

/* May its children be stopped? A parent that sleeps in the kernel may wait for just that (vfork). */
static bool held(const struct ntr_proc *parent)
{
	return !parent || stands(parent) || parent->state == 'D';
}

static bool thread_waits_in_rename(void *arg, int task, pid_t tid)
{
	bool killable;

	(void)task;
	return ntr_rename_holds(arg, tid, &killable);
}

/* Where a signal would break the wait off, such a process must not get one. */
static bool waits_in_rename(struct ntr_init *in, const struct ntr_proc *p)
{
	bool killable = true, all_but_asleep = p->state == 'D' && is_frozen(in, p);

	if (ntr_rename_holds(in, p->pid, &killable))
		return !killable || all_but_asleep;
	return all_but_asleep && p->threads > 1 && ntr_proc_any_thread(p->pid, thread_waits_in_rename, in);
}

/* Is the signal in one of these sets of the process's status? */
static bool has_signal(pid_t pid, const char *const sets[2], int sig)
{
	char path[40], text[4096];
	ntr_autoclose int fd = -1;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	for (int i = 0; i < 2; i++) {
		const char *p = strstr(text, sets[i]);

		if (p && strtoull(p + strlen(sets[i]), NULL, 16) >> (sig - 1) & 1)
			return true;
	}
	return false;
}

static bool is_stopped(void *arg, int task, pid_t tid)
{
	(void)arg;
	return ntr_thread_state(task, tid) == 'T';
}

/* Somebody else's SIGSTOP is on its way, or has stopped it since the list was made: it stays stopped after
 * us. In this order: a signal that is not pending any more has taken effect, on one thread at least. */
static bool stopped_by_others(const struct ntr_proc *p)
{
	static const char *const sets[2] = {"\nSigPnd:", "\nShdPnd:"};
	struct ntr_proc now;

	return has_signal(p->pid, sets, SIGSTOP) || ntr_proc_read(p->pid, &now) || now.start != p->start ||
	       stands(&now) || (now.threads > 1 && ntr_proc_any_thread(p->pid, is_stopped, NULL));
}

/* A parent that looks at what its SIGCHLD says would take its child for suspended: script(1) then stops
 * itself, for good. A SIGCHLD that says nothing, and is pending before the child stops, is the only one that
 * it gets. */
static void cover_stop(const struct ntr_proc *parent)
{
	static const char *const sets[2] = {"\nSigBlk:", "\nSigCgt:"};

	if (parent && has_signal(parent->pid, sets, SIGCHLD))
		kill(parent->pid, SIGCHLD);
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
		const struct ntr_proc *parent = parent_of(&l, i);
		struct ntr_proc *p = &l.v[i];

		ntr_proc_liveliest(p);
		if (stands(p) || waits_in_rename(in, p))
			continue;
		moving++;
		if (!held(parent)) {
			++*ret_awake;
		} else if (!is_frozen(in, p)) {
			++*ret_awake;
			if (stopped_by_others(p) || ntr_proclist_add(&in->frozen, p))
				continue;
			cover_stop(parent);
			kill(p->pid, SIGSTOP);
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

	ntr_rename_pause(in);
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
	ntr_rename_resume(in);
}

static void answer(struct ntr_init *in, uint64_t req, unsigned n)
{
	ntr_init_send(in, req, json_pack("{s:I}", "frozen", (json_int_t)n), NULL, 0);
}

void ntr_init_freeze_op(struct ntr_init *in, struct ntr_initreq *rq)
{
	in->held = true;
	answer(in, rq->req, ntr_init_freeze(in));
}

void ntr_init_thaw_op(struct ntr_init *in, struct ntr_initreq *rq)
{
	unsigned n = (unsigned)in->frozen.n;

	in->held = false;
	ntr_init_thaw(in);
	answer(in, rq->req, n);
}
