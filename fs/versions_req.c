/* One request from its start to its only answer, and the watchdog that sees to it that there is one.
 *
 * A thread's state word goes from IDLE to BUSY when a request begins and back by compare-and-swap when the
 * thread claims the right to answer; the watchdog swaps BUSY for TAKEN. The word carries a number that grows
 * with every request, so a late swap can never hit the request that came after, and the fields beside it
 * belong to the number that the swap has confirmed.
 *
 * On io_uring libfuse holds a ring's lock while the ring's thread serves, so nobody else can answer in its
 * stead: there the watchdog ends the whole connection (versions_stuck.c). Where it cannot, and where all of
 * this process is stopped, the kernel's own request timeout (INIT) ends the wait, a little later.
 */
#include "versions_impl.h"

#include <stdarg.h>
#include <stdio.h>

enum { IDLE = 0, BUSY = 1, TAKEN = 2, PHASE = 3, STEP = 4 };
enum { TICK_MS = 100 };
#define SAY_NS 10000000000ull

void (*ntr_vreq_hook)(pid_t client, enum ntr_vop op);

static _Thread_local struct ntr_vslot *self;
static _Thread_local uint64_t self_serial;

void ntr_vlog(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "ntr: versions mount: %s\n", text);
}

/* A thread of libfuse's rings: it must not be cancelled inside RocksDB, which is C++ (it ends by its event).
 */
static void prepare_ring_thread(struct ntr_vslot *s)
{
	s->uring = true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	atomic_store(&s->v->on_uring, true);
}

static struct ntr_vslot *slot_new(struct ntr_versions *v)
{
	struct ntr_vslot *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->v = v;
	pthread_mutex_lock(&v->lock);
	s->next = v->slots;
	v->slots = s;
	pthread_mutex_unlock(&v->lock);
	return s;
}

/* The serial number tells a driver from an older one at the same address. */
struct ntr_vslot *ntr_vslot_self(struct ntr_versions *v)
{
	if (self && self_serial == v->serial)
		return self;
	self = slot_new(v);
	self_serial = v->serial;
	return self;
}

void ntr_vslots_init(struct ntr_versions *v)
{
	static _Atomic uint64_t last;

	v->serial = atomic_fetch_add(&last, 1) + 1;
}

void ntr_vslots_free(struct ntr_versions *v)
{
	while (v->slots) {
		struct ntr_vslot *s = v->slots;

		v->slots = s->next;
		free(s->buf);
		free(s);
	}
}

static bool is_uring(fuse_req_t req)
{
#if NTR_FUSE_URING
	return fuse_req_is_uring(req);
#else
	(void)req;
	return false;
#endif
}

static void wake_watchdog(struct ntr_versions *v)
{
	pthread_mutex_lock(&v->watch.lock);
	atomic_store(&v->watch.asleep, false);
	pthread_cond_signal(&v->watch.cond);
	pthread_mutex_unlock(&v->watch.lock);
}

struct ntr_vslot *ntr_vreq_begin(fuse_req_t req, enum ntr_vop op)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vslot *s = ntr_vslot_self(v);

	ntr_vkernel_acquire(v);
	if (!s) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	if (is_uring(req) && !s->uring)
		prepare_ring_thread(s);
	if (s->uring)
		ntr_vsched_follow(s);
	s->client = fuse_req_ctx(req)->pid;
	if (ntr_vreq_hook)
		ntr_vreq_hook(s->client, op);
	atomic_store_explicit(&s->op, op, memory_order_relaxed);
	atomic_store_explicit(&s->req, req, memory_order_relaxed);
	atomic_store_explicit(&s->start_ns, ntr_mono_ns(), memory_order_relaxed);
	/* Sequentially consistent: either the watchdog sees this request before it sleeps, or we see it
	 * asleep. */
	uint64_t n = atomic_load_explicit(&s->state, memory_order_relaxed) & ~(uint64_t)PHASE;

	atomic_store(&s->state, (n + STEP) | BUSY);
	if (atomic_load(&v->watch.asleep))
		wake_watchdog(v);
	return s;
}

bool ntr_vreq_claim(struct ntr_vslot *s)
{
	uint64_t was = atomic_load_explicit(&s->state, memory_order_relaxed);
	uint64_t took = ntr_mono_ns() - atomic_load_explicit(&s->start_ns, memory_order_relaxed);

	ntr_vkernel_release(s->v);
	ntr_vstats_add(&s->stats, (enum ntr_vop)atomic_load_explicit(&s->op, memory_order_relaxed), 1, took);
	return (was & PHASE) == BUSY &&
	       atomic_compare_exchange_strong(&s->state, &was, (was & ~(uint64_t)PHASE) | IDLE);
}

/* Whoever reads sees an errno only; what it means stands in the log, once in a while. */
static void log_failure(struct ntr_vslot *s, int err)
{
	uint64_t now = ntr_mono_ns(), last = atomic_load(&s->v->said_ns);

	if ((err != EIO && err != EUCLEAN && err != EMFILE && err != ENFILE) || (last && now - last < SAY_NS))
		return;
	if (!atomic_compare_exchange_strong(&s->v->said_ns, &last, now))
		return;
	ntr_vlog("a %s failed: %s; %s", ntr_vop_name((enum ntr_vop)atomic_load(&s->op)), strerror(err),
	        err == EIO       ? "check the disk (`dmesg` names it), then run `ntr fsck`"
	        : err == EUCLEAN ? "run `ntr fsck`, which says what is damaged"
	                         : "raise the limit on open files (ulimit -n), then `ntr daemon stop`");
}

