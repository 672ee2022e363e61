/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: the gateway process, from its configuration to its exit status.
 *
 *   gateway.h    the entry: process.h with the real application and a certificate
 *   process.h    the threads, signals, phases and reloads of the process, for any application
 *   dev_cert.h   the development certificate
 *
 * Thread: the main thread, which starts all others. Callers: cmd/serve.
 */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include "base/err.h"
#include "gateway/config/gw_config.h"

struct gw_snapshot;

/* Loads a new configuration. */
struct gw_reload {
	/* Called on SIGHUP, on the main thread. 0 and a snapshot that threads can switch to from now; or a code
	 * and one line in *err: the old configuration stays. */
	int (*load)(void *ctx, const struct gw_snapshot *now, struct gw_snapshot **out, struct sl_err *err);
	void *ctx;
};

/* Runs until SIGTERM or SIGINT, or until SIGUSR2 (another gateway replaces this one); then drains and returns the exit
 * status. Owns first; reload may be NULL. */
int gateway_run(struct gw_snapshot *first, const struct gw_reload *reload);

/* Checks what would make gateway_run fail, without starting anything: addresses in use, an unusable certificate or key.
 * 0, or a code with one line in *err. */
int gateway_check(const struct gw_config *cfg, struct sl_err *err);

#endif
