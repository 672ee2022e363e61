/* SPDX-License-Identifier: Apache-2.0
 *
 * The application of a thread: from a request's headers to its handler, and from its close to the
 * access log.
 *
 * Order of checks: route (404, 405), preflight, fields that came twice (400), a process that ends (503), who asks
 * (access.h; while the store is asked the body may come), body (413, 415), then the handler once the body is whole. The
 * keys belong to a state of the configuration (snapshot.h): a reload makes new ones before any thread hears of it, and
 * a request keeps those that it was checked against.
 */
#include "gateway/api/app.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/exchange/access.h"
#include "gateway/answer/answer.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/api/body_reader.h"
#include "gateway/cascade/cascade_state.h"
#include "gateway/generation/chat_metrics.h"
#include "gateway/compress/compress_run.h"
#include "gateway/conversation/conversation_hold.h"
#include "gateway/auth/cors.h"
#include "gateway/api/device_gauges.h"
#include "gateway/exchange/exchange.h"
#include "gateway/generation/generation.h"
#include "gateway/sharing/idempotent.h"
#include "gateway/auth/identities.h"
#include "gateway/loop/random.h"
#include "gateway/replay/replay_store.h"
#include "gateway/answer/replay_sweep.h"
#include "gateway/exchange/route.h"
#include "gateway/auth/snapshot.h"
#include "gateway/auth/token_secrets.h"
#include "gateway/admission/admission_queue.h"
#include "gateway/answer/warm.h"

enum { GAUGE_TICK_MS = 50, SCRATCH_MAX = 64 << 20 /* as answer.c has it */ };

/* ---- what all threads share ---- */

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t shared_started_s;
static struct replay *shared_replay;
static struct coalescer *shared_coalescer;
static struct superseding *shared_supersede;
static struct admission_queue *shared_waiting;
static struct body_reader *shared_bodies;
static int shared_users;
static atomic_llong shared_serving; /* applications that could serve a request */

static struct metric engine_up = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_up", .help = "1 while the link to the engine is up"};
static struct metric engine_running = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_running", .help = "Sequences that run in the engine"};
static struct metric engine_waiting = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_waiting", .help = "Sequences that wait in the engine"};
static struct metric engine_pages = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_pages", .help = "KV pages of the engine"};
static struct metric engine_pages_free = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_pages_free", .help = "KV pages of the engine that are free"};
static struct metric engine_steps = {
    .kind = METRIC_COUNTER, .name = "sluice_engine_steps_total", .help = "Steps of the engine"};
static struct metric engine_prefill = {
    .kind = METRIC_COUNTER, .name = "sluice_engine_prefill_tokens_total", .help = "Prompt tokens computed"};
static struct metric engine_decode = {
    .kind = METRIC_COUNTER, .name = "sluice_engine_decode_tokens_total", .help = "Tokens generated"};
static struct metric engine_preempted = {.kind = METRIC_COUNTER,
					 .name = "sluice_engine_preemptions_total",
					 .help = "Sequences that gave up their pages, to be computed again or swapped"};
static struct metric engine_displaced = {.kind = METRIC_COUNTER,
					 .name = "sluice_engine_displaced_total",
					 .help = "Requests that had to leave the engine's queue for others"};
static struct metric swapped_out = {.kind = METRIC_COUNTER,
				    .name = "sluice_engine_swapped_out_pages_total",
				    .help = "KV pages of pre-empted sequences that were brought to the host's memory"};
static struct metric swapped_in = {.kind = METRIC_COUNTER,
				   .name = "sluice_engine_swapped_in_pages_total",
				   .help = "KV pages that were brought back from there"};
static struct metric swap_full = {.kind = METRIC_COUNTER,
				  .name = "sluice_engine_swap_full_total",
				  .help =
				      "Sequences that were pre-empted when there was no room for their pages there"};
