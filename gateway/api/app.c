/* SPDX-License-Identifier: Apache-2.0
 *
 * Order of checks: route (404, 405), preflight, repeated header fields (400), a process that shuts down (503), access
 * (access.h; the body may arrive while the store is asked), body (413, 415), then the handler once the body is
 * complete. Keys belong to a configuration snapshot (snapshot.h): a reload builds new ones before any thread sees it,
 * and a request keeps the snapshot it was checked against.
 */
#define LOG_SUBSYSTEM LOG_ACCESS

#include "gateway/resume/replay_follow.h"
#include "gateway/api/app.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/admin/gather.h"
#include "gateway/dialect/dialect.h"
#include "gateway/exchange/access.h"
#include "gateway/exchange/access_line.h"
#include "gateway/answer/answer.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/api/body_reader.h"
#include "gateway/cascade/cascade_state.h"
#include "gateway/observe/history.h"
#include "gateway/observe/observe.h"
#include "gateway/observe/scrape.h"
#include "gateway/observe/sinks.h"
#include "gateway/observe/tier_counts.h"
#include "gateway/observe/trace.h"
#include "gateway/observe/tracer.h"
#include "gateway/conversation/conversation_hold.h"
#include "gateway/auth/cors.h"
#include "gateway/api/engine_gauges.h"
#include "gateway/exchange/exchange.h"
#include "gateway/generation/generation.h"
#include "gateway/generation/role_planner.h"
#include "gateway/sharing/idempotent.h"
#include "gateway/auth/identities.h"
#include "gateway/loop/random.h"
#include "gateway/replay/replay_store.h"
#include "gateway/resume/replay_sweep.h"
#include "gateway/exchange/route.h"
#include "gateway/api/unserved.h"
#include "gateway/auth/snapshot.h"
#include "gateway/auth/token_secrets.h"
#include "gateway/admission/admission_queue.h"
#include "gateway/answer/warm.h"
#include "gateway/variant/shadow.h"
#include "gateway/variant/variant.h"
#include "gateway/variant/variant_sync.h"

enum { LOOK_MS = 250, LOOK_LEAST_MS = 50, SCRATCH_MAX = 64 << 20 /* as answer.c has it */ };

/* ---- shared by all threads ---- */

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t shared_started_s;
static struct replay *shared_replay;
static struct inflight *shared_inflight;
static struct admission_queue *shared_waiting;
static struct body_reader *shared_bodies;
static struct scraper *shared_scraper;
static int shared_users;
static atomic_llong shared_serving; /* applications that could serve a request */

/* Answers by route and class of status. Rows of the route table that share a name share a metric. */
enum { CLASSES = 5, MAX_ROUTES = 80, LABEL_BYTES = 48 };
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
	static bool done;
	if (done)
		return;
	done = true;
	BUG_IF(n_routes > MAX_ROUTES, "%zu routes", n_routes);
	for (size_t i = 0; i < n_routes; i++)
		if (answer_row(&routes[i]) == i)
			register_answers(i, routes[i].name);
	register_answers(MAX_ROUTES, "unknown");
	engine_gauges_register();
	cleanse_prepare();
}

static void register_tiers(const struct gw_config *cfg)
{
	const struct gw_tier_config *tiers = cfg->tiers.items;
	for (size_t i = 0; i < cfg->tiers.n; i++) {
		const char *name = tiers[i].name;
		tier_counts_register(&name, 1);
		tier_counts_targets(name, tiers[i].ttft_target_ms, tiers[i].itl_target_ms);
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
	struct sinks *sinks;
	rc = sinks_create(&next->cfg, &sinks, err);
	if (rc != 0) {
		auth_destroy(auth);
		cascade_state_destroy(cascade);
		return rc;
	}
	struct variants *variants;
	rc = variants_create(&next->cfg, &variants, err);
	if (rc != 0) {
		auth_destroy(auth);
		cascade_state_destroy(cascade);
		sinks_destroy(sinks);
		return rc;
	}
	next->variants = variants;
	next->release_variants = variants_destroy;
	next->sinks = sinks;
	next->release_sinks = sinks_destroy;
	next->cascade = cascade;
	next->release_cascade = cascade_state_destroy;
	next->shared = auth;
	next->release_shared = release_auth;
	return 0;
}

/* A thread without a process around it (in tests) has a snapshot of its own. */
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
	if (shared_inflight != NULL)
		coalesce_drop_ended(shared_inflight);
	inflight_destroy(shared_inflight);
	admission_queue_destroy(shared_waiting);
	body_reader_destroy(shared_bodies);
	scraper_destroy(shared_scraper);
	shared_replay = NULL;
	shared_inflight = NULL;
	shared_waiting = NULL;
	shared_bodies = NULL;
	shared_scraper = NULL;
}

