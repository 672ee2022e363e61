/* SPDX-License-Identifier: Apache-2.0
 *
 * One tenant against the others in a whole engine (with a model that has no weights): the queue, the text workers, the
 * places and the pages that a flood of a worse tier holds are had by a better one at once, and no request is lost or
 * answered twice.
 */
#include "engine_requests.h"

enum { FREE = 1, PAID = 0 };

static struct proto_submit of(const char *prompt, uint64_t tenant, uint8_t priority, uint32_t max_tokens)
{
	struct proto_submit req = run_plain(prompt, max_tokens);
	req.tenant = tenant;
	req.priority = priority;
	return req;
}

static bool is_displaced(const struct answer *a)
{
	return a->done && a->end.finish == PROTO_FINISH_ERROR && a->end.error == PROTO_ERR_OVERLOADED &&
	       a->n_tokens == 0;
}

static uint64_t n_displaced(struct run *r)
{
	struct proto_stats s;
	engine_stats(r->e, &s);
	return s.displaced;
}

/* Three of a flood wait and fill the queue; each of a better tier is let in, and the newest go, the oldest last. */
static void newcomers_displace_worse_ones(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.max_waiting = 3;
	run_start(&r, &cfg);
	struct proto_submit worse = of("x", 7, FREE, 5), better = of("y", 1, PAID, 5);
	for (uint64_t i = 1; i <= 3; i++)
		run_submit(&r, i, &worse);
	assert_int_equal(engine_submit(r.e, 9, &worse), SL_ELIMIT);
	for (uint64_t i = 0; i < 3; i++) {
		run_submit(&r, 11 + i, &better);
		RUN_UNTIL(&r, r.answers[3 - i].done);
		assert_true(is_displaced(&r.answers[3 - i]));
	}
	assert_int_equal(engine_submit(r.e, 9, &better), SL_ELIMIT);
	for (uint64_t i = 11; i <= 13; i++) {
		run_credit(&r, i, 5);
		assert_int_not_equal(run_until_done(&r, i)->end.finish, PROTO_FINISH_ERROR);
	}
	assert_int_equal(n_displaced(&r), 3);
	run_stop(&r);
}

/* Of one tier too: the queue is shared by the tenants that are there. */
static void tenants_share_the_queue(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.max_waiting = 6;
	run_start(&r, &cfg);
	struct proto_submit first = of("x", 7, FREE, 5), second = of("y", 8, FREE, 5);
	for (uint64_t i = 1; i <= 6; i++)
		run_submit(&r, i, &first);
	for (uint64_t i = 11; i <= 13; i++)
		run_submit(&r, i, &second);
	assert_int_equal(engine_submit(r.e, 14, &second), SL_ELIMIT);
	assert_int_equal(engine_submit(r.e, 14, &first), SL_ELIMIT);
	for (uint64_t i = 4; i <= 6; i++) {
		RUN_UNTIL(&r, r.answers[i].done);
		assert_true(is_displaced(&r.answers[i]));
	}
	for (uint64_t i = 1; i <= 3; i++) {
		run_credit(&r, i, 5);
		run_credit(&r, i + 10, 5);
		assert_int_not_equal(run_until_done(&r, i)->end.finish, PROTO_FINISH_ERROR);
		assert_int_not_equal(run_until_done(&r, i + 10)->end.finish, PROTO_FINISH_ERROR);
	}
	run_stop(&r);
}

/* What has begun stays; a fan-out is let in whole, and goes whole. */
static void fan_outs_and_what_has_begun(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.max_waiting = 4;
	cfg.max_sequences = 4;
	run_start(&r, &cfg);
	struct proto_submit begun = of("x", 7, FREE, 30), fan = of("z", 7, FREE, 5), better = of("y", 1, PAID, 5);
	fan.n = fan.best_of = 4;
	run_submit(&r, 1, &begun);
	run_credit(&r, 1, 2);
	RUN_UNTIL(&r, r.answers[1].n_tokens == 2);
	run_submit(&r, 2, &fan);
	RUN_UNTIL(&r, r.answers[2].queued);
	assert_int_equal(engine_submit(r.e, 9, &begun), SL_ELIMIT);
	run_submit(&r, 11, &better);
	RUN_UNTIL(&r, r.answers[2].done);
	assert_true(is_displaced(&r.answers[2]));
	for (uint64_t i = 12; i <= 14; i++)
		run_submit(&r, i, &better);
	assert_int_equal(engine_submit(r.e, 9, &better), SL_ELIMIT);
	run_credit(&r, 1, 28);
	assert_int_not_equal(run_until_done(&r, 1)->end.finish, PROTO_FINISH_ERROR);
	for (uint64_t i = 11; i <= 14; i++) {
		run_credit(&r, i, 5);
		assert_int_not_equal(run_until_done(&r, i)->end.finish, PROTO_FINISH_ERROR);
	}
	assert_int_equal(n_displaced(&r), 1);
	run_stop(&r);
}

