/* The end of a connection whose requests nobody can answer any more: a ring thread is stuck in the store, and
 * libfuse lets no other thread answer for it. The kernel then fails everything that waits, with ECONNABORTED,
 * and all that comes later with ENOTCONN; the controller mounts anew. */
#include "versions_impl.h"

#include <sys/sysmacros.h>

bool ntr_vabort(struct ntr_versions *v)
{
	int r = v->dev && major(v->dev) == 0 ? ntr_fuse_abort(v->dev) : -ENODEV;

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
