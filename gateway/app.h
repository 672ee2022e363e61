/* SPDX-License-Identifier: Apache-2.0
 *
 * The application of one gateway thread: routes and APIs behind struct http_app, with the engine
 * link. The callbacks of app_http get the struct gw_app.
 */
#ifndef GATEWAY_APP_H
#define GATEWAY_APP_H

#include <stdbool.h>

#include "base/err.h"
#include "gateway/http.h"
#include "gateway/thread.h"

int app_create(struct gw_thread *t, struct gw_app **out, struct sl_err *err);
void app_destroy(struct gw_app *app);
/* Answers go on that no stream of this thread carries. */
bool app_busy(struct gw_app *app);
/* A request could be served now. */
bool app_ready(struct gw_app *app);

extern const struct http_app app_http;

#endif
