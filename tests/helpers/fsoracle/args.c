/* Arguments of operations, and files opened and stamped. */
#define _GNU_SOURCE
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- arguments ---- */

const char *a_dir(struct run *r)
{
	return r->dirs.v[below(r, r->dirs.n)];
}

void in_dir(struct run *r, const char *name, char *ret)
{
	const char *d = a_dir(r);

	if (strcmp(d, "."))
		snprintf(ret, PATH_ROOM, "%s/%s", d, name);
	else
		snprintf(ret, PATH_ROOM, "%s", name);
}

/* Names that need a walk of another kind, or that are none. */
void twist(struct run *r, char *path)
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

/* A hard link; where runs are killed (--no-now), what `pair` made may have stayed one. */
static bool is_link(const struct run *r, const char *path)
{
	const char *slash = strrchr(path, '/');
	char first = slash ? slash[1] : path[0];

	return first == 'h' || (r->any_now && first == 'q');
}

void old_file(struct run *r, char *ret)
{
	if (r->files.n && chance(r, 85))
		snprintf(ret, PATH_ROOM, "%s", r->files.v[below(r, r->files.n)]);
	else
		NEW(r, file_names, ret);
	/* it is left as it is; the names of others begin with neither */
	if (is_link(r, ret))
		NEW(r, file_names, ret);
	if (chance(r, 2))
		twist(r, ret);
}

void any_path(struct run *r, char *ret)
{
	if (chance(r, 30))
		snprintf(ret, PATH_ROOM, "%s", a_dir(r));
	else
		old_file(r, ret);
}

void set_times(struct run *r, int fd)
{
	struct timespec t = {1500000000 + (time_t)r->op, (long)(r->op * 1000003 % 1000000000)};

	STEP(r, futimens(fd, (struct timespec[]){t, t}));
}

void set_times_at(struct run *r, const char *path, int flags)
{
	struct timespec t = {1500000000 + (time_t)r->op, (long)(r->op * 1000003 % 1000000000)};

	STEP(r, utimensat(AT_FDCWD, path, (struct timespec[]){t, t}, flags));
}

const char *data(struct run *r, size_t n)
{
	static char buf[1 << 17];

	for (size_t i = 0; i < n; i += 8) {
		uint64_t w = i % 4096 < 64 ? rnd(r) : r->op;

		memcpy(buf + i, &w, 8);
	}
	return buf;
}

/* A regular file, or -1 after a note of why not. */
int open_file(struct run *r, const char *path, int flags, int mode)
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

void done_file(struct run *r, int fd, long result)
{
	note_errno(r, result);
	set_times(r, fd);
	close(fd);
}

uint64_t content(struct run *r, int fd)
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
