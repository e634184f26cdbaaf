/* Sessions and their processes: new, fork, sessions, rm, rename, ps, stop. */
#include "ntrd.h"
#include "ntrd_mounts.h"

#include "../base/util.h"
#include "../exec/controller.h"
#include "../fs/port.h"

#include <errno.h>
#include <sys/stat.h>

static const char *const durabilities[] = {"fsync", "relaxed", NULL};

/* Where a new session's files come from; all NULL: nowhere. */
struct origin {
	const char *rev, *dir, *tar;
};

static void bad_root(struct ntrd_req *rq, const char *root)
{
	ntrd_arg_bad(rq, "'%.200s' cannot be the workspace's root", root);
	ntr_err_todo(rq->e, "give an absolute path other than /, without '.' and '..'");
}

/* Where nothing would run any more. */
static void check_hidden(struct ntrd_req *rq, const char *root)
{
	static const char *const needed[] = {"/bin/bash", "/proc", "/dev", "/sys"};
	size_t n = strlen(root);

	for (size_t i = 0; !rq->bad && i < NTR_COUNT(needed); i++) {
		ntr_autofree char *real = realpath(needed[i], NULL);

		if (!real || strncmp(real, root, n) || (real[n] && real[n] != '/'))
			continue;
		ntrd_arg_bad(rq, "the workspace's root %.200s would hide %s, which calls need", root, real);
		ntr_err_todo(rq->e, "give a path of its own, as /workspace or /srv/project");
	}
}

/* Without doubled and trailing slashes, so that it compares as text. */
static const char *arg_wsroot(struct ntrd_req *rq)
{
	const char *root = ntrd_arg_bytes(rq, "wsroot", NTRD_OPTIONAL), *p = root;
	char *clean, *to;

	if (!root)
		return NULL;
	clean = to = calloc(1, strlen(root) + 2);
	if (!clean || ntrd_own(rq, clean, free)) {
		rq->bad = -ENOMEM;
		return NULL;
	}
	while (root[0] == '/' && *(p += strspn(p, "/"))) {
		size_t n = strcspn(p, "/");

		if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.') || n > 255)
			break;
		*to++ = '/';
		to = mempcpy(to, p, n);
		p += n;
	}
	if (root[0] != '/' || *p || to == clean || strlen(clean) >= sizeof((struct ntr_head *)0)->wsroot)
		bad_root(rq, root);
	else
		check_hidden(rq, clean);
	return clean;
}

static int read_origin(struct ntrd_req *rq, struct origin *o)
{
	struct stat st;

	o->rev = ntrd_arg_bytes(rq, "from_rev", NTRD_OPTIONAL);
	o->dir = ntrd_arg_bytes(rq, "from_dir", NTRD_OPTIONAL);
	o->tar = ntrd_arg_bytes(rq, "from_tar", NTRD_OPTIONAL);
	if (rq->bad)
		return rq->bad;
	if (!!o->rev + !!o->dir + !!o->tar > 1)
		return ntrd_arg_bad(rq, "'from_rev', 'from_dir' and 'from_tar' exclude each other");
	if (rq->nfds != (o->dir || o->tar))
		return ntrd_arg_bad(
		        rq, "a descriptor must come with 'from_dir' and 'from_tar', and only with them");
	if (o->dir && (fstat(rq->fds[0], &st) || !S_ISDIR(st.st_mode)))
		return ntrd_arg_bad(rq, "the descriptor for 'from_dir' is no directory");
	return 0;
}

static int import(struct ntrd_req *rq, const struct origin *o, struct ntr_txn *txn)
{
	const struct ntr_progress p = {.fn = ntrd_progress, .user = rq};

	return o->dir ? ntr_import_dir(txn, rq->fds[0], o->dir, &p, rq->e)
	              : ntr_import_tar(txn, rq->fds[0], o->tar, &p, rq->e);
}

