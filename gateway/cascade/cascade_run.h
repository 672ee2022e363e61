/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: carries out a request of the cascade, which cascade/cascade.h decides.
 *
 *   run      one request; to its subscribers one generation (gateway/generation)
 *   side     one of its two models, small or large, with at most one sequence on the engine link
 *   hold     the small model's tokens wait in a queue until the state machine releases them
 *   switch   the large model continues the answer; shown tokens are never withdrawn or repeated
 *
 * State. struct casc (cascade/cascade.h) is the state machine and casc_step its only transition. Each event goes
 * begin -> casc_step -> carry out the actions -> flush -> credit and timer -> end:
 *
 *   submit, close, credit    cascade_side.c        deliver tokens and the end   cascade_feed.c
 *   events and actions       cascade_run.c         metrics, logs, the reply     cascade_report.c
 *
 * Shared by all threads: cascade_state.h (the scorer, each tier's load and budget), cascade_log.h (outcomes).
 *
 * Thread: the thread of the request. Callers: gateway/answer, gateway/api.
 */
#ifndef GATEWAY_CASCADE_RUN_H
#define GATEWAY_CASCADE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/cascade/cascade_state.h"
#include "gateway/generation/generation.h"
#include "gateway/loop/thread.h"

struct gw_snapshot;
struct submit_frame;
struct cascade_run; /* counted; used on its thread only */

/* Which models a request may use. */
struct cascade_models {
	int small, large; /* indexes; -1: none */
	bool can_small, can_large;
};

struct cascade_ask {
	struct gw_snapshot *snapshot; /* the configuration, with its cascade; a reference is taken */
	const char *tier;
	const char *id;                    /* for the outcome log */
	const struct proto_submit *submit; /* frame's, with later changes; its model is ignored */
	struct submit_frame *frame;        /* a reference is taken */
	struct cascade_models models;
	uint32_t asked_tokens; /* 0: not given */
	bool wants_notice;     /* if it is degraded */
	uint64_t started_ns;   /* the request's */
	uint32_t lane;         /* of its sequences: engine_link_lane */
	/* Not NULL: repeats the run that this describes, with the same models. */
	const struct casc_past *again;
	bool told_degraded; /* its client was notified of the degradation */
};

/* Plans and submits. *gen: as from gen_start; *out: the caller's reference. SL_ECLOSED: no engine; SL_ENOTFOUND: no
 * model can answer now; SL_ELIMIT; SL_ENOMEM. */
int cascade_run_start(struct gw_thread *t, const struct cascade_ask *ask, uint32_t window_tokens,
		      struct subscriber *first, struct generation **gen, struct cascade_run **out);
/* NULL allowed. */
void cascade_run_unref(struct cascade_run *r);

/* The model that answers first: for predictions and limits. */
int cascade_run_model(const struct cascade_run *r);
/* The model whose tokens come next, as far as is known: the large one once it is to take over. */
int cascade_run_awaits(const struct cascade_run *r);
/* The large model, if the plan has it take over an answer that the small one begins; -1: it does not. */
int cascade_run_second(const struct cascade_run *r);
/* Is it degraded to the small model by load, and has its request asked for a notice? */
bool cascade_run_tells_degraded(const struct cascade_run *r);

/* ---- for gateways that may continue it ---- */

/* Can another gateway repeat it? False: its output depends on more than cascade_run_past. */
bool cascade_run_repeats(const struct cascade_run *r);
/* What repeats it, and the names of its models ("": none). */
const struct casc_past *cascade_run_past(const struct cascade_run *r);
const char *cascade_run_small(const struct cascade_run *r);
const char *cascade_run_large(const struct cascade_run *r);
uint32_t cascade_run_cached(const struct cascade_run *r);
/* note(ctx) is called when cascade_run_past has gained facts. It returns true to stop all output until
 * cascade_run_saved. NULL: removes note. */
void cascade_run_on_past(struct cascade_run *r, bool (*note)(void *ctx), void *ctx);
void cascade_run_saved(struct cascade_run *r);

/* ---- cascade_report.c ---- */

/* Appends {"plan":…,"why":…,"parts":[{"model":…,"tokens":…}],"escalated":…} as of now; counts tokens of one choice.
 * 0, SL_ELIMIT, SL_ENOMEM. */
int cascade_run_about(const struct cascade_run *r, uint8_t choice, struct sl_buf *out);
/* The same, for the access log. */
void cascade_run_line(const struct cascade_run *r, char *out, size_t size);
/* When the large model took over; 0: it has not. */
uint64_t cascade_run_switched_ns(const struct cascade_run *r);

#endif
