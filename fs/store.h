/* store: one directory with one RocksDB and everything in it; sessions, commits and the one atomic commit.
 *
 *     STORE/db/            RocksDB                STORE/lock     flocked by the owner, holds its pid
 *     STORE/upper/S.N/     live sessions' changes STORE/synced   highest commit known durable (text)
 *     STORE/versions/      the versions mount     STORE/python/  names for calls' PATHs (controller_pypath.c)
 *
 * The layout of every record is docs/store-format.md. A session's row (struct ntr_head) is the only thing
 * that is ever overwritten; commits, nodes and chunks are written once. All calls are thread safe; two
 * threads that commit to one session at a time are the caller's mistake (the controller's session lock
 * prevents it) and get -ESTALE. */
#ifndef NTR_FS_STORE_H
#define NTR_FS_STORE_H

#include "../base/err.h"
#include "chunk.h"
#include "ids.h"
#include "kv.h"
#include "tree.h"

#include <sys/types.h>

enum {
	NTR_STORE_VERSION = 1,
	NTR_NAME_MAX = 200,    /* session names and tags */
	NTR_COMMIT_BYTES = 20, /* a commit's public name: 160 random bits … */
	NTR_COMMIT_HEX = 40,   /* … as hex digits */
	NTR_BOOT_BYTES = 16,
	NTR_COMMIT_PREFIX = 12, /* digits shown to people */
};
#define NTR_OWNER_ID 0xFFFFFFFEu /* stored uid or gid that means "the session's owner" */

struct ntr_store;

struct ntr_store_options {
	bool create;
	bool read_only;
	size_t cache_bytes, node_cache_bytes;
};

/* Opens (and with create makes) the store at path. Takes the lock file; a second owner gets -EBUSY and the
 * holder's pid in the text. -ENOTSUP: a newer format or unknown flags. */
int ntr_store_open(
        const char *path, const struct ntr_store_options *o, struct ntr_store **ret, struct ntr_err *e);
void ntr_store_close(struct ntr_store *s);

/* Commits that were safely on disk before this opening and are not there any more: what to tell about it;
 * NULL: none are missing. untold: true once, for whoever is the first to tell. */
const struct ntr_err *ntr_store_lost(const struct ntr_store *s);
bool ntr_store_lost_untold(struct ntr_store *s);

const char *ntr_store_path(const struct ntr_store *s);
int ntr_store_dirfd(const struct ntr_store *s); /* O_PATH of the store's directory */
/* Gives up the room kept for a full disk. false: there is none (left). */
bool ntr_store_relief(struct ntr_store *s);
/* A number that no other opening of any store in this process has: the key of what is cached per store. */
uint64_t ntr_store_serial(const struct ntr_store *s);
void ntr_store_uuid(const struct ntr_store *s, char hex[33]);
struct ntr_kv *ntr_store_kv(struct ntr_store *s);
struct ntr_tree *ntr_store_tree(struct ntr_store *s);
struct ntr_ids *ntr_store_ids(struct ntr_store *s);
struct ntr_chunks *ntr_store_chunks(struct ntr_store *s);

/* Host ids <-> stored ids. The owner is the process that has the store open: its uid and gid are stored as
 * NTR_OWNER_ID. For an ordinary user every other id shows as the owner (it is kept in the tree until
 * changed). */
uint32_t ntr_store_uid_in(const struct ntr_store *s, uid_t host);
uint32_t ntr_store_gid_in(const struct ntr_store *s, gid_t host);
uid_t ntr_store_uid_out(const struct ntr_store *s, uint32_t stored);
gid_t ntr_store_gid_out(const struct ntr_store *s, uint32_t stored);

enum ntr_durability { NTR_FSYNC = 0, NTR_RELAXED_DURABILITY = 1 };

