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
#include "gateway/admission/refusals.h"

struct answer;
struct answer_run;
struct exchange;
struct gw_app;
struct load_wait;
struct proto_submit;
struct submit_frame;

/* An answer's. */
struct answer_load {
	struct load_wait *wait;    /* owned; until its first token has come; NULL: it waits for nothing */
	const char *degraded;      /* "model", "length"; NULL: it is not */
	int model;                 /* its index */
	bool exempt;               /* another gateway admitted it: load leaves it as it is */
	bool held;                 /* admitted, but nothing was sent: it may still become an HTTP status */
	bool reporting;            /* its stream is open and has sent only its queue position */
	bool shortened;            /* its max_tokens are its degraded tier's */
	bool cut;                  /* it came to cut_at */
	bool refused;              /* nothing was computed for it: it is charged nothing */
	uint64_t short_at, cut_at; /* tokens sent after which it ends: degraded; and under load; UINT64_MAX: none */
};

/* False: no memory. */
bool answer_load_init(struct answer *a, int model);
/* Another gateway has admitted it already. */
void answer_load_exempt(struct answer *a);
/* What load makes of a request, before an answer is built for it. */
struct load_ruling {
	enum load_verdict verdict;
	enum refusal why;           /* of a refusal: REFUSED_LATE, REFUSED_ERRORS */
	int other;                  /* DEGRADE: by this model; -1: in length */
	uint64_t wait_ms, retry_ms; /* predicted; of a refusal */
};
/* automatic: of the model "auto", s->model being the one that is asked first. */
struct load_ruling answer_load_judge(const struct exchange *x, bool automatic, const struct proto_submit *s);
/* REFUSE: without an answer; or with one, that could have joined another's generation but did not. */
void answer_load_turn_away(struct exchange *x, const struct load_ruling *r);
void answer_load_refuse(struct answer *a, const struct load_ruling *r);
/* DEGRADE: to a and s. */
void answer_load_apply(struct answer *a, const struct load_ruling *r, struct proto_submit *s);
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
