/* SPDX-License-Identifier: Apache-2.0
 *
 * Authentication and authorization: from a request's Authorization and Origin to exchange.key, or to the error
 * response. In this order:
 *
 *   no credentials     the tier gateway.anonymous, by address; or 401
 *   a configured key   found at once
 *   a browser token    its signature, then the key that made it
 *   another key        from the store, if that is Redis (identities.h)
 *
 * then Origin (403), requests in progress (429), and the route's access (403). Only decisions that need the store come
 * later; all others are made inside the call.
 */
#ifndef GATEWAY_ACCESS_H
#define GATEWAY_ACCESS_H

#include "gateway/exchange/exchange.h"

enum access_verdict { ACCESS_GRANTED, ACCESS_REFUSED, ACCESS_WAITS };

/* REFUSED: x is answered. WAITS: granted is called from the loop, or x is answered, unless access_cancel
 * comes first. */
enum access_verdict access_check(struct exchange *x, void (*granted)(struct exchange *x));
/* Ends the check, if one waits. */
void access_cancel(struct exchange *x);
/* Releases x's key, and its count among the key's open requests. */
void access_release(struct exchange *x);

#endif
