/* initlink: the daemon's end of the socketpair to one session's supervisor (initproto.h).
 *
 * Several requests may be under way. There is no reader thread: whichever waiter finds nobody reading reads
 * for all (leader and followers), so that the common case of one waiter costs one wake-up, not two. */
#ifndef NTR_EXEC_INITLINK_H
#define NTR_EXEC_INITLINK_H

#include "../base/err.h"
#include "../base/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct ntr_initlink;

/* One request under way; the memory is the caller's until ntr_initlink_finish. */
struct ntr_initmsg;
struct ntr_initreq {
	uint64_t req;
	struct ntr_initmsg *first, **tail; /* replies not taken yet */
	struct ntr_initreq *next;
};

/* Starts the supervisor program at path with descriptor 3 connected. Returns without waiting for it. */
int ntr_initlink_spawn(const char *path, struct ntr_initlink **ret, struct ntr_err *e);
/* Closes the socket (the supervisor then kills its session and exits) and reaps it. NULL is allowed. */
void ntr_initlink_close(struct ntr_initlink *l);
/* Closes the socket only, and leaves the supervisor to itself. */
void ntr_initlink_leave(struct ntr_initlink *l);
pid_t ntr_initlink_pid(const struct ntr_initlink *l);
/* True once the supervisor's end was found closed. poll: looks now. */
bool ntr_initlink_dead(struct ntr_initlink *l, bool poll_now);

/* Sends a request (takes over msg). 0, -EPIPE when the supervisor is gone, -ENOMEM. */
int ntr_initlink_send(
        struct ntr_initlink *l, struct ntr_initreq *r, json_t *msg, const int *fds, size_t nfds);
/* The next reply to r: until deadline (ntr_mono_ns; 0: for ever). 0, -ETIMEDOUT, -EPIPE when the supervisor
 * is gone; -ECONNRESET: gone, and it never read r (told only of the newest request); -ENOMEM: the link is
 * dead for want of memory.
 */
int ntr_initlink_wait(struct ntr_initlink *l, struct ntr_initreq *r, uint64_t deadline, json_t **ret,
        int fds[NTR_WIRE_FDS], size_t *ret_nfds);
void ntr_initlink_finish(struct ntr_initlink *l, struct ntr_initreq *r);

/* One request with one reply. An "error" or "errno" in the reply becomes the return value and e's text. ret
 * and ret_fd may be NULL. */
int ntr_initlink_do(struct ntr_initlink *l, json_t *msg, const int *fds, size_t nfds, json_t **ret,
        int *ret_fd, struct ntr_err *e);
/* A reply's error, if it has one, as return value and text. */
int ntr_initlink_error(const json_t *reply, struct ntr_err *e);

#endif
