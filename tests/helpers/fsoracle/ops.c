/* The operations. Each draws its arguments, notes them, does its calls and notes what they gave. */
#define _GNU_SOURCE
#include "fsoracle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <linux/fs.h>
#include <dirent.h>
#include <unistd.h>

enum { DIRS_MANY = 24, FILES_MANY = 70, DEPTH = 5 };

#define LONG16 "xxxxxxxxxxxxxxxx"
#define LONG240                                                                                           \
	LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 \
	        LONG16

static const char *const file_names[] = {"f0", "f1", "f2", "f3", "f4", "f5", "f6", "with space", "\xff\xfe",
        "n\nl", LONG240 "123456789012345", "\xc3\xbc", ".wh.f0", "-rf"};
static const char *const dir_names[] = {"d0", "d1", "d2", "d3", "d4", "d\x80"};
static const char *const hard_names[] = {"h0", "h1", "h2", "h3"};
static const char *const pair_names[] = {"q0", "q1", "q2"};
static const char *const link_names[] = {"s0", "s1", "s2"};
static const char *const fifo_names[] = {"p0", "p1"};
static const char *const socket_names[] = {"k0", "k1"};
static const char *const device_names[] = {"c0", "b0"};
static const int file_modes[] = {0644, 0600, 0755, 0444, 0400, 0200, 0000, 04755, 02711, 01666};
static const int dir_modes[] = {0755, 0755, 0755, 0700, 01777, 02755, 0555, 0311};
static const long sizes[] = {0, 1, 100, 100, 2000, 4095, 4096, 4097, 20000, 70000};

/* ---- arguments ---- */

static const char *a_dir(struct run *r)
{
	return r->dirs.v[below(r, r->dirs.n)];
}

static void in_dir(struct run *r, const char *name, char *ret)
{
	const char *d = a_dir(r);

	if (strcmp(d, "."))
		snprintf(ret, PATH_ROOM, "%s/%s", d, name);
	else
		snprintf(ret, PATH_ROOM, "%s", name);
}

#define NEW(r, names, ret) in_dir(r, PICK(r, names), ret)

/* Names that need a walk of another kind, or that are none. */
static void twist(struct run *r, char *path)
{
	char was[PATH_ROOM];

	snprintf(was, sizeof was, "%s", path);
	switch (below(r, 6)) {
	case 0:
		snprintf(path, PATH_ROOM, "%.4400s/", was);
		break;
	case 1:
		snprintf(path, PATH_ROOM, ".//./%.4400s", was);
		break;
	case 2:
		snprintf(path, PATH_ROOM, "%.4400s/f1", was);
		break;
	case 3:
		snprintf(path, PATH_ROOM, "%s/%.4400s", PICK(r, link_names), was);
		break;
	case 4:
		snprintf(path, PATH_ROOM, "%.2000s" LONG240 LONG16, was);
		break;
	default:
		snprintf(path, PATH_ROOM, "%.2000s/../f2", PICK(r, dir_names)); /* never out of the tree */
	}
}

static void old_file(struct run *r, char *ret)
{
	if (r->files.n && chance(r, 85))
		snprintf(ret, PATH_ROOM, "%s", r->files.v[below(r, r->files.n)]);
	else
		NEW(r, file_names, ret);
	/* a hard link is left as it is; the base names of the others are not h* */
	if (strrchr(ret, '/') ? strrchr(ret, '/')[1] == 'h' : ret[0] == 'h')
		NEW(r, file_names, ret);
	if (chance(r, 2))
		twist(r, ret);
}

static void any_path(struct run *r, char *ret)
{
	if (chance(r, 30))
		snprintf(ret, PATH_ROOM, "%s", a_dir(r));
	else
		old_file(r, ret);
}

