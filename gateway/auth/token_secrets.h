/* SPDX-License-Identifier: Apache-2.0
 *
 * The secrets that sign browser tokens: one for each UTC day, so they rotate without coordination. The first gateway
 * that needs a day's secret creates it, the others find it: in Redis, or without Redis in the state
 * directory (STATE/token-secrets/DAY, 0600). Tokens live an hour at most, so yesterday's secret stays valid; tomorrow's
 * is valid for gateways whose clocks differ.
 *
 * One object per thread, on the thread of its cache client.
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
	SECRET_NONE,        /* the period is too old or in the future */
	SECRET_UNAVAILABLE, /* the store does not respond */
	SECRET_ASKED,       /* done will be called */
};

/* Embedded in the waiting object. */
struct secret_wait {
	struct list node;
	/* From the loop, once. secret (THERE) is borrowed. */
	void (*done)(struct secret_wait *w, enum secret_verdict v, const uint8_t *secret);
};

/* NULL: no memory. state_dir: borrowed. */
struct token_secrets *token_secrets_create(struct cache_client *client, const char *state_dir);
/* BUG if a request waits. NULL allowed. */
void token_secrets_destroy(struct token_secrets *s);

/* The period (UTC day) of a time. */
int64_t token_secrets_period(int64_t unix_s);
/* *out (THERE) is borrowed until control returns to the loop. */
enum secret_verdict token_secrets_find(struct token_secrets *s, int64_t period, struct secret_wait *w,
				       const uint8_t **out);
/* Cancels a wait in progress: done is not called. */
void secret_wait_cancel(struct secret_wait *w);

#endif