static char *import_desc(const struct origin *o)
{
	const char *label = o->dir ? o->dir : o->tar;
	ntr_autojson json_t *d = json_pack("{s:s,s:o}", "tool", "init", o->dir ? "from_dir" : "from_tar",
	        ntr_json_bytes(label, strlen(label)));

	return d ? json_dumps(d, JSON_COMPACT) : NULL;
}

/* A session whose first commit holds something: imported files, mount points. */
static int new_filled(struct ntrd_req *rq, const char *name, struct ntr_session_options *so,
        const struct origin *o, const json_t *mounts, struct ntr_head *ret)
{
	struct ntr_store *st = ntr_ctl_store(rq->ctl);
	bool imported = o->dir || o->tar;
	ntr_autofree char *desc = imported ? import_desc(o) : NULL;
	struct ntr_txn *txn = NULL;
	unsigned made = 0;
	int r;

	if (imported && !desc)
		return -ENOMEM;
	so->desc = desc;
	/* A taken name shows before a long import, not after it. */
	if (!ntr_session_get(st, name, ret, NULL)) {
		ntr_err_set(rq->e, -EEXIST, "make session '%s'", name);
		ntr_err_why(rq->e, "there is a session of that name");
		return ntr_err_todo(
		        rq->e, "choose another name, or remove that session first (`ntr rm %s`)", name);
	}
	r = ntr_session_blank(st, &txn, rq->e);
	if (!r && imported)
		r = import(rq, o, txn);
	if (!r)
		r = ntr_mounts_make_points(txn, mounts, so->wsroot ? so->wsroot : "/workspace", &made, rq->e);
	if (r) {
		ntr_txn_abort(txn);
		return r;
	}
	return ntr_session_new(st, name, so, txn, ret, rq->e);
}

/* Only what has them is the session that was asked for. */
static int show_mounts(struct ntrd_req *rq, const char *name, struct ntr_head *h)
{
	int r = ntrd_mounts_set(rq, name);

	if (!r)
		return ntr_session_by_id(ntr_ctl_store(rq->ctl), h->sid, h, rq->e);
	ntr_ctl_remove(rq->ctl, name, true, NULL, NULL);
	return r;
}

static void json_decref_void(void *j)
{
	json_decref(j);
}

/* A boundary that this version cannot give is never ignored. */
static void read_rung(struct ntrd_req *rq)
{
	const char *rung = ntrd_arg_str(rq, "rung", NTRD_OPTIONAL);
	char what[80];

	if (!rung || !strcmp(rung, "none") || rq->bad)
		return;
	snprintf(what, sizeof what, "make a session on the rung '%.32s'", rung);
	rq->bad = ntr_err_full(rq->e, -ENOSYS, what,
	        "this version has the rung none only, which is no boundary",
	        "leave --rung out, or run ntr itself inside a container or VM");
	rq->kind = "isolation";
}

int ntrd_op_new(struct ntrd_req *rq)
{
	const char *name = ntrd_arg_new_session(rq, "name");
	int durability = ntrd_arg_word(rq, "durability", durabilities);
	struct ntr_session_options so = {.wsroot = arg_wsroot(rq)};
	json_t *mounts = NULL;
	struct ntr_head h;
	struct origin o;
	int r = read_origin(rq, &o);

	read_rung(rq);
	if (r || (r = rq->bad))
		return r;
	r = ntrd_mounts_check(rq, so.wsroot, &mounts);
	if (!r && mounts)
		r = ntrd_own(rq, mounts, json_decref_void);
	if (r)
		return r;
	if (o.rev && (so.wsroot || durability >= 0))
		return ntrd_arg_bad(rq, "a fork has its source's 'wsroot' and 'durability'");
	so.durability = durability == 1 ? NTR_RELAXED_DURABILITY : NTR_FSYNC;
	if (o.rev)
		r = ntr_ctl_fork(rq->ctl, o.rev, name, &h, rq->e);
	else if (o.dir || o.tar || mounts)
		r = new_filled(rq, name, &so, &o, mounts, &h);
	else
		r = ntr_ctl_new(rq->ctl, name, &so, &h, rq->e);
	if (!r && mounts)
		r = show_mounts(rq, name, &h);
	return r ? r : ntrd_reply_row(rq, ntrd_row_session(rq->ctl, &h));
}

