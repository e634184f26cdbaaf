/* live_upper: the directories STORE/upper/<sid>.<N>/ in which live sessions' writes land.
 *
 *     <sid>.<N>/u      upper of the overlay          <sid>.<N>/w     its work directory
 *     <sid>.<N>/init   "pid starttime mntns boot" of the supervisor that mounted it
 *     <sid>.<N>/base   root id (hex) below it        trash.<sid>.<N> done with; deleted in the background
 *     spare.<I>/       an empty pair, ready to be renamed into use
 *
 * A number is mounted once in its life. The step that makes an upper history is a rename to trash.*: what
 * carries that name is never read again, so a half-deleted upper cannot be taken for one that holds work. */
#ifndef NTR_EXEC_LIVE_UPPER_H
#define NTR_EXEC_LIVE_UPPER_H

#include "../fs/store.h"
#include "live_ns.h"

struct ntr_upper {
	uint64_t sid, n, base_root;
	int fd, work_fd; /* u and w, O_RDONLY directories; -1 when closed */
	bool memory;     /* fd is in a tmpfs of the supervisor (live_memory.h) */
};

/* Makes <sid>.<n> over base_root: u gets the root directory's mode, owner, xattrs and times (the merged view
 * shows them). Anything left under that name is moved to trash first. */
int ntr_upper_make(struct ntr_store *s, uint64_t sid, uint64_t n, uint64_t base_root, struct ntr_upper *ret,
        struct ntr_err *e);
/* Opens one that is there (fd only), also one in memory. -ENOENT: there is none; -ENODATA: it was in memory,
 * and is lost. Any other: it may be there, and is to be tried again. */
int ntr_upper_open(struct ntr_store *s, uint64_t sid, uint64_t n, struct ntr_upper *ret);
void ntr_upper_close(struct ntr_upper *u);
/* Records who mounted it, so that the next daemon can end what is left. mntns as of ntr_namespace_of. */
int ntr_upper_note_init(struct ntr_store *s, const struct ntr_upper *u, pid_t pid, uint64_t mntns);
/* Who mounted it. -ENODATA: nobody of this run of the machine. */
struct ntr_init_id {
	pid_t pid;
	uint64_t start, mntns; /* start: of the process, in ticks */
};
int ntr_upper_init_of(struct ntr_store *s, uint64_t sid, uint64_t n, struct ntr_init_id *ret);
/* 1, 0: it is gone, or negative errno: that cannot be told now. */
int ntr_init_alive(const struct ntr_init_id *id);
/* Renames to trash and has it deleted by the background sweeper. Missing is success. */
int ntr_upper_trash(struct ntr_store *s, uint64_t sid, uint64_t n);
/* Deletes all trash now (also what an earlier daemon left), until stop says so: false then, for some is left.
 * For the sweeper thread and for tests. */
bool ntr_upper_sweep(struct ntr_store *s, bool (*stop)(void *user), void *user);
/* Makes directories ready for ntr_upper_make to take (spare.*). For the sweeper thread. */
void ntr_upper_stock(struct ntr_store *s);
/* What an earlier daemon had ready goes: after a power failure it may not be what it was. */
void ntr_upper_unstock(struct ntr_store *s);
/* Every <sid>.<n> directory that is no trash; fn's nonzero return stops. */
int ntr_upper_each(struct ntr_store *s, int (*fn)(void *user, uint64_t sid, uint64_t n), void *user);
/* Ends the supervisor recorded for an upper, and every process in its mount namespace; returns when none is
 * left, or with negative errno when it cannot be told who is: somebody may write to upper then. */
int ntr_upper_end_leftovers(struct ntr_store *s, uint64_t sid, uint64_t n);
#endif
