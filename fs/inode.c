#include "inode_impl.h"

#include <dirent.h>
#include <errno.h>
#include <xxhash.h>

uint64_t (*ntr_dirent_hash_hook)(const char *name, size_t n);

int ntr_inode_get(const struct ntr_snap *s, uint64_t ino, struct ntr_inode *ret)
{
	uint8_t key[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t len;
	int r = ntr_snap_get(s, key, ntr_item_key(key, ino, NTR_ITEM_INODE, NULL, 0), val, &len);

	return r ? r : ntr_inode_decode(ino, val, len, ret);
}

int ntr_inode_put(struct ntr_txn *t, struct ntr_inode *in)
{
	uint8_t key[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t len;
	int r = ntr_txn_version(t, &in->version);

	if (!r)
		r = ntr_inode_encode(in, val, &len);
	return r ? r : ntr_txn_put(t, key, ntr_item_key(key, in->ino, NTR_ITEM_INODE, NULL, 0), val, len);
}

/* Birth tags need no secrecy, only spread: one system call a thread, then splitmix64. */
static int new_tag(uint32_t *ret)
{
	static __thread uint64_t state;
	uint64_t z;
	int r = state ? 0 : ntr_random(&state, sizeof state);

	if (r)
		return r;
	z = state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	*ret = (uint32_t)(z >> 32);
	return 0;
}

int ntr_inode_new(struct ntr_txn *t, uint32_t mode, struct ntr_inode *ret)
{
	uint64_t ino;
	uint32_t tag = 0;
	int r = ntr_ids_take(ntr_store_ids(ntr_txn_snap(t)->store), NTR_ID_INODE, 1, &ino);

	if (!r)
		r = new_tag(&tag);
	if (r)
		return r;
	ret->ino = ino;
	ret->version = 0;
	ret->flags = 0;
	ret->tag = tag;
	ret->mode = mode;
	ret->uid = ret->gid = NTR_OWNER_ID;
	ret->nlink = S_ISDIR(mode) ? 2 : 1;
	ret->rdev = ret->size = ret->blocks = 0;
	clock_gettime(CLOCK_REALTIME, &ret->mtime);
	ret->atime = ret->ctime = ret->btime = ret->mtime;
	ret->parent = 0;
	ret->name_len = 0;
	ret->name[0] = '\0';
	ret->data_kind = NTR_DATA_NONE;
	ret->chunk = 0;
	ret->payload_len = 0;
	return 0;
}

int ntr_inode_erase(struct ntr_txn *t, uint64_t ino)
{
	uint8_t from[8], to[8];

	ntr_put_be64(from, ino);
	ntr_put_be64(to, ino + 1);
	return ntr_txn_del_range(t, from, sizeof from, to, sizeof to);
}

void ntr_inode_stat(const struct ntr_store *st, const struct ntr_inode *in, struct stat *ret)
{
	*ret = (struct stat){
	        .st_ino = in->ino,
	        .st_mode = in->mode,
	        .st_nlink = in->nlink,
	        .st_uid = ntr_store_uid_out(st, in->uid),
	        .st_gid = ntr_store_gid_out(st, in->gid),
	        .st_rdev = in->rdev,
	        .st_size = S_ISDIR(in->mode) ? 4096 : (off_t)in->size,
	        .st_blksize = 4096,
	        .st_blocks = S_ISDIR(in->mode) ? 8 : (blkcnt_t)in->blocks,
	        .st_atim = in->atime,
	        .st_mtim = in->mtime,
	        .st_ctim = in->ctime,
	};
}

static int read_seed(const struct ntr_snap *s, uint64_t *ret)
{
	uint8_t key[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t len;
	int r = ntr_snap_get(s, key, ntr_item_key(key, NTR_INO_META, NTR_ITEM_KV, "s:seed", 6), val, &len);

	*ret = 0;
	if (r == -ENOENT) /* a tree without a seed hashes with 0 */
		return 0;
	if (!r && (len < 9 || val[0]))
		r = -EUCLEAN;
	if (!r)
		*ret = ntr_get_le64(val + 1);
	return r;
}

/* The seed of the last trees this thread read. A root never changes, and ntr_kvitem_set lets a transaction
 * change the seed only over the empty root, which is not kept here. The store's serial tells one opening from
 * another. */
struct seed_slot {
	uint64_t serial, root, seed;
};

static int tree_seed(const struct ntr_snap *s, uint64_t *ret)
{
	static __thread struct seed_slot slots[64];
	struct seed_slot *slot = &slots[s->root % NTR_COUNT(slots)];
	uint64_t serial;
	int r;

	if (!s->root)
		return read_seed(s, ret);
	serial = ntr_store_serial(s->store);
	if (slot->root == s->root && slot->serial == serial) {
		*ret = slot->seed;
		return 0;
	}
	r = read_seed(s, ret);
	if (!r)
		*slot = (struct seed_slot){serial, s->root, *ret};
	return r;
}

int ntr_dirent_hash(const struct ntr_snap *s, const char *name, size_t n, uint64_t *ret)
{
	uint64_t seed, h;
	int r;

	if (__builtin_expect(ntr_dirent_hash_hook != NULL, 0)) {
		*ret = ntr_dirent_hash_hook(name, n);
		return 0;
	}
	r = tree_seed(s, &seed);
	if (r)
		return r;
	h = XXH3_64bits_withSeed(name, n, seed) & INT64_MAX;
	*ret = h < 3 ? h + 3 : h; /* 0 begins a listing, 1 and 2 are "." and ".." */
	return 0;
}

static int dirent_key(
        const struct ntr_snap *s, uint64_t dir, const char *name, size_t n, uint8_t *key, size_t *ret_klen)
{
	uint64_t hash;
	int r;

	if (!n || n > NTR_NAME_BYTES)
		return n ? -ENAMETOOLONG : -EINVAL;
	r = ntr_dirent_hash(s, name, n, &hash);
	if (!r)
		*ret_klen = ntr_item_key64(key, dir, NTR_ITEM_DIRENT, hash, name, n);
	return r;
}

/* value := u8 item flags=0 | u8 d_type | inode (LEB128) */
int ntr_dirent_decode(const uint8_t *val, size_t len, uint64_t *ret_ino, uint8_t *ret_dtype)
{
	if (len < 3 || val[0] || ntr_varint_get(val + 2, val + len, ret_ino) != val + len || !*ret_ino)
		return -EUCLEAN;
	*ret_dtype = val[1];
	return 0;
}

int ntr_dirent_get(const struct ntr_snap *s, uint64_t dir, const char *name, size_t n, uint64_t *ret_ino,
        uint8_t *ret_dtype)
{
	uint8_t key[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t klen, len;
	int r = dirent_key(s, dir, name, n, key, &klen);

	if (!r)
		r = ntr_snap_get(s, key, klen, val, &len);
	return r ? r : ntr_dirent_decode(val, len, ret_ino, ret_dtype);
}

int ntr_dirent_put(struct ntr_txn *t, uint64_t dir, const char *name, size_t n, uint64_t ino, uint8_t dtype)
{
	uint8_t key[NTR_KEY_MAX], val[16] = {0, dtype};
	size_t klen;
	int r = dirent_key(ntr_txn_snap(t), dir, name, n, key, &klen);

	return r ? r : ntr_txn_put(t, key, klen, val, 2 + ntr_varint_put(val + 2, ino));
}

int ntr_dirent_del(struct ntr_txn *t, uint64_t dir, const char *name, size_t n)
{
	uint8_t key[NTR_KEY_MAX];
	size_t klen;
	int r = dirent_key(ntr_txn_snap(t), dir, name, n, key, &klen);

	return r ? r : ntr_txn_del(t, key, klen);
}

void ntr_dir_iter_init(struct ntr_dir_iter *it, const struct ntr_snap *s, uint64_t dir, uint64_t from)
{
	ntr_snap_cursor_init(&it->c, s);
	it->dir = dir;
	it->started = 0;
	it->from = from;
}

void ntr_dir_iter_done(struct ntr_dir_iter *it)
{
	ntr_snap_cursor_done(&it->c);
}

static int iter_step(struct ntr_dir_iter *it)
{
	uint8_t key[NTR_KEY_MAX];

	if (it->started)
		return ntr_snap_cursor_next(&it->c);
	it->started = 1;
	return ntr_snap_cursor_seek(
	        &it->c, key, ntr_item_key64(key, it->dir, NTR_ITEM_DIRENT, it->from, NULL, 0));
}

int ntr_dir_iter_next(struct ntr_dir_iter *it, struct ntr_dirent *ret)
{
	const struct ntr_snap_cursor *c = &it->c;
	size_t n;
	int r = iter_step(it);

	if (r <= 0)
		return r;
	if (!ntr_item_is(c->key, c->klen, it->dir, NTR_ITEM_DIRENT))
		return 0;
	if (c->klen <= NTR_ITEM_KEY_HEAD + 8 || c->klen > NTR_ITEM_KEY_HEAD + 8 + NTR_NAME_BYTES)
		return -EUCLEAN;
	n = c->klen - NTR_ITEM_KEY_HEAD - 8;
	ret->hash = ntr_get_be64(c->key + NTR_ITEM_KEY_HEAD);
	ret->name_len = (uint8_t)n;
	memcpy(ret->name, c->key + NTR_ITEM_KEY_HEAD + 8, n);
	ret->name[n] = '\0';
	if (!ntr_name_ok(ret->name, n))
		return -EUCLEAN;
	r = ntr_dirent_decode(c->val, c->vlen, &ret->ino, &ret->dtype);
	return r ? r : 1;
}
