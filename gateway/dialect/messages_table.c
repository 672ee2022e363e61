/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of Anthropic's Messages API, including beta fields that clients send by default.
 */
#include "gateway/dialect/dialect_table.h"
#include "gateway/dialect/messages_request.h"

enum { ANY = 1 };

static const struct request_field rows[] = {
    REFUSED(ANY, "container", TYPE_STR | TYPE_OBJ, harmless_empty, "Tools run on the client's side."),
    IGNORED(ANY, "context_management", TYPE_OBJ),
    HONOURED(ANY, "max_tokens", TYPE_INT, RANGE(1, INT32_MAX), INTO(MAX_TOKENS)),
    REFUSED(ANY, "mcp_servers", TYPE_ARR, harmless_empty, "Tools run on the client's side."),
    HONOURED(ANY, "messages", TYPE_ARR, INTO(MESSAGES)),
    HONOURED(ANY, "metadata", TYPE_OBJ, .members = true),
    HONOURED(ANY, "metadata.user_id", TYPE_STR, INTO(USER)),
    HONOURED(ANY, "model", TYPE_STR),
    HONOURED(ANY, "output_config", TYPE_OBJ, .members = true),
    HONOURED(ANY, "output_config.effort", TYPE_STR, .values = "low medium high xhigh max ", INTO(REASONING_EFFORT)),
    HONOURED(ANY, "output_config.format", TYPE_OBJ, .members = true),
    HONOURED(ANY, "output_config.format.schema", TYPE_OBJ, INTO(JSON_SCHEMA)),
    HONOURED(ANY, "output_config.format.type", TYPE_STR, .values = "json_schema "),
    HONOURED(ANY, "output_format", TYPE_OBJ, .members = true),
    HONOURED(ANY, "output_format.schema", TYPE_OBJ, INTO(JSON_SCHEMA)),
    HONOURED(ANY, "output_format.type", TYPE_STR, .values = "json_schema "),
    HONOURED(ANY, "service_tier", TYPE_STR, .values = "auto standard_only "),
    HONOURED(ANY, "stop_sequences", TYPE_ARR, INTO(STOP)),
    HONOURED(ANY, "stream", TYPE_BOOL, INTO(STREAM)),
    HONOURED(ANY, "system", TYPE_STR | TYPE_ARR),
    HONOURED(ANY, "temperature", TYPE_NUM, RANGE(0, 2), INTO(TEMPERATURE)),
    HONOURED(ANY, "thinking", TYPE_OBJ, INTO(THINKING)),
    HONOURED(ANY, "tool_choice", TYPE_OBJ),
    HONOURED(ANY, "tools", TYPE_ARR),
    HONOURED(ANY, "top_k", TYPE_INT, RANGE(-1, INT32_MAX), INTO(TOP_K)),
    HONOURED(ANY, "top_p", TYPE_NUM, ABOVE(0, 1), INTO(TOP_P)),
};

const struct request_shape messages_shape = {
    .rows = rows, .n = sizeof rows / sizeof *rows, .endpoints = ANY, .as = REQUEST_CHAT, .lists_ignored = true};