struct ntr_head { /* record H */
	uint64_t sid;
	uint64_t root;          /* head commit's tree */
	uint64_t commit;        /* head commit's id */
	uint64_t origin;        /* commit it was forked from; 0 */
	uint64_t seq;           /* number of the newest entry of the session's list L */
	uint64_t upper;         /* N of STORE/upper/<sid>.<N> while live; 0: none */
	uint64_t base_root;     /* the root below that upper */
	uint64_t last_upper;    /* highest N ever used */
	uint64_t inodes, bytes; /* counters of the head's tree */
	uint64_t xattrs; /* its inodes that carry extended attributes: 0 lets the view skip asking for any */
	uint64_t created_ns;
	uint64_t upper_ns;            /* when the record named that upper, … */
	uint8_t boot[NTR_BOOT_BYTES]; /* … and in which run of the machine; zeros: unknown */
	uint32_t durability;
	char name[NTR_NAME_MAX + 1];
	char wsroot[4096]; /* where the workspace shows: "/workspace" */
};

#define NTR_STATS_UNKNOWN UINT64_MAX /* in `created`: not counted yet (controller.h, ntr_ctl_count) */
struct ntr_stats {                   /* what a commit changed, by path */
	uint64_t created, modified, deleted, bytes_stored;
};

struct ntr_commit { /* record C */
	uint64_t id, root, parent[2], sid, seq, time_ns;
	int nparents;
	uint64_t inodes, bytes, xattrs;
	struct ntr_stats stats;
	uint8_t name[NTR_COMMIT_BYTES];
	char hex[NTR_COMMIT_HEX + 1];
	char *desc; /* JSON object text, NUL-terminated; freed by ntr_commit_done */
};
void ntr_commit_done(struct ntr_commit *c);

/* Session names: ^[A-Za-z0-9_-][A-Za-z0-9_.-]*$, at most NTR_NAME_MAX. 0 or -EINVAL with text. */
int ntr_session_name_check(const char *name, struct ntr_err *e);
/* The same for a session that somebody makes or renames: those of throw-away sessions are not to be had. */
int ntr_session_name_new(const char *name, struct ntr_err *e);
/* tmp- and 16 hex digits: what `run --rm` forks. It ends with its call, or with the next start of a daemon.
 */
bool ntr_session_is_throwaway(const char *name);

/* Makes a session with an empty tree (a root inode owned by the owner, mode 0755, a fresh name-hash seed) and
 * its init commit {"tool":"init"}. txn != NULL: that transaction's content is the init commit's tree instead
 * (an import). -EEXIST when the name is taken. txn is consumed whatever the result. */
struct ntr_txn;
struct ntr_session_options {
	const char *wsroot; /* NULL: /workspace */
	uint32_t durability;
	const char *desc; /* NULL: {"tool":"init"} */
};
int ntr_session_new(struct ntr_store *s, const char *name, const struct ntr_session_options *o,
        struct ntr_txn *txn, struct ntr_head *ret, struct ntr_err *e);
/* The empty tree that every fresh session begins with, as a transaction to fill (for imports). */
int ntr_session_blank(struct ntr_store *s, struct ntr_txn **ret, struct ntr_err *e);

int ntr_session_get(
        struct ntr_store *s, const char *name, struct ntr_head *ret, struct ntr_err *e); /* -ENOENT */
int ntr_session_by_id(struct ntr_store *s, uint64_t sid, struct ntr_head *ret, struct ntr_err *e);
/* Every session, by name; fn's nonzero return stops. */
int ntr_session_each(struct ntr_store *s, int (*fn)(void *user, const struct ntr_head *h), void *user);
/* Fork: one copied record. The new session's head is commit `at` of the source's store; history goes on from
 * it. Its record is synced by the next sync of anything (at the latest by ntr_session_set_upper, before its
 * first process). */
int ntr_session_fork(struct ntr_store *s, const struct ntr_head *src, const struct ntr_commit *at,
        const char *name, struct ntr_head *ret, struct ntr_err *e);
int ntr_session_rename(struct ntr_store *s, const char *old, const char *new, struct ntr_err *e);
/* Removes the session's records (its commits stay reachable for sessions that were forked from it). */
int ntr_session_remove(struct ntr_store *s, uint64_t sid, struct ntr_err *e);

