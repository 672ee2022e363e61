/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/constraint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
 *   {"tokens": [TEXT, …], "begin": TEXT, "calls": [{"prefix": TEXT, "schema": TEXT}, …], "suffix": TEXT,
 *    "separator": TEXT, "end": TEXT, "several": BOOL, "member": TEXT, "member_end": TEXT, "triggers": [TEXT, …],
 *    "channels": BOOL, "at_will": BOOL, "number": TEXT, "first": N}
 *
 * begin, then one call or, with several, one or more calls with separators between them, then end. A call is a tool's
 * prefix, its arguments (an object of its schema) and the suffix. schema is the schema's JSON text. Arguments are a
 * JSON value; or, with member, each is that text with its name for the %s, its value, and member_end. With number, a
 * prefix continues with the call's number, counted from first, and that text. In all texts,
 * tokens are control tokens. At will, the answer is text without the triggers, the texts that begin calls, then the
 * calls or nothing. With channels, messages of reasoning come before a call, and the text is the final message
 * (harmony).
 */
enum { MOST_CALLS = 128, MOST_MESSAGES = 16, MOST_NUMBERED = 2048, LEAST_NUMBERED = 8 };

struct call_form {
	struct con *c;
	const struct jv *form, *tokens;
	struct con_tags tags;
};

static rx token(struct con *c, struct proto_str text)
{
	static const char mark[] = {(char)0xFF}; /* engine/grammar/vocab.h */
	rx end = rx_literal(c->pool, mark, 1);
	return rx_cat(c->pool, end, rx_cat(c->pool, rx_literal(c->pool, text.at, text.n), end));
}

/* The longest token that the text begins with; NULL: none. */
static const struct jv *token_at(const struct jv *tokens, const char *at, size_t n)
{
	const struct jv *found = NULL;
	for (size_t i = 0; jv_is(tokens, JV_ARRAY) && i < tokens->n; i++) {
		const struct jv *t = tokens->items[i];
		bool here =
		    jv_is(t, JV_STRING) && t->text.n > 0 && t->text.n <= n && memcmp(at, t->text.at, t->text.n) == 0;
		if (here && (found == NULL || t->text.n > found->text.n))
			found = t;
	}
	return found;
}

/* A text whose tokens are control tokens. */
static rx spelled(struct con *c, const struct jv *tokens, const char *text, size_t n)
{
	rx all = RX_EPS;
	size_t from = 0, at = 0;
	while (at < n && con_step(c, 1)) {
		const struct jv *t = token_at(tokens, text + at, n - at);
		if (t == NULL) {
			at++;
			continue;
		}
		rx before = rx_literal(c->pool, text + from, at - from);
		all = rx_cat(c->pool, all, rx_cat(c->pool, before, token(c, t->text)));
		from = at += t->text.n;
	}
	return rx_cat(c->pool, all, rx_literal(c->pool, text + from, n - from));
}

static struct rules_sym constant(const struct call_form *f, const char *text)
{
	return rules_terminal(f->c->rules, spelled(f->c, f->tokens, text, strlen(text)));
}

static const struct jv *text_of(const struct call_form *f, const struct jv *of, const char *member)
{
	const struct jv *v = jv_get(of, member);
	if (jv_is(v, JV_STRING))
		return v;
	con_fail(f->c, SL_EINVAL, "calls: '%s' must be a string", member);
	return NULL;
}

static rx literal_rx(const struct call_form *f, const struct jv *of, const char *member)
{
	const struct jv *v = text_of(f, of, member);
	return v != NULL ? spelled(f->c, f->tokens, v->text.at, v->text.n) : RX_EPS;
}

static struct rules_sym literal(const struct call_form *f, const struct jv *of, const char *member)
{
	return rules_terminal(f->c->rules, literal_rx(f, of, member));
}

