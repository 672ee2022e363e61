/* SPDX-License-Identifier: Apache-2.0
 *
 * A required call is a constraint like any other: the model's own form of calls as a grammar. Where a call is the
 * model's choice, the grammar of strict tools begins with the call.
 */
#include "gateway/api/api_form.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"

static const struct link_model *model_of(const struct exchange *x, int model)
{
	if (model == ANSWER_AUTO)
		model = answer_auto_model(x->app, x->snapshot, x->key->tier);
	return model >= 0 ? engine_link_model(x->app->link, model) : NULL;
}

/* [{"name", "parameters"}] of the tools that may be called. NULL: no memory. */
static json_t *declared(const struct tools_request *t)
{
	json_t *all = json_array();
	for (size_t i = 0; all != NULL && i < t->n; i++) {
		const struct tool *tool = &t->list[i];
		if (!tool->allowed)
			continue;
		/* The body is freed before the answer ends. */
		json_t *parameters = tool->parameters != NULL ? json_deep_copy(tool->parameters) : json_null();
		json_t *one = json_pack("{s:s, s:o}", "name", tool->name, "parameters", parameters);
		if (one == NULL || json_array_append_new(all, one) != 0) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

/* ---- forced calls ---- */

static int put_member(struct sl_buf *out, const char *name, const char *text, size_t n)
{
	int rc = buf_printf(out, "\"%s\":", name);
	return rc == 0 ? json_out_string(out, text, n) : rc;
}

static int put_call(struct sl_buf *out, const struct parts_grammar_call *call, bool first)
{
	static const char any[] = "{\"type\":\"object\"}";
	const char *schema = call->schema != NULL ? call->schema : any;
	int rc = buf_append_str(out, first ? "{" : ",{");
	if (rc == 0)
		rc = put_member(out, "prefix", call->prefix, strlen(call->prefix));
	if (rc == 0)
		rc = buf_append_str(out, ",");
	if (rc == 0)
		rc = put_member(out, "schema", schema, call->schema != NULL ? call->n_schema : sizeof any - 1);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int put_strings(struct sl_buf *out, const char *name, const char *const *of, size_t n)
{
	int rc = buf_printf(out, "\"%s\":[", name);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		rc = i > 0 ? buf_append_str(out, ",") : 0;
		rc = rc == 0 ? json_out_string(out, of[i], strlen(of[i])) : rc;
	}
	return rc == 0 ? buf_append_str(out, "],") : rc;
}

static int put_tokens(struct sl_buf *out, const struct answer_split *s)
{
	const char *tokens[PARTS_MAX_LITERALS];
	for (size_t i = 0; i < s->n_markers; i++)
		tokens[i] = s->markers[i].text;
	return put_strings(out, "tokens", tokens, s->n_markers);
}

static const char *word_of(bool is) { return is ? "true" : "false"; }

/* As engine/constraint/constraint.c reads it. */
static int put_calls(struct sl_buf *out, const struct answer_split *s, const struct parts_grammar *g, bool at_will)
{
	const char *const texts[] = {g->begin, g->suffix, g->separator, g->end, g->member, g->member_end, g->number};
	static const char *const names[] = {"begin", "suffix", "separator", "end", "member", "member_end", "number"};
	int rc = buf_printf(out, "{\"first\":%u,", s->n_calls_before);
	for (int i = 0; rc == 0 && i < 7; i++) {
		if (texts[i] == NULL)
			continue;
		rc = put_member(out, names[i], texts[i], strlen(texts[i]));
		rc = rc == 0 ? buf_append_str(out, ",") : rc;
	}
	if (rc == 0)
		rc = put_tokens(out, s);
	if (rc == 0)
		rc = put_strings(out, "triggers", g->triggers, g->n_triggers);
	if (rc == 0)
		rc = buf_append_str(out, "\"calls\":[");
	for (size_t i = 0; rc == 0 && i < g->n_calls; i++)
		rc = put_call(out, &g->calls[i], i == 0);
	return rc == 0 ? buf_printf(out, "],\"several\":%s,\"channels\":%s,\"at_will\":%s}", word_of(g->several),
				    word_of(g->channels), word_of(at_will))
		       : rc;
}

static bool is_marker(const struct answer_split *s, const char *literal)
{
	for (size_t i = 0; i < s->n_markers; i++)
		if (strcmp(s->markers[i].text, literal) == 0)
			return true;
	return false;
}

/* A literal of the calls that counts only as a control token, which this model does not have; NULL: none. */
static const char *missing_token(const struct answer_split *s, const struct parts_grammar *g)
{
	const char *const *c = parts_format_desc((enum parts_format)s->model.format)->control;
	for (; c != NULL && *c != NULL; c++) {
		bool used = strstr(g->begin, *c) != NULL || strstr(g->calls[0].prefix, *c) != NULL ||
			    strstr(g->suffix, *c) != NULL || strstr(g->end, *c) != NULL;
		if ((used || g->channels) && !is_marker(s, *c))
			return *c;
	}
	return NULL;
}

/* strict_only: other tools may have any arguments. */
static int list_tools(const struct tools_request *t, bool strict_only, struct parts_tool *tools, char **schemas,
		      size_t *n)
{
	*n = 0;
	for (size_t i = 0; i < t->n; i++) {
		const struct tool *tool = &t->list[i];
		if (!tool->allowed)
			continue;
		bool held = tool->parameters != NULL && (tool->strict || !strict_only);
		schemas[*n] = held ? json_dumps(tool->parameters, JSON_COMPACT) : NULL;
		if (held && schemas[*n] == NULL)
			return SL_ENOMEM;
		tools[*n] = (struct parts_tool){.name = tool->name,
						.schema = schemas[*n],
						.n_schema = schemas[*n] != NULL ? strlen(schemas[*n]) : 0};
		++*n;
	}
	return 0;
}

/* The constraint of calls, required or at_will, goes into c->constraint. SL_EUNSUPPORTED with err. */
static int hold_calls(struct request_common *c, const struct answer_split *s, bool at_will, struct sl_err *err)
{
	const struct tools_request *t = &c->tools;
	struct parts_tool *tools = sl_zalloc_n(t->n + 1, sizeof *tools);
	char **schemas = sl_zalloc_n(t->n + 1, sizeof *schemas);
	struct parts_grammar g = {0};
	size_t n = 0;
	int rc = tools != NULL && schemas != NULL ? list_tools(t, at_will, tools, schemas, &n) : SL_ENOMEM;
	if (rc == 0)
		rc = parts_grammar((enum parts_format)s->model.format, tools, n, t->named, t->parallel && !t->functions,
				   &g, err);
	const char *missing = rc == 0 ? missing_token(s, &g) : NULL;
	if (missing != NULL)
		rc = sl_errf(err, SL_EUNSUPPORTED, "its vocabulary has no token '%s'", missing);
	if (rc == 0 && at_will && g.n_triggers == 0 && !g.channels)
		rc = sl_errf(err, SL_EUNSUPPORTED, "this model's calls begin as other text does");
	buf_clear(&c->constraint.text, SIZE_MAX);
	if (rc == 0)
		rc = put_calls(&c->constraint.text, s, &g, at_will);
	if (rc == 0) {
		c->constraint.kind = PROTO_CONSTRAINT_CALLS;
		c->constraint.field = "tools";
	}
	parts_grammar_dispose(&g);
	for (size_t i = 0; schemas != NULL && i < n; i++)
		free(schemas[i]);
	sl_free(schemas);
	sl_free(tools);
	return rc;
}

static bool any_strict(const struct tools_request *t)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->list[i].allowed && t->list[i].strict)
			return true;
	return false;
}

