/* SPDX-License-Identifier: Apache-2.0
 *
 * The room computes vectors and scores of texts. A run computes the texts of one request:
 *
 *   COUNTING ──all counted──► CHARGING ──granted──► RUNNING ──all results──► OVER
 *      └───────────┴── refused, too long, engine lost, timeout ──────────────┘  (x gets an error response)
 *
 * All texts are counted before the first is computed. So the error for a text that is too long names its index, and the
 * quota is charged once, for a known number of tokens. Each text is a sequence of its own in the engine and joins steps
 * with all other work at the tier's priority. A request has at most EMBED_WINDOW sequences in the engine, so a request
 * with thousands of texts does not fill the queue. A text that a full queue rejects is sent again when another one has
 * ended.
 *
 * A run counts as one of its key's concurrent requests. It belongs to its exchange. embed_set_state checks the
 * transitions. Thread: the exchange's. Callers: gateway/api.
 */
#ifndef GATEWAY_EMBED_RUN_H
#define GATEWAY_EMBED_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/exchange/exchange.h"

struct embed_run;

enum { EMBED_WINDOW = 64 };

struct embed_item {
	uint8_t kind;                  /* PROTO_PROMPT_INPUT, PROTO_PROMPT_TOKENS or PROTO_PROMPT_PAIR */
	struct proto_str text, second; /* second: of a pair */
	const char *field;             /* for errors: a literal */
	int index;                     /* in the field's array; -1: not an array */
};

/* All results are available. */
typedef void embed_done(void *ctx);

/* The model for a request that needs one of `does` (enum proto_does); -1: x has its error response. *pairs: the model
 * scores pairs. */
int embed_choose_model(struct exchange *x, const char *name, unsigned does, bool *pairs);
/* 0: done is called once, from the loop, or x gets an error response. Otherwise x already has one and *out is NULL.
 * items: borrowed until the run is freed. */
int embed_start(struct exchange *x, int model, const struct embed_item *items, int n, embed_done *done, void *ctx,
		struct embed_run **out);
/* In any state; cancels work in progress and charges it. NULL allowed. */
void embed_free(struct embed_run *r);

/* The numbers in a result, and result i: valid from done until the run is freed. */
uint32_t embed_width(const struct embed_run *r);
const float *embed_result(const struct embed_run *r, int i);
/* The tokens of all texts. */
uint64_t embed_n_tokens(const struct embed_run *r);

#endif
