/* cache: named values of a session, from a shell. A text is set and printed as it is; every other value is
 * JSON. */
#include "ntr.h"

#include "../base/util.h"
#include "../base/value.h"

#include <errno.h>
#include <sys/mman.h>

enum { INLINE_MAX = 1 << 20 }; /* larger values go through a descriptor */

/* {"op","session","rev"?,"key"?}. NULL: out of memory. */
static json_t *cache_request(const struct ntr_cmd *cmd, const char *op, const char *key)
{
	return ntr_cmd_rev_request(cmd, op, "key", key);
}

static int oom(const struct ntr_cmd *cmd)
{
	return ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
}

/* ---- get */

/* What C cannot show is told about, on stderr. */
static int print_opaque(const json_t *v)
{
	fprintf(stderr,
	        "ntr: cache: the value is a %s, which only Python code of the session can use; --json prints "
	        "how it is stored\n%s\n",
	        ntr_json_str(v, "type", "?"), ntr_json_str(v, "repr", ""));
	return NTR_EXIT_FAILED;
}

static int print_value(const struct ntr_cmd *cmd, const json_t *v)
{
	ntr_auto(ntr_buf_done) struct ntr_buf raw = {0};
	const char *tag = ntr_value_tag(v);
	ntr_autofree char *text = NULL;
	int r;

	if (!cmd->json && tag && !strcmp(tag, "opaque"))
		return print_opaque(v);
	r = cmd->json ? -EINVAL : ntr_value_bytes(v, &raw);
	if (!r) {
		fwrite(raw.data, 1, raw.len, stdout);
		if (isatty(STDOUT_FILENO) && raw.len && raw.data[raw.len - 1] != '\n')
			putchar('\n');
		return 0;
	}
	text = r == -EINVAL ? ntr_value_dump(v, NULL) : NULL;
	if (!text)
		return oom(cmd);
	puts(text);
	return 0;
}

static int get(struct ntr_cmd *cmd, const char *key)
{
	ntr_autoclose int fd = memfd_create("value", MFD_CLOEXEC);
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	ntr_autojson json_t *v = NULL;
	struct ntr_err e = {0};
	char why[NTR_VALUE_WHY];
	int r;

	if (fd < 0)
		return ntr_cmd_die(cmd, -errno, NULL, "%s", strerror(errno));
	if (ntr_request(cmd, cache_request(cmd, "cache-get", key), &fd, 1, NULL, NULL, NULL, &e))
		return ntr_cmd_fail(cmd, &e);
	r = lseek(fd, 0, SEEK_SET) < 0 ? -errno : ntr_buf_read(&b, fd, SIZE_MAX);
	if (!r)
		r = ntr_value_parse(b.len ? (const char *)b.data : "", b.len, &v, why);
	if (r)
		return ntr_cmd_die(cmd, r, NULL, "%s", r == -EINVAL ? why : strerror(-r));
	return print_value(cmd, v);
}

/* ---- set */

/* The value given: text as it is, bytes that are no text as bytes, or with --json a value's JSON. Returns 0,
 * or the exit status after a complaint. */
static int take_value(struct ntr_cmd *cmd, const char *arg, json_t **ret)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	char why[NTR_VALUE_WHY];
	json_t *v;
	int r = strcmp(arg, "-") ? ntr_buf_str(&b, arg) : ntr_buf_read(&b, STDIN_FILENO, SIZE_MAX);

	if (r)
		return ntr_cmd_die(cmd, r, NULL, "cannot read the value from stdin: %s", strerror(-r));
	if (!ntr_buf_cstr(&b))
		return oom(cmd);
	if (cmd->json) {
		r = ntr_value_parse((const char *)b.data, b.len, ret, why);
		if (!r)
			r = ntr_value_check(*ret, why);
		return r == -EINVAL ? ntr_cmd_usage(cmd, "the value: %s", why) : r ? oom(cmd) : 0;
	}
	v = ntr_json_bytes(b.data, b.len);
	if (json_is_object(v)) {
		*ret = json_pack("{s:s,s:O}", "$", "bytes", "b64", json_object_get(v, "base64"));
		json_decref(v);
	} else {
		*ret = v;
	}
	return *ret ? 0 : oom(cmd);
}

