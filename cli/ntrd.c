/* ntrd: the daemon of one store. It owns the store, serves its clients, and ends when nobody needs it. */
#include "ntrd.h"

#include "../base/sockpath.h"
#include "../base/util.h"
#include "../exec/controller.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>

enum { TICK_MS = 100, POLL_MS = 1000, LOCK_WAIT_S = 60, DRAIN_MS = 8000, IDLE_DEFAULT_S = 60 };

const char *argp_program_version = "ntrd " NTR_VERSION;

struct options {
	const char *store_arg, *log, *init;
	char *store, *sock; /* sock: to be removed even if the store's folder has been */
	int ready_fd;
	long idle_s, timeout_s;
	size_t cache;
	bool foreground, no_uring;
};

struct daemon {
	struct options o;
	struct ntr_ctl *ctl;
	struct ntrd_server *srv;
	int listen_fd;
	pthread_t ticker;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool ticking, logging;
};

enum {
	OPT_STORE = 256,
	OPT_FOREGROUND,
	OPT_READY,
	OPT_IDLE,
	OPT_NO_URING,
	OPT_LOG,
	OPT_INIT,
	OPT_CACHE,
	OPT_TIMEOUT
};

static const struct argp_option option_table[] = {
        {"store", OPT_STORE, "PATH", 0, "the store (default: $NTR_STORE, else $XDG_DATA_HOME/ntr)", 0},
        {"foreground", OPT_FOREGROUND, NULL, 0, "stay attached; log to stderr unless --log is given", 0},
        {"ready-fd", OPT_READY, "N", 0, "write one line of JSON to descriptor N when it serves, or cannot",
                0},
        {"idle", OPT_IDLE, "SECONDS", 0,
                "end after that long without clients and live sessions (60; 0: never)", 0},
        {"no-uring", OPT_NO_URING, NULL, 0, "do not use io_uring for the versions mount", 0},
        {"log", OPT_LOG, "FILE", 0, "log to FILE (default: ntrd.log in the store)", 0},
        {"init", OPT_INIT, "PATH", 0, "the supervisor's program (default: ntr-init beside ntrd)", 0},
        {"cache", OPT_CACHE, "SIZE", 0,
                "memory for cached parts of the store: bytes, or with K, M, G (default: $NTR_CACHE_SIZE, "
                "else 128M)",
                0},
        {"fuse-timeout", OPT_TIMEOUT, "SECONDS", 0,
                "what a read of a commit's files may take before it fails (default: $NTR_FUSE_TIMEOUT, else "
                "30)",
                0},
        {0},
};

static long parse_number(struct argp_state *state, const char *name, const char *text, long max)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 10);
	if (errno || end == text || *end || v < 0 || v > max)
		argp_error(state, "--%s '%s' is no number from 0 to %ld", name, text, max);
	return v;
}

