/* kv_impl: what the files of the kv module share. */
#ifndef NTR_FS_KV_IMPL_H
#define NTR_FS_KV_IMPL_H

#include "kv.h"

#include <pthread.h>
#include <rocksdb/c.h>
#include <stdatomic.h>

struct ntr_kv {
	rocksdb_t *db;
	rocksdb_column_family_handle_t *cf[NTR_CF_COUNT];
	rocksdb_options_t *options[NTR_CF_COUNT]; /* the first one is the database's too */
	rocksdb_cache_t *cache;
	rocksdb_writeoptions_t *write[NTR_KV_NO_WAL + 1];
	rocksdb_readoptions_t *read;
	char *dir;
	bool read_only;
	bool no_room_check;        /* of tests, to let RocksDB meet a full disk */
	pthread_rwlock_t log_lock; /* shared: a write is under way; exclusive: the logs stand still */
	uint64_t resumed;          /* how often; changed with log_lock, as what follows */
	uint64_t resume_failed_ns; /* when it was tried last without success; 0: never */
	bool broken;               /* and it has been said */
	_Atomic bool warmed[NTR_CF_COUNT];
	bool stuck; /* resuming did not come back: RocksDB cannot even be closed */

	pthread_mutex_t fault_lock;
	_Atomic bool has_fault;
	ntr_kv_fault_fn fault;
	void *fault_user;
	uint64_t fault_number;
};

struct ntr_kv_batch {
	rocksdb_writebatch_t *b;
};

/* RocksDB's error text as a negative errno; takes the text (0 when it is NULL). */
int ntr_kv_errno(const char *text);
/* The same with words: "WHAT: RocksDB's text". Frees text. */
int ntr_kv_fail(struct ntr_err *e, char *text, const char *what);
/* kv_room.c: -ENOSPC with text when the disk has no room for bytes more (logged: of the write-ahead log,
 * first). */
int ntr_kv_room(struct ntr_kv *kv, uint64_t bytes, bool logged, const char *what, struct ntr_err *e);
/* After RocksDB failed with r: true when that was for want of space and there is some again, after a pause:
 * to be tried again. until begins as 0. */
bool ntr_kv_room_again(struct ntr_kv *kv, int r, uint64_t *until);
/* kv_resume.c: after RocksDB failed with r (why: its text), makes it take writes again. seen: ntr_kv_resumed
 * from before the failed step. true: to be tried again, once. */
bool ntr_kv_resume(struct ntr_kv *kv, int r, uint64_t seen, const char *why);
uint64_t ntr_kv_resumed(struct ntr_kv *kv);
/* Writes a family's memory tables out and waits for it. NULL, or RocksDB's text. */
char *ntr_kv_db_flush(struct ntr_kv *kv, enum ntr_cf cf);
/* kv_resume.cc: errors of writes become such that resuming helps (false: out of memory), and are held back
 * until no flush waits in the queue of the database that is watched (NULL, before it is closed: none);
 * resumes (NULL, or why not). */
bool ntr_kv_set_listener(rocksdb_options_t *o);
void ntr_kv_listener_watch(
        rocksdb_options_t *o, rocksdb_t *db, rocksdb_column_family_handle_t *const *cf, size_t n);
char *ntr_kv_db_resume(rocksdb_t *db);
/* An error came, and has not been got over. */
bool ntr_kv_failed(rocksdb_options_t *o);
extern const char *const ntr_kv_family_names[NTR_CF_COUNT];
/* Fresh options of one family; those of the first one become the database's with ntr_kv_database_options. */
rocksdb_options_t *ntr_kv_family_options(enum ntr_cf cf, rocksdb_cache_t *cache);
void ntr_kv_database_options(rocksdb_options_t *o, bool create);
/* kv_logger.cc: warnings go to DIR/LOG, and where they cannot, nowhere. false: out of memory. */
bool ntr_kv_set_log(rocksdb_options_t *o, const char *dir);
/* Checks every record in the first size bytes of a write-ahead log. torn: the last one may be cut short. 0,
 * -EUCLEAN, or what reading it said. */
int ntr_kv_log_check(int fd, uint64_t size, bool torn);

#endif
