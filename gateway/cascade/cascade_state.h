/* SPDX-License-Identifier: Apache-2.0
 *
 * What all requests of the cascade share under one configuration: the scorer, and each tier's policy, load and budget.
 * Any thread.
 */
#ifndef GATEWAY_CASCADE_STATE_H
#define GATEWAY_CASCADE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "cascade/cascade.h"
#include "gateway/cascade/cascade_log.h"
#include "gateway/config/gw_config.h"

struct cascade_state;
struct cascade_tier; /* owned by its state */

/* before: the previous configuration's state, from which tiers' loads and budgets are copied; NULL: none.
 * 0 or a code with *err; *out is NULL if cfg has no cascade. */
int cascade_state_create(const struct gw_config *cfg, struct cascade_state *before, struct cascade_state **out,
			 struct sl_err *err);
/* NULL allowed. */
void cascade_state_destroy(void *s);

/* A request got this score, without rules: for the metric of drift. */
void cascade_state_scored(struct cascade_state *s, float plain_score);
const struct casc_scorer *cascade_state_scorer(const struct cascade_state *s);
/* NULL: outcomes are not logged. */
struct line_file *cascade_state_log(const struct cascade_state *s);
/* name: a tier of the configuration; BUG otherwise. */
struct cascade_tier *cascade_state_tier(struct cascade_state *s, const char *name);

const struct casc_policy *cascade_tier_policy(const struct cascade_tier *t);
const char *cascade_tier_name(const struct cascade_tier *t);
/* casc_load_decide for a request of this tier. */
bool cascade_tier_degraded(struct cascade_tier *t, uint32_t ttft_small_ms, uint32_t ttft_large_ms, uint64_t now_ms);
/* Updates every tier with the engine's newest predicted TTFT of both models, by priority, so that tiers are degraded
 * and recover even while they have no requests. */
void cascade_state_see(struct cascade_state *s, const uint32_t small_ms[PROTO_PRIORITIES],
		       const uint32_t large_ms[PROTO_PRIORITIES], uint64_t now_ms);
/* casc_step with the tier's budget. */
int cascade_tier_step(struct cascade_tier *t, struct casc *c, const struct casc_event *e, struct casc_actions *out);

#endif
