/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <string.h>

/* The well-formed sequences, Unicode 15 table 3-7: bounds of the second byte by the first. */
int utf8_decode(const uint8_t *s, size_t n, uint32_t *out)
{
	if (n == 0)
		return 0;
	uint8_t a = s[0];
	if (a < 0x80) {
		*out = a;
		return 1;
	}
	if (a < 0xC2 || a > 0xF4)
		return -1;
	int len = a >= 0xF0 ? 4 : a >= 0xE0 ? 3 : 2;
	uint8_t lo = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80, hi = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
	uint32_t cp = a & (0x7Fu >> len);
	for (int i = 1; i < len; i++) {
		if ((size_t)i >= n)
			return 0;
		if (s[i] < lo || s[i] > hi)
			return -1;
		cp = cp << 6 | (s[i] & 0x3Fu);
		lo = 0x80;
		hi = 0xBF;
	}
	*out = cp;
	return len;
}

int utf8_encode(uint32_t cp, uint8_t out[4])
{
	if (cp < 0x80) {
		out[0] = (uint8_t)cp;
		return 1;
	}
	int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	for (int i = len - 1; i > 0; i--, cp >>= 6)
		out[i] = (uint8_t)(0x80 | (cp & 0x3F));
	out[0] = (uint8_t)(0xF00 >> len | cp);
	return len;
}

/* Eight bytes of ASCII? */
static bool is_ascii8(const uint8_t *s)
{
	uint64_t all;
	memcpy(&all, s, sizeof all);
	return (all & 0x8080808080808080u) == 0;
}

bool utf8_valid(const void *data, size_t n)
{
	const uint8_t *s = data;
	for (size_t i = 0; i < n;) {
		if (n - i >= 8 && is_ascii8(s + i)) {
			i += 8;
			continue;
		}
		if (s[i] < 0x80) {
			i++;
			continue;
		}
		uint32_t cp;
		int len = utf8_decode(s + i, n - i, &cp);
		if (len <= 0)
			return false;
		i += (size_t)len;
	}
	return true;
}

size_t utf8_whole_prefix(const uint8_t *s, size_t n)
{
	/* Only the last three bytes can begin a character that is not finished. */
	for (size_t back = 1; back <= 3 && back <= n; back++) {
		uint8_t c = s[n - back];
		if (c < 0x80)
			return n;
		if (c >= 0xC0) {
			uint32_t cp;
			return utf8_decode(s + n - back, back, &cp) == 0 ? n - back : n;
		}
	}
	return n;
}

size_t utf8_characters(const char *s, size_t n)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		count += ((uint8_t)s[i] & 0xC0) != 0x80;
	return count;
}
