/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface to the Jinja interpreter (engine/jinja/jinja.h): compiles a template once, then renders conversations,
 * each run with an arena of its own. A compiled template is immutable, so threads share it without locks; the request's
 * JSON is only read.
 */
#include "engine/chat/chat_template.h"

#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/jinja/jinja.h"

struct chat_template {
	struct jarena arena; /* the tree and its texts */
	struct jnode *body;
	bool takes_parts; /* it loops over the parts of a content; otherwise these are joined by newlines first */
	struct parts_detected parts;
};

int chat_template_compile(const char *source, size_t n, struct chat_template **out, struct sl_err *err)
{
	struct chat_template *t = sl_zalloc(sizeof(*t));
	if (t == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the chat template");
	jarena_init(&t->arena, JINJA_MAX_ARENA);
	int rc = jinja_compile(&t->arena, source, n, &t->body, &t->takes_parts, err);
	if (rc != 0) {
		chat_template_free(t);
		return rc;
	}
	t->parts = parts_format_detect(source, n);
	*out = t;
	return 0;
}

void chat_template_free(struct chat_template *t)
{
	if (t == NULL)
		return;
	jarena_dispose(&t->arena);
	sl_free(t);
}

struct parts_detected chat_template_parts(const struct chat_template *t) { return t->parts; }

/* ---- variables ---- */

static void bind_json(struct jrun *r, const char *name, const json_t *j)
{
	jinja_bind(r, jname(name), j != NULL ? jvalue_from_json(r, j) : jvalue_none());
}

static void bind_text(struct jrun *r, const char *name, const char *text)
{
	if (text == NULL)
		return;
	if (!utf8_valid(text, strlen(text)))
		jrun_fail(r, SL_EINVAL, "%s is not UTF-8", name);
	jinja_bind(r, jname(name), jvalue_literal(jname(text)));
}

/* The texts of a list of parts, joined; any other content is kept. */
static void join_parts(struct jrun *r, struct jvalue *content)
{
	const struct jvalue key = jvalue_literal(jname("text"));
	if (content->type != JV_LIST)
		return;
	struct jlist *texts = jlist_new(r, content->list->n);
	for (size_t i = 0; i < content->list->n; i++) {
		const struct jvalue *part = &content->list->items[i];
		const struct jpair *text = part->type == JV_DICT ? jdict_find(part->dict, &key) : NULL;
		if (text == NULL || text->value.type != JV_STRING)
			return;
		jlist_put(texts, text->value);
	}
	*content = jvalue_string_of(jstr_join(r, (struct jstr){.at = "\n", .n = 1}, texts, false), false);
}

static void bind_messages(struct jrun *r, const json_t *messages, bool takes_parts)
{
	const struct jvalue key = jvalue_literal(jname("content"));
	struct jvalue v = jvalue_from_json(r, messages);
	for (size_t i = 0; !takes_parts && i < v.list->n; i++) {
		const struct jvalue *m = &v.list->items[i];
		struct jpair *content = m->type == JV_DICT ? jdict_find(m->dict, &key) : NULL;
		if (content != NULL)
			join_parts(r, &content->value);
	}
	jinja_bind(r, jname("messages"), v);
}

/* Later bindings win: no further variable hides one of the interpreter's. */
static void bind_vars(struct jrun *r, const struct chat_vars *vars, bool takes_parts)
{
	json_t *more = (json_t *)vars->more; /* the iterator only reads */
	for (void *i = json_object_iter(more); i != NULL; i = json_object_iter_next(more, i))
		bind_json(r, json_object_iter_key(i), json_object_iter_value(i));
	bind_messages(r, vars->messages, takes_parts);
	bind_json(r, "tools", vars->tools);
	bind_json(r, "documents", vars->documents);
	jinja_bind(r, jname("add_generation_prompt"), jvalue_bool(vars->add_generation_prompt));
	bind_text(r, "bos_token", vars->bos_token);
	bind_text(r, "eos_token", vars->eos_token);
}

/* ---- the end of the last message ---- */

/* The last message's text, or the last of its parts'. */
static const json_t *last_text(const json_t *messages)
{
	const json_t *content = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
	if (json_is_array(content))
		content = json_object_get(json_array_get(content, json_array_size(content) - 1), "text");
	return json_is_string(content) ? content : NULL;
}

static const char *find_last(const char *at, size_t n, struct jstr what)
{
	const char *hit = NULL, *next = at;
	while ((next = memmem(next, (size_t)(at + n - next), what.at, what.n)) != NULL)
		hit = next++;
	return hit;
}

/* Templates may trim content; blanks at its end stay if the template kept them. */
static void cut_at_last(struct jrun *r, const struct chat_vars *vars, size_t begin, size_t trust_begin)
{
	const json_t *j = last_text(vars->messages);
	if (j == NULL || vars->add_generation_prompt)
		jinja_fail(&r->escape, SL_EINVAL,
			   "To continue the last message it must have text, and no prompt for "
			   "another may be added.");
	struct jstr text = {.at = json_string_value(j), .n = json_string_length(j)};
	struct jstr core = jstr_strip(text, true, true, NULL), tail = jstr_strip(text, true, false, NULL);
	size_t n = r->text->len - begin;
	const char *from = n > 0 ? (const char *)buf_data(r->text) + begin : NULL;
	const char *hit = n > 0 && core.n > 0 ? find_last(from, n, core) : NULL;
	if (hit == NULL)
		jinja_fail(&r->escape, SL_EINVAL,
			   "The last message can't be continued: its text is not in what the "
			   "model reads.");
	size_t left = (size_t)(from + n - hit);
	bool kept = left >= tail.n && memcmp(hit, tail.at, tail.n) == 0;
	n = (size_t)(hit - from) + (kept ? tail.n : core.n);
	buf_cut(r->text, begin + n);
	buf_cut(r->trust, trust_begin + n);
}

struct rendering {
	struct jrun run;
	const struct chat_template *template;
	const struct chat_vars *vars;
	size_t text_before, trust_before;
};

static void render(void *arg)
{
	struct rendering *d = arg;
	struct jrun *r = &d->run;
	if (!json_is_array(d->vars->messages))
		jinja_fail(&r->escape, SL_EINVAL, "messages are not a list");
	bind_vars(r, d->vars, d->template->takes_parts);
	jinja_run(r, d->template->body);
	if (d->vars->continue_final_message)
		cut_at_last(r, d->vars, d->text_before, d->trust_before);
}

int chat_template_render(const struct chat_template *t, const struct chat_vars *vars, struct sl_buf *text,
			 struct sl_buf *trust, struct sl_err *err)
{
	struct jframe frame = {0};
	struct rendering d = {.run = {.escape.err = err,
				      .place = {1, 1},
				      .frame = &frame,
				      .text = text,
				      .trust = trust,
				      .max_text = text->len + JINJA_MAX_OUTPUT,
				      .now_s = vars->now_s},
			      .template = t,
			      .vars = vars,
			      .text_before = text->len,
			      .trust_before = trust->len};
	jarena_init(&d.run.arena, JINJA_MAX_ARENA);
	int rc = jinja_catch(&d.run.escape, render, &d);
	jarena_dispose(&d.run.arena);
	if (rc != 0) {
		buf_cut(text, d.text_before);
		buf_cut(trust, d.trust_before);
	}
	/* To the caller an unsupported construct met only now is a request that can't be rendered. */
	if (rc == SL_EUNSUPPORTED) {
		rc = SL_EINVAL;
		if (err != NULL)
			err->code = rc;
	}
	return rc;
}
