/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /models: is the upstream there, which models has it, how long are their contexts? A server without such a list
 * (404, 405) is there, too. After a failure it is asked again soon, so that a dead upstream is known as such before
 * many requests have met it.
 */
#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/json_depth.h"
#include "base/log.h"
#include "engine/remote/remote_priv.h"

enum { SOON_MS = 100, LIST_DEPTH = 32, ANSWER_MS = 5000, MAX_CONTEXT = 1 << 28 };

static struct remote *of_call(struct remote_call *c)
{
	struct remote_health *h = (struct remote_health *)(void *)((char *)c - offsetof(struct remote_health, call));
	return (struct remote *)(void *)((char *)h - offsetof(struct remote, health));
}

static void arm(struct remote *r, uint64_t ms)
{
	const struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
	event_add(r->health.timer, &tv);
}

static void arm_next(struct remote *r)
{
	if (r->breaker.state == BREAKER_OPEN)
		arm(r, r->cfg.cool_down_ms + 1);
	else
		arm(r, r->breaker.probes > 0 || !breaker_closed(&r->breaker) ? SOON_MS : r->cfg.health_ms);
}

/* ---- the list ---- */

static uint32_t context_of(const json_t *model)
{
	static const char *const names[] = {"max_model_len", "context_length", "context_window", "max_context_length"};
	const json_t *v = json_object_get(json_object_get(model, "meta"), "n_ctx_train");
	for (size_t i = 0; i < sizeof names / sizeof *names && !json_is_integer(v); i++)
		v = json_object_get(model, names[i]);
	json_int_t n = json_integer_value(v);
	return n > 0 && n <= MAX_CONTEXT ? (uint32_t)n : 0;
}

static bool name_fits(const json_t *id)
{
	size_t n = json_string_length(id);
	for (size_t i = 0; i < n; i++)
		if (json_string_value(id)[i] <= ' ' || json_string_value(id)[i] > '~')
			return false;
	/* What gateways mean by these is not a model. */
	bool reserved =
	    n > 0 && (strcmp(json_string_value(id), "auto") == 0 || strcmp(json_string_value(id), "default") == 0);
	return n > 0 && n <= PROTO_MAX_NAME && !reserved;
}

static struct remote_model *find(struct remote *r, const char *upstream)
{
	for (int i = 0; i < r->n_models; i++)
		if (strcmp(r->models[i].upstream, upstream) == 0)
			return &r->models[i];
	return NULL;
}

static bool learn(struct remote *r, const json_t *model)
{
	const json_t *id = json_object_get(model, "id");
	if (!name_fits(id))
		return false;
	struct remote_model *m = find(r, json_string_value(id));
	bool is_new = m == NULL;
	if (is_new && (r->cfg.n_models > 0 || r->n_models == PROTO_MAX_MODELS))
		return false;
	if (is_new) {
		static const struct eng_remote_model found = {0};
		m = &r->models[r->n_models++];
		*m = (struct remote_model){.n_ctx = REMOTE_DEFAULT_CTX,
					   .does = remote_model_does(&found, r->cfg.dialect)};
		memcpy(m->name, json_string_value(id), json_string_length(id));
		memcpy(m->upstream, json_string_value(id), json_string_length(id));
	}
	uint32_t context = m->fixed_ctx ? 0 : context_of(model);
	bool changes = is_new || (context > 0 && context != m->n_ctx);
	m->n_ctx = context > 0 ? context : m->n_ctx;
	return changes;
}

bool remote_health_read(struct remote *r, const char *json, size_t n)
{
	json_t *root = !json_deeper_than(json, n, LIST_DEPTH) ? json_loadb(json, n, 0, NULL) : NULL;
	const json_t *list = json_object_get(root, "data");
	bool changed = false;
	for (size_t i = 0; i < json_array_size(list); i++)
		changed = learn(r, json_array_get(list, i)) || changed;
	json_decref(root);
	return changed;
}

/* ---- asking ---- */

static bool is_there(const struct remote_call *c)
{
	return !remote_call_failed(c) || c->fault == PROTO_FAULT_NO_MODEL || c->fault == PROTO_FAULT_LIMITED ||
	       c->status == 405;
}

static void on_end(struct remote_call *c)
{
	struct remote *r = of_call(c);
	if (is_there(c)) {
		bool changed = c->status < 300 && remote_health_read(r, (const char *)buf_data(&c->text), c->text.len);
		if (changed && breaker_closed(&r->breaker))
			remote_announce(r);
		remote_worked(r, true);
	} else {
		remote_failed(r, true, c->fault, c->why);
	}
	buf_clear(&c->text, 0);
	arm_next(r);
}

static void ask(struct remote *r)
{
	struct remote_call *c = &r->health.call;
	r->health.begun_ns = clock_now_ns();
	if (remote_call_start(r->http, c) == 0)
		arm(r, r->cfg.connect_ms + ANSWER_MS);
	else
		arm(r, SOON_MS);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct remote *r = ctx;
	struct remote_call *c = &r->health.call;
	(void)fd;
	(void)what;
	if (c->http != NULL) { /* it is late */
		remote_call_stop(c);
		remote_failed(r, true, PROTO_FAULT_STALL, "its list of models does not come");
		arm_next(r);
		return;
	}
	if (r->breaker.state == BREAKER_OPEN && !breaker_may_probe(&r->breaker, clock_now_ns())) {
		arm_next(r);
		return;
	}
	ask(r);
}

void remote_health_hurry(struct remote *r)
{
	if (r->health.call.http == NULL && breaker_closed(&r->breaker))
		arm(r, 0);
}

int remote_health_init(struct remote *r)
{
	r->health.call = (struct remote_call){.kind = REMOTE_WHOLE, .path = "/models", .on_end = on_end};
	r->health.timer = evtimer_new(r->base, on_timer, r);
	if (r->health.timer == NULL)
		return SL_ENOMEM;
	arm(r, 0);
	return 0;
}

void remote_health_dispose(struct remote *r)
{
	remote_call_stop(&r->health.call);
	remote_call_dispose(&r->health.call);
	if (r->health.timer != NULL)
		event_free(r->health.timer);
}