static struct metric swap_places = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_swap_pages", .help = "KV pages that the host's memory has room for"};
static struct metric swap_used = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_swap_pages_used", .help = "KV pages that are there now"};
static struct metric engine_looked_up = {.kind = METRIC_COUNTER,
					 .name = "sluice_engine_prefix_queries_total",
					 .help = "Prompt tokens looked up in the prefix tree"};
static struct metric engine_found = {
    .kind = METRIC_COUNTER, .name = "sluice_engine_prefix_hits_total", .help = "Prompt tokens that were there"};
static struct metric engine_submitted = {
    .kind = METRIC_COUNTER, .name = "sluice_engine_submitted_total", .help = "Sequences that the engine was given"};
static struct metric engine_cancelled = {
    .kind = METRIC_COUNTER, .name = "sluice_engine_cancelled_total", .help = "Sequences that were cancelled"};
static struct metric engine_tree = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_prefix_pages", .help = "KV pages that the prefix tree names"};
static struct metric spec_drafts = {
    .kind = METRIC_COUNTER, .name = "sluice_spec_drafts_total", .help = "Drafts that a step of the engine verified"};
static struct metric spec_drafted = {
    .kind = METRIC_COUNTER, .name = "sluice_spec_drafted_tokens_total", .help = "Tokens in them"};
static struct metric spec_accepted = {.kind = METRIC_COUNTER,
				      .name = "sluice_spec_accepted_tokens_total",
				      .help = "Tokens in them that were accepted: each saved its answer a step"};
/* The same under vLLM's names, for the dashboards that people have. */
static struct metric vllm_running = {
    .kind = METRIC_GAUGE, .name = "vllm:num_requests_running", .help = "As sluice_engine_running"};
static struct metric vllm_waiting = {
    .kind = METRIC_GAUGE, .name = "vllm:num_requests_waiting", .help = "As sluice_engine_waiting"};
static struct metric vllm_kv = {.kind = METRIC_GAUGE,
				.name = "vllm:kv_cache_usage_perc",
				.scale = 1e-3,
				.help = "KV pages that can't be had at once, 1 is all of them"};
static struct metric vllm_looked_up = {
    .kind = METRIC_COUNTER, .name = "vllm:prefix_cache_queries_total", .help = "As sluice_engine_prefix_queries_total"};
static struct metric vllm_found = {
    .kind = METRIC_COUNTER, .name = "vllm:prefix_cache_hits_total", .help = "As sluice_engine_prefix_hits_total"};
static struct metric vllm_preempted = {
    .kind = METRIC_COUNTER, .name = "vllm:num_preemptions_total", .help = "As sluice_engine_preemptions_total"};
static struct metric vllm_prompt = {
    .kind = METRIC_COUNTER, .name = "vllm:prompt_tokens_total", .help = "As sluice_engine_prefill_tokens_total"};
static struct metric vllm_generated = {
    .kind = METRIC_COUNTER, .name = "vllm:generation_tokens_total", .help = "As sluice_engine_decode_tokens_total"};
static struct metric vllm_drafts = {
    .kind = METRIC_COUNTER, .name = "vllm:spec_decode_num_drafts_total", .help = "As sluice_spec_drafts_total"};
static struct metric vllm_drafted = {.kind = METRIC_COUNTER,
				     .name = "vllm:spec_decode_num_draft_tokens_total",
				     .help = "As sluice_spec_drafted_tokens_total"};
static struct metric vllm_accepted = {.kind = METRIC_COUNTER,
				      .name = "vllm:spec_decode_num_accepted_tokens_total",
				      .help = "As sluice_spec_accepted_tokens_total"};
/* Answers by route and class of status. Rows of the route table that share a name share a metric. */
enum { CLASSES = 5, MAX_ROUTES = 48, LABEL_BYTES = 48 };
static const char *const classes[CLASSES] = {"none", "2xx", "3xx", "4xx", "5xx"};
static struct metric answers[MAX_ROUTES + 1][CLASSES]; /* the last row: no route */
static char answer_labels[MAX_ROUTES + 1][CLASSES][LABEL_BYTES];

