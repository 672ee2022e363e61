/* SPDX-License-Identifier: Apache-2.0
 *
 * What the handlers of requests for text share.
 */
#ifndef GATEWAY_API_REQUEST_H
#define GATEWAY_API_REQUEST_H

#include <stdbool.h>

#include "gateway/answer/answer.h"
#include "gateway/exchange/exchange.h"
#include "gateway/request/request_fields.h"

/* The bounds of the exchange's configuration. */
struct request_limits api_limits(const struct exchange *x);
/* What a parser said (its code and its error): true when x goes on, otherwise it has been answered.
 * The body is let go. */
bool api_parsed(struct exchange *x, int rc, const struct request_error *e);
/* Counts what was removed from the users' messages, and lets the answer say so. */
void api_cleansed(struct exchange *x, const struct cleanse_stats *stats);
/* The metrics of that; once. */
void api_cleansed_register(void);
/* The client can resume a stream by its events' numbers, and says so: `x-sluice-events: 1`. */
bool api_wants_ids(const struct exchange *x);
/* What the common fields and x say of an answer; the rest is the caller's. */
struct answer_spec api_spec(const struct exchange *x, const struct request_common *c,
			    const struct answer_format *format, int model);

enum { API_MAX_REPLY = 64 << 20 };
/* 200 with v, which it takes; NULL: there was no memory for it. */
void api_reply_json(struct exchange *x, json_t *v);

#endif
