#include "live.h"
#include "live_memory.h"
#include "live_mounts.h"
#include "initproto.h"
#include "../base/json.h"
#include "../base/upperfs.h"
#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

static void ntr_memo_freep(struct ntr_memo **m)
{
	ntr_memo_free(*m);
}

/* The mount itself, whose root is open without a request. The tree below it is opened by the supervisor: that
 * is a request, to this very process, and a process killed while it waits for itself does not end
 * (docs/design.md, "FUSE"). */
static int open_versions(const struct ntr_live_options *o, bool plain, int *ret, struct ntr_err *e)
{
	const char *path = plain ? o->plain_path : o->full_path;
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0) {
		ntr_err_set(e, -errno, "open the commits' trees at %s", path);
		return ntr_err_todo(
		               e, "end the daemon with `ntr daemon stop`; the next command mounts it anew"),
		       -errno;
	}
	*ret = fd;
	return 0;
}

static json_t *start_msg(const struct ntr_head *h)
{
	return json_pack("{s:s,s:s,s:o,s:b,s:b,s:I}", "op", "start", "session", h->name, "wsroot",
	        ntr_json_bytes(h->wsroot, strlen(h->wsroot)), "user", geteuid() != 0, "userxattr",
	        ntr_fs_userxattr(), "sid", (json_int_t)h->sid);
}

/* The record names the new upper, synced, before anything can be written there. h only changes on success. */
static int record_upper(struct ntr_store *s, struct ntr_head *h, uint64_t n, uint64_t base, struct ntr_err *e)
{
	int r = ntr_session_set_upper(s, h->sid, n, base, e);

	if (r)
		return r;
	h->upper = n;
	h->base_root = base;
	h->last_upper = NTR_MAX(h->last_upper, n);
	return 0;
}

int ntr_live_record(struct ntr_live *l, struct ntr_head *h, struct ntr_err *e)
{
	int r = l->unrecorded ? record_upper(l->store, h, l->upper.n, l->upper.base_root, e) : 0;

	if (!r)
		l->unrecorded = false;
	return r;
}

/* A request that makes a view over u. */
static int ask_view(
        struct ntr_live *l, json_t *msg, int versions, struct ntr_upper *u, json_t **ret, struct ntr_err *e)
{
	bool memory = ntr_memory_needed(l->store);
	int fds[3] = {versions, u->fd, u->work_fd}, fd = -1, r;
	char tree[24];

	snprintf(tree, sizeof tree, "%016llx", (unsigned long long)u->base_root);
	if (msg)
		json_object_set_new(msg, "tree", json_string(tree));
	if (msg && memory)
		json_object_set_new(msg, "tmpfs", json_integer((json_int_t)ntr_memory_size()));
	r = ntr_initlink_do(l->link, msg, fds, 3, ret, &fd, e);
	if (r || !memory || ntr_json_bool(*ret, "busy", false))
		return r;
	r = ntr_memory_took(l->store, u, *ret, fd);
	return r ? ntr_err_set(e, r, "take the session's upper in memory") : 0;
}

static int start_supervisor(
        struct ntr_live *l, const struct ntr_head *h, const struct ntr_live_options *o, struct ntr_err *e)
{
	ntr_autojson json_t *reply = NULL, *mounts = NULL;
	ntr_autoclose int versions = -1;
	json_t *msg;
	int r;

	r = open_versions(o, !h->xattrs, &versions, e);
	if (!r)
		r = ntr_mounts_load(l->store, h->sid, &mounts, e);
	if (!r)
		r = ntr_initlink_spawn(o->init_path, &l->link, e);
	if (r)
		return r;
	msg = start_msg(h);
	if (msg && json_array_size(mounts))
		json_object_set(msg, "mounts", mounts);
	r = ask_view(l, msg, versions, &l->upper, &reply, e);
	if (r)
		return r;
	l->mntns = ntr_namespace_of(ntr_initlink_pid(l->link));
	return ntr_upper_note_init(l->store, &l->upper, ntr_initlink_pid(l->link), l->mntns);
}

static int start(struct ntr_store *s, struct ntr_head *h, const struct ntr_live_options *o,
        struct ntr_live **ret, struct ntr_err *e)
{
	struct ntr_live *l = calloc(1, sizeof *l);
	int r;

	if (!l)
		return ntr_err_set(e, -ENOMEM, "start session %s", h->name);
	l->store = s;
	l->upper.fd = l->upper.work_fd = -1;
	r = ntr_upper_make(s, h->sid, h->last_upper + 1, h->root, &l->upper, e);
	if (!r)
		r = record_upper(s, h, l->upper.n, h->root, e);
	if (!r)
		r = start_supervisor(l, h, o, e);
	if (!r)
		r = ntr_memo_new(l->upper.fd, ntr_fs_userxattr(), &l->memo);
	if (r) {
		ntr_err_default(e, r, "start session %s", h->name);
		ntr_live_end(l);
		ntr_live_free(l);
		ntr_live_drop_upper(s, h, NULL); /* nothing ever ran there */
		return r;
	}
	l->used_ns = ntr_mono_ns();
	*ret = l;
	return 0;
}

