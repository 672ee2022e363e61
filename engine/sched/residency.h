/* SPDX-License-Identifier: Apache-2.0
 *
 * Residency: which models' weights are in memory, where not all fit. Pure: it knows neither weights nor clocks, so a
 * simulation can drive it. One thread.
 *
 *   ABSENT → COMING → HERE → LEAVING → GOING → ABSENT
 *
 *   wish       work that waits for an absent model, of one tenant
 *   bound      bytes that the weights of all models that are not ABSENT take at most; there may be a bound for their
 *              number, too: adapters (engine/lora) are models here, and have slots
 *   turn       once here, a model stays for residency_config.turn_ns at least, whoever waits
 *   LEAVING    it is here and starts nothing new; what runs ends first. Only where another model waits and no model
 *              without work can go instead
 *
 * Order of wishes: the oldest first; a tenant's wish counts as younger by a turn for each model that was brought in for
 * that tenant lately (a charge, halved every eight turns). So a tenant that asks for one model after the other waits
 * behind tenants that ask for one, and still no wish waits for ever, since only younger ones than its age and charge
 * come before it. Only the first wish is served: a large model is not overtaken by small ones for ever.
 *
 * Who goes: models without work that have had their turn, the least recently used first; then of those with work the
 * one that is here the longest. A model without work goes once its time is over (expires_ns), but not before its turn.
 *
 * The pair of a cascade: both fit together (the caller checks), so neither displaces the other while the other has work
 * or sequences that have begun. An answer that one of them has begun and the other is to continue thus waits for third
 * models only, never for itself.
 *
 * Switches are bounded: a model goes only after its turn, whatever clients ask for.
 */
#ifndef ENGINE_RESIDENCY_H
#define ENGINE_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

enum residency_state { RESIDENCY_HERE, RESIDENCY_LEAVING, RESIDENCY_GOING, RESIDENCY_ABSENT, RESIDENCY_COMING };

enum { RESIDENCY_TENANTS = 64, RESIDENCY_CHARGE_TURNS = 8 };

struct residency_config {
	uint64_t bound;   /* bytes */
	unsigned places;  /* of models that are not ABSENT; 0: no bound */
	uint64_t turn_ns; /* at least 1 */
};

struct residency_model {
	bool on_demand; /* others are HERE and are never chosen */
	enum residency_state state;
	uint64_t bytes;
	uint64_t expires_ns;       /* without work it goes from then on; UINT64_MAX: never for that */
	uint64_t here_ns;          /* since when it is HERE */
	uint64_t used_ns;          /* when it had work last */
	uint64_t retry_ns;         /* not to be brought in before: it failed */
	bool busy;                 /* HERE: has work; LEAVING: some of it runs */
	bool paired;               /* one of a cascade's two models */
	bool begun;                /* sequences have begun, even if none of them can get on now */
	bool wished;               /* ABSENT: work waits, */
	uint64_t tenant, since_ns; /* of whom, since when: the first of its wishes (residency_before) */
};

struct residency {
	struct residency_config cfg;
	struct residency_charge {
		uint64_t tenant, at_ns; /* at_ns 0: unused */
		double models;
	} charges[RESIDENCY_TENANTS];
};

enum residency_act { RESIDENCY_NOTHING, RESIDENCY_BRING, RESIDENCY_DROP, RESIDENCY_LEAVE, RESIDENCY_STAY };

struct residency_move {
	enum residency_act act;
	int model;
};

/* When a wish counts as having come: smaller goes first. */
uint64_t residency_rank(const struct residency *r, uint64_t tenant, uint64_t since_ns, uint64_t now_ns);
/* What is to be done next. The caller does it, at once or later, and asks again: BRING makes a model COMING and charges
 * the wish's tenant, DROP GOING, LEAVE LEAVING, STAY (nobody waits any more) HERE. */
struct residency_move residency_next(const struct residency *r, const struct residency_model *models, int n,
				     uint64_t now_ns);
/* A model was brought in for this tenant. */
void residency_charge(struct residency *r, uint64_t tenant, uint64_t now_ns);

#endif
