#include "port_read.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/sysmacros.h>
#include "port_hash.h"

enum { THREADS_MAX = 16, JOBS_MAX = 64 };

STAILQ_HEAD(job_list, ntr_read_job);

struct claim { /* a file with several names, which one thread has taken on */
	struct {
		uint64_t dev, ino;
	} id;
	UT_hash_handle hh;
};

struct ntr_readers {
	struct ntr_chunk_writer *w;
	uint64_t *bytes;
	pthread_mutex_t lock;
	pthread_cond_t todo_cond, done_cond;
	struct job_list todo, done;
	struct claim *claims;
	unsigned under_way; /* pushed and not yet taken back */
	bool stop;
	unsigned nthreads;
	pthread_t thread[THREADS_MAX];
};

void ntr_source_dir_put(struct ntr_source_dir *d)
{
	if (!d || __atomic_sub_fetch(&d->refs, 1, __ATOMIC_ACQ_REL))
		return;
	close(d->fd);
	free(d->path);
	free(d);
}

void ntr_read_job_free(struct ntr_read_job *j)
{
	for (unsigned i = 0; i < j->n; i++) {
		ntr_buf_done(&j->file[i].x.b);
		ntr_file_loaded_free(j->file[i].content);
	}
	ntr_buf_done(&j->names);
	ntr_source_dir_put(j->dir);
	free(j);
}

static const char *refuse_xattrs(const struct ntr_xattrs *x)
{
	const char *name, *why;
	const uint8_t *val;
	size_t off = 0, len;

	while (ntr_xattrs_next(x, &off, &name, &val, &len))
		if ((why = ntr_port_refuse_xattr(name)))
			return why;
	return NULL;
}

int ntr_read_meta(int fd, const char *path, struct statx *st, struct ntr_xattrs *x, const char **ret_refused)
{
	int r = statx(fd >= 0 ? fd : AT_FDCWD, fd >= 0 ? "" : path,
	        fd >= 0 ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, st);

	if (r)
		return -errno;
	if (st->stx_attributes & st->stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) {
		*ret_refused = "is a mount point";
		return -EXDEV;
	}
	*ret_refused = ntr_port_refuse_node(st->stx_mode, makedev(st->stx_rdev_major, st->stx_rdev_minor));
	if (*ret_refused)
		return -EBADMSG;
	r = ntr_xattrs_read(fd, path, x);
	if (!r)
		*ret_refused = refuse_xattrs(x);
	return r ? r : *ret_refused ? -EBADMSG : 0;
}

/* Reading leaves no trace in the source where its owner can ask for that. */
static int open_file(int dirfd, const char *name)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
	int fd = openat(dirfd, name, flags | O_NOATIME);

	if (fd < 0 && errno == EPERM)
		fd = openat(dirfd, name, flags);
	return fd < 0 ? -errno : fd;
}

/* True for the first thread that meets a file; its other names need no reading. */
static int claim(struct ntr_readers *r, const struct statx *st, bool *ret_mine)
{
	struct claim *c, key;

	*ret_mine = true;
	if (st->stx_nlink < 2)
		return 0;
	memset(&key, 0, sizeof key);
	key.id.dev = makedev(st->stx_dev_major, st->stx_dev_minor);
	key.id.ino = st->stx_ino;
	pthread_mutex_lock(&r->lock);
	HASH_FIND(hh, r->claims, &key.id, sizeof key.id, c);
	*ret_mine = !c;
	if (!c && (c = malloc(sizeof *c))) {
		*c = key;
		HASH_ADD(hh, r->claims, id, sizeof c->id, c);
		if (!ntr_hashed(hh, c)) {
			free(c);
			c = NULL;
		}
	}
	pthread_mutex_unlock(&r->lock);
	return c ? 0 : -ENOMEM;
}

static int read_file(struct ntr_readers *r, int dirfd, const char *name, struct ntr_read_file *f)
{
	ntr_autoclose int fd = open_file(dirfd, name);
	bool mine;
	int k;

	if (fd < 0)
		return fd == -ELOOP || fd == -ENXIO ? -EAGAIN : fd;
	k = ntr_read_meta(fd, NULL, &f->st, &f->x, &f->refused);
	if (k)
		return k;
	if (!S_ISREG(f->st.stx_mode))
		return -EAGAIN; /* no longer what the listing said */
	k = claim(r, &f->st, &mine);
	if (k || !mine)
		return k;
	__atomic_add_fetch(r->bytes, f->st.stx_size, __ATOMIC_RELAXED);
	return ntr_file_load(r->w, fd, f->st.stx_size, &f->content);
}

