/* session: finding sessions, and everything that makes, changes or removes one. */
#include "inode.h"
#include "store.h"
#include "store_impl.h"

#include <errno.h>

/* ---- looking ---- */

int ntr_session_name_check(const char *name, struct ntr_err *e)
{
	size_t n = strlen(name);

	if (n && n <= NTR_NAME_MAX && name[0] != '.' &&
	        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == n)
		return 0;
	ntr_err_set(e, -EINVAL, "session name '%.64s%s'", name, n > 64 ? "…" : "");
	if (n > NTR_NAME_MAX)
		ntr_err_why(e, "it is longer than %d characters", NTR_NAME_MAX);
	else
		ntr_err_why(e, "it is no valid name");
	ntr_err_todo(e, "use letters, digits, '_', '-' and '.', the first of them no '.'");
	return -EINVAL;
}

bool ntr_session_is_throwaway(const char *name)
{
	return !strncmp(name, "tmp-", 4) && strlen(name) == 20 && strspn(name + 4, "0123456789abcdef") == 16;
}

int ntr_session_name_new(const char *name, struct ntr_err *e)
{
	int r = ntr_session_name_check(name, e);

	if (r || !ntr_session_is_throwaway(name))
		return r;
	ntr_err_set(e, -EINVAL, "session name '%s'", name);
	ntr_err_why(e, "names of this kind are those of throw-away sessions, which end with their call");
	ntr_err_todo(e, "choose another name");
	return -EINVAL;
}

static int no_session(struct ntr_err *e, const char *name)
{
	ntr_err_set(e, -ENOENT, "session '%s'", name);
	ntr_err_why(e, "there is no session of that name");
	ntr_err_todo(e, "`ntr sessions` lists them");
	return -ENOENT;
}

static int no_session_id(struct ntr_err *e, uint64_t sid)
{
	ntr_err_set(e, -ENOENT, "session number %llu", (unsigned long long)sid);
	ntr_err_why(e, "it was removed");
	return -ENOENT;
}

int ntr_session_get(struct ntr_store *s, const char *name, struct ntr_head *ret, struct ntr_err *e)
{
	const struct ntr_row *x;
	bool found;
	int r = ntr_session_name_check(name, e);

	if (r)
		return r;
	pthread_mutex_lock(&s->lock);
	x = ntr_row_by_name(s, name);
	found = x && !x->hidden;
	if (found)
		ntr_head_copy(ret, x->head);
	pthread_mutex_unlock(&s->lock);
	return found ? 0 : no_session(e, name);
}

int ntr_session_by_id(struct ntr_store *s, uint64_t sid, struct ntr_head *ret, struct ntr_err *e)
{
	const struct ntr_row *x;
	bool found;

	pthread_mutex_lock(&s->lock);
	x = ntr_row_by_id(s, sid);
	found = x && !x->hidden;
	if (found)
		ntr_head_copy(ret, x->head);
	pthread_mutex_unlock(&s->lock);
	return found ? 0 : no_session_id(e, sid);
}

/* The first visible session with a name above `after`; false at the end. */
static bool next_session(struct ntr_store *s, const char *after, struct ntr_head *ret)
{
	const struct ntr_row *x;

	pthread_mutex_lock(&s->lock);
	x = ntr_row_after(s, after);
	if (x)
		ntr_head_copy(ret, x->head);
	pthread_mutex_unlock(&s->lock);
	return x;
}

int ntr_session_each(struct ntr_store *s, int (*fn)(void *user, const struct ntr_head *h), void *user)
{
	char after[NTR_NAME_MAX + 1] = "";
	struct ntr_head h;

	while (next_session(s, after, &h)) {
		int r;

		strcpy(after, h.name);
		r = fn(user, &h);
		if (r)
			return r;
	}
	return 0;
}

int ntr_session_list(struct ntr_store *s, uint64_t sid, uint64_t first,
        int (*fn)(void *user, const struct ntr_list_entry *en), void *user)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(s->kv, NTR_CF_META, false);
	uint8_t want[NTR_META_KEY];
	const uint8_t *key, *val;
	struct ntr_list_entry en;
	size_t klen, vlen;
	int r = 0;

	if (!it)
		return -ENOMEM;
	ntr_key_list(want, sid, first);
	for (ntr_kv_iter_seek(it, want, 17); !r && ntr_kv_iter_valid(it, &key, &klen, &val, &vlen);
	        ntr_kv_iter_next(it)) {
		if (klen != 17 || memcmp(key, want, 9) != 0)
			break;
		r = ntr_rec_list_parse(val, vlen, ntr_get_be64(key + 9), &en);
		if (!r)
			r = fn(user, &en);
	}
	return r ? r : ntr_kv_iter_error(it);
}

