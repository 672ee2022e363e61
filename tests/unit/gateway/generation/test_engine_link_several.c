/* SPDX-License-Identifier: Apache-2.0
 *
 * A link to two engines, which the test plays: one list of models over both, each request to one of them, and a
 * connection that ends takes its own sequences only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "gateway/admission/error_limit.h"
#include "gateway/admission/error_limits.h"
#include "link_pair.h"

static int send_to(struct rig *r, struct seq *s, int model)
{
	struct proto_submit req = {PROTO_SUBMIT_OFF, .model = (uint16_t)model, .prompt_kind = PROTO_PROMPT_TEXT,
				   .top_p = 1,       .max_tokens = 9,          .prompt = {"x", 1}};
	s->rig = r;
	return engine_link_submit(r->link, &req, &listener, s, &s->id);
}

static const struct told both[] = {{"small", PROTO_MODEL_READY, 5, 100, 0}, {"large", PROTO_MODEL_READY, 5, 200, 0}};
static const struct told one[] = {{"large", PROTO_MODEL_READY, 5, 150, 0}, {"own", PROTO_MODEL_READY, 6, 90, 0}};

static void models_are_listed_once(void **state)
{
	struct rig *r = *state;
	struct other o;
	const char *const names[] = {"small", "large"};
	engine_link_expect(r->link, names, 2);
	add_other(r, &o);
	swap(r, &o);
	come_up_with(r, 1, one, 2); /* the second one first */
	assert_int_equal(engine_link_find_model(r->link, "small"), -1);
	int large = engine_link_find_model(r->link, "large");
	swap(r, &o);
	come_up_with(r, 0, both, 2);
	assert_int_equal(engine_link_find_model(r->link, "small"), 0);
	assert_int_equal(engine_link_find_model(r->link, "large"), 1);
	assert_int_equal(large, 1);
	assert_int_equal(engine_link_find_model(r->link, "own"), 2);
	assert_int_equal(engine_link_n_models(r->link), 3);
	assert_int_equal(engine_link_model(r->link, 1)->n_ctx, 150); /* any of them may get the prompt */
	/* Without the first engine, what the second one has stays. */
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_engine_up(r->link, 0));
	assert_true(engine_link_up(r->link));
	assert_int_equal(engine_link_model(r->link, 0)->state, PROTO_MODEL_LOADING);
	assert_int_equal(engine_link_model(r->link, 1)->state, PROTO_MODEL_READY);
	struct seq *s = &r->seqs[0];
	assert_int_equal(send_to(r, s, 0), SL_ECLOSED);
	assert_int_equal(send_to(r, s, 1), 0);
	swap(r, &o);
	assert_int_equal(expect(r, PROTO_SUBMIT).id, s->id);
	swap(r, &o);
	engine_link_forget(r->link, s->id);
	drop_other(&o);
}

static void each_engine_is_asked_by_its_own_number(void **state)
{
	struct rig *r = *state;
	struct other o;
	add_other(r, &o);
	come_up_with(r, 0, both, 2);
	swap(r, &o);
	come_up_with(r, 1, one, 2);
	/* By turns, as the weights are zero: "large" is 1 there and 0 here. */
	for (int i = 0; i < 4; i++)
		assert_int_equal(send_to(r, &r->seqs[i], 1), 0);
	for (int k = 0; k < 2; k++) {
		struct proto_submit m;
		struct sl_err err;
		for (int n = 0; n < 2; n++) {
			struct proto_head h = await(r, PROTO_SUBMIT);
			assert_int_equal(proto_get_submit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &m, &err), 0);
			assert_int_equal(m.model, k == 0 ? 0 : 1);
			buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
		}
		swap(r, &o);
	}
	for (int i = 0; i < 4; i++)
		engine_link_forget(r->link, r->seqs[i].id);
	swap(r, &o);
	drop_other(&o);
}

