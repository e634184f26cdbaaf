/* fsck: reads every record of a store and says what is wrong with what. */
#ifndef NTR_FS_FSCK_H
#define NTR_FS_FSCK_H

#include "store.h"

struct ntr_fsck {
	void (*problem)(
	        void *user, const char *text); /* one line each: record, what is wrong, what it affects */
	void (*progress)(void *user, const char *stage, uint64_t done, uint64_t total);
	void *user;
	uint64_t sessions, commits, nodes, items, inodes, chunks, bytes, problems; /* results */
};

/* Checks: RocksDB's own checksums; every meta record decodes and refers to what exists; every node reachable
 * from any commit or head (structure, checksum, key order); per tree: each inode has its record, each entry
 * its inode with the same type, parent/name back-references, link counts, directory counts, extents within
 * size, flags true; every chunk named exists, has its checksum and length; every cidx entry names a chunk
 * with that content; ids below their marks. Returns 0 when it could look at everything it wanted (see
 * problems for the verdict), or negative errno. */
int ntr_fsck_run(struct ntr_store *s, struct ntr_fsck *f, struct ntr_err *e);

#endif
