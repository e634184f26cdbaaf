/* fsoracle: random file operations in the working directory, for comparing filesystems.
 *
 *   fsoracle run SEED FROM TO LOG [--no-now] [--follow LOG] [--killable] [--steps N [--partial BYTES]]
 *   fsoracle hash [--list] [--links] [--unlock] [--no-now | --no-times]  a hash of the tree; what went into
 * it (no-times: without times and set-id bits)
 *
 * What operation N does depends on the seed, N and the tree that the run finds at its beginning, on nothing
 * else: so [FROM, TO) may be one run or spread over many, and two filesystems that behave the same give the
 * same LOG and keep the same tree. Whatever changes a file also sets its mtime to a value of the operation's
 * own.
 *
 * --follow: the other side's log: where it gave EXDEV, as documented, for a copy_file_range or for a rename
 * (root's, of what lies deep; an ordinary user's, of a directory, with --killable) it is not done here
 * either.
 * --no-now: files that were cut short bear a time of the test, which differs; it counts as equal to another
 * such.
 * --killable: errors that a filesystem gives whose server is dead (and ENOSYS, a dead supervisor's) end the
 * run instead of being results.
 * --steps: ends after so many calls, which is how a tree is made that equals that of a run which was killed
 * there.
 *
 * Names h* are hard links: made, read, moved with their directory and removed, but not changed, moved nor
 * linked again: the first change of a committed one breaks the link in overlayfs. `pair` does so within one
 * operation. */
#define _GNU_SOURCE
#include "fsoracle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "fsoracle: %s: %s\n", what, strerror(errno));
	exit(2);
}

/* ---- chance ---- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

uint64_t rnd(struct run *r)
{
	r->rng += 0x9e3779b97f4a7c15ULL;
	return mix(r->rng);
}

uint64_t below(struct run *r, uint64_t n)
{
	return rnd(r) % n;
}

bool chance(struct run *r, unsigned percent)
{
	return below(r, 100) < percent;
}

/* ---- the log ---- */

void note(struct run *r, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(r->text + r->used, LOG_ROOM - r->used, fmt, ap);
	va_end(ap);
	r->used += (size_t)n;
	if (r->used >= LOG_ROOM) {
		errno = ENOSPC;
		die("log");
	}
}

void note_name(struct run *r, const char *name)
{
	size_t len = strlen(name);

	note(r, " '");
	if (len > 400)
		note(r, "(%zu)", len);
	for (size_t i = len > 400 ? len - 20 : 0; i < len; i++) {
		unsigned char ch = (unsigned char)name[i];

		if (ch < ' ' || ch > '~' || ch == '\\' || ch == '\'')
			note(r, "\\x%02x", ch);
		else
			note(r, "%c", ch);
	}
	note(r, "'");
}

void note_errno(struct run *r, long result)
{
	const char *name = result < 0 ? strerrorname_np((int)-result) : "ok";

	note(r, " %s", name ? name : "?");
}

static void finish(struct run *r, int how)
{
	r->log->finished = (uint64_t)how;
	exit(how == 3 ? 99 : 0);
}

static bool server_is_gone(long result)
{
	switch (result) {
	case -EIO:
	case -ENOSYS: /* of a rename: an ordinary user's are answered by the supervisor */
	case -ENOTCONN:
	case -ECONNABORTED:
	case -ECANCELED:
	case -ECONNREFUSED:
	case -ESTALE:
	case -EINTR:
		return true;
	default:
		return false;
	}
}

long looked(struct run *r, long result)
{
	result = result < 0 ? -errno : result;
	if (r->killable && server_is_gone(result))
		finish(r, 3);
	return result;
}

void step_begin(struct run *r)
{
	if (r->log->steps == r->stop_at)
		finish(r, 2);
}

long step_end(struct run *r, long result)
{
	result = looked(r, result);
	r->log->steps++;
	return result;
}

long step_write(struct run *r, int fd, const void *buf, size_t n, long off)
{
	if (r->log->steps == r->stop_at && r->partial > 0) {
		n = n < (size_t)r->partial ? n : (size_t)r->partial;
		if ((off < 0 ? write(fd, buf, n) : pwrite(fd, buf, n, off)) < 0)
			die("write");
	}
	return off < 0 ? STEP(r, write(fd, buf, n)) : STEP(r, pwrite(fd, buf, n, off));
}

bool other_gave(struct run *r, const char *name_of_errno)
{
	const char *line = r->follow, *end;
	size_t len = strlen(name_of_errno);
	char want[32];

	if (!line)
		return false;
	snprintf(want, sizeof want, "%llu ", (unsigned long long)r->op);
	while (*line && strncmp(line, want, strlen(want)))
		line = (end = strchr(line, '\n')) ? end + 1 : "";
	r->follow = line;
	end = strchr(line, '\n');
	return end && (size_t)(end - line) > len && !strncmp(end - len, name_of_errno, len);
}

