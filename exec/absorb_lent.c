#include "absorb_lent.h"

#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { NAME = 40 };

static void note_name(uint64_t ino, char name[NAME])
{
	snprintf(name, NAME, "lent/%llu", (unsigned long long)ino);
}

/* False: none. */
static bool read_note(int beside, const char *name, uint32_t *ret)
{
	char text[16];
	ssize_t n = beside < 0 ? -1 : readlinkat(beside, name, text, sizeof text - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';
	*ret = (uint32_t)strtoul(text, NULL, 8) & 07777;
	return true;
}

/* By its path, where upper may not be searched. */
static int open_by_path(int upper_fd)
{
	char link[40], path[PATH_MAX], *slash;
	struct stat own, there;
	ssize_t n;
	int fd;

	snprintf(link, sizeof link, "/proc/self/fd/%d", upper_fd);
	n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	if (!slash || slash == path || fstat(upper_fd, &own))
		return -1;
	*slash = '\0';
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && !fstatat(fd, slash + 1, &there, AT_SYMLINK_NOFOLLOW) && there.st_ino == own.st_ino &&
	        there.st_dev == own.st_dev)
		return fd;
	ntr_closep(&fd);
	return -1;
}

int ntr_lent_open(int upper_fd)
{
	int fd = openat(upper_fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? open_by_path(upper_fd) : fd;
}

/* True: there is one now. */
static bool note(int beside, uint64_t ino, uint32_t mode)
{
	char name[NAME], text[16];

	if (beside < 0)
		return false;
	note_name(ino, name);
	snprintf(text, sizeof text, "%o", mode);
	if (!symlinkat(text, beside, name) || errno == EEXIST)
		return true;
	return errno == ENOENT && (!mkdirat(beside, "lent", 0700) || errno == EEXIST) &&
	       (!symlinkat(text, beside, name) || errno == EEXIST);
}

/* Takes the note away if it says that mode. */
static void forget(int beside, uint64_t ino, uint32_t mode)
{
	char name[NAME];
	uint32_t noted;

	note_name(ino, name);
	if (read_note(beside, name, &noted) && noted == mode)
		unlinkat(beside, name, 0);
}

static int set_mode(int fd, uint32_t mode)
{
	char proc[32];

	snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
	return fchmodat(AT_FDCWD, proc, mode, 0) ? -errno : 0;
}

int ntr_lent_give(int beside, int fd, const struct stat *st, uint32_t bits)
{
	uint32_t mode = st->st_mode & 07777;
	bool noted = note(beside, st->st_ino, mode);
	int r = set_mode(fd, mode | bits);

	if (r && noted)
		forget(beside, st->st_ino, mode);
	return r;
}

int ntr_lent_back(int beside, int fd, uint32_t mode, uint32_t bits)
{
	struct stat st;
	int r = fstat(fd, &st) ? -errno : 0;

	if (r)
		return r;
	if ((st.st_mode & 07777) == (mode | bits))
		r = set_mode(fd, mode);
	forget(beside, st.st_ino, mode);
	return r;
}

bool ntr_lent_any(int beside)
{
	return beside >= 0 && !faccessat(beside, "lent", F_OK, AT_EACCESS);
}

bool ntr_lent_find(int beside, uint64_t ino, uint32_t mode, uint32_t *ret)
{
	char name[NAME];
	uint32_t noted;

	note_name(ino, name);
	if (!read_note(beside, name, &noted))
		return false;
	mode &= 07777;
	if (mode != (noted | 0600) && mode != (noted | 0700))
		return false; /* the session's own, set since */
	*ret = noted;
	return true;
}
