/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks for answers whose gateway has died, and has them continued (replay_sweep.c). One for each thread that has a
 * store; it uses the loop's timers and the store's client, and lives until replay_sweep_destroy.
 */
#ifndef GATEWAY_REPLAY_SWEEP_H
#define GATEWAY_REPLAY_SWEEP_H

struct replay_store;
struct replay_sweep;

/* s NULL: *out is NULL. SL_ENOMEM. */
int replay_sweep_create(struct replay_store *s, struct replay_sweep **out);
/* NULL allowed. */
void replay_sweep_destroy(struct replay_sweep *w);

#endif