static void open_log(struct run *r, const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	char *p;

	if (fd < 0 || ftruncate(fd, sizeof *r->log + LOG_ROOM))
		die(path);
	p = mmap(NULL, sizeof *r->log + LOG_ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die(path);
	close(fd);
	r->log = (struct log_head *)p;
	r->text = p + sizeof *r->log;
}

static const char *open_follow(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *p;

	if (fd < 0)
		die(path);
	p = mmap(NULL, sizeof(struct log_head) + LOG_ROOM, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		die(path);
	close(fd);
	return p + sizeof(struct log_head);
}

/* ---- what there is ---- */

void paths_add(struct paths *p, const char *path)
{
	for (size_t i = 0; i < p->n; i++)
		if (!strcmp(p->v[i], path))
			return;
	if (p->n == p->room) {
		p->room = p->room ? 2 * p->room : 64;
		p->v = realloc(p->v, p->room * sizeof *p->v);
	}
	if (!p->v || !(p->v[p->n++] = strdup(path)))
		die("memory");
}

static bool below_path(const char *path, const char *top)
{
	size_t n = strlen(top);

	return !strncmp(path, top, n) && (!path[n] || path[n] == '/');
}

void paths_gone(struct paths *p, const char *path)
{
	size_t k = 0;

	for (size_t i = 0; i < p->n; i++) {
		if (below_path(p->v[i], path))
			free(p->v[i]);
		else
			p->v[k++] = p->v[i];
	}
	p->n = k;
}

static void move_one(char **path, const char *from, const char *to)
{
	size_t skip = strlen(from), n = strlen(to) + strlen(*path) - skip + 1;
	char *s = malloc(n);

	if (!s)
		die("memory");
	snprintf(s, n, "%s%s", to, *path + skip);
	free(*path);
	*path = s;
}

void paths_moved(struct paths *p, const char *from, const char *to)
{
	for (size_t i = 0; i < p->n; i++)
		if (below_path(p->v[i], from))
			move_one(&p->v[i], from, to);
}

void paths_exchanged(struct paths *p, const char *a, const char *b)
{
	for (size_t i = 0; i < p->n; i++) {
		if (below_path(p->v[i], a))
			move_one(&p->v[i], a, b);
		else if (below_path(p->v[i], b))
			move_one(&p->v[i], b, a);
	}
}

void paths_free(struct paths *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i]);
	free(p->v);
	*p = (struct paths){0};
}

static bool walk_failed; /* not for lack of a permission: there is more than was seen */

static void walk_dir(const char *dir, struct paths *dirs, struct paths *files)
{
	char path[PATH_ROOM];
	struct dirent *e;
	DIR *d = opendir(dir);

	walk_failed |= !d && server_is_gone(-errno);
	while (errno = 0, d && (e = readdir(d))) {
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (!strcmp(dir, "."))
			snprintf(path, sizeof path, "%s", e->d_name);
		else
			snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		if (lstat(path, &st)) {
			walk_failed |= server_is_gone(-errno);
			continue;
		}
		paths_add(S_ISDIR(st.st_mode) ? dirs : files, path);
		if (S_ISDIR(st.st_mode))
			walk_dir(path, dirs, files);
	}
	walk_failed |= server_is_gone(-errno);
	if (d)
		closedir(d);
}

int by_path(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void walk(struct paths *dirs, struct paths *files)
{
	paths_add(dirs, ".");
	walk_dir(".", dirs, files);
	qsort(dirs->v, dirs->n, sizeof *dirs->v, by_path);
	if (files->n)
		qsort(files->v, files->n, sizeof *files->v, by_path);
}

/* ---- the hash ---- */

struct hasher {
	uint64_t h;
	struct hash_options o;
};

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
	const unsigned char *p = data;
	uint64_t w = 0;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&w, p, 8);
		h = mix(h ^ w) + 0x9e3779b97f4a7c15ULL;
	}
	w = n;
	for (size_t i = 0; i < n; i++)
		w = w << 8 | p[i];
	return mix(h ^ w);
}

