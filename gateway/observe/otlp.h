/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer as spans of OpenTelemetry, in OTLP's JSON (https://opentelemetry.io/docs/specs/otlp/). Names follow its
 * conventions for generative AI (gen_ai.…). Pure.
 *
 *   chat MODEL      the request, from its body's end to the answer's; kind SERVER; events: first token, switch (of a cascade)
 *     admission     the body's end → SUBMIT
 *     queue         SUBMIT → the beginning of its prefill
 *     prefill       → its first token, in the engine
 *     decode        the first token here → the end
 *
 * Without the engine's times (a reader that left) queue and prefill are one span, `queue and prefill`.
 */
#ifndef GATEWAY_OTLP_H
#define GATEWAY_OTLP_H

#include "base/buf.h"
#include "gateway/observe/observe.h"

struct trace;

/* Appends o's spans, separated by commas, and a newline. offset_ns: from clock_now_ns to the Unix
 * epoch. */
int otlp_print(struct sl_buf *out, const struct observed *o, const struct trace *t, uint64_t offset_ns);
/* Appends the request's body: the spans of lines (each of otlp_print), and the server's name and version. */
int otlp_wrap(struct sl_buf *out, const char *lines, size_t n);

#endif
