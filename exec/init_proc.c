/* init_proc: which processes are the session's, and which call each belongs to.
 *
 * ntr-init is a child subreaper, so the session is exactly its descendants; an orphan becomes its own child.
 * They are walked through /proc/PID/task/TID/children (where the kernel has it, else through every process's
 * parent).
 *
 * A descendant belongs to the call of its topmost ancestor below ntr-init. For that one: the main process of
 * a call; else what an earlier scan found (pid and start time); else the terminal session or process group it
 * still is in, which is the call's pid; else NTR_CALL of its environment, for those that left all that behind
 * between two scans. */
#include "init.h"
#include "../base/hash.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

enum { ENVIRON_MAX = 4 << 20, CHILDREN_MAX = 16 << 20 };

struct ntr_known {
	pid_t pid;
	uint64_t start, call;
	bool seen;
	UT_hash_handle hh;
};

void ntr_proclist_done(struct ntr_proclist *l)
{
	free(l->v);
	*l = (struct ntr_proclist){0};
}

int ntr_proclist_add(struct ntr_proclist *l, const struct ntr_proc *p)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 16;
		struct ntr_proc *bigger = realloc(l->v, cap * sizeof *bigger);

		if (!bigger)
			return -ENOMEM;
		l->v = bigger;
		l->cap = cap;
	}
	l->v[l->n++] = *p;
	return 0;
}

/* ---- one process ---- */

static int read_stat(const char *path, struct ntr_proc *ret)
{
	ntr_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned long long start;
	int ppid, pgid, sid;
	char buf[1024];
	const char *p;
	ssize_t n;

	if (fd < 0 || (n = read(fd, buf, sizeof buf - 1)) <= 0)
		return -ESRCH;
	buf[n] = '\0';
	p = strrchr(buf, ')'); /* the name before may hold anything */
	if (!p ||
	        sscanf(p + 1, " %c %d %d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %u %*s %llu",
	                &ret->state, &ppid, &pgid, &sid, &ret->threads, &start) != 6)
		return -ESRCH;
	ret->ppid = ppid;
	ret->pgid = pgid;
	ret->sid = sid;
	ret->start = start;
	return 0;
}

bool ntr_proc_any_thread(pid_t pid, ntr_thread_test is, void *arg)
{
	bool found = false;
	struct dirent *d;
	char path[40];
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && !found && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]))
			found = is(arg, dirfd(dir), atoi(d->d_name));
	if (dir)
		closedir(dir);
	return found;
}

