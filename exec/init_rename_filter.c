/* The filter that stops rename(2) and link(2), and what is said through its notify descriptor.
 *
 * It lets everything else pass, by the kernel's own bitmap of system calls (5.11): a call that is never
 * stopped costs a few nanoseconds. A path cannot be looked at there, so each one stops. */
#include "init_rename.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
enum { SYNC_WAKE_UP = 1 }; /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: the helper runs where the caller ran */

enum { RENAME, RENAMEAT, RENAMEAT2, LINK, LINKAT };
static const char *const family[] = {"rename", "renameat", "renameat2", "link", "linkat"};

static uint32_t architectures(uint32_t ret[2])
{
	uint32_t native = seccomp_arch_native();

	ret[0] = native;
	ret[1] = native == SCMP_ARCH_X86_64 ? SCMP_ARCH_X86 : native == SCMP_ARCH_AARCH64 ? SCMP_ARCH_ARM : 0;
	return ret[1] ? 2 : 1;
}

/* ---- making it ---- */

static int add_rules(scmp_filter_ctx ctx)
{
	uint32_t arch[2], n = architectures(arch);
	int r = 0;

	if (n > 1)
		r = seccomp_arch_add(ctx, arch[1]);
	if (!r || r == -EEXIST)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW);
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(rename), 0);
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(renameat), 0);
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(renameat2), 1,
		        SCMP_A5(SCMP_CMP_NE, NTR_RENAME_PLAIN, 0));
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(link), 0);
	if (!r)
		r = seccomp_rule_add(
		        ctx, SCMP_ACT_NOTIFY, SCMP_SYS(linkat), 1, SCMP_A5(SCMP_CMP_NE, NTR_RENAME_PLAIN, 0));
	return r;
}

/* libseccomp writes the program; loading it is done here, for flags that it does not know. */
static int make_program(struct sock_fprog *ret)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	ntr_autoclose int fd = memfd_create("ntr-filter", MFD_CLOEXEC);
	off_t size = 0;
	int r = ctx ? 0 : -ENOMEM;

	if (!r)
		r = fd < 0 ? -errno : add_rules(ctx);
	if (!r)
		r = seccomp_export_bpf(ctx, fd);
	seccomp_release(ctx);
	if (!r && (size = lseek(fd, 0, SEEK_END)) < 0)
		r = -errno;
	if (r)
		return r;
	*ret = (struct sock_fprog){.len = (unsigned short)((size_t)size / sizeof(struct sock_filter)),
	        .filter = malloc((size_t)size + 1)};
	if (!ret->filter)
		return -ENOMEM;
	r = ntr_pread_exact(fd, ret->filter, (size_t)size, 0);
	if (r)
		free(ret->filter);
	return r;
}

static int load(const struct sock_fprog *prog, unsigned long flags)
{
	long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
	        SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_SPEC_ALLOW | flags, prog);

	return fd < 0 ? -errno : (int)fd;
}

int ntr_rename_filter(int *ret_notify, bool *ret_killable)
{
	uint64_t flags = SYNC_WAKE_UP;
	struct sock_fprog prog;
	int fd, r = make_program(&prog);

	if (r)
		return r;
	fd = load(&prog, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
	*ret_killable = fd >= 0;
	if (fd == -EINVAL) /* before 5.19 */
		fd = load(&prog, 0);
	free(prog.filter);
	if (fd < 0)
		return fd;
	ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags); /* since 6.6 */
	*ret_notify = fd;
	return 0;
}

/* ---- speaking ---- */

void ntr_rename_reply(int notify, uint64_t id, int result, bool go_on)
{
	struct seccomp_notif_resp resp = {
	        .id = id, .error = go_on ? 0 : result, .flags = go_on ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0};

	while (ioctl(notify, SECCOMP_IOCTL_NOTIF_SEND, &resp) && errno == EINTR)
		;
}

bool ntr_rename_waits(int notify, uint64_t id)
{
	return !ioctl(notify, SECCOMP_IOCTL_NOTIF_ID_VALID, &id);
}

int ntr_rename_plain(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	return syscall(SYS_renameat2, from_dir, from, to_dir, to, flags, NTR_RENAME_PLAIN) ? -errno : 0;
}

int ntr_rename_plain_link(int from_dir, const char *from, int to_dir, const char *to)
{
	return syscall(SYS_linkat, from_dir, from, to_dir, to, 0, NTR_RENAME_PLAIN) ? -errno : 0;
}

/* ---- what a stop asks for ---- */

/* Index into family, or -1. The numbers are looked up once. */
static int which(uint32_t arch, int nr)
{
	static uint32_t archs[2];
	static int numbers[2][NTR_COUNT(family)];
	static uint32_t n;

	if (!n) {
		n = architectures(archs);
		for (uint32_t a = 0; a < n; a++)
			for (size_t i = 0; i < NTR_COUNT(family); i++)
				numbers[a][i] = seccomp_syscall_resolve_name_arch(archs[a], family[i]);
	}
	for (uint32_t a = 0; a < n; a++)
		for (size_t i = 0; i < NTR_COUNT(family); i++)
			if (archs[a] == arch && numbers[a][i] == nr)
				return (int)i;
	return -1;
}

/* In two parts, for a transfer ends before the first part that is not all there: the string may end just
 * before a page that is not mapped. */
static int read_path(pid_t pid, uint64_t at, char ret[PATH_MAX])
{
	static size_t page;
	struct iovec local = {.iov_base = ret, .iov_len = PATH_MAX}, remote[2];
	size_t first;
	ssize_t n;

	if (!page)
		page = (size_t)sysconf(_SC_PAGESIZE);
	first = NTR_MIN(page - at % page, (size_t)PATH_MAX);
	remote[0] = (struct iovec){.iov_base = (void *)(uintptr_t)at, .iov_len = first};
	remote[1] = (struct iovec){.iov_base = (void *)(uintptr_t)(at + first), .iov_len = PATH_MAX - first};
	n = process_vm_readv(pid, &local, 1, remote, first < PATH_MAX ? 2 : 1, 0);
	if (n < 0)
		return -errno;
	return memchr(ret, '\0', (size_t)n) ? 0 : -EFAULT;
}

int ntr_rename_decode(const struct seccomp_notif *n, struct ntr_rename_call *ret)
{
	const __u64 *a = n->data.args;
	int kind = which(n->data.arch, n->data.nr), r;
	bool at;

	if (kind < 0)
		return -EINVAL;
	ret->id = n->id;
	ret->pid = (pid_t)n->pid;
	at = kind != RENAME && kind != LINK;
	ret->link = kind >= LINK;
	ret->flags = kind == RENAMEAT2 ? (unsigned)a[4] : 0;
	ret->from_dir = at ? (int)a[0] : AT_FDCWD;
	ret->to_dir = at ? (int)a[2] : AT_FDCWD;
	r = read_path(ret->pid, at ? a[1] : a[0], ret->from);
	return r ? r : read_path(ret->pid, at ? a[3] : a[1], ret->to);
}
