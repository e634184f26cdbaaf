#include "buf.h"
#include "util.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void ntr_buf_done(struct ntr_buf *b)
{
	free(b->data);
	*b = (struct ntr_buf){0};
}

int ntr_buf_reserve(struct ntr_buf *b, size_t n)
{
	size_t cap = b->cap ? b->cap : 64;
	uint8_t *p;

	if (b->err)
		return b->err;
	if (b->cap - b->len >= n)
		return 0;
	if (n > SIZE_MAX / 4 - b->len) /* the doubling below would wrap */
		return b->err = -ENOMEM;
	while (cap - b->len < n)
		cap *= 2;
	p = realloc(b->data, cap);
	if (!p)
		return b->err = -ENOMEM;
	b->data = p;
	b->cap = cap;
	return 0;
}

int ntr_buf_add(struct ntr_buf *b, const void *p, size_t n)
{
	if (ntr_buf_reserve(b, n))
		return b->err;
	if (n)
		memcpy(b->data + b->len, p, n);
	b->len += n;
	return 0;
}

int ntr_buf_byte(struct ntr_buf *b, uint8_t v)
{
	return ntr_buf_add(b, &v, 1);
}

int ntr_buf_le16(struct ntr_buf *b, uint16_t v)
{
	uint8_t p[2];

	ntr_put_le16(p, v);
	return ntr_buf_add(b, p, sizeof p);
}

int ntr_buf_le32(struct ntr_buf *b, uint32_t v)
{
	uint8_t p[4];

	ntr_put_le32(p, v);
	return ntr_buf_add(b, p, sizeof p);
}

int ntr_buf_le64(struct ntr_buf *b, uint64_t v)
{
	uint8_t p[8];

	ntr_put_le64(p, v);
	return ntr_buf_add(b, p, sizeof p);
}

int ntr_buf_be64(struct ntr_buf *b, uint64_t v)
{
	uint8_t p[8];

	ntr_put_be64(p, v);
	return ntr_buf_add(b, p, sizeof p);
}

int ntr_buf_str(struct ntr_buf *b, const char *s)
{
	return ntr_buf_add(b, s, strlen(s));
}

int ntr_buf_printf(struct ntr_buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return b->err = -EINVAL;
	if (ntr_buf_reserve(b, (size_t)n + 1))
		return b->err;
	va_start(ap, fmt);
	vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

const char *ntr_buf_cstr(struct ntr_buf *b)
{
	if (ntr_buf_reserve(b, 1))
		return NULL;
	b->data[b->len] = '\0';
	return (const char *)b->data;
}

int ntr_buf_read(struct ntr_buf *b, int fd, size_t max)
{
	for (;;) {
		ssize_t n;

		if (ntr_buf_reserve(b, 65536))
			return -ENOMEM;
		n = read(fd, b->data + b->len, 65536);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : 0;
		b->len += (size_t)n;
		if (b->len > max)
			return -EFBIG;
	}
}
