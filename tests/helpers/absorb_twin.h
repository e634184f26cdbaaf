/* absorb_twin: random operations on a merged view and, the same, on a plain directory. What the view refuses
 * or allows, the plain directory must too, but for what overlayfs is known to do otherwise: a hard link into
 * the commit is broken by its first write (the twin breaks it as well), and without redirect_dir a committed
 * directory does not move. */
#ifndef NTR_TEST_ABSORB_TWIN_H
#define NTR_TEST_ABSORB_TWIN_H

#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

struct twin {
	int view, plain; /* directories */
	uint64_t seed, clock;
	bool root;        /* may chown, mknod, set trusted.* */
	uint64_t *linked; /* plain inodes that had several names at the last fold */
	size_t nlinked;
	char (*path)[512]; /* of the plain directory, as of the last look */
	uint32_t *mode;
	size_t n, cap;
	unsigned trace;
	unsigned long done, refused;
};

static inline uint64_t tw_rand(struct twin *t, uint64_t n)
{
	t->seed ^= t->seed >> 12;
	t->seed ^= t->seed << 25;
	t->seed ^= t->seed >> 27;
	return (t->seed * UINT64_C(2685821657736338717) >> 11) % n;
}

static inline void tw_look_at(struct twin *t, int dirfd, const char *dir)
{
	DIR *d = fdopendir(dirfd);
	struct dirent *en;

	while (d && (en = readdir(d))) {
		struct stat st;

		if (!strcmp(en->d_name, ".") || !strcmp(en->d_name, ".."))
			continue;
		if (t->n == t->cap) {
			t->cap = t->cap ? t->cap * 2 : 256;
			t->path = realloc(t->path, t->cap * sizeof(*t->path));
			t->mode = realloc(t->mode, t->cap * sizeof(*t->mode));
		}
		snprintf(t->path[t->n], sizeof(*t->path), "%s%s%s", dir, *dir ? "/" : "", en->d_name);
		fstatat(t->plain, t->path[t->n], &st, AT_SYMLINK_NOFOLLOW);
		t->mode[t->n++] = st.st_mode;
		if (S_ISDIR(st.st_mode)) {
			size_t at = t->n - 1;
			char sub[512];

			memcpy(sub, t->path[at], sizeof(sub));
			tw_look_at(t, openat(dirfd, en->d_name, O_RDONLY | O_DIRECTORY), sub);
		}
	}
	if (d)
		closedir(d);
}

/* A name in some directory: an old one or a new one. */
static inline void tw_look(struct twin *t)
{
	t->n = 0;
	tw_look_at(t, openat(t->plain, ".", O_RDONLY | O_DIRECTORY), "");
}

/* A path of that type that is there; false: none found. */
static inline bool tw_pick(struct twin *t, uint32_t type, char out[512])
{
	for (int i = 0; i < 20 && t->n; i++) {
		size_t k = tw_rand(t, t->n);

		if (type && (t->mode[k] & S_IFMT) != type)
			continue;
		memcpy(out, t->path[k], 512);
		return true;
	}
	return false;
}

static inline void tw_new_name(struct twin *t, char out[512])
{
	static const char *const odd[] = {"\xff\xfe", "a b", "\n", "-r", "ZZ"};
	char dir[512] = "", name[64];

	if (tw_rand(t, 4))
		tw_pick(t, S_IFDIR, dir);
	if (!tw_rand(t, 12))
		snprintf(name, sizeof(name), "%s", odd[tw_rand(t, NTR_COUNT(odd))]);
	else
		snprintf(name, sizeof(name), "%c%llu", (int)('a' + (int)tw_rand(t, 4)),
		        (unsigned long long)tw_rand(t, 8));
	if (strlen(dir) > 300)
		dir[0] = '\0';
	snprintf(out, 512, "%.400s%s%s", dir, *dir ? "/" : "", name);
}

/* Some path: mostly one that is there. */
static inline void tw_any(struct twin *t, char out[512])
{
	if (!tw_rand(t, 3) || !tw_pick(t, 0, out))
		tw_new_name(t, out);
}

static inline bool tw_was_linked(struct twin *t, const char *path)
{
	struct stat st;

	if (fstatat(t->plain, path, &st, AT_SYMLINK_NOFOLLOW) || S_ISDIR(st.st_mode))
		return false;
	for (size_t i = 0; i < t->nlinked; i++)
		if (t->linked[i] == st.st_ino)
			return true;
	return false;
}

static inline void tw_copy_xattrs(struct twin *t, const char *from, const char *to)
{
	char list[4096], val[65536], p[600], q[600];
	ssize_t k;

	snprintf(p, sizeof(p), "/proc/self/fd/%d/%s", t->plain, from);
	snprintf(q, sizeof(q), "/proc/self/fd/%d/%s", t->plain, to);
	k = llistxattr(p, list, sizeof(list));
	for (const char *name = list; k > 0 && name < list + k; name += strlen(name) + 1) {
		ssize_t n = lgetxattr(p, name, val, sizeof(val));

		if (n >= 0)
			lsetxattr(q, name, val, (size_t)n, 0);
	}
}

