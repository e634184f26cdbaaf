/* One request: its members checked, its handler run, its reply or error sent. */
#include "ntrd.h"
#include "ntrd_wait.h"

#include "../base/util.h"
#include "../exec/controller.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

struct ntrd_owned {
	struct ntrd_owned *next;
	void *p;
	void (*fn)(void *);
};

int ntrd_own(struct ntrd_req *rq, void *p, void (*fn)(void *))
{
	struct ntrd_owned *o = malloc(sizeof *o);

	if (!o) {
		fn(p);
		return -ENOMEM;
	}
	*o = (struct ntrd_owned){.next = rq->owned, .p = p, .fn = fn};
	rq->owned = o;
	return 0;
}

static void owned_free(struct ntrd_req *rq)
{
	while (rq->owned) {
		struct ntrd_owned *o = rq->owned;

		rq->owned = o->next;
		o->fn(o->p);
		free(o);
	}
}

/* ---- members */

static int arg_fail(struct ntrd_req *rq, int code, const char *why)
{
	if (rq->bad)
		return rq->bad;
	rq->bad = code;
	ntr_err_set(rq->e, code, "request '%s'", rq->op->name);
	if (why)
		ntr_err_why(rq->e, "%s", why);
	return code;
}

int ntrd_arg_bad(struct ntrd_req *rq, const char *fmt, ...)
{
	char why[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof why, fmt, ap);
	va_end(ap);
	return arg_fail(rq, -EINVAL, why);
}

bool ntrd_arg_has(const struct ntrd_req *rq, const char *key)
{
	const json_t *v = json_object_get(rq->msg, key);

	return v && !json_is_null(v);
}

/* The member, or NULL when absent (an error when it is required). */
static const json_t *member(struct ntrd_req *rq, const char *key, enum ntrd_need need)
{
	if (ntrd_arg_has(rq, key))
		return json_object_get(rq->msg, key);
	if (need == NTRD_REQUIRED)
		ntrd_arg_bad(rq, "the member '%s' is missing", key);
	return NULL;
}

const char *ntrd_arg_str(struct ntrd_req *rq, const char *key, enum ntrd_need need)
{
	const json_t *v = member(rq, key, need);

	if (!v)
		return NULL;
	if (!json_is_string(v))
		ntrd_arg_bad(rq, "the member '%s' is no string", key);
	else if (strlen(json_string_value(v)) != json_string_length(v))
		ntrd_arg_bad(rq, "the member '%s' holds a NUL", key);
	else
		return json_string_value(v);
	return NULL;
}

const char *ntrd_arg_blob(struct ntrd_req *rq, const char *key, size_t *ret_len)
{
	const json_t *v = member(rq, key, NTRD_OPTIONAL);
	char *p;
	int r;

	if (!v)
		return NULL;
	r = ntr_json_get_bytes(v, &p, ret_len);
	if (r == -EINVAL)
		ntrd_arg_bad(rq, "the member '%s' is neither a string nor {\"base64\":…}", key);
	else if (r || (r = ntrd_own(rq, p, free)))
		arg_fail(rq, r, NULL);
	return r ? NULL : p;
}

const char *ntrd_arg_bytes(struct ntrd_req *rq, const char *key, enum ntrd_need need)
{
	size_t len = 0;
	const char *p = member(rq, key, need) ? ntrd_arg_blob(rq, key, &len) : NULL;

	if (p && strlen(p) != len) {
		ntrd_arg_bad(rq, "the member '%s' holds a NUL", key);
		return NULL;
	}
	return p;
}

const char *ntrd_arg_path_first(struct ntrd_req *rq)
{
	const char *dir = ntrd_arg_bytes(rq, "path_first", NTRD_OPTIONAL);

	if (dir && (dir[0] != '/' || strchr(dir, ':')))
		ntrd_arg_bad(rq, "the member 'path_first' is no absolute path, or holds a colon");
	return dir;
}

const char *ntrd_arg_python(struct ntrd_req *rq)
{
	const char *python = ntrd_arg_str(rq, "python", NTRD_OPTIONAL);

	if (python && !*python)
		ntrd_arg_bad(rq, "the member 'python' is empty");
	return python;
}

static void strv_free(void *v)
{
	ntr_strv_free(v);
}

char *const *ntrd_arg_strv(struct ntrd_req *rq, const char *key)
{
	const json_t *v = member(rq, key, NTRD_OPTIONAL);
	char **strv = NULL;
	int r;

	if (!v)
		return NULL;
	r = ntr_json_get_strv(v, &strv);
	if (r == -EINVAL)
		ntrd_arg_bad(rq, "the member '%s' is no array of byte strings without NUL", key);
	else if (r || (r = ntrd_own(rq, strv, strv_free)))
		arg_fail(rq, r, NULL);
	return r ? NULL : strv;
}

