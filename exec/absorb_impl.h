/* absorb_impl: what memo.c and absorb*.c share. Private to the absorb modules (and their tests).
 *
 * A walk of upper gives a tree of directories (ntr_mtree); the memo keeps the last accepted one. A run makes
 * a new one and, for every entry that the memo does not know to be unchanged, one object (ntr_aobj) per upper
 * inode. Then:
 *
 *     walk      read upper                                 absorb_walk.c   (absorb_dirs.c: descriptors,
 * absorb_marks.c: xattrs) match     objects that moved inside upper            absorb_match.c identify  which
 * tree inode every object is           absorb_ident.c place     names: detach, remove, attach, create
 * absorb_place.c update    records, xattrs, content                   absorb_object.c (absorb_content.c,
 * absorb_pool.c) restore   what upper no longer covers                absorb_restore.c */
#ifndef NTR_EXEC_ABSORB_IMPL_H
#define NTR_EXEC_ABSORB_IMPL_H

#include "../base/util.h"
#include "../fs/file.h"
#include "../fs/names.h"
#include "absorb.h"
#include "absorb_lent.h"

#include <sys/queue.h>
#include <xxhash.h>
#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = (unsigned)XXH3_64bits(keyptr, keylen))
#include "../base/hash.h"

/* What tells an object of upper and its state from every other: times in nanoseconds, modulo 2^64. */
struct ntr_mstat {
	uint64_t ino, btime, ctime, mtime, size;
};

enum {
	NTR_ME_WHITEOUT = 1,
	NTR_ME_DIR = 2,
	NTR_ME_UNTRUSTED = 4, /* look at the content next time, whatever the times say */
	NTR_ME_SEEN = 8,      /* scratch, old tree: the new one has the same object under the same name */
	NTR_ME_SAME = 16,     /* scratch, new tree: nothing about it differs from the old one */
};

struct ntr_mdir;
struct ntr_mentry {
	struct ntr_mstat st; /* of a directory only ino and btime: the rest is in its ntr_mdir */
	uint64_t tree;       /* inode in the tree; 0: whiteout */
	struct ntr_mdir *dir;
	uint32_t name; /* offset in the directory's names */
	uint8_t name_len, flags;
};

enum {
	NTR_MD_OPAQUE = 1,    /* nothing of the lower directory shows */
	NTR_MD_XWHITEOUT = 2, /* opaque=x: whiteouts may be files with a mark */
	NTR_MD_PENDING = 4,   /* its own times differ from the tree's and ride with the next commit */
	NTR_MD_LISTED = 8,    /* scratch: names were added or removed in the tree's directory */
	NTR_MD_FRESH = 16,    /* scratch: its tree inode is made by this run */
	NTR_MD_COMPARE = 32,  /* scratch: compare the whole listing */
	NTR_MD_VISITED = 64,  /* scratch, old tree */
	NTR_MD_STILL = 128,   /* scratch of the check: nothing came to it or went */
	/* scratch of a run on an older upper, which has no old tree: changed after head was made from it;
	   wanted */
	NTR_MD_NEWER = NTR_MD_STILL,
	NTR_MD_NEEDED = NTR_MD_VISITED,
};

struct ntr_mdir {
	struct ntr_mdir *parent, *next; /* next: all directories of the tree, parents before children */
	struct ntr_mdir *old;           /* scratch: the same directory in the old tree */
	struct ntr_mentry *v;
	char *names;      /* each NUL-terminated */
	uint32_t *sorted; /* scratch: entries by name */
	uint32_t n, cap, names_len, names_cap;
	uint32_t at;   /* its entry in the parent */
	uint32_t seen; /* scratch, old tree: entries with NTR_ME_SEEN */
	struct ntr_mstat st;
	uint64_t tree,
	        base;   /* inode in the tree; inode of the lower directory that is laid beneath (0: none) */
	uint64_t xhash; /* of its xattrs */
	uint64_t since; /* scratch of a run on an older upper: what is not newer than this is known to head */
	uint32_t mode, uid, gid;
	int16_t slot; /* in the descriptor cache; -1 */
	uint8_t flags;
};

