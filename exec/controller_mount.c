/* `ntr mount`: a session's view, or a commit's tree, at a directory of the caller's. Root's read-write mount
 * is a second mount of the same overlay, so it lives in the caller's mount namespace and must follow when the
 * overlay is replaced. */
#include "controller_impl.h"

#include "../base/fusemount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200 /* Linux 6.5 */
#endif

/* From the reply until the caller has moved the mount to its place. */
enum { ATTACH_S = 20 };

struct ntr_served {
	struct ntr_served *next;
	struct ntr_versions *v;
	char *where;
};

/* ---- work in the caller's mount namespace: a thread of its own goes there and is thrown away ---- */

struct ns_job {
	struct ntr_bind *b;
	int op; /* 0: is it still there, 1: show mount_fd instead, 2: unmount, 3: unmount lazily */
	int mount_fd;
	int ret;
};

static int mount_id_at(const char *where)
{
	struct statx sx;

	if (statx(AT_FDCWD, where, AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &sx))
		return -1;
	return (int)sx.stx_mnt_id;
}

static int show_instead(const struct ntr_bind *b, int fd)
{
	if (!syscall(
	            SYS_move_mount, fd, "", AT_FDCWD, b->where, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_BENEATH))
		return umount2(b->where, MNT_DETACH) ? -errno : 0;
	umount2(b->where, MNT_DETACH); /* before 6.5: for an instant the directory below shows */
	return syscall(SYS_move_mount, fd, "", AT_FDCWD, b->where, MOVE_MOUNT_F_EMPTY_PATH) ? -errno : 0;
}

static void *ns_main(void *arg)
{
	struct ns_job *j = arg;

	if (unshare(CLONE_FS) || setns(j->b->nsfd, CLONE_NEWNS) || fchdir(j->b->rootfd) || chroot(".")) {
		j->ret = -errno;
		return NULL;
	}
	if (mount_id_at(j->b->where) != j->b->mnt_id)
		j->ret = -ENOENT;
	else if (j->op == 1)
		j->ret = show_instead(j->b, j->mount_fd);
	else if (j->op >= 2)
		j->ret = ntr_umount(j->b->where, j->op == 3 ? MNT_DETACH : 0);
	return NULL;
}

static int ns_do(struct ntr_bind *b, int op, int mount_fd)
{
	struct ns_job j = {.b = b, .op = op, .mount_fd = mount_fd};
	pthread_t t;

	if (pthread_create(&t, NULL, ns_main, &j))
		return -EAGAIN;
	pthread_join(t, NULL);
	return j.ret;
}

static void bind_free(struct ntr_bind *b)
{
	ntr_closep(&b->nsfd);
	ntr_closep(&b->rootfd);
	ntr_closep(&b->peerfd);
	free(b->where);
	free(b);
}

/* May the caller still attach it? */
static bool is_awaited(const struct ntr_bind *b)
{
	struct pollfd p = {.fd = b->peerfd, .events = POLLIN};

	return ntr_mono_ns() < b->awaited_ns && (p.fd < 0 || poll(&p, 1, 0) == 0);
}

/* Asked in this order: a caller that has ended attaches nothing more. */
static bool is_gone(struct ntr_bind *b)
{
	bool awaited = is_awaited(b);
	int r = ns_do(b, 0, -1);

	if (r != -ENOENT)
		b->awaited_ns = 0;
	return r == -ENOENT && !awaited;
}

unsigned ntr_sess_binds(struct ntr_sess *s)
{
	unsigned n = 0;

	for (struct ntr_bind **p = &s->binds, *b; (b = *p);) {
		if (is_gone(b)) {
			*p = b->next;
			bind_free(b);
			continue;
		}
		p = &b->next;
		n++;
	}
	return n;
}

void ntr_sess_rebind(struct ntr_sess *s)
{
	ntr_sess_binds(s);
	for (struct ntr_bind *b = s->binds; b; b = b->next) {
		ntr_autoclose int fd = -1;
		struct statx sx;

		if (ntr_initlink_do(
		            s->live->link, json_pack("{s:s}", "op", "clone"), NULL, 0, NULL, &fd, NULL) ||
		        ns_do(b, 1, fd) || statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx)) {
			fprintf(stderr, "ntrd: %s still shows the state before the rollback; unmount it\n",
			        b->where);
			continue;
		}
		b->mnt_id = (int)sx.stx_mnt_id;
	}
}

