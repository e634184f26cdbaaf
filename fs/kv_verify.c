/* Verification reads the files themselves, not the caches: a second, read-only opening of the same folder
 * with a cache of its own, while the owner keeps its files from being deleted. */
#include "kv_impl.h"

#include "../base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static int problem(struct ntr_err *e, int r, const char *file, const char *why)
{
	ntr_err_set(e, r, "verify database file %s", file);
	if (why)
		ntr_err_why(e, "%s", why);
	return r;
}

struct log_file {
	int fd;
	uint64_t size;
	char name[64];
};

static int log_open(int dir, const char *name, struct log_file *ret)
{
	struct stat st;

	ret->fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (ret->fd < 0)
		return -errno;
	if (fstat(ret->fd, &st)) {
		close(ret->fd);
		return -errno;
	}
	ret->size = (uint64_t)st.st_size;
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	return 0;
}

static bool is_log(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && n < sizeof(((struct log_file *)0)->name) && !strcmp(name + n - 4, ".log");
}

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

/* All logs with their sizes at one moment at which no write is under way. Logs that vanish meanwhile were
 * flushed. */
static int logs_open(struct ntr_kv *kv, struct log_file **ret, size_t *ret_n)
{
	ntr_auto(closedirp) DIR *d = opendir(kv->dir);
	struct dirent *en;
	int r = 0;

	if (!d)
		return -errno;
	pthread_rwlock_wrlock(&kv->log_lock);
	while (!r && (en = readdir(d))) {
		struct log_file *v;

		if (!is_log(en->d_name))
			continue;
		v = reallocarray(*ret, *ret_n + 1, sizeof(*v));
		if (!v) {
			r = -ENOMEM;
			break;
		}
		*ret = v;
		r = log_open(dirfd(d), en->d_name, &v[*ret_n]);
		if (!r)
			(*ret_n)++;
		else if (r == -ENOENT)
			r = 0;
	}
	pthread_rwlock_unlock(&kv->log_lock);
	return r;
}

/* A log that a crash left behind may end within a record, and the one that is in use never does. */
static int logs_verify(struct ntr_kv *kv, struct ntr_err *e)
{
	ntr_autofree struct log_file *v = NULL;
	size_t n = 0;
	int r = logs_open(kv, &v, &n);

	if (r)
		ntr_err_set(e, r, "read the database's logs");
	for (size_t i = 0; i < n; i++) {
		if (!r) {
			r = ntr_kv_log_check(v[i].fd, v[i].size, kv->read_only);
			if (r)
				problem(e, r, v[i].name,
				        r == -EUCLEAN ? "a log record fails its checksum" : NULL);
		}
		close(v[i].fd);
	}
	return r;
}

struct second {
	rocksdb_t *db;
	rocksdb_cache_t *cache;
	rocksdb_options_t *options[NTR_CF_COUNT];
	rocksdb_column_family_handle_t *cf[NTR_CF_COUNT];
	rocksdb_readoptions_t *read;
};

static void second_close(struct second *s)
{
	for (int i = 0; i < NTR_CF_COUNT; i++) {
		if (s->db)
			rocksdb_column_family_handle_destroy(s->cf[i]);
		rocksdb_options_destroy(s->options[i]);
	}
	if (s->db)
		rocksdb_close(s->db);
	rocksdb_readoptions_destroy(s->read);
	rocksdb_cache_destroy(s->cache);
}

static int second_open(struct ntr_kv *kv, struct second *s, struct ntr_err *e)
{
	const rocksdb_options_t *const *o = (const rocksdb_options_t *const *)s->options;
	char *text = NULL;

	s->cache = rocksdb_cache_create_lru((size_t)1 << 20);
	for (int i = 0; i < NTR_CF_COUNT; i++)
		s->options[i] = ntr_kv_family_options((enum ntr_cf)i, s->cache);
	ntr_kv_database_options(s->options[0], false);
	s->read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_fill_cache(s->read, 0);
	rocksdb_readoptions_set_verify_checksums(s->read, 1);
	rocksdb_readoptions_set_readahead_size(s->read, (size_t)1 << 20);
	s->db = rocksdb_open_for_read_only_column_families(
	        o[0], kv->dir, NTR_CF_COUNT, ntr_kv_family_names, o, s->cf, 0, &text);
	return ntr_kv_fail(e, text, "verify the database");
}

/* Reads every block of data and index. */
static int family_scan(struct second *s, int cf, struct ntr_err *e)
{
	rocksdb_iterator_t *it = rocksdb_create_iterator_cf(s->db, s->read, s->cf[cf]);
	char *text = NULL;

	for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it))
		;
	rocksdb_iter_get_error(it, &text);
	rocksdb_iter_destroy(it);
	return ntr_kv_fail(e, text, "verify the database");
}

static int family_index(const char *name)
{
	for (int i = 0; i < NTR_CF_COUNT; i++)
		if (!strcmp(name, ntr_kv_family_names[i]))
			return i;
	return -1;
}

/* A scan reads no filter block; a look-up of what is in no file but within the file's range does. */
static int filter_probe(struct second *s, int cf, const char *key, size_t klen, struct ntr_err *e)
{
	ntr_autofree char *probe = calloc(1, klen + 1);
	char *text = NULL, *val;
	size_t n;

	if (!probe)
		return ntr_err_set(e, -ENOMEM, "verify the database");
	memcpy(probe, key, klen);
	val = rocksdb_get_cf(s->db, s->read, s->cf[cf], probe, klen + 1, &n, &text);
	if (val)
		rocksdb_free(val);
	return ntr_kv_fail(e, text, "verify the database");
}

static int filters_verify(struct second *s, struct ntr_err *e)
{
	const rocksdb_livefiles_t *l = rocksdb_livefiles(s->db);
	int r = 0;

	for (int i = 0; !r && i < rocksdb_livefiles_count(l); i++) {
		int cf = family_index(rocksdb_livefiles_column_family_name(l, i));
		size_t klen;
		const char *key = rocksdb_livefiles_smallestkey(l, i, &klen);

		if (cf >= 0)
			r = filter_probe(s, cf, key, klen, e);
	}
	rocksdb_livefiles_destroy(l);
	return r;
}

static int tables_verify(struct ntr_kv *kv, struct ntr_err *e)
{
	struct second s = {0};
	int r = second_open(kv, &s, e);

	for (int i = 0; !r && i < NTR_CF_COUNT; i++)
		r = family_scan(&s, i, e);
	if (!r)
		r = filters_verify(&s, e);
	second_close(&s);
	return r;
}

int ntr_kv_verify(struct ntr_kv *kv, struct ntr_err *e)
{
	char *text = NULL;
	int r = logs_verify(kv, e);

	/* What is in memory tables only goes to files first, or the second opening would replay all of the
	 * log. */
	for (int i = 0; !r && !kv->read_only && i < NTR_CF_COUNT; i++)
		r = ntr_kv_flush(kv, (enum ntr_cf)i, e);
	if (r)
		return r;
	if (!kv->read_only)
		rocksdb_disable_file_deletions(kv->db, &text);
	r = ntr_kv_fail(e, text, "verify the database");
	if (!r)
		r = tables_verify(kv, e);
	text = NULL;
	if (!kv->read_only)
		rocksdb_enable_file_deletions(kv->db, 0, &text);
	if (text)
		rocksdb_free(text);
	return r == -ENOENT ? -EUCLEAN : r;
}
