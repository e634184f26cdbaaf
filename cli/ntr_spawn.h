/* spawn: starting the store's daemon, and other programs that ntr runs (fusermount3). */
#ifndef NTR_CLI_NTR_SPAWN_H
#define NTR_CLI_NTR_SPAWN_H

#include "../base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/* Starts ntrd for the store and waits until it listens or has failed. what: WHAT of errors. *ret_busy: it
 * failed because another process has the store open: perhaps the daemon that another client has just started.
 */
int ntr_spawn_daemon(const char *store, const char *what, bool *ret_busy, struct ntr_err *e);

/* Path of the ntrd that would be started, in fresh memory. 0, -ENOENT or -ENOMEM. */
int ntr_spawn_find(const char *program, char **ret);

/* Runs argv (searched in PATH) to its end, stdin and stdout /dev/null, the last line of its stderr in
 * text[size]. pass_fd (or -1) stays open in it; env (NAME=VALUE or NULL) is added to its
 * environment. *ret_status as of waitpid. 0 or negative errno when it could not be run. */
int ntr_spawn_wait(char *const *argv, int pass_fd, const char *env, char *text, size_t size, int *ret_status);

#endif
