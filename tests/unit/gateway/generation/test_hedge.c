/* SPDX-License-Identifier: Apache-2.0
 *
 * A second engine for a late first token: when, for what, and what either engine is told, whatever comes first. The
 * test plays both engines; the first one gets the request.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>

#include "gateway/generation/generation.h"
#include "gateway/generation/submit_frame.h"
#include "link_pair.h"

/* ---- what is learned ---- */

static void a_percentile_of_the_latest_times(void **state)
{
	(void)state;
	struct hedge_times t = {0};
	for (int i = 0; i < HEDGE_LEAST_TIMES - 1; i++)
		hedge_times_add(&t, 10 * NS_PER_MS);
	assert_int_equal(hedge_times_percentile(&t, 0.95), 0); /* too few */
	hedge_times_add(&t, 1000 * NS_PER_MS);
	assert_in_range(hedge_times_percentile(&t, 0.95), 10 * NS_PER_MS, 12 * NS_PER_MS);
	assert_in_range(hedge_times_percentile(&t, 0.999), 1000 * NS_PER_MS, 1190 * NS_PER_MS);
	/* What was long ago counts less and less. */
	for (int i = 0; i < 5000; i++)
		hedge_times_add(&t, 100 * NS_PER_MS);
	assert_in_range(hedge_times_percentile(&t, 0.5), 100 * NS_PER_MS, 119 * NS_PER_MS);
	assert_in_range(hedge_times_percentile(&t, 0.999), 100 * NS_PER_MS, 119 * NS_PER_MS);
}

static void times_beyond_the_range(void **state)
{
	(void)state;
	struct hedge_times t = {0};
	for (int i = 0; i < 30; i++) {
		hedge_times_add(&t, 0);
		hedge_times_add(&t, UINT64_MAX);
	}
	assert_int_equal(hedge_times_percentile(&t, 0.5), NS_PER_MS);
	assert_in_range(hedge_times_percentile(&t, 0.999), 60 * NS_PER_S, 600 * NS_PER_S);
}

/* Never more than the share of all so far, and no burst after a quiet hour. */
static void the_budget_is_a_share_of_requests(void **state)
{
	(void)state;
	struct hedging h = {0};
	int n = 0, most = 0;
	for (int i = 1; i <= 2000; i++) {
		hedge_budget_add(&h, 0.05);
		n += hedge_budget_take(&h);
		assert_true(n <= i / 20);
	}
	assert_in_range(n, 99, 100);
	for (int i = 0; i < 100000; i++)
		hedge_budget_add(&h, 0.05);
	while (hedge_budget_take(&h))
		most++;
	assert_in_range(most, 1, 2);
	for (int i = 0; i < 1000; i++)
		hedge_budget_add(&h, 0);
	assert_false(hedge_budget_take(&h));
}

static struct proto_submit request(void)
{
	struct proto_submit s = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .top_p = 1, .max_tokens = 9};
	s.temperature = 1;
	s.seed = 4711;
	s.deadline_ms = 3600000;
	s.prompt = (struct proto_str){"p", 1};
	return s;
}

static void what_is_never_computed_twice(void **state)
{
	(void)state;
	struct proto_submit s = request();
	assert_true(hedge_fits(&s));
	s.constraint_kind = PROTO_CONSTRAINT_CALLS;
	assert_false(hedge_fits(&s));
	s = request();
	s.n = s.best_of = 2;
	assert_false(hedge_fits(&s));
	s = request();
	s.best_of = 2;
	assert_false(hedge_fits(&s));
	s = request();
	s.beam_width = 1;
	assert_false(hedge_fits(&s));
	s = request();
	s.prompt_logprobs = 1;
	assert_false(hedge_fits(&s));
	s = request();
	s.n_given = 1;
	assert_false(hedge_fits(&s));
	s = request();
	s.flags = PROTO_SUBMIT_EMBED;
	assert_false(hedge_fits(&s));
}

/* ---- a generation ---- */

struct reader {
	struct subscriber sub;
	struct generation *gen;
	int n_queued;
};

static void on_prompt_counted(struct subscriber *s) { list_entry(s, struct reader, sub)->n_queued++; }
static void on_news(struct subscriber *s) { (void)s; }

static void tell_idle(struct rig *r)
{
	struct proto_load load = {.idle = true};
	struct sl_buf b;
	buf_init(&b, 4096);
	assert_int_equal(proto_put_load(&b, &load), 0);
	say(r, &b);
}

static void tell_queued(struct rig *r, uint64_t id)
{
	struct proto_queued q = {.n_prompt = 3};
	struct sl_buf b;
	buf_init(&b, 4096);
	assert_int_equal(proto_put_queued(&b, id, &q), 0);
	say(r, &b);
}

static void tell_tokens(struct rig *r, uint64_t id, const char *text)
{
	struct sl_buf b;
	buf_init(&b, 4096);
	put_tokens(&b, id, text);
	say(r, &b);
}

