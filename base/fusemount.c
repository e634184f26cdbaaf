#include "fusemount.h"

#include "util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

enum { FUSE_CTL_MAGIC = 0x65735543 };
#define CTL_PATH "/sys/fs/fuse/connections"

/* ---- the mount table */

/* mountinfo writes blanks, tabs, newlines and backslashes as three octal digits. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 /root /mount/point options tags… - type source …". Tells whether it is one of ours. */
static bool parse_line(char *line, unsigned *major, unsigned *minor, char **ret_path)
{
	char *type = strstr(line, " - fuse.ntr ");
	char *save = NULL, *f[5] = {0};

	for (int i = 0; i < 5; i++)
		f[i] = strtok_r(i ? NULL : line, " ", &save);
	if (!f[4] || sscanf(f[2], "%u:%u", major, minor) != 2)
		return false;
	unescape(f[4]);
	*ret_path = f[4];
	return type != NULL;
}

int ntr_fuse_dev(const char *path, dev_t *ret)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t cap = 0;
	int r = f ? -ENOENT : -errno;

	while (f && getline(&line, &cap, f) > 0) {
		unsigned major, minor;
		char *at = NULL;
		bool ours = parse_line(line, &major, &minor, &at);

		if (!at || strcmp(at, path) != 0)
			continue;
		/* The last of several is the one on top. Device numbers alone tell little: the kernel gives a
		 * freed one to the next mount. */
		r = ours ? 0 : -ENOENT;
		if (ours)
			*ret = makedev(major, minor);
	}
	free(line);
	if (f)
		fclose(f);
	return r;
}

/* ---- the control filesystem */

/* Root needs nobody to have mounted the control filesystem: it takes an instance that is mounted nowhere. */
static int ctl_own(void)
{
	ntr_autoclose int fs = fsopen("fusectl", FSOPEN_CLOEXEC);

	if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -errno;
	int fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

static int ctl_open(void)
{
	struct statfs st;
	int fd = open(CTL_PATH, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && !fstatfs(fd, &st) && st.f_type == FUSE_CTL_MAGIC)
		return fd;
	if (fd >= 0)
		close(fd);
	return ctl_own();
}

int ntr_fuse_abort(dev_t dev)
{
	ntr_autoclose int dir = ctl_open();
	char name[32];

	if (dir < 0)
		return dir;
	/* the control filesystem knows a connection by its mount's device number, which has no major part */
	snprintf(name, sizeof name, "%u/abort", minor(dev));
	ntr_autoclose int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, "1", 1) != 1 ? -errno : 0;
}

/* The connection behind a descriptor: "fuse_connection:\tN", N as the device number of its mount. */
static bool connection_of(int fdinfo, const char *name, dev_t *ret)
{
	ntr_autofree char *text = NULL;
	unsigned n;
	const char *at;

	if (ntr_read_file(fdinfo, name, 4096, &text, NULL))
		return false;
	at = strstr(text, "fuse_connection:");
	if (!at || sscanf(at, "fuse_connection: %u", &n) != 1)
		return false;
	*ret = makedev(0, n);
	return true;
}

static unsigned abort_all(const char *fdinfo)
{
	DIR *d = opendir(fdinfo);
	struct dirent *en;
	unsigned n = 0;
	dev_t dev;

	while (d && (en = readdir(d)))
		if (en->d_name[0] != '.' && connection_of(dirfd(d), en->d_name, &dev))
			n += !ntr_fuse_abort(dev);
	if (d)
		closedir(d);
	return n;
}

/* The threads share their descriptors; the first may have ended, and shows none. */
unsigned ntr_fuse_abort_of(pid_t pid)
{
	ntr_autofree char *tasks = ntr_sprintf("/proc/%d/task", (int)pid);
	DIR *d = tasks ? opendir(tasks) : NULL;
	struct dirent *en;
	unsigned n = 0;

	while (d && !n && (en = readdir(d))) {
		ntr_autofree char *path =
		        en->d_name[0] == '.' ? NULL : ntr_sprintf("%s/%s/fdinfo", tasks, en->d_name);

		n = path ? abort_all(path) : 0;
	}
	if (d)
		closedir(d);
	return n;
}

int ntr_umount(const char *path, int flags)
{
	int r = umount2(path, flags) ? -errno : 0;

	for (int i = 0; r == -EBUSY && i < 25; i++) {
		usleep(10000);
		r = umount2(path, flags) ? -errno : 0;
	}
	return r;
}
