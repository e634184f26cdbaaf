/* Names of commits: SESSION, SESSION@PREFIX, SESSION~N, and within a session PREFIX, @PREFIX, ~N, HEAD. And
 * the name of the session that a process lives in. */
#include "controller_impl.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

struct rev {
	char session[NTR_NAME_MAX + 1]; /* "" when the text names none */
	const char *prefix;             /* hex digits behind '@', or NULL */
	bool back;
	uint64_t steps;
};

static int parse_steps(const char *p, uint64_t *ret)
{
	char *end;

	if (!*p) {
		*ret = 1; /* "~" alone, as in git */
		return 0;
	}
	errno = 0;
	*ret = strtoull(p, &end, 10);
	return errno || *end || !isdigit((unsigned char)*p) ? -EINVAL : 0;
}

static int parse(const char *text, struct rev *ret)
{
	const char *at = strchr(text, '@'), *tilde = strchr(text, '~');
	size_t n = at ? (size_t)(at - text) : tilde ? (size_t)(tilde - text) : strlen(text);

	*ret = (struct rev){.back = false};
	if (!*text || (at && tilde) || n > NTR_NAME_MAX)
		return -EINVAL;
	memcpy(ret->session, text, n);
	if (at)
		ret->prefix = at + 1;
	if (!tilde)
		return 0;
	ret->back = true;
	return parse_steps(tilde + 1, &ret->steps);
}

static bool is_hex(const char *s)
{
	size_t n = strspn(s, "0123456789abcdef");

	return n >= 4 && n <= NTR_COMMIT_HEX && !s[n];
}

static int unknown(struct ntr_err *e, const char *rev)
{
	ntr_err_set(e, -ENOENT, "find '%s'", rev);
	ntr_err_why(e, "no session and no commit has that name");
	ntr_err_todo(e, "see sessions with `ntr sessions`, commits with `ntr log -s SESSION`");
	return -ENOENT;
}

static int head_commit(
        struct ntr_ctl *c, const char *name, struct ntr_commit *ret, struct ntr_head *h, struct ntr_err *e)
{
	int r = ntr_session_get(c->store, name, h, e);

	return r ? r : ntr_commit_get(c->store, h->commit, ret, e);
}

/* A word without '@' and '~': HEAD, a session, or (in a session) the prefix of a commit. */
static int resolve_word(struct ntr_ctl *c, const char *session, const char *word, struct ntr_commit *ret,
        struct ntr_head *h, struct ntr_err *e)
{
	int r;

	if (session && !strcmp(word, "HEAD"))
		return head_commit(c, session, ret, h, e);
	r = ntr_session_name_check(word, NULL) ? -ENOENT : head_commit(c, word, ret, h, NULL);
	if (r != -ENOENT)
		return r ? ntr_err_default(e, r, "find '%s'", word) : 0;
	if (!is_hex(word))
		return unknown(e, word);
	r = ntr_commit_by_hex(c->store, word, ret, e);
	return r == -ENOENT ? unknown(e, word) : r;
}

static int walk_back(struct ntr_ctl *c, uint64_t steps, struct ntr_commit *at, struct ntr_err *e)
{
	struct ntr_commit from = *at;
	int r;

	if (!steps)
		return 0;
	r = ntr_commit_back(c->store, &from, steps, at, e);
	if (r)
		*at = (struct ntr_commit){0};
	ntr_commit_done(&from);
	return r;
}

int ntr_ctl_resolve(struct ntr_ctl *c, const char *session, const char *text, struct ntr_commit *ret,
        struct ntr_head *ret_head, struct ntr_err *e)
{
	struct ntr_head h = {0};
	struct rev rv;
	const char *name;
	int r;

	*ret = (struct ntr_commit){0};
	if (parse(text, &rv)) {
		ntr_err_set(e, -EINVAL, "read '%s'", text);
		ntr_err_why(e, "not the name of a commit");
		return ntr_err_todo(e, "write SESSION, SESSION@COMMIT or SESSION~N");
	}
	name = *rv.session && strcmp(rv.session, "HEAD") ? rv.session : session;
	if (!rv.prefix && !rv.back) {
		r = resolve_word(c, session, text, ret, &h, e);
	} else if (!name) {
		return unknown(e, text);
	} else {
		r = head_commit(c, name, ret, &h, e);
		if (!r && rv.back)
			r = walk_back(c, rv.steps, ret, e);
		if (!r && rv.prefix) {
			ntr_commit_done(ret);
			*ret = (struct ntr_commit){0};
			r = is_hex(rv.prefix) ? ntr_commit_by_hex(c->store, rv.prefix, ret, e) : -ENOENT;
			if (r == -ENOENT)
				r = unknown(e, text);
		}
	}
	if (r)
		ntr_commit_done(ret);
	else if (ret_head)
		*ret_head = h;
	return r;
}

static uint64_t view_of(struct ntr_sess *s)
{
	uint64_t id;

	pthread_mutex_lock(&s->call_m); /* keeps live */
	id = s->live ? s->live->mntns : 0;
	pthread_mutex_unlock(&s->call_m);
	return id;
}

int ntr_ctl_session_of(struct ntr_ctl *c, pid_t pid, char ret[NTR_NAME_MAX + 1])
{
	ntr_autofree struct ntr_sess **v = NULL;
	uint64_t id = ntr_namespace_of(pid);
	size_t n = id ? ntr_ctl_live_sessions(c, &v) : 0;
	struct ntr_head h;

	for (size_t i = 0; i < n; i++) {
		if (view_of(v[i]) != id || ntr_session_by_id(c->store, v[i]->sid, &h, NULL))
			continue;
		memcpy(ret, h.name, sizeof h.name);
		return 0;
	}
	return -ENOENT;
}