static void put(struct hasher *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct hasher *o, const char *fmt, ...)
{
	char tmp[8192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(tmp, sizeof tmp, fmt, ap);
	va_end(ap);
	o->h = hash_bytes(o->h, tmp, strlen(tmp));
	if (o->o.out)
		fputs(tmp, o->o.out);
}

static void put_escaped(struct hasher *o, const char *s, size_t n)
{
	char tmp[4 * 5000 + 1];
	size_t k = 0;

	for (size_t i = 0; i < n && i < 5000; i++) {
		unsigned char ch = (unsigned char)s[i];

		k += (size_t)(ch <= ' ' || ch > '~' || ch == '\\' ? sprintf(tmp + k, "\\x%02x", ch)
		                                                  : sprintf(tmp + k, "%c", ch));
	}
	tmp[k] = 0;
	put(o, "%s", tmp);
}

static void put_xattrs(struct hasher *o, const char *path)
{
	char list[4096], value[4096];
	struct paths names = {0};
	ssize_t n = llistxattr(path, list, sizeof list);

	for (char *p = list; n > 0 && p < list + n; p += strlen(p) + 1)
		if (strncmp(p, "security.", 9))
			paths_add(&names, p);
	if (names.n)
		qsort(names.v, names.n, sizeof *names.v, by_path);
	for (size_t i = 0; i < names.n; i++) {
		ssize_t k = lgetxattr(path, names.v[i], value, sizeof value);

		put(o, " %s=", names.v[i]);
		if (k < 0)
			put(o, "%s", strerrorname_np(errno));
		else
			put_escaped(o, value, (size_t)k);
	}
	paths_free(&names);
}

static void put_content(struct hasher *o, const char *path)
{
	static char buf[1 << 16];
	uint64_t h = 1;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0) {
		put(o, " %s", strerrorname_np(errno));
		return;
	}
	while ((n = read(fd, buf, sizeof buf)) > 0)
		h = hash_bytes(h, buf, (size_t)n);
	if (n < 0)
		put(o, " %s", strerrorname_np(errno));
	put(o, " %016llx", (unsigned long long)h);
	close(fd);
}

struct group {
	dev_t dev;
	ino_t ino;
	size_t first;
};

/* Hard links are named by the number of the first path of theirs. */
static void put_links(struct hasher *o, const struct stat *st, size_t i)
{
	static struct group groups[4096];
	static size_t n;

	if (!i)
		n = 0;
	put(o, " n%lu", (unsigned long)st->st_nlink);
	if (st->st_nlink < 2)
		return;
	for (size_t k = 0; k < n; k++) {
		if (groups[k].dev == st->st_dev && groups[k].ino == st->st_ino) {
			put(o, " =%zu", groups[k].first);
			return;
		}
	}
	if (n < sizeof groups / sizeof *groups)
		groups[n++] = (struct group){st->st_dev, st->st_ino, i};
	put(o, " =%zu", i);
}

/* A committed hard link in a directory that an ordinary user has moved: the move is a copy. What `pair` made
 * is one, too, where it was killed between its link and its unlink. */
static bool may_be_broken(const char *path)
{
	const char *slash = strrchr(path, '/');
	char first = slash ? slash[1] : path[0];

	return geteuid() && (first == 'h' || first == 'q');
}

static void put_mtime(struct hasher *o, const struct stat *st)
{
	if (o->o.no_times)
		return;
	if (o->o.no_now && st->st_mtime > 1700000000 && st->st_mtime < 2000000000)
		put(o, " now");
	else
		put(o, " m%lld.%09ld", (long long)st->st_mtime, st->st_mtim.tv_nsec);
}

static mode_t mode_of(const char *path, const struct stat *st);

static void put_path(struct hasher *o, const char *path, size_t i)
{
	char target[4096];
	struct stat st;
	ssize_t n;

	put_escaped(o, path, strlen(path));
	if (lstat(path, &st)) {
		put(o, " %s\n", strerrorname_np(errno));
		return;
	}
	st.st_mode = mode_of(path, &st);
	if (o->o.no_times && S_ISREG(st.st_mode))
		st.st_mode &= ~(mode_t)(S_ISUID | S_ISGID);
	put(o, " %o %u:%u", st.st_mode, st.st_uid, st.st_gid);
	if (!S_ISDIR(st.st_mode)) {
		put(o, " %lld", (long long)st.st_size);
		put_mtime(o, &st);
		if (o->o.links && !may_be_broken(path))
			put_links(o, &st, i);
	}
	if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
		put(o, " %u:%u", major(st.st_rdev), minor(st.st_rdev));
	if (S_ISLNK(st.st_mode) && (n = readlink(path, target, sizeof target)) >= 0) {
		put(o, " ->");
		put_escaped(o, target, (size_t)n);
	}
	if (S_ISREG(st.st_mode))
		put_content(o, path);
	put_xattrs(o, path);
	put(o, "\n");
}

/* What its owner has no permission for would be left out: it gets one until unlocked_done. */
static struct unlocked {
	char *path;
	mode_t mode;
} * unlocked;
static size_t unlocked_n;

