/* What agents read, to the letter: results of calls, edits and their errors, images, the list of tools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "exec/tools.h"

#include <errno.h>
#include <stdio.h>

/* ---- results of calls */

static void test_render(void **state)
{
	static const struct {
		const char *out, *err;
		int code;
		bool python, cut;
		const char *error;
		const char *more; /* {"hints","ui","notes"} */
		const char *want;
		bool is_error;
	} rows[] = {
	        {"hello\n", "", 0, false, false, NULL, NULL, "hello", false},
	        {"", "", 0, false, false, NULL, NULL, "(no output)", false},
	        {"\n\n", "", 0, false, false, NULL, NULL, "(no output)", false},
	        {"  a\n b \n\n", "", 0, false, false, NULL, NULL, "  a\n b ", false},
	        {"out\n", "err\n", 3, false, false, NULL, NULL, "out\n[exit code 3]\n[stderr]\nerr", true},
	        {"", "", 1, false, false, NULL, NULL, "[exit code 1]", true},
	        {"", "warning: x\n", 0, false, false, NULL, NULL, "[stderr]\nwarning: x", false},
	        {"part", "", 0, false, true, NULL, NULL, "part\n[output truncated]", false},
	        {"part\n[output truncated]\n", "", 0, false, true, NULL, NULL, "part\n[output truncated]",
	                false},
	        {"", "a\nsh: foo: command not found\n", 127, false, false, NULL, NULL,
	                "[exit code 127]\n[stderr]\na\nsh: foo: command not found\n[hint: there is no such "
	                "program "
	                "here; `command -v NAME` tells what there is]",
	                true},
	        {"", "fatal: not a git repository\n", 0, false, false, NULL, NULL,
	                "[stderr]\nfatal: not a git repository", false},
	        {"1\n", "", 1, true, false, "Traceback (most recent call last):\nValueError: no\n",
	                "{\"hints\":[\"try yes\"]}",
	                "1\n[error]\nTraceback (most recent call last):\nValueError: no\n[hint: try yes]",
	                true},
	        {"", "w\n", 1, true, false, "E: x", NULL, "[stderr]\nw\n[error]\nE: x", true},
	        {"", "", 3, true, false, NULL, NULL, "[exit code 3]", true},
	        {"", "", 0, true, false, "", NULL, "(no output)", false},
	        {"42\n", "", 0, true, false, NULL,
	                "{\"ui\":[{\"name\":\"a\",\"path\":\"/workspace/ui/a.json\"},"
	                "{\"name\":\"b\",\"path\":\"/workspace/ui/b.png\"}]}",
	                "42\n[ui artifacts: a -> /workspace/ui/a.json, b -> /workspace/ui/b.png]", false},
	        {"", "", 0, true, false, NULL,
	                "{\"ui\":[{\"name\":\"a\",\"path\":\"/p\"}],\"notes\":[\"[ui artifacts: a -> "
	                "/p]\",\"[ui note: "
	                "b is too large]\"]}",
	                "[ui artifacts: a -> /p]\n[ui note: b is too large]", false},
	        {"x\n", "", 0, true, true, NULL, "{\"notes\":[\"[note: y]\"]}",
	                "x\n[output truncated]\n[note: y]", false},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		ntr_autojson json_t *more = rows[i].more ? json_loads(rows[i].more, 0, NULL) : json_object();
		ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
		struct ntr_tool_call call = {.out = rows[i].out,
		        .err = rows[i].err,
		        .out_len = strlen(rows[i].out),
		        .err_len = strlen(rows[i].err),
		        .budget = NTR_TOOLS_BUDGET,
		        .exit_code = rows[i].code,
		        .python = rows[i].python,
		        .truncated = rows[i].cut,
		        .error = rows[i].error,
		        .hints = json_object_get(more, "hints"),
		        .ui = json_object_get(more, "ui"),
		        .notes = json_object_get(more, "notes")};
		bool error = !rows[i].is_error, cut;

		assert_int_equal(ntr_tool_render(&call, &b, &error, &cut), 0);
		assert_string_equal(ntr_buf_cstr(&b), rows[i].want);
		assert_int_equal(error, rows[i].is_error);
		assert_int_equal(cut, rows[i].cut);
	}
}