char ntr_thread_state(int task, pid_t tid)
{
	char path[24], buf[128]; /* a name has 64 bytes at most */
	ntr_autoclose int fd = -1;
	const char *p;
	ssize_t n;

	snprintf(path, sizeof path, "%d/stat", (int)tid);
	fd = openat(task, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
	buf[NTR_MAX(n, (ssize_t)0)] = '\0';
	p = strrchr(buf, ')');
	return p && p[1] ? p[2] : '\0';
}

enum { RANK_ENDED, RANK_STOPPED, RANK_ASLEEP, RANK_AWAKE };

static int rank(char state)
{
	if (!state || strchr("ZX", state))
		return RANK_ENDED;
	if (strchr("Tt", state))
		return RANK_STOPPED;
	return state == 'D' ? RANK_ASLEEP : RANK_AWAKE;
}

static bool take_living(void *arg, int task, pid_t tid)
{
	struct ntr_proc *p = arg;
	char state = ntr_thread_state(task, tid);

	if (rank(state) == RANK_ENDED)
		return false;
	p->tid = tid;
	p->state = state;
	return true;
}

/* When the main thread has ended before others, it is a zombie, and nothing of the process's memory is shown
 * under its id. */
int ntr_proc_read(pid_t pid, struct ntr_proc *ret)
{
	char path[64];

	*ret = (struct ntr_proc){.pid = pid, .tid = pid};
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	if (read_stat(path, ret))
		return -ESRCH;
	if (ret->threads > 1 && rank(ret->state) == RANK_ENDED)
		ntr_proc_any_thread(pid, take_living, ret);
	return 0;
}

static bool take_livelier(void *arg, int task, pid_t tid)
{
	struct ntr_proc *p = arg;
	char state = ntr_thread_state(task, tid);

	if (rank(state) > rank(p->state))
		p->state = state;
	return rank(p->state) == RANK_AWAKE;
}

void ntr_proc_liveliest(struct ntr_proc *p)
{
	if (p->threads > 1 && rank(p->state) < RANK_AWAKE)
		ntr_proc_any_thread(p->pid, take_livelier, p);
}

/* NTR_CALL of the environment it was executed with, or 0. */
static uint64_t call_of_environ(pid_t pid)
{
	static const char key[] = "NTR_CALL=";
	ntr_autofree char *data = NULL;
	char path[64];
	size_t len;

	snprintf(path, sizeof path, "/proc/%d/environ", pid);
	if (ntr_read_file(AT_FDCWD, path, ENVIRON_MAX, &data, &len))
		return 0;
	for (const char *p = data; p < data + len; p += strlen(p) + 1)
		if (!strncmp(p, key, sizeof key - 1))
			return strtoull(p + sizeof key - 1, NULL, 10);
	return 0;
}

/* ---- the tree ---- */

static int add_pid(struct ntr_proclist *l, pid_t pid)
{
	struct ntr_proc p;

	return ntr_proc_read(pid, &p) ? 0 : ntr_proclist_add(l, &p);
}

/* Children of one thread. -ENOENT: no such thread any more, or no such file on this kernel. */
static int add_children_of_thread(struct ntr_proclist *l, pid_t pid, pid_t tid)
{
	ntr_autofree char *text = NULL;
	char path[80], *end;
	int r;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, tid);
	r = ntr_read_file(AT_FDCWD, path, CHILDREN_MAX, &text, NULL);
	for (char *p = text; !r && *p; p = end) {
		long child = strtol(p, &end, 10);

		if (end == p)
			break;
		r = add_pid(l, (pid_t)child);
		end += strspn(end, " \n");
	}
	return r;
}

static int add_children(struct ntr_proclist *l, pid_t pid)
{
	char path[64];
	struct dirent *d;
	DIR *dir;
	int r = 0;

	snprintf(path, sizeof path, "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOMEM ? -ENOMEM : 0;
	while (r != -ENOMEM && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]))
			r = add_children_of_thread(l, pid, atoi(d->d_name));
	closedir(dir);
	return r == -ENOMEM ? r : 0;
}

static bool listed(const struct ntr_proclist *l, pid_t pid)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].pid == pid)
			return true;
	return false;
}

/* Every process of the host, then those whose parents are ours, generation by generation. */
static int walk_all(const struct ntr_init *in, struct ntr_proclist *l)
{
	struct ntr_proclist all = {0};
	struct dirent *d;
	DIR *dir = opendir("/proc");
	int r = dir ? 0 : -errno;

	while (!r && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]))
			r = add_pid(&all, atoi(d->d_name));
	if (dir)
		closedir(dir);
	for (size_t before = SIZE_MAX; !r && before != l->n;) {
		before = l->n;
		for (size_t i = 0; !r && i < all.n; i++)
			if ((all.v[i].ppid == getpid() || ntr_initpy_is(in, all.v[i].ppid) ||
			            listed(l, all.v[i].ppid)) &&
			        !listed(l, all.v[i].pid) && !ntr_inithelper_is(in, all.v[i].pid) &&
			        !ntr_initpy_is(in, all.v[i].pid))
				r = ntr_proclist_add(l, &all.v[i]);
	}
	ntr_proclist_done(&all);
	return r;
}

