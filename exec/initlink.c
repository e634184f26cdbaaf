#include "initlink.h"
#include "../base/child.h"
#include "../base/json.h"
#include "../base/util.h"
#include "initproto.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct ntr_initmsg {
	struct ntr_initmsg *next;
	json_t *msg;
	int fds[NTR_WIRE_FDS];
	size_t nfds;
};

struct ntr_initlink {
	int sock;
	pid_t pid;
	bool reading;
	int dead; /* 0, or what a waiter gets from here on: -EPIPE, -ECONNRESET, -ENOMEM */
	uint64_t last_req;
	struct ntr_initreq *reqs;
	pthread_mutex_t lock, send_lock;
	pthread_cond_t cond;
};

/* The supervisor has its socket as NTR_INIT_FD, the daemon's stderr, and a session of its own. */
static int spawn_child(const char *path, int sock, pid_t *ret_pid)
{
	_Static_assert((int)NTR_INIT_FD == (int)NTR_CHILD_FD, "one descriptor, one number");
	char arg0[] = "ntr-init", *argv[] = {arg0, NULL};

	return ntr_child_start(path, argv, environ, STDERR_FILENO, sock, true, ret_pid);
}

int ntr_initlink_spawn(const char *path, struct ntr_initlink **ret, struct ntr_err *e)
{
	struct ntr_initlink *l = calloc(1, sizeof *l);
	int sv[2], r;

	if (!l)
		return ntr_err_set(e, -ENOMEM, "start the session's supervisor");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv)) {
		r = ntr_err_set(e, -errno, "start the session's supervisor");
		free(l);
		return r;
	}
	r = spawn_child(path, sv[1], &l->pid);
	close(sv[1]);
	if (r) {
		close(sv[0]);
		free(l);
		ntr_err_set(e, r, "start the supervisor %s", path);
		ntr_err_todo(e, "install ntr completely (cmake --install), or set NTR_LIBEXEC to the folder "
		                "that has ntr-init");
		return r;
	}
	l->sock = sv[0];
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutex_init(&l->send_lock, NULL);
	ntr_cond_init(&l->cond);
	*ret = l;
	return 0;
}

static void link_free(struct ntr_initlink *l)
{
	close(l->sock);
	pthread_cond_destroy(&l->cond);
	pthread_mutex_destroy(&l->send_lock);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

void ntr_initlink_leave(struct ntr_initlink *l)
{
	shutdown(l->sock, SHUT_RDWR);
	link_free(l);
}

void ntr_initlink_close(struct ntr_initlink *l)
{
	int status;

	if (!l)
		return;
	shutdown(l->sock, SHUT_RDWR);
	for (int i = 0; i < 200 && waitpid(l->pid, &status, WNOHANG) == 0; i++)
		usleep(i < 20 ? 500 : 10000);
	if (waitpid(l->pid, &status, WNOHANG) == 0) {
		kill(l->pid, SIGKILL);
		waitpid(l->pid, &status, 0);
	}
	link_free(l);
}

pid_t ntr_initlink_pid(const struct ntr_initlink *l)
{
	return l->pid;
}

bool ntr_initlink_dead(struct ntr_initlink *l, bool poll_now)
{
	struct pollfd p = {.fd = l->sock, .events = POLLRDHUP};
	bool dead;

	pthread_mutex_lock(&l->lock);
	if (poll_now && poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLRDHUP)))
		l->dead = l->dead ? l->dead : -EPIPE;
	dead = l->dead != 0;
	pthread_mutex_unlock(&l->lock);
	return dead;
}

int ntr_initlink_send(struct ntr_initlink *l, struct ntr_initreq *r, json_t *msg, const int *fds, size_t nfds)
{
	int err;

	if (!msg)
		return -ENOMEM;
	r->first = NULL;
	r->tail = &r->first;
	pthread_mutex_lock(&l->lock);
	r->req = ++l->last_req;
	r->next = l->reqs;
	l->reqs = r;
	pthread_mutex_unlock(&l->lock);
	err = json_object_set_new(msg, "req", json_integer((json_int_t)r->req)) ? -ENOMEM : 0;
	if (!err) {
		pthread_mutex_lock(&l->send_lock);
		err = ntr_wire_send(l->sock, msg, fds, nfds);
		pthread_mutex_unlock(&l->send_lock);
	}
	json_decref(msg);
	if (err)
		ntr_initlink_finish(l, r);
	return err == -ECONNRESET ? -EPIPE : err;
}

static void deliver(struct ntr_initlink *l, struct ntr_initmsg *m)
{
	uint64_t req = (uint64_t)ntr_json_int(m->msg, "req", 0);

	for (struct ntr_initreq *r = l->reqs; r; r = r->next) {
		if (r->req != req)
			continue;
		*r->tail = m;
		r->tail = &m->next;
		return;
	}
	ntr_wire_close_fds(m->fds, m->nfds); /* its waiter gave up */
	json_decref(m->msg);
	free(m);
}

/* Reads one frame as the leader; the lock is dropped meanwhile. 0, -ETIMEDOUT, or why the link is dead. A
 * frame that could not be read whole, for want of memory too, ends the link: where the next one begins is
 * lost with it, and its waiter would wait for ever. */
