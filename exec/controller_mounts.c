/* The host directories of a session: `--mount`. They are the session's, not a commit's. */
#include "controller_impl.h"
#include "controller_tree.h"
#include "live_mounts.h"

#include "../fs/names.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

json_t *ntr_ctl_mounts(struct ntr_ctl *c, const struct ntr_head *h)
{
	json_t *mounts = NULL;

	return ntr_mounts_load(c->store, h->sid, &mounts, NULL) ? json_array() : mounts;
}

bool ntr_mounts_hold(struct ntr_ctl *c, const struct ntr_head *h, const char *inner)
{
	ntr_autojson json_t *mounts = ntr_ctl_mounts(c, h);
	const json_t *m;
	bool hit = false;
	size_t i;

	json_array_foreach (mounts, i, m) {
		ntr_autofree char *point = NULL;
		const char *at;

		if (ntr_json_get_bytes(json_object_get(m, "point"), &point, NULL))
			continue;
		at = ntr_mounts_inner(point, h->wsroot);
		hit |= at && !strncmp(inner, at, strlen(at)) &&
		       (!inner[strlen(at)] || inner[strlen(at)] == '/');
	}
	return hit;
}

/* ---- the points in the tree ---- */

static int no_directory(struct ntr_err *e, const char *path)
{
	ntr_err_set(e, -ENOTDIR, "mount a host directory at '%.200s' in the workspace", path);
	ntr_err_why(e, "there is a file or symlink on the way");
	return ntr_err_todo(e, "remove that, or choose another point"), -ENOTDIR;
}

/* One component: finds it, or makes the directory. */
static int step(struct ntr_txn *t, uint64_t dir, const char *name, size_t n, const struct timespec *now,
        uint64_t *ret, unsigned *made)
{
	struct ntr_inode in = {.nlink = 0};
	char copy[256];
	uint8_t type = DT_DIR;
	int r = n > 255 ? -ENAMETOOLONG : ntr_dirent_get(ntr_txn_snap(t), dir, name, n, ret, &type);

	if (r != -ENOENT)
		return r ? r : type == DT_DIR ? 0 : -ENOTDIR;
	memcpy(copy, name, n);
	copy[n] = '\0';
	r = ntr_inode_new(t, S_IFDIR | 0755, &in);
	if (!r)
		r = ntr_tree_create(t, dir, copy, &in, now);
	*ret = in.ino;
	++*made;
	return r;
}

static int make_dirs(struct ntr_txn *t, const char *path, unsigned *made)
{
	uint64_t dir = NTR_INO_ROOT, next = 0;
	struct timespec now;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	for (const char *p = path; !r && *p; p += *p == '/') {
		size_t n = strcspn(p, "/");

		r = step(t, dir, p, n, &now, &next, made);
		dir = next;
		p += n;
	}
	return r;
}

/* A point in another host directory is that directory's business. */
static bool is_nested(const json_t *mounts, size_t at, const char *point)
{
	for (size_t i = 0; i < at; i++) {
		ntr_autofree char *other = NULL;

		if (!ntr_json_get_bytes(json_object_get(json_array_get(mounts, i), "point"), &other, NULL) &&
		        ntr_mounts_inner(point, other))
			return true;
	}
	return false;
}

int ntr_mounts_make_points(
        struct ntr_txn *t, const json_t *mounts, const char *wsroot, unsigned *made, struct ntr_err *e)
{
	const json_t *m;
	size_t i;

	json_array_foreach (mounts, i, m) {
		ntr_autofree char *point = NULL;
		const char *inner;
		int r = ntr_json_get_bytes(json_object_get(m, "point"), &point, NULL);

		if (r)
			return r;
		inner = ntr_mounts_inner(point, wsroot);
		if (!inner || is_nested(mounts, i, point))
			continue;
		r = make_dirs(t, inner, made);
		if (r)
			return r == -ENOTDIR ? no_directory(e, inner)
			                     : ntr_err_default(e, r, "make the mount point %s", point);
	}
	return 0;
}

/* ---- changing them ---- */

