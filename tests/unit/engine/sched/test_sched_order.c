/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of a tenant's waiting prompts: what it saves beside the order of arrival, that attention counts, and that
 * no prompt waits for ever. A step's cost is a count of units: one a row, and some a position that a row attends to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/sim/sched_owner.h"

enum { PAGE = 16, STEP = 256, MOST = 400 };

struct prompt {
	struct sched_seq s; /* first */
	uint32_t cached;
	bool done;
	uint64_t came, ended; /* units that had been computed */
	uint64_t came_ns;
};

struct world {
	struct sched *sched;
	struct sched_tenants tenants;
	struct cost cost;
	double position; /* units a position */
	uint64_t now;    /* a unit takes a millisecond */
	double units;
	struct prompt prompts[MOST];
	uint32_t n;
};

static double units_of(const struct world *w, uint64_t n_past, uint64_t n)
{
	return (double)n + w->position * (double)cost_positions(n_past, n);
}

static void look(void *ctx, struct sched_seq *s, struct sched_look *out)
{
	(void)ctx;
	*out = (struct sched_look){.n_cached = ((struct prompt *)(void *)s)->cached};
	out->n_cached_pages = out->n_cached / PAGE;
}

static const struct sched_owner owner = {.look = look, .pages_back = owner_pages_back};

static bool step(struct world *w);

static void open_world(struct world *w, double position, uint64_t starve_ns)
{
	memset(w, 0, sizeof *w);
	w->position = position;
	cost_init(&w->cost, 10 * NS_PER_MS, NS_PER_MS);
	/* What the machine costs is known. */
	for (int i = 0; i < 1000; i++) {
		const uint32_t rows = 1 + (uint32_t)(i * 37 % STEP);
		const struct cost_past past = {.positions = (i * 7919 % 101) * 4096, .reads = (i * 104729 % 97) * 1024};
		cost_learn(&w->cost, rows, past, ((double)rows + position * past.positions) * NS_PER_MS);
	}
	const struct sched_config cfg = {.step_tokens = STEP,
					 .max_sequences = 64,
					 .n_pages = 1 << 20,
					 .kv = kv_groups_one(PAGE, 1),
					 .age_ns = 1000 * NS_PER_S,
					 .starve_ns = starve_ns};
	assert_int_equal(sched_tenants_init(&w->tenants), 0);
	assert_int_equal(sched_create(&cfg, &w->sched), 0);
	/* An empty plan learns what attention costs. */
	assert_false(step(w));
}

static struct prompt *add(struct world *w, uint32_t tokens, uint32_t cached)
{
	struct prompt *p = &w->prompts[w->n];
	assert_true(w->n < MOST);
	*p = (struct prompt){.cached = cached, .came = (uint64_t)w->units, .came_ns = w->now};
	p->s = (struct sched_seq){.order = ++w->n,
				  .served_ns = w->now,
				  .width = 1,
				  .credit = true,
				  .prefilling = true,
				  .n_left = tokens,
				  .n_cached = cached,
				  .tenant = sched_tenant_enter(&w->tenants, 1, 0)};
	assert_non_null(p->s.tenant);
	assert_int_equal(sched_add(w->sched, &p->s, w->now), 0);
	return p;
}

static void leave(struct world *w, struct prompt *p)
{
	sched_remove(w->sched, &p->s);
	sched_tenant_leave(&w->tenants, p->s.tenant);
	p->done = true;
	p->ended = (uint64_t)w->units;
}

/* False: nothing waits. */
static bool step(struct world *w)
{
	struct sched_plan plan;
	double units = 0;
	sched_plan(w->sched, &owner, &w->cost, 1 << 20, w->now, &plan);
	sched_validate(w->sched);
	assert_int_equal(plan.n_evict, 0);
	for (uint32_t i = 0; i < plan.n_run; i++) {
		struct sched_seq *s = plan.run[i];
		uint32_t cached = s->started ? 0 : s->n_cached;
		s->n_past += cached;
		s->n_left -= cached;
		s->n_cached = 0;
		units += units_of(w, s->n_past, s->n_tokens);
	}
	w->units += units;
	w->now += (uint64_t)(units * NS_PER_MS);
	for (uint32_t i = 0; i < plan.n_run; i++) {
		struct sched_seq *s = plan.run[i];
		s->started = true;
		s->served_ns = w->now;
		s->n_past += s->n_tokens;
		s->n_left -= s->n_tokens;
		s->n_pages = (s->n_past + PAGE - 1) / PAGE;
		if (s->n_left == 0)
			leave(w, (struct prompt *)(void *)s);
		else
			sched_update(w->sched, s, w->now);
	}
	return plan.n_run > 0;
}

static void close_world(struct world *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->prompts[i].done)
			leave(w, &w->prompts[i]);
	sched_destroy(w->sched);
	sched_tenants_dispose(&w->tenants);
}

