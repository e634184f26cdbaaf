/* run: a call. The client's own stdin, stdout and stderr go to the daemon with the request, so that streams
 * are untouched and a terminal stays one; what is left to do here is to forward signals and to wait. */
#include "ntr.h"
#include "ntr_call.h"

#include "../base/buf.h"
#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

enum { LOOK_MS = 3000 }; /* at whether the daemon is stopped */

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

/* Variables that are the client's business, not the call's: ntr's own, and what a shell keeps about itself.
 */
static bool env_private(const char *var)
{
	static const char *const names[] = {"_=", "SHLVL=", "PWD=", "OLDPWD=", "NTR_"};

	for (size_t i = 0; i < NTR_COUNT(names); i++)
		if (!strncmp(var, names[i], strlen(names[i])))
			return true;
	return !strchr(var, '=') || var[0] == '=';
}

static json_t *env_json(void)
{
	ntr_autojson json_t *a = json_array();

	for (char **p = environ; a && p && *p; p++)
		if (!env_private(*p) && json_array_append_new(a, ntr_json_bytes(*p, strlen(*p))))
			return NULL;
	return ntr_steal_ptr(a);
}

/* --env, each. NULL: out of memory, or *ret_bad is one that is no K=V. */
static json_t *set_env_json(const struct ntr_cmd *cmd, const char **ret_bad)
{
	ntr_autojson json_t *a = json_array();

	for (size_t i = 0; a && i < cmd->nopts; i++) {
		const char *v = cmd->opts[i].value;

		if (cmd->opts[i].key != NTR_OPT_ENV)
			continue;
		if (v[0] == '=' || !strchr(v, '=')) {
			*ret_bad = v;
			return NULL;
		}
		if (json_array_append_new(a, ntr_json_bytes(v, strlen(v))))
			return NULL;
	}
	return ntr_steal_ptr(a);
}

int ntr_call_stdin(struct ntr_buf *b)
{
	return ntr_buf_read(b, STDIN_FILENO, NTR_WIRE_MAX / 2);
}

static int add_bytes(json_t *req, const char *key, const void *p, size_t n)
{
	return json_object_set_new(req, key, ntr_json_bytes(p, n)) ? -ENOMEM : 0;
}

/* What is to run: -c SCRIPT, a command, or a script on stdin ("-", or nothing and stdin is no terminal).
 * Returns 0, or the exit status after a complaint. */
static int add_command(struct ntr_cmd *cmd, json_t *req)
{
	const char *script = ntr_cmd_opt(cmd, 'c');
	bool dash = cmd->nargs == 1 && !strcmp(cmd->args[0], "-") && cmd->dashdash == 1;
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	int r;

	if (script && cmd->nargs)
		return ntr_cmd_usage(cmd, "-c SCRIPT and a command exclude each other");
	if (script)
		r = add_bytes(req, "script", script, strlen(script));
	else if (cmd->nargs && !dash)
		r = json_object_set_new(req, "argv", ntr_json_strv(cmd->args)) ? -ENOMEM : 0;
	else if (!dash && isatty(STDIN_FILENO))
		return ntr_cmd_usage(cmd, "a command is missing");
	else {
		r = ntr_call_stdin(&b);
		if (r)
			return ntr_cmd_die(
			        cmd, r, NULL, "cannot read the script from stdin: %s", strerror(-r));
		r = add_bytes(req, "script", b.len ? (void *)b.data : "", b.len);
	}
	return r ? ntr_cmd_die(cmd, r, NULL, "%s", strerror(-r)) : 0;
}

int ntr_call_timeout(struct ntr_cmd *cmd, json_t *req)
{
	const char *t = ntr_cmd_opt(cmd, NTR_OPT_TIMEOUT);
	double s;

	if (!t)
		return 0;
	if (ntr_parse_seconds(t, &s))
		return ntr_cmd_usage(cmd, "--timeout '%s' is no time; give seconds, or 10s, 5m, 1h", t);
	return json_object_set_new(req, "timeout", json_real(s));
}

