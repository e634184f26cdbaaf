/* call: what the ops that run something (run, tool) share; in ntrd_ops_run.c, render in ntrd_tool.c. */
#ifndef NTR_CLI_NTRD_CALL_H
#define NTR_CLI_NTRD_CALL_H

#include "ntrd.h"

#include "../exec/controller.h"

/* The members of `run`. 0, or rq->bad with text. */
int ntrd_call_read(struct ntrd_req *rq, struct ntr_call_spec *spec);
/* Signals of the client go to the call until ntrd_watch_remove. -EDEADLK with text: it would wait for itself.
 */
int ntrd_call_watch(struct ntrd_req *rq, const char *session, const char *inside, struct ntr_call *call,
        uint64_t *ret_id);
/* Tells the client that it begins, runs it, sends its output where that was asked for. */
int ntrd_call_in(struct ntrd_req *rq, const char *session, struct ntr_call_spec *spec, struct ntr_call *call,
        struct ntr_call_result *ret);
/* r is what a call came to, after it had ended where res says so: what it printed goes along with the error
 * (rendered, too, where render says so). Gives r. */
int ntrd_call_failed(struct ntrd_req *rq, const struct ntr_call_spec *spec, const struct ntr_call_result *res,
        bool render, int r);
/* Adds to o what an agent reads of it: text, is_error, and puts truncated right. */
int ntrd_call_render(
        struct ntrd_req *rq, const struct ntr_call_spec *spec, const struct ntr_call_result *res, json_t *o);

#endif
