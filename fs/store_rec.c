/* store_rec: the bytes of meta's records. docs/store-format.md is their specification. */
#include "inode.h"
#include "store_impl.h"

#include <errno.h>

enum { REC_FORMAT = 1 };

size_t ntr_key_u64(uint8_t *key, char type, uint64_t a)
{
	key[0] = (uint8_t)type;
	ntr_put_be64(key + 1, a);
	return 9;
}

size_t ntr_key_list(uint8_t *key, uint64_t sid, uint64_t seq)
{
	ntr_put_be64(key + 9, seq);
	return ntr_key_u64(key, 'L', sid) + 8;
}

size_t ntr_key_text(uint8_t *key, char type, const char *text)
{
	size_t n = strlen(text);

	key[0] = (uint8_t)type;
	memcpy(key + 1, text, n);
	return 1 + n;
}

size_t ntr_key_public(uint8_t *key, const uint8_t name[NTR_COMMIT_BYTES])
{
	key[0] = 'I';
	memcpy(key + 1, name, NTR_COMMIT_BYTES);
	return 1 + NTR_COMMIT_BYTES;
}

/* Reading: takes bytes off the front; short input makes `bad` stick and yields zeros. */
struct reader {
	const uint8_t *p;
	size_t n;
	bool bad;
};

static const uint8_t *take(struct reader *r, size_t n)
{
	static const uint8_t zeros[8];
	const uint8_t *p = r->p;

	if (r->n < n) {
		r->bad = true;
		return zeros;
	}
	r->p += n;
	r->n -= n;
	return p;
}

static uint8_t take8(struct reader *r)
{
	return *take(r, 1);
}

static uint16_t take16(struct reader *r)
{
	return ntr_get_le16(take(r, 2));
}

static uint32_t take32(struct reader *r)
{
	return ntr_get_le32(take(r, 4));
}

static uint64_t take64(struct reader *r)
{
	return ntr_get_le64(take(r, 8));
}

/* A u16 length and so many bytes, none of them NUL, as a C string. */
static void take_text(struct reader *r, char *ret, size_t size)
{
	size_t n = take16(r);

	ret[0] = '\0';
	if (r->n < n || n >= size || memchr(r->p, 0, n)) {
		r->bad = true;
		return;
	}
	memcpy(ret, take(r, n), n);
	ret[n] = '\0';
}

/* Format byte and flags byte: what is newer than this program reads as damage, for the store's version would
 * say so. */
static void take_format(struct reader *r)
{
	if (take8(r) != REC_FORMAT || take8(r))
		r->bad = true;
}

static int add_text(struct ntr_buf *b, const char *s)
{
	ntr_buf_le16(b, (uint16_t)strlen(s));
	return ntr_buf_str(b, s);
}

static int done(const struct reader *r)
{
	return r->bad || r->n ? -EUCLEAN : 0;
}

int ntr_rec_head(struct ntr_buf *b, const struct ntr_head *h)
{
	const uint64_t v[] = {h->root, h->commit, h->origin, h->seq, h->upper, h->base_root, h->last_upper,
	        h->inodes, h->bytes, h->xattrs, h->created_ns};

	ntr_buf_byte(b, REC_FORMAT);
	ntr_buf_byte(b, 0);
	for (size_t i = 0; i < NTR_COUNT(v); i++)
		ntr_buf_le64(b, v[i]);
	ntr_buf_le32(b, h->durability);
	add_text(b, h->name);
	if (!h->upper || !h->upper_ns)
		return add_text(b, h->wsroot);
	add_text(b, h->wsroot);
	ntr_buf_le64(b, h->upper_ns);
	return ntr_buf_add(b, h->boot, sizeof h->boot);
}

static void take_boot(struct reader *r, uint8_t ret[NTR_BOOT_BYTES])
{
	if (r->n < NTR_BOOT_BYTES) {
		r->bad = true;
		return;
	}
	memcpy(ret, take(r, NTR_BOOT_BYTES), NTR_BOOT_BYTES);
}

int ntr_rec_head_parse(const uint8_t *p, size_t n, uint64_t sid, struct ntr_head *ret)
{
	struct reader r = {p, n, false};
	uint64_t *v[] = {&ret->root, &ret->commit, &ret->origin, &ret->seq, &ret->upper, &ret->base_root,
	        &ret->last_upper, &ret->inodes, &ret->bytes, &ret->xattrs, &ret->created_ns};

	ret->sid = sid;
	take_format(&r);
	for (size_t i = 0; i < NTR_COUNT(v); i++)
		*v[i] = take64(&r);
	ret->durability = take32(&r);
	take_text(&r, ret->name, sizeof ret->name);
	take_text(&r, ret->wsroot, sizeof ret->wsroot);
	ret->upper_ns = 0;
	memset(ret->boot, 0, sizeof ret->boot);
	if (ret->upper && r.n) {
		ret->upper_ns = take64(&r);
		take_boot(&r, ret->boot);
	}
	return done(&r);
}

int ntr_rec_commit(struct ntr_buf *b, const struct ntr_commit *c)
{
	const uint64_t v[] = {c->root, c->sid, c->seq, c->time_ns, c->inodes, c->bytes, c->xattrs,
	        c->stats.created, c->stats.modified, c->stats.deleted, c->stats.bytes_stored};
	size_t len = strlen(c->desc);

	ntr_buf_byte(b, REC_FORMAT);
	ntr_buf_byte(b, 0);
	for (size_t i = 0; i < NTR_COUNT(v); i++)
		ntr_buf_le64(b, v[i]);
	ntr_buf_add(b, c->name, NTR_COMMIT_BYTES);
	ntr_buf_byte(b, (uint8_t)c->nparents);
	for (int i = 0; i < c->nparents; i++)
		ntr_buf_le64(b, c->parent[i]);
	ntr_buf_le32(b, (uint32_t)len);
	return ntr_buf_add(b, c->desc, len);
}

