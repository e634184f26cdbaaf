/* file_edit: replacing a quoted text in a file. The quote is looked for exactly; then with blanks at the ends
 * of its lines not counting; then at another indent. A quote that fits in two places is an error unless all
 * are meant: guessing would change the wrong one. */
#include "tools.h"
#include "../base/util.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

enum { PREVIEW = 200, TAB = 4 };

struct span {
	size_t at, len;
};

struct matches {
	struct span *v;
	size_t n, cap;
};

static int add_match(struct matches *m, size_t at, size_t len)
{
	if (m->n == m->cap) {
		size_t cap = m->cap ? 2 * m->cap : 16;
		struct span *v = realloc(m->v, cap * sizeof *v);

		if (!v)
			return -ENOMEM;
		m->v = v;
		m->cap = cap;
	}
	m->v[m->n++] = (struct span){at, len};
	return 0;
}

static void matches_done(struct matches *m)
{
	free(m->v);
}

/* ---- lines */

struct lines {
	struct span *v; /* without their newlines */
	size_t n;
};

static void lines_done(struct lines *l)
{
	free(l->v);
}

static int split(const char *p, size_t n, struct lines *ret)
{
	size_t count = 1, at = 0;

	for (size_t i = 0; i < n; i++)
		count += p[i] == '\n';
	ret->v = calloc(count, sizeof *ret->v);
	if (!ret->v)
		return -ENOMEM;
	for (ret->n = 0; ret->n < count; ret->n++) {
		const char *nl = memchr(p + at, '\n', n - at);
		size_t end = nl ? (size_t)(nl - p) : n;

		ret->v[ret->n] = (struct span){at, end - at};
		at = end + 1;
	}
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static size_t rstripped(const char *p, size_t n)
{
	while (n && is_blank(p[n - 1]))
		n--;
	return n;
}

static size_t blanks(const char *p, size_t n)
{
	size_t k = 0;

	while (k < n && is_blank(p[k]))
		k++;
	return k;
}

/* ---- 1: exactly */

static int find_exact(const char *text, size_t len, const struct ntr_edit *ed, struct matches *m)
{
	for (size_t at = 0; at < len;) {
		const char *hit = memmem(text + at, len - at, ed->old, ed->old_len);

		if (!hit)
			break;
		if (add_match(m, (size_t)(hit - text), ed->old_len))
			return -ENOMEM;
		at = (size_t)(hit - text) + ed->old_len;
	}
	return 0;
}

/* ---- 2: blanks at the ends of lines do not count */

/* Where a line's blanks end, if the line does there: *ret behind them (at the newline or the end of the
 * text). */
static bool line_ends(const char *text, size_t len, size_t at, size_t *ret)
{
	at += blanks(text + at, len - at);
	*ret = at;
	return at == len || text[at] == '\n';
}

/* Whether the quote's lines from the second on stand in text from `at`, the beginning of a line. */
static bool rest_fits(
        const char *text, size_t len, size_t at, const char *old, const struct lines *q, size_t *ret_end)
{
	for (size_t i = 1; i < q->n; i++) {
		size_t n = rstripped(old + q->v[i].at, q->v[i].len), end;
		bool last = i + 1 == q->n;

		if (len - at < n || memcmp(text + at, old + q->v[i].at, n) != 0)
			return false;
		at += n;
		if (line_ends(text, len, at, &end)) {
			if (!last && end == len)
				return false;
			/* of a last, empty line only its beginning is meant */
			*ret_end = last ? (n ? end : at) : end;
			at = end + 1;
		} else if (!last || n != q->v[i].len) {
			return false;
		} else {
			*ret_end = at;
		}
	}
	return true;
}

/* The quote from `at`, where its first line's text (n bytes) stands. */
static bool fits(const char *text, size_t len, size_t at, size_t n, const char *old, const struct lines *q,
        size_t *ret_end)
{
	size_t end;

	if (!line_ends(text, len, at + n, &end))
		return false;
	*ret_end = end;
	if (q->n == 1)
		return true;
	return end < len && rest_fits(text, len, end + 1, old, q, ret_end);
}

static int find_trailing(const char *text, size_t len, const struct ntr_edit *ed, struct matches *m)
{
	ntr_auto(lines_done) struct lines q = {0};
	size_t first = 0, n, end;
	int r = split(ed->old, ed->old_len, &q);

	if (r)
		return r;
	while (first < q.n && !rstripped(ed->old + q.v[first].at, q.v[first].len))
		first++;
	if (first == q.n) /* nothing but blanks: it would fit everywhere */
		return 0;
	n = rstripped(ed->old, q.v[0].len);
	for (size_t at = 0; at <= len;) {
		const char *hit;

		if (n) {
			hit = memmem(text + at, len - at, ed->old, n);
		} else { /* an empty first line: the end of some line */
			hit = memchr(text + at, '\n', len - at);
			if (hit)
				hit = text + at + rstripped(text + at, (size_t)(hit - text) - at);
		}
		if (!hit)
			break;
		at = (size_t)(hit - text);
		if (fits(text, len, at, n, ed->old, &q, &end)) {
			if (add_match(m, at, end - at))
				return -ENOMEM;
			at = NTR_MAX(end, at + 1);
		} else if (n) {
			at++;
		} else {
			at += blanks(text + at, len - at) + 1;
		}
	}
	return 0;
}

/* ---- 3: at another indent */

static size_t width(const char *p, size_t n)
{
	size_t w = 0;

	for (size_t i = 0; i < n && (p[i] == ' ' || p[i] == '\t'); i++)
		w += p[i] == '\t' ? TAB : 1;
	return w;
}

static size_t lead(const char *p, size_t n)
{
	size_t k = 0;

	while (k < n && (p[k] == ' ' || p[k] == '\t'))
		k++;
	return k;
}

/* How far the file's lines stand right of the quote's: the first one's, and that of all others. */
struct shift {
	long first, rest;
};

static bool same_stripped(const char *a, size_t n, const char *b, size_t k)
{
	size_t x = lead(a, n), y = lead(b, k);

	n = rstripped(a, n);
	k = rstripped(b, k);
	x = NTR_MIN(x, n);
	y = NTR_MIN(y, k);
	return n - x == k - y && !memcmp(a + x, b + y, n - x);
}

/* The quote (nq lines of it) against the file's lines from `at`: equal but for one shift, or one after a
 * first line that was quoted from its middle. */
static bool shifted(const char *text, const struct lines *f, size_t at, const struct ntr_edit *ed,
        const struct lines *q, size_t nq, struct shift *ret)
{
	size_t seen = 0;

	for (size_t i = 0; i < nq; i++) {
		const char *a = text + f->v[at + i].at, *b = ed->old + q->v[i].at;
		size_t n = f->v[at + i].len, k = q->v[i].len;
		long d;

		if (!same_stripped(a, n, b, k))
			return false;
		if (!rstripped(b, k))
			continue;
		d = (long)width(a, n) - (long)width(b, k);
		if (!seen)
			ret->first = ret->rest = d;
		else if (seen == 1)
			ret->rest = d;
		else if (d != ret->rest)
			return false;
		seen++;
	}
	return seen > 0;
}

static int find_indented(const char *text, const struct lines *f, const struct ntr_edit *ed,
        const struct lines *q, struct matches *m, struct shift **ret_shifts)
{
	bool whole = q->n > 1 && !q->v[q->n - 1].len; /* the quote ends with a newline */
	size_t nq = whole ? q->n - 1 : q->n;

	for (size_t i = 0; i + nq <= f->n; i++) {
		size_t at = f->v[i].at, end = f->v[i + nq - 1].at + f->v[i + nq - 1].len;
		struct shift s, *v;

		if ((whole && i + nq == f->n) || !shifted(text, f, i, ed, q, nq, &s))
			continue;
		v = realloc(*ret_shifts, (m->n + 1) * sizeof *v);
		if (!v)
			return -ENOMEM;
		*ret_shifts = v;
		v[m->n] = s;
		if (whole)
			end++;
		else if (end > at && text[end - 1] == '\r')
			end--;
		if (add_match(m, at, end - at))
			return -ENOMEM;
		i += nq - 1;
	}
	return 0;
}

static void put_indent(struct ntr_buf *b, long w, bool tabs)
{
	if (w < 0)
		w = 0;
	for (; tabs && w >= TAB; w -= TAB)
		ntr_buf_byte(b, '\t');
	for (; w; w--)
		ntr_buf_byte(b, ' ');
}

/* The first line that is not blank; n: none. */
static size_t head_line(const char *p, const struct lines *l)
{
	size_t i = 0;

	while (i < l->n && !rstripped(p + l->v[i].at, l->v[i].len))
		i++;
	return i;
}

/* What the file indents with at this place: a tab, a blank, or (nothing is indented) 0. */
static char indent_char(const char *p, size_t n)
{
	for (const char *end = p + n; p < end;) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		if (lead(p, (size_t)(end - p)))
			return *p;
		p = nl ? nl + 1 : end;
	}
	return 0;
}

