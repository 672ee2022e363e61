/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/constraint.h"

#include "engine/constraint/con.h"
#include "engine/constraint/json_tree.h"

/* The answer is one of a list. */
static void choice(struct con *c, const char *text, size_t n)
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

static void json_object(struct con *c, const char *text, size_t n)
{
	(void)text, (void)n;
	rules_start(c->rules, con_document(c, con_any_object(c)));
}

static void (*const front_ends[CONSTRAINT_KINDS])(struct con *c, const char *text, size_t n) = {
    [CONSTRAINT_JSON_SCHEMA] = con_json_schema,
    [CONSTRAINT_JSON_OBJECT] = json_object,
    [CONSTRAINT_REGEX] = con_regex,
    [CONSTRAINT_GBNF] = con_gbnf,
    [CONSTRAINT_LARK] = con_lark,
    [CONSTRAINT_CHOICE] = choice,
};

static void translate(struct con *c, enum constraint_kind kind, const char *text, size_t n)
{
	if (kind <= CONSTRAINT_NONE || kind >= CONSTRAINT_KINDS)
		con_fail(c, SL_EINVAL, "unknown kind of constraint");
	else if (n > CON_MAX_TEXT)
		con_fail(c, SL_ELIMIT, "the constraint is longer than %d bytes", CON_MAX_TEXT);
	else
		front_ends[kind](c, text, n);
	con_step(c, 0); /* shortages of the rules */
}

int constraint_rules(enum constraint_kind kind, const char *text, size_t n, const struct constraint_limits *limits,
		     struct rules **out, struct sl_err *err)
{
	struct sl_err ignored = {0};
	struct con c = {.err = err != NULL ? err : &ignored, .max_work = CON_MAX_WORK, .max_depth = CON_MAX_DEPTH};
	if (limits != NULL && limits->max_work > 0)
		c.max_work = limits->max_work;
	if (limits != NULL && limits->max_depth > 0 && limits->max_depth < CON_MAX_DEPTH)
		c.max_depth = limits->max_depth;
	*out = NULL;
	int rc = rules_create(limits != NULL ? &limits->rules : NULL, &c.rules);
	if (rc != 0)
		return sl_errf(c.err, rc, "out of memory");
	c.pool = rules_pool(c.rules);
	translate(&c, kind, text, n);
	con_dispose(&c);
	if (c.rc != 0)
		rules_destroy(c.rules);
	else
		*out = c.rules;
	return c.rc;
}
