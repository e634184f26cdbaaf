/* Start and stop of the driver: one FUSE session at a time, on io_uring where that can work, else on
 * /dev/fuse. */
#include "versions_impl.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#if !NTR_FUSE_URING
#include <linux/fuse.h>
#include <sys/uio.h>
#endif

enum { INIT_WAIT_S = 10, PROBE_WAIT_S = 5, RING_DEPTH = 4, RING_CPUS_MAX = 16, READAHEAD_KIB = 2048 };
#define WARM_BYTES ((size_t)32 << 20) /* nodes of 400,000 files */

bool ntr_versions_can_uring(void)
{
	return NTR_FUSE_URING;
}

const char *ntr_versions_libfuse(void)
{
	return fuse_pkgversion();
}

enum ntr_transport ntr_versions_transport(const struct ntr_versions *v)
{
	return atomic_load(&v->on_uring) ? NTR_TRANSPORT_URING : NTR_TRANSPORT_DEV;
}

/* The kernel says on the device itself that the connection is over, in the moment it is: the threads, which
 * may all be busy, come to know it from their next read. */
bool ntr_versions_alive(const struct ntr_versions *v)
{
	struct pollfd p = {.fd = fuse_session_fd(v->se)};

	return atomic_load(&v->alive) && (poll(&p, 1, 0) <= 0 || !(p.revents & POLLERR));
}

void ntr_versions_table(struct ntr_versions *v, uint64_t *ret_inodes, uint64_t *ret_bytes)
{
	ntr_vtable_stats(v->table, ret_inodes, ret_bytes);
}

int ntr_versions_stats(struct ntr_versions *v,
        int (*fn)(void *user, const char *op, uint64_t count, double p50_us, double p99_us), void *user)
{
	int r = 0;

	for (int op = 0; op < NTR_VOP_COUNT && r == 0; op++) {
		uint64_t count = 0, hist[NTR_VSTATS_BUCKETS] = {0};

		pthread_mutex_lock(&v->lock);
		for (struct ntr_vslot *s = v->slots; s; s = s->next)
			ntr_vstats_sum(&s->stats, (enum ntr_vop)op, &count, hist);
		pthread_mutex_unlock(&v->lock);
		r = fn(user, ntr_vop_name((enum ntr_vop)op), count, ntr_hist_quantile(hist, 0.5),
		        ntr_hist_quantile(hist, 0.99));
	}
	return r;
}

void ntr_versions_ended(struct ntr_versions *v)
{
	pthread_mutex_lock(&v->lock);
	atomic_store(&v->alive, false);
	pthread_cond_broadcast(&v->cond);
	pthread_mutex_unlock(&v->lock);
	pthread_mutex_lock(&v->loop.lock);
	pthread_cond_broadcast(&v->loop.cond);
	pthread_mutex_unlock(&v->loop.lock);
}

/* ---- libfuse ---- */

__attribute__((format(printf, 2, 0))) static void to_log(
        enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[512];

	if (level > FUSE_LOG_WARNING)
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	ntr_vlog("%s", text);
}

static void set_log(void)
{
	fuse_set_log_func(to_log);
}

#if !NTR_FUSE_URING
static ssize_t device_read(int fd, void *buf, size_t n, void *user)
{
	(void)user;
	return read(fd, buf, n);
}

/* libfuse 3.14 cannot say NO_EXPORT_SUPPORT, without which overlayfs keeps file handles of its lower files
 * and answers ESTALE for one that was evicted; and it forgets to say PARALLEL_DIROPS, without which one slow
 * LOOKUP holds up its whole directory. So both are put into the answer to INIT, the first that goes out. A
 * kernel ignores what it does not know. */
