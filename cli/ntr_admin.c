/* Upkeep: daemon status and stop, fsck, version, help. */
#include "ntr.h"

#include "../base/sockpath.h"
#include "../base/util.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>

enum { STOP_TIMEOUT_MS = 120000 };

/* The connection to a running daemon; *ret_status: what to return when there is none. */
static struct ntr_conn *running(struct ntr_cmd *cmd, int *ret_status)
{
	struct ntr_err e = {0};

	*ret_status = 0;
	if (ntr_conn_open(cmd->store, "daemon", false, &cmd->conn, &e))
		*ret_status = ntr_cmd_fail(cmd, &e);
	return cmd->conn;
}

static int daemon_none(const struct ntr_cmd *cmd)
{
	ntr_autofree char *store = NULL;
	struct ntr_err e = {0};

	if (ntr_store_default_path(cmd->store, &store, &e))
		return ntr_cmd_fail(cmd, &e);
	return ntr_cmd_die(cmd, -ESRCH, "it starts with the first command that needs it",
	        "none runs for the store %s", store);
}

static void print_ops(const json_t *ops)
{
	const char *name, *key;
	const json_t *op, *v;

	json_object_foreach ((json_t *)(uintptr_t)ops, name, op) {
		printf("  %-12s", name);
		json_object_foreach ((json_t *)(uintptr_t)op, key, v) {
			if (json_is_integer(v))
				printf(" %s %lld", key, (long long)json_integer_value(v));
			else if (json_is_real(v))
				printf(" %s %.1f", key, json_real_value(v));
		}
		if (json_is_integer(op))
			printf(" %lld", (long long)json_integer_value(op));
		putchar('\n');
	}
}

static void daemon_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	const json_t *sessions = json_object_get(reply, "sessions");
	char up[NTR_HUMAN];

	printf("daemon %lld of %s, up %s\n", (long long)ntr_json_int(reply, "pid", ntr_conn_pid(cmd->conn)),
	        ntr_json_str(reply, "store", ntr_conn_store(cmd->conn)),
	        ntr_human_seconds(ntr_json_real(reply, "uptime", 0), up));
	printf("sessions %lld, transport %s\n",
	        json_is_array(sessions) ? (long long)json_array_size(sessions)
	                                : (long long)json_integer_value(sessions),
	        ntr_json_str(reply, "transport", "-"));
	if (ntr_json_str(reply, "warning", NULL))
		printf("warning: %s\n", ntr_json_str(reply, "warning", NULL));
	if (json_object_size(json_object_get(reply, "ops")))
		puts("operations:");
	print_ops(json_object_get(reply, "ops"));
}

/* The daemon has answered; it is gone when its process is. */
static int await_end(pid_t pid)
{
	ntr_autoclose int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r;

	if (fd < 0) /* gone already, or another pid namespace's */
		return 0;
	do
		r = poll(&p, 1, STOP_TIMEOUT_MS);
	while (r < 0 && errno == EINTR);
	return r == 1 ? 0 : -ETIMEDOUT;
}

static int daemon_stop(struct ntr_cmd *cmd)
{
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};
	int r = ntr_request(cmd, json_pack("{s:s}", "op", "daemon-stop"), NULL, 0, NULL, NULL, &reply, &e);
	pid_t pid = ntr_conn_pid(cmd->conn);

	if (r)
		return ntr_cmd_fail(cmd, &e);
	ntr_conn_close(cmd->conn);
	cmd->conn = NULL;
	r = await_end(pid);
	if (r)
		return ntr_cmd_die(cmd, r, "see ntrd.log in the store",
		        "the daemon (process %d) has not ended yet", (int)pid);
	if (cmd->json)
		ntr_json_reply(reply);
	return 0;
}

int ntr_daemon_main(struct ntr_cmd *cmd)
{
	bool stop = !strcmp(cmd->args[0], "stop");
	int status;

	if (!stop && strcmp(cmd->args[0], "status"))
		return ntr_cmd_usage(cmd, "'%s' is neither status nor stop", cmd->args[0]);
	if (!running(cmd, &status))
		return status ? status : stop ? 0 : daemon_none(cmd);
	return stop ? daemon_stop(cmd)
	            : ntr_simple(cmd, json_pack("{s:s}", "op", "daemon-status"), daemon_print);
}

struct fsck {
	bool json;
	unsigned problems;
};

static void fsck_event(void *user, const json_t *event)
{
	struct fsck *f = user;

	if (strcmp(ntr_json_str(event, "event", ""), "problem")) {
		ntr_progress(NULL, event);
		return;
	}
	ntr_progress_end();
	f->problems++;
	if (f->json)
		ntr_json_line(event, NULL);
	else
		puts(ntr_json_str(event, "text", "?"));
}

static void fsck_print(const json_t *reply, unsigned problems)
{
	const char *key;
	const json_t *v;

	printf("%u problem%s", problems, problems == 1 ? "" : "s");
	json_object_foreach ((json_t *)(uintptr_t)reply, key, v)
		if (json_is_integer(v) && strcmp(key, "problems") && strcmp(key, "fds"))
			printf(", %s %lld", key, (long long)json_integer_value(v));
	putchar('\n');
}

int ntr_fsck_main(struct ntr_cmd *cmd)
{
	struct fsck f = {.json = cmd->json};
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};
	int r = ntr_request(cmd, json_pack("{s:s}", "op", "fsck"), NULL, 0, fsck_event, &f, &reply, &e);

	ntr_progress_end();
	if (r)
		return ntr_cmd_fail(cmd, &e);
	f.problems = NTR_MAX(f.problems, (unsigned)ntr_json_int(reply, "problems", 0));
	if (f.json)
		ntr_json_reply(reply);
	else
		fsck_print(reply, f.problems);
	return f.problems ? NTR_EXIT_FAILED : 0;
}

int ntr_version_main(struct ntr_cmd *cmd)
{
	ntr_autojson json_t *o = json_pack("{s:s,s:i,s:s,s:b,s:s}", "version", NTR_VERSION, "protocol",
	        NTR_PROTOCOL, "libfuse", NTR_FUSE_VERSION, "io_uring", NTR_FUSE_URING, "licence", "MIT");

	if (cmd->json)
		ntr_json_line(o, NULL);
	else
		printf("ntr %s\nprotocol %d\nlibfuse %s (%s)\nlicence MIT\n", NTR_VERSION, NTR_PROTOCOL,
		        NTR_FUSE_VERSION, NTR_FUSE_URING ? "with io_uring" : "without io_uring");
	return 0;
}

int ntr_help_main(struct ntr_cmd *cmd)
{
	const struct ntr_verb *v;

	if (!cmd->nargs) {
		char name[] = "ntr", opt[] = "--help";
		char *argv[] = {name, opt, NULL};

		return ntr_args_main(2, argv);
	}
	v = ntr_verb_find(cmd->args[0]);
	if (!v)
		return ntr_cmd_usage(cmd, "there is no command '%s'", cmd->args[0]);
	ntr_args_help(v);
	return 0;
}
