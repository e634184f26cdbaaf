/* mcp, rpc: one message a line. What is no message of JSON-RPC's is answered as its rules say; the server
 * lives on. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <errno.h>

#define READ_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY)

enum { LINE_MAX_BYTES = 64 << 20, CHUNK = 65536 };

/* ---- messages */

/* A request's id is a string or a whole number; 1 and "1" are two. */
bool ntr_mcp_is_id(const json_t *id)
{
	return json_is_string(id) || json_is_integer(id);
}

static void take_message(struct ntr_mcp *s, json_t *msg)
{
	json_t *id = json_object_get(msg, "id"), *params = json_object_get(msg, "params");
	const char *method = json_string_value(json_object_get(msg, "method"));

	if (!json_is_object(msg) || strcmp(ntr_json_str(msg, "jsonrpc", ""), "2.0") != 0 ||
	        (id && !ntr_mcp_is_id(id))) {
		ntr_mcp_fail(s, ntr_mcp_is_id(id) ? id : NULL, NTR_RPC_REQUEST,
		        "this is no message of JSON-RPC 2.0");
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

/* Several messages at once: one revision has it, the next took it out again. The answers come one by one, as
 * they would without. */
static void take_batch(struct ntr_mcp *s, const json_t *batch)
{
	json_t *msg;
	size_t i;

	if (!json_array_size(batch) || !s->rev || !s->rev->batches) {
		ntr_mcp_fail(s, NULL, NTR_RPC_REQUEST,
		        json_array_size(batch) ? "this revision of the protocol has no batches"
		                               : "an empty batch");
		return;
	}
	json_array_foreach (batch, i, msg)
		take_message(s, msg);
}

/* ---- what is no JSON */

static bool is_half(const char *p, const char *end, const char *first)
{
	return end - p >= 6 && p[0] == '\\' && p[1] == 'u' && (p[2] | 32) == 'd' && strchr(first, p[3] | 32);
}

/* Halves of surrogate pairs, which JSON lets through and which are no text, become U+FFFD. True: there were
 * some. */
static bool mend_halves(char *p, size_t n)
{
	bool found = false;

	for (const char *end = p + n; p < end; p++) {
		if (*p != '\\')
			continue;
		if (is_half(p, end, "89ab") && is_half(p + 6, end, "cdef")) {
			p += 11;
		} else if (is_half(p, end, "89abcdef")) {
			memcpy(p + 2, "fffd", 4);
			found = true;
			p += 5;
		} else {
			p++; /* what is escaped, be it a backslash */
		}
	}
	return found;
}

/* Who sent half a character is to be told, by the id: waiting for an answer for ever helps nobody. */
static bool refuse_halves(struct ntr_mcp *s, const char *line, size_t n)
{
	ntr_autofree char *copy = malloc(n);
	ntr_autojson json_t *msg = NULL;
	const json_t *id;

	if (!copy)
		return false;
	memcpy(copy, line, n);
	if (mend_halves(copy, n))
		msg = json_loadb(copy, n, READ_FLAGS, NULL);
	id = json_object_get(msg, "id");
	if (!ntr_mcp_is_id(id))
		return false;
	ntr_mcp_fail(s, id, NTR_RPC_PARAMS,
	        "a string holds half of a surrogate pair, which is no character; send the whole pair, or "
	        "U+FFFD");
	return true;
}

/* The same for a whole number that has more than 64 bits. */
static bool refuse_number(struct ntr_mcp *s, const char *line, size_t n)
{
	ntr_autojson json_t *msg = json_loadb(line, n, READ_FLAGS | JSON_DECODE_INT_AS_REAL, NULL);
	ntr_autojson json_t *id = json_incref(json_object_get(msg, "id"));
	double d = json_real_value(id);

	if (json_is_real(id)) {
		json_decref(id);
		id = d > -1e15 && d < 1e15 ? json_integer((json_int_t)d) : NULL;
	}
	if (!ntr_mcp_is_id(id))
		return false;
	ntr_mcp_fail(s, id, NTR_RPC_PARAMS, "a whole number has more than 64 bits");
	return true;
}

static void refuse_line(struct ntr_mcp *s, const char *line, size_t n, const json_error_t *je)
{
	char text[JSON_ERROR_TEXT_LENGTH + 32];

	if (json_error_code(je) == json_error_numeric_overflow ? refuse_number(s, line, n)
	                                                       : refuse_halves(s, line, n))
		return;
	snprintf(text, sizeof text, "this is no JSON: %s", je->text);
	ntr_mcp_fail(s, NULL, NTR_RPC_PARSE, text);
}

/* ---- lines */

static void take_line(struct ntr_mcp *s, const char *line, size_t n)
{
	ntr_autojson json_t *msg = NULL;
	json_error_t je;

	while (n && strchr(" \t\r\n", line[n - 1]))
		n--;
	if (!n)
		return;
	s->line = n;
	msg = json_loadb(line, n, READ_FLAGS, &je);
	if (!msg)
		refuse_line(s, line, n, &je);
	else if (json_is_array(msg))
		take_batch(s, msg);
	else
		take_message(s, msg);
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
	if (!b->len && b->cap > 16 * CHUNK) /* one large message is not remembered for ever */
		ntr_buf_done(b);
}

/* What came last is of a line that is too long: dropped, up to its end. True: the end is there. */
static bool skip_line(struct ntr_buf *b, size_t n)
{
	const uint8_t *end = memchr(b->data + b->len - n, '\n', n);
	size_t rest = end ? (size_t)(b->data + b->len - end) - 1 : 0;

	if (rest)
		memmove(b->data, end + 1, rest);
	b->len = rest;
	return end;
}

/* Lines are looked for in what came last: a long one is not searched again and again. */
static void take_chunk(struct ntr_mcp *s, struct ntr_buf *b, size_t n, bool *skip)
{
	if (*skip && !skip_line(b, n))
		return;
	*skip = false;
	if (b->len && memchr(b->data + b->len - NTR_MIN(n, b->len), '\n', NTR_MIN(n, b->len)))
		take_lines(s, b);
	if (b->len <= LINE_MAX_BYTES)
		return;
	ntr_buf_done(b);
	*skip = true;
	ntr_mcp_fail(s, NULL, NTR_RPC_REQUEST, "a message is longer than 64 MiB");
}

int ntr_mcp_read(struct ntr_mcp *s, struct ntr_err *e)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	bool skip = false;

	while (!s->out.broken) {
		ssize_t n;

		if (ntr_buf_reserve(&b, CHUNK))
			return ntr_err_set(e, -ENOMEM, "read a message");
		n = read(STDIN_FILENO, b.data + b.len, CHUNK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ntr_err_set(e, -errno, "read from stdin");
		if (!n)
			break;
		b.len += (size_t)n;
		take_chunk(s, &b, (size_t)n, &skip);
	}
	if (b.len && !skip) /* a last line without its end */
		take_line(s, (const char *)b.data, b.len);
	return 0;
}