static unsigned depth(const char *path)
{
	unsigned n = 0;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

static void set_times(struct run *r, int fd)
{
	struct timespec t = {1500000000 + (time_t)r->op, (long)(r->op * 1000003 % 1000000000)};

	STEP(r, futimens(fd, (struct timespec[]){t, t}));
}

static void set_times_at(struct run *r, const char *path, int flags)
{
	struct timespec t = {1500000000 + (time_t)r->op, (long)(r->op * 1000003 % 1000000000)};

	STEP(r, utimensat(AT_FDCWD, path, (struct timespec[]){t, t}, flags));
}

static const char *data(struct run *r, size_t n)
{
	static char buf[1 << 17];

	for (size_t i = 0; i < n; i += 8) {
		uint64_t w = i % 4096 < 64 ? rnd(r) : r->op;

		memcpy(buf + i, &w, 8);
	}
	return buf;
}

/* A regular file, or -1 after a note of why not. */
static int open_file(struct run *r, const char *path, int flags, int mode)
{
	struct stat st;
	long fd = flags & (O_CREAT | O_TRUNC) ? STEP(r, open(path, flags | O_CLOEXEC | O_NONBLOCK, mode))
	                                      : LOOK(r, open(path, flags | O_CLOEXEC | O_NONBLOCK));

	if (fd < 0) {
		note_errno(r, fd);
		return -1;
	}
	if (fstat((int)fd, &st) || !S_ISREG(st.st_mode)) {
		note(r, " special");
		close((int)fd);
		return -1;
	}
	return (int)fd;
}

static void done_file(struct run *r, int fd, long result)
{
	note_errno(r, result);
	set_times(r, fd);
	close(fd);
}

static uint64_t content(struct run *r, int fd)
{
	static unsigned char buf[1 << 16];
	uint64_t h = 14695981039346656037ULL;
	long n, off = 0;

	while ((n = LOOK(r, pread(fd, buf, sizeof buf, off))) > 0) {
		for (long i = 0; i < n; i++)
			h = (h ^ buf[i]) * 1099511628211ULL;
		off += n;
	}
	return n < 0 ? (uint64_t)n : h;
}

/* ---- files ---- */

static void op_create(struct run *r)
{
	static const int flags[] = {0, O_EXCL, O_TRUNC, O_TRUNC, O_NOFOLLOW, O_EXCL | O_SYNC};
	char path[PATH_ROOM];
	int fd, how = PICK(r, flags);
	size_t n = (size_t)PICK(r, sizes);

	NEW(r, file_names, path);
	note_name(r, path);
	fd = open_file(r, path, O_WRONLY | O_CREAT | how, 0666);
	if (fd >= 0) {
		paths_add(&r->files, path);
		done_file(r, fd, step_write(r, fd, data(r, n), n, 0));
	}
}

static void op_append(struct run *r)
{
	char path[PATH_ROOM];
	size_t n = (size_t)PICK(r, sizes);
	int fd;

	old_file(r, path);
	note_name(r, path);
	fd = open_file(r, path, O_WRONLY | O_APPEND, 0);
	if (fd >= 0)
		done_file(r, fd, step_write(r, fd, data(r, n), n, -1));
}

static void op_pwrite(struct run *r)
{
	static const long offs[] = {0, 1, 4096, 65535, 1 << 20};
	size_t n = (size_t)PICK(r, sizes);
	long off = PICK(r, offs);
	char path[PATH_ROOM];
	int fd;

	old_file(r, path);
	note_name(r, path);
	fd = open_file(r, path, O_WRONLY, 0);
	if (fd >= 0)
		done_file(r, fd, step_write(r, fd, data(r, n), n, off));
}

static void op_truncate(struct run *r)
{
	long n = PICK(r, sizes);
	char path[PATH_ROOM];
	struct stat st;

	old_file(r, path);
	note_name(r, path);
	if (!LOOK(r, stat(path, &st)) && !S_ISREG(st.st_mode)) {
		note(r, " special");
		return;
	}
	note_errno(r, STEP(r, truncate(path, n)));
	set_times_at(r, path, 0);
}

static void op_fallocate(struct run *r)
{
	static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
	        FALLOC_FL_ZERO_RANGE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE};
	static const long offs[] = {0, 4096, 5000}, lens[] = {1, 4096, 100000};
	int fd, mode = PICK(r, modes);
	long off = PICK(r, offs), len = PICK(r, lens);
	char path[PATH_ROOM];

	old_file(r, path);
	note_name(r, path);
	note(r, " %x %ld %ld", (unsigned)mode, off, len);
	fd = open_file(r, path, O_RDWR, 0);
	if (fd >= 0)
		done_file(r, fd, STEP(r, fallocate(fd, mode, off, len)));
}

static void op_mapped(struct run *r)
{
	uint64_t where = rnd(r);
	char path[PATH_ROOM], *m;
	struct stat st;
	int fd;

	old_file(r, path);
	note_name(r, path);
	fd = open_file(r, path, O_RDWR, 0);
	if (fd < 0)
		return;
	if (!LOOK(r, fstat(fd, &st)) && st.st_size) {
		m = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (m != MAP_FAILED) {
			step_begin(r);
			m[where % (uint64_t)st.st_size] = 42;
			step_end(r, 0);
			munmap(m, (size_t)st.st_size);
		}
	}
	done_file(r, fd, st.st_size ? 0 : -ENODATA);
}

