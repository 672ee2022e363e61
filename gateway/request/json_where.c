/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request/json_where.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* One that is open. */
struct level {
	bool list, at_key;
	size_t index;    /* of a list's member */
	const char *key; /* as it is written, without quotes; NULL: none yet */
	size_t n_key;
};

/* The byte behind the string whose first quote is at i; more than n: it does not end. */
static size_t string_end(const char *s, size_t n, size_t i)
{
	for (i++; i < n && s[i] != '"'; i++)
		i += s[i] == '\\';
	return i < n ? i + 1 : n + 1;
}

static void print(const struct level *levels, size_t depth, char *out, size_t room)
{
	size_t at = 0;
	out[0] = '\0';
	for (size_t d = 0; d < depth && d < JSON_WHERE_DEPTH; d++) {
		const struct level *l = &levels[d];
		int n = l->list          ? snprintf(out + at, room - at, "[%zu]", l->index)
			: l->key != NULL ? snprintf(out + at, room - at, "%s%.*s", at > 0 ? "." : "",
						    (int)(l->n_key < room ? l->n_key : room), l->key)
					 : 0;
		if (n < 0 || (size_t)n >= room - at) {
			out[at] = '\0';
			return;
		}
		at += (size_t)n;
	}
}

void json_where(const void *bytes, size_t n, char *out, size_t room)
{
	const char *s = bytes;
	struct level levels[JSON_WHERE_DEPTH] = {{.list = false}}, deeper = {.list = false};
	size_t depth = 0;
	for (size_t i = 0; i < n;) {
		struct level *top = depth == 0 || depth > JSON_WHERE_DEPTH ? &deeper : &levels[depth - 1];
		size_t from = i++;
		switch (s[from]) {
		case '"':
			i = string_end(s, n, from);
			if (top->at_key && i <= n) {
				top->key = s + from + 1;
				top->n_key = i - from - 2;
				top->at_key = false;
			}
			break;
		case '{':
		case '[':
			depth++;
			if (depth <= JSON_WHERE_DEPTH)
				levels[depth - 1] = (struct level){.list = s[from] == '[', .at_key = s[from] == '{'};
			break;
		case '}':
		case ']': depth -= depth > 0; break;
		case ',':
			top->index++;
			top->at_key = !top->list;
			break;
		default: break;
		}
	}
	print(levels, depth, out, room);
}