/* ---- the door ---- */

/* Without memory: 0. */
static unsigned count_calls(const struct answer_spec *spec)
{
	struct proto_str text = spec->n_prompts > 0 ? spec->prompts[0].text : (struct proto_str){0};
	json_t *chat = json_loadb(text.at, text.n, 0, NULL);
	const json_t *messages = json_object_get(chat, "messages");
	size_t n = 0;
	for (size_t i = 0; i < json_array_size(messages); i++)
		n += json_array_size(json_object_get(json_array_get(messages, i), "tool_calls"));
	json_decref(chat);
	return (unsigned)n;
}

static bool refuse_tools(struct exchange *x, const char *param, const char *model, const char *why)
{
	return exchange_refuse(x, 400, "unsupported_value", param, "'%s' can't be used with the model '%s': %s.", param,
			       model, why);
}

static bool use_tools(struct exchange *x, struct request_common *c, const struct link_model *m,
		      struct answer_split *split)
{
	struct sl_err err = {0};
	if (c->tools.n == 0 || c->tools.choice == TOOL_CHOICE_NONE)
		return true;
	if (split == NULL || split->tools == NULL)
		return refuse_tools(x, "tools", m->name, "its chat template has no form for calls");
	bool at_will = c->tools.choice == TOOL_CHOICE_AUTO;
	if (at_will && (c->constraint.kind != PROTO_CONSTRAINT_NONE || !any_strict(&c->tools)))
		return true;
	if (c->constraint.kind != PROTO_CONSTRAINT_NONE)
		return exchange_refuse(x, 400, "invalid_value", "tool_choice",
				       "'tool_choice' requires a call, which '%s' does not allow.",
				       c->constraint.field);
	int rc = hold_calls(c, split, at_will, &err);
	/* Its calls are read, but not held: the response says so (api_report). */
	if (rc == SL_EUNSUPPORTED && at_will) {
		request_ignore(&c->ignored, "tools.strict");
		return true;
	}
	if (rc == SL_EUNSUPPORTED)
		return refuse_tools(x, "tool_choice", m->name, err.text);
	if (rc != 0)
		exchange_reply_no_memory(x);
	return rc == 0;
}

