/* init_py: the warm Python interpreter of a session (the zygote), which forks one process per call.
 *
 * The zygote is a child of ntr-init's own (no process of the session); what it forks is a call's main process
 * like any other. They speak datagrams over a socketpair:
 *
 *     NTR_PY_FORK     to the zygote, with stdin, stdout, stderr and the call's channel
 *     NTR_PY_READY    it has started
 *     NTR_PY_STARTED  value: pid; from the forked process itself, once it leads a process group
 *     NTR_PY_ENDED    value: its wait status
 *     NTR_PY_FAILED   value: errno of the fork
 *     NTR_PY_RESTART  packages of the interpreter have changed: ask a new zygote
 *
 * Whatever the forked process does to the zygote (it has the same user) costs that call only: a zygote that
 * is stopped or dead is replaced, and what it forked is collected by ntr-init itself, which is the subreaper.
 */
#ifndef NTR_EXEC_INIT_PY_H
#define NTR_EXEC_INIT_PY_H

#include <stddef.h>
#include <stdint.h>

enum { NTR_PY_FORK = 1, NTR_PY_READY, NTR_PY_STARTED, NTR_PY_ENDED, NTR_PY_FAILED, NTR_PY_RESTART };
enum { NTR_PY_FDS = 4 };
struct ntr_pymsg {
	uint64_t req;
	int32_t kind;
	uint32_t value;
} __attribute__((packed));

/* exec/runner, as cmake/embed.cmake packs it. */
extern const unsigned char ntr_runner_boot[]; /* NUL-terminated */
extern const unsigned char ntr_runner_text[];
extern const size_t ntr_runner_text_len;

#endif
