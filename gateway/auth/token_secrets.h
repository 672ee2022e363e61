/* SPDX-License-Identifier: Apache-2.0
 *
 * The secrets that sign browser tokens: one for each UTC day, so they rotate without coordination. The
 * first gateway that needs a day's secret makes it, and all others find that one:
 * in Redis, where the gateways that share it agree, or in the state folder (STATE/token-secrets/DAY, 0600)
 * when there is no Redis. Tokens live an hour at most, so yesterday's secret is still good, and tomorrow's
 * too, for clocks that differ.
 *
 * One of these a thread, on the thread of its cache client.
 */
#ifndef GATEWAY_TOKEN_SECRETS_H
#define GATEWAY_TOKEN_SECRETS_H

#include <stdint.h>

#include "base/list.h"
#include "gateway/auth/browser_token.h"

struct cache_client;
struct token_secrets;

enum secret_verdict {
	SECRET_THERE,
	SECRET_NONE,        /* no token is signed by such a period's */
	SECRET_UNAVAILABLE, /* the store gives no answer */
	SECRET_ASKED,       /* done will be called */
};

/* In whatever waits. */
struct secret_wait {
	struct list node;
	/* From the loop, once. secret (THERE) is lent. */
	void (*done)(struct secret_wait *w, enum secret_verdict v, const uint8_t *secret);
};

/* NULL: no memory. state_dir: borrowed. */
struct token_secrets *token_secrets_create(struct cache_client *client, const char *state_dir);
/* Nobody waits any more: BUG. NULL is fine. */
void token_secrets_destroy(struct token_secrets *s);

/* The period of a time. */
int64_t token_secrets_period(int64_t unix_s);
/* *out (THERE) is lent until control returns to the loop. */
enum secret_verdict token_secrets_find(struct token_secrets *s, int64_t period, struct secret_wait *w,
				       const uint8_t **out);
/* done will not come. Only of one that waits. */
void secret_wait_cancel(struct secret_wait *w);

#endif
