/* Moving a committed directory. The session stands still meanwhile, so to everybody in it this is one step.
 *
 *     1  copy    what only the commit has goes into work/, out of sight
 *     2  show    the copy, in a directory beside the target that the view has just made (so overlayfs has
 *                looked up nothing in it), is renamed to the target by the kernel
 *     3  move    what upper has is renamed over, one by one; open files go along
 *     4  remove  what is left of the source
 *
 * A kill in 1 changes nothing; later, everything is under one of the two names, nothing under neither. What
 * the copies were in the tree is noted on them last, when the source is gone: an inode is never in two
 * places. */
#include "init_rename.h"
#include "../base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define STAGE "ntr-rename"
enum { EXCHANGE = 2 };

/* ---- where it is in the layers ---- */

/* The path below the view's root of an opened directory: "" or "/a/b". */
static int path_in_view(const struct ntr_rename_move *m, int dir, char ret[PATH_MAX])
{
	char link[64], path[PATH_MAX];
	size_t root = strlen(m->h->wsroot);
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
	n = readlink(link, path, sizeof path);
	if (n < 0 || n >= PATH_MAX)
		return -ENAMETOOLONG;
	path[n] = '\0';
	if (strncmp(path, m->h->wsroot, root) || (path[root] && path[root] != '/'))
		return -EXDEV;
	memcpy(ret, path + root, (size_t)n - root + 1);
	return 0;
}

/* A directory of a layer by the view's path; -1 in *ret: that layer has none. Component by component: what
 * the path means there must not depend on symlinks. */
static int open_layer(const struct ntr_rename_move *m, int layer, const char *path, int *ret)
{
	int fd = fcntl(m->layers[layer], F_DUPFD_CLOEXEC, 3);

	*ret = -1;
	if (fd < 0)
		return -errno;
	while (*(path += strspn(path, "/"))) {
		char name[NAME_MAX + 1];
		size_t n = strcspn(path, "/");
		int next;

		if (n > NAME_MAX) {
			close(fd);
			return -ENAMETOOLONG;
		}
		memcpy(name, path, n);
		name[n] = '\0';
		next = ntr_rename_layer(fd, name);
		close(fd);
		if (next < 0)
			return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
		fd = next;
		path += n;
	}
	*ret = fd;
	return 0;
}

struct source {
	int view, upper, lower;
};

static void source_done(struct source *s)
{
	ntr_closep(&s->view);
	ntr_closep(&s->upper);
	ntr_closep(&s->lower);
}

