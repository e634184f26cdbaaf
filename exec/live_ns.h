/* live_ns: ending whatever is left in a session's mount namespace. */
#ifndef NTR_EXEC_LIVE_NS_H
#define NTR_EXEC_LIVE_NS_H

#include <stdint.h>
#include <sys/types.h>

enum { NTR_BOOT_ID_MAX = 40 };

/* Identifies the mount namespace of a process; 0: no such process, or not ours to ask. Never reused while the
 * machine runs where the kernel has numbers of that kind (6.11). The inode number of the namespace, which
 * older kernels leave us with, is: it may be that of a later session of another store, or of a container. */
uint64_t ntr_namespace_of(pid_t pid);
/* Kills every process (but the caller) of that namespace, again and again until none is found. Returns their
 * number. Where numbers are reused only processes that see a session's view are taken for its own. */
unsigned ntr_kill_namespace(uint64_t id);
/* Identifies this run of the machine: pids and namespaces mean nothing in another. "" where /proc does not
 * tell. */
void ntr_boot_id(char ret[NTR_BOOT_ID_MAX]);

#endif
