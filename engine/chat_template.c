/* SPDX-License-Identifier: Apache-2.0
 *
 * The door to the Jinja interpreter (engine/jinja.h): compiles once, then renders conversations,
 * each run with an arena of its own. A compiled template is never written again, so threads share
 * it without locks; the request's JSON is only read.
 */
#include "engine/chat_template.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/jinja.h"

struct chat_template {
	struct jarena arena; /* the tree and its texts */
	struct jnode *body;
};

int chat_template_compile(const char *source, size_t n, struct chat_template **out,
			  struct sl_err *err)
{
	struct chat_template *t = sl_zalloc(sizeof(*t));
	if (t == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the chat template");
	jarena_init(&t->arena, JINJA_MAX_ARENA);
	struct jtok *toks = NULL;
	int rc = jinja_lex(&t->arena, source, n, &toks, err);
	if (rc == 0)
		rc = jinja_parse(&t->arena, toks, &t->body, err);
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

static int bind_vars(struct jrun *r, const struct chat_vars *vars)
{
	const struct {
		const char *name, *text;
	} texts[] = {{"bos_token", vars->bos_token}, {"eos_token", vars->eos_token}};
	struct jvalue v = jvalue_from_json(vars->messages);
	int rc = jinja_bind(r, (struct proto_str){"messages", 8}, &v);
	v = jvalue_bool(vars->add_generation_prompt);
	if (rc == 0)
		rc = jinja_bind(r, (struct proto_str){"add_generation_prompt", 21}, &v);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && rc == 0; i++) {
		if (texts[i].text == NULL)
			continue;
		v = jvalue_literal((struct proto_str){texts[i].text, strlen(texts[i].text)});
		rc = jinja_bind(r, (struct proto_str){texts[i].name, strlen(texts[i].name)}, &v);
	}
	return rc;
}

int chat_template_render(const struct chat_template *t, const struct chat_vars *vars,
			 struct sl_buf *text, struct sl_buf *trust, struct sl_err *err)
{
	struct sl_err own = {0};
	struct jframe frame = {0};
	struct jrun r = {.err = err ? err : &own, .line = 1, .frame = &frame, .text = text,
			 .trust = trust};
	size_t text_before = text->len, trust_before = trust->len;
	r.max_text = text_before + JINJA_MAX_OUTPUT;
	jarena_init(&r.arena, JINJA_MAX_ARENA);
	int rc = json_is_array(vars->messages)
		     ? bind_vars(&r, vars)
		     : sl_errf(r.err, SL_EINVAL, "messages are not a list");
	if (rc == 0)
		rc = jinja_run(&r, t->body);
	jarena_dispose(&r.arena);
	if (rc != 0) {
		text->len = text_before;
		trust->len = trust_before;
	}
	/* To the caller a construct met only now is a request that can't be rendered. */
	if (rc == SL_EUNSUPPORTED)
		rc = r.err->code = SL_EINVAL;
	return rc;
}
