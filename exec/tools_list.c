/* The list of tools for a session: which there are, and what each is said to be. */
#include "tools.h"
#include "tools_data.h"
#include "../base/util.h"

#include <errno.h>

/* A text with one %s in it. */
static void fill(struct ntr_buf *b, const char *text, const char *with)
{
	const char *at = strstr(text, "%s");

	if (!at) {
		ntr_buf_str(b, text);
		return;
	}
	ntr_buf_add(b, text, (size_t)(at - text));
	ntr_buf_str(b, with);
	ntr_buf_str(b, at + 2);
}

static void primer(struct ntr_buf *b, const char *text)
{
	if (text && *text)
		ntr_buf_printf(b, "\n\n%s", text);
}

static bool is_split(const struct ntr_tools_options *o)
{
	if (o->mode == NTR_TOOLS_AUTO)
		return !o->no_cache || json_array_size(o->objects);
	return o->mode == NTR_TOOLS_SPLIT;
}

static void names(struct ntr_buf *b, const json_t *list)
{
	const json_t *x;
	size_t i;

	json_array_foreach (list, i, x)
		ntr_buf_printf(b, "%s%s", i ? ", " : "", json_is_string(x) ? json_string_value(x) : "?");
}

static void add_terminal(struct ntr_buf *b, const struct ntr_tools_options *o)
{
	fill(b, ntr_tools_terminal, o->wsroot);
	if (!is_split(o))
		ntr_buf_str(b, ntr_tools_python_inside);
	primer(b, o->terminal_primer);
	if (!is_split(o))
		primer(b, o->python_primer);
}

static void add_python(struct ntr_buf *b, const struct ntr_tools_options *o)
{
	ntr_auto(ntr_buf_done) struct ntr_buf list = {0};

	fill(b, ntr_tools_python, o->wsroot);
	if (!o->no_cache)
		ntr_buf_str(b, ntr_tools_cache);
	names(&list, o->objects);
	if (list.len)
		fill(b, ntr_tools_objects, ntr_buf_cstr(&list));
	if (o->modules && *o->modules)
		fill(b, ntr_tools_modules, o->modules);
	if (o->offline)
		ntr_buf_str(b, ntr_tools_offline);
	fill(b, ntr_tools_ui, o->wsroot);
	ntr_buf_str(b, ntr_tools_python_end);
	primer(b, o->python_primer);
}

static json_t *tool_json(const struct ntr_tool_data *d, const struct ntr_tools_options *o)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	if (d->description)
		ntr_buf_str(&b, d->description);
	else if (!strcmp(d->name, "terminal"))
		add_terminal(&b, o);
	else
		add_python(&b, o);
	if (!ntr_buf_cstr(&b))
		return NULL;
	return json_pack("{s:s,s:s,s:s,s:o,s:{s:s,s:b,s:b,s:b,s:b}}", "name", d->name, "title", d->title,
	        "description", (const char *)b.data, "inputSchema", json_loads(d->schema, 0, NULL),
	        "annotations", "title", d->title, "readOnlyHint", (int)d->read_only, "destructiveHint",
	        (int)d->destructive, "idempotentHint", (int)d->idempotent, "openWorldHint",
	        (int)d->open_world);
}

json_t *ntr_tools_list(const struct ntr_tools_options *o)
{
	ntr_autojson json_t *a = json_array();

	for (const struct ntr_tool_data *d = ntr_tool_data; a && d->name; d++) {
		if ((d->versions && !o->versions) || (d->images && o->no_images) ||
		        (!strcmp(d->name, "run_python") && !is_split(o)))
			continue;
		if (json_array_append_new(a, tool_json(d, o)))
			return NULL;
	}
	return ntr_steal_ptr(a);
}

static const struct ntr_tool_data *find(const char *name)
{
	for (const struct ntr_tool_data *d = ntr_tool_data; d->name; d++)
		if (!strcmp(d->name, name))
			return d;
	return NULL;
}

bool ntr_tool_known(const char *name)
{
	return find(name) != NULL;
}

