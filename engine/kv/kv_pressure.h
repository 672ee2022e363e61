/* SPDX-License-Identifier: Apache-2.0
 *
 * When memory of keys and values is given back to the system, and when it is taken again. Pure: readings of the
 * machine's memory go in, one after the other at equal intervals; bytes come out.
 *
 *   pressed    less than half of the reserve is available; or the control group was throttled since the last reading;
 *              or threads wait for memory (a tenth of the time) and less than twice the reserve is available
 *   release    while pressed: as much as the reserve lacks, at least a KV_PRESSURE_PART of all and at most a quarter
 *   restore    once nothing pressed for KV_PRESSURE_CALM readings: a KV_PRESSURE_PART of all, as far as the reserve and as
 *              much again stay free; then the wait begins anew
 *
 * So between half of the reserve and all of it nothing moves, and what was given back returns in small steps: a second
 * burst of pressure finds most of it still given back.
 */
#ifndef ENGINE_KV_PRESSURE_H
#define ENGINE_KV_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

enum { KV_PRESSURE_PART = 16, KV_PRESSURE_CALM = 20, KV_PRESSURE_STALLED = 100 };

struct kv_pressure {
	uint64_t reserve, all; /* bytes that should stay free; of keys and values when nothing is given back */
	uint64_t events;       /* of the last reading */
	unsigned calm;         /* readings since something pressed or was restored */
	bool begun;
};

struct kv_pressure_reading {
	uint64_t available, events; /* as struct machine_memory has them */
	uint32_t stalled;
	uint64_t withheld; /* bytes that are given back now and may not be used */
};

/* Bytes to release (positive) or that may be used again (negative); 0: nothing changes. */
int64_t kv_pressure_decide(struct kv_pressure *p, const struct kv_pressure_reading *now);

#endif
