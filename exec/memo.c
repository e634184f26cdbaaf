/* memo: what upper held at the last accepted walk. Entries lie in one array per directory, in the order in
 * which the file system lists them, so that the next walk compares the two side by side without a search. */
#include "absorb_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

struct ntr_mtree *ntr_mtree_new(void)
{
	struct ntr_mtree *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->root = ntr_mdir_new(NULL, 0);
	if (!t->root) {
		free(t);
		return NULL;
	}
	t->last = t->root;
	t->root->tree = t->root->base = NTR_INO_ROOT;
	return t;
}

/* Along the list, not the tree: upper may be deeper than any stack. */
void ntr_mtree_free(struct ntr_mtree *t)
{
	struct ntr_mdir *d, *next;

	if (!t)
		return;
	for (d = t->root; d; d = next) {
		next = d->next;
		free(d->v);
		free(d->names);
		free(d->sorted);
		free(d);
	}
	free(t);
}

struct ntr_mdir *ntr_mdir_new(struct ntr_mdir *parent, uint32_t at)
{
	struct ntr_mdir *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->parent = parent;
	d->at = at;
	d->slot = -1;
	return d;
}

void ntr_mtree_link(struct ntr_mtree *t, struct ntr_mdir *d)
{
	t->last->next = d;
	t->last = d;
}

static int grow(void **p, uint32_t *cap, uint32_t need, uint32_t first, size_t item)
{
	uint64_t n = *cap ? (uint64_t)*cap * 2 : first;
	void *bigger;

	n = NTR_MAX(n, (uint64_t)need);
	if (n > UINT32_MAX)
		return -E2BIG;
	bigger = realloc(*p, (size_t)n * item);
	if (!bigger)
		return -ENOMEM;
	*p = bigger;
	*cap = (uint32_t)n;
	return 0;
}

int ntr_mdir_add(struct ntr_mdir *d, const char *name, size_t n, struct ntr_mentry **ret)
{
	void *v = d->v, *names = d->names;
	int r = 0;

	if (d->n == d->cap) {
		r = grow(&v, &d->cap, d->n + 1, 4, sizeof *d->v);
		d->v = v;
	}
	if (!r && d->names_cap - d->names_len < n + 1) {
		r = d->names_len > UINT32_MAX - 512
		            ? -E2BIG
		            : grow(&names, &d->names_cap, d->names_len + (uint32_t)n + 1, 48, 1);
		d->names = names;
	}
	if (r)
		return r;
	memcpy(d->names + d->names_len, name, n);
	d->names[d->names_len + n] = '\0';
	*ret = &d->v[d->n++];
	**ret = (struct ntr_mentry){.name = d->names_len, .name_len = (uint8_t)n};
	d->names_len += (uint32_t)n + 1;
	return 0;
}

void ntr_mdir_trim(struct ntr_mdir *d)
{
	void *p;

	if (d->n && d->n < d->cap && (p = realloc(d->v, d->n * sizeof *d->v))) {
		d->v = p;
		d->cap = d->n;
	}
	if (d->names_len && d->names_len < d->names_cap && (p = realloc(d->names, d->names_len))) {
		d->names = p;
		d->names_cap = d->names_len;
	}
}

static bool name_is(const struct ntr_mdir *d, uint32_t i, const char *name, size_t n)
{
	return d->v[i].name_len == n && !memcmp(ntr_me_name(d, i), name, n);
}

static int by_name(const void *a, const void *b, void *user)
{
	const struct ntr_mdir *d = user;

	return strcmp(ntr_me_name(d, *(const uint32_t *)a), ntr_me_name(d, *(const uint32_t *)b));
}

static int sort(struct ntr_mdir *d)
{
	d->sorted = malloc(d->n * sizeof *d->sorted);
	if (!d->sorted)
		return -ENOMEM;
	for (uint32_t i = 0; i < d->n; i++)
		d->sorted[i] = i;
	qsort_r(d->sorted, d->n, sizeof *d->sorted, by_name, d);
	return 0;
}

