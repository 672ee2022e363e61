/* SPDX-License-Identifier: Apache-2.0
 *
 * Source to tokens. White space as model files expect it (trim_blocks and lstrip_blocks on): the first newline after a
 * statement or comment is dropped, and so are blanks between the start of a line and a statement or comment; `-` beside
 * a delimiter strips all white space on its side, `+` none. Line ends become \n, and one newline at the very end of the
 * source is dropped.
 */
#include <stdlib.h>

#include "base/utf8.h"
#include "engine/jinja/jinja.h"

struct lexer {
	struct jarena *arena;
	const char *src;
	size_t n, i;
	struct jplace place; /* of src[i] */
	struct jtok *toks;
	size_t n_toks, cap;
	struct jescape *escape;
};

static void __attribute__((noreturn)) lex_fail(struct lexer *l, struct jplace at, const char *what)
{
	jinja_fail(l->escape, SL_EINVAL, "template line %d, column %d: %s", at.line, at.column, what);
}

static void *lex_alloc(struct lexer *l, size_t n)
{
	void *at = jarena_alloc(l->arena, n);
	if (at == NULL)
		jinja_fail(l->escape, SL_ENOMEM, "template line %d: no memory", l->place.line);
	return at;
}

static void add(struct lexer *l, struct jtok tok)
{
	if (l->n_toks == l->cap) {
		/* Old arrays stay in the arena: their sizes double, so they sum to one array. */
		size_t cap = l->cap ? l->cap * 2 : 256;
		struct jtok *toks = lex_alloc(l, cap * sizeof(*toks));
		if (l->n_toks > 0)
			memcpy(toks, l->toks, l->n_toks * sizeof(*toks));
		l->toks = toks;
		l->cap = cap;
	}
	l->toks[l->n_toks++] = tok;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool digit_at(const struct lexer *l, size_t i) { return i < l->n && is_digit(l->src[i]); }

static bool is_name(char c, bool first)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && is_digit(c));
}

static void skip(struct lexer *l, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		char c = l->src[l->i++];
		if (c == '\n')
			l->place = (struct jplace){l->place.line + 1, 1};
		else
			l->place.column += ((uint8_t)l->src[l->i] & 0xC0) != 0x80;
	}
}

static void skip_space(struct lexer *l)
{
	while (l->i < l->n && is_space(l->src[l->i]))
		skip(l, 1);
}

static bool stands_at(const struct lexer *l, size_t i, const char *s)
{
	size_t n = strlen(s);
	return i <= l->n && l->n - i >= n && memcmp(l->src + i, s, n) == 0;
}

static bool looking_at(const struct lexer *l, const char *s) { return stands_at(l, l->i, s); }

