/* parse: values of options and arguments. */
#include "ntr.h"

#include "../base/util.h"

#include <errno.h>
#include <math.h>

int ntr_parse_seconds(const char *s, double *ret)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(s, &end);
	if (end == s || errno || !isfinite(v) || strpbrk(s, "xXnNpP")) /* no hexadecimal, no NaN */
		return -EINVAL;
	if (!strcmp(end, "m"))
		v *= 60;
	else if (!strcmp(end, "h"))
		v *= 3600;
	else if (!strcmp(end, "ms"))
		v /= 1000;
	else if (*end && strcmp(end, "s"))
		return -EINVAL;
	if (!(v > 0) || v > 1e9)
		return -EINVAL;
	*ret = v;
	return 0;
}

int ntr_parse_count(const char *s, int64_t min, int64_t *ret)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(s, &end, 10);
	if (end == s || *end || errno || v < min)
		return -EINVAL;
	*ret = v;
	return 0;
}

int ntr_parse_rev(const char *s, char **ret_session, const char **ret_rev)
{
	size_t n = strcspn(s, "@~");

	*ret_session = strndup(s, n);
	*ret_rev = s[n] ? s : NULL;
	return *ret_session ? 0 : -ENOMEM;
}

json_t *ntr_arg(const char *s)
{
	return ntr_json_bytes(s, strlen(s));
}
