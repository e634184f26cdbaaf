/* Going on after a write that failed: the database is resumed in place (kv_resume.cc), so that nothing that
 * is in memory only is lost, and whoever met the error writes once more.
 *
 * A log that a write or sync has failed on is never written again: what stands in it behind the failure would
 * be lost with it at the next opening. Resuming starts a new log where any memory table held something. Where
 * none did, a record of no meaning that goes to a memory table only, and a flush of it, make RocksDB start
 * one; it refuses to leave a log that has failed but while it resumes, so it may have to resume once more.
 *
 * Two faults of RocksDB 7.8 are lived with. Once it has ever been stopped by an error, also by a full disk
 * that it got over by itself, a flush with "wait" does not wait any more: so flushes look themselves. And a
 * flush that was queued, not begun, when the error came is forgotten, and resuming waits for it for ever:
 * kv_resume.cc sees to it that there is none; should there be one, resuming has a thread of its own, which
 * can be given up. */
#include "kv_impl.h"

#include "../base/util.h"

#include <errno.h>
#include <stdio.h>

enum {
	PATIENCE_S = 60, /* resuming waits for a compaction under way */
	ATTEMPTS = 3,
};
#define RETRY_NS 300000000u

static uint64_t unflushed(struct ntr_kv *kv, enum ntr_cf cf)
{
	uint64_t n = 0;

	return rocksdb_property_int_cf(kv->db, kv->cf[cf], "rocksdb.num-immutable-mem-table", &n) ? 0 : n;
}

char *ntr_kv_db_flush(struct ntr_kv *kv, enum ntr_cf cf)
{
	static const struct timespec pause = {.tv_nsec = 500000};
	rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
	char *text = NULL;

	rocksdb_flushoptions_set_wait(o, 1);
	rocksdb_flush_cf(kv->db, o, kv->cf[cf], &text);
	while (!text && unflushed(kv, cf)) {
		nanosleep(&pause, NULL);
		if (ntr_kv_failed(kv->options[0])) /* says why */
			rocksdb_flush_cf(kv->db, o, kv->cf[cf], &text);
	}
	rocksdb_flushoptions_destroy(o);
	return text;
}

/* -ENOSPC is RocksDB's own matter (kv_room.c), damage nobody's. */
static bool worth_it(int r)
{
	return r && r != -ENOSPC && r != -ENOMEM && r != -EUCLEAN && r != -EBUSY;
}

/* ---- resuming, with a limit ---- */

struct job {
	pthread_mutex_t m;
	pthread_cond_t cond;
	rocksdb_t *db;
	char *text;
	bool done, left; /* left: nobody waits for it any more */
};

static void job_free(struct job *j)
{
	pthread_mutex_destroy(&j->m);
	pthread_cond_destroy(&j->cond);
	free(j);
}

static void *job_main(void *arg)
{
	struct job *j = arg;
	char *text = ntr_kv_db_resume(j->db);

	pthread_mutex_lock(&j->m);
	j->text = text;
	j->done = true;
	pthread_cond_signal(&j->cond);
	bool left = j->left;

	pthread_mutex_unlock(&j->m);
	if (left) { /* the database may be closed by now: nothing of it is touched */
		free(text);
		job_free(j);
	}
	return NULL;
}

static struct job *job_new(struct ntr_kv *kv)
{
	struct job *j = calloc(1, sizeof *j);

	if (!j)
		return NULL;
	pthread_mutex_init(&j->m, NULL);
	ntr_cond_init(&j->cond);
	j->db = kv->db;
	return j;
}

/* NULL, or why it did not work. */
static char *db_resume(struct ntr_kv *kv)
{
	struct job *j = job_new(kv);
	struct timespec until;
	pthread_t th;
	char *text;

	if (!j || pthread_create(&th, NULL, job_main, j)) {
		if (j)
			job_free(j);
		return strdup("Cannot allocate memory");
	}
	until = ntr_mono_in(PATIENCE_S * 1000000000ull);
	pthread_mutex_lock(&j->m);
	while (!j->done && pthread_cond_timedwait(&j->cond, &j->m, &until) != ETIMEDOUT)
		;
	kv->stuck = j->left = !j->done;
	text = j->done ? j->text : strdup("it does not come back");
	pthread_mutex_unlock(&j->m);
	if (kv->stuck) {
		pthread_detach(th);
		return text;
	}
	pthread_join(th, NULL);
	job_free(j);
	return text;
}

/* ---- */

static char *new_log(struct ntr_kv *kv)
{
	static const char nowhere[] = "!"; /* begins no key of this family */
	char *text = NULL;

	rocksdb_delete_cf(kv->db, kv->write[NTR_KV_NO_WAL], kv->cf[NTR_CF_META], nowhere, 1, &text);
	return text ? text : ntr_kv_db_flush(kv, NTR_CF_META);
}

static void say(struct ntr_kv *kv, const char *failed, const char *still)
{
	if (!still)
		fprintf(stderr, "ntr: database %s: went on after a failed write (%s); nothing is lost\n",
		        kv->dir, failed);
	else if (kv->stuck)
		fprintf(stderr,
		        "ntr: database %s: takes no writes (%s): restart the daemon (`ntr daemon stop`)\n",
		        kv->dir, still);
	else if (!kv->broken)
		fprintf(stderr, "ntr: database %s: takes no writes (%s); tried again with every write\n",
		        kv->dir, still);
	kv->broken = still != NULL;
}

static char *resume_once(struct ntr_kv *kv)
{
	char *text = db_resume(kv);

	if (!text && (text = new_log(kv))) {
		free(text);
		text = db_resume(kv);
	}
	return text;
}

/* With the logs standing still. A flush in the background that fails tells of its error twice, and the second
 * telling may fall into the resuming that answers the first: hence more than one attempt. */
static bool resume(struct ntr_kv *kv, const char *failed)
{
	static const struct timespec pause = {.tv_nsec = 10000000};
	char *text = resume_once(kv);

	for (int i = 1; text && !kv->stuck && i < ATTEMPTS; i++) {
		nanosleep(&pause, NULL);
		free(text);
		text = resume_once(kv);
	}
	say(kv, failed, text);
	if (text) {
		kv->resume_failed_ns = ntr_mono_ns();
		free(text);
		return false;
	}
	__atomic_add_fetch(&kv->resumed, 1, __ATOMIC_RELEASE);
	return true;
}

uint64_t ntr_kv_resumed(struct ntr_kv *kv)
{
	return __atomic_load_n(&kv->resumed, __ATOMIC_ACQUIRE);
}

bool ntr_kv_resume(struct ntr_kv *kv, int r, uint64_t seen, const char *why)
{
	bool done = false;

	if (!worth_it(r) || kv->read_only)
		return false;
	pthread_rwlock_wrlock(&kv->log_lock);
	if (kv->resumed != seen)
		done = true; /* somebody else has */
	else if (!kv->stuck && (!kv->resume_failed_ns || ntr_mono_ns() - kv->resume_failed_ns >= RETRY_NS))
		done = resume(kv, why);
	pthread_rwlock_unlock(&kv->log_lock);
	return done;
}