static void op_save(struct run *r)
{
	char path[PATH_ROOM], tmp[PATH_ROOM + 8], *slash;
	size_t n = (size_t)PICK(r, sizes);
	long k;
	int fd;

	old_file(r, path);
	note_name(r, path);
	snprintf(tmp, sizeof tmp, "%s", path);
	slash = strrchr(tmp, '/');
	strcpy(slash ? slash + 1 : tmp, ".save~");
	fd = open_file(r, tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	if (fd < 0)
		return;
	note_errno(r, step_write(r, fd, data(r, n), n, 0));
	if (chance(r, 20))
		LOOK(r, fsync(fd));
	set_times(r, fd);
	close(fd);
	k = STEP(r, rename(tmp, path));
	note_errno(r, k);
	if (k)
		STEP(r, unlink(tmp));
	else
		paths_add(&r->files, path);
}

static void op_tmpfile(struct run *r)
{
	char path[PATH_ROOM], self[64];
	const char *d = a_dir(r);
	int fd;

	NEW(r, file_names, path);
	note_name(r, d);
	note_name(r, path);
	fd = open_file(r, d, O_TMPFILE | O_RDWR, 0600);
	if (fd < 0)
		return;
	step_write(r, fd, data(r, 5000), 5000, 0);
	set_times(r, fd);
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	note_errno(r, STEP(r, linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW)));
	paths_add(&r->files, path);
	close(fd);
}

static void op_copy(struct run *r)
{
	static const long offs[] = {0, 1, 4096};
	loff_t from = PICK(r, offs), to = PICK(r, offs);
	char a[PATH_ROOM], b[PATH_ROOM];
	size_t n = (size_t)PICK(r, sizes);
	struct stat st;
	int in, out;
	long k = -1;

	old_file(r, a);
	old_file(r, b);
	note_name(r, a);
	note_name(r, b);
	in = open_file(r, a, O_RDONLY, 0);
	out = in < 0 ? -1 : open_file(r, b, O_RDWR, 0);
	if (out >= 0) {
		if (r->log->steps == r->stop_at && r->partial > 0)
			copy_file_range(in, &(loff_t){from}, out, &(loff_t){to},
			        n < (size_t)r->partial ? n : (size_t)r->partial, 0);
		if (other_gave(
		            r, " EXDEV")) { /* overlayfs: from a committed file into one that was changed */
			r->log->steps++;
			k = -EXDEV;
		} else {
			k = STEP(r, copy_file_range(in, &from, out, &to, n, 0));
		}
		note(r, " %ld", k);
		if (k == -EXDEV &&
		        !LOOK(r, fstat(out, &st))) /* the set-id bits had gone before the refusal */
			STEP(r, fchmod(out, st.st_mode & 01777));
		done_file(r, out, k);
	}
	if (in >= 0)
		close(in);
}

static void op_direct(struct run *r)
{
	char path[PATH_ROOM];
	void *buf = NULL;
	long n;
	int fd;

	old_file(r, path);
	note_name(r, path);
	fd = open_file(r, path, O_RDONLY | O_DIRECT, 0);
	if (fd < 0 || posix_memalign(&buf, 4096, 1 << 17))
		return;
	n = LOOK(r, pread(fd, buf, 1 << 17, 0));
	note(r, " %ld", n);
	for (long i = 0; i < n; i += 997)
		note(r, "%02x", ((unsigned char *)buf)[i]);
	free(buf);
	close(fd);
}

static void op_read(struct run *r)
{
	char path[PATH_ROOM];
	int fd;

	old_file(r, path);
	note_name(r, path);
	fd = open_file(r, path, O_RDONLY, 0);
	if (fd >= 0) {
		note(r, " %016llx", (unsigned long long)content(r, fd));
		close(fd);
	}
}

static void note_stat(struct run *r, const struct stat *st)
{
	note(r, " %o %u:%u", st->st_mode, st->st_uid, st->st_gid);
	if (!S_ISDIR(st->st_mode))
		note(r, " %lld n%lu", (long long)st->st_size, (unsigned long)st->st_nlink);
	if (!S_ISDIR(st->st_mode) && !(r->any_now && st->st_mtime > 1700000000 && st->st_mtime < 2000000000))
		note(r, " m%lld.%09ld", (long long)st->st_mtime, st->st_mtim.tv_nsec);
}

