/* init: the parts of ntr-init, the supervisor of one live session. Single-threaded: one poll loop in init.c
 * owns everything; the other parts are called from it. The protocol is in initproto.h. */
#ifndef NTR_EXEC_INIT_H
#define NTR_EXEC_INIT_H

#include "../base/err.h"
#include "../base/json.h"
#include "../base/util.h"
#include "../base/wire.h"

#include <stdbool.h>
#include <sys/types.h>

/* ---- a request under way ---- */

struct ntr_initreq {
	json_t *msg;
	uint64_t req;
	int fds[NTR_WIRE_FDS]; /* closed after the handler unless taken with ntr_steal_fd */
	size_t nfds;
};

/* One call. It stays listed after its end while processes of it are alive (ended is true then), so that they
 * can still be told from those of other calls: its pid remains the id of their session. */
struct ntr_initcall {
	struct ntr_initcall *next;
	uint64_t req;
	pid_t pid;
	bool ended, cwd_gone;
	bool alive;                /* the last scan saw a process of it */
	struct ntr_initpycall *py; /* a Python call; pid is 0 until it has started */
	int state_fd;              /* what a script's bash leaves; -1: argv */
	size_t script_len;         /* where in state_fd it begins */
	char **env;                /* as the call began */
	char *script;              /* its beginning, for `ps`; NULL: none */
};

/* Processes of ntr-init's own that are its children: they do not count as the session's. */
struct ntr_inithelper {
	struct ntr_inithelper *next;
	pid_t pid;
	int ctl; /* control socket of a pass-through helper; -1 for others */
};

enum ntr_initjob_kind { NTR_JOB_KILL, NTR_JOB_SWAP, NTR_JOB_STOP };

struct ntr_pidset; /* private to init_kill.c */

/* Killing takes time (grace, processes in the kernel), so it goes on beside the loop. */
struct ntr_initjob {
	struct ntr_initjob *next;
	enum ntr_initjob_kind kind;
	uint64_t req, call; /* call 0: the whole session */
	uint64_t kill_at;   /* monotonic: SIGTERM before, SIGKILL from then on */
	struct ntr_pidset *hit;
	int mount_fd, upper_fd; /* of a swap: what comes next; else -1 */
};

struct ntr_proc {
	pid_t pid, ppid, pgid, sid;
	pid_t tid; /* a thread under which /proc shows its memory: pid, unless the main thread has ended */
	unsigned threads; /* 0: none lives */
	uint64_t call;    /* 0: not known */
	uint64_t start;   /* clock ticks after boot: with the pid it names a process for good */
	char state;       /* of tid, as in its stat */
};

struct ntr_proclist { /* parents before children */
	struct ntr_proc *v;
	size_t n, cap;
};

struct ntr_known; /* private to init_proc.c */

/* A warm interpreter of the session (init_py.h); pid 0: none. Calls that must not change a file have one of
 * their own, which sees the view read-only. */
enum { NTR_PY_PLAIN, NTR_PY_READONLY, NTR_PY_MODES };
struct ntr_initpy {
	pid_t pid;
	int sock, log_fd;
	char *key;  /* interpreter, a blank, modules */
	bool ready; /* it has said so */
	bool eof;   /* it closed its end */
};

/* What the names python and python3 mean in a PATH, as it was found last (init_py_path.c). */
struct ntr_initpy_names {
	char *path, *proof;
	bool lacks; /* there is python3 alone */
};

struct ntr_init {
	int sock, sig_fd;
	int upper_fd; /* upper, for writing mapped files back; it is not in the view */
	int pass_fd;  /* the executable ntr-pass; -1: not installed */
	char *wsroot;
	bool user, started;
	bool userxattr;             /* overlays keep their marks in user.* */
	bool over;                  /* the loop ends */
	bool stopped;               /* because ntrd asked for it */
	int mem_fd;                 /* the tmpfs of uppers in memory; -1: they are in the store */
	unsigned mem_last, mem_now; /* directories in it: the newest, the one that is shown */
	struct ntr_initcall *calls;
	struct ntr_initjob *jobs;
	struct ntr_inithelper *helpers;
	struct ntr_known *known;
	struct ntr_proclist frozen;
	struct ntr_initpy py[NTR_PY_MODES];
	struct ntr_initpy_names py_names;
	bool held;                   /* ntrd keeps the session frozen */
	struct ntr_hostdirs *dirs;   /* private to init_mounts.c; NULL: none */
	struct ntr_renamer *renamer; /* private to init_rename.c; NULL: renames are the kernel's alone */
};

/* ---- init.c ---- */
void ntr_init_dispatch(struct ntr_init *in, struct ntr_initreq *rq);
/* Answers. Failure to send means that ntrd is gone: the loop ends. */
void ntr_init_send(
        struct ntr_init *in, uint64_t req, json_t *msg, const int *fds, size_t nfds); /* takes msg */
void ntr_init_ok(struct ntr_init *in, uint64_t req);
void ntr_init_errno(struct ntr_init *in, uint64_t req, int code);
void ntr_init_error(struct ntr_init *in, uint64_t req, const struct ntr_err *e);

