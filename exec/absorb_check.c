/* The cheap question: does upper differ from the memo? One statx per entry, nothing is allocated. Also what
 * this shares with the walk: listing a directory, stat. */
#include "absorb_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

enum { DENTS_SIZE = 32768 };

int ntr_dents_each(int fd, ntr_dents_fn fn, void *user)
{
	_Alignas(struct dirent64) uint8_t buf[DENTS_SIZE];

	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	for (;;) {
		long k = syscall(SYS_getdents64, fd, buf, sizeof buf);

		if (k <= 0)
			return k ? -errno : 0;
		for (uint8_t *p = buf; p < buf + k;) {
			const struct dirent64 *d = (const void *)p;
			const char *s = d->d_name;
			bool dots = s[0] == '.' && (!s[1] || (s[1] == '.' && !s[2]));
			int r = dots ? 0 : fn(user, fd, s, strlen(s));

			if (r)
				return r;
			p += d->d_reclen;
		}
	}
}

int ntr_statx_at(int fd, const char *name, struct statx *ret)
{
	const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;

	return statx(fd, name, flags | (*name ? 0 : AT_EMPTY_PATH), STATX_BASIC_STATS | STATX_BTIME, ret)
	               ? -errno
	               : 0;
}

static uint64_t nanoseconds(const struct statx_timestamp *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + t->tv_nsec;
}

struct ntr_mstat ntr_mstat_of(const struct statx *sx)
{
	return (struct ntr_mstat){
	        .ino = sx->stx_ino,
	        .btime = sx->stx_mask & STATX_BTIME ? nanoseconds(&sx->stx_btime) : 0,
	        .ctime = nanoseconds(&sx->stx_ctime),
	        .mtime = nanoseconds(&sx->stx_mtime),
	        .size = S_ISDIR(sx->stx_mode) ? 0 : sx->stx_size,
	};
}

bool ntr_is_whiteout(const struct statx *sx)
{
	return S_ISCHR(sx->stx_mode) && !sx->stx_rdev_major && !sx->stx_rdev_minor;
}

struct check {
	struct ntr_memo *m;
	struct ntr_dirs *dirs;
	struct ntr_mdir *d;
	uint32_t i; /* the entry that is expected next */
};

/* A directory whose ctime moved: entries came and went (which its listing tells), or its attributes changed.
 */
static int dir_attrs_changed(
        struct check *c, int fd, const char *name, struct ntr_mdir *d, const struct statx *sx)
{
	struct ntr_marks marks;
	bool touched;
	uint64_t hash;
	int r;

	if (sx->stx_mode != d->mode || sx->stx_uid != d->uid || sx->stx_gid != d->gid)
		return 1;
	r = ntr_dirs_marks(c->dirs, fd, name, c->m->userxattr, &marks, &touched);
	if (r)
		return r == -ENOENT ? 1 : r;
	ntr_marks_unlent(&marks, sx->stx_mode);
	hash = ntr_marks_hash(&marks);
	ntr_marks_done(&marks);
	return hash != d->xhash;
}

static int check_subdir(struct check *c, int fd, const char *name, struct ntr_mdir *d, const struct statx *sx)
{
	d->flags &= (uint8_t)~NTR_MD_STILL;
	if (ntr_mstat_of(sx).ctime != d->st.ctime)
		return dir_attrs_changed(c, fd, name, d, sx);
	if (!c->m->coarse)
		d->flags |= NTR_MD_STILL;
	return 0;
}

static int check_entry(void *user, int fd, const char *name, size_t n)
{
	struct check *c = user;
	const struct ntr_mentry *e = &c->d->v[c->i];
	struct ntr_mstat st;
	struct statx sx;

	if (c->i >= c->d->n || e->name_len != n || memcmp(ntr_me_name(c->d, c->i), name, n))
		return 1;
	c->i++;
	if (ntr_statx_at(fd, name, &sx))
		return 1;
	if (e->flags & NTR_ME_WHITEOUT && ntr_is_whiteout(&sx))
		return 0;
	st = ntr_mstat_of(&sx);
	if (e->flags & NTR_ME_UNTRUSTED || !ntr_mstat_same_object(&e->st, &st))
		return 1;
	return e->dir ? check_subdir(c, fd, name, e->dir, &sx) : !ntr_mstat_same(&e->st, &st);
}

/* Names come in the order of the last walk, or something was added or removed. A directory whose ctime stands
 * still has the names that it had. */
static int check_dir(struct check *c, struct ntr_mdir *d)
{
	int fd, r = ntr_dirs_get(c->dirs, d, &fd);

	if (r)
		return r == -ENOENT || r == -EACCES ? 1 : r;
	c->d = d;
	c->i = 0;
	if (!(d->flags & NTR_MD_STILL)) {
		r = ntr_dents_each(fd, check_entry, c);
		return r ? r : c->i != d->n;
	}
	while (!r && c->i < d->n)
		r = check_entry(c, fd, ntr_me_name(d, c->i), d->v[c->i].name_len);
	return r;
}

int ntr_absorb_check(struct ntr_memo *m)
{
	struct ntr_dirs dirs;
	struct check c = {.m = m, .dirs = &dirs};
	struct statx sx;
	int r = ntr_statx_at(m->fd, "", &sx);

	if (r)
		return r;
	ntr_dirs_init(&dirs, m, m->cur->root); /* behind the look: it may lend the directory a mode */
	r = check_subdir(&c, m->fd, "", m->cur->root, &sx);
	for (struct ntr_mdir *d = m->cur->root; d && !r; d = d->next) {
		r = check_dir(&c, d);
		m->walked += c.i;
		c.i = 0;
	}
	ntr_dirs_done(&dirs);
	return r;
}

/* What the memo has of a directory's time is what the tree has, unless it is pending. */
static int time_waits(struct ntr_dirs *dirs, struct ntr_mdir *d)
{
	struct statx sx;
	int fd, r;

	if (d->flags & NTR_MD_PENDING)
		return 1;
	r = ntr_dirs_get(dirs, d, &fd);
	if (!r)
		r = ntr_statx_at(fd, "", &sx);
	return r ? r : ntr_mstat_of(&sx).mtime != d->st.mtime;
}

int ntr_absorb_times_wait(struct ntr_memo *m)
{
	struct ntr_dirs dirs;
	int r = 0;

	ntr_dirs_init(&dirs, m, m->cur->root);
	for (struct ntr_mdir *d = m->cur->root; d && !r; d = d->next)
		r = time_waits(&dirs, d);
	ntr_dirs_done(&dirs);
	return r;
}
