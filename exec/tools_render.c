/* The result of a call as an agent reads it: what was printed, then what went wrong, then what may help;
 * never cut without saying so. */
#include "tools.h"
#include "../base/util.h"

#include <stdio.h>

#define TRUNCATED "[output truncated]"
#define NO_OUTPUT "(no output)"

struct page {
	struct ntr_buf *b;
	size_t began;
	bool cut;
};

/* Begins a line of its own. */
static void part(struct page *p)
{
	if (p->b->len > p->began)
		ntr_buf_byte(p->b, '\n');
}

static size_t without_end(const char *s, size_t n, const char *blanks)
{
	while (n && memchr(blanks, s[n - 1], strlen(blanks)))
		n--;
	return n;
}

/* Bytes of the first `chars` characters. */
static size_t head_of(const char *s, size_t n, size_t chars)
{
	size_t i = 0;

	if (n <= chars)
		return n;
	for (; i < n && chars; chars--)
		for (i++; i < n && ((uint8_t)s[i] & 0xC0) == 0x80; i++)
			;
	return i;
}

static bool ends_with(const char *s, size_t n, const char *end)
{
	size_t k = strlen(end);

	return n >= k && !memcmp(s + n - k, end, k);
}

/* A stream; of a call that was cut before it may say so itself. */
static void stream(
        struct page *p, const char *title, const char *s, size_t n, size_t budget, const char *blanks)
{
	size_t keep = budget ? head_of(s, n, budget + sizeof TRUNCATED) : n;

	n = without_end(s, n, blanks);
	if (p->cut && ends_with(s, n, TRUNCATED) && keep >= n) {
		n = without_end(s, n - strlen(TRUNCATED), blanks);
	}
	if (budget && (keep = head_of(s, n, budget)) < n) {
		p->cut = true;
		n = without_end(s, keep, blanks);
	}
	if (!n)
		return;
	part(p);
	ntr_buf_str(p->b, title);
	ntr_buf_add(p->b, s, n);
}

static void texts(struct page *p, const json_t *list, const char *before, const char *after)
{
	const json_t *x;
	size_t i;

	json_array_foreach (list, i, x) {
		if (!json_is_string(x))
			continue;
		part(p);
		ntr_buf_printf(p->b, "%s%s%s", before, json_string_value(x), after);
	}
}

/* "[ui artifacts: name -> /path, …]", unless the notes have it already. */
static void artifacts(struct page *p, const json_t *ui, const json_t *notes)
{
	static const char head[] = "[ui artifacts: ";
	const json_t *x;
	size_t i;

	json_array_foreach (notes, i, x)
		if (json_is_string(x) && !strncmp(json_string_value(x), head, sizeof head - 1))
			return;
	json_array_foreach (ui, i, x) {
		if (!i)
			part(p);
		ntr_buf_printf(p->b, "%s%s -> %s", i ? ", " : head, ntr_json_str(x, "name", "?"),
		        ntr_json_str(x, "path", "?"));
	}
	if (json_array_size(ui))
		ntr_buf_byte(p->b, ']');
}

static void timed_out(struct page *p, const struct ntr_tool_call *call)
{
	part(p);
	ntr_buf_printf(p->b,
	        "[hint: the command ran longer than its limit of %g s and was ended, with all it had "
	        "started; what "
	        "it printed and wrote until then is kept. Work in smaller steps, or start it in the "
	        "background "
	        "(`command > log 2>&1 &`) and look at the log in a later call]",
	        call->timeout_s);
}

static void hints(struct page *p, const struct ntr_tool_call *call)
{
	ntr_auto(ntr_buf_done) struct ntr_buf err = {0};
	const char *hint;

	if (json_array_size(call->hints)) {
		texts(p, call->hints, "[hint: ", "]");
		return;
	}
	if (call->python)
		return;
	if (call->timed_out) {
		timed_out(p, call);
		return;
	}
	if (!call->exit_code || ntr_buf_add(&err, call->err, call->err_len) || !ntr_buf_cstr(&err))
		return;
	hint = ntr_tool_hint(call->exit_code, (const char *)err.data);
	if (!hint)
		return;
	part(p);
	ntr_buf_printf(p->b, "[hint: %s]", hint);
}

int ntr_tool_render(
        const struct ntr_tool_call *call, struct ntr_buf *ret, bool *ret_error, bool *ret_truncated)
{
	struct page p = {.b = ret, .began = ret->len, .cut = call->truncated};
	const char *error = call->error && *call->error ? call->error : NULL;

	stream(&p, "", call->out ? call->out : "", call->out_len, call->budget, "\n");
	if (call->exit_code && !error) {
		part(&p);
		ntr_buf_printf(ret, "[exit code %d]", call->exit_code);
	}
	stream(&p, "[stderr]\n", call->err ? call->err : "", call->err_len, call->budget, " \t\r\n");
	if (error)
		stream(&p, "[error]\n", error, strlen(error), 0, " \t\r\n");
	hints(&p, call);
	if (p.cut) {
		part(&p);
		ntr_buf_str(ret, TRUNCATED);
	}
	artifacts(&p, call->ui, call->notes);
	texts(&p, call->notes, call->python ? "" : "[note: ", call->python ? "" : "]");
	if (ret->len == p.began)
		ntr_buf_str(ret, NO_OUTPUT);
	if (ret_error)
		*ret_error = error || call->exit_code;
	if (ret_truncated)
		*ret_truncated = p.cut;
	return ret->err;
}
