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
/* Both ignore c NULL. */
void variant_counts_add(struct variant_counts *c, enum variant_end end);
/* state NULL: the base. */
void variant_counts_show(struct variant_counts *c, double weight, struct variant_state *state);

#endif
