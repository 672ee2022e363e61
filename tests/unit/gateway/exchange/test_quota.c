/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotas: what keys may use up, over memory and over a real redis-server on the same fake clock; two
 * gateways on one Redis; a Redis that is stopped in between.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/metrics.h"
#include "cache/limits.h"
#include "gateway/exchange/quota.h"
#include "tests/support/cache_rig.h"
#include "tests/support/on_both.h"

#define SECOND UINT64_C(1000000)
#define DAY (86400 * SECOND)

struct world {
	struct rig g;
	struct quotas qs;
	struct gw_tier_config tier;
	struct auth_key key;
};

static void open_world(struct world *w, bool redis)
{
	memset(w, 0, sizeof *w);
	rig_init(&w->g);
	if (redis) {
		w->g.cfg.store = CACHE_REDIS;
		w->g.cfg.address = server.address;
	}
	rig_open(&w->g);
	if (redis)
		rig_turn_until_state(&w->g, CACHE_IS_UP);
	assert_int_equal(quotas_init(&w->qs, w->g.base, w->g.cl), 0);
	w->tier = (struct gw_tier_config){.name = (char *)"t"};
	w->key.tier = &w->tier;
	w->key.tenant = 0x1234;
}

static void close_world(struct world *w)
{
	quotas_dispose(&w->qs);
	rig_close(&w->g);
}

static int set_up_memory(void **state)
{
	static struct world w;
	open_world(&w, false);
	*state = &w;
	return 0;
}

static int set_up_redis(void **state)
{
	static struct world w;
	if (!installed)
		return 0;
	redis_server_number(&server, "FLUSHALL");
	open_world(&w, true);
	*state = &w;
	return 0;
}

static int tear_down(void **state)
{
	if (*state != NULL)
		close_world(*state);
	return 0;
}

static struct world *world_of(void **state) { return state_of(state); }

struct taking {
	int n_done;
	struct quota *q; /* NULL once it was refused */
	struct quota_result r;
};

static void on_done(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct taking *t = ctx;
	t->n_done++;
	t->r = *r;
	if (!r->admitted)
		t->q = NULL;
	else
		assert_ptr_equal(t->q, q);
}

static void begin(struct world *w, struct taking *t, int64_t requests, int64_t tokens, int64_t least)
{
	memset(t, 0, sizeof *t);
	assert_int_equal(
	    quota_take(&w->qs, &(struct quota_ask){&w->key, requests, tokens, least, 0}, on_done, t, &t->q), 0);
	assert_int_equal(t->n_done, 0);
	assert_non_null(t->q);
}

static struct taking take(struct world *w, int64_t requests, int64_t tokens, int64_t least)
{
	struct taking t;
	begin(w, &t, requests, tokens, least);
	rig_turn_until(&w->g, &t.n_done, 1);
	assert_int_equal(t.r.code, 0);
	return t;
}

/* Turns the loop until the store knows everything. */
static void quiet(struct world *w)
{
	uint64_t end = clock_now_ns() + RIG_PATIENCE_MS * NS_PER_MS;
	struct timeval tick = {.tv_usec = 50000};
	while (quotas_busy(&w->qs)) {
		assert_true(clock_now_ns() < end);
		event_base_loopexit(w->g.base, &tick);
		event_base_loop(w->g.base, EVLOOP_ONCE);
	}
}

static void settle(struct world *w, struct taking *t, int64_t used)
{
	quota_settle(t->q, used);
	t->q = NULL;
	quiet(w);
}

/* As /metrics tells it. */
static int64_t refusals(const char *limit)
{
	struct sl_buf text;
	char line[80];
	buf_init(&text, 1 << 20);
	snprintf(line, sizeof line, "\nsluice_quota_refused_total{limit=\"%s\"} ", limit);
	assert_int_equal(metrics_print(&text), 0);
	assert_int_equal(buf_append(&text, "", 1), 0);
	const char *at = strstr((const char *)buf_data(&text), line);
	assert_non_null(at);
	int64_t n = strtoll(at + strlen(line), NULL, 10);
	buf_dispose(&text);
	return n;
}