static size_t answer_row(const struct route *r)
{
	size_t i = 0;
	if (r == NULL)
		return MAX_ROUTES;
	while (strcmp(routes[i].name, r->name) != 0)
		i++;
	return i;
}

static void register_answers(size_t row, const char *name)
{
	for (int c = 0; c < CLASSES; c++) {
		snprintf(answer_labels[row][c], LABEL_BYTES, "route=\"%s\",class=\"%s\"", name, classes[c]);
		answers[row][c] =
		    (struct metric){.kind = METRIC_COUNTER,
				    .name = "sluice_answers_total",
				    .labels = answer_labels[row][c],
				    .help = "Ended requests by route and class of status; none: not answered"};
		metric_register(&answers[row][c]);
	}
}

static void register_metrics(void)
{
	struct metric *const all[] = {
	    &engine_up,        &engine_running, &engine_waiting, &engine_pages,     &engine_pages_free,
	    &engine_steps,     &engine_prefill, &engine_decode,  &engine_preempted, &engine_displaced,
	    &swapped_out,      &swapped_in,     &swap_full,      &swap_places,      &swap_used,
	    &engine_looked_up, &engine_found,   &engine_tree,    &engine_submitted, &engine_cancelled,
	    &vllm_running,     &vllm_waiting,   &vllm_kv,        &vllm_looked_up,   &vllm_found,
	    &vllm_preempted,   &vllm_prompt,    &vllm_generated, &spec_drafts,      &spec_drafted,
	    &spec_accepted,    &vllm_drafts,    &vllm_drafted,   &vllm_accepted};
	static bool done;
	if (done)
		return;
	done = true;
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		metric_register(all[i]);
	BUG_IF(n_routes > MAX_ROUTES, "%zu routes", n_routes);
	for (size_t i = 0; i < n_routes; i++)
		if (answer_row(&routes[i]) == i)
			register_answers(i, routes[i].name);
	register_answers(MAX_ROUTES, "unknown");
	access_metrics_register();
	api_cleansed_register();
	compress_metrics_register();
}

static void register_tiers(const struct gw_config *cfg)
{
	const struct gw_tier_config *tiers = cfg->tiers.items;
	for (size_t i = 0; i < cfg->tiers.n; i++) {
		const char *name = tiers[i].name;
		chat_metrics_register(&name, 1);
	}
}

static void release_auth(void *shared) { auth_destroy(shared); }

int app_prepare(struct gw_snapshot *next, const struct gw_snapshot *now, struct sl_err *err)
{
	struct auth *auth;
	pthread_mutex_lock(&shared_lock);
	register_metrics();
	register_tiers(&next->cfg);
	if (shared_started_s == 0)
		shared_started_s = clock_unix_s();
	pthread_mutex_unlock(&shared_lock);
	struct cascade_state *cascade;
	int rc = auth_create(&next->cfg, now != NULL ? now->shared : NULL, &auth, err);
	if (rc != 0)
		return rc;
	rc = cascade_state_create(&next->cfg, now != NULL ? now->cascade : NULL, &cascade, err);
	if (rc != 0) {
		auth_destroy(auth);
		return rc;
	}
	next->cascade = cascade;
	next->release_cascade = cascade_state_destroy;
	next->shared = auth;
	next->release_shared = release_auth;
	return 0;
}

/* A thread without a process around it has a state of its own. */
static int take_snapshot(struct gw_app *app, struct sl_err *err)
{
	int rc = 0;
	if (app->t->snapshot != NULL)
		app->now = gw_snapshot_ref(app->t->snapshot);
	else if (gw_snapshot_create(app->t->cfg, NULL, NULL, &app->now) != 0)
		rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	if (rc == 0 && app->now->shared == NULL)
		rc = app_prepare(app->now, NULL, err);
	if (rc != 0)
		return rc;
	app->auth = app->now->shared;
	app->started_s = shared_started_s;
	return 0;
}

