/* failing_io: writes, syncs and openings of files below one folder that fail when told to, whoever in the
 * process makes them. For one source file of a program: it defines the libc's functions. */
#ifndef NTR_TESTS_FAILING_IO_H
#define NTR_TESTS_FAILING_IO_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FIO_WRITE = 1, FIO_SYNC = 2, FIO_OPEN = 4, FIO_READ = 8 };

static struct {
	char dir[320];      /* what lies below it may fail */
	const char *suffix; /* only names that end so; NULL: all */
	_Atomic int what, err;
	_Atomic long after; /* so many go well first … */
	_Atomic long times; /* … and so many fail; -1: all */
	_Atomic long met;
} fio;

static void fio_arm(int what, int err, long after, long times)
{
	atomic_store(&fio.what, 0);
	atomic_store(&fio.met, 0);
	atomic_store(&fio.err, err);
	atomic_store(&fio.after, after);
	atomic_store(&fio.times, times);
	atomic_store(&fio.what, what);
}

static bool fio_below(const char *path)
{
	size_t n = strlen(path), k = fio.suffix ? strlen(fio.suffix) : 0;

	return fio.dir[0] && !strncmp(path, fio.dir, strlen(fio.dir)) && n >= k &&
	       strcmp(path + n - 4, "/LOG") && (!k || !strcmp(path + n - k, fio.suffix));
}

static bool fio_hits(int what, const char *path)
{
	if (!(atomic_load(&fio.what) & what) || !fio_below(path))
		return false;
	if (atomic_fetch_sub(&fio.after, 1) > 0)
		return false;
	long left = atomic_load(&fio.times);

	if (left == 0 || (left > 0 && atomic_fetch_sub(&fio.times, 1) <= 0))
		return false;
	atomic_fetch_add(&fio.met, 1);
	errno = atomic_load(&fio.err);
	return true;
}

static bool fio_fd(int what, int fd)
{
	char link[64], path[600];
	ssize_t n;

	if (!(atomic_load(&fio.what) & what))
		return false;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	return fio_hits(what, path);
}

#define FIO_REAL(ret, name, ...)                         \
	static ret (*real)(__VA_ARGS__);                 \
	if (!real) {                                     \
		union {                                  \
			void *p;                         \
			ret (*f)(__VA_ARGS__);           \
		} fio_u = {.p = dlsym(RTLD_NEXT, name)}; \
		real = fio_u.f;                          \
	}

ssize_t write(int fd, const void *p, size_t n)
{
	FIO_REAL(ssize_t, "write", int, const void *, size_t)
	if (fio_fd(FIO_WRITE, fd)) {
		/* half of it arrives, as on a disk that dies */
		int err = errno;

		(void)!real(fd, p, n / 2);
		errno = err;
		return -1;
	}
	return real(fd, p, n);
}

int fdatasync(int fd)
{
	FIO_REAL(int, "fdatasync", int)
	return fio_fd(FIO_SYNC, fd) ? -1 : real(fd);
}

int fsync(int fd)
{
	FIO_REAL(int, "fsync", int)
	return fio_fd(FIO_SYNC, fd) ? -1 : real(fd);
}

/* By these names, whatever the headers make of pread and open where files are large: what RocksDB calls. */
ssize_t fio_pread(int fd, void *p, size_t n, off_t at) __asm__("pread");
int fio_open(const char *path, int flags, ...) __asm__("open");

ssize_t fio_pread(int fd, void *p, size_t n, off_t at)
{
	FIO_REAL(ssize_t, "pread", int, void *, size_t, off_t)
	return fio_fd(FIO_READ, fd) ? -1 : real(fd, p, n, at);
}

int fio_open(const char *path, int flags, ...)
{
	FIO_REAL(int, "open", const char *, int, ...)
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return fio_hits(FIO_OPEN, path) ? -1 : real(path, flags, mode);
}

#endif
