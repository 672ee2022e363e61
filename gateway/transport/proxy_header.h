/* SPDX-License-Identifier: Apache-2.0
 *
 * The PROXY protocol, versions 1 and 2: a load balancer sends the client's address before the first
 * byte of a connection. Read strictly; a pure function over bytes.
 */
#ifndef GATEWAY_PROXY_HEADER_H
#define GATEWAY_PROXY_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/loop/net_addr.h"

enum {
	PROXY_V1_MAX = 107, /* with CR LF: the longest line of the specification */
	PROXY_V2_HEAD = 16,
	PROXY_HEADER_MAX = 2048, /* of version 2, extensions included */
};

enum proxy_result {
	PROXY_MORE, /* so far a header, not whole */
	PROXY_DONE,
	PROXY_BAD,
};

struct proxy_header {
	size_t used; /* bytes of the header */
	bool known;  /* false: the balancer's own connection (health checks), or a family
			that has no such addresses: the peer stays the peer */
	struct net_addr client;
	uint16_t port;
};

/* data[0..n) from the connection's first byte. Bad is returned as soon as it is certain, also when
 * the header would be longer than PROXY_HEADER_MAX. */
enum proxy_result proxy_header_parse(const uint8_t *data, size_t n, struct proxy_header *out);

#endif
