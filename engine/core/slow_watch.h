/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches whether the engine's device or processor is slowed (engine/sched/slowdown.h), so that steps keep the tiers'
 * targets between tokens meanwhile (engine/sched/sched_ease.h). What it reads: the device's watch, and the kernel's
 * account of tasks that wait for a processor, of the engine's control group or else of the machine. A thread of its
 * own. Private to engine/.
 */
#ifndef ENGINE_SLOW_WATCH_H
#define ENGINE_SLOW_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct slow_watch;

/* NULL: without memory or a thread nothing is watched, which is logged. e must outlive it. */
struct slow_watch *slow_watch_start(struct engine *e);
void slow_watch_stop(struct slow_watch *w); /* NULL: nothing */

/* Microseconds so far in which a task waited for a processor; root: before every path, for tests. False: unknown. */
bool slow_watch_read_cpu(const char *root, uint64_t *us);

#endif
