/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler: after(e, then) is the language of e followed by `then`, for each kind of preceding character. Any text
 * may surround a match; for complements, any byte string, whose complement the pool simplifies to nothing. Characters
 * begin only at their first bytes, and so do matches.
 */
#include "engine/constraint/regex.h"

#include <stdio.h>

#include "engine/constraint/regex_priv.h"

enum { MAX_UNROLLED = 64, MAX_LEVELS = 4000, SOON_NONE = 64 };

/* What may follow, by the preceding character: none, a word character, another. */
enum { AT_START, AFTER_WORD, AFTER_OTHER, CONTEXTS };
struct then {
	rx of[CONTEXTS];
};

struct compiler {
	struct con *c;
	struct re_parser *p;
	rx word, other; /* one character */
	rx tail;        /* what may follow a match in a search */
	unsigned level;
};

static struct then nothing(void) { return (struct then){{RX_NONE, RX_NONE, RX_NONE}}; }
static struct then same(rx a) { return (struct then){{a, a, a}}; }

static struct then either(struct compiler *m, struct then a, struct then b)
{
	for (int i = 0; i < CONTEXTS; i++)
		a.of[i] = rx_or(m->c->pool, a.of[i], b.of[i]);
	return a;
}

/* Splits a into its intersection with test and the rest. Intersections make searches slow, so they are used only if
 * neither is all of a. */
static void split(struct compiler *m, rx a, rx test, rx *in, rx *out)
{
	*in = rx_and(m->c->pool, a, test);
	*out = con_minus(m->c, a, test);
	if (rx_is_none(m->c->pool, *in, SOON_NONE)) {
		*in = RX_NONE;
		*out = a;
	} else if (rx_is_none(m->c->pool, *out, SOON_NONE)) {
		*in = a;
		*out = RX_NONE;
	}
}

static struct then after_lang(struct compiler *m, rx l, struct then k)
{
	struct rx_pool *p = m->c->pool;
	if (l == RX_EPS)
		return k;
	if (k.of[AFTER_WORD] == k.of[AFTER_OTHER] && k.of[AT_START] == k.of[AFTER_WORD])
		return same(rx_cat(p, l, k.of[AT_START]));
	rx moved, word, other, some = rx_nullable(p, l) ? con_minus(m->c, l, RX_EPS) : l;
	if (k.of[AFTER_WORD] == k.of[AFTER_OTHER]) {
		moved = rx_cat(p, some, k.of[AFTER_WORD]);
	} else {
		split(m, some, rx_cat(p, RX_ALL, m->word), &word, &other);
		moved = rx_or(p, rx_cat(p, word, k.of[AFTER_WORD]), rx_cat(p, other, k.of[AFTER_OTHER]));
	}
	struct then out = same(moved);
	if (rx_nullable(p, l))
		out = either(m, out, k);
	return out;
}

static struct then after(struct compiler *m, const struct re *e, struct then k);

static struct then refuse(struct compiler *m, const struct re *e, const char *what)
{
	re_fail(m->p, SL_EUNSUPPORTED, e->at, "%s", what);
	return nothing();
}

static bool is_end(struct then k)
{
	return k.of[AT_START] == RX_EPS && k.of[AFTER_WORD] == RX_EPS && k.of[AFTER_OTHER] == RX_EPS;
}

/* ((?!x)a)* up to the end of the text, for one character a: all characters are a, and x begins at none of them. */
static struct then after_tempered(struct compiler *m, const struct re *e, struct then k)
{
	struct rx_pool *p = m->c->pool;
	const struct re *ahead = e->a->a, *one = e->a->b;
	if (!is_end(k) || e->least > 1 || !ahead->a->plain)
		return refuse(m, e, "a lookahead inside an unbounded repetition is not supported");
	rx begins = rx_cat(p, ahead->a->lang, RX_ALL);
	rx wrong = ahead->inverted ? begins : rx_not(p, begins);
	rx bad = rx_cat(p, RX_ALL, con_minus(m->c, wrong, RX_EPS));
	return same(con_minus(m->c, rx_repeat(p, one->lang, e->least, RX_UNBOUNDED), bad));
}

static bool is_tempered(struct compiler *m, const struct re *e)
{
	const struct re *a = e->a;
	if (a->kind != RE_CAT || a->a->kind != RE_AHEAD || !a->b->plain)
		return false;
	rx longer = con_minus(m->c, a->b->lang, con_any_char(m->c));
	return rx_is_none(m->c->pool, longer, 64);
}

static bool is_anything(const struct compiler *m, struct then k)
{
	return k.of[AT_START] == m->tail && k.of[AFTER_WORD] == m->tail && k.of[AFTER_OTHER] == m->tail;
}

/* If anything may follow, it covers the copies beyond the minimum. */
static struct then before_anything(struct compiler *m, const struct re *e, struct then k)
{
	if (e->least == 0)
		return k;
	struct then last = after(m, e->a, k);
	rx others = rx_repeat(m->c->pool, e->a->lang, e->least - 1, e->least - 1);
	return after_lang(m, others, last);
}

static struct then after_repeat(struct compiler *m, const struct re *e, struct then k)
{
	if (e->plain)
		return before_anything(m, e, k);
	if (e->most == RX_UNBOUNDED && is_tempered(m, e))
		return after_tempered(m, e, k);
	if (e->most == RX_UNBOUNDED || e->most > MAX_UNROLLED)
		return refuse(m, e, "an assertion inside an unbounded repetition is not supported");
	struct then out = k;
	for (uint32_t i = e->most; i-- > 0 && con_step(m->c, 1);) {
		out = after(m, e->a, out);
		if (i >= e->least)
			out = either(m, out, k);
	}
	return e->most == 0 ? k : out;
}

