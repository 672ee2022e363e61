/* SPDX-License-Identifier: Apache-2.0
 *
 * Several answers to one request: n, best_of, and the results of a beam search. Step thread.
 *
 * Each choice is a sequence of its own with the request's prompt. The first, the lead, carries the request (index,
 * deadline, DONE) to its end; the others follow it. They share the prompt's pages as any two requests with one prompt
 * do: through the prefix tree, where followers wait for the lead's pages. So no choice depends on the number of others.
 *
 * If all choices are reported, each is reported as it is made, and they share the request's credit token by token.
 * If only the best are reported, reporting starts after all have ended; credit then pays for the report.
 */
#ifndef ENGINE_CHOICES_H
#define ENGINE_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/proto/proto.h"
#include "engine/step/beam.h"

struct eng_seq;
struct step;

/* What a choice has said, until it is told. */
struct choice_log {
	struct sl_buf records; /* struct choice_record and its tops, one after another */
	struct sl_buf text;
	uint32_t n, told;
	double sum; /* of the log probabilities */
	uint8_t finish, length_why;
};

struct choices {
	struct eng_seq *lead;
	struct eng_seq *members[PROTO_MAX_CHOICES]; /* NULL: ended */
	uint8_t n, n_made, n_running;
	bool silent;       /* told at the end */
	bool want_logprob; /* by the client; the ranking wants it anyway */
	bool lost;         /* a log ran out of memory: the request fails */
	struct choice_log logs[PROTO_MAX_CHOICES];
	uint8_t order[PROTO_MAX_CHOICES]; /* of telling, the best first */
	uint8_t telling;                  /* the next one to be told */
	uint32_t credit, n_completion;
	uint8_t finish, length_why; /* of choice 0 as told */
	/* A beam search: the lead is its only member. */
	bool searching;
	struct beam beam;
	int rows[BEAM_MAX]; /* slots */
	uint32_t n_pages[BEAM_MAX];
	int32_t *next_rows; /* [width][max_pages] */
};

/* The request of s, whose tokens are known and which is scheduled, wants several choices: makes them.
 * 0 or SL_ENOMEM. */
int choices_make(struct step *st, struct eng_seq *s);
void choices_credit(struct step *st, struct eng_seq *lead, uint32_t n_tokens);
/* A token of s, in the step's choice and text. */
void choices_token(struct step *st, struct eng_seq *s);
/* s has ended for this reason; the request ends with its last choice. */
void choices_end(struct step *st, struct eng_seq *s, uint8_t finish);
/* The request ends now: all but the lead leave. Frees; the lead has no choices any more. */
void choices_drop(struct step *st, struct eng_seq *lead);
/* The search has ended: its hypotheses are the choices. */
void choices_found(struct step *st, struct eng_seq *lead);

#endif