static bool unlock(const char *path)
{
	struct stat st;
	mode_t need;

	if (lstat(path, &st) || st.st_uid != geteuid())
		return false;
	need = S_ISDIR(st.st_mode) ? S_IRWXU : S_ISREG(st.st_mode) ? S_IRUSR : 0;
	if ((st.st_mode & need) == need || chmod(path, (st.st_mode | need) & 07777))
		return false;
	unlocked = reallocarray(unlocked, unlocked_n + 1, sizeof *unlocked);
	if (!unlocked || !(unlocked[unlocked_n].path = strdup(path)))
		die("memory");
	unlocked[unlocked_n++].mode = st.st_mode;
	return true;
}

static void unlocked_done(void)
{
	while (unlocked_n) {
		struct unlocked *u = &unlocked[--unlocked_n];

		if (chmod(u->path, u->mode & 07777))
			die(u->path);
		free(u->path);
	}
}

static void walk_unlocked(struct paths *dirs, struct paths *files)
{
	bool again = true;

	unlock(".");
	while (again) {
		again = false;
		paths_free(dirs);
		paths_free(files);
		*dirs = *files = (struct paths){0};
		walk(dirs, files);
		for (size_t i = 0; i < dirs->n; i++)
			again |= unlock(dirs->v[i]);
	}
	for (size_t i = 0; i < files->n; i++)
		unlock(files->v[i]);
}

static mode_t mode_of(const char *path, const struct stat *st)
{
	for (size_t i = 0; i < unlocked_n; i++)
		if (!strcmp(unlocked[i].path, path))
			return unlocked[i].mode;
	return st->st_mode;
}

uint64_t tree_hash(struct hash_options options)
{
	struct hasher o = {.o = options};
	struct paths dirs = {0}, files = {0};

	if (options.unlock)
		walk_unlocked(&dirs, &files);
	else
		walk(&dirs, &files);
	for (size_t i = 0; i < files.n; i++)
		put_path(&o, files.v[i], i);
	for (size_t i = 0; i < dirs.n; i++)
		put_path(&o, dirs.v[i], i);
	unlocked_done();
	paths_free(&dirs);
	paths_free(&files);
	return o.h;
}

/* ---- programs ---- */

static int run_main(int argc, char **argv)
{
	struct run r = {.stop_at = UINT64_MAX, .partial = -1, .slot = {-1, -1, -1, -1}, .dir_slot = -1};
	uint64_t last;

	if (argc < 4)
		return 2;
	r.seed = strtoull(argv[0], NULL, 10);
	r.op = strtoull(argv[1], NULL, 10);
	last = strtoull(argv[2], NULL, 10);
	open_log(&r, argv[3]);
	for (int i = 4; i < argc; i++) {
		if (!strcmp(argv[i], "--killable"))
			r.killable = true;
		else if (!strcmp(argv[i], "--no-now"))
			r.any_now = true;
		else if (!strcmp(argv[i], "--follow") && i + 1 < argc)
			r.follow = open_follow(argv[++i]);
		else if (!strcmp(argv[i], "--steps") && i + 1 < argc)
			r.stop_at = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--partial") && i + 1 < argc)
			r.partial = strtol(argv[++i], NULL, 10);
		else
			return 2;
	}
	umask(022);
	walk(&r.dirs, &r.files);
	if (r.killable && walk_failed)
		finish(&r, 3);
	r.log->tree = tree_hash((struct hash_options){.no_now = r.any_now});
	for (; r.op < last; r.op++) {
		r.rng = mix(r.seed) ^ mix(r.op * 2 + 1);
		note(&r, "%llu ", (unsigned long long)r.op);
		operation(&r);
		note(&r, "\n");
		r.log->text_len = r.used;
		r.log->done++;
	}
	slots_close(&r);
	finish(&r, 1);
	return 0;
}

static int hash_main(int argc, char **argv)
{
	struct hash_options o = {0};

	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--list"))
			o.out = stdout;
		o.links |= !strcmp(argv[i], "--links");
		o.no_now |= !strcmp(argv[i], "--no-now");
		o.unlock |= !strcmp(argv[i], "--unlock");
		o.no_times |= !strcmp(argv[i], "--no-times");
	}
	printf("%016llx\n", (unsigned long long)tree_hash(o));
	return 0;
}

int main(int argc, char **argv)
{
	int status = 2;

	if (argc > 2 && !strcmp(argv[1], "run"))
		status = run_main(argc - 2, argv + 2);
	else if (argc > 1 && !strcmp(argv[1], "hash"))
		status = hash_main(argc - 2, argv + 2);
	if (status == 2)
		fprintf(stderr, "usage: fsoracle run SEED FROM TO LOG [OPTION]… | hash [--list] [--links] "
		                "[--no-now | --no-times]\n");
	return status;
}
