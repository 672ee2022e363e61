/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/admin/status: what the asked thread knows of engines, models, tiers and the store. Engines report the same to
 * every thread.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/cache.h"
#include "gateway/admin/admin.h"
#include "gateway/admission/admission_queue.h"
#include "gateway/auth/snapshot.h"
#include "gateway/exchange/app_state.h"
#include "gateway/exchange/exchange.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/role_planner.h"
#include "version.h" /* made by the Makefile */

/* A text that may not be UTF-8 becomes null. */
static json_t *text(const char *s)
{
	json_t *v = json_string(s);
	return v != NULL ? v : json_null();
}

static json_t *number(uint64_t n) { return json_integer((json_int_t)(n < INT64_MAX ? n : INT64_MAX)); }

static json_t *device_of(const struct proto_device *d)
{
	if (!d->known)
		return json_null();
	return json_pack("{s:i, s:i, s:i, s:o, s:o, s:i}", "busy_percent", (int)d->busy_percent, "celsius",
			 (int)d->celsius, "milliwatts", (int)d->milliwatts, "memory_bytes", number(d->memory_bytes),
			 "memory_used_bytes", number(d->memory_used_bytes), "slowed", (int)d->slowed);
}

static json_t *engine_of(const struct engine_link *l)
{
	const struct proto_stats *s = engine_link_stats(l);
	char epoch[24];
	snprintf(epoch, sizeof epoch, "%" PRIx64, engine_link_epoch(l));
	return json_pack("{s:b, s:s, s:i, s:i, s:i, s:i, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "up",
			 engine_link_up(l), "epoch", epoch, "running", (int)s->running, "waiting", (int)s->waiting,
			 "pages_total", (int)s->pages_total, "pages_free", (int)s->pages_free, "kv_used_share",
			 s->kv_used_permille / 1000.0, "kv_bytes", number(s->kv_bytes), "steps", number(s->steps),
			 "submitted", number(s->submitted), "finished", number(s->finished), "cancelled",
			 number(s->cancelled), "failed", number(s->failed), "preemptions", number(s->preemptions),
			 "prefix_hits", number(s->prefix_hits), "device", device_of(&s->device));
}

/* Each engine's role now, and why engines of role auto have theirs. */
static json_t *roles_of(const struct engine_link *l)
{
	struct role_report r;
	json_t *engines = json_array();
	role_report(&r);
	for (int k = 0; k < engine_link_n_engines(l); k++)
		json_array_append_new(engines,
				      json_pack("{s:s, s:s, s:b, s:b}", "name", engine_link_name(l, k), "role",
						role_name(engine_link_role(l, k)), "auto", engine_link_role_moves(l, k),
						"up", engine_link_engine_up(l, k)));
	return json_pack("{s:o, s:o, s:o, s:o, s:{s:f, s:f, s:f, s:f}}", "engines", engines, "changes",
			 number(r.n_changes), "changed_at",
			 r.changed_s > 0 ? json_integer((json_int_t)r.changed_s) : json_null(), "last_change",
			 r.changed_s > 0 ? text(r.line) : json_null(), "pressure", "ttft", r.now.ttft, "tpot",
			 r.now.tpot, "kv", r.now.kv, "queue", r.now.queue);
}

static const char *state_of(const struct link_model *m)
{
	static const char *const names[] = {
	    [PROTO_MODEL_LOADING] = "loading", [PROTO_MODEL_READY] = "ready", [PROTO_MODEL_FAILED] = "failed"};
	return m->state < sizeof names / sizeof *names && names[m->state] != NULL ? names[m->state] : "unknown";
}

static json_t *model_of(const struct engine_link *l, int i)
{
	const struct link_model *m = engine_link_model(l, i);
	const struct proto_figures *f = engine_link_figures(l, i);
	return json_pack("{s:o, s:s, s:i, s:b, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "id", text(m->name),
			 "state", state_of(m), "percent", (int)m->percent, "in_memory",
			 m->residence == PROTO_RESIDENCE_HERE, "running", (int)f->running, "waiting", (int)f->waiting,
			 "pages_total", (int)f->pages_total, "pages_free", (int)f->pages_free, "prompt_tokens",
			 number(f->prefill_tokens), "answer_tokens", number(f->decode_tokens), "prefix_hits",
			 number(f->prefix_hits), "prefix_queries", number(f->prefix_queries), "reason",
			 m->reason[0] != '\0' ? text(m->reason) : json_null());
}

static json_t *models_of(const struct engine_link *l)
{
	json_t *all = json_array();
	for (int i = 0; i < engine_link_n_models(l); i++)
		if (engine_link_model(l, i)->name[0] != '\0')
			json_array_append_new(all, model_of(l, i));
	return all;
}

static json_t *tiers_of(const struct exchange *x)
{
	const struct gw_config *cfg = &x->snapshot->cfg;
	const struct gw_tier_config *t = cfg->tiers.items;
	const struct engine_link *l = x->app->link;
	json_t *all = json_array();
	for (size_t i = 0; i < cfg->tiers.n; i++) {
		uint64_t wait = 0;
		for (int m = 0; m < engine_link_n_models(l); m++) {
			const uint64_t ms = engine_link_wait_ms(l, m, (uint8_t)t[i].priority);
			wait = ms > wait ? ms : wait;
		}
		json_array_append_new(all,
				      json_pack("{s:o, s:I, s:I, s:I, s:I, s:I}", "name", text(t[i].name), "priority",
						(json_int_t)t[i].priority, "concurrency", (json_int_t)t[i].concurrency,
						"ttft_target_ms", (json_int_t)t[i].ttft_target_ms, "itl_target_ms",
						(json_int_t)t[i].itl_target_ms, "predicted_wait_ms", (json_int_t)wait));
	}
	return all;
}

static const char *store_of(const struct gw_thread *t)
{
	static const char *const names[] = {[CACHE_IS_MEMORY] = "memory",
					    [CACHE_IS_CONNECTING] = "connecting",
					    [CACHE_IS_UP] = "up",
					    [CACHE_IS_DOWN] = "down"};
	return t->cache != NULL ? names[cache_client_state(t->cache)] : "none";
}

void admin_status(struct exchange *x)
{
	const struct gw_app *app = x->app;
	if (!admin_gate(x, ADMIN_LOOK))
		return;
	exchange_reply_json_no_store(
	    x,
	    json_pack("{s:s, s:s, s:i, s:I, s:I, s:i, s:b, s:I, s:I, s:s, s:[o], s:o, s:o, s:o}", "object", "status",
		      "version", SLUICE_VERSION, "pid", (int)getpid(), "started_at", (json_int_t)app->started_s, "now",
		      (json_int_t)clock_unix_s(), "threads", (int)app->t->cfg->threads, "draining", app->t->draining,
		      "queued", (json_int_t)admission_queue_count(app->waiting), "queue_size",
		      (json_int_t)app->t->cfg->queue.most, "store", store_of(app->t), "engines", engine_of(app->link),
		      "models", models_of(app->link), "tiers", tiers_of(x), "roles", roles_of(app->link)));
}
