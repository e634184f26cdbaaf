/* Reads a family's files ahead, into the kernel's page cache, off everybody's path.
 *
 * Keys of nodes descend as a tree is written, so a first pass over a tree reads them backwards, which the
 * kernel takes for random: a read of the disk for each block. They are few (a hundredth of the content, or
 * less), so they are read whole. What the thread needs is its own: it may still wait for a slow disk when the
 * database is closed. */
#include "kv_impl.h"

#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

/* Of one call the kernel takes no more than a request of the disk holds. */
enum { STEP = 128 << 10 };

struct warm {
	char **path;
	off_t *size;
	size_t n;
};

static void warm_free(struct warm *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->path[i]);
	free(w->path);
	free(w->size);
	free(w);
}

static void *read_ahead(void *arg)
{
	struct warm *w = arg;

	for (size_t i = 0; i < w->n; i++) {
		ntr_autoclose int fd = open(w->path[i], O_RDONLY | O_CLOEXEC);

		for (off_t at = 0; fd >= 0 && at < w->size[i]; at += STEP)
			(void)posix_fadvise(fd, at, STEP, POSIX_FADV_WILLNEED);
	}
	warm_free(w);
	return NULL;
}

/* The youngest levels first, as RocksDB lists them. */
static int collect(struct ntr_kv *kv, enum ntr_cf cf, size_t bytes, struct warm *w)
{
	const rocksdb_livefiles_t *l = rocksdb_livefiles(kv->db);
	int n = l ? rocksdb_livefiles_count(l) : 0, r = 0;
	size_t sum = 0;

	w->path = calloc((size_t)n + 1, sizeof(*w->path));
	w->size = calloc((size_t)n + 1, sizeof(*w->size));
	r = w->path && w->size ? 0 : -ENOMEM;
	for (int i = 0; !r && i < n; i++) {
		size_t size = rocksdb_livefiles_size(l, i);

		if (strcmp(rocksdb_livefiles_column_family_name(l, i), ntr_kv_family_names[cf]) ||
		        size > bytes - sum)
			continue;
		sum += size;
		w->size[w->n] = (off_t)size;
		w->path[w->n] = ntr_sprintf("%s/%s", kv->dir, rocksdb_livefiles_name(l, i));
		if (!w->path[w->n++])
			r = -ENOMEM;
	}
	if (l)
		rocksdb_livefiles_destroy(l);
	return r;
}

static int start(struct warm *w)
{
	pthread_attr_t a;
	sigset_t all, old;
	pthread_t t;
	int r = pthread_attr_init(&a);

	if (r)
		return -r;
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&t, &a, read_ahead, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&a);
	return -r;
}

int ntr_kv_warm(struct ntr_kv *kv, enum ntr_cf cf, size_t bytes)
{
	struct warm *w;
	int r;

	if (atomic_exchange(&kv->warmed[cf], true))
		return 0;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	r = collect(kv, cf, bytes, w);
	if (!r && w->n && !(r = start(w)))
		return 0; /* the thread's from now on */
	warm_free(w);
	return r;
}
