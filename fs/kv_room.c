/* Room on the database's file system. RocksDB gets over a full disk by itself, but only looks for room every
 * five seconds, and not every step of it bears the error in builds with assertions. So it is kept from
 * meeting one: a write is refused while there is less than it and the memory tables will take. A process that
 * eats the disk at the same moment can still be faster. */
#include "kv_impl.h"

#include "../base/util.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

enum { PAUSE_MS = 50, PATIENCE_S = 8 };
#define SPARE  ((uint64_t)4 << 20)   /* manifest, a new log, the file system's own */
#define PLENTY ((uint64_t)512 << 20) /* more than all memory tables can come to */
#define SMALL  ((uint64_t)256 << 10)
#define RESUME ((uint64_t)40 << 20) /* from here on RocksDB takes up work again */

static int room_left(struct ntr_kv *kv, uint64_t *ret)
{
	struct statvfs st;

	if (statvfs(kv->dir, &st))
		return -errno;
	*ret = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

static uint64_t tables_bytes(struct ntr_kv *kv)
{
	uint64_t sum = 0, n;

	for (int i = 0; i < NTR_CF_COUNT; i++)
		if (!rocksdb_property_int_cf(kv->db, kv->cf[i], "rocksdb.cur-size-all-mem-tables", &n))
			sum += n;
	return sum;
}

/* What the newest log has taken of the disk and not used yet: RocksDB lets it have tens of MiB at a time. */
static uint64_t log_slack(struct ntr_kv *kv)
{
	DIR *d = opendir(kv->dir);
	unsigned long newest = 0, n;
	uint64_t slack = 0;
	struct dirent *en;
	struct stat st;
	int end;

	while (d && (en = readdir(d))) {
		end = 0;
		if (sscanf(en->d_name, "%lu.log%n", &n, &end) != 1 || !end || en->d_name[end] || n < newest)
			continue;
		if (fstatat(dirfd(d), en->d_name, &st, 0))
			continue;
		newest = n;
		slack = (uint64_t)st.st_blocks * 512;
		slack -= NTR_MIN(slack, (uint64_t)st.st_size);
	}
	if (d)
		closedir(d);
	return slack;
}

int ntr_kv_room(struct ntr_kv *kv, uint64_t bytes, bool logged, const char *what, struct ntr_err *e)
{
	uint64_t left = 0;

	if (kv->no_room_check || room_left(kv, &left) || left >= PLENTY + bytes)
		return 0;
	if (left >= bytes + SPARE + tables_bytes(kv))
		return 0;
	/* A small commit still fits where a large one does not: what frees the disk again is mostly small. */
	if (logged && bytes <= SMALL && log_slack(kv) >= 2 * SMALL)
		return 0;
	ntr_err_set(e, -ENOSPC, "%s", what);
	ntr_err_why(e, "No space left on device (%llu MiB at %s)", (unsigned long long)(left >> 20), kv->dir);
	ntr_err_todo(e, "free space on the store's filesystem (64 MiB or more)");
	return -ENOSPC;
}

bool ntr_kv_room_again(struct ntr_kv *kv, int r, uint64_t *until)
{
	static const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
	uint64_t now = ntr_mono_ns(), left = 0;

	if (r != -ENOSPC || room_left(kv, &left) || left < RESUME)
		return false;
	if (!*until)
		*until = now + PATIENCE_S * 1000000000ull;
	if (now >= *until)
		return false;
	nanosleep(&pause, NULL);
	return true;
}
