/* controller_py: the channel of a Python call and the thread that serves it. */
#include "controller_py.h"
#include "../base/value.h"
#include "../fs/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/* Answers that wait to be written, in bytes; and how long is waited for the last frames of a dead process. */
enum { QUEUE_MAX = 128 << 20, DRAIN_S = 2 };

struct frame {
	TAILQ_ENTRY(frame) link;
	size_t len, sent;
	uint8_t data[];
};

struct ntr_pyrun {
	struct ntr_sess *sess;
	const struct ntr_head *head;
	const struct ntr_py_spec *spec;
	int sock, wake;
	pthread_t thread;
	bool on;
	json_t *result;
	char *usage;
	pthread_mutex_t m; /* guards the queue, its size and stop */
	TAILQ_HEAD(, frame) queue;
	size_t queued;
	bool stop;
};

static int run_new(struct ntr_sess *s, const struct ntr_head *h, const struct ntr_py_spec *spec,
        struct ntr_pyrun **ret, int *ret_fd)
{
	struct ntr_pyrun *p = calloc(1, sizeof *p);
	int sv[2];

	if (!p)
		return -ENOMEM;
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv)) {
		int r = -errno;

		ntr_closep(&p->wake);
		free(p);
		return r;
	}
	p->sess = s;
	p->head = h;
	p->spec = spec;
	p->sock = sv[0];
	TAILQ_INIT(&p->queue);
	pthread_mutex_init(&p->m, NULL);
	*ret = p;
	*ret_fd = sv[1];
	return 0;
}

/* ---- sending: a queue, so that nobody waits for an interpreter that does not read */

static struct frame *frame_new(const json_t *msg)
{
	ntr_autofree char *text = msg ? json_dumps(msg, JSON_COMPACT) : NULL;
	size_t n = text ? strlen(text) : 0;
	struct frame *f = text && n <= NTR_WIRE_MAX ? malloc(sizeof *f + 4 + n) : NULL;

	if (!f)
		return NULL;
	f->len = n + 4;
	f->sent = 0;
	ntr_put_le32(f->data, (uint32_t)n);
	memcpy(f->data + 4, text, n);
	return f;
}

static bool push(struct ntr_pyrun *p, struct frame *f)
{
	bool room;

	pthread_mutex_lock(&p->m);
	room = p->queued + f->len <= QUEUE_MAX;
	if (room) {
		TAILQ_INSERT_TAIL(&p->queue, f, link);
		p->queued += f->len;
	}
	pthread_mutex_unlock(&p->m);
	if (room)
		eventfd_write(p->wake, 1);
	else
		free(f);
	return room;
}

/* Takes msg. */
static void answer(struct ntr_pyrun *p, int64_t n, json_t *msg)
{
	ntr_autojson json_t *m = msg;
	struct frame *f;

	json_object_set_new(m, "n", json_integer(n));
	f = frame_new(m);
	if (!f) { /* too large, or no memory for it */
		json_decref(m);
		m = json_pack("{s:s,s:I}", "error", "the answer is too large for the call's channel", "n",
		        (json_int_t)n);
		f = frame_new(m);
	}
	if (f)
		push(p, f);
}

static void answer_error(struct ntr_pyrun *p, int64_t n, const char *text)
{
	answer(p, n, json_pack("{s:o}", "error", ntr_json_text(text, strlen(text))));
}

static void host_error(struct ntr_pyrun *p, int64_t n, const char *type, const char *text)
{
	answer(p, n,
	        json_pack("{s:{s:s,s:o}}", "error", "type", type, "text", ntr_json_text(text, strlen(text))));
}

/* Writes what the socket takes. False: the other end is gone. */
static bool flush(struct ntr_pyrun *p)
{
	struct frame *f;

	for (;;) {
		ssize_t n;

		pthread_mutex_lock(&p->m);
		f = TAILQ_FIRST(&p->queue);
		pthread_mutex_unlock(&p->m);
		if (!f)
			return true;
		n = send(p->sock, f->data + f->sent, f->len - f->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		f->sent += (size_t)n;
		if (f->sent < f->len)
			continue;
		pthread_mutex_lock(&p->m);
		TAILQ_REMOVE(&p->queue, f, link);
		p->queued -= f->len;
		pthread_mutex_unlock(&p->m);
		free(f);
	}
}

/* ---- the cache */

static void cache_get(struct ntr_pyrun *p, int64_t n, const char *key)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	char why[NTR_VALUE_WHY];
	json_t *value = NULL;
	int r = ntr_cache_get(p->sess, p->head, key, &b);

	if (r == -ENOENT) {
		answer(p, n, json_pack("{s:b}", "missing", 1));
		return;
	}
	if (!r)
		r = ntr_value_parse(b.len ? (const char *)b.data : "", b.len, &value, why);
	if (r)
		answer_error(p, n, r == -EINVAL ? "the kept value is damaged" : strerror(-r));
	else
		answer(p, n, json_pack("{s:o}", "value", value));
}

