/* What sticks from call to call: cwd, umask, and what scripts did to their callers' environment. The caller's
 * own environment is never stored: only names that a script set or unset are, so a token in the caller's
 * environment does not reach the history. */
#include "controller_impl.h"

#include <errno.h>
#include <stdio.h>

/* Set by ntr or by bash itself at every start: never part of what sticks. */
static bool is_internal(const char *name, size_t n)
{
	static const char *const names[] = {
	        "_", "PWD", "OLDPWD", "SHLVL", "NTR_SESSION", "NTR_CALL", "NTR_STORE"};

	for (size_t i = 0; i < NTR_COUNT(names); i++)
		if (strlen(names[i]) == n && !memcmp(names[i], name, n))
			return true;
	return n > 255 || (n > 10 && !memcmp(name, "BASH_FUNC_", 10)); /* longer names do not fit a key */
}

static int var_set(struct ntr_state *st, const char *name, size_t nlen, const char *val)
{
	struct ntr_state_var *v;

	HASH_FIND(hh, st->env, name, nlen, v);
	if (!v) {
		v = calloc(1, sizeof *v);
		if (!v || !(v->name = strndup(name, nlen))) {
			free(v);
			return -ENOMEM;
		}
		HASH_ADD_KEYPTR(hh, st->env, v->name, nlen, v);
		if (!ntr_hashed(hh, v)) {
			free(v->name);
			free(v);
			return -ENOMEM;
		}
	}
	free(v->val);
	v->val = val ? strdup(val) : NULL;
	return val && !v->val ? -ENOMEM : 0;
}

static int load_var(void *user, const char *key, const uint8_t *val, size_t len)
{
	const char *name = key + 2; /* "e:" */

	return var_set(user, name, strlen(name), len && val[0] == 'S' ? (const char *)val + 1 : NULL);
}

int ntr_state_load(const struct ntr_snap *snap, const char *wsroot, struct ntr_state **ret)
{
	struct ntr_state *st = calloc(1, sizeof *st);
	ntr_autofree uint8_t *cwd = NULL, *um = NULL;
	size_t n = 0;
	int r;

	if (!st)
		return -ENOMEM;
	st->umask = 022;
	r = ntr_kvitem_get(snap, "s:cwd", &cwd, &n);
	if (!r || r == -ENOENT) {
		st->cwd = strdup(r ? wsroot : (const char *)cwd);
		r = st->cwd ? ntr_kvitem_get(snap, "s:umask", &um, &n) : -ENOMEM;
	}
	if (!r)
		st->umask = (unsigned)strtoul((const char *)um, NULL, 8) & 0777;
	if (r == -ENOENT)
		r = 0;
	if (!r)
		r = ntr_kvitem_each(snap, "e:", load_var, st);
	if (r) {
		ntr_state_free(st);
		return r;
	}
	*ret = st;
	return 0;
}

void ntr_state_free(struct ntr_state *st)
{
	struct ntr_state_var *v, *next;

	if (!st)
		return;
	HASH_ITER (hh, st->env, v, next) {
		HASH_DEL(st->env, v);
		free(v->name);
		free(v->val);
		free(v);
	}
	free(st->cwd);
	free(st);
}

struct strv {
	char **v;
	size_t n, cap;
};

