/* mcp, out: one message a line. A lane writes its answer itself where nothing else is on its way, which is
 * soonest; all else is written by a thread for it. A client that does not read holds up who has a large
 * answer for it, and nobody else: progress and log messages are dropped meanwhile, and the thread that reads
 * messages goes on until very much has gathered. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <errno.h>
#include <poll.h>

enum { FULL = 1 << 20, VERY_FULL = 64 << 20, STALLED_S = 30 };

enum line_kind { NEWS, ANSWER };

/* ---- writing; with the lock held */

static void drop_all(struct ntr_mcp_out *o)
{
	struct ntr_mcp_line *l;

	while ((l = STAILQ_FIRST(&o->lines))) {
		STAILQ_REMOVE_HEAD(&o->lines, link);
		free(l);
	}
	o->bytes = 0;
	o->broken = true;
}

static void write_one(struct ntr_mcp_out *o, struct ntr_mcp_line *l)
{
	int r;

	STAILQ_REMOVE_HEAD(&o->lines, link);
	o->since_ns = ntr_mono_ns();
	pthread_mutex_unlock(&o->m);
	r = ntr_write_all(STDOUT_FILENO, l->text, l->len);
	pthread_mutex_lock(&o->m);
	o->since_ns = 0;
	if (r)
		drop_all(o);
	else
		o->bytes -= l->len;
	free(l);
	pthread_cond_broadcast(&o->less);
	if (!STAILQ_EMPTY(&o->lines))
		pthread_cond_signal(&o->more);
}

static void *writer(void *arg)
{
	struct ntr_mcp_out *o = arg;

	pthread_mutex_lock(&o->m);
	for (;;) {
		if (STAILQ_EMPTY(&o->lines) || o->since_ns)
			pthread_cond_wait(&o->more, &o->m);
		else
			write_one(o, STAILQ_FIRST(&o->lines));
	}
	return NULL;
}

int ntr_mcp_out_start(struct ntr_mcp *s)
{
	pthread_t thread;

	STAILQ_INIT(&s->out.lines);
	s->out.reader = pthread_self();
	return -pthread_create(&thread, NULL, writer, &s->out);
}

bool ntr_mcp_out_gone(struct ntr_mcp *s)
{
	struct ntr_mcp_out *o = &s->out;
	struct pollfd p = {STDOUT_FILENO, 0, 0};

	if (!o->broken && poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP))
		o->broken = true;
	pthread_mutex_lock(&o->m);
	if (o->since_ns && ntr_mono_ns() - o->since_ns > STALLED_S * 1000000000ull)
		o->broken = true;
	if (o->broken)
		pthread_cond_broadcast(&o->less);
	pthread_mutex_unlock(&o->m);
	return o->broken;
}

void ntr_mcp_out_flush(struct ntr_mcp *s)
{
	struct ntr_mcp_out *o = &s->out;

	while (!ntr_mcp_out_gone(s)) {
		struct timespec until;
		bool done;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_mutex_lock(&o->m);
		if (o->bytes)
			pthread_cond_timedwait(&o->less, &o->m, &until);
		done = !o->bytes;
		pthread_mutex_unlock(&o->m);
		if (done)
			break;
	}
}

/* ---- lines */

static struct ntr_mcp_line *line_of(const json_t *msg)
{
	ntr_autofree char *text = msg ? json_dumps(msg, JSON_COMPACT) : NULL;
	size_t n = text ? strlen(text) : 0;
	struct ntr_mcp_line *l = text ? malloc(sizeof *l + n + 1) : NULL;

	if (!l)
		return NULL;
	memcpy(l->text, text, n);
	l->text[n] = '\n';
	l->len = n + 1;
	return l;
}

static void put_line(struct ntr_mcp_out *o, struct ntr_mcp_line *l, enum line_kind kind)
{
	bool reader = pthread_equal(pthread_self(), o->reader);
	size_t most = reader ? VERY_FULL : FULL;

	pthread_mutex_lock(&o->m);
	while (kind == ANSWER && o->bytes > most && !o->broken)
		pthread_cond_wait(&o->less, &o->m);
	if (o->broken || o->bytes > most) {
		free(l);
	} else {
		o->bytes += l->len;
		STAILQ_INSERT_TAIL(&o->lines, l, link);
		if (kind == ANSWER && !reader && !o->since_ns && STAILQ_FIRST(&o->lines) == l)
			write_one(o, l);
		else
			pthread_cond_signal(&o->more);
	}
	pthread_mutex_unlock(&o->m);
}

static void send_line(struct ntr_mcp *s, json_t *msg, enum line_kind kind)
{
	ntr_autojson json_t *owned = msg;
	struct ntr_mcp_line *l = line_of(owned);

	if (l)
		put_line(&s->out, l, kind);
	else if (kind == ANSWER) /* it is owed, and cannot be given: the client must not wait for ever */
		s->out.broken = true;
}

/* ---- messages */

/* The members that all results of the revision have. */
static int complete(const struct ntr_mcp_req *q, json_t *result)
{
	json_t *meta = json_object_get(result, "_meta");

	if (!q->rev || !q->rev->complete)
		return 0;
	if (!meta && !json_object_set_new(result, "_meta", json_object()))
		meta = json_object_get(result, "_meta");
	if (q->ttl_ms >= 0 && (json_object_set_new(result, "ttlMs", json_integer(q->ttl_ms)) ||
	                              json_object_set_new(result, "cacheScope", json_string("private"))))
		return -ENOMEM;
	return json_object_set_new(result, "resultType", json_string("complete")) ||
	                       json_object_set_new(meta, NTR_MCP_META "serverInfo", ntr_mcp_server_info())
	               ? -ENOMEM
	               : 0;
}

void ntr_mcp_result(struct ntr_mcp *s, const struct ntr_mcp_req *q, json_t *result)
{
	if (!result || complete(q, result)) {
		json_decref(result);
		ntr_mcp_fail(s, q->id, NTR_RPC_INTERNAL, strerror(ENOMEM));
		return;
	}
	send_line(s, json_pack("{s:s,s:O,s:o}", "jsonrpc", "2.0", "id", q->id, "result", result), ANSWER);
}

void ntr_mcp_fail_data(struct ntr_mcp *s, const json_t *id, int code, const char *text, json_t *data)
{
	json_t *error = json_pack(
	        "{s:i,s:o,s:o*}", "code", code, "message", ntr_json_text(text, strlen(text)), "data", data);

	send_line(s, json_pack("{s:s,s:O?,s:o}", "jsonrpc", "2.0", "id", id, "error", error), ANSWER);
}

void ntr_mcp_fail(struct ntr_mcp *s, const json_t *id, int code, const char *text)
{
	ntr_mcp_fail_data(s, id, code, text, NULL);
}

void ntr_mcp_notify(struct ntr_mcp *s, const char *method, json_t *params, bool must)
{
	if (!params)
		return;
	send_line(s, json_pack("{s:s,s:s,s:o}", "jsonrpc", "2.0", "method", method, "params", params),
	        must ? ANSWER : NEWS);
}

void ntr_mcp_log(struct ntr_mcp *s, const struct ntr_mcp_req *q, enum ntr_mcp_level level, json_t *data)
{
	static const char *const words[] = {"debug", "info", "notice", "warning", "error"};

	if ((int)level < (q->level < 0 ? s->level : q->level)) {
		json_decref(data);
		return;
	}
	ntr_mcp_notify(s, "notifications/message",
	        json_pack("{s:s,s:s,s:o}", "level", words[level], "logger", "ntr", "data", data), false);
}