static int hex_value(char c)
{
	if (is_digit(c))
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes one of Python's escapes, the backslash at l->i; an unknown one is kept. Writes no more bytes than it reads.
 */
static void lex_escape(struct lexer *l, char *out, size_t *n)
{
	static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
	if (l->i + 1 >= l->n)
		lex_fail(l, l->place, "string without an end");
	char c = l->src[l->i + 1];
	const char *known = memchr(from, c, sizeof(from) - 1);
	if (c == '\n' || known != NULL) {
		if (known != NULL)
			out[(*n)++] = to[known - from];
		skip(l, 2);
		return;
	}
	size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, at = l->i + 2;
	uint32_t cp = 0, base = 16;
	if (c >= '0' && c <= '7') {
		base = 8;
		at--;
		while (digits < 3 && at + digits < l->n && l->src[at + digits] >= '0' && l->src[at + digits] <= '7')
			digits++;
	}
	if (digits == 0) {
		out[(*n)++] = '\\';
		skip(l, 1);
		if (c == 'N')
			lex_fail(l, l->place, "named characters are not supported");
		return;
	}
	if (l->n - at < digits)
		lex_fail(l, l->place, "malformed escape in a string");
	for (size_t k = 0; k < digits; k++) {
		int v = hex_value(l->src[at + k]);
		if (v < 0 || cp > 0x10FFFF / base)
			lex_fail(l, l->place, "malformed escape in a string");
		cp = cp * base + (uint32_t)v;
	}
	if ((cp >= 0xD800 && cp <= 0xDFFF) || cp > 0x10FFFF)
		lex_fail(l, l->place, "an escape that is no character in a string");
	*n += (size_t)utf8_encode(cp, (uint8_t *)out + *n);
	skip(l, at + digits - l->i);
}

static void lex_string(struct lexer *l)
{
	char quote = l->src[l->i];
	size_t end = l->i + 1;
	struct jplace place = l->place;
	while (end < l->n && l->src[end] != quote)
		end += l->src[end] == '\\' ? 2 : 1;
	if (end >= l->n)
		lex_fail(l, place, "string without an end");
	char *out = lex_alloc(l, end - l->i);
	size_t n = 0;
	skip(l, 1);
	while (l->src[l->i] != quote) {
		if (l->src[l->i] == '\\') {
			lex_escape(l, out, &n);
		} else {
			out[n++] = l->src[l->i];
			skip(l, 1);
		}
	}
	skip(l, 1);
	add(l, (struct jtok){.kind = JT_STRING, .place = place, .at = out, .n = n});
}

/* Digits with single underscores between them. Returns the byte behind them. */
static size_t digits_end(const struct lexer *l, size_t i)
{
	while (digit_at(l, i) || (i < l->n && l->src[i] == '_' && digit_at(l, i + 1)))
		i++;
	return i;
}

static void lex_number(struct lexer *l)
{
	size_t begin = l->i, i = digits_end(l, begin), n = 0;
	bool real = false;
	if (i < l->n && l->src[i] == '.' && digit_at(l, i + 1)) {
		real = true;
		i = digits_end(l, i + 1);
	}
	if (i + 1 < l->n && (l->src[i] | 0x20) == 'e') {
		size_t e = i + 1 + (l->src[i + 1] == '-' || l->src[i + 1] == '+');
		if (digit_at(l, e)) {
			real = true;
			i = digits_end(l, e);
		}
	}
	char digits[64];
	if (i - begin >= sizeof(digits) || (i < l->n && is_name(l->src[i], true)))
		lex_fail(l, l->place, "malformed number");
	for (size_t k = begin; k < i; k++)
		if (l->src[k] != '_')
			digits[n++] = l->src[k];
	digits[n] = '\0';
	struct jtok tok = {.kind = real ? JT_FLOAT : JT_INT, .place = l->place, .at = l->src + begin, .n = i - begin};
	if (real) {
		tok.f = strtod(digits, NULL);
	} else {
		for (const char *d = digits; *d != '\0'; d++)
			if (__builtin_mul_overflow(tok.i, 10, &tok.i) ||
			    __builtin_add_overflow(tok.i, *d - '0', &tok.i))
				lex_fail(l, l->place, "number out of range");
	}
	skip(l, i - begin);
	add(l, tok);
}

static void lex_operator(struct lexer *l)
{
	static const char *const ops[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "<",
					  ">",  "(",  ")",  "[",  "]",  "{",  "}", ",", ".", ":", "|", "="};
	for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
		if (!looking_at(l, ops[k]))
			continue;
		struct jtok tok = {.kind = JT_OP, .place = l->place, .at = l->src + l->i, .n = strlen(ops[k])};
		memcpy(tok.op, ops[k], tok.n);
		skip(l, tok.n);
		add(l, tok);
		return;
	}
	lex_fail(l, l->place, "unexpected character in an expression");
}

/* The end delimiter of the block, with what it strips behind it. False: not here. */
static bool lex_block_end(struct lexer *l, const char *close, bool trims)
{
	bool minus = l->src[l->i] == '-', plus = trims && l->src[l->i] == '+';
	size_t at = l->i + (minus || plus);
	if (!stands_at(l, at, close))
		return false;
	skip(l, at + 2 - l->i);
	if (minus)
		skip_space(l);
	else if (trims && !plus && l->i < l->n && l->src[l->i] == '\n')
		skip(l, 1);
	return true;
}

/* Tokens of a statement or output up to its end. The count of open brackets distinguishes the brace of a dictionary
 * from the block's end. */
static void lex_block(struct lexer *l, bool statement)
{
	const char *close = statement ? "%}" : "}}";
	struct jplace begin = l->place;
	int open = 0;
	for (;;) {
		skip_space(l);
		if (l->i >= l->n)
			lex_fail(l, begin, "block without an end");
		char c = l->src[l->i];
		struct jplace at = l->place;
		if ((open == 0 || statement) && lex_block_end(l, close, statement)) {
			add(l, (struct jtok){.kind = statement ? JT_STMT_END : JT_OUT_END, .place = at});
			return;
		}
		if (c == '\'' || c == '"') {
			lex_string(l);
		} else if (is_digit(c)) {
			lex_number(l);
		} else if (is_name(c, true)) {
			size_t n = 1;
			while (l->i + n < l->n && is_name(l->src[l->i + n], false))
				n++;
			add(l, (struct jtok){.kind = JT_NAME, .place = at, .at = l->src + l->i, .n = n});
			skip(l, n);
		} else {
			open += (c == '{' || c == '(' || c == '[') - (c == '}' || c == ')' || c == ']');
			lex_operator(l);
		}
	}
}

static void lex_comment(struct lexer *l)
{
	struct jplace begin = l->place;
	for (; l->i < l->n; skip(l, 1))
		if (lex_block_end(l, "#}", true))
			return;
	lex_fail(l, begin, "comment without an end");
}

