/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/remote_breaker.h"

void breaker_init(struct breaker *b, uint32_t failures, uint64_t cool_down_ns)
{
	*b = (struct breaker){.most = failures, .cool_down_ns = cool_down_ns};
}

static bool breaker_set_state(struct breaker *b, enum breaker_state to)
{
	bool was = breaker_closed(b);
	if (to == BREAKER_OPEN && b->state != BREAKER_HALF_OPEN)
		b->n_openings++;
	b->state = to;
	return breaker_closed(b) != was;
}

bool breaker_ok(struct breaker *b, bool probe)
{
	b->probes = 0;
	if (!probe || b->state != BREAKER_CLOSED)
		b->failures = 0;
	/* A request that began before the failures says nothing of now. */
	if (!probe && b->state != BREAKER_CLOSED)
		return false;
	return breaker_set_state(b, BREAKER_CLOSED);
}

bool breaker_failed(struct breaker *b, bool probe, uint64_t now_ns)
{
	uint32_t *n = probe ? &b->probes : &b->failures;
	*n += *n < b->most;
	if (b->state == BREAKER_OPEN || (b->state == BREAKER_HALF_OPEN && !probe))
		return false;
	if (b->state != BREAKER_HALF_OPEN && b->failures + b->probes < b->most)
		return false;
	b->opened_ns = now_ns;
	return breaker_set_state(b, BREAKER_OPEN);
}

bool breaker_may_probe(struct breaker *b, uint64_t now_ns)
{
	if (b->state != BREAKER_OPEN || now_ns - b->opened_ns < b->cool_down_ns)
		return false;
	breaker_set_state(b, BREAKER_HALF_OPEN);
	return true;
}

bool breaker_closed(const struct breaker *b) { return b->state == BREAKER_CLOSED; }