int ntr_call_environment(struct ntr_cmd *cmd, json_t *req)
{
	const char *bad = NULL, *cwd = ntr_cmd_opt(cmd, NTR_OPT_CWD);
	int r = json_object_set_new(req, "env", env_json());

	if (!r)
		r = json_object_set_new(req, "set_env", set_env_json(cmd, &bad));
	if (bad)
		return ntr_cmd_usage(cmd, "--env '%s' is not NAME=VALUE", bad);
	if (!r && cwd)
		r = add_bytes(req, "cwd", cwd, strlen(cwd));
	return r;
}

int ntr_call_members(struct ntr_cmd *cmd, json_t *req)
{
	int r = ntr_call_timeout(cmd, req);

	if (!r)
		r = ntr_call_environment(cmd, req);
	return r ? r : ntr_call_mounts(cmd, req);
}

/* The request, or NULL with *ret_status: the exit status after a complaint (0: out of memory). */
static json_t *run_request(struct ntr_cmd *cmd, int *ret_status)
{
	ntr_autojson json_t *req = json_pack("{s:s,s:o,s:b,s:b,s:b,s:b}", "op", "run", "session",
	        ntr_arg(cmd->session), "no_commit", ntr_cmd_opt(cmd, NTR_OPT_NO_COMMIT) != NULL, "rm",
	        ntr_cmd_opt(cmd, NTR_OPT_RM) != NULL, "capture", (int)ntr_call_captures(cmd), "render",
	        ntr_cmd_opt(cmd, NTR_OPT_RENDER) != NULL);
	int r;

	*ret_status = 0;
	if (!req)
		return NULL;
	r = ntr_call_members(cmd, req);
	if (!r)
		r = add_command(cmd, req);
	if (r) {
		*ret_status = r < 0 ? 0 : r;
		return NULL;
	}
	return ntr_steal_ptr(req);
}

