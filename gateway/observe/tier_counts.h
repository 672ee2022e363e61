/* SPDX-License-Identifier: Apache-2.0
 *
 * What is counted by tier: tokens, and goodput: answers within their tier's targets (observe.h). All threads together.
 */
#ifndef GATEWAY_TIER_COUNTS_H
#define GATEWAY_TIER_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Any number of times, but not from two threads at once: a tier's name is registered when it is new. */
void tier_counts_register(const char *const *tiers, size_t n_tiers);
/* Its targets, 0: none; from now on. */
void tier_counts_targets(const char *tier, uint64_t ttft_ms, uint64_t itl_ms);
/* At a request's end. */
void tier_counts_tokens(const char *tier, uint32_t n_prompt, uint32_t n_completion);
/* An answer that can be judged, and whether it was within its targets. */
void tier_counts_judged(const char *tier, bool good);

#endif
