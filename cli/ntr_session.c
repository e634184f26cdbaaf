/* Sessions: new, fork, sessions, rm, rename, and their processes: ps, stop. */
#include "ntr.h"
#include "ntr_call.h"

#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* Where a new session's files come from. */
struct origin {
	const char *key; /* from_dir, from_tar, from_rev; NULL: nowhere */
	int fd;
};

static void origin_done(struct origin *o)
{
	if (o->fd >= 0)
		close(o->fd);
}

/* "-", a directory and a file are what they are; anything else without a slash names a session. */
static int origin_open(const char *from, struct origin *o)
{
	struct stat st;

	if (!strcmp(from, "-")) {
		o->key = "from_tar";
		o->fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
		return o->fd < 0 ? -errno : 0;
	}
	if (stat(from, &st)) {
		o->key = "from_rev";
		return errno == ENOENT && !strchr(from, '/') ? 0 : -errno;
	}
	o->key = S_ISDIR(st.st_mode) ? "from_dir" : "from_tar";
	o->fd = open(from, O_RDONLY | O_CLOEXEC);
	return o->fd < 0 ? -errno : 0;
}

static json_t *new_request(struct ntr_cmd *cmd, const char *name, const char *from, const struct origin *o)
{
	const char *root = ntr_cmd_opt(cmd, NTR_OPT_ROOT), *dur = ntr_cmd_opt(cmd, NTR_OPT_DURABILITY);
	const char *rung = ntr_cmd_opt(cmd, NTR_OPT_RUNG);
	ntr_autojson json_t *req = json_pack("{s:s}", "op", "new");
	int r = !req;

	if (!r)
		r = json_object_set_new(req, "name", ntr_arg(name));
	if (!r && o->key)
		r = json_object_set_new(req, o->key, ntr_arg(from));
	if (!r && root)
		r = json_object_set_new(req, "wsroot", ntr_arg(root));
	if (!r && dur)
		r = json_object_set_new(req, "durability", ntr_arg(dur));
	if (!r && rung)
		r = json_object_set_new(req, "rung", ntr_arg(rung));
	return r ? NULL : ntr_steal_ptr(req);
}

static void new_print(const json_t *row)
{
	char commit[NTR_HUMAN];

	printf("session %s at %s, %s\n", ntr_json_str(row, "name", "?"),
	        ntr_human_commit(ntr_json_str(row, "head", NULL), commit),
	        ntr_json_str(row, "wsroot", "/workspace"));
	puts("rung none: no boundary; calls run as you, with your network and your files");
}

int ntr_new_main(struct ntr_cmd *cmd)
{
	const char *from = ntr_cmd_opt(cmd, NTR_OPT_FROM), *dur = ntr_cmd_opt(cmd, NTR_OPT_DURABILITY);
	ntr_auto(origin_done) struct origin o = {.fd = -1};
	ntr_autojson json_t *reply = NULL, *req = NULL;
	struct ntr_err e = {0};
	int r;

	if (!cmd->nargs && !cmd->session_given)
		return ntr_cmd_usage(cmd, "the session's name is missing");
	if (dur && strcmp(dur, "fsync") && strcmp(dur, "relaxed"))
		return ntr_cmd_usage(cmd, "--durability '%s' is neither fsync nor relaxed", dur);
	r = from ? origin_open(from, &o) : 0;
	if (r)
		return ntr_cmd_die(cmd, r, NULL, "--from %s: %s", from, strerror(-r));
	req = new_request(cmd, cmd->nargs ? cmd->args[0] : cmd->session, from, &o);
	r = req ? ntr_call_mounts(cmd, req) : 0;
	if (r)
		return r < 0 ? ntr_cmd_die(cmd, r, NULL, "%s", strerror(-r)) : r;
	r = ntr_request(cmd, ntr_steal_ptr(req), &o.fd, o.fd >= 0, ntr_progress, NULL, &reply, &e);
	ntr_progress_end();
	if (r)
		return ntr_cmd_fail(cmd, &e);
	if (cmd->json)
		ntr_json_reply(reply);
	else
		new_print(reply);
	return 0;
}

static void fork_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	char commit[NTR_HUMAN];

	printf("session %s at %s\n", cmd->args[cmd->nargs - 1],
	        ntr_human_commit(ntr_json_str(reply, "head", NULL), commit));
	ntr_print_aside(reply);
}

int ntr_fork_main(struct ntr_cmd *cmd)
{
	const char *source = cmd->nargs == 2 ? cmd->args[0] : cmd->session;

	if (cmd->nargs == 1 && !cmd->session_given)
		return ntr_cmd_usage(cmd, "the new session's name is missing");
	return ntr_simple(cmd,
	        json_pack("{s:s,s:o,s:o}", "op", "fork", "source", ntr_arg(source), "name",
	                ntr_arg(cmd->args[cmd->nargs - 1])),
	        fork_print);
}

static const char *session_state(const json_t *row, char *buf)
{
	long long background = ntr_json_int(row, "background", 0);

	if (ntr_json_bool(row, "running", false) || ntr_json_int(row, "running", 0))
		return "running";
	if (background)
		snprintf(buf, NTR_HUMAN, "live, %lld in background", background);
	return background ? buf : ntr_json_bool(row, "live", false) ? "live" : "-";
}

