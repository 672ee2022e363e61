/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenAI's fields, then what other servers' clients send (sampling beyond OpenAI's as vLLM and
 * llama.cpp name it). A field that would change the answer and that nothing here can do is a row of
 * its own, so that it is refused instead of being unknown, which would drop it silently. Each such
 * row lists the values that mean "off".
 *
 * The rows are looked up by the keys of a body, not the other way round: a body has few keys, the
 * table many rows.
 */
#include "gateway/request/request_table.h"

#include <string.h>

#include "base/proto/proto.h"

/* ---- what asks for nothing ---- */

static bool is_empty(const json_t *v, const json_t *object)
{
	(void)object;
	return (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0) ||
	       (json_is_string(v) && json_string_length(v) == 0);
}

static bool is_false(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_false(v);
}

static bool is_true(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_true(v);
}

static bool is_one(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_number(v) && json_number_value(v) == 1.0;
}

static bool is_zero(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_number(v) && json_number_value(v) == 0.0;
}

/* It may be called with NULL: a member that is not there. */
static bool is_text(const json_t *v, const char *want)
{
	return json_is_string(v) && strcmp(json_string_value(v), want) == 0;
}

static bool is_none(const json_t *v, const json_t *object)
{
	(void)object;
	return is_text(v, "none");
}

static bool is_disabled(const json_t *v, const json_t *object)
{
	(void)object;
	return is_text(v, "disabled");
}

/* Without tools there is nothing to choose, and with tools it is these that are refused. */
static bool no_choice(const json_t *v, const json_t *object)
{
	(void)object;
	return is_text(v, "none") || is_text(v, "auto");
}

/* Tools that must not be called are none. */
static bool no_tools(const json_t *v, const json_t *object)
{
	return is_empty(v, object) || is_text(json_object_get(object, "tool_choice"), "none");
}

static bool no_functions(const json_t *v, const json_t *object)
{
	return is_empty(v, object) || is_text(json_object_get(object, "function_call"), "none");
}

static bool is_text_format(const json_t *v, const json_t *object)
{
	(void)object;
	return is_text(json_object_get(v, "type"), "text");
}

static bool only_text(const json_t *v, const json_t *object)
{
	(void)object;
	return json_array_size(v) == 1 && is_text(json_array_get(v, 0), "text");
}

/* ---- the rows ---- */

#define HONOURED(name_, endpoints_, types_, ...)                                                             \
	{                                                                                                    \
		.name = name_, .endpoints = endpoints_, .does = FIELD_HONOURED, .types = types_, __VA_ARGS__ \
	}
#define IGNORED(name_, endpoints_, types_, ...)                                                             \
	{                                                                                                   \
		.name = name_, .endpoints = endpoints_, .does = FIELD_IGNORED, .types = types_, __VA_ARGS__ \
	}
#define REFUSED(name_, endpoints_, types_, harmless_)                                                                 \
	{                                                                                                             \
		.name = name_, .endpoints = endpoints_, .does = FIELD_REFUSED, .types = types_, .harmless = harmless_ \
	}
#define RANGE(lo_, hi_) .lo = lo_, .hi = hi_
#define ABOVE(lo_, hi_) .lo = lo_, .hi = hi_, .above = true

#define INTO(value_) .value = VALUE_##value_

#define CHAT REQUEST_CHAT
#define COMP REQUEST_COMPLETION
#define RESP REQUEST_RESPONSE
#define ALL REQUEST_ALL

