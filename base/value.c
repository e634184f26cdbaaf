#include "value.h"
#include "util.h"

#include <errno.h>
#include <stdio.h>

/* Python nests 100 levels at most before a value becomes opaque; this is only to keep the stack. */
enum { DEPTH_MAX = 256 };

struct check {
	char *why;
	unsigned depth;
};

static int check(struct check *c, const json_t *v);

static int bad(struct check *c, const char *tag, const char *what)
{
	snprintf(c->why, NTR_VALUE_WHY, "%s%.40s%s%s", tag ? "a value of type '" : "", tag ? tag : "",
	        tag ? "' " : "", what);
	return -EINVAL;
}

const char *ntr_value_tag(const json_t *v)
{
	const json_t *t = json_object_get(v, "$");

	return t ? json_is_string(t) ? json_string_value(t) : "?" : NULL;
}

/* ---- the shapes of tagged values */

static bool is_base64(const json_t *v)
{
	size_t n = json_string_length(v), pad = 0;
	const char *s = json_string_value(v);

	if (!s || n % 4)
		return false;
	while (pad < 2 && n && s[n - 1] == '=') {
		pad++;
		n--;
	}
	return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") == n;
}

static bool is_digits(const json_t *v)
{
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	size_t n;

	s += *s == '-';
	n = strspn(s, "0123456789");
	return n && !s[n] && (n == 1 || *s != '0');
}

static bool is_real_word(const json_t *v)
{
	const char *s = json_is_string(v) ? json_string_value(v) : "";

	return !strcmp(s, "nan") || !strcmp(s, "inf") || !strcmp(s, "-inf");
}

static bool is_text(const json_t *v)
{
	return json_is_string(v);
}

static bool is_counts(const json_t *v, size_t n, bool negative)
{
	const json_t *x;
	size_t i;

	if (!json_is_array(v) || (n && json_array_size(v) != n))
		return false;
	json_array_foreach (v, i, x)
		if (!json_is_integer(x) || (!negative && json_integer_value(x) < 0))
			return false;
	return true;
}

static bool is_delta(const json_t *v)
{
	return is_counts(v, 3, true);
}

static bool is_shape(const json_t *v)
{
	return is_counts(v, 0, false);
}

static bool is_complex(const json_t *v)
{
	for (size_t i = 0; i < 2; i++) {
		const json_t *x = json_array_get(v, i);

		if (!json_is_number(x) && !(json_is_object(x) && is_real_word(json_object_get(x, "v"))))
			return false;
	}
	return json_array_size(v) == 2;
}

enum inner { PLAIN, VALUES, PAIRS, TABLE };
static const struct shape {
	const char *tag;
	struct {
		const char *key;
		bool (*ok)(const json_t *v);
	} need[3];
	enum inner inner; /* PLAIN, or what "v" holds, or that every further member is a value */
} shapes[] = {
        {"int", {{"v", is_digits}}, PLAIN},
        {"float", {{"v", is_real_word}}, PLAIN},
        {"str", {{"b64", is_base64}}, PLAIN},
        {"bytes", {{"b64", is_base64}}, PLAIN},
        {"bytearray", {{"b64", is_base64}}, PLAIN},
        {"tuple", {{NULL, NULL}}, VALUES},
        {"set", {{NULL, NULL}}, VALUES},
        {"frozenset", {{NULL, NULL}}, VALUES},
        {"dict", {{NULL, NULL}}, PAIRS},
        {"datetime", {{"v", is_text}}, PLAIN},
        {"date", {{"v", is_text}}, PLAIN},
        {"time", {{"v", is_text}}, PLAIN},
        {"timedelta", {{"v", is_delta}}, PLAIN},
        {"decimal", {{"v", is_text}}, PLAIN},
        {"complex", {{"v", is_complex}}, PLAIN},
        {"ndarray", {{"dtype", is_text}, {"shape", is_shape}, {"b64", is_base64}}, PLAIN},
        {"npscalar", {{"dtype", is_text}, {"b64", is_base64}}, PLAIN},
        {"dataframe", {{NULL, NULL}}, TABLE},
        {"series", {{NULL, NULL}}, TABLE},
        {"opaque", {{"type", is_text}, {"pickle", is_base64}, {"repr", is_text}}, PLAIN},
};

static int check_values(struct check *c, const json_t *a)
{
	const json_t *x;
	size_t i;
	int r;

	json_array_foreach (a, i, x)
		if ((r = check(c, x)))
			return r;
	return 0;
}

static int check_pairs(struct check *c, const json_t *a)
{
	const json_t *x;
	size_t i;
	int r;

	json_array_foreach (a, i, x) {
		if (json_array_size(x) != 2)
			return bad(c, "dict", "has a member that is no pair");
		if ((r = check_values(c, x)))
			return r;
	}
	return 0;
}

/* Every member of an object but the tag. */
static int check_members(struct check *c, const json_t *o)
{
	const char *key;
	json_t *x;
	int r;

	json_object_foreach ((json_t *)(uintptr_t)o, key, x)
		if (strcmp(key, "$") != 0 && (r = check(c, x)))
			return r;
	return 0;
}

