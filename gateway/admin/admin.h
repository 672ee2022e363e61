/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: what an administrator's key may see and do (etc/api.md, "Administration"), under the built-in page /admin.
 * Nothing here shows text of prompts or answers, a key, or a tenant's name.
 *
 *   admin_streams.c   running answers, listed and cancelled: they belong to other threads (gather.h)
 *   admin_status.c    engines, models, memory, tiers, the store
 *   admin_actions.c   reload, drain, levels of the log, the flight recorder, the last hour
 *   admin_variants.c  variants of models: shown, restored, rolled back, given a weight
 *   admin_gate.c      how often one may ask, and the line in the log for each action
 *
 * Requests carry a key in the Authorization field, which no page of another site can send, and there are no cookies.
 * Thread: the exchange's. Callers: the route table (gateway/api).
 */
#ifndef GATEWAY_ADMIN_H
#define GATEWAY_ADMIN_H

#include <stdbool.h>

struct exchange;
struct gw_app;

void admin_status(struct exchange *x);       /* GET /v1/admin/status */
void admin_streams(struct exchange *x);      /* GET /v1/admin/streams */
void admin_cancel(struct exchange *x);       /* DELETE /v1/admin/streams/{id} */
void admin_history(struct exchange *x);      /* GET /v1/admin/history */
void admin_log(struct exchange *x);          /* GET /v1/admin/log */
void admin_log_set(struct exchange *x);      /* POST /v1/admin/log */
void admin_reload(struct exchange *x);       /* POST /v1/admin/reload */
void admin_drain(struct exchange *x);        /* POST /v1/admin/drain */
void admin_flight(struct exchange *x);       /* POST /v1/admin/flight */
void admin_variants(struct exchange *x);     /* GET /v1/admin/variants */
void admin_variants_set(struct exchange *x); /* POST /v1/admin/variants */

/* ---- admin_gate.c ---- */

enum admin_kind { ADMIN_LOOK, ADMIN_ACT };
/* Requests per second and at once, of all administrators of this process. */
enum { ADMIN_LOOKS_PER_S = 20, ADMIN_LOOKS_BURST = 60, ADMIN_ACTS_PER_S = 2, ADMIN_ACTS_BURST = 20 };
/* False with x answered (429). */
bool admin_gate(struct exchange *x, enum admin_kind kind);
/* One line in the log: what was done, by which key and from where. */
void admin_audit(const struct exchange *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
