/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of requests, against an engine that the test plays: what it gets, and what ends a copy.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/metrics.h"
#include "gateway/admission/error_limit.h"
#include "gateway/admission/error_limits.h"
#include "gateway/generation/submit_frame.h"
#include "gateway/variant/shadow.h"
#include "tests/unit/gateway/generation/link_pair.h"

/* Of a name, answered by m1; its variant `next`, by m2, gets copies. */
struct copies {
	struct gw_variant_config all[2];
	struct variants *variants;
	struct shadows *shadows;
	struct submit_frame *frame;
};

static long long n_ended(const char *how)
{
	struct sl_buf text;
	char line[128];
	buf_init(&text, 4 << 20);
	assert_int_equal(metrics_print(&text), 0);
	assert_int_equal(buf_append(&text, "", 1), 0);
	snprintf(line, sizeof line, "sluice_variant_shadows_total{model=\"shop\",variant=\"next\",end=\"%s\"} ", how);
	const char *at = strstr((const char *)buf_data(&text), line);
	assert_non_null(at);
	long long n = atoll(at + strlen(line));
	buf_dispose(&text);
	return n;
}

static void set_out(struct rig *r, struct copies *c)
{
	static const struct told told[] = {{"m1", PROTO_MODEL_READY, 5, 100, PROTO_DOES_GENERATE},
					   {"m2", PROTO_MODEL_READY, 5, 100, PROTO_DOES_GENERATE}};
	const struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT,
					 .temperature = 1, .top_p = 1,
					 .max_tokens = 9,  .prompt = {"hello", 5}};
	struct sl_err err;
	error_limits_clear();
	*c = (struct copies){.all = {{.name = "base", .of = "shop", .model = "m1", .weight = 1},
				     {.name = "next", .of = "shop", .model = "m2", .shadow = 1, .temperature = 0.25}}};
	r->cfg.variants.items = c->all;
	r->cfg.variants.n = 2;
	r->t.link = r->link;
	come_up_with(r, 0, told, 2);
	assert_int_equal(variants_create(&r->cfg, &c->variants, &err), 0);
	assert_int_equal(submit_frame_create(&req, &c->frame), 0);
	c->shadows = shadows_create(&r->t);
	assert_non_null(c->shadows);
}

static void clean_up(struct copies *c)
{
	shadows_destroy(c->shadows);
	submit_frame_unref(c->frame);
	variants_destroy(c->variants);
	error_limits_clear();
}

static void begin(struct copies *c)
{
	const struct variant *base = variants_find(c->variants, "shop")->all;
	const struct shadow_ask ask = {.variant = shadow_pick(base, 0), .frame = c->frame};
	assert_non_null(ask.variant);
	shadow_begin(c->shadows, &ask, 3, false);
}

/* Its SUBMIT; returns its id. */
static uint64_t expect_copy(struct rig *r)
{
	struct proto_submit s;
	struct proto_head h = await(r, PROTO_SUBMIT);
	assert_int_equal(proto_get_submit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &s, NULL), 0);
	assert_int_equal(s.model, 1);
	assert_int_equal(s.priority, 255);
	assert_true(s.temperature == 0.25f);
	assert_memory_equal(s.prompt.at, "hello", 5);
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	assert_int_equal(expect(r, PROTO_CREDIT).id, h.id);
	return h.id;
}

static void a_copy_is_dropped_as_it_comes(void **state)
{
	struct rig *r = *state;
	struct copies c;
	struct sl_buf b;
	set_out(r, &c);
	const long long done = n_ended("done");
	begin(&c);
	const uint64_t id = expect_copy(r);
	buf_init(&b, 4096);
	put_tokens(&b, id, "x");
	put_done(&b, id);
	say(r, &b);
	TURN_UNTIL(r, n_ended("done") == done + 1);
	clean_up(&c);
}

/* What may be tried there is for requests that somebody waits for. */
static void an_engine_that_errors_limit_gets_no_copy(void **state)
{
	struct rig *r = *state;
	struct copies c;
	struct seq *s = &r->seqs[0];
	const struct error_limit_key key = {0, 1, "engine", "m2"};
	set_out(r, &c);
	error_limits_enter(&key, clock_now_ns());
	for (int i = 0; i < ERROR_LIMIT_LEAST; i++) {
		error_limits_enter(&key, clock_now_ns());
		error_limits_error(&key, 0, false, clock_now_ns());
		error_limits_leave(&key, 0, clock_now_ns());
	}
	assert_true(error_limits_any());
	const long long skipped = n_ended("skipped");
	begin(&c);
	TURN_UNTIL(r, n_ended("skipped") == skipped + 1);
	submitted(r, s); /* the first one that the engine gets */
	engine_link_forget(r->link, s->id);
	clean_up(&c);
}

static void a_copy_ends_with_its_engine(void **state)
{
	struct rig *r = *state;
	struct copies c;
	set_out(r, &c);
	const long long interrupted = n_ended("interrupted");
	begin(&c);
	(void)expect_copy(r);
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, n_ended("interrupted") == interrupted + 1);
	clean_up(&c);
}

static void a_copy_ends_with_its_thread(void **state)
{
	struct rig *r = *state;
	struct copies c;
	set_out(r, &c);
	begin(&c);
	const uint64_t id = expect_copy(r);
	clean_up(&c);
	assert_int_equal(expect(r, PROTO_CANCEL).id, id);
}

static void more_copies_than_there_is_room_for_are_skipped(void **state)
{
	struct rig *r = *state;
	struct copies c;
	set_out(r, &c);
	const long long skipped = n_ended("skipped");
	for (int i = 0; i <= SHADOW_MOST; i++)
		begin(&c);
	assert_int_equal(n_ended("skipped"), skipped + 1);
	r->t.draining = true;
	begin(&c);
	assert_int_equal(n_ended("skipped"), skipped + 2);
	clean_up(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_copy_is_dropped_as_it_comes),
	    TEST(an_engine_that_errors_limit_gets_no_copy),
	    TEST(a_copy_ends_with_its_engine),
	    TEST(a_copy_ends_with_its_thread),
	    TEST(more_copies_than_there_is_room_for_are_skipped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
