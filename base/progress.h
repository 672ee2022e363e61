/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress of work that takes more than a moment: when to report it, and in which words. Pure: the caller has the
 * clock.
 */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	uint64_t began_ns; /* 0: not yet */
	uint64_t said_ns;  /* when it was last reported in words */
	uint64_t told_ns;  /* when its percent was */
	int percent;       /* as last told */
};

enum { PROGRESS_SAY_MS = 1000, PROGRESS_TELL_MS = 250 };

/* 0 … 100, rounded down. */
int progress_percent(uint64_t done, uint64_t total);
/* Whether a line is due: the work has taken PROGRESS_SAY_MS, and so has the time since the last line. */
bool progress_says(struct progress *p, uint64_t now_ns);
/* Whether another percent is to be told, at most every PROGRESS_TELL_MS, and the first one at once. */
bool progress_tells(struct progress *p, uint64_t done, uint64_t total, uint64_t now_ns);
/* "54 %, 412 MB/s, 6 s left", at most n bytes. Returns line. */
const char *progress_line(const struct progress *p, uint64_t done, uint64_t total, uint64_t now_ns, char *line,
			  size_t n);

#endif
