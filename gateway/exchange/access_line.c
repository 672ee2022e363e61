/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_SUBSYSTEM LOG_ACCESS

#include "gateway/exchange/access_line.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/exchange/exchange.h"
#include "gateway/exchange/route.h"
#include "gateway/variant/variant.h"

enum { MOST_FIELDS = 32 };

struct fields {
	struct log_field at[MOST_FIELDS];
	size_t n;
};

/* Without text there is no such member. */
static void add_text(struct fields *f, const char *name, const char *text)
{
	if (text != NULL && text[0] != '\0')
		f->at[f->n++] = (struct log_field){.name = name, .text = text};
}

static void add_number(struct fields *f, const char *name, double number)
{
	f->at[f->n++] = (struct log_field){.name = name, .number = number};
}

/* To a tenth of a millisecond. */
static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? round((double)(to_ns - from_ns) / 1e5) / 10 : 0;
}

static enum log_level level_of(const struct exchange *x)
{
	static const char *const quiet[] = {"live", "ready", "health", "metrics", "page", "admin", "admin_streams"};
	for (size_t i = 0; x->route != NULL && i < sizeof quiet / sizeof *quiet; i++)
		if (strcmp(x->route->name, quiet[i]) == 0)
			return x->status < 400 || x->status == 503 ? LOG_DEBUG : LOG_INFO;
	return LOG_INFO;
}

static const char *tier_of(const struct exchange *x)
{
	if (x->key == NULL)
		return NULL;
	return x->key->tier != NULL ? x->key->tier->name : "admin";
}

static void add_route(struct fields *f, const struct observed_route *r)
{
	if (r->engine == NULL)
		return;
	add_text(f, "engine", r->engine);
	add_text(f, "routing", r->policy);
	add_number(f, "route_of", r->n_engines);
	add_number(f, "route_cost", r->cost);
	add_number(f, "route_occupancy", r->occupancy);
	add_number(f, "route_active", r->active);
	add_number(f, "route_cache", r->cache);
	add_number(f, "route_queue", r->queue);
	add_number(f, "route_recent", r->recent);
	add_number(f, "route_affinity", r->affinity);
	if (r->spilled)
		add_number(f, "route_spilled", 1);
	if (r->prefill != NULL)
		add_text(f, "prefill", r->prefill);
	if (r->prefill_engine != NULL)
		add_text(f, "prefill_engine", r->prefill_engine);
	if (r->handed != NULL)
		add_text(f, "handed", r->handed);
	if (r->hedge != NULL)
		add_text(f, "hedge", r->hedge);
	if (r->n_remade > 0)
		add_number(f, "remade", r->n_remade);
}

static const char *or_dash(const char *text) { return text != NULL ? text : "-"; }

void access_line(const struct exchange *x, const char *ended)
{
	const enum log_level level = level_of(x);
	if (!log_takes(level))
		return;
	const struct http_request *r = http_request(x->stream);
	const uint64_t now = clock_now_ns();
	const char *route = x->route != NULL ? x->route->path : "unknown path", *tier = tier_of(x);
	const char *key = x->key != NULL ? x->key->name : NULL, *peer = r->peer[0] != '\0' ? r->peer : "unix";
	struct fields f = {.n = 0};
	add_text(&f, "method", r->method);
	add_text(&f, "route", route);
	add_number(&f, "status", x->status);
	add_number(&f, "ms", ms_between(x->started_ns, now));
	add_text(&f, "request_id", x->id);
	add_text(&f, "client", peer);
	add_text(&f, "key", key);
	add_text(&f, "tier", tier);
	add_text(&f, "certificate", r->subject);
	add_text(&f, "model", x->model);
	add_text(&f, "variant", x->variant != NULL ? x->variant->cfg->name : NULL);
	if (x->n_prompt > 0 || x->n_completion > 0) {
		add_number(&f, "tokens_in", x->n_prompt);
		add_number(&f, "tokens_cached", x->n_cached);
		add_number(&f, "tokens_out", x->n_completion);
	}
	if (x->first_token_ns > 0)
		add_number(&f, "first_token_ms", ms_between(x->complete_ns, x->first_token_ns));
	add_text(&f, "cascade", x->cascade);
	add_route(&f, &x->by_engine);
	add_text(&f, "ended", ended);
	log_fields(level, f.at, f.n,
		   "%.16s %s %d %.1f ms%s%s, key %s, tier %s, %u in, %u out%s%s%s%s, from %s%s%s%s, %s", r->method,
		   route, x->status, (double)(now - x->started_ns) / 1e6, ended[0] != '\0' ? ", " : "", ended,
		   or_dash(key), or_dash(tier), x->n_prompt, x->n_completion, x->cascade != NULL ? ", cascade " : "",
		   x->cascade != NULL ? x->cascade : "", x->by_engine.engine != NULL ? ", engine " : "",
		   x->by_engine.engine != NULL ? x->by_engine.engine : "", peer, r->subject ? " (" : "",
		   r->subject ? r->subject : "", r->subject ? ")" : "", x->id);
}