static void test_render_timeout(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	struct ntr_tool_call call = {
	        .out = "a\n", .out_len = 2, .exit_code = 124, .timed_out = true, .timeout_s = 1.5};

	(void)state;
	assert_int_equal(ntr_tool_render(&call, &b, NULL, NULL), 0);
	assert_string_equal(ntr_buf_cstr(&b),
	        "a\n[exit code 124]\n[hint: the command ran longer than its limit of 1.5 s and was ended, "
	        "with all it "
	        "had started; what it printed and wrote until then is kept. Work in smaller steps, or start "
	        "it in the "
	        "background (`command > log 2>&1 &`) and look at the log in a later call]");
}

/* The budget counts characters, of each stream by itself, and never cuts one in two. */
static void test_render_budget(void **state)
{
	static const struct {
		const char *out, *err;
		size_t budget;
		const char *want;
		bool cut;
	} rows[] = {
	        {"abcdef", "", 6, "abcdef", false},
	        {"abcdef", "", 5, "abcde\n[output truncated]", true},
	        {"abcdef\n", "", 6, "abcdef", false},
	        {"äöü€😀x", "", 6, "äöü€😀x", false},
	        {"äöü€😀x", "", 5, "äöü€😀\n[output truncated]", true},
	        {"ab", "cdef", 3, "ab\n[stderr]\ncde\n[output truncated]", true},
	        {"abc\nd", "", 4, "abc\n[output truncated]", true},
	        {"abcdef", "", 0, "abcdef", false},
	        {"abc\n[output truncated]\n", "", 3, "abc\n[output truncated]", true},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
		struct ntr_tool_call call = {.out = rows[i].out,
		        .err = rows[i].err,
		        .out_len = strlen(rows[i].out),
		        .err_len = strlen(rows[i].err),
		        .budget = rows[i].budget};
		bool cut;

		assert_int_equal(ntr_tool_render(&call, &b, NULL, &cut), 0);
		assert_string_equal(ntr_buf_cstr(&b), rows[i].want);
		assert_int_equal(cut, rows[i].cut);
	}
}

static void test_hints(void **state)
{
	static const struct {
		int code;
		const char *err, *part;
	} rows[] = {
	        {127, "bash: line 1: python: command not found", "python3"},
	        {127, "bash: line 1: pip: command not found", "-m pip"},
	        {127, "bash: line 1: rg: command not found", "grep -rn"},
	        {127, "bash: line 1: vim: command not found", "file_edit"},
	        {127, "bash: line 1: frob: command not found", "command -v"},
	        {126, "bash: ./x: Permission denied", "chmod +x"},
	        {1, "cat: x: Permission denied", NULL},
	        {137, "", "memory"},
	        {1, "error: externally-managed-environment", "venv"},
	        {6, "curl: (6) Could not resolve host: example.com", "no network"},
	        {1, "No space left on device", "disk is full"},
	        {128, "fatal: not a git repository (or any of the parent directories): .git", "git init"},
	        {2, "x: unexpected EOF while looking for matching `\"'", "quote"},
	        {1, "something else", NULL},
	        {0, "command not found", NULL},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		const char *hint = ntr_tool_hint(rows[i].code, rows[i].err);

		if (!hint != !rows[i].part || (hint && !strstr(hint, rows[i].part)))
			fail_msg("%d %s: '%s'", rows[i].code, rows[i].err, hint ? hint : "(none)");
	}
}

/* ---- edits */

#define EXACT  NTR_EDIT_EXACT
#define BLANKS NTR_EDIT_TRAILING_WS
#define INDENT NTR_EDIT_INDENT_FLEXIBLE
#define DONE   NTR_EDIT_ALREADY

