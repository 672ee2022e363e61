/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: Anthropic's Messages API and Ollama's API over the same answers as OpenAI's. It has their requests, read
 * into a chat's (messages_request.h, ollama_request.h), their answers as formats of gateway/answer, and their errors.
 * Access, quotas, sharing and generation are the chat's own.
 *
 * Neither API can resume a stream, so its answers are not logged.
 */
#ifndef GATEWAY_DIALECT_H
#define GATEWAY_DIALECT_H

#include "gateway/answer/answer.h"
#include "gateway/exchange/exchange.h"

extern const struct reply_form messages_form, ollama_form;

/* The form of replies to r, chosen by its path, even if that has no route; NULL: OpenAI's. GET /v1/models is
 * Anthropic's if the request has the header `anthropic-version`. */
const struct reply_form *dialect_form(const struct http_request *r);

/* own: from its create; NULL: out of memory. */
extern const struct answer_format answer_messages;
void *answer_messages_create(void);
/* raw: the prompt went to the model without its template, and the answer is plain text. */
extern const struct answer_format answer_ollama_chat, answer_ollama_generate, answer_ollama_raw;
void *answer_ollama_create(void);

/* Anthropic's list of models, and one of them: appends a JSON text. created_s: since 1970. */
int messages_put_model(struct sl_buf *out, const char *id, int64_t created_s);

/* A call's arguments as an object on one line. Arguments that were cut short are not JSON: they become an empty object,
 * and the answer's finish reason says why. */
int dialect_put_arguments(struct sl_buf *out, const struct sl_buf *arguments);

/* "2026-01-31T09:05:00.000000000Z"; ns: since 1970. */
enum { DIALECT_TIME_BYTES = 40 };
void dialect_time(int64_t s, uint32_t ns, char out[DIALECT_TIME_BYTES]);

/* name, without its tag ":latest" if only the name without it is a model's. room: for the result. */
const char *ollama_model_name(const struct engine_link *l, const char *name, char room[PROTO_MAX_NAME + 1]);
/* Appends a model as JSON: for GET /api/tags and (running) GET /api/ps, and for POST /api/show. */
int ollama_put_model(struct sl_buf *out, const struct link_model *m, int64_t created_s, bool running);
int ollama_put_show(struct sl_buf *out, const struct link_model *m, int64_t created_s);

#endif
