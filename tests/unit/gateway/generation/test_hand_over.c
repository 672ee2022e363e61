/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts that are computed apart: which ones, and what both engines are told, whatever ends first. The first engine
 * decodes, the second one computes prompts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "gateway/admission/error_limit.h"
#include "gateway/admission/error_limits.h"
#include "gateway/generation/hand_over.h"
#include "gateway/generation/role_planner.h"
#include "link_pair.h"

static const struct gw_prefill usual = {
    .tokens = 256, .queue = 10, .busy = 8, .busy_tokens = 64, .local_priority = 2, .wait_ms = 5000};

static void thresholds(void **state)
{
	static const struct {
		struct prefill_question q;
		enum prefill_why why;
	} rows[] = {
	    {{true, true, 256, 0, 0, 0}, PREFILL_APART},  {{true, true, 255, 0, 0, 0}, PREFILL_SHORT},
	    {{true, true, 255, 0, 8, 0}, PREFILL_APART},  {{true, true, 64, 0, 8, 0}, PREFILL_APART},
	    {{true, true, 63, 0, 8, 0}, PREFILL_SHORT},   {{true, true, 64, 0, 7, 0}, PREFILL_SHORT},
	    {{true, true, 1000, 9, 0, 1}, PREFILL_APART}, {{true, true, 1000, 10, 0, 0}, PREFILL_QUEUE},
	    {{true, true, 1000, 0, 0, 2}, PREFILL_APART}, {{true, true, 1000, 1, 0, 2}, PREFILL_TIER},
	    {{true, false, 1000, 0, 0, 0}, PREFILL_NONE}, {{false, true, 1000, 0, 0, 0}, PREFILL_UNFIT},
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (prefill_choose(&usual, &rows[i].q) != rows[i].why)
			fail_msg("row %zu: %s", i, prefill_why_name(prefill_choose(&usual, &rows[i].q)));
	assert_string_equal(prefill_why_name(PREFILL_REFUSED), "refused");
	assert_string_equal(prefill_end_name(PROTO_HANDED_UNFIT), "unfit");
	assert_string_equal(prefill_end_name(PROTO_HANDED_WHYS), "unknown");
}

enum { CAN = PROTO_DOES_GENERATE | PROTO_DOES_HAND_OVER };

static char prompt[4000];

static struct proto_submit request(void)
{
	struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .temperature = 1, .top_p = 1};
	memset(prompt, 'x', sizeof prompt);
	req.prompt = (struct proto_str){prompt, sizeof prompt};
	req.n = req.best_of = 2;
	req.max_tokens = 9;
	req.tenant = 77;
	req.cache_salt = 5;
	req.n_stops = 1;
	req.stops[0] = (struct proto_str){"end", 3};
	return req;
}

/* Both engines are up; the first one has a sequence that is queued. */
static void set_out(struct rig *r, struct other *o, struct seq *s, uint8_t does)
{
	const struct told told[] = {{"m", PROTO_MODEL_READY, 5, 4000, does}};
	const struct proto_submit req = request();
	r->cfg.prefill = usual;
	r->t.link = r->link;
	add_other(r, o);
	engine_link_set_role(r->link, 0, GW_ENGINE_DECODE);
	engine_link_set_role(r->link, 1, GW_ENGINE_PREFILL);
	swap(r, o);
	come_up_with(r, 1, told, 1);
	swap(r, o);
	come_up_with(r, 0, told, 1);
	s->rig = r;
	assert_int_equal(engine_link_submit(r->link, &req, &listener, s, &s->id), 0);
	assert_int_equal(engine_link_engine_of(r->link, s->id), 0);
	assert_int_equal(expect(r, PROTO_SUBMIT).id, s->id);
}

static struct hand_over *begin(struct rig *r, const struct seq *s, struct prefill_choice *out)
{
	const struct proto_submit req = request();
	const struct proto_queued q = {.n_prompt = 1000, .n_cached = 100};
	return hand_over_begin(&r->t, s->id, &req, &q, out);
}

static struct proto_hand expect_hand(struct rig *r, uint64_t *id)
{
	struct proto_hand m;
	struct proto_head h = await(r, PROTO_HAND);
	assert_int_equal(proto_get_hand(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &m, NULL), 0);
	*id = h.id;
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	return m;
}

