/* util: the small things every module needs: cleanup attributes, fixed-endian integers, clocks, exact reads.
 */
#ifndef NTR_BASE_UTIL_H
#define NTR_BASE_UTIL_H

#include <endian.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static inline void ntr_freep(void *p)
{
	free(*(void **)p);
}

static inline void ntr_closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define ntr_autofree  __attribute__((cleanup(ntr_freep)))
#define ntr_autoclose __attribute__((cleanup(ntr_closep)))
#define ntr_auto(fn)  __attribute__((cleanup(fn)))

/* Takes the value out of a variable with a cleanup attribute, so that the caller's caller owns it. */
#define ntr_steal_ptr(p)                         \
	({                                       \
		__typeof__(p) ntr_stolen_ = (p); \
		(p) = NULL;                      \
		ntr_stolen_;                     \
	})

static inline int ntr_steal_fd(int *fd)
{
	int f = *fd;

	*fd = -1;
	return f;
}

/* Each use gets names of its own, so that they nest. */
#define NTR_PICK_(a, b, op, x, y)      \
	({                             \
		__typeof__(a) x = (a); \
		__typeof__(b) y = (b); \
		x op y ? x : y;        \
	})
#define NTR_PICK2_(a, b, op, n) NTR_PICK3_(a, b, op, n)
#define NTR_PICK3_(a, b, op, n) NTR_PICK_(a, b, op, ntr_a##n##_, ntr_b##n##_)
#define NTR_MIN(a, b)           NTR_PICK2_(a, b, <, __COUNTER__)
#define NTR_MAX(a, b)           NTR_PICK2_(a, b, >, __COUNTER__)
#define NTR_COUNT(a)            (sizeof(a) / sizeof((a)[0]))

/* Keys are big-endian (they sort), values little-endian. */
static inline void ntr_put_be64(void *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, 8);
}

static inline uint64_t ntr_get_be64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return be64toh(v);
}

static inline void ntr_put_le64(void *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, 8);
}

static inline uint64_t ntr_get_le64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return le64toh(v);
}

static inline void ntr_put_le32(void *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}

static inline uint32_t ntr_get_le32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return le32toh(v);
}

static inline void ntr_put_le16(void *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, 2);
}

static inline uint16_t ntr_get_le16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, 2);
	return le16toh(v);
}

/* Monotonic and wall clock, nanoseconds. */
uint64_t ntr_mono_ns(void);
uint64_t ntr_wall_ns(void);

/* Write / read exactly n bytes, over short transfers and EINTR. 0, or negative errno; a read that meets the
 * end of file early is -ENODATA. The p variants take an offset. */
int ntr_write_all(int fd, const void *buf, size_t n);
int ntr_read_exact(int fd, void *buf, size_t n);
int ntr_pread_exact(int fd, void *buf, size_t n, off_t off);

/* Reads a whole small file (path relative to dirfd, at most max bytes) into a fresh, NUL-terminated buffer
 * that the caller frees. Returns 0 or negative errno (-EFBIG above max). */
int ntr_read_file(int dirfd, const char *path, size_t max, char **ret_data, size_t *ret_len);

/* What a program said last: the last line with text in the file fd, cut at its front to fit size (>= 1),
 * without its end; "" where there is none. A warning may precede the reason. */
void ntr_last_line(int fd, char *text, size_t size);

/* Receives one byte, by recvmsg with flags, and the descriptor (O_CLOEXEC) that may come with it. *ret_fd -1:
 * none came. 1, 0 at the socket's end, or negative errno; *ret_byte then stays. */
int ntr_recv_fd(int sock, int flags, char *ret_byte, int *ret_fd);

/* mkdir -p with mode for the folders it makes. 0 or negative errno. */
int ntr_mkdir_p(const char *path, mode_t mode);

/* Removes a tree below dirfd/name without following symlinks or crossing mounts; folders without rights are
 * given them first. A missing name is success. Returns 0 or the first negative errno, having removed what it
 * could. */
int ntr_rm_rf(int dirfd, const char *name);
/* The same until stop says so, which is asked before each entry: -ECANCELED then, and what is left stays. */
int ntr_rm_rf_until(int dirfd, const char *name, bool (*stop)(void *user), void *user);

/* n random bytes from the kernel (getrandom). 0 or negative errno. */
int ntr_random(void *buf, size_t n);

/* A condition variable whose timed waits go by CLOCK_MONOTONIC, and the time in ns from now for them. */
void ntr_cond_init(pthread_cond_t *cond);
struct timespec ntr_mono_in(uint64_t ns);

/* A format's result in fresh memory, or NULL. */
char *ntr_sprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
