/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's connection to Redis, and its circuit breaker; they are one state machine:
 *
 *              first time                        handshake done
 *   create ──► CONNECTING ─────────────────────────────────────► UP
 *                  │ failed                                       │ connection lost, READONLY, NOAUTH,
 *                  ▼            after the backoff                 │ or breaker_failures failures in a row
 *                DOWN ─────────► PROBING ──handshake done──► UP   │ (timeouts, LOADING, OOM, nonsense …)
 *                  ▲                 │ failed                     │
 *                  └─────────────────┴────────────────────────────┘
 *
 * With sentinels, connecting begins with a question to one of them (redis_sentinel.c), another one each time, so a link
 * follows a failover: the old primary closes, is gone, or refuses the handshake's write.
 *
 * DOWN and PROBING are the open and half-open circuit: operations are answered by policy at once. The handshake is
 * AUTH, SELECT, SCRIPT LOAD of every script and a small write; so a Redis that is loading, a replica or full doesn't
 * close the circuit. Connecting and the handshake share one deadline. The backoff doubles from least to most with each
 * failed attempt and resets when an operation is answered; half of it is random, so that gateways don't reconnect
 * together.
 *
 * Every command sent has a slot, the privdata of its callback; a slot outlives its work: a late answer is dropped.
 * hiredis calls every callback once: with the reply, or with NULL when the context goes.
 *
 * hiredis may free the context in any call and then calls `closed`; until then `ac` is set. A callback tears nothing
 * down: `dropping` and the timer do that from the loop.
 *
 * Thread: the client's.
 */
#define LOG_SUBSYSTEM LOG_STORE

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <event2/util.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"
#include "base/peer.h"
#include "cache/redis_priv.h"

enum link_state { LINK_CONNECTING, LINK_UP, LINK_DOWN, LINK_PROBING };

enum slot_use { SLOT_WORK, SLOT_AUTH, SLOT_SELECT, SLOT_SCRIPT, SLOT_PROBE };

/* Commands of a handshake: they have slots beside those of max_ops works. */
enum { HANDSHAKE_SLOTS = MAX_SCRIPTS + 3 };

struct redis_slot {
	struct redis_slot *next; /* free ones */
	struct redis_link *link;
	struct cache_work *work; /* NULL: released, or the handshake's */
	enum slot_use use;
	int script;
	bool whole_text; /* EVAL was sent */
	uint64_t sent_ns;
};

struct redis_link {
	struct cache_client *client;
	const struct cache *cache;
	redisAsyncContext *ac; /* NULL: none */
	struct redis_guard guard;
	struct sentinel_ask *ask;            /* NULL: none; then there is no connection yet */
	unsigned asked;                      /* how often */
	char master[SENTINEL_HOST_MOST + 8]; /* what a sentinel named last */
	enum link_state state;
	bool dropping;     /* the timer ends the connection */
	bool closing;      /* this side closes: `closed` is expected */
	uint32_t failures; /* in a row */
	uint32_t attempts; /* since the last answered operation */
	struct event *timer;
	struct redis_slot *slots, *free_slots;
	char sha[MAX_SCRIPTS][SHA_LEN + 1];
	char why[160], text[192];
};

/* ---- states ---- */

static void set_timer(struct redis_link *l, uint64_t us)
{
	struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	/* It was added before, so libevent has room for it. */
	if (event_add(l->timer, &tv) != 0)
		event_active(l->timer, EV_TIMEOUT, 0);
}

static uint64_t backoff_us(struct redis_link *l)
{
	const struct cache_config *cfg = &l->cache->cfg;
	uint32_t doublings = l->attempts < 20 ? l->attempts : 20;
	uint64_t ms = (uint64_t)cfg->backoff_least_ms << doublings;
	if (ms > cfg->backoff_most_ms)
		ms = cfg->backoff_most_ms;
	uint32_t random;
	evutil_secure_rng_get_bytes(&random, sizeof random);
	return ms * 500 + random % (ms * 500 + 1);
}

static void set_state(struct redis_link *l, enum link_state to)
{
	static const char *const names[] = {"connecting", "up", "down", "down, probing"};
	enum link_state from = l->state;
	l->state = to;
	metric_add(&cache_m_up, (to == LINK_UP) - (from == LINK_UP));
	snprintf(l->text, sizeof l->text, to == LINK_UP || to == LINK_CONNECTING ? "%s" : "%s: %s", names[to], l->why);
	if (from != to)
		flight_note(FLIGHT_STORE, (uint64_t)to, (uint64_t)from, 0, 0, 0);
	if (from != to && to == LINK_UP) {
		log_info("store: connected to Redis");
	} else if (to == LINK_DOWN && from != LINK_PROBING) {
		metric_add(&cache_m_opened, 1);
		log_warn("store: Redis is not used until it works again: %s", l->why);
	}
}

