/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that do not all fit, simulated: tenants ask for them at random, with one that always asks for the next. In
 * every run the bound holds, no request waits for ever, nothing is dropped under work that runs, a model stays for its
 * turn, and who switches does not slow down the others. Cascades, whose first model waits while the second answers, end
 * with room for no more than the two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "engine/sched/keep_alive.h"
#include "engine/sched/residency.h"
#include "tests/support/part.h"

enum { SMALL = 0, LARGE = 1, KEEP_MS = 60000 };
enum { MODELS = 8, TENANTS = 6, REQUESTS = 64, TICK_MS = 50, TURN_MS = 5000, LOAD_MS = 1000, MS = 1000000 };

struct request {
	int model; /* -1: free */
	int tenant;
	uint64_t since_ns, ends_ns; /* ends_ns 0: waits */
	uint64_t work_ns;
	bool cascade, paused; /* it began with SMALL, which waits for LARGE */
};

struct world {
	unsigned seed;
	uint64_t now;
	struct residency r;
	struct residency_model m[MODELS];
	struct keep_alive keep[MODELS];
	uint64_t coming_ns, going_ns[MODELS];
	struct request q[REQUESTS];
	uint64_t n_brought, longest_ns, served[TENANTS], waited_ns[TENANTS];
	int next_of_switcher;
	uint64_t n_taken_over;
};

static uint64_t draw(struct world *w, uint64_t least, uint64_t most)
{
	return least + (uint64_t)rand_r(&w->seed) % (most - least + 1);
}

static void ask(struct world *w, int tenant, int model, uint64_t work_ms)
{
	for (int i = 0; i < REQUESTS; i++) {
		if (w->q[i].model >= 0)
			continue;
		w->q[i] =
		    (struct request){.model = model, .tenant = tenant, .since_ns = w->now, .work_ns = work_ms * MS};
		return;
	}
}

static int count_of(const struct world *w, int tenant)
{
	int n = 0;
	for (int i = 0; i < REQUESTS; i++)
		n += w->q[i].model >= 0 && w->q[i].tenant == tenant;
	return n;
}

/* One of SMALL's cascade goes on with LARGE. */
static void end(struct world *w, struct request *q)
{
	bool goes_on = q->cascade && q->model == SMALL;
	w->n_taken_over += q->cascade && q->model == LARGE;
	q->model = goes_on ? LARGE : -1;
	q->paused = goes_on;
	q->ends_ns = 0;
	q->since_ns = w->now;
}

/* Requests start where their model is here, and end. */
static void serve(struct world *w)
{
	for (int i = 0; i < REQUESTS; i++) {
		struct request *q = &w->q[i];
		if (q->model < 0)
			continue;
		struct residency_model *m = &w->m[q->model];
		if (q->ends_ns == 0 && m->state == RESIDENCY_HERE) {
			uint64_t waited = w->now - q->since_ns;
			w->longest_ns = waited > w->longest_ns ? waited : w->longest_ns;
			w->waited_ns[q->tenant] += waited;
			w->served[q->tenant]++;
			q->ends_ns = w->now + q->work_ns;
		}
		if (q->ends_ns != 0) {
			assert_true(m->state == RESIDENCY_HERE || m->state == RESIDENCY_LEAVING);
			m->used_ns = w->now;
			keep_alive_use(&w->keep[q->model], (uint64_t)q->tenant + 100, w->now);
			if (w->now >= q->ends_ns)
				end(w, q);
		}
	}
}

static void look(struct world *w)
{
	for (int k = 0; k < MODELS; k++) {
		struct residency_model *m = &w->m[k];
		m->busy = m->wished = m->begun = false;
		m->expires_ns = keep_alive_end(&w->keep[k]);
		for (int i = 0; i < REQUESTS; i++) {
			const struct request *q = &w->q[i];
			uint64_t tenant = (uint64_t)q->tenant + 100;
			m->begun = m->begun || (k == SMALL && q->model == LARGE && q->paused);
			if (q->model != k)
				continue;
			m->busy = m->busy || q->ends_ns != 0;
			m->begun = m->begun || q->ends_ns != 0;
			if (q->ends_ns != 0 || m->state != RESIDENCY_ABSENT)
				continue;
			if (m->wished && residency_rank(&w->r, m->tenant, m->since_ns, w->now) <=
					     residency_rank(&w->r, tenant, q->since_ns, w->now))
				continue;
			m->wished = true;
			m->tenant = tenant;
			m->since_ns = q->since_ns;
		}
	}
}

/* The wish that is served is that of the other model of the pair, the only one. */
static bool first_is_partner(const struct world *w, int model)
{
	for (int k = 0; k < MODELS; k++)
		if (w->m[k].wished && k != SMALL + LARGE - model)
			return false;
	return w->m[SMALL + LARGE - model].wished;
}

