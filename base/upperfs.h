/* upperfs: file systems that overlayfs does not take for an upper, by their magic numbers. Others that it
 * refuses are found out by trying. */
#ifndef NTR_BASE_UPPERFS_H
#define NTR_BASE_UPPERFS_H

#include <stdbool.h>

/* The name of such a file system, or NULL. magic: of statfs(2). */
const char *ntr_fs_no_upper(unsigned long magic);

/* Whether overlays of this process keep their marks in user.* attributes: trusted.* ones are for root alone,
 * and for root of the first user namespace (not that of a rootless container). */
bool ntr_fs_userxattr(void);

/* What /sys/module/overlay/parameters/redirect_max should be at least: the longest path of a committed file
 * or directory that can still be renamed or linked into another directory. The kernel's own is 256. */
enum { NTR_REDIRECT_MAX = 4096 };

#endif
