/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts an argument's text: JSON of its declared type, or a string.
 */
#include <string.h>

#include "gateway/parts/parts_priv.h"

/* ---- strict JSON, without recursion ---- */

struct check {
	const char *at, *end;
	char closing[MAX_DEPTH];
	int depth;
};

static void blanks(struct check *c)
{
	while (c->at < c->end && lex_blank((uint8_t)*c->at))
		c->at++;
}

static bool is(struct check *c, char what)
{
	blanks(c);
	if (c->at == c->end || *c->at != what)
		return false;
	c->at++;
	return true;
}

static bool digits(const char **at, const char *end)
{
	const char *from = *at;
	while (*at < end && **at >= '0' && **at <= '9')
		++*at;
	return *at > from;
}

static bool number(const char **at, const char *end)
{
	const char *s = *at;
	if (s < end && *s == '-')
		s++;
	const char *first = s;
	if (!digits(&s, end) || (*first == '0' && s - first > 1))
		return false;
	if (s < end && *s == '.' && (s++, !digits(&s, end)))
		return false;
	if (s < end && (*s == 'e' || *s == 'E')) {
		s++;
		if (s < end && (*s == '+' || *s == '-'))
			s++;
		if (!digits(&s, end))
			return false;
	}
	*at = s;
	return true;
}

static bool escape(struct check *c)
{
	if (c->at == c->end || *c->at == '\0' || strchr("\"\\/bfnrtu", *c->at) == NULL)
		return false;
	int hex = *c->at++ == 'u' ? 4 : 0;
	for (; hex > 0; hex--, c->at++)
		if (c->at == c->end || *c->at == '\0' || strchr("0123456789abcdefABCDEF", *c->at) == NULL)
			return false;
	return true;
}

static bool string(struct check *c)
{
	if (!is(c, '"'))
		return false;
	while (c->at < c->end) {
		uint8_t byte = (uint8_t)*c->at++;
		if (byte == '"')
			return true;
		if (byte < ' ' || (byte == '\\' && !escape(c)))
			return false;
	}
	return false;
}

static bool word(struct check *c)
{
	static const char *const words[] = {"true", "false", "null"};
	for (size_t i = 0; i < 3; i++) {
		size_t n = strlen(words[i]);
		if ((size_t)(c->end - c->at) >= n && memcmp(c->at, words[i], n) == 0) {
			c->at += n;
			return true;
		}
	}
	return number(&c->at, c->end);
}

static bool key(struct check *c) { return c->closing[c->depth - 1] == ']' || (string(c) && is(c, ':')); }

/* After a value: closes containers that end here. *more: another value follows. */
static bool close_all(struct check *c, bool *more)
{
	*more = false;
	while (c->depth > 0) {
		if (is(c, ',')) {
			*more = true;
			return key(c);
		}
		if (!is(c, c->closing[c->depth - 1]))
			return false;
		c->depth--;
	}
	return true;
}

/* An opening bracket; *empty: its closing one follows. */
static bool open_one(struct check *c, bool *empty)
{
	if (c->depth == MAX_DEPTH)
		return false;
	char closing = *c->at++ == '{' ? '}' : ']';
	*empty = is(c, closing);
	if (*empty)
		return true;
	c->closing[c->depth++] = closing;
	return key(c);
}

bool value_is_json(const char *text, size_t n)
{
	struct check c = {.at = text, .end = text + n};
	bool more = true;
	while (more) {
		bool complete = true;
		blanks(&c);
		if (c.at == c.end)
			return false;
		if (*c.at == '{' || *c.at == '[') {
			if (!open_one(&c, &complete))
				return false;
		} else if (*c.at == '"' ? !string(&c) : !word(&c)) {
			return false;
		}
		if (complete && !close_all(&c, &more))
			return false;
	}
	blanks(&c);
	return c.at == c.end;
}

bool value_is_number(const char *text, size_t n)
{
	const char *at = text;
	return number(&at, text + n) && at == text + n;
}

/* ---- by type ---- */

bool value_may_be_json(unsigned types, int first)
{
	if (types & TYPE_STRING)
		return (types & TYPE_NULL) != 0 && (first == 'n' || first == 'N');
	if (types != 0)
		return true;
	return first > 0 && first < 128 && strchr("{[-0123456789tfn", first) != NULL;
}

static bool word_is(const char *text, size_t n, const char *word)
{
	return strlen(word) == n && memcmp(text, word, n) == 0;
}

/* Python spellings, if the type is declared. */
static const char *python_word(unsigned types, const char *text, size_t n)
{
	if ((types & TYPE_BOOLEAN) && (word_is(text, n, "True") || word_is(text, n, "TRUE")))
		return "true";
	if ((types & TYPE_BOOLEAN) && (word_is(text, n, "False") || word_is(text, n, "FALSE")))
		return "false";
	return (types & TYPE_NULL) && (word_is(text, n, "None") || word_is(text, n, "null")) ? "null" : NULL;
}

static void emit(struct parts *p, unsigned types, const char *text, size_t n)
{
	size_t from = 0, to = n;
	while (from < to && lex_blank((uint8_t)text[from]))
		from++;
	while (to > from && lex_blank((uint8_t)text[to - 1]))
		to--;
	const char *word = python_word(types, text + from, to - from);
	if (word != NULL) {
		out_args_str(p, word);
	} else if (!(types & TYPE_STRING) && value_is_json(text + from, to - from)) {
		out_args(p, text + from, to - from);
	} else {
		out_args_str(p, "\"");
		out_args_escaped(p, text, n);
		out_args_str(p, "\"");
	}
}

void value_emit(struct parts *p, unsigned types, size_t n)
{
	struct sl_buf text;
	buf_init(&text, 2 * (size_t)PARTS_MAX_HELD);
	int rc = lex_text(p, 0, n, &text);
	if (rc == 0)
		emit(p, types, text.len > 0 ? (const char *)buf_data(&text) : "", text.len);
	out_failed(p, rc);
	buf_dispose(&text);
}
