#include "names_impl.h"

#include <dirent.h>
#include <errno.h>

enum { MAX_DEPTH = 1 << 20 }; /* of directories: what is deeper is a loop in a damaged tree */

static int check_name(const char *name, size_t *ret_n)
{
	size_t n = strlen(name);

	if (n > NTR_NAME_BYTES)
		return -ENAMETOOLONG;
	*ret_n = n;
	return n && ntr_name_ok(name, n) ? 0 : -EINVAL;
}

/* Reads the record of a directory. */
static int get_dir(const struct ntr_snap *s, uint64_t ino, struct ntr_inode *ret)
{
	int r = ntr_inode_get(s, ino, ret);

	return r ? r : S_ISDIR(ret->mode) ? 0 : -ENOTDIR;
}

/* The name, and that dir is a directory that does not have it. */
static int check_free(
        const struct ntr_snap *s, uint64_t dir, const char *name, size_t *ret_n, struct ntr_inode *ret_dir)
{
	uint64_t ino;
	uint8_t dtype;
	int r = check_name(name, ret_n);

	if (!r)
		r = get_dir(s, dir, ret_dir);
	if (r)
		return r;
	r = ntr_dirent_get(s, dir, name, *ret_n, &ino, &dtype);
	return !r ? -EEXIST : r == -ENOENT ? 0 : r;
}

/* Puts a directory's record when an entry came or went: subdirs says by how many its directories changed. */
static int touch_dir(struct ntr_txn *t, struct ntr_inode *dir, int subdirs, const struct timespec *now)
{
	if (!subdirs && !now)
		return 0;
	dir->nlink += (uint32_t)subdirs;
	if (now)
		dir->mtime = dir->ctime = *now;
	return ntr_inode_put(t, dir);
}

static uint8_t dtype_of(uint32_t mode)
{
	return (uint8_t)IFTODT(mode);
}

static void set_own(struct ntr_inode *in, uint64_t dir, const char *name, size_t n)
{
	in->parent = dir;
	in->name_len = (uint8_t)n;
	memcpy(in->name, name, n);
	in->name[n] = '\0';
}

int ntr_name_create(
        struct ntr_txn *t, uint64_t dir, const char *name, struct ntr_inode *in, const struct timespec *now)
{
	struct ntr_inode d;
	size_t n;
	int r = check_free(ntr_txn_snap(t), dir, name, &n, &d);

	if (r)
		return r;
	set_own(in, dir, name, n);
	in->nlink = S_ISDIR(in->mode) ? 2 : 1;
	r = ntr_inode_put(t, in);
	if (!r)
		r = ntr_dirent_put(t, dir, name, n, in->ino, dtype_of(in->mode));
	return r ? r : touch_dir(t, &d, S_ISDIR(in->mode), now);
}

int ntr_name_own_is_live(const struct ntr_snap *s, const struct ntr_inode *in)
{
	uint64_t ino;
	uint8_t dtype;
	int r;

	if (!in->name_len)
		return 0;
	r = ntr_dirent_get(s, in->parent, in->name, in->name_len, &ino, &dtype);
	return !r ? ino == in->ino : r == -ENOENT ? 0 : r;
}

/* Gives the name to an existing object: as the record's own when that has no entry (and always to a
 * directory, which can have but one), else as a LINK item. */
static int enter(struct ntr_txn *t, struct ntr_inode *d, const char *name, size_t n, struct ntr_inode *in,
        const struct timespec *now)
{
	int live = S_ISDIR(in->mode) ? 0 : ntr_name_own_is_live(ntr_txn_snap(t), in), r = 0;

	if (live < 0)
		return live;
	if (live) {
		in->flags |= NTR_INODE_HAS_LINKS;
		r = ntr_link_put(t, in->ino, d->ino, name, n);
	} else {
		set_own(in, d->ino, name, n);
	}
	if (now)
		in->ctime = *now;
	if (!r)
		r = ntr_inode_put(t, in);
	if (!r)
		r = ntr_dirent_put(t, d->ino, name, n, in->ino, dtype_of(in->mode));
	return r ? r : touch_dir(t, d, S_ISDIR(in->mode), now);
}

