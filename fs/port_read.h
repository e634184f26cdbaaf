/* port_read: threads that open, examine and load files while one thread builds the tree of what they found.
 */
#ifndef NTR_FS_PORT_READ_H
#define NTR_FS_PORT_READ_H

#include "port_impl.h"

#include <bsd/sys/queue.h>

/* A directory of the source. Counted: jobs and directories below that are still to be opened hold it. */
struct ntr_source_dir {
	int fd;
	unsigned refs;
	uint64_t ino; /* in the tree */
	char *path;   /* for messages, "" for the top */
};

struct ntr_read_file {
	size_t name; /* offset in the job's names */
	int err;
	const char *refused; /* with err: why, in words */
	struct statx st;
	struct ntr_xattrs x;
	struct ntr_file_loaded *content; /* NULL: another name of a file that has been claimed before */
};

enum { NTR_READ_BATCH = 32 };
struct ntr_read_job {
	STAILQ_ENTRY(ntr_read_job) link;
	struct ntr_source_dir *dir;
	struct ntr_buf names;
	struct ntr_read_file file[NTR_READ_BATCH];
	unsigned n;
};

struct ntr_readers;
/* Starts the threads: as many as CPUs. */
int ntr_readers_new(struct ntr_chunk_writer *w, uint64_t *bytes, struct ntr_readers **ret);
/* Ends them; jobs that are still in the queue are freed. */
void ntr_readers_free(struct ntr_readers *r);
/* Gives a job away. Blocks never; full tells when to take some back first. */
void ntr_readers_push(struct ntr_readers *r, struct ntr_read_job *j);
bool ntr_readers_full(struct ntr_readers *r);
/* The next finished job, waiting for it; NULL when none is under way. */
struct ntr_read_job *ntr_readers_take(struct ntr_readers *r);

void ntr_read_job_free(struct ntr_read_job *j);
void ntr_source_dir_put(struct ntr_source_dir *d);

/* Examines an opened or path-named object: *st and x, or why not. Both threads' part of import. */
int ntr_read_meta(int fd, const char *path, struct statx *st, struct ntr_xattrs *x, const char **ret_refused);

#endif
