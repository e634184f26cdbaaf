/* Has the content of a file been lost in a power failure, or did a process change it so? A file's data reach
 * the disk seconds after its times and its size do, or before; what is missing then shows as a shorter file,
 * as zeros (ext4's journal may have a larger size, too, before the data are written), or as what was there
 * before. A file that holds nothing else, and changed again soon after the commit whose content it should
 * have, counts as lost: head's content stays. One sector of anything else proves that later work reached the
 * disk, and so do more bytes behind the whole of head's content, even zeros. */
#include "absorb_impl.h"

#include <errno.h>

/* The kernel writes dirty pages after 30 s (vm.dirty_expire_centisecs), and looks every 5. */
#define SETTLED_NS UINT64_C(60000000000)
enum { SECTOR = 512, BUFFER = 1 << 16, VERSIONS = 16, COMMITS = 256 };

struct versions {
	struct {
		struct ntr_snap snap;
		struct ntr_inode in;
		uint8_t *buf;
		size_t n; /* of buf: how much of the window the version has */
	} v[VERSIONS];
	size_t n;      /* the first is head's */
	uint64_t size; /* of the longest */
};

static void versions_done(struct versions **x)
{
	if (!*x)
		return;
	for (size_t i = 0; i < (*x)->n; i++)
		free((*x)->v[i].buf);
	free(*x);
}

/* The inode as the tree has it, unless it is one of those that are there. */
static int add_version(struct ntr_arun *w, struct versions *x, uint64_t root, uint64_t ino)
{
	struct ntr_snap snap = ntr_snap_root(w->store, root);
	struct ntr_inode in;
	int r = ntr_inode_get(&snap, ino, &in);

	if (r || !S_ISREG(in.mode) || x->n == VERSIONS)
		return r == -ENOENT ? 0 : r;
	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].in.version == in.version)
			return 0;
	x->v[x->n].buf = malloc(BUFFER);
	if (!x->v[x->n].buf)
		return -ENOMEM;
	x->v[x->n].snap = snap;
	x->v[x->n++].in = in;
	x->size = NTR_MAX(x->size, in.size);
	return 0;
}

/* Head's version, those of the commits between it and the base of this upper, and the base's own. */
static int collect(struct ntr_arun *w, struct versions *x, uint64_t ino)
{
	uint64_t id = w->newer->commit;
	int r = add_version(w, x, w->head.root, ino);

	for (int i = 0; !r && id && i < COMMITS; i++) {
		struct ntr_commit c;

		r = ntr_commit_get(w->store, id, &c, NULL);
		if (r)
			return r;
		id = c.root == w->base.root || !c.nparents ? 0 : c.parent[0];
		r = add_version(w, x, c.root, ino);
		ntr_commit_done(&c);
	}
	return r ? r : add_version(w, x, w->base.root, ino);
}

static int load(struct versions *x, uint64_t off, size_t n)
{
	for (size_t i = 0; i < x->n; i++) {
		uint64_t left = x->v[i].in.size > off ? x->v[i].in.size - off : 0;
		size_t want = (size_t)NTR_MIN((uint64_t)n, left);
		ssize_t k = want ? ntr_file_read(&x->v[i].snap, &x->v[i].in, off, x->v[i].buf, want) : 0;

		if (k < 0)
			return (int)k;
		x->v[i].n = (size_t)k;
	}
	return 0;
}

/* A version may end within the sector: the kernel fills its last block with zeros. */
static bool is_known(const struct versions *x, const uint8_t *p, size_t at, size_t n)
{
	while (n && !p[n - 1])
		n--;
	if (!n)
		return true;
	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].n >= at + n && !memcmp(x->v[i].buf + at, p, n))
			return true;
	return false;
}

/* Where the file has data next, at the beginning of a window. Only asked for behind the end of all versions,
 * for a file may have been made longer by much: up to there every byte counts, zeros too. */
static uint64_t next_data(const struct versions *x, int fd, uint64_t off, uint64_t size)
{
	off_t at;

	if (off < x->size)
		return off;
	at = lseek(fd, (off_t)off, SEEK_DATA);
	if (at < 0)
		return errno == ENXIO ? size : off;
	return NTR_MAX(off, (uint64_t)at / BUFFER * BUFFER);
}

/* 1: every sector of the window is zero, or as one of the versions has it. */
static int knows(struct versions *x, int fd, uint8_t *buf, uint64_t off, size_t n)
{
	int r = ntr_pread_exact(fd, buf, n, (off_t)off);

	if (!r)
		r = load(x, off, n);
	if (r)
		return r == -ENODATA ? 0 : r;
	for (size_t at = 0; at < n; at += SECTOR)
		if (!is_known(x, buf + at, at, NTR_MIN(n - at, (size_t)SECTOR)))
			return 0;
	return 1;
}

/* 1: the file holds nothing but zeros and what the versions have, and not all of head's content with more
 * behind. */
static int knows_all(struct versions *x, int fd, uint64_t size)
{
	ntr_autofree uint8_t *buf = malloc(BUFFER);
	bool grown = x->n && x->v[0].in.size && size > x->v[0].in.size;
	int r = 1;

	if (!buf)
		return -ENOMEM;
	for (uint64_t off = 0; (off = next_data(x, fd, off, size)) < size; off += BUFFER) {
		r = knows(x, fd, buf, off, (size_t)NTR_MIN(size - off, (uint64_t)BUFFER));
		if (r <= 0)
			return r;
		grown = grown && !memcmp(x->v[0].buf, buf, x->v[0].n);
	}
	return !grown;
}

int ntr_arun_lost(struct ntr_arun *w, struct ntr_aobj *o, const struct ntr_inode *in)
{
	ntr_auto(versions_done) struct versions *x = calloc(1, sizeof *x);
	ntr_autoclose int fd = -1;
	uint64_t was = (uint64_t)in->ctime.tv_sec * 1000000000u + (uint64_t)in->ctime.tv_nsec;
	bool replaced = o->st.btime > was; /* by a new file, which cannot show what an older one held */
	int r = x ? 0 : -ENOMEM;

	if (r || !in->size || o->st.ctime > was + SETTLED_NS)
		return r;
	if (!replaced)
		r = collect(w, x, in->ino);
	if (!r)
		r = ntr_aobj_open(w, o, &fd);
	return r ? r : knows_all(x, fd, o->st.size);
}