static int walk(const struct ntr_init *in, struct ntr_proclist *l)
{
	pid_t self = getpid();
	int r = add_children_of_thread(l, self, self);

	if (r == -ENOENT)
		return walk_all(in, l);
	for (size_t i = 0; !r && i < l->n; i++) {
		pid_t pid = l->v[i].pid;

		if (l->v[i].ppid == self && (ntr_inithelper_is(in, pid) || ntr_initpy_is(in, pid))) {
			memmove(l->v + i, l->v + i + 1, (--l->n - i) * sizeof *l->v);
			i--;
			if (ntr_initpy_is(in, pid)) /* itself it is none of the session's, its children are */
				r = add_children(l, pid);
			continue;
		}
		if (l->v[i].state != 'Z')
			r = add_children(l, l->v[i].pid);
	}
	return r;
}

/* ---- whose ---- */

static uint64_t call_of_orphan(struct ntr_init *in, const struct ntr_proc *p)
{
	struct ntr_known *k;

	HASH_FIND(hh, in->known, &p->pid, sizeof p->pid, k);
	if (k && k->start == p->start && k->call)
		return k->call;
	for (struct ntr_initcall *c = in->calls; c; c = c->next)
		if (c->pid == p->pid || c->pid == p->sid || c->pid == p->pgid)
			return c->req;
	return call_of_environ(p->tid);
}

static void remember(struct ntr_init *in, const struct ntr_proc *p)
{
	struct ntr_known *k;

	HASH_FIND(hh, in->known, &p->pid, sizeof p->pid, k);
	if (!k) {
		k = calloc(1, sizeof *k);
		if (!k)
			return; /* only the memory of a scan: the other ways to tell are left */
		k->pid = p->pid;
		HASH_ADD(hh, in->known, pid, sizeof k->pid, k);
		if (!ntr_hashed(hh, k)) {
			free(k);
			return;
		}
	}
	k->start = p->start;
	k->call = p->call;
	k->seen = true;
}

static void forget_unseen(struct ntr_init *in, bool all)
{
	struct ntr_known *k, *next;

	HASH_ITER (hh, in->known, k, next) {
		if (!all && k->seen) {
			k->seen = false;
			continue;
		}
		HASH_DEL(in->known, k);
		free(k);
	}
}

void ntr_init_forget(struct ntr_init *in)
{
	forget_unseen(in, true);
}

static void attribute(struct ntr_init *in, struct ntr_proclist *l)
{
	pid_t self = getpid();

	for (struct ntr_initcall *c = in->calls; c; c = c->next)
		c->alive = false;
	for (size_t i = 0; i < l->n; i++) {
		struct ntr_proc *p = &l->v[i];
		struct ntr_known *k = NULL;

		/* A parent stands before its children and is in `known` by now. */
		if (p->ppid != self)
			HASH_FIND(hh, in->known, &p->ppid, sizeof p->ppid, k);
		p->call = k && k->call ? k->call : call_of_orphan(in, p);
		remember(in, p);
		for (struct ntr_initcall *c = in->calls; c; c = c->next)
			c->alive |= c->req == p->call && p->state != 'Z';
	}
	forget_unseen(in, false);
}

int ntr_init_scan(struct ntr_init *in, struct ntr_proclist *ret)
{
	int r;

	ret->n = 0;
	r = walk(in, ret);
	if (!r)
		attribute(in, ret);
	return r;
}

/* What is being killed is as good as gone. */
static bool dying(const struct ntr_init *in, const struct ntr_proc *p)
{
	for (const struct ntr_initjob *j = in->jobs; j; j = j->next)
		if (!j->call || j->call == p->call)
			return true;
	return p->state == 'Z' || p->state == 'X';
}

unsigned ntr_init_background(struct ntr_init *in)
{
	struct ntr_proclist l = {0};
	unsigned n = 0;

	ntr_init_scan(in, &l);
	for (size_t i = 0; i < l.n; i++) {
		bool running = false;

		for (struct ntr_initcall *c = in->calls; c; c = c->next)
			running |= c->req == l.v[i].call && !c->ended;
		n += !running && !dying(in, &l.v[i]);
	}
	ntr_proclist_done(&l);
	return n;
}
