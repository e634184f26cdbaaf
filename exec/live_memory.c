#include "live_memory.h"
#include "../base/json.h"
#include "../base/upperfs.h"
#include "../base/util.h"
#include "initproto.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/vfs.h>

enum { READY_MS = 15000 };
#define SMALLEST ((uint64_t)1 << 20)

static _Atomic bool forced;

bool ntr_memory_needed(struct ntr_store *s)
{
	struct statfs st;

	return forced || (!fstatfs(ntr_store_dirfd(s), &st) && ntr_fs_no_upper((unsigned long)st.f_type));
}

void ntr_memory_force(bool on)
{
	forced = on;
}

static uint64_t all_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : SMALLEST * 1024;
}

/* 0: it is no size. */
static uint64_t parse_size(const char *text)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || text[0] == '-')
		return 0;
	if (!strcmp(end, "%"))
		return v <= 100 ? all_memory() / 100 * v : 0;
	unit = *end ? strchr(units, *end) : NULL;
	if (*end && (!unit || end[1]))
		return 0;
	for (const char *u = units; unit && u <= unit; u++)
		v = v > UINT64_MAX >> 10 ? 0 : v << 10;
	return v <= INT64_MAX ? v : 0;
}

uint64_t ntr_memory_size(void)
{
	const char *env = getenv("NTR_UPPER_TMPFS_SIZE");
	uint64_t size = env ? parse_size(env) : 0;

	return size ? NTR_MAX(size, SMALLEST) : all_memory() / 2;
}

static void marker_name(uint64_t sid, uint64_t n, char buf[96])
{
	snprintf(buf, 96, "upper/%llu.%llu/memory", (unsigned long long)sid, (unsigned long long)n);
}

int ntr_memory_took(struct ntr_store *s, struct ntr_upper *u, const json_t *reply, int fd)
{
	ntr_autoclose int mark = -1;
	char name[96], line[32];
	int n;

	if (fd < 0)
		return -EPROTO;
	ntr_closep(&u->fd);
	ntr_closep(&u->work_fd);
	u->fd = fd;
	u->work_fd = -1;
	u->memory = true;
	marker_name(u->sid, u->n, name);
	mark = openat(ntr_store_dirfd(s), name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (mark < 0)
		return -errno;
	n = snprintf(line, sizeof line, "%lld\n", (long long)ntr_json_int(reply, "upper_fd", -1));
	return ntr_write_all(mark, line, (size_t)n);
}

static int marked_fd(struct ntr_store *s, uint64_t sid, uint64_t n, int *ret)
{
	ntr_autofree char *text = NULL;
	char name[96];
	int r;

	marker_name(sid, n, name);
	r = ntr_read_file(ntr_store_dirfd(s), name, 64, &text, NULL);
	if (!r && sscanf(text, "%d", ret) != 1)
		r = -ENODATA;
	return r;
}

static bool is_gone(int r)
{
	return r == -ENOENT || r == -ESRCH;
}

/* Until all its processes are gone. 1, 0: it is gone itself, or negative errno. */
static int await_held(const struct ntr_init_id *id)
{
	ntr_autofree char *comm = NULL;
	char path[64];
	int r;

	snprintf(path, sizeof path, "/proc/%d/comm", (int)id->pid);
	for (int i = 0; i < READY_MS; i++) {
		r = ntr_init_alive(id);
		if (r <= 0)
			return r;
		free(ntr_steal_ptr(comm));
		r = ntr_read_file(AT_FDCWD, path, 64, &comm, NULL);
		if (r && !is_gone(r))
			return r;
		if (!r && !strcmp(comm, NTR_INIT_HELD "\n"))
			break;
		usleep(1000);
	}
	return 1;
}

/* Only what proves that nobody has it any more makes it lost: whoever is told so gives it up. */
int ntr_memory_rescue(struct ntr_store *s, uint64_t sid, uint64_t n, int *ret_fd)
{
	struct ntr_init_id id;
	char path[64];
	int number, r = marked_fd(s, sid, n, &number);

	if (r)
		return r;
	r = ntr_upper_init_of(s, sid, n, &id);
	if (r)
		return r == -ENOENT ? -ENODATA : r;
	r = await_held(&id);
	if (r <= 0)
		return r ? r : -ENODATA;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)id.pid, number);
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_fd >= 0)
		return 0;
	return is_gone(-errno) ? -ENODATA : -errno;
}

void ntr_memory_end(struct ntr_store *s, uint64_t sid, uint64_t n)
{
	struct ntr_init_id id;
	int number;

	if (marked_fd(s, sid, n, &number) == -ENOENT || ntr_upper_init_of(s, sid, n, &id))
		return;
	if (ntr_init_alive(&id) > 0)
		kill(id.pid, SIGTERM);
	for (int i = 0; i < 1000 && ntr_init_alive(&id) > 0; i++) {
		if (i == 500)
			kill(id.pid, SIGKILL);
		usleep(i < 20 ? 500 : 5000);
	}
	ntr_kill_namespace(id.mntns);
}