/* "64M". 0: no size from 1M to 1T. */
static size_t parse_size(const char *text)
{
	static const char units[] = "KMGT";
	char *end;
	unsigned long long v;
	const char *unit;

	errno = 0;
	v = strtoull(text, &end, 10);
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (errno || !isdigit((unsigned char)text[0]) || (*end && (!unit || end[1])) || v > (1ull << 40))
		return 0;
	for (const char *u = units; unit && u <= unit; u++)
		v = v < (1ull << 40) ? v << 10 : v;
	return v >= (1u << 20) && v <= (1ull << 40) ? (size_t)v : 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case OPT_STORE:
		o->store_arg = arg;
		return 0;
	case OPT_FOREGROUND:
		o->foreground = true;
		return 0;
	case OPT_READY:
		o->ready_fd = (int)parse_number(state, "ready-fd", arg, 1 << 20);
		if (o->ready_fd < 1 || fcntl(o->ready_fd, F_GETFD) < 0)
			argp_error(state, "--ready-fd %s is no open descriptor", arg);
		return 0;
	case OPT_IDLE:
		o->idle_s = parse_number(state, "idle", arg, INT32_MAX);
		return 0;
	case OPT_NO_URING:
		o->no_uring = true;
		return 0;
	case OPT_LOG:
		o->log = arg;
		return 0;
	case OPT_CACHE:
		o->cache = parse_size(arg);
		if (!o->cache)
			argp_error(state, "--cache '%s' is no size from 1M on", arg);
		return 0;
	case OPT_TIMEOUT:
		o->timeout_s = parse_number(state, "fuse-timeout", arg, 3600);
		return 0;
	case OPT_INIT:
		o->init = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- readiness */

static void tell_ready(struct daemon *d, const struct ntr_err *e)
{
	ntr_autojson json_t *o = e ? ntrd_error_json(e, NULL) : json_pack("{s:b}", "ok", 1);
	ntr_autofree char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	if (d->o.ready_fd >= 0 && text) {
		ntr_write_all(d->o.ready_fd, text, strlen(text));
		ntr_write_all(d->o.ready_fd, "\n", 1);
	}
	if (d->o.ready_fd > 2)
		close(d->o.ready_fd);
	d->o.ready_fd = -1;
}

static int fail(struct daemon *d, int r, struct ntr_err *e)
{
	char line[2048];

	ntr_err_default(e, r, "start ntrd");
	ntr_err_format(e, line, sizeof line);
	ntrd_log("%s", line);
	tell_ready(d, e);
	return NTR_EXIT_FAILED;
}

/* ---- start */

/* ntr-init lies beside ntrd; in a build tree one folder further. */
static char *find_init(const char *given)
{
	const char *libexec = getenv("NTR_LIBEXEC");
	char self[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *tries[4] = {NULL, NULL, NULL, NULL}, *found = NULL;

	if (given)
		return strdup(given);
	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	tries[0] = libexec && libexec[0] == '/' ? ntr_sprintf("%s/ntr-init", libexec) : NULL;
	tries[1] = ntr_sprintf("%s/ntr-init", self);
	tries[2] = ntr_sprintf("%s/../exec/ntr-init", self);
	tries[3] = strdup(NTR_LIBEXECDIR "/ntr-init");
	for (size_t i = 0; i < NTR_COUNT(tries); i++) {
		if (!found && tries[i] && !access(tries[i], X_OK))
			found = tries[i];
		else
			free(tries[i]);
	}
	return found ? found : strdup(NTR_LIBEXECDIR "/ntr-init");
}

/* For daemons that clients start. What makes no sense is named in the log, and the default holds. */
static void from_environment(struct options *o)
{
	const char *cache = getenv("NTR_CACHE_SIZE"), *timeout = getenv("NTR_FUSE_TIMEOUT");
	char *end = NULL;

	if (!o->cache && cache && *cache && !(o->cache = parse_size(cache)))
		ntrd_log("NTR_CACHE_SIZE '%s' is no size from 1M on: the default is used", cache);
	if (o->timeout_s || !timeout || !*timeout)
		return;
	o->timeout_s = strtol(timeout, &end, 10);
	if (*end || o->timeout_s < 1 || o->timeout_s > 3600) {
		ntrd_log("NTR_FUSE_TIMEOUT '%s' is no number from 1 to 3600: the default is used", timeout);
		o->timeout_s = 0;
	}
}

static bool other_serves(const char *store)
{
	int fd, r = ntr_sock_connect(store, &fd);

	if (!r)
		close(fd);
	return !r;
}

/* The lock may be held by a daemon that another client has just started (then it serves us too) or by one
 * that is about to end (then it is ours in a moment). -EALREADY: another serves. */
static int open_store(struct daemon *d, struct ntr_err *e)
{
	static const struct timespec pause = {.tv_nsec = 20000000};
	uint64_t until = ntr_mono_ns() + LOCK_WAIT_S * 1000000000ull;
	ntr_autofree char *init = find_init(d->o.init);
	const char *uring = getenv("NTR_URING"); /* 0: as --no-uring, for daemons that clients start */
	bool off = d->o.no_uring || (uring && !strcmp(uring, "0"));
	struct ntr_ctl_options co = {.uring = off ? 0 : -1,
	        .init_path = init,
	        .cache_bytes = d->o.cache,
	        .watchdog_s = (unsigned)d->o.timeout_s};
	int r;

	if (!init)
		return -ENOMEM;
	for (;;) {
		e->code = 0;
		r = ntr_ctl_open(d->o.store, &co, &d->ctl, e);
		if (r != -EBUSY)
			return r;
		if (other_serves(d->o.store)) /* what a client wanted; by hand it is a mistake to be told */
			return d->o.ready_fd >= 0 ? -EALREADY : r;
		if (ntr_mono_ns() > until)
			return r;
		nanosleep(&pause, NULL);
	}
}

/* Nothing is written into a folder that is no store yet: it may turn out to be something else of the user's.
 */
static bool is_store(const char *path)
{
	ntr_autofree char *db = ntr_sprintf("%s/db", path);

	return db && !access(db, F_OK);
}

static int open_log(struct daemon *d, struct ntr_err *e)
{
	ntr_autofree char *path = NULL;
	int r;

	if (d->logging || (!d->o.log && (d->o.foreground || !is_store(d->o.store))))
		return 0;
	path = d->o.log ? strdup(d->o.log) : ntr_sprintf("%s/ntrd.log", d->o.store);
	r = path ? ntrd_log_open(path) : -ENOMEM;
	d->logging = !r;
	return r ? ntr_err_set(e, r, "open the log %s", path ? path : "") : 0;
}

static void *tick(void *arg)
{
	struct daemon *d = arg;
	struct timespec until;

	pthread_mutex_lock(&d->lock);
	while (d->ticking) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += TICK_MS * 1000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		pthread_cond_timedwait(&d->wake, &d->lock, &until);
		if (!d->ticking)
			break;
		pthread_mutex_unlock(&d->lock);
		ntr_ctl_tick(d->ctl);
		pthread_mutex_lock(&d->lock);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

static int start(struct daemon *d, struct ntr_err *e)
{
	struct ntrd_server_options so = {.ops = ntrd_ops, .store = d->o.store};
	int r = open_log(d, e);

	from_environment(&d->o);
	if (!r)
		r = open_store(d, e);
	if (!r)
		r = open_log(d, e);
	if (r)
		return r;
	ntrd_log_rotate();
	r = ntr_sock_path(d->o.store, &d->o.sock, e);
	if (!r)
		r = ntr_sock_listen(d->o.store, &d->listen_fd, e);
	if (r)
		return r;
	so.ctl = d->ctl;
	so.listen_fd = d->listen_fd;
	r = ntrd_server_new(&so, &d->srv);
	if (r)
		return r;
	r = ntrd_signals(ntrd_server_stop_fd(d->srv));
	d->ticking = true;
	if (!r && (r = -pthread_create(&d->ticker, NULL, tick, d)))
		d->ticking = false;
	return r;
}

/* ---- end */

static void stop_ticking(struct daemon *d)
{
	if (!d->ticking)
		return;
	pthread_mutex_lock(&d->lock);
	d->ticking = false;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->ticker, NULL);
}

/* The name goes first: clients that come now start the next daemon, which waits for the lock. */
static void finish(struct daemon *d)
{
	if (d->listen_fd >= 0) {
		ntr_sock_unlink(d->o.store);
		unlink(d->o.sock);
	}
	if (d->srv && ntrd_server_drain(d->srv, DRAIN_MS)) {
		/* A request hangs (in a pipe that nobody reads, say) and still uses the controller: save the
		 * sessions, leave the rest to the next start, which expects no more of a daemon than of one
		 * that was killed. */
		ntrd_log("stop: %u connections still hang", ntrd_server_connections(d->srv));
		ntr_ctl_stop(d->ctl, NULL, NULL, NULL);
		ntr_store_sync(ntr_ctl_store(d->ctl), NULL);
		_exit(NTR_EXIT_FAILED);
	}
	stop_ticking(d);
	ntrd_server_free(d->srv);
	ntr_closep(&d->listen_fd);
	if (d->ctl)
		ntr_ctl_close(d->ctl);
}

static bool in_use(struct daemon *d, uint64_t *requests)
{
	uint64_t n = ntrd_server_requests(d->srv);
	bool used = n != *requests || ntrd_server_connections(d->srv) || ntr_ctl_busy(d->ctl);

	*requests = n;
	return used;
}

/* Nobody can come any more, and nobody came meanwhile. */
static bool leave_unseen(struct daemon *d, uint64_t *requests)
{
	static const struct timespec pause = {.tv_nsec = 20000000};

	if (ntr_sock_hide(d->o.store, true))
		return true; /* the name has gone already: nobody can reach this daemon */
	nanosleep(&pause, NULL);
	if (!in_use(d, requests))
		return true;
	ntr_sock_hide(d->o.store, false);
	return false;
}

static void serve(struct daemon *d)
{
	struct pollfd p = {.fd = ntrd_server_stop_fd(d->srv), .events = POLLIN};
	uint64_t idle_since = ntr_mono_ns(), requests = 0;

	while (poll(&p, 1, POLL_MS) <= 0) {
		uint64_t now = ntr_mono_ns();

		ntrd_log_rotate();
		if (in_use(d, &requests))
			idle_since = now;
		if (d->o.idle_s && now - idle_since >= (uint64_t)d->o.idle_s * 1000000000u &&
		        leave_unseen(d, &requests)) {
			ntrd_log("nothing to do for %ld s: ends", d->o.idle_s);
			return;
		}
	}
	ntrd_log("asked to stop");
}

static char *absolute(const char *path)
{
	ntr_autofree char *cwd = path[0] == '/' ? strdup("") : getcwd(NULL, 0);

	return cwd ? ntr_sprintf("%s%s%s", cwd, cwd[0] ? "/" : "", path) : NULL;
}

static int run(struct daemon *d)
{
	struct ntr_err e = {0};
	ntr_autofree char *log = NULL;
	int r = ntr_store_default_path(d->o.store_arg, &d->o.store, &e);

	if (!r && d->o.log) { /* before the current folder is left */
		log = absolute(d->o.log);
		d->o.log = log;
		r = log ? 0 : -ENOMEM;
	}
	if (!r)
		r = ntrd_detach(d->o.foreground, d->o.ready_fd, &e);
	if (!r)
		r = start(d, &e);
	if (r == -EALREADY)
		tell_ready(d, NULL);
	else if (r)
		r = fail(d, r, &e);
	else {
		ntrd_log("version " NTR_VERSION " serves %s", d->o.store);
		tell_ready(d, NULL);
		serve(d);
	}
	finish(d);
	return r == -EALREADY ? 0 : r;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {.options = option_table,
	        .parser = parse_option,
	        .doc = "Serves one ntr store to its clients, which start it when they need it."};
	struct daemon d = {.o = {.ready_fd = -1, .idle_s = IDLE_DEFAULT_S},
	        .listen_fd = -1,
	        .lock = PTHREAD_MUTEX_INITIALIZER,
	        .wake = PTHREAD_COND_INITIALIZER};
	int r;

	argp_err_exit_status = NTR_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &d.o);
	r = run(&d);
	free(d.o.store);
	free(d.o.sock);
	return r;
}
