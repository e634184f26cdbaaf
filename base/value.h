/* value: data of Python's as one JSON value: how it crosses between a session and its host, and how a cache
 * keeps it.
 *
 * null, booleans, numbers, strings, arrays and objects stand for themselves; what JSON has no form for is an
 * object with the member "$" that names its type (docs/protocol.md, "Values"). Whoever reads one checks its
 * shape and builds data from it; nothing in it is ever run. */
#ifndef NTR_BASE_VALUE_H
#define NTR_BASE_VALUE_H

#include "buf.h"
#include "json.h"

/* 0, or -EINVAL with what is wrong with it in why[128]. */
enum { NTR_VALUE_WHY = 128 };
int ntr_value_check(const json_t *v, char why[NTR_VALUE_WHY]);
/* Its text, the same for the same value whoever sent it: compact, members in their order, reals in as few
 * digits as name them. In fresh memory, NUL-terminated; NULL: out of memory. */
char *ntr_value_dump(const json_t *v, size_t *ret_len);
/* Parses a text that ntr_value_check then would have to look at. 0, -EINVAL with why, -ENOMEM. */
int ntr_value_parse(const char *text, size_t n, json_t **ret, char why[NTR_VALUE_WHY]);

/* The type that its "$" names; NULL: it is a plain JSON value. */
const char *ntr_value_tag(const json_t *v);
/* Appends the content of a string or of bytes. 0, -EINVAL (it is neither), -ENOMEM. */
int ntr_value_bytes(const json_t *v, struct ntr_buf *ret);

#endif
