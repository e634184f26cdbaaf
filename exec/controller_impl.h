/* controller_impl: what the controller's files share: the table of sessions in use, their locks, the call in
 * hand. */
#ifndef NTR_EXEC_CONTROLLER_IMPL_H
#define NTR_EXEC_CONTROLLER_IMPL_H

#include "../base/hash.h"
#include "../base/hist.h"
#include "../base/json.h"
#include "../base/util.h"
#include "../fs/inode.h"
#include "../fs/versions.h"
#include "controller.h"
#include "live.h"

#include <errno.h>
#include <pthread.h>
#include <sys/queue.h>

struct ntr_waiter {
	TAILQ_ENTRY(ntr_waiter) link;
	pthread_cond_t cond;
	bool cancelled, unless_call;
};

/* A session that something has been done with since the daemon started. Entries stay until the controller
 * closes: they are small, and a lock that can vanish is a bug waiting. */
struct ntr_sess {
	uint64_t sid;
	struct ntr_ctl *ctl;
	pthread_mutex_t m; /* guards held, by_call and waiters */
	bool held, by_call;
	const char *hook; /* the session's name while a hook of it runs; under m */
	TAILQ_HEAD(, ntr_waiter) waiters;
	/* Lock order: call_m, then a call's m, then m. call_m guards call, and keeps live's link while it is
	 * used without holding the session (ps). */
	pthread_mutex_t call_m;
	struct ntr_call *call; /* the call that runs, for rollback --force and `running` */
	/* below: only for who holds the session (whether live is set, anybody may ask: ntr_sess_is_live) */
	struct ntr_live *live;
	struct ntr_state *state; /* cwd, umask, environment of the next call; NULL: read from the head */
	struct ntr_bind *binds;
	int mem_fd;     /* an upper in memory whose supervisor is gone, until it is absorbed; -1: none … */
	uint64_t mem_n; /* … and its number */
	unsigned view;  /* ctl's `mounted` when live was made: another one, and its lower is gone */
	bool fold_due;  /* upper is no small one: fold it at rest */
	unsigned fold_refused;   /* tries in a row that came to nothing */
	uint64_t fold_tried;     /* what had been walked (ntr_memo_walked) at the last of them … */
	uint64_t fold_retry_ns;  /* … and when the tick may try again */
	struct ntr_cache *cache; /* what no commit has of the cache; has a lock of its own */
	UT_hash_handle hh;
};

/* What is timed, for `daemon status`. */
enum ntr_ctl_op {
	NTR_OP_RUN,    /* a whole call */
	NTR_OP_AFTER,  /* from the end of its process to the reply, nothing changed */
	NTR_OP_COMMIT, /* the same, with a commit: absorb included */
	NTR_OP_LIVE,   /* making a session live */
	NTR_OP_FORK,
	NTR_OP_ROLLBACK,
	NTR_OP_FOLD,
	NTR_OP_FOLD_OWED,    /* of these, the ones that did not wait for rest */
	NTR_OP_FOLD_REFUSED, /* tries that found the view in use, or work that no commit has */
	NTR_OP_COUNT
};

/* The store's trees are mounted twice: the view of a tree without any extended attribute lies over the mount
 * that never has to be asked for one. */
enum { NTR_VMOUNT_FULL, NTR_VMOUNT_PLAIN, NTR_VMOUNTS };

struct ntr_ctl {
	struct ntr_store *store;
	struct ntr_ctl_options o;
	char *init_path;
	char *python_dir; /* STORE/python: controller_pypath.c */
	struct ntr_vmount {
		char *path;
		struct ntr_versions *v; /* NULL: not mounted (yet) */
	} mounts[NTR_VMOUNTS];
	unsigned mounted;  /* how often, under m */
	pthread_mutex_t m; /* guards sessions, versions, binds */
	struct ntr_sess *sessions;
	unsigned running;          /* calls under way */
	struct ntr_served *served; /* commits mounted for ordinary users */
	pthread_t sweeper;
	bool sweeper_on, sweep, swept; /* swept: the sweeper has ended */
	_Atomic bool stopping;
	_Atomic bool sweep_end;          /* what is trash yet is left to the next daemon */
	_Atomic uint64_t sweep_patience; /* from then on it waits for no rest */
	_Atomic uint64_t used_ns;        /* when a session was last asked for something */
	bool trim; /* a large commit has passed: give its memory back at the next tick */
	pthread_cond_t sweep_cond;
	uint64_t started_ns;
	struct ntr_hist ops[NTR_OP_COUNT];
};

