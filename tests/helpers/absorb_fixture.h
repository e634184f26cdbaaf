/* absorb_fixture: a session with a merged view as it is in use: overlayfs of an upper directory over the
 * session's commit in a versions mount, absorbed and folded at will. As root with mount(2), else in a user
 * namespace. */
#ifndef NTR_TEST_ABSORB_FIXTURE_H
#define NTR_TEST_ABSORB_FIXTURE_H

#include "store_fixture.h"

#include "base/wire.h"
#include "exec/absorb_impl.h"
#include "fs/versions.h"
#include "manifest.h"

#include <sched.h>
#include <grp.h>
#include <pwd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

struct afixture {
	struct fixture fx;
	struct ntr_versions *v;
	char mnt[300], view[300], upper[320], work[320];
	int upper_fd;
	unsigned n;   /* of the upper */
	bool user;    /* with userxattr, in a user namespace */
	pid_t holder; /* user: of the namespace */
	int holder_sock, view_fd;
	bool broken; /* a hard link into the commit was broken: overlayfs counts it still for the other names
	              */
	uint64_t base;
	struct ntr_memo *memo;
	struct ntr_absorb_result last;
};

static inline void afx_sh(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void afx_sh(const char *fmt, ...)
{
	char cmd[2000];
	va_list ap;
	int r;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	r = system(cmd);
	if (r)
		fail_msg("status %d of: %s", r, cmd);
}

/* upper's own attributes are the root directory's. */
static inline void afx_dress(struct afixture *f)
{
	struct ntr_snap s = ntr_snap_root(f->fx.st, f->fx.head.root);
	struct ntr_inode in;

	assert_int_equal(ntr_inode_get(&s, NTR_INO_ROOT, &in), 0);
	if (!f->user)
		assert_int_equal(fchown(f->upper_fd, ntr_store_uid_out(f->fx.st, in.uid),
		                         ntr_store_gid_out(f->fx.st, in.gid)),
		        0);
	assert_int_equal(fchmod(f->upper_fd, in.mode & 07777), 0);
	assert_int_equal(futimens(f->upper_fd, (struct timespec[2]){in.atime, in.mtime}), 0);
}

static inline void afx_memo(struct afixture *f)
{
	ntr_memo_free(f->memo);
	f->memo = NULL;
	assert_int_equal(ntr_memo_new(f->upper_fd, f->user, &f->memo), 0);
}

static inline void afx_new_upper(struct afixture *f)
{
	f->n++;
	snprintf(f->upper, sizeof(f->upper), "%s/u%u", f->fx.dir, f->n);
	snprintf(f->work, sizeof(f->work), "%s/w%u", f->fx.dir, f->n);
	assert_int_equal(mkdir(f->upper, 0755), 0);
	assert_int_equal(mkdir(f->work, 0755), 0);
	f->upper_fd = open(f->upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(f->upper_fd >= 0);
	f->base = f->fx.head.root;
	afx_dress(f);
	afx_memo(f);
}

static inline void afx_options(struct afixture *f, char out[1200])
{
	snprintf(out, 1200, "lowerdir=%s/%016llx,upperdir=%s,workdir=%s,index=off,xino=on,%s", f->mnt,
	        (unsigned long long)f->base, f->upper, f->work,
	        f->user ? "userxattr" : "redirect_dir=on,metacopy=on");
}

static inline void afx_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(3);
	close(fd);
}

/* Holds the namespace with the mount, and hands out its root directory; ends when the socket closes. */
static inline void afx_hold(const struct afixture *f, const char *o, int sock)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[300], c;
	int fd;

	/* Above all the driver's /dev/fuse: a copy here would outlive the driver, and what waits for it. */
	sock = dup2(sock, 3);
	close_range(4, ~0u, 0);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		_exit(2);
	afx_write("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	afx_write("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	afx_write("/proc/self/gid_map", map);
	snprintf(map, sizeof(map), "%s/view", f->fx.dir);
	if (mount("overlay", map, "overlay", 0, o))
		_exit(4);
	fd = open(map, O_RDONLY | O_DIRECTORY);
	if (fd < 0 || ntr_wire_send_new(sock, json_object(), &fd, 1))
		_exit(5);
	close(fd);
	while (read(sock, &c, 1) > 0)
		;
	_exit(0);
}

/* As an ordinary user's session has it: the mount is in a user namespace, this process (as the daemon) is
 * not. */
static inline void afx_mount_user(struct afixture *f, const char *o)
{
	int sv[2], fds[NTR_WIRE_FDS];
	json_t *msg = NULL;
	size_t n = 0;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	f->holder = fork();
	assert_true(f->holder >= 0);
	if (!f->holder) {
		close(sv[0]);
		afx_hold(f, o, sv[1]);
	}
	close(sv[1]);
	f->holder_sock = sv[0];
	if (ntr_wire_recv(sv[0], &msg, fds, &n) || n != 1) {
		int st = 0;

		waitpid(f->holder, &st, 0);
		waitpid(f->holder, &st, 0);
		fail_msg("no overlay in a user namespace: status %x", (unsigned)st);
	}
	json_decref(msg);
	f->view_fd = fcntl(fds[0], F_DUPFD, 100); /* shells have it too */
	close(fds[0]);
	snprintf(f->view, sizeof(f->view), "/proc/self/fd/%d", f->view_fd);
}

static inline void afx_mount(struct afixture *f)
{
	char o[1200];

	afx_options(f, o);
	if (f->user) {
		afx_mount_user(f, o);
		return;
	}
	if (mount("overlay", f->view, "overlay", 0, o))
		fail_msg("mount overlay: %s (%s)", strerror(errno), o);
}

static inline void afx_setup_plain(struct afixture *f)
{
	memset(f, 0, sizeof(*f));
	f->upper_fd = -1;
	fx_setup(&f->fx);
	fx_session(&f->fx, "s");
	snprintf(f->mnt, sizeof(f->mnt), "%s/versions", f->fx.dir);
	snprintf(f->view, sizeof(f->view), "%s/view", f->fx.dir);
	assert_int_equal(mkdir(f->mnt, 0755), 0);
	assert_int_equal(mkdir(f->view, 0755), 0);
}

static inline void afx_serve(struct afixture *f)
{
	struct ntr_versions_options o = {.fuse_fd = -1};
	struct ntr_err e = {0};

	if (ntr_versions_start(f->fx.st, f->mnt, &o, &f->v, &e))
		fx_fail("mount the versions", &e);
}

/* In a mount namespace of its own, so that a test that dies leaves nothing mounted. */
static inline void afx_private(void)
{
	static bool done;

	if (done)
		return;
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	done = true;
}

static inline void afx_setup(struct afixture *f)
{
	bool user = geteuid() != 0;

	if (!user)
		afx_private();
	afx_setup_plain(f);
	f->user = user;
	afx_serve(f);
	afx_new_upper(f);
	afx_mount(f);
}

static inline void afx_unmount(struct afixture *f)
{
	if (!f->user) {
		assert_int_equal(umount2(f->view, 0), 0);
		return;
	}
	close(f->view_fd);
	close(f->holder_sock);
	waitpid(f->holder, NULL, 0);
}

static inline void afx_drop_upper(struct afixture *f)
{
	ntr_memo_free(f->memo);
	f->memo = NULL;
	close(f->upper_fd);
	ntr_rm_rf(AT_FDCWD, f->upper);
	ntr_rm_rf(AT_FDCWD, f->work);
}

static inline void afx_teardown(struct afixture *f)
{
	if (f->user)
		afx_unmount(f);
	else
		umount2(f->view, MNT_DETACH);
	afx_drop_upper(f);
	if (f->v)
		ntr_versions_stop(f->v);
	fx_teardown(&f->fx);
}

/* A fresh upper on the head. */
static inline void afx_fold(struct afixture *f)
{
	afx_unmount(f);
	afx_drop_upper(f);
	afx_new_upper(f);
	afx_mount(f);
	f->broken = false;
}

/* Absorbs and commits. */
static inline bool afx_absorb_as(struct afixture *f, bool full)
{
	struct ntr_txn *t = fx_begin(&f->fx);
	struct ntr_err e = {0};

	if (ntr_absorb_run(f->memo, t, f->base, full, &f->last, &e))
		fx_fail("absorb", &e);
	if (f->last.changed) {
		fx_commit(&f->fx, t);
	} else {
		struct ntr_kv_batch *b = ntr_kv_batch_new();
		uint64_t root = 1;

		assert_int_equal(ntr_txn_finish(t, b, &root, &e), 0);
		assert_true(root == f->fx.head.root);
		ntr_kv_batch_free(b);
		ntr_txn_abort(t);
	}
	ntr_absorb_accept(f->memo);
	return f->last.changed;
}

static inline struct ntr_snap afx_head(struct afixture *f)
{
	return ntr_snap_root(f->fx.st, f->fx.head.root);
}

/* What a commit changed that should not have been one: paths, and the inodes they had and have. */
static inline void afx_explain(struct afixture *f, uint64_t before)
{
	struct ntr_snap s = afx_head(f), p = ntr_snap_root(f->fx.st, before);
	struct manifest a = mf_of_tree(&p), b = mf_of_tree(&s);

	mf_compare(&a, &b, 0);
	for (size_t i = 0; i < a.n && i < b.n && !strcmp(a.v[i].path, b.v[i].path); i++)
		if (a.v[i].ino != b.v[i].ino)
			print_error("'%s': inode %llu -> %llu\n", a.v[i].path, (unsigned long long)a.v[i].ino,
			        (unsigned long long)b.v[i].ino);
	mf_done(&a);
	mf_done(&b);
}

/* Absorbs, and makes sure that there is nothing left to absorb: for the memo, and for one who has none. */
static inline bool afx_absorb(struct afixture *f)
{
	bool changed = afx_absorb_as(f, false);
	uint64_t root = f->fx.head.root;
	struct ntr_memo *keep;

	assert_int_equal(ntr_absorb_check(f->memo), 0);
	assert_false(afx_absorb_as(f, false));
	keep = f->memo;
	f->memo = NULL;
	afx_memo(f);
	if (afx_absorb_as(f, true)) {
		afx_explain(f, root);
		fail_msg("a look without a memo finds changes");
	}
	ntr_memo_free(f->memo);
	f->memo = keep;
	return changed;
}

/* The head's tree must be what the view shows. */
static inline void afx_same_as(struct afixture *f, const char *dir, unsigned skip)
{
	struct ntr_snap s = afx_head(f);
	struct manifest a = mf_of_dir(dir), b = mf_of_tree(&s);
	size_t n = mf_compare(&a, &b, skip);

	mf_done(&a);
	mf_done(&b);
	if (n)
		fail_msg("%zu paths differ", n);
}

static inline void afx_same(struct afixture *f)
{
	afx_same_as(f, f->view, MF_NO_DIR_MTIME | (f->broken ? MF_NO_NLINK : 0));
}

/* Inode at path in the head, 0: none. */
static inline uint64_t afx_ino(struct afixture *f, const char *path)
{
	struct ntr_snap s = afx_head(f);
	uint64_t ino;

	return ntr_path_lookup(&s, path, &ino) ? 0 : ino;
}

static inline struct ntr_inode afx_inode(struct afixture *f, const char *path)
{
	struct ntr_snap s = afx_head(f);
	struct ntr_inode in;
	uint64_t ino = afx_ino(f, path);

	assert_true(ino != 0);
	assert_int_equal(ntr_inode_get(&s, ino, &in), 0);
	return in;
}

/* Runs a group of tests as an ordinary user, whoever started it. */
static inline int afx_as_user(int (*fn)(void))
{
	const struct passwd *pw = getpwnam("daemon"); /* fusermount3 wants a user with a name */
	int st = 0;
	pid_t pid;

	if (geteuid())
		return fn();
	if (!pw)
		return 77;
	pid = fork();
	if (!pid) {
		if (setgroups(0, NULL) || setgid(pw->pw_gid) || setuid(pw->pw_uid) ||
		        prctl(PR_SET_DUMPABLE, 1))
			_exit(1);
		exit(fn());
	}
	waitpid(pid, &st, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 1;
}

/* Shell in the view. */
#define afx_do(f, ...)                                                      \
	do {                                                                \
		char do_cmd_[1500];                                         \
		snprintf(do_cmd_, sizeof(do_cmd_), __VA_ARGS__);            \
		afx_sh("cd '%s' && set -e && { %s\n}", (f)->view, do_cmd_); \
	} while (0)

#endif
