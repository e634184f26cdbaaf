/* wire: JSON frames with passed descriptors over a unix stream socket. Client, daemon and supervisor all
 * speak it.
 *
 *     frame := u32 little-endian length, then that many bytes of one JSON object (UTF-8)
 *
 * Descriptors travel as SCM_RIGHTS with the first byte of the frame that names them; the object's member
 * "fds" says how many. A frame above NTR_WIRE_MAX is refused (-EMSGSIZE) before anything is read of it. */
#ifndef NTR_BASE_WIRE_H
#define NTR_BASE_WIRE_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

enum { NTR_WIRE_MAX = 64 << 20, NTR_WIRE_FDS = 16 };

/* Sends one object (its reference stays the caller's) with nfds descriptors (they stay open here). Blocks
 * until all of it is sent; never raises SIGPIPE. Adds the member "fds" itself when nfds > 0. 0 or negative
 * errno. */
int ntr_wire_send(int sock, json_t *msg, const int *fds, size_t nfds);

/* As ntr_wire_send, but takes over the caller's reference of msg (also on failure). NULL msg is -ENOMEM. */
int ntr_wire_send_new(int sock, json_t *msg, const int *fds, size_t nfds);

/* Receives one frame. *ret_msg: a new reference to an object. fds[NTR_WIRE_FDS] gets the descriptors
 * (O_CLOEXEC), *ret_nfds their count. 0; -ENODATA: the peer closed between frames; -EPROTO: no JSON object, a
 * descriptor missing, or closed inside a frame; -EMSGSIZE; other negative errno. On failure no descriptor is
 * left open. */
int ntr_wire_recv(int sock, json_t **ret_msg, int fds[NTR_WIRE_FDS], size_t *ret_nfds);

void ntr_wire_close_fds(int *fds, size_t nfds);

/* Peer's credentials of a unix socket. 0 or negative errno. */
int ntr_wire_peer(int sock, pid_t *ret_pid, uid_t *ret_uid);

#endif
