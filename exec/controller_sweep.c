/* The sweeper: a thread that deletes uppers which are history, off everybody's path.
 *
 * Deletions fill the disk's journal, and each commit's fdatasync has to wait for it: beside the deletion of
 * 50,000 files calls took 16-24 ms that take 3-8 without. So it works while nothing is asked of the daemon,
 * and stops when something is; but not for ever, and not where room is short. */
#include "controller_impl.h"

#include <errno.h>
#include <sys/statvfs.h>

enum { REST_MS = 300, PATIENCE_S = 10, GRACE_S = 2 };

static bool room_is_short(const struct ntr_ctl *c)
{
	struct statvfs v;

	return !fstatvfs(ntr_store_dirfd(c->store), &v) &&
	       (v.f_bavail < v.f_blocks / 20 || (v.f_files && v.f_favail < v.f_files / 20));
}

static bool is_used(struct ntr_ctl *c)
{
	uint64_t now = ntr_mono_ns();

	return now < c->sweep_patience && now - NTR_MIN(now, c->used_ns) < REST_MS * 1000000ull;
}

static bool must_stop(void *user)
{
	struct ntr_ctl *c = user;

	return c->sweep_end || (!c->stopping && is_used(c));
}

/* With c->m, which it lets go meanwhile. */
static void stock(struct ntr_ctl *c)
{
	c->sweep = false;
	pthread_mutex_unlock(&c->m);
	ntr_upper_stock(c->store);
	pthread_mutex_lock(&c->m);
}

/* With c->m. What is ready-made is made again meanwhile: the rollbacks of a burst take it. */
static void await_rest(struct ntr_ctl *c)
{
	while (!c->stopping && is_used(c)) {
		struct timespec until = ntr_mono_in(REST_MS * 1000000ull / 4);

		if (c->sweep)
			stock(c);
		else
			pthread_cond_timedwait(&c->sweep_cond, &c->m, &until);
	}
}

static void *sweeper(void *arg)
{
	struct ntr_ctl *c = arg;
	bool left = false;

	pthread_mutex_lock(&c->m);
	for (;;) {
		while (!c->sweep && !left && !c->stopping)
			pthread_cond_wait(&c->sweep_cond, &c->m);
		if (c->sweep_end || (!c->sweep && !left))
			break;
		if (!left)
			c->sweep_patience = room_is_short(c) ? 0 : ntr_mono_ns() + PATIENCE_S * 1000000000ull;
		stock(c);
		await_rest(c);
		pthread_mutex_unlock(&c->m);
		left = !ntr_upper_sweep(c->store, must_stop, c);
		pthread_mutex_lock(&c->m);
	}
	c->swept = true;
	pthread_cond_broadcast(&c->sweep_cond);
	pthread_mutex_unlock(&c->m);
	return NULL;
}

void ntr_ctl_sweep(struct ntr_ctl *c)
{
	pthread_mutex_lock(&c->m);
	c->sweep = true;
	pthread_cond_signal(&c->sweep_cond);
	pthread_mutex_unlock(&c->m);
}

void ntr_ctl_used(struct ntr_ctl *c)
{
	c->used_ns = ntr_mono_ns();
}

void ntr_ctl_sweeper_start(struct ntr_ctl *c)
{
	c->sweep = true;
	c->sweeper_on = !pthread_create(&c->sweeper, NULL, sweeper, c);
}

/* A million files take longer to delete than anybody waits for a daemon to end. */
void ntr_ctl_sweeper_end(struct ntr_ctl *c)
{
	struct timespec until = ntr_mono_in(GRACE_S * 1000000000ull);

	if (!c->sweeper_on)
		return;
	pthread_mutex_lock(&c->m);
	c->stopping = true;
	pthread_cond_broadcast(&c->sweep_cond);
	while (!c->swept && pthread_cond_timedwait(&c->sweep_cond, &c->m, &until) != ETIMEDOUT)
		;
	c->sweep_end = !c->swept;
	pthread_mutex_unlock(&c->m);
	pthread_join(c->sweeper, NULL);
}
