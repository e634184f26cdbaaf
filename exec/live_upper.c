#include "live_upper.h"
#include "absorb_lent.h"
#include "live_memory.h"
#include "../base/upperfs.h"
#include "../base/util.h"
#include "../fs/inode.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum { SPARES = 2 };

static void dir_name(uint64_t sid, uint64_t n, const char *rest, char buf[96])
{
	snprintf(buf, 96, "upper/%llu.%llu%s", (unsigned long long)sid, (unsigned long long)n, rest);
}

static int set_root_xattr(void *user, const char *name, const uint8_t *val, size_t len)
{
	const char *mark = ntr_fs_userxattr() ? "user.overlay." : "trusted.overlay.";
	char escaped[XATTR_NAME_MAX + 16];

	/* The session's own attribute of a name that overlayfs takes for its marks is kept with one more
	 * "overlay.". */
	if (!strncmp(name, mark, strlen(mark))) {
		snprintf(escaped, sizeof escaped, "%soverlay.%s", mark, name + strlen(mark));
		name = escaped;
	}
	/* A user may not set trusted.* or an ACL the filesystem lacks: absorb then sees no such attribute in
	 * upper, and leaves the tree's alone only if it was never there; so failing here is right. */
	return fsetxattr(*(int *)user, name, val, len, 0) ? -errno : 0;
}

/* The merged root directory shows upper's attributes: they must be the tree's. */
static int dress_root(struct ntr_store *s, uint64_t root, int fd)
{
	struct ntr_snap snap = ntr_snap_root(s, root);
	struct ntr_inode *in = malloc(sizeof *in);
	struct timespec ts[2];
	int r;

	if (!in)
		return -ENOMEM;
	r = ntr_inode_get(&snap, NTR_INO_ROOT, in);
	if (!r && geteuid() == 0 && fchown(fd, ntr_store_uid_out(s, in->uid), ntr_store_gid_out(s, in->gid)))
		r = -errno;
	if (!r && (in->flags & NTR_INODE_HAS_XATTR))
		r = ntr_xattr_each(&snap, NTR_INO_ROOT, set_root_xattr, &fd);
	if (!r && fchmod(fd, in->mode & 07777))
		r = -errno;
	if (!r) {
		ts[0] = in->atime;
		ts[1] = in->mtime;
		if (futimens(fd, ts))
			r = -errno;
	}
	free(in);
	return r;
}

