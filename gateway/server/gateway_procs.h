/* SPDX-License-Identifier: Apache-2.0
 *
 * All of the gateway's procedures in the store.
 */
#ifndef GATEWAY_PROCS_H
#define GATEWAY_PROCS_H

#include "cache/cache.h"

/* For cache_create. */
enum { GATEWAY_PROCS = 11 };
extern const struct cache_proc *const gateway_procs[GATEWAY_PROCS];

#endif