static ssize_t device_writev(int fd, struct iovec *iov, int n, void *user)
{
	const uint32_t parallel_dirops = 1u << 18, init_ext = 1u << 30, no_export_high = 1u << (38 - 32);
	const uint32_t timeout_high = 1u << (42 - 32);
	struct ntr_versions *v = user;

	if (!v->first_written && n == 2 && iov[1].iov_len >= sizeof(struct fuse_init_out)) {
		struct fuse_init_out *out = iov[1].iov_base;

		out->flags |= init_ext | parallel_dirops;
		out->flags2 |= no_export_high | timeout_high;
		out->unused[1] = ntr_vkernel_timeout(v); /* request_timeout: the lower half */
	}
	v->first_written = true;
	return writev(fd, iov, n);
}
#endif

static int session_new(struct ntr_versions *v, struct ntr_err *e)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char name[] = "ntr", dash_o[] = "-o", ring[64];
	char *argv[] = {name, dash_o, ring, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(v->want_uring ? 3 : 1, argv);

	pthread_once(&once, set_log);
	snprintf(ring, sizeof(ring), "io_uring,io_uring_q_depth=%d", RING_DEPTH);
	v->se = fuse_session_new(&args, &ntr_vops, sizeof(ntr_vops), v);
	fuse_opt_free_args(&args);
	return v->se ? 0 : ntr_err_set(e, -ENOMEM, "start a FUSE session");
}

static int session_attach(struct ntr_versions *v, struct ntr_err *e)
{
	char path[32];
	int r = 0;

	snprintf(path, sizeof(path), "/dev/fd/%d", v->fd);
	if (fuse_session_mount(v->se, path) < 0)
		r = -EBADF;
#if !NTR_FUSE_URING
	static const struct fuse_custom_io io = {.read = device_read, .writev = device_writev};

	v->first_written = false;
	if (r == 0)
		r = fuse_session_custom_io(v->se, &io, v->fd);
#endif
	return r ? ntr_err_set(e, r, "serve the FUSE device (descriptor %d)", v->fd) : 0;
}

/* ---- threads ---- */

