/* ntr: the client. What its files share: the parsed command line, the connection to the daemon, output.
 *
 * A verb is data (name, options, help) and one function. Its options are collected by ntr_args.c into struct
 * ntr_cmd, and the function asks for them by key; it returns the exit status of the program. Nothing here
 * outlives one command. */
#ifndef NTR_CLI_NTR_H
#define NTR_CLI_NTR_H

#include "../base/err.h"
#include "../base/json.h"
#include "../base/wire.h"

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define NTR_PROTOCOL 1

/* Keys of options that have no letter. */
enum {
	NTR_OPT_STORE = 256,
	NTR_OPT_JSON,
	NTR_OPT_FROM,
	NTR_OPT_DURABILITY,
	NTR_OPT_ROOT,
	NTR_OPT_RUNG,
	NTR_OPT_TIMEOUT,
	NTR_OPT_NO_COMMIT,
	NTR_OPT_ENV,
	NTR_OPT_CWD,
	NTR_OPT_RM,
	NTR_OPT_STEPS,
	NTR_OPT_DISCARD,
	NTR_OPT_FORCE,
	NTR_OPT_NAME_STATUS,
	NTR_OPT_STAT,
	NTR_OPT_DIR,
	NTR_OPT_TAR,
	NTR_OPT_RENDER,
	NTR_OPT_PYTHON,
	NTR_OPT_PRELOAD,
	NTR_OPT_MEMORY,
	NTR_OPT_ECHO,
	NTR_OPT_INPUT,
	NTR_OPT_READONLY,
	NTR_OPT_TOOLS,
	NTR_OPT_MODULE,
	NTR_OPT_NO_CACHE,
	NTR_OPT_VERSIONS,
	NTR_OPT_MOUNT,
};

enum ntr_group {
	NTR_GROUP_SESSIONS,
	NTR_GROUP_CALLS,
	NTR_GROUP_HISTORY,
	NTR_GROUP_FILES,
	NTR_GROUP_ADMIN,
	NTR_GROUPS
};

struct ntr_cmd;
struct ntr_verb {
	const char *name;
	enum ntr_group group;
	const char *args;                  /* usage line; alternatives separated by '\n' */
	const char *summary;               /* one line, for the list */
	const char *details;               /* further paragraphs of the help; may be NULL */
	const char *examples;              /* indented lines */
	const struct argp_option *options; /* may be NULL */
	size_t min, max;                   /* positional arguments; max SIZE_MAX: any number */
	bool command;      /* the first positional argument ends the options (a command follows) */
	int failed, usage; /* exit status of failures and of bad usage; 0: 1 and 2 */
	int (*run)(struct ntr_cmd *cmd);
};

extern const struct ntr_verb ntr_verbs[]; /* ends with a NULL name */
const struct ntr_verb *ntr_verb_find(const char *name);

struct ntr_conn;
struct ntr_cmd {
	const struct ntr_verb *verb;
	const char *session; /* -s, $NTR_SESSION or "default" */
	bool session_given;  /* -s itself */
	const char *store;   /* --store or NULL */
	bool json;
	char **args; /* positional arguments */
	size_t nargs;
	size_t dashdash; /* index of the first one after "--"; nargs without */
	struct {
		int key;
		const char *value;
	} * opts;
	size_t nopts;
	struct ntr_conn *conn; /* once a request was made */
};