/* The replacement, moved as the quote was: its lines by the body's shift; the line in the place of a first
 * one that was quoted from its middle by that one's own. */
static int put_shifted(struct ntr_buf *b, const struct ntr_edit *ed, const struct lines *q,
        const char *matched, size_t matched_len, const struct shift *s)
{
	ntr_auto(lines_done) struct lines l = {0};
	char with = indent_char(matched, matched_len);
	size_t own, qh = head_line(ed->old, q);
	int r = split(ed->new, ed->new_len, &l);

	if (r)
		return r;
	own = head_line(ed->new, &l);
	if (own < l.n &&
	        width(ed->new + l.v[own].at, l.v[own].len) != width(ed->old + q->v[qh].at, q->v[qh].len))
		own = l.n;
	for (size_t i = 0; i < l.n; i++) {
		const char *p = ed->new + l.v[i].at;
		size_t n = l.v[i].len, k = lead(p, n);

		if (i)
			ntr_buf_byte(b, '\n');
		if (!rstripped(p, n))
			continue;
		put_indent(
		        b, (long)width(p, n) + (i == own ? s->first : s->rest), (with ? with : *p) == '\t');
		ntr_buf_add(b, p + k, n - k);
	}
	return b->err;
}

/* ---- what is put in */

/* A file whose lines end with CR LF keeps doing so. */
static int put_new(struct ntr_buf *b, const char *matched, size_t n, const char *new, size_t len)
{
	if (!memmem(matched, n, "\r\n", 2) || memchr(new, '\r', len))
		return ntr_buf_add(b, new, len);
	for (size_t i = 0; i < len; i++) {
		if (new[i] == '\n')
			ntr_buf_byte(b, '\r');
		ntr_buf_byte(b, (uint8_t) new[i]);
	}
	return b->err;
}

