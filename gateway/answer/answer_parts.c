/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser is fed token by token. Text of one item that comes within one call becomes one event: it collects in
 * `pending` until another item begins or the tokens end.
 */
#include "gateway/answer/answer_parts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "gateway/answer/answer.h"

enum { MAX_ITEM = 4 << 20, MAX_ITEMS = 4096 };

/* ---- how ---- */

static int read_tools(struct answer_split *s)
{
	size_t n = json_array_size(s->declared);
	struct parts_tool *tools = sl_zalloc_n(n > 0 ? n : 1, sizeof *tools);
	int rc = tools != NULL ? 0 : SL_ENOMEM;
	char **schemas = sl_zalloc_n(n > 0 ? n : 1, sizeof *schemas);
	rc = schemas != NULL ? rc : SL_ENOMEM;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		const json_t *tool = json_array_get(s->declared, i), *schema = json_object_get(tool, "parameters");
		tools[i].name = json_string_value(json_object_get(tool, "name"));
		if (!json_is_object(schema))
			continue;
		schemas[i] = json_dumps(schema, JSON_COMPACT);
		rc = schemas[i] != NULL ? 0 : SL_ENOMEM;
		tools[i].schema = schemas[i];
		tools[i].n_schema = rc == 0 ? strlen(schemas[i]) : 0;
	}
	if (rc == 0)
		rc = parts_tools_create(tools, n, &s->tools);
	for (size_t i = 0; schemas != NULL && i < n; i++)
		free(schemas[i]);
	sl_free(schemas);
	sl_free(tools);
	return rc;
}

static void list_markers(struct answer_split *s)
{
	size_t n = parts_format_literals((enum parts_format)s->model.format, (enum parts_reasoning)s->model.reasoning,
					 s->literals, PARTS_MAX_LITERALS);
	for (size_t i = 0; i < n && i < s->model.n_markers; i++)
		if (s->model.markers[i] >= 0)
			s->markers[s->n_markers++] =
			    (struct parts_marker){.id = s->model.markers[i], .text = s->literals[i]};
}

struct answer_split *answer_split_create(const struct link_parts *model, json_t *declared, bool one_call,
					 bool functions, int *rc)
{
	*rc = 0;
	bool has_tools = json_array_size(declared) > 0 && model->format != PARTS_PLAIN;
	if (model->format >= PARTS_N_FORMATS || model->reasoning >= PARTS_N_REASONINGS ||
	    (!has_tools && model->reasoning == PARTS_REASONING_NONE && model->format != PARTS_HARMONY))
		return NULL;
	struct answer_split *s = sl_zalloc(sizeof *s);
	if (s == NULL) {
		*rc = SL_ENOMEM;
		return NULL;
	}
	s->model = *model;
	s->one_call = one_call;
	s->functions = functions;
	s->declared = has_tools ? json_incref(declared) : NULL;
	list_markers(s);
	if (has_tools && (*rc = read_tools(s)) != 0) {
		answer_split_free(s);
		return NULL;
	}
	return s;
}

void answer_split_free(struct answer_split *s)
{
	if (s == NULL)
		return;
	parts_tools_destroy(s->tools);
	json_decref(s->declared);
	sl_free(s);
}

json_t *answer_split_save(const struct answer_split *s)
{
	if (s == NULL)
		return json_null();
	json_t *markers = json_array();
	for (int i = 0; i < s->model.n_markers; i++)
		if (json_array_append_new(markers, json_integer(s->model.markers[i])) != 0) {
			json_decref(markers);
			return NULL;
		}
	return json_pack("{s:i, s:i, s:o, s:O?, s:b, s:b, s:i}", "format", s->model.format, "reasoning",
			 s->model.reasoning, "markers", markers, "tools", s->declared, "one_call", s->one_call,
			 "functions", s->functions, "calls_before", (int)s->n_calls_before);
}

