/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json/json_out.h"

#include <stdint.h>
#include <string.h>

/* 0: copied; 1: \u00XX; else the letter after the backslash. */
static const char escapes[256] = {
    [0] = 1,  [1] = 1,      [2] = 1,      [3] = 1,      [4] = 1,     [5] = 1,       [6] = 1,
    [7] = 1,  ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', [11] = 1,    ['\f'] = 'f',  ['\r'] = 'r',
    [14] = 1, [15] = 1,     [16] = 1,     [17] = 1,     [18] = 1,    [19] = 1,      [20] = 1,
    [21] = 1, [22] = 1,     [23] = 1,     [24] = 1,     [25] = 1,    [26] = 1,      [27] = 1,
    [28] = 1, [29] = 1,     [30] = 1,     [31] = 1,     ['"'] = '"', ['\\'] = '\\', [127] = 1,
};

char *json_escape(char *dst, const char *text, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)text[i];
		char e = escapes[c];
		if (e == 0) {
			*dst++ = (char)c;
		} else if (e == 1) {
			memcpy(dst, "\\u00", 4);
			dst[4] = hex[c >> 4];
			dst[5] = hex[c & 15];
			dst += 6;
		} else {
			*dst++ = '\\';
			*dst++ = e;
		}
	}
	return dst;
}

int json_out_string(struct sl_buf *out, const char *text, size_t n)
{
	/* Counted first: reserving the worst case would refuse text that fits the bound. */
	size_t exact = 2;
	for (size_t i = 0; i < n; i++) {
		char e = escapes[(uint8_t)text[i]];
		exact += e == 0 ? 1 : e == 1 ? 6 : 2;
	}
	uint8_t *at;
	int rc = buf_reserve(out, exact, &at);
	if (rc != 0)
		return rc;
	char *p = (char *)at;
	*p++ = '"';
	p = json_escape(p, text, n);
	*p = '"';
	buf_commit(out, exact);
	return 0;
}