static int open_source(
        const struct ntr_rename_move *m, const struct ntr_rename_place *from, struct source *ret)
{
	char path[PATH_MAX];
	int upper = -1, lower = -1, r = path_in_view(m, from->dir, path);

	ret->view = openat(from->dir, from->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (!r && ret->view < 0)
		r = -errno;
	if (!r)
		r = open_layer(m, NTR_RENAME_UPPER, path, &upper);
	if (!r)
		r = open_layer(m, NTR_RENAME_LOWER, path, &lower);
	ret->upper = ntr_rename_layer(upper, from->name);
	ret->lower = ntr_rename_layer(lower, from->name);
	ntr_closep(&upper);
	ntr_closep(&lower);
	return r;
}

/* ---- 2: show ---- */

static int take_over(int from, int to)
{
	char **names = NULL;
	int r = ntr_rename_names(from, &names);

	for (char **n = names; !r && n && *n; n++)
		r = ntr_rename_plain(from, *n, to, *n, 0);
	ntr_strv_free(names);
	return r;
}

/* The new directory in upper itself. */
static int open_new(const struct ntr_rename_move *m, const struct ntr_rename_place *to, const char *name)
{
	ntr_autoclose int parent = -1;
	char path[PATH_MAX];
	int fd, r = path_in_view(m, to->dir, path);

	if (!r)
		r = open_layer(m, NTR_RENAME_UPPER, path, &parent);
	if (r)
		return r;
	fd = parent < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -EIO : fd;
}

static int fill_and_show(const struct ntr_rename_move *m, const struct ntr_rename_place *to, int stage,
        int like, const char *temp, unsigned flags)
{
	ntr_autoclose int seen = openat(to->dir, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	ntr_autoclose int raw = open_new(m, to, temp);
	int r;

	if (seen < 0)
		return -errno;
	fremovexattr(seen, "system.posix_acl_access"); /* inherited: a renamed directory would not */
	fremovexattr(seen, "system.posix_acl_default");
	r = raw < 0 ? raw : take_over(stage, raw);
	if (!r)
		r = ntr_rename_look_like(like, seen, false, true);
	if (!r)
		r = ntr_rename_plain(to->dir, temp, to->dir, to->name, flags);
	return r;
}

static int show(const struct ntr_rename_move *m, const struct ntr_rename_place *to, int stage, int like,
        unsigned flags)
{
	char temp[32];
	uint32_t salt;
	int r = ntr_random(&salt, sizeof salt);

	snprintf(temp, sizeof temp, ".ntr-rename-%08x", salt);
	if (r || mkdirat(to->dir, temp, 0700))
		return r ? r : -errno;
	r = fill_and_show(m, to, stage, like, temp, flags);
	if (r)
		ntr_rm_rf(to->dir, temp);
	return r;
}

/* ---- 3 and 4: move, remove ---- */

struct level {
	int from, upper, to;
};

static int move_level(const struct level *at);

static int move_dir(const struct level *at, const char *name)
{
	ntr_autoclose int from = -1, to = -1, upper = -1;
	int r = ntr_rename_plain(at->from, name, at->to, name, 0);

	if (r != -EXDEV && r != -ENOTEMPTY && r != -EEXIST)
		return r;
	upper = ntr_rename_layer(at->upper, name);
	from = openat(at->from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	to = openat(at->to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0 || to < 0)
		return -errno;
	r = move_level(&(struct level){.from = from, .upper = upper, .to = to});
	return !r && unlinkat(at->from, name, AT_REMOVEDIR) ? -errno : r;
}

/* What has not been copied (somebody outside of the session may have made it since) is moved. */
static int move_entry(const struct level *at, const char *name)
{
	struct stat st, other;

	if (fstatat(at->from, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return move_dir(at, name);
	if ((at->upper >= 0 && !fstatat(at->upper, name, &other, AT_SYMLINK_NOFOLLOW)) ||
	        fstatat(at->to, name, &other, AT_SYMLINK_NOFOLLOW))
		return ntr_rename_plain(at->from, name, at->to, name, 0);
	return unlinkat(at->from, name, 0) ? -errno : 0;
}

/* Goes on after an error, to leave as little as possible under two names. */
static int move_level(const struct level *at)
{
	char **names = NULL;
	struct stat st;
	int r = fstat(at->from, &st) ? -errno : ntr_rename_names(at->from, &names), err = r;

	for (char **n = names; !r && n && *n; n++) {
		int one = move_entry(at, *n);

		err = err ? err : one;
	}
	ntr_strv_free(names);
	if (!r)
		futimens(at->to, (struct timespec[]){st.st_atim, st.st_mtim});
	return err;
}

static int finish(
        const struct ntr_rename_place *from, const struct ntr_rename_place *to, const struct source *s)
{
	ntr_autoclose int now = openat(to->dir, to->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (now < 0)
		return -errno;
	r = move_level(&(struct level){.from = s->view, .upper = s->upper, .to = now});
	return !r && unlinkat(from->dir, from->name, AT_REMOVEDIR) ? -errno : r;
}

/* ---- what they were ---- */

static void mark(const char *top, const char *path, uint64_t ino)
{
	char full[PATH_MAX], text[24];
	int n = snprintf(full, sizeof full, "%s%s%s", top, *path ? "/" : "", path);

	if (!ino || n >= (int)sizeof full)
		return;
	n = snprintf(text, sizeof text, "%" PRIu64, ino);
	setxattr(full, NTR_RENAME_MARK, text, (size_t)n, 0);
}

static void mark_all(const struct ntr_rename_move *m, const struct ntr_rename_place *to,
        const struct ntr_rename_copy *c, uint64_t top_ino)
{
	ntr_autoclose int raw = open_new(m, to, to->name);
	char top[64];

	if (raw < 0)
		return;
	snprintf(top, sizeof top, "/proc/self/fd/%d", raw);
	mark(top, "", top_ino);
	for (size_t i = 0; i < c->n; i++)
		mark(top, c->v[i].path, c->v[i].ino);
}

/* ---- all of it ---- */

static int is_empty(const struct ntr_rename_place *p)
{
	ntr_autoclose int fd = openat(p->dir, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char **names = NULL;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = ntr_rename_names(fd, &names);
	if (!r && names[0])
		r = -ENOTEMPTY;
	ntr_strv_free(names);
	return r;
}

static int new_stage(const struct ntr_rename_move *m)
{
	int work = m->layers[NTR_RENAME_WORK], fd, r = ntr_rm_rf(work, STAGE);

	if (r || mkdirat(work, STAGE, 0700))
		return r ? r : -errno;
	fd = openat(work, STAGE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static uint64_t ino_of(int lower)
{
	struct stat st;

	return lower < 0 || fstat(lower, &st) ? 0 : ntr_shown_ino(st.st_ino);
}

/* Nothing has been changed when it fails with anything but what the last step says. */
static int move_one(struct ntr_rename_move *m, const struct ntr_rename_place *from,
        const struct ntr_rename_place *to, unsigned flags)
{
	ntr_auto(ntr_rename_copy_done) struct ntr_rename_copy c = {.move = m, .stage = -1};
	ntr_auto(source_done) struct source s = {-1, -1, -1};
	ntr_autoclose int stage = -1;
	int r = is_empty(to);

	if (!r)
		r = open_source(m, from, &s);
	if (r)
		return r;
	stage = new_stage(m);
	if (stage < 0)
		return stage;
	c.stage = stage;
	r = ntr_rename_copy(&c, s.view, s.upper, s.lower);
	if (!r)
		r = show(m, to, stage, s.view, flags);
	ntr_rm_rf(m->layers[NTR_RENAME_WORK], STAGE);
	if (r)
		return r;
	r = finish(from, to, &s);
	if (!r)
		mark_all(m, to, &c, ino_of(s.lower));
	return r;
}

/* By the kernel if it can. */
static int move_any(
        struct ntr_rename_move *m, const struct ntr_rename_place *from, const struct ntr_rename_place *to)
{
	int r = ntr_rename_plain(from->dir, from->name, to->dir, to->name, 0);

	return r == -EXDEV ? move_one(m, from, to, 0) : r;
}

static int exchange(struct ntr_rename_move *m)
{
	struct ntr_rename_place aside = {.dir = m->to.dir};
	uint32_t salt;
	int r = ntr_random(&salt, sizeof salt);

	snprintf(aside.name, sizeof aside.name, ".ntr-rename-%08x", salt);
	if (!r)
		r = move_any(m, &m->from, &aside);
	if (r)
		return r;
	r = move_any(m, &m->to, &m->from);
	if (r) {
		ntr_rename_plain(aside.dir, aside.name, m->from.dir, m->from.name, 0);
		return r;
	}
	return ntr_rename_plain(aside.dir, aside.name, m->to.dir, m->to.name, 0);
}

/* What mv(1) and the like answer with a copy of their own, unless that could not help either. */
static int errno_for_caller(int r)
{
	switch (r) {
	case 0:
	case -ENOSPC:
	case -EDQUOT:
	case -EIO:
	case -ENOTEMPTY:
	case -EEXIST:
	case -EINTR:
	case -EBUSY:
		return r;
	default:
		return -EXDEV;
	}
}

int ntr_rename_move(struct ntr_rename_move *m)
{
	return errno_for_caller(m->flags & EXCHANGE ? exchange(m) : move_one(m, &m->from, &m->to, m->flags));
}