static void cache_set(struct ntr_pyrun *p, int64_t n, const char *key, const json_t *value)
{
	ntr_autofree char *text = NULL;
	char why[NTR_VALUE_WHY];
	size_t len = 0;
	int r;

	if (p->spec->readonly) {
		answer_error(p, n, "this call is read-only");
		return;
	}
	if (!value || ntr_value_check(value, why)) {
		answer_error(p, n, value ? why : "there is no value");
		return;
	}
	text = ntr_value_dump(value, &len);
	r = text ? ntr_cache_set(p->sess, p->head, key, text, len) : -ENOMEM;
	if (r)
		answer_error(p, n, strerror(-r));
	else
		answer(p, n, json_object());
}

static void cache_keys(struct ntr_pyrun *p, int64_t n)
{
	json_t *keys = NULL;
	int r = ntr_cache_keys(p->sess, p->head, &keys);

	if (r)
		answer_error(p, n, strerror(-r));
	else
		answer(p, n, json_pack("{s:o}", "value", keys));
}

static void cache_op(struct ntr_pyrun *p, int64_t n, const char *op, const json_t *m)
{
	const json_t *k = json_object_get(m, "key");
	const char *key = json_string_value(k);
	struct ntr_err e = {0};

	if (!strcmp(op, "keys")) {
		cache_keys(p, n);
		return;
	}
	if (!key || ntr_cache_key_check(key, json_string_length(k), &e)) {
		answer_error(p, n, key ? ntr_err_reason(&e) : "a cache key has to be a text");
		return;
	}
	if (!strcmp(op, "get")) {
		cache_get(p, n, key);
	} else if (!strcmp(op, "set")) {
		cache_set(p, n, key, json_object_get(m, "value"));
	} else if (!strcmp(op, "del")) {
		int r = p->spec->readonly ? -EROFS : ntr_cache_del(p->sess, p->head, key);

		if (r == -ENOENT)
			answer(p, n, json_pack("{s:b}", "missing", 1));
		else if (r)
			answer_error(p, n, strerror(-r));
		else
			answer(p, n, json_object());
	} else {
		answer_error(p, n, "no such operation");
	}
}

/* ---- objects of the host */

static bool allowed(const json_t *objects, const char *name, const char *method)
{
	const json_t *o, *m;
	size_t i, j;

	if (method[0] == '_' || !method[0])
		return false;
	json_array_foreach (objects, i, o) {
		const json_t *methods = json_object_get(o, "methods");

		if (strcmp(ntr_json_str(o, "name", ""), name) != 0)
			continue;
		if (!json_is_array(methods))
			return true;
		json_array_foreach (methods, j, m)
			if (json_is_string(m) && !strcmp(json_string_value(m), method))
				return true;
	}
	return false;
}

static void object_op(struct ntr_pyrun *p, int64_t n, const json_t *m)
{
	const char *name = ntr_json_str(m, "object", ""), *method = ntr_json_str(m, "method", "");
	const json_t *args = json_object_get(m, "args"), *kwargs = json_object_get(m, "kwargs");
	char why[NTR_VALUE_WHY];
	int r;

	if (!p->spec->object || !allowed(p->spec->objects, name, method)) {
		host_error(p, n, "AttributeError", "the host offers no such method");
		return;
	}
	if (!json_is_array(args) || !json_is_object(kwargs) || ntr_value_check(args, why) ||
	        ntr_value_check(kwargs, why)) {
		host_error(p, n, "TypeError", "these arguments are no data");
		return;
	}
	r = p->spec->object(p->spec->user, n, name, method, args, kwargs);
	if (r)
		host_error(p, n, "ConnectionError", "the host cannot be asked");
}

