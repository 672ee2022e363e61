/* SPDX-License-Identifier: Apache-2.0
 *
 * Redis Sentinel: who knows the address of a Redis that may change by failover ("Sentinel clients",
 * redis.io/docs/latest/develop/reference/sentinel-clients). An address `sentinel:NAME@HOST:PORT,HOST:PORT…` names the
 * Redis and its sentinels. They are asked in turn, one for each attempt to connect; what a link writes first then shows
 * whether that Redis is the primary.
 */
#ifndef CACHE_SENTINEL_H
#define CACHE_SENTINEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum {
	MAX_SENTINELS = 8,
	SENTINEL_NAME_MOST = 64,
	SENTINEL_MOST_LOOKUPS = 32, /* of names that sentinels answer, at once in a process */
	SENTINEL_HOST_MOST = 256,   /* with the final zero, as a sentinel may name a host */
};

struct sentinel_set {
	char name[SENTINEL_NAME_MOST + 1]; /* of the Redis */
	struct sentinel_place {
		char host[64]; /* numeric */
		int port;
	} of[MAX_SENTINELS];
	size_t n; /* 0: no sentinels */
};

bool sentinel_is(const char *address);
/* Resolves their names. 0, SL_EINVAL, SL_EIO (a name is unknown) with err. */
int sentinel_parse(const char *address, struct sentinel_set *out, struct sl_err *err);

/* "HOST:PORT" or "[ADDRESS]:PORT" of n bytes: *host_at and *host_n within text, *port. */
bool redis_split_address(const char *text, size_t n, size_t *host_at, size_t *host_n, int *port);
/* The numeric address of a host. Blocks. 0, or SL_EIO with the host and the reason in err. */
int redis_find_host(const char *host, int port, char out[64], struct sl_err *err);
/* Whether a sentinel's answer may be a host and a port; then *out is the port. */
bool sentinel_names_host(const char *host, size_t n, const char *port, int *out);

#endif
