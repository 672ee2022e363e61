/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that an event of a stream will access, to be prefetched while earlier events are handled. A step accesses
 * each of a thousand streams once, about fifty cache lines in objects that point to one another; waiting for them one
 * after another took a sixth of an event's time (tests/bench/results).
 *
 * Addresses are hints: they are never dereferenced.
 */
#ifndef GATEWAY_PREFETCH_H
#define GATEWAY_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum { FORESIGHT_PLACES = 6, FORESIGHT_LINE = 64, FORESIGHT_MAX_LINES = 8 };

struct prefetch_hints {
	const void *at[FORESIGHT_PLACES];
	uint8_t n_lines[FORESIGHT_PLACES]; /* 0: nothing (more) */
};

/* Adds n_bytes at an address, FORESIGHT_MAX_LINES lines at most; ignored when all slots are used. */
static inline void prefetch_add(struct prefetch_hints *f, const void *at, size_t n_bytes)
{
	size_t from = (uintptr_t)at % FORESIGHT_LINE, n = (from + n_bytes + FORESIGHT_LINE - 1) / FORESIGHT_LINE;
	for (int i = 0; i < FORESIGHT_PLACES; i++) {
		if (f->n_lines[i] > 0)
			continue;
		f->at[i] = at;
		f->n_lines[i] = (uint8_t)(n < FORESIGHT_MAX_LINES ? n : FORESIGHT_MAX_LINES);
		return;
	}
}

static inline void prefetch_fetch(const struct prefetch_hints *f)
{
	for (int i = 0; i < FORESIGHT_PLACES; i++)
		for (unsigned k = 0; k < f->n_lines[i]; k++)
			__builtin_prefetch((const char *)f->at[i] + (size_t)k * FORESIGHT_LINE);
}

#endif
