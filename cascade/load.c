/* SPDX-License-Identifier: Apache-2.0
 *
 * When a tier is sent to the small model because the large one would be too late, and how it comes
 * back. A tier is degraded when the large model's predicted TTFT has been above its target for
 * enter_ms, and recovers when it has been below target × leave_ratio for leave_ms; then the share of
 * its requests that may use the large model grows from none to all over recover_ms, so that returning
 * requests do not degrade it again. Between the two bounds everything stays as it is.
 *
 *   NORMAL ─above─► RISING ─for enter_ms─► DEGRADED ─below─► FALLING ─for leave_ms─► RECOVERING ─► NORMAL
 *      ▲──not above──┘                        ▲──not below──┘    RECOVERING ─above─► DEGRADED
 *
 * A tier whose next better one is degraded is so at once: those served first are degraded last. Nobody
 * is degraded to a model that would be no sooner.
 */
#include "cascade/cascade.h"

static void set_state(struct casc_load *l, enum casc_load_state state, uint64_t now_ms)
{
	l->state = (uint8_t)state;
	l->since_ms = now_ms;
	l->due = 0;
}

bool casc_load_degraded(const struct casc_load *l) { return l->state == CASC_DEGRADED || l->state == CASC_FALLING; }

static void advance(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in)
{
	bool above = in->better_degraded || in->ttft_large_ms > p->target_ms;
	bool below = !in->better_degraded && (double)in->ttft_large_ms < (double)p->target_ms * (double)p->leave_ratio;
	/* A clock that goes back counts as stopped. */
	uint64_t been = in->now_ms > l->since_ms ? in->now_ms - l->since_ms : 0;
	switch ((enum casc_load_state)l->state) {
	case CASC_NORMAL:
		if (above)
			set_state(l, CASC_RISING, in->now_ms);
		break;
	case CASC_RISING:
		if (!above)
			set_state(l, CASC_NORMAL, in->now_ms);
		break;
	case CASC_DEGRADED:
		if (below)
			set_state(l, CASC_FALLING, in->now_ms);
		break;
	case CASC_FALLING:
		if (!below)
			set_state(l, CASC_DEGRADED, in->now_ms);
		else if (been >= p->leave_ms)
			set_state(l, CASC_RECOVERING, in->now_ms);
		break;
	case CASC_RECOVERING:
		if (above)
			set_state(l, CASC_DEGRADED, in->now_ms);
		else if (been >= p->recover_ms)
			set_state(l, CASC_NORMAL, in->now_ms);
		break;
	}
	if (l->state == CASC_RISING &&
	    (in->better_degraded || (in->now_ms >= l->since_ms && in->now_ms - l->since_ms >= p->enter_ms)))
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
		uint64_t been = in->now_ms > l->since_ms ? in->now_ms - l->since_ms : 0;
		l->due += p->recover_ms > 0 ? (float)been / (float)p->recover_ms : 1;
		small_alone = l->due < 1;
		l->due -= small_alone ? 0 : 1;
	}
	return small_alone && in->ttft_small_ms < in->ttft_large_ms;
}
