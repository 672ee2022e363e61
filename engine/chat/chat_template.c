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
	bool takes_parts;
};

int chat_template_compile(const char *source, size_t n, struct chat_template **out, struct sl_err *err)
{
	struct chat_template *t = sl_zalloc(sizeof(*t));
	if (t == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the chat template");
	jarena_init(&t->arena, JINJA_MAX_ARENA);
	struct jtok *toks = NULL;
	int rc = jinja_lex(&t->arena, source, n, &toks, err);
	if (rc == 0)
		rc = jinja_parse(&t->arena, toks, &t->body, &t->takes_parts, err);
	if (rc != 0) {
		chat_template_free(t);
		return rc;
	}
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

bool chat_template_takes_parts(const struct chat_template *t) { return t->takes_parts; }

/* ---- variables ---- */

static int bind(struct jrun *r, const char *name, const struct jvalue *v)
{
	return jinja_bind(r, (struct proto_str){name, strlen(name)}, v);
}

static int bind_json(struct jrun *r, const char *name, const json_t *j)
{
	struct jvalue v = jvalue_none();
	int rc = j != NULL ? jvalue_from_json(r, j, &v) : 0;
	return rc == 0 ? bind(r, name, &v) : rc;
}

static int bind_text(struct jrun *r, const char *name, const char *text)
{
	if (text == NULL)
		return 0;
	if (!utf8_valid(text, strlen(text)))
		return jrun_fail(r, SL_EINVAL, "%s is not UTF-8", name);
	struct jvalue v = jvalue_literal((struct proto_str){text, strlen(text)});
	return bind(r, name, &v);
}

/* The texts of a list of parts, joined; anything else stays as it is. */
static int join_parts(struct jrun *r, struct jvalue *content)
{
	static const struct proto_str word = {"text", 4};
	const struct jvalue key = jvalue_literal(word);
	if (content->type != JV_LIST)
		return 0;
	struct jlist *texts = jlist_new(r, content->list->n);
	if (texts == NULL)
		return r->err->code;
	for (size_t i = 0; i < content->list->n; i++) {
		const struct jvalue *part = &content->list->items[i];
		const struct jpair *text = part->type == JV_DICT ? jdict_find(part->dict, &key) : NULL;
		if (text == NULL || text->value.type != JV_STRING)
			return 0;
		texts->items[texts->n++] = text->value;
	}
	content->type = JV_STRING;
	return jstr_join(r, (struct jstr){.at = "\n", .n = 1}, texts, false, &content->s);
}

static int bind_messages(struct jrun *r, const json_t *messages, bool takes_parts)
{
	static const struct proto_str word = {"content", 7};
	const struct jvalue key = jvalue_literal(word);
	struct jvalue v;
	int rc = jvalue_from_json(r, messages, &v);
	for (size_t i = 0; rc == 0 && !takes_parts && i < v.list->n; i++) {
		const struct jvalue *m = &v.list->items[i];
		struct jpair *content = NULL;
		if (m->type == JV_DICT)
			content = (struct jpair *)jdict_find(m->dict, &key); /* the run's own */
		if (content != NULL)
			rc = join_parts(r, &content->value);
	}
	return rc == 0 ? bind(r, "messages", &v) : rc;
}

static int bind_more(struct jrun *r, const json_t *more)
{
	json_t *object = (json_t *)more; /* the iterator only reads */
	int rc = 0;
	for (void *i = json_object_iter(object); i != NULL && rc == 0; i = json_object_iter_next(object, i))
		rc = bind_json(r, json_object_iter_key(i), json_object_iter_value(i));
	return rc;
}

/* What stands later wins: no further variable hides one of the interpreter's. */
static int bind_vars(struct jrun *r, const struct chat_vars *vars, bool takes_parts)
{
	struct jvalue prompt = jvalue_bool(vars->add_generation_prompt);
	int rc = bind_more(r, vars->more);
	if (rc == 0)
		rc = bind_messages(r, vars->messages, takes_parts);
	if (rc == 0)
		rc = bind_json(r, "tools", vars->tools);
	if (rc == 0)
		rc = bind_json(r, "documents", vars->documents);
	if (rc == 0)
		rc = bind(r, "add_generation_prompt", &prompt);
	if (rc == 0)
		rc = bind_text(r, "bos_token", vars->bos_token);
	return rc == 0 ? bind_text(r, "eos_token", vars->eos_token) : rc;
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

/* Templates trim what they are given; blanks at the content's end stay if the template kept them. */
static int cut_at_last(struct jrun *r, const struct chat_vars *vars, size_t begin, size_t trust_begin)
{
	const json_t *j = last_text(vars->messages);
	if (j == NULL || vars->add_generation_prompt)
		return sl_errf(r->err, SL_EINVAL,
			       "To continue the last message it must have text, and no prompt for "
			       "another may be added.");
	struct jstr text = {.at = json_string_value(j), .n = json_string_length(j)};
	struct jstr core = jstr_strip(text, true, true, NULL), tail = jstr_strip(text, true, false, NULL);
	size_t n = r->text->len - begin;
	const char *from = n > 0 ? (const char *)buf_data(r->text) + begin : NULL;
	const char *hit = n > 0 && core.n > 0 ? find_last(from, n, core) : NULL;
	if (hit == NULL)
		return sl_errf(r->err, SL_EINVAL,
			       "The last message can't be continued: its text is not in what the "
			       "model reads.");
	size_t left = (size_t)(from + n - hit);
	bool kept = left >= tail.n && memcmp(hit, tail.at, tail.n) == 0;
	n = (size_t)(hit - from) + (kept ? tail.n : core.n);
	buf_cut(r->text, begin + n);
	buf_cut(r->trust, trust_begin + n);
	return 0;
}

int chat_template_render(const struct chat_template *t, const struct chat_vars *vars, struct sl_buf *text,
			 struct sl_buf *trust, struct sl_err *err)
{
	struct sl_err own = {0};
	struct jframe frame = {0};
	struct jrun r = {.err = err ? err : &own,
			 .place = {1, 1},
			 .frame = &frame,
			 .text = text,
			 .trust = trust,
			 .now_s = vars->now_s};
	size_t text_before = text->len, trust_before = trust->len;
	r.max_text = text_before + JINJA_MAX_OUTPUT;
	jarena_init(&r.arena, JINJA_MAX_ARENA);
	int rc = json_is_array(vars->messages) ? bind_vars(&r, vars, t->takes_parts)
					       : sl_errf(r.err, SL_EINVAL, "messages are not a list");
	if (rc == 0)
		rc = jinja_run(&r, t->body);
	if (rc == 0 && vars->continue_final_message)
		rc = cut_at_last(&r, vars, text_before, trust_before);
	jarena_dispose(&r.arena);
	if (rc != 0) {
		buf_cut(text, text_before);
		buf_cut(trust, trust_before);
	}
	/* To the caller a construct met only now is a request that can't be rendered. */
	if (rc == SL_EUNSUPPORTED)
		rc = r.err->code = SL_EINVAL;
	return rc;
}