/* What both engines are told first. Returns the identifier of the prompt's sequence. */
static uint64_t told_both(struct rig *r, struct other *o, const struct seq *s)
{
	uint64_t waits, computes;
	struct proto_submit only;
	struct proto_hand await_ = expect_hand(r, &waits);
	assert_int_equal(waits, s->id);
	assert_int_equal(await_.what, PROTO_HAND_AWAIT);
	assert_int_equal(await_.writer, 1);
	assert_int_equal(await_.from, 100);
	assert_int_equal(await_.wait_ms, 5000);
	swap(r, o);
	struct proto_head h = await(r, PROTO_SUBMIT);
	assert_int_equal(proto_get_submit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &only, NULL), 0);
	assert_true((only.flags & PROTO_SUBMIT_PREFILL_ONLY) != 0);
	assert_int_equal(only.n, 1);
	assert_int_equal(only.n_stops, 0);
	assert_int_equal(only.tenant, 77);
	assert_int_equal(only.cache_salt, 5);
	assert_int_equal(only.prompt.n, sizeof prompt);
	assert_memory_equal(only.prompt.at, prompt, sizeof prompt);
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	struct proto_hand offer = expect_hand(r, &computes);
	assert_int_equal(computes, h.id);
	assert_int_equal(offer.what, PROTO_HAND_OFFER);
	assert_true(offer.handle == await_.handle && offer.handle != 0);
	assert_int_equal(expect(r, PROTO_CREDIT).id, h.id);
	swap(r, o);
	return h.id;
}

static void pages_are_handed_over(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct prefill_choice c;
	struct seq *s = &r->seqs[0];
	set_out(r, &o, s, CAN);
	struct hand_over *h = begin(r, s, &c);
	assert_non_null(h);
	assert_int_equal(c.why, PREFILL_APART);
	assert_int_equal(c.engine, 1);
	assert_int_equal(c.n_missing, 900);
	uint64_t id = told_both(r, &o, s);
	hand_over_take(h, &(struct proto_handed){PROTO_HANDED_ALL, .n_pages = 56, .waited_us = 9}, &c);
	assert_true(c.handed);
	assert_int_equal(c.n_pages, 56);
	swap(r, &o);
	assert_int_equal(expect(r, PROTO_CANCEL).id, id); /* its last tokens are not needed */
	swap(r, &o);
	hand_over_end(h);
	engine_link_forget(r->link, s->id);
	assert_int_equal(expect(r, PROTO_CANCEL).id, s->id);
	drop_other(&o);
}

/* done: the prefill engine ends the sequence; otherwise it dies. */
static void prefill_ends(struct rig *r, bool done)
{
	struct other o;
	struct prefill_choice c;
	struct seq *s = &r->seqs[0];
	set_out(r, &o, s, CAN);
	struct hand_over *h = begin(r, s, &c);
	uint64_t id = told_both(r, &o, s), waits;
	if (done) {
		struct sl_buf b;
		buf_init(&b, 4096);
		put_done(&b, id);
		swap(r, &o);
		say(r, &b);
		swap(r, &o);
	} else {
		close(o.fd);
		o.fd = -1;
	}
	struct proto_hand over = expect_hand(r, &waits);
	assert_int_equal(over.what, PROTO_HAND_OVER);
	assert_int_equal(waits, s->id);
	hand_over_take(h, &(struct proto_handed){.why = PROTO_HANDED_ENDED}, &c);
	assert_int_equal(c.end, PROTO_HANDED_ENDED);
	hand_over_end(h);
	engine_link_forget(r->link, s->id);
	drop_other(&o);
}

static void the_prompt_ends_first(void **state) { prefill_ends(*state, true); }
static void the_prefill_engine_dies(void **state) { prefill_ends(*state, false); }

static void a_generation_that_leaves_cancels_its_prompt(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct prefill_choice c;
	struct seq *s = &r->seqs[0];
	set_out(r, &o, s, CAN);
	struct hand_over *h = begin(r, s, &c);
	uint64_t id = told_both(r, &o, s);
	hand_over_end(h);
	engine_link_forget(r->link, s->id);
	swap(r, &o);
	assert_int_equal(expect(r, PROTO_CANCEL).id, id);
	swap(r, &o);
	assert_int_equal(expect(r, PROTO_CANCEL).id, s->id);
	drop_other(&o);
}

