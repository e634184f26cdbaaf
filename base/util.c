#include "util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

uint64_t ntr_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t ntr_wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int ntr_write_all(int fd, const void *buf, size_t n)
{
	const char *p = buf;

	while (n) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

int ntr_read_exact(int fd, void *buf, size_t n)
{
	char *p = buf;

	while (n) {
		ssize_t k = read(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (!k)
			return -ENODATA;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

int ntr_pread_exact(int fd, void *buf, size_t n, off_t off)
{
	char *p = buf;

	while (n) {
		ssize_t k = pread(fd, p, n, off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (!k)
			return -ENODATA;
		p += k;
		off += k;
		n -= (size_t)k;
	}
	return 0;
}

int ntr_read_file(int dirfd, const char *path, size_t max, char **ret_data, size_t *ret_len)
{
	ntr_autoclose int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	ntr_autofree char *data = NULL;
	size_t len = 0, cap = 0;

	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t k;

		if (cap - len < 2) {
			char *bigger = realloc(data, cap = cap ? cap * 2 : 4096);

			if (!bigger)
				return -ENOMEM;
			data = bigger;
		}
		k = read(fd, data + len, cap - len - 1);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (!k)
			break;
		len += (size_t)k;
		if (len > max)
			return -EFBIG;
	}
	data[len] = '\0';
	*ret_data = ntr_steal_ptr(data);
	if (ret_len)
		*ret_len = len;
	return 0;
}

void ntr_last_line(int fd, char *text, size_t size)
{
	struct stat st;
	off_t all = fstat(fd, &st) ? 0 : st.st_size, keep = (off_t)size - 1;
	ssize_t n = pread(fd, text, size - 1, all > keep ? all - keep : 0);

	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n > 0 ? n : 0] = '\0';
	const char *line = strrchr(text, '\n');

	if (line)
		memmove(text, line + 1, strlen(line));
}

int ntr_mkdir_p(const char *path, mode_t mode)
{
	ntr_autofree char *p = strdup(path);
	struct stat st;

	if (!p)
		return -ENOMEM;
	if (!*p)
		return -ENOENT;
	for (char *s = p + 1; *s; s++) {
		if (*s != '/')
			continue;
		*s = '\0';
		if (mkdir(p, mode) && errno != EEXIST)
			return -errno;
		*s = '/';
	}
	if (!mkdir(p, mode))
		return 0;
	if (errno != EEXIST || stat(p, &st))
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int rm_children(int dirfd, const char *name, dev_t dev, bool (*stop)(void *user), void *user)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = 0;
	struct dirent *d;
	struct stat st;
	DIR *dir;

	if (fd < 0 && errno == EACCES && !fchmodat(dirfd, name, 0700, 0))
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	if (!fstat(fd, &st) && (st.st_mode & 0700) != 0700)
		fchmod(fd, 0700);
	while ((d = readdir(dir))) {
		int k = 0;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (stop && stop(user)) {
			r = -ECANCELED;
			break;
		}
		if (!unlinkat(fd, d->d_name, 0) || errno == ENOENT)
			continue;
		if (errno != EISDIR)
			k = -errno;
		else if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) || st.st_dev != dev)
			k = -EBUSY;
		else if (!(k = rm_children(fd, d->d_name, dev, stop, user)) &&
		         unlinkat(fd, d->d_name, AT_REMOVEDIR))
			k = -errno;
		if (k && !r)
			r = k;
	}
	closedir(dir);
	return r;
}

int ntr_rm_rf(int dirfd, const char *name)
{
	return ntr_rm_rf_until(dirfd, name, NULL, NULL);
}

int ntr_rm_rf_until(int dirfd, const char *name, bool (*stop)(void *user), void *user)
{
	struct stat st;
	int r;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(dirfd, name, 0) ? -errno : 0;
	r = rm_children(dirfd, name, st.st_dev, stop, user);
	if (r)
		return r;
	return unlinkat(dirfd, name, AT_REMOVEDIR) ? -errno : 0;
}

int ntr_random(void *buf, size_t n)
{
	char *p = buf;

	while (n) {
		ssize_t k = getrandom(p, n, 0);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

char *ntr_sprintf(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : s;
}

void ntr_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &a);
	pthread_condattr_destroy(&a);
}

struct timespec ntr_mono_in(uint64_t ns)
{
	uint64_t at = ntr_mono_ns() + ns;

	return (struct timespec){.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
}

int ntr_recv_fd(int sock, int flags, char *ret_byte, int *ret_fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {.iov_base = ret_byte, .iov_len = 1};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf};
	struct cmsghdr *c;
	ssize_t n;

	*ret_fd = -1;
	do
		n = recvmsg(sock, &mh, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	c = CMSG_FIRSTHDR(&mh);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	        c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return 1;
}
