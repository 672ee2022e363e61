/* SPDX-License-Identifier: Apache-2.0
 *
 * A SUBMIT as the body of a request to the upstream: chats as /chat/completions, texts and tokens as /completions,
 * inputs as /embeddings, pairs of texts as /score. What the upstream's API has no field for is refused by the field's
 * name.
 *
 * Pure; any thread.
 */
#ifndef ENGINE_REMOTE_BODY_H
#define ENGINE_REMOTE_BODY_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/proto/proto.h"
#include "engine/engine.h"

enum { REMOTE_PROMPT_DEPTH = 64 };

/* Why a request can't be carried. */
struct remote_refusal {
	uint8_t error; /* enum proto_error */
	char message[PROTO_MAX_MESSAGE];
};

/* Writes the body into out. model: the upstream's name. *path: where it goes, a constant. 0; SL_EINVAL with *why;
 * SL_ELIMIT, SL_ENOMEM. */
int remote_body_put(const struct proto_submit *s, const char *model, enum eng_remote_dialect dialect,
		    struct sl_buf *out, const char **path, struct remote_refusal *why);

/* A COUNT as the body of /tokenize, or of /detokenize where it wants text. As remote_body_put. */
int remote_body_count(const struct proto_count *req, const char *model, enum eng_remote_dialect dialect,
		      struct sl_buf *out, struct remote_refusal *why);

/* How long a prompt is, without the upstream's tokenizer. */
struct remote_length {
	uint32_t bytes; /* of text: of a chat, what its members say and its tools */
	uint32_t fixed; /* tokens that are known: ids, and what a template puts around messages */
};
/* A chat that is none has no length. */
struct remote_length remote_length_of(uint8_t kind, struct proto_str prompt);
/* The most tokens that it can have: as many as bytes, and what a template adds. */
uint32_t remote_length_most(struct remote_length l);
/* An estimate, at so many bytes a token. */
uint32_t remote_length_guess(struct remote_length l, double bytes_per_token);

/* ---- remote_chat.c ---- */

/* Appends the members "messages", "tools" and what follows of them, each with a comma before. */
int remote_chat_put(const struct proto_submit *s, enum eng_remote_dialect dialect, struct sl_buf *out,
		    struct remote_refusal *why);
struct remote_length remote_chat_length(struct proto_str prompt);
struct remote_length remote_chat_length(struct proto_str prompt);
/* Sets *why. Returns SL_EINVAL. */
int remote_refuse(struct remote_refusal *why, uint8_t error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
