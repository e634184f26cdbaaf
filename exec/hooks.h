/* hooks: executables of the store's owner that are run at certain moments: STORE/hooks/EVENT for every
 * session, then STORE/hooks/SESSION.d/EVENT for one. docs/hooks.md tells users. This is only how one is found
 * and run; who is asked when is in controller_hooks.c. */
#ifndef NTR_EXEC_HOOKS_H
#define NTR_EXEC_HOOKS_H

#include "../fs/store.h"

#include <jansson.h>

enum ntr_hook {
	NTR_HOOK_PRE_RUN,
	NTR_HOOK_POST_RUN,
	NTR_HOOK_PRE_COMMIT,
	NTR_HOOK_POST_COMMIT,
	NTR_HOOK_POST_FORK,
	NTR_HOOK_POST_ROLLBACK,
	NTR_HOOK_EVENTS
};

/* A hook said no, or could not be asked. */
#define NTR_HOOK_REFUSED EKEYREJECTED

const char *ntr_hook_word(enum ntr_hook event);
/* Whether the session has one of that event. Without STORE/hooks that costs one look. */
bool ntr_hook_there(struct ntr_store *s, const char *session, enum ntr_hook event);
/* Runs those that are there with msg on stdin. inside: the session is held meanwhile; what an ntr that the
 * hook runs asks of that session is told so. The first that fails ends it: -NTR_HOOK_REFUSED, with WHY and
 * WHAT TO DO in e (required). */
int ntr_hook_run(struct ntr_store *s, const char *session, enum ntr_hook event, const json_t *msg,
        bool inside, struct ntr_err *e);

#endif
