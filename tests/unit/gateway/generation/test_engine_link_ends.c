/* SPDX-License-Identifier: Apache-2.0
 *
 * The link to the engine: what its end tells whom, many sequences, silence, coming back, bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/gateway/generation/link_rig.h"

/* Each forgets its neighbour: of every two one is told, whatever the order. */
static void who_is_forgotten_when_it_is_lost_is_not_told(void **state)
{
	struct rig *r = *state;
	enum { N = 200 };
	come_up(r);
	for (int i = 0; i < N; i++) {
		submitted(r, &r->seqs[i]);
		r->seqs[i].forgets = &r->seqs[i ^ 1];
		r->seqs[i].submits = true;
	}
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_up(r->link));
	for (int i = 0; i < N; i += 2)
		assert_int_equal(r->seqs[i].lost + r->seqs[i + 1].lost, 1);
	for (int i = 0; i < N; i++)
		if (r->seqs[i].lost)
			assert_int_equal(r->seqs[i].submit_rc, SL_ECLOSED);
	/* None of them is on the new link. */
	for (int i = 0; i < N; i++)
		r->seqs[i].lost = 0;
	come_up(r);
	submitted(r, &r->seqs[N]);
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, r->seqs[N].lost == 1);
	for (int i = 0; i < N; i++)
		assert_int_equal(r->seqs[i].lost, 0);
}

static void the_end_of_the_link_tells_everybody(void **state)
{
	struct rig *r = *state;
	struct sl_err err = {0};
	come_up(r);
	for (int i = 0; i < 100; i++) {
		submitted(r, &r->seqs[i]);
		r->seqs[i].submits = true;
	}
	engine_link_destroy(r->link);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(r->seqs[i].lost, 1);
		assert_int_equal(r->seqs[i].submit_rc, SL_ECLOSED);
	}
	assert_int_equal(engine_link_create(&r->t, r->path, &r->link, &err), 0);
}

static void many_sequences_are_all_found(void **state)
{
	struct rig *r = *state;
	struct sl_buf b;
	uint32_t random = 1;
	come_up(r);
	for (int i = 0; i < MAX_SEQS; i++)
		submitted(r, &r->seqs[i]);
	/* A third ends, a third is forgotten, in a mixed order; the rest is still there. */
	for (int k = 0; k < 2 * MAX_SEQS; k++) {
		random = random * 1664525u + 1013904223u;
		int i = (int)((random >> 8) % MAX_SEQS);
		struct seq *s = &r->seqs[i];
		if (i % 3 == 0 && s->done == 0) {
			buf_init(&b, 4096);
			put_done(&b, s->id);
			say(r, &b);
			TURN_UNTIL(r, s->done == 1);
		} else if (i % 3 == 1 && !s->submits) {
			s->submits = true; /* here: forgotten */
			engine_link_forget(r->link, s->id);
			assert_int_equal(expect(r, PROTO_CANCEL).id, s->id);
		}
	}
	for (int i = 0; i < MAX_SEQS; i++) {
		struct seq *s = &r->seqs[i];
		bool gone = s->submits || s->done;
		buf_init(&b, 4096);
		put_tokens(&b, s->id, "x");
		say(r, &b);
		if (!gone)
			TURN_UNTIL(r, s->tokens == 1);
		s->forgets = NULL;
	}
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_up(r->link));
	for (int i = 0; i < MAX_SEQS; i++) {
		struct seq *s = &r->seqs[i];
		int gone = s->submits || s->done;
		assert_int_equal(s->tokens, !gone);
		assert_int_equal(s->lost, !gone);
	}
}

/* ---- time ---- */

static void fake_time(struct rig *r)
{
	r->fake_ns = clock_now_ns();
	clock_fake(&r->fake_ns);
}

static void silence_is_asked_then_ended(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	struct sl_buf b;
	fake_time(r);
	come_up(r);
	submitted(r, s);
	r->fake_ns += 1001 * NS_PER_MS;
	expect(r, PROTO_PING);
	/* An answer makes it young again. */
	buf_init(&b, 64);
	assert_int_equal(proto_put_pong(&b, 1), 0);
	put_tokens(&b, s->id, "x");
	say(r, &b);
	TURN_UNTIL(r, s->tokens == 1);
	r->fake_ns += 2999 * NS_PER_MS;
	expect(r, PROTO_PING);
	assert_true(engine_link_up(r->link));
	assert_int_equal(s->lost, 0);
	r->fake_ns += 2 * NS_PER_MS;
	TURN_UNTIL(r, s->lost == 1);
	assert_false(engine_link_up(r->link));
	come_up(r);
}