struct answer_split *answer_split_restore(const json_t *saved)
{
	struct link_parts model = {0};
	const json_t *markers = json_object_get(saved, "markers");
	int rc;
	size_t n = json_array_size(markers);
	if (!json_is_object(saved) || n > PROTO_MAX_MARKERS)
		return NULL;
	model.format = (uint8_t)json_integer_value(json_object_get(saved, "format"));
	model.reasoning = (uint8_t)json_integer_value(json_object_get(saved, "reasoning"));
	model.n_markers = (uint8_t)n;
	for (size_t i = 0; i < n; i++)
		model.markers[i] = (int32_t)json_integer_value(json_array_get(markers, i));
	json_t *tools = json_object_get(saved, "tools");
	struct answer_split *s = answer_split_create(&model, json_is_array(tools) ? tools : NULL,
						     json_is_true(json_object_get(saved, "one_call")),
						     json_is_true(json_object_get(saved, "functions")), &rc);
	if (s != NULL)
		s->n_calls_before = (unsigned)json_integer_value(json_object_get(saved, "calls_before"));
	return s;
}

/* ---- items ---- */

static struct answer_item *last_item(struct answer_parts *p)
{
	return p->n_items > 0 ? &p->items[p->n_items - 1] : NULL;
}

static int tell(struct answer_parts *p, const struct answer_item *item, enum answer_item_event e, const char *text,
		size_t n)
{
	p->n_told += e == ANSWER_ITEM_TEXT;
	return p->out != NULL ? p->a->format->item(p->a, p->out, p->index, item, e, text, n) : 0;
}

/* What has collected becomes an event. */
static int flush(struct answer_parts *p)
{
	struct answer_item *item = last_item(p);
	if (item == NULL || p->pending.len == 0)
		return 0;
	int rc = tell(p, item, ANSWER_ITEM_TEXT, (const char *)buf_data(&p->pending), p->pending.len);
	if (rc == 0 && (p->out == NULL || p->a->out.keep_text))
		rc = buf_append(&item->text, buf_data(&p->pending), p->pending.len);
	buf_clear(&p->pending, 4096);
	return rc;
}

static int close_item(struct answer_parts *p, bool cut)
{
	struct answer_item *item = last_item(p);
	if (item == NULL || item->closed)
		return 0;
	int rc = flush(p);
	item->closed = true;
	item->cut = cut;
	return rc == 0 ? tell(p, item, ANSWER_ITEM_CLOSE, "", 0) : rc;
}

/* The same in every gateway. Mistral's templates take ids of nine letters and digits only; templates with numbered
 * calls write the id as the call. */
static void name_call(const struct answer_parts *p, struct answer_item *item)
{
	const struct parts_format_desc *d = parts_format_desc((enum parts_format)p->a->split->model.format);
	if (d->numbered) {
		snprintf(item->id, sizeof item->id, "%s%s:%u", d->prefix, item->name,
			 p->a->split->n_calls_before + (unsigned)item->call);
		return;
	}
	uint64_t seed = (uint64_t)p->index << 32 | (uint32_t)item->call;
	unsigned long long digest = XXH3_64bits_withSeed(p->a->id, strlen(p->a->id), seed);
	uint8_t format = p->a->split->model.format;
	if (format == PARTS_MISTRAL || format == PARTS_MISTRAL_ARGS)
		snprintf(item->id, sizeof item->id, "%09llx", digest >> 28);
	else
		snprintf(item->id, sizeof item->id, "call_%016llx", digest);
}

static int open_item(struct answer_parts *p, enum answer_item_kind kind, const char *name, size_t n)
{
	int rc = close_item(p, false);
	if (rc != 0)
		return rc;
	if (p->n_items == MAX_ITEMS)
		return SL_ELIMIT;
	if (p->n_items == p->n_room) {
		size_t room = p->n_room > 0 ? 2 * p->n_room : 4;
		struct answer_item *grown = sl_realloc_n(p->items, room, sizeof *grown);
		if (grown == NULL)
			return SL_ENOMEM;
		p->items = grown;
		p->n_room = room;
	}
	struct answer_item *item = &p->items[p->n_items];
	*item = (struct answer_item){.kind = kind, .number = (unsigned)p->n_items, .call = -1};
	buf_init(&item->text, MAX_ITEM);
	if (kind == ANSWER_CALL) {
		item->call = p->n_calls;
		item->name = sl_strndup(name, n);
		if (item->name == NULL)
			return SL_ENOMEM;
		name_call(p, item);
		p->n_calls++;
	}
	p->n_items++;
	return tell(p, item, ANSWER_ITEM_OPEN, "", 0);
}

