/* buf: a byte buffer that grows. Zero-initialise it; an error sticks, so a run of appends is checked once. */
#ifndef NTR_BASE_BUF_H
#define NTR_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct ntr_buf {
	uint8_t *data;
	size_t len, cap;
	int err; /* 0 or -ENOMEM, sticky */
};

/* Frees the bytes and zeroes the buffer. Usable as a cleanup function. */
void ntr_buf_done(struct ntr_buf *b);
/* Makes room for n more bytes: 0 or -ENOMEM. */
int ntr_buf_reserve(struct ntr_buf *b, size_t n);
/* Appends; each returns b->err. */
int ntr_buf_add(struct ntr_buf *b, const void *p, size_t n);
int ntr_buf_byte(struct ntr_buf *b, uint8_t v);
int ntr_buf_le16(struct ntr_buf *b, uint16_t v);
int ntr_buf_le32(struct ntr_buf *b, uint32_t v);
int ntr_buf_le64(struct ntr_buf *b, uint64_t v);
int ntr_buf_be64(struct ntr_buf *b, uint64_t v);
int ntr_buf_str(struct ntr_buf *b, const char *s);
int ntr_buf_printf(struct ntr_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends all that fd has up to its end. 0, -EFBIG when the content is above max bytes then, -ENOMEM, or what
 * reading says. */
int ntr_buf_read(struct ntr_buf *b, int fd, size_t max);
/* The content as a C string (a NUL is kept behind the content, not counted). NULL when out of memory. */
const char *ntr_buf_cstr(struct ntr_buf *b);

#endif
