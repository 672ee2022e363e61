/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's device among the metrics. Without one that tells how it is nothing is printed of it.
 */
#ifndef GATEWAY_DEVICE_GAUGES_H
#define GATEWAY_DEVICE_GAUGES_H

#include "base/proto/proto.h"

/* What the engine told last. By one thread. */
void device_gauges_set(const struct proto_device *d);

#endif
