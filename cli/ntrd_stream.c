/* The output of a call as events while it runs. A character that a read cut in two goes out whole. A client
 * that does not read for STALL_MS gets no more events; the call goes on. */
#include "ntrd_stream.h"

#include "../base/util.h"

#include <errno.h>

enum { STALL_MS = 10000, PIECE = 64 << 10 };

/* Bytes at the end of p that begin a character of UTF-8 which is not complete. */
static size_t cut_tail(const uint8_t *p, size_t n)
{
	for (size_t back = 1; back <= 3 && back <= n; back++) {
		uint8_t c = p[n - back];
		size_t want = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;

		if ((c & 0xC0) != 0x80)
			return want > back ? back : 0;
	}
	return 0;
}

static void send_piece(struct ntrd_stream *st, int stream, const void *p, size_t n)
{
	json_t *ev;
	int r;

	if (!n || st->lost)
		return;
	ev = json_pack("{s:s,s:s,s:o}", "event", "output", "stream", stream ? "stderr" : "stdout", "data",
	        ntr_json_bytes(p, n));
	r = ntrd_conn_try_send(st->rq->conn, ev, STALL_MS);
	if (r)
		st->lost = true;
}

void ntrd_stream_output(void *user, int stream, const void *p, size_t n)
{
	struct ntrd_stream *st = user;
	struct ntrd_tail *t = &st->tail[stream];
	uint8_t buf[PIECE + sizeof t->bytes];

	for (const uint8_t *at = p; n;) {
		size_t k = NTR_MIN(n, (size_t)PIECE), len = t->n + k, tail;

		memcpy(buf, t->bytes, t->n);
		memcpy(buf + t->n, at, k);
		tail = cut_tail(buf, len);
		send_piece(st, stream, buf, len - tail);
		memcpy(t->bytes, buf + len - tail, tail);
		t->n = tail;
		at += k;
		n -= k;
	}
}

void ntrd_stream_end(struct ntrd_stream *st)
{
	for (int i = 0; i < 2; i++) {
		send_piece(st, i, st->tail[i].bytes, st->tail[i].n);
		st->tail[i].n = 0;
	}
}
