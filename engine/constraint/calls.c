/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of tools, in the form that a model writes them: the gateway's description of it (gateway/parts, parts_grammar):
 *
 *   {"begin": TEXT, "calls": [{"prefix": TEXT, "schema": TEXT}, …], "suffix": TEXT, "separator": TEXT, "end": TEXT,
 *    "several": BOOL}
 *
 * begin, then one call, or, with several, one or more with the separator between them, then end. A call is the prefix of
 * a tool, a JSON value of its schema, and the suffix. A schema is the text of one.
 */
#include "engine/constraint/con.h"
#include "engine/constraint/json_tree.h"

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

void con_calls(struct con *c, const char *text, size_t n)
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
	rules_start(c->rules, con_sequence(c, whole, 3));
}
