/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/residency.h"

#include <limits.h>
#include <math.h>

/* ---- charges ---- */

static double left_of(const struct residency *r, const struct residency_charge *c, uint64_t now)
{
	double age = now > c->at_ns ? (double)(now - c->at_ns) : 0;
	return c->at_ns == 0 ? 0 : c->models * exp2(-age / (RESIDENCY_CHARGE_TURNS * (double)r->cfg.turn_ns));
}

uint64_t residency_rank(const struct residency *r, uint64_t tenant, uint64_t since_ns, uint64_t now_ns)
{
	double charge = 0;
	for (int i = 0; i < RESIDENCY_TENANTS; i++)
		if (r->charges[i].tenant == tenant)
			charge += left_of(r, &r->charges[i], now_ns);
	double rank = (double)since_ns + charge * (double)r->cfg.turn_ns;
	return rank < 0x1p63 ? (uint64_t)rank : UINT64_MAX / 2;
}

void residency_charge(struct residency *r, uint64_t tenant, uint64_t now_ns)
{
	struct residency_charge *least = &r->charges[0];
	for (int i = 0; i < RESIDENCY_TENANTS; i++) {
		struct residency_charge *c = &r->charges[i];
		if (c->at_ns != 0 && c->tenant == tenant) {
			least = c;
			break;
		}
		if (left_of(r, c, now_ns) < left_of(r, least, now_ns))
			least = c;
	}
	double before = least->tenant == tenant ? left_of(r, least, now_ns) : 0;
	*least = (struct residency_charge){.tenant = tenant, .at_ns = now_ns > 0 ? now_ns : 1, .models = before + 1};
}

/* ---- choices ---- */

static bool is_in_memory(const struct residency_model *m) { return m->state != RESIDENCY_ABSENT; }

static int first_wish(const struct residency *r, const struct residency_model *models, int n, uint64_t now)
{
	int best = -1;
	uint64_t best_rank = 0;
	for (int i = 0; i < n; i++) {
		const struct residency_model *m = &models[i];
		if (!m->on_demand || m->state != RESIDENCY_ABSENT || !m->wished || m->retry_ns > now ||
		    m->bytes > r->cfg.bound)
			continue;
		uint64_t rank = residency_rank(r, m->tenant, m->since_ns, now);
		if (best < 0 || rank < best_rank) {
			best = i;
			best_rank = rank;
		}
	}
	return best;
}

static bool had_turn(const struct residency *r, const struct residency_model *m, uint64_t now)
{
	return now >= m->here_ns && now - m->here_ns >= r->cfg.turn_ns;
}

/* Neither model of a pair displaces the other under its sequences. */
static bool is_partner(const struct residency_model *m, const struct residency_model *wish)
{
	return m->paired && wish->paired && (m->busy || m->begun);
}

/* Without work, the one used longest ago; -1: none may go. */
static int idle_victim(const struct residency *r, const struct residency_model *models, int n, int wish, uint64_t now)
{
	int best = -1;
	for (int i = 0; i < n; i++) {
		const struct residency_model *m = &models[i];
		bool here = m->state == RESIDENCY_HERE || m->state == RESIDENCY_LEAVING;
		if (m->on_demand && here && !m->busy && !is_partner(m, &models[wish]) && had_turn(r, m, now) &&
		    (best < 0 || m->used_ns < models[best].used_ns))
			best = i;
	}
	return best;
}

/* With work, the one here longest; -1: none may go yet. */
static int busy_victim(const struct residency *r, const struct residency_model *models, int n, int wish, uint64_t now)
{
	int best = -1;
	for (int i = 0; i < n; i++) {
		const struct residency_model *m = &models[i];
		if (m->on_demand && m->state == RESIDENCY_HERE && m->busy && !is_partner(m, &models[wish]) &&
		    had_turn(r, m, now) && (best < 0 || m->here_ns < models[best].here_ns))
			best = i;
	}
	return best;
}

static struct residency_move nothing(void) { return (struct residency_move){.act = RESIDENCY_NOTHING, .model = -1}; }

/* Without a wish: models that were to leave stay, those without work for long go. */
static struct residency_move tidy(const struct residency *r, const struct residency_model *models, int n, uint64_t now)
{
	for (int i = 0; i < n; i++) {
		const struct residency_model *m = &models[i];
		if (m->state == RESIDENCY_LEAVING)
			return (struct residency_move){.act = RESIDENCY_STAY, .model = i};
		if (m->on_demand && m->state == RESIDENCY_HERE && !m->busy && now >= m->expires_ns &&
		    had_turn(r, m, now))
			return (struct residency_move){.act = RESIDENCY_DROP, .model = i};
	}
	return nothing();
}

struct residency_move residency_next(const struct residency *r, const struct residency_model *models, int n,
				     uint64_t now_ns)
{
	uint64_t taken = 0, leaving = 0;
	unsigned n_here = 0, n_leaving = 0, places = r->cfg.places > 0 ? r->cfg.places : UINT_MAX;
	int wish = first_wish(r, models, n, now_ns), victim;
	for (int i = 0; i < n; i++) {
		if (models[i].state == RESIDENCY_COMING || models[i].state == RESIDENCY_GOING)
			return nothing(); /* one at a time */
		bool counts = models[i].on_demand && is_in_memory(&models[i]);
		taken += counts ? models[i].bytes : 0;
		n_here += counts;
		if (wish >= 0 && models[i].state == RESIDENCY_LEAVING && !is_partner(&models[i], &models[wish])) {
			leaving += models[i].bytes;
			n_leaving++;
		}
	}
	if (wish < 0)
		return tidy(r, models, n, now_ns);
	uint64_t needs = taken + models[wish].bytes;
	if (needs <= r->cfg.bound && n_here < places)
		return (struct residency_move){.act = RESIDENCY_BRING, .model = wish};
	if ((victim = idle_victim(r, models, n, wish, now_ns)) >= 0)
		return (struct residency_move){.act = RESIDENCY_DROP, .model = victim};
	if (needs - leaving <= r->cfg.bound && n_here - n_leaving < places)
		return nothing(); /* enough will go */
	if ((victim = busy_victim(r, models, n, wish, now_ns)) >= 0)
		return (struct residency_move){.act = RESIDENCY_LEAVE, .model = victim};
	return nothing();
}
