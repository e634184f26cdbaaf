/* store_dir: a store's directory: making it, the lock file, and the side file STORE/synced. */
#include "store_impl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { SYNCED_DIGITS = 20, MAGIC_TMPFS = 0x01021994 };
#define RESERVE ((uint64_t)16 << 20)

/* What a store's directory may hold. lost+found: a store can have a file system of its own. */
static bool is_ours(const char *name)
{
	static const char *const ours[] = {".", "..", "db", "lock", "reserve.0", "reserve.1", "synced",
	        "upper", "versions", "hooks", "lost+found"};

	for (size_t i = 0; i < NTR_COUNT(ours); i++)
		if (!strcmp(name, ours[i]))
			return true;
	return false;
}

/* Refuses to make a store among foreign files. */
static int check_free(const char *path, struct ntr_err *e)
{
	DIR *d = opendir(path);
	struct dirent *en;
	int r = 0;

	if (!d)
		return ntr_err_set(e, -errno, "read the folder '%s'", path);
	while (!r && (en = readdir(d)))
		if (!is_ours(en->d_name)) {
			r = ntr_err_set(e, -ENOTEMPTY, "make a store at '%s'", path);
			ntr_err_why(e, "it is no store, and not empty (it holds '%.200s')", en->d_name);
			ntr_err_todo(e, "name a new or an empty folder");
		}
	closedir(d);
	return r;
}

static int sync_dir(const char *path)
{
	ntr_autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) ? -errno : 0;
}

/* The folders from `made` levels above path on down get entries that outlive a power failure. Whoever may not
 * read one cannot sync it either. */
static int sync_above(const char *path, unsigned levels)
{
	ntr_autofree char *p = strdup(path);
	int r = p ? 0 : -ENOMEM;

	for (char *end; !r && levels-- && (end = strrchr(p, '/'));) {
		end[end == p] = '\0';
		r = sync_dir(p);
		if (end == p)
			break;
	}
	return r == -EACCES || r == -EINVAL ? 0 : r;
}

/* How many of path's folders are not there yet. */
static unsigned missing_levels(const char *path)
{
	ntr_autofree char *p = strdup(path);
	unsigned n = 0;

	while (p && access(p, F_OK)) {
		char *end = strrchr(p, '/');

		n++;
		if (!end || end == p)
			break;
		*end = '\0';
	}
	return n;
}

int ntr_store_dir_sync(struct ntr_store *s)
{
	int r = sync_dir(s->path);

	return r ? r : sync_above(s->path, NTR_MAX(s->levels, 1u));
}

static int make_dir(const char *path, struct ntr_err *e)
{
	int r = ntr_mkdir_p(path, 0700);

	if (r) {
		ntr_err_set(e, r, "make the folder '%s'", path);
		ntr_err_todo(e, "use a store elsewhere (--store DIR or NTR_STORE)");
		return r;
	}
	r = check_free(path, e);
	if (!r && chmod(path, 0700))
		r = ntr_err_set(e, -errno, "make '%s' private", path);
	return r;
}

static int no_store(const char *path, int err, struct ntr_err *e)
{
	ntr_err_set(e, err, "open store '%s'", path);
	if (err != -ENOENT && err != -ENOTDIR)
		return err;
	ntr_err_why(e, "there is no store");
	ntr_err_todo(e, "check the path; a store is made when its first session is");
	return err;
}

/* A store that is used under two uids ends up with files that neither can use. */
static int check_owner(struct ntr_store *s, struct ntr_err *e)
{
	struct stat st;

	if (fstatat(s->dirfd, "db", &st, AT_SYMLINK_NOFOLLOW) || st.st_uid == geteuid())
		return 0;
	ntr_err_set(e, -EPERM, "open store '%s'", s->path);
	ntr_err_why(e, "it belongs to uid %u, and this is uid %u", (unsigned)st.st_uid, (unsigned)geteuid());
	ntr_err_todo(e, "run ntr as its owner, or use a store of your own (--store DIR or NTR_STORE)");
	return -EPERM;
}

