/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits per address and for memory: which address a connection or request counts for (PROXY header, X-Forwarded-For,
 * Forwarded), how many each address may have open, and what is refused while memory is short.
 *
 * Thread: the transport's.
 */
#ifndef GATEWAY_CLIENT_LIMITS_H
#define GATEWAY_CLIENT_LIMITS_H

#include <stdint.h>

#include "gateway/loop/net_addr.h"

struct conn;
struct gw_transport;
struct http_stream;

/* Called for each accepted descriptor. False: the thread is at its limit or memory is short; close it. */
bool admit_socket(struct gw_transport *tr);
/* Counts c for c->addr, which must be known. SL_ELIMIT: the address is far over its limit; close c. Slightly over the
 * limit c is accepted and gets one 429 (c->over). */
int admit_conn(struct conn *c);
void admit_conn_end(struct conn *c);
/* Is this peer trusted to send a PROXY header? */
bool admit_proxy(const struct conn *c);
/* Called when the head is complete: sets req.peer and counts the stream. 0, or the status of the refusal. */
int admit_stream(struct http_stream *s);
/* May the body of an unanswered request continue? */
bool admit_body(void);
void admit_stream_end(struct http_stream *s);
/* The error message for a status of admit_stream. */
const char *admit_reason(int status);
/* Called each tick. While memory is short, it ends idle connections, the longest idle first. */
void limits_on_tick(struct gw_transport *tr, uint64_t now_ns);

#endif