/* How each argument is written; the name replaces the %s. */
static void read_tags(struct call_form *f)
{
	const struct jv *member = text_of(f, f->form, "member"), *end = text_of(f, f->form, "member_end");
	if (member == NULL || end == NULL || member->text.n == 0)
		return;
	const char *name = memmem(member->text.at, member->text.n, "%s", 2);
	if (name == NULL) {
		con_fail(f->c, SL_EINVAL, "calls: 'member' has no name");
		return;
	}
	size_t before = (size_t)(name - member->text.at);
	f->tags = (struct con_tags){.on = true,
				    .before = spelled(f->c, f->tokens, member->text.at, before),
				    .after = spelled(f->c, f->tokens, name + 2, member->text.n - before - 2),
				    .end = spelled(f->c, f->tokens, end->text.at, end->text.n),
				    .end_text = end->text};
	/* Blanks around the literal that ends a value belong to no value. */
	while (f->tags.end_text.n > 0 && f->tags.end_text.at[0] == '\n') {
		f->tags.end_text.at++;
		f->tags.end_text.n--;
	}
	while (f->tags.end_text.n > 0 && f->tags.end_text.at[f->tags.end_text.n - 1] == '\n')
		f->tags.end_text.n--;
}

static struct rules_sym arguments_of(const struct call_form *f, const struct jv *tool)
{
	const struct jv *schema = text_of(f, tool, "schema");
	if (schema != NULL && f->tags.on)
		return con_schema_tagged(f->c, schema->text.at, schema->text.n, &f->tags);
	return schema != NULL ? con_schema_object(f->c, schema->text.at, schema->text.n) : (struct rules_sym){0};
}

static struct rules_sym one_call(const struct call_form *f, const struct jv *tool)
{
	const struct rules_sym of[] = {literal(f, tool, "prefix"), arguments_of(f, tool),
				       literal(f, f->form, "suffix")};
	return con_sequence(f->c, of, 3);
}

static struct rules_sym calls_of(const struct call_form *f, const struct jv *tools, uint32_t most)
{
	struct rules_sym any = rules_new(f->c->rules), separator = literal(f, f->form, "separator");
	for (size_t i = 0; i < tools->n && con_step(f->c, 1); i++) {
		struct rules_sym call = one_call(f, tools->items[i]);
		rules_add(f->c->rules, any, &call, 1);
	}
	return rules_repeat(f->c->rules, any, &separator, 1, 1, most);
}

/* Any tool's call with that number. */
static struct rules_sym call_numbered(const struct call_form *f, const struct jv *tools,
				      const struct rules_sym *arguments, uint64_t number)
{
	struct rules_sym any = rules_new(f->c->rules);
	char digits[24];
	snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
	const struct rules_sym after[] = {constant(f, digits), literal(f, f->form, "number")};
	struct rules_sym head = con_sequence(f->c, after, 2);
	for (size_t i = 0; i < tools->n && con_step(f->c, 1); i++) {
		const struct rules_sym of[] = {literal(f, tools->items[i], "prefix"), head, arguments[i],
					       literal(f, f->form, "suffix")};
		struct rules_sym call = con_sequence(f->c, of, 4);
		rules_add(f->c->rules, any, &call, 1);
	}
	return any;
}

/* Each number has rules of its own, made from the last call to the first; many tools may be called fewer times. */
static struct rules_sym calls_numbered(const struct call_form *f, const struct jv *tools, uint32_t most)
{
	struct con *c = f->c;
	const struct jv *first = jv_get(f->form, "first");
	struct rules_sym *arguments = con_alloc(c, tools->n, sizeof *arguments), all = {0};
	uint64_t from = jv_is(first, JV_NUMBER) ? strtoull(first->text.at, NULL, 10) : 0;
	uint32_t fit = (uint32_t)(MOST_NUMBERED / tools->n);
	if (arguments == NULL)
		return all;
	fit = fit < LEAST_NUMBERED ? LEAST_NUMBERED : fit;
	most = most < fit ? most : fit;
	for (size_t i = 0; i < tools->n && con_step(c, 1); i++)
		arguments[i] = arguments_of(f, tools->items[i]);
	for (uint32_t k = most; k-- > 0 && con_step(c, 1);) {
		struct rules_sym tail = rules_new(c->rules);
		const struct rules_sym more[] = {literal(f, f->form, "separator"), all};
		rules_add(c->rules, tail, NULL, 0);
		if (k + 1 < most)
			rules_add(c->rules, tail, more, 2);
		const struct rules_sym of[] = {call_numbered(f, tools, arguments, from + k), tail};
		all = con_sequence(c, of, 2);
	}
	return all;
}

