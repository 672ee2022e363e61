/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's atomic procedure for the state of a variant. A hash: gen, rolled, hand, weight (as in struct
 * variant_word), and sums, the evidence of all gateways, as text.
 */
#ifndef GATEWAY_VARIANT_PROC_H
#define GATEWAY_VARIANT_PROC_H

#include "cache/cache.h"

/* Keys: the variant's, and one for the last batch that this gateway has added. Arguments: generation, rolled, by_hand,
 * weight, the batch's number, the trial_sums that are new. Of a later generation than the stored one they replace what
 * is stored; of the same one the sums are added, unless this batch or a later one was, and a rollback is kept; of an
 * earlier one they are dropped. Values: generation, rolled, by_hand, weight, the variant's answers before, the sums. */
extern const struct cache_proc variant_merge;

enum { VARIANT_MERGE_WORDS = 5 /* values before the sums */ };

#endif
