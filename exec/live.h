/* live: one session that is live: its supervisor, its upper and the memo of it, and the state its calls run
 * in.
 *
 * Everything here is done under the session's lock (controller_impl.h), except ntr_live_signal. */
#ifndef NTR_EXEC_LIVE_H
#define NTR_EXEC_LIVE_H

#include "absorb.h"
#include "initlink.h"
#include "live_upper.h"

struct ntr_live {
	struct ntr_store *store;
	struct ntr_initlink *link;
	struct ntr_upper upper;
	struct ntr_memo *memo;
	uint64_t mntns;
	unsigned background; /* processes alive after the last call, as told by the supervisor */
	bool dirty; /* upper may hold what no commit has: a call with no_commit, a failed commit, background,
	               a bind */
	bool written;     /* changed by the daemon itself since the last commit: nobody has to look for it */
	bool unrecorded;  /* the session's record may name another upper than this (a write failed): put right
	                     by  ntr_live_record before anything else is written in the view */
	uint64_t used_ns; /* ntr_mono_ns of the last use */
	uint64_t walked;  /* entries of former uppers that were looked at (ntr_memo_walked) */
};

struct ntr_live_options {
	const char *init_path; /* ntr-init */
	const char *full_path,
	        *plain_path; /* the versions mounts; plain serves trees without extended attributes */
	const char *session; /* for messages */
};

/* Brings h's session up: a new upper on its head, recorded in the store before the first process can start. h
 * is updated. */
int ntr_live_start(struct ntr_store *s, struct ntr_head *h, const struct ntr_live_options *o,
        struct ntr_live **ret, struct ntr_err *e);
/* Ends every process and the supervisor. The upper stays on disk, still named in the session's record: absorb
 * it (ntr_live_absorb with full) before ntr_live_drop_upper. NULL is allowed. */
void ntr_live_end(struct ntr_live *l);
void ntr_live_free(struct ntr_live *l);
/* Makes the record name l's upper again, if it may not. */
int ntr_live_record(struct ntr_live *l, struct ntr_head *h, struct ntr_err *e);
/* After everything in it is committed (or to be dropped): no upper in the record, directory to trash. */
int ntr_live_drop_upper(struct ntr_store *s, struct ntr_head *h, struct ntr_err *e);

/* Kills all processes of the session (grace_ms 0: SIGKILL at once). *ret count. */
int ntr_live_kill(struct ntr_live *l, uint64_t call, unsigned grace_ms, unsigned *ret, struct ntr_err *e);
/* Stops / continues background processes around an absorb; also writes back shared mappings. Nothing when
 * there are none. */
int ntr_live_writeback(struct ntr_live *l, struct ntr_err *e); /* only the mappings */
int ntr_live_freeze(struct ntr_live *l, struct ntr_err *e);
void ntr_live_thaw(struct ntr_live *l);

/* A fresh upper for the running view, recorded before the view changes; on success h names it.
 * fold: on h's own root, only if nobody uses the view (-EBUSY otherwise, all as before).
 * swap: every process is killed and the old upper goes to trash whatever it holds; `to`, when not NULL,
 * becomes the head in the same write (rollback), else the head stays (discard). When swap fails after that
 * write the supervisor still shows the old upper: the caller must end the session (ntr_live_end) and trash
 * the old upper. */
int ntr_live_fold(
        struct ntr_live *l, struct ntr_head *h, const struct ntr_live_options *o, struct ntr_err *e);
int ntr_live_swap(struct ntr_live *l, struct ntr_head *h, const struct ntr_live_options *o,
        const struct ntr_commit *to, unsigned *ret_killed, struct ntr_err *e);

/* Opens path (relative to the workspace) inside the view. */
int ntr_live_open(
        struct ntr_live *l, const char *path, int flags, unsigned mode, int *ret_fd, struct ntr_err *e);
/* The same for reading and writing, and makes the file where there is none (*ret_made). */
int ntr_live_ensure(struct ntr_live *l, const char *path, unsigned mode, int *ret_fd, bool *ret_made);
/* Lists it there: what ntr_entries_read reads comes from *ret_fd. */
int ntr_live_list(struct ntr_live *l, const char *path, int *ret_fd, struct ntr_err *e);

#endif
