/* Extended attributes of an object of upper: overlayfs's marks, and those that are the user's.
 *
 * overlayfs keeps its own under trusted.overlay. (user.overlay. in a user's mount) and shows a user's
 * attribute of that name, which it keeps as PREFIXoverlay.NAME, without the "overlay.": so one level of
 * escape is taken off here. The other prefix means nothing to it. */
#include "absorb_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/xattr.h>
#include <xxhash.h>

enum { LIST_STACK = 1024, VALUE_MAX = 65536 };

static const char *const prefixes[] = {"trusted.overlay.", "user.overlay."};

/* Attributes that belong to the machine, not to the workspace: labels and measurements of security modules.
 */
static bool is_foreign(const char *name)
{
	static const char *const skip[] = {
	        "security.selinux", "security.ima", "security.evm", "security.apparmor", "security.SMACK64"};

	if (!strncmp(name, "system.", 7))
		return strcmp(name, "system.posix_acl_access") && strcmp(name, "system.posix_acl_default");
	for (size_t i = 0; i < NTR_COUNT(skip); i++)
		if (!strncmp(name, skip[i], strlen(skip[i])))
			return true;
	return false;
}

/* The mark's name behind overlayfs's own prefix, or NULL. */
static const char *mark_of(const char *name, bool userxattr)
{
	const char *p = prefixes[userxattr];
	size_t n = strlen(p);

	if (strncmp(name, p, n) || !strncmp(name + n, "overlay.", 8))
		return NULL;
	return name + n;
}

/* The name that the tree has it under, in fresh memory. */
static char *plain_name(const char *name, bool userxattr)
{
	const char *p = prefixes[userxattr];
	size_t n = strlen(p);

	if (!strncmp(name, p, n) && !strncmp(name + n, "overlay.", 8))
		return ntr_sprintf("%s%s", p, name + n + 8);
	return strdup(name);
}

struct reader {
	char path[32 + NAME_MAX + 1];
	bool userxattr;
	struct ntr_marks *m;
	size_t cap;
};

/* The value in fresh memory, a NUL behind it. -ENODATA: it went away meanwhile. */
static int read_value(const struct reader *rd, const char *name, uint8_t **ret, size_t *ret_len)
{
	size_t cap = 256;

	for (;;) {
		uint8_t *v = malloc(cap + 1);
		ssize_t k;

		if (!v)
			return -ENOMEM;
		k = lgetxattr(rd->path, name, v, cap);
		if (k >= 0) {
			v[k] = '\0';
			*ret = v;
			*ret_len = (size_t)k;
			return 0;
		}
		free(v);
		if (errno != ERANGE || cap >= VALUE_MAX)
			return -errno;
		cap = VALUE_MAX;
	}
}

static int add(struct reader *rd, const char *name)
{
	struct ntr_marks *m = rd->m;
	struct ntr_xattr x = {0};
	int r = read_value(rd, name, &x.val, &x.len);

	if (r)
		return r == -ENODATA ? 0 : r;
	x.name = plain_name(name, rd->userxattr);
	if (x.name && m->n == rd->cap) {
		size_t cap = rd->cap ? rd->cap * 2 : 4;
		void *v = realloc(m->v, cap * sizeof *m->v);

		if (v) {
			m->v = v;
			rd->cap = cap;
		}
	}
	if (!x.name || m->n == rd->cap) {
		free(x.name);
		free(x.val);
		return -ENOMEM;
	}
	m->v[m->n++] = x;
	return 0;
}

