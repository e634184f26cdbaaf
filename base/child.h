/* child: starting programs with a clean slate: no descriptor, no blocked or ignored signal of the caller's;
 * and running those that are over when they have done what they are for (fusermount3, umount). */
#ifndef NTR_BASE_CHILD_H
#define NTR_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { NTR_CHILD_FD = 3 }; /* the one descriptor more that a child may get */

/* Starts path (searched in PATH if it has no slash): stdin and stdout /dev/null, stderr err, pass_fd (or -1)
 * as NTR_CHILD_FD. detach: in a session of its own. 0 with *ret, or negative errno. */
int ntr_child_start(
        const char *path, char *const *argv, char *const *env, int err, int pass_fd, bool detach, pid_t *ret);

/* Runs argv to its end, the last line of its stderr in text[size]. env (NAME=VALUE or NULL) goes into its
 * environment. *ret_status as of waitpid; 0 when another thread reaped it: then its work shows. 0 or negative
 * errno when it could not be run (-ENOENT: there is no such program). */
int ntr_child_run(char *const *argv, int pass_fd, const char *env, char *text, size_t size, int *ret_status);
/* A status as of waitpid: anything but exit(0). */
bool ntr_child_failed(int status);

#endif
