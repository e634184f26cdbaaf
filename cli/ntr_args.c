/* args: from argv to a verb and its options, with glibc's argp. Each verb's parser is made of its table
 * entry. */
#include "ntr.h"

#include "../base/buf.h"
#include "../base/util.h"

#include <errno.h>
#include <stdarg.h>

static const struct argp_option common_options[] = {
        {NULL, 0, NULL, 0, "Common options:", 10},
        {"session", 's', "SESSION", 0, "the session; else $NTR_SESSION, else \"default\"", 10},
        {"store", NTR_OPT_STORE, "DIR", 0, "the store; else $NTR_STORE, else $XDG_DATA_HOME/ntr", 10},
        {"json", NTR_OPT_JSON, NULL, 0, "print JSON, one object a line", 10},
        {"help", '?', NULL, 0, "print this help", 10},
        {"version", 'V', NULL, 0, "print the version", 10},
        {0},
};

static void help_print(const struct argp *argp, const char *name)
{
	setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
	argp_help(argp, stdout, ARGP_HELP_STD_HELP, (char *)(uintptr_t)name);
}

/* --help of a verb, or of the program (no verb yet). */
static void help_exit(const struct ntr_cmd *cmd, const struct argp *argp)
{
	ntr_autofree char *name = cmd->verb ? ntr_sprintf("ntr %s", cmd->verb->name) : strdup("ntr");

	help_print(argp, name ? name : "ntr");
	exit(ntr_out_flush(cmd, 0));
}

static int add_arg(struct ntr_cmd *cmd, char *arg, bool quoted)
{
	if (!quoted)
		cmd->dashdash = cmd->nargs + 1;
	cmd->args[cmd->nargs++] = arg;
	return 0;
}

static int parse_common(int key, char *arg, struct argp_state *state)
{
	struct ntr_cmd *cmd = state->input;

	switch (key) {
	case '?':
		help_exit(cmd, state->root_argp);
		return 0;
	case 'V':
		puts("ntr " NTR_VERSION);
		exit(ntr_out_flush(cmd, 0));
	case 's':
		cmd->session = arg;
		cmd->session_given = true;
		return 0;
	case NTR_OPT_STORE:
		cmd->store = arg;
		return 0;
	case NTR_OPT_JSON:
		cmd->json = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp common_argp = {.options = common_options, .parser = parse_common};

/* "-- …" and, for a verb that takes a command, everything after its first word. */
static int parse_arg(struct ntr_cmd *cmd, char *arg, struct argp_state *state)
{
	bool quoted = state->quoted && state->next > state->quoted;

	add_arg(cmd, arg, quoted);
	if (!cmd->verb->command)
		return 0;
	while (state->next < state->argc)
		add_arg(cmd, state->argv[state->next++], quoted);
	return 0;
}

static int parse_verb(int key, char *arg, struct argp_state *state)
{
	struct ntr_cmd *cmd = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = cmd;
		state->err_stream = NULL; /* no "Try …" of argp's, whose name for the program is argv[0] */
		return 0;
	case ARGP_KEY_ARG:
		return parse_arg(cmd, arg, state);
	case ARGP_KEY_END:
	case ARGP_KEY_SUCCESS:
	case ARGP_KEY_ERROR:
	case ARGP_KEY_NO_ARGS:
	case ARGP_KEY_ARGS:
	case ARGP_KEY_FINI:
		return ARGP_ERR_UNKNOWN;
	default:
		cmd->opts[cmd->nopts].key = key;
		cmd->opts[cmd->nopts++].value = arg ? arg : "";
		return 0;
	}
}

static const char *verb_doc(const struct ntr_verb *v, struct ntr_buf *b)
{
	ntr_buf_str(b, v->summary);
	if (v->details)
		ntr_buf_printf(b, "\n\n%s", v->details);
	ntr_buf_printf(b, "\vExamples:\n%s", v->examples);
	return ntr_buf_cstr(b);
}

/* Parses one verb's arguments. 0, or the exit status after a complaint. */
static int verb_parse(struct ntr_cmd *cmd, int argc, char **argv)
{
	static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
	const struct ntr_verb *v = cmd->verb;
	ntr_auto(ntr_buf_done) struct ntr_buf doc = {0};
	struct argp argp = {
	        .options = v->options, .parser = parse_verb, .args_doc = v->args, .children = children};
	ntr_autofree char *name = ntr_sprintf("ntr: %s", v->name); /* getopt's messages begin with argv[0] */
	int r;

	argp.doc = verb_doc(v, &doc);
	if (!argp.doc || !name)
		return ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	argv[0] = name;
	r = argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, cmd);
	argv[0] = (char *)(uintptr_t)v->name;
	if (r == EINVAL) {
		fprintf(stderr, "ntr: %s: see 'ntr help %s'\n", v->name, v->name);
		return v->usage ? v->usage : NTR_EXIT_USAGE;
	}
	return r ? ntr_cmd_die(cmd, -r, NULL, "%s", strerror(r)) : 0;
}

static int verb_count(struct ntr_cmd *cmd)
{
	if (cmd->nargs < cmd->verb->min)
		return ntr_cmd_usage(cmd, "an argument is missing");
	if (cmd->store && !*cmd->store)
		return ntr_cmd_usage(cmd, "--store: the path is empty");
	if (cmd->nargs > cmd->verb->max)
		return ntr_cmd_usage(cmd, "unexpected argument '%s'", cmd->args[cmd->verb->max]);
	return 0;
}

