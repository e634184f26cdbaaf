/* The cache: cache-get, cache-set, cache-rm, cache-ls. A value is the member `value`, or, for one of any
 * size, JSON text through a descriptor that comes along. */
#include "ntrd.h"

#include "../base/util.h"
#include "../base/value.h"
#include "../exec/controller.h"
#include "../fs/cache.h"

#include <errno.h>

/* Whose cache is meant. A process in a session names its own as it was called when its call began, and may
 * outlive that name, which may be another session's by now: what counts is where it lives. */
struct whose {
	const char *session;
	bool inside; /* the caller's own */
	char own[NTR_NAME_MAX + 1];
};

static bool peer_session(struct ntrd_req *rq, char ret[NTR_NAME_MAX + 1])
{
	pid_t pid;
	uid_t uid;

	return !ntr_wire_peer(ntrd_conn_sock(rq->conn), &pid, &uid) && !ntr_ctl_session_of(rq->ctl, pid, ret);
}

static const char *whose(struct ntrd_req *rq, struct whose *w)
{
	const char *inside = ntrd_arg_bytes(rq, "inside", NTRD_OPTIONAL);

	w->session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	w->inside = inside && w->session && !strcmp(inside, w->session);
	if (rq->bad || !inside || !peer_session(rq, w->own))
		return w->session;
	w->inside = w->inside || !strcmp(w->session, w->own);
	return w->session = w->inside ? w->own : w->session;
}

int ntrd_op_cache_get(struct ntrd_req *rq)
{
	struct whose w;
	const char *session = whose(rq, &w);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	const char *key = ntrd_arg_str(rq, "key", NTRD_REQUIRED);
	ntr_auto(ntr_buf_done) struct ntr_buf text = {0};
	char why[NTR_VALUE_WHY];
	json_t *value = NULL;
	int r = rq->bad;

	if (!r)
		r = ntr_ctl_cache_get(rq->ctl, session, rev, key, &text, rq->e);
	if (r)
		return r;
	if (rq->nfds) {
		r = ntr_write_all(rq->fds[0], text.data, text.len);
		return r ? ntr_err_default(rq->e, r, "write the value of '%s'", key) : 0;
	}
	if (text.len > NTR_WIRE_MAX - 4096)
		r = -EMSGSIZE;
	else
		r = ntr_value_parse((const char *)text.data, text.len, &value, why);
	if (r == -EINVAL)
		r = -EUCLEAN;
	return r ? ntr_err_default(rq->e, r, "send the value of '%s'", key)
	         : ntrd_reply_set(rq, "value", value);
}

/* What the descriptor holds, in fresh memory. */
static int read_text(struct ntrd_req *rq, int fd, struct ntr_buf *b)
{
	for (;;) {
		ssize_t n;

		if (ntr_buf_reserve(b, 1 << 18))
			return -ENOMEM;
		n = read(fd, b->data + b->len, 1 << 18);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ntr_err_set(rq->e, -errno, "read the value");
		if (!n)
			return 0;
		b->len += (size_t)n;
		if (b->len > NTR_CACHE_VALUE_MAX)
			return ntrd_arg_bad(rq, "the value is larger than %d MiB", NTR_CACHE_VALUE_MAX >> 20);
	}
}

/* The value that is to be set, in its own reference. */
static int take_value(struct ntrd_req *rq, json_t **ret)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	char why[NTR_VALUE_WHY];
	int r = 0;

	if (!rq->nfds) {
		*ret = json_incref(json_object_get(rq->msg, "value"));
		return *ret ? 0 : ntrd_arg_bad(rq, "the member 'value' is missing");
	}
	r = read_text(rq, rq->fds[0], &b);
	if (!r)
		r = ntr_value_parse(b.len ? (const char *)b.data : "", b.len, ret, why);
	return r == -EINVAL && !rq->bad ? ntrd_arg_bad(rq, "the value: %s", why) : r;
}

int ntrd_op_cache_set(struct ntrd_req *rq)
{
	struct whose w;
	const char *session = whose(rq, &w), *key = ntrd_arg_str(rq, "key", NTRD_REQUIRED);
	char commit[NTR_COMMIT_HEX + 1], why[NTR_VALUE_WHY];
	ntr_autojson json_t *value = NULL;
	ntr_autofree char *text = NULL;
	size_t len;
	int r = rq->bad;

	if (!r && !w.inside)
		r = ntrd_check_inside(rq, session);
	if (!r)
		r = take_value(rq, &value);
	if (r)
		return r;
	if (ntr_value_check(value, why))
		return ntrd_arg_bad(rq, "the value: %s", why);
	text = ntr_value_dump(value, &len);
	if (!text)
		return -ENOMEM;
	r = ntr_ctl_cache_set(rq->ctl, session, key, text, len, w.inside, commit, rq->e);
	return r ? r : ntrd_reply_set(rq, "commit", ntrd_json_hex(commit));
}

int ntrd_op_cache_rm(struct ntrd_req *rq)
{
	struct whose w;
	const char *session = whose(rq, &w), *key = ntrd_arg_str(rq, "key", NTRD_REQUIRED);
	char commit[NTR_COMMIT_HEX + 1];
	int r = rq->bad;

	if (!r && !w.inside)
		r = ntrd_check_inside(rq, session);
	if (!r)
		r = ntr_ctl_cache_del(rq->ctl, session, key, w.inside, commit, rq->e);
	return r ? r : ntrd_reply_set(rq, "commit", ntrd_json_hex(commit));
}

int ntrd_op_cache_ls(struct ntrd_req *rq)
{
	struct whose w;
	const char *session = whose(rq, &w);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	json_t *keys = NULL;
	int r = rq->bad;

	if (!r)
		r = ntr_ctl_cache_keys(rq->ctl, session, rev, &keys, rq->e);
	return r ? r : ntrd_reply_set(rq, "keys", keys);
}