static void op_stat(struct run *r)
{
	char path[PATH_ROOM], target[4096];
	struct stat st;
	long k, n;

	any_path(r, path);
	note_name(r, path);
	k = LOOK(r, lstat(path, &st));
	if (k) {
		note_errno(r, k);
		return;
	}
	note_stat(r, &st);
	if (S_ISLNK(st.st_mode) && (n = LOOK(r, readlink(path, target, sizeof target - 1))) >= 0) {
		target[n] = 0;
		note_name(r, target);
		note_errno(r, LOOK(r, stat(path, &st)));
	}
}

static void op_access(struct run *r)
{
	int how = (int)below(r, 8);
	char path[PATH_ROOM];

	any_path(r, path);
	note_name(r, path);
	note_errno(r, LOOK(r, faccessat(AT_FDCWD, path, how, AT_EACCESS)));
}

static void op_readdir(struct run *r)
{
	const char *path = a_dir(r);
	struct paths names = {0};
	struct dirent *e;
	DIR *d = opendir(path);

	note_name(r, path);
	if (!d) {
		note_errno(r, looked(r, -1));
		return;
	}
	while (errno = 0, (e = readdir(d))) {
		char line[300];

		snprintf(line, sizeof line, "%s %d", e->d_name, e->d_type);
		paths_add(&names, line);
	}
	looked(r, errno ? -1 : 0);
	closedir(d);
	qsort(names.v, names.n, sizeof *names.v, by_path);
	for (size_t i = 0; i < names.n; i++)
		note_name(r, names.v[i]);
	paths_free(&names);
}

/* ---- names ---- */

static void op_mkdir(struct run *r)
{
	int mode = PICK(r, dir_modes);
	char path[PATH_ROOM];
	long k;

	NEW(r, dir_names, path);
	if (chance(r, 2))
		twist(r, path);
	note_name(r, path);
	if (depth(path) > DEPTH || r->dirs.n > DIRS_MANY) {
		note(r, " enough");
		return;
	}
	k = STEP(r, mkdir(path, (mode_t)mode));
	note_errno(r, k);
	if (!k && !strstr(path, "/.") && !strstr(path, "//"))
		paths_add(&r->dirs, path);
}

static void op_rmdir(struct run *r)
{
	char path[PATH_ROOM];
	long k;

	snprintf(path, sizeof path, "%s", a_dir(r));
	note_name(r, path);
	k = STEP(r, rmdir(path));
	note_errno(r, k);
	if (!k)
		paths_gone(&r->dirs, path);
}

