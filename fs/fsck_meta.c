/* Records: one pass over meta in key order, from one snapshot. Letters come in the order A C G H I L N S T,
 * so that commits are known when heads refer to them, and both when lists and names do. */
#include "fsck_impl.h"
#include "../base/json.h"

#include <errno.h>
#include <inttypes.h>

struct record {
	const uint8_t *key, *val;
	size_t klen, vlen;
};

static int grow(void **p, size_t *cap, size_t n, size_t size)
{
	size_t bigger = *cap ? *cap * 2 : 64;
	void *q;

	if (n < *cap)
		return 0;
	q = reallocarray(*p, bigger, size);
	if (!q)
		return -ENOMEM;
	*p = q;
	*cap = bigger;
	return 0;
}

static bool exists(struct ntr_fsck_run *k, uint64_t commit)
{
	return ntr_fsck_commit_find(k, commit) != NULL;
}

static void commit_check(struct ntr_fsck_run *k, const struct ntr_commit *c)
{
	json_t *desc = json_loads(c->desc, 0, NULL);

	if (!json_is_object(desc))
		ntr_fsck_problem(k, "commit %.12s: its description is no JSON object", c->hex);
	json_decref(desc);
	if (!c->root)
		ntr_fsck_problem(k, "commit %.12s: it has no tree", c->hex);
	if (!c->sid || c->sid >= ntr_ids_peek(k->s->ids, NTR_ID_SESSION))
		ntr_fsck_problem(
		        k, "commit %.12s: session number %" PRIu64 " was never given out", c->hex, c->sid);
	for (int i = 0; i < c->nparents; i++)
		if (c->parent[i] >= c->id || !exists(k, c->parent[i]))
			ntr_fsck_problem(k, "commit %.12s: its parent, number %" PRIu64 ", is missing",
			        c->hex, c->parent[i]);
}

static int commit_record(struct ntr_fsck_run *k, const struct record *rec)
{
	uint64_t id = rec->klen == 9 ? ntr_get_be64(rec->key + 1) : 0;
	struct ntr_commit c;
	int r = id ? ntr_rec_commit_parse(rec->val, rec->vlen, id, &c) : -EUCLEAN;

	if (r == -EUCLEAN) {
		ntr_fsck_problem(k, "commit number %" PRIu64 ": its record is damaged; it is lost", id);
		return 0;
	}
	if (!r)
		r = grow((void **)&k->c, &k->c_cap, k->nc, sizeof(*k->c));
	if (!r) {
		commit_check(k, &c);
		k->c[k->nc] = (struct ntr_fsck_commit){.id = id,
		        .root = c.root,
		        .parent = c.nparents ? c.parent[0] : 0,
		        .sid = c.sid,
		        .seq = c.seq,
		        .inodes = c.inodes,
		        .bytes = c.bytes,
		        .xattrs = c.xattrs};
		memcpy(k->c[k->nc++].name, c.name, NTR_COMMIT_BYTES);
		k->f->commits++;
		ntr_commit_done(&c);
	}
	return r;
}

static void head_check(struct ntr_fsck_run *k, const struct ntr_head *h)
{
	const struct ntr_fsck_commit *c = ntr_fsck_commit_find(k, h->commit);

	if (ntr_session_name_check(h->name, NULL))
		ntr_fsck_problem(k, "session number %" PRIu64 ": its name is none", h->sid);
	if (!c)
		ntr_fsck_problem(k, "session '%s': its head, commit number %" PRIu64 ", is missing", h->name,
		        h->commit);
	else if (c->root != h->root || c->inodes != h->inodes || c->bytes != h->bytes ||
	         c->xattrs != h->xattrs)
		ntr_fsck_problem(
		        k, "session '%s': its head's tree or counters are not those of the commit", h->name);
	if (h->origin && !exists(k, h->origin))
		ntr_fsck_problem(k, "session '%s': its origin, commit number %" PRIu64 ", is missing",
		        h->name, h->origin);
	if (h->upper > h->last_upper || (h->upper && !h->base_root))
		ntr_fsck_problem(k, "session '%s': its folder of changes is recorded wrongly", h->name);
}