/* From here on these signals are read from a descriptor: they belong to the call. */
static int signals_open(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < NTR_COUNT(forwarded); i++)
		sigaddset(&set, forwarded[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool ends(int sig)
{
	return sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT;
}

static int forward(struct ntr_conn *c, int sigfd, int *last, struct ntr_err *e)
{
	struct signalfd_siginfo si;
	pid_t pid;

	while (read(sigfd, &si, sizeof si) == (ssize_t)sizeof si) {
		ntr_autojson json_t *req = json_pack("{s:s,s:i}", "op", "signal", "sig", (int)si.ssi_signo);
		int r = ntr_conn_send(c, req, NULL, 0, e);

		if (r)
			return r;
		*last = (int)si.ssi_signo;
		if (ends(*last) && ntr_daemon_state(ntr_conn_fd(c), &pid) == 'T')
			return -EINTR; /* it reads the signal, and that we have gone, when it goes on */
	}
	return 0;
}

/* *last: the last signal that was forwarded. */
static int wait_reply(struct ntr_conn *c, int sigfd, int *last, json_t **ret, struct ntr_err *e)
{
	struct pollfd p[2] = {{.fd = ntr_conn_fd(c), .events = POLLIN}, {.fd = sigfd, .events = POLLIN}};
	bool final = false;
	int r = 0;

	while (!r && !final) {
		int n = poll(p, 2, LOOK_MS);

		if (n < 0 && errno != EINTR)
			return ntr_err_set(e, -errno, "run");
		if (n <= 0) {
			ntr_conn_notice(c);
			continue;
		}
		if (p[0].revents) {
			json_decref(*ret);
			r = ntr_conn_recv(c, ret, &final, e);
		} else if (p[1].revents) {
			r = forward(c, sigfd, last, e);
		}
	}
	return r;
}

/* A command that runs ntr itself finds the same store. */
static int add_store(const struct ntr_conn *c, json_t *req)
{
	ntr_autofree char *v = ntr_sprintf("NTR_STORE=%s", ntr_conn_store(c));

	return v ? json_array_append_new(json_object_get(req, "env"), ntr_json_bytes(v, strlen(v))) : -ENOMEM;
}

int ntr_call_run(struct ntr_cmd *cmd, json_t *req, int *last, json_t **ret, struct ntr_err *e)
{
	static const int stdio[3] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
	ntr_autoclose int sigfd = -1;
	int r = ntr_conn_open(cmd->store, cmd->verb->name, true, &cmd->conn, e);

	if (r)
		return r;
	sigfd = signals_open();
	if (sigfd < 0)
		return ntr_err_set(e, -errno, "%s", cmd->verb->name);
	if (add_store(cmd->conn, req))
		return ntr_err_set(e, -ENOMEM, "%s", cmd->verb->name);
	r = ntr_conn_send(cmd->conn, req, stdio, ntr_call_captures(cmd) ? 1 : 3, e);
	return r ? r : wait_reply(cmd->conn, sigfd, last, ret, e);
}

bool ntr_call_captures(const struct ntr_cmd *cmd)
{
	return cmd->json || ntr_cmd_opt(cmd, NTR_OPT_RENDER);
}

void ntr_call_print_text(const json_t *reply)
{
	const json_t *text = json_object_get(reply, "text");

	if (!text)
		return;
	fwrite(json_string_value(text), 1, json_string_length(text), stdout);
	putchar('\n');
}

static void print_json(const json_t *reply)
{
	static const char *const keys[] = {
	        "stdout", "stderr", "exit_code", "timed_out", "truncated", "duration", "commit", "changes"};
	ntr_autojson json_t *o = json_object();

	for (size_t i = 0; i < NTR_COUNT(keys); i++) {
		json_t *v = json_object_get(reply, keys[i]);

		json_object_set_new(o, keys[i], v ? json_incref(v) : json_null());
	}
	ntr_json_line(o, NULL);
}

/* Also what a call printed whose commit failed then. */
static void print_captured(const struct ntr_cmd *cmd, const json_t *result)
{
	if (result && cmd->json)
		print_json(result);
	else if (result && ntr_cmd_opt(cmd, NTR_OPT_RENDER))
		ntr_call_print_text(result);
}

int ntr_call_status(const struct ntr_cmd *cmd, const json_t *reply)
{
	const char *limit = ntr_cmd_opt(cmd, NTR_OPT_TIMEOUT);

	if (ntr_json_bool(reply, "cwd_gone", false))
		fprintf(stderr,
		        "ntr: %s: the session's directory is gone: the call ran in the workspace root\n",
		        cmd->verb->name);
	if (!ntr_json_bool(reply, "timed_out", false))
		return (int)ntr_json_int(reply, "exit_code", NTR_EXIT_NTR);
	fprintf(stderr,
	        "ntr: %s: timed out: the call ran longer than its limit of %s%s and was ended; give more "
	        "with --timeout\n",
	        cmd->verb->name, limit ? limit : "time",
	        limit && strspn(limit, "0123456789.") == strlen(limit) ? "s" : "");
	return NTR_EXIT_TIMEOUT;
}

/* With --render they are a part of the text. */
static void print_notes(const struct ntr_cmd *cmd, const json_t *notes)
{
	const json_t *t;
	size_t i;

	json_array_foreach (notes, i, t)
		if (!ntr_cmd_opt(cmd, NTR_OPT_RENDER))
			fprintf(stderr, "ntr: %s: %s\n", cmd->verb->name, json_string_value(t));
}

int ntr_run_main(struct ntr_cmd *cmd)
{
	ntr_autojson json_t *req = NULL, *reply = NULL;
	struct ntr_err e = {0};
	int status = 0, last = 0, r;

	req = run_request(cmd, &status);
	if (!req)
		return status ? status : ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	r = ntr_call_run(cmd, req, &last, &reply, &e);
	if (r == -EINTR && last) /* taken out of the queue before it began */
		return 128 + last;
	print_captured(cmd, r ? ntr_conn_result(cmd->conn) : reply);
	print_notes(cmd, json_object_get(reply, "notes"));
	return r ? ntr_cmd_fail(cmd, &e) : ntr_call_status(cmd, reply);
}
