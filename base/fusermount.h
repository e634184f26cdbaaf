/* fusermount: FUSE mounts of an ordinary user, who has no right to mount but through the set-uid program
 * fusermount3. It makes the mount and hands its /dev/fuse descriptor over a socket (what libfuse calls
 * _FUSE_COMMFD). Of what these say, the last line is in text[size]. */
#ifndef NTR_BASE_FUSERMOUNT_H
#define NTR_BASE_FUSERMOUNT_H

#include <stdbool.h>
#include <stddef.h>

/* Mounts at dir, opts as of mount(8)'s -o. 0 with the descriptor; -EPERM: it refused, for the reason in text
 * ("" when it gave none); any other: it could not be run (-ENOENT: it is not installed). */
int ntr_fusermount(const char *dir, const char *opts, int *ret_fd, char *text, size_t size);

/* Unmounts dir; lazy: it goes from the tree now, and ends when nobody uses it. 0; -EBUSY: it is in use;
 * -EPERM: refused, for the reason in text; any other: fusermount3 could not be run. */
int ntr_fusermount_end(const char *dir, bool lazy, char *text, size_t size);

#endif
