/* history, diff, fork, rollback: the tools that an embedder turns on for agents that may look and go back. */
#include "ntrd_tool.h"
#include "ntrd_difftext.h"

#include "../base/util.h"
#include "../exec/controller.h"
#include "../exec/tools.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

enum { LIST_DEFAULT = 20, WHAT_MAX = 100 };

/* ---- history */

static const json_t *first_of(const json_t *row, const char *const *keys)
{
	for (; *keys; keys++) {
		const json_t *v = json_object_get(row, *keys);

		if (v && !json_is_null(v))
			return v;
	}
	return NULL;
}

/* What ran, in one line. */
static void put_what(struct ntr_buf *b, const json_t *row)
{
	static const char *const keys[] = {"script", "code", "argv", "path", "key", "message", "file", NULL};
	const json_t *v = first_of(row, keys), *x;
	ntr_autofree char *text = NULL;
	size_t i, n = 0;

	if (json_is_array(v)) {
		json_array_foreach (v, i, x)
			ntr_buf_printf(
			        b, "%s%s", i ? " " : "", json_is_string(x) ? json_string_value(x) : "?");
		return;
	}
	if (!v || ntr_json_get_bytes(v, &text, NULL))
		return;
	for (const char *p = text; *p && n < WHAT_MAX; p++, n++)
		ntr_buf_byte(b, (uint8_t)*p < ' ' ? ' ' : (uint8_t)*p);
	if (text[n])
		ntr_buf_str(b, "...");
}

/* "3f2a91c4d5e6  2026-11-29 23:30:13  terminal  exit 1  +1 ~0 -0  make test" */
static void put_row(struct ntr_buf *b, const json_t *row)
{
	const json_t *code = json_object_get(row, "exit_code"), *ch = json_object_get(row, "changes");
	const char *time = ntr_json_str(row, "time", "");

	ntr_buf_printf(b, "%.12s  %.10s %.8s  %s", ntr_json_str(row, "commit", ""), time,
	        strlen(time) > 19 ? time + 11 : "", ntr_json_str(row, "tool", "?"));
	if (json_integer_value(code))
		ntr_buf_printf(b, "  exit %lld", (long long)json_integer_value(code));
	ntr_buf_printf(b, "  +%lld ~%lld -%lld  ", (long long)ntr_json_int(ch, "created", 0),
	        (long long)ntr_json_int(ch, "modified", 0), (long long)ntr_json_int(ch, "deleted", 0));
	put_what(b, row);
	while (b->len && b->data[b->len - 1] == ' ')
		b->len--;
}

struct rows {
	struct ntrd_tool *t;
	json_t *list;
};

static int add_row(void *user, const struct ntr_commit *c)
{
	struct rows *rows = user;
	json_t *row = ntrd_row_commit(rows->t->rq->ctl, c);

	if (!row)
		return -ENOMEM;
	if (rows->t->text.len)
		ntr_buf_byte(&rows->t->text, '\n');
	put_row(&rows->t->text, row);
	return json_array_append_new(rows->list, row) ? -ENOMEM : rows->t->text.err;
}

/* A session that an agent has not used yet has no history to look at. */
static int no_session(struct ntrd_tool *t, int r, const struct ntr_err *e)
{
	struct ntr_head h;

	if (r == -ENOENT && ntr_session_get(ntr_ctl_store(t->rq->ctl), t->session, &h, NULL) == -ENOENT)
		return ntr_buf_str(&t->text, "(no history yet)");
	return ntrd_tool_error(t, t->name, r, e);
}

int ntrd_tool_history(struct ntrd_tool *t)
{
	int64_t limit = ntr_tool_arg_int(t->args, "limit", LIST_DEFAULT);
	struct rows rows = {.t = t, .list = json_array()};
	struct ntr_err e = {0};
	struct ntr_head h;
	int r;

	if (!rows.list || json_object_set_new(t->structured, "commits", rows.list))
		return -ENOMEM;
	r = ntr_session_get(ntr_ctl_store(t->rq->ctl), t->session, &h, &e);
	if (r)
		return no_session(t, r, &e);
	return ntr_commit_log(ntr_ctl_store(t->rq->ctl), h.commit, (uint64_t)limit, add_row, &rows);
}