/* ---- what the order saves ---- */

/* The sum of what had been computed when each of them ended, one after the other. */
static double summed(const struct world *w, const uint32_t *lengths, size_t n)
{
	double so_far = 0, sum = 0;
	for (size_t i = 0; i < n; i++) {
		so_far += units_of(w, 0, lengths[i]);
		sum += so_far;
	}
	return sum;
}

/* Five prompts of very different length that come together, the longest first: attention is a third of its cost. */
static void cheap_ones_go_first(void **state)
{
	static const uint32_t arrival[] = {8192, 1024, 4096, 256, 2048}, cheapest[] = {256, 1024, 2048, 4096, 8192};
	struct world w;
	double sum = 0;
	(void)state;
	open_world(&w, 1.0 / 8192, 3600 * NS_PER_S);
	for (size_t i = 0; i < 5; i++)
		add(&w, arrival[i], 0);
	while (step(&w))
		continue;
	for (size_t i = 0; i < 5; i++)
		sum += (double)w.prompts[i].ended;
	double by_arrival = summed(&w, arrival, 5), least = summed(&w, cheapest, 5);
	print_message("summed waits: by arrival %.0f, here %.0f, least possible %.0f: %.0f %% less\n", by_arrival, sum,
		      least, 100 * (1 - sum / by_arrival));
	/* Each ends within a step of the best order's. */
	assert_true(sum >= least - 5 && sum <= least + 5 * 2 * STEP);
	assert_true(sum < 0.58 * by_arrival);
	close_world(&w);
}

/* Few tokens far into a text may cost more than many at its beginning. */
static void attention_counts(void **state)
{
	(void)state;
	for (int dear = 0; dear < 2; dear++) {
		struct world w;
		open_world(&w, dear ? 1.0 / 4096 : 0, 3600 * NS_PER_S);
		const struct prompt *far = add(&w, 30400, 30000), *fresh = add(&w, 600, 0);
		while (!far->done || !fresh->done)
			assert_true(step(&w));
		/* 400 rows with 12 M positions, 600 with 0.2 M. */
		assert_true(dear ? fresh->ended < far->ended : far->ended < fresh->ended);
		close_world(&w);
	}
}

/* ---- nothing waits for ever ---- */

/* Short prompts come twice as fast as they can be computed. */
static void flood(struct world *w, const struct prompt *until, uint64_t *next)
{
	while (!until->done && w->n < MOST) {
		for (; *next <= w->now && w->n < MOST; *next += 50 * NS_PER_MS)
			add(w, 100, 0);
		assert_true(step(w));
	}
	assert_true(until->done);
}

/* Those that come later than its cost, at a millisecond a row, don't pass a prompt: not even where more come than can
 * be computed. */
static void later_ones_do_not_pass(void **state)
{
	struct world w;
	uint64_t next = 0;
	(void)state;
	open_world(&w, 1.0 / 8192, 3600 * NS_PER_S);
	const struct prompt *l = add(&w, 3000, 0);
	uint64_t turn_ns = l->came_ns + (uint64_t)(1.1 * units_of(&w, 0, 3000) * NS_PER_MS);
	flood(&w, l, &next);
	uint32_t before = 0, after = 0;
	for (uint32_t i = 1; i < w.n; i++) {
		before += w.prompts[i].done;
		after += w.prompts[i].done && w.prompts[i].came_ns > turn_ns;
	}
	print_message("a prompt of 3000: %u short ones passed it, of those that came after its turn %u\n", before,
		      after);
	assert_true(before > 20);
	assert_int_equal(after, 0);
	close_world(&w);
}

/* It gets part of a step at least every starve_ns, and the step that is in progress then. */
static void starved_ones_are_served(void **state)
{
	enum { STARVE_MS = 1000 };
	struct world w;
	uint64_t next = 0, last = 0, longest = 0;
	(void)state;
	open_world(&w, 0, STARVE_MS * NS_PER_MS);
	const struct prompt *l = add(&w, 3000, 0);
	uint32_t past = 0;
	while (!l->done && w.n < MOST) {
		for (; next <= w.now && w.n < MOST; next += 50 * NS_PER_MS)
			add(&w, 100, 0);
		assert_true(step(&w));
		if (l->s.n_past == past)
			continue;
		longest = w.now - last > longest ? w.now - last : longest;
		last = w.now;
		past = l->s.n_past;
	}
	assert_true(past > 0);
	print_message("its longest wait: %llu ms\n", (unsigned long long)(longest / NS_PER_MS));
	assert_true(longest <= (STARVE_MS + 2 * STEP) * NS_PER_MS);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cheap_ones_go_first),
	    cmocka_unit_test(attention_counts),
	    cmocka_unit_test(later_ones_do_not_pass),
	    cmocka_unit_test(starved_ones_are_served),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
