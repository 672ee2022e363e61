/* SPDX-License-Identifier: Apache-2.0
 *
 * Source to tokens. White space as model files expect it (trim_blocks and lstrip_blocks on): the
 * first newline after a statement or comment goes, and so do blanks between the start of a line and
 * a statement or comment; `-` beside a delimiter takes all white space on its side, `+` takes none.
 * Line ends become \n, and one newline at the very end of the source is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/jinja/jinja.h"

struct lexer {
	struct jarena *arena;
	const char *src;
	size_t n, i;
	struct jplace place; /* of src[i] */
	struct jtok *toks;
	size_t n_toks, cap;
	struct sl_err *err;
};

static int lex_fail(struct lexer *l, struct jplace at, const char *what)
{
	return sl_errf(l->err, SL_EINVAL, "template line %d, column %d: %s", at.line, at.column, what);
}

static int no_memory(struct lexer *l)
{
	return sl_errf(l->err, SL_ENOMEM, "template line %d: no memory", l->place.line);
}

static int add(struct lexer *l, struct jtok tok)
{
	if (l->n_toks == l->cap) {
		/* Old arrays stay in the arena: their sizes double, so they sum to one array. */
		size_t cap = l->cap ? l->cap * 2 : 256;
		struct jtok *toks = jarena_alloc(l->arena, cap * sizeof(*toks));
		if (toks == NULL)
			return no_memory(l);
		if (l->n_toks > 0)
			memcpy(toks, l->toks, l->n_toks * sizeof(*toks));
		l->toks = toks;
		l->cap = cap;
	}
	l->toks[l->n_toks++] = tok;
	return 0;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_name(char c, bool first)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
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

static bool looking_at(const struct lexer *l, const char *s)
{
	size_t n = strlen(s);
	return l->n - l->i >= n && memcmp(l->src + l->i, s, n) == 0;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes Python's escapes, the backslash at l->i; an unknown one stays as it stands. Writes no more
 * bytes than it takes. */
static int lex_escape(struct lexer *l, char *out, size_t *n)
{
	static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
	if (l->i + 1 >= l->n)
		return lex_fail(l, l->place, "string without an end");
	char c = l->src[l->i + 1];
	const char *known = memchr(from, c, sizeof(from) - 1);
	if (c == '\n' || known != NULL) {
		if (known != NULL)
			out[(*n)++] = to[known - from];
		skip(l, 2);
		return 0;
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
		return c == 'N' ? lex_fail(l, l->place, "named characters are not supported") : 0;
	}
	if (l->n - at < digits)
		return lex_fail(l, l->place, "malformed escape in a string");
	for (size_t k = 0; k < digits; k++) {
		int v = hex_value(l->src[at + k]);
		if (v < 0 || cp > 0x10FFFF / base)
			return lex_fail(l, l->place, "malformed escape in a string");
		cp = cp * base + (uint32_t)v;
	}
	if ((cp >= 0xD800 && cp <= 0xDFFF) || cp > 0x10FFFF)
		return lex_fail(l, l->place, "an escape that is no character in a string");
	*n += (size_t)utf8_encode(cp, (uint8_t *)out + *n);
	skip(l, at + digits - l->i);
	return 0;
}

static int lex_string(struct lexer *l)
{
	char quote = l->src[l->i];
	size_t end = l->i + 1;
	struct jplace place = l->place;
	while (end < l->n && l->src[end] != quote)
		end += l->src[end] == '\\' ? 2 : 1;
	if (end >= l->n)
		return lex_fail(l, place, "string without an end");
	char *out = jarena_alloc(l->arena, end - l->i);
	if (out == NULL)
		return no_memory(l);
	size_t n = 0;
	skip(l, 1);
	while (l->src[l->i] != quote) {
		if (l->src[l->i] == '\\') {
			int rc = lex_escape(l, out, &n);
			if (rc != 0)
				return rc;
		} else {
			out[n++] = l->src[l->i];
			skip(l, 1);
		}
	}
	skip(l, 1);
	return add(l, (struct jtok){.kind = JT_STRING, .place = place, .at = out, .n = n});
}

/* Digits with single underscores between them. Returns the byte behind them. */
static size_t digits_end(const struct lexer *l, size_t i)
{
	while (i < l->n && ((l->src[i] >= '0' && l->src[i] <= '9') ||
			    (l->src[i] == '_' && i + 1 < l->n && l->src[i + 1] >= '0' && l->src[i + 1] <= '9')))
		i++;
	return i;
}

static int lex_number(struct lexer *l)
{
	size_t begin = l->i, i = digits_end(l, begin), n = 0;
	bool real = false;
	if (i + 1 < l->n && l->src[i] == '.' && l->src[i + 1] >= '0' && l->src[i + 1] <= '9') {
		real = true;
		i = digits_end(l, i + 1);
	}
	if (i + 1 < l->n && (l->src[i] | 0x20) == 'e') {
		size_t e = i + 1 + (l->src[i + 1] == '-' || l->src[i + 1] == '+');
		if (e < l->n && l->src[e] >= '0' && l->src[e] <= '9') {
			real = true;
			i = digits_end(l, e);
		}
	}
	char digits[64];
	if (i - begin >= sizeof(digits) || (i < l->n && is_name(l->src[i], true)))
		return lex_fail(l, l->place, "malformed number");
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
				return lex_fail(l, l->place, "number out of range");
	}
	skip(l, i - begin);
	return add(l, tok);
}

static int lex_operator(struct lexer *l)
{
	static const char *const ops[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "<",
					  ">",  "(",  ")",  "[",  "]",  "{",  "}", ",", ".", ":", "|", "="};
	for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
		if (!looking_at(l, ops[k]))
			continue;
		struct jtok tok = {.kind = JT_OP, .place = l->place, .at = l->src + l->i, .n = strlen(ops[k])};
		memcpy(tok.op, ops[k], tok.n);
		skip(l, tok.n);
		return add(l, tok);
	}
	return lex_fail(l, l->place, "unexpected character in an expression");
}

