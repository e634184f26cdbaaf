/* Copying what a committed directory holds to a place beside upper, where nobody sees it.
 *
 * What upper has of the directory (files that were changed, new files and directories) is left: it is renamed
 * later, and so stays what it is to everybody who has it open. */
#include "init_rename.h"
#include "../base/hash.h"
#include "../base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

enum { XATTRS_MAX = 65536, STEP = 1 << 30 };

struct ntr_rename_link {
	uint64_t ino;
	uint32_t left; /* names that have not been met */
	size_t at;     /* of the first name, in c->v */
	UT_hash_handle hh;
};

void ntr_rename_copy_done(struct ntr_rename_copy *c)
{
	struct ntr_rename_link *l, *next;

	for (size_t i = 0; i < c->n; i++)
		free(c->v[i].path);
	free(c->v);
	HASH_ITER (hh, c->links, l, next) {
		HASH_DEL(c->links, l);
		free(l);
	}
}

int ntr_rename_names(int dir, char ***ret)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	char **v = calloc(1, sizeof *v), **more;
	size_t n = 0, cap = 1;
	struct dirent *e;

	if (!d || !v)
		r = d ? -ENOMEM : -errno;
	if (!d && fd >= 0)
		close(fd);
	for (errno = 0; !r && (e = readdir(d)); errno = 0) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (n + 1 == cap) {
			more = realloc(v, (cap *= 2) * sizeof *v);
			if (!more) {
				r = -ENOMEM;
				break;
			}
			v = more;
		}
		v[n] = strdup(e->d_name);
		v[n + !!v[n]] = NULL;
		r = v[n] ? 0 : -ENOMEM;
		n += !r;
	}
	if (!r && errno)
		r = -errno;
	if (d)
		closedir(d);
	if (r)
		ntr_strv_free(v);
	else
		*ret = v;
	return r;
}

