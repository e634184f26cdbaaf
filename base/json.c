#include "json.h"
#include "buf.h"
#include "util.h"

#include <errno.h>
#include <stdio.h>

static const char b64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Length of the valid UTF-8 sequence at p (n bytes left), or 0. */
static size_t utf8_len(const uint8_t *p, size_t n)
{
	size_t k = p[0] < 0x80 ? 1 : p[0] >= 0xC2 && p[0] < 0xE0 ? 2 : (p[0] & 0xF0) == 0xE0 ? 3 : 0;

	if (p[0] >= 0xF0 && p[0] < 0xF5)
		k = 4;
	if (!k || k > n)
		return 0;
	for (size_t i = 1; i < k; i++)
		if ((p[i] & 0xC0) != 0x80)
			return 0;
	if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] >= 0xA0) ||
	        (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] >= 0x90))
		return 0;
	return k;
}

static bool utf8_valid(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t k = utf8_len(p + i, n - i);

		if (!k)
			return false;
		i += k;
	}
	return true;
}

static int b64_encode(const uint8_t *p, size_t n, struct ntr_buf *out)
{
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16;

		if (i + 1 < n)
			v |= (uint32_t)p[i + 1] << 8;
		if (i + 2 < n)
			v |= p[i + 2];
		ntr_buf_byte(out, (uint8_t)b64_digits[v >> 18]);
		ntr_buf_byte(out, (uint8_t)b64_digits[v >> 12 & 63]);
		ntr_buf_byte(out, i + 1 < n ? (uint8_t)b64_digits[v >> 6 & 63] : '=');
		ntr_buf_byte(out, i + 2 < n ? (uint8_t)b64_digits[v & 63] : '=');
	}
	return out->err;
}

int ntr_base64_decode(const char *s, size_t n, struct ntr_buf *out)
{
	if (n % 4)
		return -EINVAL;
	for (size_t i = 0; i < n; i += 4) {
		uint32_t v = 0;
		int pad = 0;

		for (size_t j = 0; j < 4; j++) {
			const char *d = s[i + j] ? strchr(b64_digits, s[i + j]) : NULL;

			if (s[i + j] == '=' && i + 4 == n && j >= 2)
				pad++;
			else if (!d || pad)
				return -EINVAL;
			v = v << 6 | (d && !pad ? (uint32_t)(d - b64_digits) : 0);
		}
		ntr_buf_byte(out, (uint8_t)(v >> 16));
		if (pad < 2)
			ntr_buf_byte(out, (uint8_t)(v >> 8));
		if (pad < 1)
			ntr_buf_byte(out, (uint8_t)v);
	}
	return out->err;
}

json_t *ntr_json_base64(const void *p, size_t n)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	if (b64_encode(p, n, &b))
		return NULL;
	return json_pack("{s:s%}", "base64", b.len ? (const char *)b.data : "", b.len);
}

json_t *ntr_json_bytes(const void *p, size_t n)
{
	return utf8_valid(p, n) ? json_stringn(p, n) : ntr_json_base64(p, n);
}

int ntr_json_get_bytes(const json_t *j, char **ret, size_t *ret_len)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	const json_t *s = json_is_object(j) ? json_object_get(j, "base64") : j;
	int r;

	if (!json_is_string(s))
		return -EINVAL;
	if (s == j)
		r = ntr_buf_add(&b, json_string_value(s), json_string_length(s));
	else
		r = ntr_base64_decode(json_string_value(s), json_string_length(s), &b);
	if (r || (r = ntr_buf_reserve(&b, 1)))
		return r;
	b.data[b.len] = '\0';
	*ret = (char *)ntr_steal_ptr(b.data);
	if (ret_len)
		*ret_len = b.len;
	return 0;
}

json_t *ntr_json_text(const void *p, size_t n)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	const uint8_t *s = p;

	if (utf8_valid(s, n))
		return json_stringn(p, n);
	for (size_t i = 0; i < n;) {
		size_t k = utf8_len(s + i, n - i);

		if (k)
			ntr_buf_add(&b, s + i, k);
		else
			ntr_buf_str(&b, "\xEF\xBF\xBD");
		i += k ? k : 1;
	}
	return b.err ? NULL : json_stringn((const char *)b.data, b.len);
}

const char *ntr_json_str(const json_t *o, const char *key, const char *def)
{
	const json_t *v = json_object_get(o, key);

	return json_is_string(v) ? json_string_value(v) : def;
}

int64_t ntr_json_int(const json_t *o, const char *key, int64_t def)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? json_integer_value(v) : def;
}

bool ntr_json_bool(const json_t *o, const char *key, bool def)
{
	const json_t *v = json_object_get(o, key);

	return json_is_boolean(v) ? json_is_true(v) : def;
}

double ntr_json_real(const json_t *o, const char *key, double def)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : def;
}

json_t *ntr_json_strv(char *const *v)
{
	ntr_autojson json_t *a = json_array();

	for (; a && v && *v; v++)
		if (json_array_append_new(a, ntr_json_bytes(*v, strlen(*v))))
			return NULL;
	return ntr_steal_ptr(a);
}

int ntr_json_get_strv(const json_t *j, char ***ret)
{
	size_t n = json_array_size(j);
	char **v;

	if (!json_is_array(j))
		return -EINVAL;
	v = calloc(n + 1, sizeof *v);
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t len = 0;
		int r = ntr_json_get_bytes(json_array_get(j, i), &v[i], &len);

		if (!r && strlen(v[i]) != len)
			r = -EINVAL;
		if (r) {
			ntr_strv_free(v);
			return r;
		}
	}
	*ret = v;
	return 0;
}

void ntr_strv_free(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

void ntr_time_format(uint64_t wall_ns, char buf[32])
{
	time_t s = (time_t)(wall_ns / 1000000000u);
	struct tm tm;
	char date[24];

	gmtime_r(&s, &tm);
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf, 32, "%.19s.%09uZ", date, (unsigned)(wall_ns % 1000000000u));
}