static struct then after_ahead(struct compiler *m, const struct re *e, struct then k)
{
	struct then seen = after(m, e->a, same(RX_ALL));
	for (int i = 0; i < CONTEXTS; i++)
		k.of[i] = e->inverted ? con_minus(m->c, k.of[i], seen.of[i]) : rx_and(m->c->pool, k.of[i], seen.of[i]);
	return k;
}

/* Splits what follows by whether it begins with a word character. */
static rx beginning(struct compiler *m, rx k, bool word)
{
	struct rx_pool *p = m->c->pool;
	rx in, out;
	if (k == m->tail)
		return word ? rx_cat(p, m->word, k) : con_optional(m->c, rx_cat(p, m->other, k));
	split(m, k, rx_cat(p, m->word, RX_ALL), &in, &out);
	return word ? in : out;
}

static struct then after_boundary(struct compiler *m, const struct re *e, struct then k)
{
	for (int i = 0; i < CONTEXTS; i++)
		k.of[i] = beginning(m, k.of[i], (i != AFTER_WORD) != e->inverted);
	return k;
}

static struct then after(struct compiler *m, const struct re *e, struct then k)
{
	struct then out = nothing();
	if (++m->level > MAX_LEVELS)
		re_fail(m->p, SL_ELIMIT, e->at, "assertions are nested too deep");
	if (m->p->fault->code != 0 || !con_step(m->c, 1)) {
		m->level--;
		return out;
	}
	if (e->plain && !is_anything(m, k)) {
		m->level--;
		return after_lang(m, e->lang, k);
	}
	switch (e->kind) {
	case RE_LANG: out = after_lang(m, e->lang, k); break;
	case RE_CAT: out = after(m, e->a, after(m, e->b, k)); break;
	case RE_ALT: out = either(m, after(m, e->a, k), after(m, e->b, k)); break;
	case RE_REPEAT: out = after_repeat(m, e, k); break;
	case RE_BEGIN: out.of[AT_START] = k.of[AT_START]; break;
	case RE_END:
		for (int i = 0; i < CONTEXTS; i++)
			out.of[i] = rx_nullable(m->c->pool, k.of[i]) ? RX_EPS : RX_NONE;
		break;
	case RE_BOUNDARY: out = after_boundary(m, e, k); break;
	case RE_AHEAD: out = after_ahead(m, e, k); break;
	case RE_BEHIND:
		out = k;
		out.of[AFTER_WORD] = e->inverted ? RX_NONE : k.of[AFTER_WORD];
		out.of[AFTER_OTHER] = e->inverted ? k.of[AFTER_OTHER] : RX_NONE;
		out.of[AT_START] = e->inverted ? k.of[AT_START] : RX_NONE;
		break;
	}
	m->level--;
	return out;
}

/* Anything may precede the match; `found` has the match and what follows. The preceding text consists of whole
 * characters, as does the text it is intersected with, so both are always at the same position inside a character. */
static rx searched(struct compiler *m, struct then found)
{
	struct rx_pool *p = m->c->pool;
	rx start = found.of[AT_START], word = found.of[AFTER_WORD], other = found.of[AFTER_OTHER];
	rx any = con_any_text(m->c);
	if (word != other)
		return rx_or(
		    p, start,
		    rx_or(p, rx_cat(p, rx_cat(p, any, m->word), word), rx_cat(p, rx_cat(p, any, m->other), other)));
	if (rx_or(p, start, word) == start)
		return rx_or(p, start, rx_cat(p, start == word ? m->tail : any, word));
	return rx_or(p, start, rx_cat(p, rx_repeat(p, con_any_char(m->c), 1, RX_UNBOUNDED), word));
}

static rx compile(struct re_parser *p, const struct re *e)
{
	struct compiler m = {.c = p->c, .p = p};
	struct charset word = {0}, other = {0};
	charset_add_class(p->c, &word, 'w');
	charset_add_class(p->c, &other, 'W');
	m.word = charset_rx(p->c, &word);
	m.other = charset_rx(p->c, &other);
	if (p->behind != RX_NONE) {
		m.word = p->behind;
		m.other = con_minus(p->c, con_any_char(p->c), p->behind);
	}
	m.tail = p->how & REGEX_BYTES ? RX_ALL : con_any_text(p->c);
	if (p->how & REGEX_SEARCH)
		return searched(&m, after(&m, e, same(m.tail)));
	return after(&m, e, same(RX_EPS)).of[AT_START];
}

rx regex_rx(struct con *c, const char *text, size_t n, unsigned how, struct regex_fault *fault)
{
	struct re_parser p = {.c = c, .text = text, .n = n, .how = how, .fault = fault};
	*fault = (struct regex_fault){0};
	if (n > CON_REGEX_BYTES) {
		re_fail(&p, SL_ELIMIT, 0, "longer than %d bytes", CON_REGEX_BYTES);
		return RX_NONE;
	}
	const struct re *e = re_parse(&p);
	return e == NULL || fault->code != 0 ? RX_NONE : compile(&p, e);
}

void con_regex(struct con *c, const char *text, size_t n)
{
	struct regex_fault fault;
	rx a = regex_rx(c, text, n, 0, &fault);
	if (fault.code != 0) {
		con_fail(c, fault.code, "regular expression: %s at offset %zu", fault.what, fault.at);
		return;
	}
	struct rules_sym all = rules_terminal(c->rules, a);
	rules_start(c->rules, con_sequence(c, &all, 1));
}
