/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway process: its one entry.
 */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include "base/err.h"
#include "gateway/config/gw_config.h"

struct gw_snapshot;

/* Where a new configuration comes from. */
struct gw_reload {
	/* On SIGHUP, on the main thread: 0 and a snapshot that differs from now in nothing that threads
	 * can't take; or one line in *err, and the old one stays. */
	int (*load)(void *ctx, const struct gw_snapshot *now, struct gw_snapshot **out, struct sl_err *err);
	void *ctx;
};

/* Runs until SIGTERM or SIGINT, then drains; SIGUSR2 drains what another gateway has replaced. The
 * process's exit status. Takes first; reload may be NULL. */
int gateway_run(struct gw_snapshot *first, const struct gw_reload *reload);

/* What would keep gateway_run from starting, found without starting anything: an address in use, a
 * certificate or key that can't be used. One
 * line in *err. */
int gateway_check(const struct gw_config *cfg, struct sl_err *err);

#endif
