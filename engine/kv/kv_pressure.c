/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_pressure.h"

enum { MOST_PART = 4 };

static uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

static bool is_pressed(const struct kv_pressure *p, const struct kv_pressure_reading *now)
{
	return now->available < p->reserve / 2 || now->events > p->events ||
	       (now->stalled >= KV_PRESSURE_STALLED && now->available / 2 < p->reserve);
}

static int64_t release(const struct kv_pressure *p, const struct kv_pressure_reading *now)
{
	uint64_t lacks = now->available < p->reserve ? p->reserve - now->available : 0;
	return (int64_t)least_of(most_of(lacks, p->all / KV_PRESSURE_PART), p->all / MOST_PART);
}

static int64_t restore(const struct kv_pressure *p, const struct kv_pressure_reading *now)
{
	uint64_t step = least_of(p->all / KV_PRESSURE_PART, now->withheld);
	uint64_t keep = p->reserve + step; /* what is used again is taken from what is available */
	return now->available > keep + step ? -(int64_t)step : 0;
}

int64_t kv_pressure_decide(struct kv_pressure *p, const struct kv_pressure_reading *now)
{
	if (!p->begun)
		p->events = now->events; /* what happened before does not count */
	p->begun = true;
	bool pressed = is_pressed(p, now);
	p->events = now->events;
	p->calm = pressed ? 0 : p->calm + 1;
	if (pressed)
		return release(p, now);
	if (p->calm < KV_PRESSURE_CALM || now->withheld == 0)
		return 0;
	p->calm = 0;
	return restore(p, now);
}
