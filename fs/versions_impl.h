/* versions_impl: what the parts of the FUSE driver share. Private to versions*.c and their tests.
 *
 *     versions.c        start, stop, choice of transport     versions_req.c    one request: ownership,
 * watchdog, counts versions_mount.c  mount, detach, mountinfo, errors     versions_ops.c    what answers each
 * request type versions_loop.c   threads that read /dev/fuse          versions_read.c   READ versions_dir.c
 * READDIR(PLUS) versions_table.c  inodes the kernel holds              versions_xattr.c  GETXATTR, LISTXATTR
 * versions_stuck.c  the end of a connection that nobody answers   versions_sched.c  policy of the ring
 * threads
 *
 * A request belongs to the thread that received it until it claims the right to answer it (ntr_vreq_claim).
 * On /dev/fuse the watchdog may claim it first, once it has taken too long; whoever claims answers, exactly
 * once. */
#ifndef NTR_FS_VERSIONS_IMPL_H
#define NTR_FS_VERSIONS_IMPL_H

#include "../base/fusemount.h"
#include "../base/shownino.h"
#include "../base/util.h"
#include "inode.h"
#include "versions.h"
#include "versions_stats.h"
#include "versions_table.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <sched.h>

enum {
	NTR_VPLUS_MAX =
	        32768, /* entries of one stream that carry a node id: each pins 1.1 KB in the kernel */
	NTR_VREAD_MAX = 1 << 20, /* one READ */
	NTR_VSTOP_S = 10,        /* what a stuck thread is waited for */
	NTR_VCOOKIE_DOT = 1,
	NTR_VCOOKIE_DOTDOT = 2,
};
#define NTR_VFOREVER 1e9 /* seconds: what is immutable stays valid */

/* One per serving thread, alive until the driver stops. */
struct ntr_vslot {
	struct ntr_vslot *next;
	struct ntr_versions *v;
	_Atomic uint64_t state; /* request number << 2 | phase: a number is never used twice */
	_Atomic uint64_t start_ns;
	_Atomic(fuse_req_t) req;
	_Atomic int op;
	_Atomic bool leading; /* /dev/fuse: this thread is the one that reads */
	bool uring;
	bool idle, sched_fixed; /* under SCHED_IDLE; for good */
	pid_t client;           /* who sent the last request */
	uint64_t reported;      /* watchdog's: the state it has spoken about */
	uint64_t ticked;        /* watchdog's: the state at its last tick */
	uint8_t *buf;           /* reply buffer, grown as needed */
	size_t cap;
	struct ntr_vstats stats;
};

struct ntr_vwatch {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	_Atomic bool asleep;
	bool running, stop;
};

enum { NTR_VREADERS_MAX = 8 };

struct ntr_vloop { /* threads on /dev/fuse */
	pthread_t thread[NTR_VREADERS_MAX];
	unsigned n, running; /* running: under lock */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool led; /* somebody leads; under lock */
	cpu_set_t cpus;
};

struct ntr_versions {
	struct ntr_store *store;
	struct ntr_versions_options o;
	struct ntr_vtable *table;
	struct ntr_vnode root; /* FUSE_ROOT_ID */
	char *mountpoint;      /* absolute, without symlinks; NULL: mounted by somebody else */
	_Atomic dev_t dev;     /* of the mount; 0: unknown */
	bool mounted;          /* by us, and not detached yet */
	struct timespec born;
	uid_t uid;
	gid_t gid;

	struct fuse_session *se;
	int fd;
	bool want_uring;
	pthread_mutex_t lock; /* slots; init and end of the session */
	pthread_cond_t cond;
	struct ntr_vslot *slots;
	struct ntr_versions *next_left; /* of those that were stopped with a stuck thread */
	bool inited;
	_Atomic bool alive, stopping, on_uring;
	_Atomic uint64_t said_ns; /* when a failed request was logged last */
	_Atomic bool aborted;     /* by us: a thread of it is stuck */
	uint64_t serial;          /* no other driver of this process has it */
	struct ntr_vloop loop;
	struct ntr_vwatch watch;
	_Atomic bool crowded; /* more threads want to run than there are CPUs */
	double running;       /* the watchdog's: how many, on average */
	bool first_written;   /* system libfuse: INIT's reply has gone out */
};

/* The kernel sends no request that names a node before it has the answer that made the node known, and no
 * FORGET before the answers to all that named it. Between ring threads ThreadSanitizer cannot see that, so it
 * is told. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define ntr_vkernel_acquire(v) __tsan_acquire(v)
#define ntr_vkernel_release(v) __tsan_release(v)
#else
#define ntr_vkernel_acquire(v) ((void)(v))
#define ntr_vkernel_release(v) ((void)(v))
#endif

/* ---- requests ---- */
/* For tests: told of each request and of the thread that asks. */
extern void (*ntr_vreq_hook)(pid_t client, enum ntr_vop op);
/* Begins a request on the calling thread. NULL: out of memory, and the request has been answered. */
struct ntr_vslot *ntr_vreq_begin(fuse_req_t req, enum ntr_vop op);
/* Takes the right to answer, and counts the request. false: the watchdog has answered it; do not touch req.
 */
