/* SPDX-License-Identifier: Apache-2.0
 *
 * The process around the gateway's threads, with the application left open so that tests can bring
 * a small one.
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

/* What a thread serves. create and destroy run on the thread; the callbacks of http get what create
 * made. */
struct gw_app_ops {
	int (*create)(struct gw_thread *t, struct gw_app **out, struct sl_err *err);
	void (*destroy)(struct gw_app *app);
	/* Asked a few times a second: could a request be served now? */
	bool (*ready)(struct gw_app *app);
	/* Work continues that no stream carries: a drain waits for it. NULL: never. */
	bool (*busy)(struct gw_app *app);
	const struct http_app *http;
	/* All NULL in applications that know no reload. On the main thread, before any other has the
	 * new configuration; what fails leaves everything as it was. now: NULL at the start. */
	int (*prepare)(struct gw_snapshot *next, const struct gw_snapshot *now, struct sl_err *err);
	/* On the thread, between two events. */
	void (*reload)(struct gw_app *app, struct gw_snapshot *next);
	/* A drain's time is over: streams may send their clients a last event before connections are cut.
	 * NULL: they are cut at once. */
	void (*expire)(struct gw_app *app);
};

enum { GATEWAY_EXIT_CONFIG = 78 };

/* Starts the threads, waits for SIGTERM or SIGINT, drains, returns the exit status. cfg names the
 * certificate's files if there is an https listener. A second signal cuts the drain short. SIGUSR2:
 * another process has taken over the listeners; the drain may last upgrade_drain_ms. SIGHUP: reload
 * (NULL: logged and ignored). Takes first. */
int gateway_serve_snapshot(struct gw_snapshot *first, const struct gw_app_ops *ops, const struct gw_reload *reload);
/* The same without reloads. cfg is copied. */
int gateway_serve(const struct gw_config *cfg, const struct gw_app_ops *ops);

#endif
