/* faultio: an LD_PRELOAD that makes a daemon's file operations fail, or hang, as a file says.
 *
 * FAULTIO names that file, whose text is read at every operation: words OP=WHAT, OP of write, sync, read,
 * open, WHAT an errno's number or "hang" (until the word is gone). It counts for files in a folder db/ whose
 * names end in .sst or .log, or are manifests: what RocksDB writes. No file, or an empty one: all is well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ends(const char *path, const char *end)
{
	size_t n = strlen(path), k = strlen(end);

	return n >= k && !strcmp(path + n - k, end);
}

static int counts(const char *path)
{
	return strstr(path, "/db/") &&
	       (ends(path, ".sst") || ends(path, ".log") || strstr(path, "/MANIFEST-"));
}

/* 0, an errno, or -1: hang. */
static int said(const char *op)
{
	const char *ctl = getenv("FAULTIO");
	char text[256], word[32], *at;
	int fd = ctl ? (int)syscall(SYS_openat, AT_FDCWD, ctl, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t n = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof text - 1);

	if (fd >= 0)
		syscall(SYS_close, fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	snprintf(word, sizeof word, "%s=", op);
	at = strstr(text, word);
	if (!at)
		return 0;
	at += strlen(word);
	return strncmp(at, "hang", 4) ? atoi(at) : -1;
}

static int fails(const char *op, const char *path)
{
	int r;

	if (!counts(path))
		return 0;
	while ((r = said(op)) < 0)
		usleep(50000);
	errno = r;
	return r;
}

static int fails_fd(const char *op, int fd)
{
	char link[64], path[4096];
	ssize_t n;

	if (!getenv("FAULTIO"))
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	if (n <= 0)
		return 0;
	path[n] = '\0';
	return fails(op, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *p, size_t n)
{
	return fails_fd("write", fd) ? -1 : REAL(write)(fd, p, n);
}

int fdatasync(int fd)
{
	return fails_fd("sync", fd) ? -1 : REAL(fdatasync)(fd);
}

int fsync(int fd)
{
	return fails_fd("sync", fd) ? -1 : REAL(fsync)(fd);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
	return fails_fd("read", fd) ? -1 : REAL(pread)(fd, p, n, at);
}

int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return fails("open", path) ? -1 : REAL(open)(path, flags, mode);
}
