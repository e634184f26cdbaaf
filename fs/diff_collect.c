#include "diff_impl.h"
#include "inode_impl.h"

#include <errno.h>

static struct ntr_diff_ino *ino_of(struct ntr_diff_set *s, uint64_t ino)
{
	struct ntr_diff_ino *d;

	HASH_FIND(hh, s->inos, &ino, sizeof ino, d);
	if (d)
		return d;
	d = calloc(1, sizeof *d);
	if (!d)
		return NULL;
	d->ino = ino;
	HASH_ADD(hh, s->inos, ino, sizeof d->ino, d);
	if (ntr_hashed(hh, d))
		return d;
	free(d);
	return NULL;
}

/* A DIRENT item's suffix is BE64 name hash, name. */
static int add_name(struct ntr_diff_set *s, uint64_t dir, const uint8_t *key, size_t klen, const uint8_t *old,
        size_t old_len, const uint8_t *now, size_t now_len)
{
	struct ntr_diff_name *v = s->names;
	uint8_t dtype;
	int r = 0;

	if (klen <= 17)
		return -EUCLEAN;
	if (s->n_names == s->cap_names) {
		size_t cap = s->cap_names ? s->cap_names * 2 : 64;

		v = realloc(s->names, cap * sizeof *v);
		if (!v)
			return -ENOMEM;
		s->names = v;
		s->cap_names = cap;
	}
	v += s->n_names;
	*v = (struct ntr_diff_name){.dir = dir, .name = strndup((const char *)key + 17, klen - 17)};
	if (!v->name)
		return -ENOMEM;
	s->n_names++;
	if (old)
		r = ntr_dirent_decode(old, old_len, &v->old_ino, &dtype);
	if (!r && now)
		r = ntr_dirent_decode(now, now_len, &v->new_ino, &dtype);
	return r;
}

static int on_item(void *user, const uint8_t *key, size_t klen, const uint8_t *old, size_t old_len,
        const uint8_t *now, size_t now_len)
{
	struct ntr_diff_set *s = user;
	struct ntr_diff_ino *d;
	uint64_t ino;

	if (klen < 9)
		return -EUCLEAN;
	ino = ntr_get_be64(key);
	if (ino == NTR_INO_META) {
		s->state_changed = true;
		return 0;
	}
	if (key[8] == NTR_ITEM_DIRENT)
		return add_name(s, ino, key, klen, old, old_len, now, now_len);
	if (key[8] == NTR_ITEM_LINK)
		return 0; /* the entries tell */
	d = ino_of(s, ino);
	if (!d)
		return -ENOMEM;
	if (key[8] == NTR_ITEM_INODE)
		d->record = true;
	else
		d->what |= key[8] == NTR_ITEM_XATTR ? NTR_DIFF_XATTR : NTR_DIFF_CONTENT;
	return 0;
}

int ntr_diff_collect(struct ntr_diff_set *s)
{
	return ntr_tree_diff(ntr_store_tree(s->store), s->a.root, s->b.root, on_item, s);
}

void ntr_diff_set_done(struct ntr_diff_set *s)
{
	struct ntr_diff_ino *d, *next;

	HASH_ITER (hh, s->inos, d, next) {
		HASH_DEL(s->inos, d);
		free(d);
	}
	for (size_t i = 0; i < s->n_names; i++)
		free(s->names[i].name);
	free(s->names);
}

/* ---- comparing two objects ---- */

static bool same_time(const struct timespec *x, const struct timespec *y)
{
	return x->tv_sec == y->tv_sec && x->tv_nsec == y->tv_nsec;
}

/* Items of one type of two inodes: equal suffixes and values? 1, 0, or negative errno. */
static int same_items(struct ntr_diff_set *s, uint64_t x, uint64_t y, uint8_t type)
{
	struct ntr_snap_cursor p, q;
	uint8_t kx[9], ky[9];
	int r, t;

	ntr_put_be64(kx, x);
	ntr_put_be64(ky, y);
	kx[8] = ky[8] = type;
	ntr_snap_cursor_init(&p, &s->a);
	ntr_snap_cursor_init(&q, &s->b);
	r = ntr_snap_cursor_seek(&p, kx, 9);
	t = ntr_snap_cursor_seek(&q, ky, 9);
	while (r >= 0 && t >= 0) {
		bool inx = r == 1 && p.klen >= 9 && !memcmp(p.key, kx, 9),
		     iny = t == 1 && q.klen >= 9 && !memcmp(q.key, ky, 9);

		if (!inx || !iny) {
			r = inx == iny;
			break;
		}
		if (p.klen != q.klen || memcmp(p.key + 9, q.key + 9, p.klen - 9) || p.vlen != q.vlen ||
		        memcmp(p.val, q.val, p.vlen)) {
			r = 0;
			break;
		}
		r = ntr_snap_cursor_next(&p);
		t = ntr_snap_cursor_next(&q);
	}
	ntr_snap_cursor_done(&p);
	ntr_snap_cursor_done(&q);
	return t < 0 ? t : r;
}

static int content_differs(struct ntr_diff_set *s, const struct ntr_inode *o, const struct ntr_inode *n)
{
	int r;

	if (o->size != n->size || o->data_kind != n->data_kind || o->rdev != n->rdev)
		return 1;
	if (o->payload_len != n->payload_len || memcmp(o->payload, n->payload, o->payload_len))
		return 1;
	if (o->data_kind == NTR_DATA_CHUNK)
		return o->chunk != n->chunk;
	if (o->data_kind != NTR_DATA_EXTENTS || o->ino == n->ino)
		return 0; /* one inode: its EXTENT items were compared one by one */
	r = same_items(s, o->ino, n->ino, NTR_ITEM_EXTENT);
	return r < 0 ? r : !r;
}

int ntr_diff_compare(
        struct ntr_diff_set *s, const struct ntr_inode *o, const struct ntr_inode *n, unsigned *ret)
{
	bool dir = S_ISDIR(o->mode);
	unsigned what = 0;
	int r;

	if ((o->mode ^ n->mode) & 07777)
		what |= NTR_DIFF_MODE;
	if (o->uid != n->uid || o->gid != n->gid)
		what |= NTR_DIFF_OWNER;
	if (!dir && !same_time(&o->mtime, &n->mtime))
		what |= NTR_DIFF_MTIME;
	if (!dir && o->nlink != n->nlink)
		what |= NTR_DIFF_LINKS;
	if (!dir) {
		r = content_differs(s, o, n);
		if (r < 0)
			return r;
		what |= r ? NTR_DIFF_CONTENT : 0;
	}
	if (o->ino != n->ino && ((o->flags | n->flags) & NTR_INODE_HAS_XATTR)) {
		r = same_items(s, o->ino, n->ino, NTR_ITEM_XATTR);
		if (r < 0)
			return r;
		what |= r ? 0 : NTR_DIFF_XATTR;
	}
	*ret = what;
	return 0;
}