/* A small value goes into the request, a large one into *ret_fd. */
static int attach(json_t *req, json_t *value, int *ret_fd)
{
	ntr_autofree char *text = NULL;
	size_t len;

	text = ntr_value_dump(value, &len);
	if (!text)
		return -ENOMEM;
	if (len <= INLINE_MAX)
		return json_object_set(req, "value", value) ? -ENOMEM : 0;
	*ret_fd = memfd_create("value", MFD_CLOEXEC);
	if (*ret_fd < 0)
		return -errno;
	if (ntr_write_all(*ret_fd, text, len) || lseek(*ret_fd, 0, SEEK_SET) < 0)
		return -errno;
	return 0;
}

static void print_commit(const struct ntr_cmd *cmd, const json_t *reply)
{
	const char *commit = ntr_json_str(reply, "commit", NULL);
	char buf[NTR_HUMAN];

	if (cmd->json)
		ntr_json_reply(reply);
	else if (commit)
		puts(ntr_human_commit(commit, buf));
}

static int set(struct ntr_cmd *cmd, const char *key, const char *arg)
{
	ntr_autojson json_t *value = NULL, *reply = NULL;
	ntr_autoclose int fd = -1;
	struct ntr_err e = {0};
	json_t *req;
	int r = take_value(cmd, arg, &value);

	if (r)
		return r;
	req = cache_request(cmd, "cache-set", key);
	r = req ? attach(req, value, &fd) : -ENOMEM;
	if (r) {
		json_decref(req);
		return ntr_cmd_die(cmd, r, NULL, "%s", strerror(-r));
	}
	if (ntr_request(cmd, req, &fd, fd >= 0 ? 1 : 0, NULL, NULL, &reply, &e))
		return ntr_cmd_fail(cmd, &e);
	print_commit(cmd, reply);
	return 0;
}

/* ---- ls, rm */

static void print_keys(const struct ntr_cmd *cmd, const json_t *reply)
{
	const json_t *key;
	size_t i;

	(void)cmd;
	json_array_foreach (json_object_get(reply, "keys"), i, key) {
		ntr_autofree char *name = ntr_human_name(key);

		puts(name ? name : "?");
	}
}

static int rm(struct ntr_cmd *cmd)
{
	int status = 0;

	for (size_t i = 1; i < cmd->nargs; i++) {
		ntr_autojson json_t *reply = NULL;
		struct ntr_err e = {0};

		if (ntr_request(cmd, cache_request(cmd, "cache-rm", cmd->args[i]), NULL, 0, NULL, NULL,
		            &reply, &e))
			status = ntr_cmd_fail(cmd, &e);
		else
			print_commit(cmd, reply);
	}
	return status;
}

int ntr_cache_main(struct ntr_cmd *cmd)
{
	static const struct {
		const char *name;
		size_t min, max;
	} verbs[] = {{"get", 2, 2}, {"set", 3, 3}, {"ls", 1, 1}, {"rm", 2, SIZE_MAX}};
	size_t i = 0;

	while (i < NTR_COUNT(verbs) && strcmp(verbs[i].name, cmd->args[0]) != 0)
		i++;
	if (i == NTR_COUNT(verbs))
		return ntr_cmd_usage(cmd, "'%s' is none of get, set, ls and rm", cmd->args[0]);
	if (cmd->nargs < verbs[i].min)
		return ntr_cmd_usage(cmd, "%s: %s is missing", verbs[i].name,
		        cmd->nargs == 1 ? "the key" : "the value (or - for stdin)");
	if (cmd->nargs > verbs[i].max)
		return ntr_cmd_usage(cmd, "unexpected argument '%s'", cmd->args[verbs[i].max]);
	switch (i) {
	case 0:
		return get(cmd, cmd->args[1]);
	case 1:
		return set(cmd, cmd->args[1], cmd->args[2]);
	case 2:
		return ntr_simple(cmd, cache_request(cmd, "cache-ls", NULL), print_keys);
	default:
		return rm(cmd);
	}
}
