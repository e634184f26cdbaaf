/* spawn: starting the store's daemon. */
#ifndef NTR_CLI_NTR_SPAWN_H
#define NTR_CLI_NTR_SPAWN_H

#include "../base/err.h"

#include <stdbool.h>

/* Starts ntrd for the store and waits until it listens or has failed. what: WHAT of errors. *ret_busy: it
 * failed because another process has the store open: perhaps the daemon that another client has just started.
 */
int ntr_spawn_daemon(const char *store, const char *what, bool *ret_busy, struct ntr_err *e);

/* Path of the ntrd that would be started, in fresh memory. 0, -ENOENT or -ENOMEM. */
int ntr_spawn_find(const char *program, char **ret);

#endif
