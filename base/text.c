/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <string.h>

bool text_ends(const char *s, const char *with)
{
	size_t n = strlen(s), m = strlen(with);
	return n >= m && strcmp(s + n - m, with) == 0;
}

static bool is_control(char c) { return (unsigned char)c < ' ' || c == 0x7f; }

bool text_has_control(const char *s, size_t n)
{
	size_t i = 0;
	while (i < n && !is_control(s[i]))
		i++;
	return i < n;
}

void text_one_line(char *s, char by)
{
	for (; *s != '\0'; s++)
		if (is_control(*s))
			*s = by;
}
