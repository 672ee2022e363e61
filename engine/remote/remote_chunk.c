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

enum { MOST_DIGITS = 18, FORM_BYTES = 2048, MOST_CHANGES = 16 };

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

/* ---- chunks that are alike ---- */

void remote_form_init(struct remote_form *f)
{
	*f = (struct remote_form){0};
	buf_init(&f->text, FORM_BYTES);
}

void remote_form_dispose(struct remote_form *f) { buf_dispose(&f->text); }

/* Has the event the form around a text? */
static bool fits(const struct remote_form *f, const char *data, size_t n)
{
	const char *form = (const char *)buf_data(&f->text);
	size_t behind = f->text.len - f->n_before;
	return f->text.len > 0 && n >= f->text.len && memcmp(data, form, f->n_before) == 0 &&
	       memcmp(data + n - behind, form + f->n_before, behind) == 0;
}

/* A JSON string's inside that is the text itself. */
static bool is_plain(const char *text, size_t n)
{
	bool odd = false;
	for (size_t i = 0; i < n; i++)
		odd |= (unsigned char)text[i] < ' ' || text[i] == '"' || text[i] == '\\';
	return !odd && utf8_valid(text, n);
}

static void learn(struct remote_form *f, const char *data, size_t n, const struct remote_chunk *c)
{
	struct proto_str text = c->thought.n > 0 ? c->thought : c->content;
	if (text.n == 0 || text.at == c->room || f->n_changed == MOST_CHANGES || fits(f, data, n))
		return;
	size_t before = (size_t)(text.at - data);
	f->n_changed++;
	buf_clear(&f->text, FORM_BYTES);
	if (buf_append(&f->text, data, before) != 0 || buf_append(&f->text, text.at + text.n, n - before - text.n) != 0)
		buf_clear(&f->text, 0);
	f->n_before = f->text.len > 0 ? (uint32_t)before : 0;
	f->is_thought = c->thought.n > 0;
	f->index = c->index;
}

bool remote_form_read(struct remote_form *f, const char *data, size_t n, struct remote_chunk *out)
{
	size_t n_text = n - f->text.len;
	if (fits(f, data, n) && is_plain(data + f->n_before, n_text)) {
		const struct proto_str none = {"", 0}, text = {data + f->n_before, n_text};
		f->n_changed = 0;
		out->index = f->index;
		out->content = f->is_thought ? none : text;
		out->thought = f->is_thought ? text : none;
		return true;
	}
	if (!remote_chunk_read(data, n, out))
		return false;
	learn(f, data, n, out);
	return true;
}