__attribute__((format(printf, 2, 3))) static void set_why(struct redis_link *l, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(l->why, sizeof l->why, fmt, ap);
	va_end(ap);
	for (char *p = l->why; *p != '\0'; p++) /* it may come from the server */
		if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
			*p = '?';
}

static void drop_question(struct redis_link *l)
{
	sentinel_ask_free(l->ask);
	l->ask = NULL;
}

/* Opens the circuit. The connection is closed from the loop, then the backoff runs. */
static void go_down(struct redis_link *l)
{
	if (l->state == LINK_DOWN)
		return;
	set_state(l, LINK_DOWN);
	drop_question(l);
	l->dropping = l->ac != NULL;
	set_timer(l, l->dropping ? 0 : backoff_us(l));
	client_release_waiting(l->client);
}

static void count_failure(struct redis_link *l, enum cache_failure failure)
{
	metric_add(&cache_m_failures[failure], 1);
	if (l->state == LINK_UP && ++l->failures >= l->cache->cfg.breaker_failures)
		go_down(l);
}

/* hiredis is freeing the context. */
static void closed(void *ctx)
{
	struct redis_link *l = ctx;
	char err[128];
	snprintf(err, sizeof err, "%s", l->ac->errstr == NULL ? "" : l->ac->errstr);
	l->ac = NULL;
	if (l->closing)
		return;
	metric_add(&cache_m_failures[FAILED_CLOSED], 1);
	if (l->state == LINK_DOWN) { /* closing already */
		l->dropping = false;
		set_timer(l, backoff_us(l));
		return;
	}
	set_why(l, "%s", err[0] == '\0' ? "the connection was closed" : err);
	go_down(l);
}

/* ---- slots ---- */

static struct redis_slot *take_slot(struct redis_link *l, enum slot_use use, struct cache_work *w)
{
	struct redis_slot *s = l->free_slots;
	if (s == NULL)
		return NULL;
	l->free_slots = s->next;
	*s = (struct redis_slot){.link = l, .use = use, .work = w, .script = -1, .sent_ns = clock_now_ns()};
	if (w != NULL)
		w->slot = s;
	return s;
}

static void free_slot(struct redis_slot *s)
{
	if (s->work != NULL)
		s->work->slot = NULL;
	s->work = NULL;
	s->next = s->link->free_slots;
	s->link->free_slots = s;
}

static void on_reply(redisAsyncContext *ac, void *reply, void *privdata);

/* ---- the handshake ---- */

static void handshake_failed(struct redis_link *l, const redisReply *reply)
{
	if (l->state == LINK_DOWN || l->state == LINK_UP)
		return;
	if (reply->type == REDIS_REPLY_ERROR) {
		metric_add(&cache_m_failures[redis_error_of(reply).failure], 1);
		set_why(l, "%s", reply->str);
	} else {
		metric_add(&cache_m_failures[FAILED_MALFORMED], 1);
		set_why(l, "an answer that Redis doesn't give");
	}
	go_down(l);
}

static void handshake_reply(struct redis_link *l, enum slot_use use, int script, const redisReply *reply)
{
	if (l->state != LINK_CONNECTING && l->state != LINK_PROBING)
		return;
	if (use == SLOT_SCRIPT) {
		if (reply->type != REDIS_REPLY_STRING || reply->len != SHA_LEN ||
		    strspn(reply->str, "0123456789abcdef") != SHA_LEN) {
			handshake_failed(l, reply);
			return;
		}
		memcpy(l->sha[script], reply->str, SHA_LEN + 1);
		return;
	}
	if (reply->type != REDIS_REPLY_STATUS || strcmp(reply->str, "OK") != 0) {
		handshake_failed(l, reply);
		return;
	}
	if (use != SLOT_PROBE)
		return;
	event_del(l->timer);
	l->failures = 0;
	set_state(l, LINK_UP);
	client_release_waiting(l->client);
}

static int say(struct redis_link *l, enum slot_use use, int script, int argc, const char **argv)
{
	struct redis_slot *s = take_slot(l, use, NULL);
	if (s == NULL)
		return SL_ELIMIT;
	s->script = script;
	if (redisAsyncCommandArgv(l->ac, on_reply, s, argc, argv, NULL) == REDIS_OK)
		return 0;
	free_slot(s);
	return SL_ECLOSED;
}

