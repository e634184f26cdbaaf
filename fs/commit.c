/* commit: the one batch that makes a commit, moving heads, and reading commits. */
#include "store.h"
#include "store_impl.h"

#include <ctype.h>
#include <errno.h>

enum { PREFIX_MIN = 4, CANDIDATES = 5 };

void ntr_commit_done(struct ntr_commit *c)
{
	free(c->desc);
	c->desc = NULL;
}

static int corrupt(struct ntr_err *e, int r, uint64_t id)
{
	ntr_err_set(e, r, "read commit number %llu", (unsigned long long)id);
	if (r == -EUCLEAN)
		ntr_err_todo(e, "run `ntr fsck`");
	return r;
}

int ntr_commit_get(struct ntr_store *s, uint64_t id, struct ntr_commit *ret, struct ntr_err *e)
{
	uint8_t key[NTR_META_KEY];
	struct ntr_kv_pin pin;
	int r = ntr_kv_get(s->kv, NTR_CF_META, key, ntr_key_u64(key, 'C', id), &pin);

	if (!r) {
		r = ntr_rec_commit_parse(pin.data, pin.len, id, ret);
		ntr_kv_unpin(&pin);
	}
	return r ? corrupt(e, r, id) : 0;
}

/* ---- committing ---- */

static int count_diff(void *user, const uint8_t *key, size_t klen, const uint8_t *old, size_t old_len,
        const uint8_t *now, size_t now_len)
{
	if (old)
		ntr_inode_count(user, -1, key, klen, old, old_len);
	if (now)
		ntr_inode_count(user, 1, key, klen, now, now_len);
	return 0;
}

static uint64_t add(uint64_t v, int64_t d)
{
	return d < 0 && v < (uint64_t)-d ? 0 : v + (uint64_t)d;
}

/* The head's counters after txn. Usually txn began on the head's root and knows the difference; where it
 * began elsewhere (a checkout, a merge), the difference between the two roots comes on top. */
static int recount(struct ntr_store *s, const struct ntr_txn *txn, struct ntr_head *h)
{
	struct ntr_counts c = ntr_txn_counts(txn);
	int r = 0;

	if (ntr_txn_base(txn) != h->root)
		r = ntr_tree_diff(s->tree, h->root, ntr_txn_base(txn), count_diff, &c);
	h->inodes = add(h->inodes, c.inodes);
	h->bytes = add(h->bytes, c.bytes);
	h->xattrs = add(h->xattrs, c.xattrs);
	return r;
}

static int record_commit(struct ntr_store *s, struct ntr_kv_batch *b, const struct ntr_commit *c,
        uint64_t from, enum ntr_step kind)
{
	struct ntr_list_entry en = {
	        .seq = c->seq, .commit = c->id, .from = from, .time_ns = c->time_ns, .kind = kind};
	ntr_auto(ntr_buf_done) struct ntr_buf rec = {0};
	uint8_t key[NTR_META_KEY], val[8];
	int r = ntr_rec_commit(&rec, c);

	if (r)
		return r;
	ntr_put_le64(val, c->id);
	ntr_kv_batch_put(b, s->kv, NTR_CF_META, key, ntr_key_u64(key, 'C', c->id), rec.data, rec.len);
	ntr_kv_batch_put(b, s->kv, NTR_CF_META, key, ntr_key_public(key, c->name), val, sizeof val);
	return ntr_list_record(s, b, c->sid, &en);
}

/* The commit's own numbers and its public name. */
static int number(struct ntr_store *s, struct ntr_commit *c)
{
	int r = ntr_ids_take(s->ids, NTR_ID_COMMIT, 1, &c->id);

	if (!r)
		r = ntr_random(c->name, sizeof c->name);
	for (size_t i = 0; !r && i < sizeof c->name; i++) {
		c->hex[2 * i] = "0123456789abcdef"[c->name[i] >> 4];
		c->hex[2 * i + 1] = "0123456789abcdef"[c->name[i] & 15];
	}
	c->time_ns = ntr_wall_ns();
	return r;
}

int ntr_commit_build(struct ntr_store *s, struct ntr_kv_batch *b, struct ntr_txn *txn, struct ntr_head *h,
        enum ntr_step kind, struct ntr_commit *c, bool *ret_same, struct ntr_err *e)
{
	uint64_t root, from = h->commit;
	int r = ntr_txn_finish(txn, b, &root, e);

