/* Erasing a whole directory tree. Directories wait on a list (a tree may be deeper than any stack), and a
 * directory's entries are taken in batches, since a transaction must not change under an open cursor. */
#include "names_impl.h"

#include "../base/buf.h"

#include <dirent.h>
#include <errno.h>

enum { BATCH = 512 };

struct eraser {
	struct ntr_txn *t;
	bool (*keep)(void *user, uint64_t ino);
	void *user;
	const struct timespec *lost;
	struct ntr_buf dirs;  /* LE64 inodes still to be erased */
	struct ntr_buf batch; /* struct ntr_dirent */
};

static void eraser_done(struct eraser *e)
{
	ntr_buf_done(&e->dirs);
	ntr_buf_done(&e->batch);
}

/* The entries from hash `from` on, at least BATCH unless the directory ends, and never half of those with
 * equal hash. *ret_next: the hash to go on at, 0 at the end. */
static int read_batch(struct eraser *e, uint64_t dir, uint64_t from, uint64_t *ret_next)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	uint64_t last = 0;
	size_t n = 0;
	int r;

	*ret_next = 0;
	e->batch.len = 0;
	ntr_dir_iter_init(&it, ntr_txn_snap(e->t), dir, from);
	while ((r = ntr_dir_iter_next(&it, &en)) > 0) {
		if (n++ >= BATCH && en.hash != last) {
			*ret_next = en.hash;
			r = 0;
			break;
		}
		last = en.hash;
		r = ntr_buf_add(&e->batch, &en, sizeof en);
		if (r)
			break;
	}
	ntr_dir_iter_done(&it);
	return r;
}

/* An object that stays, under a name elsewhere, forgets the one that is erased with its directory. */
static int leave(struct eraser *e, uint64_t dir, const struct ntr_dirent *en)
{
	struct ntr_inode in;
	int r = ntr_inode_get(ntr_txn_snap(e->t), en->ino, &in);

	if (r || S_ISDIR(in.mode) || !(in.flags & NTR_INODE_HAS_LINKS))
		return r;
	r = ntr_name_forget(e->t, &in, dir, en->name, en->name_len);
	return r ? r : ntr_inode_put(e->t, &in);
}

static int erase_entry(struct eraser *e, uint64_t dir, const struct ntr_dirent *en)
{
	if (e->keep && e->keep(e->user, en->ino))
		return leave(e, dir, en);
	if (en->dtype == DT_DIR)
		return ntr_buf_le64(&e->dirs, en->ino);
	return ntr_name_drop(e->t, en->ino, dir, en->name, en->name_len, e->lost);
}

static int erase_dir(struct eraser *e, uint64_t dir)
{
	uint64_t from = 0;
	int r;

	do {
		r = read_batch(e, dir, from, &from);
		for (size_t off = 0; !r && off < e->batch.len; off += sizeof(struct ntr_dirent)) {
			struct ntr_dirent en;

			memcpy(&en, e->batch.data + off, sizeof en);
			r = erase_entry(e, dir, &en);
		}
	} while (!r && from);
	return r ? r : ntr_inode_erase(e->t, dir);
}

/* A detached file loses the name it was detached from, which a LINK item has forgotten already unless it is
 * its own. */
static int erase_file(struct ntr_txn *t, struct ntr_inode *in)
{
	int live = ntr_name_own_is_live(ntr_txn_snap(t), in);

	if (live < 0)
		return live;
	if (!live || in->nlink <= 1)
		return ntr_name_drop(t, in->ino, in->parent, in->name, in->name_len, NULL);
	in->nlink--;
	return ntr_inode_put(t, in);
}

int ntr_name_erase_dirs(struct ntr_txn *t, uint64_t ino, bool (*keep)(void *user, uint64_t ino), void *user,
        const struct timespec *lost)
{
	ntr_auto(eraser_done) struct eraser e = {.t = t, .keep = keep, .user = user, .lost = lost};
	int r = ntr_buf_le64(&e.dirs, ino);

	while (!r && e.dirs.len) {
		e.dirs.len -= 8;
		r = erase_dir(&e, ntr_get_le64(e.dirs.data + e.dirs.len));
	}
	return r;
}

int ntr_name_erase_tree(struct ntr_txn *t, uint64_t ino, bool (*keep)(void *user, uint64_t ino), void *user)
{
	struct ntr_inode in;
	int r = ntr_inode_get(ntr_txn_snap(t), ino, &in);

	if (r)
		return r;
	return S_ISDIR(in.mode) ? ntr_name_erase_dirs(t, ino, keep, user, NULL) : erase_file(t, &in);
}
