/* SPDX-License-Identifier: Apache-2.0
 *
 * Engines of role auto: what each is now (prefill, decode or both), for the whole process, and the planner that decides
 * it (gateway/planner) from what the links and the answers tell. A change moves new prompts only. Engines are not told
 * and not restarted: all of role auto may offer and await pages from their start. Sequences stay where they are, and
 * hand-overs that are under way end as they would have.
 *
 * One thread has the planner; each link reads the roles. Gateways that overlap in an upgrade decide for themselves.
 */
#ifndef GATEWAY_ROLE_PLANNER_H
#define GATEWAY_ROLE_PLANNER_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/planner/planner.h"

struct gw_thread;
struct role_planner;

/* ---- any thread ---- */

/* enum gw_engine_role, not AUTO: of the engine of this number while its configured role is auto; at first BOTH. */
int role_now(int engine);
/* A prompt is about to be computed, of which n_missing tokens are not cached; is_long: an idle prefill engine would get
 * it. */
void role_demand(bool is_long, uint32_t n_missing);
/* n more sequences of the engine await pages of another one; n may be negative. */
void role_awaits(int engine, int n);
/* The last decision, also one to change nothing. */
struct role_report {
	bool any; /* an engine has role auto, and a decision was made */
	struct planner_pressure now;
	int n_prefill;
	uint64_t n_changes; /* of roles, so far */
	int64_t changed_s;  /* the last change, since 1970; 0: none yet */
	enum planner_why why;
	char line[160]; /* as logged then */
};
void role_report(struct role_report *out);
/* "both", "prefill", "decode" */
const char *role_name(int role);

/* ---- one thread ---- */

/* NULL: out of memory. */
struct role_planner *role_planner_create(struct gw_thread *t);
void role_planner_destroy(struct role_planner *p); /* NULL allowed; all roles are BOTH again */
/* Decides once planner.period has passed. Nothing without an engine of role auto. */
void role_planner_tick(struct role_planner *p);

#endif
