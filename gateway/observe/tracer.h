/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends spans (otlp.h) to a collector: OTLP over HTTP, JSON, from a thread of its own. What the collector does not take
 * in time is dropped and counted; nothing waits for it. Any thread.
 */
#ifndef GATEWAY_TRACER_H
#define GATEWAY_TRACER_H

#include <stdint.h>

#include "base/err.h"
#include "gateway/observe/observe.h"

struct trace;
struct tracer;

/* http://HOST[:PORT]/PATH, without a query. 0, or SL_EINVAL with what is wrong, without the key. */
int tracer_check(const char *endpoint, struct sl_err *why);
/* 0, or a code with *err, which names the key. */
int tracer_create(const char *endpoint, double sample, uint64_t timeout_ms, struct tracer **out, struct sl_err *err);
/* Of requests without a valid traceparent. */
double tracer_sample(const struct tracer *t);
void tracer_put(struct tracer *t, const struct observed *o, const struct trace *trace);
/* What waits is sent after it (aside_wait). NULL allowed. */
void tracer_destroy(struct tracer *t);

#endif
