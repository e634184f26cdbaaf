/* port: directories and tars into a tree and out of one, exactly: types, modes, owners, xattrs, ACLs, hard links,
 * sparse files, nanosecond times. */
#ifndef NTR_FS_PORT_H
#define NTR_FS_PORT_H

#include "snap.h"

struct ntr_progress { /* called about ten times a second from any thread */
	void (*fn)(void *user, uint64_t entries, uint64_t bytes);
	void *user;
};

/* Fills the transaction's (blank) tree from the directory open at dirfd, which is named `label` in messages. Does not
 * cross into other file systems' mounts below (an error names them) — except that is what the caller asked for:
 * cross_mounts. Unreadable files are an error naming the path; sockets and fifos come along; char 0:0 devices and
 * overlayfs's own xattrs are refused by name; devices need root. Files are read by as many threads as CPUs. */
int ntr_import_dir(struct ntr_txn *t, int dirfd, const char *label, const struct ntr_progress *p, struct ntr_err *e);
/* The same from a tar of any compression that libarchive reads, from fd. Refused by name, with nothing committed:
 * absolute names, "..", a hard link to what the tar does not hold, an entry below a non-directory, whiteouts. */
int ntr_import_tar(struct ntr_txn *t, int fd, const char *label, const struct ntr_progress *p, struct ntr_err *e);

/* Writes the tree below inode ino into the empty directory open at dirfd (-ENOTEMPTY otherwise). As root owners are
 * set; else they are left the caller's. Sets all times last. On failure says what was written so far. */
int ntr_export_dir(const struct ntr_snap *s, uint64_t ino, int dirfd, const char *label, const struct ntr_progress *p,
	struct ntr_err *e);
/* A pax tar to fd, entries in name order, hard links as links, sparse files sparse, ustar times as pax nanoseconds. */
int ntr_export_tar(const struct ntr_snap *s, uint64_t ino, int fd, const struct ntr_progress *p, struct ntr_err *e);

#endif
