/* Operations on names. */
#define _GNU_SOURCE
#include "ops.h"

#include <sys/syscall.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

static unsigned depth(const char *path)
{
	unsigned n = 0;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

void op_mkdir(struct run *r)
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

void op_rmdir(struct run *r)
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

void op_rmtree(struct run *r)
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

void op_unlink(struct run *r)
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

/* What overlayfs may refuse to move (see --follow), as root: anything whose path in the commit is longer than
 * overlayfs notes. That path may be another than the present one, so a directory's is not known here. As an
 * ordinary user: a directory, whose mover is killed with the rest. */
static bool may_not_move(struct run *r, const char *path)
{
	char at[PATH_ROOM], here[PATH_ROOM];

	if (geteuid())
		return r->killable && is_dir(r, path);
	return is_dir(r, path) ||
	       (realpath(path, at) && realpath(".", here) && strlen(at) - strlen(here) > 100);
}

/* An ordinary user's move of a committed directory is a copy: what was open there for reading stays what it
 * was. */
static void left_behind(struct run *r)
{
	if (r->dir_slot >= 0)
		close(r->dir_slot);
	r->dir_slot = -1;
	for (int i = 0; i < SLOTS; i++) {
		if (r->slot[i] < 0 || r->slot_write[i])
			continue;
		close(r->slot[i]);
		r->slot[i] = -1;
	}
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
		/* not the C library's, which makes EINVAL of ENOSYS */
		k = STEP(r, syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, how));
	}
	note_errno(r, k);
	if (!k && strcmp(a, b))
		moved(r, a, b, how);
	if (!k && geteuid())
		left_behind(r);
}

void op_rename(struct run *r)
{
	char a[PATH_ROOM], b[PATH_ROOM];

	old_file(r, a);
	NEW(r, file_names, b);
	rename_op(r, a, b);
}

void op_rename_dir(struct run *r)
{
	char a[PATH_ROOM], b[PATH_ROOM];

	snprintf(a, sizeof a, "%s", a_dir(r));
	NEW(r, dir_names, b);
	rename_op(r, a, b);
}

void op_rename_any(struct run *r)
{
	char a[PATH_ROOM], b[PATH_ROOM];

	any_path(r, a);
	any_path(r, b);
	rename_op(r, a, b);
}

void op_hard(struct run *r)
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

void op_hard_unlink(struct run *r)
{
	char path[PATH_ROOM];

	NEW(r, hard_names, path);
	note_name(r, path);
	note_errno(r, STEP(r, unlink(path)));
}

void op_hard_read(struct run *r)
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

void op_pair(struct run *r)
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

void op_symlink(struct run *r)
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

void op_special(struct run *r)
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

void op_socket(struct run *r)
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