static void an_end_takes_its_own_sequences(void **state)
{
	struct rig *r = *state;
	struct other o;
	int lost = 0;
	add_other(r, &o);
	come_up_with(r, 0, both, 2);
	swap(r, &o);
	come_up_with(r, 1, one, 2);
	for (int i = 0; i < 6; i++)
		assert_int_equal(send_to(r, &r->seqs[i], 1), 0);
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_engine_up(r->link, 1));
	for (int i = 0; i < 6; i++) {
		assert_int_equal(r->seqs[i].lost, r->seqs[i].id >> 56 == 1);
		lost += r->seqs[i].lost;
	}
	assert_int_equal(lost, 3);
	for (int i = 0; i < 6; i++)
		engine_link_forget(r->link, r->seqs[i].id);
	swap(r, &o);
	drop_other(&o);
}

static void end_with(struct rig *r, struct seq *s, uint8_t error, uint32_t retry_after_s)
{
	struct sl_buf b;
	const struct proto_done m = {.finish = error != 0 ? PROTO_FINISH_ERROR : PROTO_FINISH_STOP,
				     .error = error,
				     .retry_after_s = retry_after_s,
				     .message = {"", 0}};
	buf_init(&b, 65536);
	assert_int_equal(proto_put_done(&b, s->id, &m), 0);
	say(r, &b);
	TURN_UNTIL(r, s->done == 1);
}

/* The rig plays the second engine. Sends until it gets one, and ends that. */
static void fail_one(struct rig *r, int *next, uint8_t error, uint32_t retry_after_s)
{
	for (;;) {
		struct seq *s = &r->seqs[(*next)++];
		assert_int_equal(send_to(r, s, 1), 0);
		if (s->id >> 56 == 1) {
			end_with(r, s, error, retry_after_s);
			return;
		}
	}
}

/* Requests go around an engine whose own faults limit it; what is the request's, or a full queue, does not count. */
static void a_failing_engine_gets_few(void **state)
{
	struct rig *r = *state;
	struct other o;
	uint64_t retry_ms;
	int next = 0, n_there = 0;
	error_limits_clear();
	add_other(r, &o);
	come_up_with(r, 0, both, 2);
	swap(r, &o);
	come_up_with(r, 1, one, 2);
	for (int i = 0; i < 5; i++) {
		fail_one(r, &next, PROTO_ERR_CONTEXT_LENGTH, 0);
		fail_one(r, &next, PROTO_ERR_OVERLOADED, 0);
		fail_one(r, &next, PROTO_ERR_NOT_READY, 0);
	}
	assert_false(error_limits_any());
	for (int i = 0; i < ERROR_LIMIT_LEAST / 2; i++) {
		fail_one(r, &next, PROTO_ERR_INTERNAL, 0);
		fail_one(r, &next, PROTO_ERR_OVERLOADED, 5); /* a server that it uses asks for a pause */
	}
	assert_true(error_limits_any());
	assert_true(engine_link_admits(r->link, 1, &retry_ms)); /* by the other engine */
	/* One at a time goes there, all others to the first one. */
	for (int i = 0; i < 20; i++) {
		assert_int_equal(send_to(r, &r->seqs[next + i], 1), 0);
		n_there += r->seqs[next + i].id >> 56 == 1;
	}
	assert_int_equal(n_there, 1);
	/* Without the first one it is the only one: then the gateway refuses, and says until when. */
	close(o.fd);
	o.fd = -1;
	TURN_UNTIL(r, !engine_link_engine_up(r->link, 0));
	assert_false(engine_link_admits(r->link, 1, &retry_ms));
	assert_true(retry_ms >= 1);
	for (int i = 0; i < next + 20; i++)
		engine_link_forget(r->link, r->seqs[i].id);
	assert_true(engine_link_admits(r->link, 1, &retry_ms));
	error_limits_clear();
	swap(r, &o);
	drop_other(&o);
}

/* Another model by the same name would continue with other tokens. */
static void another_model_by_the_name_gets_nothing(void **state)
{
	struct rig *r = *state;
	struct other o;
	static const struct told foreign[] = {{"large", PROTO_MODEL_READY, 77, 150, 0}};
	add_other(r, &o);
	come_up_with(r, 0, both, 2);
	swap(r, &o);
	come_up_with(r, 1, foreign, 1);
	TURN_UNTIL(r, engine_link_engine_up(r->link, 1));
	assert_int_equal(engine_link_model(r->link, 1)->tokenizer, 5);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(send_to(r, &r->seqs[i], 1), 0);
		assert_int_equal(r->seqs[i].id >> 56, 0);
		assert_int_equal(engine_link_choice(r->link)->n_candidates, 1);
		engine_link_forget(r->link, r->seqs[i].id);
	}
	swap(r, &o);
	drop_other(&o);
}

