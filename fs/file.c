/* Reading content. */
#include "file_impl.h"

#include <errno.h>
#include <fcntl.h>

/* What the transaction's chunk writer still holds in memory. */
static int content_of_writer(struct ntr_txn *t, uint64_t id, struct ntr_content *ret, size_t *ret_len)
{
	uint8_t *buf = malloc(NTR_CHUNK_SIZE);
	int r = buf ? ntr_chunk_writer_read(ntr_txn_chunks(t), id, buf, ret_len) : -ENOMEM;

	if (r) {
		free(buf);
		return r == -ENOENT ? -EUCLEAN : r;
	}
	*ret = (struct ntr_content){.data = buf, .copy = buf};
	return 0;
}

int ntr_content_get(const struct ntr_snap *s, uint64_t id, size_t want, struct ntr_content *ret)
{
	size_t len = 0;
	int r;

	*ret = (struct ntr_content){0};
	r = ntr_chunk_get(ntr_store_chunks(s->store), id, &ret->pin);
	if (!r) {
		ret->data = ret->pin.data;
		len = ret->pin.len;
	} else if (r == -EUCLEAN && s->txn) {
		r = content_of_writer(s->txn, id, ret, &len);
	}
	if (!r && len != want) {
		ntr_content_done(ret);
		r = -EUCLEAN;
	}
	return r;
}

void ntr_content_done(struct ntr_content *c)
{
	ntr_kv_unpin(&c->pin);
	free(c->copy);
}

int ntr_extent_decode(const uint8_t *val, size_t len, struct ntr_extent *ret)
{
	size_t n = (len - 1) / 8;

	if (len < 9 || (len - 1) % 8 || n > NTR_EXTENT_GROUP || val[0] != NTR_ITEM_CHUNKS)
		return -EUCLEAN;
	for (size_t i = 0; i < n; i++)
		ret->id[i] = ntr_get_le64(val + 1 + 8 * i);
	memset(ret->id + n, 0, (NTR_EXTENT_GROUP - n) * sizeof ret->id[0]);
	return 0;
}