	*ret_same = !r && from && root == h->root;
	if (r || *ret_same)
		return r;
	r = recount(s, txn, h);
	if (!r)
		r = number(s, c);
	if (r)
		return r;
	c->root = h->root = root;
	c->sid = h->sid;
	c->seq = ++h->seq;
	c->inodes = h->inodes;
	c->bytes = h->bytes;
	c->xattrs = h->xattrs;
	c->stats.bytes_stored = NTR_MAX(c->stats.bytes_stored, ntr_chunk_writer_bytes(ntr_txn_chunks(txn)));
	c->nparents = from ? 1 : 0;
	c->parent[0] = from;
	h->commit = c->id;
	return record_commit(s, b, c, from, kind);
}

static int gone(struct ntr_err *e, const char *name)
{
	ntr_err_set(e, -ENOENT, "commit to session '%s'", name);
	ntr_err_why(e, "the session was removed");
	return -ENOENT;
}

/* Takes the session's row for a new head on top of *h. */
static int begin(struct ntr_store *s, const struct ntr_head *h, struct ntr_row **ret, struct ntr_err *e)
{
	struct ntr_row *x;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	x = ntr_row_take(s, h->sid);
	if (!x) {
		r = gone(e, h->name);
	} else if (x->head->commit != h->commit) {
		ntr_row_give(s, x, NULL);
		r = ntr_err_set(e, -ESTALE, "commit to session '%s'", x->head->name);
		ntr_err_why(e, "its head has moved meanwhile");
		ntr_err_todo(e, "look at the session again and repeat the change");
	}
	*ret = x;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* The row that a change of *h begins from: what is on record, with the upper as the caller has it. */
static void merge_upper(struct ntr_head *to, const struct ntr_row *x, const struct ntr_head *h)
{
	ntr_head_copy(to, x->head);
	ntr_head_name_upper(to, h->upper, h->base_root);
	to->last_upper = NTR_MAX(to->last_upper, h->last_upper);
}

/* Publishes *h as the row, where r says that it was written. */
static int end(struct ntr_store *s, struct ntr_row *x, int r, struct ntr_head **row)
{
	pthread_mutex_lock(&s->lock);
	ntr_row_give(s, x, r ? NULL : ntr_steal_ptr(*row));
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* H goes into the batch and the batch to the database; the row to publish is made before. Another upper than
 * `was` is synced whatever the session's durability: what processes sync in it must be found. */
static int write_head(struct ntr_store *s, struct ntr_kv_batch *b, const struct ntr_head *h, uint64_t was,
        uint64_t commit, struct ntr_head **ret_row, struct ntr_err *e)
{
	uint32_t durability = h->upper && h->upper != was ? NTR_FSYNC : h->durability;
	int r = ntr_row_record(s, b, h, false);

	if (r)
		return r;
	*ret_row = ntr_head_dup(h);
	return *ret_row ? ntr_store_write(s, b, durability, commit, e) : -ENOMEM;
}

static int failed(struct ntr_err *e, int r, const char *what, const char *name)
{
	ntr_err_default(e, r, "%s session '%s'", what, name);
	if (e && (r == -ENOSPC || r == -EDQUOT) && !e->todo[0])
		ntr_err_todo(e, "free some space and try again; nothing is lost");
	return r;
}

int ntr_store_commit(struct ntr_store *s, struct ntr_head *h, struct ntr_txn *txn, const char *desc,
        const struct ntr_stats *st, struct ntr_commit *ret, struct ntr_err *e)
{
	ntr_auto(ntr_txn_abortp) struct ntr_txn *own = txn;
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_autofree struct ntr_head *row = NULL;
	ntr_auto(ntr_commit_done) struct ntr_commit c = {.desc = strdup(desc)};
	struct ntr_head next;
	struct ntr_row *x;
	bool same = false;
	int r;

	*ret = (struct ntr_commit){0};
	if (!b || !c.desc)
		return failed(e, -ENOMEM, "commit to", h->name);
	if (st)
		c.stats = *st;
	r = begin(s, h, &x, e);
	if (r)
		return r;
	merge_upper(&next, x, h);
	r = ntr_commit_build(s, b, own, &next, NTR_STEP_COMMIT, &c, &same, e);
	if (!r && !same)
		r = write_head(s, b, &next, x->head->upper, c.id, &row, e);
	end(s, x, r || same ? -1 : 0, &row);
	if (r)
		return failed(e, r, "commit to", h->name);
	if (same)
		return 0;
	ntr_head_copy(h, &next);
	*ret = c;
	c.desc = NULL;
	return 0;
}

int ntr_commit_set_stats(struct ntr_store *s, const struct ntr_commit *c, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_auto(ntr_buf_done) struct ntr_buf rec = {0};
	uint8_t key[NTR_META_KEY];
	int r = b ? ntr_rec_commit(&rec, c) : -ENOMEM;

	if (r)
		return ntr_err_set(e, r, "record what commit %.12s changed", c->hex);
	ntr_kv_batch_put(b, s->kv, NTR_CF_META, key, ntr_key_u64(key, 'C', c->id), rec.data, rec.len);
	return ntr_store_write(s, b, NTR_RELAXED_DURABILITY, 0, e);
}

int ntr_session_move(struct ntr_store *s, struct ntr_head *h, const struct ntr_commit *to, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_autofree struct ntr_head *row = NULL;
	struct ntr_list_entry en = {.commit = to->id, .from = h->commit, .kind = NTR_STEP_MOVE};
	struct ntr_head next;
	struct ntr_row *x;
	int r;

	if (!b)
		return failed(e, -ENOMEM, "move", h->name);
	r = begin(s, h, &x, e);
	if (r)
		return r;
	merge_upper(&next, x, h);
	next.root = to->root;
	next.commit = to->id;
	next.inodes = to->inodes;
	next.bytes = to->bytes;
	next.xattrs = to->xattrs;
	en.seq = ++next.seq;
	en.time_ns = ntr_wall_ns();
	r = ntr_list_record(s, b, next.sid, &en);
	if (!r)
		r = write_head(s, b, &next, x->head->upper, 0, &row, e);
	if (end(s, x, r, &row))
		return failed(e, r, "move", h->name);
	ntr_head_copy(h, &next);
	return 0;
}

/* ---- reading ---- */

/* nibbles of text into key behind 'I'; their number, or -EINVAL. */
static int parse_prefix(const char *hex, uint8_t key[1 + NTR_COMMIT_BYTES])
{
	size_t n = strlen(hex);

	if (n < PREFIX_MIN || n > NTR_COMMIT_HEX)
		return -EINVAL;
	memset(key, 0, 1 + NTR_COMMIT_BYTES);
	key[0] = 'I';
	for (size_t i = 0; i < n; i++) {
		int c = tolower((unsigned char)hex[i]);
		unsigned v;

		if (!isxdigit(c))
			return -EINVAL;
		v = (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
		key[1 + i / 2] = (uint8_t)(key[1 + i / 2] | v << (i % 2 ? 0 : 4));
	}
	return (int)n;
}

static bool has_prefix(const uint8_t *key, size_t klen, const uint8_t *want, size_t nibbles)
{
	if (klen != 1 + NTR_COMMIT_BYTES || memcmp(key, want, 1 + nibbles / 2) != 0)
		return false;
	return nibbles % 2 == 0 || key[1 + nibbles / 2] >> 4 == want[1 + nibbles / 2] >> 4;
}

/* Appends a candidate's name, longer than the prefix that was not enough. */
static void candidate(char *text, size_t size, const uint8_t *name, size_t nibbles)
{
	size_t len = strlen(text), n = NTR_MAX((size_t)NTR_COMMIT_PREFIX, nibbles + 4);

	n = NTR_MIN(n, (size_t)NTR_COMMIT_HEX);
	if (len + n + 2 >= size)
		return;
	if (len)
		text[len++] = ' ';
	for (size_t i = 0; i < n; i++)
		text[len++] = "0123456789abcdef"[name[i / 2] >> (i % 2 ? 0 : 4) & 15];
	text[len] = '\0';
}

/* The matches of a prefix: how many (counting stops above CANDIDATES), the first one's id, all as text. */
static int scan_prefix(
        struct ntr_store *s, const uint8_t *want, size_t nibbles, uint64_t *ret_id, char *text, size_t size)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(s->kv, NTR_CF_META, true);
	const uint8_t *key, *val;
	size_t klen, vlen;
	int n = 0, r;

	if (!it)
		return -ENOMEM;
	for (ntr_kv_iter_seek(it, want, 1 + NTR_COMMIT_BYTES);
	        n <= CANDIDATES && ntr_kv_iter_valid(it, &key, &klen, &val, &vlen) &&
	        has_prefix(key, klen, want, nibbles);
	        ntr_kv_iter_next(it)) {
		if (vlen != 8)
			return -EUCLEAN;
		if (!n++)
			*ret_id = ntr_get_le64(val);
		if (n <= CANDIDATES)
			candidate(text, size, key + 1, nibbles);
	}
	r = ntr_kv_iter_error(it);
	return r ? r : n;
}

int ntr_commit_by_hex(struct ntr_store *s, const char *hex, struct ntr_commit *ret, struct ntr_err *e)
{
	uint8_t want[1 + NTR_COMMIT_BYTES];
	int nibbles = parse_prefix(hex, want), n;
	char text[256] = "";
	uint64_t id = 0;

	if (nibbles < 0) {
		ntr_err_set(e, nibbles, "commit '%.64s'", hex);
		ntr_err_why(e, "a commit is named by %d to %d hex digits", PREFIX_MIN, NTR_COMMIT_HEX);
		ntr_err_todo(e, "`ntr log` shows the names");
		return nibbles;
	}
	n = scan_prefix(s, want, (size_t)nibbles, &id, text, sizeof text);
	if (n < 0)
		return ntr_err_set(e, n, "look up commit '%s'", hex);
	if (n == 1)
		return ntr_commit_get(s, id, ret, e);
	ntr_err_set(e, n ? -ENOTUNIQ : -ENOENT, "commit '%s'", hex);
	if (n) {
		ntr_err_why(e, "several commits begin so: %s%s", text, n > CANDIDATES ? " …" : "");
		ntr_err_todo(e, "give more digits");
		return -ENOTUNIQ;
	}
	ntr_err_why(e, "there is no commit of that name");
	ntr_err_todo(e, "`ntr log` shows the names");
	return -ENOENT;
}

/* Descriptions are compact JSON: in a string the quotes were escaped. */
static bool counts(const struct ntr_commit *c)
{
	return !c->desc || !strstr(c->desc, "\"" NTR_COMMIT_TIMES "\":true");
}

int ntr_commit_back(struct ntr_store *s, const struct ntr_commit *from, uint64_t steps,
        struct ntr_commit *ret, struct ntr_err *e)
{
	struct ntr_commit c;
	uint64_t done = 0;
	int r = ntr_commit_get(s, from->id, &c, e);

	while (!r && done < steps && c.nparents) {
		uint64_t parent = c.parent[0];

		done += counts(&c);
		ntr_commit_done(&c);
		r = ntr_commit_get(s, parent, &c, e);
	}
	if (r)
		return r;
	if (done < steps) {
		ntr_commit_done(&c);
		ntr_err_set(e, -ERANGE, "go back %llu steps from %.*s", (unsigned long long)steps,
		        NTR_COMMIT_PREFIX, from->hex);
		ntr_err_why(e, "the history begins %llu steps back", (unsigned long long)done);
		return -ERANGE;
	}
	*ret = c;
	return 0;
}

/* A set of ids to look at, unordered: it holds one id, or a few behind merges. */
struct front {
	uint64_t *v;
	size_t n, cap;
};

static int front_add(struct front *f, uint64_t id)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->v[i] == id)
			return 0;
	if (f->n == f->cap) {
		size_t cap = f->cap ? f->cap * 2 : 16;
		uint64_t *v = reallocarray(f->v, cap, sizeof *v);

		if (!v)
			return -ENOMEM;
		f->v = v;
		f->cap = cap;
	}
	f->v[f->n++] = id;
	return 0;
}

