/* The socket and its connections.
 *
 * Worker threads wait in accept; whoever gets a connection serves it to its end. There is always at least one
 * waiting, so a new client costs one wake-up and no hand-over. A few idle ones are kept; the rest end with
 * their connection. */
#include "ntrd.h"

#include "../base/buf.h"
#include "../base/util.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/socket.h>

enum { CONNS_MAX = 1024, IDLE_MAX = 4, STACK_BYTES = 2 << 20 };

struct ntrd_conn {
	TAILQ_ENTRY(ntrd_conn) link;
	int sock;
	bool greeted, keep;
	pthread_mutex_t send_lock; /* guards unsent, too */
	struct ntr_buf unsent;     /* the end of a frame that was begun */
};

struct ntrd_server {
	struct ntrd_server_options o;
	struct ntrd_watcher *watcher;
	int stop_fd;
	uint64_t started_ns;
	pthread_mutex_t lock; /* for all below */
	pthread_cond_t ended;
	TAILQ_HEAD(, ntrd_conn) conns;
	unsigned nconns, nthreads, nidle;
	uint64_t requests;
	bool draining;
};

static int spawn_worker(struct ntrd_server *srv);

/* ---- one connection */

int ntrd_conn_sock(const struct ntrd_conn *conn)
{
	return conn->sock;
}

bool *ntrd_conn_greeted(struct ntrd_conn *conn)
{
	return &conn->greeted;
}

void ntrd_conn_keep(struct ntrd_conn *conn)
{
	conn->keep = true;
}

/* Sends what is in unsent until all is gone or, with a limit, the time is up: -ETIMEDOUT, and the rest stays.
 */
static int flush_unsent(struct ntrd_conn *conn, int timeout_ms)
{
	uint64_t until = ntr_mono_ns() + (uint64_t)NTR_MAX(timeout_ms, 0) * 1000000u;
	size_t off = 0;
	int r = 0;

	while (!r && off < conn->unsent.len) {
		struct pollfd p = {.fd = conn->sock, .events = POLLOUT};
		ssize_t n = send(conn->sock, conn->unsent.data + off, conn->unsent.len - off,
		        MSG_NOSIGNAL | MSG_DONTWAIT);
		uint64_t now = ntr_mono_ns();

		if (n >= 0)
			off += (size_t)n;
		else if (errno == EAGAIN && timeout_ms >= 0 && now >= until)
			r = -ETIMEDOUT;
		else if (errno == EAGAIN)
			poll(&p, 1, timeout_ms < 0 ? -1 : (int)((until - now) / 1000000u) + 1);
		else if (errno != EINTR)
			r = -errno;
	}
	memmove(conn->unsent.data, conn->unsent.data + off, conn->unsent.len - off);
	conn->unsent.len -= off;
	if (!conn->unsent.len)
		ntr_buf_done(&conn->unsent);
	return r;
}

int ntrd_conn_send(struct ntrd_conn *conn, json_t *msg, const int *fds, size_t nfds)
{
	int r = 0;

	pthread_mutex_lock(&conn->send_lock);
	if (conn->unsent.len)
		r = flush_unsent(conn, -1);
	if (!r)
		r = ntr_wire_send(conn->sock, msg, fds, nfds);
	pthread_mutex_unlock(&conn->send_lock);
	return r;
}

static int frame_begin(struct ntrd_conn *conn, const json_t *msg, unsigned timeout_ms)
{
	ntr_autofree char *text = json_dumps(msg, JSON_COMPACT);
	size_t whole, n = text ? strlen(text) : 0;
	int r;

	if (!text)
		return -ENOMEM;
	if (n > NTR_WIRE_MAX)
		return -EMSGSIZE;
	ntr_buf_le32(&conn->unsent, (uint32_t)n);
	if (ntr_buf_add(&conn->unsent, text, n)) {
		ntr_buf_done(&conn->unsent);
		return -ENOMEM;
	}
	whole = conn->unsent.len;
	r = flush_unsent(conn, (int)timeout_ms);
	if (r == -ETIMEDOUT && conn->unsent.len == whole)
		ntr_buf_done(&conn->unsent); /* nothing of it is on its way */
	return r;
}

int ntrd_conn_try_send(struct ntrd_conn *conn, json_t *msg, unsigned timeout_ms)
{
	ntr_autojson json_t *own = msg;
	int r = 0;

	if (!own)
		return -ENOMEM;
	pthread_mutex_lock(&conn->send_lock);
	if (conn->unsent.len)
		r = flush_unsent(conn, (int)timeout_ms);
	if (!r)
		r = frame_begin(conn, own, timeout_ms);
	pthread_mutex_unlock(&conn->send_lock);
	return r;
}

