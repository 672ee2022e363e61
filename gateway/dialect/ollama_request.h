/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the bodies of Ollama's API: POST /api/chat and /api/generate into a chat's request, and what
 * names a model. Pure: bytes in, a request or an error that names the field out.
 */
#ifndef GATEWAY_OLLAMA_REQUEST_H
#define GATEWAY_OLLAMA_REQUEST_H

#include "gateway/dialect/turns.h"
#include "gateway/request/chat_request.h"

enum { OLLAMA_KEEP_UNSAID = -1, OLLAMA_KEEP_EVER = INT32_MAX };

struct ollama_request {
	struct chat_request chat; /* raw: c.submit.prompt is the text itself */
	bool raw;                 /* the prompt goes to the model without its template */
	bool loads;               /* it has no prompt and only asks to load the model */
	int64_t keep_ms;          /* keep_alive, or OLLAMA_KEEP_… */
};

/* 0; SL_EINVAL with *e filled; SL_ENOMEM. On failure *out needs no dispose; here and below. */
int ollama_chat_parse(const void *bytes, size_t n, const struct request_limits *l, struct ollama_request *out,
		      struct request_error *e);
int ollama_generate_parse(const void *bytes, size_t n, const struct request_limits *l, struct ollama_request *out,
			  struct request_error *e);
void ollama_request_dispose(struct ollama_request *r);

/* A request that only names a model: "model", or the older "name". */
struct ollama_name {
	char model[PROTO_MAX_NAME + 1];
};

int ollama_name_parse(const void *bytes, size_t n, const struct request_limits *l, struct ollama_name *out,
		      struct request_error *e);

/* ---- ollama_keep.c ---- */

/* keep_alive in milliseconds; v NULL: it was not given. 0, or SL_EINVAL with *e filled. */
int ollama_keep_read(const json_t *v, int64_t *out, struct request_error *e);

/* ---- ollama_table.c ---- */

extern const struct request_shape ollama_chat_shape, ollama_generate_shape;

/* ---- ollama_turns.c ---- */

/* Appends `"messages":[…]`. 0, SL_EINVAL with *e filled, SL_ELIMIT, SL_ENOMEM. */
int ollama_turns_put(struct sl_buf *out, const json_t *messages, const struct request_limits *l,
		     struct cleanse_stats *cleansed, struct request_error *e);
/* The same of a prompt and the system's text; system NULL: none. */
int ollama_prompt_put(struct sl_buf *out, const json_t *prompt, const json_t *system, const struct request_limits *l,
		      struct cleanse_stats *cleansed);

#endif