int ntr_name_link(struct ntr_txn *t, uint64_t ino, uint64_t dir, const char *name, const struct timespec *now)
{
	struct ntr_inode d, in;
	size_t n;
	int r = check_free(ntr_txn_snap(t), dir, name, &n, &d);

	if (!r)
		r = ntr_inode_get(ntr_txn_snap(t), ino, &in);
	if (r)
		return r;
	if (S_ISDIR(in.mode))
		return -EPERM;
	if (in.nlink == UINT32_MAX)
		return -EMLINK;
	in.nlink++;
	return enter(t, &d, name, n, &in, now);
}

int ntr_name_attach(
        struct ntr_txn *t, uint64_t dir, const char *name, uint64_t ino, const struct timespec *now)
{
	struct ntr_inode d, in;
	size_t n;
	int r = check_free(ntr_txn_snap(t), dir, name, &n, &d);

	if (!r)
		r = ntr_inode_get(ntr_txn_snap(t), ino, &in);
	return r ? r : enter(t, &d, name, n, &in, now);
}

int ntr_name_forget(struct ntr_txn *t, struct ntr_inode *in, uint64_t dir, const char *name, size_t n)
{
	const struct ntr_snap *s = ntr_txn_snap(t);
	char other[256];
	uint64_t parent;
	size_t len;
	int r = 0;

	if (!(in->flags & NTR_INODE_HAS_LINKS))
		return 0;
	if (!ntr_name_is_own(in, dir, name, n))
		r = ntr_link_del(t, in->ino, dir, name, n);
	else if (!(r = ntr_link_first(s, in->ino, &parent, other, &len))) {
		set_own(in, parent, other, len);
		r = ntr_link_del(t, in->ino, parent, other, len);
	}
	if (!r)
		r = ntr_link_first(s, in->ino, &parent, other, &len);
	if (r == -ENOENT) {
		in->flags &= ~(uint32_t)NTR_INODE_HAS_LINKS;
		r = 0;
	}
	return r;
}

int ntr_name_drop(
        struct ntr_txn *t, uint64_t ino, uint64_t dir, const char *name, size_t n, const struct timespec *now)
{
	struct ntr_inode in;
	int r = ntr_inode_get(ntr_txn_snap(t), ino, &in);

	if (r)
		return r;
	if (in.nlink <= 1)
		return ntr_inode_erase(t, ino);
	in.nlink--;
	if (now)
		in.ctime = *now;
	r = ntr_name_forget(t, &in, dir, name, n);
	return r ? r : ntr_inode_put(t, &in);
}

/* now: of the directory; lost: of a file that keeps other names. */
static int take_name(struct ntr_txn *t, uint64_t dir, const char *name, const struct timespec *now,
        const struct timespec *lost)
{
	struct ntr_inode d;
	uint64_t ino;
	uint8_t dtype;
	size_t n;
	int r = check_name(name, &n);

	if (!r)
		r = get_dir(ntr_txn_snap(t), dir, &d);
	if (!r)
		r = ntr_dirent_get(ntr_txn_snap(t), dir, name, n, &ino, &dtype);
	if (!r)
		r = ntr_dirent_del(t, dir, name, n);
	if (r)
		return r;
	r = dtype == DT_DIR ? ntr_name_erase_dirs(t, ino, NULL, NULL, lost)
	                    : ntr_name_drop(t, ino, dir, name, n, lost);
	return r ? r : touch_dir(t, &d, -(dtype == DT_DIR), now);
}

int ntr_name_remove(struct ntr_txn *t, uint64_t dir, const char *name, const struct timespec *now)
{
	return take_name(t, dir, name, now, now);
}

int ntr_name_lose(struct ntr_txn *t, uint64_t dir, const char *name, const struct timespec *lost)
{
	return take_name(t, dir, name, NULL, lost);
}

/* A LINK item of the name goes at once: what still has one after a detach is named there. The record's own
 * name stays written in it until the attach, or until ntr_name_erase_tree drops it. */
static int detach_link(struct ntr_txn *t, uint64_t ino, uint64_t dir, const char *name, size_t n)
{
	struct ntr_inode in;
	int r = ntr_inode_get(ntr_txn_snap(t), ino, &in);

	if (r || !(in.flags & NTR_INODE_HAS_LINKS) || ntr_name_is_own(&in, dir, name, n))
		return r;
	r = ntr_name_forget(t, &in, dir, name, n);
	return r ? r : ntr_inode_put(t, &in);
}