/* ---- what there is ---- */

static void without_limits_nothing_is_asked(void **state)
{
	struct world *w = world_of(state);
	struct quota *q;
	struct quota_ask ask = {&w->key, 1, 100, 10, 0};
	assert_int_equal(quota_take(&w->qs, &ask, on_done, NULL, &q), 1);
	assert_null(q);
	quota_settle(q, 5);
	struct quotas none;
	assert_int_equal(quotas_init(&none, w->g.base, NULL), 0);
	w->tier.requests_per_minute = 1;
	assert_int_equal(quota_take(&none, &ask, on_done, NULL, &q), 1);
	assert_false(quotas_busy(&none));
	quotas_dispose(&none);
}

static void requests_end_at_the_exact_one(void **state)
{
	struct world *w = world_of(state);
	struct taking t;
	w->tier.requests_per_minute = 6;
	for (int i = 0; i < 6; i++) {
		t = take(w, 1, 100, 1);
		assert_true(t.r.admitted);
		assert_int_equal(t.r.each[QUOTA_REQUESTS].limit, 6);
		assert_int_equal(t.r.each[QUOTA_REQUESTS].remaining, 5 - i);
		assert_int_equal(t.r.each[QUOTA_REQUESTS].reset_us, (i + 1) * 10 * (int)SECOND);
		assert_int_equal(t.r.each[QUOTA_TOKENS].limit, 0);
		assert_true(t.r.granted == INT64_MAX);
		settle(w, &t, 50); /* a request stays counted */
	}
	int64_t counted = refusals("requests");
	t = take(w, 1, 100, 1);
	assert_false(t.r.admitted);
	assert_int_equal(refusals("requests"), counted + 1);
	assert_int_equal(t.r.refused_by, QUOTA_REQUESTS);
	assert_int_equal(t.r.retry_after_us, 10 * SECOND);
	w->g.now_us += 10 * SECOND;
	t = take(w, 1, 100, 1);
	assert_true(t.r.admitted);
	settle(w, &t, 0);
	/* Several prompts are several requests, all or none. */
	w->g.now_us += 60 * SECOND;
	t = take(w, 7, 100, 1);
	assert_false(t.r.admitted);
	assert_int_equal(t.r.retry_after_us, -1);
	t = take(w, 6, 100, 1);
	assert_true(t.r.admitted);
	settle(w, &t, 0);
}

static void keys_have_limits_of_their_own(void **state)
{
	struct world *w = world_of(state);
	w->tier.requests_per_minute = 1;
	struct taking t = take(w, 1, 1, 1);
	settle(w, &t, 0);
	assert_false(take(w, 1, 1, 1).r.admitted);
	w->key.tenant++;
	t = take(w, 1, 1, 1);
	assert_true(t.r.admitted);
	settle(w, &t, 0);
}

static void tokens_of_a_minute_come_back_or_become_a_debt(void **state)
{
	struct world *w = world_of(state);
	w->tier.tokens_per_minute = 600;
	struct taking a = take(w, 1, 400, 1);
	assert_true(a.r.admitted);
	assert_int_equal(a.r.each[QUOTA_TOKENS].remaining, 200);
	struct taking b = take(w, 1, 300, 1);
	assert_false(b.r.admitted);
	assert_int_equal(b.r.refused_by, QUOTA_TOKENS);
	assert_int_equal(b.r.retry_after_us, 10 * SECOND); /* 100 tokens at 10 a second */
	settle(w, &a, 150);
	b = take(w, 1, 300, 1);
	assert_true(b.r.admitted);
	assert_int_equal(b.r.each[QUOTA_TOKENS].remaining, 150);
	settle(w, &b, 500); /* 200 more than it had: 50 more than there are */
	b = take(w, 1, 1, 1);
	assert_false(b.r.admitted);
	assert_int_equal(b.r.retry_after_us, (50 + 1) * SECOND / 10);
	/* A request larger than the limit waits for a full minute, and then goes. */
	w->g.now_us += 65 * SECOND;
	b = take(w, 1, 100000, 1);
	assert_true(b.r.admitted);
	assert_int_equal(b.r.each[QUOTA_TOKENS].remaining, 0);
	settle(w, &b, 600);
}

