/* The bytes of an INODE record.
 *
 *     record := u8 item flags | [LE64 chunk id, when NTR_ITEM_CHUNKS] | u8 format=1 | u8 bits | LE32 tag
 *               | flags | version | mode | uid+2 | gid+2 | nlink | size | [blocks] | [rdev] | mtime
 *               | [atime] | [ctime] | [btime] | parent | u8 name length | name | payload (the rest)
 *
 * Numbers without a width are LEB128. uid and gid are kept plus two (mod 2^32), so that the commonest ids,
 * among them NTR_OWNER_ID, take one byte. mtime is seconds (zigzag), nanoseconds; the other times count
 * seconds from mtime, and are left out where a bit says that they are equal to it. The chunk id stands in
 * front so that whoever collects chunk ids need not decode the record. */
#include "inode_impl.h"

#include <errno.h>

enum { RECORD_FORMAT = 1 };
enum { /* bits: the low three are enum ntr_payload */
	KIND_MASK = 7,
	HAS_BLOCKS = 8,
	HAS_RDEV = 16,
	HAS_ATIME = 32,
	HAS_CTIME = 64,
	HAS_BTIME = 128,
};
enum { FLAGS_KNOWN = NTR_INODE_HAS_XATTR | NTR_INODE_HAS_LINKS | NTR_INODE_RACY };

