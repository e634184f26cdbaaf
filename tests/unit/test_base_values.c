/* value: what is one and what is not, one text for one value, texts and bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "base/value.h"

#include <errno.h>
#include <stdio.h>

static json_t *parsed(const char *text)
{
	char why[NTR_VALUE_WHY];
	json_t *v = NULL;

	if (ntr_value_parse(text, strlen(text), &v, why))
		fail_msg("%s: %s", text, why);
	return v;
}

/* text -> the one text of its value; NULL: the same. */
static void test_dump(void **state)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
	        {"null", NULL},
	        {"true", NULL},
	        {"-9223372036854775808", NULL},
	        {"0.1", NULL},
	        {"1.0", NULL},
	        {"1e5", "100000.0"},
	        {"1E+22", "1e+22"},
	        {"0.30000000000000004", NULL},
	        {"5e-324", "4.94065645841247e-324"},
	        {"-0.0", NULL},
	        {"2.5e-7", "2.5e-07"},
	        {"\"a\\u00e9\\n\\\"\"", "\"aé\\n\\\"\""},
	        {"\"\\ud83d\\ude00\"", "\"😀\""},
	        {" [ 1 , [ ] , { } ] ", "[1,[],{}]"},
	        {"{\"b\": 1, \"a\": {\"$x\": 2}}", "{\"b\":1,\"a\":{\"$x\":2}}"},
	        {"{\"\": 0, \"a\\nb\": 1}", "{\"\":0,\"a\\nb\":1}"},
	        {"{\"$\":\"tuple\",\"v\":[1,{\"$\":\"bytes\",\"b64\":\"AA==\"}]}", NULL},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		ntr_autojson json_t *v = parsed(rows[i].text), *again = NULL;
		size_t len = 0;
		ntr_autofree char *text = ntr_value_dump(v, &len);

		assert_non_null(text);
		assert_string_equal(text, rows[i].want ? rows[i].want : rows[i].text);
		assert_int_equal(len, strlen(text));
		again = parsed(text);
		assert_true(json_equal(v, again));
	}
}

static void test_numbers_come_back(void **state)
{
	uint64_t x = 88172645463325252u;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		ntr_autojson json_t *v = NULL, *again = NULL;
		ntr_autofree char *text = NULL;
		double d;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(&d, &x, sizeof d);
		v = json_real(d);
		if (!v)
			continue; /* not finite */
		text = ntr_value_dump(v, NULL);
		again = parsed(text);
		assert_true(json_is_real(again));
		assert_true(json_real_value(again) == d);
	}
}

