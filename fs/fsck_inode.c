/* The rules of one tree: what items look like, and how records, entries, links and extents fit together. */
#include "cache.h"
#include "file_impl.h"
#include "fsck_impl.h"
#include "inode_impl.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>

enum { HEAD64 = NTR_ITEM_KEY_HEAD + 8 };

/* Takes "there is no such thing" as an answer and passes what is a failure to look. */
static int answer(int r, bool *ret_there)
{
	*ret_there = !r;
	return r == -ENOENT ? 0 : r;
}

static int record_get(const struct ntr_snap *s, uint64_t ino, struct ntr_inode *ret, bool *ret_there)
{
	if (!s->root) {
		*ret_there = false;
		return 0;
	}
	return answer(ntr_inode_get(s, ino, ret), ret_there);
}

/* --- items by themselves --- */

static bool key_ok(const uint8_t *key, size_t klen)
{
	bool meta = ntr_get_be64(key) == NTR_INO_META;
	size_t cache_key;
	unsigned part;

	if (!ntr_get_be64(key))
		return false;
	switch (key[8]) {
	case NTR_ITEM_INODE:
		return klen == NTR_ITEM_KEY_HEAD && !meta;
	case NTR_ITEM_XATTR:
		return klen > NTR_ITEM_KEY_HEAD && klen <= NTR_ITEM_KEY_HEAD + NTR_NAME_BYTES && !meta;
	case NTR_ITEM_DIRENT:
	case NTR_ITEM_LINK:
		return klen > HEAD64 && klen <= HEAD64 + NTR_NAME_BYTES && !meta &&
		       ntr_name_ok((const char *)key + HEAD64, klen - HEAD64);
	case NTR_ITEM_EXTENT:
		return klen == HEAD64 && !meta;
	case NTR_ITEM_KV:
		return klen > NTR_ITEM_KEY_HEAD && meta;
	case NTR_ITEM_CACHE:
		return meta && ntr_cacheitem_suffix_ok(
		                       key + NTR_ITEM_KEY_HEAD, klen - NTR_ITEM_KEY_HEAD, &part, &cache_key);
	default:
		return false;
	}
}

/* A value of XATTR, KV or CACHE that is in chunks: as many as its length needs, each as long as it must be.
 */
static bool value_chunks_ok(const struct ntr_fsck_run *k, const uint8_t *val, const uint8_t *ids, size_t n)
{
	uint64_t len = ntr_get_le64(val + 1);

	if (n > NTR_ITEM_CHUNKS_MAX || (len + NTR_CHUNK_SIZE - 1) / NTR_CHUNK_SIZE != n)
		return false;
	for (size_t i = 0; i < n; i++) {
		uint32_t has = ntr_fsck_lens_get(&k->lens, ntr_get_le64(ids + 8 * i));
		uint64_t want = NTR_MIN(len - i * NTR_CHUNK_SIZE, (uint64_t)NTR_CHUNK_SIZE);

		if (has && has != want) /* a missing one is reported with its node */
			return false;
	}
	return true;
}

static bool value_ok(
        const struct ntr_fsck_run *k, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen)
{
	struct ntr_extent ex;
	const uint8_t *ids;
	size_t n;

	if (ntr_item_chunks(key, klen, val, vlen, &ids, &n))
		return false;
	switch (key[8]) {
	case NTR_ITEM_XATTR:
	case NTR_ITEM_KV:
	case NTR_ITEM_CACHE:
		return !val[0] || value_chunks_ok(k, val, ids, n);
	case NTR_ITEM_LINK:
		return vlen == 1 && !val[0];
	case NTR_ITEM_EXTENT:
		return !ntr_extent_decode(val, vlen, &ex);
	default: /* records and entries are looked at with what they belong to */
		return true;
	}
}

