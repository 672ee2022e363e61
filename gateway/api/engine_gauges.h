/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics that repeat what the engine last reported of itself and of its device. One thread sets them.
 */
#ifndef GATEWAY_ENGINE_GAUGES_H
#define GATEWAY_ENGINE_GAUGES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/proto/proto.h"

/* Once. */
void engine_gauges_register(void);
/* up: the link to the engine. Sets the device's gauges, too. */
void engine_gauges_set(bool up, const struct proto_stats *st);
/* The figures of one model, which appear with its first report. */
void engine_gauges_model(const char *name, const struct proto_figures *f);
/* One engine's own figures, by its name, which appear with its first report. n_prefixes: digests that it has published.
 * role: enum gw_engine_role, now. */
void engine_gauges_one(const char *name, bool up, const struct proto_stats *st, size_t n_prefixes, int role);
/* The device's gauges appear with the first report of a known device. When reports stop, sluice_device_up is 0 and so
 * are the others. */
void device_gauges_set(const struct proto_device *d);

#endif