static void destroy_shared(void)
{
	replay_destroy(shared_replay);
	coalesce_destroy(shared_coalescer);
	supersede_destroy(shared_supersede);
	admission_queue_destroy(shared_waiting);
	body_reader_destroy(shared_bodies);
	shared_replay = NULL;
	shared_coalescer = NULL;
	shared_supersede = NULL;
	shared_waiting = NULL;
	shared_bodies = NULL;
}

/* Streams that can be read again, and what is asked for at the moment, outlive every state of the
 * configuration: made by the first application, freed with the last. */
static int acquire_shared(struct gw_app *app, struct sl_err *err)
{
	const struct gw_resume *r = &app->now->cfg.resume;
	const struct replay_config cfg = {
	    .log_bytes = r->stream_bytes, .all_bytes = r->memory_bytes, .keep_ms = r->keep_ms};
	int rc = 0;
	pthread_mutex_lock(&shared_lock);
	if (shared_users == 0 &&
	    ((rc = replay_create(&cfg, &shared_replay)) != 0 || (rc = coalesce_create(&shared_coalescer)) != 0 ||
	     (rc = supersede_create(&shared_supersede)) != 0 || (rc = admission_queue_create(&shared_waiting)) != 0 ||
	     (rc = body_reader_create(&shared_bodies)) != 0))
		destroy_shared();
	if (rc == 0) {
		shared_users++;
		app->replay = shared_replay;
		app->coalescer = shared_coalescer;
		app->superseding = shared_supersede;
		app->waiting = shared_waiting;
		app->bodies = shared_bodies;
	}
	pthread_mutex_unlock(&shared_lock);
	return rc == 0 ? 0 : sl_errf(err, rc, "no memory for event streams");
}

static void release_shared(struct gw_app *app)
{
	pthread_mutex_lock(&shared_lock);
	if (app->replay != NULL && --shared_users == 0)
		destroy_shared();
	pthread_mutex_unlock(&shared_lock);
}

void app_reload(struct gw_app *app, struct gw_snapshot *next)
{
	struct gw_snapshot *before = app->now;
	app->now = gw_snapshot_ref(next);
	app->auth = next->shared;
	gw_snapshot_unref(before);
}

/* ---- exchanges ---- */

static void count_answer(const struct exchange *x)
{
	int class = x->status < 200 ? 0 : x->status / 100 - 1;
	metric_add(&answers[answer_row(x->route)][class], 1);
}

enum { REQUEST_ID_BYTES = sizeof "req_" + RANDOM_NAME_CHARS };

static bool make_id(char id[REQUEST_ID_BYTES])
{
	memcpy(id, "req_", 4);
	return random_name(id + 4);
}

static struct exchange *exchange_create(struct gw_app *app, struct http_stream *s)
{
	struct exchange *x = sl_zalloc(sizeof *x);
	_Static_assert(sizeof x->id >= REQUEST_ID_BYTES, "a request's id fits");
	if (x == NULL || !make_id(x->id)) {
		sl_free(x);
		return NULL;
	}
	x->app = app;
	x->snapshot = gw_snapshot_ref(app->now);
	x->stream = s;
	x->started_ns = x->complete_ns = clock_now_ns();
	buf_init(&x->body, app->t->cfg->limits.body_bytes);
	app->n_exchanges++;
	return x;
}

static const char *path_for_log(const struct exchange *x) { return x->route ? x->route->path : "unknown path"; }