static int strv_add(struct strv *s, char *str)
{
	if (!str)
		return -ENOMEM;
	if (s->n + 2 > s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		char **v = realloc(s->v, cap * sizeof *v);

		if (!v) {
			free(str);
			return -ENOMEM;
		}
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = str;
	s->v[s->n] = NULL;
	return 0;
}

static const char *env_find(char *const *env, const char *name, size_t n)
{
	for (; env && *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

static size_t name_len(const char *var)
{
	return strcspn(var, "=");
}

int ntr_state_env(const struct ntr_state *st, char *const *caller, char *const *set_env, const char *session,
        const char *wsroot, char ***ret)
{
	struct strv out = {0};
	struct ntr_state_var *v, *next;
	int r = 0;

	for (char *const *p = caller; !r && p && *p; p++) {
		size_t n = name_len(*p);

		HASH_FIND(hh, st->env, *p, n, v);
		if (!(*p)[n] || v || env_find(set_env, *p, n) ||
		        (is_internal(*p, n) && strncmp(*p, "NTR_STORE", 9)))
			continue;
		r = strv_add(&out, strdup(*p));
	}
	HASH_ITER (hh, st->env, v, next)
		if (!r && v->val && !env_find(set_env, v->name, strlen(v->name)))
			r = strv_add(&out, ntr_sprintf("%s=%s", v->name, v->val));
	for (char *const *p = set_env; !r && p && *p; p++)
		r = strv_add(&out, strdup(*p));
	if (!r)
		r = strv_add(&out, ntr_sprintf("NTR_SESSION=%s", session));
	if (!r && !env_find(out.v, "PATH", 4))
		r = strv_add(
		        &out, strdup("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
	if (!r && !env_find(out.v, "HOME", 4))
		r = strv_add(&out, ntr_sprintf("HOME=%s", wsroot));
	if (r) {
		ntr_strv_free(out.v);
		return r;
	}
	*ret = out.v;
	return 0;
}

int ntr_state_env_default(char ***env, const char *name, const char *val)
{
	size_t n = 0;
	char **v;

	if (env_find(*env, name, strlen(name)))
		return 0;
	while ((*env)[n])
		n++;
	v = realloc(*env, (n + 2) * sizeof *v);
	if (!v)
		return -ENOMEM;
	*env = v;
	v[n] = ntr_sprintf("%s=%s", name, val);
	v[n + 1] = NULL;
	return v[n] ? 0 : -ENOMEM;
}

int ntr_state_path_first(char **env, const char *dir)
{
	for (; *env; env++)
		if (!strncmp(*env, "PATH=", 5)) {
			char *path = ntr_sprintf("PATH=%s:%s", dir, *env + 5);

			if (!path)
				return -ENOMEM;
			free(*env);
			*env = path;
			return 0;
		}
	return 0;
}

static bool is_own(const char *dir, size_t n, const struct ntr_state_own *own)
{
	size_t below = own->below ? strlen(own->below) : 0;

	if (own->dir && n == strlen(own->dir) && !memcmp(dir, own->dir, n))
		return true;
	return below && n > below && !memcmp(dir, own->below, below) && dir[below] == '/';
}

/* PATH without what was put there for one call. */
static char *without_own(const char *path, const struct ntr_state_own *own)
{
	char *out = calloc(1, strlen(path) + 1), *to = out;
	bool any = false;
	size_t k;

	for (const char *p = path; out; p += k + 1) {
		k = strcspn(p, ":");
		if (!is_own(p, k, own)) {
			if (any)
				*to++ = ':';
			to = mempcpy(to, p, k);
			any = true;
		}
		if (!p[k])
			break;
	}
	return out;
}

static int learn_path(
        struct ntr_state *st, const char *left, const char *was, const struct ntr_state_own *own)
{
	ntr_autofree char *now = without_own(left, own), *old = was ? without_own(was, own) : NULL;

	if (!now || (was && !old))
		return -ENOMEM;
	if (old && !strcmp(now, old))
		return 0;
	st->dirty = true;
	return var_set(st, "PATH", 4, now);
}

/* One variable: MAX_ARG_STRLEN of Linux. All of them: the kernel takes 2 MiB with the usual limit on the
 * stack, arguments included. */
enum { VAR_MAX = 131072, ENV_MAX = 3 << 19, VAR_SMALL = 4096 };

static size_t over_room(char *const *env)
{
	size_t n = 0;

	for (; *env; env++)
		n += strlen(*env) + 1 + sizeof *env;
	return n > ENV_MAX ? n - ENV_MAX : 0;
}

/* *over: by how much all together are too large; large ones have to go. */
static bool fits(const char *var, size_t *over)
{
	size_t n = strlen(var) + 1;

	if (n <= VAR_MAX && (!*over || n < VAR_SMALL))
		return true;
	*over -= NTR_MIN(*over, n);
	return false;
}

static int drop(struct ntr_state *st, const char *var, size_t n, json_t **ret_notes)
{
	ntr_autofree char *text = ntr_sprintf("%.*s is too large (%zu bytes) to be passed on: later calls do "
	                                      "not have it; keep it in a file",
	        (int)NTR_MIN(n, (size_t)200), var, strlen(var));

	if (!*ret_notes)
		*ret_notes = json_array();
	if (!text || json_array_append_new(*ret_notes, ntr_json_text(text, strlen(text))))
		return -ENOMEM;
	st->dirty = true;
	return var_set(st, var, n, NULL);
}

static int learn_env(struct ntr_state *st, char *const *left, char *const *began,
        const struct ntr_state_own *own, json_t **ret_notes)
{
	size_t over = over_room(left);
	int r = 0;

	for (char *const *p = left; !r && *p; p++) {
		size_t n = name_len(*p);
		const char *was = env_find(began, *p, n);

		if (!(*p)[n] || is_internal(*p, n) || (was && !strcmp(was, *p + n + 1)))
			continue;
		if (!fits(*p, &over)) {
			r = drop(st, *p, n, ret_notes);
			continue;
		}
		if (n == 4 && !memcmp(*p, "PATH", 4)) {
			r = learn_path(st, *p + n + 1, was, own);
			continue;
		}
		r = var_set(st, *p, n, *p + n + 1);
		st->dirty = true;
	}
	for (char *const *p = began; !r && *p; p++) {
		size_t n = name_len(*p);

		if (!(*p)[n] || is_internal(*p, n) || env_find(left, *p, n))
			continue;
		r = var_set(st, *p, n, NULL);
		st->dirty = true;
	}
	return r;
}

int ntr_state_learn(struct ntr_state *st, const json_t *left, char *const *began,
        const struct ntr_state_own *own, json_t **ret_notes)
{
	ntr_autofree char *cwd = NULL;
	unsigned mask = (unsigned)ntr_json_int(left, "umask", (int64_t)st->umask) & 0777;
	char **env = NULL;
	int r;

	if (!json_is_object(left))
		return 0;
	r = ntr_json_get_bytes(json_object_get(left, "cwd"), &cwd, NULL);
	if (!r && cwd[0] == '/' && strcmp(cwd, st->cwd)) {
		free(st->cwd);
		st->cwd = ntr_steal_ptr(cwd);
		st->dirty = true;
	}
	if (mask != st->umask)
		st->dirty = true;
	st->umask = mask;
	r = ntr_json_get_strv(json_object_get(left, "env"), &env);
	if (!r)
		r = learn_env(st, env, began, own, ret_notes);
	ntr_strv_free(env);
	return r;
}

static int put_if_new(struct ntr_txn *txn, const char *key, const void *val, size_t len)
{
	ntr_autofree uint8_t *old = NULL;
	size_t n = 0;
	int r = ntr_kvitem_get(ntr_txn_snap(txn), key, &old, &n);

	if (r && r != -ENOENT)
		return r;
	if (!r && n == len && !memcmp(old, val, len))
		return 0;
	return ntr_kvitem_set(txn, key, val, len);
}

int ntr_state_store(const struct ntr_state *st, struct ntr_txn *txn)
{
	struct ntr_state_var *v, *next;
	char mask[8];
	int r;

	if (!st->dirty)
		return 0;
	r = put_if_new(txn, "s:cwd", st->cwd, strlen(st->cwd));

	snprintf(mask, sizeof mask, "%03o", st->umask);
	if (!r)
		r = put_if_new(txn, "s:umask", mask, strlen(mask));
	HASH_ITER (hh, st->env, v, next) {
		ntr_autofree char *key = ntr_sprintf("e:%s", v->name);
		ntr_autofree char *val = ntr_sprintf("%c%s", v->val ? 'S' : 'U', v->val ? v->val : "");

		if (!r && (!key || !val))
			r = -ENOMEM;
		if (!r)
			r = put_if_new(txn, key, val, strlen(val));
	}
	return r;
}