/* Of a model whose tokenizer is unknown the engine numbers tokens as it likes, unless it is asked for their ids: then
 * it knows those of the chosen ones. */
static bool has_ids(struct exchange *x, const struct request_common *c, const struct link_model *m)
{
	const char *field = c->token_ids ? "return_token_ids" : c->tokens_as_ids ? "return_tokens_as_token_ids" : NULL;
	bool rivals = c->tokens_as_ids && c->submit.n_top_logprobs > 0;
	if (m == NULL || m->tokenizer != 0 || field == NULL || ((m->does & PROTO_DOES_GIVE_IDS) != 0 && !rivals))
		return true;
	return exchange_refuse(x, 400, "unsupported_value", field,
			       "'%s' can't be used with the model '%s': its tokens' ids are not known here.", field,
			       m->name);
}

bool api_form(struct exchange *x, struct request_common *c, int model, struct answer_spec *spec)
{
	const struct link_model *m = model_of(x, model);
	int rc = 0;
	if (!has_ids(x, c, m))
		return false;
	if (m != NULL && spec->format->item != NULL) {
		json_t *tools = c->tools.n > 0 ? declared(&c->tools) : NULL;
		if (tools == NULL && c->tools.n > 0)
			rc = SL_ENOMEM;
		else
			spec->split =
			    answer_split_create(&m->parts, tools, !c->tools.parallel, c->tools.functions, &rc);
		if (spec->split != NULL && parts_format_desc((enum parts_format)m->parts.format)->numbered)
			spec->split->n_calls_before = count_calls(spec);
		json_decref(tools);
	}
	if (rc == SL_EINVAL || rc == SL_ELIMIT) {
		exchange_refuse(x, 400, "invalid_value", "tools",
				"'tools' has an unusable name or unusable parameters.");
		return false;
	}
	if (rc != 0) {
		exchange_reply_no_memory(x);
		return false;
	}
	if (m != NULL && spec->format->item != NULL && !use_tools(x, c, m, spec->split)) {
		answer_split_free(spec->split);
		spec->split = NULL;
		return false;
	}
	const struct sl_buf *text = &c->constraint.text;
	c->submit.constraint_kind = c->constraint.kind;
	c->submit.constraint = (struct proto_str){text->len > 0 ? (const char *)buf_data(text) : "", text->len};
	c->submit.thinking_tokens = c->reasoning.has_budget ? c->reasoning.budget + (c->reasoning.budget == 0) : 0;
	spec->constraint = c->constraint.field;
	return true;
}
