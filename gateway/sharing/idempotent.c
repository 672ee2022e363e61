/* SPDX-License-Identifier: Apache-2.0
 *
 * A record in the store is a state, the digest of the body, and once it has ended the answer. A running one is a lease:
 * short and renewed, so that the key of a dead gateway is soon free again. It contains its gateway's process, so that a
 * request on the same machine sees that the process has gone and takes the key at once, and a number that no other
 * lease has.
 *
 * Every change names the record that it replaces, or none (idempotent_proc.h). So a lease that has expired and was
 * taken by another gateway is neither renewed nor overwritten by late messages. The store's fallback to this process's
 * memory is not used: memory does not know the key's state.
 *
 * An answer that a failing Redis does not take is offered again for ten minutes, within 16 MiB of a thread; meanwhile
 * repetitions join it here.
 */
#include "gateway/sharing/idempotent.h"

#include <event2/event.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "cache/cache.h"
#include "gateway/exchange/app_state.h"
#include "gateway/sharing/idempotent_proc.h"
#include "gateway/loop/random.h"
#include "gateway/replay/replay_store.h"
#include "gateway/exchange/route.h"

enum {
	MAX_KEY = 255,
	LEASE_MS = 30000,
	RENEW_MS = 10000,
	AGAIN_MS = 250, /* after the store did not respond */
	PAUSE_MS = 50,
	PATIENCE_MS = 5000,
	UNKNOWN_MS = 2000,    /* how long a failing store is asked; not at all while it is down */
	RELEASING_MS = 30000, /* by then the lease has expired */
	STORING_MS = 600000,
	LAST_MS = 2000,          /* both, while the process ends */
	MOST_STORING = 16 << 20, /* bytes of a thread that wait for the store */
	DEFAULT_VALUE_BYTES = 1 << 20,
};

enum record_state { RECORD_RUNNING = IDEMPOTENT_RUNNING, RECORD_WHOLE, RECORD_STREAM };

struct record_head {
	uint8_t version, state;
	struct request_digest body;
};

/* After the head: the lease of its process (replay_store.h), as text, and a number. */
enum { MOST_LEASE = 256 };
struct running {
	uint8_t bytes[sizeof(struct record_head) + MOST_LEASE];
	size_t n;
};

enum state { ASKING, HELD, JOINED, STORING, RELEASING };

struct idempotent {
	struct list node;
	struct gw_app *app;
	struct exchange *x; /* while it is ASKING */
	enum state state;
	struct cache_op op;
	struct cache_key key;
	struct event *timer;
	uint64_t since_ns;           /* it has been in its state */
	bool asked;                  /* the store may hold `mine` */
	struct running mine, theirs; /* its lease; the lease that it takes over */
	struct request_digest retry;
	struct coalesce_claim claim; /* its own, or that of the answer it joins */
	struct coalesce_name *name;
	struct sl_buf kept; /* a record; empty: no longer kept */
};

COUNTER(replays, "sluice_idempotent_replays_total", "Repeated requests that got the answer of the first");
COUNTER(unknown, "sluice_idempotent_unknown_total",
	"Requests refused because the state of their Idempotency-Key could not be read from the store");
GAUGE(unstored, "sluice_idempotent_unstored_bytes",
      "Bytes of answers to requests with an Idempotency-Key that the store has yet to take");

static struct idempotent *of_op(struct cache_op *op) { return list_entry(op, struct idempotent, op); }

static void unkeep(struct idempotent *i)
{
	if (i->state == STORING) {
		i->app->unstored_bytes -= i->kept.len;
		metric_add(&unstored, -(int64_t)i->kept.len);
	}
	buf_clear(&i->kept, 0);
}

