#include "file_impl.h"

#include <errno.h>

void ntr_file_build_init(struct ntr_file_build *b, struct ntr_txn *t, struct ntr_inode *in)
{
	b->t = t;
	b->in = in;
	b->group = b->blocks = b->next = 0;
	b->open = b->open_used = false;
}

/* Deletes EXTENT items of the content before in groups [from, to). */
static int forget_groups(struct ntr_file_build *b, uint64_t from, uint64_t to)
{
	uint64_t end = (b->in->size - 1) / NTR_CHUNK_SIZE / NTR_EXTENT_GROUP + 1;
	uint8_t k1[NTR_KEY_MAX], k2[NTR_KEY_MAX];
	size_t n1, n2;

	if (b->in->data_kind != NTR_DATA_EXTENTS || from >= NTR_MIN(to, end))
		return 0;
	n1 = ntr_item_key64(k1, b->in->ino, NTR_ITEM_EXTENT, from, NULL, 0);
	n2 = ntr_item_key64(k2, b->in->ino, NTR_ITEM_EXTENT, NTR_MIN(to, end), NULL, 0);
	return ntr_txn_del_range(b->t, k1, n1, k2, n2);
}

/* value := u8 NTR_ITEM_CHUNKS | LE64 ids; holes at the end are left out. */
static int write_group(struct ntr_file_build *b)
{
	uint8_t key[NTR_KEY_MAX], val[1 + 8 * NTR_EXTENT_GROUP];
	size_t n = NTR_EXTENT_GROUP;

	b->open = false;
	b->next = b->group + 1;
	if (!b->open_used)
		return forget_groups(b, b->group, b->group + 1);
	while (!b->now.id[n - 1])
		n--;
	val[0] = NTR_ITEM_CHUNKS;
	for (size_t i = 0; i < n; i++)
		ntr_put_le64(val + 1 + 8 * i, b->now.id[i]);
	return ntr_txn_put(b->t, key, ntr_item_key64(key, b->in->ino, NTR_ITEM_EXTENT, b->group, NULL, 0),
	        val, 1 + 8 * n);
}

static int load_old(struct ntr_file_build *b)
{
	memset(&b->old, 0, sizeof b->old);
	if (b->in->data_kind == NTR_DATA_EXTENTS)
		return ntr_extent_get(ntr_txn_snap(b->t), b->in->ino, b->group, &b->old);
	if (b->in->data_kind == NTR_DATA_CHUNK && !b->group)
		b->old.id[0] = b->in->chunk;
	return 0;
}

/* Makes group the one that is being filled, writing the one before and clearing those between. */
static int open_group(struct ntr_file_build *b, uint64_t group)
{
	int r = 0;

	if (b->open && b->group == group)
		return 0;
	if (b->open)
		r = write_group(b);
	if (!r)
		r = forget_groups(b, b->next, group);
	if (r)
		return r;
	b->group = b->next = group;
	b->open = true;
	b->open_used = false;
	memset(&b->now, 0, sizeof b->now);
	return load_old(b);
}

int ntr_file_build_hint(struct ntr_file_build *b, uint64_t index, uint64_t *ret)
{
	int r = open_group(b, index / NTR_EXTENT_GROUP);

	*ret = b->old.id[index % NTR_EXTENT_GROUP];
	return r;
}

int ntr_file_build_add(struct ntr_file_build *b, uint64_t index, uint64_t id, size_t len)
{
	int r = open_group(b, index / NTR_EXTENT_GROUP);

	if (r)
		return r;
	b->now.id[index % NTR_EXTENT_GROUP] = id;
	b->open_used = true;
	b->blocks += (len + 4095) / 4096 * 8;
	return 0;
}

int ntr_file_build_put(struct ntr_file_build *b, uint64_t index, const void *data, size_t len)
{
	uint64_t hint, id;
	int r = ntr_file_build_hint(b, index, &hint);

	if (!r)
		r = ntr_chunk_put(ntr_txn_chunks(b->t), data, len, hint, &id);
	return r ? r : ntr_file_build_add(b, index, id, len);
}

static void set_content(struct ntr_inode *in, enum ntr_payload kind, uint64_t size, uint64_t blocks)
{
	in->data_kind = (uint8_t)kind;
	in->size = size;
	in->blocks = blocks;
	in->chunk = 0;
	in->payload_len = 0;
}

int ntr_file_build_end(struct ntr_file_build *b, uint64_t size)
{
	int r = b->open ? write_group(b) : 0;

	if (!r)
		r = forget_groups(b, b->next, UINT64_MAX);
	if (!r)
		set_content(b->in, size ? NTR_DATA_EXTENTS : NTR_DATA_NONE, size, b->blocks);
	return r;
}

static int set_single(struct ntr_file_build *b, enum ntr_payload kind, size_t n)
{
	int r = forget_groups(b, 0, UINT64_MAX);

	if (!r)
		set_content(b->in, kind, n, (n + 4095) / 4096 * 8);
	return r;
}

int ntr_file_build_chunk(struct ntr_file_build *b, uint64_t id, size_t n)
{
	int r = set_single(b, NTR_DATA_CHUNK, n);

	if (!r)
		b->in->chunk = id;
	return r;
}

int ntr_file_build_small(struct ntr_file_build *b, const void *data, size_t n)
{
	uint64_t id, hint = 0;
	int r;

	if (n <= NTR_INODE_INLINE) {
		r = set_single(b, n ? NTR_DATA_INLINE : NTR_DATA_NONE, n);
		if (!r && n) {
			memcpy(b->in->payload, data, n);
			b->in->payload_len = (uint16_t)n;
		}
		return r;
	}
	r = ntr_file_build_hint(b, 0, &hint);
	if (!r)
		r = ntr_chunk_put(ntr_txn_chunks(b->t), data, n, hint, &id);
	return r ? r : ntr_file_build_chunk(b, id, n);
}
