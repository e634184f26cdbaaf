/* call: what the verbs that make a call (run, py) share; in ntr_run.c. */
#ifndef NTR_CLI_NTR_CALL_H
#define NTR_CLI_NTR_CALL_H

#include "ntr.h"

#include "../base/buf.h"

/* Reads all of stdin, which must fit a frame. */
int ntr_call_stdin(struct ntr_buf *b);
/* Adds env, set_env, cwd; timeout. 0, negative errno, or the exit status after a complaint. */
int ntr_call_environment(struct ntr_cmd *cmd, json_t *req);
int ntr_call_timeout(struct ntr_cmd *cmd, json_t *req);
/* --mount, each; in ntr_mounts.c. The same. */
int ntr_call_mounts(struct ntr_cmd *cmd, json_t *req);
/* All three. The same. */
int ntr_call_members(struct ntr_cmd *cmd, json_t *req);
/* Sends the request with this process's stdio and waits; signals are forwarded, *last is the last one. */
int ntr_call_run(struct ntr_cmd *cmd, json_t *req, int *last, json_t **ret, struct ntr_err *e);
/* Whether the call's output comes with the reply instead of going to this process's own: --json, --render. */
bool ntr_call_captures(const struct ntr_cmd *cmd);
/* The member text, as a line; nothing where there is none. */
void ntr_call_print_text(const json_t *reply);
/* The exit status of a call, after notes on stderr about it. */
int ntr_call_status(const struct ntr_cmd *cmd, const json_t *reply);

#endif
