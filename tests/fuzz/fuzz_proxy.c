/* SPDX-License-Identifier: Apache-2.0
 *
 * PROXY headers and the fields of proxies: any bytes, in pieces, give one result; what is taken lies
 * inside the input; a block without the last byte is never whole.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/transport/forwarded.h"
#include "gateway/transport/proxy_header.h"
#include "tests/fuzz/fuzz.h"

#define SEED(s)                 \
	{                       \
		s, sizeof s - 1 \
	}
static const struct {
	const char *text;
	size_t n;
} seeds[] = {
    SEED("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\nGET / HTTP/1.1\r\n"),
    SEED("PROXY TCP6 2001:db8::7 ::1 1 65535\r\n"),
    SEED("PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n"),
    SEED("\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\2\7\xc6\x33\x64\1\xdc\4\1\xbb"),
    SEED("\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\xc0\0\2\7\xc6\x33\x64\1\xdc\4\1\xbb\3\0\4\0\0\0\0"),
    SEED("\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"),
    SEED("192.0.2.1, [2001:db8::1]:443 ,10.2.2.2,unknown"),
    SEED("for=192.0.2.66;proto=https, for=\"[2001:db8::1]:_p\";by=\"a\\\"b\""),
};

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	if (i >= sizeof seeds / sizeof *seeds || seeds[i].n > max)
		return 0;
	memcpy(out, seeds[i].text, seeds[i].n);
	return seeds[i].n;
}

static void header(const uint8_t *data, size_t n)
{
	struct proxy_header whole, part;
	enum proxy_result r = proxy_header_parse(data, n, &whole), p = PROXY_MORE;
	size_t m = 0;
	for (; m <= n && p == PROXY_MORE; m++) {
		uint8_t *exact = malloc(m > 0 ? m : 1);
		FUZZ_REQUIRE(exact != NULL);
		memcpy(exact, data, m);
		p = proxy_header_parse(exact, m, &part);
		free(exact);
	}
	FUZZ_REQUIRE(r == p);
	if (r == PROXY_MORE)
		FUZZ_REQUIRE(n < PROXY_HEADER_MAX);
	if (r != PROXY_DONE)
		return;
	FUZZ_REQUIRE(whole.used == m - 1 && whole.used > 0 && whole.used <= PROXY_HEADER_MAX);
	FUZZ_REQUIRE(whole.known == part.known && whole.port == part.port &&
		     net_addr_equal(&whole.client, &part.client));
	FUZZ_REQUIRE(whole.known || !net_addr_known(&whole.client));
}

static void fields(const uint8_t *data, size_t n)
{
	static char *blocks[] = {"10.0.0.0/8", "2001:db8::/32"};
	struct net_blocks trusted;
	net_blocks_read(&(struct conf_strings){blocks, 2}, &trusted);
	static const struct net_addr peer = {.b = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}};
	char *value = malloc(n + 1);
	FUZZ_REQUIRE(value != NULL);
	if (n > 0)
		memcpy(value, data, n);
	value[n] = '\0';
	const struct http_field f[] = {{"x-forwarded-for", value}, {"forwarded", value}};
	struct net_addr client;
	FUZZ_REQUIRE(forwarded_client(FORWARDED_X_FORWARDED_FOR, f, 2, &trusted, &peer, &client) == 0);
	int rc = forwarded_client(FORWARDED_RFC7239, f, 2, &trusted, &peer, &client);
	FUZZ_REQUIRE(rc == 0 || rc == SL_EPROTO);
	free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	header(data, n);
	fields(data, n);
	return 0;
}