/* ---- arguments */

static bool is_whole(const json_t *v)
{
	const char *s = json_string_value(v);
	double d = json_number_value(v);

	return json_is_integer(v) || (json_is_real(v) && d > -1e15 && d < 1e15 && d == (double)(int64_t)d) ||
	       (s && *s && strlen(s) < 10 && strspn(s, "0123456789") == strlen(s));
}

int64_t ntr_tool_arg_int(const json_t *args, const char *key, int64_t def)
{
	const json_t *v = json_object_get(args, key);

	if (json_is_string(v))
		return strtoll(json_string_value(v), NULL, 10);
	return json_is_number(v) ? (int64_t)json_number_value(v) : def;
}

bool ntr_tool_arg_bool(const json_t *args, const char *key)
{
	const json_t *v = json_object_get(args, key);

	return json_is_true(v) || (json_is_string(v) && !strcmp(json_string_value(v), "true"));
}

static bool is_bool(const json_t *v)
{
	const char *s = json_string_value(v);

	return json_is_boolean(v) || (s && (!strcmp(s, "true") || !strcmp(s, "false")));
}

static bool fits(const json_t *prop, const json_t *v)
{
	const char *type = ntr_json_str(prop, "type", "");

	if (!strcmp(type, "string"))
		return json_is_string(v);
	return !strcmp(type, "boolean") ? is_bool(v) : is_whole(v);
}

static bool in_range(const json_t *args, const char *key, const json_t *prop)
{
	int64_t n = ntr_tool_arg_int(args, key, 0);

	return strcmp(ntr_json_str(prop, "type", ""), "integer") != 0 ||
	       (n >= ntr_json_int(prop, "minimum", INT64_MIN) &&
	               n <= ntr_json_int(prop, "maximum", INT64_MAX));
}

static void list_names(struct ntr_buf *b, const json_t *props)
{
	const char *key, *sep = "";
	json_t *p;

	json_object_foreach ((json_t *)(uintptr_t)props, key, p) {
		ntr_buf_printf(b, "%s%s", sep, key);
		sep = ", ";
	}
}

static int check_given(const json_t *props, const json_t *args, struct ntr_buf *why)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)(uintptr_t)args, key, v) {
		const json_t *p = json_object_get(props, key);

		if (!p) {
			ntr_buf_printf(why, "there is no argument '%.100s'; it takes ", key);
			list_names(why, props);
		} else if (!json_is_null(v) && !fits(p, v)) {
			ntr_buf_printf(why, "the argument '%s' is no %s", key, ntr_json_str(p, "type", "?"));
		} else if (!json_is_null(v) && !in_range(args, key, p)) {
			ntr_buf_printf(why, "the argument '%s' is out of range", key);
		}
		if (why->len)
			return -EINVAL;
	}
	return 0;
}

int ntr_tool_args_check(const char *name, const json_t *args, struct ntr_buf *why)
{
	const struct ntr_tool_data *d = find(name);
	ntr_autojson json_t *schema = d ? json_loads(d->schema, 0, NULL) : NULL;
	const json_t *key;
	size_t i;
	int r;

	if (!schema)
		return -ENOMEM;
	if (!json_is_object(args))
		return ntr_buf_str(why, "the arguments are no object") ? -ENOMEM : -EINVAL;
	r = check_given(json_object_get(schema, "properties"), args, why);
	json_array_foreach (json_object_get(schema, "required"), i, key) {
		const json_t *v = json_object_get(args, json_string_value(key));

		if (r || (v && !json_is_null(v)))
			continue;
		ntr_buf_printf(why, "the argument '%s' is missing", json_string_value(key));
		r = -EINVAL;
	}
	return why->err ? why->err : r;
}

const char *ntr_tool_hint(int exit_code, const char *err)
{
	for (const struct ntr_tool_hint_row *h = ntr_tool_hints; h->needle; h++)
		if (exit_code && (h->code == -1 || h->code == exit_code) && strstr(err, h->needle))
			return h->hint;
	return NULL;
}