static int take_mark(struct reader *rd, const char *name, const char *mark)
{
	ntr_autofree uint8_t *val = NULL;
	struct ntr_marks *m = rd->m;
	size_t len = 0;
	int r;

	if (!strcmp(mark, "metacopy"))
		m->flags |= NTR_MARK_METACOPY;
	else if (!strcmp(mark, "origin"))
		m->flags |= NTR_MARK_ORIGIN;
	else if (!strcmp(mark, "whiteout"))
		m->flags |= NTR_MARK_WHITEOUT;
	if (strcmp(mark, "opaque") && strcmp(mark, "redirect") && strcmp(mark, "ntr"))
		return 0;
	r = read_value(rd, name, &val, &len);
	if (r)
		return r == -ENODATA ? 0 : r;
	if (!strcmp(mark, "ntr")) {
		m->was = strtoull((char *)val, NULL, 10);
	} else if (!strcmp(mark, "redirect")) {
		free(m->redirect);
		m->redirect = (char *)ntr_steal_ptr(val);
	} else if (len == 1 && val[0] == 'y') {
		m->flags |= NTR_MARK_OPAQUE;
	} else if (len == 1 && val[0] == 'x') {
		m->flags |= NTR_MARK_XWHITEOUT;
	}
	return 0;
}

static int take(struct reader *rd, const char *list, size_t len)
{
	for (const char *name = list; name < list + len; name += strlen(name) + 1) {
		const char *mark = mark_of(name, rd->userxattr);
		int r = 0;

		if (mark)
			r = take_mark(rd, name, mark);
		else if (!is_foreign(name))
			r = add(rd, name);
		if (r)
			return r;
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ntr_xattr *)a)->name, ((const struct ntr_xattr *)b)->name);
}

int ntr_marks_read(int dirfd, const char *name, bool userxattr, struct ntr_marks *ret)
{
	struct reader rd = {.userxattr = userxattr, .m = ret};
	char small[LIST_STACK];
	ntr_autofree char *big = NULL;
	char *list = small;
	ssize_t k;
	int r;

	memset(ret, 0, sizeof *ret);
	snprintf(rd.path, sizeof rd.path, "/proc/self/fd/%d/%s", dirfd, *name ? name : ".");
	k = llistxattr(rd.path, list, sizeof small);
	if (k < 0 && errno == ERANGE) {
		list = big = malloc(VALUE_MAX);
		if (!big)
			return -ENOMEM;
		k = llistxattr(rd.path, list, VALUE_MAX);
	}
	if (k < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	r = take(&rd, list, (size_t)k);
	if (r) {
		ntr_marks_done(ret);
		return r;
	}
	if (ret->n > 1)
		qsort(ret->v, ret->n, sizeof *ret->v, by_name);
	return 0;
}

/* An access ACL repeats the owner's bits of the mode, and so those that were lent while it was read. */
void ntr_marks_unlent(struct ntr_marks *m, uint32_t mode)
{
	enum { HEAD = 4, ENTRY = 8, USER_OBJ = 1 };

	for (size_t i = 0; i < m->n; i++) {
		if (strcmp(m->v[i].name, "system.posix_acl_access"))
			continue;
		for (size_t k = HEAD; k + ENTRY <= m->v[i].len; k += ENTRY)
			if (m->v[i].val[k] == USER_OBJ && !m->v[i].val[k + 1])
				m->v[i].val[k + 2] = mode >> 6 & 7;
	}
}

void ntr_marks_done(struct ntr_marks *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->v[i].name);
		free(m->v[i].val);
	}
	free(m->v);
	free(m->redirect);
	memset(m, 0, sizeof *m);
}

uint64_t ntr_marks_hash(const struct ntr_marks *m)
{
	uint64_t h = m->flags & (NTR_MARK_OPAQUE | NTR_MARK_XWHITEOUT);

	if (m->redirect)
		h = XXH3_64bits_withSeed(m->redirect, strlen(m->redirect) + 1, h);
	for (size_t i = 0; i < m->n; i++) {
		h = XXH3_64bits_withSeed(m->v[i].name, strlen(m->v[i].name) + 1, h);
		h = XXH3_64bits_withSeed(m->v[i].val, m->v[i].len, h + m->v[i].len);
	}
	return h;
}
