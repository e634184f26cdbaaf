/* file_impl: how file_take.c, file_load.c and file_sink.c put new content together. Private to fs/. */
#ifndef NTR_FS_FILE_IMPL_H
#define NTR_FS_FILE_IMPL_H

#include "file.h"
#include "inode_impl.h"

#define NTR_FILE_MAX (UINT64_C(1) << NTR_SIZE_MAX_LOG2)

/* The chunk ids of one EXTENT item, 0 where there is none. */
struct ntr_extent {
	uint64_t id[NTR_EXTENT_GROUP];
};
/* All zeros when there is no such item. 0, -EUCLEAN, -EIO. */
int ntr_extent_get(const struct ntr_snap *s, uint64_t ino, uint64_t group, struct ntr_extent *ret);
int ntr_extent_decode(const uint8_t *val, size_t len, struct ntr_extent *ret);

/* Replaces a file's content chunk by chunk, in ascending order; what is skipped is a hole. The record stays
 * what it was until the end, so that the content before can be compared. */
struct ntr_file_build {
	struct ntr_txn *t;
	struct ntr_inode *in;
	uint64_t group, blocks;
	uint64_t next; /* groups below it are written: older EXTENT items there are gone */
	bool open, open_used;
	struct ntr_extent now, old;
};
void ntr_file_build_init(struct ntr_file_build *b, struct ntr_txn *t, struct ntr_inode *in);
/* The chunk that the content before has at this index, 0 for none. */
int ntr_file_build_hint(struct ntr_file_build *b, uint64_t index, uint64_t *ret);
int ntr_file_build_add(struct ntr_file_build *b, uint64_t index, uint64_t id, size_t len);
/* Stores data as chunk `index` and adds it. */
int ntr_file_build_put(struct ntr_file_build *b, uint64_t index, const void *data, size_t len);
/* Ends a file of more than one chunk, or of nothing but a hole. */
int ntr_file_build_end(struct ntr_file_build *b, uint64_t size);
/* Ends a file whose whole content, one chunk at most, lies in memory. Nothing may have been added. */
int ntr_file_build_small(struct ntr_file_build *b, const void *data, size_t n);
/* The same where the content is stored already: n bytes of chunk id, more than NTR_INODE_INLINE. */
int ntr_file_build_chunk(struct ntr_file_build *b, uint64_t id, size_t n);

/* Reads a file of at most one chunk; *ret_hole: it is nothing but a hole. */
int ntr_file_read_small(int fd, uint8_t *buf, size_t size, bool *ret_hole, bool *ret_short);
/* Reads a larger file's data, ascending, holes left out; stops at the first error of put. */
struct ntr_file_scan {
	int (*put)(void *user, uint64_t index, const uint8_t *data, size_t len);
	void *user;
};
int ntr_file_scan_fd(const struct ntr_file_scan *sc, int fd, uint64_t size, bool *ret_short);

#endif