static void test_edits(void **state)
{
	static const struct {
		const char *name, *text, *old, *new;
		bool all;
		enum ntr_edit_mode mode;
		unsigned count;
		const char *want; /* with DONE: NULL */
	} rows[] = {
	        {"a word", "one two three\n", "two", "2", false, EXACT, 1, "one 2 three\n"},
	        {"all of them", "a b a b a\n", "a", "x", true, EXACT, 3, "x b x b x\n"},
	        {"one with all", "a b\n", "a", "x", true, EXACT, 1, "x b\n"},
	        {"not overlapping", "aaaa", "aa", "b", true, EXACT, 2, "bb"},
	        {"deletion", "a\nb\nc\n", "b\n", "", false, EXACT, 1, "a\nc\n"},
	        {"backslashes are text", "x = 1\n", "x = 1", "x = '\\1\\n$&'", false, EXACT, 1,
	                "x = '\\1\\n$&'\n"},
	        {"exact wins over blanks", "a \na\n", "a \n", "b\n", false, EXACT, 1, "b\na\n"},
	        {"the new text holds the old", "a\n", "a", "aa", false, EXACT, 1, "aa\n"},
	        {"several lines", "f() {\n\tx;\n}\n", "{\n\tx;\n}", "{\n\ty;\n}", false, EXACT, 1,
	                "f() {\n\ty;\n}\n"},
	        {"umlauts", "größe\n", "größe", "maß", false, EXACT, 1, "maß\n"},

	        {"blanks in the file", "a  \nb\t\nc\n", "a\nb\nc", "x\ny", false, BLANKS, 1, "x\ny\n"},
	        {"blanks in the quote", "a\nb\n", "a  \nb ", "x", false, BLANKS, 1, "x\n"},
	        {"from the middle of a line", "if (a) { \n  b();\n}\n", "{\n  b();\n}", "{}", false, BLANKS,
	                1, "if (a) {}\n"},
	        {"to the middle of a line", "a \nbc d\n", "a\nb", "x", false, BLANKS, 1, "xc d\n"},
	        {"an empty line within", "a\n   \nb\n", "a\n\nb", "c", false, BLANKS, 1, "c\n"},
	        {"an empty line first", "a \nb  \nc", "\nb\nc", "\nx", false, BLANKS, 1, "a\nx"},
	        {"a newline last", "a  \nb\n", "a\n", "x\n", false, BLANKS, 1, "x\nb\n"},
	        {"two, all", "a \nb\na\t\nb\n", "a\nb", "x", true, BLANKS, 2, "x\nx\n"},
	        {"CR LF stays", "a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", false, BLANKS, 1,
	                "x\r\ny\r\nz\r\nc\r\n"},
	        {"one line of CR LF", "a\r\nb\r\n", "a", "x", false, EXACT, 1, "x\r\nb\r\n"},

	        {"indent left out", "def f():\n    if x:\n        y()\n", "if x:\n    y()",
	                "if x:\n    z()\n    w()", false, INDENT, 1,
	                "def f():\n    if x:\n        z()\n        w()\n"},
	        {"indent too much", "a:\n  b\n", "    a:\n      b", "    a:\n      c\n      d", false, INDENT,
	                1, "a:\n  c\n  d\n"},
	        {"tabs for blanks", "f() {\n\tif (x)\n\t\ty();\n}\n", "if (x)\n    y();", "if (x)\n    z();",
	                false, INDENT, 1, "f() {\n\tif (x)\n\t\tz();\n}\n"},
	        {"an empty line in the replacement", "  a\n  b\n", "a\nb", "a\n\nb", false, INDENT, 1,
	                "  a\n\n  b\n"},
	        {"a first line of its own indent", "        if y:\n            z()\n",
	                "\tif y:\n            z()", "\tif y:\n            w()", false, INDENT, 1,
	                "        if y:\n            w()\n"},
	        {"a newline last, another indent", "    a\n    b\n", "a\nb\n", "c\n", false, INDENT, 1,
	                "    c\n"},
	        {"deeper in the replacement", "    a()\n    c()\n", "  a()\n  c()", "  if b:\n    a()\n  c()",
	                false, INDENT, 1, "    if b:\n      a()\n    c()\n"},
	        {"all, each at its own indent", "a\n  b\n    a\n      b\n", "  a\n    b", "  c\n    d", true,
	                INDENT, 2, "c\n  d\n    c\n      d\n"},
	        {"CR LF at another indent", "  a\r\n  b\r\n", "a\nb", "c\nd", false, INDENT, 1,
	                "  c\r\n  d\r\n"},

	        {"already there", "one 2 three\n", "two", "2", false, DONE, 0, NULL},
	        {"already there, of several lines", "a\nx\nb\n", "y\n", "x\nb", false, DONE, 0, NULL},
	        {"already there, a word", "hello new world\n", "old", "new", false, DONE, 0, NULL},
	        {"already there, a line cut short", "  x = 1\n", "x = 1  # why", "x = 1", false, DONE, 0,
	                NULL},
	        {"already there, within a word", "c\nax\n", "b", "x", false, DONE, 0, NULL},
	        {"already there behind a part of a word", "beta b\n", "gamma", "b", false, DONE, 0, NULL},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		ntr_auto(ntr_buf_done) struct ntr_buf got = {0}, why = {0};
		struct ntr_edit ed = {.old = rows[i].old,
		        .new = rows[i].new,
		        .old_len = strlen(rows[i].old),
		        .new_len = strlen(rows[i].new),
		        .replace_all = rows[i].all,
		        .path = "f"};
		enum ntr_edit_mode mode = 9;
		unsigned n = 99;
		int r = ntr_edit_apply(rows[i].text, strlen(rows[i].text), &ed, &got, &n, &mode, &why);

		if (r)
			fail_msg("%s: %d %s", rows[i].name, r, ntr_buf_cstr(&why));
		if (mode != rows[i].mode || n != rows[i].count)
			fail_msg("%s: %s, %u", rows[i].name, ntr_edit_mode_word(mode), n);
		if (rows[i].want && strcmp(ntr_buf_cstr(&got), rows[i].want) != 0)
			fail_msg("%s: '%s'", rows[i].name, ntr_buf_cstr(&got));
		assert_int_equal(why.len, 0);
	}
}

