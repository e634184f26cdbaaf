/* live_mounts: host directories that a session shows: [{"point":B,"dir":B,"rw":bool}], sorted by point. point
 * is where it shows, absolute and plain (no ".", "..", "//"); dir the directory of the host, absolute and
 * without symlinks. */
#ifndef NTR_EXEC_LIVE_MOUNTS_H
#define NTR_EXEC_LIVE_MOUNTS_H

#include "../fs/store.h"

#include <jansson.h>

enum { NTR_MOUNTS_MAX = 64 };

/* What the session's record says; an empty array: none. */
int ntr_mounts_load(struct ntr_store *s, uint64_t sid, json_t **ret, struct ntr_err *e);
int ntr_mounts_save(struct ntr_store *s, uint64_t sid, const json_t *mounts, struct ntr_err *e);
/* Checks what a client asked for and gives it the form of above; where dir is empty (the mount at that point
 * is to go) it stays so. With members dev and ino dir has to be that very directory as we see it, too.
 * -EINVAL, or why it cannot be, with text. */
int ntr_mounts_check(const json_t *asked, const char *wsroot, json_t **ret, struct ntr_err *e);
/* present with the changes; *ret_changed: whether there are any. */
int ntr_mounts_merge(const json_t *present, const json_t *changes, json_t **ret, bool *ret_changed);
/* point's path below the workspace, or NULL: it is outside. */
const char *ntr_mounts_inner(const char *point, const char *wsroot);

#endif
