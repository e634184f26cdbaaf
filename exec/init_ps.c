/* init_ps: what runs, and what it maps. */
#include "init.h"

#include "../base/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { CMDLINE_MAX = 1 << 20, MAPS_MAX = 64 << 20 };

/* ---- ps ---- */

static json_t *bracketed_name(pid_t pid)
{
	ntr_autofree char *name = NULL, *text = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/comm", pid);
	if (ntr_read_file(AT_FDCWD, path, 256, &name, NULL))
		return json_array();
	name[strcspn(name, "\n")] = '\0';
	text = ntr_sprintf("[%s]", name);
	return text ? json_pack("[o]", ntr_json_bytes(text, strlen(text))) : NULL;
}

/* A script's bash, and every subshell of it, has the wrapper for its command line, which nobody wants to
 * read: the script stands for it. */
static void hide_wrapper(const struct ntr_init *in, uint64_t call, json_t *a)
{
	const char *script = NULL;
	static const char begin[] = "builtin mapfile -d '' -t -u ";
	const char *text = json_string_value(json_array_get(a, 2));

	if (!text || strncmp(text, begin, strlen(begin)) != 0)
		return;
	for (const struct ntr_initcall *c = in->calls; c; c = c->next)
		if (c->req == call && c->script)
			script = c->script;
	json_array_set_new(
	        a, 2, script ? ntr_json_bytes(script, strlen(script)) : json_string("(a script's subshell)"));
	while (json_array_size(a) > 3)
		json_array_remove(a, json_array_size(a) - 1);
}

static json_t *command_line(const struct ntr_init *in, const struct ntr_proc *p)
{
	ntr_autojson json_t *a = json_array();
	ntr_autofree char *data = NULL;
	char path[64];
	size_t len = 0;

	snprintf(path, sizeof path, "/proc/%d/cmdline", p->tid);
	if (ntr_read_file(AT_FDCWD, path, CMDLINE_MAX, &data, &len) || !len)
		return bracketed_name(p->pid); /* a zombie */
	for (const char *s = data; a && s < data + len; s += strlen(s) + 1)
		if (json_array_append_new(a, ntr_json_bytes(s, strlen(s))))
			return NULL;
	hide_wrapper(in, p->call, a);
	return ntr_steal_ptr(a);
}

/* Start times count from boot; people count from 1970. */
static uint64_t start_wall_ns(uint64_t ticks)
{
	struct timespec boot;
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);

	clock_gettime(CLOCK_BOOTTIME, &boot);
	return ntr_wall_ns() - ((uint64_t)boot.tv_sec * 1000000000u + (uint64_t)boot.tv_nsec) +
	       ticks / hz * 1000000000u + ticks % hz * 1000000000u / hz;
}

static json_t *proc_row(const struct ntr_init *in, const struct ntr_proc *p)
{
	char state[2] = {p->state, '\0'};

	return json_pack("{s:i,s:i,s:I,s:s,s:o,s:I}", "pid", (int)p->pid, "ppid", (int)p->ppid, "call",
	        (json_int_t)p->call, "state", state, "cmd", command_line(in, p), "start_ns",
	        (json_int_t)start_wall_ns(p->start));
}

void ntr_init_ps(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autojson json_t *procs = json_array();
	struct ntr_proclist l = {0};
	struct ntr_err e = {0};
	int r = procs ? ntr_init_scan(in, &l) : -ENOMEM;

	for (size_t i = 0; !r && i < l.n; i++)
		if (json_array_append_new(procs, proc_row(in, &l.v[i])))
			r = -ENOMEM;
	ntr_proclist_done(&l);
	if (r) {
		ntr_err_set(&e, r, "list the session's processes");
		ntr_init_error(in, rq->req, &e);
		return;
	}
	ntr_init_send(in, rq->req, json_pack("{s:O}", "procs", procs), NULL, 0);
}

void ntr_init_background_op(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_init_send(
	        in, rq->req, json_pack("{s:I}", "background", (json_int_t)ntr_init_background(in)), NULL, 0);
}

/* ---- shared mappings ---- */

