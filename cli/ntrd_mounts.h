/* mounts: the host directories that a request asks for (docs/protocol.md, member `mounts`). */
#ifndef NTR_CLI_NTRD_MOUNTS_H
#define NTR_CLI_NTRD_MOUNTS_H

#include "ntrd.h"

/* The session shows them from now on; it is made when it does not exist. Nothing where none are asked for. */
int ntrd_mounts_set(struct ntrd_req *rq, const char *session);
/* Only looks whether a session of that root could; *ret: what was asked for, NULL: nothing. */
int ntrd_mounts_check(struct ntrd_req *rq, const char *wsroot, json_t **ret);

#endif
