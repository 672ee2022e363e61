/* SPDX-License-Identifier: Apache-2.0
 *
 * A tenant beside a flood of worse ones: the scheduler on a fake clock before machines that cost what a model
 * with a billion parameters costs on two cores, and on a large device. How late its first tokens are beside what
 * they are on an idle machine; and what the flood still gets when the better tenant floods, too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/sim/sched_owner.h"

enum { PAGE = 16, PLACES = 32, FLOOD = 64, BETTER = 64, SEQS = FLOOD + BETTER, MEASURED = 200 };

struct seq {
	struct sched_seq s;
	bool live;
	uint32_t want, made;
	uint64_t came_ns;
};

/* A step of n rows: the more of reading the weights and of computing them; and attention (struct cost_past). */
struct machine {
	double weights_ns, fixed_ns, row_ns, position_ns, read_ns;
};

struct flood {
	uint8_t priority;
	uint32_t weight, prompt, answer;
	uint32_t n_tenants; /* that flood; 0: one */
};

struct world {
	const struct machine *m;
	const struct flood *flood;
	struct sched *sched;
	struct sched_tenants tenants;
	struct cost cost;
	struct seq seqs[SEQS]; /* the flood's come first */
	uint64_t now, random, order;
	double ttft[MEASURED];
	size_t n_ttft;
	uint64_t tokens[2], starved_ns; /* of the better one and of the flood; the flood's longest time without any */
	uint64_t flood_had_ns;
};

static uint32_t draw(struct world *w, uint32_t below)
{
	w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(w->random >> 33) % below;
}

static double step_ns(const struct machine *m, uint32_t rows)
{
	double computing = m->row_ns * rows;
	return m->fixed_ns + (computing > m->weights_ns ? computing : m->weights_ns);
}

static void ask(struct world *w, struct seq *q, uint32_t prompt, uint32_t answer)
{
	bool flood = q < w->seqs + FLOOD;
	uint64_t tenant = !flood ? 1 : w->flood->n_tenants > 0 ? 2 + (uint64_t)(q - w->seqs) % w->flood->n_tenants : 2;
	*q = (struct seq){.live = true, .want = answer, .came_ns = w->now};
	q->s = (struct sched_seq){.order = ++w->order,
				  .served_ns = w->now,
				  .width = 1,
				  .credit = true,
				  .prefilling = true,
				  .n_left = prompt,
				  .priority = flood ? w->flood->priority : 0,
				  .tenant = sched_tenant_enter(&w->tenants, tenant, flood ? w->flood->weight : 0)};
	assert_non_null(q->s.tenant);
	assert_int_equal(sched_add(w->sched, &q->s, w->now), 0);
}

static void end(struct world *w, struct seq *q)
{
	sched_remove(w->sched, &q->s);
	sched_tenant_leave(&w->tenants, q->s.tenant);
	q->live = false;
}

static void go_on(struct world *w, struct seq *q)
{
	struct sched_seq *s = &q->s;
	bool flood = q < w->seqs + FLOOD;
	s->started = true;
	s->served_ns = w->now;
	s->n_past += s->n_tokens;
	s->n_left -= s->n_tokens;
	s->n_pages = (s->n_past + PAGE - 1) / PAGE;
	w->tokens[flood] += s->n_tokens;
	if (s->n_left == 0) {
		s->n_left = 1;
		s->prefilling = false;
		if (q->made++ == 0 && !flood && w->n_ttft < MEASURED)
			w->ttft[w->n_ttft++] = (double)(w->now - q->came_ns);
		if (q->made >= q->want) {
			end(w, q);
			return;
		}
	}
	sched_update(w->sched, s, w->now);
}