static int head_record(struct ntr_fsck_run *k, const struct record *rec)
{
	uint64_t sid = rec->klen == 9 ? ntr_get_be64(rec->key + 1) : 0;
	struct ntr_fsck_head *x;
	struct ntr_head h;

	if (!sid || ntr_rec_head_parse(rec->val, rec->vlen, sid, &h)) {
		ntr_fsck_problem(
		        k, "session number %" PRIu64 ": its record is damaged; the session is lost", sid);
		return 0;
	}
	if (grow((void **)&k->h, &k->h_cap, k->nh, sizeof(*k->h)))
		return -ENOMEM;
	head_check(k, &h);
	x = &k->h[k->nh++];
	*x = (struct ntr_fsck_head){
	        .sid = sid, .root = h.root, .base_root = h.upper ? h.base_root : 0, .seq = h.seq};
	strcpy(x->name, h.name);
	k->f->sessions++;
	return 0;
}

static int public_record(struct ntr_fsck_run *k, const struct record *rec)
{
	struct ntr_fsck_commit *c = rec->vlen == 8 ? ntr_fsck_commit_find(k, ntr_get_le64(rec->val)) : NULL;

	if (rec->klen != 1 + NTR_COMMIT_BYTES || !c || memcmp(c->name, rec->key + 1, NTR_COMMIT_BYTES) != 0)
		ntr_fsck_problem(k, "a commit's public name leads to no commit of that name");
	else
		c->named = true;
	return 0;
}

/* Where a step says that a commit was made here, the commit must say so too. */
static void step_check(struct ntr_fsck_run *k, const struct ntr_fsck_head *h, const struct ntr_list_entry *en)
{
	struct ntr_fsck_commit *c = ntr_fsck_commit_find(k, en->commit);
	bool made = en->kind == NTR_STEP_NEW || en->kind == NTR_STEP_COMMIT;

	if (!c || (en->from && !exists(k, en->from)))
		ntr_fsck_problem(k, "session '%s': step %" PRIu64 " of its history names a missing commit",
		        h->name, en->seq);
	else if (made && (c->sid != h->sid || c->seq != en->seq))
		ntr_fsck_problem(k, "session '%s': step %" PRIu64 " of its history is another's commit",
		        h->name, en->seq);
	else if (made)
		c->listed = true;
}

static int list_record(struct ntr_fsck_run *k, const struct record *rec)
{
	uint64_t sid = rec->klen == 17 ? ntr_get_be64(rec->key + 1) : 0;
	struct ntr_fsck_head *h = ntr_fsck_head_find(k, sid);
	struct ntr_list_entry en;

	if (!h) {
		ntr_fsck_problem(k, "a step of session number %" PRIu64 ", which does not exist", sid);
		return 0;
	}
	if (ntr_rec_list_parse(rec->val, rec->vlen, ntr_get_be64(rec->key + 9), &en)) {
		ntr_fsck_problem(k, "session '%s': a step of its history is damaged", h->name);
		return 0;
	}
	if (en.seq != h->last + 1)
		ntr_fsck_problem(k, "session '%s': steps before %" PRIu64 " of its history are missing",
		        h->name, en.seq);
	h->last = en.seq;
	step_check(k, h, &en);
	return 0;
}

static int name_record(struct ntr_fsck_run *k, const struct record *rec)
{
	struct ntr_fsck_head *h = rec->vlen == 8 ? ntr_fsck_head_find(k, ntr_get_le64(rec->val)) : NULL;

	if (!h || strlen(h->name) != rec->klen - 1 || memcmp(h->name, rec->key + 1, rec->klen - 1) != 0)
		ntr_fsck_problem(k, "name '%.*s' leads to no session of that name",
		        (int)NTR_MIN(rec->klen - 1, (size_t)200), (const char *)rec->key + 1);
	else
		h->named = true;
	return 0;
}