static void the_days_tokens_are_never_passed(void **state)
{
	struct world *w = world_of(state);
	w->tier.tokens_per_day = 1000;
	w->g.now_us = 20000 * DAY + 100 * SECOND;
	struct taking a = take(w, 1, 700, 10);
	assert_int_equal(a.r.granted, 700);
	struct taking b = take(w, 1, 700, 10);
	assert_true(b.r.admitted);
	assert_int_equal(b.r.granted, 300); /* what is left */
	struct taking c = take(w, 1, 700, 10);
	assert_false(c.r.admitted);
	assert_int_equal(c.r.refused_by, QUOTA_DAY);
	assert_true(c.r.contended); /* a and b may not use it */
	assert_int_equal(c.r.retry_after_us, SECOND);
	settle(w, &a, 200);
	settle(w, &b, 300);
	c = take(w, 1, 600, 501);
	assert_false(c.r.admitted || c.r.contended);
	assert_int_equal(c.r.retry_after_us, DAY - 100 * SECOND);
	c = take(w, 1, 10, 10);
	assert_int_equal(c.r.each[QUOTA_DAY].remaining, 490);
	settle(w, &c, 10);
	c = take(w, 1, 700, 491); /* its prompt alone is more */
	assert_false(c.r.admitted);
	c = take(w, 1, 700, 490);
	assert_int_equal(c.r.granted, 490);
	settle(w, &c, 490);
	c = take(w, 1, 2000, 1001);
	assert_int_equal(c.r.retry_after_us, -1); /* on no day */
	w->g.now_us += DAY;
	c = take(w, 1, 2000, 1);
	assert_int_equal(c.r.granted, 1000);
	settle(w, &c, 0);
}

/* All or none: what is refused by one limit is not charged to another. */
static void a_refusal_charges_nothing(void **state)
{
	struct world *w = world_of(state);
	w->tier = (struct gw_tier_config){.requests_per_minute = 10, .tokens_per_minute = 100, .tokens_per_day = 1000};
	struct taking a = take(w, 1, 100, 1);
	assert_true(a.r.admitted);
	for (int i = 0; i < 5; i++) {
		struct taking b = take(w, 1, 100, 1);
		assert_false(b.r.admitted);
		assert_int_equal(b.r.refused_by, QUOTA_TOKENS);
		assert_int_equal(b.r.each[QUOTA_REQUESTS].remaining, 9);
		assert_int_equal(b.r.each[QUOTA_DAY].remaining, 900);
	}
	settle(w, &a, 100);
}

static void one_that_leaves_early_is_charged_no_tokens(void **state)
{
	struct world *w = world_of(state);
	w->tier = (struct gw_tier_config){.tokens_per_minute = 100, .tokens_per_day = 1000};
	for (int i = 0; i < 5; i++) {
		struct taking t, refused;
		begin(w, &t, 1, 100, 1);
		begin(w, &refused, 1, 100, 1);
		quota_settle(t.q, 0);
		quota_settle(refused.q, 0); /* was never charged: gives nothing back */
		quiet(w);
		assert_int_equal(t.n_done + refused.n_done, 0);
	}
	struct taking t = take(w, 1, 60, 1);
	assert_int_equal(t.r.each[QUOTA_TOKENS].remaining, 40);
	assert_int_equal(t.r.each[QUOTA_DAY].remaining, 940);
	struct taking early;
	begin(w, &early, 1, 60, 1);
	quota_settle(early.q, 0);
	quiet(w);
	struct taking more = take(w, 1, 40, 1);
	assert_true(more.r.admitted);
	assert_int_equal(more.r.each[QUOTA_TOKENS].remaining, 0);
	settle(w, &t, 60);
	settle(w, &more, 40);
}