/* False: nobody has anything to compute. */
static bool step(struct world *w)
{
	struct sched_plan p;
	struct cost_past past = {0};
	uint32_t rows = 0;
	bool flood = false;
	sched_plan(w->sched, &sim_owner, &w->cost, 1000000, w->now, &p);
	sim_evict(w->sched, &p, w->now);
	for (uint32_t i = 0; i < p.n_run; i++) {
		const struct sched_seq *s = p.run[i];
		rows += s->n_tokens;
		past.positions += (double)cost_positions(s->n_past, s->n_tokens);
		past.reads += s->n_past + s->n_tokens;
		flood |= (struct seq *)(void *)p.run[i] < w->seqs + FLOOD;
	}
	if (rows == 0) {
		assert_true(p.n_evict > 0 || sched_n_queued(w->sched) == 0);
		return p.n_evict > 0;
	}
	double ns = step_ns(w->m, rows) + w->m->position_ns * past.positions + w->m->read_ns * past.reads;
	w->now += (uint64_t)ns;
	cost_learn(&w->cost, rows, past, ns);
	if (flood)
		w->flood_had_ns = w->now;
	else if (w->now - w->flood_had_ns > w->starved_ns)
		w->starved_ns = w->now - w->flood_had_ns;
	for (uint32_t i = 0; i < p.n_run; i++)
		go_on(w, (struct seq *)(void *)p.run[i]);
	return true;
}

static void open_world(struct world *w, const struct machine *m, const struct flood *f, uint32_t step_tokens)
{
	const struct sched_config cfg = {.step_tokens = step_tokens,
					 .max_sequences = PLACES,
					 .kv = kv_groups_one(PAGE, 1),
					 .n_pages = 1000000,
					 .age_ns = 2 * NS_PER_S,
					 .starve_ns = 10 * NS_PER_S,
					 .paused_ns = NS_PER_S,
					 .itl_target_ns = 50 * NS_PER_MS};
	memset(w, 0, sizeof *w);
	w->m = m;
	w->flood = f;
	w->random = 7;
	w->now = w->flood_had_ns = NS_PER_S;
	assert_int_equal(sched_create(&cfg, &w->sched), 0);
	assert_int_equal(sched_tenants_init(&w->tenants), 0);
	cost_init(&w->cost, m->fixed_ns + m->weights_ns, m->row_ns);
	/* What a machine has learnt that has been at work. */
	for (uint32_t rows = 1; rows <= step_tokens; rows *= 2)
		cost_learn(&w->cost, rows, (struct cost_past){0}, step_ns(m, rows));
}

static void close_world(struct world *w)
{
	for (int i = 0; i < SEQS; i++) {
		if (w->seqs[i].live)
			end(w, &w->seqs[i]);
	}
	sched_destroy(w->sched);
	sched_tenants_dispose(&w->tenants);
}

