#include "file_impl.h"

#include "../base/buf.h"

#include <errno.h>

struct stored {
	uint64_t index, id, len;
};

struct ntr_file_loaded {
	struct ntr_chunk_writer *w;
	uint64_t size;
	bool is_short, is_small;
	struct ntr_buf bytes; /* content of at most NTR_INODE_INLINE bytes, else struct stored */
};

static int put(void *user, uint64_t index, const uint8_t *data, size_t len)
{
	struct ntr_file_loaded *l = user;
	struct stored st = {.index = index, .len = len};
	int r = ntr_chunk_put(l->w, data, len, 0, &st.id);

	return r ? r : ntr_buf_add(&l->bytes, &st, sizeof st);
}

static int load_small(struct ntr_file_loaded *l, int fd)
{
	uint8_t buf[NTR_CHUNK_SIZE];
	bool hole;
	int r = ntr_file_read_small(fd, buf, (size_t)l->size, &hole, &l->is_short);

	if (r || hole)
		return r;
	l->is_small = true;
	if (l->size > NTR_INODE_INLINE)
		return put(l, 0, buf, (size_t)l->size);
	return ntr_buf_add(&l->bytes, buf, (size_t)l->size);
}

int ntr_file_load(struct ntr_chunk_writer *w, int fd, uint64_t size, struct ntr_file_loaded **ret)
{
	struct ntr_file_loaded *l;
	int r;

	if (size > NTR_FILE_MAX)
		return -EFBIG;
	l = calloc(1, sizeof *l);
	if (!l)
		return -ENOMEM;
	l->w = w;
	l->size = size;
	if (size <= NTR_CHUNK_SIZE)
		r = load_small(l, fd);
	else
		r = ntr_file_scan_fd(&(struct ntr_file_scan){put, l}, fd, size, &l->is_short);
	if (r)
		ntr_file_loaded_free(l);
	else
		*ret = l;
	return r;
}

int ntr_file_attach(struct ntr_txn *t, struct ntr_inode *in, const struct ntr_file_loaded *l, bool *ret_short)
{
	struct ntr_file_build b;
	struct stored st;

	*ret_short = l->is_short;
	ntr_file_build_init(&b, t, in);
	if (l->is_small && l->size <= NTR_INODE_INLINE)
		return ntr_file_build_small(&b, l->bytes.data, l->bytes.len);
	for (size_t off = 0; off < l->bytes.len; off += sizeof st) {
		int r;

		memcpy(&st, l->bytes.data + off, sizeof st);
		if (l->is_small)
			return ntr_file_build_chunk(&b, st.id, (size_t)st.len);
		r = ntr_file_build_add(&b, st.index, st.id, (size_t)st.len);
		if (r)
			return r;
	}
	return ntr_file_build_end(&b, l->size);
}

void ntr_file_loaded_free(struct ntr_file_loaded *l)
{
	if (!l)
		return;
	ntr_buf_done(&l->bytes);
	free(l);
}
