/* History: log, show, diff, status, commit, discard, rollback. */
#include "ntr.h"

#include "../base/util.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>

static const char *exit_text(const json_t *row, char *buf)
{
	const json_t *code = json_object_get(row, "exit_code");

	if (!json_is_integer(code))
		return "-";
	snprintf(buf, NTR_HUMAN, "%lld", (long long)json_integer_value(code));
	return buf;
}

static const char *duration_text(const json_t *row, char *buf)
{
	const json_t *d = json_object_get(row, "duration");

	return json_is_number(d) ? ntr_human_seconds(json_number_value(d), buf) : "-";
}

static int log_add(struct libscols_table *t, const json_t *row)
{
	ntr_autofree char *text = ntr_human_command(row);
	char commit[NTR_HUMAN], when[NTR_HUMAN], code[NTR_HUMAN], dur[NTR_HUMAN], changes[NTR_HUMAN];
	const char *cells[7];

	if (!text)
		return -ENOMEM;
	cells[0] = ntr_human_commit(ntr_json_str(row, "commit", NULL), commit);
	cells[1] = ntr_human_time(json_object_get(row, "time"), when);
	cells[2] = ntr_json_str(row, "tool", "-");
	cells[3] = exit_text(row, code);
	cells[4] = duration_text(row, dur);
	cells[5] = ntr_human_changes(json_object_get(row, "changes"), changes);
	cells[6] = text;
	return ntr_table_add(t, cells, NTR_COUNT(cells));
}

int ntr_log_main(struct ntr_cmd *cmd)
{
	static const struct ntr_col cols[] = {{"COMMIT", NTR_COL_LEFT}, {"TIME", NTR_COL_LEFT},
	        {"TOOL", NTR_COL_LEFT}, {"EXIT", NTR_COL_RIGHT}, {"TOOK", NTR_COL_RIGHT},
	        {"CHANGES", NTR_COL_LEFT}, {"COMMAND", NTR_COL_TRUNC}};
	const char *count = ntr_cmd_opt(cmd, 'n');
	json_t *req;
	int64_t n;

	if (count && ntr_parse_count(count, 1, &n))
		return ntr_cmd_usage(cmd, "-n '%s' is no count", count);
	req = json_pack("{s:s,s:o}", "op", "log", strpbrk(cmd->session, "@~") ? "rev" : "session",
	        ntr_arg(cmd->session));
	if (req && count && json_object_set_new(req, "n", json_integer(n))) {
		json_decref(req);
		req = NULL;
	}
	return ntr_rows(cmd, req, "rows", cols, NTR_COUNT(cols), log_add);
}

static const char *kind_text(const char *kind)
{
	if (!strcmp(kind, "A"))
		return "created";
	if (!strcmp(kind, "M"))
		return "modified";
	if (!strcmp(kind, "D"))
		return "deleted";
	return strcmp(kind, "T") ? kind : "type";
}

/* New content alone goes without saying, and so does the mtime that moved with it. */
static void print_what(const json_t *what)
{
	const char *sep = " (", *first = json_string_value(json_array_get(what, 0));
	bool content = first && !strcmp(first, "content"), more = false;
	const json_t *w;
	size_t i;

	json_array_foreach (what, i, w)
		more |= strcmp(json_string_value(w), "content") && strcmp(json_string_value(w), "mtime");
	json_array_foreach (what, i, w) {
		const char *word = json_string_value(w);

		if (content && (!more || !strcmp(word, "mtime")))
			continue;
		printf("%s%s", sep, word);
		sep = ", ";
	}
	fputs(sep[0] == ',' ? ")" : "", stdout);
}

/* "    modified  a/b (mode, owner)" for each; nothing in brackets: its content differs. */
static void print_entries(const json_t *entries)
{
	const json_t *en;
	size_t i;

	json_array_foreach (entries, i, en) {
		ntr_autofree char *path = ntr_human_name(json_object_get(en, "path"));

		printf("    %-9s %s", kind_text(ntr_json_str(en, "kind", "?")), path ? path : "?");
		print_what(json_object_get(en, "what"));
		putchar('\n');
	}
}

