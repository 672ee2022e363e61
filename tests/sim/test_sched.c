/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler on a fake clock: single plans, and a simulation that keeps the books of an engine
 * (pages, places, tokens) and checks every plan against them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/sched.h"

static const struct sched_config plain = {.step_tokens = 32,
					  .max_sequences = 4,
					  .page_tokens = 4,
					  .age_ns = 2 * NS_PER_S,
					  .starve_ns = 10 * NS_PER_S,
					  .paused_ns = NS_PER_S};

static struct sched_seq *order[256];

static struct sched_seq waiting(uint64_t arrival, uint32_t n)
{
	return (struct sched_seq){
	    .order = arrival, .n_left = n, .prefilling = true, .credit = true};
}

static struct sched_seq decoding(uint64_t arrival, uint32_t n_past)
{
	return (struct sched_seq){.order = arrival, .n_left = 1, .n_past = n_past,
				  .n_pages = (n_past + 3) / 4, .started = true, .credit = true};
}

static struct sched_plan plan(struct sched_seq *s, size_t n, uint32_t pages, uint64_t now)
{
	struct sched_plan p;
	sched_plan(&plain, s, n, order, pages, now, &p);
	return p;
}

static void decodes_come_first(void **state)
{
	(void)state;
	struct sched_seq s[] = {waiting(1, 100), decoding(2, 9), decoding(3, 3), waiting(4, 5)};
	struct sched_plan p = plan(s, 4, 100, 0);
	assert_int_equal(p.n_decode, 2);
	assert_int_equal(s[1].n_tokens, 1);
	assert_int_equal(s[2].n_tokens, 1);
	/* The shorter prompt goes first, the longer one gets what is left of the step. */
	assert_int_equal(s[3].n_tokens, 5);
	assert_int_equal(s[0].n_tokens, 32 - 2 - 5);
	assert_int_equal(p.n_prefill, 30);
}

static void no_credit_no_step(void **state)
{
	(void)state;
	struct sched_seq s[] = {waiting(1, 10), decoding(2, 9), decoding(3, 9)};
	s[0].credit = s[1].credit = false;
	s[2].due_ns = 500;
	struct sched_plan p = plan(s, 3, 100, 100);
	assert_int_equal(p.n_decode + p.n_prefill, 0);
	assert_int_equal(p.next_due_ns, 500);
	p = plan(s, 3, 100, 500);
	assert_int_equal(s[2].n_tokens, 1);
	assert_int_equal(p.next_due_ns, UINT64_MAX);
}

static void priorities_age(void **state)
{
	(void)state;
	struct sched_seq s[] = {waiting(1, 40), waiting(2, 40)};
	s[0].priority = 2;
	s[0].served_ns = s[1].served_ns = 100;
	plan(s, 2, 100, 100);
	assert_int_equal(s[0].n_tokens, 0);
	assert_int_equal(s[1].n_tokens, 32);
	/* The better one has come just now, the other has waited: two classes in four seconds. */
	s[1].served_ns = 100 + 4 * NS_PER_S;
	plan(s, 2, 100, 100 + 4 * NS_PER_S);
	assert_int_equal(s[0].n_tokens, 32); /* equal by now, and older */
}

static void tenants_share(void **state)
{
	(void)state;
	struct sched_seq s[] = {waiting(1, 40), waiting(2, 40)};
	s[0].share = 1000;
	plan(s, 2, 100, 0);
	assert_int_equal(s[0].n_tokens, 0);
	assert_int_equal(s[1].n_tokens, 32);
}

static void a_place_for_each(void **state)
{
	(void)state;
	struct sched_seq s[] = {decoding(1, 3), decoding(2, 3), decoding(3, 3), decoding(4, 3),
				waiting(5, 4)};
	plan(s, 5, 100, 0);
	assert_int_equal(s[4].n_tokens, 0);
	/* One of them has had no credit for a second. */
	s[2].credit = false;
	plan(s, 5, 100, NS_PER_S - 1);
	assert_int_equal(s[4].n_tokens, 0);
	plan(s, 5, 100, NS_PER_S);
	assert_true(s[2].evict);
	assert_int_equal(s[4].n_tokens, 4);
}

static void pages_run_out(void **state)
{
	(void)state;
	/* Both need a page at 4 tokens, none is free: the newer one gives up its own. */
	struct sched_seq s[] = {decoding(2, 4), decoding(1, 4)};
	struct sched_plan p = plan(s, 2, 0, 0);
	assert_true(s[0].evict);
	assert_false(s[1].evict);
	assert_int_equal(s[1].n_tokens, 1);
	assert_int_equal(p.n_decode, 1);
	/* The worse priority goes before the newer arrival. */
	struct sched_seq t[] = {decoding(1, 4), decoding(2, 4)};
	t[0].priority = 1;
	plan(t, 2, 0, 0);
	assert_true(t[0].evict);
	/* Without credit before everybody else. */
	struct sched_seq u[] = {decoding(1, 8), decoding(2, 4)};
	u[0].credit = false;
	plan(u, 2, 0, 0);
	assert_true(u[0].evict);
	assert_int_equal(u[1].n_tokens, 1);
	/* Nobody of its own class makes room for one that has not started; a lower class does. */
	struct sched_seq v[] = {decoding(2, 4), waiting(1, 4)};
	plan(v, 2, 1, 0);
	assert_false(v[0].evict);
	assert_int_equal(v[1].n_tokens, 0);
	v[0].priority = 1;
	plan(v, 2, 1, 0);
	assert_true(v[0].evict);
	assert_int_equal(v[1].n_tokens, 4);
}

