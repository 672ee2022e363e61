/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict parser of the PROXY protocol, versions 1 and 2: a load balancer sends the client's address before the first
 * byte of a connection. Pure.
 */
#ifndef GATEWAY_PROXY_HEADER_H
#define GATEWAY_PROXY_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/loop/net_addr.h"

enum {
	PROXY_V1_MAX = 107, /* the longest line that the specification allows, with CR LF */
	PROXY_V2_HEAD = 16,
	PROXY_HEADER_MAX = 2048, /* of version 2, extensions included */
};

enum proxy_result {
	PROXY_MORE, /* the beginning of a header */
	PROXY_DONE,
	PROXY_BAD,
};

struct proxy_header {
	size_t used; /* bytes of the header */
	bool known;  /* false: the balancer's own connection (a health check), or not an IP family; the peer's address
			counts */
	struct net_addr client;
	uint16_t port;
};

/* data[0..n) starts with the connection's first byte. Returns PROXY_BAD as early as possible, also for a header longer
 * than PROXY_HEADER_MAX. */
enum proxy_result proxy_header_parse(const uint8_t *data, size_t n, struct proxy_header *out);

#endif
