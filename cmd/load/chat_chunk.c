/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/load/chat_chunk.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_scan.h"

static bool is(struct proto_str key, const char *name)
{
	return key.n == strlen(name) && memcmp(key.at, name, key.n) == 0;
}

static void read_uint(struct json_scan *s, uint64_t *out)
{
	if (json_scan_peek(s) >= '0' && json_scan_peek(s) <= '9')
		json_scan_uint(s, out);
	else
		json_scan_skip(s);
}

/* Enters the next value if it is an object; otherwise skips it and returns false. */
static bool enter(struct json_scan *s)
{
	if (json_scan_peek(s) == '{')
		return json_scan_object(s);
	json_scan_skip(s);
	return false;
}

static void read_usage(struct json_scan *s, struct chat_chunk *c)
{
	struct proto_str key;
	if (!enter(s))
		return;
	c->has_usage = true;
	while (json_scan_key(s, &key)) {
		if (is(key, "prompt_tokens")) {
			read_uint(s, &c->n_prompt);
		} else if (is(key, "completion_tokens")) {
			read_uint(s, &c->n_completion);
		} else if (is(key, "prompt_tokens_details") && json_scan_peek(s) == '{') {
			json_scan_object(s);
			while (json_scan_key(s, &key)) {
				if (is(key, "cached_tokens"))
					read_uint(s, &c->n_cached);
				else
					json_scan_skip(s);
			}
		} else {
			json_scan_skip(s);
		}
	}
}

/* Reads the next value if it is a string, otherwise skips it. True: a non-empty string. */
static bool read_string(struct json_scan *s, struct proto_str *out)
{
	if (json_scan_peek(s) != '"') {
		json_scan_skip(s);
		return false;
	}
	return json_scan_string(s, out) && out->n > 0;
}

static void read_error(struct json_scan *s, struct chat_chunk *c)
{
	struct proto_str key, text;
	if (!enter(s))
		return;
	c->is_error = true;
	while (json_scan_key(s, &key)) {
		bool code = is(key, "code");
		if (!code && !is(key, "type"))
			json_scan_skip(s);
		else if (read_string(s, &text) && (code || c->code[0] == '\0'))
			snprintf(c->code, sizeof c->code, "%.*s", (int)text.n, text.at);
	}
}

static void read_delta(struct json_scan *s, struct chat_chunk *c)
{
	struct proto_str key, text;
	if (!enter(s))
		return;
	while (json_scan_key(s, &key)) {
		if (is(key, "content")) {
			if (read_string(s, &text)) {
				c->has_text = true;
				c->content = text;
			}
		} else if (is(key, "reasoning_content") || is(key, "reasoning")) {
			c->has_text |= read_string(s, &text);
		} else {
			json_scan_skip(s);
		}
	}
}

static void read_choices(struct json_scan *s, struct chat_chunk *c)
{
	struct proto_str key, text;
	if (json_scan_peek(s) != '[') {
		json_scan_skip(s);
		return;
	}
	json_scan_array(s);
	while (json_scan_item(s)) {
		if (!enter(s))
			continue;
		while (json_scan_key(s, &key)) {
			if (is(key, "delta") || is(key, "message"))
				read_delta(s, c);
			else if (is(key, "text"))
				c->has_text |= read_string(s, &text);
			else if (is(key, "finish_reason"))
				c->finished |= read_string(s, &text);
			else
				json_scan_skip(s);
		}
	}
}

bool chat_chunk_read(const char *data, size_t n, struct chat_chunk *out)
{
	struct json_scan s;
	struct proto_str key;
	*out = (struct chat_chunk){.done = n == 6 && memcmp(data, "[DONE]", 6) == 0};
	if (out->done)
		return true;
	json_scan_init(&s, data, n);
	if (json_scan_peek(&s) != '{' || !json_scan_object(&s))
		return false;
	while (json_scan_key(&s, &key)) {
		if (is(key, "choices"))
			read_choices(&s, out);
		else if (is(key, "usage"))
			read_usage(&s, out);
		else if (is(key, "error"))
			read_error(&s, out);
		else
			json_scan_skip(&s);
	}
	return json_scan_end(&s);
}
