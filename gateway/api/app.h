/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: the route table (route.c), a handler per endpoint (handlers.h), the built-in page, and this, the
 * application of one gateway thread: it takes a request from transport, checks it and calls its handler, and writes the
 * access log when it closes.
 *
 * An exchange (gateway/exchange) is one request with its reply. A handler answers it exactly once, now or later; what
 * it keeps meanwhile is the exchange's state, often a struct call. Handlers run on the exchange's thread only; large
 * bodies are parsed on another (body_reader.h). Handlers check and refuse; answers are generated in gateway/answer.
 *
 * gateway/server creates one application per thread. The callbacks of app_http get the struct gw_app.
 */
#ifndef GATEWAY_APP_H
#define GATEWAY_APP_H

#include <stdbool.h>

#include "base/err.h"
#include "gateway/transport/http.h"
#include "gateway/loop/thread.h"

int app_create(struct gw_thread *t, struct gw_app **out, struct sl_err *err);
void app_destroy(struct gw_app *app);
/* Builds what all threads share of a configuration, on the main thread before any thread has it. now: the snapshot that
 * next replaces, or NULL. One line in *err. */
int app_prepare(struct gw_snapshot *next, const struct gw_snapshot *now, struct sl_err *err);
/* New requests begin with next. */
void app_reload(struct gw_app *app, struct gw_snapshot *next);
/* Work remains that no stream of this thread carries. */
bool app_busy(struct gw_app *app);
/* The drain's time is over: ends running answers with an error. */
void app_expire(struct gw_app *app);
/* Every thread of the process could serve a request now. */
bool app_ready(struct gw_app *app);

extern const struct http_app app_http;

#endif