static int replace(const char *text, size_t len, const struct ntr_edit *ed, const struct matches *m,
        const struct shift *shifts, const struct lines *q, struct ntr_buf *ret)
{
	size_t done = 0;
	int r = 0;

	for (size_t i = 0; !r && i < m->n; i++) {
		const char *matched = text + m->v[i].at;
		ntr_auto(ntr_buf_done) struct ntr_buf moved = {0};

		ntr_buf_add(ret, text + done, m->v[i].at - done);
		if (shifts)
			r = put_shifted(&moved, ed, q, matched, m->v[i].len, &shifts[i]);
		if (!r)
			r = put_new(ret, matched, m->v[i].len, shifts ? (const char *)moved.data : ed->new,
			        shifts ? moved.len : ed->new_len);
		done = m->v[i].at + m->v[i].len;
	}
	if (!r)
		r = ntr_buf_add(ret, text + done, len - done);
	return r;
}

/* ---- the whole */

static int ambiguous(const struct ntr_edit *ed, size_t n, enum ntr_edit_mode mode, struct ntr_buf *why)
{
	static const char *const how[] = {[NTR_EDIT_TRAILING_WS] = ", blanks at the ends of lines aside,",
	        [NTR_EDIT_INDENT_FLEXIBLE] = ", the indent aside,"};

	ntr_buf_printf(why,
	        "old_string%s appears %zu times in %s; quote more of what stands around the one you "
	        "mean, or pass replace_all to change all of them",
	        mode == NTR_EDIT_EXACT ? "" : how[mode], n, ed->path);
	return why->err ? why->err : -EINVAL;
}