/* Text without the triggers. A control token is in no text anyway. */
static rx free_text(const struct call_form *f)
{
	struct con *c = f->c;
	const struct jv *triggers = jv_get(f->form, "triggers");
	rx text = con_any_text(c);
	for (size_t i = 0; jv_is(triggers, JV_ARRAY) && i < triggers->n && con_step(c, 1); i++) {
		const struct jv *t = triggers->items[i];
		if (!jv_is(t, JV_STRING) || t->text.n == 0) {
			con_fail(c, SL_EINVAL, "calls: 'triggers' must be strings");
			return text;
		}
		const struct jv *whole = token_at(f->tokens, t->text.at, t->text.n);
		rx literal = rx_literal(c->pool, t->text.at, t->text.n);
		if (whole == NULL || whole->text.n < t->text.n)
			text = con_minus(c, text, rx_cat(c->pool, RX_ALL, rx_cat(c->pool, literal, RX_ALL)));
	}
	return text;
}

static struct rules_sym text_sym(const struct call_form *f) { return rules_terminal(f->c->rules, free_text(f)); }

/* Text, then the calls or nothing. */
static struct rules_sym at_will(const struct call_form *f, struct rules_sym forced)
{
	struct con *c = f->c;
	struct rules_sym maybe = rules_new(c->rules);
	rules_add(c->rules, maybe, NULL, 0);
	rules_add(c->rules, maybe, &forced, 1);
	const struct rules_sym whole[] = {text_sym(f), maybe};
	return con_sequence(c, whole, 2);
}

/* Messages of reasoning and for the user, then the call or, at will, the final message. */
static struct rules_sym in_channels(const struct call_form *f, struct rules_sym call, bool will)
{
	struct con *c = f->c;
	struct rules_sym message = rules_new(c->rules), last = rules_new(c->rules);
	static const char *const heads[] = {"<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>"};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		const struct rules_sym of[] = {constant(f, heads[i]), text_sym(f),
					       constant(f, "<|end|><|start|>assistant")};
		rules_add(c->rules, message, of, 3);
	}
	const struct rules_sym final[] = {constant(f, "<|channel|>final<|message|>"), text_sym(f)};
	rules_add(c->rules, last, &call, 1);
	if (will)
		rules_add(c->rules, last, final, 2);
	const struct rules_sym whole[] = {rules_repeat(c->rules, message, NULL, 0, 0, MOST_MESSAGES), last};
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
	struct call_form f = {.c = c, .form = form, .tokens = jv_get(form, "tokens")};
	if (jv_get(form, "member") != NULL)
		read_tags(&f);
	uint32_t most = jv_is(jv_get(form, "several"), JV_TRUE) ? MOST_CALLS : 1;
	bool numbered = jv_get(form, "number") != NULL;
	const struct rules_sym whole[] = {literal(&f, form, "begin"),
					  numbered ? calls_numbered(&f, tools, most) : calls_of(&f, tools, most),
					  literal(&f, form, "end")};
	struct rules_sym all = con_sequence(c, whole, 3);
	bool will = jv_is(jv_get(form, "at_will"), JV_TRUE);
	if (jv_is(jv_get(form, "channels"), JV_TRUE))
		all = in_channels(&f, all, will);
	else if (will)
		all = at_will(&f, all);
	rules_start(c->rules, all);
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
