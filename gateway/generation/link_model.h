/* SPDX-License-Identifier: Apache-2.0
 *
 * What a link delivers: a sequence's events to its listener, and what is known of a model.
 */
#ifndef GATEWAY_LINK_MODEL_H
#define GATEWAY_LINK_MODEL_H

#include "base/proto/proto.h"

/* A sequence's listener; all calls on the thread's loop. After on_done or on_lost, which each has, no further call.
 * NULL: not wanted. */
struct link_listener {
	void (*on_queued)(void *ctx, const struct proto_queued *m);
	void (*on_tokens)(void *ctx, const struct proto_tokens *m);
	void (*on_choice)(void *ctx, const struct proto_choice *m); /* one of several has ended */
	void (*on_done)(void *ctx, const struct proto_done *m);
	void (*on_lost)(void *ctx); /* the engine has gone */
	void (*on_verified)(void *ctx, const struct proto_verified *m);
	/* A frame of it comes soon: what that will need may be fetched ahead, and nothing else done. NULL: nothing. */
	void (*soon)(const void *ctx);
	void (*on_prompt)(void *ctx, const struct proto_prompt_logprobs *m);
	void (*on_embedding)(void *ctx, const struct proto_embedding *m);
	void (*on_handed)(void *ctx, const struct proto_handed *m);
};

struct link_model {
	char name[PROTO_MAX_NAME + 1];
	char reason[PROTO_MAX_MESSAGE + 1];
	uint8_t state, role, does; /* does: of enum proto_does */
	uint8_t percent;           /* of its weights, while they are loaded */
	uint8_t residence;         /* enum proto_residence */
	uint8_t n_lengths;
	uint16_t parent;                     /* of an adapter: 1 + the index of its base; 0: it is none */
	uint32_t lengths[PROTO_MAX_LENGTHS]; /* of its vectors, where it declares some */
	uint32_t n_ctx, n_vocab, n_embd;
	uint64_t n_params;
	uint64_t tokenizer; /* models with the same one mean the same by a token's id; 0: unknown */
	struct link_parts {
		uint8_t format, reasoning, n_markers;
		int32_t markers[PROTO_MAX_MARKERS];
	} parts; /* as MODEL has them */
};

/* Another server runs it, which may refuse late; tokens of its prompts are estimates until it has counted them. */
static inline bool link_model_is_remote(const struct link_model *m) { return (m->does & PROTO_DOES_REFUSE_LATE) != 0; }

#endif
