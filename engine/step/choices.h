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

/* The tokens of a choice until they are reported. */
struct choice_log {
	struct sl_buf records; /* per token: struct choice_record, then its top tokens */
	struct sl_buf text;
	uint32_t n, n_reported;
	uint32_t n_drawn; /* including the token that ended it, which is not reported if it adds no text */
	double sum;       /* sum over the log probabilities of drawn tokens */
	uint8_t finish, length_why, stop;
	uint32_t stop_at;
};

struct choices {
	struct eng_seq *lead;
	struct eng_seq *members[PROTO_MAX_CHOICES]; /* NULL: ended */
	uint8_t n, n_made, n_running;
	bool silent;       /* reported at the end */
	bool want_logprob; /* wanted by the client; the ranking needs them anyway */
	bool lost;         /* a log ran out of memory: the request fails */
	struct choice_log logs[PROTO_MAX_CHOICES];
	uint8_t order[PROTO_MAX_CHOICES]; /* of reporting, the best first */
	uint8_t n_reported;               /* of order */
	uint32_t credit, n_completion;
	uint8_t finish, length_why; /* of choice 0 as reported */
	/* A beam search, whose only member is the lead: beam.width > 0. */
	struct beam beam;
	int rows[BEAM_MAX]; /* slots */
	uint32_t n_pages[BEAM_MAX];
	int32_t *next_rows; /* [width] rows of page tables */
};

/* Makes the choices that the request of s wants. s has its tokens and is scheduled. 0 or SL_ENOMEM. */
int choices_make(struct step *st, struct eng_seq *s);
void choices_credit(struct step *st, struct eng_seq *lead, uint32_t n_tokens);
/* Takes the token that s drew from the step's choice and text. reported: it is part of the answer; otherwise it only
 * ended it. */
void choices_token(struct step *st, struct eng_seq *s, bool reported);
/* s has ended with this reason. The request ends with its last choice. */
void choices_end(struct step *st, struct eng_seq *s, uint8_t finish);
/* The request ends: all but the lead leave. Frees lead->choices. */
void choices_drop(struct step *st, struct eng_seq *lead);
/* The search has ended: its hypotheses become the choices. */
void choices_found(struct step *st, struct eng_seq *lead);

#endif