static void print_indented(const char *text)
{
	bool begin = true;

	for (; *text; text++) {
		bool odd = (unsigned char)*text < ' ' && *text != '\n' && *text != '\t';

		if (begin)
			fputs("    ", stdout);
		putchar(odd && isatty(STDOUT_FILENO) ? '?' : *text);
		begin = *text == '\n';
	}
	if (!begin)
		putchar('\n');
}

/* A script as it was written, a command line as it could be typed. */
static void print_command(const json_t *row)
{
	ntr_autofree char *text = NULL;
	const json_t *script = json_object_get(row, "script");

	if (!script || ntr_json_get_bytes(script, &text, NULL))
		text = ntr_human_command(row);
	if (!text || !*text)
		return;
	putchar('\n');
	print_indented(text);
}

static void show_print(const struct ntr_cmd *cmd, const json_t *row)
{
	const json_t *parents = json_object_get(row, "parents"), *p;
	char when[NTR_HUMAN], buf[NTR_HUMAN];
	size_t i;

	(void)cmd;
	printf("commit   %s\n", ntr_json_str(row, "commit", "?"));
	json_array_foreach (parents, i, p)
		printf("parent   %s\n", json_is_string(p) ? json_string_value(p) : "?");
	printf("session  %s\ntime     %s\ntool     %s\n", ntr_json_str(row, "session", "-"),
	        ntr_human_time(json_object_get(row, "time"), when), ntr_json_str(row, "tool", "-"));
	if (json_is_integer(json_object_get(row, "exit_code")))
		printf("exit     %s\ntook     %s\n", exit_text(row, when), duration_text(row, buf));
	print_command(row);
	if (json_array_size(json_object_get(row, "entries")))
		putchar('\n');
	print_entries(json_object_get(row, "entries"));
}

int ntr_show_main(struct ntr_cmd *cmd)
{
	return ntr_streamed(cmd,
	        json_pack("{s:s,s:o,s:o}", "op", "show", "session", ntr_arg(cmd->session), "rev",
	                ntr_arg(cmd->args[0])),
	        "entries", show_print);
}

/* Columns of the terminal; 80 elsewhere. */
static int out_width(void)
{
	struct winsize ws;

	return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) && ws.ws_col ? ws.ws_col : 80;
}

static json_t *diff_request(struct ntr_cmd *cmd, const char *format)
{
	ntr_autojson json_t *req = json_pack("{s:s,s:o,s:s,s:i}", "op", "diff", "session",
	        ntr_arg(cmd->session), "format", format, "width", out_width());
	int r = !req;

	if (!r && cmd->dashdash > 0)
		r = json_object_set_new(req, "a", ntr_arg(cmd->args[0]));
	if (!r && cmd->dashdash > 1)
		r = json_object_set_new(req, "b", ntr_arg(cmd->args[1]));
	if (!r && cmd->nargs > cmd->dashdash)
		r = json_object_set_new(req, "paths", ntr_json_strv(cmd->args + cmd->dashdash));
	return r ? NULL : ntr_steal_ptr(req);
}

/* The daemon writes the text to our stdout itself. Exit status as of diff(1). */
int ntr_diff_main(struct ntr_cmd *cmd)
{
	const char *names = ntr_cmd_opt(cmd, NTR_OPT_NAME_STATUS), *stat = ntr_cmd_opt(cmd, NTR_OPT_STAT);
	static const int out = STDOUT_FILENO;
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};
	int r;

	if (!!names + !!stat + cmd->json > 1)
		return ntr_cmd_usage(cmd, "--name-status, --stat and --json exclude each other");
	if (cmd->dashdash > 2)
		return ntr_cmd_usage(cmd, "unexpected argument '%s'; paths stand behind --", cmd->args[2]);
	r = ntr_request(cmd,
	        diff_request(cmd, cmd->json ? "json"
	                          : names   ? "name-status"
	                          : stat    ? "stat"
	                                    : "patch"),
	        &out, 1, NULL, NULL, &reply, &e);
	if (r == -EPIPE) /* "| head": as a program that dies of it */
		return 128 + SIGPIPE;
	if (r)
		return ntr_cmd_fail(cmd, &e);
	return ntr_json_bool(reply, "differs", false);
}