/* The end delimiter of the block, with what it strips behind it. False: not here. */
static bool lex_block_end(struct lexer *l, const char *close, bool trims)
{
	bool minus = l->src[l->i] == '-', plus = trims && l->src[l->i] == '+';
	size_t at = l->i + (minus || plus);
	if (l->n - at < 2 || memcmp(l->src + at, close, 2) != 0)
		return false;
	skip(l, at + 2 - l->i);
	if (minus)
		while (l->i < l->n && is_space(l->src[l->i]))
			skip(l, 1);
	else if (trims && !plus && l->i < l->n && l->src[l->i] == '\n')
		skip(l, 1);
	return true;
}

/* Tokens of a statement or output up to its end. A closing brace that belongs to a dictionary is
 * told from the end of the block by the open brackets. */
static int lex_block(struct lexer *l, bool statement)
{
	const char *close = statement ? "%}" : "}}";
	struct jplace begin = l->place;
	int open = 0, rc = 0;
	while (rc == 0) {
		while (l->i < l->n && is_space(l->src[l->i]))
			skip(l, 1);
		if (l->i >= l->n)
			return lex_fail(l, begin, "block without an end");
		char c = l->src[l->i];
		struct jplace at = l->place;
		if ((open == 0 || statement) && lex_block_end(l, close, statement))
			return add(l, (struct jtok){.kind = statement ? JT_STMT_END : JT_OUT_END, .place = at});
		if (c == '\'' || c == '"') {
			rc = lex_string(l);
		} else if (c >= '0' && c <= '9') {
			rc = lex_number(l);
		} else if (is_name(c, true)) {
			size_t n = 1;
			while (l->i + n < l->n && is_name(l->src[l->i + n], false))
				n++;
			rc = add(l, (struct jtok){.kind = JT_NAME, .place = at, .at = l->src + l->i, .n = n});
			skip(l, n);
		} else {
			open += (c == '{' || c == '(' || c == '[') - (c == '}' || c == ')' || c == ']');
			rc = lex_operator(l);
		}
	}
	return rc;
}

static int lex_comment(struct lexer *l)
{
	struct jplace begin = l->place;
	while (l->i < l->n) {
		if (lex_block_end(l, "#}", true))
			return 0;
		skip(l, 1);
	}
	return lex_fail(l, begin, "comment without an end");
}

/* Adds the text from begin to l->i, less what the delimiter there strips: white space with `-`,
 * blanks from the start of a line unless it is an output or has a `+`. */