static void test_edit_errors(void **state)
{
	static const struct {
		const char *text, *old, *new;
		bool all;
		const char *want;
	} rows[] = {
	        {"a\n", "", "x", false, "old_string is empty; to write a whole file use file_write"},
	        {"a\n", "a", "a", false, "old_string and new_string are identical"},
	        {"a b a\n", "a", "x", false,
	                "old_string appears 2 times in f; quote more of what stands around the one you mean, "
	                "or pass "
	                "replace_all to change all of them"},
	        {"a \nb\na\t\nb\n", "a\nb", "x", false,
	                "old_string, blanks at the ends of lines aside, appears 2 times in f; quote more of "
	                "what stands "
	                "around the one you mean, or pass replace_all to change all of them"},
	        {"  a\n    a\n", "\ta", "x", false,
	                "old_string, the indent aside, appears 2 times in f; quote more of what stands "
	                "around the one you "
	                "mean, or pass replace_all to change all of them"},
	        {"def one():\n    return 1\n\ndef two():\n    return 2\n\ndef three():\n    return 3\n",
	                "def too():\n    return 2", "x", false,
	                "old_string was not found in f. Did you mean these lines?\n"
	                "     1 | def one():\n     2 |     return 1\n     3 | \n>    4 | def two():\n>    5 "
	                "|     return 2\n"
	                "     6 | \n     7 | def three():\n     8 |     return 3"},
	        {"alpha\nbeta\n", "completely different", "x", true,
	                "old_string was not found in f. Nothing in it is like:\ncompletely different"},
	        {"", "anything", "x", false,
	                "old_string was not found in f. Nothing in it is like:\nanything"},
	        {"a\n", "b", "", false, "old_string was not found in f. Nothing in it is like:\nb"},
	        {"  a\n      b\n  c\n", "a\nb\nc", "x", false,
	                NULL}, /* bodies moved by different amounts are another text */
	        {"a\nb\n", " \n\t\n", "x", false, NULL}, /* blanks alone fit nowhere */
	        /* the replacement is there by chance */
	        {"alpha beta gamma\n", "alpha beta gama", "b", false, NULL},
	        {"alpha beta gamma\n", "alpha beta gama", "beta", false, NULL},
	        {"x = ab\n", "x = c", "a", false, NULL},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		ntr_auto(ntr_buf_done) struct ntr_buf got = {0}, why = {0};
		struct ntr_edit ed = {.old = rows[i].old,
		        .new = rows[i].new,
		        .old_len = strlen(rows[i].old),
		        .new_len = strlen(rows[i].new),
		        .replace_all = rows[i].all,
		        .path = "f"};
		enum ntr_edit_mode mode;
		unsigned n;
		int r = ntr_edit_apply(rows[i].text, strlen(rows[i].text), &ed, &got, &n, &mode, &why);

		if (r != -EINVAL)
			fail_msg("%s -> %s: %d, '%s'", rows[i].old, rows[i].new, r, ntr_buf_cstr(&got));
		if (rows[i].want)
			assert_string_equal(ntr_buf_cstr(&why), rows[i].want);
		assert_int_equal(got.len, 0);
	}
}

