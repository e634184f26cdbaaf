/* stream: what a captured call prints, as `output` events while it runs (docs/protocol.md). */
#ifndef NTR_CLI_NTRD_STREAM_H
#define NTR_CLI_NTRD_STREAM_H

#include "ntrd.h"

struct ntrd_stream {
	struct ntrd_req *rq;
	bool lost; /* the client did not read, or is gone: no more events */
	struct ntrd_tail {
		uint8_t bytes[4];
		size_t n;
	} tail[2];
};

/* Fits ntr_call_spec.output; user: the stream. From one thread at a time. */
void ntrd_stream_output(void *user, int stream, const void *p, size_t n);
/* Sends what was held back. */
void ntrd_stream_end(struct ntrd_stream *st);

#endif
