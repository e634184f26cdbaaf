/* init_ps: what runs, and what it maps. */
#include "init.h"

#include "../base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

/* ---- shared writable mappings ---- */

/* maps writes a newline in a name as \012 (and nothing else so). */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (!strncmp(s, "\\012", 4)) {
			*out++ = '\n';
			s += 3;
			continue;
		}
		*out++ = *s;
	}
	*out = '\0';
}

/* The path below wsroot that one line of maps shows as mapped shared and writable, or NULL. */
static char *mapped_path(const struct ntr_init *in, char *line)
{
	size_t root = strlen(in->wsroot);
	char perms[5] = "";
	int at = 0;

	if (sscanf(line, "%*s %4s %*s %*s %*s %n", perms, &at) != 1 || !at || perms[1] != 'w' ||
	        perms[3] != 's')
		return NULL;
	line += at;
	if (strncmp(line, in->wsroot, root) || line[root] != '/')
		return NULL;
	unescape(line);
	return line + root + 1;
}

/* The pages belong to the file in upper (overlayfs maps the real file), so that is the one to write back. The
 * call waits: pages are clean afterwards, and the next store into one faults and moves the file's times. */
static void write_back(const struct ntr_init *in, const char *path)
{
	ntr_autoclose int fd = openat(in->upper_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd >= 0)
		sync_file_range(fd, 0, 0,
		        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

static int note_maps(const struct ntr_init *in, pid_t pid, json_t *seen)
{
	ntr_autofree char *text = NULL;
	char path[64], *save = NULL;

	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	if (ntr_read_file(AT_FDCWD, path, MAPS_MAX, &text, NULL))
		return 0; /* gone */
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *name = mapped_path(in, line);
		json_t *bytes = name ? ntr_json_bytes(name, strlen(name)) : NULL;
		ntr_autofree char *key = bytes ? json_dumps(bytes, JSON_ENCODE_ANY) : NULL;

		if (!name)
			continue;
		if (key && json_object_get(seen, key)) {
			json_decref(bytes);
			continue;
		}
		if (!key || json_object_set_new(seen, key, bytes))
			return -ENOMEM;
		write_back(in, name);
	}
	return 0;
}

void ntr_init_mapped(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autojson json_t *seen = json_object(), *paths = json_array();
	struct ntr_proclist l = {0};
	struct ntr_err e = {0};
	const char *key;
	json_t *v;
	int r = seen && paths ? ntr_init_scan(in, &l) : -ENOMEM;

	for (size_t i = 0; !r && i < l.n; i++)
		r = note_maps(in, l.v[i].tid, seen);
	ntr_proclist_done(&l);
	json_object_foreach (seen, key, v)
		if (!r && json_array_append(paths, v))
			r = -ENOMEM;
	if (r) {
		ntr_err_set(&e, r, "look for shared mappings");
		ntr_init_error(in, rq->req, &e);
		return;
	}
	ntr_init_send(in, rq->req, json_pack("{s:O}", "paths", paths), NULL, 0);
}
