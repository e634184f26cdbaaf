/* Threads that read files and store their chunks while the caller makes records: an untar of fifty thousand
 * files is mostly opening, hashing and compressing. The caller opens (directories are its), threads read;
 * each object has one owner at a time, handed over under the lock. Large files that head has already stay the
 * caller's: it compares them with what they were. */
#include "absorb_impl.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

enum { THREADS_MAX = 8, QUEUE = 64, FILES_MIN = 48, READ_TRIES = 3 };

struct job {
	struct ntr_aobj *o;
	int fd;
};

struct ntr_pool {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct ntr_chunk_writer *chunks;
	struct job queue[QUEUE];
	unsigned head, count;
	bool stop;
	const struct ntr_aobj *awaited;
	struct ntr_aobj
	        *next; /* to be queued next; those that are new come first, as they are wanted first */
	bool second;
	unsigned nthreads;
	pthread_t thread[THREADS_MAX];
};

/* The object's other fields are the caller's, who reads them meanwhile. */
static int note_stat(struct ntr_aobj *o, const struct statx *sx)
{
	struct ntr_mstat st = ntr_mstat_of(sx);

	if (ntr_mstat_same(&o->st, &st))
		return 0;
	o->content.sx = malloc(sizeof(*sx));
	if (!o->content.sx)
		return -ENOMEM;
	*o->content.sx = *sx;
	return 0;
}

/* Reads it until it stands still over one reading. */
static int load_steady(struct ntr_pool *p, struct ntr_aobj *o, int fd)
{
	struct statx before, after;
	bool steady = false;
	int r = ntr_statx_at(fd, "", &after);

	for (int i = 0; i < READ_TRIES && !r && !steady; i++) {
		struct ntr_mstat x, y;

		before = after;
		ntr_file_loaded_free(ntr_steal_ptr(o->content.loaded));
		r = ntr_file_load(p->chunks, fd, before.stx_size, &o->content.loaded);
		if (!r)
			r = ntr_statx_at(fd, "", &after);
		x = ntr_mstat_of(&before);
		y = ntr_mstat_of(&after);
		steady = ntr_mstat_same(&x, &y);
	}
	if (r)
		return r;
	o->content.racy = !steady;
	return note_stat(o, &before);
}

static void finish(struct ntr_pool *p, struct ntr_aobj *o, int r)
{
	pthread_mutex_lock(&p->lock);
	o->content.err = r;
	o->content.state = NTR_CONTENT_READY;
	if (p->awaited == o)
		pthread_cond_signal(&p->done);
	pthread_mutex_unlock(&p->lock);
}

static bool next_job(struct ntr_pool *p, struct job *ret)
{
	pthread_mutex_lock(&p->lock);
	while (!p->count && !p->stop)
		pthread_cond_wait(&p->work, &p->lock);
	if (!p->count) {
		pthread_mutex_unlock(&p->lock);
		return false;
	}
	*ret = p->queue[p->head];
	p->head = (p->head + 1) % QUEUE;
	p->count--;
	pthread_mutex_unlock(&p->lock);
	return true;
}

static void *worker(void *arg)
{
	struct ntr_pool *p = arg;
	struct job j;

	while (next_job(p, &j)) {
		int r = load_steady(p, j.o, j.fd);

		close(j.fd);
		finish(p, j.o, r);
	}
	return NULL;
}

static bool is_eligible(const struct ntr_aobj *o)
{
	return o->flags & NTR_AO_CONTENT && !(o->flags & NTR_AO_EARLY) && o->st.size &&
	       (o->flags & NTR_AO_FRESH ? o->st.size <= UINT64_C(1) << NTR_SIZE_MAX_LOG2
	                                : o->st.size <= NTR_CHUNK_SIZE);
}

static unsigned cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

