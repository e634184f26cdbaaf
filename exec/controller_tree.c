/* The kernel's rules for who makes and writes files, applied to a tree. */
#include "controller_tree.h"

#include "../base/util.h"
#include "../fs/names.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- ACLs, as fs/port_acl.c has them: LE32 version, then LE16 tag, LE16 permissions, LE32 id */

enum { ACL_HEAD = 4, ACL_ENTRY = 8, ACL_VERSION = 2 };
enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

static const char acl_access[] = "system.posix_acl_access", acl_default[] = "system.posix_acl_default";

/* Leaves the entry and those bits of the mode (shift: 6, 3 or 0) only what both allow. */
static void meet(uint8_t *entry, uint32_t *mode, unsigned shift)
{
	uint32_t both = ntr_get_le16(entry + 2) & *mode >> shift & 7;

	ntr_put_le16(entry + 2, (uint16_t)both);
	*mode = (*mode & ~(UINT32_C(7) << shift)) | both << shift;
}

/* Makes a default ACL the access ACL of a new object, and *mode what it is with that. *ret_more: it says more
 * than a mode can. */
static int acl_of_new(uint8_t *acl, size_t len, uint32_t *mode, bool *ret_more)
{
	uint8_t *group = NULL, *mask = NULL;

	*ret_more = false;
	if (len < ACL_HEAD || (len - ACL_HEAD) % ACL_ENTRY || ntr_get_le32(acl) != ACL_VERSION)
		return -EUCLEAN;
	for (uint8_t *x = acl + ACL_HEAD; x < acl + len; x += ACL_ENTRY) {
		unsigned tag = ntr_get_le16(x);

		if (tag == USER_OBJ || tag == OTHER)
			meet(x, mode, tag == USER_OBJ ? 6 : 0);
		else if (tag == GROUP_OBJ)
			group = x;
		else if (tag == MASK)
			mask = x;
		*ret_more |= tag == USER || tag == GROUP || tag == MASK;
	}
	if (!group && !mask)
		return -EUCLEAN;
	meet(mask ? mask : group, mode, 3); /* where there is a mask, the mode's group bits are the mask */
	return 0;
}

struct acls {
	uint8_t *access, *dflt; /* NULL: none */
	size_t len;             /* of either */
};

static void acls_done(struct acls *a)
{
	free(a->access);
	free(a->dflt);
}

static void drop(uint8_t **acl)
{
	free(*acl);
	*acl = NULL;
}

/* What a new object in the directory d inherits; in->mode becomes what it is with that. */
static int acls_inherit(
        const struct ntr_snap *snap, const struct ntr_inode *d, struct ntr_inode *in, struct acls *ret)
{
	bool more;
	int r = d->flags & NTR_INODE_HAS_XATTR
	                ? ntr_xattr_get(snap, d->ino, acl_default, &ret->dflt, &ret->len)
	                : -ENODATA;

	if (r)
		return r == -ENODATA ? 0 : r;
	ret->access = malloc(ret->len + 1);
	if (!ret->access)
		return -ENOMEM;
	memcpy(ret->access, ret->dflt, ret->len);
	r = acl_of_new(ret->access, ret->len, &in->mode, &more);
	if (r)
		return r;
	if (!more)
		drop(&ret->access);
	if (!S_ISDIR(in->mode))
		drop(&ret->dflt);
	return 0;
}

static int acls_put(struct ntr_txn *t, struct ntr_inode *in, const struct acls *a)
{
	int r = a->access ? ntr_xattr_set(t, in, acl_access, a->access, a->len) : 0;

	return r || !a->dflt ? r : ntr_xattr_set(t, in, acl_default, a->dflt, a->len);
}

/* ---- set-id bits */

/* Takes the set-id bits that a write of ours to such a file takes. They stay where the first user namespace
 * grants CAP_FSETID, which a process in another one cannot see: so the kernel is asked, with a file in
 * memory. That has no execute bits, which a kernel may be set to refuse there. */
static int lose_set_id(const struct ntr_store *st, struct ntr_inode *in)
{
	const uint32_t both = S_ISUID | S_ISGID;
	ntr_autoclose int fd = -1;
	struct stat left;
	bool foreign;

	if (!(in->mode & both))
		return 0;
	fd = memfd_create("ntr-set-id", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	foreign = fchown(fd, (uid_t)-1, ntr_store_gid_out(st, in->gid));
	if (fchmod(fd, both | 0600) || ftruncate(fd, 0) || fstat(fd, &left))
		return -errno;
	if (foreign || (!(left.st_mode & S_ISUID) && in->mode & S_IXGRP))
		left.st_mode &= ~(mode_t)S_ISGID;
	in->mode &= ~both | left.st_mode;
	return 0;
}

/* ---- the whole */

/* An ordinary user's sessions know one group, whatever the tree says. */
static uint32_t group_in(const struct ntr_store *st, const struct ntr_inode *d)
{
	return d->mode & S_ISGID ? ntr_store_gid_in(st, ntr_store_gid_out(st, d->gid)) : NTR_OWNER_ID;
}

int ntr_tree_create(
        struct ntr_txn *t, uint64_t dir, const char *name, struct ntr_inode *in, const struct timespec *now)
{
	const struct ntr_snap *snap = ntr_txn_snap(t);
	ntr_auto(acls_done) struct acls acls = {0};
	struct ntr_inode d;
	int r = ntr_inode_get(snap, dir, &d);

	if (!r)
		r = acls_inherit(snap, &d, in, &acls);
	if (r)
		return r;
	in->uid = NTR_OWNER_ID;
	in->gid = group_in(snap->store, &d);
	in->atime = in->btime = in->mtime = in->ctime = *now;
	if (S_ISDIR(in->mode))
		in->mode |= d.mode & S_ISGID;
	else
		r = lose_set_id(snap->store, in);
	if (!r)
		r = ntr_name_create(t, dir, name, in, now);
	return r ? r : acls_put(t, in, &acls);
}

int ntr_tree_written(struct ntr_txn *t, struct ntr_inode *in, const struct timespec *now)
{
	int r = lose_set_id(ntr_txn_snap(t)->store, in);

	if (r)
		return r;
	in->mtime = in->ctime = *now;
	if (!(in->flags & NTR_INODE_HAS_XATTR))
		return ntr_inode_put(t, in);
	r = ntr_xattr_del(t, in, "security.capability"); /* puts the record, too */
	return r == -ENODATA ? ntr_inode_put(t, in) : r;
}
