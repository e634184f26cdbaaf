/* diff: what is compared, and who writes it. */
#include "ntrd.h"
#include "ntrd_difftext.h"

#include "../base/util.h"
#include "../exec/controller.h"

#include <errno.h>

static const char *const formats[] = {"patch", "name-status", "stat", "json", NULL};
enum { FORMAT_PATCH, FORMAT_NAMES, FORMAT_STAT, FORMAT_JSON };

struct request {
	const char *session, *a, *b;
	char *const *paths;
	int format, width;
	char wsroot[sizeof((struct ntr_head *)0)->wsroot];
	uint64_t old_root, new_root;
};

static void pathv_free(void *v)
{
	ntr_strv_free(v);
}

/* Paths relative to the workspace; none left (one was the workspace itself) means everything. */
static int relative_paths(struct ntrd_req *rq, struct request *q)
{
	size_t n = 0;
	char **v;

	while (q->paths && q->paths[n])
		n++;
	if (!n) {
		q->paths = NULL;
		return 0;
	}
	v = calloc(n + 1, sizeof *v);
	if (!v || ntrd_own(rq, v, pathv_free))
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int r = ntrd_path_relative(q->wsroot, q->paths[i], &v[i]);

		if (r == -EINVAL)
			return ntrd_arg_bad(
			        rq, "the path '%.200s' is not in the workspace %s", q->paths[i], q->wsroot);
		if (r)
			return r;
		if (!v[i][0]) {
			q->paths = NULL;
			return 0;
		}
	}
	q->paths = v;
	return 0;
}

static int resolve(struct ntrd_req *rq, struct request *q, const char *rev, uint64_t *ret_root)
{
	ntr_auto(ntr_commit_done) struct ntr_commit c = {0};
	struct ntr_head h = {0};
	int r = ntr_ctl_resolve(rq->ctl, q->session, rev, &c, &h, rq->e);

	if (r)
		return r;
	if (h.wsroot[0])
		memcpy(q->wsroot, h.wsroot, sizeof q->wsroot);
	*ret_root = c.root;
	return 0;
}

/* The head against what is not committed. */
static int compare_work(struct ntrd_req *rq, struct request *q, struct ntr_diff *d)
{
	struct ntr_head h;
	int r = ntr_session_get(ntr_ctl_store(rq->ctl), q->session, &h, rq->e);

	if (r)
		return r;
	memcpy(q->wsroot, h.wsroot, sizeof q->wsroot);
	r = relative_paths(rq, q);
	if (!r)
		r = ntr_ctl_work(rq->ctl, q->session, d, &q->old_root, &q->new_root, rq->e);
	if (r || !q->paths || !d->n)
		return r;
	ntr_diff_done(d);
	*d = (struct ntr_diff){0};
	return ntr_diff_compute(ntr_ctl_store(rq->ctl), q->old_root, q->new_root, q->paths, d);
}

static int compare_commits(struct ntrd_req *rq, struct request *q, struct ntr_diff *d)
{
	int r = resolve(rq, q, q->a, &q->old_root);

	if (!r)
		r = resolve(rq, q, q->b ? q->b : "HEAD", &q->new_root);
	if (!r)
		r = relative_paths(rq, q);
	return r ? r : ntr_diff_compute(ntr_ctl_store(rq->ctl), q->old_root, q->new_root, q->paths, d);
}

static int write_text(struct ntrd_req *rq, const struct request *q, const struct ntr_diff *d)
{
	struct ntr_store *st = ntr_ctl_store(rq->ctl);
	int fd = rq->fds[0];

	switch (q->format) {
	case FORMAT_NAMES:
		return ntrd_diff_names(d, fd);
	case FORMAT_STAT:
		return ntrd_diff_stat(st, q->old_root, q->new_root, d, q->width, fd);
	case FORMAT_JSON:
		return ntrd_diff_json(d, fd);
	case FORMAT_PATCH:
	default:
		return d->n ? ntr_diff_patch(st, q->old_root, q->new_root, d, fd, rq->e) : 0;
	}
}

static int read_request(struct ntrd_req *rq, struct request *q)
{
	*q = (struct request){.session = ntrd_arg_session(rq, "session", NTRD_OPTIONAL),
	        .a = ntrd_arg_bytes(rq, "a", NTRD_OPTIONAL),
	        .b = ntrd_arg_bytes(rq, "b", NTRD_OPTIONAL),
	        .paths = ntrd_arg_strv(rq, "paths"),
	        .width = (int)ntrd_arg_int(rq, "width", 1, 10000, 80),
	        .format = ntrd_arg_word(rq, "format", formats),
	        .wsroot = "/workspace"};
	if (rq->bad)
		return rq->bad;
	if (q->b && !q->a)
		return ntrd_arg_bad(rq, "the member 'b' needs 'a'");
	if (!q->session && (!q->a || !q->b))
		return ntrd_arg_bad(rq, "the member 'session' is missing");
	return 0;
}

int ntrd_op_diff(struct ntrd_req *rq)
{
	ntr_auto(ntr_diff_done) struct ntr_diff d = {0};
	struct request q;
	int r = read_request(rq, &q);

	if (!r)
		r = q.a ? compare_commits(rq, &q, &d) : compare_work(rq, &q, &d);
	if (!r)
		r = write_text(rq, &q, &d);
	if (r)
		return ntr_err_default(rq->e, r, "compare");
	return ntrd_reply_row(
	        rq, json_pack("{s:b,s:b}", "differs", d.n != 0, "state_changed", (int)d.state_changed));
}