static void to_hex(const uint8_t *p, size_t n, char *ret)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		*ret++ = digits[p[i] >> 4];
		*ret++ = digits[p[i] & 15];
	}
	*ret = '\0';
}

int ntr_rec_commit_parse(const uint8_t *p, size_t n, uint64_t id, struct ntr_commit *ret)
{
	struct reader r = {p, n, false};
	uint64_t *v[] = {&ret->root, &ret->sid, &ret->seq, &ret->time_ns, &ret->inodes, &ret->bytes,
	        &ret->xattrs, &ret->stats.created, &ret->stats.modified, &ret->stats.deleted,
	        &ret->stats.bytes_stored};
	size_t len;

	*ret = (struct ntr_commit){.id = id};
	take_format(&r);
	for (size_t i = 0; i < NTR_COUNT(v); i++)
		*v[i] = take64(&r);
	if (r.n < NTR_COMMIT_BYTES)
		return -EUCLEAN;
	memcpy(ret->name, take(&r, NTR_COMMIT_BYTES), NTR_COMMIT_BYTES);
	to_hex(ret->name, NTR_COMMIT_BYTES, ret->hex);
	ret->nparents = take8(&r);
	if (ret->nparents > (int)NTR_COUNT(ret->parent))
		return -EUCLEAN;
	for (int i = 0; i < ret->nparents; i++)
		ret->parent[i] = take64(&r);
	len = take32(&r);
	if (r.bad || r.n != len || memchr(r.p, 0, len))
		return -EUCLEAN;
	ret->desc = malloc(len + 1);
	if (!ret->desc)
		return -ENOMEM;
	memcpy(ret->desc, r.p, len);
	ret->desc[len] = '\0';
	return 0;
}

int ntr_rec_list(struct ntr_buf *b, const struct ntr_list_entry *en)
{
	ntr_buf_byte(b, REC_FORMAT);
	ntr_buf_byte(b, 0);
	ntr_buf_byte(b, (uint8_t)en->kind);
	ntr_buf_le64(b, en->commit);
	ntr_buf_le64(b, en->from);
	return ntr_buf_le64(b, en->time_ns);
}

int ntr_rec_list_parse(const uint8_t *p, size_t n, uint64_t seq, struct ntr_list_entry *ret)
{
	struct reader r = {p, n, false};
	unsigned kind;

	take_format(&r);
	kind = take8(&r);
	ret->seq = seq;
	ret->commit = take64(&r);
	ret->from = take64(&r);
	ret->time_ns = take64(&r);
	if (kind < NTR_STEP_NEW || kind > NTR_STEP_FORK)
		return -EUCLEAN;
	ret->kind = (enum ntr_step)kind;
	return done(&r);
}

int ntr_rec_super(struct ntr_buf *b, const struct ntr_store *s)
{
	ntr_buf_le32(b, NTR_STORE_VERSION);
	ntr_buf_le32(b, 0);
	ntr_buf_le32(b, NTR_CHUNK_LOG2);
	ntr_buf_le32(b, NTR_NODE_TARGET);
	ntr_buf_le32(b, NTR_INODE_INLINE);
	ntr_buf_add(b, s->uuid, sizeof s->uuid);
	return ntr_buf_add(b, s->secret, sizeof s->secret);
}

static int too_new(struct ntr_err *e, const char *path, const char *what, uint32_t has, uint32_t knows)
{
	ntr_err_set(e, -ENOTSUP, "open store '%s'", path);
	ntr_err_why(e, "it has %s %u, and this ntr (%s) knows %u", what, has, NTR_VERSION, knows);
	ntr_err_todo(e, "use a newer ntr; nothing was changed");
	return -ENOTSUP;
}

int ntr_rec_super_parse(const uint8_t *p, size_t n, struct ntr_store *s, struct ntr_err *e)
{
	struct reader r = {p, n, false};
	uint32_t version = take32(&r), flags = take32(&r), log2 = take32(&r);

	if (!r.bad && version != NTR_STORE_VERSION)
		return too_new(e, s->path, "format version", version, NTR_STORE_VERSION);
	if (!r.bad && flags)
		return too_new(e, s->path, "format flags", flags, 0);
	if (!r.bad && log2 != NTR_CHUNK_LOG2)
		return too_new(e, s->path, "chunk size 2 to the", log2, NTR_CHUNK_LOG2);
	take32(&r); /* node target and inline size: how trees are built, not how they are read */
	take32(&r);
	if (r.bad || r.n != sizeof s->uuid + sizeof s->secret) {
		ntr_err_set(e, -EUCLEAN, "open store '%s'", s->path);
		ntr_err_why(e, "its format record is damaged (%zu bytes)", n);
		ntr_err_todo(e, "restore the store from a backup");
		return -EUCLEAN;
	}
	memcpy(s->uuid, take(&r, sizeof s->uuid), sizeof s->uuid);
	memcpy(s->secret, take(&r, sizeof s->secret), sizeof s->secret);
	return 0;
}
