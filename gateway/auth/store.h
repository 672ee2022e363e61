/* SPDX-License-Identifier: Apache-2.0
 *
 * The store (cache/) as the configuration wants it.
 */
#ifndef GATEWAY_STORE_H
#define GATEWAY_STORE_H

#include "base/err.h"
#include "cache/cache.h"
#include "gateway/config/gw_config.h"

/* cfg in cache/'s terms; a number that is 0 leaves cache/'s own default. Borrows. */
void gw_store_config(const struct gw_store_settings *cfg, struct cache_config *out);
/* Redis when there is an address, otherwise memory; procs: the gateway's own procedures. 0 or a code with err. */
int gw_store_create(const struct gw_store_settings *cfg, const struct cache_proc *const *procs, size_t n_procs,
		    struct cache **out, struct sl_err *err);

#endif
