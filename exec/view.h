/* view: building the merged view: mount namespace, overlay, and the place where it shows. Runs in the
 * supervisor.
 *
 * Root of the namespace: where wsroot exists on the host the overlay is mounted over it; where it does not, a
 * tmpfs with every entry of the deepest existing parent bound in takes that parent's place (for "/" by
 * pivot_root), so that nothing on the host is created. */
#ifndef NTR_EXEC_VIEW_H
#define NTR_EXEC_VIEW_H

#include "../base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct ntr_overlay { /* one overlay to mount; descriptors are O_PATH directories, borrowed */
	int lower_fd, upper_fd, work_fd;
	bool userxattr; /* in a user namespace: userxattr,index=off,xino=on; else
	                   redirect_dir=on,metacopy=on,index=off,xino=on */
};

/* Enters fresh user (when user) and mount namespaces; the caller's uid and gid map to themselves. Everything
 * is made private. Errors name user.max_user_namespaces, AppArmor's and Debian's switches, and the fix. */
int ntr_view_enter(bool user, struct ntr_err *e);
/* Prepares the place for wsroot in this namespace (see above). Not for "/". */
int ntr_view_place(const char *wsroot, struct ntr_err *e);
/* Mounts an overlay detached: *ret_fd is its mount. */
int ntr_view_overlay(const struct ntr_overlay *o, int *ret_fd, struct ntr_err *e);
/* A commit's tree as an overlay of its own, of that tree and an empty directory (overlayfs wants two),
 * read-only and detached. Seen as they are, two commits would be one device, with one inode number for a file
 * in both: diff would take what differs for the same file, and cp -a and tar for two links of it. */
int ntr_view_tree(int tree_fd, int empty_fd, int *ret_fd);
/* A detached copy of the mount at path (relative to dir_fd; "": dir_fd itself), from that directory down. */
int ntr_view_copy(int dir_fd, const char *path, int *ret_fd);
/* A tmpfs of size bytes, put over the directory over_fd where overlays are built, so that its directories can
 * be their layers. *ret_fd is its root (O_PATH). */
int ntr_view_memory(int over_fd, uint64_t size, int *ret_fd, struct ntr_err *e);
/* A copy of the host's mounts at and below the directory dir_fd, not attached yet: nosuid, nodev, private
 * and, but for rw, read-only, all of them. */
int ntr_view_borrow(int dir_fd, bool rw, int *ret_fd);
/* Attaches it at wsroot: the first time (beneath false), or beneath the present one (MOVE_MOUNT_BENEATH). */
int ntr_view_attach(int mount_fd, const char *wsroot, bool beneath, struct ntr_err *e);
/* Takes the top mount away: lazy or (lazy false) only if nobody uses it, -EBUSY otherwise. */
int ntr_view_detach(const char *wsroot, bool lazy);
/* 1 if a process, an open file or a mapping uses the top mount, 0 if not, or negative errno. Changes nothing.
 */
int ntr_view_busy(const char *wsroot);

#endif
