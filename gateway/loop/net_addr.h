/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of peers: one form for IPv4 and IPv6, blocks of them (CIDR), and the group that limits
 * are kept by. Pure functions.
 */
#ifndef GATEWAY_NET_ADDR_H
#define GATEWAY_NET_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/conf/conf.h"

/* IPv6, or IPv4 as ::ffff:a.b.c.d (RFC 4291 2.5.5.2). All zero: not known (a unix socket). */
struct net_addr {
	uint8_t b[16];
};

struct net_block {
	struct net_addr addr;
	unsigned bits; /* of the 128 that count */
};

enum { NET_ADDR_TEXT = 46 };

/* Exactly an address, n bytes: no brackets, zone, port or blanks. */
bool net_addr_parse(const char *text, size_t n, struct net_addr *out);
void net_addr_from_sockaddr(const struct sockaddr_storage *sa, struct net_addr *out);
/* "" when not known. */
void net_addr_print(const struct net_addr *a, char out[NET_ADDR_TEXT]);
bool net_addr_known(const struct net_addr *a);
bool net_addr_equal(const struct net_addr *a, const struct net_addr *b);
/* Whose limits these are: an IPv4 address itself, of IPv6 the /64, which one host owns whole. */
struct net_addr net_addr_group(const struct net_addr *a);

/* "10.0.0.0/8", "::1", "2001:db8::/32". Bits behind the prefix must be zero. */
bool net_block_parse(const char *text, struct net_block *out);
bool net_block_holds(const struct net_block *b, const struct net_addr *a);
/* A list of a configuration, which bounds it. */
enum { NET_BLOCKS_MOST = 64 };
struct net_blocks {
	size_t n;
	struct net_block at[NET_BLOCKS_MOST];
};
/* The blocks, written as above. Text that is none is left out. */
void net_blocks_read(const struct conf_strings *texts, struct net_blocks *out);
bool net_blocks_hold(const struct net_blocks *blocks, const struct net_addr *a);

#endif
