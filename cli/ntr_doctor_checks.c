/* The checks of doctor. What can be tried is tried; a switch in /proc is read only to name the cause. */
#include "ntr_doctor.h"
#include "ntr_spawn.h"

#include "../base/child.h"
#include "../base/upperfs.h"
#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>

enum { MAGIC_PROC = 0x9fa0, MAGIC_SYSFS = 0x62656572 };
enum { KERNEL_MIN = 5 * 1000 + 11, KERNEL_BENEATH = 6 * 1000 + 5, KERNEL_URING = 6 * 1000 + 14 };

static void found(struct ntr_finding *f, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void found(struct ntr_finding *f, bool ok, const char *fmt, ...)
{
	va_list ap;

	f->ok = ok;
	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof f->detail, fmt, ap);
	va_end(ap);
}

static void fix(struct ntr_finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fix(struct ntr_finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->fix, sizeof f->fix, fmt, ap);
	va_end(ap);
}

/* The first character of a small file in /proc or /sys; 0 when it cannot be read. */
static char switch_of(const char *path)
{
	ntr_autofree char *text = NULL;
	size_t n = 0;

	return ntr_read_file(AT_FDCWD, path, 4096, &text, &n) || !n ? '\0' : text[0];
}

static unsigned kernel_version(struct utsname *u)
{
	unsigned a = 0, b = 0;

	if (uname(u) || sscanf(u->release, "%u.%u", &a, &b) != 2)
		return 0;
	return a * 1000 + b;
}

static void check_kernel(const char *store, struct ntr_finding *f)
{
	struct utsname u;
	unsigned v = kernel_version(&u);

	(void)store;
	f->name = "kernel";
	f->needed = true;
	if (v < KERNEL_MIN) {
		found(f, false, "Linux %s; 5.11 or newer is needed", u.release);
		fix(f, "install a newer kernel");
	} else if (v < KERNEL_BENEATH) {
		found(f, true, "Linux %s; from 6.5 on a session's view is renewed without a pause",
		        u.release);
	} else {
		found(f, true, "Linux %s", u.release);
	}
}

static void check_programs(const char *store, struct ntr_finding *f)
{
	ntr_autofree char *daemon = NULL, *init = NULL;

	(void)store;
	f->name = "programs";
	f->needed = true;
	if (ntr_spawn_find("ntrd", &daemon) || access(daemon, X_OK)) {
		found(f, false, "ntrd is not found");
		fix(f, "install ntr whole, or set NTR_LIBEXEC to the directory that holds ntrd");
	} else if (!ntr_spawn_find("ntr-init", &init) && !access(init, X_OK)) {
		found(f, true, "%s, %s", daemon, init);
	} else {
		found(f, false, "ntr-init is not found");
		fix(f, "install ntr whole, or set NTR_LIBEXEC to the directory that holds ntrd and ntr-init");
	}
}

static void check_fuse_device(const char *store, struct ntr_finding *f)
{
	ntr_autoclose int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int err = fd < 0 ? errno : 0;
	struct stat st = {0};

	(void)store;
	f->name = "/dev/fuse";
	f->needed = true;
	if (!err && (fstat(fd, &st) || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(10, 229))) {
		found(f, false, "is no FUSE device");
	} else if (err) {
		found(f, false, "%s", strerror(err));
	} else if ((st.st_mode & 0666) != 0666) {
		found(f, true, "can be opened by you, but its mode is %04o: not by every user",
		        (unsigned)st.st_mode & 07777);
		fix(f, "chmod 666 /dev/fuse");
	} else {
		found(f, true, "can be opened");
	}
	if (err == EACCES)
		fix(f, "as root: chmod 666 /dev/fuse");
	else if (!f->ok)
		fix(f, "as root: modprobe fuse (in a container: start it with --device /dev/fuse)");
}

static void check_fusermount(const char *store, struct ntr_finding *f)
{
	char name[] = "fusermount3", opt[] = "--version", text[256];
	char *argv[] = {name, opt, NULL};
	int status = 0, r;

	(void)store;
	f->name = "fusermount3";
	f->needed = geteuid() != 0;
	r = ntr_child_run(argv, -1, NULL, text, sizeof text, &status);
	if (!r && !ntr_child_failed(status)) {
		found(f, true, "runs%s", f->needed ? "" : "; root does not need it");
		return;
	}
	found(f, false, "%s%s", r ? strerror(-r) : "fails", f->needed ? "" : "; ordinary users need it");
	fix(f, "apt-get install fuse3");
}

static void check_overlay(const char *store, struct ntr_finding *f)
{
	ntr_autofree char *text = NULL;
	size_t n = 0;

	(void)store;
	f->name = "overlayfs";
	f->needed = true;
	if (!ntr_read_file(AT_FDCWD, "/proc/filesystems", 1 << 16, &text, &n) &&
	        strstr(text, "\toverlay\n")) {
		found(f, true, "the kernel has it");
		return;
	}
	found(f, false, "not in /proc/filesystems");
	fix(f, "as root: modprobe overlay");
}

