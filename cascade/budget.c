/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests and escalations of the last minute, in six slots of ten seconds. Older slots are cleared as time advances.
 * If the clock steps back, the newest slot counts.
 */
#include "cascade/budget.h"

static uint32_t slot_at(struct casc_budget *b, uint64_t now_ms)
{
	uint64_t slot = now_ms / CASC_SLOT_MS;
	if (slot > b->slot) {
		uint64_t n = slot - b->slot < CASC_SLOTS ? slot - b->slot : CASC_SLOTS;
		for (uint64_t i = 0; i < n; i++) {
			b->requests[(slot - i) % CASC_SLOTS] = 0;
			b->escalations[(slot - i) % CASC_SLOTS] = 0;
		}
		b->slot = slot;
	}
	return (uint32_t)(b->slot % CASC_SLOTS);
}

void casc_budget_request(struct casc_budget *b, uint64_t now_ms) { b->requests[slot_at(b, now_ms)]++; }

bool casc_budget_take(struct casc_budget *b, const struct casc_policy *p, uint64_t now_ms)
{
	uint32_t slot = slot_at(b, now_ms);
	uint64_t requests = 0, escalations = 0;
	for (int i = 0; i < CASC_SLOTS; i++) {
		requests += b->requests[i];
		escalations += b->escalations[i];
	}
	if (escalations >= p->floor && (double)(escalations + 1) > (double)p->share * (double)requests)
		return false;
	b->escalations[slot]++;
	return true;
}
