/* SPDX-License-Identifier: Apache-2.0
 *
 * A record in the store is a state, the digest of the body, and once it has ended the answer. A running
 * one has a short life, renewed, so that the key of a gateway that died is free again soon; and it says
 * where that gateway is, so that who asks from the same machine sees that it has gone and takes the key at
 * once. Of several who see it, one does: who first put a mark by that gateway's lease.
 */
#include "gateway/idempotent.h"

#include <event2/event.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "cache/cache.h"
#include "gateway/api_request.h"
#include "gateway/app_state.h"
#include "gateway/handlers.h"
#include "gateway/replay_store.h"
#include "gateway/route.h"
#include "gateway/stream_out.h"

enum {
	VERSION = 1,
	MAX_KEY = 255,
	LEASE_MS = 30000,
	RENEW_MS = 10000,
	PAUSE_MS = 50,
	PATIENCE_MS = 5000,
	DEFAULT_VALUE_BYTES = 1 << 20,
};

enum record_state { RECORD_RUNNING, RECORD_WHOLE, RECORD_STREAM };

struct record_head {
	uint8_t state;
	struct twin_digest body;
};

/* Behind the head: the lease of its process (replay_store.h), as text. */
enum { MOST_LEASE = 256 };
struct running {
	uint8_t bytes[sizeof(struct record_head) + MOST_LEASE];
	size_t n;
};

enum state { ASKING, HELD, JOINED, STORING };

struct idempotent {
	struct list node;
	struct gw_app *app;
	struct exchange *x; /* while it is ASKING */
	enum state state;
	struct cache_op op;
	struct cache_key key;
	struct event *timer;
	uint64_t since_ns;
	struct twin_digest retry;
	struct twin_claim claim; /* its own, or the one it joins */
	struct twin_name *name;
	struct sl_buf kept;      /* a record; empty: not kept any more */
};

static struct metric replays = {.kind = METRIC_COUNTER, .name = "sluice_idempotent_replays_total",
				.help = "Repeated requests that got the answer of the first"};

__attribute__((constructor)) static void register_metrics(void) { metric_register(&replays); }

static struct idempotent *of_op(struct cache_op *op)
{
	return (struct idempotent *)(void *)((char *)op - offsetof(struct idempotent, op));
}

static void idempotent_free(struct idempotent *i)
{
	cache_cancel(&i->op);
	twins_forget(i->app->twins, i->name);
	if (i->claim.log != NULL)
		twin_log_unref(i->claim.log);
	if (i->timer != NULL)
		event_free(i->timer);
	list_remove(&i->node);
	buf_dispose(&i->kept);
	sl_free(i);
}

void idempotents_stop(struct gw_app *app)
{
	while (!list_empty(&app->idempotents))
		idempotent_free(list_entry(app->idempotents.next, struct idempotent, node));
}

static void restart(struct idempotent *i, uint64_t ms)
{
	const struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000) * 1000};
	evtimer_add(i->timer, &tv);
}

/* ---- the ways on, of one that asks ---- */

static struct exchange *part(struct idempotent *i)
{
	struct exchange *x = i->x;
	i->x = NULL;
	x->state = NULL;
	x->on_close = NULL;
	return x;
}

static void go_on(struct idempotent *i, enum state as)
{
	struct exchange *x = part(i);
	i->state = as;
	x->idempotent = i;
	x->route->handle(x);
}

static void reply_other(struct idempotent *i)
{
	struct exchange *x = part(i);
	idempotent_free(i);
	exchange_error(x, &(struct api_error){422, "invalid_request_error", "idempotency_key_reused", "Idempotency-Key", 0},
		       "This Idempotency-Key was used with another request.");
}

static void reply_running(struct idempotent *i)
{
	static const struct http_field fields[] = {{"retry-after", "1"}, {"x-should-retry", "true"}};
	static const struct api_error e = {409, "invalid_request_error", "idempotency_key_in_use", "Idempotency-Key", 0};
	struct exchange *x = part(i);
	struct sl_buf body;
	idempotent_free(i);
	buf_init(&body, 1024);
	int rc = api_error_print(&body, &e, "The first request with this Idempotency-Key is still being answered.");
	exchange_reply(x, e.status, rc == 0 ? "application/json" : NULL, fields, 2, buf_data(&body), rc == 0 ? body.len : 0);
	buf_dispose(&body);
}

static void replay(struct idempotent *i, bool stream, const uint8_t *bytes, size_t n)
{
	struct http_field fields[STREAM_FIELDS + 1] = {{"x-sluice-idempotent-replay", "true"}};
	struct exchange *x = part(i);
	for (size_t k = 0; k < STREAM_FIELDS; k++)
		fields[1 + k] = stream_fields[k];
	metric_add(&replays, 1);
	exchange_reply(x, 200, stream ? "text/event-stream" : "application/json", fields, stream ? STREAM_FIELDS + 1 : 1, bytes, n);
	idempotent_free(i);
}

/* ---- asking ---- */

