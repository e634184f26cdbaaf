/* err: texts in three parts, cut at their sizes, defaults that do not hide what is known better. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>

static const char *formatted(const struct ntr_err *e)
{
	static char text[2048];

	memset(text, 'x', sizeof text);
	ntr_err_format(e, text, sizeof text);
	return text;
}

static void test_parts(void **state)
{
	struct ntr_err e = {0};

	(void)state;
	assert_int_equal(ntr_err_set(&e, -ENOENT, "open session '%s'", "x"), -ENOENT);
	assert_string_equal(formatted(&e), "open session 'x': No such file or directory");
	assert_int_equal(ntr_err_why(&e, "no such session: %d", 7), -ENOENT);
	assert_string_equal(formatted(&e), "open session 'x': no such session: 7");
	assert_int_equal(ntr_err_todo(&e, "make it with `ntr new %s`", "x"), -ENOENT);
	assert_string_equal(formatted(&e), "open session 'x': no such session: 7; make it with `ntr new x`");
}

/* Beginning an error again leaves nothing of the one before. */
static void test_begin_again(void **state)
{
	struct ntr_err e = {0};

	(void)state;
	ntr_err_full(&e, -EIO, "first", "old reason", "old advice");
	assert_string_equal(formatted(&e), "first: old reason; old advice");
	ntr_err_set(&e, -EPERM, "second");
	assert_string_equal(formatted(&e), "second: Operation not permitted");
	assert_int_equal(ntr_err_full(&e, -EIO, "third", NULL, NULL), -EIO);
	assert_string_equal(formatted(&e),
	        "third: Input/output error; check the disk (`dmesg` names it), then run `ntr fsck`");
	ntr_err_full(&e, -EIO, "fourth %s", NULL, "do %n nothing"); /* plain texts, no formats */
	assert_string_equal(formatted(&e), "fourth %s: Input/output error; do %n nothing");
}

static void test_default(void **state)
{
	struct ntr_err e = {0};

	(void)state;
	assert_int_equal(ntr_err_default(&e, -EIO, "read %s", "block"), -EIO);
	assert_string_equal(formatted(&e),
	        "read block: Input/output error; check the disk (`dmesg` names it), then run `ntr fsck`");
	assert_int_equal(ntr_err_default(&e, -ENOENT, "something above"), -ENOENT);
	assert_int_equal(e.code, -EIO);
	assert_string_equal(formatted(&e),
	        "read block: Input/output error; check the disk (`dmesg` names it), then run `ntr fsck`");
}

static void test_null(void **state)
{
	(void)state;
	assert_int_equal(ntr_err_set(NULL, -EIO, "x"), -EIO);
	assert_int_equal(ntr_err_default(NULL, -EIO, "x"), -EIO);
	assert_int_equal(ntr_err_full(NULL, -EIO, "x", "y", "z"), -EIO);
	assert_int_equal(ntr_err_why(NULL, "x"), -EINVAL); /* never success: functions end with it */
	assert_int_equal(ntr_err_todo(NULL, "x"), -EINVAL);
}

static void test_empty(void **state)
{
	const struct ntr_err e = {0}, bare = {.code = -ENOTDIR};

	(void)state;
	assert_string_equal(ntr_err_reason(&e), "no error");
	assert_string_equal(formatted(&e), "ntr: no error");
	assert_string_equal(formatted(&bare), "ntr: Not a directory");
}

/* Where nobody says what to do the errno may. */
static void test_advice(void **state)
{
	struct ntr_err e = {0};

	(void)state;
	assert_string_equal(ntr_err_advice(&e), "");
	ntr_err_set(&e, -ENOSPC, "write x");
	assert_non_null(strstr(formatted(&e), "write x: No space left on device; free some space"));
	ntr_err_todo(&e, "do that");
	assert_string_equal(formatted(&e), "write x: No space left on device; do that");
	ntr_err_set(&e, -EPERM, "write x");
	assert_string_equal(ntr_err_advice(&e), "");
}

/* A message is one line, and speaks to the reader only, whatever the names in it hold. */
static void test_control_characters(void **state)
{
	struct ntr_err e = {0};

	(void)state;
	ntr_err_set(&e, -ENOENT, "open 'a\nb\033[31m'");
	ntr_err_why(&e, "\x7f\t");
	ntr_err_todo(&e, "schön\r");
	assert_string_equal(formatted(&e), "open 'a?b?[31m': ??; schön?");
}

/* Each part is cut at its size, the line at the caller's; all of it stays terminated. */
static void test_cut(void **state)
{
	char word[2000], small[10], text[4096];
	struct ntr_err e;

	(void)state;
	memset(word, 'w', sizeof word - 1);
	word[sizeof word - 1] = '\0';
	ntr_err_set(&e, -EIO, "%s", word);
	ntr_err_why(&e, "%s", word);
	ntr_err_todo(&e, "%s", word);
	assert_int_equal(strlen(e.what), sizeof e.what - 1);
	assert_int_equal(strlen(e.why), sizeof e.why - 1);
	assert_int_equal(strlen(e.todo), sizeof e.todo - 1);
	ntr_err_format(&e, text, sizeof text);
	assert_int_equal(strlen(text), strlen(e.what) + 2 + strlen(e.why) + 2 + strlen(e.todo));
	memset(small, 'x', sizeof small);
	ntr_err_format(&e, small, 5);
	assert_memory_equal(small, "wwww\0xxxxx", sizeof small);
}

static void test_print(void **state)
{
	struct ntr_err e;
	char text[256];
	int saved = dup(2), p[2];
	ssize_t n;

	(void)state;
	assert_int_equal(pipe(p), 0);
	ntr_err_full(&e, -EIO, "commit", "the disk is on fire", "put it out");
	fflush(stderr);
	dup2(p[1], 2);
	ntr_err_print(&e);
	fflush(stderr);
	dup2(saved, 2);
	n = read(p[0], text, sizeof text - 1);
	assert_true(n > 0);
	text[n] = '\0';
	assert_string_equal(text, "ntr: commit: the disk is on fire; put it out\n");
	close(saved);
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_parts),
	        cmocka_unit_test(test_begin_again),
	        cmocka_unit_test(test_default),
	        cmocka_unit_test(test_null),
	        cmocka_unit_test(test_empty),
	        cmocka_unit_test(test_advice),
	        cmocka_unit_test(test_control_characters),
	        cmocka_unit_test(test_cut),
	        cmocka_unit_test(test_print),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
