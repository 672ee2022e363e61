/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that is slowed to half its speed for five minutes, under the real scheduler with the costs that it learns:
 * 24 clients ask again as soon as they are answered. The time between tokens keeps its tier's target for 99 of 100
 * tokens, from the slowdown's first second on, by fewer sequences; without easing it does not. Time is simulated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/proto/proto.h"
#include "engine/sched/slowdown.h"
#include "sched_owner.h"

enum { CLIENTS = 24, SLOTS = 32, PROMPT = 60, ANSWER = 400, STEP_TOKENS = 128, TARGET_MS = 60 };
enum { SLOW_FROM_S = 60, SLOW_TO_S = 360, END_S = 460, MAX_GAPS = 1 << 20, STARVE_MS = 10000 };

static const uint64_t targets[SCHED_TIERS] = {[1] = TARGET_MS * NS_PER_MS};

struct client {
	struct sched_seq s;
	uint32_t made;
	uint64_t token_ns; /* its last token; 0: none yet */
	bool in;
};

struct world {
	struct sched_tenants tenants;
	struct sched *sc;
	struct cost cost;
	struct slowdown slowdown;
	struct client clients[CLIENTS];
	uint64_t now, read_ns, order;
	bool eases;
	uint32_t slowed;                           /* what the driver tells */
	double speed;                              /* of a step: times its usual length */
	uint32_t n_gaps, *gaps_us, longest_us;     /* while slow */
	uint64_t rows, steps, held, most_decoding; /* of steps, from SLOW_FROM_S + 5 to SLOW_TO_S */
	uint32_t decoding_after;                   /* at the end */
	uint64_t tokens;
};

static double true_ns(const struct world *w, const struct sched_plan *p)
{
	double past = 0;
	for (uint32_t i = 0; i < p->n_run; i++)
		past += p->run[i]->n_past;
	return w->speed * (6e6 + 1.2e6 * (p->n_decode + p->n_prefill) + 500 * past);
}

static void ask(struct world *w, struct client *c)
{
	c->s = (struct sched_seq){.order = ++w->order,
				  .served_ns = w->now,
				  .tenant = sched_tenant_enter(&w->tenants, 7, 0),
				  .n_left = PROMPT,
				  .width = 1,
				  .priority = 1,
				  .prefilling = true,
				  .credit = true};
	c->made = 0;
	c->token_ns = 0;
	c->in = true;
	assert_int_equal(sched_add(w->sc, &c->s, w->now), 0);
}

static bool is_slow(const struct world *w)
{
	return w->now >= SLOW_FROM_S * (uint64_t)NS_PER_S && w->now < SLOW_TO_S * (uint64_t)NS_PER_S;
}

static void token(struct world *w, struct client *c)
{
	if (c->token_ns != 0 && is_slow(w) && w->n_gaps < MAX_GAPS) {
		uint32_t us = (uint32_t)((w->now - c->token_ns) / 1000);
		w->gaps_us[w->n_gaps++] = us;
		w->longest_us = us > w->longest_us ? us : w->longest_us;
	}
	c->token_ns = w->now;
	c->made++;
	w->tokens += is_slow(w);
}

static void serve(struct world *w, struct sched_seq *s)
{
	struct client *c = (struct client *)(void *)((char *)s - offsetof(struct client, s));
	s->n_past += s->n_tokens;
	s->n_left -= s->n_tokens;
	s->n_pages = (s->n_past + 15) / 16;
	s->served_ns = w->now;
	s->started = true;
	if (s->n_left == 0) {
		token(w, c);
		s->n_left = 1;
		s->prefilling = false;
	}
	if (c->made < ANSWER) {
		sched_update(w->sc, s, w->now);
		return;
	}
	sched_remove(w->sc, s);
	sched_tenant_leave(&w->tenants, s->tenant);
	ask(w, c);
}

static void read_driver(struct world *w)
{
	if (w->now < w->read_ns)
		return;
	w->read_ns = w->now + NS_PER_S / 2;
	const struct slowdown_reading r = {.now_ns = w->now, .has_device = true, .device_slowed = w->slowed};
	(void)slowdown_take(&w->slowdown, &r);
	if (w->eases)
		sched_ease(w->sc, slowdown_is(&w->slowdown) ? targets : NULL);
}