struct ntr_mtree {
	struct ntr_mdir *root, *last;
	uint64_t entries, bytes, pending;
};

struct ntr_memo {
	int fd;
	int beside; /* the directory that upper lies in, for absorb_lent.h; -1: none */
	bool userxattr;
	bool coarse; /* times may stand still over a change: kernels before 6.13 */
	uint32_t dev_major, dev_minor;
	struct ntr_mtree *cur, *shadow;
	uint64_t walked;
	struct ntr_early *early; /* absorb_early.c */
};

static inline const char *ntr_me_name(const struct ntr_mdir *d, uint32_t i)
{
	return d->names + d->v[i].name;
}

/* memo.c */
int ntr_memo_root_marks(struct ntr_memo *m); /* absorb_walk.c */
struct ntr_mtree *ntr_mtree_new(void);
void ntr_mtree_free(struct ntr_mtree *t);
struct ntr_mdir *ntr_mdir_new(struct ntr_mdir *parent, uint32_t at);
void ntr_mtree_link(struct ntr_mtree *t, struct ntr_mdir *d); /* t owns it from here on */
int ntr_mdir_add(struct ntr_mdir *d, const char *name, size_t n, struct ntr_mentry **ret);
void ntr_mdir_trim(struct ntr_mdir *d);
/* Index of name, or -1 (-ENOMEM as a worse negative); hint is looked at first. */
int64_t ntr_mdir_find(struct ntr_mdir *d, const char *name, size_t n, uint32_t hint);
void ntr_mtree_drop_scratch(struct ntr_mtree *t);
/* "a/b/name" for messages, its beginning cut where it is too long. name NULL: the directory itself. */
const char *ntr_mdir_path(const struct ntr_mdir *d, const char *name, char *buf, size_t size);

/* absorb_marks.c: xattrs, overlayfs's own apart from the rest */
struct ntr_xattr {
	char *name; /* as the tree has it */
	uint8_t *val;
	size_t len;
};
enum {
	NTR_MARK_OPAQUE = 1,
	NTR_MARK_XWHITEOUT = 2, /* opaque=x */
	NTR_MARK_METACOPY = 4,
	NTR_MARK_ORIGIN = 8,
	NTR_MARK_WHITEOUT = 16,
};
struct ntr_marks {
	unsigned flags;
	bool lent; /* its mode, by a daemon that was killed (absorb_lent.h): its own is … */
	uint32_t mode;
	char *redirect;
	uint64_t was;        /* the tree inode that was moved here (init_rename_move.c); 0 */
	struct ntr_xattr *v; /* by name */
	size_t n;
};
/* Reads those of name in dirfd ("" : dirfd itself). 0, -EACCES (an ordinary user and a file without r), other
 * errno. */
int ntr_marks_read(int dirfd, const char *name, bool userxattr, struct ntr_marks *ret);
void ntr_marks_unlent(struct ntr_marks *m, uint32_t mode);
void ntr_marks_done(struct ntr_marks *m);
uint64_t ntr_marks_hash(const struct ntr_marks *m);

/* absorb_dirs.c: a bounded set of open directories of upper. Directories and files that their owner may not
 * read are given the right for as long as they are open. */