void ntr_vreq_err(struct ntr_vslot *s, fuse_req_t req, int err)
{
	log_failure(s, err);
	if (ntr_vreq_claim(s))
		fuse_reply_err(req, err);
}

void ntr_vreq_count(fuse_req_t req, enum ntr_vop op, uint64_t n)
{
	struct ntr_vslot *s = ntr_vslot_self(fuse_req_userdata(req));

	if (s)
		ntr_vstats_add(&s->stats, op, n, 0);
}

uint8_t *ntr_vreq_buffer(struct ntr_vslot *s, fuse_req_t req, size_t n)
{
#if NTR_FUSE_URING
	if (s->uring) {
		char *payload;
		size_t size;

		if (fuse_req_get_payload(req, &payload, &size, NULL) == 0 && size >= n)
			return (uint8_t *)payload;
	}
#else
	(void)req;
#endif
	if (s->cap < n) {
		size_t cap = NTR_MAX(n, (size_t)65536);
		uint8_t *p = realloc(s->buf, cap);

		if (!p)
			return NULL;
		s->buf = p;
		s->cap = cap;
	}
	return s->buf;
}

/* ---- watchdog ---- */

static void answer_for(struct ntr_vslot *s, uint64_t state, enum ntr_vop op)
{
	fuse_req_t req = atomic_load_explicit(&s->req, memory_order_relaxed);

	if (!atomic_compare_exchange_strong(&s->state, &state, (state & ~(uint64_t)PHASE) | TAKEN))
		return;
	fuse_reply_err(req, EIO);
	ntr_vlog("a %s was not answered within %u s: the reader got EIO; is the store's disk all right?",
	        ntr_vop_name(op), s->v->o.watchdog_s);
}

/* One slot at one tick. Returns whether anything happened there since the last. *ret_stuck: its request is
 * overdue, and only the end of the connection can answer it. */
static bool look_at(struct ntr_vslot *s, uint64_t now, bool *ret_stuck)
{
	uint64_t state = atomic_load(&s->state);
	bool moved = state != s->ticked, busy = (state & PHASE) != IDLE;

	s->ticked = state;
	if (moved || (state & PHASE) != BUSY)
		return moved || busy;
	/* The same request as a tick ago: let others be served meanwhile. */
	ntr_vloop_yield(s->v, s);
	uint64_t start = atomic_load_explicit(&s->start_ns, memory_order_relaxed);
	enum ntr_vop op = (enum ntr_vop)atomic_load_explicit(&s->op, memory_order_relaxed);

	if (now < start || now - start < s->v->o.watchdog_s * 1000000000ull)
		return true;
	if (!s->uring) {
		answer_for(s, state, op);
	} else if (s->reported != state) {
		ntr_vlog("a %s has not been answered for %u s; is the store's disk all right?",
		        ntr_vop_name(op), s->v->o.watchdog_s);
		s->reported = state;
		*ret_stuck = true;
	}
	return true;
}

unsigned ntr_vreqs(struct ntr_versions *v)
{
	unsigned n = 0;

	pthread_mutex_lock(&v->lock);
	for (struct ntr_vslot *s = v->slots; s; s = s->next)
		n += (atomic_load(&s->state) & PHASE) != IDLE;
	pthread_mutex_unlock(&v->lock);
	return n;
}

static bool look(struct ntr_versions *v)
{
	uint64_t now = ntr_mono_ns();
	bool active = false, stuck = false;

	pthread_mutex_lock(&v->lock);
	for (struct ntr_vslot *s = v->slots; s; s = s->next)
		active |= look_at(s, now, &stuck);
	pthread_mutex_unlock(&v->lock);
	if (stuck && !atomic_load(&v->aborted))
		ntr_vabort(v);
	return active;
}

static void tick(struct ntr_vwatch *w)
{
	struct timespec until = ntr_mono_in(TICK_MS * 1000000ull);

	while (!w->stop && pthread_cond_timedwait(&w->cond, &w->lock, &until) != ETIMEDOUT)
		;
}

/* Sleeps for good while no requests come: a mount that nobody uses costs nothing. */
static void *watchdog(void *arg)
{
	struct ntr_versions *v = arg;
	struct ntr_vwatch *w = &v->watch;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		tick(w);
		pthread_mutex_unlock(&w->lock);
		bool active = look(v);

		ntr_vsched_look(v);
		if (!active) {
			atomic_store(&w->asleep, true);
			active = look(v);
		}
		pthread_mutex_lock(&w->lock);
		if (active)
			atomic_store(&w->asleep, false);
		while (atomic_load(&w->asleep) && !w->stop)
			pthread_cond_wait(&w->cond, &w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int ntr_vwatch_start(struct ntr_versions *v)
{
	struct ntr_vwatch *w = &v->watch;

	pthread_mutex_init(&w->lock, NULL);
	ntr_cond_init(&w->cond);
	w->running = pthread_create(&w->thread, NULL, watchdog, v) == 0;
	return w->running ? 0 : -EAGAIN;
}

void ntr_vwatch_stop(struct ntr_versions *v)
{
	struct ntr_vwatch *w = &v->watch;

	if (w->running) {
		pthread_mutex_lock(&w->lock);
		w->stop = true;
		pthread_cond_signal(&w->cond);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
		w->running = false;
	}
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
}
