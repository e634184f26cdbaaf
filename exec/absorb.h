/* absorb: turns what an overlay's upper directory holds into changes of the tree.
 *
 * upper is laid over base (the commit's tree below the overlay); head is the tree as of the last absorb from
 * the same upper. A memo of every entry's (device, inode, birth time, ctime, mtime, size) lets the next
 * absorb look only at what changed: unchanged entries cost one statx. Without a memo (after a crash) whole
 * directories are compared instead; absorbing is idempotent. What upper's markers mean is in docs/design.md,
 * "Absorb". */
#ifndef NTR_EXEC_ABSORB_H
#define NTR_EXEC_ABSORB_H

#include "../fs/snap.h"

struct ntr_memo;

/* userxattr: markers are user.overlay.* (a user's mount), else trusted.overlay.*. upper_fd: the upper
 * directory itself, borrowed as long as the memo lives. */
int ntr_memo_new(int upper_fd, bool userxattr, struct ntr_memo **ret);
void ntr_memo_free(struct ntr_memo *m);
/* Entries and file bytes the upper held at the last walk: the fold's trigger. */
void ntr_memo_size(const struct ntr_memo *m, uint64_t *ret_entries, uint64_t *ret_bytes);
/* Entries that have been looked at since the memo was made, each as often as it was. */
uint64_t ntr_memo_walked(const struct ntr_memo *m);
size_t ntr_memo_bytes(const struct ntr_memo *m); /* memory it takes */

struct ntr_absorb_result {
	bool changed;     /* something worth a commit differs */
	bool only_times;  /* but nothing except directories' own times (ntr_absorb_last) */
	bool racy;        /* some file changed while it was read; its inode carries NTR_INODE_RACY */
	uint64_t entries; /* upper entries looked at */
	uint64_t bytes;   /* content read */
};

/* Step 1, cheap: has anything changed since the last absorb (or, with an empty memo, is there anything at
 * all)? 1 or 0, or negative errno. Does not change the memo. A change that is not worth a commit (a read's
 * atime; only a directory's own times) counts as 0. */
int ntr_absorb_check(struct ntr_memo *m);
/* The rest of it: do own times of directories wait for a commit to ride with? 1, 0, negative errno. */
int ntr_absorb_times_wait(struct ntr_memo *m);

/* Step 2: walks again and writes the changes into txn (whose snap reads as head). base: the tree below the
 * overlay. full: ignore the memo and compare everything (recovery). The memo is updated in a shadow copy:
 * call ntr_absorb_accept after the commit succeeded, or ntr_absorb_reject to try again later from the old
 * state. */
int ntr_absorb_run(struct ntr_memo *m, struct ntr_txn *txn, uint64_t base_root, bool full,
        struct ntr_absorb_result *ret, struct ntr_err *e);
/* The last time before upper goes: directories' own times are worth a commit, too. */
int ntr_absorb_last(struct ntr_memo *m, struct ntr_txn *txn, uint64_t base_root, bool full,
        struct ntr_absorb_result *ret, struct ntr_err *e);
/* The same for an upper that went through a power failure, and may be older than head or hold less than was
 * absorbed from it: takes from it only what is provably newer than head (design, "After a power failure"). h:
 * the session's record. */
struct ntr_head;
int ntr_absorb_newer(struct ntr_memo *m, struct ntr_txn *txn, const struct ntr_head *h,
        struct ntr_absorb_result *ret, struct ntr_err *e);
/* Before the session is stopped for a run into txn: reads content already when there is much to read. done:
 * before txn ends. */
void ntr_absorb_early(struct ntr_memo *m, struct ntr_txn *txn);
void ntr_absorb_early_done(struct ntr_memo *m);
void ntr_absorb_accept(struct ntr_memo *m);
void ntr_absorb_reject(struct ntr_memo *m);

#endif