static void on_close(void *ctx, struct http_stream *s, enum http_close_reason why)
{
	static const char *const ends[] = {"", ", client left", ", timed out", ", shut down", ", broken off"};
	struct gw_app *app = ctx;
	struct exchange *x = http_user(s);
	if (x == NULL)
		return;
	if (x->on_close != NULL)
		x->on_close(x);
	idempotent_end(x->idempotent, false, false);
	access_cancel(x);
	count_answer(x);
	const struct http_request *r = http_request(s);
	log_info("%.16s %s %d %.1f ms%s, key %s, tier %s, %u in, %u out%s%s, from %s%s%s%s, %s", r->method,
		 path_for_log(x), x->status, (double)(clock_now_ns() - x->started_ns) / 1e6, ends[why],
		 x->key ? x->key->name : "-",
		 x->key == NULL ? "-"
		 : x->key->tier ? x->key->tier->name
				: "admin",
		 x->n_prompt, x->n_completion, x->cascade != NULL ? ", cascade " : "",
		 x->cascade != NULL ? x->cascade : "", r->peer[0] != '\0' ? r->peer : "unix", r->subject ? " (" : "",
		 r->subject ? r->subject : "", r->subject ? ")" : "", x->id);
	access_release(x);
	buf_dispose(&x->body);
	sl_free(x->quota);
	sl_free(x->cascade);
	gw_snapshot_unref(x->snapshot);
	sl_free(x);
	http_set_user(s, NULL);
	app->n_exchanges--;
}

static void answer_preflight(struct exchange *x, const struct http_request *r, const char *methods)
{
	const struct gw_config *cfg = x->app->t->cfg;
	struct http_field fields[CORS_PREFLIGHT_FIELDS];
	char headers[CORS_HEADERS_BYTES];
	size_t n = 0;
	if (cors_allows(cfg, http_header(r, "origin")))
		n = cors_preflight_fields(r, methods, headers, fields);
	exchange_reply(x, 204, NULL, fields, n, NULL, 0);
}

/* False with the answer given. */
static bool find_route(struct exchange *x, const struct http_request *r)
{
	const char *allow;
	x->route = route_find(r->method, r->path, &allow);
	if (x->route != NULL)
		return true;
	if (allow == NULL) {
		bool is_api = strncmp(r->path, "/v1/", 4) == 0;
		exchange_error(x,
			       &(struct api_error){404, "invalid_request_error",
						   is_api ? "unsupported_endpoint" : "unknown_url", NULL, 0},
			       "Unknown request URL: %s %.200s. GET /openapi.json lists what is served.", r->method,
			       r->path);
		return false;
	}
	if (cors_is_preflight(r)) {
		answer_preflight(x, r, allow);
		return false;
	}
	const struct http_field field = {"allow", allow};
	if (strcmp(r->method, "OPTIONS") == 0) {
		exchange_reply(x, 204, NULL, &field, 1, NULL, 0);
		return false;
	}
	struct sl_buf body;
	buf_init(&body, 1024);
	char message[128];
	snprintf(message, sizeof message, "Method %.20s is not allowed here. Allowed: %s.", r->method, allow);
	int rc = api_error_print(
	    &body, &(struct api_error){405, "invalid_request_error", "method_not_allowed", NULL, 0}, message);
	exchange_reply(x, 405, "application/json", &field, 1, buf_data(&body), rc == 0 ? body.len : 0);
	buf_dispose(&body);
	return false;
}

/* What has one value comes once (RFC 9110 5.3): of two, somebody on the way may have looked at the other one. */
static bool check_single(struct exchange *x, const struct http_request *r)
{
	static const struct {
		const char *name, *told;
	} single[] = {
	    {"authorization", "Authorization"},
	    {"content-type", "Content-Type"},
	    {"idempotency-key", "Idempotency-Key"},
	    {"last-event-id", "Last-Event-ID"},
	    {"origin", "Origin"},
	    {"x-sluice-conversation", "X-Sluice-Conversation"},
	    {"x-sluice-events", "X-Sluice-Events"},
	    {"x-sluice-notify", "X-Sluice-Notify"},
	};
	unsigned seen = 0;
	for (size_t i = 0; i < r->n_fields; i++) {
		const char *name = r->fields[i].name;
		for (size_t k = 0; k < sizeof single / sizeof *single; k++) {
			if (name[0] != single[k].name[0] || strcmp(name, single[k].name) != 0)
				continue;
			if (seen & 1u << k) {
				exchange_error(x,
					       &(struct api_error){400, "invalid_request_error", "duplicate_header",
								   single[k].told, 0},
					       "The header field %s came more than once.", single[k].told);
				return false;
			}
			seen |= 1u << k;
			break;
		}
	}
	return true;
}

