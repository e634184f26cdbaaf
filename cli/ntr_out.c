/* out: tables, human forms, JSON lines, progress. */
#include "ntr.h"

#include "../base/buf.h"
#include "../base/util.h"

#include <ctype.h>
#include <errno.h>
#include <libsmartcols.h>
#include <locale.h>

struct libscols_table *ntr_table_new(const struct ntr_col *cols, size_t ncols)
{
	struct libscols_table *t;
	bool tty = isatty(STDOUT_FILENO);

	setlocale(LC_CTYPE, ""); /* widths of characters; only here, as it costs a part of a start */
	t = scols_new_table();
	if (!t)
		return NULL;
	scols_table_enable_noencoding(t, !tty);
	scols_table_enable_maxout(t, 0);
	if (!tty)
		scols_table_set_termforce(t, SCOLS_TERMFORCE_NEVER);
	for (size_t i = 0; i < ncols; i++) {
		int flags = (cols[i].flags & NTR_COL_RIGHT ? SCOLS_FL_RIGHT : 0) |
		            (cols[i].flags & NTR_COL_TRUNC && tty ? SCOLS_FL_TRUNC : 0);

		if (!scols_table_new_column(
		            t, cols[i].name, cols[i].flags & NTR_COL_TRUNC ? 0.5 : 0, flags)) {
			scols_unref_table(t);
			return NULL;
		}
	}
	return t;
}

int ntr_table_add(struct libscols_table *t, const char *const *cells, size_t ncols)
{
	struct libscols_line *ln = scols_table_new_line(t, NULL);

	if (!ln)
		return -ENOMEM;
	for (size_t i = 0; i < ncols; i++)
		if (cells[i] && scols_line_set_data(ln, i, cells[i]))
			return -ENOMEM;
	return 0;
}

int ntr_table_print(struct libscols_table *t)
{
	int r = scols_table_is_empty(t) ? 0 : scols_print_table(t);

	scols_unref_table(t);
	return r;
}

static const char *local_time(time_t s, char *buf)
{
	struct tm tm;

	if (!localtime_r(&s, &tm) || !strftime(buf, NTR_HUMAN, "%Y-%m-%d %H:%M:%S", &tm))
		return "?";
	return buf;
}

const char *ntr_human_time_ns(int64_t wall_ns, char *buf)
{
	return local_time((time_t)(wall_ns / 1000000000), buf);
}

const char *ntr_human_time(const json_t *t, char *buf)
{
	struct tm tm = {0};

	if (json_is_integer(t))
		return ntr_human_time_ns(json_integer_value(t), buf);
	if (!json_is_string(t) || !strptime(json_string_value(t), "%Y-%m-%dT%H:%M:%S", &tm))
		return "-";
	return local_time(timegm(&tm), buf);
}

const char *ntr_human_seconds(double s, char *buf)
{
	unsigned n = s > 0 && s < 1e9 ? (unsigned)(s + 0.5) : 0;

	if (s < 0.001)
		snprintf(buf, NTR_HUMAN, "%.0f us", s * 1e6);
	else if (s < 0.1)
		snprintf(buf, NTR_HUMAN, "%.1f ms", s * 1e3);
	else if (s < 1)
		snprintf(buf, NTR_HUMAN, "%.0f ms", s * 1e3);
	else if (n < 60)
		snprintf(buf, NTR_HUMAN, "%.1f s", s);
	else if (n < 3600)
		snprintf(buf, NTR_HUMAN, "%um%02us", n / 60, n % 60);
	else if (n < 48 * 3600)
		snprintf(buf, NTR_HUMAN, "%uh%02um", n / 3600, n / 60 % 60);
	else
		snprintf(buf, NTR_HUMAN, "%ud%02uh", n / 86400, n / 3600 % 24);
	return buf;
}

const char *ntr_human_bytes(int64_t n, char *buf)
{
	static const char units[] = "KMGTPE";
	double v = (double)n;
	int u = -1;

	if (n < 1024) {
		snprintf(buf, NTR_HUMAN, "%lld", (long long)n);
		return buf;
	}
	while (v >= 1023.5 && units[u + 1]) {
		v /= 1024;
		u++;
	}
	snprintf(buf, NTR_HUMAN, v < 9.95 ? "%.1f%c" : "%.0f%c", v, units[u]);
	return buf;
}

const char *ntr_human_changes(const json_t *ch, char *buf)
{
	long long c = ntr_json_int(ch, "created", 0), m = ntr_json_int(ch, "modified", 0),
	          d = ntr_json_int(ch, "deleted", 0);

	snprintf(buf, NTR_HUMAN, "+%lld ~%lld -%lld", c, m, d);
	return buf;
}

