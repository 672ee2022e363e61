/* SPDX-License-Identifier: Apache-2.0
 *
 * The budget for keys and values of all models, and each model's share of it. Private to engine/; loader thread.
 *
 * eng_config.kv_bytes is the budget, or 0: then it follows from the host's memory (host_memory.h). On a device that
 * reports its memory it follows from that (device_memory.h). Shares are pages (engine/kv/kv_plan.h):
 * eng_model.kv_pages.
 */
#ifndef ENGINE_KV_BUDGET_H
#define ENGINE_KV_BUDGET_H

#include "engine/step/internal.h"

/* Whether the backend reports the memory of a device, which the budget then follows from. */
bool kv_budget_is_of_device(const struct engine *e);
/* Whether the host's memory has room for weights, work and pages beside another engine that runs: in memory that the
 * host says is available, less the reserve. Pages count as engine.kv_memory says; where that is auto, as the least that
 * models start with. True on a device, where loading finds out. False: why not is in line. */
bool kv_budget_fits_beside(const struct engine *e, char *line, size_t n);
/* Sets the models' pages and creates the memory that they share. Models whose metadata is unknown get none. of_device:
 * all weights are loaded. */
void kv_budget_plan(struct engine *e, bool of_device);
/* Why m has less than its context, for the log: bytes that it would need and has, and what to set. Returns line. */
const char *kv_budget_short(const struct eng_model *m, char *line, size_t n);

#endif