/* ---- making ---- */

/* The root directory and the name-hash seed. */
static int fill_blank(struct ntr_txn *t)
{
	struct ntr_inode in = {
	        .ino = NTR_INO_ROOT, .mode = S_IFDIR | 0755, .nlink = 2, .parent = NTR_INO_ROOT};
	uint8_t seed[8];
	int r = ntr_random(&in.tag, sizeof in.tag);

	in.uid = in.gid = NTR_OWNER_ID;
	in.data_kind = NTR_DATA_NONE;
	clock_gettime(CLOCK_REALTIME, &in.btime);
	in.atime = in.mtime = in.ctime = in.btime;
	if (!r)
		r = ntr_random(seed, sizeof seed);
	if (!r)
		r = ntr_kvitem_set(t, "s:seed", seed, sizeof seed);
	return r ? r : ntr_inode_put(t, &in);
}

int ntr_session_blank(struct ntr_store *s, struct ntr_txn **ret, struct ntr_err *e)
{
	ntr_auto(ntr_txn_abortp) struct ntr_txn *t = NULL;
	int r = ntr_txn_begin(s, 0, &t);

	if (!r)
		r = fill_blank(t);
	if (r)
		return ntr_err_default(e, r, "make an empty tree");
	*ret = ntr_steal_ptr(t);
	return 0;
}