/* Sent in one write; answers arrive in order. */
static int handshake(struct redis_link *l)
{
	const struct cache *c = l->cache;
	int rc = 0;
	if (c->password != NULL && c->user != NULL)
		rc = say(l, SLOT_AUTH, -1, 3, (const char *[]){"AUTH", c->user, c->password});
	else if (c->password != NULL)
		rc = say(l, SLOT_AUTH, -1, 2, (const char *[]){"AUTH", c->password});
	char database[16], probe[64];
	snprintf(database, sizeof database, "%d", c->cfg.database);
	if (rc == 0 && c->cfg.database != 0)
		rc = say(l, SLOT_SELECT, -1, 2, (const char *[]){"SELECT", database});
	for (int i = 0; rc == 0 && redis_script_text(c, i) != NULL; i++)
		rc = say(l, SLOT_SCRIPT, i, 3, (const char *[]){"SCRIPT", "LOAD", redis_script_text(c, i)});
	snprintf(probe, sizeof probe, "%sprobe", c->prefix);
	if (rc == 0)
		rc = say(l, SLOT_PROBE, -1, 5, (const char *[]){"SET", probe, "1", "PX", "60000"});
	return rc;
}

/* ---- connecting ---- */

static size_t max_reply_bytes(const struct cache *c) { return 2 * c->cfg.max_value_bytes + (1 << 20); }

static void close_connection(struct redis_link *l)
{
	if (l->ac == NULL)
		return;
	l->closing = true;
	redisAsyncFree(l->ac); /* calls every callback, then `closed` */
	l->closing = false;
	l->dropping = false;
}

/* A context without `closed`: it ends here. */
static int give_up(struct redis_link *l, redisAsyncContext *ac, int code, const char *why)
{
	set_why(l, "%s", why);
	if (ac != NULL)
		redisAsyncFree(ac);
	return code;
}

static int open_connection(struct redis_link *l, const char *host, int port)
{
	const struct cache *c = l->cache;
	metric_add(&cache_m_connects, 1);
	redisAsyncContext *ac =
	    c->unix_path != NULL ? redisAsyncConnectUnix(c->unix_path) : redisAsyncConnect(host, port);
	if (ac == NULL)
		return give_up(l, ac, SL_ENOMEM, "no memory");
	if (ac->err != 0)
		return give_up(l, ac, SL_ECLOSED, ac->errstr);
	uid_t uid;
	if (c->cfg.own_server && c->unix_path != NULL && !peer_is_trusted(ac->c.fd, &uid)) {
		set_why(l, "a process of another user (uid %d) serves its socket", (int)uid);
		redisAsyncFree(ac);
		return SL_ECLOSED;
	}
	redis_reply_attach(ac, &l->guard);
	if (redis_event_attach(ac, l->client->base, max_reply_bytes(c), closed, l) != 0)
		return give_up(l, ac, SL_ENOMEM, "no memory");
	l->ac = ac;
	int rc = handshake(l);
	if (rc != 0) {
		set_why(l, "no memory");
		close_connection(l);
	}
	return rc;
}

static void no_connection(struct redis_link *l)
{
	metric_add(&cache_m_failures[FAILED_CLOSED], 1);
	go_down(l);
}

static void on_sentinel(void *ctx, const char *host, int port, const char *why)
{
	struct redis_link *l = ctx;
	char named[sizeof l->master];
	int rc = SL_ECLOSED;
	if (host == NULL) {
		set_why(l, "%s", why);
	} else {
		snprintf(named, sizeof named, "%s, port %d", host, port);
		if (strcmp(named, l->master) != 0)
			log_info("store: the sentinel names %s", named);
		memcpy(l->master, named, sizeof named);
		rc = open_connection(l, host, port);
	}
	drop_question(l);
	if (rc != 0)
		no_connection(l);
}

static int ask_sentinel(struct redis_link *l)
{
	int rc = sentinel_ask(l->cache, l->client->base, l->asked++, on_sentinel, l, &l->ask);
	if (rc != 0)
		set_why(l, "no memory");
	return rc;
}

static void connect_now(struct redis_link *l, enum link_state state)
{
	const struct cache *c = l->cache;
	set_state(l, state);
	set_timer(l, (uint64_t)c->cfg.connect_timeout_ms * 1000);
	l->attempts++;
	if ((c->sentinels.n > 0 ? ask_sentinel(l) : open_connection(l, c->host, c->port)) != 0)
		no_connection(l);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct redis_link *l = arg;
	switch (l->state) {
	case LINK_DOWN:
		if (l->dropping) {
			close_connection(l);
			set_timer(l, backoff_us(l));
			return;
		}
		connect_now(l, LINK_PROBING);
		return;
	case LINK_CONNECTING:
	case LINK_PROBING:
		metric_add(&cache_m_failures[FAILED_TIMEOUT], 1);
		set_why(l, "no answer within %u ms", l->cache->cfg.connect_timeout_ms);
		go_down(l);
		return;
	case LINK_UP: return;
	}
}

/* ---- works ---- */

