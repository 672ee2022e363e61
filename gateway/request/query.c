/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request/query.h"

#include <string.h>

#include "base/err.h"

enum { NAME_BYTES = 64, NUMBER_BYTES = 20 };

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes up to one of `stops` or the end. What is no escape stays as it is. NULL: no room, or a NUL. */
static const char *decode(const char *p, const char *stops, char *out, size_t room)
{
	size_t n = 0;
	while (*p != '\0' && strchr(stops, *p) == NULL) {
		char c = *p++;
		if (c == '+') {
			c = ' ';
		} else if (c == '%' && hex_digit(p[0]) >= 0 && hex_digit(p[1]) >= 0) {
			c = (char)(hex_digit(p[0]) << 4 | hex_digit(p[1]));
			p += 2;
		}
		if (c == '\0' || n + 1 >= room)
			return NULL;
		out[n++] = c;
	}
	out[n] = '\0';
	return p;
}

int query_get(const char *query, const char *name, char *out, size_t room)
{
	for (const char *p = query; *p != '\0';) {
		char found[NAME_BYTES];
		const char *end = decode(p, "=&", found, sizeof found);
		if (end != NULL && strcmp(found, name) == 0) {
			if (*end == '=')
				end++;
			return decode(end, "&", out, room) != NULL ? 1 : SL_EINVAL;
		}
		p += strcspn(p, "&");
		p += *p == '&';
	}
	return 0;
}

int query_get_bool(const char *query, const char *name, bool *out)
{
	char text[sizeof "false"];
	int rc = query_get(query, name, text, sizeof text);
	if (rc <= 0)
		return rc;
	if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
		return SL_EINVAL;
	*out = text[0] == 't';
	return 0;
}

int query_get_u64(const char *query, const char *name, uint64_t *out)
{
	char text[NUMBER_BYTES];
	uint64_t n = 0;
	int rc = query_get(query, name, text, sizeof text);
	if (rc <= 0)
		return rc;
	if (text[0] == '\0')
		return SL_EINVAL;
	for (const char *p = text; *p != '\0'; p++) {
		if (*p < '0' || *p > '9' || n > (1ULL << 53))
			return SL_EINVAL;
		n = n * 10 + (uint64_t)(*p - '0');
	}
	*out = n;
	return 1;
}