/* In a child: what a session of an ordinary user (or of root, without the user namespace) begins with. Exits
 * with 0, or the errno. The mount is attached nowhere: nothing can propagate out of the namespace. */
static void try_namespaces(int flags)
{
	int fs, fd;

	if (unshare(flags))
		_exit(errno & 127);
	fs = (int)syscall(SYS_fsopen, "tmpfs", 0);
	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		_exit(errno & 127);
	fd = (int)syscall(SYS_fsmount, fs, 0, 0);
	_exit(fd < 0 ? errno & 127 : 0);
}

static int namespaces_errno(int flags)
{
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return errno;
	if (!pid)
		try_namespaces(flags);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

/* Which of the known switches forbids user namespaces. */
static void userns_cause(struct ntr_finding *f, int err)
{
	if (switch_of("/proc/sys/user/max_user_namespaces") == '0') {
		found(f, false, "user.max_user_namespaces is 0");
		fix(f, "as root: sysctl -w user.max_user_namespaces=15000");
	} else if (switch_of("/proc/sys/kernel/unprivileged_userns_clone") == '0') {
		found(f, false, "kernel.unprivileged_userns_clone (Debian) is 0");
		fix(f, "as root: sysctl -w kernel.unprivileged_userns_clone=1");
	} else if (switch_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == '1') {
		found(f, false, "AppArmor forbids them (kernel.apparmor_restrict_unprivileged_userns is 1)");
		fix(f, "as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
	} else {
		found(f, false, "refused: %s; in a container its seccomp profile forbids them",
		        strerror(err));
		fix(f, "start the container with --security-opt seccomp=unconfined, or as root with "
		       "--cap-add SYS_ADMIN");
	}
}

static void check_userns(const char *store, struct ntr_finding *f)
{
	int err = namespaces_errno(CLONE_NEWUSER | CLONE_NEWNS);

	(void)store;
	f->name = "user namespaces";
	f->needed = geteuid() != 0;
	if (err)
		userns_cause(f, err);
	else
		found(f, true, "can be made%s", f->needed ? "" : "; root does not need them");
}

static void check_mounting(const char *store, struct ntr_finding *f)
{
	int err = geteuid() ? 0 : namespaces_errno(CLONE_NEWNS);

	(void)store;
	f->name = "mounting";
	f->needed = geteuid() == 0;
	if (geteuid())
		found(f, true, "in a user namespace, as an ordinary user");
	else if (!err)
		found(f, true, "root may mount");
	else {
		found(f, false, "root may not mount here: %s", strerror(err));
		fix(f, "start the container with --cap-add SYS_ADMIN --security-opt apparmor=unconfined");
	}
}

static void check_uring(const char *store, struct ntr_finding *f)
{
	static const char path[] = "/sys/module/fuse/parameters/enable_uring";
	char c = switch_of(path);
	struct utsname u;

	(void)store;
	f->name = "fuse io_uring";
	if (!NTR_FUSE_URING) {
		found(f, false, "this build's libfuse has no io_uring, the faster transport");
		fix(f, "build with libfuse 3.18 or newer (tools/libfuse.sh)");
	} else if (c == 'Y' || c == '1') {
		found(f, true, "the faster transport is on");
	} else if (c) {
		found(f, false, "the faster transport is off; /dev/fuse is used");
		fix(f, "as root: echo Y > %s", path);
	} else if (kernel_version(&u) < KERNEL_URING) {
		found(f, false, "the faster transport needs Linux 6.14; /dev/fuse is used");
	} else {
		found(f, false,
		        "the faster transport is not in this kernel, or fuse is not loaded; /dev/fuse is "
		        "used");
		fix(f, "as root: modprobe fuse");
	}
}

/* x86 only: elsewhere a virtual machine is not told from another one here, and nothing is said. */
static bool is_virtual(void)
{
	ntr_autofree char *text = NULL;
	size_t n = 0;

	return !ntr_read_file(AT_FDCWD, "/proc/cpuinfo", 1 << 24, &text, &n) && strstr(text, " hypervisor");
}

/* To wake a halted CPU of a virtual machine is a matter of its host, and takes longer than to answer a
 * request. */
static void check_halt_polling(const char *store, struct ntr_finding *f)
{
	static const char path[] = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
	bool vm = is_virtual();
	char c = vm ? switch_of(path) : '\0';

	(void)store;
	f->name = "halt polling";
	if (!vm) {
		found(f, true, "not needed: this is no virtual machine");
	} else if (c && c != '0') {
		found(f, true, "on: an idle CPU of this virtual machine wakes up quickly");
	} else if (c) {
		found(f, true,
		        "off: waking an idle CPU of this virtual machine takes longer than a request; with "
		        "it, an idle CPU spins for a moment before it halts");
		fix(f, "to try it, as root: echo 200000 > %s", path);
	} else {
		found(f, true, "this virtual machine's kernel has none");
	}
}

static void check_libfuse(const char *store, struct ntr_finding *f)
{
	(void)store;
	f->name = "libfuse";
	found(f, true, "%s, %s io_uring", NTR_FUSE_VERSION, NTR_FUSE_URING ? "with" : "without");
}

/* The store, or the nearest directory above it that exists. */
static char *existing(const char *store)
{
	char *p = strdup(store), *slash;
	struct stat st;

	while (p && stat(p, &st) && (slash = strrchr(p, '/')))
		slash[slash == p ? 1 : 0] = '\0';
	return p;
}

/* Sessions work there, with their changes in memory. */
static void found_memory(const char *store, const char *fs, struct ntr_finding *f)
{
	f->needed = false;
	found(f, false,
	        "%s is on %s, which cannot hold the changes of a live session: they are kept in memory, half "
	        "of it at "
	        "most (NTR_UPPER_TMPFS_SIZE), and what is not committed is lost by a power cut or a killed "
	        "supervisor",
	        store, fs);
	fix(f, "to have them on disk, use a store on ext4, xfs or btrfs: --store DIR or NTR_STORE");
}

static void check_store(const char *store, struct ntr_finding *f)
{
	ntr_autofree char *dir = existing(store);
	unsigned long magic;
	struct statfs st;

	f->name = "store";
	f->needed = true;
	if (!dir || statfs(dir, &st)) {
		found(f, false, "%s: %s", store, strerror(errno));
		return;
	}
	magic = (unsigned long)st.f_type;
	if (magic == MAGIC_PROC || magic == MAGIC_SYSFS || access(dir, W_OK)) {
		found(f, false, "%s: cannot be written to", dir);
		fix(f, "use a store of your own: --store DIR or NTR_STORE");
	} else if (ntr_fs_no_upper(magic)) {
		found_memory(store, ntr_fs_no_upper(magic), f);
	} else {
		found(f, true, "%s", store);
	}
}

static void check_space(const char *store, struct ntr_finding *f)
{
	ntr_autofree char *dir = existing(store);
	double gib, inodes;
	struct statvfs st;

	f->name = "disk space";
	f->needed = true;
	if (!dir || statvfs(dir, &st)) {
		found(f, false, "%s: %s", store, strerror(errno));
		return;
	}
	gib = (double)st.f_bavail * (double)st.f_frsize / (1 << 30);
	inodes = (double)st.f_favail;
	found(f, gib >= 0.25 && (!st.f_files || inodes >= 1000), "%.1f GiB free at %s", gib, dir);
	if (!f->ok)
		fix(f, "free some space, or use a store elsewhere: --store DIR or NTR_STORE");
}

static void check_runtime_dir(const char *store, struct ntr_finding *f)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	(void)store;
	f->name = "XDG_RUNTIME_DIR";
	if (dir && *dir && !stat(dir, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid())
		found(f, true, "%s", dir);
	else
		found(f, true, "%s; sockets go to /tmp/ntr-%u",
		        dir && *dir ? "is no directory of yours" : "not set", geteuid());
}

/* Root's sessions raise it themselves where /sys can be written. */
static void check_redirects(const char *store, struct ntr_finding *f)
{
	static const char path[] = "/sys/module/overlay/parameters/redirect_max";
	ntr_autofree char *text = NULL;
	size_t n = 0;
	int max = -1;

	(void)store;
	f->name = "long renames";
	if (!ntr_read_file(AT_FDCWD, path, 64, &text, &n))
		max = atoi(text);
	if (geteuid() || max < 0 || max >= NTR_REDIRECT_MAX || !access(path, W_OK)) {
		found(f, true, "committed files are moved to other directories by rename(2) from any depth");
		return;
	}
	found(f, false,
	        "a committed file whose path has more than %d bytes cannot be moved to another directory "
	        "(EXDEV)",
	        max);
	fix(f, "as root, outside of the container: echo %d > %s", NTR_REDIRECT_MAX, path);
}

static void check_limits(const char *store, struct ntr_finding *f)
{
	(void)store;
	f->name = "POSIX limits";
	found(f, true,
	        "until the fold that follows a call: a committed hard link is broken by its first write; "
	        "whoever mapped a "
	        "committed file before another's first write to it sees the old pages; a committed file that "
	        "was removed "
	        "while open, or lost a name, shows the old link count; copy_file_range from one that was not "
	        "changed is "
	        "EXDEV; all of them: docs/posix.md");
}

static void check_rung(const char *store, struct ntr_finding *f)
{
	(void)store;
	f->name = "rung";
	found(f, true, "none: no boundary; calls run as you, with your network and your files");
}

ntr_check_fn *const ntr_checks[] = {check_kernel, check_programs, check_fuse_device, check_fusermount,
        check_overlay, check_userns, check_mounting, check_uring, check_halt_polling, check_libfuse,
        check_store, check_space, check_runtime_dir, check_redirects, check_limits, check_rung, NULL};