int ntr_fsck_item(struct ntr_fsck_tree *t, const uint8_t *key, size_t klen, const uint8_t *val, size_t vlen)
{
	static const char *const kinds[] = {
	        "", "record", "attribute", "entry", "extent", "link", "key-value item", "cache item"};

	if (klen < NTR_ITEM_KEY_HEAD || !key_ok(key, klen)) {
		ntr_fsck_problem(t->k, "%s: inode %" PRIu64 ": an item of unknown form", t->name, t->ino);
		t->stray = true;
	} else if (!value_ok(t->k, key, klen, val, vlen)) {
		ntr_fsck_problem(t->k, "%s: inode %" PRIu64 ": a damaged %s", t->name, t->ino, kinds[key[8]]);
	}
	return 0;
}

int ntr_fsck_entry_parse(const uint8_t *val, size_t vlen, uint64_t *ret_ino, uint8_t *ret_dtype)
{
	if (vlen < 3 || val[0] || ntr_varint_get(val + 2, val + vlen, ret_ino) != val + vlen || !*ret_ino)
		return -EUCLEAN;
	*ret_dtype = val[1];
	return 0;
}

/* --- entries --- */

static int has_link(
        const struct ntr_snap *s, uint64_t ino, uint64_t dir, const char *name, size_t n, bool *ret)
{
	uint8_t key[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t len;

	return answer(
	        ntr_snap_get(s, key, ntr_item_key64(key, ino, NTR_ITEM_LINK, dir, name, n), val, &len), ret);
}

static bool own_name(const struct ntr_inode *in, uint64_t dir, const char *name, size_t n)
{
	return in->parent == dir && in->name_len == n && !memcmp(in->name, name, n);
}

static int target_check(
        struct ntr_fsck_tree *t, uint64_t dir, const char *name, size_t n, uint64_t ino, uint8_t dtype)
{
	struct ntr_inode in;
	bool there, known;
	int r = record_get(&t->now, ino, &in, &there);

	if (r == -EUCLEAN)
		return 0; /* reported with the record */
	if (r)
		return r;
	if (!there || dtype != IFTODT(in.mode)) {
		ntr_fsck_problem(t->k,
		        "%s: entry '%.*s' of directory %" PRIu64 " leads to inode %" PRIu64 ", which %s",
		        t->name, (int)n, name, dir, ino, there ? "has another type" : "does not exist");
		return 0;
	}
	known = own_name(&in, dir, name, n);
	if (!known && !S_ISDIR(in.mode))
		r = has_link(&t->now, ino, dir, name, n, &known);
	if (!r && !known)
		ntr_fsck_problem(t->k,
		        "%s: entry '%.*s' of directory %" PRIu64 " leads to inode %" PRIu64
		        ", which does not know this name",
		        t->name, (int)n, name, dir, ino);
	return r;
}

int ntr_fsck_entry(struct ntr_fsck_tree *t, uint64_t dir, uint64_t hash, const char *name, size_t n,
        const uint8_t *val, size_t vlen)
{
	uint64_t ino, want;
	uint8_t dtype;
	int r;

	if (ntr_fsck_entry_parse(val, vlen, &ino, &dtype)) {
		ntr_fsck_problem(t->k, "%s: entry '%.*s' of directory %" PRIu64 " is damaged", t->name,
		        (int)n, name, dir);
		return 0;
	}
	r = ntr_dirent_hash(&t->now, name, n, &want);
	if (r)
		return r;
	if (hash != want)
		ntr_fsck_problem(t->k,
		        "%s: entry '%.*s' of directory %" PRIu64 " stands where nobody looks for it", t->name,
		        (int)n, name, dir);
	return target_check(t, dir, name, n, ino, dtype);
}

int ntr_fsck_name_left(struct ntr_fsck_tree *t, uint64_t dir, const char *name, size_t n)
{
	uint64_t ino;
	uint8_t dtype;
	bool there;
	int r = n && n <= NTR_NAME_BYTES ? answer(ntr_dirent_get(&t->now, dir, name, n, &ino, &dtype), &there)
	                                 : -EUCLEAN;

	if (r)
		return r == -EUCLEAN ? 0 : r; /* reported with the item */
	return there ? target_check(t, dir, name, n, ino, dtype) : 0;
}

/* --- names of an object --- */

static int name_leads_to(
        struct ntr_fsck_tree *t, const struct ntr_inode *in, uint64_t dir, const char *name, size_t n)
{
	uint64_t ino = 0;
	uint8_t dtype = 0;
	bool there = false;
	int r = n ? answer(ntr_dirent_get(&t->now, dir, name, n, &ino, &dtype), &there) : 0;

	if (r == -EUCLEAN)
		return 0; /* reported with the entry */
	if (!r && (!n || !there || ino != in->ino || dtype != IFTODT(in->mode)))
		ntr_fsck_problem(t->k,
		        "%s: inode %" PRIu64 " has the name '%.*s' in directory %" PRIu64
		        ", which does not lead to it",
		        t->name, in->ino, (int)n, name, dir);
	return r;
}

/* Every LINK item leads back; *ret_n counts them. */
static int links_check(struct ntr_fsck_tree *t, const struct ntr_inode *in, uint64_t *ret_n)
{
	struct ntr_snap_cursor c;
	uint8_t key[NTR_KEY_MAX];
	int r;

	*ret_n = 0;
	ntr_snap_cursor_init(&c, &t->now);
	for (r = ntr_snap_cursor_seek(&c, key, ntr_item_key(key, in->ino, NTR_ITEM_LINK, NULL, 0)); r > 0;
	        r = ntr_snap_cursor_next(&c)) {
		if (!ntr_item_is(c.key, c.klen, in->ino, NTR_ITEM_LINK) || c.klen <= HEAD64)
			break;
		++*ret_n;
		r = name_leads_to(t, in, ntr_get_be64(c.key + NTR_ITEM_KEY_HEAD),
		        (const char *)c.key + HEAD64, c.klen - HEAD64);
		if (r)
			break;
	}
	ntr_snap_cursor_done(&c);
	return r < 0 ? r : 0;
}

static int names_check(struct ntr_fsck_tree *t, const struct ntr_inode *in)
{
	bool dir = S_ISDIR(in->mode);
	uint64_t links;
	int r = links_check(t, in, &links);

	if (r)
		return r;
	if (!(in->flags & NTR_INODE_HAS_LINKS) != !links)
		ntr_fsck_problem(
		        t->k, "%s: inode %" PRIu64 ": its flag for hard links is wrong", t->name, in->ino);
	if (dir ? links != 0 : in->nlink != links + 1)
		ntr_fsck_problem(t->k,
		        "%s: inode %" PRIu64 ": its link count is %u, and it has %" PRIu64 " names", t->name,
		        in->ino, in->nlink, links + 1);
	if (in->ino != NTR_INO_ROOT)
		return name_leads_to(t, in, in->parent, in->name, in->name_len);
	if (!dir || in->parent != NTR_INO_ROOT || in->name_len)
		ntr_fsck_problem(t->k, "%s: the root directory's record is wrong", t->name);
	return 0;
}

/* --- content --- */

/* The chunks of one EXTENT item against the file's size. */
static bool extent_fits(
        const struct ntr_fsck_run *k, const struct ntr_inode *in, uint64_t group, const struct ntr_extent *ex)
{
	uint64_t chunks = (in->size + NTR_CHUNK_SIZE - 1) / NTR_CHUNK_SIZE;

	if (group >= (UINT64_C(1) << NTR_SIZE_MAX_LOG2) / NTR_CHUNK_SIZE / NTR_EXTENT_GROUP)
		return false;
	for (size_t i = 0; i < NTR_EXTENT_GROUP; i++) {
		uint64_t at = group * NTR_EXTENT_GROUP + i;
		uint32_t has = ntr_fsck_lens_get(&k->lens, ex->id[i]);

		if (ex->id[i] && at >= chunks)
			return false;
		if (has && has != NTR_MIN(in->size - at * NTR_CHUNK_SIZE, (uint64_t)NTR_CHUNK_SIZE))
			return false;
	}
	return true;
}

static int extents_check(struct ntr_fsck_tree *t, const struct ntr_inode *in)
{
	struct ntr_snap_cursor c;
	uint8_t key[NTR_KEY_MAX];
	bool wrong = false;
	int r;

	ntr_snap_cursor_init(&c, &t->now);
	for (r = ntr_snap_cursor_seek(&c, key, ntr_item_key(key, in->ino, NTR_ITEM_EXTENT, NULL, 0)); r > 0;
	        r = ntr_snap_cursor_next(&c)) {
		struct ntr_extent ex;

		if (!ntr_item_is(c.key, c.klen, in->ino, NTR_ITEM_EXTENT))
			break;
		if (in->data_kind != NTR_DATA_EXTENTS)
			wrong = true;
		else if (c.klen == HEAD64 && !ntr_extent_decode(c.val, c.vlen, &ex))
			wrong |= !extent_fits(t->k, in, ntr_get_be64(c.key + NTR_ITEM_KEY_HEAD), &ex);
	}
	ntr_snap_cursor_done(&c);
	if (wrong)
		ntr_fsck_problem(t->k,
		        "%s: inode %" PRIu64 ": its content does not fit its size (%" PRIu64 ")", t->name,
		        in->ino, in->size);
	return r < 0 ? r : 0;
}

static int data_check(struct ntr_fsck_tree *t, const struct ntr_inode *in)
{
	uint32_t has = in->data_kind == NTR_DATA_CHUNK ? ntr_fsck_lens_get(&t->k->lens, in->chunk) : 0;

	if (has && has != in->size)
		ntr_fsck_problem(t->k, "%s: inode %" PRIu64 ": its chunk has %u bytes, its size is %" PRIu64,
		        t->name, in->ino, has, in->size);
	return extents_check(t, in);
}

/* --- objects --- */

/* Does ino have an item of this type (0: of any)? */
static int has_item(const struct ntr_snap *s, uint64_t ino, uint8_t type, bool *ret)
{
	struct ntr_snap_cursor c;
	uint8_t key[NTR_KEY_MAX];
	int r;

	ntr_snap_cursor_init(&c, s);
	r = ntr_snap_cursor_seek(&c, key, ntr_item_key(key, ino, type, NULL, 0));
	*ret = r > 0 && c.klen >= 8 && ntr_get_be64(c.key) == ino &&
	       (!type || ntr_item_is(c.key, c.klen, ino, type));
	ntr_snap_cursor_done(&c);
	return r < 0 ? r : 0;
}

/* From a directory up to the root: each step's parent exists and is a directory, and nothing comes twice.
 * Whatever is passed needs no second look. */
static int rooted_check(struct ntr_fsck_tree *t, uint64_t dir)
{
	uint64_t ino = dir;
	const char *wrong = NULL;
	int r = 0;

	while (!r && !wrong && ino != NTR_INO_ROOT && !ntr_fsck_bits_test(&t->rooted, ino)) {
		struct ntr_inode in;
		bool there;

		if (ino >= ntr_ids_peek(t->k->s->ids, NTR_ID_INODE))
			break; /* reported with its record, or as the parent that does not have this name */
		r = ntr_fsck_bits_add(&t->rooted, ino);
		if (!r)
			r = ntr_fsck_bits_add(&t->path, ino);
		if (!r)
			r = record_get(&t->now, ino, &in, &there);
		if (r)
			break;
		if (!there || !S_ISDIR(in.mode))
			wrong = "lies in something that is no directory";
		else if (ntr_fsck_bits_test(&t->path, in.parent))
			wrong = "lies in itself";
		ino = in.parent;
	}
	ntr_fsck_bits_done(&t->path);
	if (wrong)
		ntr_fsck_problem(t->k, "%s: directory %" PRIu64 " %s", t->name, dir, wrong);
	return r == -EUCLEAN ? 0 : r;
}

static int dir_check(struct ntr_fsck_tree *t, const struct ntr_inode *in, const struct ntr_inode *old)
{
	int64_t want = (old ? (int64_t)old->nlink : 2) + t->subdirs;

	if (in->nlink != want)
		ntr_fsck_problem(t->k, "%s: directory %" PRIu64 ": its link count is %u instead of %" PRId64,
		        t->name, in->ino, in->nlink, want);
	return old && old->parent == in->parent ? 0 : rooted_check(t, in->ino);
}

static int numbers_check(struct ntr_fsck_tree *t, const struct ntr_inode *in)
{
	struct ntr_ids *ids = t->k->s->ids;

	if (in->ino >= ntr_ids_peek(ids, NTR_ID_INODE) ||
	        (in->ino < NTR_INO_FIRST && in->ino != NTR_INO_ROOT))
		ntr_fsck_problem(
		        t->k, "%s: inode %" PRIu64 ": its number was never given out", t->name, in->ino);
	if (in->version >= ntr_ids_peek(ids, NTR_ID_VERSION))
		ntr_fsck_problem(
		        t->k, "%s: inode %" PRIu64 ": its version was never given out", t->name, in->ino);
	return 0;
}

static int object_check(struct ntr_fsck_tree *t, const struct ntr_inode *in, const struct ntr_inode *old)
{
	bool xattr, entries;
	int r = has_item(&t->now, in->ino, NTR_ITEM_XATTR, &xattr);

	if (!r)
		r = has_item(&t->now, in->ino, NTR_ITEM_DIRENT, &entries);
	if (r)
		return r;
	if (!(in->flags & NTR_INODE_HAS_XATTR) != !xattr)
		ntr_fsck_problem(t->k, "%s: inode %" PRIu64 ": its flag for extended attributes is wrong",
		        t->name, in->ino);
	if (entries && !S_ISDIR(in->mode))
		ntr_fsck_problem(
		        t->k, "%s: inode %" PRIu64 " has entries and is no directory", t->name, in->ino);
	numbers_check(t, in);
	r = names_check(t, in);
	if (!r)
		r = data_check(t, in);
	return r || !S_ISDIR(in->mode) ? r : dir_check(t, in, old && S_ISDIR(old->mode) ? old : NULL);
}

static int no_record(struct ntr_fsck_tree *t, uint64_t ino)
{
	bool any;
	int r = has_item(&t->now, ino, 0, &any);

	if (!r && ino == NTR_INO_ROOT)
		ntr_fsck_problem(t->k, "%s: there is no root directory", t->name);
	else if (!r && any)
		ntr_fsck_problem(t->k, "%s: inode %" PRIu64 " has items and no record", t->name, ino);
	return r;
}

/* 0 with *ret_there false also when a damaged record was reported. */
static int record_read(
        struct ntr_fsck_tree *t, uint64_t ino, struct ntr_inode *ret, bool *ret_there, bool *ret_damaged)
{
	uint8_t key[NTR_KEY_MAX], val[NTR_VALUE_MAX];
	size_t len;
	int r = answer(ntr_snap_get(&t->now, key, ntr_item_key(key, ino, NTR_ITEM_INODE, NULL, 0), val, &len),
	        ret_there);

	*ret_damaged = false;
	if (r || !*ret_there || !ntr_inode_decode(ino, val, len, ret))
		return r;
	ntr_fsck_problem(t->k, "%s: inode %" PRIu64 ": its record is damaged", t->name, ino);
	*ret_damaged = true;
	*ret_there = false;
	return 0;
}

int ntr_fsck_inode(struct ntr_fsck_tree *t, uint64_t ino)
{
	struct ntr_inode in, old;
	bool there, damaged, had = false;
	int r;

	if (ino == NTR_INO_META || t->stray)
		return 0;
	r = record_read(t, ino, &in, &there, &damaged);
	if (r || damaged)
		return r;
	r = record_get(&t->base, ino, &old, &had);
	if (r == -EUCLEAN) /* its damage was reported with the tree before */
		return 0;
	if (!r && had && (!there || !own_name(&in, old.parent, old.name, old.name_len)))
		r = ntr_fsck_name_left(t, old.parent, old.name, old.name_len);
	if (r)
		return r;
	return there ? object_check(t, &in, had ? &old : NULL) : no_record(t, ino);
}

int ntr_fsck_inode_left(struct ntr_fsck_tree *t, uint64_t ino)
{
	struct ntr_inode in;
	bool there, damaged;
	int r = record_read(t, ino, &in, &there, &damaged);

	if (r || damaged)
		return r;
	return there ? names_check(t, &in) : no_record(t, ino);
}