static void refuse(struct ntrd_conn *conn, int code, const char *why, const char *todo)
{
	struct ntr_err e = {0};
	ntr_autojson json_t *o = NULL;

	ntr_err_full(&e, code, "connection to ntrd", why, todo);
	o = ntrd_error_json(&e, code == -EAGAIN ? "busy" : "protocol");
	if (o)
		ntrd_conn_send(conn, o, NULL, 0);
}

static bool admit(struct ntrd_server *srv, struct ntrd_conn *conn)
{
	uid_t uid;
	pid_t pid;
	int r = ntr_wire_peer(conn->sock, &pid, &uid);

	if (r || uid != geteuid())
		refuse(conn, r ? r : -EPERM, "the daemon serves its own user only",
		        "use a store of your own");
	else if (ntrd_server_connections(srv) > CONNS_MAX)
		refuse(conn, -EAGAIN, "too many connections", "try again");
	else
		return true;
	return false;
}

static void bad_frame(struct ntrd_conn *conn, int r)
{
	if (r == -EPROTO)
		refuse(conn, r, "a frame is broken: no JSON object, a duplicate key, or descriptors missing",
		        NULL);
	else if (r == -EMSGSIZE)
		refuse(conn, r, "a frame is larger than 64 MiB", NULL);
	else if (r != -ENODATA && r != -ECONNRESET)
		refuse(conn, r, NULL, NULL);
}

static bool count_request(struct ntrd_server *srv)
{
	bool go;

	pthread_mutex_lock(&srv->lock);
	srv->requests++;
	go = !srv->draining;
	pthread_mutex_unlock(&srv->lock);
	return go;
}

static void serve(struct ntrd_server *srv, struct ntrd_conn *conn)
{
	int r = admit(srv, conn) ? 0 : -EPERM;

	while (!r) {
		ntr_autojson json_t *msg = NULL;
		int fds[NTR_WIRE_FDS];
		size_t nfds;

		r = ntr_wire_recv(conn->sock, &msg, fds, &nfds);
		if (r) {
			bad_frame(conn, r);
			return;
		}
		r = count_request(srv) ? ntrd_dispatch(srv, conn, msg, fds, nfds) : -ECANCELED;
		ntr_wire_close_fds(fds, nfds);
	}
}

/* ---- workers */

static void conn_begin(struct ntrd_server *srv, struct ntrd_conn *conn)
{
	bool more;

	pthread_mutex_init(&conn->send_lock, NULL);
	pthread_mutex_lock(&srv->lock);
	TAILQ_INSERT_TAIL(&srv->conns, conn, link);
	srv->nconns++;
	more = --srv->nidle == 0 && !srv->draining;
	if (srv->draining) /* the drain has gone by */
		shutdown(conn->sock, SHUT_RD);
	pthread_mutex_unlock(&srv->lock);
	if (more)
		spawn_worker(srv);
}

/* False: this worker is one too many. */
static bool conn_end(struct ntrd_server *srv, struct ntrd_conn *conn)
{
	bool stay;

	pthread_mutex_lock(&srv->lock);
	TAILQ_REMOVE(&srv->conns, conn, link);
	srv->nconns--;
	stay = srv->nidle < IDLE_MAX && !srv->draining;
	if (stay)
		srv->nidle++;
	pthread_cond_broadcast(&srv->ended);
	pthread_mutex_unlock(&srv->lock);
	pthread_mutex_destroy(&conn->send_lock);
	ntr_buf_done(&conn->unsent);
	if (!conn->keep)
		close(conn->sock);
	return stay;
}