struct ntr_call {
	pthread_mutex_t m;
	struct ntr_initlink *link; /* set while the supervisor runs it */
	uint64_t req;
	struct ntr_pyrun *py;   /* set while its channel is open */
	struct ntr_sess *queue; /* set while it waits for the session */
	struct ntr_waiter *waiter;
	int pending[32], npending; /* signals that came before it started */
	bool cancelled;
	int cancelled_by; /* the signal */
};

/* What sticks from call to call (design, section 6). env is the difference that scripts made to their
 * callers' environments: name -> "S" value, or "U" (unset). */
struct ntr_state_var {
	char *name, *val; /* val NULL: unset */
	UT_hash_handle hh;
};
struct ntr_state {
	char *cwd; /* absolute */
	unsigned umask;
	struct ntr_state_var *env;
	bool dirty; /* differs from what the head says */
};
int ntr_state_load(const struct ntr_snap *snap, const char *wsroot, struct ntr_state **ret);
void ntr_state_free(struct ntr_state *st);
/* The environment of a call: the caller's, the session's difference over it, set_env over that, NTR_SESSION.
 */
int ntr_state_env(const struct ntr_state *st, char *const *caller, char *const *set_env, const char *session,
        const char *wsroot, char ***ret);
/* Adds a variable, unless there is one of that name. */
int ntr_state_env_default(char ***env, const char *name, const char *val);
/* Directories that a call's PATH has for that call only; NULL: none. */
struct ntr_state_own {
	const char *dir;   /* this one */
	const char *below; /* all that lie in this one */
};
/* Takes in what a script left: {"cwd","umask","env"}, env compared with what the call began with, PATH
 * without what is own. *ret_notes gets a text for each variable that is not kept: execve(2) could not pass
 * it on, so that every later call would fail, one that unsets it, too. */
int ntr_state_learn(struct ntr_state *st, const json_t *left, char *const *began,
        const struct ntr_state_own *own, json_t **ret_notes);
/* Puts a directory before PATH in what ntr_state_env made. */
int ntr_state_path_first(char **env, const char *dir);
/* Writes it into the transaction's key-value items (only what differs). */
int ntr_state_store(const struct ntr_state *st, struct ntr_txn *txn);

/* controller_pypath.c. At the daemon's start: removes what an earlier one made. */
int ntr_pypath_open(struct ntr_ctl *c);
/* A folder in which `python` and `python3` are that interpreter: an absolute path, one from the workspace's
 * root, or a name for PATH, which itself is not in the folder. Makes it where needed. Fresh memory; NULL:
 * there can be none. */
char *ntr_pypath_folder(const struct ntr_ctl *c, const char *wsroot, const char *python);

/* controller_cache.c: what calls have changed in the session's cache and no commit has yet. A change is kept
 * in memory and, while the session is live, in a journal in its upper's directory, so that it shares the
 * upper's fate: committed with it, dropped with it, recovered with it. All but apply, kept and drop may be
 * called from any thread. h is the session's head; values are JSON text (base/value.h); a bad key is -EINVAL
 * (ntr_cache_key_check has the words). */
struct ntr_cache;
struct ntr_cache *ntr_cache_new(void);
void ntr_cache_free(struct ntr_cache *k);
int ntr_cache_key_check(const char *key, size_t len, struct ntr_err *e);
/* Appends the value to ret. 0, -ENOENT. */
int ntr_cache_get(struct ntr_sess *s, const struct ntr_head *h, const char *key, struct ntr_buf *ret);
/* Setting what a key holds already is no change. -EINVAL: a bad key; -E2BIG: a value above
 * NTR_CACHE_VALUE_MAX. */