static void others_stay_local(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct prefill_choice c;
	struct seq *s = &r->seqs[0];
	const struct proto_queued q = {.n_prompt = 1000};
	struct proto_submit req = request();
	set_out(r, &o, s, PROTO_DOES_GENERATE);
	assert_null(begin(r, s, &c)); /* the model's pages can't */
	assert_int_equal(c.why, PREFILL_UNFIT);
	assert_int_equal(c.engine, -1);
	assert_null(hand_over_begin(&r->t, s->id, NULL, &q, &c)); /* its prompt is not known any more */
	assert_int_equal(c.why, PREFILL_UNFIT);
	engine_link_set_role(r->link, 0, GW_ENGINE_BOTH);
	assert_null(hand_over_begin(&r->t, s->id, &req, &q, &c));
	assert_int_equal(c.why, PREFILL_UNDECIDED);
	assert_int_equal(engine_link_prefiller(r->link, 0), -1);
	engine_link_forget(r->link, s->id);
	drop_other(&o);
}

static void prompt_logprobs_stay_local(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct prefill_choice c;
	struct seq *s = &r->seqs[0];
	const struct proto_queued q = {.n_prompt = 1000};
	struct proto_submit req = request();
	set_out(r, &o, s, CAN);
	req.prompt_logprobs = 1;
	assert_null(hand_over_begin(&r->t, s->id, &req, &q, &c));
	assert_int_equal(c.why, PREFILL_UNFIT);
	engine_link_forget(r->link, s->id);
	drop_other(&o);
}

/* Requests go to the engine that decodes, and to the other one only if there is no other. */
static void prefill_engines_get_requests_last(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct seq *s = &r->seqs[0], *more = &r->seqs[1];
	const struct proto_submit req = request();
	set_out(r, &o, s, CAN);
	for (int i = 0; i < 4; i++) {
		more->rig = r;
		assert_int_equal(engine_link_submit(r->link, &req, &listener, more, &more->id), 0);
		assert_int_equal(engine_link_engine_of(r->link, more->id), 0);
		engine_link_forget(r->link, more->id);
	}
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, s->lost == 1);
	assert_true(engine_link_serves(r->link, 0));
	assert_int_equal(engine_link_submit(r->link, &req, &listener, more, &more->id), 0);
	assert_int_equal(engine_link_engine_of(r->link, more->id), 1);
	engine_link_forget(r->link, more->id);
	drop_other(&o);
}

static void report_load(struct rig *r, struct other *o, const struct proto_stats *first,
			const struct proto_stats *second)
{
	struct sl_buf b;
	buf_init(&b, 65536);
	assert_int_equal(proto_put_stats(&b, first), 0);
	say(r, &b);
	TURN_UNTIL(r, engine_link_engine_stats(r->link, 0)->running == first->running);
	swap(r, o);
	assert_int_equal(proto_put_stats(&b, second), 0);
	say(r, &b);
	TURN_UNTIL(r, engine_link_engine_stats(r->link, 1)->running == second->running);
	swap(r, o);
	buf_dispose(&b);
}

static void period_passes(struct rig *r, struct role_planner *p)
{
	r->t.now_ns += r->cfg.planner.period_ms * NS_PER_MS;
	role_planner_tick(p);
}

/* Two engines of role auto: under long prompts one of them computes prompts, and what it has begun for an answer stays
 * with it; then it is as before. */