static void a_long_answer_keeps_its_reservation(void **state)
{
	struct world *w = world_of(state);
	uint64_t fake = clock_now_ns();
	w->tier.tokens_per_day = 1000;
	w->g.now_us = 20000 * DAY;
	struct taking t = take(w, 1, 800, 1);
	for (int minute = 1; minute <= 10; minute++) {
		w->g.now_us += 61 * SECOND;
		quotas_run(&w->qs, fake + (uint64_t)minute * 61 * NS_PER_S);
		struct taking other = take(w, 1, 1000, 1); /* comes after the renewal */
		assert_int_equal(other.r.granted, 200);
		settle(w, &other, 0);
	}
	settle(w, &t, 800);
	/* Not renewed it ends: so does one whose gateway died. */
	t = take(w, 1, 200, 1);
	assert_int_equal(t.r.granted, 200);
	w->g.now_us += 181 * SECOND;
	struct taking other = take(w, 1, 1000, 1);
	assert_int_equal(other.r.granted, 200);
	settle(w, &other, 0);
	settle(w, &t, 0);
}

/* Its holder dies, another goes on with it: it is charged once. */
static void one_that_is_left_is_gone_on_with(void **state)
{
	struct world *w = world_of(state);
	struct quota_ticket ticket;
	w->tier.tokens_per_day = 1000;
	w->tier.tokens_per_minute = 1000;
	w->g.now_us = 20000 * DAY;
	struct taking t = take(w, 1, 300, 1);
	quota_ticket(t.q, &ticket);
	quota_leave(t.q);
	memset(&t, 0, sizeof t);
	assert_int_equal(quota_adopt(&w->qs, &w->key, &ticket, on_done, &t, &t.q), 0);
	rig_turn_until(&w->g, &t.n_done, 1);
	assert_true(t.r.admitted);
	settle(w, &t, 100);
	t = take(w, 1, 1, 1);
	assert_int_equal(t.r.each[QUOTA_DAY].remaining, 899);
	assert_int_equal(t.r.each[QUOTA_TOKENS].remaining, 899);
	settle(w, &t, 0);
	/* Its time is over: nothing is charged, and it must be asked for anew. */
	t = take(w, 1, 300, 1);
	quota_ticket(t.q, &ticket);
	quota_leave(t.q);
	w->g.now_us += 181 * SECOND;
	memset(&t, 0, sizeof t);
	assert_int_equal(quota_adopt(&w->qs, &w->key, &ticket, on_done, &t, &t.q), 0);
	rig_turn_until(&w->g, &t.n_done, 1);
	assert_false(t.r.admitted);
	assert_null(t.q);
	/* It is given up while that is found out. */
	t = take(w, 1, 300, 1);
	quota_ticket(t.q, &ticket);
	quota_leave(t.q);
	assert_int_equal(quota_adopt(&w->qs, &w->key, &ticket, on_done, &t, &t.q), 0);
	settle(w, &t, 0);
	t = take(w, 1, 1000, 1);
	assert_int_equal(t.r.granted, 900);
	settle(w, &t, 0);
	/* Rates alone have nothing to be adopted at the store. */
	w->tier.tokens_per_day = 0;
	t = take(w, 1, 300, 1);
	quota_ticket(t.q, &ticket);
	quota_leave(t.q);
	assert_int_equal(quota_adopt(&w->qs, &w->key, &ticket, on_done, &t, &t.q), 1);
	assert_non_null(t.q);
	settle(w, &t, 300);
}

/* More than it takes for what was asked for to be answered. */
static void turn_a_while(struct world *w)
{
	for (int i = 0; i < 5; i++) {
		struct timeval tick = {.tv_usec = 50000};
		event_base_loopexit(w->g.base, &tick);
		event_base_loop(w->g.base, 0);
	}
}

static void begin_patiently(struct world *w, struct taking *t, int64_t tokens, int64_t least)
{
	memset(t, 0, sizeof *t);
	const struct quota_ask ask = {&w->key, 1, tokens, least, RIG_PATIENCE_MS};
	assert_int_equal(quota_take(&w->qs, &ask, on_done, t, &t->q), 0);
}