int ntr_sess_unbind(struct ntr_sess *s, bool lazy, struct ntr_err *e)
{
	for (struct ntr_bind *b; (b = s->binds);) {
		bool awaited = is_awaited(b);
		int r = ns_do(b, lazy ? 3 : 2, -1);

		if (r == -ENOENT && !lazy && awaited) {
			ntr_err_set(e, -EBUSY, "unmount %s", b->where);
			ntr_err_why(e, "it is just being mounted");
			return ntr_err_todo(e, "try again in a moment"), -EBUSY;
		}
		if (r == -EBUSY) {
			ntr_err_set(e, r, "unmount %s", b->where);
			ntr_err_why(e, "something has files open there or its working directory in it");
			return ntr_err_todo(
			               e, "close what uses it (`fuser -vm %s`), or use --discard", b->where),
			       r;
		}
		s->binds = b->next;
		bind_free(b);
	}
	return 0;
}

/* Negative: nothing is known of them. */
static int passes(struct ntr_sess *s, const char *what, bool force, json_t **ret)
{
	if (!s->live || ntr_initlink_dead(s->live->link, true))
		return -EPIPE;
	return ntr_initlink_do(s->live->link,
	        json_pack("{s:s,s:s,s:b}", "op", "passes", "what", what, "force", force), NULL, 0, ret, NULL,
	        NULL);
}

unsigned ntr_sess_passes(struct ntr_sess *s)
{
	ntr_autojson json_t *reply = NULL;

	return passes(s, "count", false, &reply) ? 0 : (unsigned)ntr_json_int(reply, "passes", 0);
}

int ntr_sess_passes_release(struct ntr_sess *s, bool force, struct ntr_err *e)
{
	ntr_autojson json_t *reply = NULL;

	if (passes(s, "release", force, &reply) || ntr_json_bool(reply, "ok", true))
		return 0;
	ntr_err_set(e, -EBUSY, "unmount the session's directories");
	ntr_err_why(e, "something has files open in one of them");
	ntr_err_todo(e, "close what uses it (`mount -t fuse.ntr` lists them), or use --discard");
	return -EBUSY;
}

void ntr_sess_passes_resume(struct ntr_sess *s)
{
	passes(s, "resume", false, NULL);
}

static int bind_add(struct ntr_sess *s, const char *where, pid_t peer, int mount_fd)
{
	struct ntr_bind *b = calloc(1, sizeof *b);
	struct statx sx;
	char path[64];

	if (!b)
		return -ENOMEM;
	b->peerfd = -1;
	snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)peer);
	b->nsfd = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof path, "/proc/%d/root", (int)peer);
	b->rootfd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	b->where = strdup(where);
	if (b->nsfd < 0 || b->rootfd < 0 || !b->where ||
	        statx(mount_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx)) {
		int r = b->where ? -errno : -ENOMEM;

		bind_free(b);
		return r;
	}
	b->mnt_id = (int)sx.stx_mnt_id;
	b->peerfd = (int)syscall(SYS_pidfd_open, peer, 0);
	b->awaited_ns = ntr_mono_ns() + ATTACH_S * 1000000000ull;
	b->next = s->binds;
	s->binds = b;
	return 0;
}

/* ---- the ways in ---- */

/* The tree's mount, made by a process of its own: for it the kernel asks the versions mount, and nothing here
 * may wait for an answer that this process has to give (live.c, open_versions). */