int ntr_name_detach(struct ntr_txn *t, uint64_t dir, const char *name, uint64_t *ret_ino)
{
	struct ntr_inode d;
	uint8_t dtype;
	size_t n;
	int r = check_name(name, &n);

	if (!r)
		r = get_dir(ntr_txn_snap(t), dir, &d);
	if (!r)
		r = ntr_dirent_get(ntr_txn_snap(t), dir, name, n, ret_ino, &dtype);
	if (!r)
		r = ntr_dirent_del(t, dir, name, n);
	if (!r && dtype != DT_DIR)
		r = detach_link(t, *ret_ino, dir, name, n);
	return r ? r : touch_dir(t, &d, -(dtype == DT_DIR), NULL);
}

/* Is dir the directory ino or below it? 1, 0, negative errno. */
static int is_below(const struct ntr_snap *s, uint64_t dir, uint64_t ino)
{
	struct ntr_inode d;

	for (unsigned depth = 0; dir != ino && dir != NTR_INO_ROOT; depth++) {
		int r = depth < MAX_DEPTH ? ntr_inode_get(s, dir, &d) : -EUCLEAN;

		if (r)
			return r;
		dir = d.parent;
	}
	return dir == ino;
}

static int dir_is_empty(const struct ntr_snap *s, uint64_t dir)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, s, dir, 0);
	r = ntr_dir_iter_next(&it, &en);
	ntr_dir_iter_done(&it);
	return r < 0 ? r : !r;
}

/* What rename(2) asks of an existing target. 0: it may go. 1: it is the same file, nothing is to be done. */
static int check_target(const struct ntr_snap *s, uint64_t ino, uint8_t dtype, uint64_t tino, uint8_t ttype)
{
	int empty;

	if (tino == ino)
		return 1;
	if (ttype != DT_DIR)
		return dtype == DT_DIR ? -ENOTDIR : 0;
	if (dtype != DT_DIR)
		return -EISDIR;
	empty = dir_is_empty(s, tino);
	return empty < 0 ? empty : empty ? 0 : -ENOTEMPTY;
}

static int check_rename(const struct ntr_snap *s, uint64_t dir, const char *name, uint64_t ndir,
        const char *nname, bool *ret_exists)
{
	uint64_t ino, tino;
	uint8_t dtype, ttype;
	size_t n, nn;
	int r = check_name(name, &n);

	*ret_exists = false;
	if (!r)
		r = check_name(nname, &nn);
	if (!r)
		r = ntr_dirent_get(s, dir, name, n, &ino, &dtype);
	if (!r && dtype == DT_DIR && (r = is_below(s, ndir, ino)) > 0)
		r = -EINVAL;
	if (r)
		return r;
	r = ntr_dirent_get(s, ndir, nname, nn, &tino, &ttype);
	if (r)
		return r == -ENOENT ? 0 : r;
	*ret_exists = true;
	return check_target(s, ino, dtype, tino, ttype);
}

static int stamp_dir(struct ntr_txn *t, uint64_t dir, const struct timespec *now)
{
	struct ntr_inode d;
	int r = now ? get_dir(ntr_txn_snap(t), dir, &d) : 0;

	return r || !now ? r : touch_dir(t, &d, 0, now);
}

int ntr_name_rename(struct ntr_txn *t, uint64_t dir, const char *name, uint64_t ndir, const char *nname,
        const struct timespec *now)
{
	struct ntr_inode d;
	uint64_t ino;
	bool exists;
	int r = get_dir(ntr_txn_snap(t), ndir, &d);

	if (!r)
		r = check_rename(ntr_txn_snap(t), dir, name, ndir, nname, &exists);
	if (r)
		return r < 0 ? r : 0;
	if (exists)
		r = ntr_name_remove(t, ndir, nname, now);
	if (!r)
		r = ntr_name_detach(t, dir, name, &ino);
	if (!r)
		r = stamp_dir(t, dir, now);
	return r ? r : ntr_name_attach(t, ndir, nname, ino, now);
}
