/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: requests whose results are vectors and scores, not text. A run computes the texts of one request:
 *
 *   COUNTING ──all counted──► CHARGING ──granted──► RUNNING ──all results──► OVER
 *      └───────────┴── refused, too long, engine lost, too slow ──────────────┘  (x is answered)
 *
 * Every text is counted before the first is computed, so that a text which is too long is refused by its index and a
 * budget is charged once, for tokens that are known. Each text is a sequence of its own in the engine: they join steps
 * with all other work at the tier's priority. At most EMBED_WINDOW of a request are there at once, so a request of
 * thousands fills no queue; one that the engine turns away for a full queue is sent again when another has ended.
 *
 * A run counts one place of its key's concurrency. It belongs to its exchange and lives on its thread. embed_set_state
 * owns the transitions.
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
	int index;                     /* in the field's array; -1: it is none */
};

/* All results are there. */
typedef void embed_done(void *ctx);

/* The model for a request that needs one of `does` (enum proto_does); -1: x is answered. *pairs: the model scores. */
int embed_choose_model(struct exchange *x, const char *name, unsigned does, bool *pairs);
/* 0: done is called once from the loop, or x is answered with an error. Otherwise x is answered already and *out is
 * NULL. items: borrowed until the run is freed. */
int embed_start(struct exchange *x, int model, const struct embed_item *items, int n, embed_done *done, void *ctx,
		struct embed_run **out);
/* In any state; cancels what is under way and pays for it. NULL is fine. */
void embed_free(struct embed_run *r);

/* Numbers of a result, and result i: valid once it is done, until the run is freed. */
uint32_t embed_width(const struct embed_run *r);
const float *embed_result(const struct embed_run *r, int i);
/* Of all texts. */
uint64_t embed_n_tokens(const struct embed_run *r);

#endif
