/* The end of a connection whose requests nobody can answer any more: a ring thread is stuck in the store, and
 * libfuse lets no other thread answer for it. The kernel then fails everything that waits, with ECONNABORTED,
 * and all that comes later with ENOTCONN; the controller mounts anew. */
#include "versions_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

enum { FUSE_CTL_MAGIC = 0x65735543 };
#define CTL_PATH "/sys/fs/fuse/connections"

/* Root needs nobody to have mounted the control filesystem: it takes an instance that is mounted nowhere. */
static int ctl_own(void)
{
	ntr_autoclose int fs = fsopen("fusectl", FSOPEN_CLOEXEC);

	if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -errno;
	int fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

static int ctl_open(void)
{
	struct statfs st;
	int fd = open(CTL_PATH, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && !fstatfs(fd, &st) && st.f_type == FUSE_CTL_MAGIC)
		return fd;
	if (fd >= 0)
		close(fd);
	return ctl_own();
}

static int write_abort(dev_t dev)
{
	ntr_autoclose int dir = ctl_open();
	char name[32];

	if (dir < 0)
		return dir;
	/* the control filesystem knows a connection by its mount's device number, which has no major part */
	snprintf(name, sizeof name, "%u/abort", minor(dev));
	ntr_autoclose int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, "1", 1) != 1 ? -errno : 0;
}

bool ntr_vabort(struct ntr_versions *v)
{
	int r = v->dev && major(v->dev) == 0 ? write_abort(v->dev) : -ENODEV;

	if (r) {
		ntr_vlog("its connection cannot be ended from here (%s); the kernel does it where it has "
		         "timeouts (Linux 6.15 and newer)",
		        strerror(-r));
		return false;
	}
	ntr_vlog("ended its connection: what waits in it got an error; the next call mounts anew");
	atomic_store(&v->aborted, true);
	ntr_versions_ended(v);
	return true;
}
