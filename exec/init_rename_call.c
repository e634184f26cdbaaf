/* A mover: does a caller's rename with the caller's root, cwd, descriptors and rights, so that the kernel
 * says what it would have said to him; and only where it then says EXDEV although both names lie in one mount
 * of the view, it moves. By then everything has been checked that rename(2) checks: rights on both parents,
 * sticky bits, the kinds of both names, that neither lies in the other. All but this: a target that is not
 * empty.
 *
 * The caller may change his memory, his cwd or a descriptor at any moment. What is done is done to what was
 * read and opened once, and with no more than his rights. */
#include "init_rename.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { GROUPS_MAX = 65536, STATUS_MAX = 1 << 20, RENAME_EXCHANGE_FLAG = 2 };

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

/* ---- ntr-init's word ---- */

/* A socket to ntr-init, or -1. */
static int say_hello(const struct ntr_rename_helper *h, const struct ntr_rename_call *c)
{
	struct ntr_rename_hello hello = {.id = c->id, .pid = c->pid};
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl = {.buf = {0}};
	struct iovec iov = {.iov_base = &hello, .iov_len = sizeof hello};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
	ntr_autoclose int its = -1, mine = -1;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	mine = sv[0];
	its = sv[1];
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &its, sizeof its);
	if (sendmsg(h->ctl, &mh, MSG_NOSIGNAL) < 0)
		return -errno;
	return ntr_steal_fd(&mine);
}

/* Asks, and waits for the answer, with descriptors if there is room for them. */
static int ask(int sock, char what, int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(NTR_RENAME_FDS * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	char answer = 0;
	struct iovec iov = {.iov_base = &answer, .iov_len = 1};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf};
	struct cmsghdr *cm;
	ssize_t n;

	if (send(sock, &what, 1, MSG_NOSIGNAL) != 1)
		return -EPIPE;
	do
		n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != 1 || answer != (char)(what - 'A' + 'a'))
		return -EPIPE;
	cm = CMSG_FIRSTHDR(&mh);
	if (!nfds)
		return 0;
	if (!cm || cm->cmsg_type != SCM_RIGHTS || cm->cmsg_len != CMSG_LEN(nfds * sizeof(int)))
		return -EPROTO;
	memcpy(fds, CMSG_DATA(cm), nfds * sizeof(int));
	return 0;
}

/* ---- who the caller is ---- */

struct identity {
	uid_t uid;
	gid_t gid;
	uint64_t caps; /* that count in our user namespace */
	gid_t *groups;
	int ngroups;
};

static void identity_done(struct identity *i)
{
	free(i->groups);
}

static bool same_userns(pid_t pid)
{
	struct stat a, b;
	char link[64];

	snprintf(link, sizeof link, "/proc/%d/ns/user", pid);
	return !stat(link, &a) && !stat("/proc/self/ns/user", &b) && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

static int read_groups(const char *p, struct identity *ret)
{
	int cap = 0;

	while (*p && *p != '\n') {
		char *end;
		unsigned long g = strtoul(p, &end, 10);

		if (end == p)
			break;
		p = end + strspn(end, " \t");
		if (ret->ngroups == cap) {
			void *more = realloc(ret->groups, (size_t)(cap = cap ? cap * 2 : 16) * sizeof(gid_t));

			if (!more)
				return -ENOMEM;
			ret->groups = more;
		}
		ret->groups[ret->ngroups++] = (gid_t)g;
	}
	return 0;
}

static int identity_of(pid_t pid, struct identity *ret)
{
	ntr_autofree char *text = NULL;
	const char *uid, *gid, *groups, *caps;
	unsigned long long eff = 0;
	char path[64];
	int r;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	r = ntr_read_file(AT_FDCWD, path, STATUS_MAX, &text, NULL);
	if (r)
		return r;
	uid = strstr(text, "\nUid:");
	gid = strstr(text, "\nGid:");
	groups = strstr(text, "\nGroups:");
	caps = strstr(text, "\nCapEff:");
	if (!uid || !gid || !groups || !caps || sscanf(uid, "\nUid: %*u %*u %*u %u", &ret->uid) != 1 ||
	        sscanf(gid, "\nGid: %*u %*u %*u %u", &ret->gid) != 1 ||
	        sscanf(caps, "\nCapEff: %llx", &eff) != 1)
		return -EPROTO;
	ret->caps = same_userns(pid) ? eff : 0;
	return read_groups(groups + strlen("\nGroups:\t"), ret);
}

/* Of capabilities only the effective ones: the way back stays open. */
static int use_caps(uint64_t want)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data))
		return -errno;
	data[0].effective = data[0].permitted & (uint32_t)want;
	data[1].effective = data[1].permitted & (uint32_t)(want >> 32);
	return syscall(SYS_capset, &head, data) ? -errno : 0;
}