bool ntrd_arg_bool(struct ntrd_req *rq, const char *key)
{
	const json_t *v = member(rq, key, NTRD_OPTIONAL);

	if (v && !json_is_boolean(v))
		ntrd_arg_bad(rq, "the member '%s' is neither true nor false", key);
	return json_is_true(v);
}

int64_t ntrd_arg_int(struct ntrd_req *rq, const char *key, int64_t min, int64_t max, int64_t def)
{
	const json_t *v = member(rq, key, NTRD_OPTIONAL);

	if (!v)
		return def;
	if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
		ntrd_arg_bad(rq, "the member '%s' is no whole number from %lld to %lld", key, (long long)min,
		        (long long)max);
		return def;
	}
	return json_integer_value(v);
}

double ntrd_arg_real(struct ntrd_req *rq, const char *key, double min, double max, double def)
{
	const json_t *v = member(rq, key, NTRD_OPTIONAL);

	if (!v)
		return def;
	if (!json_is_number(v) || !(json_number_value(v) >= min && json_number_value(v) <= max)) {
		ntrd_arg_bad(rq, "the member '%s' is no number from %g to %g", key, min, max);
		return def;
	}
	return json_number_value(v);
}

int ntrd_arg_word(struct ntrd_req *rq, const char *key, const char *const *words)
{
	const char *s = ntrd_arg_str(rq, key, NTRD_OPTIONAL);

	if (!s)
		return -1;
	for (int i = 0; words[i]; i++)
		if (!strcmp(words[i], s))
			return i;
	ntrd_arg_bad(rq, "'%s' is no value of the member '%s'", s, key);
	return -1;
}

/* ---- replies */

int ntrd_reply_set(struct ntrd_req *rq, const char *key, json_t *value)
{
	if (!value || json_object_set_new(rq->reply, key, value))
		return ntr_err_set(rq->e, -ENOMEM, "request '%s'", rq->op->name);
	return 0;
}

int ntrd_reply_row(struct ntrd_req *rq, json_t *row)
{
	ntr_autojson json_t *own = row;

	if (!own || json_object_update(rq->reply, own))
		return ntr_err_set(rq->e, -ENOMEM, "request '%s'", rq->op->name);
	return 0;
}

int ntrd_event(struct ntrd_req *rq, const char *name, json_t *o)
{
	ntr_autojson json_t *ev = json_pack("{s:s}", "event", name);
	ntr_autojson json_t *own = o;

	if (!ev || !own || json_object_update(ev, own))
		return ntr_err_set(rq->e, -ENOMEM, "request '%s'", rq->op->name);
	return ntrd_conn_send(rq->conn, ev, NULL, 0);
}

int ntrd_reply_list(struct ntrd_req *rq, const char *key, json_t *array)
{
	ntr_autojson json_t *own = array;
	json_t *row;
	size_t i;
	int r = 0;

	if (!own || !ntrd_arg_bool(rq, "stream"))
		return ntrd_reply_set(rq, key, json_incref(own));
	json_array_foreach (own, i, row)
		if ((r = ntrd_event(rq, "row", json_incref(row))))
			break;
	return r ? r : rq->bad;
}

bool ntrd_paced(struct ntrd_req *rq)
{
	uint64_t now = ntr_mono_ns(), last = atomic_load(&rq->paced_ns);

	return now - last >= 100000000u && atomic_compare_exchange_strong(&rq->paced_ns, &last, now);
}

void ntrd_progress(void *user, uint64_t entries, uint64_t bytes)
{
	struct ntrd_req *rq = user;

	/* not ntrd_event: rq->e belongs to the handler's thread */
	ntr_autojson json_t *ev = json_pack("{s:s,s:I,s:I}", "event", "progress", "entries",
	        (json_int_t)entries, "bytes", (json_int_t)bytes);

	if (ev && ntrd_paced(rq))
		ntrd_conn_send(rq->conn, ev, NULL, 0);
}

/* ---- errors */

const char *ntrd_error_kind(int code)
{
	switch (-code) {
	case EINVAL:
	case E2BIG:
	case ENAMETOOLONG:
		return "usage";
	case ENOENT:
	case ERANGE:
	case ENOTUNIQ:
		return "not-found";
	case EEXIST:
	case ENOTEMPTY:
		return "exists";
	case EBUSY:
	case EAGAIN:
	case EDEADLK:
		return "busy";
	case ENOSYS:
	case ENODEV:
		return "isolation";
	case EKEYREJECTED:
		return "refused";
	case ENOSPC:
	case EDQUOT:
		return "full";
	case EUCLEAN:
		return "corrupt";
	case EPROTO:
		return "protocol";
	default:
		return "failed";
	}
}

