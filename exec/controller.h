/* controller: the life of a call, and every operation on a session that must agree with a live one.
 *
 * One per daemon. It owns the store, the versions mount (made when the first session goes live), and the live
 * sessions (each with its supervisor, upper, memo). A session is single-writer: calls, commits, rollbacks
 * queue on its lock in order; reads use the head at once. All functions may be called from any thread. They
 * return 0 or a negative errno with text in e. Returned strings and arrays are the caller's to free. */
#ifndef NTR_EXEC_CONTROLLER_H
#define NTR_EXEC_CONTROLLER_H

#include "../base/buf.h"
#include "../base/err.h"
#include "../fs/diff.h"
#include "../fs/store.h"

#include <jansson.h>

struct ntr_ctl;
struct ntr_ctl_options {
	int uring;             /* -1: if possible; 0: never */
	const char *init_path; /* ntr-init */
	size_t cache_bytes;    /* of the store's caches together; 0: 128 MiB */
	unsigned fold_entries; /* an upper of so many is folded; 0: 150 */
	unsigned fold_price;   /* of a fold, in entries of upper walked; 0: 8192 */
	unsigned watchdog_s;   /* what a request of the versions mounts may take; 0: 30 */
};

/* Opens the store (making it), cleans up after a dead owner (mounts, processes, sockets' business is the
 * server's), absorbs every upper it finds into a commit {"tool":"recovered"}. */
int ntr_ctl_open(const char *store, const struct ntr_ctl_options *o, struct ntr_ctl **ret, struct ntr_err *e);
/* Stops every live session (their work is committed as "staged"), unmounts, closes. */
void ntr_ctl_close(struct ntr_ctl *c);
struct ntr_store *ntr_ctl_store(struct ntr_ctl *c);
/* Live sessions + mounts + running calls: 0 means the daemon may go when idle. */
unsigned ntr_ctl_busy(struct ntr_ctl *c);
/* Housekeeping, called every 100 ms by the server: sync for relaxed durability, closing of idle sessions,
 * folds. */
void ntr_ctl_tick(struct ntr_ctl *c);

/* SESSION, SESSION@PREFIX, SESSION~N, or (session given) a bare PREFIX, "@PREFIX", "~N", "HEAD". session may
 * be NULL. Resolves to a commit, and the session it was named through (zeroed when by bare prefix of
 * another). */
int ntr_ctl_resolve(struct ntr_ctl *c, const char *session, const char *rev, struct ntr_commit *ret,
        struct ntr_head *ret_head, struct ntr_err *e);

/* {"created","modified","deleted"}. A new reference, or NULL. */
json_t *ntr_stats_json(const struct ntr_stats *st);
/* What a commit changed: from its record, else counted now and noted there. */
int ntr_ctl_count(struct ntr_ctl *c, struct ntr_commit *commit);

/* A Python call (docs/protocol.md, `py`). call: what the interpreter is told, beyond where it runs. The
 * strings and objects are borrowed. */
struct ntr_py_spec {
	json_t *call;
	const char *python; /* NULL: the session's */
	json_t *preload;    /* names of modules, or NULL */
	const char *code;   /* for the history; or … */
	const char *file;   /* … a file of the session */
	char *const *args;  /* NULL: none */
	size_t budget;      /* characters per captured stream; 0: no limit */
	bool cache, readonly;
	json_t *objects; /* [{"name","methods"}] or NULL */
	/* An object's method is called: asks the host, who answers with ntr_call_answer. 0, or negative
	 * errno. */
	int (*object)(void *user, int64_t n, const char *name, const char *method, const json_t *args,
	        const json_t *kwargs);
	void *user;
};