const struct request_field request_fields[] = {
    HONOURED("add_generation_prompt", CHAT, TYPE_BOOL, INTO(ADD_GENERATION_PROMPT)),
    REFUSED("add_special_tokens", CHAT, TYPE_BOOL, is_false),
    REFUSED("add_special_tokens", COMP, TYPE_BOOL, is_true),
    REFUSED("allowed_token_ids", ALL, TYPE_ARR, is_empty),
    REFUSED("audio", CHAT, TYPE_OBJ, is_empty),
    HONOURED("background", RESP, TYPE_BOOL, INTO(BACKGROUND)),
    REFUSED("bad_words", ALL, TYPE_ARR, is_empty),
    HONOURED("best_of", CHAT | COMP, TYPE_INT, RANGE(1, PROTO_MAX_CHOICES), INTO(BEST_OF)),
    REFUSED("chat_template", CHAT | RESP, TYPE_STR, is_empty),
    HONOURED("chat_template_kwargs", CHAT, TYPE_OBJ, INTO(CHAT_TEMPLATE_KWARGS)),
    REFUSED("context_management", RESP, TYPE_ARR | TYPE_OBJ, is_empty),
    HONOURED("continue_final_message", CHAT, TYPE_BOOL, INTO(CONTINUE_FINAL_MESSAGE)),
    HONOURED("conversation", RESP, TYPE_STR | TYPE_OBJ, INTO(CONVERSATION)),
    HONOURED("documents", CHAT, TYPE_ARR, INTO(DOCUMENTS)),
    REFUSED("dry_multiplier", ALL, TYPE_NUM, is_zero),
    REFUSED("dynatemp_range", ALL, TYPE_NUM, is_zero),
    REFUSED("echo", CHAT, TYPE_BOOL, is_false),
    HONOURED("echo", COMP, TYPE_BOOL, INTO(ECHO)),
    HONOURED("frequency_penalty", ALL, TYPE_NUM, RANGE(-2, 2), INTO(FREQUENCY_PENALTY)),
    REFUSED("function_call", CHAT, TYPE_STR | TYPE_OBJ, is_none),
    REFUSED("functions", CHAT, TYPE_ARR, no_functions),
    REFUSED("grammar", ALL, TYPE_STR, is_empty),
    REFUSED("guided_choice", ALL, TYPE_ARR, is_empty),
    REFUSED("guided_grammar", ALL, TYPE_STR, is_empty),
    REFUSED("guided_json", ALL, TYPE_STR | TYPE_OBJ, is_empty),
    REFUSED("guided_regex", ALL, TYPE_STR, is_empty),
    HONOURED("ignore_eos", ALL, TYPE_BOOL, INTO(IGNORE_EOS)),
    HONOURED("include", RESP, TYPE_ARR, INTO(INCLUDE)),
    REFUSED("include_stop_str_in_output", ALL, TYPE_BOOL, is_false),
    HONOURED("input", RESP, TYPE_STR | TYPE_ARR, INTO(INPUT)),
    HONOURED("instructions", RESP, TYPE_STR, INTO(INSTRUCTIONS)),
    REFUSED("json_schema", ALL, TYPE_OBJ, is_empty),
    REFUSED("length_penalty", ALL, TYPE_NUM, is_one),
    HONOURED("logit_bias", ALL, TYPE_OBJ, INTO(LOGIT_BIAS)),
    REFUSED("logits_processors", ALL, TYPE_ARR, is_empty),
    HONOURED("logprobs", CHAT, TYPE_BOOL, INTO(LOGPROBS)),
    HONOURED("logprobs", COMP, TYPE_INT, RANGE(0, PROTO_MAX_TOP_LOGPROBS), INTO(LOGPROBS)),
    REFUSED("lora", ALL, TYPE_ARR, is_empty),
    HONOURED("max_completion_tokens", CHAT, TYPE_INT, RANGE(1, INT32_MAX), INTO(MAX_COMPLETION_TOKENS)),
    HONOURED("max_output_tokens", RESP, TYPE_INT, RANGE(1, INT32_MAX), INTO(MAX_OUTPUT_TOKENS)),
    HONOURED("max_tokens", CHAT | COMP, TYPE_INT, RANGE(1, INT32_MAX), INTO(MAX_TOKENS)),
    IGNORED("max_tool_calls", RESP, TYPE_INT, RANGE(0, INT32_MAX)),
    HONOURED("messages", CHAT, TYPE_ARR, INTO(MESSAGES)),
    IGNORED("metadata", CHAT | COMP, TYPE_OBJ, INTO(METADATA)),
    HONOURED("metadata", RESP, TYPE_OBJ, INTO(METADATA)),
    HONOURED("min_p", ALL, TYPE_NUM, RANGE(0, 1), INTO(MIN_P)),
    HONOURED("min_tokens", ALL, TYPE_INT, RANGE(0, INT32_MAX), INTO(MIN_TOKENS)),
    REFUSED("mirostat", ALL, TYPE_INT, is_zero),
    REFUSED("modalities", CHAT, TYPE_ARR, only_text),
    HONOURED("model", ALL, TYPE_STR),
    HONOURED("n", CHAT | COMP, TYPE_INT, RANGE(1, PROTO_MAX_CHOICES), INTO(N)),
    REFUSED("n_predict", ALL, TYPE_INT, NULL),
    REFUSED("n_probs", ALL, TYPE_INT, is_zero),
    IGNORED("parallel_tool_calls", CHAT | RESP, TYPE_BOOL),
    REFUSED("prediction", CHAT, TYPE_OBJ, is_empty),
    HONOURED("presence_penalty", ALL, TYPE_NUM, RANGE(-2, 2), INTO(PRESENCE_PENALTY)),
    HONOURED("previous_response_id", RESP, TYPE_STR, INTO(PREVIOUS_RESPONSE_ID)),
    HONOURED("prompt", COMP, TYPE_STR | TYPE_ARR, INTO(PROMPT)),
    HONOURED("prompt", RESP, TYPE_OBJ, .members = true, INTO(PROMPT)),
    HONOURED("prompt.id", RESP, TYPE_STR),
    HONOURED("prompt.variables", RESP, TYPE_OBJ),
    HONOURED("prompt.version", RESP, TYPE_STR),
    IGNORED("prompt_cache_key", ALL, TYPE_STR, INTO(PROMPT_CACHE_KEY)),
    IGNORED("prompt_cache_retention", CHAT | RESP, TYPE_STR, .values = "in-memory in_memory 24h "),
    REFUSED("prompt_embeds", COMP, TYPE_STR | TYPE_ARR, is_empty),
    REFUSED("prompt_logprobs", ALL, TYPE_INT, NULL),
    IGNORED("reasoning", RESP, TYPE_OBJ, .members = true),
    IGNORED("reasoning.effort", RESP, TYPE_STR, .values = "none minimal low medium high xhigh "),
    IGNORED("reasoning.generate_summary", RESP, TYPE_STR, .values = "auto concise detailed "),
    IGNORED("reasoning.summary", RESP, TYPE_STR, .values = "auto concise detailed "),
    IGNORED("reasoning_effort", CHAT, TYPE_STR, .values = "none minimal low medium high xhigh "),
    REFUSED("repeat_penalty", ALL, TYPE_NUM, is_one),
    HONOURED("repetition_penalty", ALL, TYPE_NUM, ABOVE(0, 2), INTO(REPETITION_PENALTY)),
    REFUSED("response_format", CHAT | COMP, TYPE_OBJ, is_text_format),
    REFUSED("return_token_ids", ALL, TYPE_BOOL, is_false),
    REFUSED("return_tokens_as_token_ids", ALL, TYPE_BOOL, is_false),
    IGNORED("safety_identifier", ALL, TYPE_STR, INTO(SAFETY_IDENTIFIER)),
    REFUSED("samplers", ALL, TYPE_STR | TYPE_ARR, is_empty),
    HONOURED("seed", ALL, TYPE_INT, INTO(SEED)),
    IGNORED("service_tier", ALL, TYPE_STR, .values = "auto default "),
    REFUSED("skip_special_tokens", ALL, TYPE_BOOL, is_true),
    REFUSED("spaces_between_special_tokens", ALL, TYPE_BOOL, is_true),
    HONOURED("stop", ALL, TYPE_STR | TYPE_ARR, INTO(STOP)),
    HONOURED("stop_token_ids", ALL, TYPE_ARR, INTO(STOP_TOKEN_IDS)),
    IGNORED("store", CHAT, TYPE_BOOL),
    HONOURED("store", RESP, TYPE_BOOL, INTO(STORE)),
    HONOURED("stream", ALL, TYPE_BOOL, INTO(STREAM)),
    HONOURED("stream_options", ALL, TYPE_OBJ, .members = true, INTO(STREAM_OPTIONS)),
    REFUSED("stream_options.continuous_usage_stats", CHAT | COMP, TYPE_BOOL, is_false),
    HONOURED("stream_options.include_obfuscation", ALL, TYPE_BOOL),
    HONOURED("stream_options.include_usage", CHAT | COMP, TYPE_BOOL),
    REFUSED("structured_outputs", ALL, TYPE_OBJ, is_empty),
    REFUSED("suffix", COMP, TYPE_STR, is_empty),
    HONOURED("temperature", ALL, TYPE_NUM, RANGE(0, 2), INTO(TEMPERATURE)),
    HONOURED("text", RESP, TYPE_OBJ, .members = true),
    REFUSED("text.format", RESP, TYPE_OBJ, is_text_format),
    IGNORED("text.verbosity", RESP, TYPE_STR, .values = "low medium high "),
    REFUSED("thinking_token_budget", ALL, TYPE_INT, NULL),
    REFUSED("tool_choice", CHAT | RESP, TYPE_STR | TYPE_OBJ, no_choice),
    REFUSED("tools", CHAT | RESP, TYPE_ARR, no_tools),
    HONOURED("top_k", ALL, TYPE_INT, RANGE(-1, INT32_MAX), INTO(TOP_K)),
    HONOURED("top_logprobs", CHAT | RESP, TYPE_INT, RANGE(0, PROTO_MAX_TOP_LOGPROBS), INTO(TOP_LOGPROBS)),
    REFUSED("top_n_sigma", ALL, TYPE_NUM, is_zero),
    HONOURED("top_p", ALL, TYPE_NUM, ABOVE(0, 1), INTO(TOP_P)),
    REFUSED("truncate_prompt_tokens", CHAT | COMP, TYPE_INT, NULL),
    REFUSED("truncation", RESP, TYPE_STR, is_disabled),
    HONOURED("typical_p", ALL, TYPE_NUM, ABOVE(0, 1), INTO(TYPICAL_P)),
    REFUSED("use_beam_search", ALL, TYPE_BOOL, is_false),
    IGNORED("user", ALL, TYPE_STR, INTO(USER)),
    IGNORED("verbosity", CHAT, TYPE_STR, .values = "low medium high "),
    REFUSED("web_search_options", CHAT, TYPE_OBJ, NULL),
    REFUSED("xtc_probability", ALL, TYPE_NUM, is_zero),
};

const size_t n_request_fields = sizeof request_fields / sizeof request_fields[0];

const struct request_field *request_field_find(const char *name, enum request_endpoint endpoint)
{
	size_t lo = 0, hi = n_request_fields;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (strcmp(request_fields[mid].name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < n_request_fields && strcmp(request_fields[lo].name, name) == 0; lo++)
		if ((request_fields[lo].endpoints & endpoint) != 0)
			return &request_fields[lo];
	return NULL;
}