static void what_others_only_hold_is_waited_for(void **state)
{
	struct world *w = world_of(state);
	struct taking a, first, second, third;
	w->tier.tokens_per_day = 1000;
	w->g.now_us = 20000 * DAY;
	a = take(w, 1, 1000, 10);
	begin_patiently(w, &first, 700, 10);
	begin_patiently(w, &second, 700, 10);
	begin_patiently(w, &third, 700, 10);
	turn_a_while(w);
	assert_int_equal(first.n_done + second.n_done + third.n_done, 0);
	quota_settle(third.q, 0); /* it gives up, and holds nothing */
	quota_settle(a.q, 100);
	rig_turn_until(&w->g, &first.n_done, 1);
	assert_int_equal(first.r.granted, 700);
	rig_turn_until(&w->g, &second.n_done, 1);
	assert_int_equal(second.r.granted, 200); /* the rest */
	begin_patiently(w, &third, 10, 10);
	settle(w, &first, 700);
	settle(w, &second, 200);
	/* Used up: nothing is left to wait for. */
	rig_turn_until(&w->g, &third.n_done, 1);
	assert_false(third.r.admitted || third.r.contended);
	assert_int_equal(third.r.retry_after_us, DAY);
}

static void patience_ends(void **state)
{
	struct world *w = world_of(state);
	struct taking a, b;
	w->tier.tokens_per_day = 1000;
	w->g.now_us = 20000 * DAY;
	a = take(w, 1, 1000, 10);
	memset(&b, 0, sizeof b);
	assert_int_equal(quota_take(&w->qs, &(struct quota_ask){&w->key, 1, 10, 10, 150}, on_done, &b, &b.q), 0);
	rig_turn_until(&w->g, &b.n_done, 1);
	assert_true(b.r.contended && !b.r.admitted);
	assert_int_equal(b.r.retry_after_us, SECOND);
	settle(w, &a, 0);
}

static void extend(struct taking *t, int64_t used, int64_t want)
{
	t->n_done = 0;
	quota_extend(t->q, used, want, RIG_PATIENCE_MS, on_done, t);
}

static void an_answer_gets_more_as_it_goes(void **state)
{
	struct world *w = world_of(state);
	w->tier.tokens_per_day = 1000;
	w->g.now_us = 20000 * DAY;
	struct taking a = take(w, 1, 600, 10), b = take(w, 1, 700, 10), c;
	assert_int_equal(b.r.granted, 400);
	extend(&b, 390, 300);
	begin_patiently(w, &c, 10, 10); /* comes after who runs already */
	turn_a_while(w);
	assert_int_equal(b.n_done + c.n_done, 0);
	quota_settle(a.q, 300);
	rig_turn_until(&w->g, &b.n_done, 1);
	assert_int_equal(b.r.granted, 300);
	turn_a_while(w);
	assert_int_equal(c.n_done, 0); /* 300 and 390 are used, and b holds 310 */
	extend(&b, 700, 300);
	rig_turn_until(&w->g, &b.n_done, 1);
	assert_int_equal(b.r.granted, 0);
	rig_turn_until(&w->g, &c.n_done, 1);
	assert_false(c.r.admitted || c.r.contended);
	settle(w, &b, 700);
	/* What was charged on the way is charged once. */
	w->g.now_us += DAY;
	a = take(w, 1, 500, 1);
	b = take(w, 1, 700, 1);
	extend(&b, 300, 200);
	turn_a_while(w);
	settle(w, &b, 400); /* it ends while it waits */
	settle(w, &a, 0);
	c = take(w, 1, 1000, 1);
	assert_int_equal(c.r.granted, 600);
	settle(w, &c, 0);
}

