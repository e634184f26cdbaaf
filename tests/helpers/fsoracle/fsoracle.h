/* fsoracle: random sequences of file operations that depend on a seed and on the tree alone (see fsoracle.c).
 */
#ifndef NTR_TESTS_FSORACLE_H
#define NTR_TESTS_FSORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PATH_ROOM = 4600, SLOTS = 4, LOG_ROOM = 64 << 20 };

/* What the log begins with. It is mapped, so it survives a SIGKILL at any moment; text follows. */
struct log_head {
	uint64_t steps;    /* system calls that changed something (or tried to) and have returned */
	uint64_t done;     /* operations that are over */
	uint64_t text_len; /* of the lines of those */
	uint64_t tree;     /* hash of the tree at the beginning */
	uint64_t finished; /* 1: to the end; 2: stopped at --steps; 3: the filesystem was gone */
};

struct paths {
	char **v;
	size_t n, room;
};

struct run {
	uint64_t seed, op, rng;
	struct log_head *log;
	char *text;
	size_t used;      /* of text, the current operation's unfinished line included */
	uint64_t stop_at; /* steps; UINT64_MAX: none */
	long partial;  /* of the step at which to stop, a write: this many bytes of it are done; -1: none */
	bool killable; /* errors of a filesystem whose server has died end the run */
	bool any_now;  /* a modification time of the time of the test is as good as any other such */
	const char *follow; /* the other side's text, NULL: none */
	struct paths dirs, files;
	int slot[SLOTS]; /* files held open over several operations */
	bool slot_write[SLOTS];
	int dir_slot;
};

/* random choices of the operation at hand */
uint64_t rnd(struct run *r);
uint64_t below(struct run *r, uint64_t n);
bool chance(struct run *r, unsigned percent);
#define PICK(r, array) ((array)[below(r, sizeof(array) / sizeof *(array))])

/* the line of the operation at hand */
void note(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void note_name(struct run *r, const char *name);
void note_errno(struct run *r, long result); /* "ok" or the errno's name */
/* One call that changes something: counted, and the place where a run can be cut. STEP gives the call's value
 * or -errno; W is how much a writing call may write when it is the one to be cut. */
void step_begin(struct run *r);
long step_end(struct run *r, long result);
#define STEP(r, call) (step_begin(r), step_end(r, (long)(call)))
/* As STEP, for calls that only look. */
long looked(struct run *r, long result);
#define LOOK(r, call) looked(r, (long)(call))
long step_write(
        struct run *r, int fd, const void *buf, size_t n, long off); /* off < 0: at the end (O_APPEND) */
/* What the other side gave for this operation; "" when there is none. */
bool other_gave(struct run *r, const char *name_of_errno);

/* what there is, as far as known */
void paths_add(struct paths *p, const char *path);
void paths_gone(struct paths *p, const char *path); /* and everything below */
void paths_moved(struct paths *p, const char *from, const char *to);
void paths_exchanged(struct paths *p, const char *a, const char *b);
void paths_free(struct paths *p);
int by_path(const void *a, const void *b); /* for qsort */
/* Every path below ".", sorted, directories apart. */
void walk(struct paths *dirs, struct paths *files);

/* the operations */
void operation(struct run *r);
void slots_close(struct run *r);

/* Hash of everything that must agree; out (a FILE, NULL: none) gets a line a path. links: link counts and
 * groups too; no_now: modification times of the time of the test itself are all the same, no_times: all are,
 * and the set-id bits of files; unlock: also what the owner has no permission for, which he lends himself
 * meanwhile. */
struct hash_options {
	bool links, no_now, no_times, unlock;
	void *out;
};
uint64_t tree_hash(struct hash_options o);

#endif