void ntr_pyrun_answer(struct ntr_pyrun *p, const json_t *msg)
{
	json_t *value = json_object_get(msg, "value"), *error = json_object_get(msg, "error");
	int64_t n = ntr_json_int(msg, "n", 0);

	if (json_is_object(error))
		answer(p, n, json_pack("{s:O}", "error", error));
	else
		answer(p, n, json_pack("{s:O?}", "value", value));
}

/* ---- what comes */

/* False: that was the last frame. */
static bool handle(struct ntr_pyrun *p, const json_t *m)
{
	int64_t n = ntr_json_int(m, "n", 0);
	const json_t *result = json_object_get(m, "result");
	const char *usage = ntr_json_str(m, "usage", NULL), *cache = ntr_json_str(m, "cache", NULL);

	if (cache && p->spec->cache) {
		cache_op(p, n, cache, m);
	} else if (cache) {
		answer_error(p, n, "this call has no cache");
	} else if (json_object_get(m, "object")) {
		object_op(p, n, m);
	} else if (json_is_object(result)) {
		p->result = ntr_pyresult_check(result);
		return false;
	} else if (usage) {
		p->usage = strdup(usage);
		return false;
	} else {
		return false; /* no frame of ours: from here on nothing makes sense */
	}
	return true;
}

/* False: the end. */
static bool receive(struct ntr_pyrun *p)
{
	ntr_autojson json_t *m = NULL;
	int fds[NTR_WIRE_FDS];
	size_t nfds = 0;
	bool go_on;

	if (ntr_wire_recv(p->sock, &m, fds, &nfds))
		return false;
	ntr_wire_close_fds(fds, nfds);
	go_on = handle(p, m);
	return go_on;
}

static bool stopping(struct ntr_pyrun *p, short *ret_events)
{
	bool stop;

	pthread_mutex_lock(&p->m);
	stop = p->stop;
	*ret_events = TAILQ_EMPTY(&p->queue) ? POLLIN : POLLIN | POLLOUT;
	pthread_mutex_unlock(&p->m);
	return stop;
}

static void *serve(void *arg)
{
	struct ntr_pyrun *p = arg;
	struct pollfd fds[2] = {{.fd = p->sock, .events = POLLIN}, {.fd = p->wake, .events = POLLIN}};
	eventfd_t v;

	for (;;) {
		bool stop = stopping(p, &fds[0].events);
		int n = poll(fds, 2, stop ? 0 : -1);

		if (n < 0 && errno != EINTR)
			break;
		if (fds[1].revents)
			eventfd_read(p->wake, &v);
		if ((fds[0].revents & POLLOUT) && !flush(p))
			break;
		if (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) {
			if (!receive(p))
				break;
		} else if (stop) {
			break; /* all that the process had sent is taken */
		}
	}
	/* Whoever still holds the other end gets to know. */
	shutdown(p->sock, SHUT_RDWR);
	return NULL;
}

/* ---- the call */

static json_t *env_json(char *const *env, const char *cwd, uint64_t req)
{
	ntr_autojson json_t *a = ntr_json_strv(env);
	ntr_autofree char *pwd = ntr_sprintf("PWD=%s", cwd);
	char call[40];

	snprintf(call, sizeof call, "NTR_CALL=%llu", (unsigned long long)req);
	if (!a || !pwd || json_array_append_new(a, ntr_json_bytes(pwd, strlen(pwd))) ||
	        json_array_append_new(a, json_string(call)))
		return NULL;
	return ntr_steal_ptr(a);
}

static json_t *call_json(
        struct ntr_pyrun *p, const struct ntr_call_spec *spec, char *const *env, uint64_t req)
{
	const struct ntr_state *st = p->sess->state;
	const char *cwd = spec->cwd ? spec->cwd : st->cwd;
	ntr_autojson json_t *call = json_copy(p->spec->call);
	const char *root = p->head->wsroot;

	if (!call || json_object_set_new(call, "env", env_json(env, cwd, req)) ||
	        json_object_set_new(call, "cwd", ntr_json_bytes(cwd, strlen(cwd))) ||
	        json_object_set_new(call, "root", ntr_json_bytes(root, strlen(root))) ||
	        json_object_set_new(call, "umask", json_integer((json_int_t)st->umask)))
		return NULL;
	return json_pack("{s:O}", "call", call);
}