/* Neither can have what the other has used. */
static void two_that_starve_do_not_wait_for_each_other(void **state)
{
	struct world *w = world_of(state);
	w->tier.tokens_per_day = 1000;
	w->g.now_us = 20000 * DAY;
	struct taking a = take(w, 1, 500, 1), b = take(w, 1, 900, 1);
	extend(&a, 500, 400);
	extend(&b, 500, 400);
	rig_turn_until(&w->g, &a.n_done, 1);
	rig_turn_until(&w->g, &b.n_done, 1);
	assert_int_equal(a.r.granted + b.r.granted, 0);
	settle(w, &a, 500);
	settle(w, &b, 500);
}

static void on_peeked(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct taking *t = ctx;
	assert_ptr_equal(t->q, q);
	t->n_done++;
	t->r = *r;
	t->q = NULL;
}

static struct quota_result peek(struct world *w)
{
	struct taking t = {0};
	assert_int_equal(quota_peek(&w->qs, &w->key, on_peeked, &t, &t.q), 0);
	rig_turn_until(&w->g, &t.n_done, 1);
	assert_int_equal(t.r.code, 0);
	quiet(w);
	return t.r;
}

/* However often one looks, and whatever is left. */
static void looking_charges_nothing(void **state)
{
	struct world *w = world_of(state);
	struct quota *q;
	struct taking gone = {0};
	assert_int_equal(quota_peek(&w->qs, &w->key, on_peeked, &gone, &q), 1);
	w->tier.requests_per_minute = 3;
	w->tier.tokens_per_minute = 500;
	w->tier.tokens_per_day = 1000;
	for (int i = 0; i < 5; i++) {
		struct quota_result r = peek(w);
		assert_int_equal(r.each[QUOTA_REQUESTS].remaining, 3);
		assert_int_equal(r.each[QUOTA_REQUESTS].limit, 3);
		assert_int_equal(r.each[QUOTA_REQUESTS].reset_us, 0);
		assert_int_equal(r.each[QUOTA_TOKENS].remaining, 500);
		assert_int_equal(r.each[QUOTA_DAY].remaining, 1000);
	}
	struct taking t = take(w, 1, 100, 1);
	struct quota_result r = peek(w);
	assert_int_equal(r.each[QUOTA_REQUESTS].remaining, 2);
	assert_int_equal(r.each[QUOTA_TOKENS].remaining, 400);
	assert_int_equal(r.each[QUOTA_DAY].remaining, 900);
	assert_in_range(r.each[QUOTA_REQUESTS].reset_us, 1, 20 * SECOND);
	settle(w, &t, 700); /* a debt: looking still works, and says so */
	r = peek(w);
	assert_int_equal(r.each[QUOTA_TOKENS].remaining, 0);
	assert_int_equal(r.each[QUOTA_REQUESTS].remaining, 2);
	assert_int_equal(r.each[QUOTA_DAY].remaining, 300);
	/* One that leaves before the answer. */
	assert_int_equal(quota_peek(&w->qs, &w->key, on_peeked, &gone, &gone.q), 0);
	quota_settle(gone.q, 0);
	assert_false(quotas_busy(&w->qs));
	assert_int_equal(gone.n_done, 0);
}

static void without_memory_nothing_is_taken(void **state)
{
	struct world *w = world_of(state);
	struct quota *q;
	w->tier.requests_per_minute = 1;
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(quota_take(&w->qs, &(struct quota_ask){&w->key, 1, 1, 1, 0}, on_done, NULL, &q), SL_ENOMEM);
	fault_disarm_all();
	assert_null(q);
	struct taking t = take(w, 1, 1, 1);
	assert_true(t.r.admitted);
	settle(w, &t, 0);
}

/* ---- several gateways, and a Redis that stops ---- */

static void fresh_redis(void)
{
	need_redis();
	redis_server_number(&server, "FLUSHALL");
}