static int ask_tree(struct ntr_ctl *c, uint64_t root, int *ret, struct ntr_err *e)
{
	ntr_autoclose int versions = -1, empty = -1;
	int store = ntr_store_dirfd(c->store), r;
	struct ntr_initlink *l = NULL;
	char tree[24];

	if (mkdirat(store, "upper/empty", 0700) && errno != EEXIST)
		return -errno;
	empty = openat(store, "upper/empty", O_PATH | O_DIRECTORY | O_CLOEXEC);
	versions = open(c->mounts[NTR_VMOUNT_FULL].path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (empty < 0 || versions < 0)
		return -errno;
	snprintf(tree, sizeof tree, "%016llx", (unsigned long long)root);
	r = ntr_initlink_spawn(c->init_path, &l, e);
	if (r)
		return r;
	r = ntr_initlink_do(l, json_pack("{s:s,s:s}", "op", "tree", "tree", tree),
	        (const int[]){versions, empty}, 2, NULL, ret, e);
	ntr_initlink_close(l);
	return r;
}

static int commit_tree_fd(
        struct ntr_ctl *c, const char *session, const char *rev, int *ret, struct ntr_err *e)
{
	struct ntr_commit at = {0};
	int r = ntr_ctl_resolve(c, session, rev, &at, NULL, e);

	if (!r)
		r = ntr_ctl_versions(c, e);
	if (!r && (r = ask_tree(c, at.root, ret, e)))
		ntr_err_default(e, r, "mount %s", rev);
	ntr_commit_done(&at);
	return r;
}

int ntr_ctl_mount_fd(struct ntr_ctl *c, const char *session, const char *rev, const char *where, pid_t peer,
        int *ret_fd, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	int r;

	*ret_fd = -1;
	if (rev)
		return commit_tree_fd(c, session, rev, ret_fd, e);
	r = ntr_ctl_hold(c, session, NULL, &s, &h, e);
	if (r)
		return r;
	r = ntr_sess_live(s, &h, e);
	if (!r)
		r = ntr_initlink_do(
		        s->live->link, json_pack("{s:s}", "op", "clone"), NULL, 0, NULL, ret_fd, e);
	if (!r)
		r = bind_add(s, where, peer, *ret_fd);
	ntr_sess_release(s);
	if (r) {
		ntr_closep(ret_fd);
		*ret_fd = -1;
	}
	return r ? ntr_err_default(e, r, "mount session %s", session) : 0;
}

static int serve_commit(struct ntr_ctl *c, const char *session, const char *rev, const char *where,
        int fuse_fd, struct ntr_err *e)
{
	struct ntr_served *sv = calloc(1, sizeof *sv);
	struct ntr_commit at = {0};
	int r = sv ? ntr_ctl_resolve(c, session, rev, &at, NULL, e) : -ENOMEM;

	if (!r) {
		struct ntr_versions_options o = {.root = at.root,
		        .fuse_fd = fcntl(fuse_fd, F_DUPFD_CLOEXEC, 3),
		        .watchdog_s = c->o.watchdog_s};

		r = o.fuse_fd < 0 ? -errno : ntr_versions_start(c->store, where, &o, &sv->v, e);
	}
	ntr_commit_done(&at);
	if (r) {
		free(sv);
		return ntr_err_default(e, r, "mount %s", rev);
	}
	sv->where = strdup(where);
	pthread_mutex_lock(&c->m);
	sv->next = c->served;
	c->served = sv;
	pthread_mutex_unlock(&c->m);
	return 0;
}

void ntr_ctl_served_end(struct ntr_ctl *c, bool dead_only)
{
	struct ntr_served *sv, *gone = NULL;

	pthread_mutex_lock(&c->m);
	for (struct ntr_served **p = &c->served; (sv = *p);) {
		if (dead_only && ntr_versions_alive(sv->v)) {
			p = &sv->next;
			continue;
		}
		*p = sv->next;
		sv->next = gone;
		gone = sv;
	}
	pthread_mutex_unlock(&c->m);
	while ((sv = gone)) {
		gone = sv->next;
		ntr_versions_stop(sv->v);
		free(sv->where);
		free(sv);
	}
}

int ntr_ctl_mount_serve(struct ntr_ctl *c, const char *session, const char *rev, const char *where,
        int fuse_fd, struct ntr_err *e)
{
	struct ntr_sess *s;
	struct ntr_head h;
	int r;

	if (rev)
		return serve_commit(c, session, rev, where, fuse_fd, e);
	r = ntr_ctl_hold(c, session, NULL, &s, &h, e);
	if (r)
		return r;
	r = ntr_sess_live(s, &h, e);
	if (!r)
		r = ntr_initlink_do(s->live->link, json_pack("{s:s,s:b}", "op", "serve", "rw", 1), &fuse_fd,
		        1, NULL, NULL, e);
	ntr_sess_release(s);
	return r ? ntr_err_default(e, r, "mount session %s", session) : 0;
}
