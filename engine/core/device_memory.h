/* SPDX-License-Identifier: Apache-2.0
 *
 * The budget of a device's memory for KV pages. Private to engine/; loader thread.
 *
 * eng_config.device_memory is the fraction of the device that this engine and other processes may use together; the
 * rest is a reserve for the driver and libraries. From that fraction the budget subtracts all memory in use once every
 * model's weights are loaded, what steps and graphs may allocate later (kn_memory.later), and what adapters may take.
 * Pages get the remainder.
 */
#ifndef ENGINE_DEVICE_MEMORY_H
#define ENGINE_DEVICE_MEMORY_H

#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

struct device_plan {
	uint64_t total, taken, later; /* bytes: of the device; in use by any process; for steps and graphs */
	uint64_t adapters;            /* bytes for adapters that are not there yet */
	uint64_t allowed;             /* bytes that all processes together may use */
	uint64_t kv;                  /* bytes for pages; 0: nothing is left */
};

/* now: with all weights on the device; later, adapters: of all backends together; part: in (0, 1]. */
void device_memory_plan(const struct kn_memory *now, uint64_t later, uint64_t adapters, double part,
			struct device_plan *out);
/* The plan as a line for the log or an error, at most n bytes. Returns line. */
const char *device_memory_line(const struct device_plan *p, char *line, size_t n);

#endif