/* The plain directory's name of a file with others becomes a file of its own, as overlayfs makes it. */
static inline void tw_break(struct twin *t, const char *path)
{
	struct stat st;
	char buf[65536], target[4096], tmp[] = ".twin-tmp";
	ssize_t k;

	if (!tw_was_linked(t, path))
		return;
	fstatat(t->plain, path, &st, AT_SYMLINK_NOFOLLOW);
	if (S_ISREG(st.st_mode)) {
		int in = openat(t->plain, path, O_RDONLY),
		    out = openat(t->plain, tmp, O_WRONLY | O_CREAT | O_EXCL, 0600);

		while ((k = read(in, buf, sizeof(buf))) > 0)
			if (write(out, buf, (size_t)k) != k)
				abort();
		if (t->root && fchown(out, st.st_uid, st.st_gid))
			abort();
		fchmod(out, st.st_mode & 07777);
		close(in);
		close(out);
	} else if (S_ISLNK(st.st_mode)) {
		k = readlinkat(t->plain, path, target, sizeof(target) - 1);
		target[k] = '\0';
		if (symlinkat(target, t->plain, tmp) ||
		        (t->root && fchownat(t->plain, tmp, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW)))
			abort();
	} else {
		if (mknodat(t->plain, tmp, st.st_mode, st.st_rdev) ||
		        (t->root && fchownat(t->plain, tmp, st.st_uid, st.st_gid, 0)))
			abort();
		if (fchmodat(t->plain, tmp, st.st_mode & 07777, 0))
			abort();
	}
	tw_copy_xattrs(t, path, tmp);
	utimensat(t->plain, tmp, (struct timespec[2]){st.st_atim, st.st_mtim}, AT_SYMLINK_NOFOLLOW);
	if (renameat(t->plain, tmp, t->plain, path))
		abort();
}

/* After a fold: names that share a file now share one in the commit. */
static inline void tw_folded(struct twin *t)
{
	tw_look(t);
	t->nlinked = 0;
	t->linked = realloc(t->linked, (t->n + 1) * sizeof(*t->linked));
	for (size_t i = 0; i < t->n; i++) {
		struct stat st;

		if (!fstatat(t->plain, t->path[i], &st, AT_SYMLINK_NOFOLLOW) && !S_ISDIR(st.st_mode) &&
		        st.st_nlink > 1)
			t->linked[t->nlinked++] = st.st_ino;
	}
}

static inline int tw_stamp(struct twin *t, int dir, const char *path)
{
	struct timespec ts[2] = {{(time_t)(1600000000 + t->clock), 5},
	        {(time_t)(1600000000 + t->clock), (long)(t->clock % 1000)}};

	return utimensat(dir, path, ts, AT_SYMLINK_NOFOLLOW);
}

struct tw_op {
	int what;
	char a[512], b[512];
	uint64_t x, y;
	size_t n;
	uint8_t *data;
};
enum {
	TW_CREATE,
	TW_WRITE,
	TW_TRUNCATE,
	TW_UNLINK,
	TW_MKDIR,
	TW_RMDIR,
	TW_RMTREE,
	TW_RENAME,
	TW_EXCHANGE,
	TW_LINK,
	TW_SYMLINK,
	TW_CHMOD,
	TW_CHOWN,
	TW_SETXATTR,
	TW_DELXATTR,
	TW_MKNOD,
	TW_UTIMES,
	TW_REPLACE,
	TW_TOUCH_OPEN,
	TW_REMKDIR,
	TW_OPS
};

static inline int tw_xattr(int dir, const char *path, const char *name, const void *val, size_t n, bool set)
{
	char p[600];

	snprintf(p, sizeof(p), "/proc/self/fd/%d/%s", dir, path);
	return set ? lsetxattr(p, name, val, n, 0) : lremovexattr(p, name);
}

static inline int tw_put(int dir, const char *path, int flags, const struct tw_op *o, uint64_t off)
{
	int fd = openat(dir, path, flags | O_NOFOLLOW | O_NONBLOCK, 0644), r;

	if (fd < 0)
		return -1;
	r = pwrite(fd, o->data, o->n, (off_t)off) == (ssize_t)o->n ? 0 : -1;
	if (!r && flags & O_CREAT)
		fchmod(fd, (mode_t)(o->y & 0777) | 0600);
	close(fd);
	return r;
}

static inline int tw_rmtree(int dir, const char *path)
{
	struct stat st;

	if (fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW))
		return -1;
	errno = -ntr_rm_rf(dir, path);
	return errno ? -1 : 0;
}

