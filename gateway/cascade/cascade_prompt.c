/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads prompts in the form in which the engine gets them, so chats, completions and responses are alike. A chat is
 * JSON (base/proto/proto.h). It is continued with continue_final_message as the last assistant message. If the model's
 * template does not support that, the engine rejects it and the small model answers alone.
 */
#include "gateway/cascade/cascade_prompt.h"

#include <string.h>

#include "base/alloc.h"
#include "gateway/request/json_mem.h"

enum { MOST_MESSAGES = 4096 };

static enum casc_role role_of(const json_t *m)
{
	static const struct {
		const char *name;
		enum casc_role role;
	} roles[] = {
	    {"system", CASC_SYSTEM}, {"developer", CASC_SYSTEM}, {"assistant", CASC_ASSISTANT}, {"tool", CASC_TOOL}};
	const char *name = json_string_value(json_object_get(m, "role"));
	for (size_t i = 0; name != NULL && i < sizeof roles / sizeof *roles; i++)
		if (strcmp(name, roles[i].name) == 0)
			return roles[i].role;
	return CASC_USER;
}

/* Of a content in several blocks, the longest text. */
static const json_t *text_of(const json_t *m)
{
	const json_t *content = json_object_get(m, "content"), *found = NULL;
	if (json_is_string(content))
		return content;
	for (size_t i = 0; i < json_array_size(content); i++) {
		const json_t *text = json_object_get(json_array_get(content, i), "text");
		if (json_is_string(text) && (found == NULL || json_string_length(text) > json_string_length(found)))
			found = text;
	}
	return found;
}

static void score(const struct casc_scorer *scorer, const struct casc_ask *ask, struct casc_score *out,
		  struct casc_features *features)
{
	casc_score(scorer, ask, out);
	if (features != NULL)
		casc_features(ask, features);
}

void cascade_prompt_score(const struct casc_scorer *scorer, uint8_t kind, struct proto_str prompt,
			  uint32_t asked_tokens, struct casc_score *out, struct casc_features *features)
{
	struct casc_ask ask = {.max_tokens = asked_tokens};
	struct casc_message one = {CASC_USER, prompt.at, prompt.n};
	if (kind == PROTO_PROMPT_TEXT) {
		ask.messages = &one;
		ask.n_messages = 1;
	}
	json_t *root = kind == PROTO_PROMPT_CHAT ? json_mem_load(prompt.at, prompt.n, 0, NULL) : NULL;
	const json_t *messages = json_object_get(root, "messages"), *tools = json_object_get(root, "tools");
	size_t n = json_array_size(messages);
	n = n < MOST_MESSAGES ? n : MOST_MESSAGES;
	struct casc_message *all = n > 0 ? sl_zalloc_n(n, sizeof *all) : NULL;
	for (size_t i = 0; all != NULL && i < n; i++) {
		/* If there are more, the newest. */
		const json_t *m = json_array_get(messages, json_array_size(messages) - n + i), *text = text_of(m);
		all[i] = (struct casc_message){role_of(m), text != NULL ? json_string_value(text) : "",
					       text != NULL ? json_string_length(text) : 0};
	}
	if (all != NULL) {
		ask.messages = all;
		ask.n_messages = n;
		ask.n_tools = (uint32_t)json_array_size(tools);
	}
	score(scorer, &ask, out, features);
	sl_free(all);
	json_decref(root);
}

static int append(const char *bytes, size_t n, void *out) { return buf_append(out, bytes, n) == 0 ? 0 : -1; }

/* The prompt may already end in the beginning of an answer. */
static int add_text(json_t *root, const char *text, size_t n)
{
	json_t *messages = json_object_get(root, "messages");
	json_t *last = json_array_get(messages, json_array_size(messages) - 1);
	const json_t *old = json_object_get(last, "content");
	json_t *added;
	if (json_is_true(json_object_get(root, "continue_final_message"))) {
		if (!json_is_string(old))
			return SL_EUNSUPPORTED;
		added = json_pack("s%+%", json_string_value(old), json_string_length(old), text, n);
		return added != NULL && json_object_set_new(last, "content", added) == 0 ? 0 : SL_ENOMEM;
	}
	added = json_pack("{s:s, s:s%}", "role", "assistant", "content", text, n);
	if (added == NULL || json_array_append_new(messages, added) != 0 ||
	    json_object_set_new(root, "continue_final_message", json_true()) != 0)
		return SL_ENOMEM;
	json_object_del(root, "add_generation_prompt");
	return 0;
}

int cascade_prompt_continue(struct sl_buf *out, uint8_t kind, struct proto_str prompt, const char *text, size_t n)
{
	if (kind == PROTO_PROMPT_TOKENS)
		return SL_EUNSUPPORTED;
	if (kind == PROTO_PROMPT_TEXT) {
		int rc = buf_append(out, prompt.at, prompt.n);
		return rc == 0 ? buf_append(out, text, n) : rc;
	}
	json_t *root = json_mem_load(prompt.at, prompt.n, 0, NULL);
	int rc = root != NULL ? add_text(root, text, n) : SL_ENOMEM;
	if (rc == 0 && json_dump_callback(root, append, out, JSON_COMPACT) != 0)
		rc = SL_ENOMEM;
	json_decref(root);
	return rc;
}
