/* difftext: the forms of a comparison that are lists, not patches. Names are quoted as git quotes them. */
#ifndef NTR_CLI_NTRD_DIFFTEXT_H
#define NTR_CLI_NTRD_DIFFTEXT_H

#include "../fs/diff.h"

/* A path as a client gives it, absolute below wsroot or relative to it, to one without leading '/', '.' and
 * doubled slashes ("": the workspace itself). -EINVAL: outside, or with "..". */
int ntrd_path_relative(const char *wsroot, const char *path, char **ret);

/* Appends path, in double quotes with C's escapes where it holds control characters, quotes, backslashes or
 * bytes >= 0x80. */
int ntrd_path_quote(struct ntr_buf *b, const char *path);

/* Written to fd as they are made; 0 or negative errno. */
int ntrd_diff_names(const struct ntr_diff *d, int fd);
int ntrd_diff_json(const struct ntr_diff *d, int fd);
int ntrd_diff_stat(struct ntr_store *st, uint64_t a, uint64_t b, const struct ntr_diff *d, int width, int fd);

/* The layout of --stat alone, of n files: added < 0 is a binary one. */
struct ntrd_stat_line {
	char *name; /* quoted */
	int64_t added, removed;
};
int ntrd_stat_format(const struct ntrd_stat_line *v, size_t n, int width, struct ntr_buf *out);

#endif
