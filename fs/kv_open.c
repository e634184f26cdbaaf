/* Options, opening and closing: what is measured best for this store is written down here and nowhere else.
 */
#include "kv_impl.h"

#include "../base/util.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

const char *const ntr_kv_family_names[NTR_CF_COUNT] = {"default", "node", "chunk", "cidx"};

static int files_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur / 4 >= 512)
		return 512;
	return (int)NTR_MAX(l.rlim_cur / 4, (rlim_t)20); /* RocksDB's least */
}

void ntr_kv_database_options(rocksdb_options_t *o, bool create)
{
	rocksdb_options_set_create_if_missing(o, create);
	rocksdb_options_set_create_missing_column_families(o, 1);
	/* No flush waits for another family's: what waits when a write fails is lost sight of (kv_resume.cc).
	 */
	rocksdb_options_set_max_background_flushes(o, NTR_CF_COUNT);
	rocksdb_options_set_max_background_compactions(o, 1);
	rocksdb_options_set_bytes_per_sync(o, MIB);
	rocksdb_options_set_wal_bytes_per_sync(o, MIB);
	rocksdb_options_set_max_total_wal_size(o, 256 * MIB);
	rocksdb_options_set_db_write_buffer_size(o, 128 * MIB);
	rocksdb_options_set_max_open_files(o, files_limit());
	rocksdb_options_set_skip_stats_update_on_db_open(o, 1);
	/* A first pass over a tree reads chunks nearly in the order they were written: let the kernel read
	 * ahead. Of a read that follows no other it reads no more than was asked for. */
	rocksdb_options_set_advise_random_on_open(o, 0);
	rocksdb_options_set_stats_dump_period_sec(o, 0);
	rocksdb_options_set_stats_persist_period_sec(o, 0);
	/* Only this mode never opened a broken tree after damage to the log (docs/store-format.md, crash
	 * rules). */
	rocksdb_options_set_wal_recovery_mode(o, rocksdb_point_in_time_recovery);
}

static void table_options(rocksdb_options_t *o, rocksdb_cache_t *cache, size_t block)
{
	rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();

	rocksdb_block_based_options_set_block_cache(t, cache);
	rocksdb_block_based_options_set_block_size(t, block);
	rocksdb_block_based_options_set_checksum(t, 4); /* XXH3: this build has no hardware CRC */
	rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
	rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(t, 1);
	rocksdb_block_based_options_set_filter_policy(t, rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_options_set_block_based_table_factory(o, t);
	rocksdb_block_based_options_destroy(t);
}

rocksdb_options_t *ntr_kv_family_options(enum ntr_cf cf, rocksdb_cache_t *cache)
{
	rocksdb_options_t *o = rocksdb_options_create();
	bool big = cf == NTR_CF_NODE || cf == NTR_CF_CHUNK;

	rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
	rocksdb_options_set_write_buffer_size(o, big ? 32 * MIB : 8 * MIB);
	rocksdb_options_set_max_write_buffer_number(o, 3);
	if (cf == NTR_CF_CHUNK) {
		rocksdb_options_set_compression(o, rocksdb_zstd_compression);
		rocksdb_options_set_compression_options(o, -14, 1, 0, 0);
	} else {
		rocksdb_options_set_compression(o, rocksdb_lz4_compression);
	}
	table_options(o, cache, cf == NTR_CF_CHUNK ? 64 << 10 : cf == NTR_CF_NODE ? 16 << 10 : 4 << 10);
	return o;
}

static void options_make(struct ntr_kv *kv, const struct ntr_kv_options *o)
{
	kv->cache = rocksdb_cache_create_lru(o->cache_bytes ? o->cache_bytes : 64 * MIB);
	for (int i = 0; i < NTR_CF_COUNT; i++)
		kv->options[i] = ntr_kv_family_options((enum ntr_cf)i, kv->cache);
	ntr_kv_database_options(kv->options[0], o->create);
	for (int i = 0; i <= NTR_KV_NO_WAL; i++)
		kv->write[i] = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(kv->write[NTR_KV_SYNC], 1);
	rocksdb_writeoptions_disable_WAL(kv->write[NTR_KV_NO_WAL], 1);
	kv->read = rocksdb_readoptions_create();
}

static void options_free(struct ntr_kv *kv)
{
	for (int i = 0; i < NTR_CF_COUNT; i++)
		if (kv->options[i])
			rocksdb_options_destroy(kv->options[i]);
	for (int i = 0; i <= NTR_KV_NO_WAL; i++)
		if (kv->write[i])
			rocksdb_writeoptions_destroy(kv->write[i]);
	if (kv->read)
		rocksdb_readoptions_destroy(kv->read);
	if (kv->cache)
		rocksdb_cache_destroy(kv->cache);
}

static bool database_exists(const char *dir)
{
	ntr_autofree char *current = ntr_sprintf("%s/CURRENT", dir);

	return current && !access(current, F_OK);
}

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), k = strlen(end);

	return n > k && !strcmp(name + n - k, end);
}

