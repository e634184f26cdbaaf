/* powercut_rec: an LD_PRELOAD library that records what a process does to the files below one directory, in
 * order.
 *
 *     NTR_POWERCUT_ROOT  the directory, absolute, without a slash at its end
 *     NTR_POWERCUT_LOG   the record, appended to
 *     NTR_POWERCUT_COMM  only processes of this name (/proc/self/comm) are recorded
 *
 * Every record is written after its call succeeded and under one lock with it, so that the order of the
 * records is an order in which the calls can have happened. A sync is not held under the lock: SYNC_BEGIN and
 * SYNC_END enclose it, and what it makes durable is what was recorded before its SYNC_BEGIN.
 * tests/crash/powercut_model.py reads the record.
 *
 * What a library cannot see: calls from inside libc (stdio), io_uring, stores to shared mappings (a shared
 * writable mapping of a recorded file is recorded as such, and the reader refuses it). */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum op {
	OP_OPEN = 'o', /* path; ino; off: flags. A path that the reader does not know was made by it */
	OP_WRITE = 'w',
	OP_TRUNCATE = 't', /* off: the new size */
	OP_ALLOCATE = 'a', /* off, len: the size may grow */
	OP_SYNC_BEGIN = 'b',
	OP_SYNC_END = 's', /* off: the number of its SYNC_BEGIN, len: 1 for fdatasync; ino 0: everything */
	OP_RENAME = 'r',
	OP_LINK = 'l',
	OP_UNLINK = 'u',
	OP_MKDIR = 'd',
	OP_RMDIR = 'D',
	OP_SYMLINK = 'y',
	OP_ATTR = 'x',
	OP_MAP = 'm',
};

struct record {
	uint64_t ino, off, len;
	uint32_t data, path, path2; /* bytes that follow, in this order */
	uint8_t op, pad[3];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char root[PATH_MAX], log_path[PATH_MAX];
static size_t root_len;
static int log_fd = -1;
static pid_t owner;
static uint64_t syncs;

/* libc's own functions, looked up at the start: dlsym takes a lock, which a child of a fork may find held for
 * ever. */
/* Version 14 is never content with its own result here. */
/* clang-format off */
#define FUNCTIONS(X)                                                                                       \
	X(copy_file_range)                                                                                 \
	X(fallocate)                                                                                       \
	X(fchmod)                                                                                          \
	X(fdatasync)                                                                                       \
	X(fopen)                                                                                           \
	X(fsetxattr) X(fsync) X(ftruncate) X(linkat) X(mkdirat) X(mmap) X(openat) X(pwrite) X(pwritev2)    \
	        X(renameat) X(renameat2) X(sendfile) X(symlinkat) X(sync_file_range) X(syncfs) X(truncate) \
	                X(unlinkat) X(write) X(writev)
/* clang-format on */
#define DECLARE(name) static __typeof__(&name) real_##name;
FUNCTIONS(DECLARE)
#define REAL(name) real_##name

static void *real(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p)
		abort();
	return p;
}

static long (*raw)(long, ...);

