/* SPDX-License-Identifier: Apache-2.0
 *
 * Who asks, and whether they may: from a request's Authorization and Origin to exchange.key, or to the
 * answer that says why not. In this order:
 *
 *   nothing shown      the tier gateway.anonymous, by address; or 401
 *   a configured key   found at once
 *   a browser token    its signature, then the key that made it
 *   another key        the store's, when that is Redis (identities.h)
 *
 * then Origin (403), requests in progress (429), and what the route wants (403). What is known is decided
 * inside the call; only what the store has to be asked for is told later.
 */
#ifndef GATEWAY_ACCESS_H
#define GATEWAY_ACCESS_H

#include "gateway/exchange/exchange.h"

enum access_verdict { ACCESS_GRANTED, ACCESS_REFUSED, ACCESS_WAITS };

/* REFUSED: x is answered. WAITS: granted is called from the loop, or x is answered, unless access_cancel
 * comes first. */
enum access_verdict access_check(struct exchange *x, void (*granted)(struct exchange *x));
/* The exchange goes: of one that waits or not. */
void access_cancel(struct exchange *x);
/* What x counts among its key's open requests is given back, and the key let go. */
void access_release(struct exchange *x);
/* For app.c. */
void access_metrics_register(void);

#endif