/* Resumable streams and requests in flight outlive every configuration snapshot: created by the first application,
 * freed with the last. */
static int acquire_shared(struct gw_app *app, struct sl_err *err)
{
	const struct gw_resume *r = &app->now->cfg.resume;
	const struct replay_config cfg = {
	    .log_bytes = r->stream_bytes, .all_bytes = r->memory_bytes, .keep_ms = r->keep_ms};
	int rc = 0;
	pthread_mutex_lock(&shared_lock);
	if (shared_users == 0 &&
	    ((rc = replay_create(&cfg, &shared_replay)) != 0 || (rc = inflight_create(&shared_inflight)) != 0 ||
	     (rc = admission_queue_create(&shared_waiting)) != 0 || (rc = body_reader_create(&shared_bodies)) != 0 ||
	     (rc = scraper_create(&shared_scraper)) != 0))
		destroy_shared();
	if (rc == 0) {
		shared_users++;
		app->replay = shared_replay;
		app->inflight = shared_inflight;
		app->waiting = shared_waiting;
		app->bodies = shared_bodies;
		app->scraper = shared_scraper;
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
	if (app->t->index == 0) {
		auth_log_changes(before->shared, next->shared);
		engine_link_levels(app->link);
	}
	gw_snapshot_unref(before);
}

/* ---- exchanges ---- */

static void count_answer(const struct exchange *x)
{
	int class = x->status < 200 ? 0 : x->status / 100 - 1;
	metric_add(&answers[answer_row(x->route)][class], 1);
}

static void note_refusal(const struct exchange *x)
{
	if (x->status >= 400)
		flight_note(FLIGHT_REFUSE, (uint64_t)x->status, answer_row(x->route),
			    (clock_now_ns() - x->started_ns) / 1000, 0, 0);
}

static bool is_for_vectors(const struct route *r)
{
	static const char *const names[] = {"embeddings", "rerank", "score", "ollama_embed"};
	for (size_t i = 0; r != NULL && i < sizeof names / sizeof *names; i++)
		if (strcmp(r->name, names[i]) == 0)
			return true;
	return false;
}

/* A request for vectors or scores; or one for an answer that got none: it was refused, its client left, or it got a
 * repeated one. */
static void observe_unanswered(const struct exchange *x)
{
	const struct gw_tier_config *tier = x->key != NULL ? x->key->tier : NULL;
	const bool vectors = is_for_vectors(x->route);
	if (x->observed || x->route == NULL || !(x->route->takes_idempotency_key || vectors))
		return;
	const struct observed o = {.request_id = x->id,
				   .trace = x->trace,
				   .model = vectors ? x->model : "",
				   .tier = tier != NULL ? tier->name : NULL,
				   .tenant = x->key != NULL ? x->key->tenant : 0,
				   .ended_by = x->status == 0     ? "client"
					       : x->status >= 400 ? "refused"
					       : vectors          ? "vectors"
								  : "repeated",
				   .status = x->status,
				   .failed = x->status >= 500,
				   .left = x->status == 0,
				   .vectors = vectors,
				   .n_prompt = vectors ? x->n_prompt : 0,
				   .started_ns = x->complete_ns,
				   .ended_ns = clock_now_ns()};
	observe_end(&o, NULL, x->snapshot->sinks);
}

enum { REQUEST_ID_BYTES = sizeof "req_" + RANDOM_NAME_CHARS };

static bool make_id(char id[REQUEST_ID_BYTES])
{
	memcpy(id, "req_", 4);
	return random_name(id + 4);
}

/* The only field of that name, or NULL. */
static const char *single_header(const struct http_request *r, const char *name)
{
	const char *value = NULL;
	for (size_t i = 0; i < r->n_fields; i++) {
		if (strcmp(r->fields[i].name, name) != 0)
			continue;
		if (value != NULL)
			return NULL;
		value = r->fields[i].value;
	}
	return value;
}

/* The client's own id, if it can stand in logs and headers as it is. */
static bool take_id(const struct http_request *r, char id[EXCHANGE_ID_BYTES])
{
	const char *own = single_header(r, "x-request-id");
	size_t n = 0;
	while (own != NULL && own[n] > ' ' && own[n] <= '~')
		n++;
	if (own == NULL || own[n] != '\0' || n == 0 || n >= EXCHANGE_ID_BYTES)
		return false;
	memcpy(id, own, n + 1);
	return true;
}

/* Of requests for an answer. */
static void begin_trace(struct exchange *x, const struct http_request *r)
{
	const struct sinks *sinks = x->snapshot->sinks;
	const char *parent = single_header(r, "traceparent");
	double sample = sinks->tracer != NULL ? tracer_sample(sinks->tracer) : 0;
	if (x->route->takes_idempotency_key && (parent != NULL || sample > 0))
		x->trace = trace_begin(parent, single_header(r, "tracestate"), sample);
}

static struct exchange *exchange_create(struct gw_app *app, struct http_stream *s, const struct http_request *r)
{
	struct exchange *x = sl_zalloc(sizeof *x);
	_Static_assert(sizeof x->id >= REQUEST_ID_BYTES, "a request's id fits");
	if (x == NULL || (!take_id(r, x->id) && !make_id(x->id))) {
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

static void on_close(void *ctx, struct http_stream *s, enum http_close_reason why)
{
	static const char *const ends[] = {"", "client left", "timed out", "shut down", "broken off"};
	struct gw_app *app = ctx;
	struct exchange *x = http_user(s);
	if (x == NULL)
		return;
	if (x->on_close != NULL)
		x->on_close(x);
	exchange_disown(x);
	idempotent_end(x->idempotent, false, false);
	access_cancel(x);
	count_answer(x);
	note_refusal(x);
	observe_unanswered(x);
	access_line(x, ends[why]);
	access_release(x);
	buf_dispose(&x->body);
	sl_free(x->quota);
	sl_free(x->cascade);
	sl_free(x->ignored);
	trace_free(x->trace);
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
	const char *instead = strcmp(r->method, "OPTIONS") != 0 ? unserved_instead(r->method, r->path) : NULL;
	if (instead != NULL)
		return exchange_refuse(x, 404, "unsupported_endpoint", NULL,
				       "%s %.200s is not supported by this version. %s", r->method, r->path, instead);
	if (allow == NULL) {
		bool is_api = strncmp(r->path, "/v1/", 4) == 0;
		return exchange_refuse(x, 404, is_api ? "unsupported_endpoint" : "unknown_url", NULL,
				       "Unknown request URL: %s %.200s. GET /openapi.json lists what is served.",
				       r->method, r->path);
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
	int rc = exchange_print_error(
	    &body, x, &(struct api_error){405, "invalid_request_error", "method_not_allowed", NULL, 0}, message);
	exchange_reply(x, 405, "application/json", &field, 1, buf_data(&body), rc == 0 ? body.len : 0);
	buf_dispose(&body);
	return false;
}

/* Fields with one value may come once (RFC 9110 5.3): of two, an intermediary may have checked the other one. */
static bool check_single(struct exchange *x, const struct http_request *r)
{
	static const struct {
		const char *name, *field;
	} single[] = {
	    {"authorization", "Authorization"},
	    {"content-type", "Content-Type"},
	    {"idempotency-key", "Idempotency-Key"},
	    {"last-event-id", "Last-Event-ID"},
	    {"origin", "Origin"},
	    {"x-api-key", "X-API-Key"},
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
			if (seen & 1u << k)
				return exchange_refuse(x, 400, "duplicate_header", single[k].field,
						       "The header field %s came more than once.", single[k].field);
			seen |= 1u << k;
			break;
		}
	}
	return true;
}

/* Connections made while the process shuts down get public routes only. */
static bool check_late(struct exchange *x)
{
	if (!http_is_late(x->stream) || x->route->access != ACCESS_KEY)
		return true;
	return exchange_refuse(x, 503, "shutting_down", NULL, "The server is shutting down. Please try again.");
}

static bool is_type(const char *type, const char *want)
{
	size_t n = strcspn(type, "; \t");
	return n == strlen(want) && strncasecmp(type, want, n) == 0;
}

/* A form can't be read without its type, which has its boundary. */
static bool fits_type(const struct route *r, const char *type)
{
	if (r->body == BODY_FORM)
		return type != NULL && is_type(type, "multipart/form-data");
	return type == NULL || is_type(type, "application/json");
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
	if (x->route->body == BODY_NONE)
		return true;
	if (!fits_type(x->route, http_header(r, "content-type")) || is_coded(r))
		return exchange_refuse(x, 415, "unsupported_media_type", NULL,
				       "The body must be %s without a content encoding.",
				       x->route->body == BODY_FORM ? "multipart/form-data" : "application/json");
	if (r->content_length > (int64_t)x->app->t->cfg->limits.body_bytes)
		return exchange_refuse(x, 413, "request_too_large", NULL, "The body has %lld bytes; the limit is %llu.",
				       (long long)r->content_length,
				       (unsigned long long)x->app->t->cfg->limits.body_bytes);
	return true;
}

/* The request is complete and granted. */
static void handle(struct exchange *x)
{
	if (idempotent_gate(x))
		x->route->handle(x);
}

/* The body may have arrived meanwhile. */
static void on_granted(struct exchange *x)
{
	if (check_body(x, http_request(x->stream)) && x->body_ended)
		handle(x);
}

static void on_request(void *ctx, struct http_stream *s, const struct http_request *r)
{
	struct exchange *x = exchange_create(ctx, s, r);
	http_set_user(s, x);
	if (x == NULL) {
		http_reset(s);
		return;
	}
	x->form = dialect_form(r);
	if (!find_route(x, r))
		return;
	begin_trace(x, r);
	if (check_single(x, r) && check_late(x) && access_check(x, on_granted) == ACCESS_GRANTED)
		check_body(x, r);
}

static void on_body(void *ctx, struct http_stream *s, const uint8_t *data, size_t n)
{
	struct exchange *x = http_user(s);
	(void)ctx;
	if (x == NULL || http_answered(s) || x->route->body == BODY_NONE)
		return;
	int rc = buf_append(&x->body, data, n);
	if (rc == SL_ELIMIT)
		exchange_refuse(x, 413, "request_too_large", NULL, "The body is larger than %llu bytes.",
				(unsigned long long)x->app->t->cfg->limits.body_bytes);
	else if (rc != 0)
		exchange_reply_no_memory(x);
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

/* The fields that every answer has, and its line in the log. */
static void on_refusal(void *ctx, struct http_refusal *r)
{
	struct gw_app *app = ctx;
	_Static_assert(HTTP_REFUSAL_FIELDS >= CORS_MAX_FIELDS + 1 && sizeof r->id >= REQUEST_ID_BYTES, "room for them");
	if (!make_id(r->id))
		r->id[0] = '\0';
	else
		r->fields[r->n++] = (struct http_field){"x-request-id", r->id};
	r->n += cors_origin_fields(app->t->cfg, r->origin, r->fields + r->n);
	const char *peer = r->peer[0] != '\0' ? r->peer : "unix";
	const struct log_field fields[] = {{.name = "status", .number = r->status},
					   {.name = "client", .text = peer},
					   {.name = "request_id", .text = r->id}};
	log_fields(LOG_INFO, fields, sizeof fields / sizeof *fields, "refused %d by the transport, from %s, %s",
		   r->status, peer, r->id);
}

const struct http_app app_http = {on_request, on_body, on_body_end, on_close, on_refusal};

/* ---- life ---- */

static void take_sample(struct gw_app *app)
{
	const struct proto_stats *s = engine_link_stats(app->link);
	const struct history_gauges g = {.running = s->running,
					 .waiting = s->waiting,
					 .queued = (uint32_t)admission_queue_count(app->waiting),
					 .kv_used_permille = s->kv_used_permille,
					 .prompt_tokens = s->prefill_tokens,
					 .answer_tokens = s->decode_tokens,
					 .prefix_queries = s->prefix_queries,
					 .prefix_hits = s->prefix_hits,
					 .preemptions = s->preemptions};
	history_tick(clock_now_ns(), clock_unix_s(), &g);
}

/* Everything that is shown of the engine. */
static void look(struct gw_app *app)
{
	app->looked_ns = gw_read_clock(app->t);
	engine_gauges_set(engine_link_up(app->link), engine_link_stats(app->link));
	for (int i = 0; i < engine_link_n_models(app->link); i++)
		/* An adapter's figures are its base's. */
		if (engine_link_model(app->link, i)->name[0] != '\0' && engine_link_model(app->link, i)->parent == 0)
			engine_gauges_model(engine_link_model(app->link, i)->name, engine_link_figures(app->link, i));
	for (int k = 0; k < engine_link_n_engines(app->link); k++)
		engine_gauges_one(engine_link_name(app->link, k), engine_link_engine_up(app->link, k),
				  engine_link_engine_stats(app->link, k), engine_link_n_prefixes(app->link, k),
				  engine_link_role(app->link, k));
	answer_load_gauges(app);
	if (app->t->index == 0) /* they are the process's */
		variants_show(app->now->variants);
	role_planner_tick(app->roles);
	take_sample(app);
}

static void on_look(struct gw_deferred *d) { look(list_entry(d, struct gw_app, look)); }

static bool has_looked(const struct gw_app *app, uint64_t within_ms)
{
	return gw_now(app->t) - app->looked_ns < within_ms * NS_PER_MS;
}

/* For what comes without news of the engine: it sends none while it is away. */
static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct gw_app *app = ctx;
	(void)fd, (void)what;
	gw_read_clock(app->t);
	if (!has_looked(app, LOOK_MS - LOOK_LEAST_MS))
		look(app);
}

/* News of the engine are looked at in the turn that brings them, which takes no wake of its own. */
static void on_load(void *ctx, const struct proto_load *load)
{
	struct gw_app *app = ctx;
	answers_load(app, load);
	if (app->tick != NULL && !has_looked(app, LOOK_LEAST_MS))
		gw_defer(app->t, &app->look);
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
	bool up = engine_link_up(app->link);
	if (up && !app->link_was_up && app->t->index == 0)
		engine_link_levels(app->link);
	app->link_was_up = up;
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
	gw_defer_init(&app->look, on_look);
	buf_init(&app->scratch, SCRATCH_MAX);
	buf_init(&app->list, SCRATCH_MAX);
	int rc = take_snapshot(app, err);
	app->shadows = shadows_create(t);
	if (rc == 0 && app->shadows == NULL)
		rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	if (rc == 0)
		rc = acquire_shared(app, err);
	if (quotas_init(&app->quotas, t->base, t->cache) != 0 && rc == 0)
		rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	if (rc == 0 && t->cache != NULL) {
		app->identities = identities_create(t->cache, NULL);
		app->warm = warm_create(app);
		app->secrets = token_secrets_create(t->cache, t->cfg->state_dir);
		if (t->index == 0)
			app->variants = variant_sync_create(t);
		if (app->identities == NULL || app->secrets == NULL || app->warm == NULL ||
		    (t->index == 0 && app->variants == NULL))
			rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	}
	if (rc == 0)
		rc = engine_link_create(t, t->cfg->engine_socket, &app->link, err);
	if (rc == 0)
		engine_link_expect(app->link, t->cfg->models, t->cfg->n_models);
	for (int i = 0; i < t->cfg->n_engines && rc == 0; i++)
		rc = engine_link_add(app->link, t->cfg->engines[i].name, t->cfg->engines[i].socket, err);
	for (int i = 0; i <= t->cfg->n_engines && rc == 0; i++)
		engine_link_set_role(app->link, i, i == 0 ? t->cfg->engine_role : t->cfg->engines[i - 1].role);
	if (rc == 0 && ((rc = replay_store_create(app, &app->replay_store)) != 0 ||
			(rc = replay_sweep_create(app->replay_store, &app->replay_sweep)) != 0))
		sl_errf(err, rc, "no memory for the application");
	/* The engine's gauges are the same on every link; one thread prints them. */
	if (rc == 0 && t->index == 0) {
		struct timeval tv = {.tv_usec = LOOK_MS * 1000};
		app->tick = event_new(t->base, -1, EV_PERSIST, on_tick, app);
		if (app->tick == NULL || event_add(app->tick, &tv) != 0)
			rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	}
	if (rc == 0 && t->index == 0 && (app->roles = role_planner_create(t)) == NULL)
		rc = sl_errf(err, SL_ENOMEM, "no memory for the application");
	if (rc != 0) {
		app_destroy(app);
		return rc;
	}
	engine_link_on_load(app->link, on_load, app);
	engine_link_on_state(app->link, on_link_state, app);
	t->link = app->link;
	gather_enter(app);
	*out = app;
	return 0;
}

void app_destroy(struct gw_app *app)
{
	if (app == NULL)
		return;
	gather_leave(app);
	answers_stop(app);
	replay_sweep_destroy(app->replay_sweep);
	replay_follows_stop(app->replay_store);
	replay_store_destroy(app->replay_store);
	app->replay_store = NULL;
	idempotents_stop(app);
	conversation_turns_stop(app);
	warm_destroy(app->warm);
	variant_sync_destroy(app->variants);
	shadows_destroy(app->shadows);
	quotas_dispose(&app->quotas);
	identities_destroy(app->identities);
	token_secrets_destroy(app->secrets);
	BUG_IF(app->n_exchanges != 0, "the application is destroyed with %zu requests open", app->n_exchanges);
	if (app->tick != NULL)
		event_free(app->tick);
	gw_defer_cancel(&app->look);
	role_planner_destroy(app->roles);
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
	/* A replaced process still reports the service, which continues, as ready. */
	if (app->t->draining && !app->t->replaced)
		return false;
	/* The next request may land on another thread, whose link comes up a moment later. */
	bool alone = app->t->snapshot == NULL || app->t->replaced;
	return app->serving && (alone || atomic_load(&shared_serving) >= app->t->cfg->threads);
}
