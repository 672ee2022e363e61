/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of a goal: one terminal for scalars, an alternative per shape for arrays and objects. And the text of a
 * tagged member (con_tags).
 */
#include <string.h>

#include "base/json/json_out.h"
#include "engine/constraint/decimal.h"
#include "engine/constraint/schema.h"

static bool is_plain(struct proto_str text)
{
	for (size_t i = 0; i < text.n; i++)
		if ((unsigned char)text.at[i] >= 0x80)
			return false;
	return true;
}

/* The one spelling of a plain text, in quotes. at NULL: no memory. */
static struct proto_str spelling(struct schema *s, struct proto_str text)
{
	char *at = con_alloc(s->c, JSON_ESCAPED_MAX(text.n) + 2, 1), *end = at;
	if (at == NULL)
		return (struct proto_str){0};
	*end++ = '"';
	end = json_escape(end, text.at, text.n);
	*end++ = '"';
	return (struct proto_str){at, (size_t)(end - at)};
}

static rx any_spelling(struct schema *s, struct proto_str text)
{
	struct rx_pool *p = s->c->pool;
	rx quote = con_text(s->c, "\"");
	return rx_cat(p, quote, rx_cat(p, rx_json(p, rx_literal(p, text.at, text.n)), quote));
}

rx emit_string(struct schema *s, struct proto_str text)
{
	if (!is_plain(text))
		return any_spelling(s, text);
	struct proto_str plain = spelling(s, text);
	return plain.at == NULL ? RX_NONE : rx_literal(s->c->pool, plain.at, plain.n);
}

static rx listed(struct schema *s, const struct strings *of)
{
	struct proto_str *plain = con_alloc(s->c, of->n_words + 1, sizeof *plain);
	rx *all = con_alloc(s->c, of->n_words + 1, sizeof *all);
	size_t n = 0, n_plain = 0;
	if (plain == NULL || all == NULL)
		return RX_NONE;
	for (size_t i = 0; i < of->n_words; i++) {
		if (!is_plain(of->words[i]))
			all[n++] = any_spelling(s, of->words[i]);
		else if ((plain[n_plain++] = spelling(s, of->words[i])).at == NULL)
			return RX_NONE;
	}
	all[n++] = rx_words(s->c->pool, plain, n_plain);
	return rx_or_n(s->c->pool, all, n);
}

static rx strings(struct schema *s, const struct strings *of)
{
	struct rx_pool *p = s->c->pool;
	rx quote = con_text(s->c, "\"");
	rx lang = strings_lang(s, of);
	if (lang == con_any_text(s->c))
		return con_any_string(s->c);
	if (lang == RX_NONE)
		return RX_NONE;
	if (!of->listed)
		return rx_cat(p, quote, rx_cat(p, rx_json(p, lang), quote));
	return listed(s, of);
}

static rx scalars(struct schema *s, const struct set *of)
{
	rx parts[] = {of->null ? con_text(s->c, "null") : RX_NONE, of->yes ? con_text(s->c, "true") : RX_NONE,
		      of->no ? con_text(s->c, "false") : RX_NONE, of->number, strings(s, &of->string)};
	return rx_or_n(s->c->pool, parts, sizeof parts / sizeof *parts);
}

void emit_goal(struct schema *s, struct goal *g)
{
	if (g->lits.n > 0 && rx_pool_fault(s->c->pool) == 0 && s->c->rc == 0)
		s->at = g->lits.of[0];
	const struct set *of = goal_set(s, g);
	if (of == NULL || s->c->rc != 0)
		return;
	rx scalar = scalars(s, of);
	if (scalar != RX_NONE) {
		struct rules_sym one = rules_terminal(s->c->rules, scalar);
		rules_add(s->c->rules, g->sym, &one, 1);
	}
	for (size_t i = 0; i < of->n_arrs && con_step(s->c, 1); i++)
		emit_array(s, g->sym, of->arrs[i]);
	for (size_t i = 0; i < of->n_objs && con_step(s->c, 1); i++)
		emit_object(s, g->sym, of->objs[i]);
}

/* ---- tagged ---- */

/* Texts that gateway/parts may read as something other than a string: JSON, and Python's words. */
static rx looks_like_json(struct con *c)
{
	struct rx_pool *p = c->pool;
	rx blanks = rx_repeat(p, con_class(c, " \t\r\n"), 0, RX_UNBOUNDED), of[12];
	static const char *const words[] = {"null", "true", "false", "None", "True", "TRUE", "False", "FALSE"};
	size_t n = 0;
	for (; n < sizeof words / sizeof *words; n++)
		of[n] = con_text(c, words[n]);
	of[n++] = con_any_number(c);
	of[n++] = rx_cat(p, con_class(c, "{[\""), RX_ALL);
	return rx_cat(p, blanks, rx_cat(p, rx_or_n(p, of, n), blanks));
}

/* Texts of the strings, without the literal that ends a value, and without newlines at either end, which belong to the
 * literals. */
static rx tagged_text(struct schema *s, rx lang, const struct con_tags *tags)
{
	struct con *c = s->c;
	struct rx_pool *p = c->pool;
	rx end = rx_literal(p, tags->end_text.at, tags->end_text.n), line = con_text(c, "\n");
	rx has_end = rx_cat(p, RX_ALL, rx_cat(p, end, RX_ALL));
	return con_minus(c, lang, rx_or(p, has_end, rx_or(p, rx_cat(p, line, RX_ALL), rx_cat(p, RX_ALL, line))));
}

/* Does its schema declare a string and nothing else? Then gateway/parts reads every text as one. */
static bool says_string(const struct goal *g)
{
	return g->lits.n == 1 && !lit_inverted(g->lits.of[0]) &&
	       jv_text_is(jv_get(lit_schema(g->lits.of[0]), "type"), "string");
}

struct rules_sym emit_tagged_value(struct schema *s, struct goal *g, const struct con_tags *tags)
{
	struct con *c = s->c;
	const struct set *of = g != NULL ? goal_set(s, g) : NULL;
	struct rules_sym value = rules_new(c->rules), end = rules_terminal(c->rules, tags->end);
	rx text = of != NULL ? strings_lang(s, &of->string) : con_any_text(c);
	if (text == RX_NONE) {
		value = schema_symbol(s, g);
	} else {
		text = tagged_text(s, text, tags);
		if (of != NULL && !says_string(g))
			text = con_minus(c, text, looks_like_json(c));
		if (of != NULL && of->null)
			text = rx_or(c->pool, text, con_text(c, "null"));
		struct rules_sym one = rules_terminal(c->rules, text);
		rules_add(c->rules, value, &one, 1);
	}
	const struct rules_sym whole[] = {value, end};
	return con_sequence(c, whole, 2);
}
