/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/remote_load.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/remote/remote_priv.h"

enum {
	BODY_MAX = 1 << 20,
	ANSWER_MS = 2000,
	OLD_INTERVALS = 3, /* figures that are older are not used */
	MOST_DOUBLINGS = 6,
	MOST_REST_MS = 60000,
};
#define NOTE_EACH_NS (60 * NS_PER_S)

static struct remote *of_call(struct remote_call *c)
{
	struct remote_load *m = (struct remote_load *)(void *)((char *)c - offsetof(struct remote_load, call));
	return (struct remote *)(void *)((char *)m - offsetof(struct remote, load));
}

static void arm(struct remote *r, uint64_t ms)
{
	const struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
	event_add(r->load.timer, &tv);
}

static void arm_next(struct remote *r)
{
	unsigned doublings = r->load.n_failed < MOST_DOUBLINGS ? r->load.n_failed : MOST_DOUBLINGS;
	uint64_t ms = r->cfg.metrics_ms << doublings, most = r->cfg.metrics_ms;
	most = most > MOST_REST_MS ? most : MOST_REST_MS;
	arm(r, ms < most ? ms : most);
}

/* ---- what a look brought ---- */

static void note(struct remote *r, const char *why)
{
	struct remote_load *m = &r->load;
	uint64_t now = clock_now_ns();
	if (m->noted || (m->noted_ns != 0 && now - m->noted_ns < NOTE_EACH_NS))
		return;
	log_warn("upstream %s: its metrics (%s) are not used for now: %s", r->cfg.url, r->cfg.metrics, why);
	m->noted = true;
	m->noted_ns = now;
}

static void failed(struct remote *r, const char *why)
{
	r->load.n_failures++;
	r->load.n_failed++;
	note(r, why);
}

static void worked(struct remote *r)
{
	struct remote_load *m = &r->load;
	uint64_t all = (uint64_t)m->gauges.running + m->gauges.waiting;
	/* Those that began or ended meanwhile may be in the figures or not: never too many count as others'. */
	uint64_t own = r->stats.running > m->n_own ? r->stats.running : m->n_own;
	m->others = all > own ? (uint32_t)(all - own) : 0;
	m->at_ns = clock_now_ns();
	m->n_failed = 0;
	if (m->noted)
		log_info("upstream %s: its metrics are used again", r->cfg.url);
	m->noted = false;
}

static void on_end(struct remote_call *c)
{
	struct remote *r = of_call(c);
	const char *text = c->text.len > 0 ? (const char *)buf_data(&c->text) : "";
	char why[REMOTE_WHY_MAX];
	r->load.n_reads++;
	if (remote_call_failed(c))
		failed(r, c->why);
	else if (remote_gauges_read(text, c->text.len, &r->load.gauges, why, sizeof why) != 0)
		failed(r, why);
	else
		worked(r);
	buf_clear(&c->text, 0);
	arm_next(r);
}

/* ---- looking ---- */

static void late(struct remote *r)
{
	remote_call_stop(&r->load.call);
	buf_clear(&r->load.call.text, 0);
	r->load.n_reads++;
	failed(r, "they do not come in time");
	arm_next(r);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct remote *r = ctx;
	(void)fd;
	(void)what;
	if (r->load.call.http != NULL) {
		late(r);
		return;
	}
	r->load.n_own = r->stats.running;
	if (breaker_closed(&r->breaker) && remote_call_start(r->http, &r->load.call) == 0)
		arm(r, r->cfg.connect_ms + ANSWER_MS);
	else
		arm_next(r);
}

/* ---- what is known ---- */

static bool is_known(const struct remote *r)
{
	uint64_t old_ms = OLD_INTERVALS * r->cfg.metrics_ms + ANSWER_MS;
	return r->load.at_ns != 0 && clock_now_ns() - r->load.at_ns < old_ms * NS_PER_MS;
}

void remote_load_stats(const struct remote *r, struct proto_upstream *out)
{
	const struct remote_load *m = &r->load;
	out->reads = m->n_reads;
	out->failed_reads = m->n_failures;
	out->reports = is_known(r);
	if (!out->reports)
		return;
	out->running = m->gauges.running;
	out->waiting = m->gauges.waiting;
	out->others = m->others;
	out->kv_permille = m->gauges.kv_permille;
}

/* One of those that run there ends so often. */
static uint64_t us_per_place(const struct remote *r)
{
	uint32_t n = r->load.gauges.running;
	double us = r->each_ns / 1e3 / (n > 0 ? n : 1);
	return us < UINT32_MAX ? (uint64_t)us : UINT32_MAX;
}

uint64_t remote_load_wait_us(const struct remote *r)
{
	uint64_t us = is_known(r) ? r->load.gauges.waiting * us_per_place(r) : 0;
	return us < UINT32_MAX ? us : UINT32_MAX;
}

bool remote_load_is_free(const struct remote *r) { return !is_known(r) || r->load.others == 0; }

void remote_load_add(const struct remote *r, struct proto_load *out)
{
	uint32_t wait = (uint32_t)remote_load_wait_us(r), each = (uint32_t)us_per_place(r);
	out->idle = out->idle && remote_load_is_free(r);
	if (!is_known(r) || r->load.gauges.waiting == 0)
		return;
	for (int i = 0; i < PROTO_PRIORITIES; i++) {
		struct proto_line *line = &out->of[i];
		line->places_free = 0;
		line->wait_us = line->wait_us > wait ? line->wait_us : wait;
		line->us_per_place = line->us_per_place > each ? line->us_per_place : each;
	}
}

/* ---- life ---- */

int remote_load_init(struct remote *r)
{
	if (r->cfg.metrics[0] == '\0')
		return 0;
	r->load.call = (struct remote_call){
	    .kind = REMOTE_WHOLE, .path = r->cfg.metrics, .at_origin = true, .accept = "text/plain", .on_end = on_end};
	buf_init(&r->load.call.text, BODY_MAX);
	r->load.timer = evtimer_new(r->base, on_timer, r);
	if (r->load.timer == NULL)
		return SL_ENOMEM;
	arm(r, 0);
	return 0;
}

void remote_load_dispose(struct remote *r)
{
	remote_call_stop(&r->load.call);
	remote_call_dispose(&r->load.call);
	if (r->load.timer != NULL)
		event_free(r->load.timer);
}