static void idle_tenants_save_nothing(void **state)
{
	(void)state;
	struct sched_tenants t;
	assert_int_equal(sched_tenants_init(&t), 0);
	struct sched_tenant *a = sched_tenant_enter(&t, 1);
	struct sched_tenant *b = sched_tenant_enter(&t, 2);
	a->share = 500;
	b->share = 900;
	sched_tenant_leave(&t, a);
	a = sched_tenant_enter(&t, 1);
	assert_int_equal(a->share, 900);
	struct sched_tenant *c = sched_tenant_enter(&t, 3);
	assert_int_equal(c->share, 900);
	c->share = 2000;
	sched_tenant_leave(&t, c); /* nor does leaving pay a debt */
	c = sched_tenant_enter(&t, 3);
	assert_int_equal(c->share, 2000);
	sched_tenant_leave(&t, a);
	sched_tenant_leave(&t, b);
	sched_tenant_leave(&t, c);
	for (uint64_t i = 0; i < 3 * SCHED_IDLE_TENANTS; i++)
		sched_tenant_leave(&t, sched_tenant_enter(&t, 100 + i));
	assert_int_equal(t.n_idle, SCHED_IDLE_TENANTS);
	sched_tenants_dispose(&t);
}

/* ---- a whole engine's books ---- */

struct job {
	struct sched_seq s;
	struct sched_tenant *tenant;
	uint32_t n_prompt, n_made, want;
	uint64_t arrived_ns, first_ns, done_ns, worst_wait_ns;
	bool in;
};

struct sim {
	struct sched_config cfg;
	struct sched_tenants tenants;
	struct job *jobs;
	size_t n_jobs;
	uint32_t pages, pages_free;
	uint64_t now, steps, evictions;
	uint64_t random;
};

static uint32_t draw(struct sim *m, uint32_t below)
{
	m->random = m->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((m->random >> 33) % below);
}

static uint32_t pages_of(const struct sim *m, uint32_t n)
{
	return (n + m->cfg.page_tokens - 1) / m->cfg.page_tokens;
}

static void give_up(struct sim *m, struct job *j)
{
	m->pages_free += j->s.n_pages;
	j->s.n_pages = j->s.n_past = 0;
	j->s.started = false;
	j->s.prefilling = true;
	j->s.n_left = j->n_prompt + j->n_made;
}

/* One step; a row costs 1 ms. */
static void sim_step(struct sim *m)
{
	static struct sched_seq views[256];
	static struct job *of[256];
	struct sched_plan p;
	size_t n = 0;
	for (size_t i = 0; i < m->n_jobs; i++) {
		struct job *j = &m->jobs[i];
		if (!j->in && j->done_ns == 0 && j->arrived_ns <= m->now) {
			j->in = true;
			j->tenant = sched_tenant_enter(&m->tenants, j->s.share);
			j->s.served_ns = m->now;
		}
		if (!j->in)
			continue;
		j->s.share = j->tenant->share;
		views[n] = j->s;
		of[n++] = j;
	}
	sched_plan(&m->cfg, views, n, order, m->pages_free, m->now, &p);
	uint32_t started = 0, prefill = 0, decode = 0;
	for (size_t i = 0; i < n; i++) {
		if (!views[i].evict)
			continue;
		assert_true(of[i]->s.started);
		assert_int_equal(views[i].n_tokens, 0);
		give_up(m, of[i]);
		m->evictions++;
	}
	uint64_t cost = 1;
	for (size_t i = 0; i < n; i++)
		cost += views[i].n_tokens;
	m->now += cost * NS_PER_MS;
	m->steps++;
	for (size_t i = 0; i < n; i++) {
		struct job *j = of[i];
		uint32_t k = views[i].n_tokens;
		if (k == 0) {
			started += j->s.started;
			uint64_t waited = m->now - j->s.served_ns;
			if (j->s.credit && waited > j->worst_wait_ns)
				j->worst_wait_ns = waited;
			continue;
		}
		assert_true(j->s.credit);
		assert_true(k <= j->s.n_left);
		if (j->s.prefilling)
			prefill += k;
		else
			decode += k;
		uint32_t more = pages_of(m, j->s.n_past + k) - j->s.n_pages;
		assert_true(more <= m->pages_free); /* the plan's pages are there */
		m->pages_free -= more;
		j->s.n_pages += more;
		j->s.n_past += k;
		j->s.n_left -= k;
		j->s.started = true;
		j->s.served_ns = m->now;
		j->tenant->share += k * (uint64_t)(j->s.prefilling ? SCHED_PREFILL_WEIGHT
								    : SCHED_DECODE_WEIGHT);
		started++;
		if (j->s.n_left > 0)
			continue;
		if (j->first_ns == 0)
			j->first_ns = m->now;
		j->s.prefilling = false;
		j->s.n_left = 1;
		if (++j->n_made == j->want) {
			started--;
			give_up(m, j);
			j->in = false;
			j->done_ns = m->now;
			sched_tenant_leave(&m->tenants, j->tenant);
		}
	}
	assert_int_equal(prefill, p.n_prefill);
	assert_int_equal(decode, p.n_decode);
	assert_true(started <= m->cfg.max_sequences);
	assert_true(prefill <= m->cfg.step_tokens);
}