static int add_text(struct lexer *l, size_t begin, struct jplace place)
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
	if (end == begin)
		return 0;
	return add(l, (struct jtok){.kind = JT_TEXT, .place = place, .at = l->src + begin, .n = end - begin});
}

/* The length of `{% word` with any sign and blanks at l->i; 0 when something else stands there. */
static size_t statement_begin(const struct lexer *l, const char *word)
{
	size_t i = l->i + 2, n = strlen(word);
	if (!looking_at(l, "{%"))
		return 0;
	i += i < l->n && (l->src[i] == '-' || l->src[i] == '+');
	while (i < l->n && is_space(l->src[i]))
		i++;
	if (l->n - i < n || memcmp(l->src + i, word, n) != 0)
		return 0;
	for (i += n; i < l->n && is_space(l->src[i]);)
		i++;
	return i - l->i;
}

/* `{% raw %}` to `{% endraw %}`, the first already known to stand at l->i. */
static int lex_raw(struct lexer *l, size_t begin_n)
{
	struct jplace begin = l->place;
	skip(l, begin_n);
	if (l->i >= l->n || !lex_block_end(l, "%}", false))
		return lex_fail(l, l->place, "malformed raw");
	size_t from = l->i;
	struct jplace place = l->place;
	for (; l->i < l->n; skip(l, 1)) {
		size_t n = statement_begin(l, "endraw");
		if (n == 0)
			continue;
		int rc = add_text(l, from, place);
		skip(l, n);
		if (l->i >= l->n || !lex_block_end(l, "%}", true))
			return lex_fail(l, l->place, "malformed endraw");
		return rc;
	}
	return lex_fail(l, begin, "raw without an end");
}

static bool at_raw(const struct lexer *l, size_t *n)
{
	*n = statement_begin(l, "raw");
	if (*n == 0)
		return false;
	size_t i = l->i + *n;
	i += i < l->n && l->src[i] == '-';
	return l->n - i >= 2 && memcmp(l->src + i, "%}", 2) == 0;
}

static int lex_all(struct lexer *l)
{
	while (l->i < l->n) {
		size_t begin = l->i, raw_n;
		struct jplace place = l->place;
		while (l->i < l->n && !looking_at(l, "{{") && !looking_at(l, "{%") && !looking_at(l, "{#"))
			skip(l, 1);
		int rc = add_text(l, begin, place);
		if (rc != 0 || l->i >= l->n)
			return rc;
		if (at_raw(l, &raw_n)) {
			rc = lex_raw(l, raw_n);
			if (rc != 0)
				return rc;
			continue;
		}
		char kind = l->src[l->i + 1];
		place = l->place;
		skip(l, 2);
		if (l->i < l->n && (l->src[l->i] == '-' || l->src[l->i] == '+'))
			skip(l, 1);
		if (kind == '#') {
			rc = lex_comment(l);
		} else {
			rc = add(l, (struct jtok){.kind = kind == '%' ? JT_STMT_BEGIN : JT_OUT_BEGIN, .place = place});
			if (rc == 0)
				rc = lex_block(l, kind == '%');
		}
		if (rc != 0)
			return rc;
	}
	return 0;
}

int jinja_lex(struct jarena *a, const char *src, size_t n, struct jtok **out, struct sl_err *err)
{
	struct lexer l = {.arena = a, .place = {1, 1}, .err = err};
	if (n > JINJA_MAX_SOURCE)
		return sl_errf(err, SL_ELIMIT, "the template has %zu bytes, more than %d", n, JINJA_MAX_SOURCE);
	if (!utf8_valid(src, n))
		return sl_errf(err, SL_EINVAL, "the template is not UTF-8");
	char *copy = jarena_alloc(a, n + 1);
	if (copy == NULL)
		return no_memory(&l);
	for (size_t i = 0; i < n; i++) {
		if (src[i] == '\r' && i + 1 < n && src[i + 1] == '\n')
			continue;
		copy[l.n++] = src[i] == '\r' ? '\n' : src[i];
	}
	if (l.n > 0 && copy[l.n - 1] == '\n')
		l.n--;
	copy[l.n] = '\0';
	l.src = copy;
	int rc = lex_all(&l);
	if (rc == 0)
		rc = add(&l, (struct jtok){.kind = JT_EOF, .place = l.place});
	*out = l.toks;
	return rc;
}
