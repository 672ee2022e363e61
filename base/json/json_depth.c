/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json/json_depth.h"

#include <string.h>

/* The offset after the string whose first character is text[i]; n if it does not end. A quote after an odd number of
 * backslashes belongs to the string. */
static size_t skip_string(const char *text, size_t i, size_t n)
{
	const char *from = text + i, *end = text + n;
	for (const char *p = from; p < end; p++) {
		const char *quote = memchr(p, '"', (size_t)(end - p));
		if (quote == NULL)
			return n;
		const char *b = quote;
		while (b > from && b[-1] == '\\')
			b--;
		if ((quote - b) % 2 == 0)
			return (size_t)(quote - text) + 1;
		p = quote;
	}
	return n;
}

bool json_measure(const char *text, size_t n, size_t max_depth, size_t *weight)
{
	enum { QUOTE = 64, OPENS = 128, CLOSES = 32, WEIGHT = 15 };
	static const unsigned char of[256] = {
	    ['{'] = OPENS | 8, ['['] = OPENS | 8, [':'] = 4, [','] = 1, ['}'] = CLOSES, [']'] = CLOSES, ['"'] = QUOTE};
	size_t depth = 0, sum = 0;
	for (size_t i = 0; i < n;) {
		unsigned c = of[(unsigned char)text[i++]];
		if (c == 0)
			continue;
		sum += c & WEIGHT;
		if (c == QUOTE)
			i = skip_string(text, i, n);
		else if ((c & OPENS) != 0 && ++depth > max_depth)
			return false;
		else if (c == CLOSES && depth > 0)
			depth--;
	}
	*weight = sum;
	return true;
}

bool json_deeper_than(const char *text, size_t n, size_t max)
{
	size_t weight;
	return !json_measure(text, n, max, &weight);
}
