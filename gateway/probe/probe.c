/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/probe/probe.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "base/utf8.h"
#include "gateway/exchange/app_state.h"
#include "gateway/exchange/exchange.h"
#include "gateway/loop/random.h"
#include "gateway/request/query.h"

enum {
	DEFAULT_EVENTS = 5,
	DEFAULT_INTERVAL_MS = 200,
	ID_MAX = 8 + RANDOM_NAME_CHARS,
	N_ENDS = 256, /* that are remembered */
	OUT_MAX = 32 << 10,
	VALUE_MAX = 400, /* of a field that is reported */
	LOOK_MS = 500,   /* how soon a stop of the process is noticed */
};

/* ---- how probes ended ---- */

enum state { RUNNING, COMPLETE, LEFT };

struct end {
	char id[ID_MAX];
	uint64_t tenant;
	enum state state;
};

static struct {
	pthread_mutex_t lock;
	struct end ends[N_ENDS]; /* a ring */
	unsigned next, n_running;
} directory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_running(const struct end *e) { return e->id[0] != '\0' && e->state == RUNNING; }

/* With the lock held. */
static unsigned count_running(uint64_t tenant)
{
	unsigned n = 0;
	for (size_t i = 0; i < N_ENDS; i++)
		n += is_running(&directory.ends[i]) && directory.ends[i].tenant == tenant;
	return n;
}

enum { FULL = -1, TENANT_FULL = -2 };

/* The place of a new probe; or too many are running, in the process or of the tenant. */
static int enter(const char *id, uint64_t tenant)
{
	int at = FULL;
	pthread_mutex_lock(&directory.lock);
	if (count_running(tenant) >= PROBE_TENANT_MAX) {
		at = TENANT_FULL;
	} else if (directory.n_running < PROBE_MAX) {
		do
			at = (int)(directory.next++ % N_ENDS);
		while (is_running(&directory.ends[at]));
		directory.n_running++;
		snprintf(directory.ends[at].id, ID_MAX, "%s", id);
		directory.ends[at].tenant = tenant;
		directory.ends[at].state = RUNNING;
	}
	pthread_mutex_unlock(&directory.lock);
	return at;
}

static void leave(int at, bool complete)
{
	pthread_mutex_lock(&directory.lock);
	directory.ends[at].state = complete ? COMPLETE : LEFT;
	directory.n_running--;
	pthread_mutex_unlock(&directory.lock);
}

static bool find(const char *id, uint64_t tenant, enum state *out)
{
	bool found = false;
	pthread_mutex_lock(&directory.lock);
	for (size_t i = 0; i < N_ENDS && !found; i++) {
		found = directory.ends[i].tenant == tenant && strcmp(directory.ends[i].id, id) == 0;
		*out = directory.ends[i].state;
	}
	pthread_mutex_unlock(&directory.lock);
	return found;
}

/* ---- the stream ---- */

struct probe {
	struct exchange *x;
	struct gw_timer timer;
	struct sl_buf out;
	uint64_t n_events, interval_ms, quiet_ms, sent, begun_ns, due_ns;
	int place; /* in the directory */
	bool done; /* the last event is written */
	bool stopped;
};

static void append_field(struct sl_buf *out, const char *name, const char *value)
{
	size_t n = value != NULL ? strlen(value) : 0;
	buf_printf(out, ",\"%s\":", name);
	n = n < VALUE_MAX ? n : utf8_whole_prefix((const uint8_t *)value, VALUE_MAX);
	if (value == NULL || !utf8_valid(value, n))
		buf_append_str(out, "null");
	else
		json_out_string(out, value, n);
}

static void append_arrival(struct sl_buf *out, const struct http_request *r)
{
	static const char *const versions[] = {[HTTP_1_0] = "1.0", [HTTP_1_1] = "1.1", [HTTP_2] = "2"};
	static const struct {
		const char *name, *field;
	} reported[] = {
	    {"x_forwarded_for", "x-forwarded-for"},
	    {"x_forwarded_proto", "x-forwarded-proto"},
	    {"forwarded", "forwarded"},
	    {"via", "via"},
	    {"accept_encoding", "accept-encoding"},
	    {"user_agent", "user-agent"},
	};
	buf_printf(out, ",\"http\":\"%s\",\"tls\":%s", versions[r->version], r->tls ? "true" : "false");
	append_field(out, "host", r->authority);
	append_field(out, "client", r->peer);
	for (size_t i = 0; i < sizeof reported / sizeof *reported; i++) {
		const struct http_field *f = NULL;
		for (size_t k = 0; k < r->n_fields && f == NULL; k++)
			f = strcmp(r->fields[k].name, reported[i].field) == 0 ? &r->fields[k] : NULL;
		append_field(out, reported[i].name, f != NULL ? f->value : NULL);
	}
}

/* `first`: with how the request came. The buffer holds every event a probe can have, so appending fails only without
 * memory, and then the stream lacks an event and doctor says so. */
static void append_event(struct probe *p, bool first)
{
	uint64_t now = gw_read_clock(p->x->app->t);
	buf_printf(&p->out, "data: {\"event\":%" PRIu64 ",\"at_ms\":%" PRIu64, p->sent++,
		   (uint64_t)((now - p->begun_ns) / NS_PER_MS));
	if (first) {
		append_field(&p->out, "id", directory.ends[p->place].id);
		append_arrival(&p->out, http_request(p->x->stream));
	}
	buf_append_str(&p->out, p->done ? ",\"last\":true}\n\n" : "}\n\n");
}

