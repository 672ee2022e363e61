/* SPDX-License-Identifier: Apache-2.0
 *
 * Members that matter elsewhere (calls, log probabilities, a finish, usage, an error) may be there as null only, and
 * others as plain values. Two members of one name, escapes in names and escapes by number are left to the tree: it
 * knows what they mean.
 */
#include "engine/remote/remote_chunk.h"

#include <string.h>

#include "base/json/json_scan.h"
#include "base/utf8.h"

enum { MOST_DIGITS = 18 };

/* ---- values ---- */

static bool has_escape(struct proto_str raw) { return memchr(raw.at, '\\', raw.n) != NULL; }

static bool read_number(struct json_scan *s, uint64_t *out)
{
	char c = json_scan_peek(s);
	const char *from = s->at;
	return c >= '0' && c <= '9' && json_scan_uint(s, out) && s->at - from <= MOST_DIGITS &&
	       (c != '0' || s->at - from == 1);
}

/* A plain value that the tree would not refuse. */
static bool skip_plain(struct json_scan *s)
{
	struct proto_str raw;
	uint64_t v;
	char c = json_scan_peek(s);
	if (c == '"')
		return json_scan_string(s, &raw) && !has_escape(raw);
	if (c >= '0' && c <= '9')
		return read_number(s, &v);
	return (c == 'n' || c == 't' || c == 'f') && json_scan_skip(s);
}

static bool skip_null(struct json_scan *s) { return json_scan_peek(s) == 'n' && json_scan_skip(s); }

/* 0: not one of the short escapes. */
static char short_escape(char c)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = c != '\0' ? strchr(from, c) : NULL;
	return at != NULL ? to[at - from] : '\0';
}

static bool unescape(struct proto_str raw, char room[REMOTE_CHUNK_ESCAPED], struct proto_str *out)
{
	size_t n = 0;
	if (raw.n > REMOTE_CHUNK_ESCAPED)
		return false;
	for (size_t i = 0; i < raw.n; i++) {
		char c = raw.at[i];
		if (c == '\\' && (i + 1 == raw.n || (c = short_escape(raw.at[++i])) == '\0'))
			return false;
		room[n++] = c;
	}
	*out = (struct proto_str){room, n};
	return true;
}

/* A text, or null, which is like an empty one. Only one that is not empty may need the room. */
static bool read_text(struct json_scan *s, struct remote_chunk *c, struct proto_str *out)
{
	struct proto_str raw;
	if (json_scan_peek(s) == 'n')
		return json_scan_skip(s);
	if (json_scan_peek(s) != '"' || !json_scan_string(s, &raw))
		return false;
	if (!has_escape(raw)) {
		*out = raw;
		return true;
	}
	return c->content.n + c->thought.n == 0 && unescape(raw, c->room, out);
}

/* ---- members ---- */

/* Each of these once. */
static bool is_first(unsigned *seen, unsigned which)
{
	bool first = (*seen & which) == 0;
	*seen |= which;
	return first;
}

enum { CONTENT = 1, THOUGHT = 2, DELTA = 4, INDEX = 8, CHOICES = 16 };

static bool read_delta(struct json_scan *s, struct remote_chunk *c)
{
	struct proto_str key;
	unsigned seen = 0;
	if (json_scan_peek(s) != '{' || !json_scan_object(s))
		return false;
	while (json_scan_key(s, &key)) {
		bool ok;
		if (json_is(key, "content"))
			ok = is_first(&seen, CONTENT) && read_text(s, c, &c->content);
		else if (json_is(key, "reasoning_content"))
			ok = is_first(&seen, THOUGHT) && read_text(s, c, &c->thought);
		else if (json_is(key, "role"))
			ok = skip_plain(s);
		else
			ok = !has_escape(key) && skip_null(s);
		if (!ok)
			return false;
	}
	return s->bad == NULL && (c->content.n == 0 || c->thought.n == 0);
}

/* Of a choice: null only. */
static bool matters(struct proto_str key) { return json_is(key, "finish_reason") || json_is(key, "logprobs"); }

static bool read_choice(struct json_scan *s, struct remote_chunk *c)
{
	struct proto_str key;
	unsigned seen = 0;
	if (json_scan_peek(s) != '{' || !json_scan_object(s))
		return false;
	while (json_scan_key(s, &key)) {
		bool ok;
		if (json_is(key, "index"))
			ok = is_first(&seen, INDEX) && read_number(s, &c->index);
		else if (json_is(key, "delta"))
			ok = is_first(&seen, DELTA) && read_delta(s, c);
		else if (matters(key))
			ok = skip_null(s);
		else
			ok = !has_escape(key) && skip_plain(s);
		if (!ok)
			return false;
	}
	return s->bad == NULL && seen == (INDEX | DELTA);
}

static bool read_choices(struct json_scan *s, struct remote_chunk *c)
{
	return json_scan_peek(s) == '[' && json_scan_array(s) && json_scan_item(s) && read_choice(s, c) &&
	       !json_scan_item(s) && s->bad == NULL;
}

bool remote_chunk_read(const char *data, size_t n, struct remote_chunk *out)
{
	struct json_scan s;
	struct proto_str key;
	unsigned seen = 0;
	json_scan_init(&s, data, n);
	out->content = out->thought = (struct proto_str){"", 0};
	if (!json_scan_object(&s))
		return false;
	while (json_scan_key(&s, &key)) {
		bool ok;
		if (json_is(key, "choices"))
			ok = is_first(&seen, CHOICES) && read_choices(&s, out);
		else if (json_is(key, "error") || json_is(key, "usage"))
			ok = skip_null(&s);
		else
			ok = !has_escape(key) && skip_plain(&s);
		if (!ok)
			return false;
	}
	return json_scan_end(&s) && seen == CHOICES && utf8_valid(data, n);
}
