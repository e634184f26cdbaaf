/* Chunks and their index. The chunks are read once, in the order in which they lie on disk; each looks up its
 * own index entry, and marks itself when the entry names it. So the index, which is in hash order, needs no
 * chunk to be read again: an entry is right when the chunk that it names is marked, and no other entry names
 * it too. */
#include "chunk_impl.h"
#include "fsck_impl.h"

#include <errno.h>
#include <inttypes.h>

struct scan {
	struct ntr_fsck_run *k;
	struct ntr_fsck_bits indexed;
	uint64_t next; /* every chunk below it was looked at */
};

static bool unreadable(int r)
{
	return r == -EUCLEAN || r == -EIO;
}

static const char *chunk_check(struct scan *s, uint64_t id, const uint8_t *val, size_t len, uint8_t hash[16])
{
	if (len <= NTR_CHUNK_HEAD || len > NTR_CHUNK_HEAD + NTR_CHUNK_SIZE || val[0] != NTR_CHUNK_FORMAT)
		return "is no chunk";
	ntr_chunk_hash(s->k->s->chunks, val + NTR_CHUNK_HEAD, len - NTR_CHUNK_HEAD, hash);
	return ntr_get_le64(val + 1) == ntr_chunk_check(hash, id) ? NULL : "fails its checksum";
}

/* 1: the index entry of this content names this chunk; 0: another, or there is none; negative errno. */
static int index_names(struct scan *s, const uint8_t hash[16], uint64_t id)
{
	struct ntr_kv_pin pin;
	int r = ntr_kv_get(s->k->s->kv, NTR_CF_CIDX, hash, 16, &pin);

	if (r)
		return r == -ENOENT || unreadable(r) ? 0 : r;
	r = pin.len == 8 && ntr_get_le64(pin.data) == id;
	ntr_kv_unpin(&pin);
	return r;
}

static int chunk_found(struct scan *s, uint64_t id, const uint8_t *val, size_t len)
{
	uint8_t hash[16];
	const char *wrong = chunk_check(s, id, val, len, hash);
	int r;

	s->next = id + 1;
	if (id >= s->k->chunk_limit)
		return 0;
	if (wrong) {
		ntr_fsck_problem(s->k, "chunk %" PRIu64 " %s", id, wrong);
		return 0;
	}
	s->k->f->chunks++;
	s->k->f->bytes += len - NTR_CHUNK_HEAD;
	if (s->k->f->chunks % 4096 == 0)
		ntr_fsck_progress(s->k, "chunks", s->k->f->chunks, 0);
	r = ntr_fsck_lens_put(&s->k->lens, id, (uint32_t)(len - NTR_CHUNK_HEAD));
	if (!r)
		r = index_names(s, hash, id);
	return r > 0 ? ntr_fsck_bits_add(&s->indexed, id) : r;
}

/* One chunk by itself, where the scan cannot go. */
static int chunk_probe(struct scan *s, uint64_t id)
{
	struct ntr_kv_pin pin;
	uint8_t key[8];
	int r;

	ntr_put_be64(key, id);
	r = ntr_kv_get(s->k->s->kv, NTR_CF_CHUNK, key, sizeof(key), &pin);
	if (unreadable(r))
		ntr_fsck_problem(s->k, "chunk %" PRIu64 " cannot be read, if there is one", id);
	if (r)
		return r == -ENOENT || unreadable(r) ? 0 : r;
	r = chunk_found(s, id, pin.data, pin.len);
	ntr_kv_unpin(&pin);
	return r;
}

