/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces for a grammar of forced calls, from the format's description.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "gateway/parts/parts.h"

/* The text before the arguments, with the name in place of %s. */
static char *prefix_of(const char *call, const char *name)
{
	const char *at = strstr(call, "%s");
	bool json = at > call && at[-1] == '"';
	size_t before = (size_t)(at - call), n = strlen(name), after = strlen(at + 2);
	char *s = sl_alloc(before + JSON_ESCAPED_MAX(n) + after + 1), *to = s;
	if (s == NULL)
		return NULL;
	memcpy(to, call, before);
	to += before;
	if (json) {
		to = json_escape(to, name, n);
	} else {
		memcpy(to, name, n);
		to += n;
	}
	memcpy(to, at + 2, after + 1);
	return s;
}

static int add_call(struct parts_grammar *g, const char *call, const struct parts_tool *tool)
{
	char *prefix = prefix_of(call, tool->name);
	if (prefix == NULL)
		return SL_ENOMEM;
	g->calls[g->n_calls++] = (struct parts_grammar_call){
	    .name = tool->name, .prefix = prefix, .schema = tool->schema, .n_schema = tool->n_schema};
	return 0;
}

static void add_trigger(struct parts_grammar *g, const char *literal)
{
	for (size_t i = 0; i < g->n_triggers; i++)
		if (strcmp(g->triggers[i], literal) == 0)
			return;
	g->triggers[g->n_triggers++] = literal;
}

/* What begins the forms of calls, if that is a literal for each, and the calls of the grammar begin with one. */
static void find_triggers(struct parts_grammar *g, const struct parts_format_desc *d)
{
	const char *text = g->begin[0] != '\0' ? g->begin : d->render.call;
	bool begins = false;
	for (int i = 0; i < d->n_forms; i++) {
		const struct parts_form *form = &d->forms[i];
		const char *literal = form->open != NULL ? form->open : form->call;
		if (form->bare || form->careful || literal == NULL) {
			g->n_triggers = 0;
			return;
		}
		add_trigger(g, literal);
		begins = begins || strncmp(text, literal, strlen(literal)) == 0;
	}
	g->n_triggers = begins ? g->n_triggers : 0;
}

int parts_grammar(enum parts_format f, const struct parts_tool *tools, size_t n, const char *named, bool several,
		  struct parts_grammar *out, struct sl_err *err)
{
	const struct parts_format_desc *d = parts_format_desc(f);
	const struct parts_render *r = &d->render;
	int rc = 0;
	*out = (struct parts_grammar){0};
	if (r->call == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "calls in the format \"%s\" cannot be forced", d->name);
	several = several && r->separator != NULL;
	bool around = several || !r->list_only;
	*out = (struct parts_grammar){.begin = around ? r->begin : "",
				      .suffix = r->suffix,
				      .separator = r->separator != NULL ? r->separator : "",
				      .end = around ? r->end : "",
				      .member = r->member,
				      .member_end = r->member_end,
				      .number = r->number,
				      .channels = d->forms[0].syntax == PARTS_SYNTAX_CHANNEL,
				      .several = several};
	if (!out->channels)
		find_triggers(out, d);
	out->calls = sl_zalloc_n(n > 0 ? n : 1, sizeof *out->calls);
	if (out->calls == NULL)
		rc = SL_ENOMEM;
	for (size_t i = 0; rc == 0 && i < n; i++)
		if (named == NULL || strcmp(named, tools[i].name) == 0)
			rc = add_call(out, r->call, &tools[i]);
	if (rc == 0 && out->n_calls == 0)
		rc = sl_errf(err, SL_ENOTFOUND, "no tool \"%s\"", named != NULL ? named : "");
	if (rc != 0)
		parts_grammar_dispose(out);
	return rc;
}

void parts_grammar_dispose(struct parts_grammar *g)
{
	for (size_t i = 0; i < g->n_calls; i++)
		sl_free(g->calls[i].prefix);
	sl_free(g->calls);
	*g = (struct parts_grammar){0};
}
