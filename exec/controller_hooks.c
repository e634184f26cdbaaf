/* When hooks are asked, and what they are told. They run while the session is held, so that nothing happens
 * in between and their order is the history's; what they ask of that very session through ntr is refused
 * instead of waited for: the request says that it comes from inside (docs/protocol.md), and the thread that
 * serves it notes that here. */
#include "controller_impl.h"
#include "hooks.h"

#include <errno.h>
#include <stdio.h>

enum { ENTRIES_MAX = 10000 };

static __thread const char *from_inside; /* the session that this thread's request comes from */
static __thread json_t *warnings;        /* of hooks that could not stop anything any more */

void ntr_ctl_inside(const char *session)
{
	from_inside = session;
}

json_t *ntr_ctl_warnings(void)
{
	return ntr_steal_ptr(warnings);
}

bool ntr_sess_in_hook(struct ntr_sess *s)
{
	bool in;

	if (!from_inside)
		return false;
	pthread_mutex_lock(&s->m);
	in = s->hook && !strcmp(s->hook, from_inside);
	pthread_mutex_unlock(&s->m);
	return in;
}

static void set_hook(struct ntr_sess *s, const char *name)
{
	pthread_mutex_lock(&s->m);
	s->hook = name;
	pthread_mutex_unlock(&s->m);
}

/* ---- what they are told ---- */

static json_t *begin(struct ntr_ctl *c, enum ntr_hook event, const char *session, json_t *msg)
{
	ntr_autojson json_t *o = json_pack("{s:s,s:s,s:s}", "event", ntr_hook_word(event), "store",
	        ntr_store_path(c->store), "session", session);

	if (o && msg)
		json_object_update_missing(o, msg);
	json_decref(msg);
	return ntr_steal_ptr(o);
}

static json_t *hex_of(struct ntr_ctl *c, uint64_t id)
{
	ntr_auto(ntr_commit_done) struct ntr_commit at = {0};

	return id && !ntr_commit_get(c->store, id, &at, NULL) ? json_string(at.hex) : json_null();
}

/* What changes from root a to root b, and where b's files can be read. */
static void add_entries(struct ntr_ctl *c, json_t *msg, uint64_t a, uint64_t b)
{
	ntr_autofree char *tree =
	        c->mounts[NTR_VMOUNT_FULL].v
	                ? ntr_sprintf("%s/%016llx", c->mounts[NTR_VMOUNT_FULL].path, (unsigned long long)b)
	                : NULL;
	struct ntr_diff d = {0};
	json_t *list = json_array();

	if (a != b && ntr_diff_compute(c->store, a, b, NULL, &d))
		d.n = 0;
	for (size_t i = 0; i < NTR_MIN(d.n, (size_t)ENTRIES_MAX); i++)
		json_array_append_new(
		        list, json_pack("{s:o,s:s}", "path", ntr_json_bytes(d.v[i].path, strlen(d.v[i].path)),
		                      "kind", ntr_diff_kind_word(d.v[i].kind)));
	json_object_set_new(msg, "entries", list);
	json_object_set_new(msg, "entries_total", json_integer((json_int_t)d.n));
	json_object_set_new(msg, "state_changed", json_boolean(d.state_changed));
	json_object_set_new(msg, "tree", tree ? ntr_json_bytes(tree, strlen(tree)) : json_null());
	ntr_diff_done(&d);
}

/* ---- asking ---- */

static int run(struct ntr_ctl *c, struct ntr_sess *s, const char *session, enum ntr_hook event, json_t *msg,
        struct ntr_err *e)
{
	struct ntr_err own = {0};
	int r = msg ? 0 : -ENOMEM;

	if (s)
		set_hook(s, session);
	if (!r)
		r = ntr_hook_run(c->store, session, event, msg, s != NULL, &own);
	if (s)
		set_hook(s, NULL);
	json_decref(msg);
	if (!r)
		return 0;
	ntr_err_set(e, r, "%s", "");
	if (e)
		memcpy(e->why, own.why, sizeof e->why), memcpy(e->todo, own.todo, sizeof e->todo);
	return r;
}

static int refused(struct ntr_err *e, int r, const char *what, const char *session)
{
	if (r && e)
		snprintf(e->what, sizeof e->what, "%s in session %s", what, session);
	return r;
}

/* It has happened: all that can be done is to tell. */
static void tell(struct ntr_ctl *c, struct ntr_sess *s, const char *session, enum ntr_hook event, json_t *msg)
{
	struct ntr_err e = {0};
	char line[2048];
	json_t *w;

	if (!run(c, s, session, event, msg, &e))
		return;
	snprintf(e.what, sizeof e.what, "%s hook of session %s", ntr_hook_word(event), session);
	ntr_err_format(&e, line, sizeof line);
	fprintf(stderr, "ntrd: %s\n", line);
	w = ntr_json_text(line, strlen(line));
	if (!warnings)
		warnings = json_array();
	if (!warnings || json_array_append_new(warnings, w))
		fprintf(stderr, "ntrd: out of memory for a warning\n");
}

/* Hooks of a throw-away fork are those of the session it was made for. */
static const char *name_of(const struct ntr_head *h, const struct ntr_call_spec *spec)
{
	return spec->hooks_of ? spec->hooks_of : h->name;
}

