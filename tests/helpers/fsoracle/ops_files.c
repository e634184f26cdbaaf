/* Operations on what is in files, and looks at them. */
#define _GNU_SOURCE
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void op_create(struct run *r)
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

void op_append(struct run *r)
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

void op_pwrite(struct run *r)
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

void op_truncate(struct run *r)
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

void op_fallocate(struct run *r)
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

void op_mapped(struct run *r)
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

void op_save(struct run *r)
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

void op_tmpfile(struct run *r)
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

void op_copy(struct run *r)
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

void op_direct(struct run *r)
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

void op_read(struct run *r)
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

void note_stat(struct run *r, const struct stat *st)
{
	note(r, " %o %u:%u", st->st_mode, st->st_uid, st->st_gid);
	if (!S_ISDIR(st->st_mode))
		note(r, " %lld n%lu", (long long)st->st_size, (unsigned long)st->st_nlink);
	if (!S_ISDIR(st->st_mode) && !(r->any_now && st->st_mtime > 1700000000 && st->st_mtime < 2000000000))
		note(r, " m%lld.%09ld", (long long)st->st_mtime, st->st_mtim.tv_nsec);
}

void op_stat(struct run *r)
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

void op_access(struct run *r)
{
	int how = (int)below(r, 8);
	char path[PATH_ROOM];

	any_path(r, path);
	note_name(r, path);
	note_errno(r, LOOK(r, faccessat(AT_FDCWD, path, how, AT_EACCESS)));
}

void op_readdir(struct run *r)
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