static void status_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	const json_t *changes = json_object_get(reply, "changes"), *head = json_object_get(reply, "head");
	const char *id = json_is_object(head) ? ntr_json_str(head, "commit", NULL) : json_string_value(head);
	long long background = ntr_json_int(reply, "background", 0);
	char commit[NTR_HUMAN];

	printf("session %s at %s, %s", cmd->session, ntr_human_commit(id, commit),
	        ntr_json_bool(reply, "running", false) || ntr_json_int(reply, "running", 0)
	                ? "a call is running"
	        : ntr_json_bool(reply, "live", false) ? "live"
	                                              : "not live");
	if (background)
		printf(", %lld process%s in the background", background, background == 1 ? "" : "es");
	putchar('\n');
	if (json_array_size(changes))
		puts("not committed:");
	print_entries(changes);
	if (ntr_json_bool(reply, "state_changed", false))
		puts("not committed: directory, umask, variables or cache of the session");
}

int ntr_status_main(struct ntr_cmd *cmd)
{
	return ntr_streamed(cmd, json_pack("{s:s,s:o}", "op", "status", "session", ntr_arg(cmd->session)),
	        "changes", status_print);
}

/* The commit of a reply that is a commit row, or has one as member, or null where there was nothing. */
static const char *reply_commit(const json_t *reply)
{
	const json_t *c = json_object_get(reply, "commit");

	return json_is_object(c) ? ntr_json_str(c, "commit", NULL) : json_string_value(c);
}

static void commit_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	const char *id = reply_commit(reply);
	char commit[NTR_HUMAN];

	(void)cmd;
	puts(id ? ntr_human_commit(id, commit) : "nothing to commit");
}

int ntr_commit_main(struct ntr_cmd *cmd)
{
	const char *message = ntr_cmd_opt(cmd, 'm');

	if (!message)
		return ntr_cmd_usage(cmd, "a message is missing (-m TEXT)");
	return ntr_simple(cmd,
	        json_pack("{s:s,s:o,s:o}", "op", "commit", "session", ntr_arg(cmd->session), "message",
	                ntr_json_text(message, strlen(message))),
	        commit_print);
}

static void aside_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	(void)cmd;
	ntr_print_aside(reply);
}

int ntr_discard_main(struct ntr_cmd *cmd)
{
	return ntr_simple(
	        cmd, json_pack("{s:s,s:o}", "op", "discard", "session", ntr_arg(cmd->session)), aside_print);
}

static void rollback_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	const json_t *to = json_object_get(reply, "to");
	ntr_autofree char *text = ntr_human_command(to);
	char commit[NTR_HUMAN];

	printf("session %s at %s", cmd->session, ntr_human_commit(ntr_json_str(to, "commit", NULL), commit));
	if (text && *text)
		printf(" (%.60s)", text);
	putchar('\n');
	ntr_print_aside(reply);
}

int ntr_rollback_main(struct ntr_cmd *cmd)
{
	const char *steps = ntr_cmd_opt(cmd, NTR_OPT_STEPS);
	json_t *req, *where;
	int64_t n = 0;

	if (!steps == !cmd->nargs)
		return ntr_cmd_usage(cmd, "give either --steps N or a commit");
	if (steps && ntr_parse_count(steps, 1, &n))
		return ntr_cmd_usage(cmd, "--steps '%s' is no count", steps);
	where = steps ? json_integer(n) : ntr_arg(cmd->args[0]);
	req = json_pack("{s:s,s:o,s:b,s:b,s:o}", "op", "rollback", "session", ntr_arg(cmd->session),
	        "discard", ntr_cmd_opt(cmd, NTR_OPT_DISCARD) != NULL, "force",
	        ntr_cmd_opt(cmd, NTR_OPT_FORCE) != NULL, steps ? "steps" : "rev", where);
	return ntr_simple(cmd, req, rollback_print);
}