struct ntr_call_spec {
	const struct ntr_py_spec *py; /* NULL, or instead of argv and script */
	char *const *argv;            /* argv, or … */
	const char *script;           /* … a bash script of script_len bytes */
	size_t script_len;
	char *const *env;       /* the caller's environment, NAME=VALUE */
	char *const *set_env;   /* --env: for this call only; may be NULL */
	const char *cwd;        /* for this call only; NULL: the sticky one */
	bool cwd_hint;          /* where that is not there: begin in the root, as with a sticky one */
	const char *path_first; /* a directory before all of PATH, for this call only; NULL: none */
	const char *python;     /* what python and python3 are in PATH; NULL: what it has */
	double timeout_s;       /* 0: none */
	bool no_commit;
	int fds[3]; /* stdin, stdout, stderr; borrowed. capture: only fds[0] is used */
	bool capture;
	size_t budget; /* bytes kept per captured stream; 0: 16 MiB */
	/* capture: what comes is also given here at once, from another thread; stream 0 stdout, 1 stderr.
	 * While it does not return the call's processes wait as at a full pipe, so it must return in bounded
	 * time. */
	void (*output)(void *user, int stream, const void *p, size_t n);
	void *output_user;
	const char *tool;     /* "run" */
	const char *hooks_of; /* NULL, or the session whose hooks are asked: this one is a throw-away fork of
	                         it */
};
struct ntr_call_result {
	int exit_code; /* as a shell: 128+N after a signal */
	int signal;
	bool started, timed_out, truncated, racy, cwd_gone;
	bool ended; /* its main process; set also where the commit then failed */
	double duration_s;
	char commit[NTR_COMMIT_HEX + 1]; /* "" when nothing changed or no_commit */
	struct ntr_stats changes;
	struct ntr_buf out, err; /* captured */
	unsigned background;
	json_t *notes; /* of a script: texts about what of it does not stick, or NULL */
	json_t *py;    /* of a Python call: error, echo, namespace, ui, notes, hints, mechanisms */
};
void ntr_call_result_done(struct ntr_call_result *r);

/* A call under way, for signals. */
struct ntr_call;
struct ntr_call *ntr_call_new(void);
void ntr_call_free(struct ntr_call *call);
/* From another thread: forwards a signal to the call (before it has started: remembered; while it queues:
 * SIGINT, SIGTERM, SIGHUP take it out of the queue with -EINTR). */
void ntr_call_signal(struct ntr_call *call, int sig);
/* From another thread: the host's answer {"n","value" or "error":{"type","text"}} to a Python call. */
void ntr_call_answer(struct ntr_call *call, const json_t *msg);

/* What a thread that works on requests has done while one of them waits in line for a session: begin is given
 * a call whose ending signals take it out of the line (-EINTR); unless begin fails, end follows, after which
 * nobody may use that call. For the calling thread, until NULL is set; *p is borrowed. */
struct ntr_ctl_patience {
	int (*begin)(void *user, struct ntr_call *call);
	void (*end)(void *user);
	void *user;
};
void ntr_ctl_be_patient(const struct ntr_ctl_patience *p);

/* Runs it, waits, absorbs, commits. The session is made when it does not exist. */
int ntr_ctl_run(struct ntr_ctl *c, const char *session, const struct ntr_call_spec *spec,
        struct ntr_call *call, struct ntr_call_result *ret, struct ntr_err *e);

int ntr_ctl_new(struct ntr_ctl *c, const char *name, const struct ntr_session_options *o,
        struct ntr_head *ret, struct ntr_err *e);
/* Absorbs and commits what is not committed (tool, message in desc); *ret->id == 0 when there was nothing. */
int ntr_ctl_commit(struct ntr_ctl *c, const char *session, const char *tool, const char *message,
        struct ntr_commit *ret, struct ntr_err *e);
/* Drops unabsorbed work; ends background processes. *ret_killed may be NULL. */
int ntr_ctl_discard(struct ntr_ctl *c, const char *session, unsigned *ret_killed, struct ntr_err *e);
/* Unabsorbed work against the head; d is empty when there is none. *ret_head_root for diff text of it:
 * *ret_work_root is a root that holds the work (nothing refers to it; valid until the daemon's end). */
