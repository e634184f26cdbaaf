#include "port_impl.h"

#include <errno.h>
#include <linux/limits.h>
#include <locale.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

int ntr_xattrs_add(struct ntr_xattrs *x, const char *name, const void *val, size_t len)
{
	ntr_buf_add(&x->b, name, strlen(name) + 1);
	ntr_buf_le32(&x->b, (uint32_t)len);
	return ntr_buf_add(&x->b, val, len);
}

bool ntr_xattrs_next(const struct ntr_xattrs *x, size_t *off, const char **ret_name, const uint8_t **ret_val,
        size_t *ret_len)
{
	const uint8_t *p = x->b.data + *off;

	if (*off >= x->b.len)
		return false;
	*ret_name = (const char *)p;
	p += strlen(*ret_name) + 1;
	*ret_len = ntr_get_le32(p);
	*ret_val = p + 4;
	*off = (size_t)(p + 4 + *ret_len - x->b.data);
	return true;
}

/* Security labels are the host's policy for the place where a file lies, not the file's content. */
static bool is_host_policy(const char *name)
{
	return !strcmp(name, "security.selinux") || !strncmp(name, "security.SMACK64", 16) ||
	       !strcmp(name, "security.ima") || !strcmp(name, "security.evm");
}

static ssize_t list_call(int fd, const char *path, char *buf, size_t n)
{
	return fd >= 0 ? flistxattr(fd, buf, n) : llistxattr(path, buf, n);
}

static ssize_t get_call(int fd, const char *path, const char *name, void *buf, size_t n)
{
	return fd >= 0 ? fgetxattr(fd, name, buf, n) : lgetxattr(path, name, buf, n);
}

static int read_one(int fd, const char *path, const char *name, struct ntr_xattrs *ret)
{
	uint8_t small[1024];
	ntr_autofree uint8_t *large = NULL;
	ssize_t n = get_call(fd, path, name, small, sizeof small);

	if (n >= 0)
		return ntr_xattrs_add(ret, name, small, (size_t)n);
	if (errno == ENODATA) /* it went meanwhile */
		return 0;
	if (errno != ERANGE)
		return -errno;
	large = malloc(XATTR_SIZE_MAX);
	if (!large)
		return -ENOMEM;
	n = get_call(fd, path, name, large, XATTR_SIZE_MAX);
	if (n < 0)
		return errno == ENODATA ? 0 : -errno;
	return ntr_xattrs_add(ret, name, large, (size_t)n);
}

/* The names, in *ret_names (small, or fresh memory in *ret_large). */
static ssize_t list_names(int fd, const char *path, char *small, size_t size, char **ret_large)
{
	ssize_t n = list_call(fd, path, small, size);

	if (n < 0 && errno == ERANGE) {
		*ret_large = malloc(XATTR_LIST_MAX);
		if (!*ret_large)
			return -ENOMEM;
		n = list_call(fd, path, *ret_large, XATTR_LIST_MAX);
	}
	if (n < 0)
		return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
	return n;
}

int ntr_xattrs_read(int fd, const char *path, struct ntr_xattrs *ret)
{
	char small[1024];
	ntr_autofree char *large = NULL;
	ssize_t n = list_names(fd, path, small, sizeof small, &large);
	const char *names = large ? large : small;

	for (ssize_t off = 0; off < n; off += (ssize_t)strlen(names + off) + 1) {
		int r = is_host_policy(names + off) ? 0 : read_one(fd, path, names + off, ret);

		if (r)
			return r;
	}
	return n < 0 ? (int)n : 0;
}

int ntr_xattrs_store(struct ntr_txn *t, struct ntr_inode *in, const struct ntr_xattrs *x)
{
	const uint8_t *val;
	const char *name;
	size_t off = 0, len;

	while (ntr_xattrs_next(x, &off, &name, &val, &len)) {
		int r = ntr_xattr_set(t, in, name, val, len);

		if (r)
			return r;
	}
	return 0;
}

const char *ntr_port_refuse_node(mode_t mode, dev_t rdev)
{
	if (S_ISCHR(mode) && !rdev)
		return "is an overlayfs whiteout (a character device 0:0)";
	if ((S_ISCHR(mode) || S_ISBLK(mode)) && geteuid())
		return "is a device, which only root can take in";
	return NULL;
}

const char *ntr_port_refuse_xattr(const char *name)
{
	if (strncmp(name, "trusted.overlay.", 16) && strncmp(name, "user.overlay.", 13))
		return NULL;
	return "carries an attribute of overlayfs";
}

const char *ntr_port_proc_path(int dirfd, const char *name, char *buf)
{
	snprintf(buf, NTR_PROC_PATH, "/proc/self/fd/%d/%s", dirfd, name);
	return buf;
}

static void meter_tell(const struct ntr_meter *m)
{
	if (m->p && m->p->fn)
		m->p->fn(m->p->user, m->entries, __atomic_load_n(&m->bytes, __ATOMIC_RELAXED));
}

void ntr_meter_tick(struct ntr_meter *m)
{
	uint64_t now;

	m->entries++;
	if (!m->p || m->entries % 32)
		return;
	now = ntr_mono_ns();
	if (now < m->next_ns)
		return;
	m->next_ns = now + 100000000;
	meter_tell(m);
}

void ntr_meter_end(struct ntr_meter *m)
{
	meter_tell(m);
}

void *ntr_archive_locale(bool writing)
{
	locale_t l = newlocale(LC_CTYPE_MASK, writing ? "C.UTF-8" : "C", (locale_t)0);

	return l ? uselocale(l) : NULL;
}

void ntr_archive_locale_restore(void *old)
{
	locale_t now;

	if (!old)
		return;
	now = uselocale(old);
	freelocale(now);
}

struct timespec ntr_archive_time(time_t sec, long nsec, bool writing)
{
	if (nsec <= 0 ||
	        (writing ? sec >= -1 : sec >= 0)) /* "-0.5" cannot be said: that one second is cut to whole */
		return (struct timespec){sec, writing && sec == -1 ? 0 : nsec};
	return (struct timespec){writing ? sec + 1 : sec - 1, 1000000000 - nsec};
}
