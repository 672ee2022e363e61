/* SPDX-License-Identifier: Apache-2.0
 *
 * A request of the cascade (cascade/cascade.h decides; this carries it out): outwardly one generation, whose
 * subscribers see the text that is shown; inwardly a sequence of the small model, of the large one, or of
 * both. What was shown is never taken back, and no character is lost or repeated at a switch: that is the
 * engine's promise for the tokens that SUBMIT gives it (base/proto/proto.h).
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
struct cascade_run; /* counted; its thread's */

/* Which models a request may use. */
struct cascade_models {
	int small, large; /* indexes; -1: there is none */
	bool can_small, can_large;
};

struct cascade_ask {
	struct gw_snapshot *snapshot; /* the configuration, with its cascade; a reference is taken */
	const char *tier;
	const char *id;                    /* for the log of outcomes */
	const struct proto_submit *submit; /* frame's, with what has changed; its model is not used */
	struct submit_frame *frame;        /* a reference is taken */
	struct cascade_models models;
	uint32_t asked_tokens; /* 0: not given */
	bool wants_notice;     /* of a degradation */
	uint64_t started_ns;   /* the request's */
	uint32_t lane;         /* of its sequences: engine_link_lane */
	/* Not NULL: repeats the run that past describes, with that one's models. */
	const struct casc_past *again;
	bool told_degraded; /* and was informed */
};

/* Plans and submits; *gen is the generation, as gen_start has it, *out the caller's reference. SL_ECLOSED: no
 * engine; SL_ENOTFOUND: none of the models can answer now; SL_ELIMIT, SL_ENOMEM. */
int cascade_run_start(struct gw_thread *t, const struct cascade_ask *ask, uint32_t window_tokens,
		      struct subscriber *first, struct generation **gen, struct cascade_run **out);
/* NULL is allowed. */
void cascade_run_unref(struct cascade_run *r);

/* The model that answers as long as nothing has been shown: for predictions and limits. */
int cascade_run_model(const struct cascade_run *r);
/* It goes to the small model for load, and the request wants to know. */
bool cascade_run_tells_degraded(const struct cascade_run *r);

/* ---- for a gateway that continues it ---- */

/* False: not repeatable, for what it shows depends on more than is known of it. */
bool cascade_run_repeats(const struct cascade_run *r);
/* What they need, and the names of its models ("": it has none of that kind). */
const struct casc_past *cascade_run_past(const struct cascade_run *r);
const char *cascade_run_small(const struct cascade_run *r);
const char *cascade_run_large(const struct cascade_run *r);
uint32_t cascade_run_cached(const struct cascade_run *r);
/* note(ctx) is called when cascade_run_past has become more; true: nothing is released until cascade_run_saved. NULL:
 * no note any more. */
void cascade_run_on_past(struct cascade_run *r, bool (*note)(void *ctx), void *ctx);
void cascade_run_saved(struct cascade_run *r);

/* ---- cascade_report.c ---- */

/* Appends {"plan":…,"why":…,"parts":[{"model":…,"tokens":…}],"escalated":…}, up to now; tokens are those of one of its
 * choices. 0, SL_ELIMIT, SL_ENOMEM. */
int cascade_run_about(const struct cascade_run *r, uint8_t choice, struct sl_buf *out);
/* The same for a line of the access log. */
void cascade_run_line(const struct cascade_run *r, char *out, size_t size);

#endif
