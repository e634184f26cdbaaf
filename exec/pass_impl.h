/* pass_impl: the parts of ntr-pass. Single-threaded; see pass.c. */
#ifndef NTR_EXEC_PASS_IMPL_H
#define NTR_EXEC_PASS_IMPL_H

#include "../base/hash.h"
#include "../base/util.h"

#include <fuse_lowlevel.h>
#include <sys/stat.h>

/* ---- pass_inode.c: what the kernel knows by number ---- */

/* Where a file was last seen is kept besides its descriptor, so that descriptors can be closed (too many, or
 * the view is to be replaced) and opened again. */
struct ntr_pkey {
	dev_t dev;
	ino_t ino;
	mode_t type;
};

struct ntr_pinode {
	struct ntr_pkey key;
	int fd;                    /* O_PATH, or -1 */
	unsigned gen;              /* of the view that key belongs to */
	uint64_t lookups;          /* the kernel's references */
	uint64_t children;         /* inodes whose parent this is */
	struct ntr_pinode *parent; /* NULL: the root */
	char *name;
	struct ntr_pinode *older, *newer; /* those with a descriptor, by use */
	bool hashed;
	UT_hash_handle hh;
};

/* limit: descriptors to hold at most. view_fd becomes the table's. */
int ntr_pinode_setup(int view_fd, size_t limit);
/* A descriptor for a nodeid, valid until the next call; or negative errno (-ESTALE: what was there is gone).
 */
int ntr_pinode_fd(fuse_ino_t id);
/* Looks name up and fills e (without timeouts: nothing is cached), taking one reference. 0 or negative errno.
 */
int ntr_pinode_lookup(fuse_ino_t parent, const char *name, struct fuse_entry_param *e);
void ntr_pinode_forget(fuse_ino_t id, uint64_t n);
/* name in parent has become another file: descriptions of where files are follow. */
void ntr_pinode_moved(fuse_ino_t parent, const char *name);
/* Closes every descriptor; then the view to go on with. */
void ntr_pinode_release(void);
void ntr_pinode_resume(int view_fd);
/* "/proc/self/fd/N" of an O_PATH descriptor: the way to do what needs more than O_PATH gives. */
const char *ntr_pinode_link(int fd, char buf[40]);

/* ---- pass_file.c: open files and directories ---- */

unsigned ntr_pfile_open_count(void);
/* Closes all of them; later requests on them get ESTALE. */
void ntr_pfile_drop(void);
/* The descriptor of an open file, or -ESTALE. */
int ntr_pfile_fd(const struct fuse_file_info *fi);
void ntr_pfile_ops(struct fuse_lowlevel_ops *ops);
void ntr_pdir_ops(struct fuse_lowlevel_ops *ops);

/* ---- pass_name.c: everything by name or inode ---- */
void ntr_pname_ops(struct fuse_lowlevel_ops *ops);
void ntr_pattr_ops(struct fuse_lowlevel_ops *ops);

#endif
