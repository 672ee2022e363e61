/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/core/host_memory.h"

#include <stdio.h>

enum { RESERVE_PART = 8 };
static const uint64_t least_reserve = 128ull << 20, most_reserve = 2ull << 30;

/* Where next to nothing is left, a start with short contexts beats none: estimates err on the high side. */
static const uint64_t least_kv = 16ull << 20;

static uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most_of(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

uint64_t host_memory_reserve(uint64_t total)
{
	return least_of(most_of(total / RESERVE_PART, least_reserve), most_reserve);
}

void host_memory_plan(const struct machine_memory *now, const struct host_needs *needs, struct host_plan *out)
{
	*out = (struct host_plan){
	    .total = now->total, .available = now->available, .reserve = host_memory_reserve(now->total)};
	uint64_t usable = minus(minus(now->available, out->reserve), needs->shared);
	if (needs->bound > 0)
		usable = least_of(usable, needs->bound);
	out->left = minus(minus(usable, needs->weights), needs->work);
	uint64_t want = least_of(most_of(needs->contexts, out->left / 2), needs->useful);
	out->kv = least_of(want, most_of(out->left, least_kv));
}

static double mib(uint64_t bytes) { return (double)bytes / 0x1p20; }

const char *host_memory_line(const struct machine_memory *now, const struct host_needs *needs,
			     const struct host_plan *p, char *line, size_t n)
{
	char shared[64] = "";
	if (needs->shared > 0)
		snprintf(shared, sizeof shared, ", %.0f MiB for pages between engines", mib(needs->shared));
	snprintf(line, n,
		 "memory: %.0f of %.0f MiB are available (by %s), %.0f MiB in reserve, %.0f MiB for weights, %.0f MiB "
		 "for work%s: %.0f MiB are left, %.0f MiB of them for keys and values",
		 mib(p->available), mib(p->total), now->limited_by, mib(p->reserve), mib(needs->weights),
		 mib(needs->work), shared, mib(p->left), mib(p->kv));
	return line;
}
