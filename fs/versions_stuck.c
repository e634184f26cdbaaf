/* The end of a connection whose requests nobody can answer any more: a ring thread is stuck in the store, and
 * libfuse lets no other thread answer for it. The kernel then fails everything that waits, with ECONNABORTED,
 * and all that comes later with ENOTCONN; the controller mounts anew. */
#include "versions_impl.h"

#include <sys/sysmacros.h>

bool ntr_vabort(struct ntr_versions *v)
{
	dev_t dev = atomic_load(&v->dev);

	/* Before: whoever learns of the end from the device stops this mount, and is to wait for its threads
	 * no longer than they can be waited for. */
	atomic_store(&v->aborted, true);
	int r = dev && major(dev) == 0 ? ntr_fuse_abort(dev) : -ENODEV;

	if (r) {
		atomic_store(&v->aborted, false);
		ntr_vlog("its connection cannot be ended from here (%s); the kernel does it where it has "
		         "timeouts (Linux 6.15 and newer)",
		        strerror(-r));
		return false;
	}
	ntr_vlog("ended its connection: what waits in it got an error; the next call mounts anew");
	ntr_versions_ended(v);
	return true;
}
