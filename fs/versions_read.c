/* READ and LSEEK.
 *
 * On a ring the content is copied once, from RocksDB's block cache into the ring's payload. On /dev/fuse it
 * is not copied at all: the pinned chunks themselves are what writev(2) hands to the kernel. */
#include "file_impl.h"
#include "versions_impl.h"

enum { PIECES_MAX = NTR_VREAD_MAX / NTR_CHUNK_SIZE + 1, LONG_READ = 2 * NTR_CHUNK_SIZE };

struct pieces {
	struct iovec iov[PIECES_MAX];
	struct ntr_content content[PIECES_MAX];
	int n;
};

static const uint8_t zeros[NTR_CHUNK_SIZE];

static void pieces_done(struct pieces *p)
{
	for (int i = 0; i < p->n; i++)
		ntr_content_done(&p->content[i]);
	p->n = 0;
}

/* Adds n bytes at `at` of a chunk of `len` bytes; id 0 is a hole. */
static int add_chunk(const struct ntr_snap *s, struct pieces *p, uint64_t id, size_t len, size_t at, size_t n)
{
	struct ntr_content *c = &p->content[p->n];
	int r = 0;

	if (p->n == PIECES_MAX)
		return -EUCLEAN;
	*c = (struct ntr_content){0};
	if (id)
		r = ntr_content_get(s, id, len, c);
	if (r)
		return r;
	const uint8_t *data = id ? c->data + at : zeros;

	p->iov[p->n++] = (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = n};
	return 0;
}

static int add_extents(
        const struct ntr_snap *s, const struct ntr_inode *in, uint64_t off, size_t n, struct pieces *p)
{
	struct ntr_extent ex;
	uint64_t group = UINT64_MAX;
	int r = 0;

	for (size_t done = 0; done < n && r == 0;) {
		uint64_t index = (off + done) / NTR_CHUNK_SIZE;
		size_t at = (off + done) % NTR_CHUNK_SIZE;
		size_t len = (size_t)NTR_MIN(in->size - index * NTR_CHUNK_SIZE, (uint64_t)NTR_CHUNK_SIZE);
		size_t k = NTR_MIN(n - done, len - at);

		if (index / NTR_EXTENT_GROUP != group) {
			group = index / NTR_EXTENT_GROUP;
			r = ntr_extent_get(s, in->ino, group, &ex);
		}
		if (r == 0)
			r = add_chunk(s, p, ex.id[index % NTR_EXTENT_GROUP], len, at, k);
		done += k;
	}
	return r;
}

static int gather(
        const struct ntr_snap *s, const struct ntr_inode *in, uint64_t off, size_t n, struct pieces *p)
{
	switch (in->data_kind) {
	case NTR_DATA_INLINE:
		p->content[0] = (struct ntr_content){0};
		p->iov[0] = (struct iovec){.iov_base = (void *)(uintptr_t)(in->payload + off), .iov_len = n};
		p->n = 1;
		return 0;
	case NTR_DATA_CHUNK:
		return add_chunk(s, p, in->chunk, (size_t)in->size, (size_t)off, n);
	case NTR_DATA_EXTENTS:
		return add_extents(s, in, off, n, p);
	default:
		return -EUCLEAN;
	}
}

static void read_dev(struct ntr_vslot *s, fuse_req_t req, const struct ntr_snap *snap,
        const struct ntr_inode *in, uint64_t off, size_t n)
{
	struct pieces p = {.n = 0};

	if (n > LONG_READ)
		ntr_vloop_yield(s->v, s);
	int r = gather(snap, in, off, n, &p);

	if (r)
		ntr_vreq_err(s, req, ntr_verrno(r));
	else if (ntr_vreq_claim(s))
		fuse_reply_iov(req, p.iov, p.n);
	pieces_done(&p);
}

static void read_ring(struct ntr_vslot *s, fuse_req_t req, const struct ntr_snap *snap,
        const struct ntr_inode *in, uint64_t off, size_t n)
{
	uint8_t *buf = ntr_vreq_buffer(s, req, n);
	ssize_t got = buf ? ntr_file_read(snap, in, off, buf, n) : -ENOMEM;

	if (got < 0)
		ntr_vreq_err(s, req, ntr_verrno((int)got));
	else if (ntr_vreq_claim(s))
		fuse_reply_buf(req, (char *)buf, (size_t)got);
}

void ntr_vop_read(fuse_req_t req, fuse_ino_t id, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vnode *n = ntr_vnode_of(v, id);
	struct ntr_vslot *s = ntr_vreq_begin(req, NTR_VOP_READ);
	struct ntr_snap snap = ntr_vnode_snap(v, n);
	struct ntr_inode in;

	(void)fi;
	if (!s)
		return;
	int r = n->dir ? -EISDIR : ntr_inode_get(&snap, n->ino, &in);

	if (r == 0 && !S_ISREG(in.mode))
		r = -EINVAL;
	if (r) {
		ntr_vreq_err(s, req, ntr_verrno(r));
		return;
	}
	uint64_t at = off < 0 ? in.size : NTR_MIN((uint64_t)off, in.size);
	size_t most = NTR_MIN(size, (size_t)NTR_VREAD_MAX);
	size_t want = (size_t)NTR_MIN((uint64_t)most, in.size - at);

	if (want == 0) {
		if (ntr_vreq_claim(s))
			fuse_reply_buf(req, NULL, 0);
	} else if (s->uring) {
		read_ring(s, req, &snap, &in, at, want);
	} else {
		read_dev(s, req, &snap, &in, at, want);
	}
}

void ntr_vop_lseek(fuse_req_t req, fuse_ino_t id, off_t off, int whence, struct fuse_file_info *fi)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vnode *n = ntr_vnode_of(v, id);
	struct ntr_vslot *s = ntr_vreq_begin(req, NTR_VOP_LSEEK);
	struct ntr_snap snap = ntr_vnode_snap(v, n);
	struct ntr_inode in;
	uint64_t to = 0;

	(void)fi;
	if (!s)
		return;
	if (n->dir || off < 0 || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
		ntr_vreq_err(s, req, off < 0 ? ENXIO : EINVAL);
		return;
	}
	int r = ntr_inode_get(&snap, n->ino, &in);

	if (r == 0)
		r = ntr_file_seek(&snap, &in, (uint64_t)off, whence, &to);
	if (r)
		ntr_vreq_err(s, req, ntr_verrno(r));
	else if (ntr_vreq_claim(s))
		fuse_reply_lseek(req, (off_t)to);
}