int ntr_pyrun_begin(struct ntr_pyrun *p, const struct ntr_call_spec *spec, char *const *env, uint64_t req)
{
	ntr_autojson json_t *call = call_json(p, spec, env, req);
	struct frame *f = call ? frame_new(call) : NULL;
	int r = f ? 0 : call ? -EMSGSIZE : -ENOMEM;

	if (f && !push(p, f))
		r = -EMSGSIZE;
	if (!r)
		r = -pthread_create(&p->thread, NULL, serve, p);
	p->on = !r;
	if (r)
		shutdown(p->sock, SHUT_RDWR); /* the interpreter sees the end and goes */
	return r;
}

static void stop(struct ntr_pyrun *p)
{
	struct timespec until;

	if (!p->on)
		return;
	pthread_mutex_lock(&p->m);
	p->stop = true;
	pthread_mutex_unlock(&p->m);
	eventfd_write(p->wake, 1);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += DRAIN_S;
	if (!pthread_timedjoin_np(p->thread, NULL, &until))
		return;
	shutdown(p->sock, SHUT_RDWR); /* it waits for the rest of a frame that nobody sends */
	pthread_join(p->thread, NULL);
}

/* Ends the thread, frees all but what came of it. */
static void run_end(struct ntr_pyrun *p, json_t **ret_result, char **ret_usage)
{
	struct frame *f;

	stop(p);
	while ((f = TAILQ_FIRST(&p->queue))) {
		TAILQ_REMOVE(&p->queue, f, link);
		free(f);
	}
	*ret_result = p->result;
	*ret_usage = p->usage;
	close(p->sock);
	close(p->wake);
	pthread_mutex_destroy(&p->m);
	free(p);
}

int ntr_pycall_open(struct ntr_sess *s, const struct ntr_head *h, const struct ntr_py_spec *spec,
        struct ntr_call *call, int *ret_fd)
{
	struct ntr_pyrun *p = NULL;
	int r = run_new(s, h, spec, &p, ret_fd);

	if (r)
		return r;
	pthread_mutex_lock(&call->m);
	call->py = p;
	pthread_mutex_unlock(&call->m);
	return 0;
}

int ntr_pycall_close(struct ntr_call *call, char *const *env, int r, json_t *reply,
        struct ntr_call_result *ret, struct ntr_err *e)
{
	ntr_autofree char *usage = NULL;
	ntr_autojson json_t *said = NULL;
	struct ntr_pyrun *p;
	bool readonly;

	pthread_mutex_lock(&call->m);
	p = call->py;
	call->py = NULL;
	pthread_mutex_unlock(&call->m);
	readonly = p->spec->readonly;
	run_end(p, &said, &usage);
	if (r == -EMSGSIZE)
		ntr_err_full(e, r, "start a Python call", "code and inputs are larger than 64 MiB",
		        "put the data into a file of the session");
	if (r)
		return r;
	if (usage) {
		ntr_err_set(e, -EINVAL, "run Python");
		return ntr_err_why(e, "%s", usage);
	}
	if (said) {
		if (!readonly) /* which leaves nothing behind, the directory and the umask neither */
			json_object_set_new(reply, "state", ntr_pyresult_state(said, env));
		ret->py = ntr_steal_ptr(said);
	}
	return 0;
}

json_t *ntr_pycall_msg(const struct ntr_py_spec *spec, char *const *env)
{
	json_t *m = json_pack("{s:s,s:b}", "op", "py", "readonly", spec->readonly);

	for (; m && *env; env++)
		if (!strncmp(*env, "PATH=", 5))
			json_object_set_new(m, "path", ntr_json_bytes(*env + 5, strlen(*env + 5)));

	if (m && spec->python)
		json_object_set_new(m, "python", ntr_json_bytes(spec->python, strlen(spec->python)));
	if (m && spec->preload)
		json_object_set(m, "preload", spec->preload);
	return m;
}

void ntr_pycall_describe(const struct ntr_py_spec *spec, json_t *desc)
{
	json_t *argv = spec->args ? ntr_json_strv(spec->args) : json_array();

	if (spec->code)
		json_object_set_new(desc, "code", ntr_json_bytes(spec->code, strlen(spec->code)));
	if (spec->file)
		json_array_insert_new(argv, 0, ntr_json_bytes(spec->file, strlen(spec->file)));
	if (json_array_size(argv))
		json_object_set(desc, "argv", argv);
	json_decref(argv);
}
