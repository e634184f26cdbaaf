/* Requests that wait for a session in somebody else's hands. */
#ifndef NTR_CLI_NTRD_WAIT_H
#define NTR_CLI_NTRD_WAIT_H

#include "ntrd.h"

/* Runs the request's handler. While it waits in line for a session, a `signal` of its client that would end a
 * call, or the client's going away, take it out: it ends with EINTR and has changed nothing. */
int ntrd_run_handler(struct ntrd_req *rq);

#endif
