/* SPDX-License-Identifier: Apache-2.0
 *
 * How good predicted waits are: the scheduler on a fake clock before a machine of the shape of a model with a
 * billion parameters, requests at random times, up to ten times what it can do, of which those that would be late
 * are refused as a gateway refuses them. No noise: what is off here is what was not thought of.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/sim/sched_owner.h"

enum { PAGE = 16, MAX_SEQS = 4096, MAX_OFF = 100000 };

struct seq {
	struct sched_seq s;
	bool live, busy;
	uint64_t tenant;
	uint32_t want, made;
	uint64_t queued_ns, first_ns;
	double predicted;
	bool waits; /* it found others before it */
};

struct machine {
	double step_ns, row_ns, position_ns, read_ns;
	uint32_t places;
	double target_s;
	double load; /* requests a second, of what it can do about */
	uint32_t prompt_lo, prompt_hi, answer_lo, answer_hi;
	int n_tenants, n_tiers;
};

struct world {
	const struct machine *m;
	struct sched *sched;
	struct sched_tenants tenants;
	struct cost cost;
	struct cost_bias bias[2];
	double answer_ns;
	struct seq seqs[MAX_SEQS];
	uint64_t now, random, order, next_ns;
	double gap_ns;
	double off[2][MAX_OFF]; /* of those who find nobody before them, and of those who do */
	size_t n_off[2];
	uint64_t refused, answered, first_counted_ns;
};

static double draw(struct world *w)
{
	w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	return ((double)(w->random >> 11) + 1) * 0x1p-53;
}

static uint32_t between(struct world *w, uint32_t lo, uint32_t hi) { return lo + (uint32_t)(draw(w) * (hi - lo)); }

static void arrive(struct world *w)
{
	const struct machine *m = w->m;
	struct seq *q = NULL;
	for (int i = 0; i < MAX_SEQS && q == NULL; i++)
		q = w->seqs[i].live ? NULL : &w->seqs[i];
	assert_non_null(q);
	uint64_t tenant = 1 + (uint64_t)(draw(w) * m->n_tenants);
	*q = (struct seq){
	    .live = true, .tenant = tenant, .want = between(w, m->answer_lo, m->answer_hi), .queued_ns = w->now};
	q->s = (struct sched_seq){.order = ++w->order,
				  .served_ns = w->now,
				  .width = 1,
				  .credit = true,
				  .prefilling = true,
				  .priority = (uint8_t)(draw(w) * m->n_tiers),
				  .n_left = between(w, m->prompt_lo, m->prompt_hi),
				  .tenant = sched_tenant_enter(&w->tenants, tenant, 0)};
	assert_non_null(q->s.tenant);
	assert_int_equal(sched_add(w->sched, &q->s, w->now), 0);
	uint32_t position;
	q->busy = sched_n_started(w->sched) > 0 || sched_n_queued(w->sched) > 1;
	q->predicted =
	    sched_predict_ns(w->sched, &q->s, &w->cost, w->answer_ns, &position) * cost_bias_factor(&w->bias[q->busy]);
	q->waits = position > 0;
	if (q->predicted > m->target_s * 1e9) {
		w->refused++;
		sched_remove(w->sched, &q->s);
		sched_tenant_leave(&w->tenants, q->s.tenant);
		q->live = false;
	}
}

static void first_token(struct world *w, struct seq *q)
{
	double truth = (double)(w->now - q->queued_ns);
	q->first_ns = w->now;
	cost_bias_learn(&w->bias[q->busy], q->predicted, truth);
	if (w->now >= w->first_counted_ns && w->n_off[q->waits] < MAX_OFF)
		w->off[q->waits][w->n_off[q->waits]++] = fabs(q->predicted - truth) / truth;
}

static void end(struct world *w, struct seq *q)
{
	double took = (double)(w->now - q->first_ns);
	w->answer_ns = w->answer_ns == 0 ? took : w->answer_ns * 0.9 + took * 0.1;
	sched_remove(w->sched, &q->s);
	sched_tenant_leave(&w->tenants, q->s.tenant);
	q->live = false;
	w->answered++;
}