/* Errno of the operation on one of the two directories; *ret_dirty: path a needs its times set. */
static inline int tw_apply(struct twin *t, int dir, const struct tw_op *o, bool *ret_dirty)
{
	static const char *const xn[] = {
	        "user.a", "user.b", "user.overlay.x", "trusted.t", "trusted.overlay.y"};
	const char *name = xn[o->x % (t->root ? 5 : 2)];
	int r = 0;

	errno = 0;
	*ret_dirty = true;
	switch (o->what) {
	case TW_CREATE:
		r = tw_put(dir, o->a, O_WRONLY | O_CREAT | O_EXCL, o, o->x % 8 ? 0 : o->x % 300000);
		break;
	case TW_WRITE:
		r = tw_put(dir, o->a, O_WRONLY, o, o->x % 3 ? o->x % 100 : o->x % 200000);
		break;
	case TW_TRUNCATE: {
		int fd = openat(dir, o->a, O_WRONLY | O_NOFOLLOW | O_NONBLOCK);

		r = fd < 0 ? -1 : ftruncate(fd, (off_t)(o->x % 3 ? o->x % 2000 : o->x % 150000));
		if (fd >= 0)
			close(fd);
		break;
	}
	case TW_UNLINK:
		r = unlinkat(dir, o->a, 0);
		*ret_dirty = false;
		break;
	case TW_MKDIR:
		r = mkdirat(dir, o->a, 0755);
		break;
	case TW_RMDIR:
		r = unlinkat(dir, o->a, AT_REMOVEDIR);
		*ret_dirty = false;
		break;
	case TW_RMTREE:
		r = tw_rmtree(dir, o->a);
		*ret_dirty = false;
		break;
	case TW_RENAME:
		r = renameat(dir, o->a, dir, o->b);
		*ret_dirty = false;
		break;
	case TW_EXCHANGE:
		r = (int)syscall(SYS_renameat2, dir, o->a, dir, o->b, 2 /* RENAME_EXCHANGE */);
		*ret_dirty = false;
		break;
	case TW_LINK:
		r = linkat(dir, o->a, dir, o->b, 0);
		*ret_dirty = false;
		break;
	case TW_SYMLINK:
		r = symlinkat(o->b, dir, o->a);
		break;
	case TW_CHMOD:
		r = fchmodat(dir, o->a, (mode_t)(o->x & 0777) | (t->root ? 0 : 0700), 0);
		break;
	case TW_CHOWN:
		r = t->root ? fchownat(dir, o->a, (uid_t)(o->x % 3 * 500), (gid_t)(o->y % 3 * 500),
		                      AT_SYMLINK_NOFOLLOW)
		            : faccessat(dir, o->a, F_OK, AT_SYMLINK_NOFOLLOW);
		break;
	case TW_SETXATTR:
		r = tw_xattr(dir, o->a, name, o->data, o->n % 3000, true);
		break;
	case TW_DELXATTR:
		r = tw_xattr(dir, o->a, name, NULL, 0, false);
		break;
	case TW_MKNOD:
		r = mknodat(dir, o->a, (o->x % 2 || !t->root ? S_IFIFO : S_IFCHR) | 0640,
		        o->x % 2 || !t->root ? 0 : makedev(1, (unsigned)(3 + o->y % 3)));
		break;
	case TW_UTIMES:
		r = faccessat(dir, o->a, F_OK, AT_SYMLINK_NOFOLLOW);
		break;
	case TW_REPLACE: /* as editors do */
		unlinkat(dir, ".tmp", 0);
		r = tw_put(dir, ".tmp", O_WRONLY | O_CREAT | O_EXCL, o, 0);
		if (!r && (r = renameat(dir, ".tmp", dir, o->a)))
			r = -1;
		if (r) {
			int e = errno;

			unlinkat(dir, ".tmp", 0);
			errno = e;
		}
		break;
	case TW_TOUCH_OPEN: {
		int fd = openat(dir, o->a, O_RDWR | O_NOFOLLOW | O_NONBLOCK);

		r = fd < 0 ? -1 : 0;
		if (fd >= 0)
			close(fd);
		*ret_dirty = false;
		break;
	}
	case TW_REMKDIR:
		r = tw_rmtree(dir, o->a);
		if (!r)
			r = mkdirat(dir, o->a, 0700);
		break;
	}
	return r ? errno ? errno : EIO : 0;
}

static inline bool tw_writes(int what)
{
	return what == TW_WRITE || what == TW_TRUNCATE || what == TW_RENAME || what == TW_EXCHANGE ||
	       what == TW_LINK || what == TW_CHMOD || what == TW_CHOWN || what == TW_SETXATTR ||
	       what == TW_DELXATTR || what == TW_UTIMES || what == TW_TOUCH_OPEN;
}

