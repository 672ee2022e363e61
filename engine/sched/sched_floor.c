/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/sched_floor.h"

#include "engine/sched/sched_state.h"

_Static_assert((int)SCHED_FLOORS == (int)SCHED_TIERS, "a floor for each tier");

static void add_to(struct sched_floor_tier *t, uint32_t rows, double n_past)
{
	t->rows += rows;
	t->past.positions += rows * n_past;
	t->past.reads += rows * n_past;
}

void sched_floor_add(struct sched_floor *f, uint8_t tier, uint32_t rows, uint64_t n_past)
{
	add_to(&f->of[tier], rows, (double)n_past + 1);
}

/* A reader that has no credit gets no rows, and may come back: it counts. */
void sched_floor_look(const struct sched *sc, struct sched_floor *f)
{
	*f = (struct sched_floor){0};
	for (uint32_t i = 0; i < sc->n_started; i++) {
		const struct sched_seq *s = sc->started[i];
		if (!s->evict)
			sched_floor_add(f, s->queue->tier, s->width, s->n_past + s->n_left);
	}
}

static double step_ns(const struct sched_floor_tier *t, const struct cost *cost)
{
	return cost_step_ns(cost, t->rows, t->past);
}

static double room_for_decodes(const struct sched_config *cfg, uint64_t floor_ns)
{
	double whole = (double)floor_ns, prompts = (double)cfg->itl_target_ns;
	return prompts < whole / 2 ? whole - prompts : whole / 2;
}

bool sched_floor_lets(const struct sched_floor *f, const struct sched_config *cfg, const struct cost *cost,
		      uint8_t tier, uint32_t rows, uint64_t n_past)
{
	struct sched_floor_tier better = {0}, all = {0};
	double most = 0;
	add_to(&all, rows, (double)n_past + 1);
	for (int i = 0; i < SCHED_TIERS; i++) {
		all.rows += f->of[i].rows;
		all.past.positions += f->of[i].past.positions;
		all.past.reads += f->of[i].past.reads;
	}
	for (int i = 0; i < tier; i++) {
		if (f->of[i].rows == 0)
			continue;
		better.rows += f->of[i].rows;
		better.past.positions += f->of[i].past.positions;
		better.past.reads += f->of[i].past.reads;
		double room = room_for_decodes(cfg, cfg->floor_ns[i]);
		/* Those of a better tier that miss it together lose it to each other. */
		if (cfg->floor_ns[i] > 0 && step_ns(&better, cost) <= room && (most == 0 || room < most))
			most = room;
	}
	return most == 0 || step_ns(&all, cost) <= most;
}
