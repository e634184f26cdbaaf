/* json: bytes that are no UTF-8, base64, vectors of strings, members with defaults, times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/util.h"

#include <errno.h>

static uint64_t rnd_state = 20261129;

static unsigned rnd(unsigned n)
{
	rnd_state = rnd_state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(rnd_state >> 33) % n;
}

/* Through text and back, as on the wire. */
static json_t *travelled(json_t *j)
{
	ntr_autojson json_t *box = json_pack("{s:o}", "v", j);
	ntr_autofree char *text = NULL;
	ntr_autojson json_t *got = NULL;

	assert_non_null(box);
	text = json_dumps(box, JSON_COMPACT);
	assert_non_null(text);
	got = json_loads(text, JSON_ALLOW_NUL, NULL);
	assert_non_null(got);
	return json_incref(json_object_get(got, "v"));
}

static void assert_round(json_t *made, const void *p, size_t n)
{
	ntr_autojson json_t *j = travelled(made);
	ntr_autofree char *got = NULL;
	size_t len = n + 1;

	assert_int_equal(ntr_json_get_bytes(j, &got, &len), 0);
	assert_int_equal(len, n);
	assert_memory_equal(got, p, n);
	assert_int_equal(got[n], '\0');
}

static const struct utf8_case {
	const char *text;
	size_t n;
	bool valid;
} utf8[] = {
        {"", 0, true},
        {"plain", 5, true},
        {"a\0b", 3, true},
        {"\xC3\xA9", 2, true},
        {"\xE2\x82\xAC", 3, true},
        {"\xF0\x9F\x98\x80", 4, true},
        {"\xED\x9F\xBF", 3, true},      /* the last before the surrogates */
        {"\xF4\x8F\xBF\xBF", 4, true},  /* U+10FFFF */
        {"\xED\xA0\x80", 3, false},     /* a surrogate */
        {"\xF4\x90\x80\x80", 4, false}, /* above U+10FFFF */
        {"\xC0\xAF", 2, false},         /* overlong '/' */
        {"\xC1\xBF", 2, false},
        {"\xE0\x9F\xBF", 3, false},
        {"\xF0\x8F\xBF\xBF", 4, false},
        {"\x80", 1, false}, /* a continuation alone */
        {"\xC3", 1, false},
        {"\xE2\x82", 2, false}, /* cut short */
        {"\xC3(", 2, false},
        {"\xFF\xFE", 2, false},
        {"\xF5\x80\x80\x80", 4, false},
        {"ok\xFFok", 5, false},
};

static void test_bytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < NTR_COUNT(utf8); i++) {
		json_t *j = ntr_json_bytes(utf8[i].text, utf8[i].n);

		assert_non_null(j);
		if (json_is_string(j) != utf8[i].valid)
			fail_msg("case %zu: string %d", i, json_is_string(j));
		assert_round(j, utf8[i].text, utf8[i].n);
	}
}

static void test_bytes_random(void **state)
{
	uint8_t p[64];

	(void)state;
	print_message("seed %llu\n", (unsigned long long)rnd_state);
	for (int i = 0; i < 20000; i++) {
		size_t n = rnd(sizeof p);
		bool narrow = rnd(2);

		for (size_t k = 0; k < n; k++)
			p[k] = (uint8_t)(narrow ? 0x7E + rnd(8) : rnd(256));
		assert_round(ntr_json_bytes(p, n), p, n);
		assert_round(ntr_json_base64(p, n), p, n);
	}
}

static void test_base64(void **state)
{
	static const struct {
		const char *text, *b64;
	} rfc[] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="},
	        {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rfc); i++) {
		ntr_autojson json_t *j = ntr_json_base64(rfc[i].text, strlen(rfc[i].text));

		assert_string_equal(json_string_value(json_object_get(j, "base64")), rfc[i].b64);
	}
}

static void test_base64_refused(void **state)
{
	static const char *const bad[] = {"A", "AA", "AAA", "AAAAA", "=AAA", "A===", "====", "AA=A",
	        "AA==AAAA", "AA-_", "AA A", "AA\nA", "Zm9v\xC3\xA9"};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		ntr_autojson json_t *j = json_pack("{s:s}", "base64", bad[i]);
		char *got = NULL;

		if (ntr_json_get_bytes(j, &got, NULL) != -EINVAL)
			fail_msg("'%s' was taken as base64", bad[i]);
		assert_null(got);
	}
}

static void test_bytes_refused(void **state)
{
	ntr_autojson json_t *num = json_integer(1), *empty = json_object(),
	                    *other = json_pack("{s:i}", "base64", 1), *arr = json_pack("[s]", "x");
	const json_t *const bad[] = {NULL, num, empty, other, arr, json_null()};
	char *got = NULL;

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(bad); i++)
		assert_int_equal(ntr_json_get_bytes(bad[i], &got, NULL), -EINVAL);
	assert_null(got);
}