/* args: parses the command line and runs the verb; the exit status. */
int ntr_args_main(int argc, char **argv);
/* Prints the help of a verb as --help does. */
void ntr_args_help(const struct ntr_verb *v);
/* The option's value ("" when it takes none), NULL when it was not given. The last one wins. */
const char *ntr_cmd_opt(const struct ntr_cmd *cmd, int key);
/* "ntr: VERB: TEXT; see 'ntr help VERB'" on stderr; returns the exit status of bad usage. */
int ntr_cmd_usage(const struct ntr_cmd *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the error; returns the exit status of a failure (of bad usage, where the daemon says so). */
int ntr_cmd_fail(const struct ntr_cmd *cmd, const struct ntr_err *e);
/* A failure with a text of the client's own: WHAT is the verb's name. */
int ntr_cmd_die(const struct ntr_cmd *cmd, int code, const char *todo, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

/* Values. Seconds from "90", "1.5", "10s", "5m", "1h" (more than 0). A whole number of at least min. 0 or
 * -EINVAL. */
int ntr_parse_seconds(const char *s, double *ret);
int ntr_parse_count(const char *s, int64_t min, int64_t *ret);
/* "SESSION[@COMMIT]", "SESSION~N" into the session's name (the caller frees) and the rev (all of it; NULL:
 * none). */
int ntr_parse_rev(const char *s, char **ret_session, const char **ret_rev);

/* An argument as docs/protocol.md's bytes. NULL: out of memory. */
json_t *ntr_arg(const char *s);
/* {"op","session","rev"?} of what -s names, and value as the member key unless NULL. NULL: out of memory. */
json_t *ntr_cmd_rev_request(const struct ntr_cmd *cmd, const char *op, const char *key, const char *value);

/* conn: the connection to the store's daemon, started on demand. */

/* An event that precedes the final reply. */
typedef void ntr_event_fn(void *user, const json_t *event);

/* Connects, says hello. start: starts the daemon where none runs; else *ret is NULL then and the result 0. */
int ntr_conn_open(const char *store, const char *what, bool start, struct ntr_conn **ret, struct ntr_err *e);
void ntr_conn_close(struct ntr_conn *c);
int ntr_conn_fd(const struct ntr_conn *c);
/* For who waits on that descriptor himself: tells, once, that the daemon is stopped, if it is. */
void ntr_conn_notice(struct ntr_conn *c);

/* patience.c: the state of a connection's peer as ps has it: 'T' stopped (SIGSTOP), 'Z' killed, but a thread
 * of it is in the kernel yet, '?' not known. */
char ntr_daemon_state(int sock, pid_t *ret_pid);
/* Sets a daemon free that was killed and cannot end. What only a person can do, for that one or a stopped
 * one, the person is told: once (said), with NULL not yet. */
void ntr_daemon_notice(int sock, const char *store, const char *what, bool *said);
/* Waits until there is something to read. -ETIMEDOUT after limit_s (0: never). */
int ntr_daemon_wait(int sock, const char *store, const char *what, unsigned limit_s, bool *said);
/* What a call gave before what it came to failed (its commit): came with the last error. NULL: nothing. */
const json_t *ntr_conn_result(const struct ntr_conn *c);
/* Whether the last error reply was of kind "usage". */
bool ntr_conn_usage(const struct ntr_conn *c);
/* From the hello: process of the daemon, path of the store. */
pid_t ntr_conn_pid(const struct ntr_conn *c);
const char *ntr_conn_store(const struct ntr_conn *c);
int ntr_conn_send(struct ntr_conn *c, json_t *req, const int *fds, size_t nfds, struct ntr_err *e);
/* One frame. *ret_final says whether it is the reply; an error reply becomes e. An event has *ret_final
 * false. */
int ntr_conn_recv(struct ntr_conn *c, json_t **ret, bool *ret_final, struct ntr_err *e);
/* Takes the descriptor that came with the last frame; -1: none. */
int ntr_conn_take_fd(struct ntr_conn *c);

/* A whole request over cmd's connection (opened when there is none). Takes req over, NULL is "out of memory".
 * fn may be NULL. *ret may be NULL. 0 or negative errno with text. */
int ntr_request(struct ntr_cmd *cmd, json_t *req, const int *fds, size_t nfds, ntr_event_fn *fn, void *user,
        json_t **ret, struct ntr_err *e);

/* out: what is printed. */

struct libscols_table;
enum { NTR_COL_LEFT = 0, NTR_COL_RIGHT = 1, NTR_COL_TRUNC = 2 };
struct ntr_col {
	const char *name;
	int flags;
};
/* A table with headings; plain, nothing cut and no colours when stdout is no terminal. NULL: out of memory.
 */
struct libscols_table *ntr_table_new(const struct ntr_col *cols, size_t ncols);
/* Adds a line of ncols cells; a NULL cell is empty. */
int ntr_table_add(struct libscols_table *t, const char *const *cells, size_t ncols);
/* Prints and frees it. A table without lines prints nothing. */
int ntr_table_print(struct libscols_table *t);

/* A listing: sends req (taken over) and prints the rows that come back, as events or as the array reply[key]:
 * one JSON object a line with --json, else a table, a line for each row as add makes it. Returns the exit
 * status. */
typedef int ntr_row_fn(struct libscols_table *t, const json_t *row);
int ntr_rows(struct ntr_cmd *cmd, json_t *req, const char *key, const struct ntr_col *cols, size_t ncols,
        ntr_row_fn *add);

/* A request whose reply is printed as JSON with --json, else handed to text (which may be NULL). Takes req
 * over; returns the exit status. */
typedef void ntr_text_fn(const struct ntr_cmd *cmd, const json_t *reply);
int ntr_simple(struct ntr_cmd *cmd, json_t *req, ntr_text_fn *text);
/* The same for a reply whose array reply[key] may be too long for a frame: it comes in rows and is put
 * together. */
int ntr_streamed(struct ntr_cmd *cmd, json_t *req, const char *key, ntr_text_fn *text);
/* Asks for rows as events. Takes req over and returns it; NULL: out of memory. */
json_t *ntr_req_stream(json_t *req);
/* "unabsorbed work is kept in …", "2 background processes ended": what came along with an operation. */
void ntr_print_aside(const json_t *reply);

/* Human forms, into a buffer of NTR_HUMAN bytes; each returns it. */
enum { NTR_HUMAN = 32 };
const char *ntr_human_time(const json_t *t, char *buf);     /* a row's time, in the local zone */
const char *ntr_human_time_ns(int64_t wall_ns, char *buf);  /* the same for nanoseconds since 1970 */
const char *ntr_human_seconds(double s, char *buf);         /* 350 us, 1.2 s, 3m05s, 2h10m */
const char *ntr_human_bytes(int64_t n, char *buf);          /* 512, 1.5K, 20M */
const char *ntr_human_changes(const json_t *ch, char *buf); /* +1 ~2 -3 */
const char *ntr_human_commit(const char *commit, char buf[NTR_HUMAN]); /* the first 12 digits; "-" for NULL */
/* A command line as it could be typed again; from argv, script or message of a commit row. NULL: out of
 * memory. */
char *ntr_human_command(const json_t *row);
/* Bytes for a terminal: control characters and invalid UTF-8 become '?'. Unchanged when stdout is none. */
char *ntr_human_name(const json_t *bytes);

/* An object as one line on stdout, members in the order they came, without those in skip (NULL-terminated,
 * may be NULL). */
void ntr_json_line(const json_t *o, const char *const *skip);
/* The members of a final reply but ok and fds, as one line. */
void ntr_json_reply(const json_t *reply);
/* Flushes stdout; 0, or the exit status of a failed write (quiet for a closed pipe). */
int ntr_out_flush(const struct ntr_cmd *cmd, int status);

/* Prints progress events to stderr when that is a terminal; ntr_progress_end takes the line away. An
 * ntr_event_fn. */
void ntr_progress(void *user, const json_t *event);
void ntr_progress_end(void);

/* The verbs. */
int ntr_new_main(struct ntr_cmd *cmd);
int ntr_fork_main(struct ntr_cmd *cmd);
int ntr_sessions_main(struct ntr_cmd *cmd);
int ntr_rm_main(struct ntr_cmd *cmd);
int ntr_rename_main(struct ntr_cmd *cmd);
int ntr_run_main(struct ntr_cmd *cmd);
int ntr_py_main(struct ntr_cmd *cmd);
int ntr_ps_main(struct ntr_cmd *cmd);
int ntr_stop_main(struct ntr_cmd *cmd);
int ntr_log_main(struct ntr_cmd *cmd);
int ntr_show_main(struct ntr_cmd *cmd);
int ntr_diff_main(struct ntr_cmd *cmd);
int ntr_status_main(struct ntr_cmd *cmd);
int ntr_commit_main(struct ntr_cmd *cmd);
int ntr_discard_main(struct ntr_cmd *cmd);
int ntr_rollback_main(struct ntr_cmd *cmd);
int ntr_ls_main(struct ntr_cmd *cmd);
int ntr_cat_main(struct ntr_cmd *cmd);
int ntr_put_main(struct ntr_cmd *cmd);
int ntr_get_main(struct ntr_cmd *cmd);
int ntr_export_main(struct ntr_cmd *cmd);
int ntr_tool_main(struct ntr_cmd *cmd);
int ntr_cache_main(struct ntr_cmd *cmd);
int ntr_mount_main(struct ntr_cmd *cmd);
int ntr_umount_main(struct ntr_cmd *cmd);
int ntr_mcp_main(struct ntr_cmd *cmd);
int ntr_daemon_main(struct ntr_cmd *cmd);
int ntr_doctor_main(struct ntr_cmd *cmd);
int ntr_fsck_main(struct ntr_cmd *cmd);
int ntr_version_main(struct ntr_cmd *cmd);
int ntr_help_main(struct ntr_cmd *cmd);

#endif