enum { NTR_DIRS_OPEN = 32 };
struct ntr_dirs {
	int root_fd, beside;
	struct ntr_mdir *root;
	uint32_t root_restore;
	bool root_known;
	uint64_t tick;
	struct {
		struct ntr_mdir *dir;
		int fd;
		uint32_t restore; /* mode to set again; UINT32_MAX: none */
		bool known;       /* its ctime was what the memo has */
		uint64_t used;
	} slot[NTR_DIRS_OPEN];
};
void ntr_dirs_init(struct ntr_dirs *c, const struct ntr_memo *m, struct ntr_mdir *root);
void ntr_dirs_done(struct ntr_dirs *c);
/* Descriptor of d, readable and searchable, the cache's own: valid until the next call. */
int ntr_dirs_get(struct ntr_dirs *c, struct ntr_mdir *d, int *ret_fd);
/* Opens a regular file for reading. *ret_touched: its mode had to be lent, so its ctime moved. */
int ntr_dirs_open_file(const struct ntr_dirs *c, int dirfd, const char *name, int *ret_fd, bool *ret_touched);
/* ntr_marks_read, lending r where it has to. */
int ntr_dirs_marks(const struct ntr_dirs *c, int dirfd, const char *name, bool userxattr,
        struct ntr_marks *ret, bool *ret_touched);

/* Objects of a run. */
struct ntr_aref { /* one name */
	struct ntr_mdir *dir;
	uint32_t at;
	uint32_t place; /* enum below */
	struct ntr_aref *next;
};
enum { NTR_PLACE_THERE, NTR_PLACE_ATTACH, NTR_PLACE_LINK, NTR_PLACE_CREATE, NTR_PLACE_NONE };
enum {
	NTR_AO_KNOWN = 1,    /* the memo has its body */
	NTR_AO_SAME = 2,     /* … and nothing about it changed */
	NTR_AO_FRESH = 4,    /* a new tree inode */
	NTR_AO_MARKS = 8,    /* marks are read */
	NTR_AO_CONTENT = 16, /* content has to be read */
	NTR_AO_RACY = 32,
	NTR_AO_POOLED = 64,     /* a pool thread reads it */
	NTR_AO_NAMED = 128,     /* this run gave it names or took some */
	NTR_AO_KEEP = 256,      /* head's content stays, whatever upper has */
	NTR_AO_UNDECIDED = 512, /* scratch of a run on an older upper */
	NTR_AO_EARLY = 1024,    /* its content has been read */
};
enum { NTR_CONTENT_NONE, NTR_CONTENT_WAIT, NTR_CONTENT_READY };
struct ntr_aobj {
	TAILQ_ENTRY(ntr_aobj) link;
	UT_hash_handle by_upper, by_tree;
	struct ntr_mstat st;
	uint64_t tree;
	uint64_t under;   /* base inode beneath it */
	uint64_t data_of; /* metacopy: base inode whose content it has */
	unsigned flags;
	uint32_t mode, uid, gid, nlink;
	uint64_t rdev, blocks;
	struct timespec atime, mtime, ctime, btime;
	struct ntr_marks marks;
	struct ntr_mdir *dir; /* of a directory */
	struct ntr_aref ref;  /* first name; ref.dir is NULL for upper itself */
	struct {              /* filled by a pool thread; state is the hand-over */
		int state, err;
		bool racy;
		struct ntr_file_loaded *loaded;
		struct statx *sx; /* where it is not what the walk saw */
	} content;
};
TAILQ_HEAD(ntr_aobjs, ntr_aobj);

struct ntr_tree_use { /* a tree inode that an unchanged entry of upper is */
	uint64_t tree;
	UT_hash_handle hh;
};
struct ntr_base_dir; /* absorb_reset.c */
struct ntr_birth;    /* absorb_match.c: objects that head has and base has not, by birth */
struct ntr_pool;

struct ntr_arun {
	struct ntr_memo *memo;
	struct ntr_mtree *tree, *old; /* old: NULL in full mode */
	struct ntr_txn *txn;
	struct ntr_store *store;
	struct ntr_snap head, base; /* as they were at the beginning */
	bool full, changed, racy;
	bool lent; /* a daemon was killed while modes were lent */
	bool last; /* directories' own times count */
	bool only_times;
	uint64_t bytes, files; /* files: objects whose content is to be read */
	uint64_t now;          /* when the walk began */
	struct ntr_dirs dirs;
	struct ntr_aobjs objs;
	struct ntr_aobj *by_upper, *by_tree;
	struct ntr_tree_use *used, *used_mem;
	struct ntr_birth *births;
	struct ntr_base_dir *bases, *bases_mem;
	uint64_t *differ; /* full: inodes whose items differ between base and head, ascending */
	size_t ndiffer, differ_cap;
	struct ntr_pool *pool;
	struct ntr_restore *restores, *restores_tail;
	const struct ntr_head
	        *newer; /* the upper is older than head: only what is newer counts; NULL: it is not */
	struct ntr_err *e;
};