/* text -> NULL (a value) or a part of what is wrong with it. */
static void test_check(void **state)
{
	static const struct {
		const char *text, *wrong;
	} rows[] = {
	        {"1", NULL},
	        {"[1, \"a\", null, {\"k\": [true]}]", NULL},
	        {"{\"$\":\"int\",\"v\":\"123456789012345678901234567890\"}", NULL},
	        {"{\"$\":\"int\",\"v\":\"-7\"}", NULL},
	        {"{\"$\":\"int\",\"v\":\"0\"}", NULL},
	        {"{\"$\":\"int\",\"v\":\"007\"}", "int"},
	        {"{\"$\":\"int\",\"v\":\"1_0\"}", "int"},
	        {"{\"$\":\"int\",\"v\":\"\"}", "int"},
	        {"{\"$\":\"int\",\"v\":\"-\"}", "int"},
	        {"{\"$\":\"int\",\"v\":7}", "int"},
	        {"{\"$\":\"int\"}", "int"},
	        {"{\"$\":\"float\",\"v\":\"nan\"}", NULL},
	        {"{\"$\":\"float\",\"v\":\"-inf\"}", NULL},
	        {"{\"$\":\"float\",\"v\":\"1.0\"}", "float"},
	        {"{\"$\":\"str\",\"b64\":\"7aCA\"}", NULL},
	        {"{\"$\":\"bytes\",\"b64\":\"\"}", NULL},
	        {"{\"$\":\"bytes\",\"b64\":\"AAEC\"}", NULL},
	        {"{\"$\":\"bytes\",\"b64\":\"AA=\"}", "bytes"},
	        {"{\"$\":\"bytes\",\"b64\":\"A===\"}", "bytes"},
	        {"{\"$\":\"bytes\",\"b64\":\"A-E_\"}", "bytes"},
	        {"{\"$\":\"bytes\",\"b64\":\"=AAA\"}", "bytes"},
	        {"{\"$\":\"bytes\",\"b64\":[]}", "bytes"},
	        {"{\"$\":\"bytearray\",\"b64\":\"AA==\"}", NULL},
	        {"{\"$\":\"tuple\",\"v\":[]}", NULL},
	        {"{\"$\":\"tuple\",\"v\":{}}", "tuple"},
	        {"{\"$\":\"set\",\"v\":[{\"$\":\"nope\"}]}", "nope"},
	        {"{\"$\":\"frozenset\",\"v\":[1]}", NULL},
	        {"{\"$\":\"dict\",\"v\":[[1,2],[{\"$\":\"tuple\",\"v\":[1]},3]]}", NULL},
	        {"{\"$\":\"dict\",\"v\":[[1]]}", "pair"},
	        {"{\"$\":\"dict\",\"v\":[7]}", "pair"},
	        {"{\"$\":\"datetime\",\"v\":\"2026-11-29T12:00:00\",\"fold\":0}", NULL},
	        {"{\"$\":\"datetime\",\"v\":5}", "datetime"},
	        {"{\"$\":\"date\",\"v\":\"2026-11-29\"}", NULL},
	        {"{\"$\":\"time\",\"v\":\"12:00:00\"}", NULL},
	        {"{\"$\":\"timedelta\",\"v\":[-1,2,3]}", NULL},
	        {"{\"$\":\"timedelta\",\"v\":[1,2]}", "timedelta"},
	        {"{\"$\":\"timedelta\",\"v\":[1,2,0.5]}", "timedelta"},
	        {"{\"$\":\"decimal\",\"v\":\"1.50\"}", NULL},
	        {"{\"$\":\"complex\",\"v\":[1.0,-2]}", NULL},
	        {"{\"$\":\"complex\",\"v\":[1.0,{\"$\":\"float\",\"v\":\"nan\"}]}", NULL},
	        {"{\"$\":\"complex\",\"v\":[1]}", "complex"},
	        {"{\"$\":\"complex\",\"v\":[1,\"i\"]}", "complex"},
	        {"{\"$\":\"ndarray\",\"dtype\":\"<f8\",\"shape\":[0,3],\"b64\":\"\"}", NULL},
	        {"{\"$\":\"ndarray\",\"dtype\":\"<f8\",\"shape\":[],\"b64\":\"AAAAAAAAAAA=\"}", NULL},
	        {"{\"$\":\"ndarray\",\"dtype\":\"<f8\",\"shape\":[-1],\"b64\":\"\"}", "ndarray"},
	        {"{\"$\":\"ndarray\",\"dtype\":\"<f8\",\"b64\":\"\"}", "ndarray"},
	        {"{\"$\":\"npscalar\",\"dtype\":\"<i4\",\"b64\":\"AAAAAA==\"}", NULL},
	        {"{\"$\":\"dataframe\",\"columns\":[\"a\"],\"index\":[0],\"data\":[[1]]}", NULL},
	        {"{\"$\":\"dataframe\",\"columns\":{\"$\":\"nope\"}}", "nope"},
	        {"{\"$\":\"series\",\"name\":\"a\",\"index\":[0],\"data\":[1]}", NULL},
	        {"{\"$\":\"opaque\",\"type\":\"a.B\",\"pickle\":\"gAQu\",\"repr\":\"<B>\"}", NULL},
	        {"{\"$\":\"opaque\",\"type\":\"a.B\",\"pickle\":\"gAQu\"}", "opaque"},
	        {"{\"$\":\"nope\"}", "unknown"},
	        {"{\"$\":7}", "unknown"},
	        {"[[[{\"a\":{\"$\":\"nope\"}}]]]", "nope"},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		ntr_autojson json_t *v = parsed(rows[i].text);
		char why[NTR_VALUE_WHY];
		int r = ntr_value_check(v, why);

		if (!r != !rows[i].wrong)
			fail_msg("%s: %d %s", rows[i].text, r, why);
		if (r && (r != -EINVAL || !strstr(why, rows[i].wrong)))
			fail_msg("%s: '%s' does not say '%s'", rows[i].text, why, rows[i].wrong);
	}
}

