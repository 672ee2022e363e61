/* SPDX-License-Identifier: Apache-2.0
 *
 * Device health for the engine's metrics: a dedicated thread queries the driver once a second
 * (kernels/backend/nvml.h), so a driver that hangs blocks no other thread.
 */
#ifndef ENGINE_DEVICE_WATCH_H
#define ENGINE_DEVICE_WATCH_H

#include "base/proto/proto.h"

struct device_watch;

/* library: kn_nvml_open's, NULL but for tests. pci: the device. NULL: it can't be watched; a line in the log says why.
 */
struct device_watch *device_watch_start(const char *library, const char *pci);
/* Waits at most two seconds; a thread that hangs in the driver is left behind with its memory. w may be NULL. */
void device_watch_stop(struct device_watch *w);
/* The last it was told; all 0 while there is nothing, or w is NULL. Any thread. */
void device_watch_read(struct device_watch *w, struct proto_device *out);

#endif