static void after_a_stop_of_its_own_it_asks_first(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	fake_time(r);
	come_up(r);
	submitted(r, s);
	r->fake_ns += 1001 * NS_PER_MS;
	expect(r, PROTO_PING); /* it has ticked */
	r->fake_ns += 60 * NS_PER_S;
	expect(r, PROTO_PING);
	assert_true(engine_link_up(r->link));
	assert_int_equal(s->lost, 0);
	/* Who does not answer now has gone. */
	r->fake_ns += 2001 * NS_PER_MS;
	TURN_UNTIL(r, s->lost == 1);
	assert_false(engine_link_up(r->link));
	come_up(r);
}

static void an_engine_that_does_not_greet_is_left(void **state)
{
	struct rig *r = *state;
	char byte;
	fake_time(r);
	await_connection(r);
	expect(r, PROTO_HELLO);
	r->fake_ns += 2001 * NS_PER_MS;
	TURN_UNTIL(r, recv(r->fd, &byte, 1, MSG_DONTWAIT) == 0);
	come_up(r);
}

/* The waits that it sets its timer to, whatever the machine makes of them. */
static void it_waits_longer_each_time(void **state)
{
	struct rig *r = *state;
	await_connection(r);
	for (unsigned wait_ms = 20; wait_ms <= 1280; wait_ms *= 2) {
		assert_int_equal(engine_link_backoff_ms(r->link), wait_ms < 500 ? wait_ms : 500);
		await_connection(r);
	}
	for (int i = 0; i < 5; i++) {
		come_up(r);
		assert_int_equal(engine_link_backoff_ms(r->link), 20);
	}
}

static void it_waits_for_an_engine_that_is_not_there(void **state)
{
	struct rig *r = *state;
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	come_up(r);
	close(r->fd);
	r->fd = -1;
	close(r->listener);
	unlink(r->path);
	TURN_UNTIL(r, !engine_link_up(r->link));
	/* Some vain tries. */
	uint64_t from = clock_now_ns();
	TURN_UNTIL(r, clock_now_ns() - from > 100 * NS_PER_MS);
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", r->path);
	r->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(r->listener, (struct sockaddr *)&addr, sizeof addr), 0);
	assert_int_equal(listen(r->listener, 4), 0);
	come_up(r);
}

/* ---- bounds ---- */

static void on_nothing(void *ctx, const struct proto_counted *m) { (void)ctx, (void)m; }

static void an_engine_that_does_not_read_bounds_what_waits(void **state)
{
	struct rig *r = *state;
	int n = 0, rc;
	come_up(r);
	while ((rc = submit(r, &r->seqs[n], BIG_BYTES)) == 0) {
		n++;
		assert_int_equal(gw_thread_turn(&r->t), 0);
		assert_true(n < 20);
	}
	assert_int_equal(rc, SL_ELIMIT);
	assert_true(n >= 7);
	assert_true(engine_link_up(r->link));
	/* Once it reads, everything comes, whole and in order, and there is room again. */
	for (int i = 0; i < n; i++) {
		struct proto_head h = expect(r, PROTO_SUBMIT);
		assert_int_equal(h.id, r->seqs[i].id);
	}
	submitted(r, &r->seqs[n]);
	/* Prompts leave room to credit. A credit that finds none all the same ends the link: its sequence would wait
	 * for ever. */
	int first = n + 1;
	n = first;
	for (size_t bytes = BIG_BYTES; bytes > 0; bytes /= 8)
		while (submit(r, &r->seqs[n], bytes) == 0)
			assert_true(++n < MAX_SEQS);
	for (int i = 0; i < 10; i++)
		engine_link_credit(r->link, r->seqs[first].id, 1);
	assert_int_equal(gw_thread_turn(&r->t), 0);
	assert_true(engine_link_up(r->link));
	for (int i = 0; i < BIG_BYTES / PROTO_HEAD_BYTES; i++)
		engine_link_credit(r->link, r->seqs[first].id, 1);
	TURN_UNTIL(r, !engine_link_up(r->link));
	for (int i = first; i < n; i++)
		assert_int_equal(r->seqs[i].lost, 1);
}