/* Not every file system that overlayfs refuses is known by its name. And on a full disk there is room kept
 * for this: what fills it can then be deleted in the session. */
int ntr_live_start(struct ntr_store *s, struct ntr_head *h, const struct ntr_live_options *o,
        struct ntr_live **ret, struct ntr_err *e)
{
	struct ntr_err first = {0}, second = {0};
	int r = start(s, h, o, ret, &first);

	if (r == -EINVAL && !strcmp(first.what, NTR_OVERLAY_WHAT) && !ntr_memory_needed(s)) {
		ntr_memory_force(true);
		r = start(s, h, o, ret, &second);
		ntr_memory_force(!r);
	} else if (r == -ENOSPC && ntr_store_relief(s)) {
		r = start(s, h, o, ret, &first);
	}
	if (r && e)
		*e = first;
	return r;
}

/* Work in memory that no commit has stays with its supervisor. */
static bool leave_held(struct ntr_live *l)
{
	bool alive = l->upper.memory && l->link && !ntr_initlink_dead(l->link, true);

	if (alive && !l->dirty)
		ntr_initlink_do(l->link, json_pack("{s:s}", "op", "stop"), NULL, 0, NULL, NULL, NULL);
	if (!alive || !l->dirty)
		return false;
	ntr_initlink_leave(ntr_steal_ptr(l->link));
	return true;
}

void ntr_live_end(struct ntr_live *l)
{
	if (!l)
		return;
	if (!leave_held(l)) {
		ntr_initlink_close(ntr_steal_ptr(l->link));
		ntr_kill_namespace(l->mntns);
	}
	l->mntns = 0;
	l->background = 0;
}

void ntr_live_free(struct ntr_live *l)
{
	if (!l)
		return;
	ntr_live_end(l);
	ntr_memo_free(l->memo);
	ntr_upper_close(&l->upper);
	free(l);
}

int ntr_live_drop_upper(struct ntr_store *s, struct ntr_head *h, struct ntr_err *e)
{
	uint64_t n = h->upper;
	int r = 0;

	if (!n)
		return 0;
	r = record_upper(s, h, 0, 0, e);
	if (r)
		return r;
	ntr_memory_end(s, h->sid, n);
	return ntr_upper_trash(s, h->sid, n);
}

int ntr_live_kill(struct ntr_live *l, uint64_t call, unsigned grace_ms, unsigned *ret, struct ntr_err *e)
{
	ntr_autojson json_t *reply = NULL;
	int r = ntr_initlink_do(l->link,
	        json_pack("{s:s,s:I,s:i}", "op", "kill", "call", (json_int_t)call, "grace_ms", (int)grace_ms),
	        NULL, 0, &reply, NULL, e);

	if (r)
		return r;
	if (ret)
		*ret = (unsigned)ntr_json_int(reply, "killed", 0);
	if (!call)
		l->background = 0;
	return 0;
}

/* Pages of a shared mapping that were dirty already take further stores without any time stamp: writing them
 * back first makes every store visible to the walk (design, "Absorb"). The supervisor does it and says which.
 */
int ntr_live_writeback(struct ntr_live *l, struct ntr_err *e)
{
	return ntr_initlink_do(l->link, json_pack("{s:s}", "op", "mapped"), NULL, 0, NULL, NULL, e);
}

int ntr_live_freeze(struct ntr_live *l, struct ntr_err *e)
{
	int r = ntr_initlink_do(l->link, json_pack("{s:s}", "op", "freeze"), NULL, 0, NULL, NULL, e);

	return r ? r : ntr_live_writeback(l, e);
}

void ntr_live_thaw(struct ntr_live *l)
{
	ntr_initlink_do(l->link, json_pack("{s:s}", "op", "thaw"), NULL, 0, NULL, NULL, NULL);
}

/* Replaces l's upper by `next`, with its memo, after the view shows it: this cannot fail. */
static void adopt_upper(struct ntr_live *l, struct ntr_upper *next, struct ntr_memo *memo)
{
	l->walked += ntr_memo_walked(l->memo);
	ntr_memo_free(l->memo);
	l->memo = memo;
	ntr_upper_trash(l->store, l->upper.sid, l->upper.n);
	ntr_upper_close(&l->upper);
	l->upper = *next;
	next->fd = next->work_fd = -1;
	ntr_upper_note_init(l->store, &l->upper, ntr_initlink_pid(l->link), l->mntns);
}

/* One write moves the record to the next upper, and for a rollback the head with it: a crash on either side
 * of it finds a record whose head and upper belong together. */
static int record_next(struct ntr_live *l, struct ntr_head *h, const struct ntr_upper *next,
        const struct ntr_commit *to, struct ntr_err *e)
{
	struct ntr_head moved = *h;
	int r;

	if (!to)
		return record_upper(l->store, h, next->n, next->base_root, e);
	moved.upper = moved.last_upper = next->n;
	moved.base_root = next->base_root;
	r = ntr_session_move(l->store, &moved, to, e);
	if (!r)
		*h = moved;
	return r;
}

