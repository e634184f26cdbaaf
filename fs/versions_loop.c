/* Threads that read /dev/fuse: one leads (reads and serves), the others wait.
 *
 * More readers than one make the kernel hand every request to another thread on another, idle CPU, and the
 * wake-ups cost more than the work: 57 us a request against 12. So one thread reads, and every FOLLOW
 * requests it looks where its client runs and moves there. It gives up the lead before a long read, or when
 * the watchdog finds it in one request for a tick, so that nobody waits behind a slow disk; when it is done
 * it queues up again. */
#include "versions_impl.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

enum { FOLLOW = 256, WAKE_SIGNAL = SIGURG /* which nobody minds otherwise */ };

struct follower {
	unsigned served;
	int cpu; /* where this thread was moved to; -1: nowhere */
};

static void take_lead(struct ntr_versions *v, struct ntr_vslot *s)
{
	struct ntr_vloop *l = &v->loop;

	pthread_mutex_lock(&l->lock);
	while (l->led && !atomic_load(&v->stopping) && atomic_load(&v->alive))
		pthread_cond_wait(&l->cond, &l->lock);
	l->led = true;
	atomic_store(&s->leading, true);
	pthread_mutex_unlock(&l->lock);
}

void ntr_vloop_yield(struct ntr_versions *v, struct ntr_vslot *s)
{
	struct ntr_vloop *l = &v->loop;

	if (!atomic_exchange(&s->leading, false))
		return;
	pthread_mutex_lock(&l->lock);
	l->led = false;
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

/* The CPU that a process ran on last: field 39 of its stat, counted behind the ')' that ends its name. -1:
 * unknown. */
static int cpu_of(pid_t pid)
{
	char path[64], text[1024];

	if (pid <= 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	ntr_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return -1;
	text[n] = '\0';
	const char *p = strrchr(text, ')');

	for (int field = 2; p && field < 39; field++)
		p = strchr(p + 1, ' ');
	return p ? atoi(p + 1) : -1;
}

static void pin(struct follower *f, int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) == 0)
		f->cpu = cpu;
}

static void unpin(struct ntr_versions *v, struct follower *f)
{
	if (f->cpu >= 0)
		(void)sched_setaffinity(0, sizeof(v->loop.cpus), &v->loop.cpus);
	f->cpu = -1;
	f->served = 0;
}

static void follow(struct ntr_versions *v, struct ntr_vslot *s, struct follower *f)
{
	if (++f->served % FOLLOW)
		return;
	int cpu = cpu_of(s->client);

	if (cpu >= 0 && cpu < CPU_SETSIZE && cpu != f->cpu && CPU_ISSET((size_t)cpu, &v->loop.cpus))
		pin(f, cpu);
}

/* Returns false when the session is over. */
static bool receive(struct ntr_versions *v, struct fuse_buf *buf)
{
	int r;

	do
		r = fuse_session_receive_buf(v->se, buf);
	while ((r == -EINTR || r == -EAGAIN) && !atomic_load(&v->stopping));
	return r > 0;
}

static void lead(struct ntr_versions *v, struct ntr_vslot *s, struct fuse_buf *buf)
{
	struct follower f = {.cpu = -1};

	while (atomic_load(&s->leading) && !atomic_load(&v->stopping) && atomic_load(&v->alive)) {
		if (!receive(v, buf)) {
			ntr_versions_ended(v);
			break;
		}
		fuse_session_process_buf(v->se, buf);
		follow(v, s, &f);
	}
	unpin(v, &f);
	ntr_vloop_yield(v, s);
}

static void *reader(void *arg)
{
	struct ntr_versions *v = arg;
	struct ntr_vslot *s = ntr_vslot_self(v);
	struct fuse_buf buf = {0};
	sigset_t wake;

	sigemptyset(&wake);
	sigaddset(&wake, WAKE_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
	while (s && !atomic_load(&v->stopping) && atomic_load(&v->alive)) {
		take_lead(v, s);
		lead(v, s, &buf);
	}
	free(buf.mem);
	pthread_mutex_lock(&v->loop.lock);
	v->loop.running--;
	pthread_mutex_unlock(&v->loop.lock);
	return NULL;
}

/* Does nothing but interrupt the read that a reader waits in. */
static void woken(int sig)
{
	(void)sig;
}

static void catch_wake(void)
{
	struct sigaction now, ours = {.sa_handler = woken};

	if (sigaction(WAKE_SIGNAL, NULL, &now) == 0 &&
	        (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN))
		(void)sigaction(WAKE_SIGNAL, &ours, NULL);
}

static unsigned readers_wanted(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 2 ? 3 : cpus + 1 > NTR_VREADERS_MAX ? NTR_VREADERS_MAX : (unsigned)cpus + 1;
}

int ntr_vloop_start(struct ntr_versions *v)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ntr_vloop *l = &v->loop;
	unsigned want = readers_wanted();

	pthread_once(&once, catch_wake);
	if (sched_getaffinity(0, sizeof(l->cpus), &l->cpus) < 0)
		CPU_ZERO(&l->cpus);
	pthread_mutex_lock(&l->lock);
	while (l->n < want && pthread_create(&l->thread[l->n], NULL, reader, v) == 0)
		l->n++;
	l->running = l->n;
	pthread_mutex_unlock(&l->lock);
	return l->n ? 0 : -EAGAIN;
}

/* Interrupts whoever waits for the device. A signal may come just before the read it is meant for, so again
 * and again. */
static bool kick(struct ntr_vloop *l)
{
	pthread_mutex_lock(&l->lock);
	bool done = l->running == 0;

	pthread_cond_broadcast(&l->cond);
	pthread_mutex_unlock(&l->lock);
	for (unsigned i = 0; i < l->n && !done; i++)
		pthread_kill(l->thread[i], WAKE_SIGNAL);
	return done;
}

bool ntr_vloop_stop(struct ntr_versions *v)
{
	struct ntr_vloop *l = &v->loop;
	uint64_t until = ntr_mono_ns() + NTR_VSTOP_S * 1000000000ull;
	unsigned pause_us = 50;

	while (!kick(l)) {
		if (ntr_mono_ns() > until)
			return false;
		usleep(pause_us);
		pause_us = NTR_MIN(pause_us * 2, 20000u);
	}
	for (unsigned i = 0; i < l->n; i++)
		pthread_join(l->thread[i], NULL);
	l->n = 0;
	return true;
}