static void two_gateways_share_limits_to_the_request_and_token(void **state)
{
	(void)state;
	fresh_redis();
	enum { ASKED = 1000 };
	static struct world w[2];
	static struct taking t[ASKED];
	int64_t charged = 0, reserved = 0;
	int n = 0, refused = 0;
	for (int i = 0; i < 2; i++) {
		open_world(&w[i], true);
		w[i].tier.requests_per_minute = 700;
		w[i].tier.tokens_per_day = 10000;
	}
	for (int i = 0; i < ASKED; i++)
		begin(&w[i % 2], &t[i], 1, 40, 1);
	/* In turn: each waits for its own answers only. */
	for (int i = 0; i < ASKED; i++) {
		rig_turn_until(&w[i % 2].g, &t[i].n_done, 1);
		assert_int_equal(t[i].r.code, 0);
		assert_false(t[i].r.degraded);
		n += t[i].r.admitted;
		refused += !t[i].r.admitted && t[i].r.refused_by == QUOTA_DAY;
		reserved += t[i].r.admitted ? t[i].r.granted : 0;
	}
	assert_int_equal(reserved, 10000);
	assert_int_equal(n, 250);
	assert_int_equal(refused, ASKED - 250);
	/* They use less, and others get it: until the day is used up to the token. */
	for (int round = 0; charged < 10000; round++) {
		assert_true(round < 2000);
		for (int i = 0; i < ASKED; i++) {
			if (t[i].q == NULL)
				continue;
			int64_t used = t[i].r.granted < 17 ? t[i].r.granted : 17;
			charged += used;
			settle(&w[i % 2], &t[i], used);
		}
		t[0] = take(&w[round % 2], 1, 400, 1);
		if (t[0].r.admitted && round % 2 == 1) { /* settled by whom it was taken */
			int64_t used = t[0].r.granted;
			charged += used;
			settle(&w[1], &t[0], used);
		} else if (!t[0].r.admitted) { /* by the minute's requests */
			assert_true(t[0].r.each[QUOTA_DAY].remaining == 10000 - charged);
			for (int i = 0; i < 2; i++)
				w[i].g.now_us += 60 * SECOND;
		}
	}
	assert_int_equal(charged, 10000);
	for (int i = 0; i < 2; i++)
		w[i].g.now_us += 60 * SECOND;
	assert_false(take(&w[0], 1, 1, 1).r.admitted);
	assert_int_equal(take(&w[1], 1, 1, 1).r.refused_by, QUOTA_DAY);
	close_world(&w[0]);
	close_world(&w[1]);
}

static void two_gateways_share_requests(void **state)
{
	(void)state;
	fresh_redis();
	enum { ASKED = 200 };
	static struct world w[2];
	static struct taking t[ASKED];
	int n = 0;
	for (int i = 0; i < 2; i++) {
		open_world(&w[i], true);
		w[i].tier.requests_per_minute = 100;
	}
	for (int i = 0; i < ASKED; i++)
		begin(&w[i % 2], &t[i], 1, 1, 1);
	for (int i = 0; i < ASKED; i++) {
		rig_turn_until(&w[i % 2].g, &t[i].n_done, 1);
		n += t[i].r.admitted;
		quota_settle(t[i].q, 1);
	}
	assert_int_equal(n, 100);
	close_world(&w[0]);
	close_world(&w[1]);
}

static void what_redis_missed_is_settled_later(void **state)
{
	(void)state;
	fresh_redis();
	static struct world w;
	open_world(&w, true);
	close_world(&w);
	/* Again with little patience. */
	memset(&w, 0, sizeof w);
	rig_init(&w.g);
	w.g.cfg.store = CACHE_REDIS;
	w.g.cfg.address = server.address;
	w.g.cfg.op_timeout_ms = 400;
	w.g.cfg.backoff_least_ms = w.g.cfg.backoff_most_ms = 20;
	w.g.cfg.n_gateways = 4;
	rig_open(&w.g);
	rig_turn_until_state(&w.g, CACHE_IS_UP);
	assert_int_equal(quotas_init(&w.qs, w.g.base, w.g.cl), 0);
	w.tier = (struct gw_tier_config){.tokens_per_day = 1000};
	w.key.tier = &w.tier;
	struct taking t = take(&w, 1, 600, 1);
	assert_int_equal(kill(server.pid, SIGSTOP), 0);
	quota_settle(t.q, 450);
	quiet(&w);
	/* Meanwhile others are served from this gateway's share, a quarter. */
	struct taking other = take(&w, 1, 600, 1);
	assert_true(other.r.degraded);
	assert_int_equal(other.r.granted, 250);
	settle(&w, &other, 250);
	other = take(&w, 1, 600, 1);
	assert_false(other.r.admitted);
	assert_true(other.r.degraded);
	assert_int_equal(kill(server.pid, SIGCONT), 0);
	rig_turn_until_state(&w.g, CACHE_IS_UP);
	quotas_run(&w.qs, clock_now_ns() + 10 * NS_PER_S);
	quiet(&w);
	other = take(&w, 1, 1000, 1);
	assert_false(other.r.degraded);
	assert_int_equal(other.r.granted, 550);
	settle(&w, &other, 0);
	assert_true(list_empty(&w.qs.all));
	close_world(&w);
}