bool ntr_vreq_claim(struct ntr_vslot *s);
/* Claims and answers with a positive errno (0: success without data). */
void ntr_vreq_err(struct ntr_vslot *s, fuse_req_t req, int err);
/* Counts a request that has no answer (FORGET of n inodes). */
void ntr_vreq_count(fuse_req_t req, enum ntr_vop op, uint64_t n);
/* Room of n bytes for a reply: the ring's own payload where there is one, else the thread's. NULL: no memory.
 */
uint8_t *ntr_vreq_buffer(struct ntr_vslot *s, fuse_req_t req, size_t n);
/* The slot of a thread that will serve v; made when missing. */
struct ntr_vslot *ntr_vslot_self(struct ntr_versions *v);
void ntr_vslots_init(struct ntr_versions *v);
/* Requests that are being served now. */
unsigned ntr_vreqs(struct ntr_versions *v);
void ntr_vslots_free(struct ntr_versions *v);

int ntr_vwatch_start(struct ntr_versions *v);
void ntr_vwatch_stop(struct ntr_versions *v);

/* Counts what wants to run on this machine; the watchdog's. */
void ntr_vsched_look(struct ntr_versions *v);
/* Gives the calling ring thread the policy that fits. */
void ntr_vsched_follow(struct ntr_vslot *s);
/* One more count into the average: crowded from now on? */
bool ntr_vsched_step(double *avg, unsigned running, unsigned cpus, bool crowded);

/* Ends the connection. false: not possible here, and logged. */
bool ntr_vabort(struct ntr_versions *v);

/* A line for the daemon's log. */
void ntr_vlog(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- /dev/fuse ---- */
int ntr_vloop_start(struct ntr_versions *v);
/* Ends the threads; false: one is stuck in the store and was left behind. */
bool ntr_vloop_stop(struct ntr_versions *v);
/* Lets another thread read, because this one will be busy: by the thread itself or by the watchdog. */
void ntr_vloop_yield(struct ntr_versions *v, struct ntr_vslot *s);
/* The session has ended by itself: the kernel ended the connection, or the device failed. */
void ntr_versions_ended(struct ntr_versions *v);

/* After so many seconds the kernel (6.15 and newer) ends the whole connection by itself: for when this
 * process is stopped. Later than the watchdog, which does less harm; the kernel looks every 15 s only. */
static inline uint16_t ntr_vkernel_timeout(const struct ntr_versions *v)
{
	return (uint16_t)NTR_MIN(v->o.watchdog_s + 15ull, 65535ull);
}

/* ---- operations ---- */
extern const struct fuse_lowlevel_ops ntr_vops;

static inline struct ntr_vnode *ntr_vnode_of(struct ntr_versions *v, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? &v->root : (struct ntr_vnode *)(uintptr_t)ino;
}

static inline fuse_ino_t ntr_vnode_id(struct ntr_versions *v, const struct ntr_vnode *n)
{
	return n == &v->root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)n;
}

/* The mount's own root directory, which lists nothing and whose entries are the roots. */
static inline bool ntr_vnode_is_top(const struct ntr_vnode *n)
{
	return n->ino == 0;
}

static inline struct ntr_snap ntr_vnode_snap(struct ntr_versions *v, const struct ntr_vnode *n)
{
	return ntr_snap_root(v->store, atomic_load_explicit(&n->root, memory_order_relaxed));
}

/* An error as the kernel may show it: positive. A missing record below an existing name is damage. */
static inline int ntr_verrno(int r)
{
	return r == -ENOENT ? EUCLEAN : -r;
}

void ntr_vstat(struct ntr_versions *v, const struct ntr_inode *in, struct stat *ret);
/* Reads an inode of n's tree and takes a reference for the kernel: e is filled. 0 or negative errno. */
int ntr_ventry(struct ntr_versions *v, uint64_t root, uint64_t ino, struct fuse_entry_param *e);
/* Gives that reference back, for a reply that did not arrive. */
void ntr_ventry_undo(struct ntr_versions *v, const struct fuse_entry_param *e);

void ntr_vop_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ntr_vop_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void ntr_vop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ntr_vop_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ntr_vop_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void ntr_vop_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

/* The name under which a stored attribute is served, so that an overlayfs above shows it as it is stored: one
 * more "overlay." after "trusted.overlay." (an ordinary user's: "user.overlay."). out[NTR_VXATTR_MAX]. false:
 * too long to be served. */
enum { NTR_VXATTR_MAX = 256 };
bool ntr_vxattr_escape(const char *stored, char *out);
/* The other way. false: no stored attribute is served under that name. */
bool ntr_vxattr_unescape(const char *served, char *out);

/* ---- mounting (versions_mount.c) ---- */
/* Mounts an empty FUSE at path: *ret_fd is the device (O_CLOEXEC). */
int ntr_vmount(const char *path, int *ret_fd, struct ntr_err *e);
void ntr_vmount_readahead(dev_t dev, unsigned kib);

#endif
