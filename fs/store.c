/* store: opening, closing, owners, and the sync. See store.h; store_impl.h tells the locking. */
#include "store.h"
#include "store_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

const char *ntr_store_path(const struct ntr_store *s)
{
	return s->path;
}

int ntr_store_dirfd(const struct ntr_store *s)
{
	return s->dirfd;
}

struct ntr_kv *ntr_store_kv(struct ntr_store *s)
{
	return s->kv;
}

struct ntr_tree *ntr_store_tree(struct ntr_store *s)
{
	return s->tree;
}

struct ntr_ids *ntr_store_ids(struct ntr_store *s)
{
	return s->ids;
}

struct ntr_chunks *ntr_store_chunks(struct ntr_store *s)
{
	return s->chunks;
}

void ntr_store_uuid(const struct ntr_store *s, char hex[33])
{
	for (size_t i = 0; i < sizeof s->uuid; i++)
		snprintf(hex + 2 * i, 3, "%02x", s->uuid[i]);
}

uint64_t ntr_store_serial(const struct ntr_store *s)
{
	return s->serial;
}

uint32_t ntr_store_uid_in(const struct ntr_store *s, uid_t host)
{
	return host == s->uid ? NTR_OWNER_ID : host;
}

uint32_t ntr_store_gid_in(const struct ntr_store *s, gid_t host)
{
	return host == s->gid ? NTR_OWNER_ID : host;
}

uid_t ntr_store_uid_out(const struct ntr_store *s, uint32_t stored)
{
	return stored == NTR_OWNER_ID || s->uid ? s->uid : stored;
}

gid_t ntr_store_gid_out(const struct ntr_store *s, uint32_t stored)
{
	return stored == NTR_OWNER_ID || s->uid ? s->gid : stored;
}

const struct ntr_err *ntr_store_lost(const struct ntr_store *s)
{
	return s->lost.what[0] ? &s->lost : NULL;
}

bool ntr_store_lost_untold(struct ntr_store *s)
{
	return s->lost.what[0] && !__atomic_exchange_n(&s->lost_told, true, __ATOMIC_RELAXED);
}

static int open_db(struct ntr_store *s, const struct ntr_store_options *o, struct ntr_err *e)
{
	struct ntr_kv_options ko = {
	        .create = o->create, .read_only = o->read_only, .cache_bytes = o->cache_bytes};
	ntr_autofree char *dir = ntr_sprintf("%s/db", s->path);

	return dir ? ntr_kv_open(dir, &ko, &s->kv, e) : -ENOMEM;
}

static int emptied(struct ntr_store *s, uint64_t commit, struct ntr_err *e)
{
	ntr_err_set(e, -EUCLEAN, "open store '%s'", s->path);
	ntr_err_why(e, "its database is empty, and commit number %" PRIu64 " was safely in it", commit);
	ntr_err_todo(e, "restore the store from a backup, or remove %s/synced to begin anew", s->path);
	return -EUCLEAN;
}

/* The format record of a new store. Only a database without any record is new: one that lost its format
 * record is damaged, and making it anew would hide that. */
static int make_super(struct ntr_store *s, struct ntr_err *e)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(s->kv, NTR_CF_META, false);
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	ntr_auto(ntr_buf_done) struct ntr_buf rec = {0};
	uint64_t commit;
	int r;

	if (!it || !b)
		return -ENOMEM;
	r = ntr_store_synced_peek(s, &commit);
	if (r)
		return ntr_err_set(e, r, "read '%s/synced'", s->path);
	if (commit)
		return emptied(s, commit, e);
	ntr_kv_iter_seek(it, "", 0);
	if (ntr_kv_iter_valid(it, NULL, NULL, NULL, NULL)) {
		ntr_err_set(e, -EUCLEAN, "open store '%s'", s->path);
		ntr_err_why(e, "it holds records, but not the one that tells its format");
		ntr_err_todo(e, "restore the store from a backup");
		return -EUCLEAN;
	}
	r = ntr_kv_iter_error(it);
	if (!r)
		r = ntr_random(s->uuid, sizeof s->uuid);
	if (!r)
		r = ntr_random(s->secret, sizeof s->secret);
	if (!r)
		r = ntr_rec_super(&rec, s);
	if (r)
		return r;
	ntr_kv_batch_put(b, s->kv, NTR_CF_META, "S", 1, rec.data, rec.len);
	return ntr_kv_write(s->kv, b, NTR_KV_SYNC, e);
}