static int add_text(struct answer_parts *p, enum answer_item_kind kind, const char *text, size_t n)
{
	struct answer_item *item = last_item(p);
	int rc = 0;
	if (item == NULL || item->kind != kind || item->closed)
		rc = open_item(p, kind, NULL, 0);
	return rc == 0 ? buf_append(&p->pending, text, n) : rc;
}

static int on_event(void *ctx, const struct parts_event *e)
{
	struct answer_parts *p = ctx;
	switch (e->kind) {
	case PARTS_CONTENT: return add_text(p, ANSWER_CONTENT, e->text, e->n);
	case PARTS_REASONING: return add_text(p, ANSWER_REASONING, e->text, e->n);
	case PARTS_CALL_BEGIN: return open_item(p, ANSWER_CALL, e->text, e->n);
	case PARTS_CALL_ARGUMENTS: return buf_append(&p->pending, e->text, e->n);
	case PARTS_CALL_END: return close_item(p, e->cut);
	}
	return 0;
}

/* ---- a choice ---- */

static int begin(struct answer *a, const struct answer_run *run, unsigned index)
{
	const struct answer_split *s = a->split;
	struct answer_parts *p = sl_zalloc(sizeof *p);
	if (p == NULL)
		return SL_ENOMEM;
	p->a = a;
	p->index = index;
	buf_init(&p->pending, MAX_ITEM);
	a->choices[index].parts = p;
	const struct proto_queued *q = run->gen != NULL ? gen_queued(run->gen) : NULL;
	const struct parts_init init = {.format = (enum parts_format)s->model.format,
					.reasoning = (enum parts_reasoning)s->model.reasoning,
					.starts_in_reasoning = q != NULL && q->reasoning,
					.tools = s->tools,
					.one_call = s->one_call,
					.markers = s->markers,
					.n_markers = s->n_markers,
					.on_event = on_event,
					.ctx = p};
	int rc = parts_create(&init, &p->parser);
	if (rc == 0 && run->gen != NULL) {
		prefetch_add(gen_prefetch(run->gen), p, sizeof *p);
		prefetch_add(gen_prefetch(run->gen), p->parser, PARTS_TEXT_BYTES);
	}
	return rc;
}

static struct answer_parts *parts_of(struct answer *a, const struct answer_run *run, unsigned index, int *rc)
{
	struct answer_choice *c = &a->choices[index];
	*rc = c->parts != NULL ? 0 : begin(a, run, index);
	return c->parts;
}

int answer_parts_feed(struct answer *a, struct answer_run *run, unsigned index, uint64_t first, uint32_t n,
		      const char *text, struct sl_buf *out)
{
	int rc;
	struct answer_parts *p = parts_of(a, run, index, &rc);
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		struct gen_token t;
		gen_token_at(run->gen, first + i, &t);
		p->out = out;
		rc = parts_feed(p->parser, (int32_t)t.id, text, t.n_bytes);
		rc = rc == PARTS_STOP ? 0 : rc;
		p->n_reasoning += parts_reasons(p->parser);
		text += t.n_bytes;
	}
	return rc == 0 ? flush(p) : rc;
}

int answer_parts_finish(struct answer *a, struct answer_run *run, unsigned index, struct sl_buf *out)
{
	int rc;
	struct answer_parts *p = parts_of(a, run, index, &rc);
	if (rc != 0)
		return rc;
	p->out = out;
	rc = parts_finish(p->parser);
	/* An answer without any text is a message without text. */
	if (rc == 0 && p->n_items == 0)
		rc = open_item(p, ANSWER_CONTENT, NULL, 0);
	return rc == 0 ? close_item(p, false) : rc;
}

void answer_parts_free(struct answer_parts *p)
{
	if (p == NULL)
		return;
	for (size_t i = 0; i < p->n_items; i++) {
		sl_free(p->items[i].name);
		buf_dispose(&p->items[i].text);
	}
	sl_free(p->items);
	buf_dispose(&p->pending);
	parts_destroy(p->parser);
	sl_free(p);
}

int answer_parts_calls(const struct answer_parts *p) { return p != NULL ? p->n_calls : 0; }

int answer_parts_text(const struct answer_parts *p, enum answer_item_kind kind, struct sl_buf *out)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && p != NULL && i < p->n_items; i++)
		if (p->items[i].kind == kind && p->items[i].text.len > 0)
			rc = buf_append(out, buf_data(&p->items[i].text), p->items[i].text.len);
	return rc;
}