static void tell_done(struct rig *r, uint64_t id, uint8_t finish)
{
	struct proto_done m = {.finish = finish, .message = {"", 0}};
	struct sl_buf b;
	m.error = finish == PROTO_FINISH_ERROR ? PROTO_ERR_INTERNAL : PROTO_ERR_NONE;
	buf_init(&b, 4096);
	assert_int_equal(proto_put_done(&b, id, &m), 0);
	say(r, &b);
}

/* The next SUBMIT's identifier; its seed is the request's. */
static uint64_t expect_submit(struct rig *r)
{
	struct proto_submit s;
	struct proto_head h = await(r, PROTO_SUBMIT);
	assert_int_equal(proto_get_submit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &s, NULL), 0);
	assert_int_equal(s.seed, 4711);
	assert_in_range(s.deadline_ms, 1, 3600000);
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	return h.id;
}

static uint32_t credit(struct rig *r, uint64_t id)
{
	struct proto_credit c;
	struct proto_head h = await(r, PROTO_CREDIT);
	assert_int_equal(h.id, id);
	assert_int_equal(proto_get_credit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &c, NULL), 0);
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	return c.n_tokens;
}

struct scene {
	struct rig *r;
	struct other o;
	struct reader reader;
	uint64_t first, second;
};

/* Both engines are up, the second one says that it is idle; the first one has an admitted request, and is known to be
 * fast. */
static void set_out(struct scene *s, void **state, bool begun)
{
	static const struct told told[] = {{"m", PROTO_MODEL_READY, 5, 4000, PROTO_DOES_GENERATE}};
	struct proto_submit req = request();
	struct submit_frame *frame;
	*s = (struct scene){.r = *state};
	struct rig *r = s->r;
	r->cfg.hedge = (struct gw_hedge){.percentile = 0.9, .share = 1, .least_ms = 1};
	r->t.link = r->link;
	add_other(r, &s->o);
	swap(r, &s->o);
	come_up_with(r, 1, told, 1);
	tell_idle(r);
	swap(r, &s->o);
	come_up_with(r, 0, told, 1);
	for (int i = 0; i < HEDGE_LEAST_TIMES; i++)
		hedge_times_add(&engine_link_hedging(r->link)->times[0], NS_PER_MS);
	s->reader.sub.on_queued = on_prompt_counted;
	s->reader.sub.on_progress = on_news;
	assert_int_equal(submit_frame_create(&req, &frame), 0);
	assert_int_equal(gen_start(&r->t, &frame->s, 8, &s->reader.sub, &s->reader.gen), 0);
	gen_remake(s->reader.gen, frame, &frame->s, begun);
	submit_frame_unref(frame);
	gen_hedge(s->reader.gen);
	s->first = expect_submit(r);
	tell_queued(r, s->first);
	TURN_UNTIL(r, s->reader.n_queued == 1);
	gen_admit(s->reader.gen);
	assert_int_equal(credit(r, s->first), 8);
}

/* The second engine has it, too, with the same credit. */
static void await_hedge(struct scene *s)
{
	swap(s->r, &s->o);
	s->second = expect_submit(s->r);
	assert_int_equal(credit(s->r, s->second), 8);
	swap(s->r, &s->o);
}

static void leave(struct scene *s)
{
	gen_unsubscribe(&s->reader.sub);
	TURN_UNTIL(s->r, true);
	drop_other(&s->o);
}

static void expect_text(const struct scene *s, const char *text)
{
	struct gen_chunk c;
	assert_true(gen_peek(s->reader.gen, &s->reader.sub, 100, &c));
	assert_int_equal(c.n_bytes, strlen(text));
	assert_memory_equal(c.text, text, c.n_bytes);
}

static enum hedge_end end_of(const struct scene *s) { return gen_hedged(s->reader.gen).end; }

static void the_second_one_wins(void **state)
{
	struct scene s;
	set_out(&s, state, true);
	await_hedge(&s);
	swap(s.r, &s.o);
	tell_queued(s.r, s.second); /* of no interest */
	tell_tokens(s.r, s.second, "ab");
	swap(s.r, &s.o);
	assert_int_equal(expect(s.r, PROTO_CANCEL).id, s.first);
	tell_tokens(s.r, s.first, "zz"); /* on its way already: of nobody any more */
	swap(s.r, &s.o);
	tell_tokens(s.r, s.second, "cd");
	TURN_UNTIL(s.r, gen_n_tokens(s.reader.gen) == 2);
	tell_done(s.r, s.second, PROTO_FINISH_STOP);
	TURN_UNTIL(s.r, gen_state(s.reader.gen) == GEN_FINISHED);
	swap(s.r, &s.o);
	expect_text(&s, "abcd");
	struct hedge_told told = gen_hedged(s.reader.gen);
	assert_int_equal(told.end, HEDGE_WON);
	assert_int_equal(told.first, 0);
	assert_int_equal(told.second, 1);
	assert_int_equal(gen_route(s.reader.gen)->engine, 1);
	leave(&s);
}