/* ---- diff */

/* The patch's text without what no agent can read, as far as it will be shown. *ret_more: there is more. */
static int take_patch(int fd, size_t max, struct ntr_buf *b, bool *ret_more)
{
	FILE *f = fdopen(fd, "r");
	ntr_autofree char *line = NULL;
	bool binary = false;
	size_t cap = 0;
	ssize_t n;

	if (!f)
		return close(fd), -ENOMEM;
	rewind(f);
	while (b->len <= max && (n = getline(&line, &cap, f)) > 0) {
		if (!strcmp(line, "GIT binary patch\n")) {
			binary = true;
			ntr_buf_str(b, "(binary, not shown)\n");
		} else if (!strncmp(line, "diff --git ", 11)) {
			binary = false;
		}
		if (!binary)
			ntr_buf_add(b, line, (size_t)n);
	}
	*ret_more = b->len > max;
	fclose(f);
	return b->err;
}

static int patch_text(struct ntrd_tool *t, uint64_t a, uint64_t b, const struct ntr_diff *d)
{
	int fd = memfd_create("diff", MFD_CLOEXEC);
	struct ntr_tool_call call = {.budget = ntrd_tool_budget(t->rq)};
	ntr_auto(ntr_buf_done) struct ntr_buf text = {0};
	int r = fd < 0 ? -errno : ntr_diff_patch(ntr_ctl_store(t->rq->ctl), a, b, d, fd, t->rq->e);

	if (r) {
		ntr_closep(&fd);
		return r;
	}
	r = take_patch(fd, 4 * call.budget, &text, &call.truncated);
	if (r)
		return r;
	call.out = text.data;
	call.out_len = text.len;
	return ntr_tool_render(&call, &t->text, NULL, NULL);
}

/* A state that the agent names; what lies before the first commit is empty. */
static int root_of(struct ntrd_tool *t, const char *rev, bool given, uint64_t *ret, struct ntr_err *e)
{
	ntr_auto(ntr_commit_done) struct ntr_commit c = {0};
	int r = ntr_ctl_resolve(t->rq->ctl, t->session, rev, &c, NULL, e);

	*ret = c.root;
	if (r == -ERANGE && !given)
		return 0;
	return r;
}

static int compare(struct ntrd_tool *t, uint64_t a, uint64_t b, const char *path)
{
	ntr_auto(ntr_diff_done) struct ntr_diff d = {0};
	char *paths[] = {(char *)(uintptr_t)path, NULL};
	int r = ntr_diff_compute(ntr_ctl_store(t->rq->ctl), a, b, path && *path ? paths : NULL, &d);

	if (r)
		return r;
	if (json_object_set_new(t->structured, "differs", json_boolean(d.n != 0)) ||
	        json_object_set_new(t->structured, "state_changed", json_boolean(d.state_changed)) ||
	        json_object_set_new(t->structured, "entries", ntrd_rows_diff(&d)))
		return -ENOMEM;
	if (d.n)
		return patch_text(t, a, b, &d);
	return ntr_buf_str(
	        &t->text, d.state_changed ? "(no file differs; the working directory, variables or cache do)"
	                                  : "(no differences)");
}

/* The argument path, relative to the workspace. */
static int inner_path(const struct ntrd_tool *t, const char *wsroot, char **ret)
{
	const char *path = ntrd_tool_arg(t, "path", NULL);

	*ret = NULL;
	return path ? ntrd_path_relative(wsroot, path, ret) : 0;
}

