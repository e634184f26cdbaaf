/* buf: growth, integers, and errors that stick. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

static void test_growth(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	uint8_t piece[777];
	size_t want = 0;

	(void)state;
	for (size_t i = 0; i < 500; i++) {
		size_t n = i * 37 % sizeof piece;

		memset(piece, (int)i, n);
		assert_int_equal(ntr_buf_add(&b, piece, n), 0);
		want += n;
		assert_int_equal(b.len, want);
		assert_true(b.cap >= b.len);
	}
	want = 0;
	for (size_t i = 0; i < 500; i++)
		for (size_t k = 0; k < i * 37 % sizeof piece; k++)
			assert_int_equal(b.data[want++], (uint8_t)i);
}

static void test_empty(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	(void)state;
	assert_int_equal(ntr_buf_add(&b, NULL, 0), 0);
	assert_int_equal(b.len, 0);
	assert_string_equal(ntr_buf_cstr(&b), "");
	assert_int_equal(ntr_buf_str(&b, ""), 0);
	assert_int_equal(b.len, 0);
	ntr_buf_done(&b);
	assert_null(b.data);
	assert_int_equal(b.len + b.cap + (size_t)-b.err, 0);
}

static void test_integers(void **state)
{
	static const uint8_t want[] = {
	        1, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12, 8, 7, 6, 5, 4, 3, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8};
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	(void)state;
	assert_int_equal(ntr_buf_byte(&b, 1), 0);
	assert_int_equal(ntr_buf_le16(&b, 0x1234), 0);
	assert_int_equal(ntr_buf_le32(&b, 0x12345678), 0);
	assert_int_equal(ntr_buf_le64(&b, 0x0102030405060708), 0);
	assert_int_equal(ntr_buf_be64(&b, 0x0102030405060708), 0);
	assert_int_equal(b.len, sizeof want);
	assert_memory_equal(b.data, want, sizeof want);
	assert_int_equal(ntr_get_le16(b.data + 1), 0x1234);
	assert_int_equal(ntr_get_le32(b.data + 3), 0x12345678);
	assert_true(ntr_get_le64(b.data + 7) == 0x0102030405060708);
	assert_true(ntr_get_be64(b.data + 15) == 0x0102030405060708);
}

/* Around every capacity: the text fits exactly, or is one byte too long for what is there. */
static void test_printf(void **state)
{
	char want[400];

	(void)state;
	for (int n = 0; n < 300; n++) {
		ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

		assert_int_equal(ntr_buf_str(&b, "ab"), 0);
		assert_int_equal(ntr_buf_printf(&b, "%*d|", n, 7), 0);
		snprintf(want, sizeof want, "ab%*d|", n, 7);
		assert_int_equal(b.len, strlen(want));
		assert_string_equal(ntr_buf_cstr(&b), want);
		assert_int_equal(b.len, strlen(want)); /* the NUL does not count */
	}
}

static void test_nul_inside(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	(void)state;
	assert_int_equal(ntr_buf_add(&b, "a\0b", 3), 0);
	assert_memory_equal(ntr_buf_cstr(&b), "a\0b\0", 4);
	assert_int_equal(b.len, 3);
}

static void assert_stuck(struct ntr_buf *b, size_t len)
{
	assert_int_equal(ntr_buf_byte(b, 1), -ENOMEM);
	assert_int_equal(ntr_buf_str(b, ""), -ENOMEM);
	assert_int_equal(ntr_buf_printf(b, "x"), -ENOMEM);
	assert_int_equal(ntr_buf_reserve(b, 0), -ENOMEM);
	assert_null(ntr_buf_cstr(b));
	assert_int_equal(b->err, -ENOMEM);
	assert_int_equal(b->len, len);
	assert_memory_equal(b->data, "keep", 4);
}

/* Out of memory: nothing is appended, what was there stays, and every later call says so again. */
static void test_sticky(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	(void)state;
	assert_int_equal(ntr_buf_str(&b, "keep"), 0);
#ifndef NTR_SANITIZED /* the sanitizers end the program at so large a request */
	assert_int_equal(ntr_buf_reserve(&b, (size_t)1 << 62), -ENOMEM);
	assert_stuck(&b, 4);
	ntr_buf_done(&b);
	assert_int_equal(ntr_buf_str(&b, "keep"), 0);
#endif
	b.err = -ENOMEM;
	assert_stuck(&b, 4);
}

/* A request beyond every power of two must fail, not turn in circles. */
static void test_absurd(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	(void)state;
	assert_int_equal(ntr_buf_str(&b, "keep"), 0);
	assert_int_equal(ntr_buf_reserve(&b, SIZE_MAX), -ENOMEM);
	assert_stuck(&b, 4);
	ntr_buf_done(&b);
	assert_int_equal(ntr_buf_str(&b, "keep"), 0);
	assert_int_equal(ntr_buf_reserve(&b, SIZE_MAX / 2 + 2), -ENOMEM);
	assert_stuck(&b, 4);
}

static void test_read(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	static uint8_t data[200000];
	int fd = memfd_create("buf", MFD_CLOEXEC);

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	assert_int_equal(ntr_write_all(fd, data, sizeof(data)), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(ntr_buf_str(&b, "x"), 0);
	assert_int_equal(ntr_buf_read(&b, fd, sizeof(data) + 1), 0);
	assert_int_equal(b.len, sizeof(data) + 1);
	assert_memory_equal(b.data + 1, data, sizeof(data));
	assert_int_equal(ntr_buf_read(&b, fd, 0), 0); /* at the end there is nothing more */
	b.len = 0;
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(ntr_buf_read(&b, fd, sizeof(data) - 1), -EFBIG);
	close(fd);
	assert_int_equal(ntr_buf_read(&b, fd, SIZE_MAX), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_read),
	        cmocka_unit_test(test_growth),
	        cmocka_unit_test(test_empty),
	        cmocka_unit_test(test_integers),
	        cmocka_unit_test(test_printf),
	        cmocka_unit_test(test_nul_inside),
	        cmocka_unit_test(test_sticky),
	        cmocka_unit_test(test_absurd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