int ntr_ctl_work(struct ntr_ctl *c, const char *session, struct ntr_diff *ret, uint64_t *ret_head_root,
        uint64_t *ret_work_root, struct ntr_err *e);
struct ntr_rollback_result {
	struct ntr_commit to;
	char staged[NTR_COMMIT_HEX + 1]; /* commit that holds the unabsorbed work; "" none */
	unsigned killed;
};
/* Unabsorbed work is committed first (tool staged) unless discard; then processes end, the head moves, the
 * view is swapped. rev NULL: steps back. force: a running call is ended, else waited for. */
int ntr_ctl_rollback(struct ntr_ctl *c, const char *session, const char *rev, uint64_t steps, bool discard,
        bool force, struct ntr_rollback_result *ret, struct ntr_err *e);
int ntr_ctl_fork(
        struct ntr_ctl *c, const char *source_rev, const char *name, struct ntr_head *ret, struct ntr_err *e);
int ntr_ctl_remove(
        struct ntr_ctl *c, const char *name, bool discard, unsigned *ret_killed, struct ntr_err *e);
int ntr_ctl_rename(struct ntr_ctl *c, const char *old, const char *new, struct ntr_err *e);
/* Ends the processes of a session, commits its work as staged, takes its view down. all: session NULL. */
int ntr_ctl_stop(struct ntr_ctl *c, const char *session, unsigned *ret_killed, struct ntr_err *e);
/* Commits unabsorbed work as staged unless a call runs: what export and bundles begin with. */
int ntr_ctl_stage(struct ntr_ctl *c, const char *session, struct ntr_err *e);
int ntr_ctl_ps(struct ntr_ctl *c, const char *session, json_t **ret, struct ntr_err *e);
/* Per session: live?, running call?, background processes, upper entries. */
json_t *ntr_ctl_session_info(struct ntr_ctl *c, const struct ntr_head *h);
/* Daemon-wide numbers for `daemon status`: transport, FUSE operation counts and times, memory, caches. */
json_t *ntr_ctl_status(struct ntr_ctl *c);

/* File access for ls, cat, get, put: on a live session inside the view, else in the tree (a put then is a
 * commit of its own, tool "put"). path: relative to the workspace or absolute below wsroot. */
int ntr_ctl_put(struct ntr_ctl *c, const char *session, const char *path, int fd, uint32_t mode,
        char commit[NTR_COMMIT_HEX + 1], struct ntr_err *e);
/* Writes the file's content to fd. rev may name a commit; NULL: the session as it is now. */
int ntr_ctl_cat(struct ntr_ctl *c, const char *session, const char *rev, const char *path, int fd,
        uint32_t *ret_mode, struct ntr_err *e);
/* [{"name":B,"type":"file|dir|symlink|fifo|socket|chr|blk","mode","size","mtime_ns","ino","target":B}] sorted
 * by name */
int ntr_ctl_ls(struct ntr_ctl *c, const char *session, const char *rev, const char *path, json_t **ret,
        struct ntr_err *e);

/* Files for an agent's tools. path: absolute inside the workspace, or relative to the session's directory.
 * What the agent itself can put right (no such file, two places that fit) is no error: 0, and ret->why is the
 * text for it. The session is made when it does not exist. */
struct ntr_edit;
struct ntr_file_result {
	char *why;  /* NULL: it was done */
	char *path; /* absolute */
	bool created;
	size_t size; /* of the file now */
	unsigned count;
	const char *mode;                /* of an edit: how its place was found (tools.h) */
	char commit[NTR_COMMIT_HEX + 1]; /* "" when nothing changed */
};
void ntr_file_result_done(struct ntr_file_result *r);
/* Makes or replaces a file, with the directories that lead to it; mode and owner of one that is there stay.
 * no_commit: the change stays uncommitted work. */