static int sessions_add(struct libscols_table *t, const json_t *row)
{
	char name[256], head[NTR_HUMAN], origin[NTR_HUMAN], state[NTR_HUMAN], files[NTR_HUMAN],
	        size[NTR_HUMAN], created[NTR_HUMAN];
	const char *cells[7];

	snprintf(name, sizeof name, "%s", ntr_json_str(row, "name", "?"));
	snprintf(files, sizeof files, "%lld", (long long)ntr_json_int(row, "inodes", 0));
	cells[0] = name;
	cells[1] = ntr_human_commit(ntr_json_str(row, "head", NULL), head);
	cells[2] = ntr_human_commit(ntr_json_str(row, "origin", NULL), origin);
	cells[3] = session_state(row, state);
	cells[4] = files;
	cells[5] = ntr_human_bytes(ntr_json_int(row, "bytes", 0), size);
	cells[6] = ntr_human_time(json_object_get(row, "created"), created);
	return ntr_table_add(t, cells, NTR_COUNT(cells));
}

int ntr_sessions_main(struct ntr_cmd *cmd)
{
	static const struct ntr_col cols[] = {{"SESSION", NTR_COL_LEFT}, {"HEAD", NTR_COL_LEFT},
	        {"ORIGIN", NTR_COL_LEFT}, {"STATE", NTR_COL_LEFT}, {"FILES", NTR_COL_RIGHT},
	        {"SIZE", NTR_COL_RIGHT}, {"CREATED", NTR_COL_LEFT}};
	return ntr_rows(
	        cmd, json_pack("{s:s}", "op", "sessions"), "sessions", cols, NTR_COUNT(cols), sessions_add);
}

/* --json: what was removed, by name. */
static void rm_json(const char *name, const json_t *reply)
{
	ntr_autojson json_t *o = json_pack("{s:o}", "name", ntr_arg(name));

	json_object_update_missing(o, (json_t *)(uintptr_t)reply);
	ntr_json_reply(o);
}

static int rm_one(struct ntr_cmd *cmd, const char *name)
{
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};

	if (ntr_request(cmd,
	            json_pack("{s:s,s:o,s:b}", "op", "rm", "name", ntr_arg(name), "discard",
	                    ntr_cmd_opt(cmd, NTR_OPT_DISCARD) != NULL),
	            NULL, 0, NULL, NULL, &reply, &e))
		return ntr_cmd_fail(cmd, &e);
	if (cmd->json)
		rm_json(name, reply);
	else
		ntr_print_aside(reply);
	return 0;
}

/* Goes on after a failure, as rm(1) does. */
int ntr_rm_main(struct ntr_cmd *cmd)
{
	int status = 0;

	for (size_t i = 0; i < cmd->nargs; i++) {
		int r = rm_one(cmd, cmd->args[i]);

		status = r ? r : status;
	}
	return status;
}

int ntr_rename_main(struct ntr_cmd *cmd)
{
	return ntr_simple(cmd,
	        json_pack("{s:s,s:o,s:o}", "op", "rename", "old", ntr_arg(cmd->args[0]), "new",
	                ntr_arg(cmd->args[1])),
	        NULL);
}

static int ps_add(struct libscols_table *t, const json_t *row)
{
	const json_t *cmdline = json_object_get(row, "cmd");
	ntr_autojson json_t *o = json_object();
	ntr_autofree char *text = NULL;
	char pid[NTR_HUMAN], ppid[NTR_HUMAN], start[NTR_HUMAN];
	const char *cells[5];

	json_object_set(o, "argv", (json_t *)(uintptr_t)cmdline);
	text = ntr_human_command(o);
	snprintf(pid, sizeof pid, "%lld", (long long)ntr_json_int(row, "pid", 0));
	snprintf(ppid, sizeof ppid, "%lld", (long long)ntr_json_int(row, "ppid", 0));
	cells[0] = pid;
	cells[1] = ppid;
	cells[2] = ntr_json_str(row, "state", "-");
	cells[3] = ntr_human_time(json_object_get(row, "start_ns"), start);
	cells[4] = text;
	return ntr_table_add(t, cells, NTR_COUNT(cells));
}

int ntr_ps_main(struct ntr_cmd *cmd)
{
	static const struct ntr_col cols[] = {{"PID", NTR_COL_RIGHT}, {"PPID", NTR_COL_RIGHT},
	        {"STATE", NTR_COL_LEFT}, {"STARTED", NTR_COL_LEFT}, {"COMMAND", NTR_COL_TRUNC}};
	return ntr_rows(cmd, json_pack("{s:s,s:o}", "op", "ps", "session", ntr_arg(cmd->session)), "procs",
	        cols, NTR_COUNT(cols), ps_add);
}

static void stop_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	(void)cmd;
	ntr_print_aside(reply);
}

int ntr_stop_main(struct ntr_cmd *cmd)
{
	return ntr_simple(
	        cmd, json_pack("{s:s,s:o}", "op", "stop", "session", ntr_arg(cmd->session)), stop_print);
}