static void remove_tree(struct run *r, const char *path)
{
	struct paths names = {0};
	struct dirent *e;
	struct stat st;
	DIR *d;

	if (!LOOK(r, lstat(path, &st)) && !S_ISDIR(st.st_mode)) {
		note_errno(r, STEP(r, unlink(path)));
		return;
	}
	d = opendir(path);
	if (!d)
		looked(r, -1);
	while (errno = 0, d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			paths_add(&names, e->d_name);
	if (d) {
		looked(r, errno ? -1 : 0);
		closedir(d);
	}
	if (names.n)
		qsort(names.v, names.n, sizeof *names.v, by_path);
	for (size_t i = 0; i < names.n; i++) {
		char sub[PATH_ROOM + 300];

		snprintf(sub, sizeof sub, "%s/%s", path, names.v[i]);
		remove_tree(r, sub);
	}
	paths_free(&names);
	note_errno(r, STEP(r, rmdir(path)));
}

static void op_rmtree(struct run *r)
{
	char path[PATH_ROOM];

	snprintf(path, sizeof path, "%s", a_dir(r));
	note_name(r, path);
	if (!strcmp(path, "."))
		return;
	remove_tree(r, path);
	if (access(path, F_OK)) {
		paths_gone(&r->dirs, path);
		paths_gone(&r->files, path);
	}
}

static void op_unlink(struct run *r)
{
	char path[PATH_ROOM];
	long k;

	any_path(r, path);
	note_name(r, path);
	k = STEP(r, unlink(path));
	note_errno(r, k);
	if (!k)
		paths_gone(&r->files, path);
}

static bool is_dir(struct run *r, const char *path)
{
	struct stat st;

	return !LOOK(r, lstat(path, &st)) && S_ISDIR(st.st_mode);
}

static void moved(struct run *r, const char *a, const char *b, unsigned flags)
{
	struct paths *all[] = {&r->dirs, &r->files};

	for (int i = 0; i < 2; i++) {
		if (flags & RENAME_EXCHANGE) {
			paths_exchanged(all[i], a, b);
			continue;
		}
		paths_gone(all[i], b);
		paths_moved(all[i], a, b);
	}
	/* what an exchange of a file with a directory makes of the two lists is put right by the next run */
}

/* What overlayfs may refuse to move (see --follow): an ordinary user's directory; anything whose path in the
 * commit is longer than overlayfs notes. That path may be another than the present one, so a directory's is
 * not known here. */
static bool may_not_move(struct run *r, const char *path)
{
	char at[PATH_ROOM], here[PATH_ROOM];

	return is_dir(r, path) ||
	       (realpath(path, at) && realpath(".", here) && strlen(at) - strlen(here) > 100);
}

static void rename_op(struct run *r, const char *a, const char *b)
{
	static const unsigned flags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
	unsigned how = PICK(r, flags);
	long k;

	note_name(r, a);
	note_name(r, b);
	note(r, " %u", how);
	if (other_gave(r, " EXDEV") &&
	        (may_not_move(r, a) || (how == RENAME_EXCHANGE && may_not_move(r, b)))) {
		step_begin(r);
		k = -EXDEV;
		r->log->steps++;
	} else {
		k = STEP(r, renameat2(AT_FDCWD, a, AT_FDCWD, b, how));
	}
	note_errno(r, k);
	if (!k && strcmp(a, b))
		moved(r, a, b, how);
}

static void op_rename(struct run *r)
{
	char a[PATH_ROOM], b[PATH_ROOM];

	old_file(r, a);
	NEW(r, file_names, b);
	rename_op(r, a, b);
}

static void op_rename_dir(struct run *r)
{
	char a[PATH_ROOM], b[PATH_ROOM];

	snprintf(a, sizeof a, "%s", a_dir(r));
	NEW(r, dir_names, b);
	rename_op(r, a, b);
}

static void op_rename_any(struct run *r)
{
	char a[PATH_ROOM], b[PATH_ROOM];

	any_path(r, a);
	any_path(r, b);
	rename_op(r, a, b);
}

static void op_hard(struct run *r)
{
	char name[3][PATH_ROOM];
	struct stat st;
	long n = PICK(r, sizes), k;
	int fd;

	for (int i = 0; i < 3; i++) {
		NEW(r, hard_names, name[i]);
		note_name(r, name[i]);
	}
	fd = open_file(r, name[0], O_WRONLY | O_CREAT | O_EXCL, 0666);
	if (fd < 0)
		return;
	done_file(r, fd, step_write(r, fd, data(r, (size_t)n), (size_t)n, 0));
	k = STEP(r, link(name[0], name[1]));
	note_errno(r, k);
	if (!k) {
		note_errno(r, STEP(r, link(name[1], name[2])));
		note(r, " %lu", LOOK(r, stat(name[1], &st)) ? 0 : (unsigned long)st.st_nlink);
	}
}

static void op_hard_unlink(struct run *r)
{
	char path[PATH_ROOM];

	NEW(r, hard_names, path);
	note_name(r, path);
	note_errno(r, STEP(r, unlink(path)));
}

static void op_hard_read(struct run *r)
{
	char path[PATH_ROOM];
	int fd;

	NEW(r, hard_names, path);
	note_name(r, path);
	fd = open_file(r, path, O_RDONLY, 0);
	if (fd >= 0) {
		note(r, " %016llx", (unsigned long long)content(r, fd));
		close(fd);
	}
}

static void pair_write(struct run *r, const char *path, int flags, const char *text)
{
	int fd = open_file(r, path, O_WRONLY | flags, 0666);

	if (fd >= 0)
		done_file(r, fd, step_write(r, fd, text, strlen(text), -1));
}

static void op_pair(struct run *r)
{
	char a[PATH_ROOM], b[PATH_ROOM];
	struct stat one = {0}, two = {0};
	int fd;

	NEW(r, pair_names, a);
	NEW(r, pair_names, b);
	note_name(r, a);
	note_name(r, b);
	for (int i = 0; i < 2; i++) {
		long k = STEP(r, unlink(i ? b : a));

		note_errno(r, k);
		if (k && k != -ENOENT)
			return; /* it would be a committed one that gets another name */
	}
	pair_write(r, a, O_CREAT | O_APPEND, "one");
	note_errno(r, STEP(r, link(a, b)));
	LOOK(r, stat(a, &one));
	LOOK(r, stat(b, &two));
	note(r, " %lu %d", (unsigned long)one.st_nlink, one.st_ino == two.st_ino);
	pair_write(r, b, O_APPEND, "two");
	fd = open_file(r, a, O_RDONLY, 0);
	if (fd >= 0) {
		note(r, " %016llx", (unsigned long long)content(r, fd));
		close(fd);
	}
	note_errno(r, STEP(r, unlink(a)));
	pair_write(r, b, O_APPEND, "three");
	note(r, " %lu", LOOK(r, stat(b, &two)) ? 0 : (unsigned long)two.st_nlink);
}

static void op_symlink(struct run *r)
{
	static const char *const odd[] = {"/nonexistent/x", "s0", "."};
	char path[PATH_ROOM], target[PATH_ROOM];
	long k;

	if (chance(r, 30))
		snprintf(target, sizeof target, "%s", PICK(r, odd));
	else
		any_path(r, target);
	NEW(r, link_names, path);
	note_name(r, target);
	note_name(r, path);
	k = STEP(r, symlink(target, path));
	note_errno(r, k);
	if (!k) {
		set_times_at(r, path, AT_SYMLINK_NOFOLLOW);
		paths_add(&r->files, path);
	}
}

static void op_special(struct run *r)
{
	char path[PATH_ROOM];
	long k;

	switch (below(r, geteuid() ? 1 : 2)) {
	case 0:
		NEW(r, fifo_names, path);
		note_name(r, path);
		k = STEP(r, mkfifo(path, 0640));
		break;
	default:
		NEW(r, device_names, path);
		note_name(r, path);
		k = STEP(r, mknod(path, (strchr(path, 'b') ? S_IFBLK : S_IFCHR) | 0600, makedev(1, 3)));
	}
	note_errno(r, k);
	if (!k) {
		set_times_at(r, path, AT_SYMLINK_NOFOLLOW);
		paths_add(&r->files, path);
	}
}

static void op_socket(struct run *r)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const char *d = a_dir(r), *name = PICK(r, socket_names);
	char path[PATH_ROOM];
	int at, s;
	long k;

	note_name(r, d);
	at = (int)LOOK(r, open(d, O_PATH | O_DIRECTORY | O_CLOEXEC)); /* the short way to a long path */
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(addr.sun_path, sizeof addr.sun_path, "/proc/self/fd/%d/%s", at, name);
	k = STEP(r, bind(s, (struct sockaddr *)&addr, sizeof addr));
	note_errno(r, k);
	if (at >= 0)
		close(at);
	close(s);
	snprintf(path, sizeof path, "%.4000s/%s", d, name);
	if (!k)
		set_times_at(r, path, AT_SYMLINK_NOFOLLOW);
	if (!k && strcmp(d, "."))
		paths_add(&r->files, path);
}

