/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the store (cache/) from the configuration.
 */
#ifndef GATEWAY_STORE_H
#define GATEWAY_STORE_H

#include "base/err.h"
#include "cache/cache.h"
#include "gateway/config/gw_config.h"

/* Converts cfg for cache/; 0 keeps cache/'s default. *out borrows from cfg. */
void gw_store_config(const struct gw_store_settings *cfg, struct cache_config *out);
/* Redis if there is an address, otherwise memory. procs: the gateway's procedures. 0, or a code with *err. */
int gw_store_create(const struct gw_store_settings *cfg, const struct cache_proc *const *procs, size_t n_procs,
		    struct cache **out, struct sl_err *err);

#endif
