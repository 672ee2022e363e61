/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/constraint.h"

#include "engine/constraint/con.h"
#include "engine/constraint/json_tree.h"

/* The answer is one of a list of strings. */
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
		con_fail(c, SL_EINVAL, "choices must be an array of strings, with at least one");
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

/* ---- tool calls ---- */

/* Tool calls in the model's format, as the gateway describes it (gateway/parts, parts_grammar):
 *
 *   {"begin": TEXT, "calls": [{"prefix": TEXT, "schema": TEXT}, …], "suffix": TEXT, "separator": TEXT, "end": TEXT,
 *    "several": BOOL, "trigger": TEXT}
 *
 * begin, then one call or, with several, one or more calls with separators between them, then end. A call is a tool's
 * prefix, a JSON value of its schema, and the suffix. schema is the schema's JSON text. With a trigger, the text that
 * begins every call, the answer is text without the trigger, then the calls or nothing.
 */
enum { MOST_CALLS = 128 };

static struct rules_sym literal(struct con *c, const struct jv *form, const char *member)
{
	const struct jv *v = jv_get(form, member);
	if (!jv_is(v, JV_STRING)) {
		con_fail(c, SL_EINVAL, "calls: '%s' must be a string", member);
		return rules_terminal(c->rules, RX_EPS);
	}
	return rules_terminal(c->rules, rx_literal(c->pool, v->text.at, v->text.n));
}

static struct rules_sym one_call(struct con *c, const struct jv *form, const struct jv *tool)
{
	const struct jv *schema = jv_get(tool, "schema");
	struct rules_sym of[3] = {literal(c, tool, "prefix")};
	if (!jv_is(schema, JV_STRING))
		con_fail(c, SL_EINVAL, "calls: 'schema' must be a string");
	else
		of[1] = con_schema(c, schema->text.at, schema->text.n);
	of[2] = literal(c, form, "suffix");
	return con_sequence(c, of, 3);
}

/* Text without the trigger, then the calls or nothing. */
static struct rules_sym at_will(struct con *c, const struct jv *trigger, struct rules_sym forced)
{
	rx literal = rx_literal(c->pool, trigger->text.at, trigger->text.n);
	rx has = rx_cat(c->pool, RX_ALL, rx_cat(c->pool, literal, RX_ALL));
	struct rules_sym maybe = rules_new(c->rules);
	rules_add(c->rules, maybe, NULL, 0);
	rules_add(c->rules, maybe, &forced, 1);
	const struct rules_sym whole[] = {rules_terminal(c->rules, con_minus(c, con_any_text(c), has)), maybe};
	return con_sequence(c, whole, 2);
}

static void calls(struct con *c, const char *text, size_t n)
{
	const struct jv *form = jv_parse(c, text, n), *tools = jv_get(form, "calls");
	if (c->rc != 0)
		return;
	if (!jv_is(tools, JV_ARRAY) || tools->n == 0) {
		con_fail(c, SL_EINVAL, "calls: 'calls' must be a list of tools");
		return;
	}
	struct rules_sym any = rules_new(c->rules), separator = literal(c, form, "separator");
	for (size_t i = 0; i < tools->n && con_step(c, 1); i++) {
		struct rules_sym call = one_call(c, form, tools->items[i]);
		rules_add(c->rules, any, &call, 1);
	}
	uint32_t most = jv_is(jv_get(form, "several"), JV_TRUE) ? MOST_CALLS : 1;
	const struct rules_sym whole[] = {literal(c, form, "begin"),
					  rules_repeat(c->rules, any, &separator, 1, 1, most), literal(c, form, "end")};
	const struct jv *trigger = jv_get(form, "trigger");
	struct rules_sym all = con_sequence(c, whole, 3);
	rules_start(c->rules, jv_is(trigger, JV_STRING) && trigger->text.n > 0 ? at_will(c, trigger, all) : all);
}

/* ---- the kinds ---- */

static void (*const front_ends[CONSTRAINT_KINDS])(struct con *c, const char *text, size_t n) = {
    [CONSTRAINT_JSON_SCHEMA] = con_json_schema,
    [CONSTRAINT_JSON_OBJECT] = json_object,
    [CONSTRAINT_REGEX] = con_regex,
    [CONSTRAINT_GBNF] = con_gbnf,
    [CONSTRAINT_LARK] = con_lark,
    [CONSTRAINT_CHOICE] = choice,
    [CONSTRAINT_CALLS] = calls,
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
	rx_pool_allow(c.pool, CON_MAX_DERIVE);
	translate(&c, kind, text, n);
	con_dispose(&c);
	if (c.rc != 0)
		rules_destroy(c.rules);
	else
		*out = c.rules;
	return c.rc;
}
