/* SPDX-License-Identifier: Apache-2.0
 *
 * The redis-server that `sluice serve` starts when the configuration names none.
 */
#ifndef CMD_PRIVATE_REDIS_H
#define CMD_PRIVATE_REDIS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { PRIVATE_REDIS_ARGS = 40 };

struct private_redis {
	char exe[1024];    /* "": not installed */
	char dir[128];     /* STATE/redis */
	char socket[128];  /* STATE/run/redis.sock */
	char address[160]; /* the same for cache.address */
	char memory[32];
	const char *argv[PRIVATE_REDIS_ARGS]; /* its command line */
};

/* Searches PATH. r must not move afterwards: argv points into it. */
bool private_redis_find(struct private_redis *r, const char *state, uint64_t memory_bytes);
/* It starts with the state folder as its working directory, whose parents it may not be able to enter. */
void private_redis_starts_in_state(struct private_redis *r);
/* Makes its folder. 0, or SL_EIO with err. */
int private_redis_prepare(const struct private_redis *r, struct sl_err *err);

#endif
