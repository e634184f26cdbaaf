/* How the ring threads are scheduled.
 *
 * A CPU that runs nothing but SCHED_IDLE threads counts as idle. So a client whose request is being answered
 * by such a thread on its own CPU is left there when the answer wakes it; else the scheduler takes it to an
 * idle, halted CPU, and back, for each request (12 us against 40 to 70). With all CPUs busy the rule turns
 * round: such a thread then waits for whole time slices of others (a mean of 70 us against 28, and tails of
 * 100 ms). So the watchdog counts what wants to run, and each ring thread takes the policy that fits. An
 * ordinary user's threads cannot come back from SCHED_IDLE. */
#include "versions_impl.h"

#include <stdio.h>
#include <unistd.h>

/* Beside the CPUs' own: the watchdog that counts, and half a thread against coming and going. */
#define CROWDED(cpus) ((double)(cpus) + 1.5)
#define QUIET(cpus)   ((double)(cpus) + 1.0)

bool ntr_vsched_step(double *avg, unsigned running, unsigned cpus, bool crowded)
{
	*avg += (running - *avg) / 4;
	return *avg > (crowded ? QUIET(cpus) : CROWDED(cpus));
}

void ntr_vsched_look(struct ntr_versions *v)
{
	ntr_autofree char *text = NULL;
	unsigned running;
	size_t n;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!v->o.sched_idle || cpus < 1 || !atomic_load(&v->on_uring))
		return;
	if (ntr_read_file(AT_FDCWD, "/proc/loadavg", 256, &text, &n) ||
	        sscanf(text, "%*s %*s %*s %u/", &running) != 1)
		return;
	bool was = atomic_load_explicit(&v->crowded, memory_order_relaxed);

	atomic_store_explicit(&v->crowded, ntr_vsched_step(&v->running, running, (unsigned)cpus, was),
	        memory_order_relaxed);
}

void ntr_vsched_follow(struct ntr_vslot *s)
{
	const struct sched_param p = {0};
	bool idle = s->v->o.sched_idle && !atomic_load_explicit(&s->v->crowded, memory_order_relaxed);

	if (idle == s->idle || s->sched_fixed)
		return;
	if (sched_setscheduler(0, idle ? SCHED_IDLE : SCHED_OTHER, &p))
		s->sched_fixed = true;
	else
		s->idle = idle;
}
