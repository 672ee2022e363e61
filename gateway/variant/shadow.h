/* SPDX-License-Identifier: Apache-2.0
 *
 * Shadow traffic: a variant gets a copy of a request that another one has answered. The copy begins when that answer
 * has ended well, at the last priority, once nothing waits for the engines (soon, or not at all), and ends as soon as
 * something does; so it delays no request. Nor does it begin while errors limit its model. Its tokens are dropped as
 * they come. What is measured: latencies (of the tier "shadow" and the model "shadow:NAME" in gateway/observe), how
 * both answers ended, their lengths, whether their first tokens are the same. It belongs to the tenant for the engine,
 * where prefixes are erased with the tenant's, and to nobody for quotas, records and usage.
 *
 * A thread has one struct shadows, with at most SHADOW_MOST copies at once.
 */
#ifndef GATEWAY_SHADOW_H
#define GATEWAY_SHADOW_H

#include "gateway/variant/variant.h"

struct gw_thread;
struct shadows;
struct submit_frame;

enum { SHADOW_MOST = 2, SHADOW_MS = 60000 /* the longest that one may take */ };

struct shadows *shadows_create(struct gw_thread *t); /* NULL: no memory */
void shadows_destroy(struct shadows *s);             /* NULL allowed */

/* An answer whose copy is wanted. */
struct shadow_ask {
	const struct variant *variant; /* that gets it; NULL: none does */
	struct submit_frame *frame;    /* counted; the answer's SUBMIT, of one choice */
	unsigned given;                /* as in variant_submit */
	bool has_first;                /* first_id is the answer's first token */
	uint32_t first_id;
};

/* Which variant gets a copy of a request that `by` answers, by its share; NULL: none. */
const struct variant *shadow_pick(const struct variant *by, double draw);
/* The answer has ended after n tokens, with finish_reason "length" or not. Borrows ask. */
void shadow_begin(struct shadows *s, const struct shadow_ask *ask, uint32_t n_tokens, bool by_length);

#endif