void ntr_aobj_stat(struct ntr_aobj *o, const struct statx *sx);
struct ntr_mstat ntr_mstat_of(const struct statx *sx);
static inline bool ntr_mstat_same_object(const struct ntr_mstat *a, const struct ntr_mstat *b)
{
	return a->ino == b->ino && a->btime == b->btime;
}
static inline bool ntr_mstat_same(const struct ntr_mstat *a, const struct ntr_mstat *b)
{
	return ntr_mstat_same_object(a, b) && a->ctime == b->ctime && a->mtime == b->mtime &&
	       a->size == b->size;
}
/* The name of the object's first place in o->ref.dir. */
static inline const char *ntr_aobj_name(const struct ntr_aobj *o)
{
	return ntr_me_name(o->ref.dir, o->ref.at);
}
static inline const struct ntr_mentry *ntr_aref_entry(const struct ntr_aref *f)
{
	return &f->dir->v[f->at];
}
/* Sets the run's error "absorb PATH" unless one is set; returns r. */
int ntr_arun_fail(struct ntr_arun *w, const struct ntr_mdir *d, const char *name, int r);
int ntr_aobj_fail(struct ntr_arun *w, const struct ntr_aobj *o, int r);

/* absorb_check.c */
/* Calls fn for every entry of the directory open at fd (without "." and ".."), from its beginning; stops at
 * nonzero. */
typedef int (*ntr_dents_fn)(void *user, int fd, const char *name, size_t n);
int ntr_dents_each(int fd, ntr_dents_fn fn, void *user);
int ntr_statx_at(int fd, const char *name, struct statx *ret); /* name "": fd itself */
bool ntr_is_whiteout(const struct statx *sx);

/* absorb_walk.c */
int ntr_arun_walk(struct ntr_arun *w);
/* The object's entries in the new tree get its stat (after a lent mode was given back, or a new read). */
void ntr_aobj_set_entries(struct ntr_arun *w, struct ntr_aobj *o);
/* Stats the object again by its name. */
int ntr_aobj_restat(struct ntr_arun *w, struct ntr_aobj *o);
int ntr_aobj_marks(struct ntr_arun *w, struct ntr_aobj *o);

/* absorb_match.c */
int ntr_arun_match(struct ntr_arun *w);
/* full: what differs between base and head, and births. */
int ntr_arun_differ(struct ntr_arun *w);
void ntr_arun_differ_done(struct ntr_arun *w);
uint64_t ntr_arun_born(struct ntr_arun *w, const struct ntr_aobj *o);

/* absorb_ident.c */
int ntr_arun_identify(struct ntr_arun *w);
/* Steps of it, for the run on an older upper. */
int ntr_aobj_take(struct ntr_arun *w, struct ntr_aobj *o, uint64_t tree);
int ntr_aobj_fresh(struct ntr_arun *w, struct ntr_aobj *o);
int ntr_aobj_beneath(struct ntr_arun *w, const struct ntr_aobj *o, struct ntr_inode *ret);
int ntr_arun_in_use(struct ntr_arun *w, uint64_t tree); /* 1: it is an object of upper. 0, negative errno */

/* absorb_moved.c: committed symlinks and special files that were renamed */
int ntr_arun_moved(struct ntr_arun *w);

/* absorb_newer.c: identify, where upper is older than head. Entries that head knows better are marked as
 * unchanged. */