int ntr_ctl_file_write(struct ntr_ctl *c, const char *session, const char *path, const void *data, size_t n,
        bool no_commit, struct ntr_file_result *ret, struct ntr_err *e);
/* Reads, edits and writes with nobody in between. */
int ntr_ctl_file_edit(struct ntr_ctl *c, const char *session, const char *path, const struct ntr_edit *ed,
        bool no_commit, struct ntr_file_result *ret, struct ntr_err *e);
/* The content as it is now, without waiting for a call, when it is at most max bytes (*ret_size: its size in
 * any case). */
int ntr_ctl_file_read(struct ntr_ctl *c, const char *session, const char *path, size_t max,
        struct ntr_buf *ret_data, uint64_t *ret_size, struct ntr_file_result *ret, struct ntr_err *e);

/* The name that the live session has now in whose view process pid lives; a process keeps the name that was
 * the session's when its call began. -ENOENT: it lives in none. */
int ntr_ctl_session_of(struct ntr_ctl *c, pid_t pid, char ret[NTR_NAME_MAX + 1]);

/* The cache: named values (JSON text, base/value.h) that are committed, rolled back and forked with the
 * files. rev NULL: the session as it is now, with what its running call has changed. From inside a call of
 * that very session (`inside`, and one runs) set and del join the call's commit and do not wait for it, and
 * commit is ""; else they are a commit of their own, tool "cache". set makes the session when it does not
 * exist, but not for who is inside. get appends to ret. -ENOENT: no such key. */
int ntr_ctl_cache_get(struct ntr_ctl *c, const char *session, const char *rev, const char *key,
        struct ntr_buf *ret, struct ntr_err *e);
int ntr_ctl_cache_set(struct ntr_ctl *c, const char *session, const char *key, const void *val, size_t len,
        bool inside, char commit[NTR_COMMIT_HEX + 1], struct ntr_err *e);
int ntr_ctl_cache_del(struct ntr_ctl *c, const char *session, const char *key, bool inside,
        char commit[NTR_COMMIT_HEX + 1], struct ntr_err *e);
int ntr_ctl_cache_keys(
        struct ntr_ctl *c, const char *session, const char *rev, json_t **ret, struct ntr_err *e);

/* Host directories that the session shows (live_mounts.h). set: adds or replaces those of `asked`, and takes
 * off those whose dir is empty; the session is made when it does not exist. -EBUSY: processes of the session
 * use the present ones. make_points: the directories in a tree that is made that bear them. */
int ntr_ctl_set_mounts(struct ntr_ctl *c, const char *session, const json_t *asked, struct ntr_err *e);
json_t *ntr_ctl_mounts(struct ntr_ctl *c, const struct ntr_head *h);
int ntr_mounts_make_points(
        struct ntr_txn *t, const json_t *mounts, const char *wsroot, unsigned *made, struct ntr_err *e);

/* Hooks (hooks.h). inside: the session that the request which this thread serves comes from, NULL: none;
 * borrowed until the next call. warnings: of hooks that failed where they could not stop anything any more,
 * since the last time this thread asked: an array of texts, or NULL. */
void ntr_ctl_inside(const char *session);
json_t *ntr_ctl_warnings(void);

/* Mounts. Root gets a mount descriptor to attach at `where` in the mount namespace of process peer
 * (read-write: the view; with rev: that commit's tree); an ordinary user passes an open fuse descriptor,
 * mounted at `where`, that is served from here on. rev NULL: the session, read-write; it goes live. A
 * read-write mount keeps the session live; a rollback shows in it. */
int ntr_ctl_mount_fd(struct ntr_ctl *c, const char *session, const char *rev, const char *where, pid_t peer,
        int *ret_fd, struct ntr_err *e);
int ntr_ctl_mount_serve(struct ntr_ctl *c, const char *session, const char *rev, const char *where,
        int fuse_fd, struct ntr_err *e);

#endif
