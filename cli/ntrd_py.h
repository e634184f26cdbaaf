/* py: reading a request for a Python call, and making it. */
#ifndef NTR_CLI_NTRD_PY_H
#define NTR_CLI_NTRD_PY_H

#include "ntrd.h"

#include "../exec/controller.h"

/* A call as a request asked for it; points to itself and to the request. */
struct ntrd_py {
	const char *session, *inside;
	struct ntr_call_spec spec;
	struct ntr_py_spec py;
};

enum { NTRD_PY_BUDGET = 32000, NTRD_PY_TIMEOUT_S = 30 };

/* The members of `py` (docs/protocol.md). 0, or rq->bad with text; also what this build cannot give. */
int ntrd_py_read(struct ntrd_req *rq, struct ntrd_py *ret);
/* Makes the call: signals, answers of the host's objects and output events are taken care of. *ret is the
 * caller's to end. */
int ntrd_py_call(struct ntrd_req *rq, struct ntrd_py *p, struct ntr_call_result *ret);
/* The members of a finished call: those of `run`, and those of Python's. */
int ntrd_py_reply(struct ntrd_req *rq, const struct ntrd_py *p, const struct ntr_call_result *res);

/* ntrd_ops_run.c: the members of the reply to any call. */
int ntrd_call_reply(struct ntrd_req *rq, const struct ntr_call_spec *spec, const struct ntr_call_result *res);

#endif