static void test_nul(void **state)
{
	ntr_autojson json_t *v = json_pack("[o]", json_stringn("a\0b", 3));
	char why[NTR_VALUE_WHY];

	(void)state;
	assert_int_equal(ntr_value_check(v, why), -EINVAL);
	assert_non_null(strstr(why, "NUL"));
}

/* Far deeper than any value of Python's, and nothing overflows. */
static void test_depth(void **state)
{
	char text[3000], why[NTR_VALUE_WHY];
	json_t *v;

	(void)state;
	for (int depth = 100; depth <= 1000; depth += 900) {
		memset(text, '[', (size_t)depth);
		memset(text + depth, ']', (size_t)depth);
		text[2 * depth] = '\0';
		v = parsed(text);
		assert_int_equal(ntr_value_check(v, why), depth == 100 ? 0 : -EINVAL);
		json_decref(v);
	}
}

/* The table that the codecs of the session and of the host are tested with. */
static void test_table(void **state)
{
	ntr_autofree char *path = strdup(__FILE__);
	ntr_autojson json_t *table = NULL;
	char why[NTR_VALUE_WHY];
	json_t *row;
	size_t i;

	(void)state;
	assert_non_null(path);
	strcpy(strstr(path, "/unit/"), "/values.json");
	table = json_load_file(path, JSON_ALLOW_NUL, NULL);
	if (!table)
		fail_msg("%s cannot be read", path);
	json_array_foreach (json_object_get(table, "values"), i, row) {
		const json_t *v = json_object_get(row, "json");
		ntr_autofree char *text = ntr_value_dump(v, NULL);
		ntr_autojson json_t *again = parsed(text);

		if (ntr_value_check(v, why))
			fail_msg("%s: %s", text, why);
		assert_true(json_equal(v, again));
	}
	assert_true(i > 50);
	json_array_foreach (json_object_get(table, "bad"), i, row) {
		ntr_autofree char *text = ntr_value_dump(row, NULL);

		if (!ntr_value_check(row, why))
			fail_msg("%s is taken for a value", text);
	}
	assert_true(i > 20);
}

static void test_parse_errors(void **state)
{
	static const char *const bad[] = {"", "{", "nan", "[1,]", "{\"a\":1,\"a\":2}", "1 2", "\"\xff\"",
	        "\"\\ud800\"", "'a'", "1e999"};
	char why[NTR_VALUE_WHY];
	json_t *v;

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		why[0] = '\0';
		assert_int_equal(ntr_value_parse(bad[i], strlen(bad[i]), &v, why), -EINVAL);
		assert_non_null(strstr(why, "no JSON"));
	}
}

static void test_bytes(void **state)
{
	static const struct {
		const char *text, *want;
		size_t n;
	} rows[] = {
	        {"\"text\"", "text", 4},
	        {"\"\"", "", 0},
	        {"{\"$\":\"bytes\",\"b64\":\"AP8=\"}", "\0\xff", 2},
	        {"{\"$\":\"str\",\"b64\":\"7aCA\"}", "\xed\xa0\x80", 3},
	        {"5", NULL, 0},
	        {"[]", NULL, 0},
	        {"{\"$\":\"tuple\",\"v\":[]}", NULL, 0},
	};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(rows); i++) {
		ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
		ntr_autojson json_t *v = parsed(rows[i].text);

		assert_int_equal(ntr_value_bytes(v, &b), rows[i].want ? 0 : -EINVAL);
		if (rows[i].want) {
			assert_int_equal(b.len, rows[i].n);
			assert_memory_equal(b.len ? (const char *)b.data : "", rows[i].want, b.len);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_dump),
	        cmocka_unit_test(test_numbers_come_back), cmocka_unit_test(test_check),
	        cmocka_unit_test(test_table), cmocka_unit_test(test_nul), cmocka_unit_test(test_depth),
	        cmocka_unit_test(test_parse_errors), cmocka_unit_test(test_bytes)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
