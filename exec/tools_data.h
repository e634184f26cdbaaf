/* tools_data: the tables of words behind tools.h. */
#ifndef NTR_EXEC_TOOLS_DATA_H
#define NTR_EXEC_TOOLS_DATA_H

#include <stdbool.h>
#include <stddef.h>

struct ntr_tool_data {
	const char *name, *title;
	const char *description; /* NULL: put together from the texts below */
	const char *schema;      /* JSON */
	bool read_only, destructive, idempotent, open_world;
	bool versions, images; /* only where these are on */
};
extern const struct ntr_tool_data ntr_tool_data[]; /* ends with a NULL name */

struct ntr_tool_hint_row {
	int code;           /* the exit status; -1: any but 0 */
	const char *needle; /* in stderr */
	const char *hint;
};
extern const struct ntr_tool_hint_row ntr_tool_hints[]; /* ends with a NULL needle */

/* Of terminal and run_python, in this order. %s: the workspace's root, or a list of names. */
extern const char ntr_tools_terminal[], ntr_tools_python_inside[];
extern const char ntr_tools_python[], ntr_tools_cache[], ntr_tools_objects[], ntr_tools_modules[],
        ntr_tools_offline[], ntr_tools_ui[], ntr_tools_python_end[];

#endif
