/* rows: the common shapes of a command: a listing, and a request with one reply. */
#include "ntr.h"

#include "../base/util.h"

#include <errno.h>
#include <libsmartcols.h>

struct listing {
	bool json;
	struct libscols_table *table; /* NULL with --json */
	ntr_row_fn *add;
	int err;
};

static void list_row(struct listing *l, const json_t *row)
{
	static const char *const skip[] = {"event", "fds", NULL};

	if (l->json)
		ntr_json_line(row, skip);
	else if (!l->err)
		l->err = l->add(l->table, row);
}

static void list_event(void *user, const json_t *event)
{
	if (!strcmp(ntr_json_str(event, "event", ""), "row"))
		list_row(user, event);
}

static int list_run(struct ntr_cmd *cmd, json_t *req, const char *key, struct listing *l)
{
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};
	json_t *row;
	size_t i;

	if (ntr_request(cmd, req, NULL, 0, list_event, l, &reply, &e))
		return ntr_cmd_fail(cmd, &e);
	json_array_foreach (json_object_get(reply, key), i, row)
		list_row(l, row);
	return 0;
}

int ntr_rows(struct ntr_cmd *cmd, json_t *req, const char *key, const struct ntr_col *cols, size_t ncols,
        ntr_row_fn *add)
{
	struct listing l = {.json = cmd->json, .add = add};
	int status;

	if (!l.json && !(l.table = ntr_table_new(cols, ncols))) {
		json_decref(req);
		return ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	}
	status = list_run(cmd, req, key, &l);
	if (l.table && (status || l.err))
		scols_unref_table(l.table);
	else if (l.table)
		l.err = ntr_table_print(l.table);
	return l.err ? ntr_cmd_die(cmd, l.err, NULL, "%s", strerror(-l.err)) : status;
}

/* Rows without what makes them events, in an array. */
static void collect_event(void *user, const json_t *event)
{
	json_t *rows = user, *row;

	if (strcmp(ntr_json_str(event, "event", ""), "row"))
		return;
	row = json_copy((json_t *)(uintptr_t)event);
	json_object_del(row, "event");
	json_array_append_new(rows, row);
}

int ntr_streamed(struct ntr_cmd *cmd, json_t *req, const char *key, ntr_text_fn *text)
{
	ntr_autojson json_t *reply = NULL, *rows = json_array();
	struct ntr_err e = {0};

	if (ntr_request(cmd, ntr_req_stream(req), NULL, 0, collect_event, rows, &reply, &e))
		return ntr_cmd_fail(cmd, &e);
	if (json_array_size(rows) || !json_object_get(reply, key))
		json_object_set(reply, key, rows);
	if (cmd->json)
		ntr_json_reply(reply);
	else
		text(cmd, reply);
	return 0;
}

json_t *ntr_req_stream(json_t *req)
{
	if (!json_object_set_new(req, "stream", json_true()))
		return req;
	json_decref(req);
	return NULL;
}

int ntr_simple(struct ntr_cmd *cmd, json_t *req, ntr_text_fn *text)
{
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};

	if (ntr_request(cmd, req, NULL, 0, NULL, NULL, &reply, &e))
		return ntr_cmd_fail(cmd, &e);
	if (cmd->json)
		ntr_json_reply(reply);
	else if (text)
		text(cmd, reply);
	return 0;
}

void ntr_print_aside(const json_t *reply)
{
	const json_t *staged = json_object_get(reply, "staged");
	const char *commit = json_is_object(staged) ? ntr_json_str(staged, "commit", "")
	                                            : ntr_json_str(reply, "staged", "");
	long long killed = ntr_json_int(reply, "killed", 0);
	char buf[NTR_HUMAN];

	if (*commit)
		printf("unabsorbed work is kept in %s\n", ntr_human_commit(commit, buf));
	if (killed > 0)
		printf("%lld background process%s ended\n", killed, killed == 1 ? "" : "es");
}
