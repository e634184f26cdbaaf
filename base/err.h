/* err: the one error object, and how an error becomes a sentence.
 *
 * Inside a module an error is a negative errno. At a module's border it also gets text, in three parts, so
 * that the edge can print `ntr: WHAT: WHY; WHAT TO DO` and a JSON reply can carry them apart. The object
 * lives on the caller's stack and never allocates: reporting "out of memory" must not need memory. */
#ifndef NTR_BASE_ERR_H
#define NTR_BASE_ERR_H

#include <stddef.h>

/* Exit status of every command but `run` (run: 125 for ntr's own failures). */
enum { NTR_EXIT_FAILED = 1, NTR_EXIT_USAGE = 2, NTR_EXIT_TIMEOUT = 124, NTR_EXIT_NTR = 125 };

struct ntr_err {
	int code;       /* negative errno; 0: nothing is set */
	char what[512]; /* what failed: "open session 'x'" */
	char why[768];  /* why: "no such session"; empty: strerror(-code) */
	char todo[512]; /* what the reader can do; may be empty */
};

/* Begins an error: sets code and WHAT, clears WHY and TODO. Returns code. A NULL e is allowed in all calls.
 */
int ntr_err_set(struct ntr_err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Sets WHY / WHAT TO DO of an error begun before. Both return its code, so that a function can end
 * with them; where e is NULL, and the code with it not known, that is -EINVAL. */
int ntr_err_why(struct ntr_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int ntr_err_todo(struct ntr_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* All three at once, for the common case of plain texts: why and todo may be NULL. Returns code. */
int ntr_err_full(struct ntr_err *e, int code, const char *what, const char *why, const char *todo);

/* Sets the error only if none is set yet: a border adds its words without hiding a better message from below.
 */
int ntr_err_default(struct ntr_err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* WHY of the error: its own text, else the errno's. Never NULL. */
const char *ntr_err_reason(const struct ntr_err *e);

/* WHAT TO DO: its own text, else what the errno alone suggests. Never NULL, may be empty. */
const char *ntr_err_advice(const struct ntr_err *e);

/* Writes "WHAT: WHY; TODO" (no prefix, no newline; control characters as '?') into buf, cut at size; always
 * terminated. */
void ntr_err_format(const struct ntr_err *e, char *buf, size_t size);

/* Prints "ntr: WHAT: WHY; TODO\n" to stderr. */
void ntr_err_print(const struct ntr_err *e);

#endif
