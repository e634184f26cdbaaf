/* What init_py.c and init_py_start.c share. */
#ifndef NTR_EXEC_INIT_PY_IMPL_H
#define NTR_EXEC_INIT_PY_IMPL_H

#include "init.h"
#include "init_py.h"

/* The part of a call that is Python's. */
struct ntr_initpycall {
	int fds[NTR_PY_FDS]; /* kept until it has started, to be able to ask another zygote */
	char *python;
	bool asked;      /* for that very interpreter */
	json_t *preload; /* may be NULL */
	int mode;        /* NTR_PY_PLAIN or NTR_PY_READONLY */
	unsigned tries;
	int pidfd;        /* readable once the process is dead; -1 */
	uint64_t owed_ns; /* the process is dead: the zygote has until then to tell its status; 0: not dead */
};

/* Sets p->python, p->asked: what the request asks for; a virtual environment in the workspace; the first
 * python3 of the caller's PATH; the machine's. */
int ntr_initpy_choose(struct ntr_init *in, const json_t *msg, struct ntr_initpycall *p, struct ntr_err *e);
/* Another interpreter for a call whose own does not start; false: there is none. */
bool ntr_initpy_fall_back(struct ntr_initpycall *p);
/* init_py_path.c. The first program of that name in path, in fresh memory; NULL: there is none. */
char *ntr_initpy_find(const char *name, const char *path);
/* The programs of a virtual environment in the workspace, in fresh memory; NULL: there is none. */
char *ntr_initpy_venv(const struct ntr_init *in);
/* Makes z a zygote of that interpreter with those modules. */
int ntr_initpy_ready(struct ntr_init *in, struct ntr_initpy *z, const char *python, const json_t *preload,
        struct ntr_err *e);
void ntr_initpy_kill(struct ntr_init *in, struct ntr_initpy *z);
/* It is dead: takes what it has said last; its children are ours now. */
void ntr_initpy_lost(struct ntr_init *in, struct ntr_initpy *z);
/* Why it ended. */
void ntr_initpy_reason(const struct ntr_initpy *z, int status, struct ntr_err *e);
/* Lets go of what belonged to it (but the socket, which is the caller's). */
void ntr_initpy_forget(struct ntr_initpy *z);

#endif