static void roles_follow_the_load(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct prefill_choice c;
	struct seq *s = &r->seqs[0], *more = &r->seqs[1];
	struct role_report report;
	struct gw_tier_config tier = {.ttft_target_ms = 1000, .itl_target_ms = 50};
	const struct proto_submit req = request();
	const struct proto_queued q = {.n_prompt = 1000};
	set_out(r, &o, s, CAN);
	r->cfg.tiers = (struct conf_list){.items = &tier, .n = 1};
	r->cfg.planner = (struct gw_planner){.period_ms = 100, .dwell_ms = 0};
	engine_link_set_role(r->link, 0, GW_ENGINE_AUTO);
	engine_link_set_role(r->link, 1, GW_ENGINE_AUTO);
	assert_true(engine_link_role_moves(r->link, 0));
	struct role_planner *p = role_planner_create(&r->t);
	/* Busy with answers, of which the second engine has fewer; each prompt would take a second beside them. */
	const struct proto_stats busy = {.running = 40, .us_per_prefill_token = 1000, .us_per_decode_step = 45000},
				 less = {.running = 2, .us_per_prefill_token = 1000, .us_per_decode_step = 45000};
	report_load(r, &o, &busy, &less);
	for (int i = 0; i < 200 && engine_link_role(r->link, 1) != GW_ENGINE_PREFILL; i++) {
		assert_null(hand_over_begin(&r->t, s->id, &req, &q, &c));
		assert_int_equal(c.why, PREFILL_UNDECIDED);
		period_passes(r, p);
	}
	assert_int_equal(engine_link_role(r->link, 1), GW_ENGINE_PREFILL);
	assert_int_equal(engine_link_role(r->link, 0), GW_ENGINE_DECODE);
	role_report(&report);
	assert_true(report.any && report.n_changes == 2 && report.why != PLANNER_STAYS);
	assert_non_null(strstr(report.line, "b prefill"));
	assert_non_null(strstr(report.line, "engine decode"));
	/* From now on prompts go there, and requests do not. */
	struct hand_over *h = hand_over_begin(&r->t, s->id, &req, &q, &c);
	assert_non_null(h);
	assert_int_equal(c.engine, 1);
	more->rig = r;
	assert_int_equal(engine_link_submit(r->link, &req, &listener, more, &more->id), 0);
	assert_int_equal(engine_link_engine_of(r->link, more->id), 0);
	engine_link_forget(r->link, more->id);
	/* The decoding engine dies: the other one answers again, whatever its dwell. */
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, s->lost == 1);
	hand_over_end(h);
	r->cfg.planner.dwell_ms = 3600 * 1000;
	for (int i = 0; i < 200 && engine_link_role(r->link, 1) == GW_ENGINE_PREFILL; i++) {
		period_passes(r, p);
	}
	assert_int_equal(engine_link_role(r->link, 1), GW_ENGINE_BOTH);
	role_report(&report);
	assert_int_equal(report.why, PLANNER_LOST);
	role_planner_destroy(p);
	assert_int_equal(role_now(0), GW_ENGINE_BOTH);
	drop_other(&o);
}

/* So many that one of them still runs and no other is admitted. */
static void fail_often(int engine)
{
	const struct error_limit_key key = {engine, 0, "engine", "m"};
	error_limits_enter(&key, clock_now_ns());
	for (int i = 0; i < ERROR_LIMIT_LEAST; i++) {
		error_limits_enter(&key, clock_now_ns());
		error_limits_error(&key, 0, false, clock_now_ns());
		error_limits_leave(&key, 0, clock_now_ns());
	}
}

/* An engine of role prefill gets no prompts while its errors limit it, and what limits the other one refuses requests,
 * whatever this one could take. */
static void errors_limit_each_role(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct prefill_choice c;
	struct seq *s = &r->seqs[0];
	uint64_t retry_ms;
	error_limits_clear();
	set_out(r, &o, s, CAN);
	fail_often(1);
	assert_true(engine_link_admits(r->link, 0, &retry_ms));
	assert_int_equal(engine_link_prefiller(r->link, 0), -1);
	assert_null(begin(r, s, &c));
	assert_int_equal(c.why, PREFILL_NONE);
	error_limits_clear();
	fail_often(0);
	assert_false(engine_link_admits(r->link, 0, &retry_ms));
	assert_true(retry_ms >= 1);
	assert_int_equal(engine_link_prefiller(r->link, 0), 1);
	engine_link_forget(r->link, s->id);
	error_limits_clear();
	drop_other(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(thresholds),
	    TEST(pages_are_handed_over),
	    TEST(the_prompt_ends_first),
	    TEST(the_prefill_engine_dies),
	    TEST(a_generation_that_leaves_cancels_its_prompt),
	    TEST(others_stay_local),
	    TEST(prompt_logprobs_stay_local),
	    TEST(prefill_engines_get_requests_last),
	    TEST(errors_limit_each_role),
	    TEST(roles_follow_the_load),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