struct mapscan {
	const struct ntr_init *in;
	int view;   /* the workspace's root */
	dev_t dev;  /* of the view */
	char *root; /* its path as maps has it: without symlinks */
	json_t *seen, *paths;
};

struct mapping {
	pid_t tid;
	unsigned long begin, end;
	unsigned major, minor;
	const char *id, *name; /* the rest of the line from device and inode on; from the name on */
};

static void mapscan_done(struct mapscan *s)
{
	ntr_closep(&s->view);
	free(s->root);
	json_decref(s->seen);
	json_decref(s->paths);
}

/* Where the root cannot be opened (somebody has renamed a directory above it), its name has to do. */
static int mapscan_begin(struct mapscan *s)
{
	char link[40], path[PATH_MAX];
	struct stat st;
	ssize_t n = -1;

	s->view = open(s->in->wsroot, O_PATH | O_DIRECTORY | O_CLOEXEC);
	snprintf(link, sizeof link, "/proc/self/fd/%d", s->view);
	if (s->view >= 0 && !fstat(s->view, &st)) {
		s->dev = st.st_dev;
		n = readlink(link, path, sizeof path);
	}
	s->root = n > 0 ? strndup(path, (size_t)n) : strdup(s->in->wsroot);
	s->seen = json_object();
	s->paths = json_array();
	return s->root && s->seen && s->paths ? 0 : -ENOMEM;
}

/* The part of a path below the workspace's root, or NULL. */
static const char *below(const struct mapscan *s, const char *path)
{
	size_t len = strlen(s->root);

	return strncmp(path, s->root, len) || path[len] != '/' ? NULL : path + len + 1;
}

/* maps writes a newline in a name as \012, and a backslash as it is. */
static char *unescaped(const char *s)
{
	char *ret = strdup(s), *out = ret;

	while (out && *s) {
		bool newline = !strncmp(s, "\\012", 4);

		*out++ = newline ? '\n' : *s;
		s += newline ? 4 : 1;
	}
	if (out)
		*out = '\0';
	return ret;
}

/* One line of maps, cut up, if it is a shared mapping of the view's. Those that cannot be written to count,
 * too: mprotect(2) may have made them so for a while. The device finds what a mount of the session's own
 * shows elsewhere (before Linux 6.8 it is not the view's but upper's). */
static bool shared_of_view(const struct mapscan *s, char *line, struct mapping *m)
{
	ntr_autofree char *plain = NULL;
	int id = 0, name = 0;
	char perms[5] = "";

	if (sscanf(line, "%lx-%lx %4s %*s %n%x:%x %*s %n", &m->begin, &m->end, perms, &id, &m->major,
	            &m->minor, &name) != 5 ||
	        !name || perms[3] != 's')
		return false;
	m->id = line + id;
	m->name = line + name;
	if (below(s, m->name) || makedev(m->major, m->minor) == s->dev)
		return true;
	plain = unescaped(m->name);
	return plain && below(s, plain);
}

/* The pages belong to the file in upper (overlayfs maps the real file), so that is the one to write back. The
 * call waits: pages are clean afterwards, and the next store into one faults and moves the file's times.
 * false: not known to be done; a file that only the commit has needs nothing. */