static struct running running_record(const struct idempotent *i)
{
	const struct record_head head = {.state = RECORD_RUNNING, .body = i->claim.body};
	const char *lease = replay_lease_text();
	struct running r = {.n = sizeof head};
	size_t n = strlen(lease);
	memcpy(r.bytes, &head, sizeof head);
	if (n <= MOST_LEASE) {
		memcpy(r.bytes + sizeof head, lease, n);
		r.n += n;
	}
	return r;
}

static void pause_or_refuse(struct idempotent *i)
{
	if (clock_now_ns() - i->since_ns >= PATIENCE_MS * NS_PER_MS)
		reply_running(i);
	else
		restart(i, PAUSE_MS);
}

static void on_taken(struct cache_op *op, const struct cache_result *r)
{
	struct idempotent *i = of_op(op);
	if (r->code != 0) {
		pause_or_refuse(i);
		return;
	}
	restart(i, RENEW_MS);
	go_on(i, HELD);
}

static void on_marked(struct cache_op *op, const struct cache_result *r)
{
	struct idempotent *i = of_op(op);
	struct running record = running_record(i);
	if (r->code != 0 || r->found)
		pause_or_refuse(i); /* another one takes it, or nobody can */
	else
		cache_put(i->app->t->cache, &i->op, &i->key, VERSION, record.bytes, record.n, LEASE_MS, on_taken);
}

/* Its process has gone. A mark lasts no shorter than the lease that it is about. */
static void take_over(struct idempotent *i, const uint8_t *lease, size_t n)
{
	struct cache_key mark;
	struct sl_buf name;
	char tenant[24];
	buf_init(&name, 1024);
	snprintf(tenant, sizeof tenant, "%016llx", (unsigned long long)i->x->key->tenant);
	if (buf_append_str(&name, i->key.text) != 0 || buf_append(&name, lease, n) != 0) {
		buf_dispose(&name);
		pause_or_refuse(i);
		return;
	}
	cache_key_make(&mark, CACHE_SHARED, tenant, buf_data(&name), name.len);
	buf_dispose(&name);
	cache_put_absent(i->app->t->cache, &i->op, &mark, VERSION, "1", 1, LEASE_MS, on_marked);
}

static void on_asked(struct cache_op *op, const struct cache_result *r)
{
	struct idempotent *i = of_op(op);
	struct record_head head;
	if (r->code == 0 && !r->found) {
		restart(i, RENEW_MS);
		go_on(i, HELD);
		return;
	}
	/* Without a store there is nothing to hold it with: as if there were no key. */
	if (r->code != 0 || r->n < sizeof head) {
		struct exchange *x = part(i);
		idempotent_free(i);
		x->route->handle(x);
		return;
	}
	memcpy(&head, r->bytes, sizeof head);
	if (memcmp(&head.body, &i->claim.body, sizeof head.body) != 0)
		reply_other(i);
	else if (head.state != RECORD_RUNNING)
		replay(i, head.state == RECORD_STREAM, r->bytes + sizeof head, r->n - sizeof head);
	else if (replay_lease_is_of_dead(r->bytes + sizeof head, r->n - sizeof head))
		take_over(i, r->bytes + sizeof head, r->n - sizeof head);
	else
		pause_or_refuse(i);
}

static void ask(struct idempotent *i)
{
	struct running record = running_record(i);
	struct twin_claim claim;
	if (!twins_find(i->app->twins, &i->retry, &claim)) {
		cache_put_absent(i->app->t->cache, &i->op, &i->key, VERSION, record.bytes, record.n, LEASE_MS, on_asked);
		return;
	}
	bool same = memcmp(&claim.body, &i->claim.body, sizeof claim.body) == 0;
	if (same && claim.log != NULL) {
		i->claim = claim;
		metric_add(&replays, 1);
		go_on(i, JOINED);
		return;
	}
	if (claim.log != NULL)
		twin_log_unref(claim.log);
	if (!same)
		reply_other(i);
	else
		pause_or_refuse(i);
}

static void on_renewed(struct cache_op *op, const struct cache_result *r)
{
	(void)op, (void)r; /* failed: the next one may do better, and there is time for two */
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct idempotent *i = ctx;
	(void)fd, (void)what;
	if (i->state == ASKING) {
		ask(i);
		return;
	}
	if (i->state != HELD)
		return;
	struct running record = running_record(i);
	if (!cache_op_busy(&i->op))
		cache_put(i->app->t->cache, &i->op, &i->key, VERSION, record.bytes, record.n, LEASE_MS, on_renewed);
	restart(i, RENEW_MS);
}

static void on_close(struct exchange *x)
{
	struct idempotent *i = x->state;
	x->state = NULL;
	/* What was asked for may still happen: the lease then ends by itself. */
	idempotent_free(i);
}

/* ---- the gate ---- */

static bool takes_key(const struct route *r)
{
	return r->handle == api_chat || r->handle == api_completions || r->handle == api_response_create;
}

