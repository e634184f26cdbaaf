/* init_view: the requests that make, replace and lend the view. */
#include "init.h"
#include "initproto.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* The first descriptor of a request is the versions mount; here it becomes the tree that the request names.
 */
static int open_tree_of(struct ntr_initreq *rq, struct ntr_err *e)
{
	const char *tree = ntr_json_str(rq->msg, "tree", ".");
	int fd = openat(rq->fds[0], tree, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0) {
		ntr_err_set(e, -errno, "open the commit's tree %s", tree);
		return ntr_err_todo(
		               e, "end the daemon with `ntr daemon stop`; the next command mounts it anew"),
		       e->code;
	}
	close(rq->fds[0]);
	rq->fds[0] = fd;
	return 0;
}

/* fds of a request: versions (from here on the tree), upper, work. */
static int build(struct ntr_init *in, struct ntr_initreq *rq, int *ret_mount, struct ntr_err *e)
{
	struct ntr_overlay o = {.userxattr = in->userxattr};
	int r = open_tree_of(rq, e);

	if (!r)
		r = ntr_init_memory(in, rq, e);
	o.lower_fd = rq->fds[0];
	o.upper_fd = rq->fds[1];
	o.work_fd = rq->fds[2];
	if (!r)
		r = ntr_view_overlay(&o, ret_mount, e);
	if (r)
		ntr_init_memory_keep(in, false);
	return r;
}

static void keep_upper(struct ntr_init *in, int fd)
{
	ntr_closep(&in->upper_fd);
	in->upper_fd = fd;
}

static int make_view(struct ntr_init *in, struct ntr_initreq *rq, struct ntr_err *e)
{
	ntr_autoclose int mount = -1;
	int r = ntr_json_get_bytes(json_object_get(rq->msg, "wsroot"), &in->wsroot, NULL);

	if (r)
		return ntr_err_full(e, r, "start the session", "no wsroot", NULL);
	in->user = ntr_json_bool(rq->msg, "user", false);
	in->userxattr = ntr_json_bool(rq->msg, "userxattr", in->user);
	r = ntr_init_mounts_read(in, rq, e);
	if (!r)
		r = ntr_view_enter(in->user, e);
	if (!r)
		r = ntr_view_place(in->wsroot, e);
	if (!r)
		r = ntr_init_mounts_place(in, e);
	if (!r)
		r = build(in, rq, &mount, e);
	if (!r)
		r = ntr_view_attach(mount, in->wsroot, false, e);
	if (!r)
		r = ntr_init_mounts_attach(in, e);
	if (!r && in->userxattr && (r = ntr_rename_start(in)))
		ntr_err_set(e, r, "answer the session's renames");
	if (!r) {
		ntr_rename_layers(in, rq->fds);
		ntr_rename_layers_use(in);
		keep_upper(in, ntr_steal_fd(&rq->fds[1]));
		ntr_init_memory_keep(in, true);
	}
	return r;
}

void ntr_init_start(struct ntr_init *in, struct ntr_initreq *rq)
{
	struct ntr_err e = {0};
	struct stat st;

	if (in->started) {
		ntr_err_full(&e, -EALREADY, "start the session", "it has been started", NULL);
		ntr_init_error(in, rq->req, &e);
		return;
	}
	if (make_view(in, rq, &e)) {
		ntr_init_error(in, rq->req, &e);
		in->over = true;
		return;
	}
	in->started = true;
	if (stat("/proc/self/ns/mnt", &st))
		st.st_ino = 0;
	ntr_init_view_ok(in, rq->req,
	        json_pack("{s:b,s:i,s:I,s:i}", "ok", 1, "pid", (int)getpid(), "mntns", (json_int_t)st.st_ino,
	                "protocol", NTR_INIT_PROTOCOL));
}

/* ---- replacing ---- */

/* Without MOVE_MOUNT_BENEATH (before 6.5; or where the view's parent is the namespace's first root) there is
 * a moment without a view, so nothing may run. A spare of the old one goes back if the new one does not fit.
 */
static int replace_in_turn(struct ntr_init *in, int mount, struct ntr_err *e)
{
	ntr_autoclose int spare = -1;
	int r = ntr_view_copy(AT_FDCWD, in->wsroot, &spare);

	if (!r)
		r = ntr_view_detach(in->wsroot, true);
	if (r)
		return ntr_err_set(e, r, "take the view off %s", in->wsroot);
	r = ntr_view_attach(mount, in->wsroot, false, e);
	if (r)
		ntr_view_attach(spare, in->wsroot, false, NULL);
	return r;
}

static void close_mount(int *mount)
{
	ntr_closep(mount);
	*mount = -1;
}

/* The old mount is held until a child lets go of it: the last one to do so waits for the whole overlay to be
 * taken apart, which with 50,000 cached entries lasts a second. The new one is let go before: in the child,
 * the descriptor would make it look used for a moment. */
