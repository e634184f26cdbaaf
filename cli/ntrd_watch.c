/* While calls run: `signal` and `answer` frames of their clients, and clients that go away.
 *
 * The connection's own thread is inside the call, so one thread looks at all those sockets. It takes whole
 * `signal` frames out of the stream, and frames that begin with `{"op":"answer"` piece by piece (they may be
 * larger than the socket holds), and leaves everything else for the connection's thread, which reads on after
 * the call. A client has gone when its socket is closed, not when it only has nothing more to say. */
#include "ntrd.h"

#include "../base/buf.h"
#include "../base/util.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/socket.h>

enum { FRAME_MAX = 512 /* longest `signal` frame looked at */, EVENTS = 16 };
#define KILL_AFTER_NS 2000000000u

struct entry {
	TAILQ_ENTRY(entry) link;
	uint64_t id;
	struct ntrd_watch w;
	uint64_t kill_at; /* 0: not gone; UINT64_MAX: killed already */
	unsigned mark;    /* search for a circle: seen in this round */
	bool busy;        /* its signal function runs, without the lock */
	bool foreign;     /* the next frame is not for us */
	bool pending_hup;
	struct ntr_buf answer; /* of which `left` bytes are still to come */
	size_t left;
};

struct ntrd_watcher {
	pthread_t thread;
	int epoll_fd, wake_fd;
	pthread_mutex_t lock;
	pthread_cond_t idle;
	TAILQ_HEAD(, entry) entries;
	uint64_t last_id; /* 0 is the wake-up's */
	unsigned round;
	bool stop;
};

static struct entry *find(struct ntrd_watcher *w, uint64_t id)
{
	struct entry *en;

	TAILQ_FOREACH (en, &w->entries, link)
		if (en->id == id)
			return en;
	return NULL;
}

/* Delivers without the lock: a supervisor that is slow to answer must not hold up the ends of other calls. */
static void deliver(struct ntrd_watcher *w, struct entry *en, int sig)
{
	en->busy = true;
	pthread_mutex_unlock(&w->lock);
	en->w.signal(en->w.user, sig);
	pthread_mutex_lock(&w->lock);
	en->busy = false;
	pthread_cond_broadcast(&w->idle);
}

static void deliver_answer(struct ntrd_watcher *w, struct entry *en, const json_t *msg)
{
	en->busy = true;
	pthread_mutex_unlock(&w->lock);
	en->w.answer(en->w.user, msg);
	pthread_mutex_lock(&w->lock);
	en->busy = false;
	pthread_cond_broadcast(&w->idle);
}

static void gone(struct ntrd_watcher *w, struct entry *en)
{
	if (en->kill_at)
		return;
	en->kill_at = ntr_mono_ns() + KILL_AFTER_NS;
	deliver(w, en, SIGHUP);
}

static const char *skip_blanks(const char *p, const char *end)
{
	while (p < end && memchr(" \t\r\n", *p, 4))
		p++;
	return p;
}

/* Does the text of a frame begin as an answer's? 1, 0, or -1: too little of it is there to tell. */
static int begins_answer(const char *p, const char *end)
{
	static const char *const words[] = {"{", "\"op\"", ":", "\"answer\""};

	for (size_t i = 0; i < NTR_COUNT(words); i++) {
		size_t n = strlen(words[i]);

		p = skip_blanks(p, end);
		if (strncmp(p, words[i], NTR_MIN(n, (size_t)(end - p))) != 0)
			return 0;
		if (n > (size_t)(end - p))
			return -1;
		p += n;
	}
	return 1;
}

