/* The texts of a comparison, and paths. The expected layouts are what git 2.39 prints for the same numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "cli/ntrd_difftext.h"

#include <errno.h>
#include <stdio.h>

#define LONG "a/very/long/directory/name/that/goes/on/and/on/for/more/than/fifty/columns/file.txt"

static char name_long[] = LONG, name_big[] = "big", name_empty[] = "empty", name_gone[] = "gone",
            name_new[] = "new", name_small[] = "small", name_tab[] = "\"tab\\tname\"",
            name_uml[] = "\"uml\\303\\244ut\"";

static const struct ntrd_stat_line lines[] = {{name_long, 10, 10}, {name_big, 300, 500}, {name_empty, 0, 0},
        {name_gone, 0, 7}, {name_new, 1, 0}, {name_small, 1, 0}, {name_tab, 1, 0}, {name_uml, 1, 0}};

static void expect_stat(const struct ntrd_stat_line *v, size_t n, int width, const char *want)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	assert_int_equal(ntrd_stat_format(v, n, width, &b), 0);
	assert_string_equal(ntr_buf_cstr(&b), want);
}

static void test_stat_80(void **state)
{
	(void)state;
	expect_stat(lines, NTR_COUNT(lines), 80,
	        " .../on/and/on/for/more/than/fifty/columns/file.txt |  20 +-\n"
	        " big                                                | 800 ++++++++-------------\n"
	        " empty                                              |   0\n"
	        " gone                                               |   7 -\n"
	        " new                                                |   1 +\n"
	        " small                                              |   1 +\n"
	        " \"tab\\tname\"                                        |   1 +\n"
	        " \"uml\\303\\244ut\"                                    |   1 +\n"
	        " 8 files changed, 314 insertions(+), 517 deletions(-)\n");
}

static void test_stat_40(void **state)
{
	(void)state;
	expect_stat(lines, NTR_COUNT(lines), 40,
	        " .../columns/file.txt      |  20 +-\n"
	        " big                       | 800 ++----\n"
	        " empty                     |   0\n"
	        " gone                      |   7 -\n"
	        " new                       |   1 +\n"
	        " small                     |   1 +\n"
	        " \"tab\\tname\"               |   1 +\n"
	        " \"uml\\303\\244ut\"           |   1 +\n"
	        " 8 files changed, 314 insertions(+), 517 deletions(-)\n");
}

static void test_stat_200(void **state)
{
	static const struct ntrd_stat_line two[] = {{name_long, 10, 10}, {name_big, 300, 500}};

	(void)state;
	expect_stat(two, 2, 200,
	        " " LONG " |  20 +--\n"
	        " big                                                                                 | 800 "
	        "+++++++++++++++++++++++++++++++++++++++++"
	        "-------------------------------------------------------------------\n"
	        " 2 files changed, 310 insertions(+), 510 deletions(-)\n");
}

static void test_stat_small(void **state)
{
	static const struct ntrd_stat_line gone = {name_gone, 0, 7}, one = {name_new, 1, 0},
	                                   mode = {name_empty, 0, 0},
	                                   bin[] = {{name_big, -1, -1}, {name_new, 1, 1}};

	(void)state;
	expect_stat(NULL, 0, 80, "");
	expect_stat(&gone, 1, 80, " gone | 7 -------\n 1 file changed, 7 deletions(-)\n");
	expect_stat(&one, 1, 80, " new | 1 +\n 1 file changed, 1 insertion(+)\n");
	expect_stat(&mode, 1, 80, " empty | 0\n 1 file changed, 0 insertions(+), 0 deletions(-)\n");
	expect_stat(
	        bin, 2, 80, " big | Bin\n new |   2 +-\n 2 files changed, 1 insertion(+), 1 deletion(-)\n");
	/* less room than anything needs, more changes than an int holds */
	expect_stat(&gone, 1, 1, " gone | 7 -------\n 1 file changed, 7 deletions(-)\n");
	expect_stat(&(struct ntrd_stat_line){name_new, INT64_C(5000000000), 1}, 1, 20,
	        " new | 5000000001 ++++++++++++-\n 1 file changed, 5000000000 insertions(+), 1 "
	        "deletion(-)\n");
}

static void expect_quoted(const char *path, const char *want)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	assert_int_equal(ntrd_path_quote(&b, path), 0);
	assert_string_equal(ntr_buf_cstr(&b), want);
}

static void test_quote(void **state)
{
	(void)state;
	expect_quoted("a b/c.txt", "a b/c.txt");
	expect_quoted("say \"hi\"", "\"say \\\"hi\\\"\"");
	expect_quoted("back\\slash", "\"back\\\\slash\"");
	expect_quoted("\a\b\t\n\v\f\r", "\"\\a\\b\\t\\n\\v\\f\\r\"");
	expect_quoted("\x01\x7f\xff", "\"\\001\\177\\377\"");
}

static void expect_relative(const char *path, const char *want)
{
	ntr_autofree char *got = NULL;

	assert_int_equal(ntrd_path_relative("/srv/space", path, &got), 0);
	assert_string_equal(got, want);
}

static void test_relative(void **state)
{
	static const char *const outside[] = {
	        "/", "/srv", "/srv/spaces", "/srv/space/../x", "..", "a/..", "/etc/passwd"};
	char *got = NULL;

	(void)state;
	expect_relative("a/b", "a/b");
	expect_relative("./a//b/.", "a/b");
	expect_relative("a/b/", "a/b");
	expect_relative("/srv/space/a", "a");
	expect_relative("/srv/space//a/", "a");
	expect_relative("/srv/space", "");
	expect_relative("/srv/space/", "");
	expect_relative(".", "");
	expect_relative("", "");
	expect_relative("...", "...");
	expect_relative("..a", "..a");
	for (size_t i = 0; i < NTR_COUNT(outside); i++)
		assert_int_equal(ntrd_path_relative("/srv/space", outside[i], &got), -EINVAL);
}

static struct ntr_diff_entry entry(const char *path, enum ntr_diff_kind kind)
{
	return (struct ntr_diff_entry){.path = (char *)(uintptr_t)path, .kind = kind};
}

static void test_names(void **state)
{
	struct ntr_diff_entry v[] = {entry("a", NTR_DIFF_CREATED), entry("b\nc", NTR_DIFF_MODIFIED),
	        entry("d", NTR_DIFF_DELETED), entry("e", NTR_DIFF_TYPE)};
	struct ntr_diff d = {.v = v, .n = NTR_COUNT(v)};
	char buf[128] = "";
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	assert_int_equal(ntrd_diff_names(&d, p[1]), 0);
	assert_true(read(p[0], buf, sizeof buf - 1) > 0);
	assert_string_equal(buf, "A\ta\nM\t\"b\\nc\"\nD\td\nT\te\n");
	close(p[0]);
	close(p[1]);
	assert_int_equal(ntrd_diff_names(&d, -1), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_stat_80),
	        cmocka_unit_test(test_stat_40),
	        cmocka_unit_test(test_stat_200),
	        cmocka_unit_test(test_stat_small),
	        cmocka_unit_test(test_quote),
	        cmocka_unit_test(test_relative),
	        cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