int ntr_rename_layer(int dir, const char *name)
{
	return dir < 0 ? -1 : openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool ntr_rename_opaque(int upper_dir)
{
	char path[32], val[2];

	snprintf(path, sizeof path, "/proc/self/fd/%d", upper_dir);
	return getxattr(path, "user.overlay.opaque", val, sizeof val) == 1 && val[0] == 'y';
}

/* ---- how it looks ---- */

/* upper keeps a user's attribute of overlayfs's own prefix with the prefix twice. */
static int copy_xattr(int from, int to, const char *name, bool raw)
{
	static const char own[] = "user.overlay.";
	ntr_autofree char *val = malloc(XATTRS_MAX), *to_name = NULL;
	bool escape = raw && !strncmp(name, own, strlen(own));
	ssize_t n = val ? fgetxattr(from, name, val, XATTRS_MAX) : -1;

	if (n < 0)
		return errno == ENODATA ? 0 : -errno;
	to_name = ntr_sprintf("%s%s", escape ? own : "", escape ? name + strlen("user.") : name);
	if (!to_name)
		return -ENOMEM;
	if (!fsetxattr(to, to_name, val, (size_t)n, 0))
		return 0;
	return strncmp(name, "security.", 9) || !strcmp(name, "security.capability") ? -errno : 0;
}

static int copy_xattrs(int from, int to, bool raw)
{
	ntr_autofree char *names = malloc(XATTRS_MAX);
	ssize_t n = names ? flistxattr(from, names, XATTRS_MAX) : -1;
	int r = 0;

	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (char *p = names; !r && p < names + n; p += strlen(p) + 1)
		r = copy_xattr(from, to, p, raw);
	return r;
}

static int give_owner(int fd, const char *path, const struct stat *want, int flags)
{
	struct stat now;

	if (fstatat(fd, path, &now, flags))
		return -errno;
	if (now.st_uid == want->st_uid && now.st_gid == want->st_gid)
		return 0;
	return fchownat(fd, path, want->st_uid, want->st_gid, flags) ? -errno : 0;
}

int ntr_rename_look_like(int from, int to, bool raw, bool times)
{
	struct stat st;
	int r = fstat(from, &st) ? -errno : give_owner(to, "", &st, AT_EMPTY_PATH);

	if (!r)
		r = copy_xattrs(from, to, raw);
	/* After the attributes: a list of rights sets the mode's group bits, and a change of owner takes
	 * set-id bits off. */
	if (!r && fchmod(to, st.st_mode & 07777))
		r = -errno;
	if (!r && times && futimens(to, (struct timespec[]){st.st_atim, st.st_mtim}))
		r = -errno;
	return r;
}

/* ---- content ---- */

static int copy_range(int from, int to, off_t at, off_t end)
{
	if (lseek(to, at, SEEK_SET) < 0)
		return -errno;
	while (at < end) {
		ssize_t n = sendfile(to, from, &at, (size_t)NTR_MIN(end - at, (off_t)STEP));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (!n)
			return 0; /* shorter than it was */
	}
	return 0;
}

static int copy_content(const struct ntr_rename_copy *c, int from, int to, off_t size)
{
	off_t at = 0, end = 0;
	int r = ftruncate(to, size) ? -errno : 0;

	while (!r && at < size) {
		at = lseek(from, end, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : -errno;
		end = lseek(from, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		r = copy_range(from, to, at, end);
		at = end;
		if (!r && !ntr_rename_waits(c->move->h->notify, c->move->id))
			r = -EINTR;
	}
	return r;
}

static int copy_file(
        const struct ntr_rename_copy *c, int from_dir, int to_dir, const char *name, const struct stat *st)
{
	ntr_autoclose int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ntr_autoclose int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r;

	if (from < 0 || to < 0)
		return -errno;
	r = copy_content(c, from, to, st->st_size);
	return r ? r : ntr_rename_look_like(from, to, true, true);
}

/* The only attribute that everybody can give a special file. O_PATH descriptors take none, so by name. */
static int copy_acl(int from_dir, int to_dir, const char *name)
{
	static const char acl[] = "system.posix_acl_access";
	char from[32 + NAME_MAX + 1], to[32 + NAME_MAX + 1];
	ntr_autofree char *val = malloc(XATTRS_MAX);
	ssize_t n;

	if (!val)
		return -ENOMEM;
	snprintf(from, sizeof from, "/proc/self/fd/%d/%s", from_dir, name);
	snprintf(to, sizeof to, "/proc/self/fd/%d/%s", to_dir, name);
	n = lgetxattr(from, acl, val, XATTRS_MAX);
	if (n < 0)
		return errno == ENODATA || errno == EOPNOTSUPP ? 0 : -errno;
	return lsetxattr(to, acl, val, (size_t)n, 0) ? -errno : 0;
}

static int copy_other(int from_dir, int to_dir, const char *name, const struct stat *st)
{
	char target[PATH_MAX];
	ssize_t n;
	int r;

	if (S_ISLNK(st->st_mode)) {
		n = readlinkat(from_dir, name, target, sizeof target - 1);
		if (n < 0)
			return -errno;
		target[n] = '\0';
		r = symlinkat(target, to_dir, name);
	} else {
		r = mknodat(to_dir, name, st->st_mode, st->st_rdev);
	}
	if (r)
		return -errno;
	r = give_owner(to_dir, name, st, AT_SYMLINK_NOFOLLOW);
	if (!r && !S_ISLNK(st->st_mode))
		r = copy_acl(from_dir, to_dir, name);
	if (!r && !S_ISLNK(st->st_mode) && fchmodat(to_dir, name, st->st_mode & 07777, 0))
		r = -errno;
	if (!r && utimensat(to_dir, name, (struct timespec[]){st->st_atim, st->st_mtim}, AT_SYMLINK_NOFOLLOW))
		r = -errno;
	return r;
}

/* ---- the tree ---- */

static int note(struct ntr_rename_copy *c, const char *prefix, const char *name, uint64_t ino)
{
	if (c->n == c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 64;
		void *more = realloc(c->v, cap * sizeof *c->v);

		if (!more)
			return -ENOMEM;
		c->v = more;
		c->cap = cap;
	}
	c->v[c->n].path = ntr_sprintf("%s%s%s", prefix, *prefix ? "/" : "", name);
	if (!c->v[c->n].path)
		return -ENOMEM;
	c->v[c->n++].ino = ino;
	return 0;
}

/* Only files and directories can bear the mark. */
static uint64_t tree_ino(int lower, const char *name, const struct stat *st)
{
	struct stat low;

	if ((!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)) || lower < 0 ||
	        fstatat(lower, name, &low, AT_SYMLINK_NOFOLLOW))
		return 0;
	return ntr_shown_ino(low.st_ino);
}

/* 1: it is one more name of a file that has been copied. A file that keeps a name elsewhere is another one
 * from now on: it is marked when its last name has come. */
static int link_to_copied(
        struct ntr_rename_copy *c, int to_dir, const char *name, const struct stat *st, uint64_t ino)
{
	uint64_t key = st->st_ino;
	struct ntr_rename_link *l;
	int r;

	HASH_FIND(hh, c->links, &key, sizeof key, l);
	if (!l) {
		l = calloc(1, sizeof *l);
		if (!l)
			return -ENOMEM;
		*l = (struct ntr_rename_link){.ino = key, .left = (uint32_t)st->st_nlink - 1, .at = c->n - 1};
		HASH_ADD(hh, c->links, ino, sizeof l->ino, l);
		if (!ntr_hashed(hh, l)) {
			free(l);
			return -ENOMEM;
		}
		c->v[l->at].ino = 0;
		return 0;
	}
	r = ntr_rename_plain_link(c->stage, c->v[l->at].path, to_dir, name);
	if (r)
		return r;
	if (--l->left == 0)
		c->v[l->at].ino = ino;
	c->v[c->n - 1].ino = 0;
	return 1;
}

struct level {
	int from, upper, lower, to;
	const char *prefix;
};

static int copy_level(struct ntr_rename_copy *c, const struct level *at);

static int copy_dir(struct ntr_rename_copy *c, const struct level *at, const char *name)
{
	ntr_autoclose int from = -1, upper = -1, lower = -1, to = -1;
	const char *path;

	upper = ntr_rename_layer(at->upper, name);
	if (upper >= 0 && ntr_rename_opaque(upper)) { /* new: it will be renamed */
		free(c->v[--c->n].path);
		return 0;
	}
	path = c->v[c->n - 1].path;
	lower = ntr_rename_layer(at->lower, name);
	from = openat(at->from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0 || mkdirat(at->to, name, 0700))
		return -errno;
	to = openat(at->to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (to < 0)
		return -errno;
	return copy_level(
	        c, &(struct level){.from = from, .upper = upper, .lower = lower, .to = to, .prefix = path});
}

static int copy_entry(struct ntr_rename_copy *c, const struct level *at, const char *name)
{
	struct stat st, up;
	uint64_t ino;
	int r;

	if (!ntr_rename_waits(c->move->h->notify, c->move->id))
		return -EINTR;
	if (fstatat(at->from, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode) && at->upper >= 0 && !fstatat(at->upper, name, &up, AT_SYMLINK_NOFOLLOW))
		return 0;
	ino = tree_ino(at->lower, name, &st);
	r = note(c, at->prefix, name, ino);
	if (r)
		return r;
	if (S_ISDIR(st.st_mode))
		return copy_dir(c, at, name);
	if (st.st_nlink > 1 && (r = link_to_copied(c, at->to, name, &st, ino)))
		return NTR_MIN(r, 0);
	return S_ISREG(st.st_mode) ? copy_file(c, at->from, at->to, name, &st)
	                           : copy_other(at->from, at->to, name, &st);
}

static int copy_level(struct ntr_rename_copy *c, const struct level *at)
{
	char **names = NULL;
	int r = ntr_rename_names(at->from, &names);

	for (char **n = names; !r && n && *n; n++)
		r = copy_entry(c, at, *n);
	ntr_strv_free(names);
	return r ? r : ntr_rename_look_like(at->from, at->to, true, true);
}

int ntr_rename_copy(struct ntr_rename_copy *c, int from, int upper, int lower)
{
	return copy_level(c,
	        &(struct level){.from = from, .upper = upper, .lower = lower, .to = c->stage, .prefix = ""});
}
