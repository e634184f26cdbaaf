#include "kv_impl.h"

#include "../base/util.h"

#include <errno.h>

struct ntr_kv_iter {
	rocksdb_iterator_t *it;
	rocksdb_readoptions_t *read;
};

int ntr_kv_errno(const char *text)
{
	static const struct {
		const char *part;
		int code;
	} map[] = {
	        {"No space left", -ENOSPC},
	        {"Disk quota exceeded", -EDQUOT},
	        {"File too large", -EFBIG},
	        {"lock hold by current process", -EBUSY},
	        {"While lock file", -EBUSY},
	        {"Corruption", -EUCLEAN},
	        {"Permission denied", -EACCES},
	        {"Read-only file system", -EROFS},
	        {"Too many open files in system", -ENFILE},
	        {"Too many open files", -EMFILE},
	        {"Cannot allocate memory", -ENOMEM},
	        {"Not implemented: Not supported operation in read only mode", -EROFS},
	        {"No such file or directory", -ENOENT},
	};

	if (!text)
		return 0;
	for (size_t i = 0; i < NTR_COUNT(map); i++)
		if (strstr(text, map[i].part))
			return map[i].code;
	return -EIO;
}

/* What the reader of an error can do. */
static const char *advice(int code)
{
	switch (code) {
	case -ENOSPC:
		return "free space on the store's filesystem (64 MiB or more); writing then goes on by "
		       "itself in seconds";
	case -EDQUOT:
	case -EFBIG:
		return "raise the limit or free space below it; writing then goes on by itself";
	case -EROFS:
		return "mount the store's filesystem for writing; writing then goes on by itself";
	case -EMFILE:
	case -ENFILE:
		return "raise the limit on open files (`ulimit -n`), then `ntr daemon stop`: the next "
		       "command "
		       "starts it with the new limit";
	case -EIO:
		return "check the disk (`dmesg` names it) and run `ntr fsck`; once the disk works again, so "
		       "does ntr";
	case -EBUSY:
		return "end the process that has it open";
	case -EUCLEAN:
		return "check the disk and run `ntr fsck`";
	default:
		return NULL;
	}
}

int ntr_kv_fail(struct ntr_err *e, char *text, const char *what)
{
	int r = ntr_kv_errno(text);

	if (r) {
		ntr_err_full(e, r, what, text, advice(r));
		rocksdb_free(text);
	}
	return r;
}

static int fault(struct ntr_kv *kv, const char *op, struct ntr_err *e)
{
	int r = 0;

	if (!kv->has_fault)
		return 0;
	pthread_mutex_lock(&kv->fault_lock);
	if (kv->fault)
		r = kv->fault(kv->fault_user, ++kv->fault_number, op);
	pthread_mutex_unlock(&kv->fault_lock);
	return r ? ntr_err_set(e, r, "%s the database", op) : 0;
}

void ntr_kv_set_fault(struct ntr_kv *kv, ntr_kv_fault_fn fn, void *user)
{
	pthread_mutex_lock(&kv->fault_lock);
	kv->fault = fn;
	kv->fault_user = user;
	kv->fault_number = 0;
	kv->has_fault = fn != NULL;
	pthread_mutex_unlock(&kv->fault_lock);
}

int ntr_kv_get(struct ntr_kv *kv, enum ntr_cf cf, const void *key, size_t klen, struct ntr_kv_pin *ret)
{
	char *text = NULL;
	rocksdb_pinnableslice_t *s = rocksdb_get_pinned_cf(kv->db, kv->read, kv->cf[cf], key, klen, &text);
	int r = ntr_kv_errno(text);

	*ret = (struct ntr_kv_pin){0};
	if (text) {
		rocksdb_free(text);
		return r == -ENOENT ? -EUCLEAN : r; /* a table file is missing */
	}
	if (!s)
		return -ENOENT;
	ret->data = (const uint8_t *)rocksdb_pinnableslice_value(s, &ret->len);
	ret->handle = s;
	return 0;
}

void ntr_kv_unpin(struct ntr_kv_pin *p)
{
	if (p->handle)
		rocksdb_pinnableslice_destroy(p->handle);
	*p = (struct ntr_kv_pin){0};
}

struct ntr_kv_batch *ntr_kv_batch_new(void)
{
	struct ntr_kv_batch *b = calloc(1, sizeof(*b));

	if (b)
		b->b = rocksdb_writebatch_create();
	return b;
}

void ntr_kv_batch_free(struct ntr_kv_batch *b)
{
	if (!b)
		return;
	rocksdb_writebatch_destroy(b->b);
	free(b);
}

void ntr_kv_batch_put(struct ntr_kv_batch *b, struct ntr_kv *kv, enum ntr_cf cf, const void *key, size_t klen,
        const void *val, size_t vlen)
{
	rocksdb_writebatch_put_cf(b->b, kv->cf[cf], key, klen, val, vlen);
}

void ntr_kv_batch_del(struct ntr_kv_batch *b, struct ntr_kv *kv, enum ntr_cf cf, const void *key, size_t klen)
{
	rocksdb_writebatch_delete_cf(b->b, kv->cf[cf], key, klen);
}

size_t ntr_kv_batch_bytes(const struct ntr_kv_batch *b)
{
	size_t n;

	rocksdb_writebatch_data(b->b, &n);
	return n;
}

void ntr_kv_batch_clear(struct ntr_kv_batch *b)
{
	rocksdb_writebatch_clear(b->b);
}

/* One step that writes, again where that can help: after a full disk, and once after the database was
 * resumed.
 */
