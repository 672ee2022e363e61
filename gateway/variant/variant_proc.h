/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's atomic procedures. The state of a variant is a hash: gen, rolled, hand, weight, past, past_failed (as in
 * struct variant_word), and sums, the evidence of all gateways, as text. What a base did lately is one, too: n, failed
 * (in thousandths), at (microseconds).
 */
#ifndef GATEWAY_VARIANT_PROC_H
#define GATEWAY_VARIANT_PROC_H

#include "cache/cache.h"

/* Keys: the variant's, and one for the last batch that this gateway has added. Arguments: generation, rolled, by_hand,
 * weight, the batch's number, the base's past (n, failed), the trial_sums that are new. Of a later generation than the
 * stored one they replace what is stored; of the same one the sums are added, unless this batch or a later one was, a
 * rollback is kept, and so is the past once the variant has answered; of an earlier one they are dropped. Values:
 * generation, rolled, by_hand, weight, the variant's answers before, the past, the sums. */
extern const struct cache_proc variant_merge;

enum { VARIANT_MERGE_WORDS = 7 /* values before the sums */ };

/* Keys: the past's, and one for this gateway's last batch. Arguments: the batch's number, n, failed, the most that is
 * kept. What is stored halves every two days, is scaled down to the most, and is forgotten after 30 days without use. A
 * batch counts once. Values: n, failed. */
extern const struct cache_proc variant_remember;

#endif
