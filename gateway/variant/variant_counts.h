/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of variants: answers by how they ended, the weight in force, whether it is rolled back, the evidence. Their
 * latencies and lengths are those of gateway/observe/latency.h, with the label `variant`. Any thread.
 */
#ifndef GATEWAY_VARIANT_COUNTS_H
#define GATEWAY_VARIANT_COUNTS_H

#include "gateway/variant/variant.h"

struct variant_counts;

/* The row of a variant, which lives as long as the process. NULL: VARIANT_ROWS were named since its start, or there is
 * no memory. */
enum { VARIANT_ROWS = 64 };
struct variant_counts *variant_counts_get(const char *of, const char *name);
/* All ignore c NULL. */
void variant_counts_add(struct variant_counts *c, enum variant_end end);
enum variant_shadow {
	SHADOW_DONE, /* copies: done, failed, ended for load, not begun for load */
	SHADOW_FAILED,
	SHADOW_INTERRUPTED,
	SHADOW_SKIPPED,
	SHADOW_OTHER_TOKEN, /* of those done: with another first token, with another finish_reason */
	SHADOW_OTHER_END,
	SHADOW_TOKENS, /* of copies that are done; of the answers that they copy */
	SHADOW_ANSWER_TOKENS,
	SHADOW_COUNTS
};
void variant_counts_shadow(struct variant_counts *c, enum variant_shadow what, uint64_t n);
/* state NULL: the base. */
void variant_counts_show(struct variant_counts *c, double weight, struct variant_state *state);

#endif