static int missed(const char *text, size_t len, const struct ntr_edit *ed, struct ntr_buf *why)
{
	ntr_auto(ntr_buf_done) struct ntr_buf like = {0};
	int r = ntr_edit_similar(text, len, ed->old, ed->old_len, &like);

	if (r)
		return r;
	ntr_buf_printf(why, "old_string was not found in %s. ", ed->path);
	if (like.len) {
		ntr_buf_str(why, "Did you mean these lines?\n");
		ntr_buf_add(why, like.data, like.len);
	} else {
		size_t n = NTR_MIN(ed->old_len, (size_t)PREVIEW);

		while (n < ed->old_len && n && ((uint8_t)ed->old[n] & 0xC0) == 0x80)
			n--; /* not in the middle of a character */
		ntr_buf_str(why, "Nothing in it is like:\n");
		ntr_buf_add(why, ed->old, n);
		ntr_buf_str(why, n < ed->old_len ? "..." : "");
	}
	return why->err ? why->err : -EINVAL;
}

static int refuse(struct ntr_buf *why, const char *text)
{
	return ntr_buf_str(why, text) ? -ENOMEM : -EINVAL;
}

/* ---- an edit that was made before ---- */

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || (c & 0x80);
}

/* Whole lines, indented or not; or what is no part of the text it was to replace, and no shorter than that or
 * whole words: short texts occur by chance. */
static bool stands_alone(const char *text, size_t len, size_t at, const struct ntr_edit *ed)
{
	size_t end = at + ed->new_len, line = at;
	bool first = !at || !is_word(text[at - 1]) || !is_word(text[at]);
	bool last = end == len || !is_word(text[end - 1]) || !is_word(text[end]);

	while (line && (text[line - 1] == ' ' || text[line - 1] == '\t'))
		line--;
	if ((!line || text[line - 1] == '\n') &&
	        (end == len || text[end - 1] == '\n' || text[end] == '\n' || text[end] == '\r'))
		return true;
	return ((first && last) || ed->new_len >= ed->old_len) &&
	       !memmem(ed->old, ed->old_len, ed->new, ed->new_len);
}

static bool is_made(const char *text, size_t len, const struct ntr_edit *ed)
{
	const char *p = text;

	if (!ed->new_len)
		return false;
	while ((p = memmem(p, len - (size_t)(p - text), ed->new, ed->new_len))) {
		if (stands_alone(text, len, (size_t)(p - text), ed))
			return true;
		p++;
	}
	return false;
}

int ntr_edit_apply(const char *text, size_t len, const struct ntr_edit *ed, struct ntr_buf *ret,
        unsigned *ret_count, enum ntr_edit_mode *ret_mode, struct ntr_buf *why)
{
	ntr_auto(matches_done) struct matches m = {0};
	ntr_auto(lines_done) struct lines f = {0}, q = {0};
	ntr_autofree struct shift *shifts = NULL;
	enum ntr_edit_mode mode = NTR_EDIT_EXACT;
	int r;

	*ret_count = 0;
	if (!ed->old_len)
		return refuse(why, "old_string is empty; to write a whole file use file_write");
	if (ed->old_len == ed->new_len && !memcmp(ed->old, ed->new, ed->new_len))
		return refuse(why, "old_string and new_string are identical");
	r = find_exact(text, len, ed, &m);
	if (!r && !m.n) {
		mode = NTR_EDIT_TRAILING_WS;
		r = find_trailing(text, len, ed, &m);
	}
	if (!r && !m.n) {
		mode = NTR_EDIT_INDENT_FLEXIBLE;
		r = split(text, len, &f);
		if (!r)
			r = split(ed->old, ed->old_len, &q);
		if (!r)
			r = find_indented(text, &f, ed, &q, &m, &shifts);
	}
	if (r)
		return r;
	if (m.n > 1 && !ed->replace_all)
		return ambiguous(ed, m.n, mode, why);
	*ret_mode = m.n ? mode : NTR_EDIT_ALREADY;
	*ret_count = (unsigned)m.n;
	if (m.n)
		return replace(text, len, ed, &m, shifts, &q, ret);
	if (is_made(text, len, ed))
		return 0;
	return missed(text, len, ed, why);
}

const char *ntr_edit_mode_word(enum ntr_edit_mode mode)
{
	switch (mode) {
	case NTR_EDIT_TRAILING_WS:
		return "trailing_ws";
	case NTR_EDIT_INDENT_FLEXIBLE:
		return "indent_flexible";
	case NTR_EDIT_ALREADY:
		return "already_applied";
	case NTR_EDIT_EXACT:
	default:
		return "exact";
	}
}