static int load_super(struct ntr_store *s, const struct ntr_store_options *o, struct ntr_err *e)
{
	struct ntr_kv_pin pin;
	int r = ntr_kv_get(s->kv, NTR_CF_META, "S", 1, &pin);

	if (r == -ENOENT && o->create && !o->read_only)
		return make_super(s, e);
	if (r == -ENOENT) {
		ntr_err_set(e, r, "open store '%s'", s->path);
		return ntr_err_why(e, "its database is empty");
	}
	if (r)
		return r;
	r = ntr_rec_super_parse(pin.data, pin.len, s, e);
	ntr_kv_unpin(&pin);
	return r;
}

/* 1 with the lowest commit >= from in *ret, 0 when there is none, negative errno. */
static int commit_from(struct ntr_store *s, uint64_t from, uint64_t *ret)
{
	ntr_auto(ntr_kv_iter_freep) struct ntr_kv_iter *it = ntr_kv_iter_new(s->kv, NTR_CF_META, false);
	uint8_t want[NTR_META_KEY];
	const uint8_t *key;
	size_t klen;

	if (!it)
		return -ENOMEM;
	ntr_kv_iter_seek(it, want, ntr_key_u64(want, 'C', from));
	if (!ntr_kv_iter_valid(it, &key, &klen, NULL, NULL))
		return ntr_kv_iter_error(it);
	if (klen != 9 || key[0] != 'C')
		return 0;
	*ret = ntr_get_be64(key + 1);
	return 1;
}

/* The newest commit below `limit`, by bisection: keys are dense enough and a backward scan is not needed
 * elsewhere. */
static int newest_commit(struct ntr_store *s, uint64_t limit, uint64_t *ret)
{
	uint64_t low = 0, high = limit, found = 0;

	*ret = 0;
	while (low < high) {
		int r = commit_from(s, low + (high - low) / 2, &found);

		if (r < 0)
			return r;
		if (r) {
			*ret = found;
			low = found + 1;
		} else {
			high = low + (high - low) / 2;
		}
	}
	return 0;
}

/* A commit that was on disk and is not any more: the disk or its cache lied, or an old copy was put back. The
 * store opens (what is there is consistent), but nobody should have to find out by himself. */
static int check_regression(struct ntr_store *s, struct ntr_err *e)
{
	struct ntr_err said = {0};
	uint64_t found = 0;
	int r = s->synced ? commit_from(s, s->synced, &found) : 1;

	if (r)
		return NTR_MIN(r, 0);
	r = newest_commit(s, s->synced, &found);
	if (r)
		return r;
	ntr_err_set(&said, -EUCLEAN, "store '%s' has lost commits", s->path);
	ntr_err_why(&said, "number %" PRIu64 " was safely on disk, and the newest there now is %" PRIu64,
	        s->synced, found);
	ntr_err_todo(&said, "if this is no restored backup, check the disk and run `ntr fsck`");
	ntr_err_print(&said);
	s->lost = said;
	if (e) {
		*e = said;
		e->code = 0; /* a warning: the open succeeds */
	}
	return 0;
}

static int open_parts(struct ntr_store *s, const struct ntr_store_options *o, struct ntr_err *e)
{
	int r = open_db(s, o, e);

	if (!r)
		r = load_super(s, o, e);
	if (!r)
		r = ntr_ids_open(s->kv, &s->ids, e);
	if (!r)
		r = ntr_tree_new(s->kv, s->ids, o->node_cache_bytes, &s->tree);
	if (!r)
		r = ntr_chunks_new(s->kv, s->ids, s->secret, &s->chunks);
	if (!r)
		r = ntr_rows_load(s, e);
	if (!r)
		r = ntr_store_synced_load(s, e);
	return r ? r : check_regression(s, e);
}

