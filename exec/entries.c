#include "entries.h"

#include "../base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static const char *type_name(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "dir";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	case S_IFCHR:
		return "chr";
	case S_IFBLK:
		return "blk";
	default:
		return "file";
	}
}

json_t *ntr_entries_one(const char *name, const struct stat *st, const char *target)
{
	json_t *o = json_pack("{s:o,s:s,s:i,s:I,s:I,s:I,s:I,s:i,s:i}", "name",
	        ntr_json_bytes(name, strlen(name)), "type", type_name(st->st_mode), "mode",
	        (int)(st->st_mode & 07777), "size", (json_int_t)st->st_size, "mtime_ns",
	        (json_int_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec, "ino",
	        (json_int_t)st->st_ino, "nlink", (json_int_t)st->st_nlink, "uid", (int)st->st_uid, "gid",
	        (int)st->st_gid);

	if (o && target)
		json_object_set_new(o, "target", ntr_json_bytes(target, strlen(target)));
	return o;
}

/* ---- writing ---- */

static int put_line(FILE *out, json_t *line)
{
	int r = !line ? -ENOMEM : json_dumpf(line, out, JSON_COMPACT) || putc('\n', out) == EOF ? -EPIPE : 0;

	json_decref(line);
	return r;
}

/* What path in dir is ("": dir itself), under that name. */
static int put_entry(int dir, const char *path, const char *name, const struct stat *st, FILE *out)
{
	char target[PATH_MAX];
	ssize_t n = -1;

	if (S_ISLNK(st->st_mode)) {
		n = readlinkat(dir, path, target, sizeof target - 1);
		if (n < 0)
			return errno == ENOENT || errno == EINVAL ? 0 : -errno;
		target[n] = '\0';
	}
	return put_line(out, ntr_entries_one(name, st, n >= 0 ? target : NULL));
}

static int put_name(int dir, const char *name, FILE *out)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno; /* gone meanwhile */
	return put_entry(dir, name, name, &st, out);
}

static int put_dir(int fd, FILE *out)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = own >= 0 ? fdopendir(own) : NULL;

	if (!d) {
		r = -errno;
		ntr_closep(&own);
		return r;
	}
	while (!r) {
		struct dirent *en = (errno = 0, readdir(d));

		if (!en) {
			r = -errno;
			break;
		}
		if (strcmp(en->d_name, ".") && strcmp(en->d_name, ".."))
			r = put_name(own, en->d_name, out);
	}
	closedir(d);
	return r;
}

static int put_all(int fd, const char *path, FILE *out)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISDIR(st.st_mode))
		return put_dir(fd, out);
	return *name ? put_entry(fd, "", name, &st, out) : -ENOTDIR;
}

void ntr_entries_write(int fd, const char *path, int out)
{
	FILE *f = fdopen(out, "w");

	if (!f) {
		close(out);
		return;
	}
	put_line(f, json_pack("{s:i}", "end", put_all(fd, path, f)));
	fclose(f);
}

/* ---- reading ---- */

int ntr_entries_read(int in, json_t *list)
{
	FILE *f = fdopen(in, "r");
	int r = 0;

	if (!f) {
		close(in);
		return -ENOMEM;
	}
	for (bool more = true; !r && more;) {
		json_t *o = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
		json_t *end = json_object_get(o, "end");

		more = o && !end;
		if (!more)
			r = o ? (int)json_integer_value(end) : -EINTR;
		else if (json_array_append(list, o))
			r = -ENOMEM;
		json_decref(o);
	}
	fclose(f);
	return r;
}
