/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine's process replaced by another, both played by the test: what goes where, and when the former link closes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/metrics.h"
#include "gateway/generation/succession.h"
#include "link_pair.h"

static const struct told models[] = {{"small", PROTO_MODEL_READY, 5, 100, 0}, {"large", PROTO_MODEL_READY, 5, 200, 0}};
/* Another tokenizer, another order. */
static const struct told others[] = {{"large", PROTO_MODEL_READY, 5, 300, 0}, {"small", PROTO_MODEL_READY, 7, 400, 0}};

static int send_prompt(struct rig *r, struct seq *s, const char *model, const char *prompt, uint64_t tenant)
{
	struct proto_submit req = {PROTO_SUBMIT_OFF,
				   .model = (uint16_t)engine_link_find_model(r->link, model),
				   .prompt_kind = PROTO_PROMPT_TEXT,
				   .tenant = tenant,
				   .top_p = 1,
				   .max_tokens = 9,
				   .prompt = {prompt, strlen(prompt)}};
	s->rig = r;
	return engine_link_submit(r->link, &req, &listener, s, &s->id);
}

static void leave(struct rig *r)
{
	struct sl_buf b;
	buf_init(&b, 64);
	assert_int_equal(proto_put_leave(&b), 0);
	say(r, &b);
}

/* The side that was played so far becomes o, and the rig plays the process that serves the socket now. */
static void next_process(struct rig *r, struct other *o)
{
	*o = (struct other){.fd = r->fd, .in = r->in, .listener = dup(r->listener)};
	snprintf(o->path, sizeof o->path, "%s/none", r->dir);
	r->fd = -1;
	buf_init(&r->in, 16 << 20);
}

/* The new process connects and says HELLO, and which models it has. */
static void say_models(struct rig *r, const struct told *all, uint16_t n)
{
	struct sl_buf b;
	TURN_UNTIL(r, try_accept(r));
	expect(r, PROTO_HELLO);
	buf_init(&b, 65536);
	put_hello(&b, PROTO_VERSION, n);
	for (uint16_t i = 0; i < n; i++)
		assert_int_equal(proto_put_model(&b, &(struct proto_model){.index = i,
									   .state = all[i].state,
									   .residence = PROTO_RESIDENCE_HERE,
									   .n_ctx = all[i].n_ctx,
									   .tokenizer = all[i].tokenizer,
									   .name = {all[i].name, strlen(all[i].name)},
									   .reason = {"", 0}}),
				 0);
	say(r, &b);
}

static long value_of(const char *name)
{
	struct sl_buf b;
	char line[128];
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	snprintf(line, sizeof line, "\n%s ", name);
	const char *at = strstr(buf_cstr(&b), line);
	assert_non_null(at);
	long v = atol(at + strlen(line));
	buf_dispose(&b);
	return v;
}

static bool is_closed(struct rig *r, struct other *o)
{
	uint8_t byte;
	(void)r;
	return recv(o->fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static void new_requests_go_to_the_new_process(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct seq *old = &r->seqs[0], *new = &r->seqs[1];
	struct sl_buf b;
	long before = value_of("sluice_engine_successions_total");
	come_up_with(r, 0, models, 2);
	assert_int_equal(send_prompt(r, old, "small", "x", 1), 0);
	assert_int_equal(expect(r, PROTO_SUBMIT).id, old->id);
	leave(r);
	next_process(r, &o);
	say_models(r, others, 2);
	TURN_UNTIL(r, value_of("sluice_engine_successions_total") == before + 1);
	assert_int_equal(engine_link_model(r->link, engine_link_find_model(r->link, "small"))->n_ctx, 400);
	/* By its number there. */
	assert_int_equal(send_prompt(r, new, "small", "x", 1), 0);
	struct proto_head h = await(r, PROTO_SUBMIT);
	struct proto_submit got;
	assert_int_equal(h.id, new->id);
	assert_int_equal(proto_get_submit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &got, NULL), 0);
	assert_int_equal(got.model, 1);
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	assert_true(new->id != old->id &&engine_link_engine_of(r->link, new->id) == 0);
	/* The former one makes its answer to the end, and gets credit. */
	swap(r, &o);
	engine_link_credit(r->link, old->id, 3);
	assert_int_equal(expect(r, PROTO_CREDIT).id, old->id);
	buf_init(&b, 4096);
	put_tokens(&b, old->id, "abc");
	say(r, &b);
	TURN_UNTIL(r, old->tokens == 1);
	assert_false(is_closed(r, &(struct other){.fd = r->fd}));
	buf_init(&b, 4096);
	put_done(&b, old->id);
	say(r, &b);
	TURN_UNTIL(r, old->done == 1 && is_closed(r, &(struct other){.fd = r->fd}));
	assert_int_equal(old->lost, 0);
	swap(r, &o);
	/* And again: identifiers of the first process are free by now. */
	leave(r);
	struct other second;
	next_process(r, &second);
	say_models(r, models, 2);
	TURN_UNTIL(r, value_of("sluice_engine_successions_total") == before + 2);
	assert_int_equal(new->lost, 0);
	drop_other(&o);
	drop_other(&second);
}

static char hot[600];

static const char *prompt_with(const char *end)
{
	static char text[700];
	snprintf(text, sizeof text, "%s%s", hot, end);
	return text;
}

static void the_hottest_prompts_come_first(void **state)
{
	struct rig *r = *state;
	struct other o;
	long before = value_of("sluice_succession_prompts_total"),
	     switched = value_of("sluice_engine_successions_total");
	memset(hot, 'h', sizeof hot - 1);
	come_up_with(r, 0, models, 2);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(send_prompt(r, &r->seqs[i], "large", prompt_with("one"), 9), 0);
		expect(r, PROTO_SUBMIT);
	}
	assert_int_equal(send_prompt(r, &r->seqs[3], "large", "another, which is asked for once", 9), 0);
	expect(r, PROTO_SUBMIT);
	leave(r);
	next_process(r, &o);
	say_models(r, others, 2);
	struct proto_head h = await(r, PROTO_SUBMIT);
	struct proto_submit got;
	assert_int_equal(proto_get_submit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &got, NULL), 0);
	assert_int_equal(got.model, 0);
	assert_int_equal(got.flags, PROTO_SUBMIT_PREFILL_ONLY);
	assert_int_equal(got.tenant, 9);
	assert_int_equal(got.priority, 255);
	assert_int_equal(got.prompt.n, sizeof hot - 1 + 3);
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	assert_int_equal(expect(r, PROTO_CREDIT).id, h.id);
	/* Until it is computed, the former process gets requests. */
	swap(r, &o);
	assert_int_equal(send_prompt(r, &r->seqs[4], "large", "x", 9), 0);
	assert_int_equal(expect(r, PROTO_SUBMIT).id, r->seqs[4].id);
	swap(r, &o);
	struct sl_buf b;
	buf_init(&b, 4096);
	put_done(&b, h.id);
	say(r, &b);
	TURN_UNTIL(r, value_of("sluice_engine_successions_total") == switched + 1);
	assert_int_equal(value_of("sluice_succession_prompts_total"), before + 1);
	assert_int_equal(send_prompt(r, &r->seqs[5], "large", "x", 9), 0);
	assert_int_equal(expect(r, PROTO_SUBMIT).id, r->seqs[5].id);
	drop_other(&o);
}