/* Looks at every chunk from s->next on that iteration reaches. 0: that was all of them. */
static int scan_run(struct scan *s)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it =
	        ntr_kv_iter_new(s->k->s->kv, NTR_CF_CHUNK, false);
	const uint8_t *key, *val;
	size_t klen, vlen;
	uint8_t seek[8];
	int r = 0;

	if (!it)
		return -ENOMEM;
	ntr_put_be64(seek, s->next);
	for (ntr_kv_iter_seek(it, seek, sizeof(seek)); !r && ntr_kv_iter_valid(it, &key, &klen, &val, &vlen);
	        ntr_kv_iter_next(it)) {
		if (klen == 8)
			r = chunk_found(s, ntr_get_be64(key), val, vlen);
		else
			ntr_fsck_problem(s->k, "a chunk without a number");
	}
	return r ? r : ntr_kv_iter_error(it);
}

/* Iteration fails at s->next: the first place found, in growing steps, from which it works again. */
static int scan_resume(struct scan *s, uint64_t *ret)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it =
	        ntr_kv_iter_new(s->k->s->kv, NTR_CF_CHUNK, false);
	uint64_t step = 1;
	uint8_t seek[8];

	if (!it)
		return -ENOMEM;
	for (*ret = s->next + 1; *ret < s->k->chunk_limit; *ret += step) {
		ntr_put_be64(seek, *ret);
		ntr_kv_iter_seek(it, seek, sizeof(seek));
		if (ntr_kv_iter_valid(it, NULL, NULL, NULL, NULL) || !ntr_kv_iter_error(it))
			return 0;
		step = NTR_MIN(step * 2, (uint64_t)4096);
	}
	return 0;
}

/* A damaged block ends a run. The chunks up to where the next one begins are tried one by one. */
static int scan_all(struct scan *s)
{
	for (;;) {
		uint64_t resume;
		int r = scan_run(s);

		if (!unreadable(r))
			return r;
		r = scan_resume(s, &resume);
		for (uint64_t id = s->next; !r && id < resume; id++)
			r = chunk_probe(s, id);
		if (r)
			return r;
		s->next = resume;
	}
}

static int index_entry(
        struct scan *s, struct ntr_fsck_bits *seen, const uint8_t *val, size_t klen, size_t vlen)
{
	uint64_t id = klen == 16 && vlen == 8 ? ntr_get_le64(val) : 0;

	if (id >= s->k->chunk_limit)
		return 0;
	if (!id)
		ntr_fsck_problem(s->k, "an entry of the chunk index is damaged");
	else if (!ntr_fsck_bits_test(&s->indexed, id) || ntr_fsck_bits_test(seen, id))
		ntr_fsck_problem(s->k,
		        "the chunk index names chunk %" PRIu64 " for content that it does not have", id);
	else
		return ntr_fsck_bits_add(seen, id);
	return 0;
}

static int index_scan(struct scan *s)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(s->k->s->kv, NTR_CF_CIDX, false);
	ntr_auto(ntr_fsck_bits_done) struct ntr_fsck_bits seen = {0};
	const uint8_t *key, *val;
	size_t klen, vlen;
	uint64_t n = 0;
	int r = 0;

	if (!it)
		return -ENOMEM;
	for (ntr_kv_iter_seek(it, "", 0); !r && ntr_kv_iter_valid(it, &key, &klen, &val, &vlen);
	        ntr_kv_iter_next(it)) {
		r = index_entry(s, &seen, val, klen, vlen);
		if (++n % 65536 == 0)
			ntr_fsck_progress(s->k, "index", n, 0);
	}
	if (!r && ntr_kv_iter_error(it))
		ntr_fsck_problem(s->k,
		        "chunk index: the database cannot read all of it; equal content is stored again");
	ntr_fsck_progress(s->k, "index", n, n);
	return r;
}

int ntr_fsck_chunks(struct ntr_fsck_run *k)
{
	struct scan s = {.k = k, .next = 1};
	int r;

	k->chunk_limit = ntr_ids_peek(k->s->ids, NTR_ID_CHUNK);
	r = scan_all(&s);
	ntr_fsck_progress(k, "chunks", k->f->chunks, k->f->chunks);
	if (!r)
		r = index_scan(&s);
	ntr_fsck_bits_done(&s.indexed);
	return r;
}