static void idempotent_free(struct idempotent *i)
{
	cache_cancel(&i->op);
	unkeep(i);
	coalesce_forget(i->app->inflight, i->name);
	if (i->claim.log != NULL)
		token_log_unref(i->claim.log);
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

static bool is_over(const struct idempotent *i, uint64_t ms) { return clock_now_ns() - i->since_ns >= ms * NS_PER_MS; }

/* May an update of the store be retried for so long? */
static bool may_retry(const struct idempotent *i, uint64_t ms)
{
	const struct gw_thread *t = i->app->t;
	return !is_over(i, t->draining && !t->replaced ? LAST_MS : ms);
}

static void enter(struct idempotent *i, enum state to)
{
	i->state = to;
	i->since_ns = clock_now_ns();
}

/* ---- the record ---- */

/* Without a response of Redis the state is unknown: the fallback to memory does not count. */
static bool is_unknown(const struct cache_result *r) { return r->code != 0 || r->degraded || r->n_values < 1; }

static bool is_done(const struct cache_result *r) { return r->values[0].p == NULL && r->values[0].i == 1; }

static void change(struct idempotent *i, const struct running *want, bool absent, const void *to, size_t n,
		   uint64_t ttl_ms, cache_done *done)
{
	const struct cache_value args[] = {{.p = want->bytes, .n = want->n},
					   {.i = absent},
					   {.p = to, .n = n},
					   {.i = (int64_t)ttl_ms},
					   {.i = LEASE_MS}};
	i->asked = true;
	cache_eval(i->app->t->cache, &i->op, &idempotent_change, &i->key, 1, args, sizeof args / sizeof *args, done);
}

static bool is_down(const struct idempotent *i) { return cache_client_state(i->app->t->cache) == CACHE_IS_DOWN; }

/* Replaces the record `want` by its lease. */
static void lease(struct idempotent *i, const struct running *want, bool absent, cache_done *done)
{
	change(i, want, absent, i->mine.bytes, i->mine.n, LEASE_MS, done);
}

/* ---- releasing the lease ---- */
static void release_later(struct idempotent *i)
{
	if (may_retry(i, RELEASING_MS))
		restart(i, AGAIN_MS);
	else
		idempotent_free(i);
}

static void on_released(struct cache_op *op, const struct cache_result *r)
{
	struct idempotent *i = of_op(op);
	if (is_unknown(r))
		release_later(i);
	else
		idempotent_free(i);
}

static void release(struct idempotent *i)
{
	if (is_down(i))
		release_later(i);
	else
		change(i, &i->mine, false, "", 0, 0, on_released);
}

/* The key gets no answer: frees i, and releases its lease if the store has it. */
static void give_back(struct idempotent *i)
{
	cache_cancel(&i->op);
	unkeep(i);
	evtimer_del(i->timer);
	coalesce_forget(i->app->inflight, i->name);
	i->name = NULL;
	if (!i->asked) {
		idempotent_free(i);
		return;
	}
	enter(i, RELEASING);
	release(i);
}

/* ---- outcomes of asking ---- */

static struct exchange *detach(struct idempotent *i)
{
	struct exchange *x = i->x;
	i->x = NULL;
	exchange_disown(x);
	return x;
}

static void call_handler(struct idempotent *i, enum state as)
{
	struct exchange *x = detach(i);
	enter(i, as);
	x->idempotent = i;
	x->route->handle(x);
}

static void reply_other(struct idempotent *i)
{
	struct exchange *x = detach(i);
	idempotent_free(i);
	exchange_error(
	    x, &(struct api_error){422, "invalid_request_error", "idempotency_key_reused", "Idempotency-Key", 0},
	    "This Idempotency-Key was used with another request.");
}

static void reply_running(struct idempotent *i)
{
	static const struct http_field fields[] = {{"retry-after", "1"}, {"x-should-retry", "true"}};
	static const struct api_error e = {409, "invalid_request_error", "idempotency_key_in_use", "Idempotency-Key",
					   0};
	struct exchange *x = detach(i);
	struct sl_buf body;
	idempotent_free(i);
	buf_init(&body, 1024);
	int rc =
	    exchange_print_error(&body, x, &e, "The first request with this Idempotency-Key is still being answered.");
	exchange_reply(x, e.status, rc == 0 ? "application/json" : NULL, fields, 2, buf_data(&body),
		       rc == 0 ? body.len : 0);
	buf_dispose(&body);
}

static void reply_unknown(struct idempotent *i)
{
	struct exchange *x = detach(i);
	metric_add(&unknown, 1);
	give_back(i);
	exchange_error(x, &(struct api_error){503, "server_error", "store_unavailable", NULL, 1},
		       "The state of this Idempotency-Key is temporarily unknown. Nothing was done.");
}

static void replay(struct idempotent *i, bool stream, const uint8_t *bytes, size_t n)
{
	struct http_field fields[STREAM_FIELDS + 1] = {{"x-sluice-idempotent-replay", "true"}};
	struct exchange *x = detach(i);
	for (size_t k = 0; k < STREAM_FIELDS; k++)
		fields[1 + k] = stream_fields[k];
	metric_add(&replays, 1);
	exchange_reply(x, 200, stream ? exchange_stream_type(x) : "application/json", fields,
		       stream ? STREAM_FIELDS + 1 : 1, bytes, n);
	idempotent_free(i);
}

/* ---- asking ---- */

static bool make_lease(struct idempotent *i)
{
	const struct record_head head = {IDEMPOTENT_VERSION, RECORD_RUNNING, i->claim.body};
	uint64_t number;
	if (!random_u64(&number))
		return false;
	memcpy(i->mine.bytes, &head, sizeof head);
	int n = snprintf((char *)i->mine.bytes + sizeof head, MOST_LEASE, "%s %016llx", replay_lease_text(),
			 (unsigned long long)number);
	i->mine.n = sizeof head + (size_t)n;
	return n > 0 && n < MOST_LEASE;
}

static void pause_or_refuse(struct idempotent *i)
{
	if (is_over(i, PATIENCE_MS))
		reply_running(i);
	else
		restart(i, PAUSE_MS);
}

static void ask_again(struct idempotent *i)
{
	if (is_over(i, UNKNOWN_MS))
		reply_unknown(i);
	else
		restart(i, PAUSE_MS);
}

static void on_taken(struct cache_op *op, const struct cache_result *r)
{
	struct idempotent *i = of_op(op);
	if (is_unknown(r)) {
		ask_again(i);
	} else if (!is_done(r)) {
		i->asked = false; /* another request has it */
		pause_or_refuse(i);
	} else {
		restart(i, RENEW_MS);
		call_handler(i, HELD);
	}
}

static void on_found(struct idempotent *i, const uint8_t *bytes, size_t n)
{
	struct record_head head;
	if (n < sizeof head) { /* not one of our records */
		reply_unknown(i);
		return;
	}
	memcpy(&head, bytes, sizeof head);
	bool dead = head.state == RECORD_RUNNING && n <= sizeof i->theirs.bytes &&
		    replay_lease_is_of_dead(bytes + sizeof head, n - sizeof head);
	if (memcmp(&head.body, &i->claim.body, sizeof head.body) != 0) {
		reply_other(i);
	} else if (head.state != RECORD_RUNNING) {
		replay(i, head.state == RECORD_STREAM, bytes + sizeof head, n - sizeof head);
	} else if (dead) {
		memcpy(i->theirs.bytes, bytes, n);
		i->theirs.n = n;
		lease(i, &i->theirs, false, on_taken);
	} else {
		pause_or_refuse(i);
	}
}

static void on_asked(struct cache_op *op, const struct cache_result *r)
{
	struct idempotent *i = of_op(op);
	if (is_unknown(r) || is_done(r) || r->n_values < 2 || r->values[1].p == NULL) {
		on_taken(op, r);
		return;
	}
	i->asked = false;
	on_found(i, r->values[1].p, r->values[1].n);
}

static void ask(struct idempotent *i)
{
	struct coalesce_claim claim;
	if (!coalesce_find(i->app->inflight, &i->retry, &claim)) {
		if (is_down(i))
			reply_unknown(i);
		else
			lease(i, &i->mine, true, on_asked);
		return;
	}
	bool same = memcmp(&claim.body, &i->claim.body, sizeof claim.body) == 0;
	if (same && claim.log != NULL) {
		i->claim = claim;
		metric_add(&replays, 1);
		call_handler(i, JOINED);
		return;
	}
	if (claim.log != NULL)
		token_log_unref(claim.log);
	if (!same)
		reply_other(i);
	else
		pause_or_refuse(i);
}

/* If the lease expired meanwhile, the answer continues, and is not stored. */
static void on_renewed(struct cache_op *op, const struct cache_result *r)
{
	if (is_unknown(r))
		restart(of_op(op), AGAIN_MS);
}

static void store(struct idempotent *i);

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct idempotent *i = ctx;
	(void)fd, (void)what;
	switch (i->state) {
	case ASKING: ask(i); return;
	case HELD:
		if (!cache_op_busy(&i->op) && !is_down(i))
			lease(i, &i->mine, true, on_renewed);
		restart(i, is_down(i) ? AGAIN_MS : RENEW_MS);
		return;
	case STORING: store(i); return;
	case RELEASING: release(i); return;
	case JOINED: return;
	}
}