int ntrd_op_fork(struct ntrd_req *rq)
{
	const char *source = ntrd_arg_bytes(rq, "source", NTRD_REQUIRED);
	const char *name = ntrd_arg_new_session(rq, "name");
	struct ntr_head h;
	int r = rq->bad;

	if (!r)
		r = ntr_ctl_fork(rq->ctl, source, name, &h, rq->e);
	if (!r && ntrd_arg_has(rq, "mounts"))
		r = show_mounts(rq, name, &h);
	return r ? r : ntrd_reply_row(rq, ntrd_row_session(rq->ctl, &h));
}

/* ---- listing: the ids first, so that no reader of the store waits for a slow client */

struct ids {
	uint64_t *v;
	size_t n, cap;
};

static void ids_done(struct ids *l)
{
	free(l->v);
}

static int ids_add(void *user, const struct ntr_head *h)
{
	struct ids *l = user;

	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		uint64_t *v = reallocarray(l->v, cap, sizeof *v);

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = h->sid;
	return 0;
}

int ntrd_op_sessions(struct ntrd_req *rq)
{
	struct ntr_store *st = ntr_ctl_store(rq->ctl);
	ntr_auto(ids_done) struct ids l = {0};
	struct ntr_head h;
	int r = ntr_session_each(st, ids_add, &l);

	for (size_t i = 0; !r && i < l.n; i++) {
		r = ntr_session_by_id(st, l.v[i], &h, rq->e);
		if (r == -ENOENT) { /* removed meanwhile */
			rq->e->code = r = 0;
			continue;
		}
		if (!r)
			r = ntrd_event(rq, "row", ntrd_row_session(rq->ctl, &h));
	}
	return r ? ntr_err_default(rq->e, r, "list the sessions") : 0;
}

/* ---- the rest */

/* What is not committed is committed first, and its name told: a removed session's commits can still be found
 * by it. */
static int stage(struct ntrd_req *rq, const char *name)
{
	ntr_auto(ntr_commit_done) struct ntr_commit c = {0};
	int r = ntr_ctl_commit(rq->ctl, name, "staged", NULL, &c, rq->e);

	return r ? r : ntrd_reply_set(rq, "staged", ntrd_json_hex(c.id ? c.hex : ""));
}

int ntrd_op_rm(struct ntrd_req *rq)
{
	const char *name = ntrd_arg_session(rq, "name", NTRD_REQUIRED);
	bool discard = ntrd_arg_bool(rq, "discard");
	unsigned killed = 0;
	int r = rq->bad;

	if (!r)
		r = ntrd_check_inside(rq, name);
	if (!r)
		r = discard ? ntrd_reply_set(rq, "staged", json_null()) : stage(rq, name);
	if (!r)
		r = ntr_ctl_remove(rq->ctl, name, discard, &killed, rq->e);
	return r ? r : ntrd_reply_set(rq, "killed", json_integer(killed));
}

int ntrd_op_rename(struct ntrd_req *rq)
{
	const char *old = ntrd_arg_session(rq, "old", NTRD_REQUIRED);
	const char *new = ntrd_arg_new_session(rq, "new");

	return rq->bad ? rq->bad : ntr_ctl_rename(rq->ctl, old, new, rq->e);
}

int ntrd_op_ps(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	json_t *procs = NULL;
	int r = rq->bad;

	if (!r)
		r = ntr_ctl_ps(rq->ctl, session, &procs, rq->e);
	return r ? r : ntrd_reply_set(rq, "procs", procs);
}

int ntrd_op_stop(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_OPTIONAL);
	unsigned killed = 0;
	int r = rq->bad;

	if (!r)
		r = ntr_ctl_stop(rq->ctl, session, &killed, rq->e);
	return r ? r : ntrd_reply_set(rq, "killed", json_integer(killed));
}
