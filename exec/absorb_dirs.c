/* Open directories of upper, at most NTR_DIRS_OPEN at a time, the least recently used one closed for the
 * next. A walk goes depth first, so that a directory's parent is nearly always open still. */
#include "absorb_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static bool is_locked(const struct ntr_mdir *d)
{
	return (d->mode & 0500) != 0500 && geteuid();
}

/* Lends u+rwx / u+rw to what name in dirfd is; returns the mode to give back. */
static int lend_name(
        const struct ntr_dirs *c, int dirfd, const char *name, uint32_t bits, int *ret_fd, uint32_t *ret_mode)
{
	ntr_autoclose int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	r = ntr_lent_give(c->beside, fd, &st, bits);
	if (r)
		return r;
	*ret_mode = st.st_mode & 07777;
	*ret_fd = ntr_steal_fd(&fd);
	return 0;
}

static int unlend_name(const struct ntr_dirs *c, int fd, uint32_t mode, uint32_t bits)
{
	int r = ntr_lent_back(c->beside, fd, mode, bits);

	close(fd);
	return r;
}

/* A directory's ctime moved because its mode was lent: that is no change of the session's. But one that had
 * moved before has to be found still. */
static bool is_known(const struct ntr_mdir *d, int dirfd, const char *name)
{
	struct statx sx;

	return !ntr_statx_at(dirfd, name, &sx) && ntr_mstat_of(&sx).ctime == d->st.ctime;
}

static void forget_touch(struct ntr_mdir *d, int fd)
{
	struct statx sx;

	if (!ntr_statx_at(fd, "", &sx))
		d->st.ctime = ntr_mstat_of(&sx).ctime;
}

static void slot_close(struct ntr_dirs *c, int i)
{
	struct ntr_mdir *d = c->slot[i].dir;
	int fd = c->slot[i].fd;

	if (!d)
		return;
	if (c->slot[i].restore != UINT32_MAX) {
		ntr_lent_back(c->beside, fd, c->slot[i].restore, 0700);
		if (c->slot[i].known)
			forget_touch(d, fd);
	}
	close(fd);
	d->slot = -1;
	c->slot[i].dir = NULL;
	c->slot[i].fd = -1;
}

void ntr_dirs_init(struct ntr_dirs *c, const struct ntr_memo *m, struct ntr_mdir *root)
{
	int root_fd = m->fd;
	struct stat st;

	*c = (struct ntr_dirs){
	        .root_fd = root_fd, .beside = m->beside, .root = root, .root_restore = UINT32_MAX};
	for (int i = 0; i < NTR_DIRS_OPEN; i++)
		c->slot[i].fd = -1;
	/* What the root's mode is now counts, not what is known of it. */
	if (!geteuid() || fstat(root_fd, &st) || (st.st_mode & 0500) == 0500)
		return;
	c->root_known = is_known(root, root_fd, "");
	if (!ntr_lent_give(c->beside, root_fd, &st, 0700))
		c->root_restore = st.st_mode & 07777;
}

void ntr_dirs_done(struct ntr_dirs *c)
{
	for (int i = 0; i < NTR_DIRS_OPEN; i++)
		slot_close(c, i);
	if (c->root_restore != UINT32_MAX) {
		ntr_lent_back(c->beside, c->root_fd, c->root_restore, 0700);
		if (c->root_known)
			forget_touch(c->root, c->root_fd);
	}
}

static int free_slot(struct ntr_dirs *c)
{
	int best = 0;

	for (int i = 0; i < NTR_DIRS_OPEN; i++) {
		if (!c->slot[i].dir)
			return i;
		if (c->slot[i].used < c->slot[best].used)
			best = i;
	}
	slot_close(c, best);
	return best;
}

/* Looking moves no access time where that can be had: of what is another's it cannot. */
static int open_quietly(int dirfd, const char *name, int flags)
{
	int fd = openat(dirfd, name, flags | O_NOATIME);

	return fd < 0 && errno == EPERM ? openat(dirfd, name, flags) : fd;
}