int ntrd_tool_diff(struct ntrd_tool *t)
{
	const char *from = ntrd_tool_arg(t, "from", NULL), *to = ntrd_tool_arg(t, "to", NULL);
	ntr_autofree char *path = NULL;
	struct ntr_err e = {0};
	uint64_t a = 0, b = 0;
	struct ntr_head h;
	int r = ntr_session_get(ntr_ctl_store(t->rq->ctl), t->session, &h, &e);

	if (!r && inner_path(t, h.wsroot, &path))
		return ntrd_tool_fail(t, "diff", "the path is not inside the workspace");
	if (!r)
		r = root_of(t, to ? to : "HEAD", true, &b, &e);
	if (!r)
		r = root_of(t, from ? from : "~1", from != NULL, &a, &e);
	return r ? no_session(t, r, &e) : compare(t, a, b, path);
}

/* ---- fork, rollback */

/* "abc" and "~2" are of this session; "other~1", "other@abc" are not. */
static char *rev_of(const char *session, const char *rev)
{
	if (!rev || !strcmp(rev, "HEAD"))
		return strdup(session);
	if (*rev == '~' || *rev == '@')
		return ntr_sprintf("%s%s", session, rev);
	return strpbrk(rev, "~@") ? strdup(rev) : ntr_sprintf("%s@%s", session, rev);
}

int ntrd_tool_fork(struct ntrd_tool *t)
{
	const char *name = ntrd_tool_arg(t, "name", NULL);
	ntr_autofree char *rev = rev_of(t->session, ntrd_tool_arg(t, "from", NULL));
	ntr_auto(ntr_commit_done) struct ntr_commit at = {0};
	struct ntr_err e = {0};
	struct ntr_head h;
	int r = rev ? ntr_session_name_new(name, &e) : -ENOMEM;

	if (!r)
		r = ntr_ctl_fork(t->rq->ctl, rev, name, &h, &e);
	if (!r)
		r = ntr_commit_get(ntr_ctl_store(t->rq->ctl), h.commit, &at, &e);
	if (r)
		return ntrd_tool_error(t, "fork", r, &e);
	ntr_buf_printf(&t->text, "forked %s from %s at %.12s", name, t->session, at.hex);
	return json_object_set_new(t->structured, "name", json_string(name)) ||
	                       json_object_set_new(t->structured, "head", json_string(at.hex))
	               ? -ENOMEM
	               : 0;
}

static void rollback_done(struct ntr_rollback_result *res)
{
	ntr_commit_done(&res->to);
}

static int rollback_text(struct ntrd_tool *t, const struct ntr_rollback_result *res)
{
	json_t *row = ntrd_row_commit(t->rq->ctl, &res->to);

	if (!row || json_object_set_new(t->structured, "to", row) ||
	        json_object_set_new(t->structured, "staged", ntrd_json_hex(res->staged)) ||
	        json_object_set_new(t->structured, "killed", json_integer(res->killed)))
		return -ENOMEM;
	ntr_buf_str(&t->text, "rolled back to ");
	put_row(&t->text, row);
	if (res->staged[0])
		ntr_buf_printf(&t->text, "\nunfinished work was kept as %.12s", res->staged);
	if (res->killed)
		ntr_buf_printf(&t->text, "\n%u background process%s ended", res->killed,
		        res->killed == 1 ? "" : "es");
	return t->text.err;
}

int ntrd_tool_rollback(struct ntrd_tool *t)
{
	const char *rev = ntrd_tool_arg(t, "commit", NULL);
	int64_t steps = ntr_tool_arg_int(t->args, "steps", 0);
	ntr_auto(rollback_done) struct ntr_rollback_result res = {0};
	struct ntr_err e = {0};
	int r = ntrd_check_inside(t->rq, t->session);

	if (r)
		return r;
	if (!rev == !steps)
		return ntrd_tool_fail(t, "rollback", "one of the arguments 'steps' and 'commit' is needed");
	r = ntr_ctl_rollback(t->rq->ctl, t->session, rev, (uint64_t)steps, false, false, &res, &e);
	return r ? ntrd_tool_error(t, "rollback", r, &e) : rollback_text(t, &res);
}