int ntr_cache_set(struct ntr_sess *s, const struct ntr_head *h, const char *key, const void *val, size_t len);
int ntr_cache_del(struct ntr_sess *s, const struct ntr_head *h, const char *key); /* 0, -ENOENT */
int ntr_cache_keys(struct ntr_sess *s, const struct ntr_head *h, json_t **ret);   /* sorted strings */
bool ntr_cache_dirty(const struct ntr_sess *s);
/* For a commit, by who holds the session: puts the changes into t; afterwards they are kept (those that came
 * meanwhile stay), or, when the commit failed, simply applied again the next time. */
int ntr_cache_apply(struct ntr_sess *s, struct ntr_txn *t);
void ntr_cache_kept(struct ntr_sess *s);
/* Drops all changes (discard, rollback). */
void ntr_cache_drop(struct ntr_sess *s);
/* Puts what the journal beside h's upper holds into t: after a daemon's death. */
int ntr_cache_replay(struct ntr_store *st, const struct ntr_head *h, struct ntr_txn *t);

/* controller.c: sessions, locks */
int ntr_ctl_sess(struct ntr_ctl *c, uint64_t sid, struct ntr_sess **ret);
/* Takes the session (queues in order). call may be NULL. -EINTR when a signal took the call out of the queue.
 */
int ntr_sess_hold(struct ntr_sess *s, struct ntr_call *call);
bool ntr_sess_try(struct ntr_sess *s); /* true: taken at once */
/* For what does not wait for a call but must not miss work because of somebody's short look at the session:
 * waits for every other holder. False: a call runs. */
bool ntr_sess_hold_unless_call(struct ntr_sess *s);
void ntr_sess_release(struct ntr_sess *s);
/* By name: finds, holds, reads the record again. try_only: -EAGAIN when a call runs. */
int ntr_ctl_hold(struct ntr_ctl *c, const char *name, struct ntr_call *call, struct ntr_sess **ret,
        struct ntr_head *h, struct ntr_err *e);
/* Did an absorb fail because a file went behind its walk? Then try again: it clears e, and says no after some
 * tries. r: what the absorb returned; *tries: 0 at first (controller_commit.c). */
bool ntr_sess_went_meanwhile(int r, unsigned *tries, struct ntr_err *e);
/* A session that is named for the first time is made (controller_call.c). */
int ntr_ctl_find_or_make(struct ntr_ctl *c, const char *name, struct ntr_err *e);
/* Makes it live (absorbing what a dead supervisor left first). */
int ntr_sess_live(struct ntr_sess *s, struct ntr_head *h, struct ntr_err *e);
/* Ends a supervisor that died or misbehaves, and commits what its session had written. */
int ntr_sess_recover(struct ntr_sess *s, struct ntr_head *h, struct ntr_err *e);
/* Ends the supervisor and forgets it; the upper stays in the record. */
void ntr_sess_unlive(struct ntr_sess *s);
/* Those that are live, in fresh memory; returns their number. */
size_t ntr_ctl_live_sessions(struct ntr_ctl *c, struct ntr_sess ***ret);
static inline bool ntr_sess_is_live(struct ntr_sess *s)
{
	return __atomic_load_n(&s->live, __ATOMIC_ACQUIRE) != NULL;
}
/* Descriptors have run out: closes a session that nobody uses at the moment. False: there is none. */
bool ntr_ctl_close_idle(struct ntr_sess *not_this);
int ntr_sess_state(struct ntr_sess *s, const struct ntr_head *h, struct ntr_err *e);
void ntr_ctl_live_options(struct ntr_ctl *c, const struct ntr_head *h, struct ntr_live_options *ret);
int ntr_ctl_versions(struct ntr_ctl *c, struct ntr_err *e);