/* ---- adapters ---- */

struct asked {
	int n;
	bool lost;
	uint8_t error;
	char message[PROTO_MAX_MESSAGE + 1];
};

static void on_asked(void *ctx, const struct proto_counted *m)
{
	struct asked *a = ctx;
	a->n++;
	a->lost = m == NULL;
	if (m == NULL)
		return;
	a->error = m->error;
	snprintf(a->message, sizeof a->message, "%.*s", (int)m->message.n, m->message.at);
}

static int ask(struct rig *r, struct asked *a, bool load, uint64_t *id)
{
	const struct proto_adapter req = {load, {"s", 1}, {load ? "/f/s" : "", load ? 4 : 0}};
	*a = (struct asked){0};
	return engine_link_adapter(r->link, &req, on_asked, a, id);
}

/* The engine that the rig plays now answers. */
static void answer(struct rig *r, uint8_t error, const char *why)
{
	struct sl_buf b;
	buf_init(&b, 4096);
	uint64_t id = expect(r, PROTO_ADAPTER).id;
	const struct proto_counted m = {.error = error, .message = {why, strlen(why)}, .ids = {"", 0}, .text = {"", 0}};
	assert_int_equal(proto_put_counted(&b, id, &m), 0);
	say(r, &b);
}

static void tell_model(struct rig *r, uint16_t index, uint8_t state, const char *name, uint16_t parent)
{
	struct sl_buf b;
	buf_init(&b, 4096);
	assert_int_equal(proto_put_model(&b, &(struct proto_model){.index = index,
								   .state = state,
								   .parent = parent,
								   .tokenizer = 5,
								   .name = {name, strlen(name)},
								   .reason = {"", 0}}),
			 0);
	say(r, &b);
}

/* Good when an engine has done it and the others have nothing to do with it; an error names its engine. */
static void adapters_are_loaded_on_all_engines(void **state)
{
	static const struct {
		uint8_t errors[2], error;
		const char *message;
	} cases[] = {
	    {{0, 0}, 0, ""},
	    {{0, PROTO_ERR_NO_FOLDER}, 0, ""},
	    {{PROTO_ERR_NO_MODEL, 0}, 0, ""},
	    {{0, PROTO_ERR_BAD_REQUEST}, PROTO_ERR_BAD_REQUEST, "Engine b: why"},
	    {{PROTO_ERR_BAD_REQUEST, PROTO_ERR_NO_FOLDER}, PROTO_ERR_BAD_REQUEST, "Engine engine: why"},
	    {{PROTO_ERR_NO_FOLDER, PROTO_ERR_BAD_REQUEST}, PROTO_ERR_BAD_REQUEST, "Engine b: why"},
	    {{PROTO_ERR_NO_FOLDER, PROTO_ERR_NO_FOLDER}, PROTO_ERR_NO_FOLDER, "Engine engine: why"},
	};
	struct rig *r = *state;
	struct other o;
	struct asked a;
	uint64_t id;
	add_other(r, &o);
	assert_int_equal(ask(r, &a, true, &id), SL_ECLOSED);
	come_up_with(r, 0, both, 2);
	swap(r, &o);
	come_up_with(r, 1, one, 2);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(ask(r, &a, true, &id), 0);
		swap(r, &o);
		answer(r, cases[i].errors[0], cases[i].errors[0] != 0 ? "why" : "");
		swap(r, &o);
		assert_int_equal(a.n, 0);
		answer(r, cases[i].errors[1], cases[i].errors[1] != 0 ? "why" : "");
		TURN_UNTIL(r, a.n == 1);
		assert_false(a.lost);
		assert_int_equal(a.error, cases[i].error);
		assert_string_equal(a.message, cases[i].message);
	}
	/* The engine dies meanwhile. */
	assert_int_equal(ask(r, &a, true, &id), 0);
	expect(r, PROTO_ADAPTER);
	close(r->fd);
	r->fd = -1;
	swap(r, &o);
	answer(r, 0, "");
	TURN_UNTIL(r, a.n == 1);
	assert_int_equal(a.error, PROTO_ERR_NOT_READY);
	assert_memory_equal(a.message, "Engine b: ", 10);
	/* Nobody wants to know any more. */
	assert_int_equal(ask(r, &a, true, &id), 0);
	engine_link_uncount(r->link, id);
	answer(r, 0, "");
	tell_model(r, 0, PROTO_MODEL_FAILED, "small", 0);
	TURN_UNTIL(r,
		   engine_link_model(r->link, engine_link_find_model(r->link, "small"))->state == PROTO_MODEL_FAILED);
	assert_int_equal(a.n, 0);
	drop_other(&o);
}

