/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches the host's memory while models run, where the budget for keys and values follows from it, and asks the step
 * thread to give memory back or to use it again (engine/kv/kv_pressure.h decides, engine/step/kv_rebalance.h does it).
 * A thread of its own, since reading /proc may take long on a machine that swaps. Private to engine/.
 */
#ifndef ENGINE_MEMORY_WATCH_H
#define ENGINE_MEMORY_WATCH_H

struct engine;
struct memory_watch;

/* NULL: without memory or a thread nothing is watched, which is logged. e must outlive it. */
struct memory_watch *memory_watch_start(struct engine *e);
void memory_watch_stop(struct memory_watch *w); /* NULL: nothing */

#endif
