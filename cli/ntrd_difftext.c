#include "ntrd_difftext.h"
#include "ntrd.h"

#include "../base/util.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

enum { FLUSH_AT = 64 << 10 };

/* ---- paths */

int ntrd_path_relative(const char *wsroot, const char *path, char **ret)
{
	size_t n = strlen(wsroot);
	ntr_autofree char *out = malloc(strlen(path) + 1);
	char *to = out;

	if (!out)
		return -ENOMEM;
	if (path[0] == '/') {
		if (strncmp(path, wsroot, n) || (path[n] && path[n] != '/'))
			return -EINVAL;
		path += n;
	}
	while (*(path += strspn(path, "/"))) {
		size_t k = strcspn(path, "/");

		if (k == 2 && path[0] == '.' && path[1] == '.')
			return -EINVAL;
		if (k != 1 || path[0] != '.') {
			if (to != out)
				*to++ = '/';
			to = mempcpy(to, path, k);
		}
		path += k;
	}
	*to = '\0';
	*ret = ntr_steal_ptr(out);
	return 0;
}

static bool needs_quotes(const char *path)
{
	for (; *path; path++)
		if ((unsigned char)*path < 0x20 || (unsigned char)*path >= 0x7f || *path == '"' ||
		        *path == '\\')
			return true;
	return false;
}

int ntrd_path_quote(struct ntr_buf *b, const char *path)
{
	static const char letters[] = "abtnvfr"; /* 7 to 13 */

	if (!needs_quotes(path))
		return ntr_buf_str(b, path);
	ntr_buf_byte(b, '"');
	for (; *path; path++) {
		unsigned char c = (unsigned char)*path;

		if (c >= 7 && c <= 13)
			ntr_buf_printf(b, "\\%c", letters[c - 7]);
		else if (c == '"' || c == '\\')
			ntr_buf_printf(b, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			ntr_buf_printf(b, "\\%03o", c);
		else
			ntr_buf_byte(b, c);
	}
	return ntr_buf_byte(b, '"');
}

/* ---- lists */

static int flush(struct ntr_buf *b, int fd, size_t above)
{
	int r = b->err;

	if (r || b->len <= above)
		return r;
	r = ntr_write_all(fd, b->data, b->len);
	b->len = 0;
	return r;
}

int ntrd_diff_names(const struct ntr_diff *d, int fd)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	int r = 0;

	for (size_t i = 0; !r && i < d->n; i++) {
		ntr_buf_printf(&b, "%c\t", (char)d->v[i].kind);
		ntrd_path_quote(&b, d->v[i].path);
		ntr_buf_byte(&b, '\n');
		r = flush(&b, fd, FLUSH_AT);
	}
	return r ? r : flush(&b, fd, 0);
}

int ntrd_diff_json(const struct ntr_diff *d, int fd)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	int r = 0;

	for (size_t i = 0; !r && i < d->n; i++) {
		ntr_autojson json_t *row = ntrd_row_diff(&d->v[i]);
		ntr_autofree char *text = row ? json_dumps(row, JSON_COMPACT) : NULL;

		if (!text)
			return -ENOMEM;
		ntr_buf_str(&b, text);
		ntr_buf_byte(&b, '\n');
		r = flush(&b, fd, FLUSH_AT);
	}
	return r ? r : flush(&b, fd, 0);
}

/* ---- --stat: the layout is that of git's diff.c, so that people and scripts read it alike */

struct layout {
	int64_t max_change;
	int name, number, graph; /* columns */
};

static int digits(int64_t v)
{
	int n = 1;

	while (v >= 10) {
		v /= 10;
		n++;
	}
	return n;
}

static struct layout lay_out(const struct ntrd_stat_line *v, size_t n, int width)
{
	struct layout l = {0};
	int least;

	for (size_t i = 0; i < n; i++) {
		l.name = NTR_MAX(l.name, (int)strlen(v[i].name));
		if (v[i].added < 0)
			l.number = NTR_MAX(l.number, 3);
		else
			l.max_change = NTR_MAX(l.max_change, v[i].added + v[i].removed);
	}
	l.number = NTR_MAX(l.number, digits(l.max_change));
	width = NTR_MAX(width, 16 + 6 + l.number);
	l.graph = (int)NTR_MIN(l.max_change, (int64_t)INT16_MAX);
	if (l.name + l.number + 6 + l.graph <= width)
		return l;
	least = NTR_MAX(width * 3 / 8 - l.number - 6, 6);
	l.graph = NTR_MIN(l.graph, least);
	if (l.name > width - l.number - 6 - l.graph)
		l.name = width - l.number - 6 - l.graph;
	else
		l.graph = width - l.number - 6 - l.name;
	return l;
}

