/* entries: a directory's entries as the JSON objects of `ls`, and their way from the process that reads the
 * directory to the one that asked. ntrd never reads a session's view itself: the view's files come from
 * ntrd's own mount, and a thread that waits there while ntrd is killed would wait for ever.
 *
 * On the way: one object a line, then {"end": 0} or {"end": -errno}. Without the end the reader was killed.
 */
#ifndef NTR_EXEC_ENTRIES_H
#define NTR_EXEC_ENTRIES_H

#include "../base/json.h"

#include <stdint.h>
#include <sys/stat.h>

/* One entry; target: where a symlink leads, or NULL. NULL: no memory. */
json_t *ntr_entries_one(const char *name, const struct stat *st, const char *target);
/* Writes to the descriptor out, which it closes, what is in the directory fd (O_PATH will do), "." and ".."
 * excepted, in no order; of another file its own entry, under the last part of path. */
void ntr_entries_write(int fd, const char *path, int out);
/* Appends to the array what comes from the descriptor, which it closes. 0, the writer's error, or -EINTR: it
 * did not finish. */
int ntr_entries_read(int in, json_t *list);

#endif