/* ---- attributes ---- */

static void op_chmod(struct run *r)
{
	char path[PATH_ROOM];
	struct stat st;
	long k;

	any_path(r, path);
	note_name(r, path);
	k = LOOK(r, lstat(path, &st));
	if (k || S_ISLNK(st.st_mode))
		note_errno(r, k ? k : -ELOOP);
	else
		note_errno(r, STEP(r, chmod(path, (mode_t)(S_ISDIR(st.st_mode) ? PICK(r, dir_modes)
		                                                               : PICK(r, file_modes)))));
}

static void op_utime(struct run *r)
{
	static const struct timespec times[] = {{0, 0}, {0, 1}, {1, 1}, {2147483648, 7},
	        {1234567890, 123456789}, {0, UTIME_OMIT}, {4294967296, 0}};
	struct timespec t = PICK(r, times);
	char path[PATH_ROOM];

	any_path(r, path);
	note_name(r, path);
	note_errno(r, STEP(r, utimensat(AT_FDCWD, path, (struct timespec[]){t, t}, AT_SYMLINK_NOFOLLOW)));
}

static const char *const xattr_names[] = {
        "user.a", "user.b", "user.overlay.x", "user.overlay.opaque", "trusted.a"};

static const char *an_xattr(struct run *r)
{
	return xattr_names[below(r, geteuid() ? 4 : 5)];
}

static void op_setxattr(struct run *r)
{
	static const size_t lens[] = {0, 1, 300};
	const char *name = an_xattr(r);
	size_t n = PICK(r, lens);
	int flags = chance(r, 50) ? 0 : chance(r, 50) ? XATTR_CREATE : XATTR_REPLACE;
	char path[PATH_ROOM];

	any_path(r, path);
	note_name(r, path);
	note(r, " %s %zu %d", name, n, flags);
	note_errno(r, STEP(r, lsetxattr(path, name, data(r, n), n, flags)));
}

