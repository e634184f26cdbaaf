/* Operations on files and directories that stay open over several. */
#define _GNU_SOURCE
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

void slots_close(struct run *r)
{
	for (int i = 0; i < SLOTS; i++)
		if (r->slot[i] >= 0)
			close(r->slot[i]);
	if (r->dir_slot >= 0)
		close(r->dir_slot);
}

void op_hold(struct run *r)
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
	long off = (long)below(r, 9000);

	switch (below(r, 4)) {
	case 0:
		note_errno(r, STEP(r, ftruncate(fd, (off_t)n)));
		break;
	case 1:
		note_errno(r, STEP(r, fallocate(fd, 0, (off_t)n, 5000)));
		break;
	default:
		note_errno(r, step_write(r, fd, data(r, n), n, off));
	}
	set_times(r, fd);
}

void op_use(struct run *r)
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

void op_hold_dir(struct run *r)
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
void op_use_dir(struct run *r)
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
