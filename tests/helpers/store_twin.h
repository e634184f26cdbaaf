/* store_twin: what a tree is to a user, kept in plain memory: a list of paths, each with its object. A
 * commit's twin is a copy of the list; content is shared. Nothing here knows how the store keeps anything. */
#ifndef NTR_TEST_STORE_TWIN_H
#define NTR_TEST_STORE_TWIN_H

#include "store_fixture.h"

#include <sys/stat.h>

enum { TWIN_XATTRS = 4, TWIN_STATES = 5, TWIN_PATH = 2048 };

struct blob { /* bytes that several objects share */
	unsigned refs;
	size_t n;
	uint8_t data[];
};

struct twin_obj {
	uint64_t ino;
	uint32_t mode, uid, gid;
	uint64_t rdev;
	struct timespec mtime;
	struct blob *data; /* content, or a symlink's target */
	struct blob *xattr[TWIN_XATTRS];
};

struct twin_entry {
	char *path; /* "" is the root */
	unsigned obj;
};

struct twin {
	struct twin_entry *e; /* by path */
	size_t n, cap;
	struct twin_obj *o;
	size_t no, capo;
	struct blob *state[TWIN_STATES];
};

static const char *const twin_xattr_names[TWIN_XATTRS] = {
        "user.a", "user.longer-name", "security.x", "user.overlay.opaque"};
static const char *const twin_state_names[TWIN_STATES] = {"s:cwd", "s:umask", "e:PATH", "e:A", "e:B"};

/* ---- blobs ---- */

static inline struct blob *blob_new(size_t n)
{
	struct blob *b = malloc(sizeof *b + n + 1);

	assert_non_null(b);
	b->refs = 1;
	b->n = n;
	return b;
}

static inline struct blob *blob_ref(struct blob *b)
{
	if (b)
		b->refs++;
	return b;
}

static inline void blob_set(struct blob **slot, struct blob *b)
{
	if (*slot && !--(*slot)->refs)
		free(*slot);
	*slot = b;
}

static inline bool blob_same(const struct blob *a, const struct blob *b)
{
	size_t n = a ? a->n : 0;

	return a == b || (n == (b ? b->n : 0) && (!n || !memcmp(a->data, b->data, n)));
}

/* ---- lists ---- */

static inline void twin_done(struct twin *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->e[i].path);
	for (size_t i = 0; i < t->no; i++) {
		blob_set(&t->o[i].data, NULL);
		for (int k = 0; k < TWIN_XATTRS; k++)
			blob_set(&t->o[i].xattr[k], NULL);
	}
	for (int k = 0; k < TWIN_STATES; k++)
		blob_set(&t->state[k], NULL);
	free(t->e);
	free(t->o);
	*t = (struct twin){0};
}

static inline unsigned twin_obj_add(struct twin *t, const struct twin_obj *o)
{
	if (t->no == t->capo) {
		t->capo = t->capo ? t->capo * 2 : 64;
		t->o = realloc(t->o, t->capo * sizeof *t->o);
		assert_non_null(t->o);
	}
	t->o[t->no] = *o;
	return (unsigned)t->no++;
}