/* Numbers of adapters differ by engine, and one that goes shifts nobody's. */
static void adapters_come_and_go_by_engine(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct asked a;
	uint64_t id;
	add_other(r, &o);
	come_up_with(r, 0, both, 2);
	swap(r, &o);
	come_up_with(r, 1, one, 2);
	tell_model(r, 2, PROTO_MODEL_READY, "large:t", 1);
	TURN_UNTIL(r, engine_link_find_model(r->link, "large:t") >= 0);
	tell_model(r, 3, PROTO_MODEL_READY, "large:s", 1);
	TURN_UNTIL(r, engine_link_find_model(r->link, "large:s") >= 0);
	int s = engine_link_find_model(r->link, "large:s"), t = engine_link_find_model(r->link, "t");
	swap(r, &o);
	tell_model(r, 2, PROTO_MODEL_READY, "large:s", 2);
	TURN_UNTIL(r, engine_link_n_models(r->link) > 3);
	for (int i = 0; i < 8; i++)
		assert_int_equal(gw_thread_turn(&r->t), 0);
	assert_int_equal(engine_link_find_model(r->link, "large:s"), s);
	assert_int_equal(engine_link_find_model(r->link, "large:t"), t);
	assert_int_equal(engine_link_model(r->link, s)->parent, 2);
	/* It goes here, stays there. */
	tell_model(r, 2, PROTO_MODEL_GONE, "", 0);
	swap(r, &o);
	tell_model(r, 2, PROTO_MODEL_GONE, "", 0);
	TURN_UNTIL(r, engine_link_find_model(r->link, "large:t") < 0);
	assert_int_equal(engine_link_find_model(r->link, "large:s"), s);
	assert_string_equal(engine_link_model(r->link, t)->name, "");
	assert_false(engine_link_serves(r->link, t));
	/* Another takes its number there, not its index here: requests on their way keep what they name. */
	tell_model(r, 2, PROTO_MODEL_READY, "large:u", 1);
	TURN_UNTIL(r, engine_link_find_model(r->link, "large:u") >= 0);
	assert_true(engine_link_find_model(r->link, "large:u") != t);
	/* What it is unloaded from has it. */
	assert_int_equal(ask(r, &a, false, &id), 0);
	answer(r, 0, "");
	TURN_UNTIL(r, a.n == 1);
	assert_int_equal(a.error, 0);
	swap(r, &o);
	drop_other(&o);
}

static void engines_are_bounded(void **state)
{
	struct rig *r = *state;
	struct sl_err err;
	for (int i = 1; i < ENGINE_LINK_MAX; i++)
		assert_int_equal(engine_link_add(r->link, "x", r->path, &err), 0);
	assert_int_equal(engine_link_add(r->link, "x", r->path, &err), SL_ELIMIT);
	assert_int_equal(engine_link_n_engines(r->link), ENGINE_LINK_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(models_are_listed_once),
	    TEST(each_engine_is_asked_by_its_own_number),
	    TEST(an_end_takes_its_own_sequences),
	    TEST(a_failing_engine_gets_few),
	    TEST(another_model_by_the_name_gets_nothing),
	    TEST(adapters_are_loaded_on_all_engines),
	    TEST(adapters_come_and_go_by_engine),
	    TEST(engines_are_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
