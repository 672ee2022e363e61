/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's owner of simulations without pages of their own: nothing is cached, all pages come back, and whoever
 * is evicted begins again.
 */
#ifndef TESTS_SIM_SCHED_OWNER_H
#define TESTS_SIM_SCHED_OWNER_H

#include "engine/sched/sched.h"

static void owner_look(void *ctx, struct sched_seq *s, struct sched_look *out)
{
	(void)ctx, (void)s;
	*out = (struct sched_look){0};
}

static uint32_t owner_pages_back(void *ctx, const struct sched_seq *s)
{
	(void)ctx;
	return s->n_pages;
}

static const struct sched_owner sim_owner = {.look = owner_look, .pages_back = owner_pages_back};

static inline void sim_evict(struct sched *sc, const struct sched_plan *p, uint64_t now)
{
	for (uint32_t i = 0; i < p->n_evict; i++) {
		struct sched_seq *s = p->evict[i];
		s->n_left += s->n_past;
		s->n_past = s->n_pages = 0;
		s->started = false;
		s->prefilling = true;
		sched_update(sc, s, now);
	}
}

#endif