/* Adds the text from begin to l->i, except what the delimiter there strips: white space with `-`, blanks from the start
 * of a line unless it is an output or has a `+`. */
static void add_text(struct lexer *l, size_t begin, struct jplace place)
{
	bool line_start = begin == 0 || l->src[begin - 1] == '\n';
	size_t end = l->i;
	if (l->n - l->i > 2) {
		char kind = l->src[l->i + 1], mark = l->src[l->i + 2];
		size_t strip = end;
		if (mark == '-') {
			while (strip > begin && is_space(l->src[strip - 1]))
				strip--;
			end = strip;
		} else if (kind != '{' && mark != '+') {
			while (strip > begin && l->src[strip - 1] != '\n' && is_space(l->src[strip - 1]))
				strip--;
			if (strip > begin ? l->src[strip - 1] == '\n' : line_start)
				end = strip;
		}
	}
	if (end > begin)
		add(l, (struct jtok){.kind = JT_TEXT, .place = place, .at = l->src + begin, .n = end - begin});
}

/* The length of `{% word` with any sign and blanks at l->i; 0 when it is something else. */
static size_t statement_begin(const struct lexer *l, const char *word)
{
	size_t i = l->i + 2;
	if (!looking_at(l, "{%"))
		return 0;
	i += i < l->n && (l->src[i] == '-' || l->src[i] == '+');
	while (i < l->n && is_space(l->src[i]))
		i++;
	if (!stands_at(l, i, word))
		return 0;
	for (i += strlen(word); i < l->n && is_space(l->src[i]);)
		i++;
	return i - l->i;
}

/* `{% raw %}` to `{% endraw %}`; the first is at l->i, with begin_n bytes before its sign and end. */
static void lex_raw(struct lexer *l, size_t begin_n)
{
	struct jplace begin = l->place;
	skip(l, begin_n);
	if (l->i >= l->n || !lex_block_end(l, "%}", false))
		lex_fail(l, l->place, "malformed raw");
	size_t from = l->i;
	struct jplace place = l->place;
	for (; l->i < l->n; skip(l, 1)) {
		size_t n = statement_begin(l, "endraw");
		if (n == 0)
			continue;
		add_text(l, from, place);
		skip(l, n);
		if (l->i >= l->n || !lex_block_end(l, "%}", true))
			lex_fail(l, l->place, "malformed endraw");
		return;
	}
	lex_fail(l, begin, "raw without an end");
}

static bool at_raw(const struct lexer *l, size_t *n)
{
	*n = statement_begin(l, "raw");
	size_t i = l->i + *n;
	return *n > 0 && stands_at(l, i + (i < l->n && l->src[i] == '-'), "%}");
}

static void lex_all(struct lexer *l)
{
	while (l->i < l->n) {
		size_t begin = l->i, raw_n;
		struct jplace place = l->place;
		while (l->i < l->n && !looking_at(l, "{{") && !looking_at(l, "{%") && !looking_at(l, "{#"))
			skip(l, 1);
		add_text(l, begin, place);
		if (l->i >= l->n)
			return;
		if (at_raw(l, &raw_n)) {
			lex_raw(l, raw_n);
			continue;
		}
		char kind = l->src[l->i + 1];
		place = l->place;
		skip(l, 2);
		if (l->i < l->n && (l->src[l->i] == '-' || l->src[l->i] == '+'))
			skip(l, 1);
		if (kind == '#') {
			lex_comment(l);
			continue;
		}
		add(l, (struct jtok){.kind = kind == '%' ? JT_STMT_BEGIN : JT_OUT_BEGIN, .place = place});
		lex_block(l, kind == '%');
	}
}

const struct jtok *jinja_lex(struct jescape *e, struct jarena *a, const char *src, size_t n)
{
	struct lexer l = {.arena = a, .place = {1, 1}, .escape = e};
	if (n > JINJA_MAX_SOURCE)
		jinja_fail(e, SL_ELIMIT, "the template has %zu bytes, more than %d", n, JINJA_MAX_SOURCE);
	if (!utf8_valid(src, n))
		jinja_fail(e, SL_EINVAL, "the template is not UTF-8");
	char *copy = lex_alloc(&l, n + 1);
	for (size_t i = 0; i < n; i++) {
		if (src[i] == '\r' && i + 1 < n && src[i + 1] == '\n')
			continue;
		copy[l.n++] = src[i] == '\r' ? '\n' : src[i];
	}
	if (l.n > 0 && copy[l.n - 1] == '\n')
		l.n--;
	copy[l.n] = '\0';
	l.src = copy;
	lex_all(&l);
	add(&l, (struct jtok){.kind = JT_EOF, .place = l.place});
	return l.toks;
}
