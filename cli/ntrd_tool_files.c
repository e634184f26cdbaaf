/* file_write, file_edit, view_image. */
#include "ntrd_tool.h"

#include "../base/util.h"
#include "../exec/controller.h"
#include "../exec/tools.h"

#include <errno.h>
#include <stdio.h>

/* The argument path; NULL after telling what is wrong with it. */
static const char *path_of(struct ntrd_tool *t, const char *what)
{
	size_t n;
	const char *path = ntrd_tool_arg(t, "path", &n);

	if (*path && strlen(path) == n)
		return path;
	ntrd_tool_fail(t, what, n ? "the path holds a NUL" : "the path is empty");
	return NULL;
}

/* A hook that refuses the change is an answer, like all else that the agent can put right. */
static int fail(struct ntrd_tool *t, const char *what, int r)
{
	struct ntr_err e = *t->rq->e;

	if (r != -EKEYREJECTED)
		return r;
	*t->rq->e = (struct ntr_err){0};
	return ntrd_tool_error(t, what, r, &e);
}

static int describe(struct ntrd_tool *t, const struct ntr_file_result *res, json_t *more)
{
	ntr_autojson json_t *own = more;

	memcpy(t->commit, res->commit, sizeof res->commit);
	if (!own || json_object_update(t->structured, own) ||
	        json_object_set_new(t->structured, "path", ntr_json_bytes(res->path, strlen(res->path))) ||
	        json_object_set_new(t->structured, "commit", ntrd_json_hex(res->commit)))
		return -ENOMEM;
	return 0;
}

int ntrd_tool_write(struct ntrd_tool *t)
{
	ntr_auto(ntr_file_result_done) struct ntr_file_result res = {0};
	const char *path = path_of(t, "write");
	size_t n;
	const char *content = ntrd_tool_arg(t, "content", &n);
	int r = ntrd_check_inside(t->rq, t->session);

	if (!path || r)
		return r;
	r = ntr_ctl_file_write(
	        t->rq->ctl, t->session, path, content, n, ntrd_arg_bool(t->rq, "no_commit"), &res, t->rq->e);
	if (r || res.why)
		return r ? fail(t, "write", r) : ntrd_tool_fail(t, "write", res.why);
	ntr_buf_printf(&t->text, "wrote %s (%zu bytes)", path, n);
	return describe(t, &res, json_pack("{s:I,s:b}", "bytes", (json_int_t)n, "created", (int)res.created));
}

static void edit_text(struct ntrd_tool *t, const char *path, const struct ntr_file_result *res)
{
	if (!res->count) {
		ntr_buf_printf(&t->text, "no-op: replacement already present in %s", path);
		return;
	}
	ntr_buf_printf(&t->text, "replaced %u occurrence(s) in %s", res->count, path);
	if (strcmp(res->mode, ntr_edit_mode_word(NTR_EDIT_EXACT)) != 0)
		ntr_buf_printf(&t->text, " (matched via %s)", res->mode);
}

int ntrd_tool_edit(struct ntrd_tool *t)
{
	ntr_auto(ntr_file_result_done) struct ntr_file_result res = {0};
	const char *path = path_of(t, "edit");
	struct ntr_edit ed = {.path = path, .replace_all = ntr_tool_arg_bool(t->args, "replace_all")};
	int r = ntrd_check_inside(t->rq, t->session);

	if (!path || r)
		return r;
	ed.old = ntrd_tool_arg(t, "old_string", &ed.old_len);
	ed.new = ntrd_tool_arg(t, "new_string", &ed.new_len);
	r = ntr_ctl_file_edit(
	        t->rq->ctl, t->session, path, &ed, ntrd_arg_bool(t->rq, "no_commit"), &res, t->rq->e);
	if (r || res.why)
		return r ? fail(t, "edit", r) : ntrd_tool_fail(t, "edit", res.why);
	edit_text(t, path, &res);
	return describe(t, &res,
	        json_pack("{s:i,s:s,s:I}", "count", (int)res.count, "mode", res.mode, "bytes",
	                (json_int_t)res.size));
}

static int show_image(struct ntrd_tool *t, const char *path, const struct ntr_buf *data)
{
	const char *kind = ntr_image_kind(data->data, data->len);
	ntr_autofree char *mime = NULL, *why = NULL;
	ntr_autojson json_t *b64 = NULL;

	if (!kind) {
		why = ntr_sprintf("%s is no png, jpeg, gif or webp image but %s", path,
		        ntr_image_other(data->data, data->len));
		return why ? ntrd_tool_fail(t, "view_image", why) : -ENOMEM;
	}
	mime = ntr_sprintf("image/%s", kind);
	b64 = ntr_json_base64(data->data, data->len);
	if (!mime || !b64)
		return -ENOMEM;
	t->image = json_pack("{s:s,s:O}", "mime", mime, "b64", json_object_get(b64, "base64"));
	ntr_buf_printf(&t->text, "%s (%s, %zu bytes)", path, kind, data->len);
	return json_object_set_new(t->structured, "format", json_string(kind)) ||
	                       json_object_set_new(
	                               t->structured, "bytes", json_integer((json_int_t)data->len)) ||
	                       !t->image
	               ? -ENOMEM
	               : 0;
}

int ntrd_tool_image(struct ntrd_tool *t)
{
	ntr_auto(ntr_file_result_done) struct ntr_file_result res = {0};
	ntr_auto(ntr_buf_done) struct ntr_buf data = {0};
	const char *path = path_of(t, "view_image");
	uint64_t size = 0;
	char why[256];
	int r;

	if (!path)
		return 0;
	r = ntr_ctl_file_read(t->rq->ctl, t->session, path, NTR_IMAGE_MAX, &data, &size, &res, t->rq->e);
	if (r || res.why)
		return r ? r : ntrd_tool_fail(t, "view_image", res.why);
	if (json_object_set_new(t->structured, "path", ntr_json_bytes(res.path, strlen(res.path))))
		return -ENOMEM;
	if (size <= NTR_IMAGE_MAX)
		return show_image(t, path, &data);
	snprintf(why, sizeof why, "%.120s has %llu bytes, and at most %d can be viewed: save it smaller",
	        path, (unsigned long long)size, NTR_IMAGE_MAX);
	return ntrd_tool_fail(t, "view_image", why);
}
