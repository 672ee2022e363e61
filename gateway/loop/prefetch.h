/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that an event of a stream will access, prefetched while earlier events are handled. A step accesses each
 * of a thousand streams once: about fifty cache lines, in objects that point to one another. Loading them one after
 * another took a sixth of an event's time (tests/bench/results). The addresses are hints and never dereferenced.
 */
#ifndef GATEWAY_PREFETCH_H
#define GATEWAY_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum { PREFETCH_SLOTS = 9, PREFETCH_LINE = 64, PREFETCH_MAX_LINES = 8 };

struct prefetch_hints {
	const void *at[PREFETCH_SLOTS];
	uint8_t n_lines[PREFETCH_SLOTS]; /* 0: this slot and the following ones are empty */
};

/* Adds n_bytes at an address, at most PREFETCH_MAX_LINES lines; does nothing if all slots are used. */
static inline void prefetch_add(struct prefetch_hints *f, const void *at, size_t n_bytes)
{
	size_t from = (uintptr_t)at % PREFETCH_LINE, n = (from + n_bytes + PREFETCH_LINE - 1) / PREFETCH_LINE;
	for (int i = 0; i < PREFETCH_SLOTS; i++) {
		if (f->n_lines[i] > 0)
			continue;
		f->at[i] = at;
		f->n_lines[i] = (uint8_t)(n < PREFETCH_MAX_LINES ? n : PREFETCH_MAX_LINES);
		return;
	}
}

static inline void prefetch_fetch(const struct prefetch_hints *f)
{
	for (int i = 0; i < PREFETCH_SLOTS; i++)
		for (unsigned k = 0; k < f->n_lines[i]; k++)
			__builtin_prefetch((const char *)f->at[i] + (size_t)k * PREFETCH_LINE);
}

#endif