/* Nor is a text that its tenant had erased. */
static void warming_has_an_end(void **state)
{
	struct rig *r = *state;
	struct other o;
	long switched = value_of("sluice_engine_successions_total");
	memset(hot, 'e', sizeof hot - 1);
	come_up_with(r, 0, models, 2);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(send_prompt(r, &r->seqs[i], "large", prompt_with("one"), 8 + (uint64_t)(i & 1)), 0);
		expect(r, PROTO_SUBMIT);
	}
	engine_link_erase(r->link, 8);
	expect(r, PROTO_ERASE);
	leave(r);
	next_process(r, &o);
	say_models(r, others, 2);
	struct proto_head h = await(r, PROTO_SUBMIT);
	struct proto_submit got;
	assert_int_equal(proto_get_submit(buf_data(&r->in) + PROTO_HEAD_BYTES, h.length, &got, NULL), 0);
	assert_int_equal(got.tenant, 9);
	buf_consume(&r->in, PROTO_HEAD_BYTES + (size_t)h.length);
	expect(r, PROTO_CREDIT);
	r->fake_ns = clock_now_ns() + (SUCCESSION_WARM_MS + 1000) * NS_PER_MS;
	clock_fake(&r->fake_ns);
	TURN_UNTIL(r, value_of("sluice_engine_successions_total") == switched + 1);
	clock_fake(NULL);
	drop_other(&o);
}

/* What it ran is submitted again, in the same call, to the new process. */
static void a_former_process_that_ends_early(void **state)
{
	struct rig *r = *state;
	struct other o;
	struct seq *s = &r->seqs[0];
	long switched = value_of("sluice_engine_successions_total");
	memset(hot, 'c', sizeof hot - 1);
	come_up_with(r, 0, models, 2);
	for (int i = 1; i < 3; i++) { /* so that the switch has something to wait for */
		assert_int_equal(send_prompt(r, &r->seqs[i], "large", prompt_with("one"), 1), 0);
		expect(r, PROTO_SUBMIT);
	}
	assert_int_equal(send_prompt(r, s, "small", "x", 1), 0);
	expect(r, PROTO_SUBMIT);
	leave(r);
	next_process(r, &o);
	say_models(r, models, 2);
	expect(r, PROTO_SUBMIT);
	expect(r, PROTO_CREDIT);
	s->submits = true;
	close(o.fd);
	o.fd = -1;
	TURN_UNTIL(r, s->lost == 1);
	assert_int_equal(s->submit_rc, 0);
	assert_int_equal(expect(r, PROTO_SUBMIT).id, s->id);
	assert_int_equal(value_of("sluice_engine_successions_total"), switched + 1);
	s->submits = false;
	drop_other(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(new_requests_go_to_the_new_process),
	    TEST(the_hottest_prompts_come_first),
	    TEST(warming_has_an_end),
	    TEST(a_former_process_that_ends_early),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
