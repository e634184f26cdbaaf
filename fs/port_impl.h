/* port_impl: what import and export share. Private to port_*.c. */
#ifndef NTR_FS_PORT_IMPL_H
#define NTR_FS_PORT_IMPL_H

#include "../base/buf.h"
#include "../base/util.h"
#include "file.h"
#include "names.h"
#include "port.h"

#include <archive.h>
#include <archive_entry.h>

/* ---- port_meta.c: metadata of files in both directions ---- */

/* Extended attributes of one file, read or to be written: (name NUL, LE32 length, value)*. */
struct ntr_xattrs {
	struct ntr_buf b;
};
int ntr_xattrs_add(struct ntr_xattrs *x, const char *name, const void *val, size_t len);
/* The next one at *off (0: the first); false at the end. Pointers into x. */
bool ntr_xattrs_next(const struct ntr_xattrs *x, size_t *off, const char **ret_name, const uint8_t **ret_val,
        size_t *ret_len);
/* All that the file has: fd, or (fd < 0) path, not followed. Without those that belong to the host's policy.
 */
int ntr_xattrs_read(int fd, const char *path, struct ntr_xattrs *ret);
/* Sets them on an inode whose record is complete. */
int ntr_xattrs_store(struct ntr_txn *t, struct ntr_inode *in, const struct ntr_xattrs *x);

/* Why this entry cannot come into a tree, or NULL: overlayfs's whiteouts and attributes. */
const char *ntr_port_refuse_node(mode_t mode, dev_t rdev);
const char *ntr_port_refuse_xattr(const char *name);

/* "/proc/self/fd/N/name" in buf[NTR_PROC_PATH], for calls that take no directory descriptor. */
enum { NTR_PROC_PATH = 300 };
const char *ntr_port_proc_path(int dirfd, const char *name, char *buf);

/* ---- progress ---- */

struct ntr_meter {
	const struct ntr_progress *p;
	uint64_t entries, bytes; /* bytes: atomic */
	uint64_t next_ns;
};
/* One entry more: tells the caller's function about ten times a second. */
void ntr_meter_tick(struct ntr_meter *m);
/* The last word. */
void ntr_meter_end(struct ntr_meter *m);

/* ---- port_list.c: a tree's directory, sorted ---- */

struct ntr_listed {
	uint64_t ino;
	uint8_t dtype;
	const char *name;
};
struct ntr_listing {
	struct ntr_listed *v;
	size_t n;
	char *names;
};
/* Entries in bytewise order of their names. */
int ntr_listing_read(const struct ntr_snap *s, uint64_t dir, struct ntr_listing *ret);
void ntr_listing_done(struct ntr_listing *l);

/* First paths of hard-linked files that were written. */
struct ntr_linkmap {
	struct ntr_linkmap_entry *head;
};
/* The path under which ino was written first, or NULL after having noted this one. 0 or -ENOMEM. */
int ntr_linkmap_note(struct ntr_linkmap *m, uint64_t ino, const char *path, const char **ret_first);
void ntr_linkmap_done(struct ntr_linkmap *m);

/* ---- port_acl.c: POSIX ACLs as attributes hold them, and as tars do ---- */

bool ntr_acl_is_xattr(const char *name);
/* The entry's ACLs from an attribute. 0, or -EINVAL for what is no ACL. */
int ntr_acl_to_entry(struct archive_entry *en, const char *name, const uint8_t *val, size_t len);
/* The attributes that stand for the entry's ACLs are added to x; *mode gets the permission bits that go with
 * them. */
int ntr_acl_from_entry(struct archive_entry *en, struct ntr_xattrs *x, uint32_t *mode);

/* ---- libarchive ---- */

/* Names are bytes to us, but libarchive converts them between UTF-8 and the locale's character set. For this
 * thread, until restore: where it reads, nothing but ASCII can be converted, upon which it hands out the
 * bytes as they are (with UTF-8 it would normalise them, and two names could become one); where it writes,
 * UTF-8, so that such names need no mark as binary. */
void *ntr_archive_locale(bool writing);
void ntr_archive_locale_restore(void *old);

/* Times before 1970: libarchive takes the whole seconds and the fraction of a pax time ("-1.25") for
 * themselves, where we (and struct timespec) count the fraction from the second below. */
struct timespec ntr_archive_time(time_t sec, long nsec, bool writing);

#endif
