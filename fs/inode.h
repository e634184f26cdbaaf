/* inode: records, directory entries, extended attributes, hard-link names and key-value items of a tree.
 *
 * Tree keys are BE64 inode | type | suffix (docs/store-format.md):
 *
 *     1 INODE                            -> record
 *     2 XATTR   name                     -> value
 *     3 DIRENT  BE64 name hash | name    -> d_type, inode
 *     4 EXTENT  BE64 group               -> chunk ids, 0 for a hole
 *     5 LINK    BE64 parent | name       -> ""
 *     6 KV      key                      -> value (inode NTR_INO_META only)
 *     7 CACHE   key [NUL BE16 part]      -> value (inode NTR_INO_META only; cache.h)
 *
 * Every value begins with one flag byte: NTR_ITEM_CHUNKS says that the rest is a list of LE64 chunk ids
 * (after a LE64 byte length for XATTR, KV and CACHE; an INODE record goes on behind its one id), so that
 * whoever looks for chunks finds them generically: ntr_item_chunks. This module keeps items; the rules that
 * tie several of them together (link counts, renames) are names.h's, content is file.h's. */
#ifndef NTR_FS_INODE_H
#define NTR_FS_INODE_H

#include "snap.h"

#include <sys/stat.h>
#include <time.h>

enum {
	NTR_ITEM_INODE = 1,
	NTR_ITEM_XATTR,
	NTR_ITEM_DIRENT,
	NTR_ITEM_EXTENT,
	NTR_ITEM_LINK,
	NTR_ITEM_KV,
	NTR_ITEM_CACHE
};
enum { NTR_ITEM_CHUNKS = 1 }; /* value flag */
enum {
	NTR_INODE_INLINE = 512, /* largest content kept in the record */
	NTR_EXTENT_GROUP = 64,  /* chunk ids per EXTENT item: 4 MiB of file */
	NTR_SIZE_MAX_LOG2 = 53, /* larger files are EFBIG */
};
enum ntr_payload {
	NTR_DATA_NONE,    /* empty file, or not a file with data */
	NTR_DATA_INLINE,  /* payload = the content (size bytes) */
	NTR_DATA_CHUNK,   /* chunk = the only chunk (size <= 64 KiB, no hole) */
	NTR_DATA_EXTENTS, /* EXTENT items */
	NTR_DATA_SYMLINK, /* payload = the target (size bytes) */
};
enum { NTR_INODE_HAS_XATTR = 1, NTR_INODE_HAS_LINKS = 2, NTR_INODE_RACY = 4 /* read while still changing */ };

struct ntr_inode {
	uint64_t ino, version;
	uint32_t flags, tag;            /* tag: of st_ino (base/shownino.h) */
	uint32_t mode, uid, gid, nlink; /* uid, gid as stored; a directory's nlink is 2 + its directories */
	uint64_t rdev, size, blocks;    /* blocks of 512 bytes really held (holes not) */
	struct timespec atime, mtime, ctime, btime;
	uint64_t parent; /* of the record's own name; of the root: itself */
	uint8_t name_len;
	char name[256];    /* NUL-terminated */
	uint8_t data_kind; /* enum ntr_payload */
	uint64_t chunk;
	uint16_t payload_len;
	uint8_t payload[4096];
};

/* Record of ino. 0, -ENOENT, -EUCLEAN. */
int ntr_inode_get(const struct ntr_snap *s, uint64_t ino, struct ntr_inode *ret);
/* Writes the record (in->ino), with the transaction's version. */
int ntr_inode_put(struct ntr_txn *t, struct ntr_inode *in);
/* A fresh number (never used before in this store), a random tag and a record for a new object; the caller
 * fills the rest and puts it. */
int ntr_inode_new(struct ntr_txn *t, uint32_t mode, struct ntr_inode *ret);
/* Deletes every item of an inode: record, xattrs, entries, extents, links. */
int ntr_inode_erase(struct ntr_txn *t, uint64_t ino);
/* Encoding, exposed for fsck and tests. decode checks everything: -EUCLEAN. out[NTR_VALUE_MAX]. */
int ntr_inode_encode(const struct ntr_inode *in, uint8_t *out, size_t *ret_len);
int ntr_inode_decode(uint64_t ino, const uint8_t *val, size_t len, struct ntr_inode *ret);
/* struct stat with host ids (st_ino the tree's number, st_dev 0, directories' st_size 4096). */
void ntr_inode_stat(const struct ntr_store *st, const struct ntr_inode *in, struct stat *ret);

