/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/client/term_text.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

static const char RESET[] = "\033[0m";
#define REPLACEMENT "\xef\xbf\xbd"

void term_text_init(struct term_text *t, FILE *out, bool plain, bool quiet)
{
	*t = (struct term_text){.out = out, .plain = plain, .quiet = quiet, .at_start = true, .last = ' '};
	if (quiet && !plain)
		fputs("\033[2m", out);
}

/* Sets the terminal to the current state. */
static void dress(struct term_text *t)
{
	fputs(RESET, t->out);
	if (t->quiet)
		fputs("\033[2m", t->out);
	if (t->bold || t->heading)
		fputs("\033[1m", t->out);
	if (t->italic)
		fputs("\033[3m", t->out);
	if (t->code || t->fence)
		fputs("\033[36m", t->out);
}

static void write_bytes(struct term_text *t, const char *s, size_t n)
{
	if (n == 0)
		return;
	fwrite(s, 1, n, t->out);
	t->last = s[n - 1];
}

/* ---- inside a line ---- */

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\0'; }

/* A run of asterisks or a backquote was held; `next` is what follows it. */
static void close_run(struct term_text *t, char next)
{
	char mark = t->held[0];
	size_t n = t->n_held;
	bool may_open = !is_space(next), may_close = !is_space(t->last);
	t->n_held = 0;
	if (mark == '`' && n == 1 && (t->code || (next != '\n' && next != '\0'))) {
		t->code = !t->code;
		dress(t);
	} else if (mark == '*' && n == 1 && (t->italic ? may_close : may_open)) {
		t->italic = !t->italic;
		dress(t);
	} else if (mark == '*' && n == 2 && (t->bold ? may_close : may_open)) {
		t->bold = !t->bold;
		dress(t);
	} else {
		write_bytes(t, t->held, n);
	}
}

static void end_line(struct term_text *t)
{
	bool dressed = t->bold || t->italic || t->code || t->heading;
	t->bold = t->italic = t->code = t->heading = false;
	if (dressed)
		dress(t);
	write_bytes(t, "\n", 1);
	t->at_start = true;
	t->last = ' ';
}

static void put_in_line(struct term_text *t, char c)
{
	if (t->n_held > 0 && t->held[0] == '\\') {
		t->n_held = 0;
		if (!ispunct((unsigned char)c))
			write_bytes(t, "\\", 1);
		if (c != '\n') {
			write_bytes(t, &c, 1);
			return;
		}
	}
	if (t->n_held > 0 && c == t->held[0] && t->n_held < TERM_HELD_MAX) {
		t->held[t->n_held++] = c;
		return;
	}
	if (t->n_held > 0)
		close_run(t, c);
	if (c == '\n') {
		end_line(t);
	} else if (c == '`' || (!t->code && (c == '*' || c == '\\'))) {
		t->held[0] = c;
		t->n_held = 1;
	} else {
		write_bytes(t, &c, 1);
	}
}

/* ---- at the start of a line ---- */

enum start { MORE, TEXT, HEADING, FENCE, BULLET, QUOTE };

/* What the held beginning of a line is. *indent: its leading spaces. */
static enum start classify(const struct term_text *t, size_t *indent)
{
	const char *s = t->held;
	size_t n = t->n_held, i = 0, run = 0;
	while (i < n && s[i] == ' ')
		i++;
	*indent = i;
	if (i == n)
		return n < TERM_HELD_MAX ? MORE : TEXT;
	while (i + run < n && s[i + run] == s[i])
		run++;
	bool ends = i + run == n; /* the run may go on */
	if (s[i] == '`')
		return run >= 3 ? FENCE : ends && n < TERM_HELD_MAX ? MORE : TEXT;
	if (t->fence)
		return TEXT;
	if (s[i] == '#')
		return ends && run <= 6 && n < TERM_HELD_MAX ? MORE : run <= 6 && s[i + run] == ' ' ? HEADING : TEXT;
	if (s[i] == '>')
		return QUOTE;
	if (s[i] == '-' || s[i] == '*' || s[i] == '+')
		return ends && run == 1 ? MORE : run == 1 && s[i + 1] == ' ' ? BULLET : TEXT;
	return TEXT;
}

/* Writes the beginning of a line, once it is known; what it held beyond its mark goes through the line's own rules. */
static void open_line(struct term_text *t, enum start kind, size_t indent)
{
	char held[TERM_HELD_MAX];
	size_t n = t->n_held, from = 0;
	memcpy(held, t->held, n);
	t->n_held = 0;
	t->at_start = false;
	switch (kind) {
	case HEADING:
		t->heading = true;
		dress(t);
		while (from < n && (held[from] == ' ' || held[from] == '#'))
			from++;
		break;
	case BULLET:
		write_bytes(t, held, indent);
		write_bytes(t, "\xe2\x80\xa2", 3);
		from = indent + 1;
		break;
	case QUOTE:
		write_bytes(t, held, indent);
		write_bytes(t, "\xe2\x94\x82", 3);
		from = indent + 1;
		break;
	case FENCE:
		t->fence = !t->fence;
		dress(t);
		write_bytes(t, held, n);
		return;
	case MORE:
	case TEXT: break;
	}
	for (; from < n; from++) {
		if (t->fence)
			write_bytes(t, &held[from], 1);
		else
			put_in_line(t, held[from]);
	}
}

static void put_byte(struct term_text *t, char c)
{
	size_t indent;
	if (t->at_start && c != '\n') {
		t->held[t->n_held++] = c;
		enum start kind = classify(t, &indent);
		if (kind != MORE)
			open_line(t, kind, indent);
		return;
	}
	if (t->at_start) {
		open_line(t, TEXT, 0);
		t->at_start = false;
	}
	if (t->fence && c == '\n') {
		write_bytes(t, "\n", 1);
		t->at_start = true;
	} else if (t->fence) {
		write_bytes(t, &c, 1);
	} else {
		put_in_line(t, c);
	}
}

/* ---- characters ---- */

/* Control characters, and those that turn or hide text in a line (Unicode 9.9: bidirectional formatting). */
static bool is_command(uint32_t cp)
{
	return (cp < ' ' && cp != '\n' && cp != '\t') || (cp >= 0x7f && cp < 0xa0) || cp == 0x061c || cp == 0x200e ||
	       cp == 0x200f || (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
}

static void put_character(struct term_text *t, const char *s, size_t n, uint32_t cp)
{
	if (is_command(cp)) {
		s = REPLACEMENT;
		n = strlen(REPLACEMENT);
	}
	for (size_t i = 0; i < n; i++)
		put_byte(t, s[i]);
}

void term_text_put(struct term_text *t, const char *text, size_t n)
{
	if (t->plain) {
		fwrite(text, 1, n, t->out);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t cp = 0;
		t->tail[t->n_tail++] = text[i];
		int used = utf8_decode((const uint8_t *)t->tail, t->n_tail, &cp);
		if (used == 0)
			continue;
		if (used > 0) {
			put_character(t, t->tail, t->n_tail, cp);
		} else {
			put_character(t, REPLACEMENT, strlen(REPLACEMENT), 0xfffd);
			/* The byte that broke a character begins the next one. */
			i -= t->n_tail > 1;
		}
		t->n_tail = 0;
	}
}

void term_text_end(struct term_text *t)
{
	if (t->plain)
		return;
	if (t->at_start && t->n_held > 0)
		open_line(t, TEXT, 0);
	if (t->n_held > 0)
		close_run(t, '\0');
	t->n_tail = 0;
	fputs(RESET, t->out);
}
