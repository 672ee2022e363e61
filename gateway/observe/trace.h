/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace that a request belongs to: W3C Trace Context (https://www.w3.org/TR/trace-context/), read strictly. A
 * header that is not exactly as the text has it is ignored, and a new trace begins where sampling says so. A request
 * with a valid traceparent is exported if its caller's is (flag 01), and only then.
 *
 * Pure but for random numbers; any thread.
 */
#ifndef GATEWAY_TRACE_H
#define GATEWAY_TRACE_H

#include <stdbool.h>
#include <stdint.h>

enum { TRACE_ID_BYTES = 16, SPAN_ID_BYTES = 8, TRACE_STATE_BYTES = 512 };

struct trace {
	uint8_t id[TRACE_ID_BYTES], span[SPAN_ID_BYTES], parent[SPAN_ID_BYTES]; /* span: the request's own */
	bool has_parent, sampled;                                               /* sampled: it is exported */
	char hex[2 * TRACE_ID_BYTES + 1];                                       /* of id */
	char state[TRACE_STATE_BYTES + 1];                                      /* tracestate; "": none */
};

/* parent, state: the header fields; NULL: there was none, or more than one traceparent. sample: the share of requests
 * without a valid parent that begin a trace. NULL: it has none (or there was no memory, or no random numbers). */
struct trace *trace_begin(const char *parent, const char *state, double sample);
/* NULL allowed. */
void trace_free(struct trace *t);

/* ---- for tests ---- */

bool trace_parent_read(const char *text, struct trace *out);
/* At most TRACE_STATE_BYTES of at most 32 members, each key=value. */
bool trace_state_valid(const char *text);

#endif