/* A tree without any attribute is served as by a filesystem that has none. */
static void op_removexattr(struct run *r)
{
	const char *name = an_xattr(r);
	char path[PATH_ROOM];
	long k;

	any_path(r, path);
	note_name(r, path);
	k = STEP(r, lremovexattr(path, name));
	note_errno(r, k == -ENOTSUP ? -ENODATA : k);
}

static void op_xattrs(struct run *r)
{
	char path[PATH_ROOM], list[4096], value[512];
	struct paths names = {0};
	ssize_t n;

	any_path(r, path);
	note_name(r, path);
	n = LOOK(r, llistxattr(path, list, sizeof list));
	if (n < 0)
		note_errno(r, n);
	for (char *p = list; n > 0 && p < list + n; p += strlen(p) + 1)
		if (strncmp(p, "security.", 9))
			paths_add(&names, p);
	if (names.n)
		qsort(names.v, names.n, sizeof *names.v, by_path);
	for (size_t i = 0; i < names.n; i++)
		note(r, " %s=%ld", names.v[i], LOOK(r, lgetxattr(path, names.v[i], value, sizeof value)));
	paths_free(&names);
}

/* Own entries only: others' ids an ordinary user's namespace does not know. */
static void op_acl(struct run *r)
{
	struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} e[5];
	} acl = {2, {{1, 6, ~0U}, {2, (uint16_t)below(r, 8), geteuid()}, {4, 4, ~0U}, {16, 7, ~0U},
	                    {32, 4, ~0U}}};
	const char *name = chance(r, 50) ? "system.posix_acl_access" : "system.posix_acl_default";
	char path[PATH_ROOM];
	struct stat st;
	long k;

	any_path(r, path);
	note_name(r, path);
	if (LOOK(r, lstat(path, &st)) || S_ISLNK(st.st_mode) || !strcmp(path, "."))
		return; /* the tree's own directory must let its owner in */
	note(r, " %s", name);
	if (chance(r, 30)) /* overlayfs says ENODATA where none was, ext4 does not */
		note_errno(r, (k = STEP(r, lremovexattr(path, name))) == -ENODATA ? 0 : k);
	else
		note_errno(r, STEP(r, lsetxattr(path, name, &acl, sizeof acl, 0)));
}

static void op_chown(struct run *r)
{
	static const uid_t uids[] = {0, 1, 1000};
	uid_t uid = PICK(r, uids), gid = chance(r, 50) ? (uid_t)-1 : 5;
	char path[PATH_ROOM];

	any_path(r, path);
	note_name(r, path);
	if (!geteuid())
		note_errno(r, STEP(r, lchown(path, uid, gid)));
}

/* ---- files that stay open ---- */

void slots_close(struct run *r)
{
	for (int i = 0; i < SLOTS; i++)
		if (r->slot[i] >= 0)
			close(r->slot[i]);
	if (r->dir_slot >= 0)
		close(r->dir_slot);
}

static void op_hold(struct run *r)
{
	static const int flags[] = {O_RDONLY, O_RDWR, O_WRONLY, O_RDWR | O_APPEND};
	int how = PICK(r, flags), i = (int)below(r, SLOTS);
	char path[PATH_ROOM];

	old_file(r, path);
	note(r, " %d %d", i, how);
	note_name(r, path);
	if (r->slot[i] >= 0)
		close(r->slot[i]);
	r->slot[i] = open_file(r, path, how, 0);
	r->slot_write[i] = (how & O_ACCMODE) != O_RDONLY;
	if (r->slot[i] >= 0 && r->slot_write[i])
		set_times(r, r->slot[i]); /* overlayfs's metacopy: copying the data may have brought mtime to
		                             now */
}

static void use_writing(struct run *r, int fd)
{
	size_t n = (size_t)PICK(r, sizes);

	switch (below(r, 4)) {
	case 0:
		note_errno(r, STEP(r, ftruncate(fd, (off_t)n)));
		break;
	case 1:
		note_errno(r, STEP(r, fallocate(fd, 0, (off_t)n, 5000)));
		break;
	default:
		note_errno(r, step_write(r, fd, data(r, n), n, (long)below(r, 9000)));
	}
	set_times(r, fd);
}

