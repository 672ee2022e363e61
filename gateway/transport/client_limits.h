/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is let in: whose a connection or a request is (PROXY header, X-Forwarded-For, Forwarded), how
 * many of that address there may be, and what is refused while memory is short.
 */
#ifndef GATEWAY_CLIENT_LIMITS_H
#define GATEWAY_CLIENT_LIMITS_H

#include <stdint.h>

#include "gateway/loop/net_addr.h"

struct conn;
struct gw_transport;
struct http_stream;

/* Before accept's descriptor becomes a connection: is there room for any? */
bool admit_socket(struct gw_transport *tr);
/* c->addr is known: counts it. SL_ELIMIT: too many of that address by far, close it. A connection just
 * over the limit is let in to be told so (c->over). */
int admit_conn(struct conn *c);
void admit_conn_end(struct conn *c);
/* May a PROXY header from this peer be believed? */
bool admit_proxy(const struct conn *c);
/* The head is complete. 0, or the status to refuse the request with. Sets req.peer; counts it. */
int admit_stream(struct http_stream *s);
/* More of a body that nobody has answered yet? */
bool admit_body(void);
void admit_stream_end(struct http_stream *s);
/* Why, for a person. */
const char *admit_reason(int status);
/* From the tick: while memory is short, idle connections end, the longest idle first. */
void limits_on_tick(struct gw_transport *tr, uint64_t now_ns);

#endif
