/* SPDX-License-Identifier: Apache-2.0
 *
 * Each field of the three requests as data: its types, its range and whether it is honoured, accepted
 * without effect, or refused. The parsers check bodies against it; a test compares it with
 * openapi.json and etc/api.md.
 */
#ifndef GATEWAY_REQUEST_TABLE_H
#define GATEWAY_REQUEST_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum request_endpoint {
	REQUEST_CHAT = 1,
	REQUEST_COMPLETION = 2,
	REQUEST_RESPONSE = 4,
	REQUEST_ALL = 7,
};

enum request_does {
	FIELD_HONOURED,
	FIELD_IGNORED, /* checked, of no effect */
	FIELD_REFUSED, /* unless it is null or asks for nothing */
};

enum request_type {
	TYPE_BOOL = 1,
	TYPE_INT = 2,
	TYPE_NUM = 4, /* integers too */
	TYPE_STR = 8,
	TYPE_ARR = 16,
	TYPE_OBJ = 32,
};

/* The members of a body that parsers read; one name may have several rows. */
enum request_value {
	VALUE_NONE, /* not read, or only as a member of another */
	VALUE_ADD_GENERATION_PROMPT,
	VALUE_BACKGROUND,
	VALUE_BEST_OF,
	VALUE_CHAT_TEMPLATE_KWARGS,
	VALUE_CONTINUE_FINAL_MESSAGE,
	VALUE_CONVERSATION,
	VALUE_DOCUMENTS,
	VALUE_ECHO,
	VALUE_FREQUENCY_PENALTY,
	VALUE_IGNORE_EOS,
	VALUE_INCLUDE,
	VALUE_INPUT,
	VALUE_INSTRUCTIONS,
	VALUE_LOGIT_BIAS,
	VALUE_LOGPROBS,
	VALUE_MAX_COMPLETION_TOKENS,
	VALUE_MAX_OUTPUT_TOKENS,
	VALUE_MAX_TOKENS,
	VALUE_MESSAGES,
	VALUE_METADATA,
	VALUE_MIN_P,
	VALUE_MIN_TOKENS,
	VALUE_N,
	VALUE_PRESENCE_PENALTY,
	VALUE_PREVIOUS_RESPONSE_ID,
	VALUE_PROMPT,
	VALUE_PROMPT_CACHE_KEY,
	VALUE_REPETITION_PENALTY,
	VALUE_SAFETY_IDENTIFIER,
	VALUE_SEED,
	VALUE_STOP,
	VALUE_STOP_TOKEN_IDS,
	VALUE_STORE,
	VALUE_STREAM,
	VALUE_STREAM_OPTIONS,
	VALUE_TEMPERATURE,
	VALUE_TOP_K,
	VALUE_TOP_LOGPROBS,
	VALUE_TOP_P,
	VALUE_TYPICAL_P,
	VALUE_USER,
	N_REQUEST_VALUES
};

struct request_field {
	const char *name; /* a member of an object: "object.member" */
	uint8_t endpoints, does, types;
	uint8_t value;      /* enum request_value: where request_check puts it */
	bool members;       /* rows for its members follow */
	bool above;         /* lo itself is outside */
	double lo, hi;      /* of numbers; both 0: any */
	const char *values; /* of strings: all there are, each followed by a blank; NULL: any */
	/* FIELD_REFUSED: does this value ask for nothing? object: what holds the field. */
	bool (*harmless)(const json_t *v, const json_t *object);
};

/* Sorted by name; rows of one name share no endpoint. */
extern const struct request_field request_fields[];
extern const size_t n_request_fields;

/* NULL: unknown, and ignored as OpenAI's own API does. */
const struct request_field *request_field_find(const char *name, enum request_endpoint endpoint);

#endif
