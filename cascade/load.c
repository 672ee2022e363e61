/* SPDX-License-Identifier: Apache-2.0
 *
 * Degrades a tier to the small model while the large model is too slow. The tier becomes DEGRADED when the large
 * model's predicted TTFT stays above the target for enter_ms. It recovers when the prediction stays below target ×
 * leave_ratio for leave_ms; then the large model's share of its requests grows from none to all over recover_ms, so
 * that returning requests don't degrade it again. Between the two bounds the state does not change.
 *
 *   NORMAL ─above─► RISING ─for enter_ms─► DEGRADED ─below─► FALLING ─for leave_ms─► RECOVERING ─► NORMAL
 *      ▲──not above──┘                        ▲──not below──┘    RECOVERING ─above─► DEGRADED
 *
 * RISING → DEGRADED: advance; all others: next_state. A tier is degraded at once if one of higher priority is: high
 * priorities degrade last. A request is moved to the small model only if that is faster.
 */
#include "cascade/cascade.h"

static void set_state(struct casc_load *l, enum casc_load_state state, uint64_t now_ms)
{
	l->state = (uint8_t)state;
	l->since_ms = now_ms;
	l->due = 0;
}

bool casc_load_degraded(const struct casc_load *l) { return l->state == CASC_DEGRADED || l->state == CASC_FALLING; }

/* How long the state has lasted. A clock that steps back counts as stopped. */
static uint64_t lasted(const struct casc_load *l, uint64_t now_ms)
{
	return now_ms > l->since_ms ? now_ms - l->since_ms : 0;
}

static enum casc_load_state next_state(const struct casc_load *l, const struct casc_load_policy *p,
				       const struct casc_load_in *in)
{
	bool above = in->better_degraded || in->ttft_large_ms > p->target_ms;
	bool below = !in->better_degraded && (double)in->ttft_large_ms < (double)p->target_ms * (double)p->leave_ratio;
	uint64_t ms = lasted(l, in->now_ms);
	switch ((enum casc_load_state)l->state) {
	case CASC_NORMAL:
	case CASC_RISING: return above ? CASC_RISING : CASC_NORMAL;
	case CASC_DEGRADED: return below ? CASC_FALLING : CASC_DEGRADED;
	case CASC_FALLING: return !below ? CASC_DEGRADED : ms >= p->leave_ms ? CASC_RECOVERING : CASC_FALLING;
	case CASC_RECOVERING: return above ? CASC_DEGRADED : ms >= p->recover_ms ? CASC_NORMAL : CASC_RECOVERING;
	}
	return (enum casc_load_state)l->state;
}

static void advance(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in)
{
	enum casc_load_state next = next_state(l, p, in);
	if (next != l->state)
		set_state(l, next, in->now_ms);
	if (l->state == CASC_RISING && (in->better_degraded || lasted(l, in->now_ms) >= p->enter_ms))
		set_state(l, CASC_DEGRADED, in->now_ms);
}

bool casc_load_decide(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in)
{
	if (p->target_ms == 0) {
		set_state(l, CASC_NORMAL, in->now_ms);
		return false;
	}
	advance(l, p, in);
	bool small_alone = casc_load_degraded(l);
	if (l->state == CASC_RECOVERING) {
		l->due += p->recover_ms > 0 ? (float)lasted(l, in->now_ms) / (float)p->recover_ms : 1;
		small_alone = l->due < 1;
		l->due -= small_alone ? 0 : 1;
	}
	return small_alone && in->ttft_small_ms < in->ttft_large_ms;
}
