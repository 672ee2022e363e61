/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages with headers (harmony): <|start|>role<|channel|>name to=recipient<|constrain|>json<|message|>text. The
 * prompt ends within a header, so the answer begins in one.
 */
#include <string.h>

#include "gateway/parts/parts_priv.h"

enum { MAX_HEADER = 1024 };

/* Offsets of the channel's name and of the recipient in the header. */
struct header {
	size_t channel, channel_end, to, to_end;
};

static bool stands(const struct parts *p, size_t at, const char *text)
{
	size_t n;
	for (; *text != '\0'; text++, at += n)
		if (lex_at(p, at, &n) != (uint8_t)*text)
			return false;
	return true;
}

static size_t word_end(const struct parts *p, size_t at)
{
	size_t n;
	while (lex_name_byte(lex_at(p, at, &n)))
		at += n;
	return at;
}

/* One symbol of the header. */
static void look(const struct parts *p, const struct parts_form *f, size_t at, struct header *h)
{
	size_t end;
	if (lex_match(p, at, f->call, &end) == YES) {
		h->channel = lex_skip_blanks(p, end);
		h->channel_end = word_end(p, h->channel);
	} else if (stands(p, at, " to=")) {
		h->to = at + 4;
		h->to_end = word_end(p, h->to);
	}
}

/* A marker that no header contains. */
static bool foreign(const struct parts *p, const struct parts_form *f, size_t at, int sym)
{
	const char *text = sym >= SYM_MARKER ? p->markers[sym - SYM_MARKER].text : "";
	return sym >= SYM_MARKER && strcmp(text, f->call) != 0 && strcmp(text, "<|constrain|>") != 0 &&
	       (at > 0 || strcmp(text, f->open) != 0);
}

static enum verdict header_end(const struct parts *p, const struct parts_form *f, struct head *h, size_t *end)
{
	size_t n;
	for (*end = 0; *end <= MAX_HEADER; *end += n) {
		int sym = lex_at(p, *end, &n);
		if (sym == SYM_END)
			return lex_wait(p);
		if (lex_match(p, *end, f->message, &h->end) == YES)
			return YES;
		if (foreign(p, f, *end, sym) || (*end == 0 && sym < SYM_MARKER && !lex_blank(sym)))
			return NO;
	}
	return NO;
}

static bool channel_is(const struct parts *p, const struct header *h, const char *name)
{
	return h->channel_end - h->channel == strlen(name) && stands(p, h->channel, name);
}

enum verdict channel_head(const struct parts *p, const struct parts_form *f, size_t at, struct head *h)
{
	struct header of = {0};
	size_t end, n;
	enum verdict v = header_end(p, f, h, &end);
	if (v != YES)
		return v;
	for (at = 0; at < end; at += n) {
		lex_at(p, at, &n);
		look(p, f, at, &of);
	}
	h->found = of.to > 0 && head_tool(p, of.to, of.to_end, &h->tool);
	h->is_text = !h->found;
	h->kind = channel_is(p, &of, "analysis") ? TEXT_REASONING : TEXT_CONTENT;
	h->body = ST_ARGS;
	return YES;
}
