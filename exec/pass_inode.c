#include "pass_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static struct {
	struct ntr_pinode root;
	struct ntr_pinode *all;             /* by key */
	struct ntr_pinode *oldest, *newest; /* with a descriptor; the root is not among them */
	size_t open, limit;
	unsigned gen;
} t;

const char *ntr_pinode_link(int fd, char buf[40])
{
	snprintf(buf, 40, "/proc/self/fd/%d", fd);
	return buf;
}

static struct ntr_pinode *of_id(fuse_ino_t id)
{
	return id == FUSE_ROOT_ID ? &t.root : (struct ntr_pinode *)(uintptr_t)id;
}

/* uthash compares bytes, so the padding has to be equal too. */
static struct ntr_pkey key_of(const struct stat *st)
{
	struct ntr_pkey k;

	memset(&k, 0, sizeof k);
	k.dev = st->st_dev;
	k.ino = st->st_ino;
	k.type = st->st_mode & S_IFMT;
	return k;
}

/* ---- descriptors, by use ---- */

static void unlist(struct ntr_pinode *i)
{
	*(i->older ? &i->older->newer : &t.oldest) = i->newer;
	*(i->newer ? &i->newer->older : &t.newest) = i->older;
	i->older = i->newer = NULL;
}

static void list_newest(struct ntr_pinode *i)
{
	i->older = t.newest;
	i->newer = NULL;
	*(t.newest ? &t.newest->newer : &t.oldest) = i;
	t.newest = i;
}

static void drop_fd(struct ntr_pinode *i)
{
	if (i->fd < 0)
		return;
	close(i->fd);
	i->fd = -1;
	if (i == &t.root)
		return;
	unlist(i);
	t.open--;
}

static void set_fd(struct ntr_pinode *i, int fd)
{
	i->fd = fd;
	list_newest(i);
	t.open++;
	while (t.open > t.limit && t.oldest != i)
		drop_fd(t.oldest);
}

static void rehash(struct ntr_pinode *i, const struct ntr_pkey *key)
{
	struct ntr_pinode *other;

	if (i->hashed)
		HASH_DEL(t.all, i);
	i->key = *key;
	i->gen = t.gen;
	HASH_FIND(hh, t.all, key, sizeof *key, other);
	i->hashed = !other; /* the kernel has two numbers for one file: the other is the one that is found */
	if (i->hashed) {
		HASH_ADD(hh, t.all, key, sizeof i->key, i);
		i->hashed = ntr_hashed(hh, i);
	}
}

static int inode_fd(struct ntr_pinode *i)
{
	int parent, fd;
	struct ntr_pkey key;
	struct stat st;

	if (i == &t.root || i->fd >= 0) {
		if (i != &t.root && i != t.newest) {
			unlist(i);
			list_newest(i);
		}
		return i->fd >= 0 ? i->fd : -ESTALE;
	}
	parent = inode_fd(i->parent);
	if (parent < 0)
		return parent;
	fd = openat(parent, i->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? -ESTALE : -errno;
	if (fstat(fd, &st)) {
		close(fd);
		return -EIO;
	}
	/* In a new view the file of that path is the file, if it is of the same kind at all. */
	key = key_of(&st);
	if (i->gen == t.gen ? memcmp(&key, &i->key, sizeof key) : key.type != i->key.type) {
		close(fd);
		return -ESTALE;
	}
	if (i->gen != t.gen)
		rehash(i, &key);
	set_fd(i, fd);
	return fd;
}

int ntr_pinode_fd(fuse_ino_t id)
{
	return inode_fd(of_id(id));
}

/* ---- life ---- */

static void unref(struct ntr_pinode *i)
{
	while (i && i != &t.root && !i->lookups && !i->children) {
		struct ntr_pinode *parent = i->parent;

		drop_fd(i);
		if (i->hashed)
			HASH_DEL(t.all, i);
		free(i->name);
		free(i);
		parent->children--;
		i = parent;
	}
}

/* true if p is i or stands above it: then i cannot be p's parent. */
static bool is_above(const struct ntr_pinode *p, const struct ntr_pinode *i)
{
	for (; i; i = i->parent)
		if (i == p)
			return true;
	return false;
}

static int place(struct ntr_pinode *i, struct ntr_pinode *parent, const char *name)
{
	struct ntr_pinode *old = i->parent;
	char *copy;

	if (old == parent && i->name && !strcmp(i->name, name))
		return 0;
	if (is_above(i, parent))
		return 0;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	free(i->name);
	i->name = copy;
	i->parent = parent;
	parent->children++;
	if (old) {
		old->children--;
		unref(old);
	}
	return 0;
}

/* fd becomes the table's. */
static int find_or_add(
        struct ntr_pinode *parent, const char *name, int fd, const struct stat *st, struct ntr_pinode **ret)
{
	struct ntr_pkey key = key_of(st);
	struct ntr_pinode *i;
	bool new;

	HASH_FIND(hh, t.all, &key, sizeof key, i);
	new = !i;
	if (new && !(i = calloc(1, sizeof *i))) {
		close(fd);
		return -ENOMEM;
	}
	if (new)
		i->fd = -1;
	if (place(i, parent, name)) {
		close(fd);
		if (new)
			free(i);
		return -ENOMEM;
	}
	if (new || i->gen != t.gen)
		rehash(i, &key);
	if (i->fd < 0)
		set_fd(i, fd);
	else
		close(fd);
	*ret = i;
	return 0;
}

int ntr_pinode_lookup(fuse_ino_t parent, const char *name, struct fuse_entry_param *e)
{
	struct ntr_pinode *i;
	int dir = ntr_pinode_fd(parent), fd, r;

	memset(e, 0, sizeof *e);
	if (dir < 0)
		return dir;
	fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &e->attr)) {
		r = -errno;
		close(fd);
		return r;
	}
	r = find_or_add(of_id(parent), name, fd, &e->attr, &i);
	if (r)
		return r;
	i->lookups++;
	e->ino = (fuse_ino_t)(uintptr_t)i;
	return 0;
}

void ntr_pinode_forget(fuse_ino_t id, uint64_t n)
{
	struct ntr_pinode *i = of_id(id);

	if (i == &t.root)
		return;
	i->lookups -= NTR_MIN(n, i->lookups);
	unref(i);
}

void ntr_pinode_moved(fuse_ino_t parent, const char *name)
{
	struct ntr_pinode *i;
	struct ntr_pkey key;
	struct stat st;
	int dir = ntr_pinode_fd(parent);

	if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return;
	key = key_of(&st);
	HASH_FIND(hh, t.all, &key, sizeof key, i);
	if (i)
		place(i, of_id(parent), name); /* out of memory: it is found again by its next lookup */
}

/* ---- the view comes and goes ---- */

void ntr_pinode_release(void)
{
	while (t.oldest)
		drop_fd(t.oldest);
	drop_fd(&t.root);
}

/* Keys of the old view name nothing any more, and its device number may come back: each is made anew when the
 * file is opened again. */
void ntr_pinode_resume(int view_fd)
{
	struct ntr_pinode *i, *next;

	drop_fd(&t.root);
	t.root.fd = view_fd;
	t.gen++;
	HASH_ITER (hh, t.all, i, next) {
		HASH_DEL(t.all, i);
		i->hashed = false;
	}
}

int ntr_pinode_setup(int view_fd, size_t limit)
{
	struct stat st;

	if (fstat(view_fd, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	t.limit = limit;
	t.root.fd = view_fd;
	return 0;
}
