/* versions: the read-only FUSE driver that serves every commit's tree at MOUNT/<root id in hex>/….
 *
 * Every FUSE inode is immutable: a file is the pair (inode, version), shared by all commits and forks that
 * hold it; a directory is (root, inode). So nothing is ever invalidated and all timeouts are infinite
 * (docs/design.md, "FUSE"). A mount can also be rooted in one tree (`ntr mount SESSION@COMMIT DIR` for
 * ordinary users). */
#ifndef NTR_FS_VERSIONS_H
#define NTR_FS_VERSIONS_H

#include "store.h"

struct ntr_versions;

enum ntr_transport { NTR_TRANSPORT_DEV, NTR_TRANSPORT_URING };

struct ntr_versions_options {
	int uring;      /* 1: io_uring where the kernel and libfuse allow it; 0: never */
	int sched_idle; /* 1: ring threads under SCHED_IDLE while there is a CPU for everybody */
	uint64_t root;  /* 0: all roots by name; else the mount shows this tree alone */
	int fuse_fd; /* -1: mount at mountpoint; else an already mounted /dev/fuse descriptor (taken over) */
	bool plain;  /* of trees without any extended attribute: GETXATTR is answered ENOSYS once and never
	                sent again.  An overlayfs above asks for one or two at every look-up, and the kernel
	                caches none */
	unsigned watchdog_s; /* a request unanswered for so long is logged and answered EIO; 0: 30 */
};

/* Mounts at mountpoint (an existing, empty directory; root: mount(2), else fusermount3) and serves it from
 * threads of its own until ntr_versions_stop. Falls back from io_uring to /dev/fuse. Errors name /dev/fuse's
 * permissions, fusermount3, the missing kernel module, and what to do. */
int ntr_versions_start(struct ntr_store *s, const char *mountpoint, const struct ntr_versions_options *o,
        struct ntr_versions **ret, struct ntr_err *e);
/* Unmounts (lazily where it is busy) and ends the threads. */
void ntr_versions_stop(struct ntr_versions *v);
enum ntr_transport ntr_versions_transport(const struct ntr_versions *v);
/* True when this build's libfuse can do io_uring at all; its version as text. */
bool ntr_versions_can_uring(void);
const char *ntr_versions_libfuse(void);
/* false once the kernel has ended the connection (someone unmounted it): never later than a caller of the
 * mount is told ENOTCONN. */
bool ntr_versions_alive(const struct ntr_versions *v);

/* Counts and times per request type since the start: name, count, p50 and p99 in microseconds. Stops at fn's
 * nonzero. */
int ntr_versions_stats(struct ntr_versions *v,
        int (*fn)(void *user, const char *op, uint64_t count, double p50_us, double p99_us), void *user);
/* Requests that mounts stopped meanwhile have left in the store, which does not come back: as long as there
 * are any, the store cannot be closed. */
unsigned ntr_versions_left_behind(void);
/* FUSE inodes the kernel holds, and bytes of the table. */
void ntr_versions_table(struct ntr_versions *v, uint64_t *ret_inodes, uint64_t *ret_bytes);

/* Does one of our mounts lie at path, dead or alive? 1, 0. Asks the mount table, not the mount: that of a
 * daemon which is just being killed answers late, or never. */
int ntr_mount_is_there(const char *path);

/* For tests: is anything mounted at path that answers ENOTCONN (a dead FUSE mount)? 1, 0. */
int ntr_mount_is_dead(const char *path);
/* Detaches whatever is mounted at path (root: umount2 MNT_DETACH, else fusermount3 -u -z or umount -l).
 * 0 or negative errno. */
int ntr_mount_detach(const char *path);

#endif