static void step(struct world *w)
{
	const struct machine *m = w->m;
	struct sched_plan p;
	struct cost_past past = {0};
	uint32_t rows = 0;
	sched_plan(w->sched, &sim_owner, &w->cost, 1000000, w->now, &p);
	sim_evict(w->sched, &p, w->now);
	for (uint32_t i = 0; i < p.n_run; i++) {
		const struct sched_seq *s = p.run[i];
		rows += s->n_tokens;
		past.positions += (double)cost_positions(s->n_past, s->n_tokens);
		past.reads += s->n_past + s->n_tokens;
	}
	if (rows == 0) {
		w->now = w->next_ns;
		return;
	}
	double ns = m->step_ns + m->row_ns * rows + m->position_ns * past.positions + m->read_ns * past.reads;
	w->now += (uint64_t)ns;
	cost_learn(&w->cost, rows, past, ns);
	for (uint32_t i = 0; i < p.n_run; i++) {
		struct seq *q = (struct seq *)(void *)p.run[i];
		struct sched_seq *s = &q->s;
		s->started = true;
		s->served_ns = w->now;
		s->n_past += s->n_tokens;
		s->n_left -= s->n_tokens;
		s->n_pages = (s->n_past + PAGE - 1) / PAGE;
		if (s->n_left == 0) {
			if (q->made++ == 0)
				first_token(w, q);
			s->n_left = 1;
			s->prefilling = false;
			if (q->made >= q->want) {
				end(w, q);
				continue;
			}
		}
		sched_update(w->sched, s, w->now);
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double part(double *x, size_t n, double p)
{
	if (n == 0)
		return 0;
	qsort(x, n, sizeof *x, ascending);
	return x[(size_t)(p * (double)(n - 1))];
}

/* The median of how far predictions are off, of those that have others before them. */
static double run(const struct machine *m, const char *name, double seconds)
{
	static struct world w;
	const struct sched_config cfg = {.step_tokens = 128,
					 .max_sequences = m->places,
					 .kv = kv_groups_one(PAGE, 1),
					 .n_pages = 1000000,
					 .age_ns = 2 * NS_PER_S,
					 .starve_ns = 10 * NS_PER_S,
					 .paused_ns = NS_PER_S,
					 .itl_target_ns = 50 * NS_PER_MS};
	memset(&w, 0, sizeof w);
	w.m = m;
	w.random = 7;
	w.now = NS_PER_S;
	w.first_counted_ns = w.now + (uint64_t)(seconds / 4 * 1e9);
	assert_int_equal(sched_create(&cfg, &w.sched), 0);
	assert_int_equal(sched_tenants_init(&w.tenants), 0);
	cost_init(&w.cost, m->step_ns * 2, m->row_ns * 2);
	/* About what a full machine takes for a request: its prompt's rows, its share of the steps of its answer. */
	double prompt = (m->prompt_lo + m->prompt_hi) / 2.0, answer = (m->answer_lo + m->answer_hi) / 2.0;
	w.gap_ns = (prompt * m->row_ns + answer * (m->step_ns / m->places + m->row_ns)) / m->load;
	w.next_ns = w.now;
	uint64_t stop = w.now + (uint64_t)(seconds * 1e9);
	while (w.now < stop) {
		while (w.next_ns <= w.now) {
			arrive(&w);
			w.next_ns += (uint64_t)(-log(draw(&w)) * w.gap_ns);
		}
		step(&w);
	}
	double p50 = part(w.off[1], w.n_off[1], 0.5);
	print_message("%-28s answered %6llu refused %6llu; off with others before %5.1f %% (p90 %5.1f %%, %zu), "
		      "without %5.1f %% (%zu)\n",
		      name, (unsigned long long)w.answered, (unsigned long long)w.refused, 100 * p50,
		      100 * part(w.off[1], w.n_off[1], 0.9), w.n_off[1], 100 * part(w.off[0], w.n_off[0], 0.5),
		      w.n_off[0]);
	for (int i = 0; i < MAX_SEQS; i++) {
		if (!w.seqs[i].live)
			continue;
		sched_remove(w.sched, &w.seqs[i].s);
		sched_tenant_leave(&w.tenants, w.seqs[i].s.tenant);
	}
	sched_destroy(w.sched);
	sched_tenants_dispose(&w.tenants);
	return p50;
}

/* 1B on two cores; and one with many places and little time. */
static const struct machine billion = {.step_ns = 100e6,
				       .row_ns = 12e6,
				       .position_ns = 2e3,
				       .read_ns = 1e3,
				       .places = 8,
				       .target_s = 60,
				       .load = 10,
				       .prompt_lo = 50,
				       .prompt_hi = 550,
				       .answer_lo = 4,
				       .answer_hi = 60,
				       .n_tenants = 3,
				       .n_tiers = 1};

/* Requests that are alike: nobody overtakes, and what is not foreseen is only when answers end. */
static void where_all_are_alike(void **unused)
{
	(void)unused;
	struct machine m = billion;
	m.prompt_lo = 500;
	m.prompt_hi = 501;
	m.places = 32;
	assert_true(run(&m, "500 tokens, 10x", 6000) < 0.3);
	m.n_tenants = 1;
	assert_true(run(&m, "500 tokens, 10x, one tenant", 6000) < 0.3);
}

static void prompts_of_all_lengths(void **unused)
{
	(void)unused;
	struct machine m = billion;
	m.n_tenants = 1;
	assert_true(run(&m, "10x", 3000) < 0.3);
	m.load = 2;
	assert_true(run(&m, "2x", 3000) < 0.3);
	m.target_s = 15;
	assert_true(run(&m, "2x, target 15 s", 3000) < 0.3);
	m.load = 0.6;
	assert_true(run(&m, "0.6x", 3000) < 0.35);
}

/* Those who come later and are shorter, or of tenants that have had less, go first: that can't be known. These
 * bounds are only there that it becomes no worse. */
static void where_others_overtake(void **unused)
{
	(void)unused;
	struct machine m = billion;
	assert_true(run(&m, "three tenants, 10x", 3000) < 0.4);
	m.load = 0.9;
	assert_true(run(&m, "three tenants, 0.9x", 6000) < 0.4);
	m.n_tiers = 2;
	m.load = 1.5;
	assert_true(run(&m, "two tiers, 1.5x", 6000) < 0.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(where_all_are_alike),
	    cmocka_unit_test(prompts_of_all_lengths),
	    cmocka_unit_test(where_others_overtake),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