static bool sync_path(struct mapscan *s, const char *path)
{
	const char *name = below(s, path);
	ntr_autoclose int fd = -1;
	struct stat st;

	if (!name)
		return false;
	fd = openat(s->in->upper_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT && !fstatat(s->view, name, &st, AT_SYMLINK_NOFOLLOW);
	json_array_append_new(s->paths, ntr_json_bytes(name, strlen(name)));
	return !sync_file_range(
	        fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

/* What maps writes may stand for two names: both, if they are there. */
static bool sync_name(struct mapscan *s, const char *text)
{
	ntr_autofree char *plain = strstr(text, "\\012") ? unescaped(text) : NULL;
	bool done = sync_path(s, text);

	return (plain && sync_path(s, plain)) || done;
}

/* The file behind a link of /proc. It is the view's, and sync_file_range(2) does not reach from there to
 * upper's: fdatasync(2) does, and costs more. A file without a name will be in no commit. */
static bool sync_link(const char *link)
{
	ntr_autoclose int at = open(link, O_PATH | O_CLOEXEC), fd = -1;
	char path[40];
	struct stat st;

	if (at < 0 || fstat(at, &st))
		return false;
	if (!S_ISREG(st.st_mode) || !st.st_nlink)
		return true;
	snprintf(path, sizeof path, "/proc/self/fd/%d", at);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd >= 0 && !fdatasync(fd);
}

static bool sync_range(const struct mapping *m)
{
	char link[96];

	snprintf(link, sizeof link, "/proc/%d/map_files/%lx-%lx", (int)m->tid, m->begin, m->end);
	return sync_link(link);
}

/* By a descriptor of the same file, if the process has kept one. */
static bool sync_descriptor(const struct mapping *m)
{
	ntr_autofree char *plain = unescaped(m->name);
	char dir[40], link[300], path[PATH_MAX];
	bool done = false;
	struct dirent *d;
	DIR *fds;

	snprintf(dir, sizeof dir, "/proc/%d/fd", (int)m->tid);
	fds = opendir(dir);
	while (fds && plain && !done && (d = readdir(fds))) {
		ssize_t n = readlinkat(dirfd(fds), d->d_name, path, sizeof path - 1);

		path[NTR_MAX(n, (ssize_t)0)] = '\0';
		snprintf(link, sizeof link, "%s/%s", dir, d->d_name);
		done = (!strcmp(path, m->name) || !strcmp(path, plain)) && sync_link(link);
	}
	if (fds)
		closedir(fds);
	return done;
}

/* A name that is gone may be there again, or the file has another one: no name is to be trusted then. The
 * range of the mapping leads to the file whatever it is called, but needs CAP_CHECKPOINT_RESTORE in the first
 * user namespace: an ordinary user's session goes without. There, further stores stay unseen if the file has
 * left the name that was opened by link(2) and unlink(2), or its name holds both a newline and a literal
 * \012, and the process has closed the descriptor. To search upper for the inode, or to write all of the
 * filesystem back, would be paid for by every commit beside a process with an unlinked temporary file. */
static void write_back(struct mapscan *s, const struct mapping *m)
{
	static const char gone[] = " (deleted)";
	ntr_autofree char *name = strdup(m->name);
	size_t len = strlen(m->name), cut = sizeof gone - 1;
	bool deleted = len > cut && !strcmp(m->name + len - cut, gone);

	if (sync_name(s, m->name) && !deleted)
		return;
	if (name && deleted) {
		name[len - cut] = '\0';
		sync_name(s, name);
	}
	if (!sync_range(m))
		sync_descriptor(m);
}

static int note_maps(struct mapscan *s, pid_t tid)
{
	ntr_autofree char *text = NULL;
	struct mapping m = {.tid = tid};
	char path[64], *save = NULL;

	snprintf(path, sizeof path, "/proc/%d/maps", (int)tid);
	if (ntr_read_file(AT_FDCWD, path, MAPS_MAX, &text, NULL))
		return 0; /* gone */
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		ntr_autojson json_t *id = NULL;
		ntr_autofree char *key = NULL;

		if (!shared_of_view(s, line, &m))
			continue;
		id = ntr_json_bytes(m.id, strlen(m.id));
		key = id ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
		if (key && json_object_get(s->seen, key))
			continue;
		if (!key || json_object_set(s->seen, key, id))
			return -ENOMEM;
		write_back(s, &m);
	}
	return 0;
}

void ntr_init_mapped(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_auto(mapscan_done) struct mapscan s = {.in = in, .view = -1};
	struct ntr_proclist l = {0};
	struct ntr_err e = {0};
	int r = ntr_init_scan(in, &l);

	if (!r && l.n)
		r = mapscan_begin(&s);
	for (size_t i = 0; !r && i < l.n; i++)
		r = note_maps(&s, l.v[i].tid);
	ntr_proclist_done(&l);
	if (r) {
		ntr_err_set(&e, r, "look for shared mappings");
		ntr_init_error(in, rq->req, &e);
		return;
	}
	ntr_init_send(in, rq->req, json_pack("{s:o}", "paths", s.paths ? json_incref(s.paths) : json_array()),
	        NULL, 0);
}
