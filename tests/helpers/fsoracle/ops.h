/* What the files of operations share: arguments, files opened and stamped, and the operations themselves. */
#ifndef NTR_TESTS_FSORACLE_OPS_H
#define NTR_TESTS_FSORACLE_OPS_H

#include "fsoracle.h"

#include <sys/stat.h>

enum { DIRS_MANY = 24, FILES_MANY = 70, DEPTH = 5 };

#define NAMES(name, ...) static const char *const name[] __attribute__((unused)) = {__VA_ARGS__}
#define LONG16           "xxxxxxxxxxxxxxxx"
#define LONG240                                                                                           \
	LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 LONG16 \
	        LONG16

NAMES(file_names, "f0", "f1", "f2", "f3", "f4", "f5", "f6", "with space", "\xff\xfe", "n\nl",
        LONG240 "123456789012345", "\xc3\xbc", ".wh.f0", "-rf");
NAMES(dir_names, "d0", "d1", "d2", "d3", "d4", "d\x80");
NAMES(hard_names, "h0", "h1", "h2", "h3");
NAMES(pair_names, "q0", "q1", "q2");
NAMES(link_names, "s0", "s1", "s2");
NAMES(fifo_names, "p0", "p1");
NAMES(socket_names, "k0", "k1");
NAMES(device_names, "c0", "b0");
static const int file_modes[]
        __attribute__((unused)) = {0644, 0600, 0755, 0444, 0400, 0200, 0000, 04755, 02711, 01666};
static const int dir_modes[] __attribute__((unused)) = {0755, 0755, 0755, 0700, 01777, 02755, 0555, 0311};
static const long sizes[] __attribute__((unused)) = {0, 1, 100, 100, 2000, 4095, 4096, 4097, 20000, 70000};

/* a directory that is there; name in one; a name out of names in one */
const char *a_dir(struct run *r);
void in_dir(struct run *r, const char *name, char *ret);
#define NEW(r, names, ret) in_dir(r, PICK(r, names), ret)
/* a file that is likely there, no hard link; that, or a directory */
void old_file(struct run *r, char *ret);
void any_path(struct run *r, char *ret);
void twist(struct run *r, char *path); /* the same or nearly, by another kind of walk */

/* times of the operation's own */
void set_times(struct run *r, int fd);
void set_times_at(struct run *r, const char *path, int flags);
const char *data(struct run *r, size_t n);
int open_file(
        struct run *r, const char *path, int flags, int mode); /* a regular one, or -1 after a note of why */
void done_file(struct run *r, int fd, long result);
uint64_t content(struct run *r, int fd);
void note_stat(struct run *r, const struct stat *st);

void op_create(struct run *r);
void op_append(struct run *r);
void op_pwrite(struct run *r);
void op_truncate(struct run *r);
void op_fallocate(struct run *r);
void op_mapped(struct run *r);
void op_save(struct run *r);
void op_tmpfile(struct run *r);
void op_copy(struct run *r);
void op_direct(struct run *r);
void op_read(struct run *r);
void op_stat(struct run *r);
void op_access(struct run *r);
void op_readdir(struct run *r);
void op_mkdir(struct run *r);
void op_rmdir(struct run *r);
void op_rmtree(struct run *r);
void op_unlink(struct run *r);
void op_rename(struct run *r);
void op_rename_dir(struct run *r);
void op_rename_any(struct run *r);
void op_hard(struct run *r);
void op_hard_unlink(struct run *r);
void op_hard_read(struct run *r);
void op_pair(struct run *r);
void op_symlink(struct run *r);
void op_special(struct run *r);
void op_socket(struct run *r);
void op_chmod(struct run *r);
void op_utime(struct run *r);
void op_setxattr(struct run *r);
void op_removexattr(struct run *r);
void op_xattrs(struct run *r);
void op_acl(struct run *r);
void op_chown(struct run *r);
void op_hold(struct run *r);
void op_use(struct run *r);
void op_hold_dir(struct run *r);
void op_use_dir(struct run *r);

#endif