int ntr_pool_start(struct ntr_arun *w)
{
	struct ntr_pool *p;
	struct ntr_aobj *o;
	size_t n = 0;

	if (w->files < FILES_MIN)
		return 0;
	TAILQ_FOREACH (o, &w->objs, link)
		n += is_eligible(o);
	if (n < FILES_MIN)
		return 0;
	p = calloc(1, sizeof *p);
	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->done, NULL);
	p->chunks = ntr_txn_chunks(w->txn);
	for (unsigned i = 0; i < NTR_MIN(cpus(), (unsigned)THREADS_MAX); i++)
		if (!pthread_create(&p->thread[p->nthreads], NULL, worker, p))
			p->nthreads++;
	w->pool = p;
	if (!p->nthreads) { /* no threads to be had: the caller reads all by itself */
		ntr_pool_stop(w);
		return 0;
	}
	TAILQ_FOREACH (o, &w->objs, link)
		if (is_eligible(o)) {
			o->flags |= NTR_AO_POOLED;
			o->content.state = NTR_CONTENT_NONE;
		}
	p->next = TAILQ_FIRST(&w->objs);
	return 0;
}

void ntr_pool_stop(struct ntr_arun *w)
{
	struct ntr_pool *p = w->pool;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	for (; p->count; p->count--) {
		close(p->queue[p->head].fd);
		p->head = (p->head + 1) % QUEUE;
	}
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->nthreads; i++)
		pthread_join(p->thread[i], NULL);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->done);
	pthread_mutex_destroy(&p->lock);
	free(p);
	w->pool = NULL;
}

/* The next object to be queued, and on to the one behind; NULL when all are. */
static struct ntr_aobj *take_next(struct ntr_arun *w)
{
	struct ntr_pool *p = w->pool;

	for (;;) {
		struct ntr_aobj *o = p->next;

		if (!o) {
			if (p->second)
				return NULL;
			p->second = true;
			p->next = TAILQ_FIRST(&w->objs);
			continue;
		}
		p->next = TAILQ_NEXT(o, link);
		if (o->flags & NTR_AO_POOLED && !(o->flags & NTR_AO_FRESH) == p->second)
			return o;
	}
}

static bool has_room(struct ntr_pool *p)
{
	bool room;

	pthread_mutex_lock(&p->lock);
	room = p->count < QUEUE;
	pthread_mutex_unlock(&p->lock);
	return room;
}

/* Only this thread adds, so room that was seen stays. */
static void push(struct ntr_pool *p, struct ntr_aobj *o, int fd)
{
	pthread_mutex_lock(&p->lock);
	o->content.state = NTR_CONTENT_WAIT;
	p->queue[(p->head + p->count) % QUEUE] = (struct job){o, fd};
	p->count++;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
}

static int feed(struct ntr_arun *w)
{
	while (has_room(w->pool)) {
		struct ntr_aobj *o = take_next(w);
		int fd, r;

		if (!o)
			return 0;
		r = ntr_aobj_open(w, o, &fd);
		if (r)
			return ntr_aobj_fail(w, o, r);
		push(w->pool, o, fd);
	}
	return 0;
}

static int await(struct ntr_pool *p, const struct ntr_aobj *o)
{
	pthread_mutex_lock(&p->lock);
	p->awaited = o;
	while (o->content.state == NTR_CONTENT_WAIT)
		pthread_cond_wait(&p->done, &p->lock);
	p->awaited = NULL;
	pthread_mutex_unlock(&p->lock);
	return o->content.err;
}

int ntr_pool_wait(struct ntr_arun *w, struct ntr_aobj *o, struct ntr_inode *in)
{
	bool cut = false;
	int r;

	do { /* all before it are queued, and the queue moves */
		r = feed(w);
		if (!r)
			r = await(w->pool, o);
	} while (!r && o->content.state == NTR_CONTENT_NONE);
	if (r)
		return r;
	if (o->content.sx)
		ntr_aobj_stat(o, o->content.sx);
	w->bytes += o->st.size;
	r = ntr_file_attach(w->txn, in, o->content.loaded, &cut);
	ntr_file_loaded_free(ntr_steal_ptr(o->content.loaded));
	if (cut || o->content.racy)
		o->flags |= NTR_AO_RACY;
	return r;
}
