/* powercut_disk: a disk whose writes and flushes are recorded, as a file to put a loop device on.
 *
 *     powercut_disk IMAGE LOG MOUNTPOINT [LATE]    serves MOUNTPOINT/disk, which is IMAGE, until it is
 * unmounted
 *
 * LOG gets a record for every request: u64 offset, u32 length (0: a flush), u32 0, and the data. A flush is
 * what the kernel sends when a filesystem wants everything whose writing has ended to be on the medium.
 *
 * With LATE every other write takes up to that many milliseconds, and what comes after it overtakes it: a
 * disk with a queue does so, and a filesystem that did not wait for one write before it flushed another is
 * seen. */

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int image = -1, record = -1;
static long late_ms;
static unsigned seed = 1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int put(uint64_t off, const char *data, size_t n)
{
	struct {
		uint64_t off;
		uint32_t len, zero;
	} head = {off, (uint32_t)n, 0};
	struct iovec v[2] = {{&head, sizeof head}, {(void *)(uintptr_t)data, n}};

	return writev(record, v, 2) == (ssize_t)(sizeof head + n) ? 0 : -EIO;
}

static int disk_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	memset(st, 0, sizeof *st);
	st->st_mode = S_IFDIR | 0700;
	st->st_nlink = 2;
	if (!strcmp(path, "/"))
		return 0;
	if (strcmp(path, "/disk") != 0)
		return -ENOENT;
	return fstat(image, st) ? -errno : 0;
}

static int disk_open(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	fi->keep_cache = 1;
	return 0;
}

static int disk_read(const char *path, char *buf, size_t n, off_t off, struct fuse_file_info *fi)
{
	ssize_t k = pread(image, buf, n, off);

	(void)path;
	(void)fi;
	return k < 0 ? -errno : (int)k;
}

static void be_late(void)
{
	useconds_t us = 0;

	pthread_mutex_lock(&lock);
	if (late_ms && rand_r(&seed) % 2)
		us = (useconds_t)(rand_r(&seed) % (late_ms * 1000));
	pthread_mutex_unlock(&lock);
	if (us)
		usleep(us);
}

static int disk_write(const char *path, const char *buf, size_t n, off_t off, struct fuse_file_info *fi)
{
	int r;

	(void)path;
	(void)fi;
	be_late();
	pthread_mutex_lock(&lock);
	r = put((uint64_t)off, buf, n);
	if (!r && pwrite(image, buf, n, off) != (ssize_t)n)
		r = -EIO;
	pthread_mutex_unlock(&lock);
	return r ? r : (int)n;
}

static int disk_fsync(const char *path, int data, struct fuse_file_info *fi)
{
	(void)path;
	(void)data;
	(void)fi;
	pthread_mutex_lock(&lock);
	int r = put(0, NULL, 0);
	pthread_mutex_unlock(&lock);
	return r;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations ops = {
	        .getattr = disk_getattr,
	        .open = disk_open,
	        .read = disk_read,
	        .write = disk_write,
	        .fsync = disk_fsync,
	};
	char *fuse_argv[] = {argv[0], (char[]){"-f"}, argc > 3 ? argv[3] : NULL, NULL};

	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: powercut_disk IMAGE LOG MOUNTPOINT [LATE]\n");
		return 2;
	}
	late_ms = argc == 5 ? strtol(argv[4], NULL, 10) : 0;
	image = open(argv[1], O_RDWR | O_CLOEXEC);
	record = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (image < 0 || record < 0) {
		perror("powercut_disk");
		return 1;
	}
	return fuse_main(3, fuse_argv, &ops, NULL);
}
