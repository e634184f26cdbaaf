/* controller_py_result: from what the interpreter said, and how its process ended, to the result of the call.
 */
#include "controller_py.h"
#include "../base/value.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#define TRUNCATED "[output truncated]"

/* ---- what may be in a result */

static json_t *text_or_null(const json_t *said, const char *key)
{
	json_t *v = json_object_get(said, key);

	return json_is_string(v) ? json_incref(v) : json_null();
}

static json_t *texts(const json_t *said, const char *key)
{
	const json_t *a = json_object_get(said, key);
	json_t *made = json_array(), *x;
	size_t i;

	json_array_foreach (a, i, x)
		if (json_is_string(x))
			json_array_append(made, x);
	return made;
}

static json_t *values(const json_t *said, const char *key)
{
	json_t *o = json_object_get(said, key), *made = json_object(), *x;
	char why[NTR_VALUE_WHY];
	const char *name;

	if (json_is_object(o))
		json_object_foreach (o, name, x)
			if (!ntr_value_check(x, why))
				json_object_set(made, name, x);
	return made;
}

static json_t *artifacts(const json_t *said)
{
	const json_t *a = json_object_get(said, "ui");
	json_t *made = json_array(), *x;
	size_t i;

	json_array_foreach (a, i, x) {
		json_t *name = json_object_get(x, "name"), *path = json_object_get(x, "path");

		if (json_is_string(name) && json_is_string(path))
			json_array_append_new(made, json_pack("{s:O,s:O}", "name", name, "path", path));
	}
	return made;
}

/* A path that can be a working directory. */
static json_t *directory(const json_t *said)
{
	ntr_autofree char *path = NULL;
	size_t n = 0;

	if (ntr_json_get_bytes(json_object_get(said, "cwd"), &path, &n) || path[0] != '/' ||
	        strlen(path) != n || n > 4095)
		return NULL;
	return ntr_json_bytes(path, n);
}

json_t *ntr_pyresult_check(const json_t *said)
{
	const json_t *cut = json_object_get(said, "truncated");
	json_t *made = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b,s:b}", "error",
	        text_or_null(said, "error"), "echo", text_or_null(said, "echo"), "namespace",
	        values(said, "namespace"), "ui", artifacts(said), "notes", texts(said, "notes"), "hints",
	        texts(said, "hints"), "mechanisms", texts(said, "mechanisms"), "cut_out",
	        ntr_json_bool(cut, "stdout", false), "cut_err", ntr_json_bool(cut, "stderr", false),
	        "cwd_gone", ntr_json_bool(said, "cwd_gone", false));
	json_t *cwd = directory(said);

	if (made && cwd)
		json_object_set(made, "cwd", cwd);
	json_decref(cwd);
	if (made)
		json_object_set_new(made, "umask", json_integer(ntr_json_int(said, "umask", -1)));
	return made;
}

json_t *ntr_pyresult_state(const json_t *said, char *const *began)
{
	json_t *cwd = json_object_get(said, "cwd");
	int64_t mask = ntr_json_int(said, "umask", -1);
	json_t *st;

	if (!cwd || mask < 0)
		return NULL;
	st = json_pack("{s:O,s:I,s:o}", "cwd", cwd, "umask", (json_int_t)mask, "env", ntr_json_strv(began));
	return st;
}

/* ---- how it ended, in words */

static json_t *ended_text(const struct ntr_call_spec *spec, const struct ntr_call_result *res)
{
	const char *name = res->signal ? sigabbrev_np(res->signal) : NULL;

	if (res->timed_out)
		return json_sprintf(
		        "TimeoutError: the call ran longer than its limit of %g s and was ended, with all it "
		        "had started; what it printed and wrote until then is kept",
		        spec->timeout_s);
	if (res->signal)
		return json_sprintf(
		        "the interpreter was ended by signal %d (SIG%s)", res->signal, name ? name : "?");
	return NULL;
}

static const char *ended_hint(const struct ntr_call_result *res)
{
	if (res->timed_out)
		return "work in smaller steps and keep what is done in cache[...] or files, or ask for a "
		       "longer timeout";
	if (res->signal == SIGSEGV || res->signal == SIGBUS)
		return "a crash in native code, mostly by very deep recursion: iterate instead";
	if (res->signal == SIGKILL)
		return "it was killed from outside, mostly for want of memory: work on the data in pieces";
	return NULL;
}

static json_t *said_nothing(void)
{
	return json_pack("{s:n,s:n,s:{},s:[],s:[],s:[],s:[]}", "error", "echo", "namespace", "ui", "notes",
	        "hints", "mechanisms");
}

static int add_end(const struct ntr_call_spec *spec, struct ntr_call_result *ret, json_t *py, bool had_result)
{
	json_t *text = ended_text(spec, ret);
	const char *hint = ended_hint(ret);

	if (text && json_is_null(json_object_get(py, "error"))) {
		json_object_set_new(py, "error", text);
		if (hint && json_array_append_new(json_object_get(py, "hints"), json_string(hint)))
			return -ENOMEM;
	} else {
		json_decref(text);
	}
	if (!had_result && !ret->signal && !ret->timed_out && json_is_null(json_object_get(py, "error")))
		return json_array_append_new(json_object_get(py, "notes"),
		               json_sprintf("[note: there is no result, for the code ended its process "
		                            "(os._exit) or closed its connection to ntr; status %d]",
		                       ret->exit_code))
		               ? -ENOMEM
		               : 0;
	return 0;
}

/* ---- the streams */

/* Bytes that hold the first n characters. */
static size_t head_of(const struct ntr_buf *b, size_t n)
{
	size_t i = 0;

	while (i < b->len && n-- > 0)
		for (i++; i < b->len && (b->data[i] & 0xC0) == 0x80; i++)
			;
	return i;
}

static int cut(struct ntr_buf *b, size_t chars, bool cut_before, bool *ret_cut)
{
	size_t keep = head_of(b, chars);

	if (keep == b->len && !cut_before)
		return 0;
	*ret_cut = true;
	b->len = keep;
	if (b->len && b->data[b->len - 1] != '\n')
		ntr_buf_byte(b, '\n');
	return ntr_buf_str(b, TRUNCATED "\n");
}

static int cut_streams(const struct ntr_py_spec *spec, struct ntr_call_result *ret)
{
	size_t bytes = spec->budget * 4;
	int r;

	if (!spec->budget)
		return 0;
	/* The capture kept `bytes` of each: one that is full has lost something when it said so. */
	r = cut(&ret->out, spec->budget, ret->truncated && ret->out.len >= bytes, &ret->truncated);
	return r ? r : cut(&ret->err, spec->budget, ret->truncated && ret->err.len >= bytes, &ret->truncated);
}

int ntr_pyresult_make(const struct ntr_call_spec *spec, struct ntr_call_result *ret)
{
	static const char *const own[] = {"cut_out", "cut_err", "cwd_gone", "cwd", "umask"};
	bool said = ret->py != NULL;
	int r;

	if (!said)
		ret->py = said_nothing();
	if (!ret->py)
		return -ENOMEM;
	r = add_end(spec, ret, ret->py, said);
	if (!r && spec->capture)
		r = cut_streams(spec->py, ret);
	ret->truncated |=
	        ntr_json_bool(ret->py, "cut_out", false) || ntr_json_bool(ret->py, "cut_err", false);
	ret->cwd_gone |= ntr_json_bool(ret->py, "cwd_gone", false);
	for (size_t i = 0; i < NTR_COUNT(own); i++)
		json_object_del(ret->py, own[i]);
	return r;
}
