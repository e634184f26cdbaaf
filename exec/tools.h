/* tools: what an agent is given to work with: what its tools are called and described as, and the texts that
 * they answer. Pure functions over results; who runs a call or changes a file is elsewhere (controller.h).
 *
 * The texts are contracts: tests hold them to the letter. Descriptions, schemas, primers and hints are tables
 * in tools_data.c. */
#ifndef NTR_EXEC_TOOLS_H
#define NTR_EXEC_TOOLS_H

#include "../base/buf.h"
#include "../base/json.h"

/* ---- the list */

enum ntr_tools_mode { NTR_TOOLS_AUTO, NTR_TOOLS_TERMINAL, NTR_TOOLS_SPLIT };
struct ntr_tools_options {
	enum ntr_tools_mode mode; /* AUTO: a run_python of its own where it has more than a shell's python */
	bool versions;            /* history, diff, fork, rollback too */
	bool no_cache, no_images;
	json_t *objects; /* NULL, or names of host objects */
	const char *wsroot;
	const char *terminal_primer, *python_primer; /* the embedder's words; NULL: none */
	/* Whether Python code has the network; NULL-safe texts about modules it may import beside the
	 * standard library. */
	bool offline;
	const char *modules;
};
/* [{"name","title","description","inputSchema","annotations"}]. NULL: out of memory. */
json_t *ntr_tools_list(const struct ntr_tools_options *o);
bool ntr_tool_known(const char *name);
/* Whether args are what the tool's schema says: 0, or -EINVAL with the text for the agent in why. */
int ntr_tool_args_check(const char *name, const json_t *args, struct ntr_buf *why);
/* The value of a checked argument. A model's "true" and "20" are taken for what they mean. */
bool ntr_tool_arg_bool(const json_t *args, const char *key);
int64_t ntr_tool_arg_int(const json_t *args, const char *key, int64_t def);

/* ---- calls */

enum { NTR_TOOLS_BUDGET = 32000 }; /* characters a stream */
struct ntr_tool_call {
	const void *out, *err; /* as captured */
	size_t out_len, err_len;
	size_t budget; /* characters a stream; 0: no limit */
	int exit_code;
	bool timed_out, truncated;
	double timeout_s;                 /* the limit, for the text about it */
	bool python;                      /* of run_python: its exit code is no news, its error is */
	const char *error;                /* NULL: none */
	const json_t *hints, *ui, *notes; /* arrays of strings, of {"name","path"}, of strings; or NULL */
};
/* Appends what the agent reads. 0 or -ENOMEM. *ret_error: the call did not come out as asked; *ret_truncated:
 * something was left out. Either may be NULL. */
int ntr_tool_render(
        const struct ntr_tool_call *call, struct ntr_buf *ret, bool *ret_error, bool *ret_truncated);
/* The hint for what a shell printed to stderr; NULL: none. */
const char *ntr_tool_hint(int exit_code, const char *err);

/* ---- file_edit */

enum ntr_edit_mode { NTR_EDIT_EXACT, NTR_EDIT_TRAILING_WS, NTR_EDIT_INDENT_FLEXIBLE, NTR_EDIT_ALREADY };
struct ntr_edit {
	const char *old, *new;
	size_t old_len, new_len;
	bool replace_all;
	const char *path; /* for texts */
};
/* Applies the edit to text (UTF-8). 0: *ret is the new text, *ret_count how many places, *ret_mode how they
 * were found (ALREADY: nothing to do, ret is left empty). -EINVAL: it cannot be done, and why holds the text
 * for the agent. -ENOMEM. */
int ntr_edit_apply(const char *text, size_t len, const struct ntr_edit *ed, struct ntr_buf *ret,
        unsigned *ret_count, enum ntr_edit_mode *ret_mode, struct ntr_buf *why);
const char *ntr_edit_mode_word(enum ntr_edit_mode mode);
/* Appends the lines of text that are most like old, numbered, with what stands around them; nothing when none
 * is. 0 or -ENOMEM. */
int ntr_edit_similar(const char *text, size_t len, const char *old, size_t old_len, struct ntr_buf *ret);

/* ---- view_image */

enum { NTR_IMAGE_MAX = 10000000 };
/* "png", "jpeg", "gif" or "webp" by the first bytes; NULL: none of them. */
const char *ntr_image_kind(const void *p, size_t n);
/* What p looks like instead, for a text. Never NULL. */
const char *ntr_image_other(const void *p, size_t n);

#endif