static bool exists(const char *dir, const char *name)
{
	ntr_autofree char *p = ntr_sprintf("%s/%s", dir, name);

	return p && !access(p, F_OK);
}

static int held_error(struct ntr_store *s, struct ntr_err *e)
{
	ntr_autofree char *pid = NULL, *comm = NULL, *proc = NULL;
	int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ntr_err_set(e, -EBUSY, "open store '%s'", s->path);
	if (!ntr_read_file(s->dirfd, "lock", 64, &pid, NULL))
		pid[strcspn(pid, "\n")] = '\0';
	if (pid && pid[0] && fd >= 0 && (proc = ntr_sprintf("%s/comm", pid)) &&
	        !ntr_read_file(fd, proc, 64, &comm, NULL))
		comm[strcspn(comm, "\n")] = '\0';
	if (fd >= 0)
		close(fd);
	if (pid && pid[0])
		ntr_err_why(e, "process %s%s%s%s has it open", pid, comm ? " (" : "", comm ? comm : "",
		        comm ? ")" : "");
	else
		ntr_err_why(e, "another process has it open");
	ntr_err_todo(e, "work through that process, or end it first (`ntr daemon stop` for the daemon)");
	return -EBUSY;
}

/* STORE/reserve.0 and .1 only take up room. A disk that is full gets them back: the first at opening, or the
 * database could not be opened; the second when a session cannot go live (ntr_store_relief), or what filled
 * the disk could not be deleted through it. They are made again at an opening with plenty of room. */
static uint64_t room_left(const struct ntr_store *s)
{
	struct statfs st;

	if (fstatfs(s->lockfd, &st))
		return 0;
	/* a tmpfs is somebody's memory */
	return (unsigned long)st.f_type == MAGIC_TMPFS ? RESERVE
	                                               : (uint64_t)st.f_bavail * (uint64_t)st.f_bsize;
}

static void make_reserve(struct ntr_store *s, const char *name)
{
	int fd = openat(s->dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd >= 0 && fallocate(fd, 0, 0, (off_t)RESERVE))
		unlinkat(s->dirfd, name, 0);
	if (fd >= 0)
		close(fd);
}

static void keep_reserve(struct ntr_store *s)
{
	uint64_t left = room_left(s);

	if (left < RESERVE)
		unlinkat(s->dirfd, "reserve.0", 0);
	if (left < 32 * RESERVE)
		return;
	make_reserve(s, "reserve.0");
	make_reserve(s, "reserve.1");
}

bool ntr_store_relief(struct ntr_store *s)
{
	return !s->read_only && !unlinkat(s->dirfd, "reserve.1", 0);
}

/* The lock is flock's: it goes with the process, however that ends. The pid inside is for the message only.
 */