/* Reserves h's name, takes its sid. */
static int reserve(struct ntr_store *s, struct ntr_head *h, struct ntr_row **ret, struct ntr_err *e)
{
	int r = ntr_ids_take(s->ids, NTR_ID_SESSION, 1, &h->sid);
	const struct ntr_row *x;

	if (r)
		return r;
	pthread_mutex_lock(&s->lock);
	/* Somebody else is making it: who is told that the name is taken must find the session. */
	while ((x = ntr_row_by_name(s, h->name)) && x->hidden)
		pthread_cond_wait(&s->idle, &s->lock);
	r = ntr_row_reserve(s, h, ret, e);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Ends a reservation: the row becomes visible as *h, or goes. */
static int conclude(struct ntr_store *s, struct ntr_row *x, int r, struct ntr_head *h)
{
	pthread_mutex_lock(&s->lock);
	if (r)
		ntr_row_drop(s, x);
	else
		ntr_row_give(s, x, h);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Writes a new session with its first list entry: the common end of new and fork. h is taken over on success
 * only. */
static int write_new(struct ntr_store *s, struct ntr_kv_batch *b, struct ntr_head *h, enum ntr_step kind,
        uint32_t durability, struct ntr_err *e)
{
	struct ntr_list_entry en = {
	        .seq = h->seq, .commit = h->commit, .time_ns = h->created_ns, .kind = kind};
	int r = ntr_row_record(s, b, h, true);

	if (!r && kind == NTR_STEP_FORK)
		r = ntr_list_record(s, b, h->sid, &en);
	return r ? r : ntr_store_write(s, b, durability, kind == NTR_STEP_FORK ? 0 : h->commit, e);
}

static int make_session(struct ntr_store *s, struct ntr_head *h, const char *desc, struct ntr_txn *txn,
        bool filled, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_autofree struct ntr_head *row = NULL;
	ntr_autofree char *text = strdup(desc ? desc : "{\"tool\":\"init\"}");
	struct ntr_commit c = {.desc = text, .stats = {.created = filled ? NTR_STATS_UNKNOWN : 0}};
	struct ntr_row *x;
	bool same;
	int r;

	if (!b || !text)
		return -ENOMEM;
	r = reserve(s, h, &x, e);
	if (r)
		return r;
	r = ntr_commit_build(s, b, txn, h, NTR_STEP_NEW, &c, &same, e);
	if (!r && !(row = ntr_head_dup(h)))
		r = -ENOMEM;
	if (!r)
		r = write_new(s, b, h, NTR_STEP_NEW, h->durability, e);
	return conclude(s, x, r, r ? NULL : ntr_steal_ptr(row));
}

static int check_wsroot(const char *wsroot, struct ntr_err *e)
{
	if (wsroot[0] == '/' && wsroot[1] && strlen(wsroot) < sizeof((struct ntr_head *)0)->wsroot)
		return 0;
	ntr_err_set(e, -EINVAL, "workspace root '%.200s'", wsroot);
	ntr_err_why(e, "it is not an absolute path below '/'");
	return -EINVAL;
}

int ntr_session_new(struct ntr_store *s, const char *name, const struct ntr_session_options *o,
        struct ntr_txn *txn, struct ntr_head *ret, struct ntr_err *e)
{
	static const struct ntr_session_options defaults;
	ntr_auto(ntr_txn_abortp) struct ntr_txn *own = txn;
	const char *wsroot;
	int r;

	o = o ? o : &defaults;
	wsroot = o->wsroot ? o->wsroot : "/workspace";
	r = ntr_session_name_check(name, e);
	if (!r)
		r = check_wsroot(wsroot, e);
	if (!r && !own)
		r = ntr_session_blank(s, &own, e);
	if (r)
		return r;
	*ret = (struct ntr_head){.created_ns = ntr_wall_ns(), .durability = o->durability};
	strcpy(ret->name, name);
	strcpy(ret->wsroot, wsroot);
	r = make_session(s, ret, o->desc, own, txn != NULL, e);
	return r ? ntr_err_default(e, r, "make session '%s'", name) : 0;
}

static int make_fork(struct ntr_store *s, struct ntr_head *h, uint64_t source, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_autofree struct ntr_head *row = NULL;
	struct ntr_row *x;
	int r;

	if (!b)
		return -ENOMEM;
	r = reserve(s, h, &x, e);
	if (r)
		return r;
	row = ntr_head_dup(h);
	r = row ? ntr_mounts_copy(s, b, source, h->sid) : -ENOMEM;
	if (!r)
		r = write_new(s, b, h, NTR_STEP_FORK, NTR_RELAXED_DURABILITY, e);
	return conclude(s, x, r, r ? NULL : ntr_steal_ptr(row));
}

int ntr_session_fork(struct ntr_store *s, const struct ntr_head *src, const struct ntr_commit *at,
        const char *name, struct ntr_head *ret, struct ntr_err *e)
{
	struct ntr_head h;
	int r = ntr_session_name_check(name, e);

	if (r)
		return r;
	ntr_head_copy(&h, src);
	h.root = at->root;
	h.commit = h.origin = at->id;
	h.seq = 1;
	ntr_head_name_upper(&h, 0, 0);
	h.last_upper = 0;
	h.inodes = at->inodes;
	h.bytes = at->bytes;
	h.xattrs = at->xattrs;
	h.created_ns = ntr_wall_ns();
	strcpy(h.name, name);
	r = make_fork(s, &h, src->sid, e);
	if (r)
		return ntr_err_default(e, r, "fork session '%s' as '%s'", src->name, name);
	ntr_head_copy(ret, &h);
	return 0;
}

/* ---- changing ---- */

static struct ntr_row *take(struct ntr_store *s, uint64_t sid)
{
	struct ntr_row *x;

	pthread_mutex_lock(&s->lock);
	x = ntr_row_take(s, sid);
	pthread_mutex_unlock(&s->lock);
	return x;
}

static void give(struct ntr_store *s, struct ntr_row *x, struct ntr_head *head)
{
	pthread_mutex_lock(&s->lock);
	ntr_row_give(s, x, head);
	pthread_mutex_unlock(&s->lock);
}

int ntr_session_set_upper(
        struct ntr_store *s, uint64_t sid, uint64_t upper, uint64_t base_root, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_autofree struct ntr_head *row = NULL;
	struct ntr_row *x = take(s, sid);
	int r = -ENOMEM;

	if (!x)
		return no_session_id(e, sid);
	row = ntr_head_dup(x->head);
	if (b && row) {
		ntr_head_name_upper(row, upper, base_root);
		r = ntr_row_record(s, b, row, false);
		if (!r)
			r = ntr_store_write(s, b, NTR_FSYNC, 0, e);
	}
	give(s, x, r ? NULL : ntr_steal_ptr(row));
	return r ? ntr_err_default(e, r, "record the session's folder of changes") : 0;
}

static int write_rename(struct ntr_store *s, struct ntr_kv_batch *b, const struct ntr_head *h,
        const char *old, struct ntr_err *e)
{
	uint8_t key[NTR_META_KEY];
	int r;

	if (!b)
		return -ENOMEM;
	ntr_kv_batch_del(b, s->kv, NTR_CF_META, key, ntr_key_text(key, 'N', old));
	r = ntr_row_record(s, b, h, true);
	return r ? r : ntr_store_write(s, b, NTR_FSYNC, 0, e);
}

/* Takes the row of a session by name, and a placeholder for its new name. */
static int rename_begin(struct ntr_store *s, const char *old, struct ntr_head *h, struct ntr_row **ret_row,
        struct ntr_row **ret_place, struct ntr_err *e)
{
	struct ntr_row *x;
	int r;

	pthread_mutex_lock(&s->lock);
	while ((x = ntr_row_by_name(s, old)) && x->busy && !x->hidden)
		pthread_cond_wait(&s->idle, &s->lock);
	if (!x || x->hidden) {
		r = no_session(e, old);
	} else {
		char name[NTR_NAME_MAX + 1];

		strcpy(name, h->name);
		ntr_head_copy(h, x->head);
		strcpy(h->name, name);
		r = ntr_row_reserve(s, h, ret_place, e);
		if (!r)
			x->busy = true;
		*ret_row = x;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

int ntr_session_rename(struct ntr_store *s, const char *old, const char *new, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_autofree struct ntr_head *row = NULL;
	struct ntr_row *x, *place;
	struct ntr_head h;
	int r = ntr_session_name_check(old, e);

	if (!r)
		r = ntr_session_name_check(new, e);
	if (!r && !strcmp(old, new))
		return ntr_session_get(s, old, &h, e);
	if (r)
		return r;
	strcpy(h.name, new);
	r = rename_begin(s, old, &h, &x, &place, e);
	if (r)
		return ntr_err_default(e, r, "rename session '%s'", old);
	row = ntr_head_dup(&h);
	r = row ? write_rename(s, b, row, old, e) : -ENOMEM;
	pthread_mutex_lock(&s->lock);
	ntr_row_drop(s, place);
	ntr_row_give(s, x, r ? NULL : ntr_steal_ptr(row));
	pthread_mutex_unlock(&s->lock);
	return r ? ntr_err_default(e, r, "rename session '%s' to '%s'", old, new) : 0;
}

/* Adds the deletion of all of a session's records. Its commits and their names stay: forks' histories lead
 * there. */
static int batch_remove(struct ntr_store *s, struct ntr_kv_batch *b, const struct ntr_head *h)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(s->kv, NTR_CF_META, false);
	uint8_t want[NTR_META_KEY];
	const uint8_t *key;
	size_t klen;

	if (!it)
		return -ENOMEM;
	for (ntr_kv_iter_seek(it, want, ntr_key_u64(want, 'L', h->sid));
	        ntr_kv_iter_valid(it, &key, &klen, NULL, NULL) && klen == 17 && !memcmp(key, want, 9);
	        ntr_kv_iter_next(it))
		ntr_kv_batch_del(b, s->kv, NTR_CF_META, key, klen);
	ntr_kv_batch_del(b, s->kv, NTR_CF_META, want, ntr_key_u64(want, 'M', h->sid));
	ntr_kv_batch_del(b, s->kv, NTR_CF_META, want, ntr_key_u64(want, 'H', h->sid));
	ntr_kv_batch_del(b, s->kv, NTR_CF_META, want, ntr_key_text(want, 'N', h->name));
	return ntr_kv_iter_error(it);
}

int ntr_session_remove(struct ntr_store *s, uint64_t sid, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	struct ntr_row *x = take(s, sid);
	int r;

	if (!x)
		return no_session_id(e, sid);
	r = b ? batch_remove(s, b, x->head) : -ENOMEM;
	if (!r)
		r = ntr_store_write(s, b, NTR_FSYNC, 0, e);
	if (r)
		ntr_err_default(e, r, "remove session '%s'", x->head->name);
	pthread_mutex_lock(&s->lock);
	if (r)
		ntr_row_give(s, x, NULL);
	else
		ntr_row_drop(s, x);
	pthread_mutex_unlock(&s->lock);
	return r;
}
