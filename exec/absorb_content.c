/* Content of files: opened below their directory, read once, and again when something wrote to them
 * meanwhile. */
#include "absorb_impl.h"

#include <errno.h>

enum { READ_TRIES = 3, COMPARE_SIZE = 1 << 18 };

static int too_large(struct ntr_arun *w, const struct ntr_aobj *o)
{
	ntr_aobj_fail(w, o, -EFBIG);
	ntr_err_why(w->e, "the file is larger than 2^53 bytes");
	ntr_err_todo(w->e, "make it smaller or remove it");
	return -EFBIG;
}

/* 1: the file at fd equals the content of in, whose size it has; 0; negative errno. */
static int equals(struct ntr_arun *w, const struct ntr_inode *in, int fd)
{
	ntr_autofree uint8_t *buf = malloc(2 * COMPARE_SIZE);
	uint64_t off = 0;

	if (!buf)
		return -ENOMEM;
	while (off < in->size) {
		size_t n = (size_t)NTR_MIN(in->size - off, (uint64_t)COMPARE_SIZE);
		ssize_t k = ntr_file_read(ntr_txn_snap(w->txn), in, off, buf + COMPARE_SIZE, n);
		int r = k < 0 ? (int)k : ntr_pread_exact(fd, buf, n, (off_t)off);

		if (r)
			return r == -ENODATA ? 0 : r;
		if ((size_t)k != n || memcmp(buf, buf + COMPARE_SIZE, n))
			return 0;
		off += n;
	}
	return 1;
}

/* A large file that looks untouched (opened for writing, a memo lost): not to be written anew. Holes that
 * became zeros or zeros that became holes are no change of content. */
static bool looks_untouched(const struct ntr_aobj *o, const struct ntr_inode *in)
{
	return in->data_kind == NTR_DATA_EXTENTS && in->size == o->st.size &&
	       in->mtime.tv_sec == o->mtime.tv_sec && in->mtime.tv_nsec == o->mtime.tv_nsec;
}

static int is_untouched(struct ntr_arun *w, const struct ntr_aobj *o, const struct ntr_inode *in, int fd)
{
	return looks_untouched(o, in) ? equals(w, in, fd) : 0;
}

static int take_once(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in, int fd, bool *ret_steady)
{
	struct statx sx;
	struct ntr_mstat after;
	bool cut = false;
	int r = ntr_statx_at(fd, "", &sx);

	if (r)
		return r;
	ntr_aobj_stat(o, &sx);
	if (o->st.size > UINT64_C(1) << NTR_SIZE_MAX_LOG2)
		return too_large(w, o);
	r = is_untouched(w, o, in, fd);
	if (!r)
		r = ntr_file_take_fd(w->txn, in, fd, o->st.size, &cut);
	if (r >= 0)
		r = ntr_statx_at(fd, "", &sx);
	after = ntr_mstat_of(&sx);
	w->bytes += o->st.size;
	*ret_steady = !cut && ntr_mstat_same(&o->st, &after);
	return r;
}

static int take(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in, int fd)
{
	bool steady = false;
	int r = 0;

	for (int i = 0; i < READ_TRIES && !r && !steady; i++)
		r = take_once(w, o, in, fd, &steady);
	if (!r && !steady)
		o->flags |= NTR_AO_RACY;
	return r;
}

int ntr_aobj_open(struct ntr_arun *w, struct ntr_aobj *o, int *ret_fd)
{
	bool touched;
	int dirfd, r = ntr_dirs_get(&w->dirs, o->ref.dir, &dirfd);

	return r ? r : ntr_dirs_open_file(&w->dirs, dirfd, ntr_aobj_name(o), ret_fd, &touched);
}

static int attach_early(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in)
{
	bool cut = false;
	int r = ntr_file_attach(w->txn, in, ntr_early_of(w->memo, o), &cut);

	if (cut)
		o->flags |= NTR_AO_RACY;
	w->bytes += o->st.size;
	return r;
}

int ntr_aobj_content(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in)
{
	ntr_autoclose int fd = -1;
	int r;

	if (!o->st.size && !in->size) /* empty, and was */
		return 0;
	if (o->flags & NTR_AO_EARLY && !looks_untouched(o, in)) {
		r = attach_early(w, o, in);
	} else if (o->flags & NTR_AO_POOLED) {
		r = ntr_pool_wait(w, o, in);
	} else {
		r = ntr_aobj_open(w, o, &fd);
		if (!r)
			r = take(w, o, in, fd);
	}
	if (r)
		return r;
	in->flags &= ~(uint32_t)NTR_INODE_RACY;
	if (o->flags & NTR_AO_RACY) {
		in->flags |= NTR_INODE_RACY;
		w->racy = true;
	}
	return 0;
}