static bool is_meant(void)
{
	const char *want = getenv("NTR_POWERCUT_COMM");
	char comm[32] = "";
	int fd;
	ssize_t n;

	if (!want)
		return true;
	fd = (int)raw(SYS_openat, AT_FDCWD, "/proc/self/comm", O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : raw(SYS_read, fd, comm, sizeof comm - 1);
	raw(SYS_close, fd);
	if (n > 0 && comm[n - 1] == '\n')
		comm[n - 1] = '\0';
	return !strcmp(comm, want);
}

static void open_log(void)
{
	int fd = (int)raw(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	log_fd = fd < 0 ? -1 : (int)raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 900);
	if (log_fd < 0)
		abort();
	raw(SYS_close, fd);
}

#define LOOK_UP(name) real_##name = (__typeof__(&name))real(#name);

static void init(void)
{
	const char *dir = getenv("NTR_POWERCUT_ROOT"), *log = getenv("NTR_POWERCUT_LOG");

	raw = (long (*)(long, ...))real("syscall");
	FUNCTIONS(LOOK_UP)
	if (!dir || !log || strlen(dir) >= sizeof root || strlen(log) >= sizeof log_path || !is_meant())
		return;
	strcpy(root, dir);
	strcpy(log_path, log);
	root_len = strlen(root);
	owner = getpid();
	open_log();
}

/* Other libraries' constructors may come first. */
__attribute__((constructor)) static void start(void)
{
	pthread_once(&once, init);
}

/* Only the process itself: a child that has not executed anything yet must not take locks, and may share this
 * memory. */
static bool on(void)
{
	if (!raw)
		start();
	return log_fd >= 0 && getpid() == owner;
}

static bool is_below(const char *path)
{
	return !strncmp(path, root, root_len) && (!path[root_len] || path[root_len] == '/');
}

/* The absolute path of name at dirfd, relative to the root. false: it is not below it. */
static bool path_of(int dirfd, const char *name, char ret[PATH_MAX])
{
	char link[64], dir[PATH_MAX], whole[2 * PATH_MAX];
	ssize_t n;

	if (name[0] == '/') {
		snprintf(whole, sizeof whole, "%s", name);
	} else {
		if (dirfd == AT_FDCWD)
			snprintf(link, sizeof link, "/proc/self/cwd");
		else
			snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
		n = raw(SYS_readlink, link, dir, sizeof dir - 1);
		if (n < 0)
			return false;
		dir[n] = '\0';
		snprintf(whole, sizeof whole, name[0] ? "%s/%s" : "%s%s", dir, name);
	}
	if (!is_below(whole) || strlen(whole) - root_len >= PATH_MAX)
		return false;
	strcpy(ret, whole[root_len] ? whole + root_len + 1 : "");
	return true;
}

/* Is the file below the root? Its number, or 0. */
static uint64_t ino_of(int fd)
{
	char path[PATH_MAX];
	struct stat st;

	if (!path_of(fd, "", path) || fstat(fd, &st))
		return 0;
	return st.st_ino;
}

static void put(struct record r, const char *path, const char *path2, const void *data)
{
	struct iovec v[4] = {{&r, sizeof r}, {(void *)(uintptr_t)data, r.data}, {(void *)(uintptr_t)path, 0},
	        {(void *)(uintptr_t)path2, 0}};
	long n;

	r.path = path ? (uint32_t)strlen(path) : 0;
	r.path2 = path2 ? (uint32_t)strlen(path2) : 0;
	v[2].iov_len = r.path;
	v[3].iov_len = r.path2;
	n = raw(SYS_writev, log_fd, v, 4);

	if (n < 0 && errno == EBADF) { /* a daemon closes whatever it was given */
		open_log();
		n = raw(SYS_writev, log_fd, v, 4);
	}
	if (n != (long)(sizeof r + r.data + r.path + r.path2))
		abort();
}

/* Takes the lock where this process is recorded. */
static bool begin(void)
{
	if (!on())
		return false;
	pthread_mutex_lock(&lock);
	return true;
}

static void end(bool on_)
{
	int saved = errno;

	if (on_)
		pthread_mutex_unlock(&lock);
	errno = saved;
}

/* ---- opening ---- */

static void note_open(int fd, int dirfd, const char *name, int flags)
{
	char path[PATH_MAX];
	struct stat st;
	int saved = errno;

	if (fd >= 0 && (flags & (O_CREAT | O_TRUNC)) && path_of(dirfd, name, path) && !fstat(fd, &st) &&
	        S_ISREG(st.st_mode))
		put((struct record){.op = OP_OPEN, .ino = st.st_ino, .off = (uint64_t)flags}, path, NULL,
		        NULL);
	errno = saved;
}

static int do_open(int dirfd, const char *name, int flags, mode_t mode)
{
	/* Others are not recorded, and must not wait under the lock: the daemon opens what it serves itself.
	 */
	bool locked = (flags & (O_CREAT | O_TRUNC)) && begin();
	int fd = REAL(openat)(dirfd, name, flags, mode);

	if (locked)
		note_open(fd, dirfd, name, flags);
	end(locked);
	return fd;
}

#define OPEN_MODE(flags, mode)                         \
	do {                                           \
		if ((flags) & (O_CREAT | O_TMPFILE)) { \
			va_list ap;                    \
			va_start(ap, flags);           \
			mode = va_arg(ap, mode_t);     \
			va_end(ap);                    \
		}                                      \
	} while (0)

EXPORT int open(const char *name, int flags, ...)
{
	mode_t mode = 0;

	OPEN_MODE(flags, mode);
	return do_open(AT_FDCWD, name, flags, mode);
}
EXPORT int openat(int dirfd, const char *name, int flags, ...)
{
	mode_t mode = 0;

	OPEN_MODE(flags, mode);
	return do_open(dirfd, name, flags, mode);
}
/* What fortified programs call where the flags are no constant (never with O_CREAT). */
EXPORT int __open_2(const char *name, int flags);
EXPORT int __openat_2(int dirfd, const char *name, int flags);
int __open_2(const char *name, int flags)
{
	return do_open(AT_FDCWD, name, flags, 0);
}
int __openat_2(int dirfd, const char *name, int flags)
{
	return do_open(dirfd, name, flags, 0);
}
EXPORT int creat(const char *name, mode_t mode)
{
	return do_open(AT_FDCWD, name, O_CREAT | O_TRUNC | O_WRONLY, mode);
}

/* A stream's writes happen inside libc: that it was opened is all that can be seen. */
static FILE *do_fopen(const char *name, const char *mode)
{
	bool locked = begin();
	FILE *f = REAL(fopen)(name, mode);

	if (locked && f)
		note_open(fileno(f), AT_FDCWD, name,
		        mode[0] == 'w'   ? O_CREAT | O_TRUNC
		        : mode[0] == 'a' ? O_CREAT
		                         : 0);
	end(locked);
	return f;
}
EXPORT FILE *fopen(const char *name, const char *mode)
{
	return do_fopen(name, mode);
}

/* ---- content ---- */

static void note_write(int fd, const void *data, ssize_t n, off_t off)
{
	int saved = errno;
	uint64_t ino = n > 0 ? ino_of(fd) : 0;

	if (ino)
		put((struct record){.op = OP_WRITE,
		            .ino = ino,
		            .off = (uint64_t)off,
		            .len = (uint64_t)n,
		            .data = (uint32_t)n},
		        NULL, NULL, data);
	errno = saved;
}

/* Where a write at the file's own position went: it ends there now. */
static off_t position(int fd, ssize_t n)
{
	off_t at = lseek(fd, 0, SEEK_CUR);

	return at < n ? 0 : at - n;
}

EXPORT ssize_t write(int fd, const void *data, size_t n)
{
	bool locked = begin();
	ssize_t k = REAL(write)(fd, data, n);

	if (locked && k > 0 && ino_of(fd))
		note_write(fd, data, k, position(fd, k));
	end(locked);
	return k;
}

static ssize_t do_pwrite(int fd, const void *data, size_t n, off_t off)
{
	bool locked = begin();
	ssize_t k = REAL(pwrite)(fd, data, n, off);

	if (locked)
		note_write(fd, data, k, off);
	end(locked);
	return k;
}
EXPORT ssize_t pwrite(int fd, const void *data, size_t n, off_t off)
{
	return do_pwrite(fd, data, n, off);
}

static void note_vector(int fd, const struct iovec *v, int count, ssize_t n, off_t off)
{
	for (int i = 0; i < count && n > 0; i++) {
		ssize_t k = n < (ssize_t)v[i].iov_len ? n : (ssize_t)v[i].iov_len;

		note_write(fd, v[i].iov_base, k, off);
		n -= k;
		off += k;
	}
}

EXPORT ssize_t writev(int fd, const struct iovec *v, int count)
{
	bool locked = begin();
	ssize_t k = REAL(writev)(fd, v, count);

	if (locked && k > 0 && ino_of(fd))
		note_vector(fd, v, count, k, position(fd, k));
	end(locked);
	return k;
}

static ssize_t do_pwritev(int fd, const struct iovec *v, int count, off_t off, int flags)
{
	bool locked = begin();
	ssize_t k = REAL(pwritev2)(fd, v, count, off, flags);

	if (locked && k > 0)
		note_vector(fd, v, count, k, off == -1 ? position(fd, k) : off);
	end(locked);
	return k;
}
EXPORT ssize_t pwritev(int fd, const struct iovec *v, int count, off_t off)
{
	return do_pwritev(fd, v, count, off, 0);
}
EXPORT ssize_t pwritev2(int fd, const struct iovec *v, int count, off_t off, int flags)
{
	return do_pwritev(fd, v, count, off, flags);
}

/* Copies inside the kernel: what they wrote is read back. */
static void note_copied(int fd, ssize_t n, off_t off)
{
	char *buf = n > 0 && ino_of(fd) ? malloc((size_t)n) : NULL;
	char link[64];
	int in;

	if (!buf)
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	in = (int)raw(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
	if (in < 0 || raw(SYS_pread64, in, buf, n, off) != n)
		abort();
	raw(SYS_close, in);
	note_write(fd, buf, n, off);
	free(buf);
}

EXPORT ssize_t copy_file_range(int in, off64_t *off_in, int out, off64_t *off_out, size_t n, unsigned flags)
{
	bool locked = begin();
	ssize_t k = REAL(copy_file_range)(in, off_in, out, off_out, n, flags);

	if (locked && k > 0)
		note_copied(out, k, off_out ? *off_out - k : position(out, k));
	end(locked);
	return k;
}
static ssize_t do_sendfile(int out, int in, off_t *off, size_t n)
{
	bool locked = begin();
	ssize_t k = REAL(sendfile)(out, in, off, n);

	if (locked && k > 0 && ino_of(out))
		note_copied(out, k, position(out, k));
	end(locked);
	return k;
}

EXPORT ssize_t sendfile(int out, int in, off_t *off, size_t n)
{
	return do_sendfile(out, in, off, n);
}

static void note_fd(int r, int fd, enum op op, uint64_t off, uint64_t len)
{
	int saved = errno;
	uint64_t ino = r ? 0 : ino_of(fd);

	if (ino)
		put((struct record){.op = (uint8_t)op, .ino = ino, .off = off, .len = len}, NULL, NULL, NULL);
	errno = saved;
}

static int do_ftruncate(int fd, off_t size)
{
	bool locked = begin();
	int r = REAL(ftruncate)(fd, size);

	if (locked)
		note_fd(r, fd, OP_TRUNCATE, (uint64_t)size, 0);
	end(locked);
	return r;
}
EXPORT int ftruncate(int fd, off_t size)
{
	return do_ftruncate(fd, size);
}

static int do_truncate(const char *name, off_t size)
{
	bool locked = begin();
	int r = REAL(truncate)(name, size);
	char path[PATH_MAX];
	struct stat st;

	if (locked && !r && path_of(AT_FDCWD, name, path) && !stat(name, &st))
		put((struct record){.op = OP_TRUNCATE, .ino = st.st_ino, .off = (uint64_t)size}, NULL, NULL,
		        NULL);
	end(locked);
	return r;
}
EXPORT int truncate(const char *name, off_t size)
{
	return do_truncate(name, size);
}

static int do_fallocate(int fd, int mode, off_t off, off_t len)
{
	bool locked = begin();
	int r = REAL(fallocate)(fd, mode, off, len);

	/* Mode 0 alone grows the size; whoever uses another that changes content has to be taught here. */
	if (locked && !r && (mode & ~FALLOC_FL_KEEP_SIZE) && ino_of(fd))
		abort();
	if (locked && !mode)
		note_fd(r, fd, OP_ALLOCATE, (uint64_t)off, (uint64_t)len);
	end(locked);
	return r;
}
EXPORT int fallocate(int fd, int mode, off_t off, off_t len)
{
	return do_fallocate(fd, mode, off, len);
}
EXPORT int posix_fallocate(int fd, off_t off, off_t len)
{
	return do_fallocate(fd, 0, off, len) ? errno : 0;
}

EXPORT void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
	bool locked = raw && fd >= 0 && (prot & PROT_WRITE) && (flags & MAP_SHARED) && begin();
	void *p = REAL(mmap) ? REAL(mmap)(addr, n, prot, flags, fd, off) : MAP_FAILED;

	if (!REAL(mmap)) /* before anything was looked up */
		errno = ENOMEM;
	if (locked)
		note_fd(p == MAP_FAILED, fd, OP_MAP, (uint64_t)off, n);
	end(locked);
	return p;
}

/* ---- syncs ---- */

static uint64_t sync_begin(int fd)
{
	bool locked = begin();
	uint64_t ino = locked && fd >= 0 ? ino_of(fd) : 0, n = 0;

	if (locked && (ino || fd < 0)) {
		n = ++syncs;
		put((struct record){.op = OP_SYNC_BEGIN, .ino = ino, .off = n}, NULL, NULL, NULL);
	}
	end(locked);
	return n;
}

static void sync_end(int r, uint64_t n, int fd, bool data)
{
	int saved = errno;

	if (n && !r && begin()) {
		put(
		        (struct record){
		                .op = OP_SYNC_END, .ino = fd >= 0 ? ino_of(fd) : 0, .off = n, .len = data},
		        NULL, NULL, NULL);
		end(true);
	}
	errno = saved;
}

EXPORT int fsync(int fd)
{
	uint64_t n = sync_begin(fd);
	int r = REAL(fsync)(fd);

	sync_end(r, n, fd, false);
	return r;
}
EXPORT int fdatasync(int fd)
{
	uint64_t n = sync_begin(fd);
	int r = REAL(fdatasync)(fd);

	sync_end(r, n, fd, true);
	return r;
}
/* Promises nothing about a disk's cache or a file's size: it makes nothing durable here. */
EXPORT int sync_file_range(int fd, off64_t off, off64_t n, unsigned flags)
{
	on();
	return REAL(sync_file_range)(fd, off, n, flags);
}
EXPORT int syncfs(int fd)
{
	uint64_t n = sync_begin(-1);
	int r = REAL(syncfs)(fd);

	sync_end(r, n, -1, false);
	return r;
}

/* ---- names ---- */

/* Calls on one or two names: recorded when one of them is below the root. */
static void note_names(
        int r, enum op op, int dir, const char *name, int dir2, const char *name2, uint64_t off)
{
	char a[PATH_MAX], b[PATH_MAX];
	int saved = errno;

	struct stat st = {.st_ino = 0};

	if (op == OP_MKDIR && !r && fstatat(dir, name, &st, 0))
		abort();
	if (!r && path_of(dir, name, a) && (!name2 || path_of(dir2, name2, b)))
		put((struct record){.op = (uint8_t)op, .ino = st.st_ino, .off = off}, a, name2 ? b : NULL,
		        NULL);
	errno = saved;
}

static int do_rename(int dir, const char *name, int dir2, const char *name2, unsigned flags)
{
	bool locked = begin();
	int r = flags ? REAL(renameat2)(dir, name, dir2, name2, flags)
	              : REAL(renameat)(dir, name, dir2, name2);

	if (locked)
		note_names(r, OP_RENAME, dir, name, dir2, name2, flags);
	end(locked);
	return r;
}
EXPORT int rename(const char *name, const char *name2)
{
	return do_rename(AT_FDCWD, name, AT_FDCWD, name2, 0);
}
EXPORT int renameat(int dir, const char *name, int dir2, const char *name2)
{
	return do_rename(dir, name, dir2, name2, 0);
}
EXPORT int renameat2(int dir, const char *name, int dir2, const char *name2, unsigned flags)
{
	return do_rename(dir, name, dir2, name2, flags);
}

static int do_link(int dir, const char *name, int dir2, const char *name2, int flags)
{
	bool locked = begin();
	int r = REAL(linkat)(dir, name, dir2, name2, flags);

	if (locked)
		note_names(r, OP_LINK, dir, name, dir2, name2, 0);
	end(locked);
	return r;
}
EXPORT int link(const char *name, const char *name2)
{
	return do_link(AT_FDCWD, name, AT_FDCWD, name2, 0);
}
EXPORT int linkat(int dir, const char *name, int dir2, const char *name2, int flags)
{
	return do_link(dir, name, dir2, name2, flags);
}

static int do_unlink(int dir, const char *name, int flags)
{
	bool locked = begin();
	int r = REAL(unlinkat)(dir, name, flags);

	if (locked)
		note_names(r, flags & AT_REMOVEDIR ? OP_RMDIR : OP_UNLINK, dir, name, 0, NULL, 0);
	end(locked);
	return r;
}
EXPORT int unlink(const char *name)
{
	return do_unlink(AT_FDCWD, name, 0);
}
EXPORT int unlinkat(int dir, const char *name, int flags)
{
	return do_unlink(dir, name, flags);
}
EXPORT int rmdir(const char *name)
{
	return do_unlink(AT_FDCWD, name, AT_REMOVEDIR);
}

static int do_mkdir(int dir, const char *name, mode_t mode)
{
	bool locked = begin();
	int r = REAL(mkdirat)(dir, name, mode);

	if (locked)
		note_names(r, OP_MKDIR, dir, name, 0, NULL, mode);
	end(locked);
	return r;
}
EXPORT int mkdir(const char *name, mode_t mode)
{
	return do_mkdir(AT_FDCWD, name, mode);
}
EXPORT int mkdirat(int dir, const char *name, mode_t mode)
{
	return do_mkdir(dir, name, mode);
}

static int do_symlink(const char *to, int dir, const char *name)
{
	bool locked = begin();
	int r = REAL(symlinkat)(to, dir, name);
	char path[PATH_MAX];

	if (locked && !r && path_of(dir, name, path))
		put((struct record){.op = OP_SYMLINK, .data = (uint32_t)strlen(to)}, path, NULL, to);
	end(locked);
	return r;
}
EXPORT int symlink(const char *to, const char *name)
{
	return do_symlink(to, AT_FDCWD, name);
}
EXPORT int symlinkat(const char *to, int dir, const char *name)
{
	return do_symlink(to, dir, name);
}

/* ---- attributes: recorded, so that whoever comes to depend on one is seen ---- */

EXPORT int fsetxattr(int fd, const char *name, const void *val, size_t n, int flags)
{
	bool locked = begin();
	int r = REAL(fsetxattr)(fd, name, val, n, flags);

	if (locked)
		note_fd(r, fd, OP_ATTR, 0, n);
	end(locked);
	return r;
}
EXPORT int fchmod(int fd, mode_t mode)
{
	bool locked = begin();
	int r = REAL(fchmod)(fd, mode);

	if (locked)
		note_fd(r, fd, OP_ATTR, 0, mode);
	end(locked);
	return r;
}

/* ---- the same calls made by number ---- */

EXPORT long syscall(long nr, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	on();
	switch (nr) {
	case SYS_write:
		return write((int)a[0], (const void *)a[1], (size_t)a[2]);
	case SYS_pwrite64:
		return pwrite((int)a[0], (const void *)a[1], (size_t)a[2], a[3]);
	case SYS_openat:
		return do_open((int)a[0], (const char *)a[1], (int)a[2], (mode_t)a[3]);
	case SYS_ftruncate:
		return do_ftruncate((int)a[0], a[1]);
	case SYS_fallocate:
		return do_fallocate((int)a[0], (int)a[1], a[2], a[3]);
	case SYS_fsync:
		return fsync((int)a[0]);
	case SYS_fdatasync:
		return fdatasync((int)a[0]);
	case SYS_renameat2:
		return do_rename(
		        (int)a[0], (const char *)a[1], (int)a[2], (const char *)a[3], (unsigned)a[4]);
	case SYS_unlinkat:
		return do_unlink((int)a[0], (const char *)a[1], (int)a[2]);
	default:
		return raw(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}

/* ---- the same calls by their names for 64-bit offsets ---- */

#define TWIN(twin, name) extern __typeof__(name) twin __attribute__((alias(#name), visibility("default")))
TWIN(open64, open);
TWIN(openat64, openat);
TWIN(__open64_2, __open_2);
TWIN(__openat64_2, __openat_2);
TWIN(fopen64, fopen);
TWIN(pwrite64, pwrite);
TWIN(pwritev64, pwritev);
TWIN(pwritev64v2, pwritev2);
TWIN(sendfile64, sendfile);
TWIN(ftruncate64, ftruncate);
TWIN(truncate64, truncate);
TWIN(fallocate64, fallocate);