int64_t ntr_mdir_find(struct ntr_mdir *d, const char *name, size_t n, uint32_t hint)
{
	uint32_t lo = 0, hi = d->n;

	if (hint < d->n && name_is(d, hint, name, n))
		return hint;
	if (!d->n)
		return -1;
	if (!d->sorted && sort(d))
		return -ENOMEM;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int order = strcmp(ntr_me_name(d, d->sorted[mid]), name);

		if (!order)
			return d->sorted[mid];
		if (order < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
}

void ntr_mtree_drop_scratch(struct ntr_mtree *t)
{
	for (struct ntr_mdir *d = t->root; d; d = d->next) {
		free(d->sorted);
		d->sorted = NULL;
		d->old = NULL;
		d->slot = -1;
		d->seen = 0;
		d->flags &= NTR_MD_OPAQUE | NTR_MD_XWHITEOUT | NTR_MD_PENDING;
		for (uint32_t i = 0; i < d->n; i++)
			d->v[i].flags &= NTR_ME_WHITEOUT | NTR_ME_DIR | NTR_ME_UNTRUSTED;
	}
}

/* Puts s and a '/' (unless it is the last) in front of what stands at *at. false: no room. */
static bool path_push(char *buf, size_t *at, const char *s)
{
	size_t n = strlen(s), slash = buf[*at] ? 1 : 0;

	if (*at < n + slash + 3) {
		*at -= NTR_MIN(*at, (size_t)3);
		memcpy(buf + *at, "...", 3);
		return false;
	}
	if (slash)
		buf[--*at] = '/';
	*at -= n;
	memcpy(buf + *at, s, n);
	return true;
}

const char *ntr_mdir_path(const struct ntr_mdir *d, const char *name, char *buf, size_t size)
{
	size_t at = size - 1;

	buf[at] = '\0';
	if (name && !path_push(buf, &at, name))
		return buf + at;
	for (; d->parent; d = d->parent)
		if (!path_push(buf, &at, ntr_me_name(d->parent, d->at)))
			break;
	return buf + at;
}

static bool is_fine(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
	       fs.f_type == BTRFS_SUPER_MAGIC || fs.f_type == TMPFS_MAGIC;
}

/* Multigrain timestamps (6.13) give every change that follows a look its own ctime, on the file systems that
 * overlayfs's upper is likely to be on. Anywhere else two changes within a tick of the clock may look like
 * one. */
static bool clock_is_coarse(int fd)
{
	struct utsname u;
	unsigned major = 0, minor = 0;

	if (uname(&u) || sscanf(u.release, "%u.%u", &major, &minor) != 2)
		return true;
	return major < 6 || (major == 6 && minor < 13) || !is_fine(fd);
}

/* Absorb's listings of upper itself move no access time, nor do those of directories that it opens. */
static void list_quietly(int upper_fd)
{
	int flags = fcntl(upper_fd, F_GETFL);

	if (flags >= 0)
		(void)fcntl(upper_fd, F_SETFL, flags | O_NOATIME);
}

int ntr_memo_new(int upper_fd, bool userxattr, struct ntr_memo **ret)
{
	struct ntr_memo *m = calloc(1, sizeof *m);
	struct statx sx;
	int r;

	if (!m)
		return -ENOMEM;
	m->fd = upper_fd;
	m->beside = geteuid() ? ntr_lent_open(upper_fd) : -1;
	list_quietly(upper_fd);
	m->userxattr = userxattr;
	m->coarse = clock_is_coarse(upper_fd);
	m->cur = ntr_mtree_new();
	r = m->cur ? ntr_statx_at(upper_fd, "", &sx) : -ENOMEM;
	if (!r && !S_ISDIR(sx.stx_mode))
		r = -ENOTDIR;
	if (r) {
		ntr_memo_free(m);
		return r;
	}
	m->dev_major = sx.stx_dev_major;
	m->dev_minor = sx.stx_dev_minor;
	m->cur->root->st = ntr_mstat_of(&sx);
	m->cur->root->mode = sx.stx_mode;
	m->cur->root->uid = sx.stx_uid;
	m->cur->root->gid = sx.stx_gid;
	r = ntr_memo_root_marks(m);
	if (r) {
		ntr_memo_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void ntr_memo_free(struct ntr_memo *m)
{
	if (!m)
		return;
	ntr_absorb_early_done(m);
	ntr_mtree_free(m->cur);
	ntr_mtree_free(m->shadow);
	ntr_closep(&m->beside);
	free(m);
}

void ntr_memo_size(const struct ntr_memo *m, uint64_t *ret_entries, uint64_t *ret_bytes)
{
	*ret_entries = m->cur->entries;
	*ret_bytes = m->cur->bytes;
}

uint64_t ntr_memo_walked(const struct ntr_memo *m)
{
	return m->walked;
}

static size_t mtree_bytes(const struct ntr_mtree *t)
{
	size_t n = t ? sizeof *t : 0;

	for (const struct ntr_mdir *d = t ? t->root : NULL; d; d = d->next)
		n += sizeof *d + d->cap * sizeof *d->v + d->names_cap;
	return n;
}

size_t ntr_memo_bytes(const struct ntr_memo *m)
{
	return sizeof *m + mtree_bytes(m->cur) + mtree_bytes(m->shadow);
}

void ntr_absorb_accept(struct ntr_memo *m)
{
	if (!m->shadow)
		return;
	ntr_mtree_free(m->cur);
	m->cur = m->shadow;
	m->shadow = NULL;
}

void ntr_absorb_reject(struct ntr_memo *m)
{
	ntr_mtree_free(m->shadow);
	m->shadow = NULL;
}
