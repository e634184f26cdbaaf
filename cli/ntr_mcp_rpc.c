/* mcp, rpc: one message a line. What is no message of JSON-RPC's is answered as its rules say; the server
 * lives on. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <errno.h>

enum { LINE_MAX_BYTES = 64 << 20 };

/* ---- out */

static void send_line(struct ntr_mcp *s, json_t *msg)
{
	ntr_autojson json_t *owned = msg;
	ntr_autofree char *text = msg ? json_dumps(msg, JSON_COMPACT) : NULL;
	size_t n = text ? strlen(text) : 0;

	if (!text) /* an answer that cannot be built still is an answer owed: the client must not wait for
	              ever */
		s->broken = true;
	if (s->broken)
		return;
	text[n] = '\n'; /* in the place of the NUL */
	pthread_mutex_lock(&s->out);
	if (ntr_write_all(STDOUT_FILENO, text, n + 1))
		s->broken = true;
	pthread_mutex_unlock(&s->out);
}

void ntr_mcp_result(struct ntr_mcp *s, const json_t *id, json_t *result)
{
	if (!result) {
		ntr_mcp_fail(s, id, NTR_RPC_INTERNAL, strerror(ENOMEM));
		return;
	}
	send_line(s, json_pack("{s:s,s:O,s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

void ntr_mcp_fail(struct ntr_mcp *s, const json_t *id, int code, const char *text)
{
	json_t *error = json_pack("{s:i,s:o}", "code", code, "message", ntr_json_text(text, strlen(text)));

	send_line(s, json_pack("{s:s,s:O?,s:o}", "jsonrpc", "2.0", "id", id, "error", error));
}

void ntr_mcp_notify(struct ntr_mcp *s, const char *method, json_t *params)
{
	if (!params)
		return;
	send_line(s, json_pack("{s:s,s:s,s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}

void ntr_mcp_log(struct ntr_mcp *s, enum ntr_mcp_level level, json_t *data)
{
	static const char *const names[] = {"debug", "info", "notice", "warning", "error"};

	if (s->revision < 0 || (int)level < s->level) {
		json_decref(data);
		return;
	}
	ntr_mcp_notify(s, "notifications/message",
	        json_pack("{s:s,s:s,s:o}", "level", names[level], "logger", "ntr", "data", data));
}

/* ---- in */

/* A request's id is a string or a whole number. */
static bool is_id(const json_t *id)
{
	return json_is_string(id) || json_is_integer(id);
}

static void take_message(struct ntr_mcp *s, json_t *msg)
{
	const json_t *id = json_object_get(msg, "id");
	json_t *params = json_object_get(msg, "params");
	const char *method = json_string_value(json_object_get(msg, "method"));

	if (!json_is_object(msg) || strcmp(ntr_json_str(msg, "jsonrpc", ""), "2.0") != 0 ||
	        (id && !is_id(id))) {
		ntr_mcp_fail(s, is_id(id) ? id : NULL, NTR_RPC_REQUEST, "this is no message of JSON-RPC 2.0");
		return;
	}
	if (!method) { /* an answer: this server asks nothing */
		if (!json_object_get(msg, "result") && !json_object_get(msg, "error"))
			ntr_mcp_fail(s, id, NTR_RPC_REQUEST, "a message without a method");
		return;
	}
	if (params && !json_is_object(params) && !json_is_null(params)) {
		if (id)
			ntr_mcp_fail(s, id, NTR_RPC_PARAMS, "params is no object");
		return;
	}
	if (id)
		ntr_mcp_request(s, id, method, params);
	else
		ntr_mcp_notified(s, method, params);
}

/* Several messages at once: revision 2025-03-26 has it, the next took it out again. The answers come one by
 * one, as they would without. */
static void take_batch(struct ntr_mcp *s, const json_t *batch)
{
	json_t *msg;
	size_t i;

	if (!json_array_size(batch) || s->revision > NTR_MCP_2025_03) {
		ntr_mcp_fail(s, NULL, NTR_RPC_REQUEST,
		        json_array_size(batch) ? "this revision of the protocol has no batches"
		                               : "an empty batch");
		return;
	}
	json_array_foreach (batch, i, msg)
		take_message(s, msg);
}

static void take_line(struct ntr_mcp *s, const char *line, size_t n)
{
	ntr_autojson json_t *msg = NULL;
	json_error_t je;

	while (n && strchr(" \t\r\n", line[n - 1]))
		n--;
	if (!n)
		return;
	msg = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!msg) {
		char text[JSON_ERROR_TEXT_LENGTH + 32];

		snprintf(text, sizeof text, "this is no JSON: %s", je.text);
		ntr_mcp_fail(s, NULL, NTR_RPC_PARSE, text);
	} else if (json_is_array(msg)) {
		take_batch(s, msg);
	} else {
		take_message(s, msg);
	}
}

static void take_lines(struct ntr_mcp *s, struct ntr_buf *b)
{
	size_t from = 0;

	for (;;) {
		const uint8_t *end = memchr(b->data + from, '\n', b->len - from);

		if (!end)
			break;
		take_line(s, (const char *)b->data + from, (size_t)(end - b->data) - from);
		from = (size_t)(end - b->data) + 1;
	}
	if (from)
		memmove(b->data, b->data + from, b->len - from);
	b->len -= from;
}

int ntr_mcp_read(struct ntr_mcp *s, struct ntr_err *e)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};

	while (!s->broken) {
		ssize_t n;

		if (b.len > LINE_MAX_BYTES) {
			ntr_err_set(e, -EMSGSIZE, "read a message");
			ntr_err_why(e, "it is longer than %d MiB", LINE_MAX_BYTES >> 20);
			return -EMSGSIZE;
		}
		if (ntr_buf_reserve(&b, 65536))
			return ntr_err_set(e, -ENOMEM, "read a message");
		n = read(STDIN_FILENO, b.data + b.len, 65536);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ntr_err_set(e, -errno, "read from stdin");
		if (!n)
			break;
		b.len += (size_t)n;
		/* Lines are looked for in what came last: a long one is not searched again and again. */
		if (memchr(b.data + b.len - n, '\n', (size_t)n))
			take_lines(s, &b);
	}
	if (b.len) /* a last line without its end */
		take_line(s, (const char *)b.data, b.len);
	return 0;
}