static int name_it(struct idempotent *i, const char *key)
{
	struct sl_buf all;
	char tenant[24];
	buf_init(&all, 1024);
	snprintf(tenant, sizeof tenant, "%016llx", (unsigned long long)i->x->key->tenant);
	int rc = buf_printf(&all, "Idempotency-Key\n%s\n%s\n%s", tenant, i->x->route->name, key);
	/* Whom browser tokens were made for share a tenant, not their answers. */
	if (rc == 0 && i->x->subject != NULL && i->x->subject[0] != '\0')
		rc = buf_printf(&all, "\n%s", i->x->subject);
	if (rc == 0) {
		cache_key_make(&i->key, CACHE_SHARED, tenant, buf_data(&all), all.len);
		twins_digest(i->app->twins, buf_data(&all), all.len, &i->retry);
		/* The same in every gateway. */
		SHA256((const uint8_t *)api_body(i->x), i->x->body.len, i->claim.body.bytes);
	}
	buf_dispose(&all);
	return rc;
}

static size_t most_kept(const struct gw_app *app)
{
	uint64_t n = app->t->cfg->store.value_bytes;
	return n > 0 ? (size_t)n : DEFAULT_VALUE_BYTES;
}

bool idempotent_gate(struct exchange *x)
{
	const char *key = http_header(http_request(x->stream), "idempotency-key");
	if (key == NULL || !takes_key(x->route) || x->app->t->cache == NULL)
		return true;
	size_t n = strlen(key);
	if (n < 1 || n > MAX_KEY) {
		exchange_error(x, &(struct api_error){400, "invalid_request_error", "invalid_value", "Idempotency-Key", 0},
			       "An Idempotency-Key has 1 to %d bytes.", MAX_KEY);
		return false;
	}
	struct idempotent *i = sl_zalloc(sizeof *i);
	if (i == NULL) {
		api_reply_no_memory(x);
		return false;
	}
	i->app = x->app;
	i->x = x;
	i->since_ns = clock_now_ns();
	buf_init(&i->kept, most_kept(x->app));
	list_push_back(&x->app->idempotents, &i->node);
	i->timer = evtimer_new(x->app->t->base, on_timer, i);
	x->state = i;
	x->on_close = on_close;
	if (i->timer == NULL || name_it(i, key) != 0) {
		part(i);
		idempotent_free(i);
		api_reply_no_memory(x);
		return false;
	}
	ask(i);
	return false;
}

/* ---- the answer ---- */

struct twin_log *idempotent_joins(const struct idempotent *i, const char **id, int64_t *created)
{
	if (i == NULL || i->state != JOINED)
		return NULL;
	*id = i->claim.id;
	*created = i->claim.created;
	return i->claim.log;
}

void idempotent_begin(struct idempotent *i, const char *id, int64_t created, struct twin_log *log)
{
	if (i == NULL || i->state != HELD)
		return;
	struct twin_claim claim = i->claim;
	snprintf(claim.id, sizeof claim.id, "%s", id);
	claim.created = created;
	claim.log = log;
	if (log != NULL)
		i->name = twins_name(i->app->twins, &i->retry, &claim);
	const struct record_head head = {.state = RECORD_RUNNING, .body = i->claim.body};
	if (buf_append(&i->kept, &head, sizeof head) != 0)
		buf_clear(&i->kept, 0);
}

void idempotent_keep(struct idempotent *i, const void *bytes, size_t n)
{
	if (i == NULL || i->kept.len == 0 || n == 0)
		return;
	if (buf_append(&i->kept, bytes, n) != 0)
		buf_clear(&i->kept, 0);
}

static void on_gone(struct cache_op *op, const struct cache_result *r)
{
	(void)r; /* the lease ends by itself */
	idempotent_free(of_op(op));
}

static void on_stored(struct cache_op *op, const struct cache_result *r)
{
	struct idempotent *i = of_op(op);
	if (r->code == 0)
		idempotent_free(i);
	else
		cache_delete(i->app->t->cache, &i->op, &i->key, on_gone);
}

void idempotent_end(struct idempotent *i, bool whole, bool stream)
{
	if (i == NULL)
		return;
	BUG_IF(i->state == ASKING || i->state == STORING, "a repeated request ends in state %d", (int)i->state);
	if (i->state == JOINED) {
		idempotent_free(i);
		return;
	}
	i->state = STORING;
	evtimer_del(i->timer);
	cache_cancel(&i->op); /* a renewal */
	if (whole && i->kept.len > 0) {
		buf_data(&i->kept)[0] = stream ? RECORD_STREAM : RECORD_WHOLE;
		cache_put(i->app->t->cache, &i->op, &i->key, VERSION, buf_data(&i->kept), i->kept.len,
			  i->app->t->cfg->twins.idempotency_ms, on_stored);
		return;
	}
	twins_forget(i->app->twins, i->name);
	i->name = NULL;
	cache_delete(i->app->t->cache, &i->op, &i->key, on_gone);
}