static int tag_record(struct ntr_fsck_run *k, const struct record *rec)
{
	if (rec->vlen < 8 || !exists(k, ntr_get_le64(rec->val)))
		ntr_fsck_problem(k, "tag '%.*s' pins a missing commit",
		        (int)NTR_MIN(rec->klen - 1, (size_t)200), (const char *)rec->key + 1);
	return 0;
}

static int mounts_record(struct ntr_fsck_run *k, const struct record *rec)
{
	uint64_t sid = rec->klen == 9 ? ntr_get_be64(rec->key + 1) : 0;
	ntr_autojson json_t *mounts = rec->vlen > 2 && rec->val[0] == 1 && !rec->val[1]
	                                      ? json_loadb((const char *)rec->val + 2, rec->vlen - 2, 0, NULL)
	                                      : NULL;

	if (!ntr_fsck_head_find(k, sid))
		ntr_fsck_problem(
		        k, "host directories of session number %" PRIu64 ", which does not exist", sid);
	else if (!json_is_array(mounts))
		ntr_fsck_problem(k, "session '%s': its host directories are damaged",
		        ntr_fsck_head_find(k, sid)->name);
	return 0;
}

static int record_check(struct ntr_fsck_run *k, const struct record *rec)
{
	switch (rec->klen ? rec->key[0] : 0) {
	case 'C':
		return commit_record(k, rec);
	case 'H':
		return head_record(k, rec);
	case 'I':
		return public_record(k, rec);
	case 'L':
		return list_record(k, rec);
	case 'M':
		return mounts_record(k, rec);
	case 'N':
		return name_record(k, rec);
	case 'T':
		return tag_record(k, rec);
	case 'A': /* read at the open, as is S; G is the garbage collector's scratch */
	case 'G':
	case 'S':
		return 0;
	default:
		ntr_fsck_problem(k, "a record of unknown kind %u", rec->klen ? rec->key[0] : 0u);
		return 0;
	}
}

/* What no record has spoken for. */
static void leftovers(struct ntr_fsck_run *k)
{
	char hex[NTR_COMMIT_PREFIX + 1];

	for (size_t i = 0; i < k->nc; i++) {
		const struct ntr_fsck_commit *c = &k->c[i];

		if (!c->named)
			ntr_fsck_problem(k, "commit %s cannot be found by its name", ntr_fsck_hex(c, hex));
		if (!c->listed && ntr_fsck_head_find(k, c->sid))
			ntr_fsck_problem(
			        k, "commit %s is missing in its session's history", ntr_fsck_hex(c, hex));
	}
	for (size_t i = 0; i < k->nh; i++) {
		const struct ntr_fsck_head *h = &k->h[i];

		if (!h->named)
			ntr_fsck_problem(k, "session '%s' cannot be found by its name", h->name);
		if (h->last != h->seq)
			ntr_fsck_problem(k,
			        "session '%s': its history ends at step %" PRIu64 " instead of %" PRIu64,
			        h->name, h->last, h->seq);
	}
}

int ntr_fsck_meta(struct ntr_fsck_run *k)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(k->s->kv, NTR_CF_META, false);
	struct record rec;
	uint64_t n = 0;
	int r = 0;

	if (!it)
		return -ENOMEM;
	for (ntr_kv_iter_seek(it, "", 0);
	        !r && ntr_kv_iter_valid(it, &rec.key, &rec.klen, &rec.val, &rec.vlen); ntr_kv_iter_next(it)) {
		r = record_check(k, &rec);
		if (++n % 4096 == 0)
			ntr_fsck_progress(k, "records", n, 0);
	}
	if (r)
		return r;
	if (ntr_kv_iter_error(it))
		ntr_fsck_problem(
		        k, "records: the database cannot read them all; sessions or commits are lost");
	leftovers(k);
	ntr_fsck_progress(k, "records", n, n);
	return 0;
}
