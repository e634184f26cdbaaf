/* Content read before the session stands still: when much has changed, reading it is most of what its
 * processes would stand still for.
 *
 * What is loaded counts only if the file is then still in the state in which it was read. Its ctime tells
 * that of every write; of stores through a mapping only the first into a clean page moves it. So pages are
 * written back between the look at the times and the reading: a store from then on moves them. */
#include "absorb_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>

enum { THREADS_MAX = 8 };
#define EARLY_MIN (UINT64_C(8) << 20)

struct ntr_early {
	struct ntr_mstat st;
	struct ntr_file_loaded *loaded;
	UT_hash_handle hh;
};

struct reading {
	struct ntr_arun *w;
	struct ntr_chunk_writer *chunks;
	pthread_mutex_t
	        lock; /* guards next and the run: directories are opened, marks read by one at a time */
	struct ntr_aobj *next;
};

static bool is_wanted(const struct ntr_aobj *o)
{
	return S_ISREG(o->mode) && !(o->flags & NTR_AO_SAME) && o->st.size > NTR_INODE_INLINE;
}

static bool is_much(const struct ntr_arun *w)
{
	const struct ntr_aobj *o;
	uint64_t bytes = 0;

	TAILQ_FOREACH (o, &w->objs, link)
		if (is_wanted(o))
			bytes += NTR_MIN(o->st.size, o->blocks * UINT64_C(512));
	return bytes >= EARLY_MIN;
}

static int load(const struct reading *rd, int fd, struct ntr_early *en)
{
	struct statx before, after;
	struct ntr_mstat now;
	int r = ntr_statx_at(fd, "", &before);

	if (!r && sync_file_range(fd, 0, 0,
	                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER))
		r = -errno;
	if (!r)
		r = ntr_file_load(rd->chunks, fd, before.stx_size, &en->loaded);
	if (!r)
		r = ntr_statx_at(fd, "", &after);
	if (r)
		return r;
	en->st = ntr_mstat_of(&before);
	now = ntr_mstat_of(&after);
	return ntr_mstat_same(&en->st, &now) ? 0 : -EAGAIN;
}

/* The next file, open; -1 in *ret_fd: that one not. False: there is none left. */
static bool take(struct reading *rd, int *ret_fd)
{
	struct ntr_aobj *o;

	*ret_fd = -1;
	pthread_mutex_lock(&rd->lock);
	while ((o = rd->next) && !is_wanted(o))
		rd->next = TAILQ_NEXT(o, link);
	if (o) {
		rd->next = TAILQ_NEXT(o, link);
		if (!ntr_aobj_marks(rd->w, o) &&
		        !(o->marks.flags & (NTR_MARK_METACOPY | NTR_MARK_WHITEOUT)) &&
		        ntr_aobj_open(rd->w, o, ret_fd))
			*ret_fd = -1;
	}
	pthread_mutex_unlock(&rd->lock);
	return o != NULL;
}

static void keep(struct reading *rd, struct ntr_early *en)
{
	struct ntr_memo *m = rd->w->memo;
	struct ntr_early *other;

	pthread_mutex_lock(&rd->lock);
	HASH_FIND(hh, m->early, &en->st.ino, sizeof en->st.ino, other);
	if (!other)
		HASH_ADD(hh, m->early, st.ino, sizeof en->st.ino, en);
	pthread_mutex_unlock(&rd->lock);
	if (!other && ntr_hashed(hh, en))
		return;
	ntr_file_loaded_free(en->loaded);
	free(en);
}

static void *reader(void *arg)
{
	struct reading *rd = arg;
	int fd;

	while (take(rd, &fd)) {
		struct ntr_early *en = fd < 0 ? NULL : calloc(1, sizeof *en);

		if (en && !load(rd, fd, en)) {
			keep(rd, en);
		} else if (en) {
			ntr_file_loaded_free(en->loaded);
			free(en);
		}
		ntr_closep(&fd);
	}
	return NULL;
}

static unsigned cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

/* Whatever goes wrong here is met again, and told, when the session stands still. */
static void read_all(struct ntr_arun *w)
{
	struct reading rd = {.w = w, .chunks = ntr_txn_chunks(w->txn), .next = TAILQ_FIRST(&w->objs)};
	pthread_t thread[THREADS_MAX];
	unsigned n = 0;

	pthread_mutex_init(&rd.lock, NULL);
	while (n + 1 < NTR_MIN(cpus(), (unsigned)THREADS_MAX) &&
	        !pthread_create(&thread[n], NULL, reader, &rd))
		n++;
	reader(&rd);
	while (n)
		pthread_join(thread[--n], NULL);
	pthread_mutex_destroy(&rd.lock);
}

void ntr_arun_early(struct ntr_arun *w)
{
	if (!w->memo->coarse && !ntr_arun_walk(w) && is_much(w))
		read_all(w);
}

const struct ntr_file_loaded *ntr_early_of(const struct ntr_memo *m, const struct ntr_aobj *o)
{
	struct ntr_early *en;

	HASH_FIND(hh, m->early, &o->st.ino, sizeof o->st.ino, en);
	return en && ntr_mstat_same(&en->st, &o->st) ? en->loaded : NULL;
}

void ntr_absorb_early_done(struct ntr_memo *m)
{
	struct ntr_early *en, *next;

	HASH_ITER (hh, m->early, en, next) {
		HASH_DEL(m->early, en);
		ntr_file_loaded_free(en->loaded);
		free(en);
	}
}
