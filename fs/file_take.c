#include "file_impl.h"

#include <errno.h>
#include <fcntl.h>

enum { READ_SIZE = 1 << 20 };

int ntr_file_take_mem(struct ntr_txn *t, struct ntr_inode *in, const void *data, size_t n)
{
	struct ntr_file_build b;
	const uint8_t *p = data;

	if (n > NTR_FILE_MAX)
		return -EFBIG;
	ntr_file_build_init(&b, t, in);
	if (n <= NTR_CHUNK_SIZE)
		return ntr_file_build_small(&b, data, n);
	for (uint64_t off = 0; off < n; off += NTR_CHUNK_SIZE) {
		int r = ntr_file_build_put(
		        &b, off / NTR_CHUNK_SIZE, p + off, NTR_MIN(n - (size_t)off, (size_t)NTR_CHUNK_SIZE));

		if (r)
			return r;
	}
	return ntr_file_build_end(&b, n);
}

/* Reads n bytes at off; zeros from the end of the file on, and *ret_short. */
static int read_at(int fd, uint8_t *buf, size_t n, uint64_t off, bool *ret_short)
{
	while (n) {
		ssize_t k = pread(fd, buf, n, (off_t)off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (!k) {
			memset(buf, 0, n);
			*ret_short = true;
			return 0;
		}
		buf += k;
		off += (uint64_t)k;
		n -= (size_t)k;
	}
	return 0;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return !p[0] && !memcmp(p, p + 1, n - 1);
}

/* SEEK_DATA / SEEK_HOLE for a range below size: *ret is at most size. File systems that cannot tell have no
 * holes. */
static int seek_fd(int fd, uint64_t off, int whence, uint64_t size, uint64_t *ret)
{
	off_t k = lseek(fd, (off_t)off, whence);

	if (k < 0 && errno != ENXIO && errno != EINVAL && errno != EOPNOTSUPP)
		return -errno;
	if (k < 0)
		*ret = errno != ENXIO && whence == SEEK_DATA ? off : size;
	else
		*ret = NTR_MIN((uint64_t)k, size);
	return 0;
}

int ntr_file_read_small(int fd, uint8_t *buf, size_t size, bool *ret_hole, bool *ret_short)
{
	uint64_t data = 0;
	int r = read_at(fd, buf, size, 0, ret_short);

	if (!r && size && all_zero(buf, size))
		r = seek_fd(fd, 0, SEEK_DATA, size, &data);
	*ret_hole = data && data == size;
	return r;
}

/* Hands over the chunks of [off, end), off at a chunk's beginning and end at one or at the file's size. */
static int scan_range(
        const struct ntr_file_scan *sc, int fd, uint64_t off, uint64_t end, uint8_t *buf, bool *ret_short)
{
	while (off < end && !*ret_short) {
		size_t n = (size_t)NTR_MIN(end - off, (uint64_t)READ_SIZE);
		int r = read_at(fd, buf, n, off, ret_short);

		for (size_t at = 0; !r && at < n; at += NTR_CHUNK_SIZE)
			r = sc->put(sc->user, (off + at) / NTR_CHUNK_SIZE, buf + at,
			        NTR_MIN(n - at, (size_t)NTR_CHUNK_SIZE));
		if (r)
			return r;
		off += n;
	}
	return 0;
}

/* The next range of data at or behind off, widened to whole chunks; begins at size where there is none. */
static int next_range(
        int fd, uint64_t off, uint64_t size, uint64_t *ret_begin, uint64_t *ret_end, bool *ret_short)
{
	uint64_t data = size, hole = size;
	int r = seek_fd(fd, off, SEEK_DATA, size, &data);

	if (!r && data < size) {
		r = seek_fd(fd, data, SEEK_HOLE, size, &hole);
		*ret_short = !r && hole <= data; /* it shrank between the two */
	}
	*ret_begin = data < size ? data / NTR_CHUNK_SIZE * NTR_CHUNK_SIZE : size;
	*ret_end = NTR_MIN((hole + NTR_CHUNK_SIZE - 1) / NTR_CHUNK_SIZE * NTR_CHUNK_SIZE, size);
	return r;
}

int ntr_file_scan_fd(const struct ntr_file_scan *sc, int fd, uint64_t size, bool *ret_short)
{
	ntr_autofree uint8_t *buf = malloc(
	        NTR_MIN((size + NTR_CHUNK_SIZE - 1) & ~(uint64_t)(NTR_CHUNK_SIZE - 1), (uint64_t)READ_SIZE));
	uint64_t begin, off = 0;

	if (!buf)
		return -ENOMEM;
	while (off < size && !*ret_short) {
		int r = next_range(fd, off, size, &begin, &off, ret_short);

		if (!r && !*ret_short)
			r = scan_range(sc, fd, begin, off, buf, ret_short);
		if (r)
			return r;
	}
	return 0;
}

static int take_small(struct ntr_file_build *b, int fd, size_t size, bool *ret_short)
{
	uint8_t buf[NTR_CHUNK_SIZE];
	bool hole;
	int r = ntr_file_read_small(fd, buf, size, &hole, ret_short);

	if (r)
		return r;
	return hole ? ntr_file_build_end(b, size) : ntr_file_build_small(b, buf, size);
}

static int put_in_build(void *user, uint64_t index, const uint8_t *data, size_t len)
{
	return ntr_file_build_put(user, index, data, len);
}

int ntr_file_take_fd(struct ntr_txn *t, struct ntr_inode *in, int fd, uint64_t size, bool *ret_short)
{
	struct ntr_file_build b;
	int r;

	*ret_short = false;
	if (size > NTR_FILE_MAX)
		return -EFBIG;
	ntr_file_build_init(&b, t, in);
	if (size <= NTR_CHUNK_SIZE)
		return take_small(&b, fd, (size_t)size, ret_short);
	r = ntr_file_scan_fd(&(struct ntr_file_scan){put_in_build, &b}, fd, size, ret_short);
	return r ? r : ntr_file_build_end(&b, size);
}