/* However many large prompts of a worse priority wait, one of a better is taken, and as many counts. */
static void large_prompts_leave_room(void **state)
{
	struct rig *r = *state;
	static const char prompt[BIG_BYTES / 2];
	struct proto_count count = {.prompt_kind = PROTO_PROMPT_TEXT, .priority = 2, .prompt = {prompt, sizeof prompt}};
	uint64_t id;
	int n = 0;
	come_up(r);
	for (uint8_t priority = 3; priority < 4; priority--) {
		int before = n;
		while (submit_as(r, &r->seqs[n], sizeof prompt, priority) == 0)
			assert_true(++n < MAX_SEQS);
		assert_true(n > before);
		count.priority = priority;
		assert_int_equal(engine_link_count(r->link, &count, on_nothing, NULL, &id), SL_ELIMIT);
	}
	assert_true(engine_link_up(r->link));
	for (int i = 0; i < n; i++)
		assert_int_equal(expect(r, PROTO_SUBMIT).id, r->seqs[i].id);
	submitted(r, &r->seqs[n]);
}

/* Frames of KEEP leave room to prompts and credits, however many come; those in flight end with the engine. */
static void keeps_leave_room(void **state)
{
	struct rig *r = *state;
	const struct proto_keep keep = {.model = 1, .tenant = 2, .keep_ms = 3};
	int n = 1;
	come_up(r);
	assert_int_equal(submit(r, &r->seqs[0], 1), 0);
	for (int i = 0; i < 1 << 20; i++) /* more than the link holds */
		engine_link_keep(r->link, &keep);
	while (submit(r, &r->seqs[n], BIG_BYTES) == 0)
		assert_true(++n < 20);
	assert_true(n >= 7);
	for (int i = 0; i < 10; i++)
		engine_link_credit(r->link, r->seqs[0].id, 1);
	assert_int_equal(gw_thread_turn(&r->t), 0);
	assert_true(engine_link_up(r->link));
	assert_int_equal(expect(r, PROTO_SUBMIT).id, r->seqs[0].id);
	(void)expect(r, PROTO_KEEP);
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_up(r->link));
	for (int i = 0; i < 3; i++)
		engine_link_keep(r->link, &keep);
	come_up(r);
	submitted(r, &r->seqs[n + 1]);
	for (int i = 0; i < n; i++)
		assert_int_equal(r->seqs[i].lost, 1);
}

/* What is to be erased goes once the link is up, and again to an engine that starts anew; each tenant once. */
static void erases_reach_every_engine(void **state)
{
	struct rig *r = *state;
	engine_link_erase(r->link, 7);
	engine_link_erase(r->link, 7);
	come_up(r);
	(void)expect(r, PROTO_ERASE);
	submitted(r, &r->seqs[0]); /* the next frame is its SUBMIT */
	close(r->fd);
	r->fd = -1;
	TURN_UNTIL(r, !engine_link_up(r->link));
	engine_link_erase(r->link, 8);
	for (uint64_t tenant = 100; tenant < 400; tenant++) /* more than it remembers */
		engine_link_erase(r->link, tenant);
	come_up(r);
	for (int i = 0; i < 256; i++)
		(void)expect(r, PROTO_ERASE);
	submitted(r, &r->seqs[1]);
}

static void without_memory_a_submit_fails_and_nothing_else(void **state)
{
	struct rig *r = *state;
	struct seq *s = r->seqs;
	come_up(r);
	for (int i = 0; i < 100; i++) {
		int rc = SL_ENOMEM;
		for (long nth = 1; rc != 0; nth++) {
			fault_arm(FAULT_ALLOC, nth, 1);
			rc = submit(r, &s[i], 1000);
			fault_disarm_all();
			assert_true(rc == 0 || rc == SL_ENOMEM);
		}
		assert_int_equal(expect(r, PROTO_SUBMIT).id, s[i].id);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(who_is_forgotten_when_it_is_lost_is_not_told),
	    TEST(the_end_of_the_link_tells_everybody),
	    TEST(many_sequences_are_all_found),
	    TEST(silence_is_asked_then_ended),
	    TEST(after_a_stop_of_its_own_it_asks_first),
	    TEST(an_engine_that_does_not_greet_is_left),
	    TEST(it_waits_longer_each_time),
	    TEST(it_waits_for_an_engine_that_is_not_there),
	    TEST(an_engine_that_does_not_read_bounds_what_waits),
	    TEST(large_prompts_leave_room),
	    TEST(keeps_leave_room),
	    TEST(erases_reach_every_engine),
	    TEST(without_memory_a_submit_fails_and_nothing_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