/* The host directories that the session shows: the text of a JSON array; NULL: none. Forks inherit them. */
int ntr_session_mounts(struct ntr_store *s, uint64_t sid, char **ret);
int ntr_session_set_mounts(struct ntr_store *s, uint64_t sid, const char *text, struct ntr_err *e);

/* Rewrites only the upper / base_root / last_upper fields, synced: before a session's first process starts.
 */
int ntr_session_set_upper(
        struct ntr_store *s, uint64_t sid, uint64_t upper, uint64_t base_root, struct ntr_err *e);

/* Has the machine started anew since the record named its upper? Then upper may hold less than was committed
 * from it. */
bool ntr_head_of_other_boot(const struct ntr_head *h);

/* One commit: finishes txn, writes chunks, index, nodes, C, I, L and H in ONE batch with the session's
 * durability. On success *h is the new head and txn is consumed; on failure nothing changed and txn is
 * consumed too. A txn that turns out to change nothing gives 0 with *ret->id == 0 and writes nothing. desc is
 * a JSON object's text. upper and base_root of h are written as they stand in *h (a fold's new upper can ride
 * along). */
int ntr_store_commit(struct ntr_store *s, struct ntr_head *h, struct ntr_txn *txn, const char *desc,
        const struct ntr_stats *st, struct ntr_commit *ret, struct ntr_err *e);

/* Writes c's stats into its record, which says NTR_STATS_UNKNOWN so far. They can be counted only once the
 * new tree can be read, so they come after the commit, unsynced: losing them costs counting again. */
int ntr_commit_set_stats(struct ntr_store *s, const struct ntr_commit *c, struct ntr_err *e);

/* Moves the head to an older (or any) commit of its history: H and an entry of the session's list that says
 * so, so that the abandoned head stays findable. One write; upper, base_root and last_upper are written as
 * they stand in *h, so that a rollback's fresh upper becomes true in the same instant as its head. */
int ntr_session_move(struct ntr_store *s, struct ntr_head *h, const struct ntr_commit *to, struct ntr_err *e);

/* The session's own list L, oldest first, from entry number `first` (1 is the first): every step its head
 * took. */
enum ntr_step { NTR_STEP_NEW = 1, NTR_STEP_COMMIT, NTR_STEP_MOVE, NTR_STEP_FORK };
struct ntr_list_entry {                      /* record L */
	uint64_t seq, commit, from, time_ns; /* from: the head before; 0: none */
	enum ntr_step kind;
};
int ntr_session_list(struct ntr_store *s, uint64_t sid, uint64_t first,
        int (*fn)(void *user, const struct ntr_list_entry *en), void *user);

/* Commits. by_hex accepts a prefix of 4..40 hex digits: -ENOENT, or -ENOTUNIQ with the candidates in the
 * text. */
int ntr_commit_get(struct ntr_store *s, uint64_t id, struct ntr_commit *ret, struct ntr_err *e);
int ntr_commit_by_hex(struct ntr_store *s, const char *hex, struct ntr_commit *ret, struct ntr_err *e);
/* n steps back along first parents, stopping at (never crossing) the session's init commit: -ERANGE with
 * text. A commit whose description has the member NTR_COMMIT_TIMES (true) is nothing that anybody asked for:
 * it is passed, and does not count. */
#define NTR_COMMIT_TIMES "times"
int ntr_commit_back(struct ntr_store *s, const struct ntr_commit *from, uint64_t steps,
        struct ntr_commit *ret, struct ntr_err *e);
/* Is anc reachable from c along parents? 1, 0 or negative errno. */
int ntr_commit_reaches(struct ntr_store *s, const struct ntr_commit *c, uint64_t anc);
/* History: c and its first-parent ancestors, newest first, at most n (0: all). */
int ntr_commit_log(struct ntr_store *s, uint64_t from, uint64_t n,
        int (*fn)(void *user, const struct ntr_commit *c), void *user);

/* Relaxed durability's background sync: called by the daemon every 50-100 ms; does nothing when nothing is
 * pending. Also records the highest synced commit in STORE/synced. */
int ntr_store_sync(struct ntr_store *s, struct ntr_err *e);

#endif