int redis_link_submit(struct redis_link *l, struct cache_work *w)
{
	struct redis_slot *s = l->ac != NULL ? take_slot(l, SLOT_WORK, w) : NULL;
	if (s == NULL) {
		metric_add(&cache_m_failures[FAILED_FULL], 1);
		return SL_ELIMIT;
	}
	s->script = redis_script_of(l->cache, w);
	int rc = redis_send(l->ac, w, s->script < 0 ? NULL : l->sha[s->script], on_reply, s);
	if (rc != 0) {
		free_slot(s);
		metric_add(&cache_m_failures[FAILED_CLOSED], 1);
	}
	return rc;
}

void redis_link_forget(struct redis_link *l, struct cache_work *w, bool timed_out)
{
	w->slot->work = NULL;
	w->slot = NULL;
	if (!timed_out)
		return;
	if (l->state == LINK_UP)
		set_why(l, "no answer within %u ms", l->cache->cfg.op_timeout_ms * 3 / 4);
	count_failure(l, FAILED_TIMEOUT);
}

static void on_error(struct redis_slot *s, struct cache_work *w, const redisReply *reply)
{
	struct redis_link *l = s->link;
	struct redis_error e = redis_error_of(reply);
	if (e.action == ERROR_NOSCRIPT && !s->whole_text && s->script >= 0 && l->state == LINK_UP && l->ac != NULL) {
		/* Redis lost its scripts: send the whole text, which loads it again. */
		struct redis_slot *again = take_slot(l, SLOT_WORK, w);
		if (again != NULL) {
			again->script = s->script;
			again->whole_text = true;
			if (redis_send(l->ac, w, NULL, on_reply, again) == 0)
				return;
			free_slot(again);
		}
	}
	if (l->state == LINK_UP)
		set_why(l, "%s", reply->str);
	count_failure(l, e.failure);
	if (e.action == ERROR_RECONNECT && l->state == LINK_UP)
		go_down(l);
	client_failed(w, e.code);
}

static void on_work_reply(struct redis_slot *s, struct cache_work *w, const redisReply *reply)
{
	struct redis_link *l = s->link;
	if (reply->type == REDIS_REPLY_ERROR) {
		on_error(s, w, reply);
		return;
	}
	struct cache_result r;
	int rc = redis_result(w, reply, &r);
	if (rc != 0) {
		if (l->state == LINK_UP)
			set_why(l, "an answer that Redis doesn't give");
		count_failure(l, FAILED_MALFORMED);
		client_failed(w, rc);
		return;
	}
	l->failures = 0;
	l->attempts = 0;
	metric_add(&cache_m_redis_ops, 1);
	metric_observe(&cache_m_redis_seconds, (int64_t)(clock_now_ns() - s->sent_ns));
	client_answered(w, &r);
}

static void on_reply(redisAsyncContext *ac, void *reply, void *privdata)
{
	(void)ac;
	struct redis_slot copy = *(struct redis_slot *)privdata;
	struct cache_work *w = copy.work;
	free_slot(privdata);
	if (reply == NULL) { /* the context is being freed; `closed` has been or will be called */
		if (w != NULL)
			client_failed(w, SL_ECLOSED);
		return;
	}
	if (copy.use != SLOT_WORK)
		handshake_reply(copy.link, copy.use, copy.script, reply);
	else if (w != NULL)
		on_work_reply(&copy, w, reply);
}

/* ---- life ---- */

int redis_link_create(struct cache_client *cl, struct redis_link **out)
{
	struct redis_link *l = sl_zalloc(sizeof *l);
	if (l == NULL)
		return SL_ENOMEM;
	l->client = cl;
	l->cache = cl->cache;
	size_t n = cl->cache->cfg.max_ops + HANDSHAKE_SLOTS;
	l->slots = sl_zalloc_n(n, sizeof *l->slots);
	l->timer = event_new(cl->base, -1, 0, on_timer, l);
	if (l->slots == NULL || l->timer == NULL) {
		client_event_free(l->timer);
		sl_free(l->slots);
		sl_free(l);
		return SL_ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		l->slots[i].link = l;
		free_slot(&l->slots[i]);
	}
	cl->link = l; /* connecting may fail at once and call the client */
	connect_now(l, LINK_CONNECTING);
	*out = l;
	return 0;
}

void redis_link_destroy(struct redis_link *l)
{
	drop_question(l);
	close_connection(l);
	metric_add(&cache_m_up, -(l->state == LINK_UP));
	event_free(l->timer);
	sl_free(l->slots);
	sl_free(l);
}

enum cache_state redis_link_state(const struct redis_link *l)
{
	static const enum cache_state states[] = {[LINK_CONNECTING] = CACHE_IS_CONNECTING,
						  [LINK_UP] = CACHE_IS_UP,
						  [LINK_DOWN] = CACHE_IS_DOWN,
						  [LINK_PROBING] = CACHE_IS_DOWN};
	return states[l->state];
}

const char *redis_link_text(const struct redis_link *l) { return l->text; }