/* Who connects while the process ends can ask how it is, and is sent elsewhere with anything else. */
static bool check_late(struct exchange *x)
{
	if (!http_is_late(x->stream) || x->route->access != ACCESS_KEY)
		return true;
	exchange_error(x, &(struct api_error){503, "server_error", "shutting_down", NULL, 1},
		       "The server is shutting down. Please try again.");
	return false;
}

static bool is_json(const char *type)
{
	size_t n = strcspn(type, "; \t");
	return n == 16 && strncasecmp(type, "application/json", 16) == 0;
}

/* A list, which may come in several fields. */
static bool is_coded(const struct http_request *r)
{
	for (size_t i = 0; i < r->n_fields; i++)
		if (strcmp(r->fields[i].name, "content-encoding") == 0 &&
		    strcasecmp(r->fields[i].value, "identity") != 0)
			return true;
	return false;
}

static bool check_body(struct exchange *x, const struct http_request *r)
{
	if (!x->route->takes_body)
		return true;
	const char *type = http_header(r, "content-type");
	if ((type != NULL && !is_json(type)) || is_coded(r)) {
		exchange_error(x, &(struct api_error){415, "invalid_request_error", "unsupported_media_type", NULL, 0},
			       "The body must be application/json without a content encoding.");
		return false;
	}
	if (r->content_length > (int64_t)x->app->t->cfg->limits.body_bytes) {
		exchange_error(x, &(struct api_error){413, "invalid_request_error", "request_too_large", NULL, 0},
			       "The body has %lld bytes, the most is %llu.", (long long)r->content_length,
			       (unsigned long long)x->app->t->cfg->limits.body_bytes);
		return false;
	}
	return true;
}

/* The whole request is there, and may be served. */
static void handle(struct exchange *x)
{
	if (idempotent_gate(x))
		x->route->handle(x);
}

/* Later than its request: its body may have come meanwhile. */
static void on_granted(struct exchange *x)
{
	if (check_body(x, http_request(x->stream)) && x->body_ended)
		handle(x);
}

static void on_request(void *ctx, struct http_stream *s, const struct http_request *r)
{
	struct exchange *x = exchange_create(ctx, s);
	http_set_user(s, x);
	if (x == NULL) {
		http_reset(s);
		return;
	}
	if (find_route(x, r) && check_single(x, r) && check_late(x) && access_check(x, on_granted) == ACCESS_GRANTED)
		check_body(x, r);
}

static void on_body(void *ctx, struct http_stream *s, const uint8_t *data, size_t n)
{
	struct exchange *x = http_user(s);
	(void)ctx;
	if (x == NULL || http_answered(s) || !x->route->takes_body)
		return;
	int rc = buf_append(&x->body, data, n);
	if (rc == SL_ELIMIT)
		exchange_error(x, &(struct api_error){413, "invalid_request_error", "request_too_large", NULL, 0},
			       "The body is larger than %llu bytes.",
			       (unsigned long long)x->app->t->cfg->limits.body_bytes);
	else if (rc != 0)
		exchange_error(x, &(struct api_error){503, "server_error", "overloaded", NULL, 1},
			       "The server is out of memory.");
}

static void on_body_end(void *ctx, struct http_stream *s)
{
	struct exchange *x = http_user(s);
	(void)ctx;
	if (x == NULL || http_answered(s))
		return;
	x->body_ended = true;
	x->complete_ns = clock_now_ns();
	if (x->access == NULL)
		handle(x);
}