json_t *ntrd_error_json(const struct ntr_err *e, const char *kind)
{
	const char *why = ntr_err_reason(e), *todo = ntr_err_advice(e);

	return json_pack("{s:{s:o,s:o,s:o,s:i,s:s}}", "error", "what",
	        ntr_json_text(e->what, strlen(e->what)), "why", ntr_json_text(why, strlen(why)), "todo",
	        ntr_json_text(todo, strlen(todo)), "errno", -e->code, "kind",
	        kind ? kind : ntrd_error_kind(e->code));
}

/* ---- dispatch */

static int send_reply(struct ntrd_req *rq)
{
	json_t *warnings = ntr_ctl_warnings();
	int r = json_object_set_new(rq->reply, "ok", json_true()) ? -ENOMEM : 0;

	if (warnings && json_object_set_new(rq->reply, "warnings", warnings))
		r = -ENOMEM;
	if (!r)
		r = ntrd_conn_send(rq->conn, rq->reply, &rq->reply_fd, rq->reply_fd >= 0 ? 1 : 0);
	if (r == -EMSGSIZE || r == -ENOMEM) {
		ntr_err_set(rq->e, r, "request '%s'", rq->op->name);
		if (r == -EMSGSIZE)
			ntr_err_why(rq->e, "the reply is larger than %d MiB", NTR_WIRE_MAX >> 20);
	}
	return r;
}

static int send_error(struct ntrd_req *rq, int r)
{
	ntr_autojson json_t *warnings = ntr_ctl_warnings(), *o = NULL;

	ntr_err_default(rq->e, r, "request '%s'", rq->op->name);
	o = ntrd_error_json(rq->e, rq->kind);
	if (o && warnings)
		json_object_set(o, "warnings", warnings);
	if (o && rq->has_result)
		json_object_set(o, "result", rq->reply);
	return o ? ntrd_conn_send(rq->conn, o, NULL, 0) : -ENOMEM;
}

static const struct ntrd_op *find_op(const struct ntrd_op *ops, const char *name)
{
	for (; ops->name; ops++)
		if (!strcmp(ops->name, name))
			return ops;
	return NULL;
}

/* What must hold before a handler sees the request. */
static int admit(struct ntrd_req *rq, const struct ntrd_op *ops)
{
	static const struct ntrd_op unknown = {.name = "?"};
	const char *name;

	rq->op = &unknown;
	name = ntrd_arg_str(rq, "op", NTRD_REQUIRED);
	if (!name)
		return rq->bad;
	rq->op = find_op(ops, name);
	if (!rq->op) {
		rq->op = &unknown;
		ntr_err_set(rq->e, -EINVAL, "request '%.64s'", name);
		ntr_err_why(rq->e, "this daemon (version " NTR_VERSION ") does not know it");
		ntr_err_todo(rq->e, "stop an older daemon with 'ntr daemon stop'");
		return -EINVAL;
	}
	if (!rq->op->before_hello && !*ntrd_conn_greeted(rq->conn)) {
		rq->kind = "protocol";
		return ntr_err_full(
		        rq->e, -EPROTO, "connection to ntrd", "the first request must be 'hello'", NULL);
	}
	if (rq->nfds < rq->op->min_fds || rq->nfds > rq->op->max_fds)
		return ntrd_arg_bad(rq, "%zu descriptors came along, it takes %u to %u", rq->nfds,
		        rq->op->min_fds, rq->op->max_fds);
	return 0;
}

static int run_request(struct ntrd_req *rq, const struct ntrd_op *ops)
{
	int r;

	if (!rq->reply)
		return send_error(rq, -ENOMEM);
	r = admit(rq, ops);
	if (!r)
		r = ntrd_run_handler(rq);
	if (!r)
		r = rq->bad; /* of a member that was read late */
	if (rq->silent)
		return 0;
	if (!r) {
		r = send_reply(rq);
		if (r != -EMSGSIZE && r != -ENOMEM)
			return r;
	}
	return send_error(rq, r);
}

int ntrd_dispatch(struct ntrd_server *srv, struct ntrd_conn *conn, json_t *msg, int *fds, size_t nfds)
{
	static const struct ntrd_op none = {.name = "?"};
	struct ntr_err e = {0};
	struct ntrd_req rq = {
	        .srv = srv,
	        .conn = conn,
	        .ctl = ntrd_server_ctl(srv),
	        .op = &none,
	        .msg = msg,
	        .fds = fds,
	        .nfds = nfds,
	        .reply = json_object(),
	        .reply_fd = -1,
	        .e = &e,
	};
	ntr_autofree char *inside = NULL;
	int r;

	ntr_json_get_bytes(json_object_get(msg, "inside"), &inside, NULL);
	ntr_ctl_inside(inside);
	r = run_request(&rq, ntrd_server_ops(srv));
	ntr_ctl_inside(NULL);
	owned_free(&rq);
	json_decref(rq.reply);
	ntr_closep(&rq.reply_fd);
	return r ? r : rq.hangup ? -ECANCELED : 0;
}