static int prepare_next(struct ntr_live *l, struct ntr_head *h, const struct ntr_live_options *o,
        const struct ntr_commit *to, struct ntr_upper *next, struct ntr_memo **ret_memo, int *ret_versions,
        struct ntr_err *e)
{
	uint64_t root = to ? to->root : h->root;
	int r = open_versions(o, !(to ? to->xattrs : h->xattrs), ret_versions, e);

	if (!r)
		r = ntr_upper_make(l->store, h->sid, h->last_upper + 1, root, next, e);
	if (!r && (r = ntr_memo_new(next->fd, ntr_fs_userxattr(), ret_memo)))
		ntr_err_set(e, r, "prepare the session's upper");
	if (r)
		return r;
	r = record_next(l, h, next, to, e);
	if (r) /* a write that failed may still be on disk */
		l->unrecorded = true;
	return r;
}

/* memo is of next; when that is in memory it can only be made now. */
static int show_next(struct ntr_live *l, const char *op, int versions, struct ntr_upper *next,
        struct ntr_memo **memo, unsigned *ret_killed, struct ntr_err *e)
{
	ntr_autojson json_t *reply = NULL;
	int r = ask_view(l, json_pack("{s:s}", "op", op), versions, next, &reply, e);

	if (!r && ntr_json_bool(reply, "busy", false))
		return -EBUSY;
	if (!r && ret_killed)
		*ret_killed += (unsigned)ntr_json_int(reply, "killed", 0);
	if (!r && next->memory) {
		ntr_memo_free(ntr_steal_ptr(*memo));
		r = ntr_memo_new(next->fd, ntr_fs_userxattr(), memo);
		if (r) { /* nothing was done there yet: whoever comes next starts anew */
			kill(ntr_initlink_pid(l->link), SIGKILL);
			l->upper.memory = false;
			ntr_err_set(e, r, "prepare the session's upper");
		}
	}
	return r;
}

int ntr_live_fold(struct ntr_live *l, struct ntr_head *h, const struct ntr_live_options *o, struct ntr_err *e)
{
	ntr_auto(ntr_upper_close) struct ntr_upper next = {.fd = -1, .work_fd = -1};
	ntr_auto(ntr_memo_freep) struct ntr_memo *memo = NULL;
	ntr_autoclose int versions = -1;
	int r = prepare_next(l, h, o, NULL, &next, &memo, &versions, e);

	if (!r) {
		r = show_next(l, "fold", versions, &next, &memo, NULL, e);
		l->unrecorded = r != 0;
	}
	if (!r)
		adopt_upper(l, &next, ntr_steal_ptr(memo));
	else if (!ntr_live_record(l, h, NULL))
		ntr_upper_trash(l->store, h->sid, next.n);
	return r;
}

int ntr_live_swap(struct ntr_live *l, struct ntr_head *h, const struct ntr_live_options *o,
        const struct ntr_commit *to, unsigned *ret_killed, struct ntr_err *e)
{
	ntr_auto(ntr_upper_close) struct ntr_upper next = {.fd = -1, .work_fd = -1};
	ntr_auto(ntr_memo_freep) struct ntr_memo *memo = NULL;
	ntr_autoclose int versions = -1;
	int r = prepare_next(l, h, o, to, &next, &memo, &versions, e);

	if (!r)
		r = show_next(l, "swap", versions, &next, &memo, ret_killed, e);
	if (r)
		return r;
	l->background = 0;
	l->dirty = l->written = l->unrecorded = false;
	adopt_upper(l, &next, ntr_steal_ptr(memo));
	return 0;
}

int ntr_live_open(
        struct ntr_live *l, const char *path, int flags, unsigned mode, int *ret_fd, struct ntr_err *e)
{
	return ntr_initlink_do(l->link,
	        json_pack("{s:s,s:o,s:i,s:i}", "op", "open", "path", ntr_json_bytes(path, strlen(path)),
	                "flags", flags, "mode", (int)mode),
	        NULL, 0, NULL, ret_fd, e);
}

int ntr_live_ensure(struct ntr_live *l, const char *path, unsigned mode, int *ret_fd, bool *ret_made)
{
	ntr_autojson json_t *reply = NULL;
	int r = ntr_initlink_do(l->link,
	        json_pack("{s:s,s:o,s:i,s:i,s:b}", "op", "open", "path", ntr_json_bytes(path, strlen(path)),
	                "flags", O_RDWR | O_NOCTTY, "mode", (int)mode, "make", 1),
	        NULL, 0, &reply, ret_fd, NULL);

	*ret_made = !r && ntr_json_bool(reply, "made", false);
	return r;
}

int ntr_live_list(struct ntr_live *l, const char *path, int *ret_fd, struct ntr_err *e)
{
	ntr_autoclose int in = -1, out = -1;
	int p[2], r;

	if (pipe2(p, O_CLOEXEC))
		return ntr_err_set(e, -errno, "make a pipe");
	in = p[0];
	out = p[1];
	r = ntr_initlink_do(l->link,
	        json_pack("{s:s,s:o}", "op", "list", "path", ntr_json_bytes(path, strlen(path))), &out, 1,
	        NULL, NULL, e);
	if (!r)
		*ret_fd = ntr_steal_fd(&in);
	return r;
}