static void move(struct world *w)
{
	struct residency_move a;
	while ((a = residency_next(&w->r, w->m, MODELS, w->now)).act != RESIDENCY_NOTHING) {
		struct residency_model *m = &w->m[a.model];
		switch (a.act) {
		case RESIDENCY_BRING:
			assert_true(m->state == RESIDENCY_ABSENT && m->wished);
			m->state = RESIDENCY_COMING;
			w->coming_ns = w->now + LOAD_MS * (uint64_t)MS;
			w->n_brought++;
			residency_charge(&w->r, m->tenant, w->now);
			break;
		case RESIDENCY_DROP:
			assert_false(m->busy);
			assert_true(w->now - m->here_ns >= TURN_MS * (uint64_t)MS);
			assert_false(m->begun && m->paired && first_is_partner(w, a.model));
			m->state = RESIDENCY_GOING;
			break;
		case RESIDENCY_LEAVE:
			assert_false(m->paired && first_is_partner(w, a.model));
			m->state = RESIDENCY_LEAVING;
			break;
		case RESIDENCY_STAY: m->state = RESIDENCY_HERE; break;
		case RESIDENCY_NOTHING: break;
		}
		uint64_t taken = 0;
		unsigned n = 0;
		for (int k = 0; k < MODELS; k++) {
			taken += w->m[k].state != RESIDENCY_ABSENT ? w->m[k].bytes : 0;
			n += w->m[k].state != RESIDENCY_ABSENT;
		}
		assert_true(taken <= w->r.cfg.bound);
		assert_true(w->r.cfg.places == 0 || n <= w->r.cfg.places);
	}
}

static void tick(struct world *w)
{
	w->now += TICK_MS * (uint64_t)MS;
	for (int k = 0; k < MODELS; k++) {
		struct residency_model *m = &w->m[k];
		if (m->state == RESIDENCY_COMING && w->now >= w->coming_ns) {
			m->state = RESIDENCY_HERE;
			m->here_ns = m->used_ns = w->now;
		} else if (m->state == RESIDENCY_GOING) {
			m->state = RESIDENCY_ABSENT;
			keep_alive_clear(&w->keep[k]);
		}
	}
	serve(w);
	look(w);
	move(w);
}

/* A number of them is bounded instead of their bytes, as adapters are by slots. */
static bool by_places;

static void begin(struct world *w, unsigned seed, bool even)
{
	*w = (struct world){.seed = seed, .now = MS};
	w->r.cfg = (struct residency_config){.bound = 300, .turn_ns = TURN_MS * (uint64_t)MS};
	if (by_places)
		w->r.cfg =
		    (struct residency_config){.bound = UINT64_MAX, .places = 3, .turn_ns = TURN_MS * (uint64_t)MS};
	for (int k = 0; k < MODELS; k++) {
		w->m[k] = (struct residency_model){
		    .on_demand = true, .state = RESIDENCY_ABSENT, .bytes = even ? 100 : draw(w, 20, 300)};
		keep_alive_init(&w->keep[k], KEEP_MS * (uint64_t)MS);
	}
	for (int i = 0; i < REQUESTS; i++)
		w->q[i].model = -1;
}

static void settle(struct world *w)
{
	for (int i = 0; i < 20 * 60 * 10; i++)
		tick(w);
	for (int i = 0; i < REQUESTS; i++)
		assert_int_equal(w->q[i].model, -1); /* everyone was served */
	for (int k = 0; k < MODELS; k++)
		assert_int_equal(w->m[k].state, RESIDENCY_ABSENT); /* and keep_alive has passed */
}

/* Everyone asks for anything. */
static void random_demand(void **state)
{
	(void)state;
	for (unsigned seed = 1, n = (unsigned)some_of(12, 40); seed <= n; seed++) {
		struct world w;
		begin(&w, seed, seed % 2 == 0);
		int ticks = 20 * 60 * 5;
		for (int i = 0; i < ticks; i++) {
			int tenant = (int)draw(&w, 0, TENANTS - 1);
			if (draw(&w, 0, 9) == 0 && count_of(&w, tenant) < REQUESTS / TENANTS)
				ask(&w, tenant, (int)draw(&w, 0, MODELS - 1), draw(&w, 100, 4000));
			tick(&w);
		}
		/* Three at a time have a turn each and a load; a model of all the bound has it alone. */
		uint64_t seconds = (uint64_t)ticks * TICK_MS / 1000;
		assert_true(w.n_brought <= (seconds * 1000 / TURN_MS + 1) * (300 / 20));
		assert_true(seed % 2 != 0 || w.n_brought <= (seconds * 1000 / TURN_MS + 2) * 3);
		/* All models before it, each a turn, the longest answer and a load. */
		assert_true(w.longest_ns < (uint64_t)MODELS * 4 * (TURN_MS + 4000 + LOAD_MS) * MS);
		settle(&w);
	}
}

static int switches(void) { return some_of(4, 10); }

