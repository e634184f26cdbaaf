/* The lines of a file that are most like a quote that was not found: the agent's next quote then fits.
 *
 * Two lines are as like as the pairs of neighbouring bytes that they share (Dice's coefficient); a place is
 * as like as its lines are on average, weighted with the length of what was quoted. Cost: the file's size
 * times the quote's lines, of which at most QUOTE_MAX are looked at. */
#include "tools.h"
#include "../base/util.h"

#include <errno.h>

enum { QUOTE_MAX = 24, AROUND = 3, SHOWN_MAX = 200, LINE_MAX_LIKE = 1024, TEXT_MAX = 4 << 20 };
#define LIKE_ENOUGH 0.6

struct line {
	const char *p;
	size_t n;
};

static size_t split(const char *p, size_t n, struct line **ret)
{
	size_t count = 0, cap = 0;
	struct line *v = NULL;

	for (const char *end = p + n; p < end;) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t k = nl ? (size_t)(nl - p) : (size_t)(end - p);

		if (count == cap) {
			struct line *w = realloc(v, (cap = cap ? 2 * cap : 64) * sizeof *w);

			if (!w) {
				free(v);
				*ret = NULL;
				return SIZE_MAX;
			}
			v = w;
		}
		v[count++] = (struct line){p, k && p[k - 1] == '\r' ? k - 1 : k};
		p += k + 1;
	}
	*ret = v;
	return count;
}

static struct line stripped(struct line l)
{
	while (l.n && (l.p[l.n - 1] == ' ' || l.p[l.n - 1] == '\t'))
		l.n--;
	while (l.n && (*l.p == ' ' || *l.p == '\t')) {
		l.p++;
		l.n--;
	}
	l.n = NTR_MIN(l.n, (size_t)LINE_MAX_LIKE);
	return l;
}

static unsigned pair(const char *p)
{
	return (unsigned)(uint8_t)p[0] << 8 | (uint8_t)p[1];
}

static void count_pairs(uint16_t *table, struct line l, int by)
{
	for (size_t i = 0; i + 1 < l.n; i++)
		table[pair(l.p + i)] = (uint16_t)(table[pair(l.p + i)] + by);
}

/* table holds the pairs of a, and does so again afterwards. */
static double alike(uint16_t *table, struct line a, struct line b)
{
	uint16_t taken[LINE_MAX_LIKE];
	size_t shared = 0;

	if (a.n == b.n && !memcmp(a.p, b.p, a.n))
		return 1;
	if (a.n < 2 || b.n < 2)
		return 0;
	for (size_t i = 0; i + 1 < b.n; i++) {
		uint16_t k = (uint16_t)pair(b.p + i);

		if (table[k]) {
			table[k]--;
			taken[shared++] = k;
		}
	}
	for (size_t i = 0; i < shared; i++)
		table[taken[i]]++;
	return 2.0 * (double)shared / (double)(a.n + b.n - 2);
}

/* Adds to score[i] how much the quote's line j is like line i + j. */
static void score_line(const struct line *text, size_t n, struct line q, size_t j, size_t nq, double weight,
        uint16_t *table, float *score)
{
	count_pairs(table, q, 1);
	for (size_t i = 0; i + nq <= n; i++)
		score[i] += (float)(weight * alike(table, q, stripped(text[i + j])));
	count_pairs(table, q, -1);
}

/* Where in text (n lines) the quote would fit best. n: nowhere well enough. -1: out of memory. */
static ssize_t best_place(const struct line *text, size_t n, const struct line *quote, size_t nq)
{
	ntr_autofree uint16_t *table = calloc(1 << 16, sizeof *table);
	ntr_autofree float *score = calloc(n + 1, sizeof *score);
	double total = 0;
	size_t best = 0;

	if (!table || !score)
		return -1;
	for (size_t j = 0; j < nq && j < QUOTE_MAX; j++) {
		struct line q = stripped(quote[j]);
		double weight = (double)q.n;

		if (!q.n)
			continue;
		total += weight;
		score_line(text, n, q, j, nq, weight, table, score);
	}
	for (size_t i = 0; i + nq <= n; i++)
		if (score[i] > score[best])
			best = i;
	return total > 0 && score[best] >= LIKE_ENOUGH * total ? (ssize_t)best : (ssize_t)n;
}

static void show(struct ntr_buf *b, const struct line *text, size_t i, bool meant)
{
	size_t n = NTR_MIN(text[i].n, (size_t)SHOWN_MAX);

	while (n < text[i].n && n && ((uint8_t)text[i].p[n] & 0xC0) == 0x80)
		n--; /* not in the middle of a character */
	ntr_buf_printf(b, "%c %4zu | ", meant ? '>' : ' ', i + 1);
	ntr_buf_add(b, text[i].p, n);
	ntr_buf_str(b, n < text[i].n ? "...\n" : "\n");
}

int ntr_edit_similar(const char *text, size_t len, const char *old, size_t old_len, struct ntr_buf *ret)
{
	ntr_autofree struct line *lines = NULL, *quote = NULL;
	size_t n, nq, from, to;
	ssize_t at;

	if (len > TEXT_MAX || old_len > TEXT_MAX)
		return 0;
	n = split(text, len, &lines);
	nq = split(old, old_len, &quote);
	if (n == SIZE_MAX || nq == SIZE_MAX)
		return -ENOMEM;
	if (!nq || nq > n)
		return 0;
	at = best_place(lines, n, quote, nq);
	if (at < 0)
		return -ENOMEM;
	if ((size_t)at == n)
		return 0;
	from = (size_t)at - NTR_MIN((size_t)at, (size_t)AROUND);
	to = NTR_MIN((size_t)at + nq + AROUND, n);
	for (size_t i = from; i < to; i++)
		show(ret, lines, i, i >= (size_t)at && i < (size_t)at + nq);
	if (ret->len)
		ret->len--; /* the last newline */
	return ret->err;
}