/* The next connection, or -1 when there will be none. */
static int next_sock(struct ntrd_server *srv)
{
	static const struct timespec pause = {.tv_nsec = 50000000};

	for (;;) {
		int sock = accept4(srv->o.listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (sock >= 0)
			return sock;
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			nanosleep(&pause, NULL); /* the client waits in the queue */
		else if (errno != EINTR && errno != ECONNABORTED)
			return -1;
	}
}

static void *worker(void *arg)
{
	struct ntrd_server *srv = arg;
	bool idle = true;

	while (idle) {
		struct ntrd_conn conn = {.sock = next_sock(srv)};

		if (conn.sock < 0)
			break;
		conn_begin(srv, &conn);
		serve(srv, &conn);
		idle = conn_end(srv, &conn);
	}
	pthread_mutex_lock(&srv->lock);
	if (idle)
		srv->nidle--;
	srv->nthreads--;
	pthread_cond_broadcast(&srv->ended);
	pthread_mutex_unlock(&srv->lock);
	return NULL;
}

static int spawn_worker(struct ntrd_server *srv)
{
	pthread_attr_t at;
	pthread_t t;
	int r;

	pthread_mutex_lock(&srv->lock);
	srv->nthreads++;
	srv->nidle++;
	pthread_mutex_unlock(&srv->lock);
	pthread_attr_init(&at);
	pthread_attr_setdetachstate(&at, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&at, STACK_BYTES);
	r = pthread_create(&t, &at, worker, srv);
	pthread_attr_destroy(&at);
	if (r) {
		pthread_mutex_lock(&srv->lock);
		srv->nthreads--;
		srv->nidle--;
		pthread_mutex_unlock(&srv->lock);
	}
	return -r;
}

/* ---- the server */

int ntrd_server_new(const struct ntrd_server_options *o, struct ntrd_server **ret)
{
	struct ntrd_server *srv = calloc(1, sizeof *srv);
	int r;

	if (!srv)
		return -ENOMEM;
	srv->o = *o;
	srv->started_ns = ntr_mono_ns();
	TAILQ_INIT(&srv->conns);
	pthread_mutex_init(&srv->lock, NULL);
	pthread_cond_init(&srv->ended, NULL);
	srv->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = srv->stop_fd < 0 ? -errno : ntrd_watcher_new(&srv->watcher);
	if (!r)
		r = spawn_worker(srv);
	if (r) {
		ntrd_server_free(srv);
		return r;
	}
	*ret = srv;
	return 0;
}

void ntrd_server_free(struct ntrd_server *srv)
{
	if (!srv)
		return;
	ntrd_watcher_free(srv->watcher);
	ntr_closep(&srv->stop_fd);
	pthread_cond_destroy(&srv->ended);
	pthread_mutex_destroy(&srv->lock);
	free(srv);
}

static void shut_all(struct ntrd_server *srv, int how)
{
	struct ntrd_conn *c;

	TAILQ_FOREACH (c, &srv->conns, link)
		shutdown(c->sock, how);
}

/* Called with the lock held. */
static bool wait_ended(struct ntrd_server *srv, unsigned timeout_ms)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (srv->nthreads && !r)
		r = pthread_cond_timedwait(&srv->ended, &srv->lock, &until);
	return !srv->nthreads;
}

int ntrd_server_drain(struct ntrd_server *srv, unsigned timeout_ms)
{
	bool done;

	pthread_mutex_lock(&srv->lock);
	srv->draining = true;
	shutdown(srv->o.listen_fd, SHUT_RDWR);
	shut_all(srv, SHUT_RD);
	pthread_mutex_unlock(&srv->lock);
	ntrd_watch_hangup(srv->watcher);
	pthread_mutex_lock(&srv->lock);
	done = wait_ended(srv, timeout_ms);
	if (!done) { /* whoever does not read its reply has had its time */
		shut_all(srv, SHUT_RDWR);
		done = wait_ended(srv, 500);
	}
	pthread_mutex_unlock(&srv->lock);
	return done ? 0 : -ETIMEDOUT;
}

unsigned ntrd_server_connections(struct ntrd_server *srv)
{
	unsigned n;

	pthread_mutex_lock(&srv->lock);
	n = srv->nconns;
	pthread_mutex_unlock(&srv->lock);
	return n;
}

uint64_t ntrd_server_requests(struct ntrd_server *srv)
{
	uint64_t n;

	pthread_mutex_lock(&srv->lock);
	n = srv->requests;
	pthread_mutex_unlock(&srv->lock);
	return n;
}

uint64_t ntrd_server_uptime_ns(struct ntrd_server *srv)
{
	return ntr_mono_ns() - srv->started_ns;
}

struct ntr_ctl *ntrd_server_ctl(struct ntrd_server *srv)
{
	return srv->o.ctl;
}

const struct ntrd_op *ntrd_server_ops(struct ntrd_server *srv)
{
	return srv->o.ops;
}

const char *ntrd_server_store(struct ntrd_server *srv)
{
	return srv->o.store;
}

struct ntrd_watcher *ntrd_server_watcher(struct ntrd_server *srv)
{
	return srv->watcher;
}

void ntrd_server_ask_stop(struct ntrd_server *srv)
{
	eventfd_write(srv->stop_fd, 1);
}

int ntrd_server_stop_fd(struct ntrd_server *srv)
{
	return srv->stop_fd;
}
