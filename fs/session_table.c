/* session_table: the sessions in memory: loaded at the open, looked up, marked busy, published. */
#include "store.h"
#include "store_impl.h"

#include <errno.h>

static int cmp_name(const struct ntr_row *a, const struct ntr_row *b)
{
	return strcmp(a->head->name, b->head->name);
}

static int cmp_id(const struct ntr_row *a, const struct ntr_row *b)
{
	return (a->head->sid > b->head->sid) - (a->head->sid < b->head->sid);
}
NTR_RB_STATIC(ntr_rows_by_name, ntr_row, by_name, cmp_name)
NTR_RB_STATIC(ntr_rows_by_id, ntr_row, by_id, cmp_id)

static size_t head_size(const struct ntr_head *h)
{
	return offsetof(struct ntr_head, wsroot) + strlen(h->wsroot) + 1;
}

void ntr_head_copy(struct ntr_head *to, const struct ntr_head *from)
{
	memcpy(to, from, head_size(from));
}

struct ntr_head *ntr_head_dup(const struct ntr_head *h)
{
	struct ntr_head *d = malloc(head_size(h));

	if (d)
		ntr_head_copy(d, h);
	return d;
}

struct ntr_row *ntr_row_by_name(struct ntr_store *s, const char *name)
{
	struct ntr_head h;
	struct ntr_row key = {.head = &h};

	strcpy(h.name, name);
	return RB_FIND(ntr_rows_by_name, &s->by_name, &key);
}

struct ntr_row *ntr_row_by_id(struct ntr_store *s, uint64_t sid)
{
	struct ntr_head h;
	struct ntr_row key = {.head = &h};

	h.sid = sid;
	return RB_FIND(ntr_rows_by_id, &s->by_id, &key);
}

static void row_free(struct ntr_row *x)
{
	free(x->head);
	free(x);
}

static struct ntr_row *row_new(const struct ntr_head *h)
{
	struct ntr_row *x = calloc(1, sizeof *x);

	if (x && !(x->head = ntr_head_dup(h))) {
		free(x);
		x = NULL;
	}
	return x;
}

static int row_load(struct ntr_store *s, uint64_t sid, const uint8_t *val, size_t vlen, struct ntr_err *e)
{
	struct ntr_head h;
	struct ntr_row *x;
	int r = ntr_rec_head_parse(val, vlen, sid, &h);

	if (r || ntr_session_name_check(h.name, NULL) || ntr_row_by_name(s, h.name)) {
		ntr_err_set(e, -EUCLEAN, "read session %llu of store '%s'", (unsigned long long)sid, s->path);
		ntr_err_why(e, "its record is damaged");
		ntr_err_todo(e, "run `ntr fsck`");
		return -EUCLEAN;
	}
	x = row_new(&h);
	if (!x)
		return -ENOMEM;
	RB_INSERT(ntr_rows_by_name, &s->by_name, x);
	RB_INSERT(ntr_rows_by_id, &s->by_id, x);
	return 0;
}

int ntr_rows_load(struct ntr_store *s, struct ntr_err *e)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(s->kv, NTR_CF_META, false);
	const uint8_t *key, *val;
	size_t klen, vlen;
	int r = 0;

	if (!it)
		return -ENOMEM;
	for (ntr_kv_iter_seek(it, "H", 1); !r && ntr_kv_iter_valid(it, &key, &klen, &val, &vlen);
	        ntr_kv_iter_next(it)) {
		if (klen != 9 || key[0] != 'H')
			break;
		r = row_load(s, ntr_get_be64(key + 1), val, vlen, e);
	}
	return r ? r : ntr_kv_iter_error(it);
}

void ntr_rows_free(struct ntr_store *s)
{
	struct ntr_row *x;

	while ((x = RB_ROOT(&s->by_name))) {
		RB_REMOVE(ntr_rows_by_name, &s->by_name, x);
		row_free(x);
	}
	RB_INIT(&s->by_id);
}

