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

json_t *ntr_cmd_rev_request(const struct ntr_cmd *cmd, const char *op, const char *key, const char *value)
{
	ntr_autofree char *session = NULL;
	ntr_autojson json_t *req = NULL;
	const char *rev;
	int r;

	if (ntr_parse_rev(cmd->session, &session, &rev))
		return NULL;
	req = json_pack("{s:s,s:o}", "op", op, "session", ntr_arg(session));
	r = !req;
	if (!r && rev)
		r = json_object_set_new(req, "rev", ntr_arg(rev));
	if (!r && value)
		r = json_object_set_new(req, key, ntr_arg(value));
	return r ? NULL : ntr_steal_ptr(req);
}