static inline bool tw_opens(int what)
{
	return what == TW_WRITE || what == TW_TRUNCATE || what == TW_TOUCH_OPEN;
}

static inline bool tw_is_special(struct twin *t, const char *path)
{
	struct stat st;

	return !fstatat(t->plain, path, &st, AT_SYMLINK_NOFOLLOW) && !S_ISREG(st.st_mode);
}

/* Two names of one file: rename does nothing; but not in the view once they are no longer one. */
static inline bool tw_is_same_file(struct twin *t, const char *a, const char *b)
{
	struct stat x, y;

	return !fstatat(t->plain, a, &x, AT_SYMLINK_NOFOLLOW) &&
	       !fstatat(t->plain, b, &y, AT_SYMLINK_NOFOLLOW) && x.st_ino == y.st_ino;
}

/* overlayfs gives a file whose attributes alone were copied up a new mtime when its data follows. */
static inline bool tw_times_differ(struct twin *t, const char *path)
{
	struct stat x, y;

	return !fstatat(t->view, path, &x, AT_SYMLINK_NOFOLLOW) &&
	       !fstatat(t->plain, path, &y, AT_SYMLINK_NOFOLLOW) &&
	       (x.st_mtim.tv_sec != y.st_mtim.tv_sec || x.st_mtim.tv_nsec != y.st_mtim.tv_nsec);
}

/* One random operation on both. Returns 0, or what differed as text. */
static inline const char *tw_step(struct twin *t)
{
	static const int weight[] = {TW_CREATE, TW_CREATE, TW_CREATE, TW_WRITE, TW_WRITE, TW_MKDIR, TW_MKDIR,
	        TW_RENAME, TW_RENAME, TW_RENAME, TW_RENAME, TW_LINK, TW_LINK};
	static char text[2000];
	uint8_t data[3000];
	struct tw_op o = {.data = data};
	bool dirty, dirty2;
	int r, r2;

	t->clock++;
	tw_look(t);
	o.what = tw_rand(t, 2) ? weight[tw_rand(t, NTR_COUNT(weight))] : (int)tw_rand(t, TW_OPS);
	o.x = tw_rand(t, 1u << 30);
	o.y = tw_rand(t, 1u << 30);
	o.n = tw_rand(t, 4) ? tw_rand(t, 200) : tw_rand(t, sizeof(data));
	for (size_t i = 0; i < o.n; i++)
		data[i] = (uint8_t)(o.x + i * o.y);
	if (o.what == TW_CREATE || o.what == TW_MKDIR || o.what == TW_SYMLINK || o.what == TW_MKNOD)
		tw_new_name(t, o.a);
	else
		tw_any(t, o.a);
	if (o.what == TW_WRITE || o.what == TW_TRUNCATE)
		tw_pick(t, S_IFREG, o.a);
	if (o.what == TW_EXCHANGE)
		tw_any(t, o.b);
	else
		tw_rand(t, 3) ? tw_new_name(t, o.b) : tw_any(t, o.b);
	if (o.what == TW_RMTREE && tw_rand(t, 3))
		o.what = TW_UNLINK;
	if (o.what == TW_REMKDIR) {
		struct stat st;

		if (fstatat(t->plain, o.a, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
			return NULL;
	}
	if ((o.what == TW_RENAME || o.what == TW_EXCHANGE || o.what == TW_LINK) &&
	        tw_is_same_file(t, o.a, o.b))
		return NULL;
	if (t->trace)
		fprintf(stderr, "  %lu: op %d '%s' '%s' %llu %llu %zu\n", t->done, o.what, o.a, o.b,
		        (unsigned long long)o.x, (unsigned long long)o.y, o.n);
	r = tw_apply(t, t->view, &o, &dirty);
	t->done++;
	if (r) {
		t->refused++;
		if (r == EXDEV && !t->root)
			return NULL;
	}
	/* A copy-up breaks the link; a failed operation may have copied up as well, or not. */
	if (tw_writes(o.what) && !r && !(tw_opens(o.what) && tw_is_special(t, o.a))) {
		tw_break(t, o.a);
		if (o.what == TW_EXCHANGE)
			tw_break(t, o.b);
	}
	r2 = tw_apply(t, t->plain, &o, &dirty2);
	if (r != r2) {
		snprintf(text, sizeof(text), "op %d '%s' '%s': view: %s, plain: %s", o.what, o.a, o.b,
		        strerror(r), strerror(r2));
		return text;
	}
	if (!r && o.what == TW_TOUCH_OPEN)
		dirty = tw_times_differ(t, o.a);
	if (!r && dirty && (tw_stamp(t, t->view, o.a) || tw_stamp(t, t->plain, o.a))) {
		snprintf(text, sizeof(text), "set times of '%s': %s", o.a, strerror(errno));
		return text;
	}
	return NULL;
}

#endif