static void cmd_done(struct ntr_cmd *cmd)
{
	ntr_conn_close(cmd->conn);
	free(cmd->args);
	free(cmd->opts);
}

static int verb_main(struct ntr_cmd *cmd, int argc, char **argv)
{
	int r;

	cmd->args = calloc((size_t)argc + 1, sizeof *cmd->args);
	cmd->opts = calloc((size_t)argc + 1, sizeof *cmd->opts);
	if (!cmd->args || !cmd->opts)
		return ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	r = verb_parse(cmd, argc, argv);
	if (r)
		return r;
	cmd->dashdash = NTR_MIN(cmd->dashdash, cmd->nargs);
	r = verb_count(cmd);
	return r ? r : cmd->verb->run(cmd);
}

void ntr_args_help(const struct ntr_verb *v)
{
	char name[32], opt[] = "--help";
	char *argv[] = {name, opt, NULL};
	struct ntr_cmd cmd = {.verb = v};

	snprintf(name, sizeof name, "%s", v->name);
	verb_parse(&cmd, 2, argv);
}

const char *ntr_cmd_opt(const struct ntr_cmd *cmd, int key)
{
	for (size_t i = cmd->nopts; i > 0; i--)
		if (cmd->opts[i - 1].key == key)
			return cmd->opts[i - 1].value;
	return NULL;
}

int ntr_cmd_usage(const struct ntr_cmd *cmd, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "ntr: %s: ", cmd->verb->name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; see 'ntr help %s'\n", cmd->verb->name);
	return cmd->verb->usage ? cmd->verb->usage : NTR_EXIT_USAGE;
}

int ntr_cmd_fail(const struct ntr_cmd *cmd, const struct ntr_err *e)
{
	fflush(stdout);
	ntr_err_print(e);
	if (cmd->conn && ntr_conn_usage(cmd->conn))
		return cmd->verb->usage ? cmd->verb->usage : NTR_EXIT_USAGE;
	return cmd->verb->failed ? cmd->verb->failed : NTR_EXIT_FAILED;
}

int ntr_cmd_die(const struct ntr_cmd *cmd, int code, const char *todo, const char *fmt, ...)
{
	struct ntr_err e = {0};
	char why[sizeof e.why];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof why, fmt, ap);
	va_end(ap);
	ntr_err_full(&e, code, cmd->verb->name, why, todo);
	return ntr_cmd_fail(cmd, &e);
}

/* The program's own level: options that stand before the verb, the verb, and the list of verbs as help. */

struct top {
	struct ntr_cmd *cmd;
	int verb; /* index in argv; 0: none */
};

static int parse_top(int key, char *arg, struct argp_state *state)
{
	struct top *top = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = top->cmd;
		state->err_stream = NULL;
		return 0;
	case ARGP_KEY_ARG:
		top->verb = state->next - 1;
		state->next = state->argc;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const char *const group_names[NTR_GROUPS] = {
        [NTR_GROUP_SESSIONS] = "Sessions:",
        [NTR_GROUP_CALLS] = "Calls:",
        [NTR_GROUP_HISTORY] = "History:",
        [NTR_GROUP_FILES] = "Files:",
        [NTR_GROUP_ADMIN] = "Upkeep:",
};

static const char *top_doc(struct ntr_buf *b)
{
	ntr_buf_str(b, "Workspaces with a history: every call that changes something is one commit.\v");
	for (int g = 0; g < NTR_GROUPS; g++) {
		ntr_buf_printf(b, "%s%s\n", g ? "\n" : "", group_names[g]);
		for (const struct ntr_verb *v = ntr_verbs; v->name; v++)
			if ((int)v->group == g)
				ntr_buf_printf(b, "  %-10s %s\n", v->name, v->summary);
	}
	ntr_buf_str(b, "\n'ntr help COMMAND' tells more about one of them.");
	return ntr_buf_cstr(b);
}

static int top_parse(struct top *top, int argc, char **argv)
{
	static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
	ntr_auto(ntr_buf_done) struct ntr_buf doc = {0};
	struct argp argp = {.parser = parse_top, .args_doc = "COMMAND [ARGUMENT...]", .children = children};
	static char name[] = "ntr";

	argp.doc = top_doc(&doc);
	argp_err_exit_status = NTR_EXIT_USAGE;
	argv[0] = name;
	return argp.doc ? argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, top) : ENOMEM;
}

int ntr_args_main(int argc, char **argv)
{
	const char *env = getenv("NTR_SESSION");
	struct ntr_cmd cmd = {.session = env && *env ? env : "default"};
	struct top top = {.cmd = &cmd};
	int r;

	if (argc < 1) /* execve allows it */
		return NTR_EXIT_USAGE;
	r = top_parse(&top, argc, argv);
	if (r || !top.verb) {
		/* getopt has told what is wrong with an option */
		fprintf(stderr, "ntr: %ssee 'ntr --help'\n",
		        r == EINVAL ? ""
		        : r         ? "out of memory; "
		                    : "a command is missing; ");
		return NTR_EXIT_USAGE;
	}
	cmd.verb = ntr_verb_find(argv[top.verb]);
	if (!cmd.verb) {
		fprintf(stderr, "ntr: %s: no such command; 'ntr --help' lists them\n", argv[top.verb]);
		return NTR_EXIT_USAGE;
	}
	r = verb_main(&cmd, argc - top.verb, argv + top.verb);
	r = ntr_out_flush(&cmd, r);
	cmd_done(&cmd);
	return r;
}