/* Index of path, or of the place where it belongs. */
static inline size_t twin_place(const struct twin *t, const char *path, bool *ret_there)
{
	size_t lo = 0, hi = t->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int c = strcmp(t->e[mid].path, path);

		if (!c) {
			*ret_there = true;
			return mid;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret_there = false;
	return lo;
}

static inline struct twin_obj *twin_find(const struct twin *t, const char *path)
{
	bool there;
	size_t i = twin_place(t, path, &there);

	return there ? &t->o[t->e[i].obj] : NULL;
}

/* One that must be there. */
static inline struct twin_obj *twin_get(const struct twin *t, const char *path)
{
	struct twin_obj *o = twin_find(t, path);

	if (!o) {
		fail_msg("the twin has no '%s'", path);
		abort();
	}
	return o;
}

static inline void twin_enter(struct twin *t, const char *path, unsigned obj)
{
	bool there;
	size_t i = twin_place(t, path, &there);

	assert_false(there);
	if (t->n == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 64;
		t->e = realloc(t->e, t->cap * sizeof *t->e);
		assert_non_null(t->e);
	}
	memmove(&t->e[i + 1], &t->e[i], (t->n - i) * sizeof *t->e);
	t->e[i] = (struct twin_entry){strdup(path), obj};
	t->n++;
}

/* Only objects that have a name go along. */
static inline struct twin twin_copy(const struct twin *from)
{
	unsigned *map = calloc(from->no + 1, sizeof *map);
	struct twin t = {.n = from->n, .cap = from->n};

	assert_non_null(map);
	t.e = calloc(t.n + 1, sizeof *t.e);
	assert_non_null(t.e);
	for (size_t i = 0; i < from->n; i++) {
		unsigned obj = from->e[i].obj;

		if (!map[obj]) {
			struct twin_obj o = from->o[obj];

			blob_ref(o.data);
			for (int k = 0; k < TWIN_XATTRS; k++)
				blob_ref(o.xattr[k]);
			map[obj] = twin_obj_add(&t, &o) + 1;
		}
		t.e[i] = (struct twin_entry){strdup(from->e[i].path), map[obj] - 1};
	}
	for (int k = 0; k < TWIN_STATES; k++)
		t.state[k] = blob_ref(from->state[k]);
	free(map);
	return t;
}

/* ---- paths ---- */

static inline bool path_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return !n || (!strncmp(path, top, n) && (!path[n] || path[n] == '/'));
}

static inline void path_split(const char *path, char parent[TWIN_PATH], const char **ret_name)
{
	const char *slash = strrchr(path, '/');

	snprintf(parent, TWIN_PATH, "%.*s", slash ? (int)(slash - path) : 0, path);
	*ret_name = slash ? slash + 1 : path;
}

static inline void path_join(char out[TWIN_PATH], const char *dir, const char *name)
{
	assert_true((size_t)snprintf(out, TWIN_PATH, "%s%s%s", dir, *dir ? "/" : "", name) < TWIN_PATH);
}

static inline bool twin_empty_dir(const struct twin *t, const char *path)
{
	for (size_t i = 0; i < t->n; i++)
		if (path_below(t->e[i].path, path) && strcmp(t->e[i].path, path) != 0)
			return false;
	return true;
}

static inline void twin_remove(struct twin *t, const char *path)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		if (path_below(t->e[i].path, path))
			free(t->e[i].path);
		else
			t->e[n++] = t->e[i];
	}
	t->n = n;
}

static inline int twin_by_path(const void *a, const void *b)
{
	return strcmp(((const struct twin_entry *)a)->path, ((const struct twin_entry *)b)->path);
}

static inline void twin_move(struct twin *t, const char *from, const char *to)
{
	char path[2 * TWIN_PATH];

	for (size_t i = 0; i < t->n; i++) {
		if (!path_below(t->e[i].path, from))
			continue;
		snprintf(path, sizeof path, "%s%s", to, t->e[i].path + strlen(from));
		free(t->e[i].path);
		t->e[i].path = strdup(path);
	}
	qsort(t->e, t->n, sizeof *t->e, twin_by_path);
}

static inline uint32_t twin_nlink(const struct twin *t, size_t entry)
{
	const struct twin_entry *e = &t->e[entry];
	bool dir = S_ISDIR(t->o[e->obj].mode);
	uint32_t n = dir ? 2 : 0;

	for (size_t i = 0; i < t->n; i++) {
		const char *name;
		char parent[TWIN_PATH];

		if (!dir) {
			n += t->e[i].obj == e->obj;
			continue;
		}
		if (i == entry || !S_ISDIR(t->o[t->e[i].obj].mode) || !path_below(t->e[i].path, e->path))
			continue;
		path_split(t->e[i].path, parent, &name);
		n += !strcmp(parent, e->path);
	}
	return n;
}

static inline void twin_counts(const struct twin *t, uint64_t *ret_inodes, uint64_t *ret_bytes)
{
	bool *seen = calloc(t->no + 1, 1);

	assert_non_null(seen);
	*ret_inodes = *ret_bytes = 0;
	for (size_t i = 0; i < t->n; i++) {
		const struct twin_obj *o = &t->o[t->e[i].obj];

		if (seen[t->e[i].obj])
			continue;
		seen[t->e[i].obj] = true;
		++*ret_inodes;
		if (S_ISREG(o->mode) && o->data)
			*ret_bytes += o->data->n;
	}
	free(seen);
}

#endif