static int n_begun(const struct run *r, int n)
{
	int begun = 0;
	for (int i = 1; i <= n; i++)
		begun += r->answers[i].n_tokens > 0;
	return begun;
}

/* Every place is taken by answers that are paced so slowly that none ends: a better tier's has one all the same. So
 * with pages. */
static void places_and_pages_are_had(void **state)
{
	(void)state;
	atomic_store(&fake.end_never, 1);
	for (int pages = 0; pages < 2; pages++) {
		static char long_prompt[400];
		struct run r;
		struct eng_config cfg = config();
		memset(long_prompt, 'p', sizeof long_prompt - 1);
		cfg.max_sequences = pages ? 8 : 2;
		if (pages)
			cfg.kv_bytes = 280 * 128; /* two of them */
		run_start(&r, &cfg);
		struct proto_submit slow = of(pages ? long_prompt : "x", 7, FREE, 40),
				    better = of(pages ? long_prompt : "y", 1, PAID, 5);
		slow.rate_tps = 0.01f;
		slow.burst = 1;
		for (uint64_t i = 1; i <= 8; i++) {
			slow.tenant = 7 + i % 3;
			run_submit(&r, i, &slow);
			run_credit(&r, i, 40);
		}
		RUN_UNTIL(&r, n_begun(&r, 8) >= 2);
		for (uint64_t i = 11; i <= 13; i++) {
			const struct answer *a = run_one(&r, i, &better);
			assert_int_not_equal(a->end.finish, PROTO_FINISH_ERROR);
			assert_int_equal(a->n_tokens, 5);
		}
		for (uint64_t i = 1; i <= 8; i++)
			assert_false(r.answers[i].done);
		run_stop(&r);
	}
	atomic_store(&fake.end_never, 0);
}

/* A worse tier's prompts of a megabyte stand before the one text worker: a better one's is read before them. */
static void a_better_prompt_is_read_first(void **state)
{
	(void)state;
	enum { LARGE = 24, BYTES = 1 << 20 };
	struct run r;
	struct eng_config cfg = config();
	char *large = calloc(1, BYTES + 1);
	int n = 0;
	memset(large, 'w', BYTES);
	cfg.n_text_workers = 1;
	cfg.max_waiting = 1000;
	run_start(&r, &cfg);
	struct proto_submit worse = of(large, 7, FREE, 5), better = of("y", 1, PAID, 5);
	for (uint64_t i = 1; i <= LARGE; i++)
		run_submit(&r, i, &worse);
	run_submit(&r, 100, &better);
	RUN_UNTIL(&r, r.answers[100].queued);
	/* They don't fit into the context, so they end when they have been read. */
	for (uint64_t i = 1; i <= LARGE; i++)
		n += !r.answers[i].done;
	assert_true(n > 0);
	for (uint64_t i = 1; i <= LARGE; i++)
		assert_int_equal(run_until_done(&r, i)->end.error, PROTO_ERR_CONTEXT_LENGTH);
	run_stop(&r);
	free(large);
}

/* Floods of several tenants and tiers with fan-outs, credit and cancellations at any time: each request ends once
 * (engine_run.h), a better one is refused only by better ones and its own, and nothing is left (engine_destroy). */
static void floods_in_turmoil(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	uint64_t random = 5;
	cfg.max_waiting = 8;
	cfg.max_sequences = 3;
	run_start(&r, &cfg);
	for (int round = 0; round < 30; round++) {
		bool in[RUN_MAX] = {false};
		for (uint64_t id = 1; id < 64; id++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			uint32_t x = (uint32_t)(random >> 33);
			struct proto_submit req = of(x & 1 ? "short" : "a longer prompt than the others are",
						     1 + x / 2 % 5, (uint8_t)(x / 16 % 3), 1 + x / 64 % 9);
			req.n = req.best_of = (uint8_t)(x / 1024 % 4 == 0 ? 1 + x / 4096 % 3 : 1);
			pthread_mutex_lock(&r.lock);
			r.answers[id] = (struct answer){0};
			pthread_mutex_unlock(&r.lock);
			int rc = engine_submit(r.e, id, &req);
			assert_true(rc == 0 || rc == SL_ELIMIT);
			in[id] = rc == 0;
			if (in[id] && x / 65536 % 3 != 0)
				run_credit(&r, id, 100);
			if (in[id] && x / 65536 % 7 == 0)
				engine_cancel(r.e, id);
		}
		for (uint64_t id = 1; id < 64; id++)
			if (in[id])
				run_credit(&r, id, 100);
		for (uint64_t id = 1; id < 64; id++)
			if (in[id])
				run_until_done(&r, id);
	}
	run_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(newcomers_displace_worse_ones), cmocka_unit_test(tenants_share_the_queue),
	    cmocka_unit_test(fan_outs_and_what_has_begun),   cmocka_unit_test(places_and_pages_are_had),
	    cmocka_unit_test(a_better_prompt_is_read_first), cmocka_unit_test(floods_in_turmoil),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