int ntr_arun_identify_newer(struct ntr_arun *w);
/* Did upper take the name out of the tree's directory after head was made? 1, 0. */
int ntr_arun_gone(struct ntr_arun *w, uint64_t dir, const char *name);
/* Removes from head what was removed from the directory later. */
int ntr_arun_compare_newer(struct ntr_arun *w, struct ntr_mdir *d);
/* absorb_lost.c: 1: the file's content in upper tells nothing that the versions of inode `in` since base did
 * not, and it changed too soon after the commit for that to be the process's own doing. 0, negative errno. */
int ntr_arun_lost(struct ntr_arun *w, struct ntr_aobj *o, const struct ntr_inode *in);

/* absorb_place.c */
int ntr_arun_clear(
        struct ntr_arun *w); /* moved objects off their old names, then whatever else is in the way */
/* d's listing in head and in base against upper's: what is too much goes, what is missing is wished back. */
int ntr_arun_compare(struct ntr_arun *w, struct ntr_mdir *d);
int ntr_arun_attach(struct ntr_arun *w); /* directories first, then the rest; creates what is new */

/* absorb_object.c */
int ntr_aobj_create(struct ntr_arun *w, struct ntr_aobj *o);
int ntr_arun_update(struct ntr_arun *w);
int ntr_arun_ride(struct ntr_arun *w); /* directories' own times, when there is a commit anyway */

/* absorb_data.c */
/* Sets content of in (and EXTENT items) to those of inode `from` of snap. */
int ntr_content_copy(
        struct ntr_txn *t, const struct ntr_snap *snap, const struct ntr_inode *from, struct ntr_inode *in);
/* 1: both have the same content; 0; negative errno. */
int ntr_content_equal(const struct ntr_snap *a, const struct ntr_inode *x, const struct ntr_snap *b,
        const struct ntr_inode *y);
int ntr_xattrs_equal(const struct ntr_snap *a, uint64_t x, const struct ntr_snap *b, uint64_t y);
/* Copies the items of one type of inode x of a plain root to inode y. */
int ntr_items_drop(struct ntr_txn *t, uint64_t ino, uint8_t type);
/* Names of a file beyond its record's own; s must be a plain root if fn changes a transaction. */
int ntr_links_each(const struct ntr_snap *s, uint64_t ino,
        int (*fn)(void *user, uint64_t dir, const char *name), void *user);
int ntr_items_copy(struct ntr_txn *t, const struct ntr_snap *from, uint64_t x, uint64_t y, uint8_t type);

/* absorb_early.c */
void ntr_arun_early(struct ntr_arun *w);
/* The object's content in its present state, or NULL. */
const struct ntr_file_loaded *ntr_early_of(const struct ntr_memo *m, const struct ntr_aobj *o);

/* absorb_content.c: reads the object's content into in. */
int ntr_aobj_content(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in);
int ntr_aobj_open(struct ntr_arun *w, struct ntr_aobj *o, int *ret_fd);

/* absorb_pool.c */
int ntr_pool_start(struct ntr_arun *w);
void ntr_pool_stop(struct ntr_arun *w);
/* Content that a thread reads; waits for it. */
int ntr_pool_wait(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in);

/* absorb_restore.c */
int ntr_arun_want_base(struct ntr_arun *w, struct ntr_mdir *d, const char *name, size_t n, uint64_t base_ino);
int ntr_arun_restore(struct ntr_arun *w);
void ntr_arun_restore_done(struct ntr_arun *w);

/* absorb_reset.c: without a memo */
int ntr_arun_bases(struct ntr_arun *w); /* makes the index that `shows` needs; directories are identified */
void ntr_arun_bases_done(struct ntr_arun *w);
/* Does base's entry `name` of directory `dir` show in the view? *ret_dir: the tree's directory that it shows
 * in. 1, 0. */
int ntr_arun_shows(struct ntr_arun *w, uint64_t dir, const char *name, uint64_t *ret_dir);
int ntr_arun_reset(struct ntr_arun *w);

#endif
