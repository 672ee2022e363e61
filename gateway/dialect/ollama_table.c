/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of Ollama's /api/chat and /api/generate. Options for memory and threads of Ollama's runner are ignored,
 * because the configuration decides about models. Ollama has no tool_choice; here it means what it means in a chat.
 */
#include "base/proto/proto.h"
#include "gateway/dialect/dialect_table.h"
#include "gateway/dialect/ollama_request.h"

enum { CHAT = 1, GENERATE = 2, BOTH = 3 };

static const char no_images[] = "Only text is read.";

static const struct request_field rows[] = {
    REFUSED(GENERATE, "context", TYPE_ARR, harmless_empty, "Send the whole conversation to POST /api/chat."),
    HONOURED(BOTH, "format", TYPE_STR | TYPE_OBJ, INTO(FORMAT)),
    REFUSED(GENERATE, "images", TYPE_ARR, harmless_empty, no_images),
    HONOURED(BOTH, "keep_alive", TYPE_NUM | TYPE_STR),
    HONOURED(BOTH, "logprobs", TYPE_BOOL, INTO(LOGPROBS)),
    HONOURED(CHAT, "messages", TYPE_ARR, INTO(MESSAGES)),
    HONOURED(BOTH, "model", TYPE_STR),
    HONOURED(BOTH, "options", TYPE_OBJ, .members = true),
    IGNORED(BOTH, "options.f16_kv", TYPE_BOOL),
    HONOURED(BOTH, "options.frequency_penalty", TYPE_NUM, RANGE(-2, 2), INTO(FREQUENCY_PENALTY)),
    IGNORED(BOTH, "options.low_vram", TYPE_BOOL),
    IGNORED(BOTH, "options.main_gpu", TYPE_INT),
    HONOURED(BOTH, "options.min_p", TYPE_NUM, RANGE(0, 1), INTO(MIN_P)),
    REFUSED(BOTH, "options.mirostat", TYPE_INT, harmless_zero, "Use 'top_p', 'min_p' or 'typical_p'."),
    IGNORED(BOTH, "options.mirostat_eta", TYPE_NUM),
    IGNORED(BOTH, "options.mirostat_tau", TYPE_NUM),
    IGNORED(BOTH, "options.num_batch", TYPE_INT),
    IGNORED(BOTH, "options.num_ctx", TYPE_INT),
    IGNORED(BOTH, "options.num_gpu", TYPE_INT),
    IGNORED(BOTH, "options.num_keep", TYPE_INT),
    HONOURED(BOTH, "options.num_predict", TYPE_INT, RANGE(-2, INT32_MAX), INTO(MAX_TOKENS)),
    IGNORED(BOTH, "options.num_thread", TYPE_INT),
    IGNORED(BOTH, "options.numa", TYPE_BOOL),
    REFUSED(BOTH, "options.penalize_newline", TYPE_BOOL, harmless_true, "Newlines are penalised like other tokens."),
    HONOURED(BOTH, "options.presence_penalty", TYPE_NUM, RANGE(-2, 2), INTO(PRESENCE_PENALTY)),
    REFUSED(BOTH, "options.repeat_last_n", TYPE_INT, harmless_window, "Penalties always apply to the whole text."),
    HONOURED(BOTH, "options.repeat_penalty", TYPE_NUM, ABOVE(0, 2), INTO(REPETITION_PENALTY)),
    HONOURED(BOTH, "options.seed", TYPE_INT, INTO(SEED)),
    HONOURED(BOTH, "options.stop", TYPE_STR | TYPE_ARR, INTO(STOP)),
    HONOURED(BOTH, "options.temperature", TYPE_NUM, RANGE(0, 2), INTO(TEMPERATURE)),
    REFUSED(BOTH, "options.tfs_z", TYPE_NUM, harmless_one, "Use 'top_p' or 'min_p'."),
    HONOURED(BOTH, "options.top_k", TYPE_INT, RANGE(-1, INT32_MAX), INTO(TOP_K)),
    HONOURED(BOTH, "options.top_p", TYPE_NUM, ABOVE(0, 1), INTO(TOP_P)),
    HONOURED(BOTH, "options.typical_p", TYPE_NUM, ABOVE(0, 1), INTO(TYPICAL_P)),
    IGNORED(BOTH, "options.use_mlock", TYPE_BOOL),
    IGNORED(BOTH, "options.use_mmap", TYPE_BOOL),
    IGNORED(BOTH, "options.vocab_only", TYPE_BOOL),
    HONOURED(GENERATE, "prompt", TYPE_STR, INTO(PROMPT)),
    HONOURED(GENERATE, "raw", TYPE_BOOL),
    IGNORED(BOTH, "shift", TYPE_BOOL),
    HONOURED(BOTH, "stream", TYPE_BOOL, INTO(STREAM)),
    REFUSED(GENERATE, "suffix", TYPE_STR, harmless_empty,
	    "Use 'raw' and a prompt with the model's own fill-in-the-middle tokens."),
    HONOURED(GENERATE, "system", TYPE_STR, INTO(INSTRUCTIONS)),
    REFUSED(GENERATE, "template", TYPE_STR, harmless_empty, "The model's own template is used; 'raw' goes without it."),
    HONOURED(BOTH, "think", TYPE_BOOL | TYPE_STR, .values = "low medium high ", INTO(THINK)),
    HONOURED(CHAT, "tool_choice", TYPE_STR | TYPE_OBJ, INTO(TOOL_CHOICE)),
    HONOURED(CHAT, "tools", TYPE_ARR, INTO(TOOLS)),
    HONOURED(BOTH, "top_logprobs", TYPE_INT, RANGE(0, PROTO_MAX_TOP_LOGPROBS), INTO(TOP_LOGPROBS)),
    IGNORED(BOTH, "truncate", TYPE_BOOL),
};

#define SHAPE(endpoints_)                                                                                   \
	{                                                                                                   \
		.rows = rows, .n = sizeof rows / sizeof *rows, .endpoints = endpoints_, .as = REQUEST_CHAT, \
		.lists_ignored = true                                                                       \
	}

const struct request_shape ollama_chat_shape = SHAPE(CHAT), ollama_generate_shape = SHAPE(GENERATE);
