/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a prompt is computed: by the engine that decodes its answer, or apart, by an engine of role prefill, which
 * hands the pages over (engine/kv/kv_hand.h). Decided once the prompt is counted, so what the decoding engine lacks of
 * it is known. Pure; the result says why.
 *
 *   apart    at least `tokens` of the prompt are missing (256), or the decoding engine has at least `busy` requests (8)
 *            and `busy_tokens` are missing (64); and the prefill engine has fewer than `queue` requests (10)
 *   local    otherwise; and a request of priority local_priority or worse while the prefill engine has any request
 *
 * The thresholds are those of conditional disaggregation in NVIDIA Dynamo; they stand in the configuration.
 */
#ifndef GATEWAY_PREFILL_CHOICE_H
#define GATEWAY_PREFILL_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/config/gw_config.h"

enum prefill_why {
	PREFILL_UNDECIDED, /* the engine computes all prompts itself, or the request ended before */
	PREFILL_APART,
	/* Local, because: */
	PREFILL_SHORT,   /* too little of the prompt is missing */
	PREFILL_QUEUE,   /* the prefill engine has too many requests */
	PREFILL_TIER,    /* the request's priority yields */
	PREFILL_NONE,    /* no prefill engine has the model now, or errors limit those that have */
	PREFILL_UNFIT,   /* the request's prompt or the model's pages can't be handed over */
	PREFILL_REFUSED, /* the prefill engine's link took no more */
	PREFILL_WHYS,
};

struct prefill_question {
	bool fits, has_engine;
	uint32_t n_missing; /* tokens of the prompt */
	uint32_t n_queued;  /* requests of the prefill engine */
	uint32_t n_running; /* of the decoding engine */
	uint8_t priority;
};

/* A decision, and what became of it. */
struct prefill_choice {
	enum prefill_why why;
	int engine; /* that computes the prompt; -1: the one that decodes */
	uint32_t n_missing;
	bool handed; /* the hand-over has ended: */
	uint8_t end; /* enum proto_handed_why */
	uint32_t n_pages, waited_us;
};

enum prefill_why prefill_choose(const struct gw_prefill *p, const struct prefill_question *q);
/* "apart", "short", … */
const char *prefill_why_name(enum prefill_why why);
/* Of enum proto_handed_why: "all", "late", … */
const char *prefill_end_name(uint8_t end);

#endif