static void test_text(void **state)
{
	static const struct {
		const char *in, *out;
		size_t n;
	} v[] = {{"fine", "fine", 4},
	        {"a\xFF"
	         "b",
	                "a\xEF\xBF\xBD"
	                "b",
	                3},
	        {"\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD", 2}, {"\xFF", "\xEF\xBF\xBD", 1},
	        {"\xED\xA0\x80!", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD!", 4},
	        {"\xC3\xA9\xC3", "\xC3\xA9\xEF\xBF\xBD", 3}};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(v); i++) {
		ntr_autojson json_t *j = travelled(ntr_json_text(v[i].in, v[i].n));

		assert_string_equal(json_string_value(j), v[i].out);
	}
	for (size_t i = 0; i < NTR_COUNT(utf8); i++) {
		ntr_autojson json_t *j = travelled(ntr_json_text(utf8[i].text, utf8[i].n));

		if (utf8[i].valid)
			assert_memory_equal(json_string_value(j), utf8[i].text, utf8[i].n);
	}
}

static void test_strv(void **state)
{
	char *v[] = {(char[]){""}, (char[]){"a b"}, (char[]){"\xFF\x01"}, (char[]){"X=\xC3\xA9"}, NULL};
	ntr_autojson json_t *j = travelled(ntr_json_strv(v)), *none = ntr_json_strv(NULL);
	char **got, **empty;

	(void)state;
	assert_int_equal(ntr_json_get_strv(j, &got), 0);
	for (size_t i = 0; i < NTR_COUNT(v) - 1; i++)
		assert_string_equal(got[i], v[i]);
	assert_null(got[NTR_COUNT(v) - 1]);
	ntr_strv_free(got);
	assert_int_equal(json_array_size(none), 0);
	assert_int_equal(ntr_json_get_strv(none, &empty), 0);
	assert_null(empty[0]);
	ntr_strv_free(empty);
	ntr_strv_free(NULL);
}

static void test_strv_refused(void **state)
{
	ntr_autojson json_t *nul = json_pack("[s%]", "a\0b", (size_t)3),
	                    *b64 = json_pack("[s,{s:s}]", "x", "base64", "AAAA"),
	                    *num = json_pack("[s,i]", "x", 1), *str = json_string("x"), *obj = json_object();
	const json_t *const bad[] = {nul, b64, num, str, obj, NULL};
	char **got = NULL;

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(bad); i++)
		assert_int_equal(ntr_json_get_strv(bad[i], &got), -EINVAL);
	assert_null(got);
}

static void test_members(void **state)
{
	ntr_autojson json_t *o = json_pack(
	        "{s:s,s:I,s:b,s:f}", "str", "x", "int", (json_int_t)1 << 40, "bool", 1, "real", 2.5);

	(void)state;
	assert_string_equal(ntr_json_str(o, "str", "d"), "x");
	assert_string_equal(ntr_json_str(o, "int", "d"), "d");
	assert_string_equal(ntr_json_str(o, "none", "d"), "d");
	assert_null(ntr_json_str(NULL, "str", NULL));
	assert_true(ntr_json_int(o, "int", 7) == INT64_C(1) << 40);
	assert_int_equal(ntr_json_int(o, "real", 7), 7);
	assert_int_equal(ntr_json_int(o, "str", -7), -7);
	assert_true(ntr_json_bool(o, "bool", false));
	assert_true(ntr_json_bool(o, "int", true));
	assert_false(ntr_json_bool(o, "int", false));
	assert_true(ntr_json_real(o, "real", 0) > 2.4 && ntr_json_real(o, "real", 0) < 2.6);
	assert_true(ntr_json_real(o, "int", 0) > 1e12); /* a whole number is a number */
	assert_true(ntr_json_real(o, "str", 9) > 8);
}

static void test_time(void **state)
{
	char buf[32];

	(void)state;
	ntr_time_format(0, buf);
	assert_string_equal(buf, "1970-01-01T00:00:00.000000000Z");
	ntr_time_format(1795953600123456789u, buf);
	assert_string_equal(buf, "2026-11-29T12:00:00.123456789Z");
	ntr_time_format(UINT64_C(4102444799999999999), buf);
	assert_string_equal(buf, "2099-12-31T23:59:59.999999999Z");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bytes),
	        cmocka_unit_test(test_bytes_random),
	        cmocka_unit_test(test_base64),
	        cmocka_unit_test(test_base64_refused),
	        cmocka_unit_test(test_bytes_refused),
	        cmocka_unit_test(test_text),
	        cmocka_unit_test(test_strv),
	        cmocka_unit_test(test_strv_refused),
	        cmocka_unit_test(test_members),
	        cmocka_unit_test(test_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