/* A quote that is not found and long: cut between characters. */
static void test_edit_preview(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf got = {0}, why = {0};
	char old[402];
	struct ntr_edit ed = {.old = old, .new = "x", .old_len = 401, .new_len = 1, .path = "f"};
	enum ntr_edit_mode mode;
	ntr_autojson json_t *text = NULL;
	unsigned n;

	(void)state;
	old[0] = 'a';
	for (size_t i = 1; i < 401; i += 2)
		memcpy(old + i, "\xc3\xa4", 2);
	assert_int_equal(ntr_edit_apply("1\n", 2, &ed, &got, &n, &mode, &why), -EINVAL);
	text = json_stringn((const char *)why.data, why.len); /* refuses what is no UTF-8 */
	assert_non_null(text);
	assert_string_equal(ntr_buf_cstr(&why) + why.len - 5, "\xc3\xa4...");
}

/* Random quotes out of random texts: what was quoted exactly is found where it was; whatever mode, one place
 * is changed and the rest stays. */
static void test_edit_random(void **state)
{
	uint64_t x = 20261129;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		static const char alphabet[] = "ab \t\n{";
		ntr_auto(ntr_buf_done) struct ntr_buf got = {0}, why = {0};
		char text[65], old[33];
		size_t len, at, n;
		struct ntr_edit ed = {.old = old, .new = "NEW", .new_len = 3, .path = "f"};
		enum ntr_edit_mode mode;
		unsigned count;
		int r;

		x = x * 6364136223846793005u + 1442695040888963407u;
		len = 1 + (x >> 33) % 63;
		for (size_t i = 0; i < len; i++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			text[i] = alphabet[(x >> 33) % (sizeof alphabet - 1)];
		}
		at = (x >> 40) % len;
		n = 1 + (x >> 45) % NTR_MIN(len - at, sizeof old - 1);
		memcpy(old, text + at, n);
		if (round % 3 == 1 && old[n - 1] != ' ')
			old[n < sizeof old - 1 ? n++ : n - 1] = ' '; /* blanks too many */
		ed.old_len = n;
		ed.replace_all = round % 2;
		r = ntr_edit_apply(text, len, &ed, &got, &count, &mode, &why);
		assert_true(!r || r == -EINVAL);
		if (r || mode == NTR_EDIT_ALREADY)
			continue;
		assert_true(count >= 1 && (count == 1 || ed.replace_all));
		if (mode == NTR_EDIT_EXACT)
			assert_int_equal(got.len, len + count * 3 - count * n);
		n = 0;
		for (const char *p = ntr_buf_cstr(&got); (p = strstr(p, "NEW")); p += 3)
			n++;
		assert_int_equal(n, count);
	}
}