static int commit_points(struct ntr_sess *s, struct ntr_head *h, const json_t *mounts, struct ntr_err *e)
{
	static const char desc[] = "{\"tool\":\"mount\"}";
	ntr_auto(ntr_commit_done) struct ntr_commit done = {0};
	struct ntr_stats st = {0};
	struct ntr_txn *t;
	unsigned made = 0;
	int r = ntr_txn_begin(s->ctl->store, h->root, &t);

	if (r)
		return ntr_err_set(e, r, "make mount points");
	r = ntr_mounts_make_points(t, mounts, h->wsroot, &made, e);
	st.created = made;
	if (!r && made)
		return ntr_store_commit(s->ctl->store, h, t, desc, &st, &done, e);
	ntr_txn_abort(t);
	return r;
}

/* What is live shows the old ones: it is ended, and the next call makes it live anew. */
static int close_view(struct ntr_sess *s, struct ntr_head *h, struct ntr_err *e)
{
	ntr_auto(ntr_commit_done) struct ntr_commit staged = {0};
	bool dead = s->live && ntr_initlink_dead(s->live->link, true);

	if (s->live && !dead && ntr_sess_in_use(s)) {
		ntr_err_set(e, -EBUSY, "change the host directories of session %s", h->name);
		ntr_err_why(e, "its background processes, or a mount of it, use the present ones");
		ntr_err_todo(e, "end them: ntr stop -s %s", h->name);
		return -EBUSY;
	}
	if (!s->live)
		return h->upper ? ntr_sess_recover(s, h, e) : 0;
	return ntr_sess_close(s, h, false, NULL, &staged, e);
}

/* Only a view shows whether they can be had; those that cannot would be in the way of every later call. */
static int try_view(struct ntr_sess *s, struct ntr_head *h, const json_t *present, struct ntr_err *e)
{
	int r = ntr_sess_live(s, h, e), back;

	if (!r)
		return 0;
	back = ntr_mounts_save(s->ctl->store, h->sid, present, NULL);
	return back ? back : r;
}

static int change(struct ntr_sess *s, struct ntr_head *h, const json_t *asked, struct ntr_err *e)
{
	ntr_autojson json_t *present = NULL, *next = NULL;
	bool changed = false;
	int r = ntr_mounts_load(s->ctl->store, h->sid, &present, e);

	if (!r)
		r = ntr_mounts_merge(present, asked, &next, &changed);
	if (r)
		return ntr_err_default(e, r, "change the host directories of session %s", h->name);
	if (!changed)
		return 0;
	r = close_view(s, h, e);
	if (!r)
		r = commit_points(s, h, next, e);
	if (!r)
		r = ntr_mounts_save(s->ctl->store, h->sid, next, e);
	return r ? r : try_view(s, h, present, e);
}

/* Whether asked is what the session has already: then nobody has to wait for the session. */
static int differs(
        struct ntr_ctl *c, const struct ntr_head *h, const json_t *asked, bool *ret, struct ntr_err *e)
{
	ntr_autojson json_t *present = NULL, *next = NULL;
	int r = ntr_mounts_load(c->store, h->sid, &present, e);

	if (!r)
		r = ntr_mounts_merge(present, asked, &next, ret);
	return r ? ntr_err_default(e, r, "look at the host directories of session %s", h->name) : 0;
}

int ntr_ctl_set_mounts(struct ntr_ctl *c, const char *session, const json_t *asked, struct ntr_err *e)
{
	ntr_autojson json_t *mounts = NULL;
	struct ntr_sess *s;
	struct ntr_head h;
	bool changed = false;
	int r = ntr_ctl_find_or_make(c, session, e);

	if (!r)
		r = ntr_session_get(c->store, session, &h, e);
	if (!r)
		r = ntr_mounts_check(asked, h.wsroot, &mounts, e);
	if (!r)
		r = differs(c, &h, mounts, &changed, e);
	if (r || !changed)
		return r;
	r = ntr_ctl_hold(c, session, NULL, &s, &h, e);
	if (r)
		return r;
	r = change(s, &h, mounts, e);
	ntr_sess_release(s);
	return r;
}