int ntr_hooks_pre_run(struct ntr_sess *s, const struct ntr_head *h, const struct ntr_call_spec *spec,
        ntr_describe_fn *describe, struct ntr_err *e)
{
	static const struct ntr_call_result none;
	const char *name = name_of(h, spec);
	json_t *msg;

	if (!ntr_hook_there(s->ctl->store, name, NTR_HOOK_PRE_RUN))
		return 0;
	msg = begin(s->ctl, NTR_HOOK_PRE_RUN, name, describe(spec, &none));
	json_object_del(msg, "exit_code");
	json_object_del(msg, "duration");
	json_object_del(msg, "bytes_out");
	json_object_set_new(msg, "head", hex_of(s->ctl, h->commit));
	json_object_set_new(msg, "throwaway", json_boolean(spec->hooks_of != NULL));
	if (spec->cwd)
		json_object_set_new(msg, "cwd", ntr_json_bytes(spec->cwd, strlen(spec->cwd)));
	return refused(e, run(s->ctl, s, name, NTR_HOOK_PRE_RUN, msg, e), "run the command", name);
}

void ntr_hooks_post_run(struct ntr_sess *s, const struct ntr_head *h, const struct ntr_call_spec *spec,
        ntr_describe_fn *describe, const struct ntr_call_result *res, const struct ntr_err *failed)
{
	const char *name = name_of(h, spec);
	json_t *msg;

	if (!res->started || !ntr_hook_there(s->ctl->store, name, NTR_HOOK_POST_RUN))
		return;
	msg = begin(s->ctl, NTR_HOOK_POST_RUN, name, describe(spec, res));
	json_object_set_new(msg, "timed_out", json_boolean(res->timed_out));
	json_object_set_new(msg, "commit", res->commit[0] ? json_string(res->commit) : json_null());
	json_object_set_new(msg, "changes", ntr_stats_json(&res->changes));
	json_object_set_new(msg, "background", json_integer(res->background));
	json_object_set_new(msg, "throwaway", json_boolean(spec->hooks_of != NULL));
	if (failed && failed->code) {
		char line[2048];

		ntr_err_format(failed, line, sizeof line);
		json_object_set_new(msg, "error", ntr_json_text(line, strlen(line)));
	}
	tell(s->ctl, s, name, NTR_HOOK_POST_RUN, msg);
}

bool ntr_hooks_of_commit(struct ntr_ctl *c, const char *session)
{
	return ntr_hook_there(c->store, session, NTR_HOOK_PRE_COMMIT) ||
	       ntr_hook_there(c->store, session, NTR_HOOK_POST_COMMIT);
}

int ntr_hooks_pre_commit(struct ntr_sess *s, const struct ntr_head *h, const json_t *desc, struct ntr_err *e)
{
	uint64_t work = h->root;
	json_t *msg;
	int r = 0;

	if (!ntr_hook_there(s->ctl->store, h->name, NTR_HOOK_PRE_COMMIT))
		return 0;
	if (s->live)
		r = ntr_sess_work_root(s, h, &work, e);
	if (r || (s->live && work == h->root)) /* nothing that would be a commit */
		return r;
	msg = begin(s->ctl, NTR_HOOK_PRE_COMMIT, h->name, json_deep_copy(desc));
	json_object_set_new(msg, "head", hex_of(s->ctl, h->commit));
	if (msg)
		add_entries(s->ctl, msg, h->root, work);
	r = refused(e, run(s->ctl, s, h->name, NTR_HOOK_PRE_COMMIT, msg, e), "commit the changes", h->name);
	if (r && e && !e->todo[0])
		snprintf(e->todo, sizeof e->todo,
		        "the changes stay uncommitted: put right what the hook does not like, or drop them: "
		        "ntr "
		        "discard -s %s",
		        h->name);
	return r;
}

void ntr_hooks_post_commit(struct ntr_sess *s, const struct ntr_head *h, const json_t *desc, uint64_t before,
        const struct ntr_commit *done)
{
	json_t *msg;

	if (!ntr_hook_there(s->ctl->store, h->name, NTR_HOOK_POST_COMMIT))
		return;
	msg = begin(s->ctl, NTR_HOOK_POST_COMMIT, h->name, json_deep_copy(desc));
	json_object_set_new(msg, "commit", json_string(done->hex));
	json_object_set_new(msg, "parent", done->nparents ? hex_of(s->ctl, done->parent[0]) : json_null());
	json_object_set_new(msg, "changes", ntr_stats_json(&done->stats));
	if (msg)
		add_entries(s->ctl, msg, before, done->root);
	tell(s->ctl, s, h->name, NTR_HOOK_POST_COMMIT, msg);
}

void ntr_hooks_post_fork(struct ntr_ctl *c, const struct ntr_head *src, const struct ntr_head *h)
{
	json_t *msg;

	if (!ntr_hook_there(c->store, src->name, NTR_HOOK_POST_FORK))
		return;
	msg = begin(c, NTR_HOOK_POST_FORK, src->name, NULL);
	json_object_set_new(msg, "fork", json_string(h->name));
	json_object_set_new(msg, "commit", hex_of(c, h->commit));
	tell(c, NULL, src->name, NTR_HOOK_POST_FORK, msg);
}

void ntr_hooks_post_rollback(
        struct ntr_sess *s, const struct ntr_head *h, uint64_t from, const struct ntr_rollback_result *res)
{
	json_t *msg;

	if (!ntr_hook_there(s->ctl->store, h->name, NTR_HOOK_POST_ROLLBACK))
		return;
	msg = begin(s->ctl, NTR_HOOK_POST_ROLLBACK, h->name, NULL);
	json_object_set_new(msg, "from", hex_of(s->ctl, from));
	json_object_set_new(msg, "to", json_string(res->to.hex));
	json_object_set_new(msg, "staged", res->staged[0] ? json_string(res->staged) : json_null());
	json_object_set_new(msg, "killed", json_integer(res->killed));
	tell(s->ctl, s, h->name, NTR_HOOK_POST_ROLLBACK, msg);
}
