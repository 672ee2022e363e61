/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/prompt: the input is the JSON of a chat. What is taken keeps its promises (roles, strings,
 * bounds), and a template that uses all of it renders it with nothing of it trusted, or refuses it.
 */
#include <string.h>

#include "engine/chat/chat_template.h"
#include "engine/core/prompt.h"
#include "tests/fuzz/fuzz.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
	    "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
	    "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"x\",\"name\":\"n\"}],"
	    "\"add_generation_prompt\":false,\"chat_template_kwargs\":{\"enable_thinking\":true,\"l\":[1]}}",
	    "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"hm\","
	    "\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\","
	    "\"arguments\":\"{\\\"a\\\": [1, 2.5, null]}\"}}]},{\"role\":\"tool\",\"content\":\"y\","
	    "\"tool_call_id\":\"c\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
	    "\"parameters\":{\"type\":\"object\"}}}],\"documents\":[{\"title\":\"t\"}]}",
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\" y \"}],"
	    "\"continue_final_message\":true}",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

static const char source[] =
    "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{% for d in documents or [] %}{{ d.title | default('') }}{% endfor %}"
    "{% for m in messages %}{{ m.role }}{{ m.content | default('', true) | trim }}"
    "{{ m.reasoning_content | default('', true) }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}"
    "{% endfor %}{{ enable_thinking }}";

static void render(const struct prompt_chat *chat)
{
	struct chat_template *t = NULL;
	struct sl_err err = {0};
	struct sl_buf text, trust;
	FUZZ_REQUIRE(chat_template_compile(source, sizeof(source) - 1, &t, &err) == 0);
	struct chat_vars vars = {.messages = chat->messages,
				 .tools = chat->tools,
				 .documents = chat->documents,
				 .more = chat->variables,
				 .add_generation_prompt = chat->add_generation_prompt,
				 .continue_final_message = chat->continue_final_message};
	buf_init(&text, 16 << 20);
	buf_init(&trust, 16 << 20);
	int rc = chat_template_render(t, &vars, &text, &trust, &err);
	FUZZ_REQUIRE(text.len == trust.len && (rc == 0 || (text.len == 0 && err.text[0] != '\0')));
	for (size_t i = 0; i < text.len; i++)
		FUZZ_REQUIRE(buf_data(&trust)[i] == 0);
	buf_dispose(&text);
	buf_dispose(&trust);
	chat_template_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct prompt_chat chat;
	struct sl_err err = {0};
	int rc = prompt_parse_chat((const char *)data, n, &chat, &err);
	FUZZ_REQUIRE((rc == 0) == (chat.root != NULL));
	FUZZ_REQUIRE(rc == 0 || (rc == SL_EINVAL && err.text[0] != '\0'));
	if (rc != 0)
		return 0;
	for (size_t i = 0; i < json_array_size(chat.messages); i++)
		FUZZ_REQUIRE(json_is_string(json_object_get(json_array_get(chat.messages, i), "role")));
	FUZZ_REQUIRE(!chat.add_generation_prompt || !chat.continue_final_message);
	render(&chat);
	prompt_chat_dispose(&chat);
	return 0;
}
