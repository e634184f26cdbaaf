/* controller_py: the daemon's side of a Python call: its channel, and what becomes of what comes through it.
 *
 * The other end of the channel is held by agent code: whatever arrives is checked before it is used, nothing
 * in it is ever unpickled, and a channel that makes no sense costs that call its result and nothing else. */
#ifndef NTR_EXEC_CONTROLLER_PY_H
#define NTR_EXEC_CONTROLLER_PY_H

#include "controller_impl.h"

struct ntr_pyrun;

/* Before the call: makes call->py; *ret_fd is the end for the interpreter (the caller closes it). h: the
 * session's head, which stays as long as the call runs. */
int ntr_pycall_open(struct ntr_sess *s, const struct ntr_head *h, const struct ntr_py_spec *spec,
        struct ntr_call *call, int *ret_fd);
/* The request to the supervisor, a new reference. */
json_t *ntr_pycall_msg(const struct ntr_py_spec *spec, char *const *env);
/* Once the request is under way as number req: tells the interpreter what to do, and begins to answer it. */
int ntr_pyrun_begin(struct ntr_pyrun *p, const struct ntr_call_spec *spec, char *const *env, uint64_t req);
/* The process has ended, or was never there (r): takes what it had sent, and ends. Puts what sticks into
 * reply, and the result into ret->py. Returns r, or another error. */
int ntr_pycall_close(struct ntr_call *call, char *const *env, int r, json_t *reply,
        struct ntr_call_result *ret, struct ntr_err *e);
/* An answer of the host's to one of its objects' calls. From any thread, does not wait. */
void ntr_pyrun_answer(struct ntr_pyrun *p, const json_t *msg);
/* Adds to a commit's description what ran. */
void ntr_pycall_describe(const struct ntr_py_spec *spec, json_t *desc);

/* controller_py_result.c: completes ret->py (NULL: the interpreter said nothing) with how it ended, and cuts
 * the captured streams. 0 or -ENOMEM. */
int ntr_pyresult_make(const struct ntr_call_spec *spec, struct ntr_call_result *ret);
/* A copy that holds only what a result may hold. NULL: out of memory. */
json_t *ntr_pyresult_check(const json_t *said);
/* What a result leaves for the next call, for ntr_state_learn; began: the call's environment. NULL: nothing.
 */
json_t *ntr_pyresult_state(const json_t *said, char *const *began);

#endif