static int use_groups(const gid_t *v, int n)
{
	ntr_autofree gid_t *now = malloc(GROUPS_MAX * sizeof *now);
	int have = now ? getgroups(GROUPS_MAX, now) : -1;

	if (have == n && (!n || !memcmp(now, v, (size_t)n * sizeof *now)))
		return 0;
	return setgroups((size_t)n, v) ? -errno : 0;
}

static int become(const struct identity *i)
{
	int r = use_groups(i->groups, i->ngroups);

	setfsgid(i->gid);
	setfsuid(i->uid);
	if (!r && ((gid_t)setfsgid((gid_t)-1) != i->gid || (uid_t)setfsuid((uid_t)-1) != i->uid))
		r = -EPERM;
	return r ? r : use_caps(i->caps);
}

static int become_ourselves(const struct identity *own)
{
	int r = use_caps(UINT64_MAX);

	setfsuid(own->uid);
	setfsgid(own->gid);
	if (!r)
		r = use_groups(own->groups, own->ngroups);
	return r ? r : use_caps(UINT64_MAX); /* setfsuid takes some away */
}

/* ---- where he is ---- */

struct place {
	int root, cwd, from, to; /* from, to: what the paths start at */
	int own_root;
};

static void place_done(struct place *p)
{
	ntr_closep(&p->root);
	ntr_closep(&p->cwd);
	ntr_closep(&p->from);
	ntr_closep(&p->to);
	ntr_closep(&p->own_root);
}

