/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parsers of chat, completion and response requests share: the bytes, the check of a body
 * against the table of fields, the sampling fields, and errors that name the field. Pure: no socket,
 * no thread, no clock.
 *
 * null always counts as absent. What is refused is refused by name; unknown fields are collected and have no effect.
 */
#ifndef GATEWAY_REQUEST_FIELDS_H
#define GATEWAY_REQUEST_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proto/proto.h"
#include "gateway/cleanse/cleanse.h"
#include "gateway/request/constraint_request.h"
#include "gateway/request/json_mem.h"
#include "gateway/request/reasoning_request.h"
#include "gateway/request/request_table.h"
#include "gateway/request/tools_request.h"

/* The fields of a request of any API: rows as in request_table.h, whose values the shared readers take. */
struct request_shape {
	const struct request_field *rows; /* sorted by name */
	size_t n;
	uint8_t endpoints;        /* which rows are of this request: a bit of each row's */
	enum request_endpoint as; /* whose rules apply beyond the rows */
	bool lists_ignored;       /* struct request_ignored has FIELD_IGNORED ones, too */
};

struct request_files;

struct request_limits {
	size_t messages;            /* of a chat, or items of a response's input: at most */
	size_t json_depth;          /* nesting of the body */
	size_t json_values;         /* how much there is in it, json_measure; 0: no limit */
	size_t prompts;             /* of a completion */
	enum cleanse_level cleanse; /* of users' messages: what their tier has */
	/* Where files that it names are noted and their texts found, changed by parsing; NULL: it can't name any. */
	struct request_files *files;
};

/* Unknown fields of a body, for a header: names, comma separated; bytes that are not of a plain name or an index are
 * '_'. */
struct request_ignored {
	uint16_t n, n_shown; /* all; those in text */
	char text[240];      /* terminated */
};

/* Sampling fields that a model's variant may set where a request does not. */
enum request_sampling {
	REQUEST_TEMPERATURE = 1,
	REQUEST_TOP_P = 2,
	REQUEST_MIN_P = 4,
	REQUEST_REPETITION_PENALTY = 8,
};

/* What all three have in common. Strings point into the body. */
struct request_common {
	const char *model;
	bool stream, include_usage;
	bool no_obfuscation; /* stream_options.include_obfuscation: false */
	bool obfuscate;      /* it was asked for by true */
	bool has_seed, has_max_tokens;
	uint32_t max_tokens;
	bool token_ids;     /* return_token_ids: those of each choice */
	bool tokens_as_ids; /* log probabilities name tokens by their ids */
	/* Sampling, stops, seed, n, best_of, logprobs, biases; model, max_tokens and the tier's limits are
	 * the caller's. */
	struct proto_submit submit;
	uint8_t sampling;            /* which were given: a bit for each enum request_sampling */
	struct proto_id_f32 *bias;   /* owned: what submit.logit_bias points to */
	struct proto_str *bad_words; /* owned: what submit.bad_words points to; the texts are the body's */
	struct constraint_request constraint;
	struct tools_request tools;
	struct reasoning_request reasoning;
	json_t *template_kwargs; /* chat_template_kwargs; NULL */
	struct request_ignored ignored;
	const char *user;              /* safety_identifier or user; NULL */
	const char *cache_key;         /* prompt_cache_key; NULL */
	struct cleanse_stats cleansed; /* users' messages, once the prompt is made */
};

enum {
	/* Escaping can make text six times as long; the protocol's bound is what counts. */
	REQUEST_MAX_PROMPT = PROTO_MAX_PAYLOAD - 64 * 1024,
	REQUEST_MAX_LABEL = 512, /* bytes of user, cache_key, identifiers */
};

/* ---- reading: 0, SL_EINVAL with *e filled, SL_ENOMEM ---- */

/* A JSON object of correct UTF-8 that is not too deep; *out is the caller's. */
int request_parse_json(const void *bytes, size_t n, const struct request_limits *l, json_t **out,
		       struct request_error *e);
/* The same into a document that is only read. */
int request_parse_doc(const void *bytes, size_t n, const struct request_limits *l, struct json_doc *out,
		      struct request_error *e);
/* Every known field, whether honoured or not: type, range, and whether it is refused. Puts those that parsers read
 * into *values, which holds nothing else, and unknown ones into *ignored. */
int request_check(const json_t *body, enum request_endpoint endpoint, struct request_values *values,
		  struct request_ignored *ignored, struct request_error *e);
/* The same of another API's request. */
int request_check_shape(const json_t *body, const struct request_shape *shape, struct request_values *values,
			struct request_ignored *ignored, struct request_error *e);
/* Adds the name of what has no effect. */
void request_ignore(struct request_ignored *out, const char *name);
/* Adds the members of an object that are not among `known`, which ends with NULL; `within` is the object's own name. */
void request_ignore_others(struct request_ignored *out, const json_t *object, const char *within,
			   const char *const *known);
/* Prompts and names may not contain U+0000. The first only checks, without making the field's name. */
bool request_text_fits(const json_t *string);
int request_check_text(const json_t *string, const char *param, struct request_error *e);
/* An identifier or a label of at most REQUEST_MAX_LABEL bytes; *out NULL when it is absent or empty. */
int request_get_label(const json_t *object, const char *key, const char *param, const char **out,
		      struct request_error *e);
/* The same of a value that was found already, or NULL. */
int request_read_label(const json_t *v, const char *param, const char **out, struct request_error *e);
/* OpenAI's bounds on metadata: 16 pairs, keys of 64, values of 512 characters. */
int request_check_metadata(json_t *metadata, struct request_error *e); /* NULL: none */
bool request_is_empty(const json_t *v);                                /* an array or object without members */
/* What is wrong when a bounded buffer was too small (SL_ELIMIT); other codes stay. */
int request_too_long(int rc, const char *param, struct request_error *e);

/* "model": the name of one, which *out borrows. */
int request_get_model(const json_t *body, const char **out, struct request_error *e);
/* Appends an array of token ids, at least one, four bytes each in little-endian order. param: the array's name. */
enum { REQUEST_TOKEN_BYTES = 4 };
int request_put_token_ids(struct sl_buf *out, const json_t *ids, const char *param, struct request_error *e);

/* Appends a JSON value as text. 0, SL_ELIMIT, SL_ENOMEM. */
int request_put_json(struct sl_buf *out, const json_t *v);

/* ---- the common part ---- */

/* Checks the body, fills *values for what the endpoint reads besides, and *c. text: the bytes that body was read from,
 * borrowed for the call. On failure c needs no dispose. */
int request_common_read(const json_t *body, struct proto_str text, enum request_endpoint endpoint,
			struct request_values *values, struct request_common *c, struct request_error *e);
/* The same of another API's request. */
int request_common_read_shape(const json_t *body, struct proto_str text, const struct request_shape *shape,
			      struct request_values *values, struct request_common *c, struct request_error *e);
/* Appends `,"tools":[…],"chat_template_kwargs":{…}` for the model's template, with what there is of them. */
int request_put_template(struct sl_buf *out, const struct request_common *c);
void request_common_dispose(struct request_common *c);

#endif