static int64_t scaled(int64_t v, const struct layout *l)
{
	return v ? 1 + v * (l->graph - 1) / l->max_change : 0;
}

static void add_graph(struct ntr_buf *b, const struct ntrd_stat_line *s, const struct layout *l)
{
	int64_t add = s->added, del = s->removed;

	if (l->graph <= l->max_change) {
		int64_t total = scaled(add + del, l);

		if (total < 2 && add && del)
			total = 2;
		if (add < del) {
			add = scaled(add, l);
			del = total - add;
		} else {
			del = scaled(del, l);
			add = total - del;
		}
	}
	while (add-- > 0)
		ntr_buf_byte(b, '+');
	while (del-- > 0)
		ntr_buf_byte(b, '-');
}

static void add_line(struct ntr_buf *b, const struct ntrd_stat_line *s, const struct layout *l)
{
	const char *name = s->name, *prefix = "", *slash;
	int room = l->name, len = (int)strlen(name);

	if (len > room) {
		prefix = "...";
		room = NTR_MAX(room - 3, 0);
		name += len - room;
		slash = strchr(name, '/');
		if (slash)
			name = slash;
	}
	ntr_buf_printf(b, " %s%-*s | ", prefix, room, name);
	if (s->added < 0) {
		ntr_buf_printf(b, "%*s\n", l->number, "Bin");
		return;
	}
	ntr_buf_printf(b, "%*lld%s", l->number, (long long)(s->added + s->removed),
	        s->added + s->removed ? " " : "");
	add_graph(b, s, l);
	ntr_buf_byte(b, '\n');
}

int ntrd_stat_format(const struct ntrd_stat_line *v, size_t n, int width, struct ntr_buf *out)
{
	struct layout l = lay_out(v, n, width);
	int64_t add = 0, del = 0;

	if (!n)
		return out->err;
	for (size_t i = 0; i < n; i++) {
		add_line(out, &v[i], &l);
		add += v[i].added < 0 ? 0 : v[i].added;
		del += v[i].added < 0 ? 0 : v[i].removed;
	}
	ntr_buf_printf(out, " %zu file%s changed", n, n == 1 ? "" : "s");
	if (add || !del)
		ntr_buf_printf(out, ", %lld insertion%s(+)", (long long)add, add == 1 ? "" : "s");
	if (del || !add)
		ntr_buf_printf(out, ", %lld deletion%s(-)", (long long)del, del == 1 ? "" : "s");
	return ntr_buf_byte(out, '\n');
}

struct lines {
	struct ntrd_stat_line *v;
	size_t n, cap;
};

static void lines_done(struct lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].name);
	free(l->v);
}

/* What a patch has no text for is no line here either. */
static bool has_text(const struct ntr_diff_entry *en)
{
	bool dir = S_ISDIR(en->old_mode ? en->old_mode : en->new_mode) &&
	           S_ISDIR(en->new_mode ? en->new_mode : en->old_mode);

	return !dir && (en->kind != NTR_DIFF_MODIFIED || (en->what & (NTR_DIFF_CONTENT | NTR_DIFF_MODE)));
}

static int add_entry(void *user, const struct ntr_diff_entry *en, int64_t added, int64_t removed)
{
	ntr_auto(ntr_buf_done) struct ntr_buf name = {0};
	struct lines *l = user;

	if (!has_text(en))
		return 0;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		struct ntrd_stat_line *v = reallocarray(l->v, cap, sizeof *v);

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	if (ntrd_path_quote(&name, en->path) || !ntr_buf_cstr(&name))
		return -ENOMEM;
	l->v[l->n++] = (struct ntrd_stat_line){.name = (char *)ntr_steal_ptr(name.data),
	        .added = added < 0 || removed < 0 ? -1 : added,
	        .removed = removed};
	return 0;
}

int ntrd_diff_stat(struct ntr_store *st, uint64_t a, uint64_t b, const struct ntr_diff *d, int width, int fd)
{
	ntr_auto(ntr_buf_done) struct ntr_buf out = {0};
	ntr_auto(lines_done) struct lines l = {0};
	int r = ntr_diff_stat(st, a, b, d, add_entry, &l);

	if (!r)
		r = ntrd_stat_format(l.v, l.n, width, &out);
	return r ? r : flush(&out, fd, 0);
}
