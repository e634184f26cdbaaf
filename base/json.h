/* json: what ntr needs on top of jansson: names that are no UTF-8, texts that are no UTF-8, lenient getters.
 *
 * A file name, an argument, an environment value is bytes. In JSON it is a string where the bytes are UTF-8,
 * else
 * {"base64": "…"}: lossless, and impossible to confuse with a real name (docs/protocol.md). */
#ifndef NTR_BASE_JSON_H
#define NTR_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline void ntr_json_decrefp(json_t **j)
{
	json_decref(*j);
}
#define ntr_autojson __attribute__((cleanup(ntr_json_decrefp)))

/* Bytes (no NUL among them unless UTF-8 otherwise) to a new reference, or NULL when out of memory. */
json_t *ntr_json_bytes(const void *p, size_t n);
/* Always the base64 form: for bytes that as a string would be mostly escapes. A new reference, or NULL. */
json_t *ntr_json_base64(const void *p, size_t n);
/* Appends the bytes that n digits of base64 stand for. 0, -EINVAL or -ENOMEM. */
struct ntr_buf;
int ntr_base64_decode(const char *s, size_t n, struct ntr_buf *out);
/* The bytes of such a value, NUL-terminated, in fresh memory. 0, -EINVAL (neither form) or -ENOMEM. */
int ntr_json_get_bytes(const json_t *j, char **ret, size_t *ret_len);
/* Text for people: invalid UTF-8 becomes U+FFFD. A new reference, or NULL. */
json_t *ntr_json_text(const void *p, size_t n);

/* Members with defaults; a member of another type counts as absent. The string lives as long as the object.
 */
const char *ntr_json_str(const json_t *o, const char *key, const char *def);
int64_t ntr_json_int(const json_t *o, const char *key, int64_t def);
bool ntr_json_bool(const json_t *o, const char *key, bool def);
double ntr_json_real(const json_t *o, const char *key, double def);

/* A JSON array of byte strings <-> a NULL-terminated vector in one allocation per string plus the vector.
 * ntr_json_get_strv refuses strings with a NUL inside (-EINVAL). Free with ntr_strv_free. */
json_t *ntr_json_strv(char *const *v);
int ntr_json_get_strv(const json_t *j, char ***ret);
void ntr_strv_free(char **v);

/* Nanoseconds since 1970 as "2026-11-29T12:00:00.123456789Z" into buf[32]. */
void ntr_time_format(uint64_t wall_ns, char buf[32]);

#endif
