/* SPDX-License-Identifier: Apache-2.0
 *
 * Brings the states of this process and the store together, four times a second: what came here is added there, and
 * what all gateways know is judged here. One of a process, on the thread that made it.
 */
#ifndef GATEWAY_VARIANT_SYNC_H
#define GATEWAY_VARIANT_SYNC_H

struct gw_thread;
struct variant_sync;

/* t->cache must be there. NULL: no memory, or no random number. */
struct variant_sync *variant_sync_create(struct gw_thread *t);
void variant_sync_destroy(struct variant_sync *s); /* NULL allowed */

#endif
