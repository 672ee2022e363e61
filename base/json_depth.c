/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_depth.h"

bool json_deeper_than(const char *text, size_t n, size_t max)
{
	size_t depth = 0;
	bool in_string = false;
	for (size_t i = 0; i < n; i++) {
		char c = text[i];
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
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
	bool in_string = false;
	for (size_t i = 0; i < n; i++) {
		char c = text[i];
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else {
			weight += of[(unsigned char)c];
		}
	}
	return weight;
}