int ntr_extent_get(const struct ntr_snap *s, uint64_t ino, uint64_t group, struct ntr_extent *ret)
{
	uint8_t key[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t len;
	int r = ntr_snap_get(s, key, ntr_item_key64(key, ino, NTR_ITEM_EXTENT, group, NULL, 0), val, &len);

	if (r == -ENOENT)
		memset(ret, 0, sizeof *ret);
	return r == -ENOENT ? 0 : r ? r : ntr_extent_decode(val, len, ret);
}

/* Bytes of chunk `index` in a file of this size. */
static size_t chunk_len(uint64_t size, uint64_t index)
{
	return (size_t)NTR_MIN(size - index * NTR_CHUNK_SIZE, (uint64_t)NTR_CHUNK_SIZE);
}

static int copy_chunk(
        const struct ntr_snap *s, uint64_t id, size_t chunk_bytes, size_t off, void *buf, size_t n)
{
	struct ntr_content c;
	int r;

	if (!id) {
		memset(buf, 0, n);
		return 0;
	}
	r = ntr_content_get(s, id, chunk_bytes, &c);
	if (r)
		return r;
	memcpy(buf, c.data + off, n);
	ntr_content_done(&c);
	return 0;
}

static int read_extents(
        const struct ntr_snap *s, const struct ntr_inode *in, uint64_t off, uint8_t *buf, size_t n)
{
	struct ntr_extent ex;
	uint64_t group = UINT64_MAX;

	for (size_t done = 0; done < n;) {
		uint64_t index = (off + done) / NTR_CHUNK_SIZE;
		size_t in_chunk = (off + done) % NTR_CHUNK_SIZE, len = chunk_len(in->size, index);
		size_t k = NTR_MIN(n - done, len - in_chunk);
		int r = 0;

		if (index / NTR_EXTENT_GROUP != group) {
			group = index / NTR_EXTENT_GROUP;
			r = ntr_extent_get(s, in->ino, group, &ex);
		}
		if (!r)
			r = copy_chunk(s, ex.id[index % NTR_EXTENT_GROUP], len, in_chunk, buf + done, k);
		if (r)
			return r;
		done += k;
	}
	return 0;
}

ssize_t ntr_file_read(const struct ntr_snap *s, const struct ntr_inode *in, uint64_t off, void *buf, size_t n)
{
	int r = 0;

	if (off >= in->size)
		return 0;
	n = (size_t)NTR_MIN((uint64_t)n, in->size - off); /* sizes end at 2^53: the result fits */
	switch (in->data_kind) {
	case NTR_DATA_INLINE:
	case NTR_DATA_SYMLINK:
		memcpy(buf, in->payload + off, n);
		break;
	case NTR_DATA_CHUNK:
		r = copy_chunk(s, in->chunk, in->size, off, buf, n);
		break;
	case NTR_DATA_EXTENTS:
		r = read_extents(s, in, off, buf, n);
		break;
	default:
		r = -EUCLEAN;
	}
	return r ? r : (ssize_t)n;
}

/* The EXTENT item at the cursor: its group and ids; UINT64_MAX when r (the cursor's state) or the key says
 * that there are no more of this inode. */
static int extent_at(
        const struct ntr_snap_cursor *c, int r, uint64_t ino, uint64_t *ret_group, struct ntr_extent *ret)
{
	*ret_group = UINT64_MAX;
	if (r <= 0 || !ntr_item_is(c->key, c->klen, ino, NTR_ITEM_EXTENT))
		return r < 0 ? r : 0;
	if (c->klen != NTR_ITEM_KEY_HEAD + 8)
		return -EUCLEAN;
	*ret_group = ntr_get_be64(c->key + NTR_ITEM_KEY_HEAD);
	if (*ret_group > NTR_FILE_MAX / NTR_CHUNK_SIZE / NTR_EXTENT_GROUP)
		return -EUCLEAN;
	return ntr_extent_decode(c->val, c->vlen, ret);
}

/* Moves *index to the first chunk at or behind it that is there (data) or is not, at most to end. */
static int find_chunk(const struct ntr_snap *s, uint64_t ino, bool data, uint64_t end, uint64_t *index)
{
	uint8_t key[NTR_KEY_MAX];
	struct ntr_snap_cursor c;
	struct ntr_extent ex;
	uint64_t i = *index, group;
	int r;

	ntr_snap_cursor_init(&c, s);
	r = ntr_snap_cursor_seek(
	        &c, key, ntr_item_key64(key, ino, NTR_ITEM_EXTENT, i / NTR_EXTENT_GROUP, NULL, 0));
	while (i < end) {
		r = extent_at(&c, r, ino, &group, &ex);
		if (r)
			break;
		if (group > i / NTR_EXTENT_GROUP) { /* nothing between i and that group */
			if (!data)
				break;
			i = group == UINT64_MAX ? end : NTR_MIN(group * NTR_EXTENT_GROUP, end);
		}
		while (i < end && i / NTR_EXTENT_GROUP == group && (ex.id[i % NTR_EXTENT_GROUP] != 0) != data)
			i++;
		if (i / NTR_EXTENT_GROUP == group)
			break;
		r = ntr_snap_cursor_next(&c);
	}
	ntr_snap_cursor_done(&c);
	*index = i;
	return r < 0 ? r : 0;
}

static int seek_extents(
        const struct ntr_snap *s, const struct ntr_inode *in, uint64_t off, int whence, uint64_t *ret)
{
	uint64_t index = off / NTR_CHUNK_SIZE, end = (in->size - 1) / NTR_CHUNK_SIZE + 1;
	int r = find_chunk(s, in->ino, whence == SEEK_DATA, end, &index);

	if (r < 0)
		return r;
	index *= NTR_CHUNK_SIZE;
	*ret = index < off ? off : NTR_MIN(index, in->size);
	return whence == SEEK_DATA && *ret == in->size ? -ENXIO : 0;
}

int ntr_file_seek(
        const struct ntr_snap *s, const struct ntr_inode *in, uint64_t off, int whence, uint64_t *ret)
{
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (off >= in->size)
		return -ENXIO;
	if (in->data_kind == NTR_DATA_EXTENTS)
		return seek_extents(s, in, off, whence, ret);
	*ret = whence == SEEK_DATA ? off : in->size;
	return 0;
}

struct out {
	int fd;
	bool seekable;
	uint64_t at; /* end of what was written */
};

static int out_write(const struct out *o, const void *data, size_t n, uint64_t off)
{
	const uint8_t *p = data;

	while (o->seekable && n) {
		ssize_t k = pwrite(o->fd, p, n, (off_t)off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		p += k;
		off += (uint64_t)k;
		n -= (size_t)k;
	}
	return n ? ntr_write_all(o->fd, p, n) : 0;
}

/* Zeros up to off, for what has no holes. */
static int out_fill(struct out *o, uint64_t off)
{
	static const uint8_t zeros[NTR_CHUNK_SIZE];

	while (!o->seekable && o->at < off) {
		size_t n = (size_t)NTR_MIN(off - o->at, (uint64_t)sizeof zeros);
		int r = ntr_write_all(o->fd, zeros, n);

		if (r)
			return r;
		o->at += n;
	}
	return 0;
}

static int out_data(struct out *o, const void *data, size_t n, uint64_t off)
{
	int r = out_fill(o, off);

	if (!r)
		r = out_write(o, data, n, off);
	o->at = off + n;
	return r;
}

static int out_chunk(const struct ntr_snap *s, uint64_t id, size_t len, uint64_t off, struct out *o)
{
	struct ntr_content c;
	int r = ntr_content_get(s, id, len, &c);

	if (r)
		return r;
	r = out_data(o, c.data, len, off);
	ntr_content_done(&c);
	return r;
}

static int out_group(const struct ntr_snap *s, const struct ntr_inode *in, uint64_t group,
        const struct ntr_extent *ex, struct out *o)
{
	int r = 0;

	for (unsigned i = 0; !r && i < NTR_EXTENT_GROUP; i++) {
		uint64_t off = (group * NTR_EXTENT_GROUP + i) * NTR_CHUNK_SIZE;

		if (!ex->id[i])
			continue;
		r = off < in->size
		            ? out_chunk(s, ex->id[i], chunk_len(in->size, off / NTR_CHUNK_SIZE), off, o)
		            : -EUCLEAN;
	}
	return r;
}

static int out_extents(const struct ntr_snap *s, const struct ntr_inode *in, struct out *o)
{
	uint8_t key[NTR_KEY_MAX];
	struct ntr_snap_cursor c;
	struct ntr_extent ex;
	uint64_t group = 0;
	int r;

	ntr_snap_cursor_init(&c, s);
	r = ntr_snap_cursor_seek(&c, key, ntr_item_key(key, in->ino, NTR_ITEM_EXTENT, NULL, 0));
	while (!(r = extent_at(&c, r, in->ino, &group, &ex)) && group != UINT64_MAX) {
		r = out_group(s, in, group, &ex, o);
		if (r)
			break;
		r = ntr_snap_cursor_next(&c);
	}
	ntr_snap_cursor_done(&c);
	return r;
}

static int out_all(const struct ntr_snap *s, const struct ntr_inode *in, struct out *o)
{
	int r = 0;

	if (in->data_kind == NTR_DATA_INLINE || in->data_kind == NTR_DATA_SYMLINK)
		r = out_data(o, in->payload, in->payload_len, 0);
	else if (in->data_kind == NTR_DATA_CHUNK)
		r = out_chunk(s, in->chunk, in->size, 0, o);
	else if (in->data_kind == NTR_DATA_EXTENTS)
		r = out_extents(s, in, o);
	if (!r)
		r = out_fill(o, in->size);
	if (!r && o->seekable && o->at != in->size && ftruncate(o->fd, (off_t)in->size))
		r = -errno;
	return r;
}

int ntr_file_to_fd(const struct ntr_snap *s, const struct ntr_inode *in, int fd)
{
	struct stat st;
	struct out o = {.fd = fd};

	if (fstat(fd, &st))
		return -errno;
	o.seekable = S_ISREG(st.st_mode);
	if (o.seekable && st.st_size && ftruncate(fd, 0))
		return -errno;
	return out_all(s, in, &o);
}

int ntr_file_to_stream(const struct ntr_snap *s, const struct ntr_inode *in, int fd)
{
	struct stat st;
	struct out o = {.fd = fd};
	int r;

	if (fstat(fd, &st))
		return -errno;
	o.seekable = S_ISREG(st.st_mode) && !st.st_size && lseek(fd, 0, SEEK_CUR) == 0 &&
	             !(fcntl(fd, F_GETFL) & O_APPEND);
	r = out_all(s, in, &o);
	if (!r && o.seekable && lseek(fd, (off_t)in->size, SEEK_SET) < 0)
		r = -errno;
	return r;
}