/* Name hash of a directory entry under this tree's seed, in [3, 2^63-1]: also the readdir cookie. */
int ntr_dirent_hash(const struct ntr_snap *s, const char *name, size_t n, uint64_t *ret);
/* 0 or -ENOENT. dtype is DT_*. */
int ntr_dirent_get(const struct ntr_snap *s, uint64_t dir, const char *name, size_t n, uint64_t *ret_ino,
        uint8_t *ret_dtype);
int ntr_dirent_put(struct ntr_txn *t, uint64_t dir, const char *name, size_t n, uint64_t ino, uint8_t dtype);
int ntr_dirent_del(struct ntr_txn *t, uint64_t dir, const char *name, size_t n);

/* Entries of dir in hash order whose hash is >= from; cursor use as snap's. */
struct ntr_dirent {
	uint64_t hash, ino;
	uint8_t dtype, name_len;
	char name[256]; /* NUL-terminated */
};
struct ntr_dir_iter {
	struct ntr_snap_cursor c;
	uint64_t dir;
	int started;
	uint64_t from;
};
void ntr_dir_iter_init(struct ntr_dir_iter *it, const struct ntr_snap *s, uint64_t dir, uint64_t from);
void ntr_dir_iter_done(struct ntr_dir_iter *it);
int ntr_dir_iter_next(struct ntr_dir_iter *it, struct ntr_dirent *ret); /* 1, 0, negative errno */

/* Extended attributes; values up to 64 KiB (large ones go to chunks). list calls fn per attribute. get: value
 * in fresh memory. set keeps the HAS_XATTR flag of the record (in must be the current record, and is put). */
int ntr_xattr_get(const struct ntr_snap *s, uint64_t ino, const char *name, uint8_t **ret, size_t *ret_len);
int ntr_xattr_each(const struct ntr_snap *s, uint64_t ino,
        int (*fn)(void *user, const char *name, const uint8_t *val, size_t len), void *user);
int ntr_xattr_set(struct ntr_txn *t, struct ntr_inode *in, const char *name, const void *val, size_t len);
int ntr_xattr_del(struct ntr_txn *t, struct ntr_inode *in, const char *name);

/* Hard-link names beyond the record's own. */
int ntr_link_put(struct ntr_txn *t, uint64_t ino, uint64_t parent, const char *name, size_t n);
int ntr_link_del(struct ntr_txn *t, uint64_t ino, uint64_t parent, const char *name, size_t n);
/* The first of them: 0 or -ENOENT. */
int ntr_link_first(
        const struct ntr_snap *s, uint64_t ino, uint64_t *ret_parent, char name[256], size_t *ret_len);

/* The chunk ids that an item names: *ret_ids points at *ret_n LE64 ids inside val (0: an EXTENT's hole); for
 * any item of any type. 0 or -EUCLEAN. */
int ntr_item_chunks(const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen, const uint8_t **ret_ids,
        size_t *ret_n);

/* Session state in the tree, under NTR_INO_META: "s:cwd", "s:umask", "s:seed", "e:NAME". Value in fresh
 * memory, NUL behind it. set with val NULL deletes. "s:seed" (8 bytes or more; the first 8 seed the name
 * hash; a tree without one hashes with 0) can be changed only in a transaction over the empty root, before
 * any entry is made: else -EPERM. */
int ntr_kvitem_get(const struct ntr_snap *s, const char *key, uint8_t **ret, size_t *ret_len);
int ntr_kvitem_set(struct ntr_txn *t, const char *key, const void *val, size_t len);
int ntr_kvitem_each(const struct ntr_snap *s, const char *prefix,
        int (*fn)(void *user, const char *key, const uint8_t *val, size_t len), void *user);

#endif