#if NTR_FUSE_URING
/* Everything but FORGET comes by the rings, which libfuse starts while it answers INIT. */
static void *ring_loop(void *arg)
{
	struct ntr_versions *v = arg;
	struct fuse_loop_config *c = fuse_loop_cfg_create();

	if (c) {
		fuse_loop_cfg_set_clone_fd(c, 0);
		fuse_loop_cfg_set_max_threads(c, 2);
		fuse_session_loop_mt(v->se, c);
		fuse_loop_cfg_destroy(c);
	}
	ntr_versions_ended(v);
	pthread_mutex_lock(&v->lock);
	v->loop.running = 0;
	pthread_cond_broadcast(&v->cond);
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

static int ring_start(struct ntr_versions *v)
{
	v->loop.running = 1;
	int r = pthread_create(&v->loop.thread[0], NULL, ring_loop, v);

	v->loop.n = r == 0;
	return -r;
}
#else
static int ring_start(struct ntr_versions *v)
{
	(void)v;
	return -ENOTSUP;
}
#endif

/* The threads, and those that libfuse starts from them, leave the process's signals to others. */
static int threads_start(struct ntr_versions *v, struct ntr_err *e)
{
	sigset_t all, old;

	atomic_store(&v->alive, true);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = v->want_uring ? ring_start(v) : ntr_vloop_start(v);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r ? ntr_err_set(e, r, "start the threads of the versions mount") : 0;
}

static int wait_init(struct ntr_versions *v, struct ntr_err *e)
{
	struct timespec until = ntr_mono_in(INIT_WAIT_S * 1000000000ull);
	int r = 0;

	pthread_mutex_lock(&v->lock);
	while (!v->inited && atomic_load(&v->alive) && r == 0)
		r = pthread_cond_timedwait(&v->cond, &v->lock, &until);
	bool ok = v->inited;

	pthread_mutex_unlock(&v->lock);
	if (ok)
		return 0;
	ntr_err_set(e, r ? -ETIMEDOUT : -ENOTCONN, "serve the versions mount");
	return ntr_err_why(e, r ? "the kernel sent no INIT; the descriptor is not mounted"
	                        : "the kernel ended the connection at once");
}

/* ---- one session ---- */

/* Is what lies at the mount point still ours? Somebody may have unmounted it and mounted something else
 * there. Where mountinfo cannot tell (no descriptor left to read it with), a connection that still lives can.
 */
static bool still_there(struct ntr_versions *v)
{
	dev_t dev;
	int r = ntr_fuse_dev(v->mountpoint, &dev);

	dev_t own = atomic_load(&v->dev);

	if (r == 0 && own)
		return dev == own;
	return r != -ENOENT && atomic_load(&v->alive);
}

static void detach(struct ntr_versions *v)
{
	if (v->mounted && still_there(v))
		(void)ntr_mount_detach(v->mountpoint);
	v->mounted = false;
	atomic_store(&v->dev, 0);
}

static bool threads_stop(struct ntr_versions *v)
{
	if (!v->loop.n)
		return true;
	if (!v->want_uring)
		return ntr_vloop_stop(v);
	struct timespec until = ntr_mono_in((atomic_load(&v->aborted) ? 1 : NTR_VSTOP_S) * 1000000000ull);
	int r = 0;

	pthread_mutex_lock(&v->lock);
	while (v->loop.running && r == 0)
		r = pthread_cond_timedwait(&v->cond, &v->lock, &until);
	bool done = v->loop.running == 0;

	pthread_mutex_unlock(&v->lock);
	if (done)
		pthread_join(v->loop.thread[0], NULL);
	else
		pthread_detach(v->loop.thread[0]);
	v->loop.n = done ? 0 : v->loop.n;
	return done;
}

/* Ends the session without waiting for the kernel: a mount namespace elsewhere may keep the mount for as long
 * as it likes. Closing the device is what ends the connection then. false: a thread is stuck in the store;
 * the device was taken from it, the rest must be left to it. */
static bool session_close(struct ntr_versions *v)
{
	atomic_store(&v->stopping, true);
	detach(v);
	if (v->se)
		fuse_session_exit(v->se);
	if (!threads_stop(v)) {
		ntr_autoclose int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		ntr_vlog("a request is stuck in the store; leaving its thread behind");
		if (null >= 0)
			(void)dup3(null, v->fd, O_CLOEXEC);
		return false;
	}
	if (v->se && fuse_session_fd(v->se) >= 0)
		v->fd = -1; /* destroyed with it */
	if (v->se)
		fuse_session_destroy(v->se);
	if (v->fd >= 0)
		close(v->fd);
	v->se = NULL;
	v->fd = -1;
	v->inited = false;
	v->loop.led = false;
	atomic_store(&v->alive, false);
	atomic_store(&v->stopping, false);
	return true;
}

static int open_device(struct ntr_versions *v, struct ntr_err *e)
{
	if (!v->mountpoint) {
		v->fd = v->o.fuse_fd;
		v->o.fuse_fd = -1;
		if (fcntl(v->fd, F_SETFD, FD_CLOEXEC) == 0)
			return 0;
		v->fd = -1;
		return ntr_err_set(e, -errno, "serve the FUSE device");
	}
	dev_t dev;
	int r = ntr_vmount(v->mountpoint, &v->fd, e);

	v->mounted = r == 0;
	if (r == 0)
		atomic_store(&v->dev, ntr_fuse_dev(v->mountpoint, &dev) < 0 ? 0 : dev);
	return r;
}

static int session_open(struct ntr_versions *v, bool uring, struct ntr_err *e)
{
	v->want_uring = uring;
	int r = session_new(v, e);

	if (r == 0)
		r = open_device(v, e);
	if (r == 0)
		r = session_attach(v, e);
	if (r == 0)
		r = threads_start(v, e);
	if (r == 0)
		r = wait_init(v, e);
	return r;
}

/* ---- choice of transport ---- */

static bool kernel_allows_uring(void)
{
	ntr_autofree char *text = NULL;
	size_t n;

	return ntr_read_file(AT_FDCWD, "/sys/module/fuse/parameters/enable_uring", 16, &text, &n) == 0 && n &&
	       (text[0] == 'Y' || text[0] == '1');
}

/* The kernel waits for a ring of every possible CPU before it lets any request through; libfuse makes one for
 * every configured one. */
static bool cpus_fit(void)
{
	ntr_autofree char *text = NULL;
	size_t n;

	if (ntr_read_file(AT_FDCWD, "/sys/devices/system/cpu/possible", 4096, &text, &n) < 0)
		return false;
	const char *last = strpbrk(text, "-,");

	while (last && strpbrk(last + 1, "-,"))
		last = strpbrk(last + 1, "-,");
	int possible = atoi(last ? last + 1 : text) + 1;

	return possible == get_nprocs_conf() && possible <= RING_CPUS_MAX;
}

/* The process that asks has none of our descriptors: as long as the device of a FUSE mount is open anywhere,
 * the kernel lets requests wait, and ours are to end with us. */
static pid_t probe_begin(const char *mountpoint)
{
	pid_t pid = fork();

	if (!pid) {
		struct statfs st;

		close_range(0, ~0u, 0);
		(void)!statfs(mountpoint, &st);
		_exit(0);
	}
	return pid;
}

/* Whether it ends in time. Descriptors may be scarce, so nothing is opened to wait for it. */
static bool probe_ends(pid_t pid)
{
	uint64_t until = ntr_mono_ns() + PROBE_WAIT_S * 1000000000ull;
	struct timespec pause = {.tv_nsec = 50000};

	while (waitpid(pid, NULL, WNOHANG) == 0) {
		if (ntr_mono_ns() > until)
			return false;
		nanosleep(&pause, NULL);
		pause.tv_nsec = NTR_MIN(pause.tv_nsec * 2, 5000000L);
	}
	return true;
}

/* Sends one request through a fresh mount and closes the session unless it is answered: a ring that misses
 * blocks all requests for good, and only the end of the session frees the one who waits. The answer also says
 * that the kernel has taken INIT's reply, which lowers the readahead: it can be raised now. */
static int probe_mount(struct ntr_versions *v, struct ntr_err *e)
{
	pid_t pid = probe_begin(v->mountpoint);

	if (pid < 0)
		return ntr_err_set(e, -errno, "start the threads of the versions mount");
	if (!probe_ends(pid)) {
		(void)session_close(v);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		return ntr_err_set(e, -ETIMEDOUT, "serve the versions mount");
	}
	dev_t dev = atomic_load(&v->dev);

	if (dev)
		ntr_vmount_readahead(dev, READAHEAD_KIB);
	return 0;
}

static int open_and_probe(struct ntr_versions *v, bool uring, struct ntr_err *e)
{
	int r = session_open(v, uring, e);

	if (r == 0 && v->mountpoint)
		r = probe_mount(v, e);
	return r;
}

static int open_best(struct ntr_versions *v, struct ntr_err *e)
{
	bool uring = v->o.uring && NTR_FUSE_URING && kernel_allows_uring() && cpus_fit();
	int r = open_and_probe(v, uring, e);

	/* A device that somebody else has mounted is served by whatever libfuse made of it. */
	if (!uring || !v->mountpoint || (r == 0 && atomic_load(&v->on_uring)))
		return r;
	if (r && v->se && v->fd < 0)
		return r; /* not even mounted: that has nothing to do with rings */
	ntr_vlog("io_uring did not start; using /dev/fuse");
	if (v->se && !session_close(v))
		return ntr_err_set(e, -EIO, "start the versions mount over /dev/fuse");
	atomic_store(&v->on_uring, false);
	if (e)
		*e = (struct ntr_err){0};
	return open_and_probe(v, false, e);
}

/* ---- start and stop ---- */

static void init_sync(struct ntr_versions *v)
{
	pthread_mutex_init(&v->lock, NULL);
	ntr_cond_init(&v->cond);
	pthread_mutex_init(&v->loop.lock, NULL);
	pthread_cond_init(&v->loop.cond, NULL);
}

static void driver_free(struct ntr_versions *v)
{
	ntr_vslots_free(v);
	ntr_vtable_free(v->table);
	pthread_cond_destroy(&v->loop.cond);
	pthread_mutex_destroy(&v->loop.lock);
	pthread_cond_destroy(&v->cond);
	pthread_mutex_destroy(&v->lock);
	if (v->o.fuse_fd >= 0)
		close(v->o.fuse_fd);
	free(v->mountpoint);
	free(v);
}

static struct ntr_versions *driver_new(struct ntr_store *s, const struct ntr_versions_options *o)
{
	struct ntr_versions *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	init_sync(v);
	ntr_vslots_init(v);
	v->store = s;
	v->o = *o;
	v->o.watchdog_s = o->watchdog_s ? o->watchdog_s : 30;
	v->fd = -1;
	v->uid = getuid();
	v->gid = getgid();
	clock_gettime(CLOCK_REALTIME, &v->born);
	v->root.ino = o->root ? NTR_INO_ROOT : 0;
	v->root.key = o->root;
	v->root.dir = v->root.pinned = true;
	atomic_store(&v->root.root, o->root);
	if (ntr_vtable_new(&v->table) < 0) {
		v->o.fuse_fd = -1;
		driver_free(v);
		return NULL;
	}
	return v;
}

static int check_root(struct ntr_versions *v, struct ntr_err *e)
{
	struct ntr_snap snap = ntr_snap_root(v->store, v->o.root);
	struct ntr_inode in;
	int r = v->o.root ? ntr_inode_get(&snap, NTR_INO_ROOT, &in) : 0;

	return r ? ntr_err_set(e, r, "read tree %016llx", (unsigned long long)v->o.root) : 0;
}

static int resolve(struct ntr_versions *v, const char *mountpoint, struct ntr_err *e)
{
	if (v->o.fuse_fd >= 0)
		return 0;
	v->mountpoint = realpath(mountpoint, NULL);
	if (v->mountpoint)
		return 0;
	int r = -errno;

	ntr_err_set(e, r, "mount the versions at '%s'", mountpoint);
	if (r == -ENOTCONN)
		ntr_err_todo(e, "a dead FUSE mount lies there: run 'fusermount3 -u -z' on it, or 'umount -l' "
		                "as root");
	return r;
}

int ntr_versions_start(struct ntr_store *s, const char *mountpoint, const struct ntr_versions_options *o,
        struct ntr_versions **ret, struct ntr_err *e)
{
	struct ntr_versions *v = driver_new(s, o);

	if (!v)
		return ntr_err_set(e, -ENOMEM, "start the versions mount");
	int r = resolve(v, mountpoint, e);

	if (r == 0)
		r = check_root(v, e);
	if (r == 0 && (r = ntr_vwatch_start(v)) < 0)
		ntr_err_set(e, r, "start the threads of the versions mount");
	if (r) {
		driver_free(v);
		return r;
	}
	(void)ntr_kv_warm(ntr_store_kv(s), NTR_CF_NODE, WARM_BYTES);
	r = open_best(v, e);
	if (r) {
		ntr_versions_stop(v);
		return r;
	}
	*ret = v;
	return 0;
}

/* Stopped with a thread stuck in the store: never freed, the thread still uses it. */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ntr_versions *left;

void ntr_versions_stop(struct ntr_versions *v)
{
	if (!v)
		return;
	bool ended = session_close(v);

	ntr_vwatch_stop(v);
	if (ended) {
		driver_free(v);
		return;
	}
	pthread_mutex_lock(&left_lock);
	v->next_left = left;
	left = v;
	pthread_mutex_unlock(&left_lock);
}

unsigned ntr_versions_left_behind(void)
{
	unsigned n = 0;

	pthread_mutex_lock(&left_lock);
	for (struct ntr_versions *v = left; v; v = v->next_left)
		n += ntr_vreqs(v);
	pthread_mutex_unlock(&left_lock);
	return n;
}
