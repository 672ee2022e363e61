/* SPDX-License-Identifier: Apache-2.0
 *
 * What an answer takes of its key's concurrency: a place for each sequence that it has in the engine, which is prompts
 * × max(n, best_of, beam width). Where fewer are free than it has prompts, the first ones are submitted, the others
 * wait for places: their prompts are counted at once, so that quota, lengths and refusals are known before the 200, and
 * each is submitted when one before it has ended. Included by answer.h.
 *
 * A cascade counts one place for both its models: whether a second one runs is the operator's decision (cascade.tiers),
 * not the client's, and the engine's own bounds count both.
 */
#ifndef GATEWAY_ANSWER_SLOTS_H
#define GATEWAY_ANSWER_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

struct answer;
struct answer_late;
struct answer_run;
struct submit_frame;

/* An answer's. */
struct answer_slots {
	int each;                 /* of a prompt's sequences */
	int n_held;               /* counted for its key */
	int n_first;              /* prompts that are submitted at once */
	int n_late;               /* prompts that are not submitted */
	int n_free;               /* places of ended prompts, for late ones */
	struct answer_late *late; /* owned; NULL: all were submitted at once and stay so */
};

/* Before anything is submitted. False: the request has been answered (429, or 400 for a fan-out of one prompt that is
 * more than its key may ever have). */
bool answer_slots_take(struct answer *a);
/* Another gateway has admitted it: its slots count, whatever the limit. */
void answer_slots_claim(struct answer *a);
/* Run i is about to be submitted as frame, or has to wait. 1: submit it; 0: it waits; SL_ENOMEM, SL_ECLOSED,
 * SL_ELIMIT. */
int answer_slots_begin(struct answer *a, int i, struct submit_frame *frame);
/* A run has finished: its places are free again. False: its answer has failed, and may be gone. */
bool answer_slots_ended(struct answer *a, struct answer_run *run);
/* A run of an answer that is under way was displaced before its first token: it is asked for again. False: it is not.
 */
bool answer_slots_again(struct answer *a, struct answer_run *run);
/* Nothing more is submitted. */
void answer_slots_drop(struct answer *a);
/* Every place is given back. */
void answer_slots_leave(struct answer *a);
void answer_slots_free(struct answer *a);

#endif