static int write_base(int dir, uint64_t base_root)
{
	ntr_autoclose int fd = openat(dir, "base", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char line[32];
	int n = snprintf(line, sizeof line, "%016llx\n", (unsigned long long)base_root);

	if (fd < 0)
		return -errno;
	return ntr_write_all(fd, line, (size_t)n);
}

/* A directory with u and w in it. 0 or negative errno. */
static int make_pair(int store, const char *name)
{
	char sub[128];

	if (mkdirat(store, name, 0700))
		return -errno;
	for (const char *p = "uw"; *p; p++) {
		snprintf(sub, sizeof sub, "%s/%c", name, *p);
		if (mkdirat(store, sub, 0700))
			return -errno;
	}
	return 0;
}

/* Three directories cost a journalled filesystem more than everything else in a rollback: two pairs lie
 * ready, made off everybody's path, and are renamed into place. */
void ntr_upper_stock(struct ntr_store *s)
{
	int store = ntr_store_dirfd(s);
	char spare[32], making[32];

	for (int i = 0; i < SPARES; i++) {
		snprintf(spare, sizeof spare, "upper/spare.%d", i);
		snprintf(making, sizeof making, "upper/trash.spare.%d", i);
		if (!faccessat(store, spare, F_OK, 0) || (mkdirat(store, "upper", 0700) && errno != EEXIST))
			continue;
		if (!make_pair(store, making))
			renameat2(store, making, store, spare, RENAME_NOREPLACE);
	}
}

void ntr_upper_unstock(struct ntr_store *s)
{
	char spare[32], trash[32];

	for (int i = 0; i < SPARES; i++) {
		snprintf(spare, sizeof spare, "upper/spare.%d", i);
		snprintf(trash, sizeof trash, "upper/trash.old.%d", i);
		renameat2(ntr_store_dirfd(s), spare, ntr_store_dirfd(s), trash, RENAME_NOREPLACE);
	}
}

static int take_pair(int store, const char *name)
{
	char spare[32];

	for (int i = 0; i < SPARES; i++) {
		snprintf(spare, sizeof spare, "upper/spare.%d", i);
		if (!renameat2(store, spare, store, name, RENAME_NOREPLACE))
			return 0;
	}
	return make_pair(store, name);
}

int ntr_upper_make(struct ntr_store *s, uint64_t sid, uint64_t n, uint64_t base_root, struct ntr_upper *ret,
        struct ntr_err *e)
{
	ntr_autoclose int dir = -1, u = -1, w = -1;
	int store = ntr_store_dirfd(s), r;
	char name[96];

	ntr_upper_trash(s, sid, n);
	dir_name(sid, n, "", name);
	if (mkdirat(store, "upper", 0700) && errno != EEXIST)
		return ntr_err_set(e, -errno, "make %s/upper", ntr_store_path(s));
	r = take_pair(store, name);
	if (r)
		return ntr_err_set(e, r, "make %s/%s", ntr_store_path(s), name);
	dir = openat(store, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return ntr_err_set(e, -errno, "open %s/%s", ntr_store_path(s), name);
	u = openat(dir, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	w = openat(dir, "w", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (u < 0 || w < 0)
		return ntr_err_set(e, -errno, "open %s/%s", ntr_store_path(s), name);
	r = write_base(dir, base_root);
	if (!r)
		r = dress_root(s, base_root, u);
	if (r)
		return ntr_err_default(e, r, "prepare %s/%s", ntr_store_path(s), name);
	*ret = (struct ntr_upper){.sid = sid,
	        .n = n,
	        .base_root = base_root,
	        .fd = ntr_steal_fd(&u),
	        .work_fd = ntr_steal_fd(&w)};
	return 0;
}

/* An ordinary user whose workspace denies its owner to read it: it is lent the right for the moment of the
 * open. */
static int open_locked(int dirfd, const char *name, int *ret)
{
	ntr_autoclose int path = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	ntr_autoclose int fd = -1, beside = -1;
	struct stat st;
	int r;

	if (path < 0 || fstat(path, &st))
		return -errno;
	beside = ntr_lent_open(path);
	r = ntr_lent_give(beside, path, &st, S_IRWXU);
	if (r)
		return r;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : 0;
	if (ntr_lent_back(beside, path, st.st_mode & 07777, S_IRWXU) && !r)
		r = -EIO;
	if (!r)
		*ret = ntr_steal_fd(&fd);
	return r;
}

int ntr_upper_open(struct ntr_store *s, uint64_t sid, uint64_t n, struct ntr_upper *ret)
{
	char name[96];
	int fd, r;

	r = ntr_memory_rescue(s, sid, n, &fd);
	if (r != -ENOENT) {
		if (!r)
			*ret = (struct ntr_upper){
			        .sid = sid, .n = n, .fd = fd, .work_fd = -1, .memory = true};
		return r;
	}
	dir_name(sid, n, "/u", name);
	fd = openat(ntr_store_dirfd(s), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == EACCES) {
		r = open_locked(ntr_store_dirfd(s), name, &fd);
		if (r)
			return r;
	}
	if (fd < 0)
		return -errno;
	*ret = (struct ntr_upper){.sid = sid, .n = n, .fd = fd, .work_fd = -1};
	return 0;
}

void ntr_upper_close(struct ntr_upper *u)
{
	ntr_closep(&u->fd);
	ntr_closep(&u->work_fd);
	u->fd = u->work_fd = -1;
}

/* What cannot be looked at is gone only where that is what the failure says: for want of descriptors, say, it
 * may well be there. Who may not even be signalled is somebody else: ours has our user. */
static bool is_gone(int r, pid_t pid)
{
	return r == -ENOENT || r == -ESRCH || ((r == -EACCES || r == -EPERM) && kill(pid, 0));
}

/* Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); 0 when it is gone, or dead
 * and only not reaped yet. With the pid it names one process for ever. */
static int proc_start(pid_t pid, uint64_t *ret)
{
	ntr_autofree char *text = NULL;
	char path[64], state, *p;
	unsigned long long v = 0;
	int r;

	*ret = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	r = ntr_read_file(AT_FDCWD, path, 4096, &text, NULL);
	if (r)
		return is_gone(r, pid) ? 0 : r;
	p = strrchr(text, ')');
	if (!p || sscanf(p + 1,
	                  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
	                  &state, &v) != 2)
		return -EIO;
	*ret = state == 'Z' || state == 'X' ? 0 : v;
	return 0;
}

/* "" where /proc does not tell; an error where it does and could not be read now. */
static int this_boot(char ret[NTR_BOOT_ID_MAX])
{
	errno = 0;
	ntr_boot_id(ret);
	if (*ret || (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != EIO))
		return 0;
	return -errno;
}

int ntr_upper_note_init(struct ntr_store *s, const struct ntr_upper *u, pid_t pid, uint64_t mntns)
{
	ntr_autoclose int fd = -1;
	char name[96], line[96 + NTR_BOOT_ID_MAX], boot[NTR_BOOT_ID_MAX];
	uint64_t start;
	int n, r = proc_start(pid, &start);

	if (!r)
		r = this_boot(boot);
	if (r)
		return r;
	dir_name(u->sid, u->n, "/init", name);
	fd = openat(ntr_store_dirfd(s), name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	n = snprintf(line, sizeof line, "%d %llu %llu %s\n", (int)pid, (unsigned long long)start,
	        (unsigned long long)mntns, boot);
	return ntr_write_all(fd, line, (size_t)n);
}

int ntr_upper_trash(struct ntr_store *s, uint64_t sid, uint64_t n)
{
	char from[96], to[128];

	dir_name(sid, n, "", from);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(to, sizeof to, "upper/trash.%llu.%llu.%u", (unsigned long long)sid,
		        (unsigned long long)n, i);
		if (!renameat2(ntr_store_dirfd(s), from, ntr_store_dirfd(s), to, RENAME_NOREPLACE))
			return 0;
		if (errno == ENOENT)
			return 0;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

bool ntr_upper_sweep(struct ntr_store *s, bool (*stop)(void *user), void *user)
{
	int fd = openat(ntr_store_dirfd(s), "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *en;
	bool all = true;

	if (!d)
		return true;
	while (all && (en = readdir(d)))
		if (!strncmp(en->d_name, "trash.", 6))
			all = ntr_rm_rf_until(dirfd(d), en->d_name, stop, user) != -ECANCELED;
	closedir(d);
	return all;
}

int ntr_upper_each(struct ntr_store *s, int (*fn)(void *user, uint64_t sid, uint64_t n), void *user)
{
	int fd = openat(ntr_store_dirfd(s), "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	unsigned long long sid, n;
	struct dirent *en;

	if (!d)
		return 0;
	while (!r && (en = readdir(d)))
		if (en->d_name[0] >= '0' && en->d_name[0] <= '9' &&
		        sscanf(en->d_name, "%llu.%llu", &sid, &n) == 2)
			r = fn(user, sid, n);
	closedir(d);
	return r;
}

int ntr_upper_init_of(struct ntr_store *s, uint64_t sid, uint64_t n, struct ntr_init_id *ret)
{
	ntr_autofree char *text = NULL;
	unsigned long long start = 0, mntns = 0;
	char name[96], boot[NTR_BOOT_ID_MAX], now[NTR_BOOT_ID_MAX];
	int pid = 0, k, r;

	dir_name(sid, n, "/init", name);
	r = ntr_read_file(ntr_store_dirfd(s), name, 4096, &text, NULL);
	if (r)
		return r;
	k = sscanf(text, "%d %llu %llu %39s", &pid, &start, &mntns, boot);
	r = this_boot(now);
	if (r)
		return r;
	/* Of an earlier run of the machine nothing is left, and its numbers are somebody else's now. */
	if (k < 3 || strcmp(k == 4 ? boot : "", now) != 0)
		return -ENODATA;
	*ret = (struct ntr_init_id){.pid = pid, .start = start, .mntns = mntns};
	return 0;
}

int ntr_init_alive(const struct ntr_init_id *id)
{
	uint64_t start;
	int r = id->pid > 1 && id->start ? proc_start(id->pid, &start) : 0;

	if (r)
		return r;
	return id->pid > 1 && id->start && start == id->start;
}

/* An orphaned supervisor ends its session by itself; it is given the time to do so. */
static int await_end(const struct ntr_init_id *id)
{
	int r = 1;

	for (int i = 0; i < 1000 && (r = ntr_init_alive(id)) > 0; i++) {
		if (i == 500)
			kill(id->pid, SIGKILL);
		usleep(i < 20 ? 500 : 5000);
	}
	return r < 0 ? r : 0;
}

/* Whether /proc can be looked through, for which ntr_kill_namespace has no errors. */
static int can_look(void)
{
	ntr_autoclose int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && ntr_namespace_of(getpid()))
		return 0;
	return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : -EIO;
}

int ntr_upper_end_leftovers(struct ntr_store *s, uint64_t sid, uint64_t n)
{
	struct ntr_init_id id;
	char name[96];
	int r;

	dir_name(sid, n, "/memory", name);
	if (!faccessat(ntr_store_dirfd(s), name, F_OK, 0))
		return 0;
	r = ntr_upper_init_of(s, sid, n, &id);
	if (r)
		return r == -ENOENT || r == -ENODATA ? 0 : r;
	r = await_end(&id);
	if (!r && id.mntns)
		r = can_look();
	if (!r)
		ntr_kill_namespace(id.mntns);
	return r;
}
