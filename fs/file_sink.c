#include "file_impl.h"

#include <errno.h>

struct ntr_file_sink {
	struct ntr_file_build b;
	uint64_t pos;   /* end of what was written */
	uint64_t index; /* chunk that buf holds */
	size_t fill; /* bytes of buf that are content, zeros in its gaps; 0: nothing of the chunk was written
	              */
	uint8_t buf[NTR_CHUNK_SIZE];
};

int ntr_file_sink_new(struct ntr_txn *t, struct ntr_inode *in, struct ntr_file_sink **ret)
{
	struct ntr_file_sink *k = malloc(sizeof *k);

	if (!k)
		return -ENOMEM;
	ntr_file_build_init(&k->b, t, in);
	k->pos = k->index = 0;
	k->fill = 0;
	*ret = k;
	return 0;
}

/* Stores the chunk in buf, len bytes long; what was not written of it is zeros. */
static int store_chunk(struct ntr_file_sink *k, size_t len)
{
	if (!k->fill)
		return 0;
	memset(k->buf + k->fill, 0, len - k->fill);
	k->fill = 0;
	return ntr_file_build_put(&k->b, k->index, k->buf, len);
}

int ntr_file_sink_write(struct ntr_file_sink *k, uint64_t off, const void *data, size_t n)
{
	const uint8_t *p = data;

	if (off < k->pos || off > NTR_FILE_MAX || n > NTR_FILE_MAX - off)
		return off < k->pos ? -EINVAL : -EFBIG;
	while (n) {
		size_t at = off % NTR_CHUNK_SIZE, len = NTR_MIN(n, NTR_CHUNK_SIZE - at);

		if (off / NTR_CHUNK_SIZE != k->index) {
			int r = store_chunk(k, NTR_CHUNK_SIZE);

			if (r)
				return r;
			k->index = off / NTR_CHUNK_SIZE;
		}
		memset(k->buf + k->fill, 0, at - k->fill);
		memcpy(k->buf + at, p, len);
		k->fill = at + len;
		k->pos = off += len;
		p += len;
		n -= len;
	}
	return 0;
}

static int sink_end(struct ntr_file_sink *k, uint64_t size)
{
	int r;

	if (size < k->pos || size > NTR_FILE_MAX)
		return size < k->pos ? -EINVAL : -EFBIG;
	if (size <= NTR_CHUNK_SIZE && (k->fill || !size)) {
		memset(k->buf + k->fill, 0, (size_t)size - k->fill);
		return ntr_file_build_small(&k->b, k->buf, (size_t)size);
	}
	r = store_chunk(k, (size_t)NTR_MIN(size - k->index * NTR_CHUNK_SIZE, (uint64_t)NTR_CHUNK_SIZE));
	return r ? r : ntr_file_build_end(&k->b, size);
}

int ntr_file_sink_end(struct ntr_file_sink *k, uint64_t size)
{
	int r = sink_end(k, size);

	free(k);
	return r;
}

void ntr_file_sink_abort(struct ntr_file_sink *k)
{
	free(k);
}