/* Redis stops while an answer asks for more: it gets none in its time, and nothing is charged twice. */
static void an_extension_without_redis_ends(void **state)
{
	(void)state;
	fresh_redis();
	static struct world w;
	open_world(&w, true);
	close_world(&w);
	memset(&w, 0, sizeof w);
	redis_server_number(&server, "FLUSHALL");
	rig_init(&w.g);
	w.g.cfg.store = CACHE_REDIS;
	w.g.cfg.address = server.address;
	w.g.cfg.op_timeout_ms = 400;
	w.g.cfg.backoff_least_ms = w.g.cfg.backoff_most_ms = 20;
	rig_open(&w.g);
	rig_turn_until_state(&w.g, CACHE_IS_UP);
	assert_int_equal(quotas_init(&w.qs, w.g.base, w.g.cl), 0);
	w.tier = (struct gw_tier_config){.tokens_per_day = 1000};
	w.key.tier = &w.tier;
	struct taking other = take(&w, 1, 600, 1), t = take(&w, 1, 900, 1);
	assert_int_equal(t.r.granted, 400);
	settle(&w, &other, 0);
	assert_int_equal(kill(server.pid, SIGSTOP), 0);
	extend(&t, 300, 500);
	rig_turn_until(&w.g, &t.n_done, 1);
	assert_int_equal(t.r.granted, 0);
	assert_int_equal(kill(server.pid, SIGCONT), 0);
	rig_turn_until_state(&w.g, CACHE_IS_UP);
	settle(&w, &t, 400);
	other = take(&w, 1, 1000, 1);
	assert_false(other.r.degraded);
	assert_in_range(other.r.granted, 600, 900); /* the 300 came to Redis, or they did not */
	settle(&w, &other, 0);
	assert_true(list_empty(&w.qs.all));
	close_world(&w);
}

/* ---- all ---- */

int main(void)
{
	const struct CMUnitTest tests[] = {
	    ON_BOTH(without_limits_nothing_is_asked),
	    ON_BOTH(requests_end_at_the_exact_one),
	    ON_BOTH(keys_have_limits_of_their_own),
	    ON_BOTH(tokens_of_a_minute_come_back_or_become_a_debt),
	    ON_BOTH(the_days_tokens_are_never_passed),
	    ON_BOTH(a_refusal_charges_nothing),
	    ON_BOTH(one_that_leaves_early_is_charged_no_tokens),
	    ON_BOTH(a_long_answer_keeps_its_reservation),
	    ON_BOTH(one_that_is_left_is_gone_on_with),
	    ON_BOTH(what_others_only_hold_is_waited_for),
	    ON_BOTH(patience_ends),
	    ON_BOTH(an_answer_gets_more_as_it_goes),
	    ON_BOTH(two_that_starve_do_not_wait_for_each_other),
	    ON_BOTH(looking_charges_nothing),
	    ON_BOTH(without_memory_nothing_is_taken),
	    cmocka_unit_test(two_gateways_share_limits_to_the_request_and_token),
	    cmocka_unit_test(two_gateways_share_requests),
	    cmocka_unit_test(what_redis_missed_is_settled_later),
	    cmocka_unit_test(an_extension_without_redis_ends),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