static uint64_t serial; /* openings so far */

int ntr_store_open(
        const char *path, const struct ntr_store_options *o, struct ntr_store **ret, struct ntr_err *e)
{
	struct ntr_store *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return ntr_err_set(e, -ENOMEM, "open store '%s'", path);
	s->dirfd = s->lockfd = s->syncedfd = -1;
	s->serial = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
	s->read_only = o->read_only;
	s->uid = geteuid();
	s->gid = getegid();
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->sync_lock, NULL);
	pthread_cond_init(&s->idle, NULL);
	RB_INIT(&s->by_name);
	RB_INIT(&s->by_id);
	r = ntr_store_dir_open(s, path, o, e);
	if (!r)
		r = open_parts(s, o, e);
	/* RocksDB syncs what is in db, and nobody the names that lead there. At every opening, for the one
	 * that made them may have been cut short. */
	if (!r && !o->read_only && (r = ntr_store_dir_sync(s)))
		ntr_err_set(e, r, "sync the folder '%s'", s->path);
	if (r) {
		s->read_only = true; /* nothing to sync */
		ntr_store_close(s);
		return ntr_err_default(e, r, "open store '%s'", path);
	}
	*ret = s;
	return 0;
}

void ntr_store_close(struct ntr_store *s)
{
	struct ntr_err e = {0};

	if (!s)
		return;
	if (!s->read_only && ntr_store_sync(s, &e))
		ntr_err_print(&e);
	ntr_rows_free(s);
	ntr_chunks_free(s->chunks);
	ntr_tree_free(s->tree);
	ntr_ids_close(s->ids);
	ntr_kv_close(s->kv);
	ntr_closep(&s->syncedfd);
	ntr_closep(&s->lockfd);
	ntr_closep(&s->dirfd);
	pthread_cond_destroy(&s->idle);
	pthread_mutex_destroy(&s->sync_lock);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
}

int ntr_store_write(
        struct ntr_store *s, struct ntr_kv_batch *b, uint32_t durability, uint64_t commit, struct ntr_err *e)
{
	enum ntr_kv_mode mode = durability == NTR_RELAXED_DURABILITY ? NTR_KV_RELAXED : NTR_KV_SYNC;
	int r = ntr_kv_write(s->kv, b, mode, e);

	if (r)
		return r;
	pthread_mutex_lock(&s->lock);
	s->newest = NTR_MAX(s->newest, commit);
	if (mode == NTR_KV_RELAXED)
		s->unsynced = true;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* Syncs the log where relaxed writes wait for it. Whatever was counted in `newest` before is durable
 * afterwards. */
static int sync_log(struct ntr_store *s, uint64_t *ret_newest, struct ntr_err *e)
{
	bool unsynced;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	unsynced = s->unsynced;
	s->unsynced = false;
	*ret_newest = s->newest;
	pthread_mutex_unlock(&s->lock);
	if (unsynced)
		r = ntr_kv_sync_wal(s->kv, e);
	if (r) {
		pthread_mutex_lock(&s->lock);
		s->unsynced = true;
		pthread_mutex_unlock(&s->lock);
	}
	return r;
}

int ntr_store_sync(struct ntr_store *s, struct ntr_err *e)
{
	uint64_t newest;
	int r;

	pthread_mutex_lock(&s->sync_lock);
	r = sync_log(s, &newest, e);
	if (!r && newest > s->synced) {
		r = ntr_store_synced_save(s, newest);
		if (!r)
			s->synced = newest;
	}
	pthread_mutex_unlock(&s->sync_lock);
	return r ? ntr_err_default(e, r, "sync store '%s'", s->path) : 0;
}