static int open_of(pid_t pid, const char *what, int n)
{
	char link[64];
	int fd;

	snprintf(link, sizeof link, n < 0 ? "/proc/%d/%s" : "/proc/%d/%s/%d", pid, what, n);
	fd = open(link, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int open_base(const struct ntr_rename_call *c, int dir, const char *path, int *ret)
{
	if (dir == AT_FDCWD || path[0] == '/')
		return 0;
	*ret = dir < 0 ? -EBADF : open_of(c->pid, "fd", dir);
	return *ret == -ENOENT ? -EBADF : NTR_MIN(*ret, 0);
}

static int open_place(const struct ntr_rename_call *c, struct place *ret)
{
	int r;

	ret->own_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	ret->root = open_of(c->pid, "root", -1);
	ret->cwd = open_of(c->pid, "cwd", -1);
	if (ret->own_root < 0 || ret->root < 0 || ret->cwd < 0)
		return -ESRCH;
	r = open_base(c, c->from_dir, c->from, &ret->from);
	return r ? r : open_base(c, c->to_dir, c->to, &ret->to);
}

static int go_there(const struct place *p)
{
	return fchdir(p->root) || chroot(".") || fchdir(p->cwd) ? -errno : 0;
}

static int go_back(const struct place *p)
{
	return fchdir(p->own_root) || chroot(".") || chdir("/") ? -errno : 0;
}

/* The parent of a path's last component, opened, and that component. */
static int open_parent(int base, const char *path, struct ntr_rename_place *ret)
{
	char parent[PATH_MAX];
	size_t n = strlen(path), cut;

	while (n > 1 && path[n - 1] == '/')
		n--;
	for (cut = n; cut && path[cut - 1] != '/';)
		cut--;
	if (n - cut > NAME_MAX || n == cut)
		return -EINVAL;
	memcpy(ret->name, path + cut, n - cut);
	ret->name[n - cut] = '\0';
	memcpy(parent, path, cut);
	parent[cut] = '\0';
	ret->dir = openat(base, cut ? parent : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return ret->dir < 0 ? -errno : 0;
}

static uint64_t mount_of(int dir, const char *path)
{
	struct statx sx;

	if (statx(dir, path, AT_EMPTY_PATH, STATX_MNT_ID, &sx) || !(sx.stx_mask & STATX_MNT_ID))
		return 0;
	return sx.stx_mnt_id;
}

/* ---- the call ---- */

/* As the caller. 1: this is the case that has to be moved. */
static int try_as_caller(
        const struct ntr_rename_call *c, const struct place *p, uint64_t view, struct ntr_rename_move *m)
{
	int from = p->from >= 0 ? p->from : AT_FDCWD, to = p->to >= 0 ? p->to : AT_FDCWD;
	int r = ntr_rename_plain(from, c->from, to, c->to, c->flags);

	if (r != -EXDEV || !view)
		return r;
	if (open_parent(from, c->from, &m->from) || open_parent(to, c->to, &m->to))
		return r;
	return mount_of(m->from.dir, "") == view && mount_of(m->to.dir, "") == view ? 1 : r;
}

static int as_caller(
        const struct ntr_rename_helper *h, const struct ntr_rename_call *c, struct ntr_rename_move *m)
{
	ntr_auto(identity_done) struct identity him = {0}, own = {0};
	ntr_auto(place_done) struct place p = {-1, -1, -1, -1, -1};
	uint64_t view = mount_of(AT_FDCWD, h->wsroot);
	int r = open_place(c, &p), back;

	if (!r)
		r = identity_of(c->pid, &him);
	if (!r)
		r = identity_of(getpid(), &own);
	if (r || (r = go_there(&p)))
		return r;
	r = become(&him);
	r = r ? -EXDEV : try_as_caller(c, &p, view, m);
	back = become_ourselves(&own);
	if (!back)
		back = go_back(&p);
	return back ? -EXDEV : r;
}

static void move_done(struct ntr_rename_move *m)
{
	ntr_closep(&m->from.dir);
	ntr_closep(&m->to.dir);
	for (int i = 0; i < NTR_RENAME_FDS; i++)
		ntr_closep(&m->layers[i]);
}

/* Once more, from the directories that are open by now: a path may lead through a FUSE mount whose server is
 * stopped as well. */
static int again_as_caller(const struct ntr_rename_call *c, const struct ntr_rename_move *m)
{
	ntr_auto(identity_done) struct identity him = {0}, own = {0};
	int r = identity_of(c->pid, &him);

	if (!r)
		r = identity_of(getpid(), &own);
	if (r)
		return r;
	r = become(&him);
	r = r ? -EPERM : ntr_rename_plain(m->from.dir, m->from.name, m->to.dir, m->to.name, m->flags);
	if (become_ourselves(&own))
		return -EXDEV;
	return r == -EXDEV ? 1 : r;
}

/* With the view to ourselves; what the caller may do is asked again. */
static int move_alone(const struct ntr_rename_call *c, int sock, struct ntr_rename_move *m)
{
	int r = ask(sock, 'F', m->layers, NTR_RENAME_FDS);

	if (r)
		return -EXDEV;
	r = again_as_caller(c, m);
	return r == 1 ? ntr_rename_move(m) : r;
}

int ntr_rename_serve_call(
        const struct ntr_rename_helper *h, const struct ntr_rename_call *c, bool sure, bool *ret_go_on)
{
	ntr_auto(move_done) struct ntr_rename_move m = {
	        .h = h, .id = c->id, .flags = c->flags, .from.dir = -1, .to.dir = -1, .layers = {-1, -1, -1}};
	int sock, r;

	*ret_go_on = false;
	if (!sure && ntr_rename_concerns(h, c, false) != 1) {
		*ret_go_on = true;
		return 0;
	}
	sock = say_hello(h, c); /* open until the end of this process: that gives back the turn */
	if (sock < 0 || ask(sock, 'T', NULL, 0)) {
		*ret_go_on = true;
		return 0;
	}
	if (!ntr_rename_waits(h->notify, c->id))
		return -EINTR;
	r = as_caller(h, c, &m);
	return r == 1 ? move_alone(c, sock, &m) : r;
}
