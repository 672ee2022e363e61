/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_depth.h"

/* Where the string that begins at text[i] ends: at its second quote, or at n or behind it. */
static size_t end_of_string(const char *text, size_t n, size_t i)
{
	for (i++; i < n && text[i] != '"'; i++)
		if (text[i] == '\\')
			i++;
	return i;
}

bool json_deeper_than(const char *text, size_t n, size_t max)
{
	size_t depth = 0;
	for (size_t i = 0; i < n; i++) {
		char c = text[i];
		if (c == '"') {
			i = end_of_string(text, n, i);
		} else if (c == '{' || c == '[') {
			if (++depth > max)
				return true;
		} else if ((c == '}' || c == ']') && depth > 0) {
			depth--;
		}
	}
	return false;
}

size_t json_weight(const char *text, size_t n)
{
	static const unsigned char of[256] = {['{'] = 8, ['['] = 8, [':'] = 4, [','] = 1};
	size_t weight = 0;
	for (size_t i = 0; i < n; i++) {
		weight += of[(unsigned char)text[i]];
		if (text[i] == '"')
			i = end_of_string(text, n, i);
	}
	return weight;
}
