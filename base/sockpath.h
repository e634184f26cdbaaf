/* sockpath: where a store is, and where the socket of its daemon is. Client and daemon must agree, so both
 * use this.
 *
 *     $XDG_RUNTIME_DIR/ntr/<dev>-<ino>.sock     device and inode of the store's directory, in hex;
 *     /tmp/ntr-<uid>/<dev>-<ino>.sock           where XDG_RUNTIME_DIR is unset, or not a directory of this
 * user
 *
 * The folder is 0700 and must be the user's own. A daemon also leaves the symlink STORE/socket to its socket:
 * a client with another XDG_RUNTIME_DIR (cron, su, a container) than the daemon's finds it there. */
#ifndef NTR_BASE_SOCKPATH_H
#define NTR_BASE_SOCKPATH_H

#include "err.h"

#include <stdbool.h>

/* The store's absolute path: opt (the --store option; may be NULL), else $NTR_STORE, else $XDG_DATA_HOME/ntr,
 * else
 * ~/.local/share/ntr. Need not exist; symlinks are not resolved. *ret is the caller's to free. 0 or negative
 * errno. */
int ntr_store_default_path(const char *opt, char **ret, struct ntr_err *e);

/* Path of the socket for the store; makes its folder. *ret is the caller's to free. 0 or negative errno with
 * text; -ENOENT: the store does not exist. */
int ntr_sock_path(const char *store_path, char **ret, struct ntr_err *e);

/* Connects to the store's daemon. *ret_fd is close-on-exec and blocking. -ENOENT (no store, or no socket) or
 * -ECONNREFUSED (a dead daemon's socket): no daemon runs, start one. -EPERM: the folder or the listening
 * process is another user's. Paths may be longer than sockaddr_un holds. */
int ntr_sock_connect(const char *store_path, int *ret_fd);

/* Adds WHY and WHAT TO DO of the connect error r to e, whose WHAT is set: it looks again which folder on the
 * way refused. Returns r. */
int ntr_sock_explain(const char *store_path, int r, struct ntr_err *e);

/* Listens at the store's socket, 0600, close-on-exec, blocking, and leaves STORE/socket. Replaces what is
 * there: the caller holds the store's lock, so that it can only be a dead daemon's. */
int ntr_sock_listen(const char *store_path, int *ret_fd, struct ntr_err *e);

/* Takes the socket's name away (it goes on listening), or brings it back: a daemon that wants to end looks
 * whether anybody came meanwhile. Only for the holder of the store's lock. 0 or negative errno. */
int ntr_sock_hide(const char *store_path, bool hide);

/* Removes socket (hidden or not) and symlink. Only for the holder of the store's lock. */
void ntr_sock_unlink(const char *store_path);

#endif