static void step(struct world *w)
{
	struct sched_plan p;
	w->slowed = is_slow(w) ? PROTO_SLOWED_THERMAL : 0;
	w->speed = is_slow(w) ? 2 : 1;
	read_driver(w);
	sched_plan(w->sc, &sim_owner, &w->cost, 100000, w->now, &p);
	sim_evict(w->sc, &p, w->now);
	assert_true(p.n_run > 0);
	double ns = true_ns(w, &p);
	struct cost_past past = {0};
	for (uint32_t i = 0; i < p.n_run; i++) {
		past.positions += (double)cost_positions(p.run[i]->n_past, p.run[i]->n_tokens);
		past.reads += (double)p.run[i]->n_past + p.run[i]->n_tokens;
	}
	const double expected = cost_step_ns(&w->cost, p.n_decode + p.n_prefill, past);
	cost_learn(&w->cost, p.n_decode + p.n_prefill, past, ns);
	w->now += (uint64_t)ns;
	if (p.n_decode > 0)
		sched_took(w->sc, expected, ns);
	if (w->now > (SLOW_FROM_S + 5) * (uint64_t)NS_PER_S && is_slow(w)) {
		w->steps++;
		w->rows += p.n_decode;
		w->held += sched_n_held(w->sc);
	}
	w->decoding_after = p.n_decode;
	struct sched_seq *run[SLOTS];
	memcpy(run, p.run, p.n_run * sizeof *run);
	for (uint32_t i = 0; i < p.n_run; i++)
		serve(w, run[i]);
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static void run_world(struct world *w, bool eases)
{
	const struct sched_config cfg = {.step_tokens = STEP_TOKENS,
					 .max_sequences = SLOTS,
					 .kv = kv_groups_one(16, 1),
					 .n_pages = 100000,
					 .age_ns = NS_PER_S,
					 .starve_ns = STARVE_MS * NS_PER_MS,
					 .paused_ns = NS_PER_S,
					 .itl_target_ns = 40 * NS_PER_MS};
	memset(w, 0, sizeof *w);
	w->eases = eases;
	w->now = 1;
	w->gaps_us = calloc(MAX_GAPS, sizeof *w->gaps_us);
	assert_non_null(w->gaps_us);
	cost_init(&w->cost, 5e6, 1e6);
	assert_int_equal(sched_tenants_init(&w->tenants), 0);
	assert_int_equal(sched_create(&cfg, &w->sc), 0);
	for (int i = 0; i < CLIENTS; i++)
		ask(w, &w->clients[i]);
	while (w->now < END_S * (uint64_t)NS_PER_S) {
		step(w);
		sched_validate(w->sc);
	}
	qsort(w->gaps_us, w->n_gaps, sizeof *w->gaps_us, by_size);
}

static void end_world(struct world *w)
{
	for (int i = 0; i < CLIENTS; i++) {
		sched_remove(w->sc, &w->clients[i].s);
		sched_tenant_leave(&w->tenants, w->clients[i].s.tenant);
	}
	sched_destroy(w->sc);
	sched_tenants_dispose(&w->tenants);
	free(w->gaps_us);
}

static double p99_ms(const struct world *w) { return w->gaps_us[w->n_gaps - 1 - w->n_gaps / 100] / 1e3; }

static void fewer_sequences_keep_the_target(void **unused)
{
	static struct world w, plain;
	(void)unused;
	run_world(&w, true);
	run_world(&plain, false);
	printf("p99 %.1f ms with %.1f sequences a step, %.2f held; without easing %.1f ms with %.1f; tokens %llu and "
	       "%llu; longest gap %.1f s\n",
	       p99_ms(&w), (double)w.rows / (double)w.steps, (double)w.held / (double)w.steps, p99_ms(&plain),
	       (double)plain.rows / (double)plain.steps, (unsigned long long)w.tokens, (unsigned long long)plain.tokens,
	       w.longest_us / 1e6);
	assert_true(p99_ms(&plain) > TARGET_MS);
	assert_true(p99_ms(&w) <= TARGET_MS);
	assert_true(w.rows * plain.steps < plain.rows * w.steps);
	assert_int_equal(plain.held, 0);
	/* What was held goes on: no gap lasts for longer than some turns of those that starve. */
	assert_true(w.longest_us < 10 * STARVE_MS * 1000);
	/* And once it is over, as many run as before. */
	assert_int_equal(sched_n_held(w.sc), 0);
	assert_true(w.decoding_after * 10 >= plain.decoding_after * 8);
	end_world(&w);
	end_world(&plain);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(fewer_sequences_keep_the_target)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