static void keep_flooding(struct world *w)
{
	for (int i = 0; i < FLOOD; i++) {
		if (!w->seqs[i].live)
			ask(w, &w->seqs[i], w->flood->prompt / 2 + draw(w, w->flood->prompt),
			    1 + draw(w, 2 * w->flood->answer));
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* How long the better one's prompt takes alone. */
static double idle_ns(struct world *w, uint32_t prompt)
{
	ask(w, &w->seqs[FLOOD], prompt, 1);
	while (step(w))
		;
	assert_int_equal(w->n_ttft, 1);
	w->n_ttft = 0;
	return w->ttft[0];
}

/* p99 of the first tokens of one who asks now and then, over 1.3 of an idle machine's and a step. */
static double lateness(const struct machine *m, const struct flood *f, uint32_t step_tokens, uint32_t prompt,
		       const char *name)
{
	static struct world w;
	open_world(&w, m, f, step_tokens);
	double idle = idle_ns(&w, prompt);
	uint64_t next = w.now + (uint64_t)(20 * idle);
	while (w.n_ttft < MEASURED) {
		keep_flooding(&w);
		if (w.now >= next && !w.seqs[FLOOD].live) {
			/* It came while the step was made, not when it ended. */
			uint64_t now = w.now;
			w.now = next;
			ask(&w, &w.seqs[FLOOD], prompt, 2);
			w.now = now;
			next = now + (uint64_t)(idle * (1.5 + draw(&w, 1000) / 500.0));
		}
		assert_true(step(&w));
	}
	qsort(w.ttft, MEASURED, sizeof *w.ttft, ascending);
	double p99 = w.ttft[MEASURED * 99 / 100 - 1], bound = 1.3 * idle + step_ns(m, 1);
	print_message("%-44s idle %7.1f ms; p50 %5.3f, p99 %5.3f of it; %4.1f %% of the tokens are the flood's\n", name,
		      idle / 1e6, w.ttft[MEASURED / 2] / idle, p99 / idle,
		      100.0 * (double)w.tokens[1] / (double)(w.tokens[0] + w.tokens[1]));
	close_world(&w);
	return p99 / bound;
}

/* Two cores and a billion parameters: a row costs a fifth of reading all weights. A device: reading costs as much as
 * 200 rows. */
static const struct machine cores = {
    .weights_ns = 50e6, .fixed_ns = 15e6, .row_ns = 9.3e6, .position_ns = 650, .read_ns = 1200};
static const struct machine device = {
    .weights_ns = 4e6, .fixed_ns = 0.3e6, .row_ns = 20e3, .position_ns = 2, .read_ns = 10};

static const struct {
	const char *name;
	struct flood of;
} floods[] = {
    {"a tenth of the weight, prompts of 500", {0, 10, 500, 64, 0}},
    {"a tenth of the weight, short ones", {0, 10, 30, 200, 0}},
    {"a tenth of the weight, prompts of 4,000", {0, 10, 4000, 64, 0}},
    {"the next tier, prompts of 500", {1, 100, 500, 64, 0}},
    {"the next tier, short ones", {1, 100, 30, 200, 0}},
    {"the next tier, prompts of 4,000", {1, 100, 4000, 64, 0}},
    {"the next tier, short ones of 3 tenants", {1, 100, 30, 2000, 3}},
    {"the next tier, short ones of 64 tenants", {1, 100, 30, 2000, FLOOD}},
    {"the next tier, prompts of 500 of 64 tenants", {1, 100, 500, 64, FLOOD}},
};

static void first_tokens_beside_a_flood(void **unused)
{
	(void)unused;
	static const uint32_t steps[] = {128, 256, 512};
	for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
		print_message("steps of %u tokens\n", steps[k]);
		for (size_t i = 0; i < sizeof floods / sizeof *floods; i++)
			assert_true(lateness(&cores, &floods[i].of, steps[k], 500, floods[i].name) <= 1);
	}
	print_message("a device\n");
	for (size_t i = 0; i < sizeof floods / sizeof *floods; i++)
		assert_true(lateness(&device, &floods[i].of, 512, 8000, floods[i].name) <= 1);
}

/* Both flood: each gets its part, and a worse tier is not forgotten. */
static void both_flood(void **unused)
{
	(void)unused;
	static struct world w;
	for (size_t i = 0; i < sizeof floods / sizeof *floods; i++) {
		const struct flood *f = &floods[i].of;
		open_world(&w, &cores, f, 128);
		while (w.now < 2000 * NS_PER_S) {
			keep_flooding(&w);
			for (int k = FLOOD; k < SEQS; k++) {
				if (!w.seqs[k].live)
					ask(&w, &w.seqs[k], 250 + draw(&w, 500), 1 + draw(&w, 128));
			}
			assert_true(step(&w));
		}
		double part = (double)w.tokens[1] / (double)(w.tokens[0] + w.tokens[1]);
		print_message("%-44s both flood: %4.1f %% of the tokens, %5.2f s without any at most\n", floods[i].name,
			      100 * part, (double)w.starved_ns / 1e9);
		close_world(&w);
		assert_true(f->priority == 0 ? part > 0.05 && part < 0.13 : part > 0.01 && part < 0.25);
		assert_true(w.starved_ns < 60 * NS_PER_S);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(first_tokens_beside_a_flood),
	    cmocka_unit_test(both_flood),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
