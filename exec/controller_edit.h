/* controller_edit: what the files behind an agent's file tools share. */
#ifndef NTR_EXEC_CONTROLLER_EDIT_H
#define NTR_EXEC_CONTROLLER_EDIT_H

#include "controller_impl.h"

enum { NTR_FILE_EDIT_MAX = 32 << 20 };

/* Makes why, which is taken over, what the agent is told. 0, or -ENOMEM (it is NULL). */
int ntr_file_tell(struct ntr_file_result *ret, char *why);
/* The same for an error that another request can put right; every other r is returned. */
int ntr_file_explain(struct ntr_file_result *ret, int r, const char *path, const char *wsroot);
/* Where the path leads, seen from the directory cwd; *ret_up: it has ".." in it, so that only the view can
 * tell. -EXDEV: out of the workspace; -EISDIR: to the workspace itself, or by its form to a directory. */
int ntr_file_locate(const char *path, const char *cwd, const char *wsroot, char **ret_abs,
        const char **ret_inner, bool *ret_up);

#endif