const char *ntr_human_commit(const char *commit, char buf[NTR_HUMAN])
{
	snprintf(buf, NTR_HUMAN, "%.12s", commit ? commit : "-");
	return buf;
}

/* Appends a word as the shell would need it. */
static void quote_word(struct ntr_buf *b, const char *w)
{
	static const char plain[] = "%+,-./:=@_^~";
	bool bare = *w != '\0';

	for (const char *p = w; *p && bare; p++)
		bare = isalnum((unsigned char)*p) || strchr(plain, *p);
	if (bare) {
		ntr_buf_str(b, w);
		return;
	}
	ntr_buf_byte(b, '\'');
	for (const char *p = w; *p; p++) {
		if (*p == '\'')
			ntr_buf_str(b, "'\\'");
		ntr_buf_byte(b, (uint8_t)*p);
	}
	ntr_buf_byte(b, '\'');
}

/* One line out of a text of several. */
static void one_line(char *s)
{
	size_t n = strlen(s);

	while (n && isspace((unsigned char)s[n - 1]))
		s[--n] = '\0';
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127)
			*s = ' ';
}

static char *script_line(const json_t *j)
{
	char *s = NULL;

	if (ntr_json_get_bytes(j, &s, NULL))
		return strdup("");
	one_line(s);
	return s;
}

char *ntr_human_command(const json_t *row)
{
	const json_t *argv = json_object_get(row, "argv"), *arg;
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	size_t i;

	if (!json_is_array(argv)) {
		static const char *const keys[] = {"script", "code", "message", "path", "key"};
		const json_t *v = NULL;

		for (i = 0; i < NTR_COUNT(keys) && (!v || json_is_null(v)); i++)
			v = json_object_get(row, keys[i]);
		return script_line(v);
	}
	json_array_foreach (argv, i, arg) {
		ntr_autofree char *w = NULL;

		if (ntr_json_get_bytes(arg, &w, NULL))
			continue;
		if (i)
			ntr_buf_byte(&b, ' ');
		quote_word(&b, w);
	}
	if (!ntr_buf_cstr(&b))
		return NULL;
	one_line((char *)b.data);
	return (char *)ntr_steal_ptr(b.data);
}

char *ntr_human_name(const json_t *bytes)
{
	char *s = NULL;

	if (ntr_json_get_bytes(bytes, &s, NULL))
		return strdup("?");
	for (char *p = s; isatty(STDOUT_FILENO) && *p; p++)
		if ((unsigned char)*p < ' ' || *p == 127 ||
		        (!json_is_string(bytes) && (unsigned char)*p > 127))
			*p = '?';
	return s;
}

static bool listed(const char *const *list, const char *key)
{
	for (; list && *list; list++)
		if (!strcmp(*list, key))
			return true;
	return false;
}

void ntr_json_line(const json_t *o, const char *const *skip)
{
	ntr_autojson json_t *copy = json_object();
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)o, key, value)
		if (!listed(skip, key) && json_object_set(copy, key, value))
			return;
	json_dumpf(copy, stdout, JSON_COMPACT);
	putchar('\n');
}

void ntr_json_reply(const json_t *reply)
{
	static const char *const skip[] = {"ok", "fds", "event", NULL};

	ntr_json_line(reply, skip);
}

int ntr_out_flush(const struct ntr_cmd *cmd, int status)
{
	bool failed = ferror(stdout) != 0;

	errno = 0;
	if (!fflush(stdout) && !failed)
		return status;
	if (errno == EPIPE || status)
		return status ? status : NTR_EXIT_FAILED;
	return ntr_cmd_die(cmd, errno ? -errno : -EIO, NULL, "cannot write to stdout: %s",
	        strerror(errno ? errno : EIO));
}

static bool progress_shown;

void ntr_progress(void *user, const json_t *event)
{
	const char *stage = ntr_json_str(event, "stage", NULL);
	char bytes[NTR_HUMAN];

	(void)user;
	if (strcmp(ntr_json_str(event, "event", ""), "progress") || !isatty(STDERR_FILENO))
		return;
	if (stage)
		fprintf(stderr, "\r%s %lld of %lld\033[K", stage, (long long)ntr_json_int(event, "done", 0),
		        (long long)ntr_json_int(event, "total", 0));
	else
		fprintf(stderr, "\r%lld entries, %s\033[K", (long long)ntr_json_int(event, "entries", 0),
		        ntr_human_bytes(ntr_json_int(event, "bytes", 0), bytes));
	progress_shown = true;
}

void ntr_progress_end(void)
{
	if (progress_shown)
		fputs("\r\033[K", stderr);
	progress_shown = false;
}