static void do_job(struct ntr_readers *r, struct ntr_read_job *j)
{
	for (unsigned i = 0; i < j->n; i++) {
		struct ntr_read_file *f = &j->file[i];

		f->err = read_file(r, j->dir->fd, (const char *)j->names.data + f->name, f);
		if (f->err && f->err != -EAGAIN && f->err != -ENOENT)
			break; /* the import ends here: what follows need not be read */
	}
}

static void *reader_main(void *arg)
{
	struct ntr_readers *r = arg;
	struct ntr_read_job *j;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		while (!r->stop && STAILQ_EMPTY(&r->todo))
			pthread_cond_wait(&r->todo_cond, &r->lock);
		if (r->stop)
			break;
		j = STAILQ_FIRST(&r->todo);
		STAILQ_REMOVE_HEAD(&r->todo, link);
		pthread_mutex_unlock(&r->lock);
		do_job(r, j);
		pthread_mutex_lock(&r->lock);
		STAILQ_INSERT_TAIL(&r->done, j, link);
		pthread_cond_signal(&r->done_cond);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static unsigned cpus(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);

	return (unsigned)NTR_MAX(1, NTR_MIN(n, (int)THREADS_MAX));
}

int ntr_readers_new(struct ntr_chunk_writer *w, uint64_t *bytes, struct ntr_readers **ret)
{
	struct ntr_readers *r = calloc(1, sizeof *r);
	int k = 0;

	if (!r)
		return -ENOMEM;
	r->w = w;
	r->bytes = bytes;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->todo_cond, NULL);
	pthread_cond_init(&r->done_cond, NULL);
	STAILQ_INIT(&r->todo);
	STAILQ_INIT(&r->done);
	for (unsigned n = cpus(); r->nthreads < n; r->nthreads++)
		if ((k = pthread_create(&r->thread[r->nthreads], NULL, reader_main, r)))
			break;
	if (!r->nthreads) {
		ntr_readers_free(r);
		return -k;
	}
	*ret = r;
	return 0;
}

static void list_free(struct job_list *l)
{
	struct ntr_read_job *j;

	while ((j = STAILQ_FIRST(l))) {
		STAILQ_REMOVE_HEAD(l, link);
		ntr_read_job_free(j);
	}
}

void ntr_readers_free(struct ntr_readers *r)
{
	struct claim *c, *next;

	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->todo_cond);
	pthread_mutex_unlock(&r->lock);
	for (unsigned i = 0; i < r->nthreads; i++)
		pthread_join(r->thread[i], NULL);
	list_free(&r->todo);
	list_free(&r->done);
	HASH_ITER (hh, r->claims, c, next) {
		HASH_DEL(r->claims, c);
		free(c);
	}
	pthread_cond_destroy(&r->todo_cond);
	pthread_cond_destroy(&r->done_cond);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void ntr_readers_push(struct ntr_readers *r, struct ntr_read_job *j)
{
	pthread_mutex_lock(&r->lock);
	r->under_way++;
	STAILQ_INSERT_TAIL(&r->todo, j, link);
	pthread_cond_signal(&r->todo_cond);
	pthread_mutex_unlock(&r->lock);
}

bool ntr_readers_full(struct ntr_readers *r)
{
	bool full;

	pthread_mutex_lock(&r->lock);
	full = r->under_way >= JOBS_MAX;
	pthread_mutex_unlock(&r->lock);
	return full;
}

struct ntr_read_job *ntr_readers_take(struct ntr_readers *r)
{
	struct ntr_read_job *j = NULL;

	pthread_mutex_lock(&r->lock);
	while (r->under_way && STAILQ_EMPTY(&r->done))
		pthread_cond_wait(&r->done_cond, &r->lock);
	if (r->under_way) {
		j = STAILQ_FIRST(&r->done);
		STAILQ_REMOVE_HEAD(&r->done, link);
		r->under_way--;
	}
	pthread_mutex_unlock(&r->lock);
	return j;
}