static void the_first_one_wins(void **state)
{
	struct scene s;
	set_out(&s, state, true);
	await_hedge(&s);
	tell_tokens(s.r, s.first, "ab");
	swap(s.r, &s.o);
	assert_int_equal(expect(s.r, PROTO_CANCEL).id, s.second);
	tell_tokens(s.r, s.second, "zz");
	swap(s.r, &s.o);
	tell_done(s.r, s.first, PROTO_FINISH_STOP);
	TURN_UNTIL(s.r, gen_state(s.reader.gen) == GEN_FINISHED);
	expect_text(&s, "ab");
	assert_int_equal(end_of(&s), HEDGE_LOST);
	assert_int_equal(gen_route(s.reader.gen)->engine, 0);
	leave(&s);
}

/* An error of one is none while the other one may still answer. */
static void either_may_fail(void **state)
{
	for (int which = 0; which < 4; which++) {
		struct scene s;
		bool lost = which & 1, second = which & 2;
		set_out(&s, state, true);
		await_hedge(&s);
		if (second)
			swap(s.r, &s.o);
		if (lost) {
			close(s.r->fd);
			s.r->fd = -1;
		} else {
			tell_done(s.r, second ? s.second : s.first, PROTO_FINISH_ERROR);
		}
		TURN_UNTIL(s.r, end_of(&s) == (second ? HEDGE_FAILED : HEDGE_WON));
		assert_int_equal(gen_state(s.reader.gen), GEN_RUNNING);
		swap(s.r, &s.o);
		tell_tokens(s.r, second ? s.first : s.second, "x");
		tell_done(s.r, second ? s.first : s.second, PROTO_FINISH_STOP);
		TURN_UNTIL(s.r, gen_state(s.reader.gen) == GEN_FINISHED);
		expect_text(&s, "x");
		if (!second)
			swap(s.r, &s.o);
		leave(&s);
		if (which < 3) {
			tear_down(state);
			set_up(state);
		}
	}
}

static void a_reader_that_leaves_ends_both(void **state)
{
	struct scene s;
	set_out(&s, state, true);
	await_hedge(&s);
	gen_unsubscribe(&s.reader.sub);
	assert_int_equal(expect(s.r, PROTO_CANCEL).id, s.first);
	swap(s.r, &s.o);
	assert_int_equal(expect(s.r, PROTO_CANCEL).id, s.second);
	swap(s.r, &s.o);
	drop_other(&s.o);
}

/* Waits till the first token would be late, many times over. */
static void wait_a_while(struct rig *r)
{
	uint64_t until = clock_now_ns() + 50 * NS_PER_MS;
	TURN_UNTIL(r, clock_now_ns() > until);
}

static void expect_none(struct scene *s)
{
	struct proto_head h;
	wait_a_while(s->r);
	swap(s->r, &s->o);
	while (have_frame(s->r, &h)) {
		assert_int_equal(h.type, PROTO_PING);
		buf_consume(&s->r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	}
	swap(s->r, &s->o);
	assert_int_equal(end_of(s), HEDGE_NONE);
	tell_tokens(s->r, s->first, "ab");
	TURN_UNTIL(s->r, gen_n_tokens(s->reader.gen) == 1);
	leave(s);
}

static void what_can_not_be_resumed_is_not_hedged(void **state)
{
	struct scene s;
	set_out(&s, state, false);
	expect_none(&s);
}

static void a_busy_engine_is_not_used(void **state)
{
	struct scene s;
	set_out(&s, state, true);
	struct proto_load load = {.idle = false};
	struct sl_buf b;
	buf_init(&b, 4096);
	assert_int_equal(proto_put_load(&b, &load), 0);
	/* Said before the first token is late: both engines' sockets are read in the next turn, the timer is not due.
	 */
	gen_unsubscribe(&s.reader.sub);
	swap(s.r, &s.o);
	say(s.r, &b);
	swap(s.r, &s.o);
	TURN_UNTIL(s.r, !engine_link_idle(s.r->link, 0));
	assert_int_equal(engine_link_idle_beside(s.r->link, 0, 0), -1);
	swap(s.r, &s.o);
	tell_idle(s.r);
	swap(s.r, &s.o);
	TURN_UNTIL(s.r, engine_link_idle_beside(s.r->link, 0, 0) == 1);
	/* Not itself, and not while a request is on its way there. */
	assert_int_equal(engine_link_idle_beside(s.r->link, 0, 1), -1);
	struct proto_submit req = request();
	uint64_t id;
	assert_int_equal(engine_link_submit_at(s.r->link, 1, &req, &listener, &s.r->seqs[0], &id), 0);
	assert_int_equal(engine_link_idle_beside(s.r->link, 0, 0), -1);
	engine_link_forget(s.r->link, id);
	drop_other(&s.o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_percentile_of_the_latest_times),
	    cmocka_unit_test(times_beyond_the_range),
	    cmocka_unit_test(the_budget_is_a_share_of_requests),
	    cmocka_unit_test(what_is_never_computed_twice),
	    TEST(the_second_one_wins),
	    TEST(the_first_one_wins),
	    TEST(either_may_fail),
	    TEST(a_reader_that_leaves_ends_both),
	    TEST(what_can_not_be_resumed_is_not_hedged),
	    TEST(a_busy_engine_is_not_used),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