/* Until the next event, or the next look at whether the process stops. */
static void sleep_on(struct probe *p, uint64_t now)
{
	uint64_t left = p->due_ns > now ? p->due_ns - now : 0, look = LOOK_MS * (uint64_t)NS_PER_MS;
	gw_timer_start(&p->x->app->t->timers, &p->timer, left < look ? left : look);
}

static void schedule(struct probe *p)
{
	uint64_t ms = p->sent < p->n_events ? p->interval_ms : p->quiet_ms, now = gw_read_clock(p->x->app->t);
	p->due_ns = now + ms * NS_PER_MS;
	sleep_on(p, now);
}

static void fire(struct gw_timer *timer)
{
	struct probe *p = list_entry(timer, struct probe, timer);
	struct gw_thread *t = p->x->app->t;
	uint64_t now = gw_read_clock(t);
	/* A replaced process has the time for its streams; one that stops has not. */
	p->stopped = t->draining && !t->replaced;
	if (!p->stopped && now < p->due_ns) {
		sleep_on(p, now);
		return;
	}
	if (!p->stopped) {
		p->done = p->sent >= p->n_events;
		append_event(p, false);
		if (!p->done)
			schedule(p);
	}
	http_body_ready(p->x->stream);
}

static ssize_t pull(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct probe *p = ctx;
	size_t n = p->out.len < room ? p->out.len : room;
	if (n > 0)
		memcpy(dst, buf_data(&p->out), n);
	buf_consume(&p->out, n);
	*end = (p->done || p->stopped) && p->out.len == 0;
	return (ssize_t)n;
}

static void on_close(struct exchange *x)
{
	struct probe *p = x->state;
	gw_timer_stop(&x->app->t->timers, &p->timer);
	leave(p->place, p->done && p->out.len == 0);
	buf_dispose(&p->out);
	sl_free(p);
}

/* A parameter of the query, up to max. False: x is answered. */
static bool read_number(struct exchange *x, const char *name, uint64_t max, uint64_t *out)
{
	int rc = query_get_u64(http_request(x->stream)->query, name, out);
	if (rc >= 0 && *out <= max)
		return true;
	return exchange_refuse(x, 400, "invalid_value", name, "%s must be a number from 0 to %" PRIu64 ".", name, max);
}

static void refuse_entry(struct exchange *x, int place)
{
	if (place == TENANT_FULL)
		exchange_refuse(x, 429, "too_many_probes", NULL, "Too many probes of this key are running.");
	else
		exchange_refuse(x, 503, "too_many_probes", NULL, "Too many probes are running.");
}

void probe_stream(struct exchange *x)
{
	uint64_t events = DEFAULT_EVENTS, interval_ms = DEFAULT_INTERVAL_MS, quiet_ms = 0;
	char id[ID_MAX] = "probe_";
	if (!read_number(x, "events", PROBE_EVENTS_MAX, &events) ||
	    !read_number(x, "interval_ms", PROBE_INTERVAL_MS_MAX, &interval_ms) ||
	    !read_number(x, "quiet_ms", PROBE_QUIET_MS_MAX, &quiet_ms))
		return;
	if (events * interval_ms + quiet_ms > PROBE_MS_MAX) {
		exchange_refuse(x, 400, "invalid_value", "interval_ms",
				"events * interval_ms + quiet_ms must be at most %d.", PROBE_MS_MAX);
		return;
	}
	if (!random_name(id + strlen(id))) {
		exchange_refuse(x, 500, NULL, NULL, "No random number could be made.");
		return;
	}
	int place = enter(id, x->key->tenant);
	if (place < 0) {
		refuse_entry(x, place);
		return;
	}
	struct probe *p = exchange_own(x, sizeof *p, on_close);
	if (p == NULL) {
		leave(place, false);
		return;
	}
	*p = (struct probe){.x = x,
			    .n_events = events,
			    .interval_ms = interval_ms,
			    .quiet_ms = quiet_ms,
			    .place = place,
			    .begun_ns = gw_read_clock(x->app->t)};
	gw_timer_init(&p->timer, fire);
	buf_init(&p->out, OUT_MAX);
	append_event(p, true);
	schedule(p);
	exchange_reply_stream(x, stream_fields, STREAM_FIELDS, (struct http_source){pull, p});
}

void probe_end(struct exchange *x)
{
	static const char *const names[] = {[RUNNING] = "running", [COMPLETE] = "complete", [LEFT] = "left"};
	const char *id = strrchr(http_request(x->stream)->path, '/') + 1; /* the route has one */
	enum state state;
	struct sl_buf out;
	if (!find(id, x->key->tenant, &state)) {
		exchange_refuse(x, 404, "probe_not_found", NULL, "No such probe.");
		return;
	}
	buf_init(&out, OUT_MAX);
	int rc = buf_append_str(&out, "{\"id\":");
	if (rc == 0)
		rc = json_out_string(&out, id, strlen(id));
	if (rc == 0)
		rc = buf_printf(&out, ",\"state\":\"%s\"}", names[state]);
	exchange_reply_text(x, &out, rc);
}
