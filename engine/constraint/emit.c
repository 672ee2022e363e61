/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of a goal: one terminal for scalars, an alternative per shape for arrays and objects.
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

rx emit_string(struct schema *s, struct proto_str text)
{
	struct rx_pool *p = s->c->pool;
	rx quote = con_text(s->c, "\""), inside;
	char *escaped = con_alloc(s->c, JSON_ESCAPED_MAX(text.n) + 1, 1);
	if (escaped == NULL)
		return RX_NONE;
	if (is_plain(text))
		inside = rx_literal(p, escaped, (size_t)(json_escape(escaped, text.at, text.n) - escaped));
	else
		inside = rx_json(p, rx_literal(p, text.at, text.n));
	return rx_cat(p, quote, rx_cat(p, inside, quote));
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
	rx *words = con_alloc(s->c, of->n_words + 1, sizeof *words);
	for (size_t i = 0; words != NULL && i < of->n_words; i++)
		words[i] = emit_string(s, of->words[i]);
	return words == NULL ? RX_NONE : rx_or_n(p, words, of->n_words);
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
