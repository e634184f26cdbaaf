#include "inode_impl.h"
#include "names.h"

#include <dirent.h>
#include <errno.h>

/* One component: *ino is the directory on entry, what the name leads to on return. */
static int step(const struct ntr_snap *s, const char *name, size_t n, uint64_t *ino, uint8_t *dtype)
{
	if (*dtype != DT_DIR)
		return -ENOTDIR;
	if (n == 1 && name[0] == '.')
		return 0;
	if (n == 2 && !memcmp(name, "..", 2))
		return -EINVAL;
	return ntr_dirent_get(s, *ino, name, n, ino, dtype);
}

int ntr_path_lookup(const struct ntr_snap *s, const char *path, uint64_t *ret_ino)
{
	uint64_t ino = NTR_INO_ROOT;
	uint8_t dtype = DT_DIR;
	const char *p = path;

	for (p += strspn(p, "/"); *p; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");
		int r = step(s, p, n, &ino, &dtype);

		if (r)
			return r;
		p += n;
		if (*p == '/' && dtype != DT_DIR)
			return -ENOTDIR;
	}
	*ret_ino = ino;
	return 0;
}

int ntr_path_inode(const struct ntr_snap *s, const char *path, struct ntr_inode *ret)
{
	uint64_t ino;
	int r = ret ? ntr_path_lookup(s, path, &ino) : -ENOMEM;

	return r ? r : ntr_inode_get(s, ino, ret);
}

int ntr_path_of(const struct ntr_snap *s, uint64_t ino, char *buf, size_t size)
{
	size_t at = size - 1; /* the path grows from the end of buf towards its beginning */
	struct ntr_inode in;

	buf[at] = '\0';
	while (ino != NTR_INO_ROOT) {
		int r = ntr_inode_get(s, ino, &in);

		if (r)
			return r;
		if (!in.name_len)
			return -EUCLEAN;
		if (at < in.name_len + 1u)
			return -ENAMETOOLONG;
		at -= in.name_len;
		memcpy(buf + at, in.name, in.name_len);
		buf[--at] = '/';
		ino = in.parent;
	}
	if (buf[at] == '/')
		at++;
	memmove(buf, buf + at, size - at);
	return 0;
}
