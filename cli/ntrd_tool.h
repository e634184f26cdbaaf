/* tool: what the files of the op `tool` share. */
#ifndef NTR_CLI_NTRD_TOOL_H
#define NTR_CLI_NTRD_TOOL_H

#include "ntrd.h"

#include "../base/buf.h"

/* One use of a tool. */
struct ntrd_tool {
	struct ntrd_req *rq;
	const char *session, *name;
	const json_t *args;  /* checked */
	json_t *structured;  /* members of the result */
	json_t *image;       /* NULL: none */
	struct ntr_buf text; /* what the agent reads */
	bool is_error;
	char commit[41]; /* "" none */
};

/* "WHAT failed: WHY", for the agent. 0 or -ENOMEM. */
int ntrd_tool_fail(struct ntrd_tool *t, const char *what, const char *why);
/* The same for what e says, where another use can put it right; else r, and e becomes the request's error. */
int ntrd_tool_error(struct ntrd_tool *t, const char *what, int r, const struct ntr_err *e);
/* An argument; NULL: not given. */
const char *ntrd_tool_arg(const struct ntrd_tool *t, const char *key, size_t *ret_len);
size_t ntrd_tool_budget(struct ntrd_req *rq);

typedef int ntrd_tool_fn(struct ntrd_tool *t);
/* ntrd_tool_files.c */
ntrd_tool_fn ntrd_tool_write, ntrd_tool_edit, ntrd_tool_image;
/* ntrd_tool_versions.c */
ntrd_tool_fn ntrd_tool_history, ntrd_tool_diff, ntrd_tool_fork, ntrd_tool_rollback;

#endif