/* controller_sweep.c. Trash has come, or spare uppers went: */
void ntr_ctl_sweep(struct ntr_ctl *c);
/* A request begins or ends: */
void ntr_ctl_used(struct ntr_ctl *c);
void ntr_ctl_sweeper_start(struct ntr_ctl *c);
void ntr_ctl_sweeper_end(struct ntr_ctl *c);

/* controller_files.c */
/* "sub/dir", "/workspace/sub", "/workspace" -> path below the workspace, without leading '/'. */
int ntr_ctl_inner_path(const char *wsroot, const char *path, const char **ret, struct ntr_err *e);
/* The error of "VERB PATH", where it has not been told yet. Returns it. */
int ntr_ctl_path_fail(struct ntr_err *e, int code, const char *verb, const char *path);
/* path as it is now (or, with rev, was): open inside the view, or *ret_fd -1 and *ret_inner in a tree. */
int ntr_ctl_open_now(struct ntr_ctl *c, const char *session, const char *rev, const char *path, int *ret_fd,
        struct ntr_snap *ret, const char **ret_inner, struct ntr_err *e);
/* The same; what comes from the view is from ntr_live_list. */
int ntr_ctl_list_now(struct ntr_ctl *c, const char *session, const char *rev, const char *path, int *ret_fd,
        struct ntr_snap *ret, const char **ret_inner, struct ntr_err *e);

/* Did the tree say so because of a symlink or ".." on the way? Only the kernel follows those. */
static inline bool ntr_ctl_asks_view(int r)
{
	return r == -ELOOP || r == -ENOTDIR || r == -EINVAL;
}
/* For what only the view can tell: makes the session live, unless a call runs, when it is. */
int ntr_ctl_make_live(struct ntr_ctl *c, const char *session, struct ntr_err *e); /* controller_peek.c */

/* controller_hooks.c. Each does nothing, at the cost of a look, where there is no hook. pre_*: 0, or a
 * refusal with text. post_*: what went wrong with a hook is logged, and a warning of the request. */
struct ntr_call_spec;
typedef json_t *ntr_describe_fn(const struct ntr_call_spec *spec, const struct ntr_call_result *res);
int ntr_hooks_pre_run(struct ntr_sess *s, const struct ntr_head *h, const struct ntr_call_spec *spec,
        ntr_describe_fn *describe, struct ntr_err *e);
void ntr_hooks_post_run(struct ntr_sess *s, const struct ntr_head *h, const struct ntr_call_spec *spec,
        ntr_describe_fn *describe, const struct ntr_call_result *res, const struct ntr_err *failed);
int ntr_hooks_pre_commit(struct ntr_sess *s, const struct ntr_head *h, const json_t *desc, struct ntr_err *e);
/* before: the root that the commit was made on. */
void ntr_hooks_post_commit(struct ntr_sess *s, const struct ntr_head *h, const json_t *desc, uint64_t before,
        const struct ntr_commit *done);
void ntr_hooks_post_fork(struct ntr_ctl *c, const struct ntr_head *src, const struct ntr_head *h);
void ntr_hooks_post_rollback(
        struct ntr_sess *s, const struct ntr_head *h, uint64_t from, const struct ntr_rollback_result *res);
/* Whether commits have hooks: then changes are made in the view, where they can stay uncommitted. */
bool ntr_hooks_of_commit(struct ntr_ctl *c, const char *session);
/* The request that this thread serves comes from a hook that runs for this session just now. */
bool ntr_sess_in_hook(struct ntr_sess *s);

/* controller_ops.c: a root that holds the uncommitted work of a live session; h's own when there is none.
 * Nothing refers to it. */
int ntr_sess_work_root(struct ntr_sess *s, const struct ntr_head *h, uint64_t *ret, struct ntr_err *e);

/* controller_mounts.c: whether the path below the workspace is, or lies in, a host directory. */
bool ntr_mounts_hold(struct ntr_ctl *c, const struct ntr_head *h, const char *inner);

