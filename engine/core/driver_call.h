/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that may hang in a device's driver, for seconds on a machine with many devices, for ever where the driver is
 * wedged. They run on a thread of their own, so that a hung one takes nothing else with it.
 */
#ifndef ENGINE_CORE_DRIVER_CALL_H
#define ENGINE_CORE_DRIVER_CALL_H

#include "kernels/kernels.h"

/* Runs fn(arg) on a thread of its own and waits for it, at most limit_ms, alive in a heartbeat slot of its own named
 * `what` (base/beat.h). 0; SL_ENOMEM: it did not start; SL_ETIMEOUT: the limit passed, the call goes on and owns arg,
 * which free_arg frees once it returns. Otherwise arg is the caller's again. */
int driver_call(const char *what, void (*fn)(void *arg), void *arg, void (*free_arg)(void *arg), unsigned limit_ms);

/* As kn_select; also SL_ENOMEM, and SL_ETIMEOUT where a driver, which only a device's backend asks, does not answer. */
const struct kn_ops *driver_select(const char *backend, struct sl_err *err);

#endif
