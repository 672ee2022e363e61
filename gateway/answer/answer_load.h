/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers under load (the rules: load.h): refused, shortened, answered by another model, queued with their position
 * reported, displaced, cut. Included by answer.h.
 */
#ifndef GATEWAY_ANSWER_LOAD_H
#define GATEWAY_ANSWER_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/admission/load.h"

struct answer;
struct answer_run;
struct answer_spec;
struct gw_app;
struct line_wait;
struct proto_submit;
struct submit_frame;

/* An answer's. */
struct answer_load {
	struct line_wait *wait;    /* owned; until its first token has come; NULL: it waits for nothing */
	const char *degraded;      /* "model", "length"; NULL: it is not */
	int model;                 /* its index */
	bool exempt;               /* another gateway admitted it: load leaves it as it is */
	bool held;                 /* admitted, but nothing was said yet: it may still become an HTTP status */
	bool telling;              /* its stream is open and has sent only its queue position */
	bool shortened;            /* its max_tokens are its degraded tier's */
	bool cut;                  /* it came to cut_at */
	bool refused;              /* nothing was computed for it: it is charged nothing */
	uint64_t short_at, cut_at; /* tokens sent after which it ends: degraded; and under load; UINT64_MAX: none */
};

/* False: no memory. */
bool answer_load_init(struct answer *a, int model);
/* Another gateway has admitted it already. */
void answer_load_exempt(struct answer *a);
/* Before it is shared or submitted. DEGRADE: that has been done to a and s. REFUSE: call answer_load_refuse
 * unless it finds a coalesced request. */
enum load_verdict answer_load_first(struct answer *a, struct proto_submit *s, uint64_t *retry_ms);
void answer_load_refuse(struct answer *a, uint64_t retry_ms);
/* Run i is submitted as frame: keeps it if it may be submitted again. */
void answer_load_keep(struct answer *a, int i, struct submit_frame *frame);
/* A run's prompt is counted and its wait predicted. False: it is not to be admitted (yet). */
bool answer_load_queued(struct answer *a, struct answer_run *run);
/* A late run's prompt is counted (answer_slots.h). False: it has been refused. */
bool answer_load_counted(struct answer *a, uint32_t n_prompt);
/* It is about to be admitted. False: it has been refused. */
bool answer_load_enter(struct answer *a);
/* Its first token has come. */
void answer_load_begun(struct answer *a, uint64_t now_ns);
/* It waits no more. May be called again. */
void answer_load_end(struct answer *a);
/* Others are before it. */
bool answer_load_has_place(const struct answer *a);
/* Its stream is open, but nothing is sent before its first token? */
bool answer_load_quiet(const struct answer *a);
/* It has sent as many tokens as it may. */
bool answer_load_is_cut(struct answer *a);
/* An engine's newest word. */
void answers_load(void *app, const struct proto_load *load);
/* Gauges; from a tick. */
void answer_load_gauges(const struct gw_app *app);

#endif
