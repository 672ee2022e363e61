/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hex.h"

#include <stdint.h>
#include <string.h>

static const char digits[] = "0123456789abcdefABCDEF";

void hex_put(const void *bytes, size_t n, char *out)
{
	const uint8_t *b = bytes;
	for (size_t i = 0; i < n; i++) {
		*out++ = digits[b[i] >> 4];
		*out++ = digits[b[i] & 15];
	}
	*out = '\0';
}

static int value_of(char c)
{
	const char *at = c != '\0' ? strchr(digits, c) : NULL;
	int v = at != NULL ? (int)(at - digits) : -1;
	return v < 16 ? v : v - 6;
}

bool hex_get(const char *text, void *out, size_t n)
{
	uint8_t *b = out;
	if (text == NULL || strlen(text) != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		b[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}