static void test_similar(void **state)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0}, big = {0};
	char line[64];

	(void)state;
	/* the best of many, and a large file takes no time */
	for (int i = 0; i < 20000; i++) {
		snprintf(line, sizeof line, "    value_%d = compute(%d, %d)\n", i, i * 7, i * 13);
		ntr_buf_str(&big, line);
	}
	assert_int_equal(
	        ntr_edit_similar((const char *)big.data, big.len, "value_777 = compute(5439, 10100)", 32, &b),
	        0);
	assert_non_null(strstr(ntr_buf_cstr(&b), ">  778 |     value_777 = compute(5439, 10101)"));
	b.len = 0;
	/* long lines are cut */
	big.len = 0;
	for (int i = 0; i < 100; i++)
		ntr_buf_str(&big, "abcdefghij");
	assert_int_equal(
	        ntr_edit_similar((const char *)big.data, big.len, (const char *)big.data, 900, &b), 0);
	assert_int_equal(b.len, 9 + 200 + 3);
	/* more lines than the file has: nothing is like it */
	b.len = 0;
	assert_int_equal(ntr_edit_similar("a\nb\n", 4, "a\nb\nc", 5, &b), 0);
	assert_int_equal(b.len, 0);
}

/* ---- images */

static void test_images(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *kind, *other;
	} rows[] = {
	        {"\x89PNG\r\n\x1a\n....", 12, "png", NULL},
	        {"\xff\xd8\xff\xe0....", 8, "jpeg", NULL},
	        {"GIF87a..", 8, "gif", NULL},
	        {"GIF89a..", 8, "gif", NULL},
	        {"RIFF\0\0\0\0WEBPVP8 ", 16, "webp", NULL},
	        {"RIFF\0\0\0\0WAVEfmt ", 16, NULL, "other data"},
	        {"\x89PNG", 4, NULL, "text"},
	        {"", 0, NULL, "empty"},
	        {"%PDF-1.7", 8, NULL, "a PDF"},
	        {"<svg xmlns", 10, NULL, "an SVG image"},
	        {"BM....", 6, NULL, "a BMP image"},
	        {"hello", 5, NULL, "text"},
	        {"\0\0\0\x1c"
	         "ftypavif",
	                12, NULL, "HEIF, AVIF or a video"},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		const char *kind = ntr_image_kind(rows[i].bytes, rows[i].n);

		if (rows[i].kind)
			assert_string_equal(kind, rows[i].kind);
		else
			assert_null(kind);
		if (rows[i].other)
			assert_string_equal(ntr_image_other(rows[i].bytes, rows[i].n), rows[i].other);
	}
}

/* ---- the list */

static void names_are(const struct ntr_tools_options *o, const char *want)
{
	ntr_autojson json_t *list = ntr_tools_list(o);
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	const json_t *x;
	size_t i;

	assert_non_null(list);
	json_array_foreach (list, i, x) {
		const json_t *schema = json_object_get(x, "inputSchema"), *need, *props;
		const json_t *hints = json_object_get(x, "annotations");
		size_t k;

		ntr_buf_printf(&b, "%s%s", i ? " " : "", ntr_json_str(x, "name", "?"));
		assert_true(strlen(ntr_json_str(x, "description", "")) > 100);
		assert_true(strlen(ntr_json_str(x, "title", "")) > 3);
		assert_string_equal(ntr_json_str(schema, "type", ""), "object");
		assert_false(ntr_json_bool(schema, "additionalProperties", true));
		props = json_object_get(schema, "properties");
		assert_true(json_is_object(props));
		json_array_foreach (json_object_get(schema, "required"), k, need)
			assert_non_null(json_object_get(props, json_string_value(need)));
		assert_true(json_is_boolean(json_object_get(hints, "readOnlyHint")));
		assert_true(json_is_boolean(json_object_get(hints, "destructiveHint")));
		assert_true(ntr_tool_known(ntr_json_str(x, "name", "?")));
	}
	assert_string_equal(ntr_buf_cstr(&b), want);
}