/* ---- init_call.c ---- */
void ntr_init_call(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_signal(struct ntr_init *in, struct ntr_initreq *rq);
/* After SIGCHLD: collects every dead child and reports calls that ended. */
void ntr_init_reap(struct ntr_init *in);
void ntr_initcall_free(struct ntr_initcall *c);
/* Its main process has ended with that wait status: reports it. */
void ntr_initcall_ended(struct ntr_init *in, struct ntr_initcall *c, int status);

/* ---- init_py.c, init_py_start.c: calls of the warm interpreter ---- */
struct pollfd;
void ntr_init_py(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_initpy_call_free(struct ntr_initpycall *p);
bool ntr_initpy_reaped(struct ntr_init *in, pid_t pid, int status);
bool ntr_initpy_is(const struct ntr_init *in, pid_t pid);
/* Python calls that have not started yet are ended as if they had been killed. call 0: all. */
void ntr_initpy_cancel(struct ntr_init *in, uint64_t call);
/* What to poll (NTR_PY_MODES entries at least), and what to do afterwards. */
size_t ntr_initpy_poll(struct ntr_init *in, struct pollfd *p, size_t max);
void ntr_initpy_polled(struct ntr_init *in, const struct pollfd *p, size_t n);
/* Moves on what is due; the time to wait, given that of others. */
int ntr_initpy_wait(struct ntr_init *in, int wait);
/* Before the view changes: ends the interpreters that use it. */
void ntr_initpy_release(struct ntr_init *in);
void ntr_initpy_end(struct ntr_init *in);
/* init_py_path.c. The PATH in env (as ntr_strv_free has it) of a call: a virtual environment's programs come
 * first, but for the request's first path_first directories; its path_last comes last, where PATH has python3
 * and no python. */
int ntr_initpy_path(struct ntr_init *in, const json_t *msg, char **env);
void ntr_initpy_names_done(struct ntr_initpy_names *n);

/* ---- init_wrap.c: bash for a script, and the state it leaves ---- */
/* A descriptor (O_CLOEXEC) that holds the script and will hold the state. */
int ntr_wrap_open(const char *script, size_t len, int *ret_fd);
/* Text for `bash -c TEXT bash` when that descriptor is number fd there. Fresh memory. */
char *ntr_wrap_text(const char *script, int fd);
/* {"cwd","umask","env"} out of it, or NULL when the script left none. began: the environment it was started
 * with. */
json_t *ntr_wrap_state(int fd, size_t script_len, char *const *began);

/* ---- init_proc.c ---- */
/* All processes of the session, zombies included. 0 or negative errno. */
int ntr_init_scan(struct ntr_init *in, struct ntr_proclist *ret);
void ntr_proclist_done(struct ntr_proclist *l);
int ntr_proclist_add(struct ntr_proclist *l, const struct ntr_proc *p);
/* One process by its pid: 0, or -ESRCH. call stays 0. */
int ntr_proc_read(pid_t pid, struct ntr_proc *ret);
/* Makes state that of the thread that is farthest from standing still. With many threads this takes time. */
void ntr_proc_liveliest(struct ntr_proc *p);
/* Does one of its threads fulfil it? task: /proc/PID/task. */
typedef bool (*ntr_thread_test)(void *arg, int task, pid_t tid);
bool ntr_proc_any_thread(pid_t pid, ntr_thread_test is, void *arg);
/* The state of one thread, as in its stat, or '\0'. */
char ntr_thread_state(int task, pid_t tid);
/* Living processes that belong to no running call. */
unsigned ntr_init_background(struct ntr_init *in);
void ntr_init_forget(struct ntr_init *in);

/* ---- init_kill.c ---- */
void ntr_init_kill(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_stop(struct ntr_init *in, struct ntr_initreq *rq);
/* Begins a job. The descriptors (or -1) become the job's. */
void ntr_initjob_start(struct ntr_init *in, enum ntr_initjob_kind kind, const struct ntr_initreq *rq,
        int mount_fd, int upper_fd);
/* Moves all jobs on. Returns milliseconds until it wants to be called again, -1: nothing to do. */
int ntr_init_jobs(struct ntr_init *in);
/* Kills everything and waits for it, for at most wait_ms: the end of the supervisor. */
void ntr_init_kill_all(struct ntr_init *in, unsigned wait_ms);
void ntr_initjob_free(struct ntr_initjob *j);

/* ---- init_freeze.c ---- */
/* Stops every process that is not stopped already; returns how many, once they stand still. */
unsigned ntr_init_freeze(struct ntr_init *in);
void ntr_init_thaw(struct ntr_init *in);
void ntr_init_freeze_op(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_thaw_op(struct ntr_init *in, struct ntr_initreq *rq);

/* ---- init_rename.c: rename(2) of a committed directory where overlayfs cannot ---- */
/* With the first view: from here on every rename of the session and of this process (but ntr_rename_plain) is
 * answered by a helper. 0 also where the kernel or a filter around us does not allow it. */
int ntr_rename_start(struct ntr_init *in);
/* Descriptors of lower, upper and work of the view to come (they stay the caller's), and: it has come. */
void ntr_rename_layers(struct ntr_init *in, const int fds[3]);
void ntr_rename_layers_use(struct ntr_init *in);
int ntr_rename_fd(const struct ntr_init *in); /* -1, or what the loop polls */
void ntr_rename_serve(struct ntr_init *in);
bool ntr_rename_busy(const struct ntr_init *in); /* somebody is moving */
/* Takes a request that has to wait for that. */
bool ntr_rename_park(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_rename_reaped(struct ntr_init *in, pid_t pid);
/* Around a freeze: no rename goes on between the two. */
void ntr_rename_pause(struct ntr_init *in);
void ntr_rename_resume(struct ntr_init *in);
/* Does the process wait for the answer to a rename? *ret_killable: only SIGKILL ends that. */
bool ntr_rename_holds(const struct ntr_init *in, pid_t pid, bool *ret_killable);
void ntr_rename_end(struct ntr_init *in);

/* ---- init_ps.c ---- */
void ntr_init_ps(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_background_op(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_mapped(struct ntr_init *in, struct ntr_initreq *rq);

/* ---- init_view.c ---- */
void ntr_init_start(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_fold(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_swap(struct ntr_init *in, struct ntr_initreq *rq);
/* The second half of a swap, when nothing runs any more. */
int ntr_init_swap_view(struct ntr_init *in, struct ntr_initjob *job, struct ntr_err *e);
void ntr_init_clone(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_tree(struct ntr_init *in, struct ntr_initreq *rq);

/* ---- init_mounts.c: host directories in the session ---- */
/* Of the request that starts the session: opens what it names, where it is still the host's own. */
int ntr_init_mounts_read(struct ntr_init *in, const struct ntr_initreq *rq, struct ntr_err *e);
/* Before the view is attached: a place for each point outside of it. */
int ntr_init_mounts_place(struct ntr_init *in, struct ntr_err *e);
/* After: shows them all. */
int ntr_init_mounts_attach(struct ntr_init *in, struct ntr_err *e);
/* Around an exchange of the view: takes those in it aside, with all who use them, and puts them into the new
 * one. */
int ntr_init_mounts_park(struct ntr_init *in, struct ntr_err *e);
int ntr_init_mounts_unpark(struct ntr_init *in, struct ntr_err *e);
void ntr_init_mounts_done(struct ntr_init *in);

/* ---- init_memory.c: uppers in memory ---- */
/* If the request asks for one: puts directories of the session's tmpfs in the place of its upper and work. */
int ntr_init_memory(struct ntr_init *in, struct ntr_initreq *rq, struct ntr_err *e);
/* After a view was made, or could not be (newest false): deletes all but the one that is shown. */
void ntr_init_memory_keep(struct ntr_init *in, bool newest);
/* Answers a request that made a view: with a descriptor of its upper, if that is in memory. */
void ntr_init_view_ok(struct ntr_init *in, uint64_t req, json_t *msg); /* takes msg */
/* At the end, when ntrd died and there may be work in memory: keeps it until the next ntrd has taken it. */
void ntr_init_linger(struct ntr_init *in);

/* ---- init_helper.c: pass-through helpers and other children of our own ---- */
void ntr_init_serve(struct ntr_init *in, struct ntr_initreq *rq);
bool ntr_inithelper_reaped(struct ntr_init *in, pid_t pid);
bool ntr_inithelper_is(const struct ntr_init *in, pid_t pid);
/* Helpers let go of the view, then take it again: needed around every change of the view. false: one has
 * files open (unless force). Resume in either case. */
bool ntr_inithelper_release(struct ntr_init *in, bool force);
void ntr_inithelper_resume(struct ntr_init *in);
/* What the daemon wants of them: their number, that they let go (ok: all did), or take it again. */
void ntr_init_passes(struct ntr_init *in, struct ntr_initreq *rq);
/* A child of our own that needs nothing. */
void ntr_inithelper_adopt(struct ntr_init *in, pid_t pid);
/* Closes a descriptor where that may take long (the last use of a large overlay): in a child. */
void ntr_inithelper_close(struct ntr_init *in, int fd);
void ntr_inithelper_end(struct ntr_init *in);

/* ---- init_path.c, init_file.c ---- */
/* Resolves path (relative to root, or absolute below wsroot) without leaving root, following symlinks that
 * stay inside: *ret is a path relative to root without symlinks ("." for root itself); the last component may
 * not exist. follow: also a symlink there. -EXDEV: it leads out. */
int ntr_init_resolve(int root, const char *wsroot, const char *path, bool follow, char **ret);
void ntr_init_open(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_list(struct ntr_init *in, struct ntr_initreq *rq);
void ntr_init_pathop(struct ntr_init *in, struct ntr_initreq *rq);
/* Can a call start in the directory, inside of the workspace or not? */
void ntr_init_there(struct ntr_init *in, struct ntr_initreq *rq);

#endif
