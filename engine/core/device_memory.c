/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/core/device_memory.h"

#include <stdio.h>

void device_memory_plan(const struct kn_memory *now, uint64_t later, uint64_t adapters, double part,
			struct device_plan *out)
{
	uint64_t there = now->free < now->total ? now->free : now->total;
	*out = (struct device_plan){.total = now->total,
				    .taken = now->total - there,
				    .later = later,
				    .adapters = adapters,
				    .allowed = (uint64_t)((double)now->total * part)};
	out->allowed = out->allowed < now->total ? out->allowed : now->total;
	uint64_t left = out->allowed > out->taken ? out->allowed - out->taken : 0;
	out->kv = left > later && left - later > adapters ? left - later - adapters : 0;
}

static double mib(uint64_t bytes) { return (double)bytes / 0x1p20; }

const char *device_memory_line(const struct device_plan *p, char *line, size_t n)
{
	char adapters[48] = "";
	if (p->adapters > 0)
		snprintf(adapters, sizeof adapters, ", %.0f MiB for adapters", mib(p->adapters));
	snprintf(line, n,
		 "device memory: %.0f of %.0f MiB are taken with all weights, %.0f MiB kept for steps and graphs%s, "
		 "%.0f MiB in reserve: %.0f MiB for keys and values",
		 mib(p->taken), mib(p->total), mib(p->later), adapters, mib(p->total - p->allowed), mib(p->kv));
	return line;
}
