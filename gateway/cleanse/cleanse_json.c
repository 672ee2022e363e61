/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a JSON text ends (RFC 8259). Nothing is built: one bit for each level says whether it is an
 * object.
 */
#include <string.h>

#include "gateway/cleanse/cleanse_priv.h"

enum { MAX_DEPTH = 64 };

static size_t blanks(const char *t, size_t n, size_t i)
{
	while (i < n && (cleanse_blank(t[i]) || t[i] == '\n' || t[i] == '\r'))
		i++;
	return i;
}

/* After the closing quote; 0: there is none, or what is in it is no JSON. */
static size_t string_end(const char *t, size_t n, size_t i, size_t *read)
{
	for (i++; i < n && t[i] != '"' && (unsigned char)t[i] >= 0x20; i++) {
		if (t[i] != '\\')
			continue;
		if (++i >= n || strchr("\"\\/bfnrtu", t[i]) == NULL)
			break;
	}
	*read = i;
	return i < n && t[i] == '"' ? i + 1 : 0;
}

static size_t digits(const char *t, size_t n, size_t i)
{
	while (i < n && cleanse_digit(t[i]))
		i++;
	return i;
}

static size_t number_end(const char *t, size_t n, size_t i)
{
	size_t from = i + (t[i] == '-');
	size_t end = digits(t, n, from);
	if (end == from)
		return 0;
	if (end + 1 < n && t[end] == '.' && cleanse_digit(t[end + 1]))
		end = digits(t, n, end + 1);
	if (end + 1 < n && (t[end] == 'e' || t[end] == 'E')) {
		size_t power = end + 1 + (t[end + 1] == '-' || t[end + 1] == '+');
		if (digits(t, n, power) > power)
			end = digits(t, n, power);
	}
	return end;
}

static size_t scalar_end(const char *t, size_t n, size_t i, size_t *read)
{
	static const char *const words[] = {"true", "false", "null"};
	if (i >= n)
		return 0;
	if (t[i] == '"')
		return string_end(t, n, i, read);
	if (t[i] == '-' || cleanse_digit(t[i]))
		return number_end(t, n, i);
	for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
		size_t len = strlen(words[k]);
		if (n - i >= len && memcmp(t + i, words[k], len) == 0)
			return i + len;
	}
	return 0;
}

/* After `"key":`, or 0. */
static size_t key_end(const char *t, size_t n, size_t i, size_t *read)
{
	if (i >= n || t[i] != '"' || (i = string_end(t, n, i, read)) == 0)
		return 0;
	i = blanks(t, n, i);
	return i < n && t[i] == ':' ? i + 1 : 0;
}

size_t cleanse_json_end(const char *t, size_t n, size_t *read)
{
	uint64_t objects = 0;
	int depth = 0;
	size_t i = 0;
	*read = 0;
	for (;;) {
		/* A value. */
		i = blanks(t, n, i);
		*read = i;
		if (i < n && (t[i] == '{' || t[i] == '[')) {
			bool object = t[i] == '{';
			if (depth == MAX_DEPTH)
				return 0;
			depth++;
			objects = objects << 1 | object;
			i = blanks(t, n, i + 1);
			if (i >= n || t[i] != (object ? '}' : ']')) {
				if (object && (i = key_end(t, n, i, read)) == 0)
					return 0;
				continue;
			}
		} else if ((i = scalar_end(t, n, i, read)) == 0) {
			return 0;
		}
		/* What follows it. */
		for (;;) {
			bool object = objects & 1;
			if (i < n && t[i] == (object ? '}' : ']')) {
				i++;
				objects >>= 1;
				if (--depth == 0) {
					*read = i;
					return i;
				}
				i = blanks(t, n, i);
				continue;
			}
			i = blanks(t, n, i);
			*read = i;
			if (i < n && t[i] == (object ? '}' : ']'))
				continue;
			if (i >= n || t[i] != ',')
				return 0;
			i = blanks(t, n, i + 1);
			if (object && (i = key_end(t, n, i, read)) == 0)
				return 0;
			break;
		}
	}
}