static void on_close(struct exchange *x)
{
	struct idempotent *i = x->state;
	detach(i);
	give_back(i);
}

/* ---- the gate ---- */

static int name_it(struct idempotent *i, const char *key)
{
	struct sl_buf all;
	char tenant[24];
	buf_init(&all, 1024);
	snprintf(tenant, sizeof tenant, "%016llx", (unsigned long long)i->x->key->tenant);
	int rc = buf_printf(&all, "Idempotency-Key\n%s\n%s\n%s", tenant, i->x->route->name, key);
	/* Subjects of browser tokens share a tenant, but not answers. */
	if (rc == 0 && i->x->subject != NULL && i->x->subject[0] != '\0')
		rc = buf_printf(&all, "\n%s", i->x->subject);
	if (rc == 0) {
		cache_key_make(&i->key, CACHE_SHARED, tenant, buf_data(&all), all.len);
		inflight_digest(i->app->inflight, &(struct iovec){buf_data(&all), all.len}, 1, &i->retry);
		/* The same in every gateway. */
		SHA256((const uint8_t *)exchange_body(i->x), i->x->body.len, i->claim.body.bytes);
	}
	buf_dispose(&all);
	return rc;
}

static size_t most_kept(const struct gw_app *app)
{
	uint64_t n = app->t->cfg->store.value_bytes;
	/* The lease is sent to the store with it. */
	return (n > 0 ? (size_t)n : DEFAULT_VALUE_BYTES) - sizeof(struct running);
}