static void op_use(struct run *r)
{
	int i = (int)below(r, SLOTS), fd = r->slot[i];
	struct stat st;
	long k;

	note(r, " %d", i);
	if (fd < 0)
		return;
	if (r->slot_write[i] && chance(r, 50)) {
		use_writing(r, fd);
		return;
	}
	/* A committed file that was opened for reading and is gone since: overlayfs cannot copy it up, and
	 * its link count stays 1. */
	switch (below(r, 4) * (r->slot_write[i] ? 1 : 3)) {
	case 0:
		k = LOOK(r, fstat(fd, &st));
		note_errno(r, k);
		if (!r->slot_write[i])
			st.st_nlink = 0;
		if (!k)
			note_stat(r, &st);
		break;
	case 1:
		note_errno(r, STEP(r, fchmod(fd, (mode_t)PICK(r, file_modes))));
		break;
	case 2:
		note_errno(r, STEP(r, fsetxattr(fd, "user.a", "held", 4, 0)));
		break;
	default:
		note(r, " %016llx", (unsigned long long)content(r, fd));
	}
}

static void op_hold_dir(struct run *r)
{
	const char *d = a_dir(r);

	note_name(r, d);
	if (r->dir_slot >= 0)
		close(r->dir_slot);
	r->dir_slot = (int)LOOK(r, open(d, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (r->dir_slot < 0)
		note_errno(r, r->dir_slot);
}

/* In a directory that may have been moved or removed meanwhile. */
static void op_use_dir(struct run *r)
{
	const char *name = PICK(r, file_names), *dir = PICK(r, dir_names);
	struct stat st;
	int fd;

	if (r->dir_slot < 0)
		return;
	note_name(r, name);
	switch (below(r, 4)) {
	case 0:
		fd = (int)STEP(r, openat(r->dir_slot, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
		note_errno(r, fd < 0 ? fd : 0);
		if (fd >= 0) {
			set_times(r, fd);
			close(fd);
		}
		break;
	case 1:
		note_errno(r, STEP(r, unlinkat(r->dir_slot, name, 0)));
		break;
	case 2:
		note_errno(r, STEP(r, unlinkat(r->dir_slot, dir, AT_REMOVEDIR)));
		break;
	default:
		note_errno(r, LOOK(r, fstatat(r->dir_slot, name, &st, AT_SYMLINK_NOFOLLOW)));
	}
}

/* ---- the choice ---- */

static const struct kind {
	const char *name;
	unsigned weight;
	void (*fn)(struct run *r);
} kinds[] = {{"create", 14, op_create}, {"append", 6, op_append}, {"pwrite", 6, op_pwrite},
        {"truncate", 4, op_truncate}, {"fallocate", 4, op_fallocate}, {"mapped", 3, op_mapped},
        {"save", 5, op_save}, {"tmpfile", 1, op_tmpfile}, {"copy", 3, op_copy}, {"direct", 1, op_direct},
        {"read", 10, op_read}, {"stat", 8, op_stat}, {"access", 2, op_access}, {"readdir", 6, op_readdir},
        {"mkdir", 9, op_mkdir}, {"rmdir", 2, op_rmdir}, {"rmtree", 1, op_rmtree}, {"unlink", 8, op_unlink},
        {"rename", 6, op_rename}, {"rename_dir", 5, op_rename_dir}, {"rename_any", 3, op_rename_any},
        {"hard", 3, op_hard}, {"hard_unlink", 3, op_hard_unlink}, {"hard_read", 2, op_hard_read},
        {"pair", 1, op_pair}, {"symlink", 3, op_symlink}, {"special", 1, op_special},
        {"socket", 1, op_socket}, {"chmod", 5, op_chmod}, {"utime", 3, op_utime},
        {"setxattr", 4, op_setxattr}, {"removexattr", 1, op_removexattr}, {"xattrs", 3, op_xattrs},
        {"acl", 2, op_acl}, {"chown", 2, op_chown}, {"hold", 3, op_hold}, {"use", 8, op_use},
        {"hold_dir", 1, op_hold_dir}, {"use_dir", 3, op_use_dir}};

static const struct kind *choose(struct run *r)
{
	const size_t n = sizeof kinds / sizeof *kinds;
	unsigned sum = 0;
	uint64_t at;

	for (size_t i = 0; i < n; i++)
		sum += kinds[i].weight;
	at = below(r, sum);
	for (size_t i = 0; i < n; i++) {
		if (at < kinds[i].weight)
			return &kinds[i];
		at -= kinds[i].weight;
	}
	return kinds;
}

void operation(struct run *r)
{
	static const struct kind shrink = {"unlink", 0, op_unlink}, cut = {"rmtree", 0, op_rmtree};
	const struct kind *k = choose(r);

	if (r->files.n > FILES_MANY && chance(r, 40))
		k = &shrink;
	else if (r->dirs.n > DIRS_MANY && chance(r, 10))
		k = &cut;
	note(r, "%s", k->name);
	k->fn(r);
}
