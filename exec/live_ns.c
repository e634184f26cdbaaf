#include "live_ns.h"
#include "../base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define GET_MNTNS_ID _IOR(0xb7, 5, uint64_t) /* NS_GET_MNTNS_ID of <linux/nsfs.h> */

/* *ret_unique: the number is never reused. */
static uint64_t id_of(const char *pid, bool *ret_unique)
{
	ntr_autoclose int fd = -1;
	char path[64];
	struct stat st;
	uint64_t id;

	snprintf(path, sizeof path, "/proc/%.20s/ns/mnt", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	*ret_unique = !ioctl(fd, GET_MNTNS_ID, &id);
	if (*ret_unique)
		return id;
	return fstat(fd, &st) ? 0 : st.st_ino;
}

uint64_t ntr_namespace_of(pid_t pid)
{
	char text[24];
	bool unique;

	snprintf(text, sizeof text, "%d", (int)pid);
	return id_of(text, &unique);
}

static bool sees_a_view(const char *pid)
{
	ntr_autofree char *text = NULL;
	char path[64];

	snprintf(path, sizeof path, "/proc/%.20s/mountinfo", pid);
	return !ntr_read_file(AT_FDCWD, path, 16 << 20, &text, NULL) && strstr(text, " - overlay ntr ");
}

static unsigned kill_pass(uint64_t id)
{
	DIR *d = opendir("/proc");
	struct dirent *en;
	unsigned n = 0;
	bool unique;

	while (d && (en = readdir(d))) {
		pid_t pid = (pid_t)strtol(en->d_name, NULL, 10);

		if (pid <= 1 || pid == getpid() || id_of(en->d_name, &unique) != id)
			continue;
		if ((unique || sees_a_view(en->d_name)) && !kill(pid, SIGKILL))
			n++;
	}
	if (d)
		closedir(d);
	return n;
}

unsigned ntr_kill_namespace(uint64_t id)
{
	unsigned total = 0, n;

	if (!id || id == ntr_namespace_of(getpid()))
		return 0;
	/* A killed process keeps its namespace until it has let go of its files; a fork bomb makes new ones.
	 */
	for (int i = 0; i < 2000 && (n = kill_pass(id)); i++) {
		total = NTR_MAX(total, n);
		usleep(i < 10 ? 1000 : 5000);
	}
	return total;
}

void ntr_boot_id(char ret[NTR_BOOT_ID_MAX])
{
	ntr_autofree char *text = NULL;

	ret[0] = '\0';
	if (!ntr_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 4096, &text, NULL))
		snprintf(ret, NTR_BOOT_ID_MAX, "%.36s", text);
}
