/* SPDX-License-Identifier: Apache-2.0
 *
 * Device health for the engine's metrics: a dedicated thread queries the driver twice a second
 * (kernels/backend/nvml.h), so a driver that hangs blocks no other thread.
 */
#ifndef ENGINE_DEVICE_WATCH_H
#define ENGINE_DEVICE_WATCH_H

#include "base/proto/proto.h"

struct device_watch;

/* library: as for kn_nvml_open; NULL except in tests. pci: the device's address. NULL and a log line: no metrics. */
struct device_watch *device_watch_start(const char *library, const char *pci);
/* Waits at most two seconds; leaks a thread that hangs in the driver, and its memory. w may be NULL. */
void device_watch_stop(struct device_watch *w);
/* The last reading; all 0 if there is none of the last ten seconds, or w is NULL. Any thread. */
void device_watch_read(struct device_watch *w, struct proto_device *out);

#endif