/* One tenant walks through five models; the others have one each, all of which fit. */
static uint64_t others_wait(bool switching, uint64_t *brought)
{
	uint64_t waited = 0, served = 0;
	*brought = 0;
	for (unsigned seed = 1; seed <= (unsigned)switches(); seed++) {
		struct world w;
		begin(&w, seed, true);
		for (int i = 0; i < 20 * 60 * 5; i++) {
			for (int tenant = 1; tenant <= 2; tenant++)
				if (count_of(&w, tenant) == 0 && draw(&w, 0, 19) == 0)
					ask(&w, tenant, tenant, draw(&w, 100, 2000));
			while (switching && count_of(&w, 0) < 10) {
				w.next_of_switcher = (w.next_of_switcher + 1) % 5;
				ask(&w, 0, 3 + w.next_of_switcher, draw(&w, 100, 2000));
			}
			tick(&w);
		}
		for (int tenant = 1; tenant <= 2; tenant++) {
			waited += w.waited_ns[tenant] / MS;
			served += w.served[tenant];
		}
		*brought += w.n_brought;
		assert_true(!switching || w.served[0] > 20); /* it is served, too */
	}
	return waited / served;
}

static void one_tenant_switches(void **state)
{
	(void)state;
	uint64_t alone, crowded, brought;
	alone = others_wait(false, &brought);
	crowded = others_wait(true, &brought);
	print_message(
	    "the others wait %llu ms on the average, %llu beside one that switches; %llu loads in %d minutes\n",
	    (unsigned long long)alone, (unsigned long long)crowded, (unsigned long long)brought, 5 * switches());
	/* Far less than a turn, which each of its switches would cost them if it came first. */
	assert_true(crowded < TURN_MS);
	assert_true(brought <= (uint64_t)switches() * (300000 / TURN_MS + 2) * 3);
}

static void by_slots(void **state)
{
	by_places = true;
	random_demand(state);
	one_tenant_switches(state);
	by_places = false;
}

/* Cascades of SMALL and LARGE, for which there is just room, beside tenants that ask for others. Each waits for its
 * second model while its first one keeps its place: none waits for ever, none is lost. */
static void cascades_end(void **state)
{
	(void)state;
	for (unsigned seed = 1, n = (unsigned)some_of(7, 20); seed <= n; seed++) {
		struct world w;
		begin(&w, seed, true);
		w.r.cfg.bound = 200;
		w.m[SMALL].paired = w.m[LARGE].paired = true;
		uint64_t asked = 0;
		for (int i = 0; i < 20 * 60 * 5; i++) {
			if (draw(&w, 0, 99) == 0 && count_of(&w, 1) < 8) {
				ask(&w, 1, SMALL, draw(&w, 100, 1500));
				for (int k = 0; k < REQUESTS; k++)
					w.q[k].cascade = w.q[k].tenant == 1;
				asked++;
			}
			if (draw(&w, 0, 99) == 0 && count_of(&w, 2) < 8)
				ask(&w, 2, (int)draw(&w, 2, 3), draw(&w, 100, 4000));
			tick(&w);
		}
		assert_true(w.longest_ns < (uint64_t)4 * 4 * (TURN_MS + 4000 + LOAD_MS) * MS);
		settle(&w);
		assert_int_equal(w.n_taken_over, asked);
	}
}

/* A tenant that unloads its model after every answer reloads it once a turn at most, and unloads it under no other. */
static void one_tenant_unloads(void **state)
{
	(void)state;
	struct world w;
	uint64_t seconds = 60 * 5;
	begin(&w, 1, true);
	for (uint64_t i = 0; i < 20 * seconds; i++) {
		if (count_of(&w, 0) == 0)
			ask(&w, 0, 0, 100);
		if (count_of(&w, 0) == 0 || i % 3 == 0)
			keep_alive_ask(&w.keep[0], 100, 0, w.now);
		tick(&w);
	}
	assert_true(w.served[0] > 100);
	assert_true(w.n_brought <= seconds * 1000 / TURN_MS + 1);
	/* Beside one that uses the same model. */
	begin(&w, 1, true);
	for (uint64_t i = 0; i < 20 * seconds; i++) {
		if (i % 200 == 0)
			ask(&w, 1, 0, 100);
		keep_alive_ask(&w.keep[0], 100, 0, w.now);
		tick(&w);
	}
	assert_int_equal(w.n_brought, 1);
}

/* By hand: charges fade, and the older wish wins in the end. */
static void charges(void **state)
{
	(void)state;
	struct residency r = {.cfg = {.bound = 1, .turn_ns = 1000}};
	assert_int_equal(residency_rank(&r, 7, 50, 60), 50);
	residency_charge(&r, 7, 100);
	residency_charge(&r, 7, 100);
	assert_int_equal(residency_rank(&r, 7, 50, 100), 2050);
	assert_int_equal(residency_rank(&r, 8, 60, 100), 60);
	assert_int_equal(residency_rank(&r, 7, 50, 100 + 1000 * RESIDENCY_CHARGE_TURNS), 1050);
	for (uint64_t tenant = 100; tenant < 100 + 2 * RESIDENCY_TENANTS; tenant++)
		residency_charge(&r, tenant, 200);
	assert_in_range(residency_rank(&r, 100 + 2 * RESIDENCY_TENANTS - 1, 0, 200), 999, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(charges),  cmocka_unit_test(random_demand), cmocka_unit_test(one_tenant_switches),
	    cmocka_unit_test(by_slots), cmocka_unit_test(cascades_end),  cmocka_unit_test(one_tenant_unloads)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
