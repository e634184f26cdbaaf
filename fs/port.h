/* port: directories and tars into a tree and out of one, exactly: types, modes, owners, xattrs, ACLs, hard
 * links, sparse files, nanosecond times. */
#ifndef NTR_FS_PORT_H
#define NTR_FS_PORT_H

#include "snap.h"

struct ntr_progress { /* called about ten times a second from any thread */
	void (*fn)(void *user, uint64_t entries, uint64_t bytes);
	void *user;
};

/* Fills the transaction's (blank) tree from the directory open at dirfd, which is named `label` in messages;
 * the tree's root becomes what that directory is. Does not cross into mounts below: an error names them
 * (import those by themselves). Unreadable files are an error naming the path; sockets and fifos come along;
 * char 0:0 devices and overlayfs's own xattrs are refused by name; devices need root. Security labels
 * (SELinux, Smack, IMA) belong to the host and stay there. A file that disappears meanwhile is left out, one
 * that shrinks is marked NTR_INODE_RACY. Files are read by as many threads as CPUs. After a failure, here and
 * below, the transaction must be aborted. */
int ntr_import_dir(
        struct ntr_txn *t, int dirfd, const char *label, const struct ntr_progress *p, struct ntr_err *e);
/* The same from a tar of any compression that libarchive reads, from fd. Refused by name, with nothing
 * committed: absolute names, "..", a hard link to what the tar does not hold, an entry below a non-directory,
 * a directory that takes the place of something else or the reverse, whiteouts. Other entries of one name:
 * the last counts. Directories that are only implied are made 0755. Owners are taken by number. */
int ntr_import_tar(
        struct ntr_txn *t, int fd, const char *label, const struct ntr_progress *p, struct ntr_err *e);

/* Writes the tree below inode ino into the empty directory open at dirfd (-ENOTEMPTY otherwise). As root
 * owners are set; else they are left the caller's, and set-id bits meant for another owner are dropped, as
 * are attributes that only root may set. Sets all times last. On failure says what was written so far. */
int ntr_export_dir(const struct ntr_snap *s, uint64_t ino, int dirfd, const char *label,
        const struct ntr_progress *p, struct ntr_err *e);
/* A pax tar to fd, entries in name order below "./", hard links as links, sparse files sparse, times in
 * nanoseconds, ACLs and attributes as GNU tar and bsdtar keep them. Sockets are left out: no tar can hold
 * one. */
int ntr_export_tar(
        const struct ntr_snap *s, uint64_t ino, int fd, const struct ntr_progress *p, struct ntr_err *e);

#endif