bool idempotent_gate(struct exchange *x)
{
	const char *key = http_header(http_request(x->stream), "idempotency-key");
	if (key == NULL || !x->route->takes_idempotency_key || x->app->t->cache == NULL)
		return true;
	size_t n = strlen(key);
	if (n < 1 || n > MAX_KEY) {
		exchange_error(x,
			       &(struct api_error){400, "invalid_request_error", "invalid_value", "Idempotency-Key", 0},
			       "An Idempotency-Key has 1 to %d bytes.", MAX_KEY);
		return false;
	}
	struct idempotent *i = sl_zalloc(sizeof *i);
	if (i == NULL) {
		exchange_reply_no_memory(x);
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
	if (i->timer == NULL || name_it(i, key) != 0 || !make_lease(i)) {
		detach(i);
		idempotent_free(i);
		exchange_reply_no_memory(x);
		return false;
	}
	ask(i);
	return false;
}

/* ---- the answer ---- */

struct token_log *idempotent_joins(const struct idempotent *i, const char **id, int64_t *created)
{
	if (i == NULL || i->state != JOINED)
		return NULL;
	*id = i->claim.id;
	*created = i->claim.created;
	return i->claim.log;
}

void idempotent_begin(struct idempotent *i, const char *id, int64_t created, struct token_log *log)
{
	if (i == NULL || i->state != HELD)
		return;
	struct coalesce_claim claim = i->claim;
	snprintf(claim.id, sizeof claim.id, "%s", id);
	claim.created = created;
	claim.log = log;
	i->name = coalesce_name(i->app->inflight, &i->retry, &claim);
	const struct record_head head = {IDEMPOTENT_VERSION, RECORD_RUNNING, i->claim.body};
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

static void store_later(struct idempotent *i, int code)
{
	bool may_be_taken = code != SL_ELIMIT && code != SL_EINVAL;
	if (may_be_taken && may_retry(i, STORING_MS) && i->app->unstored_bytes <= MOST_STORING) {
		restart(i, AGAIN_MS);
		return;
	}
	log_warn("the answer to a request with an Idempotency-Key could not be stored: %s", sl_code_name(code));
	give_back(i);
}

static void on_stored(struct cache_op *op, const struct cache_result *r)
{
	struct idempotent *i = of_op(op);
	if (is_unknown(r))
		store_later(i, r->code);
	else
		idempotent_free(i);
}

static void store(struct idempotent *i)
{
	if (is_down(i))
		store_later(i, SL_ECLOSED);
	else
		change(i, &i->mine, true, buf_data(&i->kept), i->kept.len, i->app->t->cfg->coalescing.idempotency_ms,
		       on_stored);
}

void idempotent_end(struct idempotent *i, bool whole, bool stream)
{
	if (i == NULL)
		return;
	BUG_IF(i->state != HELD && i->state != JOINED, "a repeated request ends in state %d", (int)i->state);
	if (i->state == JOINED) {
		idempotent_free(i);
		return;
	}
	if (!whole || i->kept.len == 0) {
		give_back(i);
		return;
	}
	evtimer_del(i->timer);
	cache_cancel(&i->op); /* a renewal */
	buf_data(&i->kept)[offsetof(struct record_head, state)] = stream ? RECORD_STREAM : RECORD_WHOLE;
	enter(i, STORING);
	i->app->unstored_bytes += i->kept.len;
	metric_add(&unstored, (int64_t)i->kept.len);
	store(i);
}
