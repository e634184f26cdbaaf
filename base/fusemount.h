/* fusemount: our FUSE mounts in the mount table, and the end of a connection that nobody serves any more. Of
 * the mount itself nothing is asked: that of a daemon which is just being killed answers late, or never. */
#ifndef NTR_BASE_FUSEMOUNT_H
#define NTR_BASE_FUSEMOUNT_H

#include <sys/types.h>

/* The device number of the FUSE mount of ours that lies at path (absolute, as the mount table has it).
 * -ENOENT: what is there on top is nothing of ours. */
int ntr_fuse_dev(const char *path, dev_t *ret);
/* Ends its connection by the kernel's control filesystem: all that waits in it gets ECONNABORTED. Root always
 * can; others where fusectl is mounted at /sys/fs/fuse/connections, for their own mounts. */
int ntr_fuse_abort(dev_t dev);

/* umount2(2). It says EBUSY also of who only passes by (a look-up, a descriptor that is just being closed):
 * tried for a quarter of a second. */
int ntr_umount(const char *path, int flags);

/* Does so for every connection whose device the process pid has open, as far as the kernel tells
 * (Linux 6.17). The number of those that were ended. */
unsigned ntr_fuse_abort_of(pid_t pid);

#endif