static uint64_t front_take_max(struct front *f)
{
	size_t best = 0;
	uint64_t id;

	for (size_t i = 1; i < f->n; i++)
		if (f->v[i] > f->v[best])
			best = i;
	id = f->v[best];
	f->v[best] = f->v[--f->n];
	return id;
}

/* Parents have lower ids than their children: whatever is below anc cannot lead there, and taking the highest
 * id first visits each commit once. */
int ntr_commit_reaches(struct ntr_store *s, const struct ntr_commit *c, uint64_t anc)
{
	struct front f = {0};
	int r = front_add(&f, c->id);

	while (!r && f.n) {
		uint64_t id = front_take_max(&f);
		struct ntr_commit x;

		if (id == anc)
			r = 1;
		if (id <= anc)
			break;
		r = ntr_commit_get(s, id, &x, NULL);
		if (r)
			break;
		for (int i = 0; !r && i < x.nparents; i++)
			r = front_add(&f, x.parent[i]);
		ntr_commit_done(&x);
	}
	free(f.v);
	return r;
}

int ntr_commit_log(struct ntr_store *s, uint64_t from, uint64_t n,
        int (*fn)(void *user, const struct ntr_commit *c), void *user)
{
	for (uint64_t i = 0; from && (!n || i < n); i++) {
		struct ntr_commit c;
		int r = ntr_commit_get(s, from, &c, NULL);

		if (r)
			return r;
		from = c.nparents ? c.parent[0] : 0;
		r = fn(user, &c);
		ntr_commit_done(&c);
		if (r)
			return r;
	}
	return 0;
}
