/* The write-ahead log's own format, just enough of it to check every record: blocks of 32 KiB, in them
 * records of masked CRC-32C | u16 length | u8 type | (recycled logs: u32 log number) | payload; no header
 * starts in a block's last six bytes. RocksDB checks all this when it replays a log, but a log that is in use
 * is replayed only after the next crash, and then damage costs every commit behind it. */
#include "kv_impl.h"

#include "../base/util.h"

#include <errno.h>

enum {
	BLOCK = 32768,
	HEADER = 7,
	RECYCLED = 4,
	TYPE_FULL = 1,
	TYPE_LAST = 4,
	TYPE_RECYCLED_LAST = 8,
	TYPE_MAX = 15
};

static uint32_t crc_table[256];

static void crc_init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? 0x82F63B78u ^ c >> 1 : c >> 1;
		crc_table[i] = c;
	}
}

static uint32_t crc_masked(const uint8_t *p, size_t n)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint32_t c = ~0u;

	pthread_once(&once, crc_init);
	while (n--)
		c = crc_table[(c ^ *p++) & 255] ^ c >> 8;
	c = ~c;
	return (c >> 15 | c << 17) + 0xA282EAD8u;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	while (n--)
		if (*p++)
			return false;
	return true;
}

/* One block of n bytes. 0, or -EUCLEAN; torn: a record that is cut by the end is accepted. */
static int block_check(const uint8_t *b, size_t n, bool torn)
{
	size_t at = 0;

	while (BLOCK - at >= HEADER && at < n) {
		size_t len, head = HEADER;

		if (n - at < HEADER)
			return torn ? 0 : -EUCLEAN;
		if (b[at + 6] > TYPE_LAST && b[at + 6] <= TYPE_RECYCLED_LAST)
			head += RECYCLED;
		len = ntr_get_le16(b + at + 4);
		if (!b[at + 6] && !len)
			return all_zero(b + at, n - at) ? 0 : -EUCLEAN;
		if (len > n - at - NTR_MIN(head, n - at))
			return torn ? 0 : -EUCLEAN;
		if (b[at + 6] > TYPE_MAX || ntr_get_le32(b + at) != crc_masked(b + at + 6, head - 6 + len))
			return -EUCLEAN;
		at += head + len;
	}
	return all_zero(b + NTR_MIN(at, n), n - NTR_MIN(at, n)) ? 0 : -EUCLEAN;
}

int ntr_kv_log_check(int fd, uint64_t size, bool torn)
{
	ntr_autofree uint8_t *b = malloc(BLOCK);
	int r = b ? 0 : -ENOMEM;

	for (uint64_t at = 0; !r && at < size; at += BLOCK) {
		size_t n = (size_t)NTR_MIN(size - at, (uint64_t)BLOCK);

		r = ntr_pread_exact(fd, b, n, (off_t)at);
		if (!r)
			r = block_check(b, n, torn && n < BLOCK);
	}
	return r;
}
