/* SPDX-License-Identifier: Apache-2.0
 *
 * The process around the gateway's threads. The application is a parameter, so that tests can use a small one.
 */
#ifndef GATEWAY_PROCESS_H
#define GATEWAY_PROCESS_H

#include <stdbool.h>

#include "base/err.h"
#include "gateway/server/gateway.h"
#include "gateway/config/gw_config.h"
#include "gateway/transport/http.h"
#include "gateway/auth/snapshot.h"
#include "gateway/loop/thread.h"

/* The application of one thread. create, destroy and all other callbacks but prepare run on that thread. */
struct gw_app_ops {
	int (*create)(struct gw_thread *t, struct gw_app **out, struct sl_err *err);
	void (*destroy)(struct gw_app *app);
	/* Could a request be served now? Called a few times a second. */
	bool (*ready)(struct gw_app *app);
	/* Is there work without a stream, which a drain must wait for? NULL: never. */
	bool (*busy)(struct gw_app *app);
	const struct http_app *http;
	/* Called on the main thread before any thread gets the new configuration; on failure nothing has changed. now:
	 * NULL at the start. prepare and reload are NULL if the application can't reload. */
	int (*prepare)(struct gw_snapshot *next, const struct gw_snapshot *now, struct sl_err *err);
	/* Called between two events. */
	void (*reload)(struct gw_app *app, struct gw_snapshot *next);
	/* The drain's time is over: streams may send a last event before connections are closed. NULL: they are closed
	 * at once. */
	void (*expire)(struct gw_app *app);
};

enum { GATEWAY_EXIT_CONFIG = 78 };

/* Starts the threads, waits for SIGTERM or SIGINT, drains, returns the exit status; a second signal ends the drain.
 * SIGUSR2: another process has taken over the listeners, so the drain may last upgrade_drain_ms. SIGHUP: reload (NULL:
 * logged and ignored). With an https listener, first names the certificate's files. Owns first. */
int gateway_serve_snapshot(struct gw_snapshot *first, const struct gw_app_ops *ops, const struct gw_reload *reload);
/* The same, without reloads. cfg: copied. */
int gateway_serve(const struct gw_config *cfg, const struct gw_app_ops *ops);

#endif
