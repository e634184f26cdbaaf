/* live_memory: uppers in memory, for stores whose file system cannot hold one.
 *
 * The supervisor mounts the tmpfs (init_memory.c) and is the only one who has it: what no commit holds is
 * lost with it, by kill -9 of the supervisor and daemon, or a power cut. When only the daemon dies the
 * supervisor keeps it; STORE/upper/ <sid>.<n>/memory then says by which descriptor of it. When only the
 * supervisor dies the daemon still has its own. */
#ifndef NTR_EXEC_LIVE_MEMORY_H
#define NTR_EXEC_LIVE_MEMORY_H

#include "live_upper.h"

#include <jansson.h>

/* Whether uppers of the store have to be in memory: by its file system, or because an overlay refused it
 * once. */
bool ntr_memory_needed(struct ntr_store *s);
void ntr_memory_force(bool on);
/* The size that one may have: NTR_UPPER_TMPFS_SIZE (bytes, or with K, M, G, or N% of the memory), else half
 * of the memory. */
uint64_t ntr_memory_size(void);

/* Takes the answer to a request that made a view with u in memory: fd becomes u's (and is taken over). */
int ntr_memory_took(struct ntr_store *s, struct ntr_upper *u, const json_t *reply, int fd);
/* A descriptor of an upper that a dead daemon left in memory. -ENOENT: it is not of that kind; -ENODATA: it
 * is lost, its supervisor being gone. Any other: that cannot be told now, and it is to be tried again. */
int ntr_memory_rescue(struct ntr_store *s, uint64_t sid, uint64_t n, int *ret_fd);
/* Tells its supervisor to end, when nothing of it is wanted any more. */
void ntr_memory_end(struct ntr_store *s, uint64_t sid, uint64_t n);

#endif
