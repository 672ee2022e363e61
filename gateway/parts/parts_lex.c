/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of symbols. A marker is two bytes in it: one that never occurs in UTF-8, then the marker's index plus 0x80,
 * which no search for an ASCII byte finds. If text contains the first byte nevertheless, it is doubled.
 */
#include <string.h>

#include "gateway/parts/parts_priv.h"

enum { FIRST_INDEX = 0x80 };
_Static_assert(FIRST_INDEX + PARTS_MAX_MARKERS <= LEX_ESCAPE, "an index is one byte");

int lex_at(const struct parts *p, size_t at, size_t *n)
{
	const uint8_t *q = buf_data(&p->queue);
	size_t seen = lex_seen(p);
	*n = 0;
	if (at >= seen)
		return SYM_END;
	if (q[at] != LEX_ESCAPE) {
		*n = 1;
		return q[at];
	}
	if (at + 1 >= seen)
		return SYM_END;
	*n = 2;
	return q[at + 1] == LEX_ESCAPE ? LEX_ESCAPE : SYM_MARKER + q[at + 1] - FIRST_INDEX;
}

int lex_push_text(struct parts *p, const char *text, size_t n)
{
	while (n > 0) {
		const char *odd = memchr(text, LEX_ESCAPE, n);
		size_t plain = odd != NULL ? (size_t)(odd - text) : n;
		int rc = buf_append(&p->queue, text, plain);
		if (rc == 0 && odd != NULL)
			rc = buf_append(&p->queue, "\xff\xff", 2);
		if (rc != 0)
			return rc;
		plain += odd != NULL;
		text += plain;
		n -= plain;
	}
	return 0;
}

int lex_push_marker(struct parts *p, size_t k)
{
	const uint8_t sym[2] = {LEX_ESCAPE, (uint8_t)(FIRST_INDEX + k)};
	return buf_append(&p->queue, sym, 2);
}

void lex_consume(struct parts *p, size_t n) { buf_consume(&p->queue, n); }

bool lex_is_marker(const struct parts *p, const char *lit)
{
	for (const char *const *c = p->format->control; c != NULL && *c != NULL; c++)
		if (strcmp(*c, lit) == 0)
			return true;
	for (size_t k = 0; k < p->n_markers; k++)
		if (strcmp(p->markers[k].text, lit) == 0)
			return true;
	return false;
}

enum verdict lex_match(const struct parts *p, size_t at, const char *lit, size_t *end)
{
	size_t n;
	if (lit == NULL)
		return NO;
	int sym = lex_at(p, at, &n);
	if (sym == SYM_END)
		return lex_wait(p);
	if (sym >= SYM_MARKER) {
		*end = at + n;
		return strcmp(p->markers[sym - SYM_MARKER].text, lit) == 0 ? YES : NO;
	}
	if (sym != (uint8_t)lit[0] || lex_is_marker(p, lit))
		return NO;
	for (; *lit != '\0'; lit++, at += n) {
		sym = lex_at(p, at, &n);
		if (sym == SYM_END)
			return lex_wait(p);
		if (sym != (uint8_t)*lit)
			return NO;
	}
	*end = at;
	return YES;
}

size_t lex_skip_blanks(const struct parts *p, size_t at)
{
	size_t n;
	while (lex_blank(lex_at(p, at, &n)))
		at += n;
	return at;
}

bool lex_name_byte(int sym)
{
	return (sym >= '0' && sym <= '9') || (sym >= 'a' && sym <= 'z') || (sym >= 'A' && sym <= 'Z') || sym == '_' ||
	       sym == '-' || sym == '.' || sym == ':' || sym == '/' || (sym >= 0x80 && sym < SYM_MARKER);
}

int lex_text(const struct parts *p, size_t from, size_t to, struct sl_buf *out)
{
	size_t n;
	for (; from < to; from += n) {
		int sym = lex_at(p, from, &n);
		uint8_t byte = (uint8_t)sym;
		int rc = sym < SYM_MARKER ? buf_append(out, &byte, 1) : 0;
		if (rc != 0)
			return rc;
	}
	return 0;
}

enum verdict lex_json_string(const struct parts *p, size_t at, size_t *from, size_t *to, size_t *end)
{
	size_t n;
	int sym = lex_at(p, at, &n);
	if (sym != '"')
		return sym == SYM_END ? lex_wait(p) : NO;
	*from = at += n;
	while ((sym = lex_at(p, at, &n)) != '"') {
		if (sym == SYM_END)
			return lex_wait(p);
		if (sym >= SYM_MARKER)
			return NO;
		at += n;
		if (sym != '\\')
			continue;
		sym = lex_at(p, at, &n);
		if (sym == SYM_END || sym >= SYM_MARKER)
			return sym == SYM_END ? lex_wait(p) : NO;
		at += n;
	}
	*to = at;
	*end = at + n;
	return YES;
}

static enum verdict skip_word(const struct parts *p, size_t at, size_t *end)
{
	size_t n, from = at;
	int sym = lex_at(p, at, &n);
	while (sym == '-' || sym == '+' || sym == '.' || (sym >= '0' && sym <= '9') || (sym >= 'a' && sym <= 'z') ||
	       (sym >= 'A' && sym <= 'Z')) {
		at += n;
		sym = lex_at(p, at, &n);
	}
	*end = at;
	return sym == SYM_END ? lex_wait(p) : at > from ? YES : NO;
}

enum verdict lex_json_skip(const struct parts *p, size_t at, size_t *end)
{
	size_t n, a, b, depth = 0;
	do {
		int sym = lex_at(p, at, &n);
		if (sym == SYM_END)
			return lex_wait(p);
		if (depth == 0 && sym != '"' && sym != '{' && sym != '[')
			return skip_word(p, at, end);
		if (sym == '"') {
			enum verdict v = lex_json_string(p, at, &a, &b, &at);
			if (v != YES)
				return v;
			continue;
		}
		if (sym >= SYM_MARKER)
			return NO;
		depth += sym == '{' || sym == '[';
		depth -= sym == '}' || sym == ']';
		at += n;
	} while (depth > 0);
	*end = at;
	return YES;
}