static int replace(struct ntr_init *in, int *mount, struct ntr_err *e)
{
	ntr_autoclose int old = open(in->wsroot, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (old < 0)
		return ntr_err_set(e, -errno, "open %s", in->wsroot);
	r = ntr_view_attach(*mount, in->wsroot, true, e);
	if (!r && (r = ntr_view_detach(in->wsroot, true)))
		return ntr_err_set(e, r, "take the old view off %s", in->wsroot);
	if (r == -EINVAL)
		r = replace_in_turn(in, *mount, e);
	close_mount(mount);
	if (!r)
		ntr_inithelper_close(in, ntr_steal_fd(&old));
	return r;
}

/* The check and the exchange happen while every process stands still: between them nobody can step into the
 * old view, where what he writes would be lost. 1: busy. */
static int fold_view(struct ntr_init *in, int *mount, struct ntr_err *e)
{
	bool frozen_before = in->frozen.n > 0;
	int r = in->dirs ? 0 : ntr_view_busy(in->wsroot), back;

	if (!r) {
		ntr_init_freeze(in);
		r = ntr_init_mounts_park(in, e);
		if (!r && (r = ntr_view_busy(in->wsroot)) < 0)
			ntr_err_set(e, r, "look who uses %s", in->wsroot);
		if (!r)
			r = replace(in, mount, e);
		back = ntr_init_mounts_unpark(in, r < 0 ? NULL : e);
		in->over |= back != 0; /* nothing may run without what it is to see */
		r = r < 0 || !back ? r : back;
	} else if (r < 0) {
		ntr_err_set(e, r, "look who uses %s", in->wsroot);
	}
	if (!frozen_before)
		ntr_init_thaw(in);
	return r;
}

void ntr_init_fold(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autoclose int mount = -1;
	struct ntr_err e = {0};
	int r = build(in, rq, &mount, &e);

	if (r) {
		ntr_init_error(in, rq->req, &e);
		return;
	}
	ntr_initpy_release(in);
	r = ntr_inithelper_release(in, false) ? fold_view(in, &mount, &e) : 1;
	ntr_inithelper_resume(in);
	if (r)
		ntr_init_memory_keep(in, false);
	if (r > 0) {
		ntr_init_send(in, rq->req, json_pack("{s:b}", "busy", 1), NULL, 0);
		return;
	}
	if (r < 0) {
		ntr_init_error(in, rq->req, &e);
		return;
	}
	ntr_rename_layers(in, rq->fds);
	ntr_rename_layers_use(in);
	keep_upper(in, ntr_steal_fd(&rq->fds[1]));
	ntr_init_memory_keep(in, true);
	ntr_init_view_ok(in, rq->req, json_pack("{s:b}", "ok", 1));
}

/* The new overlay is built first: if that fails nothing has been lost. */
void ntr_init_swap(struct ntr_init *in, struct ntr_initreq *rq)
{
	struct ntr_err e = {0};
	int mount = -1;

	if (build(in, rq, &mount, &e)) {
		ntr_init_error(in, rq->req, &e);
		return;
	}
	ntr_rename_layers(in, rq->fds);
	ntr_initjob_start(in, NTR_JOB_SWAP, rq, mount, ntr_steal_fd(&rq->fds[1]));
}

int ntr_init_swap_view(struct ntr_init *in, struct ntr_initjob *job, struct ntr_err *e)
{
	int r, back;

	ntr_inithelper_release(in, true);
	ntr_initpy_release(in);
	r = ntr_init_mounts_park(in, e);
	if (!r)
		r = replace(in, &job->mount_fd, e);
	back = ntr_init_mounts_unpark(in, r ? NULL : e);
	r = r ? r : back;
	if (!r) {
		ntr_rename_layers_use(in);
		keep_upper(in, ntr_steal_fd(&job->upper_fd));
	}
	ntr_init_memory_keep(in, !r);
	ntr_inithelper_resume(in);
	return r;
}

void ntr_init_tree(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autoclose int fd = -1;
	struct ntr_err e = {0};
	int r = open_tree_of(rq, &e);

	/* alone better than not at all */
	if (!r && ntr_view_tree(rq->fds[0], rq->fds[1], &fd) && (r = ntr_view_copy(rq->fds[0], "", &fd)))
		ntr_err_set(&e, r, "copy the commit's mount");
	if (r)
		ntr_init_error(in, rq->req, &e);
	else
		ntr_init_send(in, rq->req, json_pack("{s:b}", "ok", 1), &fd, 1);
}

void ntr_init_clone(struct ntr_init *in, struct ntr_initreq *rq)
{
	ntr_autoclose int fd = -1;
	struct ntr_err e = {0};
	int r = ntr_view_copy(AT_FDCWD, in->wsroot, &fd);

	if (r) {
		ntr_err_set(&e, r, "copy the session's mount");
		ntr_init_error(in, rq->req, &e);
		return;
	}
	ntr_init_send(in, rq->req, json_pack("{s:b}", "ok", 1), &fd, 1);
}
