/* SPDX-License-Identifier: Apache-2.0
 *
 * Which backend computes. `auto` is a device where there is one that can compute every model, else the processor.
 */
#ifndef ENGINE_CORE_BACKEND_CHOICE_H
#define ENGINE_CORE_BACKEND_CHOICE_H

#include "engine/engine.h"
#include "kernels/kernels.h"

/* Whether this machine has the files of an NVIDIA driver's devices. Asks no driver. */
bool backend_device_plausible(void);
/* The backend of that configuration. device: whether `auto` asks for one. why: "", or why `auto` takes none. NULL: as
 * driver_select. */
const struct kn_ops *backend_choose(const struct eng_config *cfg, bool device, struct sl_err *why, struct sl_err *err);
/* Whether that backend can compute every model of that configuration; false: *why names what it lacks. */
bool backend_can_compute(const struct eng_config *cfg, const struct kn_ops *ops, struct sl_err *why);

#endif