static void sim_init(struct sim *m, uint32_t pages, size_t n_jobs)
{
	*m = (struct sim){.cfg = plain, .pages = pages, .pages_free = pages, .n_jobs = n_jobs,
			  .random = 42};
	m->jobs = calloc(n_jobs, sizeof *m->jobs);
	assert_int_equal(sched_tenants_init(&m->tenants), 0);
}

/* The tenant's digest travels in s.share until it enters. */
static void sim_job(struct sim *m, size_t i, uint64_t tenant, uint8_t priority, uint32_t n_prompt,
		    uint32_t want, uint64_t at)
{
	m->jobs[i] = (struct job){
	    .s = {.order = i, .share = tenant, .n_left = n_prompt, .priority = priority,
		  .prefilling = true, .credit = true},
	    .n_prompt = n_prompt, .want = want, .arrived_ns = at};
}

static void sim_run(struct sim *m, uint64_t max_steps)
{
	for (;;) {
		bool left = false;
		for (size_t i = 0; i < m->n_jobs; i++)
			left = left || m->jobs[i].done_ns == 0;
		if (!left)
			break;
		assert_true(m->steps < max_steps);
		sim_step(m);
	}
	assert_int_equal(m->pages_free, m->pages);
}

static void sim_free(struct sim *m)
{
	sched_tenants_dispose(&m->tenants);
	free(m->jobs);
}

/* Everybody ends, whatever the mix, with pages for little more than one of the longest. */
static void everybody_ends(void **state)
{
	(void)state;
	for (uint32_t pages = 30; pages <= 120; pages += 30) {
		struct sim m;
		sim_init(&m, pages, 100);
		m.random = pages;
		for (size_t i = 0; i < 100; i++)
			sim_job(&m, i, draw(&m, 5), (uint8_t)draw(&m, 3), 1 + draw(&m, 60),
				1 + draw(&m, 50), draw(&m, 500) * NS_PER_MS);
		sim_run(&m, 100000);
		if (pages == 30)
			assert_true(m.evictions > 0);
		sim_free(&m);
	}
}

/* A tenant with forty requests does not keep one with four waiting. */
static void fair_between_tenants(void **state)
{
	(void)state;
	struct sim m;
	sim_init(&m, 1000, 44);
	for (size_t i = 0; i < 40; i++)
		sim_job(&m, i, 1, 0, 64, 16, 0);
	for (size_t i = 40; i < 44; i++)
		sim_job(&m, i, 2, 0, 64, 16, 100 * NS_PER_MS);
	sim_run(&m, 100000);
	uint64_t last_of_2 = 0, last_of_1 = 0;
	for (size_t i = 0; i < 44; i++) {
		uint64_t *last = i < 40 ? &last_of_1 : &last_of_2;
		*last = m.jobs[i].done_ns > *last ? m.jobs[i].done_ns : *last;
	}
	/* Its share of the whole is 4/44, its fair time twice that; a queue would end it last. */
	assert_true(last_of_2 < last_of_1 / 3);
	sim_free(&m);
}

/* Short prompts of the best class arrive without end; a long one of a lower class is served all
 * the same, and never waits longer than the bound for its next chunk. */
static void nobody_starves(void **state)
{
	(void)state;
	struct sim m;
	sim_init(&m, 1000, 3000);
	sim_job(&m, 0, 9, 3, 2000, 4, 0);
	for (size_t i = 1; i < 3000; i++)
		sim_job(&m, i, i % 3, 0, 30, 1, i * 33 * NS_PER_MS);
	while (m.jobs[0].done_ns == 0) {
		assert_true(m.steps < 100000);
		sim_step(&m);
	}
	/* The bound, and one step. */
	assert_true(m.jobs[0].worst_wait_ns <= m.cfg.starve_ns + 50 * NS_PER_MS);
	sim_run(&m, 200000);
	sim_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(decodes_come_first), cmocka_unit_test(no_credit_no_step),
	    cmocka_unit_test(priorities_age),	  cmocka_unit_test(tenants_share),
	    cmocka_unit_test(a_place_for_each),	  cmocka_unit_test(pages_run_out),
	    cmocka_unit_test(idle_tenants_save_nothing), cmocka_unit_test(everybody_ends),
	    cmocka_unit_test(fair_between_tenants), cmocka_unit_test(nobody_starves),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