static void test_list(void **state)
{
	ntr_autojson json_t *objects = json_pack("[s]", "db");
	struct ntr_tools_options o = {.wsroot = "/workspace"};

	(void)state;
	names_are(&o, "terminal run_python file_write file_edit view_image");
	o.mode = NTR_TOOLS_TERMINAL;
	names_are(&o, "terminal file_write file_edit view_image");
	o.mode = NTR_TOOLS_SPLIT;
	o.no_images = o.versions = true;
	names_are(&o, "terminal run_python file_write file_edit history diff fork rollback");
	o = (struct ntr_tools_options){.wsroot = "/w", .no_cache = true};
	names_are(&o,
	        "terminal file_write file_edit view_image"); /* a plain python tells no lies in the shell */
	o.objects = objects;
	names_are(&o, "terminal run_python file_write file_edit view_image");
	assert_false(ntr_tool_known("run_ruby"));
}

static const char *description(const struct ntr_tools_options *o, const char *name)
{
	static char text[8192];
	ntr_autojson json_t *list = ntr_tools_list(o);
	const json_t *x;
	size_t i;

	json_array_foreach (list, i, x)
		if (!strcmp(ntr_json_str(x, "name", ""), name))
			snprintf(text, sizeof text, "%s", ntr_json_str(x, "description", ""));
	return text;
}

static void has(const char *text, const char *part, bool wanted)
{
	if (!strstr(text, part) == wanted)
		fail_msg("'%s' is %s: %s", part, wanted ? "missing" : "there", text);
}

static void test_descriptions(void **state)
{
	ntr_autojson json_t *objects = json_pack("[s,s]", "db", "mail");
	struct ntr_tools_options o = {
	        .wsroot = "/srv/ws", .terminal_primer = "TERM.", .python_primer = "PY."};
	const char *d = description(&o, "terminal");

	(void)state;
	has(d, "/srv/ws", true);
	has(d, "ONE call a turn", true);
	has(d, "\n\nTERM.", true);
	has(d, "PY.", false);
	has(d, "%s", false);
	d = description(&o, "run_python");
	has(d, "/srv/ws", true);
	has(d, "- cache:", true);
	has(d, "\n\nPY.", true);
	has(d, "ONE call a turn", true);
	has(d, "of the program around", false);
	has(d, "NO network", false);
	has(d, "%s", false);
	o.objects = objects;
	o.no_cache = o.offline = true;
	o.modules = "numpy, pandas";
	d = description(&o, "run_python");
	has(d, "- cache:", false);
	has(d, "by name: db, mail.", true);
	has(d, "beside the standard library: numpy, pandas.", true);
	has(d, "NO network", true);
	o.mode = NTR_TOOLS_TERMINAL;
	d = description(&o, "terminal");
	has(d, "python3 - <<'EOF'", true);
	has(d, "\n\nTERM.", true);
	has(d, "\n\nPY.", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_render),
	        cmocka_unit_test(test_render_timeout),
	        cmocka_unit_test(test_render_budget),
	        cmocka_unit_test(test_hints),
	        cmocka_unit_test(test_edits),
	        cmocka_unit_test(test_edit_errors),
	        cmocka_unit_test(test_edit_preview),
	        cmocka_unit_test(test_edit_random),
	        cmocka_unit_test(test_similar),
	        cmocka_unit_test(test_images),
	        cmocka_unit_test(test_list),
	        cmocka_unit_test(test_descriptions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