/* RocksDB would make a new database over one that has lost its file CURRENT, and then delete what it does not
 * know: everything. A folder without data is one whose making was cut short. newest: the manifest's name, to
 * tell. */
static bool holds_data(const char *dir, char newest[32])
{
	DIR *d = opendir(dir);
	struct dirent *en;
	bool found = false;

	newest[0] = '\0';
	while (d && (en = readdir(d))) {
		found |= ends_with(en->d_name, ".sst") || ends_with(en->d_name, ".log");
		if (!strncmp(en->d_name, "MANIFEST-", 9) && strlen(en->d_name) < 32 &&
		        strcmp(en->d_name, newest) > 0)
			strcpy(newest, en->d_name);
	}
	if (d)
		closedir(d);
	return found;
}

static int refuse_headless(const char *dir, struct ntr_err *e)
{
	char newest[32];

	if (database_exists(dir) || !holds_data(dir, newest))
		return 0;
	ntr_err_set(e, -EUCLEAN, "open database %.300s", dir);
	ntr_err_why(e, "its file CURRENT is missing");
	if (newest[0])
		ntr_err_todo(e, "check the disk; `echo %s >%.300s/CURRENT` brings it back", newest, dir);
	else
		ntr_err_todo(e, "restore the store from a backup");
	return -EUCLEAN;
}

/* What cannot be opened cannot be checked by `ntr fsck` either. */
static void advise(int r, struct ntr_err *e)
{
	if (r == -ENOSPC)
		ntr_err_todo(e, "free space on the store's filesystem (64 MiB or more), then do it again");
	else if (r == -EUCLEAN)
		ntr_err_todo(e, "check the disk, and restore the store from a backup");
}

static int database_open(struct ntr_kv *kv, struct ntr_err *e)
{
	const rocksdb_options_t *const *o = (const rocksdb_options_t *const *)kv->options;
	char what[300], *text = NULL;
	int r = refuse_headless(kv->dir, e);

	if (r)
		return r;
	if (kv->read_only)
		kv->db = rocksdb_open_for_read_only_column_families(
		        o[0], kv->dir, NTR_CF_COUNT, ntr_kv_family_names, o, kv->cf, 0, &text);
	else
		kv->db = rocksdb_open_column_families(
		        o[0], kv->dir, NTR_CF_COUNT, ntr_kv_family_names, o, kv->cf, &text);
	if (!text) {
		if (!kv->read_only)
			ntr_kv_listener_watch(kv->options[0], kv->db, kv->cf, NTR_CF_COUNT);
		return 0;
	}
	snprintf(what, sizeof(what), "open database %.250s", kv->dir);
	r = ntr_kv_fail(e, text, what);
	if (r == -ENOENT) { /* a file that CURRENT or the manifest names */
		r = -EUCLEAN;
		if (e)
			e->code = r;
	}
	advise(r, e);
	return r;
}

int ntr_kv_open(const char *dir, const struct ntr_kv_options *o, struct ntr_kv **ret, struct ntr_err *e)
{
	struct ntr_kv *kv;
	int r;

	if ((!o->create || o->read_only) && !database_exists(dir))
		return ntr_err_set(e, -ENOENT, "open database %.300s", dir);
	kv = calloc(1, sizeof(*kv));
	if (!kv)
		return ntr_err_set(e, -ENOMEM, "open database %.300s", dir);
	pthread_mutex_init(&kv->fault_lock, NULL);
	pthread_rwlock_init(&kv->log_lock, NULL);
	kv->read_only = o->read_only;
	kv->dir = strdup(dir);
	options_make(kv, o);
	r = kv->dir && ntr_kv_set_log(kv->options[0], dir) && ntr_kv_set_listener(kv->options[0])
	            ? database_open(kv, e)
	            : ntr_err_set(e, -ENOMEM, "open database %.300s", dir);
	if (r) {
		ntr_kv_close(kv);
		return r;
	}
	*ret = kv;
	return 0;
}

void ntr_kv_close(struct ntr_kv *kv)
{
	if (!kv)
		return;
	if (kv->stuck) /* leaked, for the process will end: what was acknowledged is in its files */
		return;
	if (kv->db)
		ntr_kv_listener_watch(kv->options[0], NULL, NULL, 0);
	for (int i = 0; kv->db && i < NTR_CF_COUNT; i++)
		rocksdb_column_family_handle_destroy(kv->cf[i]);
	if (kv->db)
		rocksdb_close(kv->db);
	options_free(kv);
	pthread_mutex_destroy(&kv->fault_lock);
	pthread_rwlock_destroy(&kv->log_lock);
	free(kv->dir);
	free(kv);
}
