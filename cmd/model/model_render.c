/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model render`: applies a chat template from a GGUF file, a .jinja file, a tokenizer_config.json or a model's
 * folder (no weights needed). If the model has several templates, chats with tools use "tool_use", as in the
 * transformers library.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "cmd/config/cmd.h"
#include "cmd/model/model.h"
#include "engine/chat/chat_template.h"
#include "engine/file/gguf.h"
#include "engine/core/prompt.h"
#include "engine/token/tokenizer.h"

struct source {
	char *text; /* owned */
	size_t n;
	char *bos, *eos; /* owned; NULL: none */
};

static void source_dispose(struct source *s)
{
	sl_free(s->text);
	sl_free(s->bos);
	sl_free(s->eos);
}

static int keep(char **out, const char *at, size_t n, struct sl_err *err)
{
	sl_free(*out);
	*out = sl_strndup(at, n);
	return *out != NULL ? 0 : sl_errf(err, SL_ENOMEM, "out of memory");
}

/* ---- tokenizer_config.json ---- */

/* A token is a string, or an object with a string "content". */
static int keep_token(char **out, const json_t *config, const char *name, struct sl_err *err)
{
	const json_t *j = json_object_get(config, name);
	if (json_is_object(j))
		j = json_object_get(j, "content");
	return json_is_string(j) ? keep(out, json_string_value(j), json_string_length(j), err) : 0;
}

/* The template called name in a list of {"name", "template"}; NULL: none. */
static const json_t *named_template(const json_t *list, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *item = json_array_get(list, i);
		const char *is = json_string_value(json_object_get(item, "name"));
		if (is != NULL && strcmp(is, name) == 0)
			return json_object_get(item, "template");
	}
	return NULL;
}

static int from_config(const char *path, bool tools, struct source *s, struct sl_err *err)
{
	struct sl_buf in;
	json_error_t je;
	json_t *config = NULL;
	int rc = model_read(path, MODEL_MAX_INPUT, &in, err);
	if (rc == 0) {
		config = json_loadb((const char *)buf_data(&in), in.len, 0, &je);
		if (!json_is_object(config))
			rc = sl_errf(err, SL_EINVAL, "%s: not a JSON object", path);
	}
	buf_dispose(&in);
	const json_t *template = json_object_get(config, "chat_template");
	if (json_is_array(template)) {
		const json_t *list = template;
		template = tools ? named_template(list, "tool_use") : NULL;
		if (template == NULL)
			template = named_template(list, "default");
	}
	/* chat_template.jinja takes precedence. */
	if (rc == 0 && s->text == NULL) {
		if (!json_is_string(template))
			rc = sl_errf(err, SL_ENOTFOUND, "%s: there is no chat template", path);
		else
			rc = keep(&s->text, json_string_value(template), json_string_length(template), err);
		s->n = json_string_length(template);
	}
	if (rc == 0)
		rc = keep_token(&s->bos, config, "bos_token", err);
	if (rc == 0)
		rc = keep_token(&s->eos, config, "eos_token", err);
	json_decref(config);
	return rc;
}

static int from_text(const char *path, struct source *s, struct sl_err *err)
{
	struct sl_buf in;
	int rc = model_read(path, MODEL_MAX_INPUT, &in, err);
	if (rc == 0)
		rc = keep(&s->text, in.len > 0 ? (const char *)buf_data(&in) : "", in.len, err);
	s->n = in.len;
	buf_dispose(&in);
	return rc;
}

static int from_folder(const char *path, bool tools, struct source *s, struct sl_err *err)
{
	char file[4096];
	if (snprintf(file, sizeof file, "%s/chat_template.jinja", path) >= (int)sizeof file - 16)
		return sl_errf(err, SL_EINVAL, "%s: the path is too long", path);
	int rc = from_text(file, s, err);
	if (rc != 0 && rc != SL_ENOTFOUND)
		return rc;
	bool has_template = rc == 0;
	snprintf(file, sizeof file, "%s/tokenizer_config.json", path);
	rc = from_config(file, tools, s, err);
	return rc == SL_ENOTFOUND && has_template ? 0 : rc;
}

/* ---- GGUF ---- */

static int keep_id(char **out, const struct tokenizer *t, int32_t id, struct sl_err *err)
{
	if (id < 0)
		return 0;
	struct proto_str s = tokenizer_bytes(t, id);
	return keep(out, s.at, s.n, err);
}

static int from_gguf(const char *path, bool tools, struct source *s, struct sl_err *err)
{
	struct gguf *g;
	struct tokenizer *t = NULL;
	struct proto_str text;
	int rc = gguf_open(path, &g, err);
	if (rc != 0)
		return rc;
	rc = tools ? gguf_get_str(g, "tokenizer.chat_template.tool_use", &text, err) : SL_ENOTFOUND;
	if (rc == SL_ENOTFOUND)
		rc = gguf_get_str(g, "tokenizer.chat_template", &text, err);
	if (rc == SL_ENOTFOUND)
		sl_errf(err, rc, "%s: there is no chat template", path);
	if (rc == 0)
		rc = keep(&s->text, text.at, text.n, err);
	s->n = rc == 0 ? text.n : 0;
	if (rc == 0)
		rc = tokenizer_create(g, &t, err);
	if (rc == 0)
		rc = keep_id(&s->bos, t, tokenizer_bos(t), err);
	if (rc == 0)
		rc = keep_id(&s->eos, t, tokenizer_eos(t), err);
	if (t != NULL)
		tokenizer_destroy(t);
	gguf_close(g);
	return rc;
}

static int find_template(const char *path, bool tools, struct source *s, struct sl_err *err)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return from_folder(path, tools, s, err);
	if (model_ends_with(path, ".json"))
		return from_config(path, tools, s, err);
	return model_ends_with(path, ".jinja") ? from_text(path, s, err) : from_gguf(path, tools, s, err);
}

/* ---- the chat ---- */

static int render(const char *path, const struct prompt_chat *chat, bool prompt, struct sl_err *err)
{
	struct source s = {0};
	struct chat_template *template = NULL;
	struct sl_buf text, trust;
	buf_init(&text, MODEL_MAX_INPUT);
	buf_init(&trust, MODEL_MAX_INPUT);
	int rc = find_template(path, chat->tools != NULL, &s, err);
	if (rc == 0)
		rc = chat_template_compile(s.text, s.n, &template, err);
	if (rc == 0) {
		struct chat_vars vars = {.messages = chat->messages,
					 .tools = chat->tools,
					 .documents = chat->documents,
					 .more = chat->variables,
					 .bos_token = s.bos,
					 .eos_token = s.eos,
					 .add_generation_prompt = prompt && chat->add_generation_prompt,
					 .continue_final_message = chat->continue_final_message};
		rc = chat_template_render(template, &vars, &text, &trust, err);
	}
	if (rc == 0 && text.len > 0)
		fwrite(buf_data(&text), 1, text.len, stdout);
	buf_dispose(&text);
	buf_dispose(&trust);
	chat_template_free(template);
	source_dispose(&s);
	return rc;
}

int model_render(int argc, char **argv)
{
	struct sl_err err = {0};
	struct sl_buf in;
	struct prompt_chat chat;
	const char *file = NULL;
	bool no_prompt = false;
	const struct model_option option = {"--no-generation-prompt", OPTION_FLAG, &no_prompt, 0, 0, NULL};
	int rc = model_options(&option, 1, argc, argv, 3, &file, 1);
	if (rc != 0)
		return rc;
	rc = model_read(file, MODEL_MAX_INPUT, &in, &err);
	if (rc == 0)
		rc = prompt_parse_chat((const char *)buf_data(&in), in.len, &chat, &err);
	buf_dispose(&in);
	if (rc == 0) {
		rc = render(argv[2], &chat, !no_prompt, &err);
		prompt_chat_dispose(&chat);
	}
	return rc == 0 ? model_finish_output() : model_complain(1, "%s", err.text);
}
