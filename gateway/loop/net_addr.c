/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/loop/net_addr.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { V4_AT = 12, V4_BITS = 96, GROUP_BYTES = 8 };
static const uint8_t v4_prefix[V4_AT] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool is_v4(const struct net_addr *a) { return memcmp(a->b, v4_prefix, V4_AT) == 0; }

bool net_addr_parse(const char *text, size_t n, struct net_addr *out)
{
	char copy[NET_ADDR_TEXT];
	if (n == 0 || n >= sizeof copy || memchr(text, '\0', n) != NULL)
		return false;
	memcpy(copy, text, n);
	copy[n] = '\0';
	if (inet_pton(AF_INET, copy, out->b + V4_AT) == 1) {
		memcpy(out->b, v4_prefix, V4_AT);
		return true;
	}
	return inet_pton(AF_INET6, copy, out->b) == 1;
}

void net_addr_from_sockaddr(const struct sockaddr_storage *sa, struct net_addr *out)
{
	memset(out, 0, sizeof *out);
	if (sa->ss_family == AF_INET) {
		memcpy(out->b, v4_prefix, V4_AT);
		memcpy(out->b + V4_AT, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
	} else if (sa->ss_family == AF_INET6) {
		memcpy(out->b, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
	}
}

void net_addr_print(const struct net_addr *a, char out[NET_ADDR_TEXT])
{
	out[0] = '\0';
	if (!net_addr_known(a))
		return;
	if (is_v4(a))
		inet_ntop(AF_INET, a->b + V4_AT, out, NET_ADDR_TEXT);
	else
		inet_ntop(AF_INET6, a->b, out, NET_ADDR_TEXT);
}

bool net_addr_known(const struct net_addr *a)
{
	static const struct net_addr none;
	return !net_addr_equal(a, &none);
}

bool net_addr_is_loopback(const struct net_addr *a)
{
	static const struct net_addr six = {{[15] = 1}};
	return is_v4(a) ? a->b[V4_AT] == 127 : net_addr_equal(a, &six);
}

bool net_addr_equal(const struct net_addr *a, const struct net_addr *b) { return memcmp(a->b, b->b, sizeof a->b) == 0; }

struct net_addr net_addr_group(const struct net_addr *a)
{
	struct net_addr g = *a;
	if (!is_v4(a))
		memset(g.b + GROUP_BYTES, 0, sizeof g.b - GROUP_BYTES);
	return g;
}

/* Are all bits from `from` on zero? */
static bool zero_behind(const struct net_addr *a, unsigned from)
{
	for (unsigned i = from; i < 128; i++)
		if (a->b[i / 8] & (0x80u >> (i % 8)))
			return false;
	return true;
}

bool net_block_parse(const char *text, struct net_block *out)
{
	const char *slash = strchr(text, '/');
	size_t n = slash ? (size_t)(slash - text) : strlen(text);
	if (!net_addr_parse(text, n, &out->addr))
		return false;
	/* The prefix length of an IPv4 block counts from the first bit of the IPv4 address. */
	bool v4 = memchr(text, ':', n) == NULL;
	out->bits = 128;
	if (slash == NULL)
		return true;
	size_t digits = strspn(slash + 1, "0123456789");
	if (digits == 0 || digits > 3 || slash[1 + digits] != '\0')
		return false;
	unsigned long bits = strtoul(slash + 1, NULL, 10);
	if (bits > (v4 ? 32 : 128))
		return false;
	out->bits = (unsigned)bits + (v4 ? V4_BITS : 0);
	return zero_behind(&out->addr, out->bits);
}

bool net_block_holds(const struct net_block *b, const struct net_addr *a)
{
	unsigned whole = b->bits / 8, rest = b->bits % 8;
	if (memcmp(a->b, b->addr.b, whole) != 0)
		return false;
	return rest == 0 || ((a->b[whole] ^ b->addr.b[whole]) & (0xff00u >> rest) & 0xff) == 0;
}

void net_blocks_read(const struct conf_strings *texts, struct net_blocks *out)
{
	out->n = 0;
	for (size_t i = 0; i < texts->n && out->n < NET_BLOCKS_MOST; i++)
		if (net_block_parse(texts->items[i], &out->at[out->n]))
			out->n++;
}

bool net_blocks_hold(const struct net_blocks *blocks, const struct net_addr *a)
{
	for (size_t i = 0; i < blocks->n; i++)
		if (net_block_holds(&blocks->at[i], a))
			return true;
	return false;
}