/* A placeholder for a name has no place in by_id. */
static bool has_id(struct ntr_store *s, struct ntr_row *x)
{
	return RB_FIND(ntr_rows_by_id, &s->by_id, x) == x;
}

struct ntr_row *ntr_row_take(struct ntr_store *s, uint64_t sid)
{
	struct ntr_row *x;

	while ((x = ntr_row_by_id(s, sid)) && x->busy)
		pthread_cond_wait(&s->idle, &s->lock);
	if (x)
		x->busy = true;
	return x;
}

void ntr_row_give(struct ntr_store *s, struct ntr_row *x, struct ntr_head *head)
{
	if (head) {
		/* Same place in by_id; another in by_name only after a rename. */
		RB_REMOVE(ntr_rows_by_name, &s->by_name, x);
		free(x->head);
		x->head = head;
		RB_INSERT(ntr_rows_by_name, &s->by_name, x);
		x->hidden = false;
	}
	x->busy = false;
	pthread_cond_broadcast(&s->idle);
}

int ntr_row_reserve(struct ntr_store *s, const struct ntr_head *h, struct ntr_row **ret, struct ntr_err *e)
{
	struct ntr_row *x;

	if (ntr_row_by_name(s, h->name)) {
		ntr_err_set(e, -EEXIST, "make session '%s'", h->name);
		ntr_err_why(e, "there is a session of that name");
		ntr_err_todo(e, "choose another name, or remove that session first (`ntr rm %s`)", h->name);
		return -EEXIST;
	}
	x = row_new(h);
	if (!x)
		return -ENOMEM;
	x->busy = x->hidden = true;
	RB_INSERT(ntr_rows_by_name, &s->by_name, x);
	if (!ntr_row_by_id(s, h->sid))
		RB_INSERT(ntr_rows_by_id, &s->by_id, x);
	*ret = x;
	return 0;
}

void ntr_row_drop(struct ntr_store *s, struct ntr_row *x)
{
	RB_REMOVE(ntr_rows_by_name, &s->by_name, x);
	if (has_id(s, x))
		RB_REMOVE(ntr_rows_by_id, &s->by_id, x);
	row_free(x);
	pthread_cond_broadcast(&s->idle);
}

int ntr_row_record(struct ntr_store *s, struct ntr_kv_batch *b, const struct ntr_head *h, bool name)
{
	ntr_auto(ntr_buf_done) struct ntr_buf rec = {0};
	uint8_t key[NTR_META_KEY], val[8];
	int r = ntr_rec_head(&rec, h);

	if (r)
		return r;
	ntr_kv_batch_put(b, s->kv, NTR_CF_META, key, ntr_key_u64(key, 'H', h->sid), rec.data, rec.len);
	if (name) {
		ntr_put_le64(val, h->sid);
		ntr_kv_batch_put(
		        b, s->kv, NTR_CF_META, key, ntr_key_text(key, 'N', h->name), val, sizeof val);
	}
	return 0;
}

int ntr_list_record(
        struct ntr_store *s, struct ntr_kv_batch *b, uint64_t sid, const struct ntr_list_entry *en)
{
	ntr_auto(ntr_buf_done) struct ntr_buf rec = {0};
	uint8_t key[NTR_META_KEY];
	int r = ntr_rec_list(&rec, en);

	if (!r)
		ntr_kv_batch_put(
		        b, s->kv, NTR_CF_META, key, ntr_key_list(key, sid, en->seq), rec.data, rec.len);
	return r;
}

struct ntr_row *ntr_row_after(struct ntr_store *s, const char *name)
{
	struct ntr_head h;
	struct ntr_row key = {.head = &h}, *x;

	strcpy(h.name, name);
	x = RB_NFIND(ntr_rows_by_name, &s->by_name, &key);
	while (x && (x->hidden || !strcmp(x->head->name, name)))
		x = RB_NEXT(ntr_rows_by_name, &s->by_name, x);
	return x;
}
