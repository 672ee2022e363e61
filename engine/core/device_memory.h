/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a device's memory the models' pages get. Private to engine/; the loader's.
 *
 * A part of the device is for this engine and whoever has some of it already (eng_config.device_memory); what is beyond
 * it is the reserve: for the driver, for libraries, for what nobody foresees. Of the part goes off what is taken once
 * the weights of all models are there, whoever took it, and what steps and graphs may take later (kn_memory.later). The
 * rest is for pages.
 */
#ifndef ENGINE_DEVICE_MEMORY_H
#define ENGINE_DEVICE_MEMORY_H

#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

struct device_plan {
	uint64_t total, taken, later; /* bytes: of the device; in use, by anybody; for steps and graphs */
	uint64_t allowed;             /* of the device, for all */
	uint64_t kv;                  /* for pages: 0: nothing is left */
};

/* now: as the device is with all weights on it; later: of all backends together; part: in (0, 1]. */
void device_memory_plan(const struct kn_memory *now, uint64_t later, double part, struct device_plan *out);
/* The plan as a line for the log or an error, at most n bytes. Returns line. */
const char *device_memory_line(const struct device_plan *p, char *line, size_t n);

#endif