static int read_one(struct ntr_initlink *l, uint64_t deadline)
{
	struct pollfd p = {.fd = l->sock, .events = POLLIN};
	struct ntr_initmsg *m = NULL;
	int r = 0, fatal = 0;

	l->reading = true;
	pthread_mutex_unlock(&l->lock);
	if (deadline) {
		uint64_t now = ntr_mono_ns();
		uint64_t left = deadline > now ? deadline - now : 0;
		struct timespec ts = {
		        .tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u)};

		r = ppoll(&p, 1, &ts, NULL);
		r = r > 0 ? 0 : r < 0 && errno == EINTR ? -EAGAIN : -ETIMEDOUT;
	}
	if (!r)
		fatal = (m = calloc(1, sizeof *m)) ? ntr_wire_recv(l->sock, &m->msg, m->fds, &m->nfds)
		                                   : -ENOMEM;
	if (fatal)
		r = fatal == -ENOMEM || fatal == -ECONNRESET ? fatal : -EPIPE;
	pthread_mutex_lock(&l->lock);
	l->reading = false;
	if (fatal)
		l->dead = r;
	if (r)
		free(m);
	else
		deliver(l, m);
	pthread_cond_broadcast(&l->cond);
	return r == -EAGAIN ? 0 : r;
}

static int follow(struct ntr_initlink *l, uint64_t deadline)
{
	struct timespec ts = {
	        .tv_sec = (time_t)(deadline / 1000000000u), .tv_nsec = (long)(deadline % 1000000000u)};

	if (!deadline)
		return -pthread_cond_wait(&l->cond, &l->lock);
	return -pthread_cond_timedwait(&l->cond, &l->lock, &ts);
}

int ntr_initlink_wait(struct ntr_initlink *l, struct ntr_initreq *r, uint64_t deadline, json_t **ret,
        int fds[NTR_WIRE_FDS], size_t *ret_nfds)
{
	struct ntr_initmsg *m;
	int err = 0;

	pthread_mutex_lock(&l->lock);
	while (!r->first && !err) {
		if (l->dead)
			err = l->dead;
		else if (l->reading)
			err = follow(l, deadline);
		else
			err = read_one(l, deadline);
	}
	m = r->first;
	if (m) {
		r->first = m->next;
		if (!r->first)
			r->tail = &r->first;
		err = 0;
	}
	/* The socket tells that its other end left something unread. It reads in order: the newest request.
	 */
	if (err == -ECONNRESET && r->req != l->last_req)
		err = -EPIPE;
	pthread_mutex_unlock(&l->lock);
	if (!m)
		return err;
	*ret = m->msg;
	memcpy(fds, m->fds, sizeof m->fds);
	*ret_nfds = m->nfds;
	free(m);
	return 0;
}

void ntr_initlink_finish(struct ntr_initlink *l, struct ntr_initreq *r)
{
	struct ntr_initmsg *m, *next;

	pthread_mutex_lock(&l->lock);
	for (struct ntr_initreq **p = &l->reqs; *p; p = &(*p)->next) {
		if (*p != r)
			continue;
		*p = r->next;
		break;
	}
	pthread_mutex_unlock(&l->lock);
	for (m = r->first; m; m = next) {
		next = m->next;
		ntr_wire_close_fds(m->fds, m->nfds);
		json_decref(m->msg);
		free(m);
	}
	r->first = NULL;
}

int ntr_initlink_error(const json_t *reply, struct ntr_err *e)
{
	const json_t *err = json_object_get(reply, "error");
	int code = (int)ntr_json_int(reply, "errno", 0);

	if (err) {
		code = (int)ntr_json_int(err, "errno", EIO);
		ntr_err_set(e, -code, "%s", ntr_json_str(err, "what", "the supervisor"));
		ntr_err_why(e, "%s", ntr_json_str(err, "why", strerror(code)));
		ntr_err_todo(e, "%s", ntr_json_str(err, "todo", ""));
	}
	return -code;
}

int ntr_initlink_do(struct ntr_initlink *l, json_t *msg, const int *fds, size_t nfds, json_t **ret,
        int *ret_fd, struct ntr_err *e)
{
	ntr_autojson json_t *reply = NULL;
	struct ntr_initreq rq;
	int got[NTR_WIRE_FDS], r;
	size_t ngot = 0;

	r = ntr_initlink_send(l, &rq, msg, fds, nfds);
	if (!r) {
		r = ntr_initlink_wait(l, &rq, 0, &reply, got, &ngot);
		ntr_initlink_finish(l, &rq);
	}
	if (r)
		return ntr_err_set(e, r == -ECONNRESET ? -EPIPE : r, "ask the session's supervisor");
	r = ntr_initlink_error(reply, e);
	if (!r && ret_fd) {
		*ret_fd = ngot ? got[0] : -1;
		ngot = ngot ? (got[0] = -1, ngot) : 0;
	}
	ntr_wire_close_fds(got, ngot);
	if (!r && ret)
		*ret = ntr_steal_ptr(reply);
	return r;
}