static int take_lock(struct ntr_store *s, struct ntr_err *e)
{
	char text[32];
	int n;

	s->lockfd = openat(s->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lockfd < 0)
		return ntr_err_set(e, -errno, "open the lock of store '%s'", s->path);
	if (flock(s->lockfd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? held_error(s, e)
		                            : ntr_err_set(e, -errno, "lock store '%s'", s->path);
	keep_reserve(s);
	n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	if (ftruncate(s->lockfd, 0) || pwrite(s->lockfd, text, (size_t)n, 0) != n)
		return ntr_err_set(e, errno ? -errno : -EIO, "write the lock of store '%s'", s->path);
	return 0;
}

static int make_children(struct ntr_store *s, struct ntr_err *e)
{
	static const char *const dirs[] = {"upper", "versions"};

	for (size_t i = 0; i < NTR_COUNT(dirs); i++)
		if (mkdirat(s->dirfd, dirs[i], 0700) && errno != EEXIST)
			return ntr_err_set(e, -errno, "make '%s/%s'", s->path, dirs[i]);
	return 0;
}

int ntr_store_dir_open(
        struct ntr_store *s, const char *path, const struct ntr_store_options *o, struct ntr_err *e)
{
	bool have = exists(path, "db");
	int r;

	if (!have && !o->create)
		return no_store(path, access(path, F_OK) ? -errno : -ENOENT, e);
	s->levels = missing_levels(path);
	if (!have && (r = make_dir(path, e)))
		return r;
	s->path = realpath(path, NULL);
	if (!s->path)
		return no_store(path, -errno, e);
	s->dirfd = open(s->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0)
		return no_store(path, -errno, e);
	if (o->read_only)
		return 0;
	r = check_owner(s, e);
	if (!r)
		r = take_lock(s, e);
	return r ? r : make_children(s, e);
}

/* The kernel's name for this run of the machine; zeros when it does not tell. A process lives in one: once
 * read, no later lack of memory or descriptors makes it unknown. */
static void parse_boot(const char *text, uint8_t ret[NTR_BOOT_BYTES])
{
	size_t n = 0;

	for (const char *p = text; *p && n < 2 * (size_t)NTR_BOOT_BYTES; p++) {
		unsigned v;

		if (!isxdigit((unsigned char)*p))
			continue;
		v = (unsigned)(*p <= '9' ? *p - '0' : (*p | 32) - 'a' + 10);
		ret[n / 2] = (uint8_t)(ret[n / 2] | v << (n % 2 ? 0 : 4));
		n++;
	}
}

static void read_boot(uint8_t ret[NTR_BOOT_BYTES])
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint8_t boot[NTR_BOOT_BYTES];
	static bool have;
	char text[64] = "";

	pthread_mutex_lock(&lock);
	if (!have) {
		ntr_autoclose int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

		have = fd >= 0 && read(fd, text, sizeof text - 1) > 0;
		parse_boot(text, boot);
	}
	memcpy(ret, boot, sizeof boot);
	pthread_mutex_unlock(&lock);
}

static bool is_known(const uint8_t boot[NTR_BOOT_BYTES])
{
	static const uint8_t none[NTR_BOOT_BYTES];

	return memcmp(boot, none, sizeof none) != 0;
}

void ntr_head_name_upper(struct ntr_head *h, uint64_t upper, uint64_t base_root)
{
	if (h->upper != upper) {
		memset(h->boot, 0, sizeof h->boot);
		h->upper_ns = 0;
		if (upper) {
			read_boot(h->boot);
			h->upper_ns = ntr_wall_ns();
		}
	}
	h->upper = upper;
	h->base_root = base_root;
	h->last_upper = NTR_MAX(h->last_upper, upper);
}

bool ntr_head_of_other_boot(const struct ntr_head *h)
{
	uint8_t now[NTR_BOOT_BYTES];

	read_boot(now);
	return h->upper && is_known(h->boot) && is_known(now) && memcmp(h->boot, now, sizeof now) != 0;
}

int ntr_store_synced_load(struct ntr_store *s, struct ntr_err *e)
{
	char text[SYNCED_DIGITS + 2] = "";
	int flags = s->read_only ? O_RDONLY : O_RDWR | O_CREAT;

	s->syncedfd = openat(s->dirfd, "synced", flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->syncedfd < 0)
		return s->read_only && errno == ENOENT ? 0
		                                       : ntr_err_set(e, -errno, "open '%s/synced'", s->path);
	if (pread(s->syncedfd, text, sizeof text - 1, 0) < 0)
		return ntr_err_set(e, -errno, "read '%s/synced'", s->path);
	s->synced = strtoull(text, NULL, 10);
	return s->read_only ? 0 : ntr_store_synced_save(s, s->synced);
}

/* In place and unsynced: a value that is lost only weakens the next check, and it is never ahead of the
 * database. */
int ntr_store_synced_peek(struct ntr_store *s, uint64_t *ret)
{
	ntr_autofree char *text = NULL;
	int r = ntr_read_file(s->dirfd, "synced", 64, &text, NULL);

	*ret = r ? 0 : strtoull(text, NULL, 10);
	return r == -ENOENT ? 0 : r;
}

int ntr_store_synced_save(struct ntr_store *s, uint64_t commit)
{
	char text[SYNCED_DIGITS + 2];
	int n = snprintf(text, sizeof text, "%0*" PRIu64 "\n", SYNCED_DIGITS, commit);

	if (pwrite(s->syncedfd, text, (size_t)n, 0) != n)
		return errno ? -errno : -EIO;
	return 0;
}
