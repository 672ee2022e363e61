/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of peers: one format for IPv4 and IPv6, blocks of addresses (CIDR), and the group that limits apply to.
 * Pure.
 */
#ifndef GATEWAY_NET_ADDR_H
#define GATEWAY_NET_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/conf/conf.h"

/* IPv6, or IPv4 as ::ffff:a.b.c.d (RFC 4291 2.5.5.2). All zero: unknown (a unix socket). */
struct net_addr {
	uint8_t b[16];
};

struct net_block {
	struct net_addr addr;
	unsigned bits; /* prefix length, of 128 */
};

enum { NET_ADDR_TEXT = 46 };

/* Parses n bytes that are exactly an address: no brackets, zone, port or blanks. */
bool net_addr_parse(const char *text, size_t n, struct net_addr *out);
void net_addr_from_sockaddr(const struct sockaddr_storage *sa, struct net_addr *out);
/* "" for an unknown address. */
void net_addr_print(const struct net_addr *a, char out[NET_ADDR_TEXT]);
bool net_addr_known(const struct net_addr *a);
/* 127.0.0.0/8 or ::1. */
bool net_addr_is_loopback(const struct net_addr *a);
bool net_addr_equal(const struct net_addr *a, const struct net_addr *b);
/* The group that limits apply to: an IPv4 address itself; for IPv6 the /64, which belongs to one host. */
struct net_addr net_addr_group(const struct net_addr *a);

/* Parses "10.0.0.0/8", "::1", "2001:db8::/32". Bits after the prefix must be zero. */
bool net_block_parse(const char *text, struct net_block *out);
bool net_block_holds(const struct net_block *b, const struct net_addr *a);
/* A list from the configuration, which bounds its length. */
enum { NET_BLOCKS_MOST = 64 };
struct net_blocks {
	size_t n;
	struct net_block at[NET_BLOCKS_MOST];
};
/* Parses the texts; skips malformed ones. */
void net_blocks_read(const struct conf_strings *texts, struct net_blocks *out);
bool net_blocks_hold(const struct net_blocks *blocks, const struct net_addr *a);

#endif
