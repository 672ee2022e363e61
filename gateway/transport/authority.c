/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/transport/authority.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

enum { PORT_MOST = 65535 };

static bool is_hex(char c) { return isxdigit((unsigned char)c) != 0; }

/* reg-name: unreserved, sub-delims, "%" and two hexadecimal digits. An IPv4 address matches too. */
static bool is_name(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '%' && (n - i < 3 || !is_hex(p[i + 1]) || !is_hex(p[i + 2])))
			return false;
		if (p[i] == '\0' || (!isalnum((unsigned char)p[i]) && strchr("-._~!$&'()*+,;=%", p[i]) == NULL))
			return false;
	}
	return n > 0;
}

static bool is_ipv6(const char *p, size_t n)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr a;
	if (n >= sizeof text)
		return false;
	memcpy(text, p, n);
	text[n] = '\0';
	return memchr(p, '\0', n) == NULL && inet_pton(AF_INET6, text, &a) == 1;
}

/* An empty port is the scheme's default. */
static bool is_port(const char *p, size_t n)
{
	unsigned port = 0;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9' || (port = port * 10 + (unsigned)(p[i] - '0')) > PORT_MOST)
			return false;
	}
	return true;
}

bool authority_is_valid(const char *text, size_t n)
{
	const char *end;
	if (n > 0 && text[0] == '[') {
		end = memchr(text, ']', n);
		if (end == NULL || !is_ipv6(text + 1, (size_t)(end - text) - 1))
			return false;
		end++;
	} else {
		end = memchr(text, ':', n);
		end = end != NULL ? end : text + n;
		if (!is_name(text, (size_t)(end - text)))
			return false;
	}
	size_t left = n - (size_t)(end - text);
	return left == 0 || (*end == ':' && is_port(end + 1, left - 1));
}