static int open_list(int parent, const char *name)
{
	return open_quietly(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* An ordinary user's directory without r or x: it is lent them while it is open. */
static int open_locked(
        const struct ntr_dirs *c, int parent, const char *name, int *ret_fd, uint32_t *ret_restore)
{
	int path = -1, r = lend_name(c, parent, name, 0700, &path, ret_restore);

	if (r)
		return r;
	*ret_fd = open_list(parent, name);
	if (*ret_fd < 0) {
		r = -errno;
		unlend_name(c, path, *ret_restore, 0700);
		return r;
	}
	close(path);
	return 0;
}

static int open_dir(
        const struct ntr_dirs *c, int parent, const struct ntr_mdir *d, int *ret_fd, uint32_t *ret_restore)
{
	const char *name = ntr_me_name(d->parent, d->at);

	*ret_restore = UINT32_MAX;
	if (is_locked(d))
		return open_locked(c, parent, name, ret_fd, ret_restore);
	*ret_fd = open_list(parent, name);
	return *ret_fd < 0 ? -errno : 0;
}

/* Opens d, whose parent is open or the root. */
static int get_one(struct ntr_dirs *c, struct ntr_mdir *d, int *ret_fd)
{
	struct ntr_mdir *p = d->parent;
	int parent = p->parent ? c->slot[p->slot].fd : c->root_fd, fd, i, r;
	uint32_t restore;
	bool known;

	if (p->parent)
		c->slot[p->slot].used = ++c->tick;
	i = free_slot(c);
	known = is_locked(d) && is_known(d, parent, ntr_me_name(p, d->at));
	r = open_dir(c, parent, d, &fd, &restore);
	if (r)
		return r;
	c->slot[i].dir = d;
	c->slot[i].fd = fd;
	c->slot[i].restore = restore;
	c->slot[i].known = known;
	c->slot[i].used = ++c->tick;
	d->slot = (int16_t)i;
	*ret_fd = fd;
	return 0;
}

/* Opens what is missing between the nearest open ancestor and d. */
static int get_chain(struct ntr_dirs *c, struct ntr_mdir *d, int *ret_fd)
{
	ntr_autofree struct ntr_mdir **chain = NULL;
	struct ntr_mdir *a;
	size_t n = 0;
	int r = 0;

	for (a = d; a->parent && a->slot < 0; a = a->parent)
		n++;
	chain = malloc(n * sizeof *chain);
	if (!chain)
		return -ENOMEM;
	n = 0;
	for (a = d; a->parent && a->slot < 0; a = a->parent)
		chain[n++] = a;
	while (!r && n--)
		r = get_one(c, chain[n], ret_fd);
	return r;
}

int ntr_dirs_get(struct ntr_dirs *c, struct ntr_mdir *d, int *ret_fd)
{
	if (!d->parent) {
		*ret_fd = c->root_fd;
		return 0;
	}
	if (d->slot >= 0) {
		c->slot[d->slot].used = ++c->tick;
		*ret_fd = c->slot[d->slot].fd;
		return 0;
	}
	if (!d->parent->parent || d->parent->slot >= 0)
		return get_one(c, d, ret_fd);
	return get_chain(c, d, ret_fd);
}

int ntr_dirs_open_file(const struct ntr_dirs *c, int dirfd, const char *name, int *ret_fd, bool *ret_touched)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	uint32_t mode = 0;
	int path = -1, r;

	*ret_touched = false;
	*ret_fd = open_quietly(dirfd, name, flags);
	if (*ret_fd >= 0)
		return 0;
	if (errno != EACCES)
		return -errno;
	r = lend_name(c, dirfd, name, 0600, &path, &mode);
	if (r)
		return r == -EPERM ? -EACCES : r;
	*ret_touched = true;
	*ret_fd = open_quietly(dirfd, name, flags);
	r = *ret_fd < 0 ? -errno : 0;
	if (unlend_name(c, path, mode, 0600) && !r)
		r = -EIO;
	return r;
}

/* An ordinary user may read user.* of what it owns only with r. */
int ntr_dirs_marks(const struct ntr_dirs *c, int dirfd, const char *name, bool userxattr,
        struct ntr_marks *ret, bool *ret_touched)
{
	uint32_t mode = 0;
	int path = -1, r = ntr_marks_read(dirfd, name, userxattr, ret), r2;

	*ret_touched = false;
	if (r != -EACCES || !*name)
		return r;
	r = lend_name(c, dirfd, name, 0600, &path, &mode);
	if (r)
		return r;
	*ret_touched = true;
	r = ntr_marks_read(dirfd, name, userxattr, ret);
	r2 = unlend_name(c, path, mode, 0600);
	return r ? r : r2;
}
