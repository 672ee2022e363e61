/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json/json_where.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/json/json_scan.h"

/* An open object or array. */
struct level {
	bool list, at_key;
	size_t index;         /* of an array's element */
	struct proto_str key; /* raw; at is NULL before the first */
};

static void print(const struct level *levels, size_t depth, char *out, size_t room)
{
	size_t at = 0;
	out[0] = '\0';
	for (size_t d = 0; d < depth && d < JSON_WHERE_DEPTH; d++) {
		const struct level *l = &levels[d];
		int n = l->list             ? snprintf(out + at, room - at, "[%zu]", l->index)
			: l->key.at != NULL ? snprintf(out + at, room - at, "%s%.*s", at > 0 ? "." : "",
						       (int)(l->key.n < room ? l->key.n : room), l->key.at)
					    : 0;
		if (n < 0 || (size_t)n >= room - at) {
			out[at] = '\0';
			return;
		}
		at += (size_t)n;
	}
}

void json_where(const char *text, size_t n, char *out, size_t room)
{
	struct level levels[JSON_WHERE_DEPTH] = {{.list = false}}, deeper = {.list = false};
	struct json_scan s;
	struct proto_str raw;
	size_t depth = 0;
	json_scan_init(&s, text, n);
	for (char c; (c = json_scan_peek(&s)) != '\0';) {
		struct level *top = depth == 0 || depth > JSON_WHERE_DEPTH ? &deeper : &levels[depth - 1];
		if (c == '"') {
			if (json_scan_string(&s, &raw) && top->at_key) {
				top->key = raw;
				top->at_key = false;
			}
			continue;
		}
		s.at++;
		if (c == '{' || c == '[') {
			if (depth++ < JSON_WHERE_DEPTH)
				levels[depth - 1] = (struct level){.list = c == '[', .at_key = c == '{'};
		} else if (c == '}' || c == ']') {
			depth -= depth > 0;
		} else if (c == ',') {
			top->index++;
			top->at_key = !top->list;
		}
	}
	print(levels, depth, out, room);
}
