/* doctor: checks of the machine; each one fills a finding. */
#ifndef NTR_CLI_NTR_DOCTOR_H
#define NTR_CLI_NTR_DOCTOR_H

#include <stdbool.h>

struct ntr_finding {
	const char *name;
	bool ok;
	bool needed;       /* ntr does not work without it; else it is slower or less convenient */
	char detail[1024]; /* what was found */
	char fix[384];     /* the command that mends it; empty when there is nothing to do */
};

/* store: absolute path, need not exist. */
typedef void ntr_check_fn(const char *store, struct ntr_finding *f);
extern ntr_check_fn *const ntr_checks[]; /* ends with NULL */

#endif