/* controller_mount.c: read-write mounts of a held session's view elsewhere. */
struct ntr_bind {
	struct ntr_bind *next;
	char *where;
	int nsfd;   /* the mount namespace it was attached in … */
	int rootfd; /* … and the root that `where` is seen from: setns resets it, and the caller may live in a
	               chroot */
	int mnt_id;          /* of the mount there now */
	int peerfd;          /* the caller's pidfd: it attaches what it was given … */
	uint64_t awaited_ns; /* … until then, or its end; 0: it came */
};
/* An ordinary user's mounts, which helpers of the supervisor serve. Their number; … */
unsigned ntr_sess_passes(struct ntr_sess *s);
/* … they let go of the view, and whoever uses them waits: -EBUSY with text where files are open, unless
 * force; … */
int ntr_sess_passes_release(struct ntr_sess *s, bool force, struct ntr_err *e);
/* … and take it again. */
void ntr_sess_passes_resume(struct ntr_sess *s);
/* Forgets those that were unmounted meanwhile; returns how many are left. */
unsigned ntr_sess_binds(struct ntr_sess *s);
/* Processes that calls have left. They end by themselves and nobody tells, so the supervisor is asked where
 * there were some. The session is held. */
unsigned ntr_sess_background(struct ntr_sess *s);
/* Has the view background processes or mounts, of root or of an ordinary user? */
bool ntr_sess_in_use(struct ntr_sess *s);
/* After a swap: shows the new view at each of them. */
void ntr_sess_rebind(struct ntr_sess *s);
/* Takes them away. lazy false: -EBUSY with text naming the first that is in use, with all of them still
 * there. */
int ntr_sess_unbind(struct ntr_sess *s, bool lazy, struct ntr_err *e);
/* Ends what ntr_ctl_mount_serve serves: all, or (dead_only) what was unmounted. */
void ntr_ctl_served_end(struct ntr_ctl *c, bool dead_only);

/* controller_commit.c: absorb + commit of a held session. desc: the commit's JSON, taken over (an owned
 * reference); ret->id == 0 when nothing changed. always: commit even where the cheap check sees nothing
 * (after a kill). */
int ntr_sess_commit(struct ntr_sess *s, struct ntr_head *h, json_t *desc, struct ntr_commit *ret,
        bool *ret_racy, struct ntr_err *e);
/* Before a fold: own times of directories, which alone are not worth a call's commit, would go with upper. As
 * tool "staged". */
int ntr_sess_keep_times(struct ntr_sess *s, struct ntr_head *h, struct ntr_err *e);
/* Commits unabsorbed work, if there is any, as tool "staged". Works on sessions that are not live too. */
int ntr_sess_stage(struct ntr_sess *s, struct ntr_head *h, struct ntr_commit *ret, struct ntr_err *e);
/* Absorbs upper N of a session that is not live (after a crash or a stop) into a commit of the given tool.
 * held_fd: the upper, when it was in memory and the supervisor is gone, borrowed; else -1. */
int ntr_ctl_absorb_dead(struct ntr_ctl *c, struct ntr_head *h, const char *tool, int held_fd,
        struct ntr_commit *ret, struct ntr_err *e);
/* Kills everything, commits as staged, takes the view down. */
int ntr_sess_close(struct ntr_sess *s, struct ntr_head *h, bool discard, unsigned *ret_killed,
        struct ntr_commit *ret, struct ntr_err *e);

/* controller_fold.c, of a held session. After a commit: notes whether upper is to be folded. */
void ntr_sess_note_size(struct ntr_sess *s);
/* For a new upper. */
void ntr_sess_fold_reset(struct ntr_sess *s);
/* At rest. False: nothing was tried. */
bool ntr_sess_fold_at_rest(struct ntr_sess *s, struct ntr_head *h);
/* Before the session, which is live, is used: folds when walking upper has cost more than a fold by now. h
 * may move on (a commit of directories' times). */
void ntr_sess_fold_owed(struct ntr_sess *s, struct ntr_head *h);

#endif
