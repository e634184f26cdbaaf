/* diff: what differs between two trees, as paths; and as a patch that `git apply` accepts. */
#ifndef NTR_FS_DIFF_H
#define NTR_FS_DIFF_H

#include "../base/buf.h"
#include "snap.h"

enum ntr_diff_kind {
	NTR_DIFF_CREATED = 'A',
	NTR_DIFF_MODIFIED = 'M',
	NTR_DIFF_DELETED = 'D',
	NTR_DIFF_TYPE = 'T'
};
/* "created", "modified", "deleted" or "type". */
const char *ntr_diff_kind_word(enum ntr_diff_kind kind);
enum { /* what of a modified path differs */
	NTR_DIFF_CONTENT = 1,
	NTR_DIFF_MODE = 2,
	NTR_DIFF_OWNER = 4,
	NTR_DIFF_XATTR = 8,
	NTR_DIFF_MTIME = 16,
	NTR_DIFF_LINKS = 32,
	NTR_DIFF_OTHER = 64
};

struct ntr_diff_entry {
	char *path; /* no leading '/' */
	enum ntr_diff_kind kind;
	unsigned what;
	uint64_t old_ino, new_ino; /* 0 where absent */
	uint32_t old_mode, new_mode;
};
struct ntr_diff {
	struct ntr_diff_entry *v;
	size_t n;
	bool state_changed; /* cwd, umask, environment, cache items differ */
};

/* Every path that differs between roots a and b, sorted by path (bytewise); hard-linked files by each name; a
 * changed directory only where something other than its own times or its entries differs. Cost
 * O(differences): a moved directory lists everything below it, old and new. paths (NULL-terminated, may be
 * NULL) limits to those and below. */
int ntr_diff_compute(struct ntr_store *s, uint64_t a, uint64_t b, char *const *paths, struct ntr_diff *ret);
void ntr_diff_done(struct ntr_diff *d);
void ntr_diff_count(const struct ntr_diff *d, struct ntr_stats *ret); /* created, modified (and T), deleted */

/* The same numbers for roots a and b without the paths: cost O(changed items), a few microseconds for a small
 * commit. */
int ntr_diff_tally(struct ntr_store *s, uint64_t a, uint64_t b, struct ntr_stats *ret);

/* Unified patch in git's extended format: modes, new and deleted files, symlinks, binary files as `GIT binary
 * patch` (so that git apply can apply them); names quoted as git does. Text by libgit2. Written to fd as it
 * is made. What git cannot carry (owners, xattrs, mtimes, empty directories, fifos) gives no text. */
int ntr_diff_patch(
        struct ntr_store *s, uint64_t a, uint64_t b, const struct ntr_diff *d, int fd, struct ntr_err *e);
/* --stat: per path insertions and deletions (binary: -1). */
int ntr_diff_stat(struct ntr_store *s, uint64_t a, uint64_t b, const struct ntr_diff *d,
        int (*fn)(void *user, const struct ntr_diff_entry *en, int64_t added, int64_t removed), void *user);

#endif