size_t ntr_varint_put(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	while (v >= 0x80) {
		p[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	p[n++] = (uint8_t)v;
	return n;
}

/* What a file without holes holds. */
static uint64_t full_blocks(uint64_t size)
{
	return (size + 4095) / 4096 * 8;
}

static bool time_ok(const struct timespec *t)
{
	return t->tv_nsec >= 0 && t->tv_nsec < 1000000000;
}

static bool payload_ok(const struct ntr_inode *in)
{
	bool reg = S_ISREG(in->mode);

	switch (in->data_kind) {
	case NTR_DATA_NONE:
		return !in->payload_len && !S_ISLNK(in->mode) && !in->size;
	case NTR_DATA_INLINE:
		return reg && in->size && in->size <= NTR_INODE_INLINE && in->payload_len == in->size;
	case NTR_DATA_CHUNK:
		return reg && in->size && in->size <= NTR_CHUNK_SIZE && in->chunk && !in->payload_len;
	case NTR_DATA_EXTENTS:
		return reg && in->size && !in->payload_len;
	case NTR_DATA_SYMLINK:
		return S_ISLNK(in->mode) && in->size && in->size < sizeof in->payload &&
		       in->payload_len == in->size;
	default:
		return false;
	}
}

static bool type_ok(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return !(mode & ~(uint32_t)(S_IFMT | 07777));
	default:
		return false;
	}
}

static bool record_ok(const struct ntr_inode *in)
{
	return type_ok(in->mode) && payload_ok(in) && !(in->flags & ~(uint32_t)FLAGS_KNOWN) &&
	       in->size <= UINT64_C(1) << NTR_SIZE_MAX_LOG2 && time_ok(&in->atime) && time_ok(&in->mtime) &&
	       time_ok(&in->ctime) && time_ok(&in->btime) && !memchr(in->name, '/', in->name_len) &&
	       !memchr(in->name, '\0', in->name_len);
}

static uint64_t zigzag(uint64_t v)
{
	return v << 1 ^ (v >> 63 ? UINT64_MAX : 0);
}

static uint64_t unzigzag(uint64_t v)
{
	return v >> 1 ^ (v & 1 ? UINT64_MAX : 0);
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static uint8_t *time_put(uint8_t *p, const struct timespec *t, uint64_t from)
{
	p += ntr_varint_put(p, zigzag((uint64_t)t->tv_sec - from));
	p += ntr_varint_put(p, (uint64_t)t->tv_nsec);
	return p;
}

static uint8_t *times_put(uint8_t *p, const struct ntr_inode *in, uint8_t bits)
{
	uint64_t from = (uint64_t)in->mtime.tv_sec;

	p = time_put(p, &in->mtime, 0);
	if (bits & HAS_ATIME)
		p = time_put(p, &in->atime, from);
	if (bits & HAS_CTIME)
		p = time_put(p, &in->ctime, from);
	if (bits & HAS_BTIME)
		p = time_put(p, &in->btime, from);
	return p;
}

static uint8_t bits_of(const struct ntr_inode *in)
{
	unsigned b = in->data_kind;

	if (in->blocks != full_blocks(in->data_kind == NTR_DATA_SYMLINK ? 0 : in->size))
		b |= HAS_BLOCKS;
	if (in->rdev)
		b |= HAS_RDEV;
	if (!same_time(&in->atime, &in->mtime))
		b |= HAS_ATIME;
	if (!same_time(&in->ctime, &in->mtime))
		b |= HAS_CTIME;
	if (!same_time(&in->btime, &in->mtime))
		b |= HAS_BTIME;
	return (uint8_t)b;
}

int ntr_inode_encode(const struct ntr_inode *in, uint8_t *out, size_t *ret_len)
{
	uint8_t bits, *p = out;

	if (!record_ok(in))
		return -EINVAL;
	bits = bits_of(in);
	*p++ = in->data_kind == NTR_DATA_CHUNK ? NTR_ITEM_CHUNKS : 0;
	if (in->data_kind == NTR_DATA_CHUNK) {
		ntr_put_le64(p, in->chunk);
		p += 8;
	}
	*p++ = RECORD_FORMAT;
	*p++ = bits;
	ntr_put_le32(p, in->tag);
	p += 4;
	p += ntr_varint_put(p, in->flags);
	p += ntr_varint_put(p, in->version);
	p += ntr_varint_put(p, in->mode);
	p += ntr_varint_put(p, (uint32_t)(in->uid + 2));
	p += ntr_varint_put(p, (uint32_t)(in->gid + 2));
	p += ntr_varint_put(p, in->nlink);
	p += ntr_varint_put(p, in->size);
	if (bits & HAS_BLOCKS)
		p += ntr_varint_put(p, in->blocks);
	if (bits & HAS_RDEV)
		p += ntr_varint_put(p, in->rdev);
	p = times_put(p, in, bits);
	p += ntr_varint_put(p, in->parent);
	*p++ = in->name_len;
	memcpy(p, in->name, in->name_len);
	p += in->name_len;
	memcpy(p, in->payload, in->payload_len);
	*ret_len = (size_t)(p - out) + in->payload_len;
	return 0;
}

/* A cursor over foreign bytes; p NULL: something was cut or out of range, and stays so. */
struct reader {
	const uint8_t *p, *end;
};

static uint64_t take(struct reader *r)
{
	uint64_t v = 0;

	if (r->p)
		r->p = ntr_varint_get(r->p, r->end, &v);
	return v;
}

static uint32_t take32(struct reader *r)
{
	uint64_t v = take(r);

	if (v > UINT32_MAX)
		r->p = NULL;
	return (uint32_t)v;
}

static const uint8_t *take_bytes(struct reader *r, size_t n)
{
	const uint8_t *p = r->p;

	if (!p || (size_t)(r->end - p) < n)
		return r->p = NULL;
	r->p += n;
	return p;
}

static void take_time(struct reader *r, uint64_t from, struct timespec *ret)
{
	ret->tv_sec = (time_t)(unzigzag(take(r)) + from);
	ret->tv_nsec = (long)take32(r);
}

static void take_times(struct reader *r, uint8_t bits, struct ntr_inode *ret)
{
	uint64_t from;

	take_time(r, 0, &ret->mtime);
	from = (uint64_t)ret->mtime.tv_sec;
	ret->atime = ret->ctime = ret->btime = ret->mtime;
	if (bits & HAS_ATIME)
		take_time(r, from, &ret->atime);
	if (bits & HAS_CTIME)
		take_time(r, from, &ret->ctime);
	if (bits & HAS_BTIME)
		take_time(r, from, &ret->btime);
}

/* Item flags, chunk id, format, bits, tag. */
static int take_head(struct reader *r, struct ntr_inode *ret, uint8_t *ret_bits)
{
	const uint8_t *p = take_bytes(r, 1), *id = NULL;
	uint8_t item;

	if (!p || (item = *p) & ~NTR_ITEM_CHUNKS)
		return -EUCLEAN;
	if (item && !(id = take_bytes(r, 8)))
		return -EUCLEAN;
	ret->chunk = id ? ntr_get_le64(id) : 0;
	p = take_bytes(r, 6);
	if (!p || p[0] != RECORD_FORMAT)
		return -EUCLEAN;
	*ret_bits = p[1];
	ret->data_kind = p[1] & KIND_MASK;
	ret->tag = ntr_get_le32(p + 2);
	return (ret->data_kind == NTR_DATA_CHUNK) == (item == NTR_ITEM_CHUNKS) ? 0 : -EUCLEAN;
}

static void take_name(struct reader *r, struct ntr_inode *ret)
{
	const uint8_t *p = take_bytes(r, 1), *name = p ? take_bytes(r, *p) : NULL;

	ret->name_len = name ? *p : 0;
	if (name)
		memcpy(ret->name, name, ret->name_len);
	ret->name[ret->name_len] = '\0';
}

int ntr_inode_decode(uint64_t ino, const uint8_t *val, size_t len, struct ntr_inode *ret)
{
	struct reader r = {val, val + len};
	uint8_t bits;

	if (take_head(&r, ret, &bits))
		return -EUCLEAN;
	ret->ino = ino;
	ret->flags = take32(&r);
	ret->version = take(&r);
	ret->mode = take32(&r);
	ret->uid = take32(&r) - 2;
	ret->gid = take32(&r) - 2;
	ret->nlink = take32(&r);
	ret->size = take(&r);
	ret->blocks = bits & HAS_BLOCKS ? take(&r)
	                                : full_blocks(ret->data_kind == NTR_DATA_SYMLINK ? 0 : ret->size);
	ret->rdev = bits & HAS_RDEV ? take(&r) : 0;
	take_times(&r, bits, ret);
	ret->parent = take(&r);
	take_name(&r, ret);
	if (!r.p || (size_t)(r.end - r.p) >= sizeof ret->payload)
		return -EUCLEAN;
	ret->payload_len = (uint16_t)(r.end - r.p);
	memcpy(ret->payload, r.p, ret->payload_len);
	return record_ok(ret) ? 0 : -EUCLEAN;
}
