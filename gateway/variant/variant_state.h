/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one variant in this process, shared by its threads. Any thread; one lock each.
 *
 * The evidence is in three parts: what the store had when it was last asked (total), the batch that is on its way there
 * (sent), and what came since (the trial's sums). All together are what is judged. A store that does not answer may
 * have taken the batch none the less, so the same one is sent again, and its number makes it count once.
 *
 * `generation` counts an administrator's restorations and weights: evidence of an earlier one is dropped.
 */
#ifndef GATEWAY_VARIANT_STATE_H
#define GATEWAY_VARIANT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/trial/trial.h"

struct variant_state;

enum { VARIANT_NAME_BYTES = 132, VARIANT_NO_WEIGHT = -1 };

/* What was decided. */
struct variant_word {
	int64_t generation;
	enum trial_cause rolled; /* TRIAL_ALIKE: it is not rolled back */
	bool by_hand;            /* an administrator has rolled it back; rolled is then TRIAL_ALIKE */
	int64_t weight;          /* an administrator's, in thousandths; VARIANT_NO_WEIGHT: the configured one */
	struct trial_past past;  /* the base's history; it stays as it is from the variant's first answer on */
};

/* For an administrator, and for metrics. */
struct variant_view {
	struct variant_word word;
	struct trial_sums sums;
	double evidence[TRIAL_CAUSES]; /* logarithm, as a share of the bound: at 1 it is rolled back */
	bool known;                    /* the store has told, or there was time for it */
};

struct variant_past;

/* The one of that key (a digest of what is compared), with a reference. NULL: no memory. of, name: for the log. past:
 * its base's; NULL: none. The state takes a reference of its own. */
struct variant_state *variant_state_get(uint64_t key, const char *of, const char *name, struct variant_past *past);
void variant_state_unref(struct variant_state *s); /* NULL allowed */

const char *variant_state_of(const struct variant_state *s);
const char *variant_state_name(const struct variant_state *s);
uint64_t variant_state_key(const struct variant_state *s);
struct variant_view variant_state_view(struct variant_state *s);
/* The weight in force: the administrator's, else `configured`; 0 while rolled back, or not known. */
double variant_state_weight(struct variant_state *s, double configured);
/* An answer of one arm. */
void variant_state_take(struct variant_state *s, enum trial_arm arm, const struct trial_answer *a);
/* An administrator: rolls back, restores with new evidence, sets a weight (thousandths; VARIANT_NO_WEIGHT: as
 * configured). The store learns of it next, or as soon as it answers again. */
void variant_state_roll_back(struct variant_state *s);
void variant_state_restore(struct variant_state *s);
void variant_state_set_weight(struct variant_state *s, int64_t weight);

/* ---- for variant_sync.c ---- */

/* Up to `room` states, each with a reference. Returns how many. */
size_t variant_states_list(struct variant_state **out, size_t room);
/* What to send: *word, and the batch *sums with its number. False: an exchange is under way. */
bool variant_state_send(struct variant_state *s, struct variant_word *word, struct trial_sums *sums, int64_t *batch);
/* The store's reply: its word, its sums and how many answers the variant had before. Judges them. NULL: it did not
 * answer. */
void variant_state_told(struct variant_state *s, const struct variant_word *word, const struct trial_sums *sums,
			int64_t before);

#endif
