/* SPDX-License-Identifier: Apache-2.0
 *
 * Health and metrics. /live: the process turns. /ready: a request could be served now by each thread. /health: both,
 * in words, for a person; always 200, so that it can be read when something is wrong.
 */
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "cache/cache.h"
#include "gateway/api/api_request.h"
#include "gateway/api/app.h"
#include "gateway/exchange/app_state.h"
#include "gateway/exchange/exchange.h"
#include "gateway/api/handlers.h"
#include "gateway/admission/refusals.h"
#include "gateway/loop/thread.h"
#include "gateway/observe/scrape.h"

enum { MAX_HEALTH = 256 << 10 };

void api_live(struct exchange *x)
{
	static const char body[] = "{\"status\":\"live\"}";
	exchange_reply(x, 200, "application/json", NULL, 0, body, sizeof body - 1);
}

void api_ready(struct exchange *x)
{
	static const char body[] = "{\"status\":\"ready\"}";
	if (app_ready(x->app))
		exchange_reply(x, 200, "application/json", NULL, 0, body, sizeof body - 1);
	else
		exchange_refuse(x, 503, "not_ready", NULL, "No model is ready to serve.");
}

/* Degraded service included: limits by this gateway's share, responses that can't be stored. Without reasons: the page
 * is public. */
static const char *store_state(const struct cache_client *store)
{
	static const char *const names[] = {[CACHE_IS_MEMORY] = "memory",
					    [CACHE_IS_CONNECTING] = "connecting",
					    [CACHE_IS_UP] = "up",
					    [CACHE_IS_DOWN] = "down"};
	return names[cache_client_state(store)];
}

static bool all_up(const struct engine_link *link)
{
	for (int k = 0; k < engine_link_n_engines(link); k++)
		if (!engine_link_engine_up(link, k))
			return false;
	return true;
}

/* Where there are several: their names, as the configuration has them. */
static int put_engines(struct sl_buf *out, const struct engine_link *link)
{
	int n = engine_link_n_engines(link), rc = n > 1 ? buf_append_str(out, "\"engines\":[") : 0;
	for (int k = 0; n > 1 && k < n && rc == 0; k++)
		rc = buf_printf(out, "%s{\"name\":\"%s\",\"state\":\"%s\"}", k > 0 ? "," : "",
				engine_link_name(link, k), engine_link_engine_up(link, k) ? "up" : "down");
	return rc == 0 && n > 1 ? buf_append_str(out, "],") : rc;
}

void api_health(struct exchange *x)
{
	const struct engine_link *link = x->app->link;
	struct sl_buf body;
	buf_init(&body, MAX_HEALTH);
	const struct cache_client *store = x->app->t->cache;
	bool whole = app_ready(x->app) && all_up(link) && cache_client_state(store) != CACHE_IS_DOWN;
	int rc = buf_printf(&body, "{\"status\":\"%s\",\"engine\":\"%s\",\"store\":\"%s\",\"models\":[",
			    whole ? "ok" : "degraded", engine_link_up(link) ? "up" : "down", store_state(store));
	for (int i = 0, n = 0; i < engine_link_n_models(link) && rc == 0; i++) {
		const struct link_model *m = engine_link_model(link, i);
		if (m->name[0] == '\0')
			continue;
		rc = buf_append_str(&body, n++ > 0 ? ",{\"id\":" : "{\"id\":");
		if (rc == 0)
			rc = json_out_string(&body, m->name, strlen(m->name));
		if (rc == 0)
			rc = buf_printf(&body, ",\"state\":\"%s\"", api_model_state(m));
		if (rc == 0 && api_model_loads(m))
			rc = buf_printf(&body, ",\"percent\":%u", m->percent);
		if (rc == 0)
			rc = buf_append_str(&body, "}");
	}
	if (rc == 0)
		rc = buf_append_str(&body, "],");
	if (rc == 0)
		rc = put_engines(&body, link);
	if (rc == 0)
		rc = buf_append_str(&body, "\"refusals\":");
	if (rc == 0)
		rc = refusals_print(&body, clock_now_ns());
	if (rc == 0)
		rc = buf_append_str(&body, "}");
	static const struct http_field no_store = {"cache-control", "no-store"};
	exchange_reply(x, 200, "application/json", &no_store, 1, buf_data(&body), rc == 0 ? body.len : 0);
	buf_dispose(&body);
}

static void on_scraped(void *ctx, int rc, const struct sl_buf *text)
{
	struct exchange *x = ctx;
	exchange_disown(x);
	if (rc == 0)
		exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, buf_data(text), text->len);
	else
		exchange_refuse(x, 500, NULL, NULL, "The metrics did not fit into memory.");
}

static void on_scrape_closed(struct exchange *x) { scrape_cancel(x->state); }

void api_metrics(struct exchange *x)
{
	struct scrape *s;
	int rc = scrape_start(x->app->scraper, x->app->t, on_scraped, x, &s);
	if (rc == SL_ELIMIT) {
		exchange_refuse(x, 503, "overloaded", NULL, "Too many requests for the metrics at once.");
	} else if (rc != 0) {
		exchange_reply_no_memory(x);
	} else {
		x->state = s;
		x->on_close = on_scrape_closed;
	}
}
