/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GATEWAY_LABEL_H
#define GATEWAY_LABEL_H

#include <stddef.h>

/* A label's value as the Prometheus text format quotes it: `\\`, `\"` and `\n`; cut where there is no room. */
static inline void label_escape(char *out, size_t room, const char *value)
{
	size_t n = 0;
	for (const char *p = value; *p != '\0' && n + 3 < room; p++) {
		if (*p == '\\' || *p == '"' || *p == '\n')
			out[n++] = '\\';
		out[n++] = *p == '\n' ? 'n' : *p;
	}
	out[n] = '\0';
}

#endif
