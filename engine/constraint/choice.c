/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of choices: the answer is one of them.
 */
#include "engine/constraint/con.h"
#include "engine/constraint/json_tree.h"

void con_choice(struct con *c, const char *text, size_t n)
{
	const struct jv *list = jv_parse(c, text, n);
	if (list == NULL)
		return;
	rx *words = con_alloc(c, list->n + 1, sizeof *words);
	bool good = list->kind == JV_ARRAY && list->n > 0;
	for (size_t i = 0; good && words != NULL && i < list->n; i++) {
		good = list->items[i]->kind == JV_STRING;
		words[i] = good ? rx_literal(c->pool, list->items[i]->text.at, list->items[i]->text.n) : RX_NONE;
	}
	if (!good || words == NULL) {
		con_fail(c, SL_EINVAL, "choices are an array of strings with at least one");
		return;
	}
	struct rules_sym all = rules_terminal(c->rules, rx_or_n(c->pool, words, list->n));
	rules_start(c->rules, con_sequence(c, &all, 1));
}