static int step(struct ntr_kv *kv, char *(*once)(struct ntr_kv *kv, const void *arg), const void *arg,
        const char *what, struct ntr_err *e)
{
	uint64_t until = 0, seen;
	bool resumed = false;

	for (;;) {
		seen = ntr_kv_resumed(kv);
		char *text = once(kv, arg);
		int r = ntr_kv_errno(text);
		bool again = ntr_kv_room_again(kv, r, &until);

		if (!again && !resumed)
			again = resumed = ntr_kv_resume(kv, r, seen, text);
		if (!again)
			return ntr_kv_fail(e, text, what);
		rocksdb_free(text);
	}
}

struct write_arg {
	struct ntr_kv_batch *b;
	enum ntr_kv_mode mode;
};

static char *write_once(struct ntr_kv *kv, const void *arg)
{
	const struct write_arg *a = arg;
	char *text = NULL;

	pthread_rwlock_rdlock(&kv->log_lock);
	rocksdb_write(kv->db, kv->write[a->mode], a->b->b, &text);
	pthread_rwlock_unlock(&kv->log_lock);
	return text;
}

int ntr_kv_write(struct ntr_kv *kv, struct ntr_kv_batch *b, enum ntr_kv_mode mode, struct ntr_err *e)
{
	static const char what[] = "write to the database";
	struct write_arg a = {b, mode};
	int r = fault(kv, "write to", e);

	if (!r)
		r = ntr_kv_room(kv, ntr_kv_batch_bytes(b), mode != NTR_KV_NO_WAL, what, e);
	return r ? r : step(kv, write_once, &a, what, e);
}

/* By way of an empty synced write, which syncs every log that has something unsynced. rocksdb_flush_wal would
 * do the same, but looks for no earlier error first: on a log that a write has failed to sync, Debian's
 * build, which has assertions, ends the process. */
static char *sync_once(struct ntr_kv *kv, const void *arg)
{
	rocksdb_writebatch_t *empty = rocksdb_writebatch_create();
	char *text = NULL;

	(void)arg;
	pthread_rwlock_rdlock(&kv->log_lock);
	rocksdb_write(kv->db, kv->write[NTR_KV_SYNC], empty, &text);
	pthread_rwlock_unlock(&kv->log_lock);
	rocksdb_writebatch_destroy(empty);
	return text;
}

int ntr_kv_sync_wal(struct ntr_kv *kv, struct ntr_err *e)
{
	int r = fault(kv, "sync", e);

	return r ? r : step(kv, sync_once, NULL, "sync the database's log", e);
}

static char *flush_once(struct ntr_kv *kv, const void *arg)
{
	return ntr_kv_db_flush(kv, *(const enum ntr_cf *)arg);
}

int ntr_kv_flush(struct ntr_kv *kv, enum ntr_cf cf, struct ntr_err *e)
{
	static const char what[] = "flush the database";
	int r = fault(kv, "flush", e);

	if (!r)
		r = ntr_kv_room(kv, 0, false, what, e);
	return r ? r : step(kv, flush_once, &cf, what, e);
}

struct ntr_kv_iter *ntr_kv_iter_new(struct ntr_kv *kv, enum ntr_cf cf, bool fill_cache)
{
	struct ntr_kv_iter *it = calloc(1, sizeof(*it));

	if (!it)
		return NULL;
	it->read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_fill_cache(it->read, fill_cache);
	it->it = rocksdb_create_iterator_cf(kv->db, it->read, kv->cf[cf]);
	return it;
}

void ntr_kv_iter_free(struct ntr_kv_iter *it)
{
	if (!it)
		return;
	rocksdb_iter_destroy(it->it);
	rocksdb_readoptions_destroy(it->read);
	free(it);
}

void ntr_kv_iter_seek(struct ntr_kv_iter *it, const void *from, size_t n)
{
	rocksdb_iter_seek(it->it, from, n);
}

void ntr_kv_iter_seek_last(struct ntr_kv_iter *it)
{
	rocksdb_iter_seek_to_last(it->it);
}

void ntr_kv_iter_next(struct ntr_kv_iter *it)
{
	if (rocksdb_iter_valid(it->it))
		rocksdb_iter_next(it->it);
}

bool ntr_kv_iter_valid(
        const struct ntr_kv_iter *it, const uint8_t **key, size_t *klen, const uint8_t **val, size_t *vlen)
{
	size_t n;

	if (!rocksdb_iter_valid(it->it))
		return false;
	if (key)
		*key = (const uint8_t *)rocksdb_iter_key(it->it, klen ? klen : &n);
	if (val)
		*val = (const uint8_t *)rocksdb_iter_value(it->it, vlen ? vlen : &n);
	return true;
}

int ntr_kv_iter_error(const struct ntr_kv_iter *it)
{
	char *text = NULL;
	int r;

	rocksdb_iter_get_error(it->it, &text);
	r = ntr_kv_errno(text);
	if (text)
		rocksdb_free(text);
	return r == -ENOENT ? -EUCLEAN : r;
}

uint64_t ntr_kv_disk_bytes(struct ntr_kv *kv, enum ntr_cf cf)
{
	uint64_t n = 0;

	rocksdb_property_int_cf(kv->db, kv->cf[cf], "rocksdb.live-sst-files-size", &n);
	return n;
}

uint64_t ntr_kv_memory_bytes(struct ntr_kv *kv)
{
	uint64_t n, sum = rocksdb_cache_get_usage(kv->cache);

	for (int i = 0; i < NTR_CF_COUNT; i++) {
		if (!rocksdb_property_int_cf(kv->db, kv->cf[i], "rocksdb.size-all-mem-tables", &n))
			sum += n;
		if (!rocksdb_property_int_cf(kv->db, kv->cf[i], "rocksdb.estimate-table-readers-mem", &n))
			sum += n;
	}
	return sum;
}