/* Takes what is there of an answer. True: all of it is. */
static bool take_answer(struct entry *en)
{
	while (en->left) {
		ssize_t n;

		if (ntr_buf_reserve(&en->answer, NTR_MIN(en->left, (size_t)1 << 16)))
			break;
		n = recv(en->w.sock, en->answer.data + en->answer.len, NTR_MIN(en->left, (size_t)1 << 16),
		        MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		en->answer.len += (size_t)n;
		en->left -= (size_t)n;
	}
	return !en->left;
}

/* An answer at the head of the stream: begins to take it. 1, 0: something else is there, -1: nothing yet that
 * tells. */
static int find_answer(struct entry *en)
{
	char head[4 + 64];
	ssize_t n = recv(en->w.sock, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
	size_t len;
	int r;

	if (n <= 4)
		return -1;
	len = ntr_get_le32(head);
	if (len > NTR_WIRE_MAX)
		return 0;
	r = begins_answer(head + 4, head + NTR_MIN((size_t)n, len + 4));
	if (r <= 0)
		return (size_t)n >= len + 4 ? 0 : r;
	if (recv(en->w.sock, head, 4, MSG_DONTWAIT) != 4)
		return -1;
	en->left = len;
	return 1;
}

/* 1: one was delivered, and there may be more; 0: something else is there; -1: more has to come. What is no
 * JSON ends the connection as if the client had gone. */
static int answers(struct ntrd_watcher *w, struct entry *en)
{
	ntr_autojson json_t *msg = NULL;
	int r;

	if (!en->w.answer)
		return 0;
	r = en->left ? 1 : find_answer(en);
	if (r <= 0)
		return r;
	if (!take_answer(en)) {
		if (en->answer.err)
			gone(w, en);
		return -1;
	}
	msg = json_loadb(
	        (const char *)en->answer.data, en->answer.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	ntr_buf_done(&en->answer);
	if (msg)
		deliver_answer(w, en, msg);
	else
		gone(w, en);
	return 1;
}

/* The signal of a whole frame at the head of the stream, after taking it off; 0: none (yet); -1: one that is
 * no signal's number was taken off. */
static int take_signal(struct entry *en)
{
	ntr_autojson json_t *msg = NULL;
	uint8_t buf[FRAME_MAX];
	ssize_t n = recv(en->w.sock, buf, sizeof buf, MSG_PEEK | MSG_DONTWAIT);
	size_t len;
	int64_t sig;

	if (n < 4)
		return 0;
	len = (size_t)ntr_get_le32(buf) + 4;
	if (len > sizeof buf) {
		en->foreign = true;
		return 0;
	}
	if ((size_t)n < len)
		return 0;
	msg = json_loadb((const char *)buf + 4, len - 4, JSON_REJECT_DUPLICATES, NULL);
	sig = ntr_json_int(msg, "sig", 0);
	if (strcmp(ntr_json_str(msg, "op", ""), "signal")) {
		en->foreign = true; /* an answer has been taken before */
		return 0;
	}
	if (recv(en->w.sock, buf, len, MSG_DONTWAIT) != (ssize_t)len)
		return 0;
	return sig > 0 && sig < NSIG ? (int)sig : -1;
}

static void readable(struct ntrd_watcher *w, uint64_t id)
{
	struct entry *en;
	int sig;

	while ((en = find(w, id)) && !en->foreign) {
		int r = answers(w, en);

		if (r < 0)
			break;
		sig = r ? -1 : take_signal(en);
		if (!sig)
			break;
		if (sig > 0)
			deliver(w, en, sig);
	}
}

/* Time until the next kill in ms, after doing those that are due. */
static int timers(struct ntrd_watcher *w)
{
	uint64_t now = ntr_mono_ns(), next = UINT64_MAX;
	struct entry *en;

again:
	TAILQ_FOREACH (en, &w->entries, link) {
		if (en->pending_hup) {
			en->pending_hup = false;
			gone(w, en);
			goto again; /* the lock was given up */
		}
		if (en->kill_at && en->kill_at <= now) {
			en->kill_at = UINT64_MAX;
			deliver(w, en, SIGKILL);
			goto again;
		}
		if (en->kill_at && en->kill_at < next)
			next = en->kill_at;
	}
	return next == UINT64_MAX ? -1 : (int)((next - NTR_MIN(next, now)) / 1000000u) + 1;
}

static void handle(struct ntrd_watcher *w, const struct epoll_event *ev)
{
	struct entry *en;
	eventfd_t v;

	if (!ev->data.u64) {
		eventfd_read(w->wake_fd, &v);
		return;
	}
	if (ev->events & EPOLLIN)
		readable(w, ev->data.u64);
	en = find(w, ev->data.u64);
	if (en && (ev->events & (EPOLLHUP | EPOLLERR)))
		gone(w, en);
}

static void *watch_thread(void *arg)
{
	struct ntrd_watcher *w = arg;
	struct epoll_event evs[EVENTS];
	int timeout = -1;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		int n;

		pthread_mutex_unlock(&w->lock);
		n = epoll_wait(w->epoll_fd, evs, EVENTS, timeout);
		pthread_mutex_lock(&w->lock);
		for (int i = 0; i < n; i++)
			handle(w, &evs[i]);
		timeout = timers(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int ntrd_watcher_new(struct ntrd_watcher **ret)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct ntrd_watcher *w = calloc(1, sizeof *w);
	int r = 0;

	if (!w)
		return -ENOMEM;
	TAILQ_INIT(&w->entries);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->idle, NULL);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->epoll_fd < 0 || w->wake_fd < 0 || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->wake_fd, &ev))
		r = -errno;
	if (!r)
		r = -pthread_create(&w->thread, NULL, watch_thread, w);
	if (r) {
		ntr_closep(&w->epoll_fd);
		ntr_closep(&w->wake_fd);
		free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void ntrd_watcher_free(struct ntrd_watcher *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_mutex_unlock(&w->lock);
	eventfd_write(w->wake_fd, 1);
	pthread_join(w->thread, NULL);
	close(w->epoll_fd);
	close(w->wake_fd);
	pthread_cond_destroy(&w->idle);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Does a call in session `from` wait, directly or through others, for one in session `to`? */
static bool waits_for(struct ntrd_watcher *w, const char *from, const char *to)
{
	struct entry *en;

	if (!strcmp(from, to))
		return true;
	TAILQ_FOREACH (en, &w->entries, link) {
		if (en->mark == w->round || !en->w.inside || strcmp(en->w.inside, from))
			continue;
		en->mark = w->round;
		if (waits_for(w, en->w.session, to))
			return true;
	}
	return false;
}

static bool would_wait(struct ntrd_watcher *w, const char *session, const char *inside)
{
	w->round++;
	return waits_for(w, session, inside);
}

bool ntrd_watch_waits(struct ntrd_watcher *w, const char *session, const char *inside)
{
	bool waits;

	pthread_mutex_lock(&w->lock);
	waits = would_wait(w, session, inside);
	pthread_mutex_unlock(&w->lock);
	return waits;
}

static int add_locked(struct ntrd_watcher *w, struct entry *en)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

	if (en->w.inside && would_wait(w, en->w.session, en->w.inside))
		return -EDEADLK;
	ev.data.u64 = en->id = ++w->last_id;
	if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, en->w.sock, &ev))
		return -errno;
	TAILQ_INSERT_TAIL(&w->entries, en, link);
	return 0;
}

int ntrd_watch_add(struct ntrd_watcher *w, const struct ntrd_watch *watch, uint64_t *ret_id)
{
	struct entry *en = calloc(1, sizeof *en);
	int r;

	if (!en)
		return -ENOMEM;
	en->w = *watch;
	pthread_mutex_lock(&w->lock);
	r = add_locked(w, en);
	if (!r)
		*ret_id = en->id;
	pthread_mutex_unlock(&w->lock);
	if (r)
		free(en);
	return r;
}

/* The call is over in the middle of an answer: the stream goes on behind it. */
static void drop_rest(struct entry *en)
{
	char skip[65536];

	while (en->left) {
		ssize_t n = recv(en->w.sock, skip, NTR_MIN(en->left, sizeof skip), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		en->left -= (size_t)n;
	}
}

void ntrd_watch_remove(struct ntrd_watcher *w, uint64_t id)
{
	struct entry *en;

	pthread_mutex_lock(&w->lock);
	en = find(w, id);
	if (en) {
		while (en->busy)
			pthread_cond_wait(&w->idle, &w->lock);
		epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, en->w.sock, NULL);
		TAILQ_REMOVE(&w->entries, en, link);
	}
	pthread_mutex_unlock(&w->lock);
	if (en) {
		drop_rest(en);
		ntr_buf_done(&en->answer);
	}
	free(en);
}

void ntrd_watch_hangup(struct ntrd_watcher *w)
{
	struct entry *en;

	pthread_mutex_lock(&w->lock);
	TAILQ_FOREACH (en, &w->entries, link)
		en->pending_hup = !en->w.keep;
	pthread_mutex_unlock(&w->lock);
	eventfd_write(w->wake_fd, 1);
}
