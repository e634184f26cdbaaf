#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ntr_err_set(struct ntr_err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return code;
	e->code = code;
	e->why[0] = e->todo[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(e->what, sizeof e->what, fmt, ap);
	va_end(ap);
	return code;
}

int ntr_err_why(struct ntr_err *e, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return -EINVAL;
	va_start(ap, fmt);
	vsnprintf(e->why, sizeof e->why, fmt, ap);
	va_end(ap);
	return e->code;
}

int ntr_err_todo(struct ntr_err *e, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return -EINVAL;
	va_start(ap, fmt);
	vsnprintf(e->todo, sizeof e->todo, fmt, ap);
	va_end(ap);
	return e->code;
}

int ntr_err_full(struct ntr_err *e, int code, const char *what, const char *why, const char *todo)
{
	ntr_err_set(e, code, "%s", what);
	if (why)
		ntr_err_why(e, "%s", why);
	if (todo)
		ntr_err_todo(e, "%s", todo);
	return code;
}

int ntr_err_default(struct ntr_err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e || e->code)
		return code;
	e->code = code;
	e->why[0] = e->todo[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(e->what, sizeof e->what, fmt, ap);
	va_end(ap);
	return code;
}

const char *ntr_err_reason(const struct ntr_err *e)
{
	if (e->why[0])
		return e->why;
	return e->code ? strerror(-e->code) : "no error";
}

const char *ntr_err_advice(const struct ntr_err *e)
{
	if (e->todo[0])
		return e->todo;
	switch (-e->code) {
	case ENOSPC:
		return "free some space (or inodes) on that filesystem, then do it again";
	case EDQUOT:
		return "free some space or raise the quota, then do it again";
	case EROFS:
		return "that filesystem is mounted read-only: use another one, or remount it";
	case EMFILE:
	case ENFILE:
		return "raise the limit on open files (ulimit -n); ntr's daemon takes the new one after `ntr "
		       "daemon stop`";
	case ENOMEM:
		return "free some memory, then do it again";
	case EFBIG:
		return "raise the limit on the size of files (ulimit -f), or use a filesystem that takes "
		       "larger ones";
	case EIO: /* with a reason of its own it may be something else than a disk's */
		return e->why[0] ? "" : "check the disk (`dmesg` names it), then run `ntr fsck`";
	case EUCLEAN:
		return "run `ntr fsck`, which says what is damaged";
	default:
		return "";
	}
}

/* Names in a message are other people's bytes: they must not break its line nor speak to the terminal. */
static void defuse(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

void ntr_err_format(const struct ntr_err *e, char *buf, size_t size)
{
	const char *advice = ntr_err_advice(e);

	if (!size)
		return;
	snprintf(buf, size, "%s: %s%s%s", e->what[0] ? e->what : "ntr", ntr_err_reason(e),
	        advice[0] ? "; " : "", advice);
	defuse(buf);
}

void ntr_err_print(const struct ntr_err *e)
{
	char line[2048];

	ntr_err_format(e, line, sizeof line);
	fprintf(stderr, "ntr: %s\n", line);
}
