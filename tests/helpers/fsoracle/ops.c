/* The operations: each draws its arguments, notes them, does its calls and notes what they gave. Here: the
 * choice, and what changes attributes. */
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

/* ---- attributes ---- */

void op_chmod(struct run *r)
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

void op_utime(struct run *r)
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

void op_setxattr(struct run *r)
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
void op_removexattr(struct run *r)
{
	const char *name = an_xattr(r);
	char path[PATH_ROOM];
	long k;

	any_path(r, path);
	note_name(r, path);
	k = STEP(r, lremovexattr(path, name));
	note_errno(r, k == -ENOTSUP ? -ENODATA : k);
}

void op_xattrs(struct run *r)
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
void op_acl(struct run *r)
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

void op_chown(struct run *r)
{
	static const uid_t uids[] = {0, 1, 1000};
	uid_t uid = PICK(r, uids), gid = chance(r, 50) ? (uid_t)-1 : 5;
	char path[PATH_ROOM];

	any_path(r, path);
	note_name(r, path);
	if (!geteuid())
		note_errno(r, STEP(r, lchown(path, uid, gid)));
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