/* What every answer has, and its line in the log. */
static void on_refusal(void *ctx, struct http_refusal *r)
{
	struct gw_app *app = ctx;
	_Static_assert(HTTP_REFUSAL_FIELDS >= CORS_MAX_FIELDS + 1 && sizeof r->id >= REQUEST_ID_BYTES, "room for them");
	if (!make_id(r->id))
		r->id[0] = '\0';
	else
		r->fields[r->n++] = (struct http_field){"x-request-id", r->id};
	r->n += cors_origin_fields(app->t->cfg, r->origin, r->fields + r->n);
	log_info("refused %d by the transport, from %s, %s", r->status, r->peer[0] != '\0' ? r->peer : "unix", r->id);
}

const struct http_app app_http = {on_request, on_body, on_body_end, on_close, on_refusal};

/* ---- life ---- */

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct gw_app *app = ctx;
	const struct proto_stats *st = engine_link_stats(app->link);
	(void)fd;
	(void)what;
	metric_set(&engine_up, engine_link_up(app->link));
	metric_set(&engine_running, st->running);
	metric_set(&engine_waiting, st->waiting);
	metric_set(&engine_pages, st->pages_total);
	metric_set(&engine_pages_free, st->pages_free);
	metric_set(&engine_steps, (int64_t)st->steps);
	metric_set(&engine_prefill, (int64_t)st->prefill_tokens);
	metric_set(&engine_decode, (int64_t)st->decode_tokens);
	metric_set(&engine_preempted, (int64_t)st->preemptions);
	metric_set(&engine_displaced, (int64_t)st->displaced);
	metric_set(&swapped_out, (int64_t)st->swapped_out);
	metric_set(&swapped_in, (int64_t)st->swapped_in);
	metric_set(&swap_full, (int64_t)st->swap_full);
	metric_set(&swap_places, st->swap_places);
	metric_set(&swap_used, st->swap_used);
	metric_set(&engine_looked_up, (int64_t)st->prefix_queries);
	metric_set(&engine_found, (int64_t)st->prefix_hits);
	metric_set(&engine_tree, st->prefix_pages);
	metric_set(&engine_submitted, (int64_t)st->submitted);
	metric_set(&engine_cancelled, (int64_t)st->cancelled);
	answer_load_gauges(app);
	device_gauges_set(&st->device);
	metric_set(&vllm_running, st->running);
	metric_set(&vllm_waiting, st->waiting);
	/* What the tree alone holds is given back when it is needed. */
	uint32_t total = st->pages_total;
	metric_set(&vllm_kv, total > 0 ? (int64_t)(total - st->pages_free) * 1000 / total : 0);
	metric_set(&vllm_looked_up, (int64_t)st->prefix_queries);
	metric_set(&vllm_found, (int64_t)st->prefix_hits);
	metric_set(&vllm_preempted, (int64_t)st->preemptions);
	metric_set(&vllm_prompt, (int64_t)st->prefill_tokens);
	metric_set(&vllm_generated, (int64_t)st->decode_tokens);
	metric_set(&spec_drafts, (int64_t)st->spec_drafts);
	metric_set(&spec_drafted, (int64_t)st->spec_drafted);
	metric_set(&spec_accepted, (int64_t)st->spec_accepted);
	metric_set(&vllm_drafts, (int64_t)st->spec_drafts);
	metric_set(&vllm_drafted, (int64_t)st->spec_drafted);
	metric_set(&vllm_accepted, (int64_t)st->spec_accepted);
}

static bool link_serves(const struct engine_link *l)
{
	if (!engine_link_up(l))
		return false;
	for (int i = 0; i < engine_link_n_models(l); i++)
		if (engine_link_model(l, i)->state == PROTO_MODEL_READY)
			return true;
	return false;
}

static void set_serving(struct gw_app *app, bool serves)
{
	if (serves != app->serving)
		atomic_fetch_add(&shared_serving, serves ? 1 : -1);
	app->serving = serves;
}

