/* SPDX-License-Identifier: Apache-2.0
 *
 * The application of one gateway thread: routes and APIs behind struct http_app, with the engine
 * link. The callbacks of app_http get the struct gw_app.
 */
#ifndef GATEWAY_APP_H
#define GATEWAY_APP_H

#include <stdbool.h>

#include "base/err.h"
#include "gateway/transport/http.h"
#include "gateway/loop/thread.h"

int app_create(struct gw_thread *t, struct gw_app **out, struct sl_err *err);
void app_destroy(struct gw_app *app);
/* What all threads share of a configuration: made on the main thread before any of them has it. now: the
 * one that next replaces, or NULL. One line in *err. */
int app_prepare(struct gw_snapshot *next, const struct gw_snapshot *now, struct sl_err *err);
/* From now on requests begin with next. */
void app_reload(struct gw_app *app, struct gw_snapshot *next);
/* Answers go on that no stream of this thread carries. */
bool app_busy(struct gw_app *app);
/* The time to finish is over: what runs gets its last words. */
void app_expire(struct gw_app *app);
/* A request could be served now, whichever of the process's threads it lands on. */
bool app_ready(struct gw_app *app);

extern const struct http_app app_http;

#endif