static int check_tagged(struct check *c, const json_t *v, const char *tag)
{
	const struct shape *sh = NULL;

	for (size_t i = 0; i < NTR_COUNT(shapes); i++)
		if (!strcmp(shapes[i].tag, tag))
			sh = &shapes[i];
	if (!sh)
		return bad(c, tag, "is unknown");
	for (size_t i = 0; i < NTR_COUNT(sh->need) && sh->need[i].key; i++)
		if (!sh->need[i].ok(json_object_get(v, sh->need[i].key)))
			return bad(c, tag, "has another form");
	if (sh->inner == PLAIN)
		return 0;
	if (sh->inner == TABLE)
		return check_members(c, v);
	v = json_object_get(v, "v");
	if (!json_is_array(v))
		return bad(c, tag, "has another form");
	return sh->inner == PAIRS ? check_pairs(c, v) : check_values(c, v);
}

static int check(struct check *c, const json_t *v)
{
	const char *tag;
	int r = 0;

	if (json_is_string(v) && strlen(json_string_value(v)) != json_string_length(v))
		return bad(
		        c, NULL, "a string with a NUL is no plain one"); /* texts of JSON would not keep it */
	if (!json_is_array(v) && !json_is_object(v))
		return 0;
	if (++c->depth > DEPTH_MAX)
		return bad(c, NULL, "it is nested too deeply");
	tag = ntr_value_tag(v);
	if (tag)
		r = check_tagged(c, v, tag);
	else
		r = json_is_array(v) ? check_values(c, v) : check_members(c, v);
	c->depth--;
	return r;
}

int ntr_value_check(const json_t *v, char why[NTR_VALUE_WHY])
{
	struct check c = {.why = why};

	why[0] = '\0';
	return check(&c, v);
}

/* ---- texts */

static void dump_real(struct ntr_buf *b, double d)
{
	char text[40];

	for (int digits = 15; digits <= 17; digits++) { /* %g leaves out zeros at the end */
		snprintf(text, sizeof text, "%.*g", digits, d);
		if (strtod(text, NULL) == d)
			break;
	}
	ntr_buf_str(b, text);
	if (!strpbrk(text, ".e")) /* or it would come back as a whole number */
		ntr_buf_str(b, ".0");
}

static void dump_scalar(struct ntr_buf *b, const json_t *v)
{
	size_t n = json_dumpb(v, NULL, 0, JSON_ENCODE_ANY);

	if (ntr_buf_reserve(b, n))
		return;
	json_dumpb(v, (char *)b->data + b->len, n, JSON_ENCODE_ANY);
	b->len += n;
}

static void dump_key(struct ntr_buf *b, const char *key)
{
	ntr_autojson json_t *s = json_string(key);

	if (s)
		dump_scalar(b, s);
	else
		b->err = -ENOMEM;
}

static void dump(struct ntr_buf *b, const json_t *v)
{
	json_t *x;
	const char *key;
	size_t i, n = 0;

	if (json_is_real(v)) {
		dump_real(b, json_real_value(v));
	} else if (json_is_array(v)) {
		ntr_buf_byte(b, '[');
		json_array_foreach (v, i, x) {
			if (i)
				ntr_buf_byte(b, ',');
			dump(b, x);
		}
		ntr_buf_byte(b, ']');
	} else if (json_is_object(v)) {
		ntr_buf_byte(b, '{');
		json_object_foreach ((json_t *)(uintptr_t)v, key, x) {
			if (n++)
				ntr_buf_byte(b, ',');
			dump_key(b, key);
			ntr_buf_byte(b, ':');
			dump(b, x);
		}
		ntr_buf_byte(b, '}');
	} else {
		dump_scalar(b, v);
	}
}

char *ntr_value_dump(const json_t *v, size_t *ret_len)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	dump(&b, v);
	if (!ntr_buf_cstr(&b))
		return NULL;
	if (ret_len)
		*ret_len = b.len;
	return (char *)ntr_steal_ptr(b.data);
}

int ntr_value_parse(const char *text, size_t n, json_t **ret, char why[NTR_VALUE_WHY])
{
	json_error_t je;
	ntr_autojson json_t *v = json_loadb(text, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &je);

	if (!v && json_error_code(&je) == json_error_out_of_memory)
		return -ENOMEM;
	if (!v) {
		snprintf(why, NTR_VALUE_WHY, "it is no JSON: line %d: %.80s", je.line, je.text);
		return -EINVAL;
	}
	*ret = ntr_steal_ptr(v);
	return 0;
}

int ntr_value_bytes(const json_t *v, struct ntr_buf *ret)
{
	const char *tag = ntr_value_tag(v);
	const json_t *s = json_object_get(v, "b64");

	if (json_is_string(v))
		return ntr_buf_add(ret, json_string_value(v), json_string_length(v));
	if (!tag || (strcmp(tag, "str") && strcmp(tag, "bytes") && strcmp(tag, "bytearray")))
		return -EINVAL;
	return json_is_string(s) ? ntr_base64_decode(json_string_value(s), json_string_length(s), ret)
	                         : -EINVAL;
}