static void on_link_state(void *ctx)
{
	struct gw_app *app = ctx;
	set_serving(app, link_serves(app->link));
}

int app_create(struct gw_thread *t, struct gw_app **out, struct sl_err *err)
{
	struct gw_app *app = sl_zalloc(sizeof *app);
	if (app == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the application");
	app->t = t;
	list_init(&app->answers);
	list_init(&app->idempotents);
	list_init(&app->all_answers);
	list_init(&app->turns);
	buf_init(&app->scratch, SCRATCH_MAX);
	buf_init(&app->list, SCRATCH_MAX);
	int rc = take_snapshot(app, err);
	if (rc == 0)
		rc = acquire_shared(app, err);
	if (quotas_init(&app->quotas, t->base, t->cache) != 0 && rc == 0)
		rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	if (rc == 0 && t->cache != NULL) {
		app->identities = identities_create(t->cache, NULL);
		app->warm = warm_create(app);
		app->secrets = token_secrets_create(t->cache, t->cfg->state_dir);
		if (app->identities == NULL || app->secrets == NULL || app->warm == NULL)
			rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	}
	if (rc == 0)
		rc = engine_link_create(t, t->cfg->engine_socket, &app->link, err);
	if (rc == 0 && ((rc = replay_store_create(app, &app->replay_store)) != 0 ||
			(rc = replay_sweep_create(app->replay_store, &app->replay_sweep)) != 0))
		sl_errf(err, rc, "no memory for the application");
	/* The engine's gauges are the same on every link; one thread prints them. */
	if (rc == 0 && t->index == 0) {
		struct timeval tv = {.tv_usec = GAUGE_TICK_MS * 1000};
		app->tick = event_new(t->base, -1, EV_PERSIST, on_tick, app);
		if (app->tick == NULL || event_add(app->tick, &tv) != 0)
			rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	}
	if (rc != 0) {
		app_destroy(app);
		return rc;
	}
	engine_link_on_load(app->link, answers_load, app);
	engine_link_on_state(app->link, on_link_state, app);
	t->link = app->link;
	*out = app;
	return 0;
}

void app_destroy(struct gw_app *app)
{
	if (app == NULL)
		return;
	answers_stop(app);
	replay_sweep_destroy(app->replay_sweep);
	replay_follows_stop(app->replay_store);
	replay_store_destroy(app->replay_store);
	app->replay_store = NULL;
	idempotents_stop(app);
	conversation_turns_stop(app);
	warm_destroy(app->warm);
	quotas_dispose(&app->quotas);
	identities_destroy(app->identities);
	token_secrets_destroy(app->secrets);
	BUG_IF(app->n_exchanges != 0, "the application is destroyed with %zu requests open", app->n_exchanges);
	if (app->tick != NULL)
		event_free(app->tick);
	engine_link_destroy(app->link);
	set_serving(app, false);
	app->t->link = NULL;
	buf_dispose(&app->scratch);
	sse_rest_unref(app->sse_last);
	buf_dispose(&app->list);
	release_shared(app);
	gw_snapshot_unref(app->now);
	sl_free(app);
}

void app_expire(struct gw_app *app) { answers_break_off(app); }

bool app_busy(struct gw_app *app)
{
	return !list_empty(&app->answers) || !list_empty(&app->idempotents) || !list_empty(&app->turns) ||
	       quotas_busy(&app->quotas) || replay_store_busy(app->replay_store);
}

bool app_ready(struct gw_app *app)
{
	/* Who still reaches a process that was replaced is told of the service, which goes on. */
	if (app->t->draining && !app->t->replaced)
		return false;
	/* The next request may be another thread's, whose link comes up a moment later. */
	bool alone = app->t->snapshot == NULL || app->t->replaced;
	return app->serving && (alone || atomic_load(&shared_serving) >= app->t->cfg->threads);
}
